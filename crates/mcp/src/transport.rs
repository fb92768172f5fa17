//! How messages travel: over the pipes of a local program, or over HTTP.

pub(crate) mod http;
pub(crate) mod stdio;

use http::HttpTransport;
use stdio::StdioTransport;

/// The transport of a connection.
pub(crate) enum Transport {
    Stdio(StdioTransport),
    Http(HttpTransport),
}
