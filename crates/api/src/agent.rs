//! Agents, commands and skills.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::PermissionRuleset;
use crate::{JsonMap, ModelRef, Ruleset};

/// Who can be asked to do the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum AgentMode {
    /// Only other agents use it.
    Subagent,
    /// Only the human uses it.
    Primary,
    /// Both.
    All,
}

/// A role that the model plays: a prompt, rules, a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Agent {
    /// Its name.
    pub name: String,
    /// When to use it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Who uses it.
    pub mode: AgentMode,
    /// Whether it is built in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub native: Option<bool>,
    /// Whether it is kept out of lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hidden: Option<bool>,
    /// Sampling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// Sampling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// How a client paints it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub color: Option<String>,
    /// Its rules, defaults first; the last match wins.
    #[schemars(with = "PermissionRuleset")]
    pub permission: Ruleset,
    /// Its own model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelRef>,
    /// Reasoning effort or the like.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// Its own system prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Provider options.
    pub options: JsonMap,
    /// The most model steps of one turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<f64>")]
    pub steps: Option<u32>,
}

/// Where a command comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum CommandSource {
    /// Configuration, or built in.
    Command,
    /// An MCP server's prompt.
    Mcp,
    /// A skill.
    Skill,
}

/// A prompt with a name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Command {
    /// Its name, without the slash.
    pub name: String,
    /// What it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The agent it runs with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The model it runs with, `provider/model`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Where it comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<CommandSource>,
    /// The prompt, with its placeholders.
    pub template: String,
    /// Whether a subagent runs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subtask: Option<bool>,
    /// The placeholders it has.
    pub hints: Vec<String>,
}

/// Instructions that the agent loads when it needs them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Skill {
    /// Its name.
    pub name: String,
    /// When to use it; without one models are not told of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The `SKILL.md`, absolute.
    pub location: String,
    /// Its text.
    pub content: String,
}
