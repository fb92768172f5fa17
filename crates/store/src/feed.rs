//! The in-process side of the log: watchers with their queues, and the parts whose text is growing right now.
//!
//! One mutex orders everything that watchers can see. Frames are sent under it in the order of their sequence numbers.

pub(crate) mod queue;
pub(crate) mod text;
pub(crate) mod watch;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::{EventBody, Frame, MessageId, Part, PartId, SessionId, SessionStatus, WatchScope};
use rusqlite::Connection;

use crate::batch::{Batch, Op, Place};
use crate::error::StoreError;
use crate::feed::queue::{Gauge, Held, Queue};
use crate::sqlite::log::{self, Entry};
use crate::sqlite::read::Readers;

/// The most memory of what waits for all watchers together, about; beyond it those that are furthest behind are cut.
pub const WATCH_BYTES: usize = 16 << 20;

/// The most growing parts that are kept for late watchers. Text of further ones is sent, but not kept.
const LIVE: usize = 1024;

#[derive(Debug)]
pub(crate) struct Feed {
    state: Mutex<State>,
    gauge: Gauge,
}

#[derive(Debug, Default)]
struct State {
    /// Everything up to this sequence number has been sent.
    published: u64,
    watchers: HashMap<u64, Watcher>,
    next: u64,
    live: HashMap<PartId, Live>,
    /// Sessions whose status cannot be stored at the moment.
    held_up: HashMap<SessionId, HeldUp>,
    /// What waits for watchers, and the most that may.
    gauge: Gauge,
    most: usize,
    /// How many frames were sent.
    sent: u64,
}

#[derive(Debug)]
struct Watcher {
    scope: WatchScope,
    /// What came up to here is replayed from the database.
    base: u64,
    queue: Arc<Queue>,
}

/// A part whose text is growing, with what watchers have seen of it.
#[derive(Debug)]
struct Live {
    place: Place,
    part: Part,
    /// Whether this process writes it.
    own: bool,
}

/// The status of a session whose turn cannot write.
#[derive(Debug)]
struct HeldUp {
    place: Place,
    /// The one that is shown.
    shown: SessionStatus,
    /// The one in its row.
    stored: SessionStatus,
}

/// A new watcher's end of its queue.
#[derive(Debug)]
pub(crate) struct Attached {
    /// Where the queue begins: it holds what came after this sequence number.
    pub base: u64,
    pub queue: Arc<Queue>,
    pub _guard: Guard,
}

/// Ends a watcher when it is dropped.
#[derive(Debug)]
pub(crate) struct Guard {
    feed: Arc<Feed>,
    key: u64,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.feed.lock().watchers.remove(&self.key);
    }
}

impl Feed {
    /// A feed that nobody watches. `most`: bytes that may wait for all watchers together.
    pub(crate) fn new(most: usize) -> Self {
        let gauge = Gauge::default();
        Self { state: Mutex::new(State { gauge: gauge.clone(), most, ..State::default() }), gauge }
    }

