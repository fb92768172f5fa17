//! The order of a session's messages, for clients that learn of them one by one.

use indexmap::IndexSet;

use crate::MessageId;

/// The newest known messages of a session, in the order in which they arrived or were listed. Neither times nor ids
/// give that order: clocks step back, and clients choose ids freely.
#[derive(Debug, Clone)]
pub struct MessageOrder {
    ids: IndexSet<MessageId>,
    most: usize,
    /// Whether there are older messages that are not included.
    older: bool,
}

impl MessageOrder {
    /// An order that keeps at least `most` messages, and fewer than twice as many.
    pub fn new(most: usize) -> Self {
        Self { ids: IndexSet::new(), most, older: false }
    }

    /// The newest message.
    pub fn last(&self) -> Option<&MessageId> {
        self.ids.last()
    }

    /// The position of a message.
    pub fn place(&self, id: &MessageId) -> Option<usize> {
        // It is usually the newest one.
        if self.last() == Some(id) { Some(self.ids.len() - 1) } else { self.ids.get_index_of(id) }
    }

    /// Whether a message is older than all known ones. Only its id can tell: it sorts before all of them.
    pub fn is_forgotten(&self, id: &MessageId) -> bool {
        self.older && self.place(id).is_none() && self.ids.iter().all(|known| id < known)
    }

    /// Records a message. Returns true if it is new, and thus the newest.
    pub fn record(&mut self, id: &MessageId) -> bool {
        if self.place(id).is_some() || self.is_forgotten(id) {
            return false;
        }
        self.ids.insert(id.clone());
        self.forget();
        true
    }

    /// Merges a list of messages, oldest first; `whole` if no messages precede them.
    pub fn merge_list<'a>(&mut self, ids: impl DoubleEndedIterator<Item = &'a MessageId>, whole: bool) {
        let mut place = self.ids.len();
        for id in ids.rev() {
            match self.place(id) {
                Some(known) => place = known,
                // Insert it before the one that follows it in the list.
                None => {
                    self.ids.shift_insert(place, id.clone());
                }
            }
        }
        self.older |= !whole;
        self.forget();
    }

    fn forget(&mut self) {
        // In bulk, because every removal shifts the rest.
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
    fn messages_are_ordered_by_arrival() {
        let mut order = MessageOrder::new(2);
        assert!(order.record(&id("5")) && order.record(&id("z")) && !order.record(&id("5")));
        assert!(order.record(&id("1")), "from a clock that stepped back");
        assert_eq!((shown(&order), order.last()), (vec!["5", "z", "1"], Some(&id("1"))));
        assert!(order.record(&id("2")));
        assert_eq!(shown(&order), ["1", "2"]);
        assert!(!order.record(&id("0")), "it was dropped");
        assert!(order.is_forgotten(&id("0")) && !order.is_forgotten(&id("1")) && !order.is_forgotten(&id("3")));
    }

    #[test]
    fn a_list_fills_in_missed_messages() {
        let mut order = MessageOrder::new(10);
        for text in ["b", "e"] {
            order.record(&id(text));
        }
        let list: Vec<MessageId> = ["a", "b", "x", "d", "e", "c"].map(id).to_vec();
        order.merge_list(list.iter(), true);
        assert_eq!(shown(&order), ["a", "b", "x", "d", "e", "c"]);
        assert!(!order.is_forgotten(&id("0")), "there is nothing before them");
        order.merge_list([].iter(), false);
        assert!(order.is_forgotten(&id("0")));
    }
}
