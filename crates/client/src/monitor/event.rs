//! The events of a monitor, and the tree they lead to.

use api::{
    MessageError, PermissionRequest, QuestionRequest, Session, SessionId, SessionTokens, Timestamp, TokensCache, Usd,
};
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

/// A request that a subagent waits for. Answer it with [`Host::reply_permission`](api::Host::reply_permission) or
/// [`Host::reply_question`](api::Host::reply_question).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Ask {
    /// A permission request.
    Permission(Box<PermissionRequest>),
    /// A question.
    Question(Box<QuestionRequest>),
}

impl Ask {
    /// The id of the request.
    pub fn id(&self) -> &str {
        match self {
            Self::Permission(ask) => ask.id.as_str(),
            Self::Question(ask) => ask.id.as_str(),
        }
    }

    /// The session that asks.
    pub fn session_id(&self) -> &SessionId {
        match self {
            Self::Permission(ask) => &ask.session_id,
            Self::Question(ask) => &ask.session_id,
        }
    }
}

/// The progress of a session.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Progress {
    /// Its state.
    pub state: SubagentState,
    /// Its unfinished tool calls.
    pub tools: Vec<ToolUse>,
    /// The number of its tool calls. If the session was already long when the monitor was opened, its oldest calls are
    /// not counted.
    pub tool_calls: u64,
    /// The end of its latest text.
    pub text: String,
    /// What it used so far, without its own subagents.
    pub usage: SessionUsage,
    /// What it changed in files.
    pub changes: FileChanges,
}

/// The state of a session.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum SubagentState {
    /// It has not started.
    Pending,
    /// It is working.
    Running,
    /// It is waiting before it calls the model again.
    Retrying {
        /// The number of the failed attempt, from 1.
        attempt: u32,
        /// Why the attempt failed.
        message: String,
        /// When it continues.
        next: Timestamp,
    },
    /// Its last turn has ended.
    Ended {
        /// How it ended.
        outcome: TurnOutcome,
    },
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum TurnOutcome {
    /// With an answer.
    Succeeded,
    /// With an error.
    Failed {
        /// The error.
        error: MessageError,
    },
    /// Someone stopped it.
    Aborted,
    /// Without any event, for example because its server ended.
    Interrupted,
}

/// An unfinished tool call.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ToolUse {
    /// The name of the tool.
    pub tool: String,
    /// The title that the tool gives the call, once it has one.
    pub title: Option<String>,
    /// When it started; `None` while the model is still writing the call.
    pub start: Option<Timestamp>,
}

/// Cost and tokens.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct SessionUsage {
    /// Cost.
    pub cost: Usd,
    /// Tokens.
    pub tokens: SessionTokens,
}

impl SessionUsage {
    pub(crate) fn zip(&self, other: &Self, cost: fn(f64, f64) -> f64, count: fn(u64, u64) -> u64) -> Self {
        let (a, b) = (&self.tokens, &other.tokens);
        Self {
            cost: Usd(cost(self.cost.0, other.cost.0)),
            tokens: SessionTokens {
                input: count(a.input, b.input),
                output: count(a.output, b.output),
                reasoning: count(a.reasoning, b.reasoning),
                cache: TokensCache {
                    read: count(a.cache.read, b.cache.read),
                    write: count(a.cache.write, b.cache.write),
                },
            },
        }
    }

    pub(crate) fn plus(&self, other: &Self) -> Self {
        self.zip(other, |a, b| a + b, u64::saturating_add)
    }

    pub(crate) fn minus(&self, other: &Self) -> Self {
        self.zip(other, |a, b| (a - b).max(0.0), u64::saturating_sub)
    }

    pub(crate) fn max(&self, other: &Self) -> Self {
        self.zip(other, f64::max, u64::max)
    }
}

/// Changes to files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct FileChanges {
    /// Files touched.
    pub files: u64,
    /// Lines added.
    pub additions: u64,
    /// Lines removed.
    pub deletions: u64,
}

/// A session of the tree: the root, or a subagent.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Subagent {
    /// Its session.
    pub id: SessionId,
    /// The session that spawned it; `None` for the root, even if that has a parent.
    #[serde(rename = "parentID")]
    pub parent_id: Option<SessionId>,
    /// Its depth below the root, which is at 0.
    pub depth: usize,
    /// Its title.
    pub title: String,
    /// Its agent.
    pub agent: Option<String>,
    /// Its working directory.
    pub directory: String,
    /// When it was created.
    pub created: Timestamp,
    /// Its progress.
    pub progress: Progress,
    /// The requests it is waiting for.
    pub asks: Vec<Ask>,
    /// What it and all its descendants used.
    pub total: SessionUsage,
}

/// A snapshot of the tree of subagents.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SubagentTree {
    /// The root, then each subagent before those that it spawned.
    pub sessions: Vec<Subagent>,
    /// Whether there are more sessions than a monitor follows.
    pub truncated: bool,
}

impl SubagentTree {
    /// Finds a session of the tree.
    pub fn get(&self, id: &SessionId) -> Option<&Subagent> {
        self.sessions.iter().find(|session| session.id == *id)
    }
}
