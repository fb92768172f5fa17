//! Changes of a task, and its end.

use store::{Batch, StoreError};

use super::keys::{self, Lane, Stamp};
use super::{Change, Committed, Records, TaskContent, TaskRow, complete, list, log, tasks, to_json};
use crate::model::TaskState;

impl Records {
    /// Writes changes of a task. Nothing is written once the task has ended.
    pub async fn commit(&self, change: Change) -> Result<Committed, StoreError> {
        let records = self.clone();
        complete(async move {
            match change.content.is_some() {
                true => records.end_now(change).await,
                false => records.change_now(change).await,
            }
        })
        .await
    }

    async fn change_now(&self, mut change: Change) -> Result<Committed, StoreError> {
        let Some(open) = self.inner.open.get(&change.task) else { return self.lost(&change.task) };
        let last_seq = change.events.last().map_or(open.last_seq, |event| event.seq);
        let mut batch = self.batch(change.durable);
        if let Some(row) = &mut change.row {
            if row.state().is_terminal() {
                return Err(StoreError::Invalid(format!("the end of task {} without its content", row.id)));
            }
            row.last_seq = last_seq;
            row.changed = api::now();
            batch.record(keys::TASK, &row.id, Some(&to_json(row)?), Some(row.version));
        }
        if let Some(work) = &change.work {
            batch.record(keys::OPEN, &change.task, Some(&to_json(work)?), None);
        }
        self.add_rest(&mut batch, &change, open.last_seq)?;
        if batch.is_empty() {
            return Ok(Committed::Won(None));
        }
        let outcome = match self.inner.store.commit(batch).await {
            Ok(outcome) => outcome,
            Err(StoreError::Conflict { .. }) => return self.lost(&change.task),
            Err(error) => return Err(error),
        };
        if let Some(row) = &mut change.row {
            row.version = outcome.versions.first().copied().unwrap_or(0);
        }
        self.inner.open.change(&change.task, |task| {
            task.last_seq = last_seq;
            if let Some(row) = &change.row {
                (task.state, task.stamp) = (row.state(), Stamp::of(row.status.timestamp));
            }
        });
        self.apply_rest(&change);
        Ok(Committed::Won(change.row.map(Box::new)))
    }

    /// Writes the end of a task. Ends are written one after another, so that their stamps have the order of the commits.
    async fn end_now(&self, mut change: Change) -> Result<Committed, StoreError> {
        let (Some(mut row), Some(content)) = (change.row.take(), change.content.take()) else {
            return Err(StoreError::Invalid(format!("the end of task {} without its row", change.task)));
        };
        if !row.state().is_terminal() {
            return Err(StoreError::Invalid(format!("the content of task {} before its end", row.id)));
        }
        let mut totals = self.inner.totals.write().await;
        let Some(open) = self.inner.open.get(&row.id) else { return self.lost(&row.id) };
        let stamp = Stamp::of(row.status.timestamp).max(totals.stamp.next());
        row.status.timestamp = stamp.time();
        row.last_seq = change.events.last().map_or(open.last_seq, |event| event.seq);
        row.changed = api::now();
        let ended = totals.with(stamp);
        let mut batch = self.batch(change.durable);
        self.add_end(&mut batch, &row, &content, stamp)?;
        batch.record(keys::META, keys::TOTALS, Some(&to_json(&ended)?), None);
        if open.cancel_requested {
            batch.record(keys::CANCELED, &row.id, None, None);
        }
        self.add_rest(&mut batch, &change, open.last_seq)?;
        match self.inner.store.commit(batch).await {
            Ok(outcome) => row.version = outcome.versions.first().copied().unwrap_or(0),
            Err(StoreError::Conflict { .. }) => return self.lost(&row.id),
            Err(error) => return Err(error),
        }
        *totals = ended;
        self.inner.open.remove(&row.id);
        drop(totals);
        self.apply_rest(&change);
        Ok(Committed::Won(Some(Box::new(row))))
    }

    fn add_end(&self, batch: &mut Batch, row: &TaskRow, content: &TaskContent, stamp: Stamp) -> Result<(), StoreError> {
        batch.record(keys::TASK, &row.id, Some(&to_json(row)?), Some(row.version));
        batch.record(keys::OPEN, &row.id, None, None);
        batch.record(keys::CONTENT, &row.id, Some(&to_json(content)?), None);
        for lane in lanes(&row.identity, &row.context_id, row.state()) {
            let number = list::last_number(&self.inner.store, &lane)? + 1;
            batch.record(keys::INDEX, &lane.key(stamp, &row.id), Some(&number.into()), None);
        }
        batch.record(keys::ENDED, &keys::ended(stamp, &row.id), Some(&true.into()), None);
        Ok(())
    }

    /// What a change has besides the row.
    fn add_rest(&self, batch: &mut Batch, change: &Change, last_seq: u64) -> Result<(), StoreError> {
        log::append(batch, &change.task, &change.events)?;
        for (identity, message_id, known) in &change.messages {
            batch.record(keys::MESSAGE, &keys::message(identity, message_id), Some(&to_json(known)?), None);
        }
        for request_id in &change.resolved {
            batch.record(keys::INTERRUPT, request_id, None, None);
        }
        for (interrupt, tombstone) in &change.interrupts {
            self.add_interrupt(batch, interrupt, *tombstone)?;
        }
        if let Some(push) = &change.push {
            self.add_push(batch, push, Some(last_seq))?;
        }
        Ok(())
    }

    /// Takes over in memory what was written.
    fn apply_rest(&self, change: &Change) {
        for request_id in &change.resolved {
            self.inner.interrupts.remove(request_id);
        }
        for (interrupt, tombstone) in &change.interrupts {
            self.inner.interrupts.insert(interrupt.clone(), *tombstone);
        }
        if change.push.is_some() {
            self.inner.followed.add(&change.task);
        }
        if !change.events.is_empty() {
            self.inner.followed.wake(&change.task);
        }
    }

    fn lost(&self, task: &str) -> Result<Committed, StoreError> {
        Ok(Committed::Lost(tasks::row(&self.inner.store, task)?.map(Box::new)))
    }
}

/// The lanes that an ended task is in.
pub(super) fn lanes(identity: &str, context: &str, state: TaskState) -> [Lane; 2] {
    [Lane::new(identity, None, state), Lane::new(identity, Some(context), state)]
}