    /// The memory of what waits for watchers.
    pub(crate) fn waiting(&self) -> usize {
        self.gauge.bytes()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins at the end of the log as it is now.
    pub(crate) fn start(&self, tip: u64) {
        self.lock().published = tip;
    }

    /// Whether anybody watches.
    pub(crate) fn watched(&self) -> bool {
        !self.lock().watchers.is_empty()
    }

    /// Everything up to this sequence number has been sent.
    pub(crate) fn published(&self) -> u64 {
        self.lock().published
    }

    /// Ends all watchers.
    pub(crate) fn close(&self) {
        for (_, watcher) in self.lock().watchers.drain() {
            watcher.queue.close();
        }
    }

    /// Registers a watcher that knows everything up to `floor`. Its queue begins with the full text so far of every
    /// part that is growing.
    pub(crate) fn attach(
        self: &Arc<Self>,
        readers: &Readers,
        owner: &str,
        scope: &WatchScope,
        floor: u64,
    ) -> Result<Attached, StoreError> {
        let mut state = self.lock();
        if state.watchers.is_empty() {
            // Nobody followed the others' commits, and what they were is not news.
            readers.read(|conn| state.refresh(&*conn.unchecked_transaction()?, owner))?;
        }
        let base = state.published.max(floor);
        let queue = Arc::new(Queue::default());
        for (id, live) in &state.live {
            // What another process ended is told by an event to come.
            if !live.own && !readers.read(|conn| log::is_growing(conn, id))? {
                continue;
            }
            if let Some(frame) = text::part_frame(&live.place, &live.part).filter(|frame| frame.within(scope)) {
                // The queue is empty and longer than LIVE, so this cannot fail.
                queue.push(Held::new(&frame, state.sent, &self.gauge));
            }
        }
        let key = state.next;
        state.next += 1;
        state.watchers.insert(key, Watcher { scope: scope.clone(), base, queue: queue.clone() });
        Ok(Attached { base, queue, _guard: Guard { feed: self.clone(), key } })
    }

    /// Sends a piece of text that this process's model wrote; `part` has its full text so far.
    pub(crate) fn live(&self, place: &Place, part: &Part, delta: &str) {
        let (Some(head), Some(full)) = (part.head(), text::text(part)) else { return };
        let mut state = self.lock();
        let room = state.live.len() < LIVE;
        match state.live.get_mut(&head.id) {
            Some(live) => {
                // It may have been another process's before this one took its session over.
                live.own = true;
                match text::text_mut(&mut live.part) {
                    // The usual case: only the new piece is copied.
                    Some(known) if known.len() + delta.len() == full.len() && full.ends_with(delta) => {
                        known.push_str(delta);
                    }
                    _ => live.part = part.clone(),
                }
            }
            None if room => {
                let live = Live { place: place.clone(), part: part.clone(), own: true };
                state.live.insert(head.id.clone(), live);
            }
            None => {}
        }
        if !state.watchers.is_empty()
            && let Some(frame) = text::delta_frame(place, part, delta)
        {
            state.send(None, &frame);
        }
    }

    /// Sends an event that is not stored. If it is a status, `stored` is the one in the session's row.
    pub(crate) fn tell(&self, place: &Place, body: EventBody, stored: Option<SessionStatus>) {
        let mut state = self.lock();
        if let (EventBody::SessionStatus { session_id, status: shown }, Some(stored)) = (&body, stored) {
            let held_up = HeldUp { place: place.clone(), shown: shown.clone(), stored };
            state.held_up.insert(session_id.clone(), held_up);
        }
        state.send(None, &text::live_frame(place, body));
    }

    /// The session can write again: sends its stored status.
    pub(crate) fn go_on(&self, session: &SessionId) {
        self.lock().go_on(session);
    }

    /// The status of a session that is shown in place of its stored one.
    pub(crate) fn held_up(&self, session: &SessionId) -> Option<SessionStatus> {
        self.lock().held_up.get(session).map(|held| held.shown.clone())
    }

    /// Replaces stored statuses by those that cannot be stored.
    pub(crate) fn correct(&self, statuses: &mut Vec<(SessionId, SessionStatus)>) {
        let state = self.lock();
        if !state.held_up.is_empty() {
            statuses.retain(|(session, _)| !state.held_up.contains_key(session));
            let shown = state.held_up.iter().filter(|(_, held)| held.shown != SessionStatus::Idle);
            statuses.extend(shown.map(|(session, held)| (session.clone(), held.shown.clone())));
        }
    }

    /// The texts of this process's growing parts that `wanted` picks.
    pub(crate) fn texts(&self, wanted: impl Fn(&Part) -> bool) -> HashMap<PartId, String> {
        let state = self.lock();
        let own = state.live.iter().filter(|(_, live)| live.own && wanted(&live.part));
        own.filter_map(|(id, live)| Some((id.clone(), text::text(&live.part)?.to_owned()))).collect()
    }

    /// How much of another process's growing part was sent.
    pub(crate) fn sent(&self, part: &PartId) -> usize {
        self.lock().live.get(part).and_then(|live| text::text(&live.part)).map_or(0, str::len)
    }

    /// Sends what other processes committed, in order.
    pub(crate) fn publish_foreign(&self, entries: Vec<Entry>) {
        let mut state = self.lock();
        for entry in entries {
            let seq = entry.seq();
            if seq <= state.published {
                continue;
            }
            state.published = seq;
            match entry {
                Entry::Frame { frame, part, open, .. } => {
                    state.send(Some(seq), &frame);
                    if let Some(id) = part {
                        state.follow(id, open, &frame);
                    }
                }
                Entry::Grown { place, part, .. } => state.grown(place, *part),
                Entry::Silent { .. } => {}
            }
        }
    }

    /// Sends what one committed batch tells, and forgets the parts that it ended.
    pub(crate) fn publish_own(&self, batch: &Batch, made: &[Op], frames: &[Frame], last: u64) {
        let mut state = self.lock();
        if let Some(lease) = &batch.fence {
            state.go_on(&lease.session);
        }
        for frame in frames {
            state.send(frame.cursor.as_ref().map(|cursor| cursor.seq), frame);
        }
        state.published = state.published.max(last);
        state.settle(&batch.place, made);
    }

    /// What is up to here cannot be sent: whoever watches must read anew.
    pub(crate) fn cut(&self, tip: u64) {
        let mut state = self.lock();
        state.published = state.published.max(tip);
        for (_, watcher) in state.watchers.drain() {
            watcher.queue.cut();
        }
    }

    /// Nobody watches: what others committed up to here is skipped.
    pub(crate) fn skip(&self, tip: u64) {
        let mut state = self.lock();
        if state.watchers.is_empty() {
            state.published = state.published.max(tip);
            state.live.retain(|_, live| live.own);
        }
    }
}

impl State {
    /// Sends a frame to everyone who wants it and does not get it by replay; cuts those whose queue is full.
    fn send(&mut self, seq: Option<u64>, frame: &Frame) {
        let Self { watchers, gauge, sent, .. } = self;
        let mut held = None;
        watchers.retain(|_, watcher| {
            if seq.is_some_and(|seq| seq <= watcher.base) || !frame.within(&watcher.scope) {
                return true;
            }
            watcher.queue.push(held.get_or_insert_with(|| Held::new(frame, *sent, gauge)).clone())
        });
        *sent += 1;
        if held.is_some() {
            self.relieve();
        }
    }

