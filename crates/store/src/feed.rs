//! The live side of the log: this process's watchers with their queues, and the parts whose text is growing right now.
//!
//! One mutex orders everything that watchers can see. Frames are sent under it, in the order of their sequence numbers.
//! Nothing is read from the database while it is held: every commit needs it.

mod attach;
pub(crate) mod queue;
pub(crate) mod stored;
pub(crate) mod text;
pub(crate) mod watch;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::{EventBody, Frame, MessageId, Part, PartId, SessionId, SessionStatus, WatchScope};

use crate::batch::{Batch, Location, Op};
use crate::feed::queue::{ByteCounter, Queue, QueuedFrame};
use crate::feed::stored::LogEntry;

/// The approximate memory limit for frames queued for all watchers. Beyond it, the watchers furthest behind are cut.
pub const WATCH_BYTES: usize = 16 << 20;

/// The most growing parts that are kept for watchers that attach later. Text of further parts is sent, but not kept.
const MAX_GROWING_PARTS: usize = 1024;

#[derive(Debug)]
pub(crate) struct Feed {
    state: Mutex<FeedState>,
    counter: ByteCounter,
}

#[derive(Debug, Default)]
struct FeedState {
    /// Everything up to this sequence number has been sent.
    published: u64,
    watchers: HashMap<u64, Watcher>,
    next_key: u64,
    growing: HashMap<PartId, GrowingPart>,
    /// Statuses of sessions whose status cannot be stored at the moment.
    transient: HashMap<SessionId, TransientStatus>,
    /// The bytes queued for watchers, and their limit.
    counter: ByteCounter,
    max_bytes: usize,
    /// How many frames were sent so far.
    frames_sent: u64,
    /// Counts what was published, to notice that something was while the database was read.
    publications: u64,
}

#[derive(Debug)]
struct Watcher {
    scope: WatchScope,
    /// Everything up to this sequence number is replayed from the database.
    base: u64,
    queue: Arc<Queue>,
}

/// A part whose text is growing, with the text that watchers have seen so far.
#[derive(Debug)]
struct GrowingPart {
    location: Location,
    part: Part,
    /// Whether this process writes it.
    is_own: bool,
}

/// The status of a session whose turn cannot write to the database.
#[derive(Debug)]
struct TransientStatus {
    location: Location,
    /// The status that is shown.
    shown: SessionStatus,
    /// The status in the session's row.
    stored: SessionStatus,
}

impl Feed {
    /// Creates a feed without watchers. `max_bytes` limits the bytes queued for all watchers together.
    pub(crate) fn new(max_bytes: usize) -> Self {
        let counter = ByteCounter::default();
        Self { state: Mutex::new(FeedState { counter: counter.clone(), max_bytes, ..FeedState::default() }), counter }
    }

    /// The memory of frames that watchers have not read yet.
    pub(crate) fn unread_bytes(&self) -> usize {
        self.counter.bytes()
    }

    fn lock(&self) -> MutexGuard<'_, FeedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts at the current end of the log.
    pub(crate) fn start(&self, tip: u64) {
        self.lock().published = tip;
    }

    /// Whether anyone is watching.
    pub(crate) fn has_watchers(&self) -> bool {
        !self.lock().watchers.is_empty()
    }

    /// The sequence number up to which everything has been sent.
    pub(crate) fn published(&self) -> u64 {
        self.lock().published
    }

    /// Ends all watchers.
    pub(crate) fn close(&self) {
        for (_, watcher) in self.lock().watchers.drain() {
            watcher.queue.close();
        }
    }

    /// Sends text that this process's model wrote. `part` has the full text so far.
    pub(crate) fn send_delta(&self, location: &Location, part: &Part, delta: &str) {
        let (Some(head), Some(full)) = (part.head(), text::text(part)) else { return };
        let mut state = self.lock();
        let has_room = state.growing.len() < MAX_GROWING_PARTS;
        match state.growing.get_mut(&head.id) {
            Some(growing) => {
                // Another process may have written it before this one took over the session.
                growing.is_own = true;
                match text::text_mut(&mut growing.part) {
                    // The usual case: copies only the new text.
                    Some(known) if known.len() + delta.len() == full.len() && full.ends_with(delta) => {
                        known.push_str(delta);
                    }
                    _ => growing.part = part.clone(),
                }
            }
            None if has_room => {
                let growing = GrowingPart { location: location.clone(), part: part.clone(), is_own: true };
                state.growing.insert(head.id.clone(), growing);
            }
            None => {}
        }
        if !state.watchers.is_empty()
            && let Some(frame) = text::delta_frame(location, part, delta)
        {
            state.send(None, &frame);
        }
    }

    /// Sends an event without storing it. If it is a status, `stored` is the one in the session's row.
    pub(crate) fn publish_transient(&self, location: &Location, body: EventBody, stored: Option<SessionStatus>) {
        let mut state = self.lock();
        if let (EventBody::SessionStatus { session_id, status: shown }, Some(stored)) = (&body, stored) {
            let status = TransientStatus { location: location.clone(), shown: shown.clone(), stored };
            state.transient.insert(session_id.clone(), status);
        }
        state.send(None, &text::live_frame(location, body));
    }

