//! The order of a session's messages, for whoever hears of them one by one.

use indexmap::IndexSet;

use crate::MessageId;

/// The newest messages of a session that were heard of, in their order: as they came, or as they were listed. Neither times nor
/// ids tell it: clocks go back, and clients choose ids as they like.
#[derive(Debug, Clone)]
pub struct MessageOrder {
    ids: IndexSet<MessageId>,
    most: usize,
    /// Whether there are older ones that are not among them.
    older: bool,
}

impl MessageOrder {
    /// An order that keeps so many at least, and less than twice as many.
    pub fn new(most: usize) -> Self {
        Self { ids: IndexSet::new(), most, older: false }
    }

    /// The newest message.
    pub fn last(&self) -> Option<&MessageId> {
        self.ids.last()
    }

    /// Where a message stands among them.
    pub fn place(&self, id: &MessageId) -> Option<usize> {
        // It is usually about the newest.
        if self.last() == Some(id) { Some(self.ids.len() - 1) } else { self.ids.get_index_of(id) }
    }

    /// Whether it is one of those that are too old to be known. That only its id can tell: it sorts before all of them.
    pub fn is_forgotten(&self, id: &MessageId) -> bool {
        self.older && self.place(id).is_none() && self.ids.iter().all(|known| id < known)
    }

    /// A message was heard of. True if it is new, and the newest.
    pub fn hear(&mut self, id: &MessageId) -> bool {
        if self.place(id).is_some() || self.is_forgotten(id) {
            return false;
        }
        self.ids.insert(id.clone());
        self.forget();
        true
    }

    /// Messages were listed, oldest first; `whole` if there are none before them.
    pub fn list<'a>(&mut self, ids: impl DoubleEndedIterator<Item = &'a MessageId>, whole: bool) {
        let mut place = self.ids.len();
        for id in ids.rev() {
            match self.place(id) {
                Some(known) => place = known,
                // Before the one that follows it in the list.
                None => {
                    self.ids.shift_insert(place, id.clone());
                }
            }
        }
        self.older |= !whole;
        self.forget();
    }

    fn forget(&mut self) {
        // Not one by one: all that stay get another place.
        if self.ids.len() >= 2 * self.most {
            self.older = true;
            self.ids.drain(..self.ids.len() - self.most);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> MessageId {
        MessageId::parse(&format!("msg_{text}")).unwrap()
    }

    fn shown(order: &MessageOrder) -> Vec<&str> {
        order.ids.iter().map(|id| &id.as_str()[4..]).collect()
    }

    #[test]
    fn messages_stand_as_they_came() {
        let mut order = MessageOrder::new(2);
        assert!(order.hear(&id("5")) && order.hear(&id("z")) && !order.hear(&id("5")));
        assert!(order.hear(&id("1")), "of a clock that went back");
        assert_eq!((shown(&order), order.last()), (vec!["5", "z", "1"], Some(&id("1"))));
        assert!(order.hear(&id("2")));
        assert_eq!(shown(&order), ["1", "2"]);
        assert!(!order.hear(&id("0")), "one of those that are forgotten");
        assert!(order.is_forgotten(&id("0")) && !order.is_forgotten(&id("1")) && !order.is_forgotten(&id("3")));
    }

    #[test]
    fn a_list_tells_where_messages_were_missed() {
        let mut order = MessageOrder::new(10);
        for text in ["b", "e"] {
            order.hear(&id(text));
        }
        let list: Vec<MessageId> = ["a", "b", "x", "d", "e", "c"].map(id).to_vec();
        order.list(list.iter(), true);
        assert_eq!(shown(&order), ["a", "b", "x", "d", "e", "c"]);
        assert!(!order.is_forgotten(&id("0")), "there is nothing before them");
        order.list([].iter(), false);
        assert!(order.is_forgotten(&id("0")));
    }
}
