//! What an agent says to a client that comes by HTTP: a stream of events for the connection, and one for each session that
//! has asked for it. Until somebody reads them, messages wait, within bounds: whoever says more waits as well, and when
//! nobody comes the connection ends and says why.
//!
//! A stream that broke is opened again and goes on: with what was said meanwhile, and for a client that tells the last event
//! it has seen (`Last-Event-ID`) with what got lost on the way.

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

use crate::events::HEARTBEAT;
use crate::transport::backlog::{Reader as Client, Waiting};

/// Bytes that may wait to be read.
const MAX_WAITING: usize = 1 << 20;
/// Bytes of what was sent that are kept, in case that it did not arrive.
const MAX_SENT: usize = 128 << 10;
/// How long they may wait, once there is no room for more.
const STALL: Duration = Duration::from_secs(60);
/// How long a client may be without a stream and without a word.
const IDLE: Duration = Duration::from_secs(120);
/// Streams of sessions at once.
const MAX_STREAMS: usize = 1024;
/// Subagents whose stream is remembered; those beyond are told of in the connection's.
const MAX_SUBAGENTS: usize = 10_000;
/// Messages are sent together up to this size.
const CHUNK: usize = 64 << 10;

/// Why a connection ended.
const UNREAD: &str = "more was said than may wait, and nobody read it";
const SILENT: &str = "nobody read or said anything for a while";

/// Which stream: that of a session, or the connection's own.
type Name = Option<String>;

/// The parts of a message that tell where it belongs. Whatever is not understood is absent.
#[derive(Default, Deserialize)]
pub struct Head<'a> {
    /// The id, as it was written.
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    /// The method; an answer has none.
    pub method: Option<String>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct About {
    session_id: Option<String>,
    update: Option<Update>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Update {
    session_update: String,
    session_id: Option<String>,
}

impl<'a> Head<'a> {
    /// The head of a message that is an object.
    pub fn of(line: &'a [u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(line)
    }

    /// The id of a request, or of what is answered. Null is an id, but none that an answer could be told by.
    pub fn id(&self) -> Option<String> {
        self.id.map(|id| id.get().to_owned())
    }

    /// The session that it is about.
    pub fn session(&self) -> Option<String> {
        about(self.params).session_id
    }
}

fn about(raw: Option<&RawValue>) -> About {
    raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
}

/// Where an answer goes.
struct Answer {
    to: Name,
    /// What this session was told before must have been read.
    after: Name,
}

struct Letter {
    about: Name,
    line: Vec<u8>,
    /// Until it is sent.
    _waiting: Option<Waiting>,
}

#[derive(Default)]
struct Stream {
    queue: VecDeque<Letter>,
    read: bool,
    /// What was sent last, oldest first.
    sent: VecDeque<Letter>,
    /// How many events were ever sent: the number of the last one.
    number: u64,
}

impl Stream {
    /// Puts back what came after an event; false if that is no longer known.
    fn rewind(&mut self, last: u64, reader: &Arc<Client>) -> Option<usize> {
        let lost = usize::try_from(self.number.checked_sub(last)?).ok()?;
        let kept = self.sent.len().checked_sub(lost)?;
        let again = self.sent.split_off(kept);
        let bytes = again.iter().map(|letter| letter.line.len()).sum();
        for letter in again.into_iter().rev() {
            let _waiting = Some(reader.wait(letter.line.len()));
            self.queue.push_front(Letter { _waiting, ..letter });
        }
        self.number = last;
        Some(bytes)
    }
}

struct State {
    /// For whom it all waits.
    client: Arc<Client>,
    streams: HashMap<Name, Stream>,
    /// Subagents are told of in the stream in which they were announced, until they have one of their own.
    homes: HashMap<String, Name>,
    answers: HashMap<String, Answer>,
    /// Who waits for the answer to `initialize`.
    hello: Option<oneshot::Sender<Vec<u8>>>,
    waiting: usize,
    /// The bytes of what was sent and is kept.
    sent: usize,
    readers: usize,
    /// When the client was last heard.
    heard: Instant,
    closed: bool,
    /// Why the connection ended, if not because the client wanted that.
    why: Option<&'static str>,
}

impl State {
    /// The stream in which a session is told of.
    fn place(&self, session: &str) -> Name {
        let own = Some(session.to_owned());
        if self.streams.contains_key(&own) { own } else { self.homes.get(session).cloned().flatten() }
    }

    fn open(&mut self, session: String) -> bool {
        if self.streams.len() > MAX_STREAMS {
            self.forget_one();
        }
        let room = self.streams.len() <= MAX_STREAMS || self.streams.contains_key(&Some(session.clone()));
        if room {
            self.homes.remove(&session);
            self.streams.entry(Some(session)).or_default();
        }
        room
    }

    /// Forgets a stream that nobody reads and in which nothing waits.
    fn forget_one(&mut self) {
        let rests = |(name, stream): (&Name, &Stream)| {
            (name.is_some() && !stream.read && stream.queue.is_empty()).then(|| name.clone())
        };
        if let Some(stream) = self.streams.iter().find_map(rests).and_then(|name| self.streams.remove(&name)) {
            self.sent -= stream.sent.iter().map(|letter| letter.line.len()).sum::<usize>();
        }
    }

    fn is_behind(&self, name: &Name) -> bool {
        self.streams.get(name).is_some_and(|stream| stream.read && !stream.queue.is_empty())
    }

    fn push(&mut self, to: Name, about: Name, line: Vec<u8>) {
        self.waiting += line.len();
        let _waiting = Some(self.client.wait(line.len()));
        self.streams.entry(to).or_default().queue.push_back(Letter { about, line, _waiting });
    }
}

/// What waits to be read. Shared by the agent and by those who read.
pub struct Mail {
    state: Mutex<State>,
    changed: Notify,
    stall: Duration,
    idle: Duration,
}

/// Why a stream cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub enum Refused {
    /// Somebody reads it.
    Taken,
    /// There are too many.
    Full,
    /// What came after that event is no longer known.
    Lost,
}

