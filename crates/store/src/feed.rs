//! The in-process side of the log: watchers with their queues, and the parts whose text is growing right now.
//!
//! One mutex orders everything that watchers can see. Frames are sent under it in the order of their sequence numbers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::{EventBody, Frame, MessageId, Part, PartId, SessionId, WatchScope};
use rusqlite::Connection;
use tokio::sync::mpsc;

use crate::batch::{Batch, Op, Place};
use crate::error::StoreError;
use crate::log::{self, Entry};
use crate::read::Readers;
use crate::text;

/// The most frames that wait for one watcher; a slower one is cut.
pub const WATCH_QUEUE: usize = 4096;

/// The most growing parts that are kept for late watchers. Text of further ones is sent, but not kept.
const LIVE: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct Feed {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Everything up to this sequence number has been sent.
    published: u64,
    watchers: HashMap<u64, Watcher>,
    next: u64,
    live: HashMap<PartId, Live>,
}

#[derive(Debug)]
struct Watcher {
    scope: WatchScope,
    /// What came up to here is replayed from the database.
    base: u64,
    frames: mpsc::Sender<Frame>,
    lagged: Arc<AtomicBool>,
}

/// A part whose text is growing, with what watchers have seen of it.
#[derive(Debug)]
struct Live {
    place: Place,
    part: Part,
    /// Whether this process writes it.
    own: bool,
}

/// A new watcher's end of its queue.
#[derive(Debug)]
pub(crate) struct Attached {
    /// Where the queue begins: it holds what came after this sequence number.
    pub base: u64,
    pub frames: mpsc::Receiver<Frame>,
    pub lagged: Arc<AtomicBool>,
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
        self.lock().watchers.clear();
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
        let (frames, queue) = mpsc::channel(WATCH_QUEUE);
        let lagged = Arc::new(AtomicBool::new(false));
        for (id, live) in &state.live {
            // What another process ended is told by an event to come.
            if !live.own && !readers.read(|conn| log::is_growing(conn, id))? {
                continue;
            }
            if let Some(frame) = text::part_frame(&live.place, &live.part).filter(|frame| frame.within(scope)) {
                // The queue is empty and longer than LIVE, so this cannot fail.
                let _ = frames.try_send(frame);
            }
        }
        let key = state.next;
        state.next += 1;
        state.watchers.insert(key, Watcher { scope: scope.clone(), base, frames, lagged: lagged.clone() });
        Ok(Attached { base, frames: queue, lagged, _guard: Guard { feed: self.clone(), key } })
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
    pub(crate) fn publish_own(&self, batch: &Batch, frames: &[Frame], last: u64) {
        let mut state = self.lock();
        for frame in frames {
            state.send(frame.cursor.as_ref().map(|cursor| cursor.seq), frame);
        }
        state.published = state.published.max(last);
        state.settle(batch);
    }

    /// What is up to here cannot be sent: whoever watches must read anew.
    pub(crate) fn cut(&self, tip: u64) {
        let mut state = self.lock();
        state.published = state.published.max(tip);
        for (_, watcher) in state.watchers.drain() {
            watcher.lagged.store(true, Ordering::Release);
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
        self.watchers.retain(|_, watcher| {
            if seq.is_some_and(|seq| seq <= watcher.base) || !frame.within(&watcher.scope) {
                return true;
            }
            match watcher.frames.try_send(frame.clone()) {
                Ok(()) => true,
                Err(mpsc::error::TrySendError::Full(_)) => {
                    watcher.lagged.store(true, Ordering::Release);
                    false
                }
                Err(mpsc::error::TrySendError::Closed(_)) => false,
            }
        });
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
    fn settle(&mut self, batch: &Batch) {
        let of_session = |live: &Live, id: &SessionId| live.part.head().is_some_and(|head| head.session_id == *id);
        let of_message = |live: &Live, id: &MessageId| live.part.head().is_some_and(|head| head.message_id == *id);
        for op in &batch.ops {
            match op {
                Op::Event { event, part: Some((id, Some(_))), .. } => {
                    if let EventBody::PartUpdated { part, .. } = &event.body
                        && (self.live.len() < LIVE || self.live.contains_key(id))
                    {
                        let live = Live { place: batch.place.clone(), part: (**part).clone(), own: true };
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
                Op::Part { id, open: false, .. } | Op::DeletePart(id) => {
                    self.live.remove(id);
                }
                Op::DeleteMessage(id) => self.live.retain(|_, live| !of_message(live, id)),
                Op::DeleteSession(id) | Op::Status { session: id, status: None } => {
                    self.live.retain(|_, live| !of_session(live, id));
                }
                _ => {}
            }
        }
    }
}