    /// Sends the session's stored status, because it can be written again.
    pub(crate) fn restore_status(&self, session: &SessionId) {
        self.lock().restore_status(session);
    }

    /// The status shown in place of a session's stored one.
    pub(crate) fn transient_status(&self, session: &SessionId) -> Option<SessionStatus> {
        self.lock().transient.get(session).map(|status| status.shown.clone())
    }

    /// Replaces stored statuses by the transient ones.
    pub(crate) fn overlay_statuses(&self, statuses: &mut Vec<(SessionId, SessionStatus)>) {
        let state = self.lock();
        if !state.transient.is_empty() {
            statuses.retain(|(session, _)| !state.transient.contains_key(session));
            let shown = state.transient.iter().filter(|(_, status)| status.shown != SessionStatus::Idle);
            statuses.extend(shown.map(|(session, status)| (session.clone(), status.shown.clone())));
        }
    }

    /// The texts of this process's growing parts that `wanted` selects.
    pub(crate) fn live_texts(&self, wanted: impl Fn(&Part) -> bool) -> HashMap<PartId, String> {
        let state = self.lock();
        let own = state.growing.iter().filter(|(_, growing)| growing.is_own && wanted(&growing.part));
        own.filter_map(|(id, growing)| Some((id.clone(), text::text(&growing.part)?.to_owned()))).collect()
    }

    /// How many bytes of another process's growing part were sent.
    pub(crate) fn sent_bytes(&self, part: &PartId) -> usize {
        self.lock().growing.get(part).and_then(|growing| text::text(&growing.part)).map_or(0, str::len)
    }

    /// Sends what other processes committed, in order.
    pub(crate) fn publish_foreign(&self, entries: Vec<LogEntry>) {
        let mut state = self.lock();
        state.publications += 1;
        for entry in entries {
            let seq = entry.seq();
            if seq <= state.published {
                continue;
            }
            state.published = seq;
            match entry {
                LogEntry::Frame { frame, part, open, .. } => {
                    state.send(Some(seq), &frame);
                    state.forget_ended(&frame);
                    if let Some(id) = part {
                        state.follow_part(id, open, &frame);
                    }
                }
                LogEntry::PartGrew { location, part, .. } => state.part_grew(location, *part),
                LogEntry::NothingNew { .. } => {}
            }
        }
    }

    /// Sends the frames of a batch that this process committed, and forgets the parts it ended.
    pub(crate) fn publish_own(&self, batch: &Batch, applied: &[Op], frames: &[Frame], last_seq: u64) {
        let mut state = self.lock();
        state.publications += 1;
        if let Some(lease) = &batch.fence {
            state.restore_status(&lease.session);
        }
        for frame in frames {
            state.send(frame.cursor.as_ref().map(|cursor| cursor.seq), frame);
        }
        state.published = state.published.max(last_seq);
        state.track_growing(&batch.location, applied);
    }

    /// Cuts all watchers, because the log up to `tip` cannot be sent. They must resync.
    pub(crate) fn cut(&self, tip: u64) {
        let mut state = self.lock();
        state.publications += 1;
        state.published = state.published.max(tip);
        for (_, watcher) in state.watchers.drain() {
            watcher.queue.cut();
        }
    }

    /// Skips other processes' commits up to `tip` if nobody is watching.
    pub(crate) fn skip(&self, tip: u64) {
        let mut state = self.lock();
        if state.watchers.is_empty() {
            state.publications += 1;
            state.published = state.published.max(tip);
            state.growing.retain(|_, growing| growing.is_own);
        }
    }
}

impl FeedState {
    /// Sends a frame to every watcher in scope that does not get it by replay. Cuts watchers whose queue is full.
    fn send(&mut self, seq: Option<u64>, frame: &Frame) {
        let Self { watchers, counter, frames_sent, .. } = self;
        let mut queued = None;
        watchers.retain(|_, watcher| {
            if seq.is_some_and(|seq| seq <= watcher.base) || !frame.within(&watcher.scope) {
                return true;
            }
            watcher.queue.push(queued.get_or_insert_with(|| QueuedFrame::new(frame, *frames_sent, counter)).clone())
        });
        *frames_sent += 1;
        if queued.is_some() {
            self.cut_slowest();
        }
    }

    /// Cuts the watchers furthest behind until the queued bytes are within the limit. A watcher that has only the
    /// newest frame left to read is not behind, however large the frame is.
    fn cut_slowest(&mut self) {
        while self.counter.bytes() > self.max_bytes {
            let behind = self.watchers.iter().filter_map(|(key, watcher)| Some((watcher.queue.oldest_unread()?, *key)));
            let Some((_, slowest)) = behind.min() else { return };
            if let Some(watcher) = self.watchers.remove(&slowest) {
                watcher.queue.cut();
            }
        }
    }

