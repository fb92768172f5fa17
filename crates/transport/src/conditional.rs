//! Conditional requests.

use axum::http::{HeaderMap, HeaderValue};

/// Whether the client has the document with this entity tag already (`If-None-Match`).
pub fn is_not_modified(headers: &HeaderMap, etag: &HeaderValue) -> bool {
    let _ = (headers, etag);
    unimplemented!()
}
