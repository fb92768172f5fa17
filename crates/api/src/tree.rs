//! A session and the subagents below it: what each does, what it has cost, and what it may still cost.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{FileStatus, MessageError, ModelRef, PromptPart, SessionId, Timestamp, Tokens, Usd};

/// What a session of a tree does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TreeState {
    /// A turn runs.
    Running,
    /// A turn runs and waits before it tries its model again.
    Retrying,
    /// A turn runs and waits for a human's answer.
    Asking,
    /// A turn runs and waits because it, or a session above it, was paused.
    Paused,
    /// A turn runs and waits for its budget to be raised.
    Blocked,
    /// Its last turn ended with an answer, or it had none.
    Idle,
    /// Its last turn ended with an error.
    Failed,
    /// Its last turn was stopped.
    Cancelled,
    /// Its last turn was cut off with its process; it goes on once somebody takes it up.
    Interrupted,
}

impl TreeState {
    /// Whether a turn runs.
    pub fn is_live(self) -> bool {
        matches!(self, Self::Running | Self::Retrying | Self::Asking | Self::Paused | Self::Blocked)
    }
}

/// What was used: reported by providers, or estimated where a call was cut off.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Usage {
    /// Money.
    pub cost: Usd,
    /// Tokens.
    pub tokens: Tokens,
    /// Calls of a model.
    pub steps: u64,
    /// Calls of tools that began.
    pub tool_calls: u64,
    /// Files that were changed.
    pub files: u64,
    /// The part of `cost` that nobody reported: calls that were cut off.
    pub estimated_cost: Usd,
    /// The part of `tokens` that nobody reported.
    pub estimated_tokens: u64,
    /// How many calls were cut off and are estimated.
    pub estimated_steps: u64,
}

impl Usage {
    /// All tokens that a budget counts.
    pub fn all_tokens(&self) -> u64 {
        let t = &self.tokens;
        t.input + t.output + t.reasoning + t.cache.read + t.cache.write
    }
}

impl std::ops::AddAssign<&Usage> for Usage {
    fn add_assign(&mut self, other: &Usage) {
        self.cost += other.cost;
        self.tokens.input += other.tokens.input;
        self.tokens.output += other.tokens.output;
        self.tokens.reasoning += other.tokens.reasoning;
        self.tokens.cache.read += other.tokens.cache.read;
        self.tokens.cache.write += other.tokens.cache.write;
        self.steps += other.steps;
        self.tool_calls += other.tool_calls;
        self.files += other.files;
        self.estimated_cost += other.estimated_cost;
        self.estimated_tokens += other.estimated_tokens;
        self.estimated_steps += other.estimated_steps;
    }
}

/// What a session and all below it may use together. What is absent is not limited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Budget {
    /// Money, in US dollars.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<Usd>,
    /// Tokens of every kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Calls of a model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
    /// Seconds on the clock since the first bound of seconds was set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
}

/// A bound of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// Money.
    Cost,
    /// Tokens.
    Tokens,
    /// Calls of a model.
    Steps,
    /// Time.
    Seconds,
}

/// A budget and how much of it is left.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BudgetState {
    /// What may be used.
    pub limit: Budget,
    /// What the session and all that ever were below it used; the seconds since a bound of seconds was set.
    pub spent: Budget,
    /// What running calls of models may still use.
    pub reserved: Budget,
}

/// Why a turn waits for its budget.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Blocked {
    /// Which bound was hit.
    pub bound: Bound,
    /// Whose budget it is: the session itself or one above it. Raising it lets the turn go on.
    #[serde(rename = "sessionID")]
    pub session_id: SessionId,
    /// The same for humans, with the amounts.
    pub message: String,
}

/// The tool that a session is using.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CurrentTool {
    /// Its name.
    pub tool: String,
    /// What it is about, in a line, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Since when.
    pub since: Timestamp,
}

/// A request that waits for a human.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TreeAsk {
    /// Its id: of a permission request or a question.
    pub id: String,
    /// The session that asks.
    #[serde(rename = "sessionID")]
    pub session_id: SessionId,
    /// The agents from this session down to the one that asks.
    pub path: Vec<String>,
    /// What is asked, in a line.
    pub text: String,
}

/// The calls of a model that make a session's title.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Titling {
    /// What they used; it is part of what the session used itself.
    pub used: Usage,
    /// Whether one runs.
    pub running: bool,
}

/// One session of a tree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TreeNode {
    /// The session.
    #[serde(rename = "sessionID")]
    pub session_id: SessionId,
    /// The session that spawned it.
    #[serde(rename = "parentID", skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<SessionId>,
    /// How far below the tree's first session; 0 is that one.
    pub depth: u32,
    /// Its agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Its title.
    pub title: String,
    /// Its model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelRef>,
    /// What it does.
    pub state: TreeState,
    /// Whether its parent goes on without waiting for it.
    pub background: bool,
    /// The tool that it is using; the one that began last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<CurrentTool>,
    /// Requests of this session and all below it that wait for a human.
    pub asks: Vec<TreeAsk>,
    /// Why it waits for its budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked: Option<Blocked>,
    /// Why its last turn failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<MessageError>,
    /// What it used itself.
    pub own: Usage,
    /// What went into its title, if a model makes or made that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub titling: Option<Titling>,
    /// What it and all below it used, those included that were deleted.
    pub total: Usage,
    /// Its budget, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetState>,
    /// When it began.
    pub created: Timestamp,
    /// When its last turn began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<Timestamp>,
    /// When its last turn ended; absent while one runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    /// The git worktree that is its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worktree: Option<String>,
}

/// A session and all below it, parents before their children, each followed by its own subtree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Tree {
    /// The sessions; the first is the one that was asked about.
    pub sessions: Vec<TreeNode>,
    /// Where the log was when this was read: events after it are news.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// A message for a turn that runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SteerInput {
    /// The message, in short.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The message, as a prompt has it.
    pub parts: Vec<PromptPart>,
}

/// The git worktree that a subagent has for itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "SessionWorktree")]
pub struct Worktree {
    /// The session that works in it.
    #[serde(rename = "sessionID")]
    pub session_id: SessionId,
    /// Where it is.
    pub directory: String,
    /// Its branch.
    pub branch: String,
    /// The commit that its changes are counted from: where it began, or what was merged last.
    pub base: String,
    /// The working tree that gets its changes when they are merged.
    pub target: String,
    /// What was changed in it and is not merged. Of very many files only the first, without their lines.
    pub files: Vec<FileStatus>,
    /// Whether more files were changed than `files` has.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
}

/// What was changed in a worktree and is not merged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "SessionWorktreeDiff")]
pub struct WorktreeDiff {
    /// The worktree.
    #[serde(flatten)]
    pub worktree: Worktree,
    /// The changes as a patch that `git apply` takes.
    pub patch: String,
    /// Whether the patch would be longer and has the first files only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
}

/// What a cancel has stopped.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cancelled {
    /// The sessions whose turns were stopped; none if nothing ran.
    pub sessions: Vec<SessionId>,
}
