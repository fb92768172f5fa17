//! Conversations of recent turns, so that the next turn need not read and parse the whole session again.
//!
//! They are copies of rows, never the source of truth. A turn takes one together with the lease, and uses it only if
//! the store confirms that nothing else has changed a conversation meanwhile. Only a turn that ended well puts it back.

use std::collections::VecDeque;
use std::sync::Mutex;

use api::{MessageId, MessageWithParts, SessionId};

use crate::lock;
use crate::turn::Conversation;

/// The maximum number of cached conversations; the least recently used is dropped.
const CONVERSATIONS_MAX: usize = 4;
/// The maximum memory of all cached conversations together. A larger conversation is read again for every turn: no
/// model accepts one of even half that size.
const BYTES_MAX: usize = 32 << 20;

/// The cached conversations.
#[derive(Default)]
pub(crate) struct ConversationCache {
    conversations: Mutex<VecDeque<Conversation>>,
}

impl ConversationCache {
    /// Removes the conversation of a session from the cache.
    pub(crate) fn take(&self, session: &SessionId) -> Option<Conversation> {
        let mut cached = lock(&self.conversations);
        let place = cached.iter().position(|conversation| conversation.session == *session)?;
        cached.remove(place)
    }

    /// The last answer of a cached conversation.
    pub(crate) fn answer(&self, session: &SessionId, id: &MessageId) -> Option<MessageWithParts> {
        let cached = lock(&self.conversations);
        cached.iter().find(|conversation| conversation.session == *session)?.answer(id).cloned()
    }

    /// Caches the conversation of a finished turn.
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
    fn the_total_size_is_bounded_and_a_long_one_fits() {
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
