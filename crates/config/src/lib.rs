//! Finds and merges configuration: `opencode.json[c]` and `trefoil.json[c]`, agents, commands and skills in markdown,
//! AGENTS.md, and the providers that follow from them.
//!
//! Invariants: reads files, but no environment and no current directory (both come in as [`Inputs`]); never fails
//! (what is wrong is a [`Problem`], and the rest works); what a repository brings along and what executes, redirects,
//! reveals or loosens something has no effect until the user trusts that content, and is named in
//! [`Loaded::untrusted`] until then; fails closed: what an untrusted repository asks for or denies, and what a file that
//! cannot be read or a mistyped key may have denied, is in [`Config::tighten`], and a rule that cannot be read counts as
//! `ask`.

mod dirs;
mod documents;
mod edit;
mod files;
mod load;
mod problem;
mod project;
mod provider;
mod redact;
mod rules;
mod schema;
mod syntax;
mod trust;

use std::collections::BTreeMap;
use std::path::PathBuf;

use api::{Command, Json, Provider, Skill};

pub use documents::agent_file::{
    AgentFileError, AgentPlace, NewAgent, OPTIONAL_AGENTS, OptionalAgent, installed_agent, write_agent,
};
pub use provider::credentials::{CredentialError, MAX_CREDENTIALS_BYTES, credentials, path as credentials_file, set_credential};
pub use dirs::Dirs;
pub use edit::{EditError, edit_global, edit_project};
pub use files::{MAX_CONFIG_BYTES, MAX_MARKDOWN_BYTES};
pub use load::find::SourceKind;
pub use load::finish::hints;
pub use documents::instruction::{Instruction, MAX_INSTRUCTION_BYTES, MAX_INSTRUCTIONS};
pub use schema::json_schema::config_schema;
pub use load::{global, load};
pub use documents::markdown::{Document, Kind, MAX_DOCUMENTS, discover_markdown};
pub use files::stamps::{MAX_MARKS, Marks};
pub use problem::{Closes, Problem, Severity};
pub use project::{GLOBAL_PROJECT, ProjectInfo, linked_trees, project_info};
pub use provider::{MAX_TIMEOUT, ProviderEntry, Timeouts, Unusable, Wire, presentable};
pub use redact::Redactor;
pub use trust::{MAX_CONTENTS, MAX_TRUST_BYTES, Trust, TrustError, TrustStore, content_hash};
pub use schema::typed::{
    AgentConfig, AskConfig, AskThen, CommandConfig, CompactionConfig, Config, EnvConfig, Isolation, LimitConfig,
    ModalitiesConfig, ModelConfig, ModelProviderConfig, PriceConfig, ProviderConfig, RunnerSettings, SkillsConfig,
    SubagentsConfig, ToolOutputConfig,
};

pub use provider::vendor::{Vendor, vendors};

/// Everything that decides what is loaded.
#[derive(Debug, Clone)]
pub struct Inputs {
    /// Where the agent works, absolute.
    pub directory: PathBuf,
    /// The user's home.
    pub home: PathBuf,
    /// The user's folders.
    pub dirs: Dirs,
    /// The environment, as it was when the program started.
    pub env: BTreeMap<String, String>,
    /// Which repositories' configuration takes effect as a whole.
    pub trust: Trust,
}

/// The configuration in effect, and how it came about.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The merged configuration.
    pub config: Config,
    /// The same as JSON, to be shown: placeholders are not filled, secrets are masked.
    pub raw: Json,
    /// What was read, in the order of merging.
    pub sources: Vec<Source>,
    /// What is wrong.
    pub problems: Vec<Problem>,
    /// What is left out until it is trusted.
    pub untrusted: Vec<Untrusted>,
    /// Configured keys that have no effect yet.
    pub inert: Vec<String>,
    /// Agents of the configuration, built-in ones that it changes included.
    pub agents: Vec<AgentEntry>,
    /// Commands of the configuration.
    pub commands: Vec<Command>,
    /// Skills.
    pub skills: Vec<Skill>,
    /// Instruction files: the user's, the project's from its root down, then those that `instructions` names.
    pub instructions: Vec<Instruction>,
    /// The project.
    pub project: ProjectInfo,
    /// Providers that can be called.
    pub providers: Vec<ProviderEntry>,
    /// Providers that cannot be called, by id: known vendors without a key, configured ones that lack something.
    pub unusable: BTreeMap<String, Unusable>,
    /// Providers that a key would connect.
    pub connectable: Vec<Provider>,
    /// The files and folders that all this comes from, instructions aside.
    pub marks: Marks,
    /// Masks secrets in what is shown of all this.
    pub redactor: Redactor,
}

/// Something that configuration was read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The file, if it is one.
    pub path: Option<PathBuf>,
    /// The path, or the name of the variable.
    pub label: String,
    /// Whose it is.
    pub kind: SourceKind,
}

/// A file of a repository with parts that are left out until this content is trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Untrusted {
    /// The file.
    pub path: PathBuf,
    /// What to give to [`TrustStore::trust`].
    pub hash: String,
    /// What is left out, and why.
    pub what: Vec<String>,
}

/// An agent of the configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentEntry {
    /// Its name.
    pub name: String,
    /// What the configuration says about it.
    pub config: AgentConfig,
    /// The last source that says something about it.
    pub source: String,
}

/// Reads bytes as every kind of file there is here; for fuzzers, which check that it returns.
pub fn fuzz_config(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    load::fuzz(&text);
}
