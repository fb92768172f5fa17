//! The events of a session and its subagents, with the gaps closed.

use std::sync::Arc;

use api::{Cursor, Event, EventBody, Host, HostError, MessageId, Scope, SessionId, WatchItem, WatchScope};
use futures::future::BoxFuture;
use futures::stream::{BoxStream, Fuse};
use futures::{FutureExt as _, StreamExt as _};
use tokio::sync::{Notify, watch};

use crate::delivery::{Delivery, FeedHandle};
use crate::retry::Patience;
use crate::stored::{self, Reach, Stored};

/// The longest text that is joined from deltas, in bytes.
const MAX_JOINED_TEXT: usize = 64 << 10;
/// How often in a row the host may end the stream before it has sent anything.
const MAX_EMPTY_STREAMS: u32 = 3;

/// Something to show.
#[derive(Debug)]
pub enum Item {
    /// An event of the session's directory. Text that is ready comes in one delta.
    Event(Arc<Event>),
    /// Events were lost: the stored state, some of which was shown before. Events continue from here.
    Stored(Box<Stored>),
    /// Events were lost, and the stored state cannot be read. Events continue from here.
    Unread(HostError),
}

type Events = BoxStream<'static, WatchItem>;

/// A request whose response has not arrived. Kept, so that [`Feed::next`] can be cancelled without losing it.
type Pending<T> = BoxFuture<'static, Result<T, HostError>>;

/// The events of a session and its subagents, and the stored state where events are missing.
pub struct Feed {
    host: Arc<dyn Host>,
    scope: Scope,
    session: SessionId,
    patience: Patience,
    since: Option<MessageId>,
    /// `None` while there is no stream.
    events: Option<Fuse<Events>>,
    /// An item that was taken from the stream too early.
    lookahead: Option<WatchItem>,
    /// Everything up to here was received.
    cursor: Option<Cursor>,
    watching: Option<Pending<Events>>,
    reading: Option<Pending<Stored>>,
    /// Streams in a row that ended before their first event.
    empty_streams: u32,
    delivery: watch::Sender<Delivery>,
    read_again: Arc<Notify>,
}

impl Feed {
    /// Watches the directory of a session. Everything that happens after this returns is delivered.
    pub async fn open(
        host: Arc<dyn Host>,
        scope: Scope,
        session: SessionId,
        patience: Patience,
    ) -> Result<Self, HostError> {
        let events = host.watch(WatchScope::Directory(scope.directory.clone()), None).await?;
        Ok(Self::new(host, scope, session, patience, events))
    }

    /// A feed that begins with a watch of the session's directory that was opened before.
    pub fn new(host: Arc<dyn Host>, scope: Scope, session: SessionId, patience: Patience, events: Events) -> Self {
        Self {
            host,
            scope,
            session,
            patience,
            since: None,
            events: Some(events.fuse()),
            lookahead: None,
            cursor: None,
            watching: None,
            reading: None,
            empty_streams: 0,
            delivery: watch::Sender::default(),
            read_again: Arc::default(),
        }
    }

    /// The feed without stored messages from before this one.
    #[must_use]
    pub fn since(self, message: Option<MessageId>) -> Self {
        Self { since: message, ..self }
    }

    /// A handle that tells what was delivered.
    pub fn handle(&self) -> FeedHandle {
        FeedHandle { delivery: self.delivery.subscribe(), read_again: self.read_again.clone() }
    }

    /// The next item. To ask for it is to say that the one before was shown. Cancel safe. After an error, the next call
    /// tries again to watch.
    pub async fn next(&mut self) -> Result<Item, HostError> {
        self.delivery.send_if_modified(Delivery::take);
        loop {
            if let Some(watching) = &mut self.watching {
                let watched = watching.await;
                self.watching = None;
                self.events = Some(watched?.fuse());
                // What is not stored in the log was lost, whether or not the stream resumes.
                self.read();
            }
            if let Some(reading) = &mut self.reading {
                let read = reading.await;
                self.reading = None;
                self.delivery.send_if_modified(|delivery| {
                    delivery.hand_stored(read.as_ref().ok());
                    false
                });
                return Ok(read.map_or_else(Item::Unread, |stored| Item::Stored(Box::new(stored))));
            }
            match self.receive().await? {
                Some(WatchItem::Frame(frame)) => {
                    if let Some(event) = frame.event() {
                        return Ok(self.hand(event));
                    }
                }
                Some(WatchItem::Resync(reason)) => {
                    tracing::debug!(session = %self.session, reason, "events may be missing");
                    self.read();
                }
                Some(WatchItem::Lagged) | None => {
                    self.events = None;
                    self.watch();
                }
            }
        }
    }

