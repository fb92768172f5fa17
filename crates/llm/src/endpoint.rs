//! Where a model is reached: the vendor as data.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::Script;

/// Where a model is reached, and by which wire.
#[derive(Debug, Clone)]
pub enum Endpoint {
    /// Any server that speaks OpenAI's chat completions.
    OpenAiChat(OpenAiChat),
    /// The deterministic model that plays rules.
    Script(Arc<Script>),
}

/// A server that speaks OpenAI's chat completions.
#[derive(Clone, Default)]
pub struct OpenAiChat {
    /// The address up to `/chat/completions`; a query is kept.
    pub base_url: String,
    /// Sent as a bearer token, unless `headers` has its own `authorization`.
    pub api_key: Option<String>,
    /// Further headers of every request.
    pub headers: Vec<(String, String)>,
    /// The vendor's name of the model.
    pub model: String,
    /// How long to wait for what.
    pub timeouts: Timeouts,
}

/// How long to wait for a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// For the connection.
    pub connect: Duration,
    /// For the answer's head. Local servers read the whole prompt before they send it.
    pub header: Duration,
    /// For the next bytes of the answer: the watchdog.
    pub idle: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { connect: Duration::from_secs(15), header: Duration::from_secs(300), idle: Duration::from_secs(120) }
    }
}

/// Without secrets: the key and the headers' values are left out.
impl fmt::Debug for OpenAiChat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenAiChat")
            .field("base_url", &self.base_url)
            .field("api_key", &self.api_key.as_ref().map(|_| "***"))
            .field("headers", &self.headers.iter().map(|(name, _)| name).collect::<Vec<_>>())
            .field("model", &self.model)
            .field("timeouts", &self.timeouts)
            .finish()
    }
}
