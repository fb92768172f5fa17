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
const CONVERSATIONS_MAX: usize = 4;
/// The most memory of all of them together. A conversation that is larger is read again with every turn: no model takes one
/// of half that size.
const BYTES_MAX: usize = 32 << 20;

/// The conversations that are kept.
#[derive(Default)]
pub(crate) struct ConversationCache {
    conversations: Mutex<VecDeque<Conversation>>,
}

impl ConversationCache {
    /// Takes out what is kept of a session.
    pub(crate) fn take(&self, session: &SessionId) -> Option<Conversation> {
        let mut cached = lock(&self.conversations);
        let place = cached.iter().position(|conversation| conversation.session == *session)?;
        cached.remove(place)
    }

    /// The last answer of a conversation, if that is kept.
    pub(crate) fn answer(&self, session: &SessionId, id: &MessageId) -> Option<MessageWithParts> {
        let cached = lock(&self.conversations);
        cached.iter().find(|conversation| conversation.session == *session)?.answer(id).cloned()
    }

    /// Keeps what a turn knows at its end.
    pub(crate) fn put(&self, conversation: Conversation) {
        if conversation.bytes > BYTES_MAX {
            return;
        }
        let mut cached = lock(&self.conversations);
        cached.truncate(CONVERSATIONS_MAX - 1);
        let bytes = |cached: &VecDeque<Conversation>| cached.iter().map(|one| one.bytes).sum::<usize>();
        while bytes(&cached) + conversation.bytes > BYTES_MAX {
            cached.pop_back();
        }
        cached.push_front(conversation);
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
        let cache = ConversationCache::default();
        let ids: Vec<SessionId> = [BYTES_MAX / 4, BYTES_MAX / 4, BYTES_MAX / 4, BYTES_MAX / 2, BYTES_MAX + 1]
            .into_iter()
            .map(|bytes| {
                let one = conversation(bytes);
                let id = one.session.clone();
                cache.put(one);
                id
            })
            .collect();
        let there: Vec<bool> = ids.iter().map(|id| cache.take(id).is_some()).collect();
        assert_eq!(there, [false, true, true, true, false]);
    }
}
