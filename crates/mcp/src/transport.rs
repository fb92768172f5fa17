//! How messages travel: over the pipes of a local program, or over HTTP.

pub(crate) mod http;
mod sse;
pub(crate) mod stdio;

use http::Http;
use stdio::Stdio;

/// The connection's transport.
pub(crate) enum Transport {
    Stdio(Stdio),
    Http(Http),
}
