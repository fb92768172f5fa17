//! What a watcher receives: events, serialised once for all watchers, with their position in the log.

use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{Event, EventBody, EventId, SessionId, TurnId, json_size};

/// A position in the log. The event id reveals a cursor that belongs to another database.
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
    /// Those of a session and its descendants.
    Subtree(SessionId),
    /// Those of one turn, without its subagents.
    Turn(TurnId),
}

/// One event on its way to a watcher. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Frame {
    /// Its position in the log; `None` for events that are not stored (text deltas).
    pub cursor: Option<Cursor>,
    /// The directory it happened in; empty for global events.
    pub directory: Arc<str>,
    /// The project it happened in.
    pub project: Arc<str>,
    /// The session it is about.
    pub session: Option<SessionId>,
    /// The number of the turn it is part of, in that session.
    pub turn: Option<u64>,
    /// Who owned its session when the event was stored. `None` for the owner of the machine, and where it is not known:
    /// for events that are not stored, or that an older version stored.
    pub owner: Option<Arc<str>>,
    shared: Arc<Shared>,
}

/// State that all clones of a frame share and compute once.
#[derive(Debug, Default)]
struct Shared {
    /// Either this or `json` is set from the start.
    event: OnceLock<Option<Arc<Event>>>,
    json: OnceLock<Bytes>,
    rendered: [OnceLock<Bytes>; RENDERINGS],
}

/// The approximate size of a frame without its event.
const FRAME_BYTES: usize = 512;

/// Above this size faces do not render a copy of the JSON, but send it from where it is.
pub const SHARED_BYTES: usize = 16 << 10;

/// The number of forms in which faces render a frame.
pub const RENDERINGS: usize = 2;

impl Frame {
    /// A frame for an event that is already parsed and serialised.
    pub fn new(cursor: Option<Cursor>, directory: Arc<str>, project: Arc<str>, event: Arc<Event>, json: Bytes) -> Self {
        let frame = Self::live(directory, project, event);
        // The frame is new, so nobody has set it yet.
        let _ = frame.shared.json.set(json);
        Self { cursor, ..frame }
    }

    /// A frame that is not in the log. It is serialised only on demand, because there are thousands of them.
    pub fn live(directory: Arc<str>, project: Arc<str>, event: Arc<Event>) -> Self {
        let session = event.body.session_id().cloned();
        let shared = Shared { event: OnceLock::from(Some(event)), ..Shared::default() };
        Self { cursor: None, directory, project, session, turn: None, owner: None, shared: Arc::new(shared) }
    }

    /// A frame for a stored event that is not parsed yet.
    pub fn stored(
        cursor: Cursor,
        directory: Arc<str>,
        project: Arc<str>,
        session: Option<SessionId>,
        json: Bytes,
    ) -> Self {
        let shared = Shared { json: OnceLock::from(json), ..Shared::default() };
        Self { cursor: Some(cursor), directory, project, session, turn: None, owner: None, shared: Arc::new(shared) }
    }

    /// The frame as part of a turn of its session.
    #[must_use]
    pub fn of_turn(self, number: Option<u64>) -> Self {
        Self { turn: number, ..self }
    }

    /// The frame as one about a session of this owner.
    #[must_use]
    pub fn of_owner(self, owner: Option<Arc<str>>) -> Self {
        Self { owner, ..self }
    }

    /// The turn it is part of.
    pub fn turn_id(&self) -> Option<TurnId> {
        Some(TurnId::new(self.session.as_ref()?, self.turn?))
    }

    /// The event as JSON; serialised on first use, once for all clones.
    pub fn json(&self) -> &Bytes {
        self.shared.json.get_or_init(|| {
            let event = self.shared.event.get().and_then(Option::as_deref);
            // Events always serialise: their keys are strings.
            event.and_then(|event| serde_json::to_vec(event).ok()).unwrap_or_default().into()
        })
    }

    /// The event as a typed value; parsed on first use, once for all clones.
    pub fn event(&self) -> Option<Arc<Event>> {
        self.shared.event.get_or_init(|| serde_json::from_slice(self.json()).ok().map(Arc::new)).clone()
    }

    /// The frame in one of the [`RENDERINGS`] forms of the faces; rendered on first use, once for all clones.
    pub fn rendered(&self, way: usize, write: impl FnOnce(&Self) -> Bytes) -> Bytes {
        match self.shared.rendered.get(way) {
            Some(slot) => slot.get_or_init(|| write(self)).clone(),
            None => write(self),
        }
    }

    /// Its approximate memory once every reader has used it: the event, its JSON, and the rendered forms.
    pub fn weight(&self) -> usize {
        let json = self.shared.json.get().map(Bytes::len).or_else(|| {
            let event = self.shared.event.get()?.as_deref()?;
            // Text deltas are by far the most frequent events; they are not serialised just for this.
            Some(match &event.body {
                EventBody::PartDelta { delta, .. } => delta.len(),
                _ => json_size(event),
            })
        });
        let json = json.unwrap_or_default();
        FRAME_BYTES + if json > SHARED_BYTES { 2 * json } else { 5 * json }
    }

    /// Whether it falls within a scope.
    pub fn within(&self, scope: &WatchScope) -> bool {
        match scope {
            WatchScope::All => true,
            WatchScope::Directory(directory) => self.directory.is_empty() || *self.directory == **directory,
            WatchScope::Session(session) => self.session.as_ref() == Some(session),
            // Which sessions belong to it changes with the events, so whoever reads them filters further.
            WatchScope::Subtree(_) => self.session.is_some(),
            WatchScope::Turn(turn) => self.turn == Some(turn.number) && self.session.as_ref() == Some(&turn.session),
        }
    }
}

/// What a watcher receives.
#[derive(Debug, Clone)]
pub enum WatchItem {
    /// An event.
    Frame(Frame),
    /// The cursor is not, or no longer, in this log: read the state again; events continue from here.
    Resync(String),
    /// The watcher was too slow; this is the last item. Read the state again, or watch from the last cursor.
    Lagged,
}
