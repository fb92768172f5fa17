//! The messages of an agent to a client over HTTP: one event stream for the connection, and one for each session that the
//! client has asked for. Unread messages wait within bounds; beyond them the agent waits too, and if nobody reads in time
//! the connection ends and says why.
//!
//! A stream that broke can be opened again. It continues with the messages that came meanwhile, and a client that sends
//! the last event it has seen (`Last-Event-ID`) also gets what was lost on the way.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until, timeout};
use transport::backlog::{ClientBacklog, WaitingBytes};
use transport::sse;

use crate::events::HEARTBEAT;

/// Bytes that may wait to be read.
const MAX_WAITING_BYTES: usize = 1 << 20;
/// Bytes of sent messages that are kept in case they did not arrive.
const MAX_SENT_BYTES: usize = 128 << 10;
/// How long a full mailbox waits for its client to read.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a client may have no stream open and send nothing.
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);
/// The most session streams.
const MAX_STREAMS: usize = 1024;
/// The most subagents whose stream is remembered; messages of others go to the connection's stream.
const MAX_SUBAGENTS: usize = 10_000;
/// Messages are joined up to this size.
const CHUNK_BYTES: usize = 64 << 10;

/// Why the server ends a connection.
const UNREAD_REASON: &str = "too many messages waited, and nobody read them";
const IDLE_REASON: &str = "the client neither read nor sent anything for a while";

/// A stream's name: the session, or `None` for the connection's own.
type StreamName = Option<String>;

