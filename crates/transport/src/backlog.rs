//! Bounds what waits for slow clients. Bytes count from when a connection gets them until the kernel takes them. Over the
//! limit, the client that has made no progress for the longest time is disconnected, then the next one if that is not
//! enough.
//!
//! A client that keeps reading is never disconnected, however much there is to read: only unread bytes must not pile up.

use std::collections::HashMap;
use std::fmt;
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

use crate::listen::ConnectionInfo;

/// Bytes that may wait for all clients together.
pub const MAX_WAITING_BYTES: usize = 12 << 20;
/// A client that makes no progress for this long is slow.
const SLOW_AFTER: Duration = Duration::from_secs(1);
/// Bodies are handed out in pieces of this size; each piece taken shows that the client reads.
const PIECE_BYTES: usize = 64 << 10;

/// The bytes that wait for all clients together. A handle: clones share it.
#[derive(Clone)]
pub struct Backlog(Arc<Shared>);

struct Shared {
    max_bytes: usize,
    slow_after: Duration,
    started: Instant,
    waiting: AtomicUsize,
    clients: Mutex<HashMap<u64, Weak<ClientBacklog>>>,
    next_key: AtomicU64,
}

/// The bytes that wait for the client of one connection.
pub struct ClientBacklog {
    key: u64,
    waiting: AtomicUsize,
    /// When the client last took bytes, or got some while none waited; in microseconds since the server started.
    last_progress: AtomicU64,
    waker: AtomicWaker,
    disconnect: CancellationToken,
    shared: Arc<Shared>,
}

/// Bytes that count as waiting for a client until this is dropped.
pub struct WaitingBytes {
    client: Arc<ClientBacklog>,
    bytes: usize,
}

impl fmt::Debug for Backlog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backlog").field("waiting", &self.waiting()).finish_non_exhaustive()
    }
}

impl fmt::Debug for ClientBacklog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBacklog").field("waiting", &self.waiting()).finish_non_exhaustive()
    }
}

impl Default for Backlog {
    fn default() -> Self {
        Self::new(MAX_WAITING_BYTES, SLOW_AFTER)
    }
}

impl Backlog {
    fn new(max_bytes: usize, slow_after: Duration) -> Self {
        Self(Arc::new(Shared {
            max_bytes,
            slow_after,
            started: Instant::now(),
            waiting: AtomicUsize::new(0),
            clients: Mutex::default(),
            next_key: AtomicU64::new(0),
        }))
    }

    /// Adds a client.
    pub fn add_client(&self) -> Arc<ClientBacklog> {
        let key = self.0.next_key.fetch_add(1, Ordering::Relaxed);
        let client = Arc::new(ClientBacklog {
            key,
            waiting: AtomicUsize::new(0),
            last_progress: AtomicU64::new(0),
            waker: AtomicWaker::new(),
            disconnect: CancellationToken::new(),
            shared: self.0.clone(),
        });
        self.0.lock().insert(key, Arc::downgrade(&client));
        client
    }

    /// The client that sent a request.
    pub fn client_of(&self, request: &Parts) -> Arc<ClientBacklog> {
        ConnectionInfo::of(request).map_or_else(|| self.add_client(), |connection| connection.client.clone())
    }

    /// Bytes that wait for all clients.
    pub fn waiting(&self) -> usize {
        self.0.waiting.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Weak<ClientBacklog>>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Disconnects slow clients, the slowest first, until the rest fits.
    fn disconnect_slow_clients(&self) {
        let clients: Vec<Arc<ClientBacklog>> = self.lock().values().filter_map(Weak::upgrade).collect();
        let mut waiting = self.waiting.load(Ordering::Relaxed);
        let mut slow = Vec::new();
        for client in &clients {
            if client.disconnect.is_cancelled() {
                // Its connection is already closing.
                waiting = waiting.saturating_sub(client.waiting());
            } else if client.waiting() > 0 && client.idle_for() >= self.slow_after {
                slow.push((client.last_progress.load(Ordering::Relaxed), client));
            }
        }
        slow.sort_unstable_by_key(|(last_progress, client)| (*last_progress, client.key));
        for (_, client) in slow {
            if waiting <= self.max_bytes {
                break;
            }
            waiting = waiting.saturating_sub(client.waiting());
            tracing::debug!(bytes = client.waiting(), "disconnecting a client that reads too slowly");
            client.disconnect.cancel();
        }
    }
}

impl ClientBacklog {
    /// Counts bytes as waiting for the client until the returned guard is dropped.
    pub fn hold(self: &Arc<Self>, bytes: usize) -> WaitingBytes {
        if self.waiting.fetch_add(bytes, Ordering::Relaxed) == 0 {
            self.touch();
        }
        if self.shared.waiting.fetch_add(bytes, Ordering::Relaxed) + bytes > self.shared.max_bytes {
            self.shared.disconnect_slow_clients();
        }
        WaitingBytes { client: self.clone(), bytes }
    }

    /// Completes when the client must be disconnected.
    pub async fn disconnected(&self) {
        self.disconnect.cancelled().await;
    }

    /// Ready once the client has taken everything; wakes the caller then. Only one task may poll at a time.
    pub fn poll_drained(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.waiting() == 0 {
            return Poll::Ready(());
        }
        self.waker.register(context.waker());
        if self.waiting() == 0 { Poll::Ready(()) } else { Poll::Pending }
    }

