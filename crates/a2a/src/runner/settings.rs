//! The configuration of an agent of another machine.

use std::time::Duration;

use api::{Json, JsonMap, RunnerError};
use serde::Deserialize;

use super::Variable;
use crate::client::{ClientCredentials, ClientOptions};
use crate::model::Line;
use crate::wire::Transport;

/// How long an agent may stay silent while it works, unless configured.
const SILENCE: Duration = Duration::from_secs(30 * 60);
/// The longest wait, whatever is configured, and the longest stream.
const MAX_TIMEOUT: Duration = Duration::from_secs(30 * 24 * 3600);
/// The most bytes of a stream. The texts in it are bounded by the session; each comes with several times as much around it.
const MAX_STREAM: usize = 1 << 30;

/// The settings of an agent.
pub(super) struct RunnerSettings {
    /// Where it is.
    pub url: String,
    /// How long it may stay silent while it works.
    pub silence: Duration,
    token_env: Option<String>,
    line: Option<Line>,
    transport: Option<Transport>,
    start: Option<Duration>,
}

#[derive(Deserialize)]
struct Configured {
    url: String,
    token_env: Option<String>,
    version: Option<Line>,
    transport: Option<String>,
    start: Option<u64>,
    silence: Option<u64>,
}

impl RunnerSettings {
    pub fn read(settings: &JsonMap) -> Result<Self, RunnerError> {
        let refused = |what: &dyn std::fmt::Display| {
            RunnerError(format!("The configuration of the agent is not understood: {what}"))
        };
        let configured: Configured =
            serde_json::from_value(Json::Object(settings.clone())).map_err(|error| refused(&error))?;
        let transport = match configured.transport.as_deref() {
            None => None,
            Some("JSONRPC") => Some(Transport::JsonRpc),
            Some("HTTP+JSON") => Some(Transport::Rest),
            Some(other) => return Err(refused(&format!("{other:?} is no transport; there are JSONRPC and HTTP+JSON"))),
        };
        let seconds = |value: u64| Duration::from_secs(value).min(MAX_TIMEOUT);
        Ok(Self {
            url: configured.url,
            silence: configured.silence.map_or(SILENCE, seconds),
            token_env: configured.token_env,
            line: configured.version,
            transport,
            start: configured.start.map(seconds),
        })
    }

    /// The options of a client for this agent, on top of those of the environment.
    pub fn apply(&self, options: ClientOptions, variable: &Variable) -> Result<ClientOptions, RunnerError> {
        let mut options = options;
        match self.token_env.as_deref() {
            None => {}
            // Credentials for other agents are not for this one.
            Some("") => options.credentials = None,
            Some(name) => {
                let token = variable(name).filter(|token| !token.trim().is_empty()).ok_or_else(|| {
                    RunnerError(format!("The environment has no {name}, which is to hold the agent's token"))
                })?;
                options.credentials = Some(ClientCredentials::Bearer(token.trim().to_owned()));
            }
        }
        options.line = self.line.or(options.line);
        if let Some(transport) = self.transport {
            options.transports = vec![transport];
        }
        options.timeout = self.start.unwrap_or(options.timeout);
        options.stream.duration = MAX_TIMEOUT;
        options.stream.bytes = MAX_STREAM;
        Ok(options)
    }
}
