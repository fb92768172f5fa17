//! Upkeep that callers ask for: finishing deletions, expired records, and the size of the file. What the writer does by
//! itself when it is idle is in [`sqlite::write`](crate::sqlite::write).

use api::{SessionId, Timestamp};

use crate::Store;
use crate::error::StoreError;
use crate::sqlite::upkeep::space::{self, CompactOutcome};
use crate::sqlite::upkeep::sweep::{self, Sweep};
use crate::sqlite::write::{WriteRequest, WriteResponse};

impl Store {
    /// Deleted sessions whose rows, events or files may still exist.
    pub fn unswept_sessions(&self) -> Result<Vec<SessionId>, StoreError> {
        self.read(sweep::unswept)
    }

    /// Sessions without a row that still have messages or events, left by an older version. Scans everything, and skips
    /// sessions that a live process is about to write.
    pub fn orphaned_sessions(&self) -> Result<Vec<SessionId>, StoreError> {
        let mut orphaned = Vec::new();
        for session in self.read(space::orphaned_sessions)? {
            if !self.lease_holder(&session)?.is_some_and(|holder| holder.alive) {
                orphaned.push(session);
            }
        }
        Ok(orphaned)
    }

    /// Finishes the deletion of sessions: removes their messages, parts, asks and records, and leaves only the sequence
    /// numbers of their events and the deletion event in the log. Works in steps so that others can write in between,
    /// then forgets the sessions; delete their files first.
    pub async fn sweep(&self, sessions: &[SessionId]) -> Result<(), StoreError> {
        if sessions.is_empty() {
            return Ok(());
        }
        self.run_sweep(Sweep::new(sessions.iter().map(|id| id.as_str().to_owned()).collect())).await
    }

    /// Deletes the records that have expired by `now`, in steps. Writes nothing if there are none.
    pub async fn sweep_records(&self, now: Timestamp) -> Result<(), StoreError> {
        if !self.has_expired_records(now)? {
            return Ok(());
        }
        self.run_sweep(Sweep::of_records(now)).await
    }

    async fn run_sweep(&self, sweep: Sweep) -> Result<(), StoreError> {
        let mut next = Some(sweep);
        while let Some(sweep) = next {
            next = match self.request(WriteRequest::Sweep(sweep)).await? {
                WriteResponse::Sweep(next) => next,
                _ => return Err(StoreError::Closed),
            };
        }
        Ok(())
    }

    /// Makes the file as small as possible: rewrites it if no other process has it open and there is enough space,
    /// otherwise releases the free pages that it can.
    pub async fn compact(&self) -> Result<CompactOutcome, StoreError> {
        let why = match self.rewrite_obstacle()? {
            Some(why) => why,
            None => match self.request(WriteRequest::Rewrite).await {
                Ok(_) => return Ok(CompactOutcome::Rewritten),
                Err(error) => space::transient_reason(&error).ok_or(error)?,
            },
        };
        while let WriteResponse::Upkeep(true) = self.request(WriteRequest::ReleasePages).await? {}
        let can_shrink = self.read(space::can_shrink)?;
        Ok(if can_shrink { CompactOutcome::PagesFreed(why) } else { CompactOutcome::Unchanged(why) })
    }

    /// Why the file cannot be rewritten now, as far as that is known beforehand.
    fn rewrite_obstacle(&self) -> Result<Option<String>, StoreError> {
        let others = self.inner.owners.count_others();
        if others > 0 {
            let (number, uses) = if others == 1 { ("one", "process uses") } else { ("several", "processes use") };
            return Ok(Some(format!("{number} other {uses} it; a rewrite needs it alone")));
        }
        let bytes = self.stats()?.bytes;
        Ok(space::missing_space(&self.inner.readers.path, bytes))
    }
}
