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
    /// The workspace, if workspaces are in use.
    #[serde(rename = "workspaceID", skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^wrk"))]
    pub workspace_id: Option<String>,
    /// The absolute path of the directory that the agent works in.
    pub directory: String,
    /// `directory` relative to the worktree, empty at its root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The session that spawned this one.
    #[serde(rename = "parentID", skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<SessionId>,
    /// What the session has changed so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<SessionSummary>,
    /// What the session has cost so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<Usd>,
    /// The tokens that the session has used so far.
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
    /// The version of the program that created it.
    pub version: String,
    /// Data that a client stored with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<JsonMap>,
    /// Its timestamps.
    pub time: SessionTime,
    /// Rules for this session only; they come last, so they take precedence.
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
    /// The session as its deletion event shows it: which one it was and where, without any of its content.
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

/// The timestamps of a session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct SessionTime {
    /// When it was created.
    #[schemars(range(min = 0))]
    pub created: Timestamp,
    /// When it last changed.
    #[schemars(range(min = 0))]
    pub updated: Timestamp,
    /// When the running compaction started.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub compacting: Option<Timestamp>,
    /// When it was archived.
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
    /// Files changed.
    pub files: u64,
    /// The changes, per file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diffs: Option<Vec<FileDiff>>,
}

/// Tokens of a whole session (without the total that messages have).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline, transform = numbers)]
pub struct SessionTokens {
    /// Uncached input.
    pub input: u64,
    /// Visible output.
    pub output: u64,
    /// Hidden reasoning.
    pub reasoning: u64,
    /// Cached input, read and written.
    pub cache: TokensCache,
}

/// The model of a session. Its field names differ from a message's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct SessionModel {
    /// The model.
    pub id: String,
    /// Its provider.
    #[serde(rename = "providerID")]
    pub provider_id: String,
    /// The model variant, for example its reasoning effort.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

/// Where a session is shared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct SessionShare {
    /// Its public URL.
    pub url: String,
}

/// The point a session is reverted to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct SessionRevert {
    /// The first message that is undone.
    #[serde(rename = "messageID")]
    pub message_id: MessageId,
    /// The first part that is undone.
    #[serde(rename = "partID", skip_serializing_if = "Option::is_none")]
    pub part_id: Option<PartId>,
    /// The snapshot of the files before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// What was undone.
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
