//! The settings of the service: from variables of the environment, and from the section `a2a` of the configuration.
//!
//! Each setting is listed once, in `settings/table.rs`, with its variable, its key and its default. A variable wins over the
//! configuration. Nothing here reads the environment: the caller passes a look-up.

mod boundary;
mod client;
mod table;
mod value;

use std::time::Duration;

use api::{Json, JsonMap};

pub use boundary::ExecutionBoundary;
pub use client::{CLIENT_SETTINGS, ClientSetting};
pub use table::{SETTINGS, Setting};

use crate::{Credentials, CredentialsError, Line};

/// Where the durable rows of the service are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Backend {
    /// In Trefoil's own database.
    Default,
    /// In an SQLite file of their own, by its path.
    File(String),
    /// In memory: they are gone when the service stops.
    Memory,
}

/// The settings of the service.
#[derive(Clone, PartialEq)]
pub struct Settings {
    /// The address to listen on.
    pub host: String,
    /// The port to listen on; 0 picks a free one.
    pub port: u16,
    /// The base URL that cards publish; by default the address that is listened on.
    pub public_url: Option<String>,
    /// The project that cards name.
    pub project: Option<String>,
    /// The title of the cards.
    pub title: String,
    /// The description of the cards; by default our own.
    pub description: Option<String>,
    /// The version that cards publish; by default that of this program.
    pub version: Option<String>,
    /// The address of the documentation that cards name.
    pub documentation_url: Option<String>,
    /// The line of requests that name no version.
    pub default_line: Line,
    /// The lines that are served.
    pub lines: Vec<Line>,
    /// The log level of the service.
    pub log_level: Option<String>,
    /// Whether bodies of requests and responses are logged. Those about sessions never are.
    pub log_payloads: bool,
    /// The most bytes of a logged body; 0 means all.
    pub log_body_limit: usize,
    /// From how many bytes on responses are compressed.
    pub gzip_minimum: usize,
    /// The largest body of a request, in bytes.
    pub max_request_body: usize,
    /// Whether clients may choose a directory.
    pub allow_directory_override: bool,
    /// Whether the method that runs shell commands is enabled.
    pub session_shell: bool,
    /// Whether the methods that change workspaces and worktrees are enabled.
    pub workspace_mutations: bool,
    /// Whether data parts are taken in as files; refused otherwise.
    pub accept_data_parts: bool,
    /// What the deployment says about the limits of its agents.
    pub boundary: ExecutionBoundary,
    /// How long a claim of a session may wait for its first success.
    pub claim_ttl: Duration,
    /// How long an interrupt can be answered.
    pub interrupt_ttl: Duration,
    /// How long an expired interrupt is remembered.
    pub interrupt_tombstone_ttl: Duration,
    /// How long a cancellation waits for the agent runtime.
    pub cancel_abort_timeout: Duration,
    /// Where the rows are.
    pub backend: Backend,
    /// The one token of a service with a single identity.
    pub bearer_token: Option<String>,
    /// The registry of credentials, as JSON.
    pub static_credentials: Option<String>,
    /// Further origins whose pages may call.
    pub allowed_origins: Vec<String>,
    /// Further host names under which the service is reached.
    pub allowed_hosts: Vec<String>,
    /// Whether there are metrics.
    pub metrics: bool,
    /// Whether requests of one identity are limited.
    pub rate_limit: bool,
    /// The window of the limit.
    pub rate_limit_window: Duration,
    /// The most requests of one identity in a window.
    pub rate_limit_requests: u32,
    /// The most streams of one identity that are open at the same time.
    pub max_streams: usize,
    /// The most bytes of one stream.
    pub stream_max_bytes: u64,
    /// The longest time of one stream.
    pub stream_max_duration: Duration,
    /// The longest silence of a task whose stream is open.
    pub stream_idle_timeout: Duration,
    /// Whether cards show the path of the workspace.
    pub expose_workspace_root: bool,
    /// The file with the private key that signs cards.
    pub card_signing_key: Option<String>,
    /// Whether push notifications are sent.
    pub push: bool,
    /// Whether webhooks may be on this machine or in private networks.
    pub push_allow_private_hosts: bool,
    /// The OpenCode server to put the service in front of; without one, the engine of this process works.
    pub upstream_url: Option<String>,
    /// The user name for that server.
    pub upstream_username: Option<String>,
    /// The password for that server.
    pub upstream_password: Option<String>,
    /// How long a request to that server may take.
    pub upstream_timeout: Duration,
    /// How long a prompt to that server may take.
    pub upstream_stream_timeout: Option<Duration>,
    /// The most requests to that server at the same time; 0 means any number.
    pub upstream_max_requests: usize,
    /// The most streams of tasks on that server at the same time; 0 means any number.
    pub upstream_max_streams: usize,
    /// The workspace; by default the current directory.
    pub workspace_root: Option<String>,
    /// The agent of prompts.
    pub agent: Option<String>,
    /// An addition to the system prompt.
    pub system: Option<String>,
    /// The variant of the model.
    pub variant: Option<String>,
}