    fn restore_status(&mut self, session: &SessionId) {
        if let Some(TransientStatus { location, stored, .. }) = self.transient.remove(session) {
            // Idle would mean that the turn has ended.
            let status = if stored == SessionStatus::Idle { SessionStatus::Busy } else { stored };
            let body = EventBody::SessionStatus { session_id: session.clone(), status };
            self.send(None, &text::live_frame(&location, body));
        }
    }

    /// Tracks another process's part that an event began, changed or ended.
    fn follow_part(&mut self, id: PartId, open: bool, frame: &Frame) {
        if self.growing.get(&id).is_some_and(|growing| growing.is_own) {
            return;
        }
        if !open {
            self.growing.remove(&id);
            return;
        }
        let Some(event) = frame.event() else { return };
        if let EventBody::PartUpdated { part, .. } = &event.body
            && (self.growing.len() < MAX_GROWING_PARTS || self.growing.contains_key(&id))
        {
            let location = Location::new(frame.directory.clone(), frame.project.clone()).in_turn(frame.turn);
            self.growing.insert(id, GrowingPart { location, part: (**part).clone(), is_own: false });
        }
    }

    /// Forgets the parts of another process that an event removed, or whose turn it ended.
    fn forget_ended(&mut self, frame: &Frame) {
        let Some(session) = &frame.session else { return };
        let is_theirs = |growing: &GrowingPart| {
            !growing.is_own && growing.part.head().is_some_and(|head| head.session_id == *session)
        };
        if !self.growing.values().any(is_theirs) {
            return;
        }
        let Some(event) = frame.event() else { return };
        let is_ended = |growing: &GrowingPart| match (&event.body, growing.part.head()) {
            (EventBody::SessionDeleted { .. } | EventBody::SessionIdle { .. }, _) => true,
            (EventBody::SessionStatus { status, .. }, _) => *status == SessionStatus::Idle,
            (EventBody::MessageRemoved { message_id, .. }, Some(head)) => head.message_id == *message_id,
            (EventBody::PartRemoved { part_id, .. }, Some(head)) => head.id == *part_id,
            _ => false,
        };
        self.growing.retain(|_, growing| !(is_theirs(growing) && is_ended(growing)));
    }

    /// Sends the new text of another process's part, whose row now has this text.
    fn part_grew(&mut self, location: Location, part: Part) {
        let Some((id, ..)) = text::ids(&part) else { return };
        let frame = match self.growing.get(&id) {
            Some(growing) if growing.is_own => return,
            Some(growing) => {
                let sent = text::text(&growing.part).map_or(0, str::len);
                // Sends nothing if the text was rewritten: the part's last event carries all of it.
                match text::text(&part).and_then(|text| text.get(sent..)) {
                    Some(delta) if !delta.is_empty() => text::delta_frame(&location, &part, delta),
                    _ => return,
                }
            }
            None => text::part_frame(&location, &part),
        };
        if let Some(frame) = frame {
            self.send(None, &frame);
        }
        if self.growing.len() < MAX_GROWING_PARTS || self.growing.contains_key(&id) {
            self.growing.insert(id, GrowingPart { location, part, is_own: false });
        }
    }

    /// Tracks the growing parts that a batch of this process began, and forgets those it ended.
    fn track_growing(&mut self, location: &Location, applied: &[Op]) {
        let of_session =
            |growing: &GrowingPart, id: &SessionId| growing.part.head().is_some_and(|head| head.session_id == *id);
        let of_message =
            |growing: &GrowingPart, id: &MessageId| growing.part.head().is_some_and(|head| head.message_id == *id);
        for op in applied {
            match op {
                Op::Event { event, part: Some((id, Some(_))), .. } => {
                    if let EventBody::PartUpdated { part, .. } = &event.body
                        && (self.growing.len() < MAX_GROWING_PARTS || self.growing.contains_key(id))
                    {
                        let growing = GrowingPart { location: location.clone(), part: (**part).clone(), is_own: true };
                        self.growing.insert(id.clone(), growing);
                    }
                }
                Op::Delta(event) => {
                    if let EventBody::PartDelta { part_id, delta, .. } = &event.body
                        && let Some(text) =
                            self.growing.get_mut(part_id).and_then(|growing| text::text_mut(&mut growing.part))
                    {
                        text.push_str(delta);
                    }
                }
                Op::DeletePart(id) => {
                    self.growing.remove(id);
                }
                Op::DeleteMessage(id) => self.growing.retain(|_, growing| !of_message(growing, id)),
                Op::DeleteSession(id) | Op::Status { session: id, status: None } => {
                    self.transient.remove(id);
                    self.growing.retain(|_, growing| !of_session(growing, id));
                }
                _ => {}
            }
        }
        // A batch holds a row's last state at its first position, possibly before the event that opens the part. So
        // closed parts are removed only now.
        for op in applied {
            if let Op::Part { id, open: false, .. } = op {
                self.growing.remove(id);
            }
        }
    }
}
