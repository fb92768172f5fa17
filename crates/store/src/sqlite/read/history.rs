//! The log for readers that do not follow it.

use api::Frame;

use crate::Store;
use crate::error::StoreError;
use crate::sqlite::log;

/// The bytes of events after which a chunk of the log ends.
const PIECE: usize = 1 << 20;

impl Store {
    /// The next events after a sequence number, oldest first, with the number to continue from; `None` at the end of
    /// the log. Text deltas are not included. At most 256 events, up to about a megabyte: a step of a
    /// [long read](Self::long_read).
    pub fn history(&self, after: u64) -> Result<Option<(Vec<Frame>, u64)>, StoreError> {
        self.read(|conn| {
            let tip = log::tip(conn)?;
            let after = after.max(log::first(conn)?.saturating_sub(1));
            if after >= tip {
                return Ok(None);
            }
            Ok(Some(log::replay(conn, after, tip.min(after + log::CHUNK), PIECE)?))
        })
    }
}