/// A setting that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name} {problem}")]
pub struct SettingError {
    /// The variable or the key.
    pub name: String,
    /// What is wrong with its value. Never contains the value of a secret.
    pub problem: String,
}

impl Settings {
    /// Reads the settings. `env` looks a variable up; an empty one counts as missing.
    pub fn read(env: impl Fn(&str) -> Option<String>, config: &JsonMap) -> Result<Self, SettingError> {
        let mut settings = Self::default();
        let mut names_line = false;
        if let Some(unknown) = unknown(config).next() {
            return Err(unknown);
        }
        for setting in SETTINGS {
            let variable = env(setting.variable).filter(|value| !value.trim().is_empty());
            let (name, value) = match (variable, config.get(setting.key)) {
                (Some(value), _) => (setting.variable.to_owned(), value),
                (None, Some(value)) => {
                    let name = format!("a2a.{}", setting.key);
                    let text = configured(value).map_err(|problem| SettingError { name: name.clone(), problem })?;
                    (name, text)
                }
                (None, None) => continue,
            };
            names_line |= setting.key == "protocol_version";
            (setting.set)(&mut settings, value.trim()).map_err(|problem| SettingError { name, problem })?;
        }
        if !settings.lines.contains(&settings.default_line) {
            if let (false, Some(line)) = (names_line, settings.lines.first()) {
                settings.default_line = *line;
                return Ok(settings);
            }
            return Err(SettingError {
                name: "A2A_PROTOCOL_VERSION".to_owned(),
                problem: "is not among A2A_SUPPORTED_PROTOCOL_VERSIONS".to_owned(),
            });
        }
        Ok(settings)
    }

    /// Everything that is wrong with the section `a2a`, for people who check it before they start the service.
    pub fn problems(config: &JsonMap) -> Vec<SettingError> {
        let mut problems: Vec<SettingError> = unknown(config).collect();
        let mut usable = JsonMap::new();
        for (key, value) in config.iter().filter(|(key, _)| is_known(key)) {
            let alone = JsonMap::from_iter([(key.clone(), value.clone())]);
            match Self::read(|_| None, &alone) {
                Ok(_) => drop(usable.insert(key.clone(), value.clone())),
                Err(problem) => problems.push(problem),
            }
        }
        // What is good alone may not fit together.
        match Self::read(|_| None, &usable) {
            Ok(settings) => {
                let registry = settings.static_credentials.as_deref();
                if let Err(error @ CredentialsError::Registry(_)) = Credentials::new(None, registry) {
                    let problem = format!("cannot be used: {error}");
                    problems.push(SettingError { name: "a2a.static_auth_credentials".to_owned(), problem });
                }
            }
            Err(problem) => problems.push(problem),
        }
        problems
    }

    /// Whether the shell method may run: a declared boundary that forbids writing switches it off.
    pub fn session_shell_enabled(&self) -> bool {
        self.session_shell && !self.boundary.forbids_writing()
    }

    /// Whether workspaces and worktrees may be changed: a declared boundary that forbids writing switches that off.
    pub fn workspace_mutations_enabled(&self) -> bool {
        self.workspace_mutations && !self.boundary.forbids_writing()
    }
}

fn is_known(key: &str) -> bool {
    SETTINGS.iter().any(|setting| setting.key == key)
}

fn unknown(config: &JsonMap) -> impl Iterator<Item = SettingError> {
    config.keys().filter(|key| !is_known(key)).map(|key| {
        let problem = "is no setting of the A2A service".to_owned();
        SettingError { name: format!("a2a.{key}"), problem }
    })
}

/// The value of the configuration as a variable would spell it.
fn configured(value: &Json) -> Result<String, String> {
    match value {
        Json::String(text) => Ok(text.clone()),
        Json::Bool(_) | Json::Number(_) => Ok(value.to_string()),
        // Lists of words are written with commas; the registry of credentials is a list of objects.
        Json::Array(items) if items.iter().all(Json::is_string) => {
            Ok(items.iter().filter_map(Json::as_str).collect::<Vec<_>>().join(","))
        }
        Json::Array(_) => Ok(value.to_string()),
        Json::Null | Json::Object(_) => Err("is not a text, a number, a switch or a list".to_owned()),
    }
}

#[cfg(test)]
mod tests;
