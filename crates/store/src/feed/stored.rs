//! The stored log, as the feed reads it: what other processes committed, and what a new watcher missed.

use api::{Cursor, Frame, Part, PartId};

use crate::batch::Location;
use crate::error::StoreError;

/// One log row written by another process.
#[derive(Debug)]
pub(crate) enum LogEntry {
    /// An event, with the part it opens, changes or closes if that is a growing one.
    Frame { seq: u64, frame: Frame, part: Option<PartId>, open: bool },
    /// A part's text grew; `part` has the text now in its row.
    PartGrew { seq: u64, location: Location, part: Box<Part> },
    /// A part's text grew, but everything was already sent.
    NothingNew { seq: u64 },
}

impl LogEntry {
    pub(crate) fn seq(&self) -> u64 {
        match self {
            Self::Frame { seq, .. } | Self::PartGrew { seq, .. } | Self::NothingNew { seq } => *seq,
        }
    }
}

/// A growing part of a running session.
#[derive(Debug)]
pub(crate) struct GrowingPartRow {
    pub owner: String,
    pub location: Location,
    pub part: Part,
}

/// A page of the log.
#[derive(Debug)]
pub(crate) struct LogPage {
    pub frames: Vec<Frame>,
    /// The sequence number that the page reaches.
    pub end: u64,
    /// Whether rows between the page and what was read before are gone.
    pub is_pruned: bool,
}

/// The end of the log, and the parts that are growing there.
#[derive(Debug)]
pub(crate) struct LogEnd {
    pub tip: u64,
    /// Which of the parts in question have ended.
    pub ended: Vec<PartId>,
    pub growing: Vec<GrowingPartRow>,
}

/// Reads the log. Each call sees one state of it.
pub(crate) trait StoredLog: std::fmt::Debug + Send + Sync {
    /// Why a cursor does not point to an event of this log, or `None` if it does.
    fn check_cursor(&self, cursor: &Cursor) -> Result<Option<String>, StoreError>;
    /// The frames after `after` up to `end`, as many as fit: a few hundred, and the last one is that which reaches
    /// `bytes` in total.
    fn page(&self, after: u64, end: u64, bytes: usize) -> Result<LogPage, StoreError>;
    /// The end of the log, which of `parts` have ended there, and at most `limit` growing parts of running sessions.
    fn end(&self, parts: &[PartId], limit: usize) -> Result<LogEnd, StoreError>;
}
