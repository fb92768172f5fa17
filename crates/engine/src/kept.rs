//! Conversations as their last turns left them, so that the next turn need not read and parse all of it again.
//!
//! They are copies of rows, never the truth: a turn takes one out together with the lease, and uses it only if the store
//! says that nothing else has changed a conversation meanwhile. Whoever takes the lease takes the copy too, and only a turn
//! that ended well puts it back.

use std::collections::VecDeque;
use std::sync::Mutex;

use api::{MessageId, MessageWithParts, SessionId};
use store::{Acquire, StoreError};

use crate::turn::Conversation;
use crate::{Inner, lock};

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
    fn take(&self, session: &SessionId) -> Option<Conversation> {
        let mut kept = lock(&self.conversations);
        let place = kept.iter().position(|conversation| conversation.session == *session)?;
        kept.remove(place)
    }

    /// The last answer of the turn that ended with a prompt, if that is kept.
    pub(crate) fn answer(&self, session: &SessionId, prompt: &MessageId) -> Option<MessageWithParts> {
        let kept = lock(&self.conversations);
        kept.iter().find(|conversation| conversation.session == *session)?.answer(prompt).cloned()
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

impl Inner {
    /// Takes the lease of a session, and its conversation if that is still what the rows say, but for prompts that wait.
    pub(crate) async fn acquire(&self, session: &SessionId) -> Result<(Acquire, Option<Conversation>), StoreError> {
        let kept = self.kept.take(session);
        let claimed = lock(&self.claims).remove(session);
        let acquired = match claimed {
            Some(claim) => claim.acquired,
            None => self.store.acquire(session).await?,
        };
        let current = match &acquired {
            Acquire::Taken { took_over: false, revision, .. } => kept.filter(|kept| kept.revision == *revision),
            _ => None,
        };
        Ok((acquired, current))
    }
}
