//! Conditional requests.

use axum::http::{HeaderMap, HeaderValue, header};

/// Whether the client has the document with this entity tag already (`If-None-Match`).
pub fn is_not_modified(headers: &HeaderMap, etag: &HeaderValue) -> bool {
    let Ok(etag) = etag.to_str() else { return false };
    let known = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    known.flat_map(|list| list.split(',')).map(str::trim).any(|tag| tag == "*" || opaque(tag) == opaque(etag))
}

/// A tag without its mark for weakness, which does not count here.
fn opaque(tag: &str) -> &str {
    tag.strip_prefix("W/").unwrap_or(tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_document_is_not_sent_again() {
        let known = |values: &[&str], etag: &str| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::IF_NONE_MATCH, value.parse().unwrap());
            }
            is_not_modified(&headers, &etag.parse().unwrap())
        };
        for same in [&["W/\"a\""][..], &["\"a\""], &["*"], &["\"b\", W/\"a\""], &["\"b\"", "\"a\""]] {
            assert!(known(same, "W/\"a\""), "{same:?}");
        }
        for other in [&[][..], &["\"b\""], &["a"], &["\"a"]] {
            assert!(!known(other, "W/\"a\""), "{other:?}");
        }
    }
}