    /// The next item of the stream, `None` at its end. Whoever misses the events of an answer is a gap as well.
    async fn receive(&mut self) -> Result<Option<WatchItem>, HostError> {
        let item = match (self.lookahead.take(), &mut self.events) {
            (Some(item), _) => Some(item),
            (None, None) => return Ok(None),
            (None, Some(events)) => tokio::select! {
                biased;
                item = events.next() => item,
                () = self.read_again.notified() => Some(WatchItem::Resync("an answer came before its events".to_owned())),
            },
        };
        match &item {
            Some(WatchItem::Frame(frame)) => {
                self.empty_streams = 0;
                self.cursor = frame.cursor.clone().or(self.cursor.take());
            }
            Some(WatchItem::Resync(_)) => {}
            Some(WatchItem::Lagged) | None => {
                self.empty_streams += 1;
                if self.empty_streams > MAX_EMPTY_STREAMS {
                    (self.events, self.empty_streams) = (None, 0);
                    return Err(HostError::Unavailable("The event stream ends again and again".to_owned()));
                }
            }
        }
        Ok(item)
    }

    fn watch(&mut self) {
        let (host, patience) = (self.host.clone(), self.patience);
        let (directory, after) = (self.scope.directory.clone(), self.cursor.clone());
        self.watching = Some(
            async move {
                let scope = || WatchScope::Directory(directory.clone());
                patience.retry(|| host.watch(scope(), after.clone())).await
            }
            .boxed(),
        );
    }

    fn read(&mut self) {
        let (host, patience) = (self.host.clone(), self.patience);
        let (scope, session) = (self.scope.clone(), self.session.clone());
        let reach =
            Reach { since: self.since.clone(), delivered: self.delivery.borrow().answers().iter().cloned().collect() };
        self.reading =
            Some(async move { patience.retry(|| stored::read(&*host, &scope, &session, &reach)).await }.boxed());
    }

    /// Hands out an event. A model may write faster than single deltas can be shown, and events that nobody takes stay
    /// in memory, so a delta comes with those of the same part that are ready.
    fn hand(&mut self, event: Arc<Event>) -> Item {
        let event = match &event.body {
            EventBody::PartDelta { .. } => self.join_deltas(event),
            _ => event,
        };
        self.delivery.send_if_modified(|delivery| {
            delivery.hand_event(&self.session, &event.body);
            false
        });
        Item::Event(event)
    }

    fn join_deltas(&mut self, first: Arc<Event>) -> Arc<Event> {
        let mut joined: Option<Event> = None;
        while self.lookahead.is_none()
            && length(joined.as_ref().unwrap_or(&first)) < MAX_JOINED_TEXT
            && let Some(Some(item)) = self.events.as_mut().and_then(|events| events.next().now_or_never())
        {
            let next = if let WatchItem::Frame(frame) = &item { frame.event() } else { None };
            match next.as_deref() {
                Some(next) if append(&mut joined, &first, next) => {}
                _ => self.lookahead = Some(item),
            }
        }
        joined.map_or(first, Arc::new)
    }
}

fn length(event: &Event) -> usize {
    if let EventBody::PartDelta { delta, .. } = &event.body { delta.len() } else { 0 }
}

/// Appends a delta to the one before it. Returns false if it belongs to another part.
fn append(joined: &mut Option<Event>, first: &Event, next: &Event) -> bool {
    let EventBody::PartDelta { part_id: part, field: into, .. } = &first.body else { return false };
    let EventBody::PartDelta { part_id, field, delta: more, .. } = &next.body else { return false };
    if part != part_id || into != field {
        return false;
    }
    if let EventBody::PartDelta { delta, .. } = &mut joined.get_or_insert_with(|| first.clone()).body {
        delta.push_str(more);
    }
    true
}
