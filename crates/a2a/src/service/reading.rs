//! Tasks as clients read them: one, a page of them, or as a stream.

use super::intake::{task_of, with_history};
use super::live::LiveTask;
use super::stream::EventStream;
use super::{Inner, Service, store_error};
use crate::extension::failure::upstream;
use crate::model::Task;
use crate::records::TaskRow;
use crate::{Error, ListRequest, Principal, TaskPage};

impl Service {
    /// A task.
    pub async fn get(&self, who: &Principal, id: &str, history_length: Option<u32>) -> Result<Task, Error> {
        self.inner.check_task(who, id)?;
        let task = match self.inner.live_task(id) {
            Some(live) => live.snapshot().0,
            None => self.inner.stored(id).await?.ok_or_else(|| Error::task_not_found(id))?.1,
        };
        Ok(with_history(task, history_length))
    }

    /// Tasks.
    pub async fn list(&self, who: &Principal, request: ListRequest) -> Result<TaskPage, Error> {
        let page = self.inner.records.list(&who.identity, &request).await?;
        let mut tasks = Vec::with_capacity(page.rows.len());
        let length = request.history_length.unwrap_or(0);
        for row in page.rows {
            let live = self.inner.live_task(&row.id);
            let mut task = match live {
                Some(live) => live.snapshot().0,
                None if length == 0 && !request.include_artifacts => task_of(&row, Vec::new()),
                None => self.inner.with_content(&row).await?,
            };
            if !request.include_artifacts {
                task.artifacts.clear();
            }
            tasks.push(with_history(task, Some(length)));
        }
        Ok(TaskPage { tasks, next_page_token: page.next, page_size: page.page_size, total_size: page.total })
    }

    /// The events of a task after a number; without one, or if it cannot go on there, the task comes first.
    pub async fn subscribe(&self, who: &Principal, id: &str, after: Option<u64>) -> Result<EventStream, Error> {
        self.inner.check_task(who, id)?;
        self.inner.metrics.stream_requests.add();
        let place = self.inner.streams.enter().map_err(upstream)?;
        if let Some(live) = self.inner.live_task(id) {
            if let Some(after) = after.filter(|after| live.can_resume(*after)) {
                return Ok(EventStream::follow(self.inner.clone(), live, after, None, place));
            }
            let (task, seq) = live.snapshot();
            if task.status.state.is_terminal() {
                return Ok(EventStream::of_ended(task, seq));
            }
            return Ok(EventStream::follow(self.inner.clone(), live, seq, Some(task), place));
        }
        let (row, task) = self.inner.stored(id).await?.ok_or_else(|| Error::task_not_found(id))?;
        let last = row.last_seq;
        if let Some(after) = after.filter(|after| *after < last) {
            let next = self.inner.records.events(id, after, 1).await.map_err(|error| store_error(&error))?;
            // What the log still has is read from there.
            if next.first().is_some_and(|event| event.seq == after + 1) {
                let (ended, _) = LiveTask::new(task, last, false);
                return Ok(EventStream::follow(self.inner.clone(), ended, after, None, place));
            }
        }
        Ok(EventStream::of_ended(task, last))
    }
}

impl Inner {
    /// Fails unless the task is there, and the caller's.
    fn check_task(&self, who: &Principal, id: &str) -> Result<(), Error> {
        let row = self.records.row(id).map_err(|error| store_error(&error))?;
        self.access.task(who, id, row.as_ref().map(|row| row.identity.as_str()))
    }

    /// A task as it is stored.
    pub(super) async fn stored(&self, id: &str) -> Result<Option<(TaskRow, Task)>, Error> {
        let Some(row) = self.records.row(id).map_err(|error| store_error(&error))? else { return Ok(None) };
        let task = self.with_content(&row).await?;
        Ok(Some((row, task)))
    }

    async fn with_content(&self, row: &TaskRow) -> Result<Task, Error> {
        let content = self.records.content(&row.id).await.map_err(|error| store_error(&error))?;
        Ok(Task { artifacts: content.artifacts, ..task_of(row, content.history) })
    }
}
