//! Durable rows of this face, on the store's records.

use std::path::Path;
use std::sync::Arc;

use api::{Json, MessageId, PromptInput, SessionId, Timestamp};
use serde::{Deserialize, Serialize};
use store::{Store, StoreError};

use crate::event::NumberedEvent;

/// Why the rows cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another A2A service uses the database.
    #[error("another A2A service uses the database {path}")]
    InUse {
        /// The database.
        path: String,
    },
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file could not be made or locked.
    #[error("cannot open {path}: {error}")]
    File {
        /// The file.
        path: String,
        /// Why.
        error: std::io::Error,
    },
}

/// The rows of a service. Cheap to clone.
#[derive(Clone)]
pub struct Records {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
}

/// A prompt, as it is or was sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkPrompt {
    /// The id of its message, chosen before it is sent.
    pub id: MessageId,
    /// The prompt without that id.
    pub input: PromptInput,
    /// The trace that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

/// What an interrupt asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InterruptKind {
    /// A permission.
    Permission,
    /// Answers to questions.
    Question,
}

/// A request of a task that its client has to answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Interrupt {
    /// The id of the permission request or question.
    pub request_id: String,
    /// The session that asks.
    pub session_id: SessionId,
    /// What it asks for.
    pub kind: InterruptKind,
    /// Who may answer.
    pub identity: String,
    /// The credential that began the task.
    pub credential: Option<String>,
    /// The task.
    pub task_id: String,
    /// Its context.
    pub context_id: String,
    /// What is asked, as `metadata.shared.interrupt.details` shows it.
    pub details: Json,
    /// Until when it can be answered.
    pub expires_at: Timestamp,
}

impl Records {
    /// Opens the rows of a database. One service per database; a second is refused.
    pub async fn open(store: Store, path: &Path) -> Result<Self, OpenError> {
        let _ = path;
        Ok(Self { inner: Arc::new(Inner { store }) })
    }

    /// Rows that are gone when the service stops.
    pub async fn open_temporary(parent: &Path) -> Result<Self, OpenError> {
        let _ = parent;
        unimplemented!()
    }

    /// The events of a task after a number, oldest first.
    pub async fn events(&self, task: &str, after: u64, limit: usize) -> Result<Vec<NumberedEvent>, StoreError> {
        let _ = (task, after, limit, &self.inner.store);
        unimplemented!()
    }

    /// Makes an identity the owner of a session.
    pub async fn own_session(&self, identity: &str, session: &SessionId) -> Result<(), crate::Error> {
        let _ = (identity, session);
        unimplemented!()
    }
}
