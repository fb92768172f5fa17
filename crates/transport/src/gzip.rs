//! Compression of responses for clients that accept it.

use std::io::Write as _;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Response, header};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body::Body as _;
use http_body_util::BodyExt as _;

/// From this size on, compressing would hold up other requests, so it is done on a thread for blocking work.
const BLOCKING_BYTES: usize = 64 << 10;

/// Whether a client accepts gzip.
pub fn is_accepted(headers: &HeaderMap) -> bool {
    let (mut gzip, mut any) = (None, None);
    for value in headers.get_all(header::ACCEPT_ENCODING) {
        for coding in value.to_str().unwrap_or_default().split(',') {
            let mut parts = coding.split(';').map(str::trim);
            let name = parts.next().unwrap_or_default();
            let quality = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
            let is_wanted = quality.is_none_or(|quality| quality.parse::<f32>().is_ok_and(|quality| quality > 0.0));
            if name.eq_ignore_ascii_case("gzip") || name.eq_ignore_ascii_case("x-gzip") {
                gzip = Some(is_wanted);
            } else if name == "*" {
                any = Some(is_wanted);
            }
        }
    }
    gzip.or(any).unwrap_or(false)
}

/// Compresses bytes as well as possible, for a document that is sent many times. `None` if they do not become fewer.
pub fn compress_document(bytes: &[u8]) -> Option<Bytes> {
    compress_bytes(bytes, Compression::best())
}

fn compress_bytes(bytes: &[u8], level: Compression) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), level);
    // Writing to memory does not fail; if it did, the bytes would be sent as they are.
    encoder.write_all(bytes).ok()?;
    let compressed = encoder.finish().ok()?;
    (compressed.len() < bytes.len()).then(|| compressed.into())
}

/// Compresses a response that is no stream and has at least `minimum` bytes, if the client accepts it.
pub async fn compress(response: Response<Body>, accepted: bool, minimum: usize) -> Response<Body> {
    let size = response.body().size_hint().exact().and_then(|size| usize::try_from(size).ok());
    let Some(size) = size.filter(|size| *size > 0 && *size >= minimum) else { return response };
    if response.headers().contains_key(header::CONTENT_ENCODING) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    parts.headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    if !accepted {
        return Response::from_parts(parts, body);
    }
    // A body of a known size is in memory already.
    let Ok(bytes) = body.collect().await.map(http_body_util::Collected::to_bytes) else {
        return Response::from_parts(parts, Body::empty());
    };
    let compressed = if size < BLOCKING_BYTES {
        compress_bytes(&bytes, Compression::fast())
    } else {
        let bytes = bytes.clone();
        tokio::task::spawn_blocking(move || compress_bytes(&bytes, Compression::fast())).await.ok().flatten()
    };
    let Some(compressed) = compressed else {
        return Response::from_parts(parts, Body::from(bytes));
    };
    parts.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(compressed))
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;

    use super::*;

    #[test]
    fn the_client_says_whether_it_accepts_gzip() {
        let accepts = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::ACCEPT_ENCODING, value.parse().unwrap());
            }
            is_accepted(&headers)
        };
        for yes in [&["gzip"][..], &["br, GZIP;q=0.5"], &["x-gzip"], &["*"], &["br", "gzip"], &["gzip;q=1.0, *;q=0"]] {
            assert!(accepts(yes), "{yes:?}");
        }
        for no in
            [&[][..], &[""], &["identity"], &["br"], &["gzip;q=0"], &["gzip;q=0.000, *"], &["*;q=0"], &["gzip;q=x"]]
        {
            assert!(!accepts(no), "{no:?}");
        }
    }

    async fn parts(response: Response<Body>) -> (HeaderMap, Vec<u8>) {
        let (parts, body) = response.into_parts();
        (parts.headers, body.collect().await.unwrap().to_bytes().to_vec())
    }

    #[tokio::test]
    async fn a_large_response_is_compressed_for_who_accepts_it() {
        for size in [1000, BLOCKING_BYTES + 1] {
            let text = "text ".repeat(size / 5);
            let respond = || Response::new(Body::from(text.clone()));
            let (headers, body) = parts(compress(respond(), true, 1000).await).await;
            assert_eq!(headers[header::CONTENT_ENCODING], "gzip");
            assert_eq!(headers[header::VARY], "Accept-Encoding");
            let mut plain = String::new();
            GzDecoder::new(&body[..]).read_to_string(&mut plain).unwrap();
            assert!(plain == text && body.len() < text.len());
            let (headers, body) = parts(compress(respond(), false, 1000).await).await;
            assert_eq!(
                (headers.get(header::CONTENT_ENCODING), &headers[header::VARY]),
                (None, &"Accept-Encoding".parse().unwrap())
            );
            assert!(body == text.as_bytes(), "a cache must know that it depends on the header");
        }
    }

    #[tokio::test]
    async fn small_responses_and_streams_stay_as_they_are() {
        let small = compress(Response::new(Body::from("x".repeat(999))), true, 1000).await;
        assert!(small.headers().is_empty());
        let events = futures::stream::iter([Ok::<_, std::convert::Infallible>(Bytes::from(vec![b'x'; 2000]))]);
        let stream = compress(Response::new(Body::from_stream(events)), true, 1000).await;
        assert!(stream.headers().is_empty());
        let mut done = Response::new(Body::from("x".repeat(2000)));
        done.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("br"));
        assert_eq!(compress(done, true, 1000).await.headers()[header::CONTENT_ENCODING], "br");
        let empty = compress(Response::new(Body::empty()), true, 0).await;
        assert!(empty.headers().is_empty());
    }
}
