//! Cancelling a task: marked first, so that it holds over a crash, then stopped.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::intake::shutting_down;
use super::live::Command;
use super::{Service, store_error};
use crate::model::{Task, TaskState};
use crate::{Error, ErrorKind, Principal};

/// What writing the end of a task may take, besides stopping its turn.
const WRITE_TIME: Duration = Duration::from_secs(10);

impl Service {
    /// Cancels a task and stops what runs for it. One that was cancelled before is returned as it is.
    pub async fn cancel(&self, who: &Principal, id: &str) -> Result<Task, Error> {
        let inner = &self.inner;
        let row = inner.records.row(id).map_err(|error| store_error(&error))?;
        inner.access.task(who, id, row.as_ref().map(|row| row.identity.as_str()))?;
        inner.metrics.cancels.add();
        if let Some(live) = inner.live_task(id).filter(|live| !live.state().is_terminal()) {
            inner.records.mark_canceled(id).await.map_err(|error| store_error(&error))?;
            let (done, stopped) = oneshot::channel();
            // Failing to tell it means that it has just ended, or that the service stops.
            if live.send(Command::Cancel(done)).await.is_ok() {
                let _ = timeout(inner.settings.cancel_abort_timeout + WRITE_TIME, stopped).await;
            }
            if !live.state().is_terminal() {
                return Err(shutting_down());
            }
        }
        let task = self.get(who, id, None).await?;
        match task.status.state {
            TaskState::Canceled => Ok(task),
            state if state.is_terminal() => Err(not_cancelable(id, state)),
            _ => Err(shutting_down()),
        }
    }
}

fn not_cancelable(id: &str, state: TaskState) -> Error {
    let state = serde_json::json!(state);
    let message =
        format!("Task {id} has ended and cannot be cancelled; its state is {}", state.as_str().unwrap_or_default());
    Error::new(ErrorKind::TaskNotCancelable, message)
}
