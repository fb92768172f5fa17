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
/// The most bytes of one, as JSON. A larger one is read again.
const BYTES: usize = 4 << 20;

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

    /// A message of a conversation, if that is kept.
    pub(crate) fn message(&self, session: &SessionId, id: &MessageId) -> Option<MessageWithParts> {
        let kept = lock(&self.conversations);
        let conversation = kept.iter().find(|conversation| conversation.session == *session)?;
        conversation.messages.iter().rfind(|message| message.info.id() == id).cloned()
    }

    /// Keeps what a turn knows at its end.
    pub(crate) fn put(&self, conversation: Conversation) {
        if conversation.bytes > BYTES {
            return;
        }
        let mut kept = lock(&self.conversations);
        kept.truncate(CONVERSATIONS - 1);
        kept.push_front(conversation);
    }
}
