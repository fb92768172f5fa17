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
    /// When it was first and last used.
    pub time: ProjectTime,
    /// Its other worktrees.
    pub sandboxes: Vec<String>,
}

/// A display icon.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProjectIcon {
    /// The URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// A URL that takes precedence.
    #[serde(rename = "override", skip_serializing_if = "Option::is_none")]
    pub replacement: Option<String>,
    /// A colour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub color: Option<String>,
}

/// Commands that clients run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProjectCommands {
    /// Runs when a workspace starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
}

/// When a project was used.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProjectTime {
    /// First.
    #[schemars(range(min = 0))]
    pub created: Timestamp,
    /// Last.
    #[schemars(range(min = 0))]
    pub updated: Timestamp,
    /// When we ran `git init` in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub initialized: Option<Timestamp>,
}

/// How we learned of a provider.
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
    /// Its id: the part of `provider/model` before the slash.
    pub id: String,
    /// Its display name.
    pub name: String,
    /// How we learned of it.
    pub source: ProviderSource,
    /// The environment variables that may hold its key.
    pub env: Vec<String>,
    /// The key. Faces must not show it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// `baseURL` and other options.
    pub options: JsonMap,
    /// Its models by id.
    pub models: IndexMap<String, Model>,
}

/// The providers that a host knows.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct ProviderCatalog {
    /// All of them, each with its models.
    pub all: Vec<Provider>,
    /// The default model of each.
    pub default: IndexMap<String, String>,
    /// The ids of those that can be used.
    pub connected: Vec<String>,
}

/// A model's release stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum ModelStatus {
    /// Alpha.
    Alpha,
    /// Beta.
    Beta,
    /// To be removed.
    Deprecated,
    /// Generally available.
    #[default]
    Active,
}

/// Where and how to call a model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct ModelApi {
    /// The vendor's name for it.
    pub id: String,
    /// The base URL.
    pub url: String,
    /// The AI SDK package that OpenCode would use; it identifies the wire format.
    pub npm: String,
}

/// A model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Model {
    /// Its id: the part of `provider/model` after the slash.
    pub id: String,
    /// Its provider.
    #[serde(rename = "providerID")]
    pub provider_id: String,
    /// Where and how to call it.
    pub api: ModelApi,
    /// Its display name.
    pub name: String,
    /// Its family.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
    /// What it can do.
    pub capabilities: Capabilities,
    /// Its prices per million tokens.
    pub cost: Cost,
    /// Its token limits.
    pub limit: Limit,
    /// Its release stage.
    pub status: ModelStatus,
    /// Options to put into the request.
    pub options: JsonMap,
    /// Headers to send with the request.
    pub headers: IndexMap<String, String>,
    /// Its release date.
    pub release_date: String,
    /// Named sets of options, for example reasoning efforts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variants: Option<IndexMap<String, JsonMap>>,
}

/// What a model can do.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Capabilities {
    /// It accepts a temperature.
    pub temperature: bool,
    /// It reasons.
    pub reasoning: bool,
    /// It accepts files.
    pub attachment: bool,
    /// It calls tools.
    pub toolcall: bool,
    /// The content it accepts.
    pub input: Modalities,
    /// The content it produces.
    pub output: Modalities,
    /// Whether reasoning is interleaved with text, or the field of the answer that carries it.
    #[schemars(with = "shape::Interleaved")]
    pub interleaved: Json,
}

/// Kinds of content that a model accepts or produces.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Modalities {
    /// Text.
    pub text: bool,
    /// Audio.
    pub audio: bool,
    /// Images.
    pub image: bool,
    /// Video.
    pub video: bool,
    /// PDF.
    pub pdf: bool,
}

/// Prices in US dollars per million tokens.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Cost {
    /// Uncached input.
    pub input: Usd,
    /// Output.
    pub output: Usd,
    /// Cached input.
    pub cache: CostTier,
}

/// Prices of cached tokens.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct CostTier {
    /// Read from the cache.
    pub read: Usd,
    /// Written to the cache.
    pub write: Usd,
}

/// Token limits of a model.
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