/// The parts of a message that determine where it belongs. Fields that cannot be parsed are absent.
#[derive(Default, Deserialize)]
pub struct MessageHead<'a> {
    /// The id as it was written.
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    /// The method; a response has none.
    pub method: Option<String>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SessionFields {
    session_id: Option<String>,
    update: Option<SessionUpdate>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SessionUpdate {
    session_update: String,
    session_id: Option<String>,
}

impl<'a> MessageHead<'a> {
    /// Parses the head of a message, which must be an object.
    pub fn of(line: &'a [u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(line)
    }

    /// The id of a request or response. Null is an id too, but no response can be matched by it.
    pub fn id(&self) -> Option<String> {
        self.id.map(|id| id.get().to_owned())
    }

    /// The session that the message is about.
    pub fn session(&self) -> Option<String> {
        session_fields(self.params).session_id
    }
}

fn session_fields(raw: Option<&RawValue>) -> SessionFields {
    raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
}

/// Where a response goes.
struct ResponseRoute {
    to: StreamName,
    /// The response waits until this session's stream has been read.
    after: StreamName,
}

struct QueuedMessage {
    session: StreamName,
    line: Vec<u8>,
    /// Counts the message as waiting until it is sent.
    _waiting: Option<WaitingBytes>,
}

#[derive(Default)]
struct MessageStream {
    queue: VecDeque<QueuedMessage>,
    is_read: bool,
    /// The messages that were sent last, oldest first.
    sent: VecDeque<QueuedMessage>,
    /// How many events were ever sent; also the number of the last one.
    number: u64,
}

impl MessageStream {
    /// Queues again what was sent after an event; returns its bytes, or `None` if it is no longer known.
    fn rewind(&mut self, last: u64, client: &Arc<ClientBacklog>) -> Option<usize> {
        let lost = usize::try_from(self.number.checked_sub(last)?).ok()?;
        let kept = self.sent.len().checked_sub(lost)?;
        let resent = self.sent.split_off(kept);
        let bytes = resent.iter().map(|message| message.line.len()).sum();
        for message in resent.into_iter().rev() {
            let _waiting = Some(client.hold(message.line.len()));
            self.queue.push_front(QueuedMessage { _waiting, ..message });
        }
        self.number = last;
        Some(bytes)
    }
}

struct MailboxState {
    /// The client that it all waits for.
    client: Arc<ClientBacklog>,
    streams: HashMap<StreamName, MessageStream>,
    /// The stream of each subagent that has none of its own: the one in which it was announced.
    subagent_streams: HashMap<String, StreamName>,
    response_routes: HashMap<String, ResponseRoute>,
    /// Waits for the response to `initialize`.
    initialize: Option<oneshot::Sender<Vec<u8>>>,
    waiting: usize,
    /// Bytes of sent messages that are kept.
    sent: usize,
    readers: usize,
    /// When the client last sent or read something.
    last_seen: Instant,
    is_closed: bool,
    /// Why the server ended the connection.
    end_reason: Option<&'static str>,
}

impl MailboxState {
    /// The stream that has the messages of a session.
    fn stream_of(&self, session: &str) -> StreamName {
        let own = Some(session.to_owned());
        if self.streams.contains_key(&own) { own } else { self.subagent_streams.get(session).cloned().flatten() }
    }

    fn open(&mut self, session: String) -> bool {
        if self.streams.len() > MAX_STREAMS {
            self.drop_idle_stream();
        }
        let fits = self.streams.len() <= MAX_STREAMS || self.streams.contains_key(&Some(session.clone()));
        if fits {
            self.subagent_streams.remove(&session);
            self.streams.entry(Some(session)).or_default();
        }
        fits
    }

    /// Drops a stream that nobody reads and that is empty.
    fn drop_idle_stream(&mut self) {
        let idle = |(name, stream): (&StreamName, &MessageStream)| {
            (name.is_some() && !stream.is_read && stream.queue.is_empty()).then(|| name.clone())
        };
        if let Some(stream) = self.streams.iter().find_map(idle).and_then(|name| self.streams.remove(&name)) {
            self.sent -= stream.sent.iter().map(|message| message.line.len()).sum::<usize>();
        }
    }

    fn is_behind(&self, name: &StreamName) -> bool {
        self.streams.get(name).is_some_and(|stream| stream.is_read && !stream.queue.is_empty())
    }

    fn push(&mut self, to: StreamName, session: StreamName, line: Vec<u8>) {
        self.waiting += line.len();
        let _waiting = Some(self.client.hold(line.len()));
        self.streams.entry(to).or_default().queue.push_back(QueuedMessage { session, line, _waiting });
    }
}

/// The messages that wait to be read. Shared by the agent and the readers of its streams.
pub struct AcpMailbox {
    state: Mutex<MailboxState>,
    changed: Notify,
    stall_timeout: Duration,
    idle_timeout: Duration,
}

/// Why a stream cannot be opened.
#[derive(Debug, PartialEq, Eq)]
pub enum StreamError {
    /// Somebody already reads it.
    AlreadyRead,
    /// Too many are open.
    TooMany,
    /// The messages after that event are no longer known.
    Lost,
}

impl AcpMailbox {
    /// A mailbox whose response to `initialize` goes to that channel.
    pub fn new(initialize: oneshot::Sender<Vec<u8>>, client: Arc<ClientBacklog>) -> Arc<Self> {
        Self::with_timeouts(initialize, client, STALL_TIMEOUT, IDLE_TIMEOUT)
    }

    fn with_timeouts(
        initialize: oneshot::Sender<Vec<u8>>,
        client: Arc<ClientBacklog>,
        stall_timeout: Duration,
        idle_timeout: Duration,
    ) -> Arc<Self> {
        let state = MailboxState {
            client,
            streams: HashMap::from([(None, MessageStream::default())]),
            subagent_streams: HashMap::new(),
            response_routes: HashMap::new(),
            initialize: Some(initialize),
            waiting: 0,
            sent: 0,
            readers: 0,
            last_seen: Instant::now(),
            is_closed: false,
            end_reason: None,
        };
        Arc::new(Self { state: Mutex::new(state), changed: Notify::new(), stall_timeout, idle_timeout })
    }

    /// Closes the mailbox; streams end when they are read.
    pub fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_waiters();
    }

    /// Why the server ended the connection.
    pub fn end_reason(&self) -> Option<&'static str> {
        self.lock().end_reason
    }

    /// Notes a message from the client; `session` is the one that its header names.
    pub fn note_received(&self, head: &MessageHead<'_>, session: StreamName) {
        let mut state = self.lock();
        state.last_seen = Instant::now();
        if let (Some(method), Some(id)) = (&head.method, head.id()) {
            // The client may not read the session's stream yet, so the response goes to the connection's.
            let is_load = method == "session/load";
            let to = session.clone().filter(|_| !is_load);
            state.response_routes.insert(id, ResponseRoute { to, after: head.session().filter(|_| is_load) });
        }
    }

    /// Queues a message as soon as there is room.
    pub async fn send(&self, line: Vec<u8>) -> io::Result<()> {
        let head = MessageHead::of(&line).unwrap_or_default();
        let response_id = head.id().filter(|_| head.method.is_none());
        loop {
            let changed = self.changed.notified();
            {
                let mut state = self.lock();
                if state.is_closed {
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
                let route = response_id.as_ref().and_then(|id| state.response_routes.get(id));
                let is_behind = route.is_some_and(|route| route.after.is_some() && state.is_behind(&route.after));
                if state.waiting < MAX_WAITING_BYTES && !is_behind {
                    Self::route(&mut state, &head, &line);
                    break;
                }
            }
            if timeout(self.stall_timeout, changed).await.is_err() {
                self.lock().end_reason = Some(UNREAD_REASON);
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        self.changed.notify_waiters();
        Ok(())
    }

    fn route(state: &mut MailboxState, head: &MessageHead<'_>, line: &[u8]) {
        if head.method.is_none() {
            if let Some(initialize) = state.initialize.take() {
                // A client that hung up has no connection either.
                let _ = initialize.send(line.to_vec());
                return;
            }
            let to = head.id().and_then(|id| state.response_routes.remove(&id)).and_then(|route| route.to);
            if let Some(created) = session_fields(head.result).session_id {
                state.open(created);
            }
            return state.push(to, None, line.to_vec());
        }
        let fields = session_fields(head.params);
        let to = fields.session_id.as_deref().and_then(|session| state.stream_of(session));
        if let Some(SessionUpdate { session_update, session_id: Some(child) }) = fields.update
            && session_update == "subagent_update"
            && state.subagent_streams.len() < MAX_SUBAGENTS
            && !state.streams.contains_key(&Some(child.clone()))
        {
            state.subagent_streams.insert(child, to.clone());
        }
        state.push(to, fields.session_id, line.to_vec());
    }

    /// Opens a stream where its last reader stopped, or after the event that the client has seen `last`. A stream has one
    /// reader at a time.
    pub fn open_stream(self: &Arc<Self>, session: StreamName, last: Option<u64>) -> Result<Body, StreamError> {
        let mut state = self.lock();
        if let Some(session) = &session {
            let is_new = !state.streams.contains_key(&Some(session.clone()));
            let current = state.stream_of(session);
            if !state.open(session.clone()) {
                return Err(StreamError::TooMany);
            }
            // Messages that wait elsewhere come before those that follow.
            if is_new && let Some(elsewhere) = state.streams.get_mut(&current) {
                let (moved, kept) = std::mem::take(&mut elsewhere.queue)
                    .into_iter()
                    .partition(|message: &QueuedMessage| message.session.as_ref() == Some(session));
                elsewhere.queue = kept;
                state.streams.entry(Some(session.clone())).or_default().queue = moved;
            }
        }
        let client = state.client.clone();
        let stream = state.streams.entry(session.clone()).or_default();
        if stream.is_read {
            return Err(StreamError::AlreadyRead);
        }
        let resent = last.map_or(Some(0), |last| stream.rewind(last, &client)).ok_or(StreamError::Lost)?;
        stream.is_read = true;
        state.sent -= resent;
        state.waiting += resent;
        state.readers += 1;
        drop(state);
        let reader = StreamReader { mailbox: self.clone(), name: session, has_greeted: false };
        let chunks = futures::stream::unfold(reader, |mut reader| async move {
            let chunk = reader.next().await?;
            Some((Ok::<Bytes, std::convert::Infallible>(chunk), reader))
        });
        Ok(Body::from_stream(chunks))
    }

    /// Waits until the client is gone: it neither reads nor sends, or the backlog disconnects it.
    pub async fn wait_until_abandoned(&self) {
        let client = self.lock().client.clone();
        tokio::select! {
            () = self.wait_until_idle() => {}
            () = client.disconnected() => self.lock().end_reason = Some(UNREAD_REASON),
        }
    }

    async fn wait_until_idle(&self) {
        loop {
            let deadline = {
                let state = self.lock();
                let from = if state.readers > 0 { Instant::now() } else { state.last_seen };
                from + self.idle_timeout
            };
            if deadline <= Instant::now() {
                self.lock().end_reason = Some(IDLE_REASON);
                return;
            }
            sleep_until(deadline).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, MailboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reader of a stream; when it is dropped, another may read.
struct StreamReader {
    mailbox: Arc<AcpMailbox>,
    name: StreamName,
    has_greeted: bool,
}

impl StreamReader {
    async fn next(&mut self) -> Option<Bytes> {
        // The first bytes are sent immediately, so that proxies let the response through.
        if !std::mem::replace(&mut self.has_greeted, true) {
            return Some(Bytes::from_static(sse::COMMENT));
        }
        loop {
            let changed = self.mailbox.changed.notified();
            {
                let mut state = self.mailbox.lock();
                let chunk = take(&mut state, &self.name);
                if !chunk.is_empty() {
                    drop(state);
                    self.mailbox.changed.notify_waiters();
                    return Some(chunk);
                }
                if state.is_closed {
                    return None;
                }
            }
            if timeout(HEARTBEAT, changed).await.is_err() {
                return Some(Bytes::from_static(sse::COMMENT));
            }
        }
    }
}

/// The next messages of a stream, as events.
fn take(state: &mut MailboxState, name: &StreamName) -> Bytes {
    let mut chunk = BytesMut::new();
    let mut taken = 0;
    let Some(stream) = state.streams.get_mut(name) else { return Bytes::new() };
    while chunk.len() < CHUNK_BYTES
        && let Some(message) = stream.queue.pop_front()
    {
        taken += message.line.len();
        stream.number += 1;
        chunk.extend_from_slice(format!("id: {}\ndata: ", stream.number).as_bytes());
        chunk.extend_from_slice(&message.line);
        chunk.extend_from_slice(b"\n\n");
        stream.sent.push_back(QueuedMessage { _waiting: None, ..message });
    }
    state.waiting -= taken;
    state.sent += taken;
    while state.sent > MAX_SENT_BYTES
        && let Some(message) = stream.sent.pop_front()
    {
        state.sent -= message.line.len();
    }
    chunk.freeze()
}

impl Drop for StreamReader {
    fn drop(&mut self) {
        let mut state = self.mailbox.lock();
        state.readers -= 1;
        state.last_seen = Instant::now();
        if let Some(stream) = state.streams.get_mut(&self.name) {
            stream.is_read = false;
        }
        drop(state);
        self.mailbox.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::StreamExt as _;
    use serde_json::{Value, json};
    use transport::backlog::Backlog;

    const SHORT: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(60);

    fn mailbox() -> Arc<AcpMailbox> {
        with_timeout(LONG)
    }

    fn with_timeout(timeout: Duration) -> Arc<AcpMailbox> {
        let (sender, _) = oneshot::channel();
        let mailbox = AcpMailbox::with_timeouts(sender, Backlog::default().add_client(), timeout, timeout);
        mailbox.lock().initialize = None;
        mailbox
    }

    fn update(session: &str, number: u64) -> Vec<u8> {
        json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": session, "n": number}})
            .to_string()
            .into_bytes()
    }

    /// The messages of the next chunk.
    async fn next(body: &mut axum::body::BodyDataStream) -> Vec<Value> {
        loop {
            let chunk = timeout(LONG, body.next()).await.expect("a chunk in time").unwrap().unwrap();
            let text = std::str::from_utf8(&chunk).unwrap();
            if text != ":\n\n" {
                let frames = text.split_terminator("\n\n").map(|frame| frame.split_once("\ndata: ").unwrap().1);
                return frames.map(|frame| serde_json::from_str(frame).unwrap()).collect();
            }
        }
    }

    fn body(mailbox: &Arc<AcpMailbox>, session: Option<&str>) -> axum::body::BodyDataStream {
        mailbox.open_stream(session.map(str::to_owned), None).unwrap().into_data_stream()
    }

    #[tokio::test]
    async fn each_message_goes_to_its_stream() {
        let mailbox = mailbox();
        let head = json!({"id": 7, "method": "session/prompt", "params": {"sessionId": "a"}}).to_string();
        mailbox.note_received(&MessageHead::of(head.as_bytes()).unwrap(), Some("a".into()));
        // A response creates the session and goes to the connection; what follows waits for the session's stream.
        mailbox.send(json!({"id": 1, "result": {"sessionId": "a"}}).to_string().into()).await.unwrap();
        mailbox.send(update("a", 1)).await.unwrap();
        let announced = json!({"sessionUpdate": "subagent_update", "sessionId": "child"});
        let announced = json!({"method": "session/update", "params": {"sessionId": "a", "update": announced}});
        mailbox.send(announced.to_string().into()).await.unwrap();
        mailbox.send(update("child", 2)).await.unwrap();
        mailbox.send(update("unknown", 3)).await.unwrap();
        mailbox.send(json!({"id": 7, "result": {}}).to_string().into()).await.unwrap();
        let (mut connection, mut session) = (body(&mailbox, None), body(&mailbox, Some("a")));
        let received = next(&mut connection).await;
        assert_eq!((received.len(), &received[0]["id"], &received[1]["params"]["n"]), (2, &json!(1), &json!(3)));
        let received = next(&mut session).await;
        assert_eq!(received.len(), 4, "{received:?}");
        assert_eq!((&received[2]["params"]["n"], &received[3]["id"]), (&json!(2), &json!(7)));
        assert_eq!(mailbox.open_stream(Some("a".into()), None).unwrap_err(), StreamError::AlreadyRead);
        drop(session);
        assert!(mailbox.open_stream(Some("a".into()), None).is_ok());
    }

    #[tokio::test]
    async fn a_new_stream_starts_with_messages_that_waited_elsewhere() {
        let mailbox = mailbox();
        for number in 0..3 {
            mailbox.send(update("a", number)).await.unwrap();
        }
        let mut session = body(&mailbox, Some("a"));
        mailbox.send(update("a", 3)).await.unwrap();
        let received = next(&mut session).await;
        assert_eq!(
            received.iter().map(|received| received["params"]["n"].as_u64().unwrap()).collect::<Vec<_>>(),
            [0, 1, 2, 3]
        );
    }

    #[tokio::test]
    async fn a_load_is_answered_once_earlier_messages_are_read() {
        let mailbox = mailbox();
        let head = json!({"id": "l", "method": "session/load", "params": {"sessionId": "a"}}).to_string();
        mailbox.note_received(&MessageHead::of(head.as_bytes()).unwrap(), Some("a".into()));
        let (mut connection, mut session) = (body(&mailbox, None), body(&mailbox, Some("a")));
        mailbox.send(update("a", 1)).await.unwrap();
        let answer = tokio::spawn({
            let mailbox = mailbox.clone();
            async move { mailbox.send(json!({"id": "l", "result": {}}).to_string().into()).await }
        });
        tokio::task::yield_now().await;
        assert!(!answer.is_finished());
        assert_eq!(next(&mut session).await.len(), 1);
        answer.await.unwrap().unwrap();
        assert_eq!(next(&mut connection).await[0]["id"], "l");
    }

    fn numbers(received: &[Value]) -> Vec<u64> {
        received.iter().map(|received| received["params"]["n"].as_u64().unwrap()).collect()
    }

    #[tokio::test]
    async fn a_broken_stream_continues() {
        let mailbox = mailbox();
        let mut connection = body(&mailbox, None);
        let mut session = body(&mailbox, Some("a"));
        mailbox.send(update("a", 1)).await.unwrap();
        assert_eq!(numbers(&next(&mut session).await), [1]);
        drop(session);
        // Nobody reads and nothing waits; messages still wait for the next reader.
        for number in 2..4 {
            mailbox.send(update("a", number)).await.unwrap();
        }
        mailbox.send(update("b", 9)).await.unwrap();
        assert_eq!(numbers(&next(&mut connection).await), [9], "messages of session a are not here");
        let mut session = body(&mailbox, Some("a"));
        assert_eq!(numbers(&next(&mut session).await), [2, 3]);
        drop(session);
        // Those two did not arrive.
        let mut session = mailbox.open_stream(Some("a".into()), Some(1)).unwrap().into_data_stream();
        mailbox.send(update("a", 4)).await.unwrap();
        assert_eq!(numbers(&next(&mut session).await), [2, 3, 4]);
        drop(session);
        assert_eq!(
            mailbox.open_stream(Some("a".into()), Some(5)).unwrap_err(),
            StreamError::Lost,
            "event 5 was never sent"
        );
        assert!(mailbox.open_stream(Some("a".into()), Some(4)).is_ok());
        assert_eq!(mailbox.lock().waiting, 0);
    }

    #[tokio::test]
    async fn sent_messages_are_kept_within_bounds() {
        let mailbox = mailbox();
        let mut session = body(&mailbox, Some("a"));
        let long = json!({"method": "session/update", "params": {"sessionId": "a", "n": 0, "x": "x".repeat(12_000)}});
        for _ in 0..20 {
            mailbox.send(long.to_string().into()).await.unwrap();
            assert_eq!(next(&mut session).await.len(), 1);
        }
        drop(session);
        assert!(mailbox.lock().sent <= MAX_SENT_BYTES);
        assert_eq!(mailbox.open_stream(Some("a".into()), Some(1)).unwrap_err(), StreamError::Lost);
        assert!(mailbox.open_stream(Some("a".into()), Some(15)).is_ok());
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_is_dropped() {
        let mailbox = with_timeout(SHORT);
        let send = |number| mailbox.send(update(&"x".repeat(1000), number));
        let mut sent = 0;
        let error = loop {
            match send(sent).await {
                Ok(()) => sent += 1,
                Err(error) => break error,
            }
        };
        assert_eq!((error.kind(), mailbox.end_reason()), (io::ErrorKind::TimedOut, Some(UNREAD_REASON)));
        let waiting = mailbox.lock().waiting;
        assert!((MAX_WAITING_BYTES..MAX_WAITING_BYTES + 2000).contains(&waiting), "{waiting}");
        mailbox.close();
        assert_eq!(send(0).await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[tokio::test]
    async fn a_client_that_is_gone_is_noticed() {
        let mailbox = with_timeout(SHORT);
        let stream = body(&mailbox, None);
        assert!(timeout(SHORT * 5, mailbox.wait_until_abandoned()).await.is_err(), "somebody reads");
        drop(stream);
        let left = Instant::now();
        timeout(LONG, mailbox.wait_until_abandoned()).await.expect("to notice in time");
        assert!(left.elapsed() >= SHORT);
    }
}
