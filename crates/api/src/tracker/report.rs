//! What a tracker reports: the changes of a tree, the progress of a session, and the tree they lead to.

use serde::Serialize;

use crate::{
    MessageError, PermissionRequest, QuestionRequest, Session, SessionId, SessionTokens, Timestamp, TokensCache, Usd,
    strip_control,
};

/// The most bytes of an ask's one-line description.
const MAX_ASK_TEXT: usize = 300;

/// A change of a session in a tree. [`Created`](Self::Created), [`Asked`](Self::Asked), [`Answered`](Self::Answered),
/// [`Error`](Self::Error), [`Completed`](Self::Completed) and [`Removed`](Self::Removed) are reported once, however
/// often the tree is read again.
#[derive(Debug, Clone, PartialEq)]
pub enum TreeChange {
    /// It joined the tree, after its parent.
    Created(Box<Session>),
    /// It started to work.
    Started(SessionId),
    /// What it is doing, or waiting for, changed.
    Changed(SessionId),
    /// Its messages advanced.
    Progress(SessionId, Box<Progress>),
    /// It asked something.
    Asked(SessionId, Ask),
    /// The ask with this id no longer waits: someone answered it, or its turn ended first.
    Answered(SessionId, String),
    /// Something went wrong. It may continue nevertheless.
    Error(SessionId, MessageError),
    /// Its turn ended, as its last message shows.
    Completed(SessionId, TurnOutcome, Box<Progress>),
    /// It stopped working.
    Stopped(SessionId),
    /// It was deleted.
    Removed(SessionId),
}

impl TreeChange {
    /// The session that changed.
    pub fn session_id(&self) -> &SessionId {
        match self {
            Self::Created(session) => &session.id,
            Self::Started(id)
            | Self::Changed(id)
            | Self::Progress(id, _)
            | Self::Asked(id, _)
            | Self::Answered(id, _)
            | Self::Error(id, _)
            | Self::Completed(id, _, _)
            | Self::Stopped(id)
            | Self::Removed(id) => id,
        }
    }
}

/// A request that a session waits for. Answer it with [`Host::reply_permission`](crate::Host::reply_permission) or
/// [`Host::reply_question`](crate::Host::reply_question).
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

    /// The request in one line.
    pub fn text(&self) -> String {
        let text = match self {
            Self::Permission(ask) if ask.patterns.is_empty() => format!("{} *", ask.permission),
            Self::Permission(ask) => format!("{} {}", ask.permission, ask.patterns.join(", ")),
            Self::Question(ask) => ask.questions.first().map(|first| first.question.clone()).unwrap_or_default(),
        };
        let line = strip_control(&text).split_whitespace().collect::<Vec<_>>().join(" ");
        line[..line.floor_char_boundary(MAX_ASK_TEXT)].to_owned()
    }
}

/// The progress of a session.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Progress {
    /// Its state.
    pub state: SubagentState,
    /// Its unfinished tool calls.
    pub tools: Vec<ToolUse>,
    /// The number of its tool calls. If the session was already long when it was first read, its oldest calls are
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
    pub(super) fn zip(&self, other: &Self, cost: fn(f64, f64) -> f64, count: fn(u64, u64) -> u64) -> Self {
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

    pub(super) fn plus(&self, other: &Self) -> Self {
        self.zip(other, |a, b| a + b, u64::saturating_add)
    }

    pub(super) fn minus(&self, other: &Self) -> Self {
        self.zip(other, |a, b| (a - b).max(0.0), u64::saturating_sub)
    }

    pub(super) fn max(&self, other: &Self) -> Self {
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
    /// Whether there are more sessions than a tracker follows.
    pub truncated: bool,
}

impl SubagentTree {
    /// Finds a session of the tree.
    pub fn get(&self, id: &SessionId) -> Option<&Subagent> {
        self.sessions.iter().find(|session| session.id == *id)
    }
}