    /// Cuts those that are furthest behind, until what waits for the others has room. Whoever waits for the newest frame
    /// alone is not behind, however large that is.
    fn relieve(&mut self) {
        while self.gauge.bytes() > self.most {
            let behind = self.watchers.iter().filter_map(|(key, w)| Some((w.queue.behind_since()?, *key)));
            let Some((_, slowest)) = behind.min() else { return };
            if let Some(watcher) = self.watchers.remove(&slowest) {
                watcher.queue.cut();
            }
        }
    }

    fn go_on(&mut self, session: &SessionId) {
        if let Some(HeldUp { place, stored, .. }) = self.held_up.remove(session) {
            // Idle would say that a turn has ended.
            let status = if stored == SessionStatus::Idle { SessionStatus::Busy } else { stored };
            let body = EventBody::SessionStatus { session_id: session.clone(), status };
            self.send(None, &text::live_frame(&place, body));
        }
    }

    /// A part of another process began, changed or ended with an event.
    fn follow(&mut self, id: PartId, open: bool, frame: &Frame) {
        if self.live.get(&id).is_some_and(|live| live.own) {
            return;
        }
        if !open {
            self.live.remove(&id);
            return;
        }
        let Some(event) = frame.event() else { return };
        if let EventBody::PartUpdated { part, .. } = &event.body
            && (self.live.len() < LIVE || self.live.contains_key(&id))
        {
            let place = Place { directory: frame.directory.clone(), project: frame.project.clone() };
            self.live.insert(id, Live { place, part: (**part).clone(), own: false });
        }
    }

    /// The row of another process's part has this text now: what is new of it is sent.
    fn grown(&mut self, place: Place, part: Part) {
        let Some((id, ..)) = text::ids(&part) else { return };
        let frame = match self.live.get(&id) {
            Some(live) if live.own => return,
            Some(live) => {
                let sent = text::text(&live.part).map_or(0, str::len);
                // Nothing if the text was rewritten: its last event will carry it whole.
                match text::text(&part).and_then(|text| text.get(sent..)) {
                    Some(delta) if !delta.is_empty() => text::delta_frame(&place, &part, delta),
                    _ => return,
                }
            }
            None => text::part_frame(&place, &part),
        };
        if let Some(frame) = frame {
            self.send(None, &frame);
        }
        if self.live.len() < LIVE || self.live.contains_key(&id) {
            self.live.insert(id, Live { place, part, own: false });
        }
    }

    /// Goes to the end of the log without sending anything. One snapshot of the database says where that is and which
    /// parts are growing there: a part that it shows as ended has its last event before that end, sent or not.
    fn refresh(&mut self, snapshot: &Connection, owner: &str) -> Result<(), StoreError> {
        self.published = self.published.max(log::tip(snapshot)?);
        let known = std::mem::take(&mut self.live);
        for (id, live) in known {
            if live.own && log::is_growing(snapshot, &id)? {
                self.live.insert(id, live);
            }
        }
        for growing in log::growing(snapshot, LIVE.saturating_sub(self.live.len()))? {
            let Some((id, ..)) = text::ids(&growing.part) else { continue };
            let own = growing.owner == owner;
            self.live.entry(id).or_insert(Live { place: growing.place, part: growing.part, own });
        }
        Ok(())
    }

    /// Keeps the growing parts that a batch of this process began, and forgets those that it ended.
    fn settle(&mut self, place: &Place, made: &[Op]) {
        let of_session = |live: &Live, id: &SessionId| live.part.head().is_some_and(|head| head.session_id == *id);
        let of_message = |live: &Live, id: &MessageId| live.part.head().is_some_and(|head| head.message_id == *id);
        for op in made {
            match op {
                Op::Event { event, part: Some((id, Some(_))), .. } => {
                    if let EventBody::PartUpdated { part, .. } = &event.body
                        && (self.live.len() < LIVE || self.live.contains_key(id))
                    {
                        let live = Live { place: place.clone(), part: (**part).clone(), own: true };
                        self.live.insert(id.clone(), live);
                    }
                }
                Op::Live(event) => {
                    if let EventBody::PartDelta { part_id, delta, .. } = &event.body
                        && let Some(text) = self.live.get_mut(part_id).and_then(|live| text::text_mut(&mut live.part))
                    {
                        text.push_str(delta);
                    }
                }
                Op::DeletePart(id) => {
                    self.live.remove(id);
                }
                Op::DeleteMessage(id) => self.live.retain(|_, live| !of_message(live, id)),
                Op::DeleteSession(id) | Op::Status { session: id, status: None } => {
                    self.held_up.remove(id);
                    self.live.retain(|_, live| !of_session(live, id));
                }
                _ => {}
            }
        }
        // A row has its last state where it was written first, perhaps before what is told of it.
        for op in made {
            if let Op::Part { id, open: false, .. } = op {
                self.live.remove(id);
            }
        }
    }
}
