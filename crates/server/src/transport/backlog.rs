//! What waits for clients that read slowly. It is counted from when it is handed to a connection until the system has it; when
//! that is too much, whoever has taken nothing for the longest time is cut, and another one if that is not enough.
//!
//! Whoever reads is never cut for it, however much there is to read: only what nobody takes must not pile up.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::request::Parts;
use bytes::Bytes;
use futures::task::AtomicWaker;
use http_body::{Frame, SizeHint};
use tokio_util::sync::CancellationToken;

/// Bytes that may wait for all clients together.
pub const MOST: usize = 12 << 20;
/// A client that has taken nothing for so long is slow.
const SLOW: Duration = Duration::from_secs(1);
/// A body is handed out in pieces of this size: each that is taken shows that the client reads.
const PIECE: usize = 64 << 10;

/// What waits for all clients together. A handle: clones share it.
#[derive(Clone)]
pub struct Backlog(Arc<Shared>);

struct Shared {
    most: usize,
    slow: Duration,
    began: Instant,
    waiting: AtomicUsize,
    readers: Mutex<HashMap<u64, Weak<Reader>>>,
    next: AtomicU64,
}

/// A client at the other end of a connection.
pub struct Reader {
    key: u64,
    waiting: AtomicUsize,
    /// When it last took something, or was given something while nothing waited; in microseconds since the server began.
    moved: AtomicU64,
    waker: AtomicWaker,
    cut: CancellationToken,
    all: Arc<Shared>,
}

/// Bytes that wait for a client, as long as this lives.
pub struct Waiting {
    reader: Arc<Reader>,
    bytes: usize,
}

impl Default for Backlog {
    fn default() -> Self {
        Self::new(MOST, SLOW)
    }
}

impl Backlog {
    fn new(most: usize, slow: Duration) -> Self {
        Self(Arc::new(Shared {
            most,
            slow,
            began: Instant::now(),
            waiting: AtomicUsize::new(0),
            readers: Mutex::default(),
            next: AtomicU64::new(0),
        }))
    }

    /// One more client.
    pub fn join(&self) -> Arc<Reader> {
        let key = self.0.next.fetch_add(1, Ordering::Relaxed);
        let reader = Arc::new(Reader {
            key,
            waiting: AtomicUsize::new(0),
            moved: AtomicU64::new(0),
            waker: AtomicWaker::new(),
            cut: CancellationToken::new(),
            all: self.0.clone(),
        });
        self.0.lock().insert(key, Arc::downgrade(&reader));
        reader
    }

    /// The client of a request.
    pub fn reader(&self, request: &Parts) -> Arc<Reader> {
        request.extensions.get::<Arc<Reader>>().cloned().unwrap_or_else(|| self.join())
    }

    /// Bytes that wait.
    pub fn waiting(&self) -> usize {
        self.0.waiting.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Weak<Reader>>> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Cuts slow clients, the slowest first, until what waits for the others has room.
    fn relieve(&self) {
        let readers: Vec<Arc<Reader>> = self.lock().values().filter_map(Weak::upgrade).collect();
        let mut waiting = self.waiting.load(Ordering::Relaxed);
        let mut slow = Vec::new();
        for reader in &readers {
            if reader.cut.is_cancelled() {
                // It is on its way out.
                waiting = waiting.saturating_sub(reader.waiting());
            } else if reader.waiting() > 0 && reader.idle_for() >= self.slow {
                slow.push((reader.moved.load(Ordering::Relaxed), reader));
            }
        }
        slow.sort_unstable_by_key(|(moved, reader)| (*moved, reader.key));
        for (_, reader) in slow {
            if waiting <= self.most {
                break;
            }
            waiting = waiting.saturating_sub(reader.waiting());
            tracing::debug!(bytes = reader.waiting(), "a client that reads too slowly is cut");
            reader.cut.cancel();
        }
    }
}

impl Reader {
    /// Counts bytes as waiting for the client as long as what it gives lives.
    pub fn wait(self: &Arc<Self>, bytes: usize) -> Waiting {
        if self.waiting.fetch_add(bytes, Ordering::Relaxed) == 0 {
            self.touch();
        }
        if self.all.waiting.fetch_add(bytes, Ordering::Relaxed) + bytes > self.all.most {
            self.all.relieve();
        }
        Waiting { reader: self.clone(), bytes }
    }

    /// Ends when the client is cut.
    pub async fn cut(&self) {
        self.cut.cancelled().await;
    }

    /// Ready when the client has taken all that was handed out; whoever asks is woken then. One task asks at a time.
    pub fn poll_taken(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.waiting() == 0 {
            return Poll::Ready(());
        }
        self.waker.register(context.waker());
        if self.waiting() == 0 { Poll::Ready(()) } else { Poll::Pending }
    }

    /// For how long it has taken nothing, if something waits for it.
    pub fn stuck_for(&self) -> Duration {
        if self.waiting() == 0 { Duration::ZERO } else { self.idle_for() }
    }

    fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    fn idle_for(&self) -> Duration {
        Duration::from_micros(self.all.now().saturating_sub(self.moved.load(Ordering::Relaxed)))
    }

    fn touch(&self) {
        self.moved.store(self.all.now(), Ordering::Relaxed);
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.all.lock().remove(&self.key);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.reader.all.waiting.fetch_sub(self.bytes, Ordering::Relaxed);
        self.reader.touch();
        if self.reader.waiting.fetch_sub(self.bytes, Ordering::AcqRel) == self.bytes {
            self.reader.waker.wake();
        }
    }
}

/// A piece of a body on its way.
struct Piece {
    bytes: Bytes,
    waiting: Arc<Waiting>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.waiting.reader.touch();
    }
}

