//! Errors of MCP servers.

use std::time::Duration;

use crate::peer::MESSAGE_MAX;

/// Why a server or a call of it failed. The text is for users and for the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no such server.
    #[error("There is no MCP server {0:?} here")]
    Unknown(String),
    /// The server is not connected.
    #[error("The MCP server {0:?} is not connected")]
    NotConnected(String),
    /// The connection has ended.
    #[error("{0}")]
    Closed(String),
    /// The server has dropped the session; a new connection may work.
    #[error("The server has ended the connection")]
    SessionLost,
    /// The server took too long.
    #[error("The server did not respond within {} ms; `timeout` in its configuration allows more", .0.as_millis())]
    Timeout(Duration),
    /// The turn was cancelled.
    #[error("The call was aborted")]
    Cancelled,
    /// The server returned an error.
    #[error("{message} ({code})")]
    Refused {
        /// Its code.
        code: i64,
        /// Its message.
        message: String,
    },
    /// The response is too large.
    #[error("The server's response is larger than {} MB and was dropped; ask for less", MESSAGE_MAX >> 20)]
    TooLarge,
    /// The response is invalid.
    #[error("The server's response is invalid: {0}")]
    InvalidResponse(String),
    /// An HTTP error status.
    #[error("The server answered with HTTP {status}{}{text}", if text.is_empty() { "" } else { ": " })]
    Http {
        /// The status.
        status: u16,
        /// The beginning of the body.
        text: String,
    },
    /// The user must sign in first.
    #[error("The server requires you to sign in")]
    Unauthorized(AuthChallenge),
    /// The server requires clients to be registered beforehand.
    #[error("{0}")]
    Registration(String),
    /// The server does not use OAuth.
    #[error("MCP server {0} does not support OAuth")]
    NoOAuth(String),
    /// Signing in failed.
    #[error("Signing in failed: {0}")]
    OAuth(String),
    /// The configuration is invalid.
    #[error("{0}")]
    Config(String),
}

impl From<web::EventTooLarge> for Error {
    fn from(_: web::EventTooLarge) -> Self {
        Self::TooLarge
    }
}

/// How a server wants clients to sign in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuthChallenge {
    /// The URL of its protected resource metadata.
    pub metadata_url: Option<String>,
    /// The scopes that it requires.
    pub scope: Option<String>,
}

impl AuthChallenge {
    /// Parses a `WWW-Authenticate` header.
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
        Self { metadata_url: value("resource_metadata"), scope: value("scope") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges() {
        let header = r#"Bearer error="invalid_token", resource_metadata="https://x/.well-known/p", scope="a b""#;
        let want =
            AuthChallenge { metadata_url: Some("https://x/.well-known/p".to_owned()), scope: Some("a b".to_owned()) };
        assert_eq!(AuthChallenge::parse(header), want);
        assert_eq!(AuthChallenge::parse("Bearer scope=x, y").scope.as_deref(), Some("x"));
        assert_eq!(AuthChallenge::parse("Bearer"), AuthChallenge::default());
    }
}
