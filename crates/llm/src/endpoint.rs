//! Where a model is reached: the vendor as data.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::{ChatDialect, Script};

/// Where a model is reached, and with which wire format.
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
    /// The URL up to `/chat/completions`; a query is kept.
    pub base_url: String,
    /// Sent as a bearer token, unless `headers` has its own `authorization`.
    pub api_key: Option<String>,
    /// Additional headers for every request.
    pub headers: Vec<(String, String)>,
    /// The vendor's name for the model.
    pub model: String,
    /// How this server differs from others.
    pub dialect: Arc<ChatDialect>,
    /// The timeouts.
    pub timeouts: Timeouts,
}

/// Timeouts for a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// For connecting.
    pub connect: Duration,
    /// For the response headers. Local servers process the whole prompt before they send them.
    pub header: Duration,
    /// For the next bytes of the response.
    pub idle: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { connect: Duration::from_secs(15), header: Duration::from_secs(300), idle: Duration::from_secs(120) }
    }
}

/// Omits secrets: the key and the values of headers.
impl fmt::Debug for OpenAiChat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenAiChat")
            .field("base_url", &self.base_url)
            .field("api_key", &self.api_key.as_ref().map(|_| "***"))
            .field("headers", &self.headers.iter().map(|(name, _)| name).collect::<Vec<_>>())
            .field("model", &self.model)
            .field("dialect", &self.dialect)
            .field("timeouts", &self.timeouts)
            .finish()
    }
}