/// A body whose bytes are counted as waiting for a client until they are written.
pub struct Counted {
    body: Body,
    reader: Arc<Reader>,
    /// What is left of bytes that are too many for one piece; all of it waits until the last piece is taken.
    rest: Option<(Bytes, Arc<Waiting>)>,
}

impl Counted {
    /// Counts a body.
    pub fn new(body: Body, reader: &Arc<Reader>) -> Self {
        Self { body, reader: reader.clone(), rest: None }
    }

    fn piece(&mut self) -> Option<Bytes> {
        let (rest, waiting) = self.rest.as_mut()?;
        let bytes = rest.split_to(rest.len().min(PIECE));
        let piece = Bytes::from_owner(Piece { bytes, waiting: waiting.clone() });
        if rest.is_empty() {
            self.rest = None;
        }
        Some(piece)
    }
}

impl http_body::Body for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Some(piece) = self.piece() {
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        let frame = match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => frame,
            other => return other,
        };
        Poll::Ready(Some(Ok(match frame.into_data() {
            Ok(bytes) if bytes.is_empty() => Frame::data(bytes),
            Ok(bytes) => {
                let waiting = Arc::new(self.reader.wait(bytes.len()));
                self.rest = Some((bytes, waiting));
                Frame::data(self.piece().unwrap_or_default())
            }
            Err(frame) => frame,
        })))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.body.size_hint();
        if let Some((rest, _)) = &self.rest {
            let left = rest.len() as u64;
            if let Some(upper) = hint.upper() {
                hint.set_upper(upper.saturating_add(left));
            }
            hint.set_lower(hint.lower().saturating_add(left));
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt as _;

    const NOW: Duration = Duration::ZERO;

    #[tokio::test]
    async fn what_waits_is_counted_until_it_is_taken() {
        let backlog = Backlog::new(1000, NOW);
        let reader = backlog.join();
        let mut body = Counted::new(Body::from("12345"), &reader);
        let piece = body.frame().await.unwrap().unwrap().into_data().unwrap();
        let part = piece.slice(1..3);
        assert_eq!((&part[..], backlog.waiting()), (&b"23"[..], 5));
        drop(piece);
        assert_eq!(backlog.waiting(), 5, "a part of it is left");
        assert!(reader.poll_taken(&mut Context::from_waker(futures::task::noop_waker_ref())).is_pending());
        drop(part);
        assert_eq!(backlog.waiting(), 0);
        drop((reader, body));
        assert!(backlog.0.lock().is_empty());
    }

    #[test]
    fn many_who_are_stuck_hold_no_more_than_there_is_room_for() {
        let backlog = Backlog::new(10_000, NOW);
        let readers: Vec<_> = (0..400).map(|_| backlog.join()).collect();
        let mut stuck: HashMap<u64, Vec<Waiting>> = HashMap::new();
        for reader in readers.iter().cycle().take(4000).filter(|reader| !reader.cut.is_cancelled()) {
            stuck.entry(reader.key).or_default().push(reader.wait(100));
            // The connection of whoever is cut ends, and with it what waits for it.
            stuck.retain(|key, _| !readers[*key as usize].cut.is_cancelled());
            assert!(backlog.waiting() <= 10_000, "{}", backlog.waiting());
        }
        assert!(readers.iter().any(|reader| reader.cut.is_cancelled()));
        stuck.clear();
        assert_eq!(backlog.waiting(), 0);
    }

    #[test]
    fn the_slowest_is_cut_first_and_whoever_reads_never() {
        let backlog = Backlog::new(100, NOW);
        let [first, second, third] = [(); 3].map(|()| backlog.join());
        let moved = |reader: &Reader, at| reader.moved.store(at, Ordering::Relaxed);
        let _waits = [first.wait(50), second.wait(40)];
        moved(&first, 2);
        moved(&second, 1);
        let more = third.wait(30);
        let cut = || [&first, &second, &third].map(|reader| reader.cut.is_cancelled());
        assert_eq!(cut(), [false, true, false]);
        drop(more);
        let patient = Backlog::new(100, Duration::from_secs(3600));
        let reading = patient.join();
        let _much = reading.wait(1000);
        assert!(!reading.cut.is_cancelled(), "it was given that a moment ago");
    }

    #[tokio::test]
    async fn a_large_body_waits_as_a_whole_and_is_taken_in_pieces() {
        let backlog = Backlog::new(MOST, SLOW);
        let reader = backlog.join();
        let bytes = Bytes::from(vec![7; 3 * PIECE + 1]);
        let mut body = Counted::new(Body::from(bytes.clone()), &reader);
        assert_eq!(http_body::Body::size_hint(&body).exact(), Some(bytes.len() as u64));
        let mut taken = Vec::new();
        while let Some(frame) = body.frame().await {
            assert_eq!(backlog.waiting(), bytes.len());
            taken.extend_from_slice(&frame.unwrap().into_data().unwrap());
            let left = (bytes.len() - taken.len()) as u64;
            assert_eq!(http_body::Body::size_hint(&body).exact(), Some(left));
            assert_eq!(http_body::Body::is_end_stream(&body), left == 0);
        }
        assert!(taken == bytes);
        assert_eq!(backlog.waiting(), 0);
    }
}