impl Mail {
    /// For a client whose `initialize` is answered there.
    pub fn new(hello: oneshot::Sender<Vec<u8>>, client: Arc<Client>) -> Arc<Self> {
        Self::patient(hello, client, STALL, IDLE)
    }

    fn patient(hello: oneshot::Sender<Vec<u8>>, client: Arc<Client>, stall: Duration, idle: Duration) -> Arc<Self> {
        let state = State {
            client,
            streams: HashMap::from([(None, Stream::default())]),
            homes: HashMap::new(),
            answers: HashMap::new(),
            hello: Some(hello),
            waiting: 0,
            sent: 0,
            readers: 0,
            heard: Instant::now(),
            closed: false,
            why: None,
        };
        Arc::new(Self { state: Mutex::new(state), changed: Notify::new(), stall, idle })
    }

    /// Nothing comes any more.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_waiters();
    }

    /// Why the connection ended, if not because the client wanted that.
    pub fn why(&self) -> Option<&'static str> {
        self.lock().why
    }

    /// The client said something; `session` is what its header names.
    pub fn heard(&self, head: &Head<'_>, session: Name) {
        let mut state = self.lock();
        state.heard = Instant::now();
        if let (Some(method), Some(id)) = (&head.method, head.id()) {
            // The client may not read the session's stream yet.
            let loads = method == "session/load";
            let to = session.clone().filter(|_| !loads);
            state.answers.insert(id, Answer { to, after: head.session().filter(|_| loads) });
        }
    }

    /// Says something, when there is room.
    pub async fn say(&self, line: Vec<u8>) -> io::Result<()> {
        let head = Head::of(&line).unwrap_or_default();
        let answered = head.id().filter(|_| head.method.is_none());
        loop {
            let changed = self.changed.notified();
            {
                let mut state = self.lock();
                if state.closed {
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
                let answer = answered.as_ref().and_then(|id| state.answers.get(id));
                let behind = answer.is_some_and(|answer| answer.after.is_some() && state.is_behind(&answer.after));
                if state.waiting < MAX_WAITING && !behind {
                    Self::put(&mut state, &head, &line);
                    break;
                }
            }
            if timeout(self.stall, changed).await.is_err() {
                self.lock().why = Some(UNREAD);
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        self.changed.notify_waiters();
        Ok(())
    }

    fn put(state: &mut State, head: &Head<'_>, line: &[u8]) {
        if head.method.is_none() {
            if let Some(hello) = state.hello.take() {
                // A client that hung up has no connection either.
                let _ = hello.send(line.to_vec());
                return;
            }
            let to = head.id().and_then(|id| state.answers.remove(&id)).and_then(|answer| answer.to);
            if let Some(made) = about(head.result).session_id {
                state.open(made);
            }
            return state.push(to, None, line.to_vec());
        }
        let about = about(head.params);
        let to = about.session_id.as_deref().and_then(|session| state.place(session));
        if let Some(Update { session_update, session_id: Some(child) }) = about.update
            && session_update == "subagent_update"
            && state.homes.len() < MAX_SUBAGENTS
            && !state.streams.contains_key(&Some(child.clone()))
        {
            state.homes.insert(child, to.clone());
        }
        state.push(to, about.session_id, line.to_vec());
    }

    /// Reads a stream, from where the last reader of it stopped, or from behind the event that the client has seen `last`.
    /// There is one reader at a time.
    pub fn read(self: &Arc<Self>, session: Name, last: Option<u64>) -> Result<Body, Refused> {
        let mut state = self.lock();
        if let Some(session) = &session {
            let is_new = !state.streams.contains_key(&Some(session.clone()));
            let home = state.place(session);
            if !state.open(session.clone()) {
                return Err(Refused::Full);
            }
            // What waits elsewhere comes before what follows.
            if is_new && let Some(elsewhere) = state.streams.get_mut(&home) {
                let (moved, kept) = std::mem::take(&mut elsewhere.queue)
                    .into_iter()
                    .partition(|letter: &Letter| letter.about.as_ref() == Some(session));
                elsewhere.queue = kept;
                state.streams.entry(Some(session.clone())).or_default().queue = moved;
            }
        }
        let client = state.client.clone();
        let stream = state.streams.entry(session.clone()).or_default();
        if stream.read {
            return Err(Refused::Taken);
        }
        let again = last.map_or(Some(0), |last| stream.rewind(last, &client)).ok_or(Refused::Lost)?;
        stream.read = true;
        state.sent -= again;
        state.waiting += again;
        state.readers += 1;
        drop(state);
        let reader = Reader { mail: self.clone(), name: session, greeted: false };
        let chunks = futures::stream::unfold(reader, |mut reader| async move {
            let chunk = reader.next().await?;
            Some((Ok::<Bytes, std::convert::Infallible>(chunk), reader))
        });
        Ok(Body::from_stream(chunks))
    }

    /// Waits until the client is gone: it reads nothing and says nothing, or what waits for it is needed for others.
    pub async fn abandoned(&self) {
        let client = self.lock().client.clone();
        tokio::select! {
            () = self.silent() => {}
            () = client.cut() => self.lock().why = Some(UNREAD),
        }
    }

    async fn silent(&self) {
        loop {
            let until = {
                let state = self.lock();
                let from = if state.readers > 0 { Instant::now() } else { state.heard };
                from + self.idle
            };
            if until <= Instant::now() {
                self.lock().why = Some(SILENT);
                return;
            }
            sleep_until(until).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who reads a stream; when it goes, another may.
struct Reader {
    mail: Arc<Mail>,
    name: Name,
    greeted: bool,
}

impl Reader {
    async fn next(&mut self) -> Option<Bytes> {
        // The first bytes are sent at once, so that whatever is in between lets the answer through.
        if !std::mem::replace(&mut self.greeted, true) {
            return Some(Bytes::from_static(b":\n\n"));
        }
        loop {
            let changed = self.mail.changed.notified();
            {
                let mut state = self.mail.lock();
                let chunk = take(&mut state, &self.name);
                if !chunk.is_empty() {
                    drop(state);
                    self.mail.changed.notify_waiters();
                    return Some(chunk);
                }
                if state.closed {
                    return None;
                }
            }
            if timeout(HEARTBEAT, changed).await.is_err() {
                return Some(Bytes::from_static(b":\n\n"));
            }
        }
    }
}

/// The next messages of a stream, as events.
fn take(state: &mut State, name: &Name) -> Bytes {
    let mut chunk = BytesMut::new();
    let mut taken = 0;
    let Some(stream) = state.streams.get_mut(name) else { return Bytes::new() };
    while chunk.len() < CHUNK
        && let Some(letter) = stream.queue.pop_front()
    {
        taken += letter.line.len();
        stream.number += 1;
        chunk.extend_from_slice(format!("id: {}\ndata: ", stream.number).as_bytes());
        chunk.extend_from_slice(&letter.line);
        chunk.extend_from_slice(b"\n\n");
        stream.sent.push_back(Letter { _waiting: None, ..letter });
    }
    state.waiting -= taken;
    state.sent += taken;
    while state.sent > MAX_SENT
        && let Some(letter) = stream.sent.pop_front()
    {
        state.sent -= letter.line.len();
    }
    chunk.freeze()
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.mail.lock();
        state.readers -= 1;
        state.heard = Instant::now();
        if let Some(stream) = state.streams.get_mut(&self.name) {
            stream.read = false;
        }
        drop(state);
        self.mail.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::backlog::Backlog;
    use futures::StreamExt as _;
    use serde_json::{Value, json};

    const SHORT: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(60);

    fn mail() -> Arc<Mail> {
        with_patience(LONG)
    }

    fn with_patience(patience: Duration) -> Arc<Mail> {
        let (sender, _) = oneshot::channel();
        let mail = Mail::patient(sender, Backlog::default().join(), patience, patience);
        mail.lock().hello = None;
        mail
    }

    fn update(session: &str, number: u64) -> Vec<u8> {
        json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": session, "n": number}})
            .to_string()
            .into_bytes()
    }

    /// The messages of the next chunk.
    async fn next(body: &mut axum::body::BodyDataStream) -> Vec<Value> {
        loop {
            let chunk = timeout(LONG, body.next()).await.expect("a chunk comes").unwrap().unwrap();
            let text = std::str::from_utf8(&chunk).unwrap();
            if text != ":\n\n" {
                let frames = text.split_terminator("\n\n").map(|frame| frame.split_once("\ndata: ").unwrap().1);
                return frames.map(|frame| serde_json::from_str(frame).unwrap()).collect();
            }
        }
    }

    fn body(mail: &Arc<Mail>, session: Option<&str>) -> axum::body::BodyDataStream {
        mail.read(session.map(str::to_owned), None).unwrap().into_data_stream()
    }

    #[tokio::test]
    async fn each_message_goes_where_it_belongs() {
        let mail = mail();
        let head = json!({"id": 7, "method": "session/prompt", "params": {"sessionId": "a"}}).to_string();
        mail.heard(&Head::of(head.as_bytes()).unwrap(), Some("a".into()));
        // Made by an answer, which goes to the connection: what follows waits for the session's stream.
        mail.say(json!({"id": 1, "result": {"sessionId": "a"}}).to_string().into()).await.unwrap();
        mail.say(update("a", 1)).await.unwrap();
        let announced = json!({"sessionUpdate": "subagent_update", "sessionId": "child"});
        let announced = json!({"method": "session/update", "params": {"sessionId": "a", "update": announced}});
        mail.say(announced.to_string().into()).await.unwrap();
        mail.say(update("child", 2)).await.unwrap();
        mail.say(update("unheard of", 3)).await.unwrap();
        mail.say(json!({"id": 7, "result": {}}).to_string().into()).await.unwrap();
        let (mut connection, mut session) = (body(&mail, None), body(&mail, Some("a")));
        let told = next(&mut connection).await;
        assert_eq!((told.len(), &told[0]["id"], &told[1]["params"]["n"]), (2, &json!(1), &json!(3)));
        let told = next(&mut session).await;
        assert_eq!(told.len(), 4, "{told:?}");
        assert_eq!((&told[2]["params"]["n"], &told[3]["id"]), (&json!(2), &json!(7)));
        assert_eq!(mail.read(Some("a".into()), None).unwrap_err(), Refused::Taken);
        drop(session);
        assert!(mail.read(Some("a".into()), None).is_ok());
    }

    #[tokio::test]
    async fn what_waits_elsewhere_comes_first_in_a_new_stream() {
        let mail = mail();
        for number in 0..3 {
            mail.say(update("a", number)).await.unwrap();
        }
        let mut session = body(&mail, Some("a"));
        mail.say(update("a", 3)).await.unwrap();
        let told = next(&mut session).await;
        assert_eq!(told.iter().map(|told| told["params"]["n"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 1, 2, 3]);
    }

    #[tokio::test]
    async fn a_load_is_answered_when_what_came_before_was_read() {
        let mail = mail();
        let head = json!({"id": "l", "method": "session/load", "params": {"sessionId": "a"}}).to_string();
        mail.heard(&Head::of(head.as_bytes()).unwrap(), Some("a".into()));
        let (mut connection, mut session) = (body(&mail, None), body(&mail, Some("a")));
        mail.say(update("a", 1)).await.unwrap();
        let answer = tokio::spawn({
            let mail = mail.clone();
            async move { mail.say(json!({"id": "l", "result": {}}).to_string().into()).await }
        });
        tokio::task::yield_now().await;
        assert!(!answer.is_finished());
        assert_eq!(next(&mut session).await.len(), 1);
        answer.await.unwrap().unwrap();
        assert_eq!(next(&mut connection).await[0]["id"], "l");
    }

    fn numbers(told: &[Value]) -> Vec<u64> {
        told.iter().map(|told| told["params"]["n"].as_u64().unwrap()).collect()
    }

    #[tokio::test]
    async fn a_stream_that_broke_goes_on() {
        let mail = mail();
        let mut connection = body(&mail, None);
        let mut session = body(&mail, Some("a"));
        mail.say(update("a", 1)).await.unwrap();
        assert_eq!(numbers(&next(&mut session).await), [1]);
        drop(session);
        // Nobody reads, nothing waits: what follows waits for the next reader all the same.
        for number in 2..4 {
            mail.say(update("a", number)).await.unwrap();
        }
        mail.say(update("b", 9)).await.unwrap();
        assert_eq!(numbers(&next(&mut connection).await), [9], "it is not told elsewhere");
        let mut session = body(&mail, Some("a"));
        assert_eq!(numbers(&next(&mut session).await), [2, 3]);
        drop(session);
        // Those did not arrive.
        let mut session = mail.read(Some("a".into()), Some(1)).unwrap().into_data_stream();
        mail.say(update("a", 4)).await.unwrap();
        assert_eq!(numbers(&next(&mut session).await), [2, 3, 4]);
        drop(session);
        assert_eq!(mail.read(Some("a".into()), Some(5)).unwrap_err(), Refused::Lost, "that was never sent");
        assert!(mail.read(Some("a".into()), Some(4)).is_ok());
        assert_eq!(mail.lock().waiting, 0);
    }

    #[tokio::test]
    async fn what_was_sent_is_kept_within_bounds() {
        let mail = mail();
        let mut session = body(&mail, Some("a"));
        let long = json!({"method": "session/update", "params": {"sessionId": "a", "n": 0, "x": "x".repeat(12_000)}});
        for _ in 0..20 {
            mail.say(long.to_string().into()).await.unwrap();
            assert_eq!(next(&mut session).await.len(), 1);
        }
        drop(session);
        assert!(mail.lock().sent <= MAX_SENT);
        assert_eq!(mail.read(Some("a".into()), Some(1)).unwrap_err(), Refused::Lost);
        assert!(mail.read(Some("a".into()), Some(15)).is_ok());
    }

    #[tokio::test]
    async fn whoever_does_not_read_is_given_up() {
        let mail = with_patience(SHORT);
        let say = |number| mail.say(update(&"x".repeat(1000), number));
        let mut said = 0;
        let error = loop {
            match say(said).await {
                Ok(()) => said += 1,
                Err(error) => break error,
            }
        };
        assert_eq!((error.kind(), mail.why()), (io::ErrorKind::TimedOut, Some(UNREAD)));
        let waiting = mail.lock().waiting;
        assert!((MAX_WAITING..MAX_WAITING + 2000).contains(&waiting), "{waiting}");
        mail.close();
        assert_eq!(say(0).await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[tokio::test]
    async fn whoever_is_gone_is_noticed() {
        let mail = with_patience(SHORT);
        let stream = body(&mail, None);
        assert!(timeout(SHORT * 5, mail.abandoned()).await.is_err(), "somebody reads");
        drop(stream);
        let left = Instant::now();
        timeout(LONG, mail.abandoned()).await.expect("it is noticed");
        assert!(left.elapsed() >= SHORT);
    }
}
