//! The id of a request, which its response and the log repeat.

use axum::http::{HeaderMap, HeaderName};

/// The header of the id, in requests and responses.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The longest id that is taken from a client.
const MAX_ID_BYTES: usize = 128;

/// The id that the client sent if it is short and plain, else a new one.
pub fn request_id(request: &HeaderMap) -> String {
    let given = request.get(&REQUEST_ID).and_then(|value| value.to_str().ok());
    let is_plain = |text: &&str| {
        (1..=MAX_ID_BYTES).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    given.filter(is_plain).map_or_else(|| format!("req_{:016x}", fastrand::u64(..)), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_of_the_client_is_taken_if_it_is_plain() {
        let of = |given: &str| request_id(&HeaderMap::from_iter([(REQUEST_ID, given.parse().unwrap())]));
        assert_eq!(of("a-B_3.x"), "a-B_3.x");
        assert_eq!(of(&"x".repeat(MAX_ID_BYTES)).len(), MAX_ID_BYTES);
        for odd in ["", "with space", "quote\"", &"x".repeat(MAX_ID_BYTES + 1)] {
            let id = of(odd);
            assert!(id.starts_with("req_") && id.len() == 20, "{odd:?} became {id}");
        }
        assert_ne!(request_id(&HeaderMap::new()), request_id(&HeaderMap::new()));
    }
}