    /// How long the client has made no progress; zero if nothing waits for it.
    pub fn stalled_for(&self) -> Duration {
        if self.waiting() == 0 { Duration::ZERO } else { self.idle_for() }
    }

    fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    fn idle_for(&self) -> Duration {
        Duration::from_micros(self.shared.now().saturating_sub(self.last_progress.load(Ordering::Relaxed)))
    }

    fn touch(&self) {
        self.last_progress.store(self.shared.now(), Ordering::Relaxed);
    }
}

impl Drop for ClientBacklog {
    fn drop(&mut self) {
        self.shared.lock().remove(&self.key);
    }
}

impl Drop for WaitingBytes {
    fn drop(&mut self) {
        self.client.shared.waiting.fetch_sub(self.bytes, Ordering::Relaxed);
        self.client.touch();
        if self.client.waiting.fetch_sub(self.bytes, Ordering::AcqRel) == self.bytes {
            self.client.waker.wake();
        }
    }
}

/// A piece of a body that is being sent.
struct Piece {
    bytes: Bytes,
    waiting: Arc<WaitingBytes>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.waiting.client.touch();
    }
}

/// A body whose bytes count as waiting for a client until they are written.
pub struct CountedBody {
    body: Body,
    client: Arc<ClientBacklog>,
    /// The rest of a buffer that is larger than one piece. All of it counts until the last piece is taken.
    rest: Option<(Bytes, Arc<WaitingBytes>)>,
}

impl CountedBody {
    /// Counts the bytes of a body.
    pub fn new(body: Body, client: &Arc<ClientBacklog>) -> Self {
        Self { body, client: client.clone(), rest: None }
    }

    fn piece(&mut self) -> Option<Bytes> {
        let (rest, waiting) = self.rest.as_mut()?;
        let bytes = rest.split_to(rest.len().min(PIECE_BYTES));
        let piece = Bytes::from_owner(Piece { bytes, waiting: waiting.clone() });
        if rest.is_empty() {
            self.rest = None;
        }
        Some(piece)
    }
}

impl http_body::Body for CountedBody {
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
                let waiting = Arc::new(self.client.hold(bytes.len()));
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
    async fn bytes_count_as_waiting_until_they_are_taken() {
        let backlog = Backlog::new(1000, NOW);
        let client = backlog.add_client();
        let mut body = CountedBody::new(Body::from("12345"), &client);
        let piece = body.frame().await.unwrap().unwrap().into_data().unwrap();
        let part = piece.slice(1..3);
        assert_eq!((&part[..], backlog.waiting()), (&b"23"[..], 5));
        drop(piece);
        assert_eq!(backlog.waiting(), 5, "a slice is still alive");
        assert!(client.poll_drained(&mut Context::from_waker(futures::task::noop_waker_ref())).is_pending());
        drop(part);
        assert_eq!(backlog.waiting(), 0);
        drop((client, body));
        assert!(backlog.0.lock().is_empty());
    }

    #[test]
    fn many_stalled_clients_stay_within_the_limit() {
        let backlog = Backlog::new(10_000, NOW);
        let clients: Vec<_> = (0..400).map(|_| backlog.add_client()).collect();
        let mut stuck: HashMap<u64, Vec<WaitingBytes>> = HashMap::new();
        for client in clients.iter().cycle().take(4000).filter(|client| !client.disconnect.is_cancelled()) {
            stuck.entry(client.key).or_default().push(client.hold(100));
            // The connection of a client that is disconnected closes, and its bytes go with it.
            stuck.retain(|key, _| !clients[*key as usize].disconnect.is_cancelled());
            assert!(backlog.waiting() <= 10_000, "{}", backlog.waiting());
        }
        assert!(clients.iter().any(|client| client.disconnect.is_cancelled()));
        stuck.clear();
        assert_eq!(backlog.waiting(), 0);
    }

    #[test]
    fn the_slowest_client_is_disconnected_first_and_a_reading_one_never() {
        let backlog = Backlog::new(100, NOW);
        let [first, second, third] = [(); 3].map(|()| backlog.add_client());
        let set_progress = |client: &ClientBacklog, at| client.last_progress.store(at, Ordering::Relaxed);
        let _waits = [first.hold(50), second.hold(40)];
        set_progress(&first, 2);
        set_progress(&second, 1);
        let more = third.hold(30);
        let disconnected = || [&first, &second, &third].map(|client| client.disconnect.is_cancelled());
        assert_eq!(disconnected(), [false, true, false]);
        drop(more);
        let patient = Backlog::new(100, Duration::from_secs(3600));
        let reading = patient.add_client();
        let _much = reading.hold(1000);
        assert!(!reading.disconnect.is_cancelled(), "it got the bytes a moment ago");
    }

    #[tokio::test]
    async fn a_large_body_counts_as_a_whole_and_is_taken_in_pieces() {
        let backlog = Backlog::new(MAX_WAITING_BYTES, SLOW_AFTER);
        let client = backlog.add_client();
        let bytes = Bytes::from(vec![7; 3 * PIECE_BYTES + 1]);
        let mut body = CountedBody::new(Body::from(bytes.clone()), &client);
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
