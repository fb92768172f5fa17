//! Why a call of a peer fails, in words that say what to do next.

use std::time::Duration;

use url::Url;

use crate::error::{Error, ErrorKind};

/// Why a call of a peer fails.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ClientError {
    /// The URL cannot be called.
    #[error("{url:?} is not the URL of an agent: {why}")]
    Url {
        /// The URL.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// A model chose a host that the user did not allow.
    #[error("the host {host} is not on the list of allowed hosts; the user can add it to A2A_CLIENT_ALLOWED_HOSTS")]
    HostNotAllowed {
        /// The host.
        host: String,
    },
    /// The host is in a private network, and the user did not name it.
    #[error(
        "{host} is a private address (this machine or its network); A2A_CLIENT_ALLOW_PRIVATE_HOSTS=true allows that"
    )]
    PrivateHost {
        /// The host.
        host: String,
    },
    /// There is no connection.
    #[error("cannot reach {url}: {why}")]
    Unreachable {
        /// The URL.
        url: String,
        /// Why not.
        why: String,
    },
    /// There is no answer in time.
    #[error("{url} did not answer within {} s; A2A_CLIENT_TIMEOUT_SECONDS gives it more time", timeout.as_secs_f64())]
    Timeout {
        /// The URL.
        url: String,
        /// The time that it had.
        timeout: Duration,
    },
    /// The peer redirects, which is never followed: credentials are for the host that was checked.
    #[error("{url} redirects to {location}, which is not followed; call that URL if you trust it")]
    Redirect {
        /// The URL.
        url: String,
        /// Where to.
        location: String,
    },
    /// The peer wants other credentials.
    #[error("{url} answered {status}: {}", advice(*.sent))]
    Unauthorized {
        /// The URL.
        url: String,
        /// 401 or 403.
        status: u16,
        /// Whether credentials were sent.
        sent: bool,
    },
    /// The answer is no answer of an A2A agent.
    #[error("{url} does not answer as an A2A agent does: {why}")]
    Malformed {
        /// The URL.
        url: String,
        /// What is wrong.
        why: String,
    },
    /// The answer or the stream exceeds a bound.
    #[error("the answer of {url} exceeds a bound: {what}")]
    TooLarge {
        /// The URL.
        url: String,
        /// The bound.
        what: String,
    },
    /// A stream was silent for too long.
    #[error("{url} sent nothing for {} s", idle.as_secs())]
    Silent {
        /// The URL.
        url: String,
        /// How long.
        idle: Duration,
    },
    /// A stream broke off.
    #[error("the stream of {url} broke off: {why}")]
    Broken {
        /// The URL.
        url: String,
        /// Why.
        why: String,
    },
    /// The card offers nothing that this client speaks.
    #[error("the agent offers {offered}, and this client was to use {wanted}")]
    NoInterface {
        /// What the card lists.
        offered: String,
        /// What this client was to use.
        wanted: String,
    },
    /// The peer refused with an error of the protocol.
    #[error("the agent at {url} refused: {error}{}", peer_advice(error.kind))]
    Peer {
        /// The URL.
        url: String,
        /// What it says.
        error: Error,
    },
    /// The credentials are no text that a header can have.
    #[error("the credentials contain characters that cannot be sent; check A2A_CLIENT_BEARER_TOKEN")]
    Credentials,
    /// The call cannot be spelled in the line of the peer.
    #[error("the agent cannot be asked for that: {why}")]
    Call {
        /// Why not.
        why: String,
    },
    /// The HTTP client cannot be built.
    #[error("the HTTP client cannot be built: {why}; are the system's root certificates installed?")]
    NoClient {
        /// Why not.
        why: String,
    },
}

fn advice(sent: bool) -> &'static str {
    match sent {
        true => "it does not accept the credentials; check A2A_CLIENT_BEARER_TOKEN or A2A_CLIENT_BASIC_AUTH",
        false => {
            "it wants credentials; set A2A_CLIENT_BEARER_TOKEN or A2A_CLIENT_BASIC_AUTH (hosts that you did not name get none)"
        }
    }
}

/// What to do about an error of the protocol.
fn peer_advice(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::TaskNotFound => "; it may have forgotten the task: begin a new one",
        ErrorKind::TaskNotCancelable => "; the task has ended already",
        ErrorKind::VersionNotSupported => "; A2A_CLIENT_PROTOCOL_VERSION can name the version that it speaks",
        ErrorKind::TooManyRequests | ErrorKind::UpstreamUnreachable | ErrorKind::ShuttingDown => "; try again later",
        _ => "",
    }
}

impl ClientError {
    /// An error that the peer reports, or that its answer is none.
    pub(super) fn of_peer(url: &Url, error: Error) -> Self {
        match error.kind {
            ErrorKind::InvalidAgentResponse | ErrorKind::Parse => {
                Self::Malformed { url: url.to_string(), why: error.message }
            }
            ErrorKind::Unauthorized => Self::Unauthorized { url: url.to_string(), status: 401, sent: true },
            _ => Self::Peer { url: url.to_string(), error },
        }
    }

    /// Whether the same call may succeed later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Timeout { .. } | Self::Silent { .. } | Self::Broken { .. } => true,
            Self::Peer { error, .. } => matches!(
                error.kind,
                ErrorKind::TooManyRequests | ErrorKind::UpstreamUnreachable | ErrorKind::ShuttingDown
            ),
            _ => false,
        }
    }

    /// Whether the peer has no such operation, so that another way is worth trying.
    pub(super) fn is_unsupported(&self) -> bool {
        use ErrorKind::{HttpMethodNotAllowed, MethodDisabled, MethodNotFound, PathNotFound, UnsupportedOperation};
        matches!(self, Self::Peer { error, .. } if matches!(
            error.kind,
            MethodDisabled | MethodNotFound | UnsupportedOperation | PathNotFound | HttpMethodNotAllowed
        ))
    }
}
