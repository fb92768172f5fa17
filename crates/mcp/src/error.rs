//! Why a server could not be used.

use std::time::Duration;

use crate::rpc::MESSAGE_MAX;

/// Why a server could not be used, or a call of it did not work. The text is for humans and for the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no such server.
    #[error("There is no MCP server {0:?} here")]
    Unknown(String),
    /// It is not connected.
    #[error("The MCP server {0:?} is not connected")]
    NotConnected(String),
    /// The connection is gone.
    #[error("{0}")]
    Closed(String),
    /// The server has forgotten the connection; another one may work.
    #[error("The server has ended the connection")]
    Forgotten,
    /// It took too long.
    #[error("The server gave no answer within {} ms; `timeout` in its configuration allows more", .0.as_millis())]
    Timeout(Duration),
    /// The turn was stopped.
    #[error("The call was aborted")]
    Cancelled,
    /// The server refused.
    #[error("{message} ({code})")]
    Refused {
        /// Its code.
        code: i64,
        /// Its words.
        message: String,
    },
    /// The answer is too large.
    #[error("The server's answer is larger than {} MB and was dropped; ask for less", MESSAGE_MAX >> 20)]
    TooLarge,
    /// The answer makes no sense.
    #[error("The server's answer is not understood: {0}")]
    Answer(String),
    /// An HTTP status that is an error.
    #[error("The server answered with HTTP {status}{}{text}", if text.is_empty() { "" } else { ": " })]
    Http {
        /// The status.
        status: u16,
        /// The beginning of what it said.
        text: String,
    },
    /// The human must sign in first.
    #[error("The server wants you to sign in")]
    Unauthorized(Challenge),
    /// The server wants to know its clients beforehand.
    #[error("{0}")]
    Registration(String),
    /// The server has no OAuth.
    #[error("MCP server {0} does not support OAuth")]
    NoOAuth(String),
    /// Signing in did not work.
    #[error("Signing in did not work: {0}")]
    OAuth(String),
    /// The configuration makes no sense.
    #[error("{0}")]
    Config(String),
}

/// What a server says about how to sign in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Challenge {
    /// Where it describes itself.
    pub metadata: Option<String>,
    /// What it wants to be allowed.
    pub scope: Option<String>,
}

impl Challenge {
    /// From a `WWW-Authenticate` header.
    pub(crate) fn parse(header: &str) -> Self {
        let value = |name: &str| {
            let start = header.find(&format!("{name}="))? + name.len() + 1;
            let rest = &header[start..];
            let text = match rest.strip_prefix('"') {
                Some(quoted) => quoted.split('"').next(),
                None => rest.split([',', ' ']).next(),
            };
            text.filter(|text| !text.is_empty()).map(str::to_owned)
        };
        Self { metadata: value("resource_metadata"), scope: value("scope") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges() {
        let header = r#"Bearer error="invalid_token", resource_metadata="https://x/.well-known/p", scope="a b""#;
        let want = Challenge { metadata: Some("https://x/.well-known/p".to_owned()), scope: Some("a b".to_owned()) };
        assert_eq!(Challenge::parse(header), want);
        assert_eq!(Challenge::parse("Bearer scope=x, y").scope.as_deref(), Some("x"));
        assert_eq!(Challenge::parse("Bearer"), Challenge::default());
    }
}
