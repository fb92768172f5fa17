//! What a monitor tells, and the tree as it stands.

use api::{
    MessageError, PermissionRequest, QuestionRequest, Session, SessionId, SessionTokens, Timestamp, TokensCache, Usd,
};
use serde::Serialize;

/// What happened to a subagent. Everything but progress is told exactly once.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum MonitorEvent {
    /// There is a new one, at any depth. Its parent was told before.
    ChildCreated {
        /// The session it works in.
        session: Box<Session>,
    },
    /// It went on. Rapid steps are told as one, with the latest figures.
    ChildProgress {
        /// Which one.
        #[serde(rename = "sessionID")]
        session_id: SessionId,
        /// How far it is.
        progress: Box<Progress>,
    },
    /// It wants to know something, and waits for the answer.
    ChildAsked {
        /// Which one.
        #[serde(rename = "sessionID")]
        session_id: SessionId,
        /// What it asks.
        ask: Ask,
    },
    /// It waits no longer: somebody answered, or its turn ended before.
    ChildAnswered {
        /// Which one.
        #[serde(rename = "sessionID")]
        session_id: SessionId,
        /// The id of the ask.
        #[serde(rename = "askID")]
        ask_id: String,
    },
    /// Something went wrong. It may go on nevertheless; [`ChildCompleted`](Self::ChildCompleted) says how it ended.
    ChildError {
        /// Which one.
        #[serde(rename = "sessionID")]
        session_id: SessionId,
        /// What.
        error: MessageError,
    },
    /// Its turn ended, well or not. A child that is continued completes again.
    ChildCompleted {
        /// Which one.
        #[serde(rename = "sessionID")]
        session_id: SessionId,
        /// How.
        outcome: Outcome,
        /// What it came to.
        progress: Box<Progress>,
    },
    /// It was deleted.
    ChildRemoved {
        /// Which one.
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

/// What a subagent waits for. It is answered with [`Host::reply_permission`](api::Host::reply_permission) or
/// [`Host::reply_question`](api::Host::reply_question).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Ask {
    /// May it do this?
    Permission(Box<PermissionRequest>),
    /// Which of these?
    Question(Box<QuestionRequest>),
}

impl Ask {
    /// Its id.
    pub fn id(&self) -> &str {
        match self {
            Self::Permission(ask) => ask.id.as_str(),
            Self::Question(ask) => ask.id.as_str(),
        }
    }

    /// Who asks.
    pub fn session_id(&self) -> &SessionId {
        match self {
            Self::Permission(ask) => &ask.session_id,
            Self::Question(ask) => &ask.session_id,
        }
    }
}

/// How far a session is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Progress {
    /// What it does.
    pub state: State,
    /// The calls that are not done.
    pub tools: Vec<ToolUse>,
    /// How many calls there were. Those far back in a session that was long when the monitor came are not counted.
    pub tool_calls: u64,
    /// The end of what it said last.
    pub text: String,
    /// What it used so far, without its own subagents.
    pub usage: Usage,
    /// What it changed in the files.
    pub changes: Changes,
}

/// What a session does.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum State {
    /// Nothing yet.
    Pending,
    /// It works.
    Running,
    /// It waits before it calls the model again.
    Retrying {
        /// Which try failed, from 1.
        attempt: u32,
        /// Why.
        message: String,
        /// When it goes on.
        next: Timestamp,
    },
    /// Its last turn is over.
    Ended {
        /// How.
        outcome: Outcome,
    },
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Outcome {
    /// With an answer.
    Succeeded,
    /// With an error.
    Failed {
        /// Which.
        error: MessageError,
    },
    /// Somebody stopped it.
    Aborted,
    /// Without a word: its server ended, for example.
    Interrupted,
}

/// A tool call that is not done.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ToolUse {
    /// The tool.
    pub tool: String,
    /// What the tool calls it, once it says so.
    pub title: Option<String>,
    /// When it began; not before the model has written the call.
    pub start: Option<Timestamp>,
}

/// What was used.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Usage {
    /// Money.
    pub cost: Usd,
    /// Tokens.
    pub tokens: SessionTokens,
}

impl Usage {
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

/// What was changed in files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Changes {
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
    /// The session that spawned it; nothing for the root, whatever it has.
    #[serde(rename = "parentID")]
    pub parent_id: Option<SessionId>,
    /// How far below the root, which is at 0.
    pub depth: usize,
    /// Its title.
    pub title: String,
    /// Its agent.
    pub agent: Option<String>,
    /// Where it works.
    pub directory: String,
    /// When it was made.
    pub created: Timestamp,
    /// How far it is.
    pub progress: Progress,
    /// What it waits for.
    pub asks: Vec<Ask>,
    /// What it used together with everything below it.
    pub total: Usage,
}

/// A tree of subagents as it stands.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SubagentTree {
    /// The root, then each subagent before those that it spawned.
    pub sessions: Vec<Subagent>,
    /// Whether there are more sessions than a monitor follows.
    pub truncated: bool,
}

impl SubagentTree {
    /// A session of the tree.
    pub fn get(&self, id: &SessionId) -> Option<&Subagent> {
        self.sessions.iter().find(|session| session.id == *id)
    }
}
