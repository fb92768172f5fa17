//! Bodies of requests, read within bounds of size and time.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use tokio::time::{Instant, timeout_at};

/// How long a client may take to send a body.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a client may send nothing while its body is incomplete.
const STALL_TIMEOUT: Duration = Duration::from_secs(20);
/// How much of a body that is too large is still taken, so that the client reads the response instead of a reset.
const MAX_DISCARDED_BYTES: usize = 256 << 20;
/// How long that may take.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a body cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// It has more bytes than allowed.
    #[error("the body has more than {limit} bytes")]
    TooLarge {
        /// The most bytes.
        limit: usize,
        /// How many it has, if the client says so.
        size: Option<u64>,
    },
    /// The client stopped sending.
    #[error("the body did not arrive in time")]
    Stalled,
    /// The connection broke, or the framing is wrong.
    #[error("the body cannot be read: {0}")]
    Broken(String),
}

/// Reads a body of at most `limit` bytes. A length that the client announces is refused before anything is read.
pub async fn read(headers: &HeaderMap, mut body: Body, limit: usize) -> Result<Bytes, BodyError> {
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if let Some(size) = announced.filter(|size| usize::try_from(*size).map_or(true, |size| size > limit)) {
        discard(body, MAX_DISCARDED_BYTES);
        return Err(BodyError::TooLarge { limit, size: Some(size) });
    }
    let deadline = Instant::now() + BODY_TIMEOUT;
    let Some(first) = next(&mut body, deadline).await? else { return Ok(Bytes::new()) };
    if first.len() <= limit && body.is_end_stream() {
        // Most bodies come in one piece, which needs no copy.
        return Ok(first);
    }
    let expected = announced.and_then(|size| usize::try_from(size).ok()).unwrap_or(first.len());
    let mut read = BytesMut::with_capacity(expected.min(limit).max(first.len().min(limit)));
    let mut piece = Some(first);
    while let Some(bytes) = piece {
        if bytes.len() > limit - read.len() {
            discard(body, MAX_DISCARDED_BYTES);
            return Err(BodyError::TooLarge { limit, size: None });
        }
        read.extend_from_slice(&bytes);
        piece = next(&mut body, deadline).await?;
    }
    Ok(read.freeze())
}

/// The next piece of a body; `None` at its end.
async fn next(body: &mut Body, deadline: Instant) -> Result<Option<Bytes>, BodyError> {
    let deadline = deadline.min(Instant::now() + STALL_TIMEOUT);
    loop {
        match timeout_at(deadline, body.frame()).await {
            Err(_) => return Err(BodyError::Stalled),
            Ok(None) => return Ok(None),
            Ok(Some(Err(error))) => return Err(BodyError::Broken(error.to_string())),
            Ok(Some(Ok(frame))) => match frame.into_data() {
                Ok(bytes) if bytes.is_empty() => {}
                Ok(bytes) => return Ok(Some(bytes)),
                // Trailers, which nobody asked for.
                Err(_) => {}
            },
        }
    }
}

/// Takes up to `limit` bytes of a body that nobody reads. A connection that is closed with unread bytes is reset, and many
/// clients then report the reset instead of the response.
pub fn discard(mut body: Body, limit: usize) {
    if body.is_end_stream() {
        return;
    }
    tokio::spawn(tokio::time::timeout(DISCARD_TIMEOUT, async move {
        let mut taken = 0;
        while let Some(Ok(frame)) = body.frame().await {
            taken += frame.data_ref().map_or(0, Bytes::len);
            if taken > limit {
                break;
            }
        }
    }));
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::StreamExt as _;
    use futures::stream;

    use super::*;

    fn pieces(pieces: &'static [&'static str]) -> Body {
        Body::from_stream(stream::iter(
            pieces.iter().map(|piece| Ok::<_, Infallible>(Bytes::from_static(piece.as_bytes()))),
        ))
    }

    async fn read_plain(body: Body, limit: usize) -> Result<Bytes, BodyError> {
        read(&HeaderMap::new(), body, limit).await
    }

    #[tokio::test]
    async fn a_body_is_read_up_to_its_limit() {
        assert_eq!(read_plain(Body::empty(), 0).await.unwrap(), "");
        assert_eq!(read_plain(Body::from("12345"), 5).await.unwrap(), "12345");
        assert_eq!(read_plain(pieces(&["12", "", "345"]), 5).await.unwrap(), "12345");
        for body in [Body::from("123456"), pieces(&["123456"]), pieces(&["123", "456"])] {
            let error = read_plain(body, 5).await.unwrap_err();
            assert!(matches!(error, BodyError::TooLarge { limit: 5, size: None }), "{error:?}");
        }
    }

    #[tokio::test]
    async fn an_announced_length_is_refused_before_anything_is_read() {
        let headers = HeaderMap::from_iter([(header::CONTENT_LENGTH, "6".parse().unwrap())]);
        let never = Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
        let error = read(&headers, never, 5).await.unwrap_err();
        assert!(matches!(error, BodyError::TooLarge { limit: 5, size: Some(6) }), "{error:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_stops_sending_is_not_waited_for() {
        let began = Instant::now();
        let first = stream::iter([Ok::<_, Infallible>(Bytes::from_static(b"{"))]);
        let stalled = Body::from_stream(first.chain(stream::pending()));
        assert!(matches!(read_plain(stalled, 5).await, Err(BodyError::Stalled)));
        assert_eq!(began.elapsed(), STALL_TIMEOUT);
        // One that sends a little all the time is not waited for either.
        let drops = stream::unfold((), |()| async {
            tokio::time::sleep(STALL_TIMEOUT / 2).await;
            Some((Ok::<_, Infallible>(Bytes::from_static(b" ")), ()))
        });
        let began = Instant::now();
        assert!(matches!(read_plain(Body::from_stream(drops), 1 << 20).await, Err(BodyError::Stalled)));
        assert_eq!(began.elapsed(), BODY_TIMEOUT);
    }

    #[tokio::test]
    async fn a_broken_body_says_so() {
        let broken = Body::from_stream(stream::iter([Err::<Bytes, _>(std::io::Error::other("cut off"))]));
        let error = read_plain(broken, 5).await.unwrap_err();
        assert!(matches!(&error, BodyError::Broken(why) if why.contains("cut off")), "{error:?}");
    }

    #[tokio::test]
    async fn the_rest_of_a_refused_body_is_taken() {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let mut sender = Some(sender);
        let rest = stream::iter(0..3).map(move |piece| {
            if piece == 2 {
                let _ = sender.take().unwrap().send(());
            }
            Ok::<_, Infallible>(Bytes::from_static(b"123"))
        });
        assert!(read_plain(Body::from_stream(rest), 4).await.is_err());
        testkit::soon("the last piece is taken", receiver).await.unwrap();
    }
}
