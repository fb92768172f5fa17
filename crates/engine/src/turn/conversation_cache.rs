//! Conversations as their last turns left them, so that the next turn need not read and parse all of it again.
//!
//! They are copies of rows, never the truth: a turn takes one out together with the lease, and uses it only if the store
//! says that nothing else has changed a conversation meanwhile. Whoever takes the lease takes the copy too, and only a turn
//! that ended well puts it back.

use std::collections::VecDeque;
use std::sync::Mutex;

use api::{MessageId, MessageWithParts, SessionId};

use crate::lock;
use crate::turn::Conversation;

/// The most conversations that are kept; the one that was used longest ago goes first.
const CONVERSATIONS: usize = 4;
/// The most memory of all of them together. A conversation that is larger is read again with every turn: no model takes one
/// of half that size.
const BYTES: usize = 32 << 20;

/// The conversations that are kept.
#[derive(Default)]
pub(crate) struct Kept {
    conversations: Mutex<VecDeque<Conversation>>,
}

impl Kept {
    /// Takes out what is kept of a session.
    pub(crate) fn take(&self, session: &SessionId) -> Option<Conversation> {
        let mut kept = lock(&self.conversations);
        let place = kept.iter().position(|conversation| conversation.session == *session)?;
        kept.remove(place)
    }

    /// The last answer of a conversation, if that is kept.
    pub(crate) fn message(&self, session: &SessionId, id: &MessageId) -> Option<MessageWithParts> {
        let kept = lock(&self.conversations);
        kept.iter().find(|conversation| conversation.session == *session)?.answer(id).cloned()
    }

    /// Keeps what a turn knows at its end.
    pub(crate) fn put(&self, conversation: Conversation) {
        if conversation.bytes > BYTES {
            return;
        }
        let mut kept = lock(&self.conversations);
        kept.truncate(CONVERSATIONS - 1);
        let bytes = |kept: &VecDeque<Conversation>| kept.iter().map(|kept| kept.bytes).sum::<usize>();
        while bytes(&kept) + conversation.bytes > BYTES {
            kept.pop_back();
        }
        kept.push_front(conversation);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conversation(bytes: usize) -> Conversation {
        let mut conversation = Conversation::empty(&SessionId::new(), 0);
        conversation.bytes = bytes;
        conversation
    }

    #[test]
    fn all_together_have_a_bound_and_a_long_one_is_kept() {
        let kept = Kept::default();
        let ids: Vec<SessionId> = [BYTES / 4, BYTES / 4, BYTES / 4, BYTES / 2, BYTES + 1]
            .into_iter()
            .map(|bytes| {
                let one = conversation(bytes);
                let id = one.session.clone();
                kept.put(one);
                id
            })
            .collect();
        let there: Vec<bool> = ids.iter().map(|id| kept.take(id).is_some()).collect();
        assert_eq!(there, [false, true, true, true, false]);
    }
}
