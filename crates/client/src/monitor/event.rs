//! The events of a monitor.

use api::{Ask, MessageError, Progress, Session, SessionId, TreeChange, TurnOutcome};
use serde::Serialize;

/// Something that happened to a subagent. Everything but progress is reported exactly once.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum MonitorEvent {
    /// A subagent was created, at any depth. Its parent was reported before.
    ChildCreated {
        /// Its session.
        session: Box<Session>,
    },
    /// It made progress. Rapid changes are merged into one event with the latest figures.
    ChildProgress {
        /// Its session.
        #[serde(rename = "sessionID")]
        session_id: SessionId,
        /// Its progress so far.
        progress: Box<Progress>,
    },
    /// It asked something and is waiting for the answer.
    ChildAsked {
        /// Its session.
        #[serde(rename = "sessionID")]
        session_id: SessionId,
        /// The ask.
        ask: Ask,
    },
    /// It no longer waits: someone answered, or its turn ended first.
    ChildAnswered {
        /// Its session.
        #[serde(rename = "sessionID")]
        session_id: SessionId,
        /// The id of the ask.
        #[serde(rename = "askID")]
        ask_id: String,
    },
    /// Something went wrong. It may continue nevertheless; [`ChildCompleted`](Self::ChildCompleted) reports its end.
    ChildError {
        /// Its session.
        #[serde(rename = "sessionID")]
        session_id: SessionId,
        /// The error.
        error: MessageError,
    },
    /// Its turn ended, successfully or not. A subagent that is continued completes again.
    ChildCompleted {
        /// Its session.
        #[serde(rename = "sessionID")]
        session_id: SessionId,
        /// How the turn ended.
        outcome: TurnOutcome,
        /// Its final progress.
        progress: Box<Progress>,
    },
    /// It was deleted.
    ChildRemoved {
        /// Its session.
        #[serde(rename = "sessionID")]
        session_id: SessionId,
    },
}

impl MonitorEvent {
    /// The event for a change of the tree; `None` for a change that a later event includes.
    pub(super) fn of(change: TreeChange) -> Option<Self> {
        Some(match change {
            TreeChange::Created(session) => Self::ChildCreated { session },
            TreeChange::Progress(session_id, progress) => Self::ChildProgress { session_id, progress },
            TreeChange::Asked(session_id, ask) => Self::ChildAsked { session_id, ask },
            TreeChange::Answered(session_id, ask_id) => Self::ChildAnswered { session_id, ask_id },
            TreeChange::Error(session_id, error) => Self::ChildError { session_id, error },
            TreeChange::Completed(session_id, outcome, progress) => {
                Self::ChildCompleted { session_id, outcome, progress }
            }
            TreeChange::Removed(session_id) => Self::ChildRemoved { session_id },
            TreeChange::Started(_) | TreeChange::Stopped(_) | TreeChange::Changed(_) => return None,
        })
    }

    /// The subagent's session.
    pub fn session_id(&self) -> &SessionId {
        match self {
            Self::ChildCreated { session } => &session.id,
            Self::ChildProgress { session_id, .. }
            | Self::ChildAsked { session_id, .. }
            | Self::ChildAnswered { session_id, .. }
            | Self::ChildError { session_id, .. }
            | Self::ChildCompleted { session_id, .. }
            | Self::ChildRemoved { session_id } => session_id,
        }
    }
}
