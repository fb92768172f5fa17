//! Sessions and their todo lists.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::{PermissionRuleset, numbers};
use crate::{Extra, FileDiff, JsonMap, MessageId, PartId, Ruleset, SessionId, Timestamp, TokensCache, Usd};

/// A conversation with an agent in one directory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Session {
    /// Its id.
    pub id: SessionId,
    /// A readable name.
    pub slug: String,
    /// The project: the first commit of the repository, or `global`.
    #[serde(rename = "projectID")]
    pub project_id: String,
    /// The workspace, where workspaces are used.
    #[serde(rename = "workspaceID", skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^wrk"))]
    pub workspace_id: Option<String>,
    /// Where the agent works, absolute.
    pub directory: String,
    /// `directory` relative to the worktree, empty at its root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The session that spawned this one.
    #[serde(rename = "parentID", skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<SessionId>,
    /// What the session changed so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<SessionSummary>,
    /// What the session cost so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<Usd>,
    /// What the session used so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<SessionTokens>,
    /// Where it is shared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<SessionShare>,
    /// Its title.
    pub title: String,
    /// The agent of the last prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The model of the last prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<SessionModel>,
    /// The version of the program that made it.
    pub version: String,
    /// Whatever a client wants to remember.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<JsonMap>,
    /// When things happened to it.
    pub time: SessionTime,
    /// Rules of this session alone; they come last, so they win.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<PermissionRuleset>")]
    pub permission: Option<Ruleset>,
    /// The point it is reverted to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revert: Option<SessionRevert>,
    /// Unknown fields.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Session {
    /// What is told of a session that is deleted: which one it was and where, and nothing of what was said in it.
    pub fn tombstone(&self) -> Self {
        Self {
            title: String::new(),
            summary: None,
            share: None,
            metadata: None,
            permission: None,
            revert: None,
            extra: Extra::default(),
            ..self.clone()
        }
    }
}

/// When things happened to a session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct SessionTime {
    /// It was made.
    #[schemars(range(min = 0))]
    pub created: Timestamp,
    /// It last changed.
    #[schemars(range(min = 0))]
    pub updated: Timestamp,
    /// A compaction runs since.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub compacting: Option<Timestamp>,
    /// It was archived.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<f64>")]
    pub archived: Option<Timestamp>,
}

/// What a session changed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline, transform = numbers)]
pub struct SessionSummary {
    /// Lines added.
    pub additions: u64,
    /// Lines removed.
    pub deletions: u64,
    /// Files touched.
    pub files: u64,
    /// Per file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diffs: Option<Vec<FileDiff>>,
}

/// Tokens of a whole session (without the total that a message has).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline, transform = numbers)]
pub struct SessionTokens {
    /// Fresh input.
    pub input: u64,
    /// Visible output.
    pub output: u64,
    /// Hidden reasoning.
    pub reasoning: u64,
    /// Cached input.
    pub cache: TokensCache,
}

/// The model of a session. Note the field names: they differ from a message's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct SessionModel {
    /// The model.
    pub id: String,
    /// Its provider.
    #[serde(rename = "providerID")]
    pub provider_id: String,
    /// Reasoning effort or the like.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

/// Where a session is shared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct SessionShare {
    /// Its public address.
    pub url: String,
}

/// The point a session is reverted to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct SessionRevert {
    /// The first message that is taken back.
    #[serde(rename = "messageID")]
    pub message_id: MessageId,
    /// The first part that is taken back.
    #[serde(rename = "partID", skip_serializing_if = "Option::is_none")]
    pub part_id: Option<PartId>,
    /// The state of the files before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// What was taken back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
}

/// One entry of the agent's todo list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Todo {
    /// What is to be done.
    pub content: String,
    /// `pending`, `in_progress`, `completed` or `cancelled`.
    pub status: String,
    /// `high`, `medium` or `low`.
    pub priority: String,
}
