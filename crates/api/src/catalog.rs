//! Projects, providers and models.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::{numbers, shape};
use crate::{Json, JsonMap, Timestamp, Usd};

/// A repository (or `global`: everything outside one).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Project {
    /// The first commit, or `global`.
    pub id: String,
    /// Its root.
    pub worktree: String,
    /// `git`, in a repository.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<shape::ProjectVcs>")]
    pub vcs: Option<String>,
    /// A display name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// A display icon.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icon: Option<ProjectIcon>,
    /// Commands that clients run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commands: Option<ProjectCommands>,
    /// When.
    pub time: ProjectTime,
    /// Further worktrees of it.
    pub sandboxes: Vec<String>,
}

/// A display icon.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProjectIcon {
    /// Its address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Another address that wins.
    #[serde(rename = "override", skip_serializing_if = "Option::is_none")]
    pub replacement: Option<String>,
    /// A colour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub color: Option<String>,
}

/// Commands that clients run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProjectCommands {
    /// When a workspace starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
}

/// When a project was seen.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProjectTime {
    /// First.
    #[schemars(range(min = 0))]
    pub created: Timestamp,
    /// Last.
    #[schemars(range(min = 0))]
    pub updated: Timestamp,
    /// `git init` by us.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub initialized: Option<Timestamp>,
}

/// How a provider became known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum ProviderSource {
    /// A key in the environment.
    Env,
    /// The configuration file.
    Config,
    /// Built in.
    Custom,
    /// A stored credential.
    Api,
}

/// A model vendor or server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Provider {
    /// Its id, the first half of `provider/model`.
    pub id: String,
    /// Its display name.
    pub name: String,
    /// How it became known.
    pub source: ProviderSource,
    /// The variables that carry its key.
    pub env: Vec<String>,
    /// The key. Faces must not show it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// `baseURL` and further options.
    pub options: JsonMap,
    /// Its models by id.
    pub models: IndexMap<String, Model>,
}

/// A model's stage of life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum ModelStatus {
    /// Very new.
    Alpha,
    /// New.
    Beta,
    /// On its way out.
    Deprecated,
    /// In use.
    #[default]
    Active,
}

/// How a model is reached.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct ModelApi {
    /// The vendor's name of it.
    pub id: String,
    /// The base address.
    pub url: String,
    /// The AI SDK package that OpenCode would use; it names the wire.
    pub npm: String,
}

/// A model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Model {
    /// Its id, the second half of `provider/model`.
    pub id: String,
    /// Its provider.
    #[serde(rename = "providerID")]
    pub provider_id: String,
    /// How it is reached.
    pub api: ModelApi,
    /// Its display name.
    pub name: String,
    /// Its family.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
    /// What it can do.
    pub capabilities: Capabilities,
    /// What it costs, per million tokens.
    pub cost: Cost,
    /// How much it takes and gives.
    pub limit: Limit,
    /// Its stage of life.
    pub status: ModelStatus,
    /// Options that go into the request.
    pub options: JsonMap,
    /// Headers that go with the request.
    pub headers: IndexMap<String, String>,
    /// When it appeared.
    pub release_date: String,
    /// Named sets of options (reasoning effort).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variants: Option<IndexMap<String, JsonMap>>,
}

/// What a model can do.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Capabilities {
    /// It takes a temperature.
    pub temperature: bool,
    /// It reasons.
    pub reasoning: bool,
    /// It takes files.
    pub attachment: bool,
    /// It calls tools.
    pub toolcall: bool,
    /// What it takes.
    pub input: Modalities,
    /// What it gives.
    pub output: Modalities,
    /// Whether reasoning and text alternate, or in which field reasoning comes.
    #[schemars(with = "shape::Interleaved")]
    pub interleaved: Json,
}

/// Kinds of content.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Modalities {
    /// Text.
    pub text: bool,
    /// Sound.
    pub audio: bool,
    /// Pictures.
    pub image: bool,
    /// Films.
    pub video: bool,
    /// PDF.
    pub pdf: bool,
}

/// Prices in US dollars per million tokens.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Cost {
    /// Fresh input.
    pub input: Usd,
    /// Output.
    pub output: Usd,
    /// Cached input.
    pub cache: CostTier,
}

/// Prices of cached input.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct CostTier {
    /// Served.
    pub read: Usd,
    /// Stored.
    pub write: Usd,
}

/// How many tokens a model takes and gives.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline, transform = numbers)]
pub struct Limit {
    /// Input and output together; 0 means unknown.
    pub context: u64,
    /// Input alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<u64>,
    /// Output; 0 means unknown.
    pub output: u64,
}
