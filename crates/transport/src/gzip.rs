//! Compression of responses for clients that accept it.

use axum::body::Body;
use axum::http::{HeaderMap, Response};

/// Whether a client accepts gzip.
pub fn is_accepted(headers: &HeaderMap) -> bool {
    let _ = headers;
    unimplemented!()
}

/// Compresses a response that is no stream and has at least `minimum` bytes, if the client accepts it.
pub async fn compress(response: Response<Body>, accepted: bool, minimum: usize) -> Response<Body> {
    let _ = (accepted, minimum);
    response
}
