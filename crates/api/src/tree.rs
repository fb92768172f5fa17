//! A session and its subagents: what each is doing, what it has used, and what it may still use.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{FileStatus, MessageError, ModelRef, PromptPart, SessionId, Timestamp, Tokens, Usd};

/// The state of a session in a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TreeState {
    /// Its turn is running.
    Running,
    /// Its turn is waiting before it calls the model again.
    Retrying,
    /// Its turn is waiting for a human's answer.
    Asking,
    /// Its turn is waiting because it, or a session above it, is paused.
    Paused,
    /// Its turn is waiting for its budget to be raised.
    Blocked,
    /// Its last turn ended with an answer, or it has had none.
    Idle,
    /// Its last turn ended with an error.
    Failed,
    /// Its last turn was stopped.
    Cancelled,
    /// Its last turn was interrupted when its process died; it continues once somebody resumes it.
    Interrupted,
}

impl TreeState {
    /// Whether a turn is running.
    pub fn is_live(self) -> bool {
        matches!(self, Self::Running | Self::Retrying | Self::Asking | Self::Paused | Self::Blocked)
    }
}

/// What was used: reported by providers, or estimated for calls that were cut off.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Usage {
    /// Cost.
    pub cost: Usd,
    /// Tokens.
    pub tokens: Tokens,
    /// Model calls.
    pub steps: u64,
    /// Tool calls that started.
    pub tool_calls: u64,
    /// Files changed.
    pub files: u64,
    /// The part of `cost` that is estimated, for calls that were cut off.
    pub estimated_cost: Usd,
    /// The part of `tokens` that is estimated.
    pub estimated_tokens: u64,
    /// How many calls were cut off and estimated.
    pub estimated_steps: u64,
}

impl Usage {
    /// The total number of tokens, as budgets count them.
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

/// What a session and its descendants may use together. Absent limits do not apply.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Budget {
    /// Cost in US dollars.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<Usd>,
    /// Tokens of every kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Model calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
    /// Seconds since a limit on seconds was first set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
}

/// One of the limits of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// Cost.
    Cost,
    /// Tokens.
    Tokens,
    /// Model calls.
    Steps,
    /// Time.
    Seconds,
}

/// A budget and how much of it is left.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BudgetState {
    /// What may be used.
    pub limit: Budget,
    /// What the session and all descendants it ever had have used; for seconds, the time since that limit was set.
    pub spent: Budget,
    /// What running model calls may still use.
    pub reserved: Budget,
}

/// Why a turn is waiting for its budget.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Blocked {
    /// The limit that was reached.
    pub bound: Bound,
    /// The session whose budget it is: this one or one above it. Raising that budget lets the turn continue.
    #[serde(rename = "sessionID")]
    pub session_id: SessionId,
    /// A description for people, with the amounts.
    pub message: String,
}

/// The tool that a session is using.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CurrentTool {
    /// Its name.
    pub tool: String,
    /// A one-line description of the call, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// When it started.
    pub since: Timestamp,
}

/// A request that is waiting for a human.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TreeAsk {
    /// The id of the permission request or question.
    pub id: String,
    /// The session that asks.
    #[serde(rename = "sessionID")]
    pub session_id: SessionId,
    /// The agents from this session down to the one that asks.
    pub path: Vec<String>,
    /// The request in one line.
    pub text: String,
}

/// The model calls that generate a session's title.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Titling")]
pub struct TitleUsage {
    /// What they used; included in the session's own usage.
    pub used: Usage,
    /// Whether one is running.
    pub running: bool,
}

/// A session in a tree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TreeNode {
    /// The session.
    #[serde(rename = "sessionID")]
    pub session_id: SessionId,
    /// The session that spawned it.
    #[serde(rename = "parentID", skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<SessionId>,
    /// Its depth below the root of the tree, which is 0.
    pub depth: u32,
    /// Its agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Its title.
    pub title: String,
    /// Its model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelRef>,
    /// Its state.
    pub state: TreeState,
    /// Whether its parent continues without waiting for it.
    pub background: bool,
    /// The tool it is using; the most recent one if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<CurrentTool>,
    /// Pending requests of this session and its descendants.
    pub asks: Vec<TreeAsk>,
    /// Why it is waiting for its budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked: Option<Blocked>,
    /// Why its last turn failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<MessageError>,
    /// What it has used itself.
    pub own: Usage,
    /// What its title has used, if a model generates it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub titling: Option<TitleUsage>,
    /// What it and its descendants have used, including deleted ones.
    pub total: Usage,
    /// Its budget, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetState>,
    /// When it was created.
    pub created: Timestamp,
    /// When its last turn started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<Timestamp>,
    /// When its last turn ended; absent while a turn is running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    /// Its own git worktree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worktree: Option<String>,
}

/// A session and its descendants in depth-first order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Tree {
    /// The sessions; the first is the root.
    pub sessions: Vec<TreeNode>,
    /// The position in the log when this was read; later events are not included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// A message for a running turn.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SteerInput {
    /// The message as plain text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The message as prompt parts.
    pub parts: Vec<PromptPart>,
}

/// A subagent's own git worktree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "SessionWorktree")]
pub struct Worktree {
    /// The session that works in it.
    #[serde(rename = "sessionID")]
    pub session_id: SessionId,
    /// Its path.
    pub directory: String,
    /// Its branch.
    pub branch: String,
    /// The commit that its changes are relative to: where it started, or the last merge.
    pub base: String,
    /// The working tree that its changes are merged into.
    pub target: String,
    /// The unmerged changes. For very many files only the first ones, without line counts.
    pub files: Vec<FileStatus>,
    /// Whether more files changed than `files` lists.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
}

/// The unmerged changes in a worktree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "SessionWorktreeDiff")]
pub struct WorktreeDiff {
    /// The worktree.
    #[serde(flatten)]
    pub worktree: Worktree,
    /// The changes as a patch for `git apply`.
    pub patch: String,
    /// Whether the patch was cut off and contains only the first files.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
}

/// The result of a cancel.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Cancelled")]
pub struct CancelResult {
    /// The sessions whose turns were stopped; empty if none was running.
    pub sessions: Vec<SessionId>,
}
