//! Agents, commands and skills.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::PermissionRuleset;
use crate::{JsonMap, ModelRef, Ruleset};

/// Who may use an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum AgentMode {
    /// Other agents only, through `task`.
    Subagent,
    /// The human only.
    Primary,
    /// Both.
    All,
}

/// A role for the model: a system prompt, permission rules and a model.
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
    /// Whether lists leave it out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hidden: Option<bool>,
    /// Nucleus sampling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// Sampling temperature.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// The colour that clients show it in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub color: Option<String>,
    /// Its rules, defaults first; the last match wins.
    #[schemars(with = "PermissionRuleset")]
    pub permission: Ruleset,
    /// Its own model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelRef>,
    /// The model variant, for example its reasoning effort.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// Its own system prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Provider options.
    pub options: JsonMap,
    /// The maximum number of model steps in one turn.
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

/// A named prompt (slash command).
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
    /// The placeholders in the template.
    pub hints: Vec<String>,
}

/// Instructions that the agent loads when it needs them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Skill {
    /// Its name.
    pub name: String,
    /// When to use it; a skill without a description is not offered to models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The absolute path of its `SKILL.md`.
    pub location: String,
    /// Its text.
    pub content: String,
}
