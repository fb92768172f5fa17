//! Finds and merges configuration: `opencode.json[c]` and `trefoil.json[c]`, agents, commands and skills in markdown,
//! AGENTS.md, and the resulting providers.
//!
//! Invariants: it reads files, but neither the environment nor the current directory (both come in as [`Inputs`]). It
//! never fails: what is wrong becomes a [`Problem`], and the rest works. Whatever in a repository's configuration
//! executes, redirects, reveals or loosens something has no effect until the user trusts that content; until then it is
//! listed in [`LoadedConfig::untrusted`]. It fails closed: what an untrusted repository asks for or denies, and what
//! an unreadable file or a mistyped key may have denied, goes to [`Config::tighten`], and an unreadable rule counts as
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

pub use dirs::Dirs;
pub use documents::agent_file::{
    AgentFileError, AgentPlace, NewAgent, OPTIONAL_AGENTS, OptionalAgent, installed_agent, write_agent,
};
pub use documents::instruction::{Instruction, MAX_INSTRUCTION_BYTES, MAX_INSTRUCTIONS};
pub use documents::markdown::{Document, DocumentKind, MAX_DOCUMENTS, discover_markdown};
pub use edit::{EditError, edit_global, edit_project};
pub use files::stamps::{FileStamps, MAX_FILE_STAMPS};
pub use files::{MAX_CONFIG_BYTES, MAX_MARKDOWN_BYTES};
pub use load::find::SourceKind;
pub use load::finish::hints;
pub use load::{global, load};
pub use problem::{AffectedAgents, Problem, Severity};
pub use project::{GLOBAL_PROJECT, ProjectInfo, linked_trees, project_info};
pub use provider::credentials::{
    AUTH_CONTENT, CredentialError, MAX_CREDENTIALS_BYTES, StoredCredentials, credentials, path as credentials_file,
    set_credential,
};
pub use provider::{MAX_TIMEOUT, ProviderEntry, Timeouts, UnusableProvider, Wire, presentable};
pub use redact::Redactor;
pub use schema::agent::{AgentConfig, Isolation, RunnerSettings};
pub use schema::json_schema::config_schema;
pub use schema::provider::{
    LimitConfig, ModalitiesConfig, ModelConfig, ModelProviderConfig, PriceConfig, ProviderConfig,
};
pub use schema::typed::{AskConfig, AskThen, CommandConfig, Config, EnvConfig, SubagentsConfig, ToolOutputConfig};
pub use trust::{MAX_CONTENTS, MAX_TRUST_BYTES, Trust, TrustError, TrustStore, content_hash};

pub use provider::vendor::{Vendor, vendors};

/// Everything that determines what is loaded.
#[derive(Debug, Clone)]
pub struct Inputs {
    /// The absolute path of the working directory.
    pub directory: PathBuf,
    /// The user's home directory.
    pub home: PathBuf,
    /// The user's directories.
    pub dirs: Dirs,
    /// The environment at the start of the program.
    pub env: BTreeMap<String, String>,
    /// Which repositories' configuration takes full effect.
    pub trust: Trust,
}

/// The configuration in effect, and where it came from.
#[derive(Debug, Clone)]
pub struct LoadedConfig {
    /// The merged configuration.
    pub config: Config,
    /// The same as JSON for display: placeholders are not filled, secrets are masked.
    pub raw: Json,
    /// What was read, in merge order.
    pub sources: Vec<Source>,
    /// What is wrong.
    pub problems: Vec<Problem>,
    /// What has no effect until it is trusted.
    pub untrusted: Vec<UntrustedFile>,
    /// Configured keys that have no effect yet.
    pub inert: Vec<String>,
    /// The configured agents, including built-in ones that are changed.
    pub agents: Vec<AgentEntry>,
    /// The configured commands.
    pub commands: Vec<Command>,
    /// Skills.
    pub skills: Vec<Skill>,
    /// Instruction files: the user's, the project's from its root down, then those listed in `instructions`.
    pub instructions: Vec<Instruction>,
    /// The project.
    pub project: ProjectInfo,
    /// Usable providers.
    pub providers: Vec<ProviderEntry>,
    /// Unusable providers by id: known vendors without a key, and incomplete configured ones.
    pub unusable: BTreeMap<String, UnusableProvider>,
    /// Providers that only need a key.
    pub connectable: Vec<Provider>,
    /// The files and folders that all this was read from, except for instructions.
    pub file_stamps: FileStamps,
    /// Masks secrets for display.
    pub redactor: Redactor,
}

/// A source of configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The file, if it is one.
    pub path: Option<PathBuf>,
    /// The path, or the name of the environment variable.
    pub label: String,
    /// Whose it is.
    pub kind: SourceKind,
}

/// A file in a repository of which parts have no effect until its content is trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UntrustedFile {
    /// The file.
    pub path: PathBuf,
    /// The hash to pass to [`TrustStore::trust`].
    pub hash: String,
    /// What has no effect, and why.
    pub what: Vec<String>,
}

/// A configured agent.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentEntry {
    /// Its name.
    pub name: String,
    /// Its configuration.
    pub config: AgentConfig,
    /// The last source that configures it.
    pub source: String,
}

/// Parses bytes as every kind of file; for fuzzers, which check that it returns.
pub fn fuzz_config(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    load::fuzz(&text);
}
