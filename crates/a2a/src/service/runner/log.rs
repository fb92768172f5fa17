//! Events and the row, to the records.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::Runner;
use crate::records::{Change, Committed, TaskRow};

/// How long events may be shown before they are in the log.
pub(super) const FLUSH_AFTER: Duration = Duration::from_millis(250);
/// How often a write that must not be lost is tried again, and after which time.
const MAX_RETRIES: u32 = 20;
const RETRY_AFTER: Duration = Duration::from_millis(250);

impl Runner {
    /// Writes what is not in the log yet. If that fails, it is tried again a while later.
    pub(super) async fn flush(&mut self) {
        if self.live.state().is_terminal() || (self.unlogged.is_empty() && !self.is_row_behind) {
            self.flush_at = None;
            return;
        }
        let change = Change::of(&self.row.id);
        self.flush_with(change).await;
    }

    /// Writes what is not in the log, and more. Returns whether it is written.
    pub(super) async fn flush_with(&mut self, mut change: Change) -> bool {
        for event in &self.unlogged {
            change.event(event.clone());
        }
        if self.is_row_behind {
            change.row(self.current_row());
        }
        match self.inner.records.commit(change).await {
            Ok(Committed::Won(row)) => {
                self.took(row);
                true
            }
            Ok(Committed::Lost(row)) => {
                tracing::error!(task = %self.row.id, "somebody else has written the row of a task that runs here");
                if let Some(row) = row {
                    self.row.version = row.version;
                }
                self.flush_at = Some(Instant::now() + FLUSH_AFTER);
                false
            }
            Err(error) => {
                tracing::warn!(%error, task = %self.row.id, "cannot write events of a task; trying again");
                self.flush_at = Some(Instant::now() + FLUSH_AFTER);
                false
            }
        }
    }

    /// Writes the row and what is not in the log, and tries again for a while if that fails. With `work`, its prompt and
    /// messages are on disk then.
    pub(super) async fn write(&mut self, work: bool) -> bool {
        self.is_row_behind = true;
        for _ in 0..MAX_RETRIES {
            let mut change = Change::of(&self.row.id);
            if work {
                change.work(self.work.clone()).durable();
            }
            if self.flush_with(change).await {
                return true;
            }
            if self.wait_to_retry().await {
                break;
            }
        }
        tracing::error!(task = %self.row.id, "cannot write a task; it goes on at the next start");
        false
    }

    /// Whether the service stops.
    pub(super) async fn wait_to_retry(&self) -> bool {
        tokio::select! {
            () = self.inner.closing.cancelled() => true,
            () = sleep(RETRY_AFTER) => false,
        }
    }

    /// How often a write that must not be lost is tried.
    pub(super) fn retries() -> u32 {
        MAX_RETRIES
    }

    fn took(&mut self, row: Option<Box<TaskRow>>) {
        if let Some(row) = row {
            self.row = *row;
            self.is_row_behind = false;
        }
        if let Some(last) = self.unlogged.last() {
            self.live.set_logged(last.seq);
        }
        self.unlogged.clear();
        self.flush_at = self.is_row_behind.then(|| Instant::now() + FLUSH_AFTER);
    }

    fn current_row(&self) -> TaskRow {
        let (status, metadata) = self.live.read(|task| (task.status.clone(), task.metadata.clone()));
        TaskRow { status, metadata, ..self.row.clone() }
    }
}
