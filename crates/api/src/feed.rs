//! What a watcher receives: events as bytes that were serialised once, with their place in the log.

use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{Event, EventBody, EventId, SessionId, json_size};

/// A place in the log: the sequence number of an event and its id, so that a cursor of another database is noticed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// The event's sequence number.
    pub seq: u64,
    /// The event's id.
    pub id: EventId,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.seq, self.id)
    }
}

impl std::str::FromStr for Cursor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (seq, id) = text.split_once('-').ok_or_else(|| format!("not a cursor: {text:?}"))?;
        let seq = seq.parse().map_err(|_| format!("not a cursor: {text:?}"))?;
        Ok(Self { seq, id: EventId::parse(id)? })
    }
}

/// Which events a watcher wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchScope {
    /// All of them.
    All,
    /// Those of one directory.
    Directory(String),
    /// Those of one session.
    Session(SessionId),
}

/// One event on its way to a watcher. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Frame {
    /// Its place in the log; nothing for what is live only (text deltas).
    pub cursor: Option<Cursor>,
    /// The directory it happened in; empty for what is everywhere.
    pub directory: Arc<str>,
    /// The project it happened in.
    pub project: Arc<str>,
    /// The session it is about.
    pub session: Option<SessionId>,
    shared: Arc<Shared>,
}

/// What all clones of a frame make only once.
#[derive(Debug, Default)]
struct Shared {
    /// At least one of both is there from the beginning.
    event: OnceLock<Option<Arc<Event>>>,
    json: OnceLock<Bytes>,
    rendered: [OnceLock<Bytes>; RENDERINGS],
}

/// What a frame takes beside its event, about.
const FRAME_BYTES: usize = 512;

/// A frame with more JSON than that is not written once more for each face: they send the JSON from where it is.
pub const SHARED_BYTES: usize = 16 << 10;

/// In how many ways faces write a frame.
pub const RENDERINGS: usize = 2;

impl Frame {
    /// A frame of an event that is at hand.
    pub fn new(cursor: Option<Cursor>, directory: Arc<str>, project: Arc<str>, event: Arc<Event>, json: Bytes) -> Self {
        let frame = Self::live(directory, project, event);
        // It is new, so nobody has written it yet.
        let _ = frame.shared.json.set(json);
        Self { cursor, ..frame }
    }

    /// A frame that is in no log. It is written if somebody wants it written: there are thousands of them.
    pub fn live(directory: Arc<str>, project: Arc<str>, event: Arc<Event>) -> Self {
        let session = event.body.session_id().cloned();
        let shared = Shared { event: OnceLock::from(Some(event)), ..Shared::default() };
        Self { cursor: None, directory, project, session, shared: Arc::new(shared) }
    }

    /// A frame of a stored event, not parsed yet.
    pub fn stored(
        cursor: Cursor,
        directory: Arc<str>,
        project: Arc<str>,
        session: Option<SessionId>,
        json: Bytes,
    ) -> Self {
        let shared = Shared { json: OnceLock::from(json), ..Shared::default() };
        Self { cursor: Some(cursor), directory, project, session, shared: Arc::new(shared) }
    }

    /// The event as JSON; written at the first call, for all clones together.
    pub fn json(&self) -> &Bytes {
        self.shared.json.get_or_init(|| {
            let event = self.shared.event.get().and_then(Option::as_deref);
            // Events can always be written: their keys are strings.
            event.and_then(|event| serde_json::to_vec(event).ok()).unwrap_or_default().into()
        })
    }

    /// The event as a typed value; parsed at the first call, for all clones together.
    pub fn event(&self) -> Option<Arc<Event>> {
        self.shared.event.get_or_init(|| serde_json::from_slice(self.json()).ok().map(Arc::new)).clone()
    }

    /// The frame as a face writes it in one of its [`RENDERINGS`] ways; written at the first call, for all clones together.
    pub fn rendered(&self, way: usize, write: impl FnOnce(&Self) -> Bytes) -> Bytes {
        match self.shared.rendered.get(way) {
            Some(slot) => slot.get_or_init(|| write(self)).clone(),
            None => write(self),
        }
    }

    /// The memory that it takes, about, once everybody has looked at it: the event, its JSON, and that as faces write it.
    pub fn weight(&self) -> usize {
        let json = self.shared.json.get().map(Bytes::len).or_else(|| {
            let event = self.shared.event.get()?.as_deref()?;
            // Text that grows is by far the most frequent event, and is not written for this.
            Some(match &event.body {
                EventBody::PartDelta { delta, .. } => delta.len(),
                _ => json_size(event),
            })
        });
        let json = json.unwrap_or_default();
        FRAME_BYTES + if json > SHARED_BYTES { 2 * json } else { 5 * json }
    }

    /// Whether a watcher of that scope wants it.
    pub fn within(&self, scope: &WatchScope) -> bool {
        match scope {
            WatchScope::All => true,
            WatchScope::Directory(directory) => self.directory.is_empty() || *self.directory == **directory,
            WatchScope::Session(session) => self.session.as_ref() == Some(session),
        }
    }
}

/// What a watcher receives.
#[derive(Debug, Clone)]
pub enum WatchItem {
    /// An event.
    Frame(Frame),
    /// The cursor points to a place that is no longer (or not) in this log: read the state anew, events go on from here.
    Resync(String),
    /// The watcher was too slow; this is the last item. Read the state anew, or watch again from the last cursor.
    Lagged,
}
