//! What a notification says: in 1.0 what the stream says, in 0.3 the task whenever its status changed.

use store::StoreError;

use super::Inner;
use crate::event::{NumberedEvent, TaskEvent};
use crate::model::{Line, Task};
use crate::records::TaskRow;
use crate::wire;

/// The largest notification. In place of a larger one comes the task without its messages and artifacts.
const MAX_BYTES: usize = 4 << 20;
/// How many events are read at a time.
const PAGE: usize = 64;
/// The source of events about requests to the client.
const INTERRUPT: &str = "interrupt";

/// Whether webhooks of a line hear of an event.
pub(super) fn notifies(line: Line, event: &TaskEvent) -> bool {
    match (line, event) {
        (Line::V10, _) => true,
        // Notes about a state that stays as it is have a mark and no text.
        (Line::V03, TaskEvent::Status { status, mark, .. }) => {
            let is_note = mark.as_ref().is_some_and(|mark| mark.source != INTERRUPT) && status.message.is_none();
            !is_note || status.state.is_terminal()
        }
        (Line::V03, _) => false,
    }
}

/// The body of a notification about an event, or about all up to a number.
pub(super) async fn body(
    inner: &Inner,
    row: &TaskRow,
    line: Line,
    upto: u64,
    event: Option<&NumberedEvent>,
) -> Result<Vec<u8>, StoreError> {
    let body = match (line, event) {
        // The event is all that is said.
        (Line::V10, Some(event)) => wire::webhook_body(&bare(row), Some(event), line),
        _ => wire::webhook_body(&task_at(inner, row, upto).await?, None, line),
    };
    if body.len() <= MAX_BYTES {
        return Ok(body);
    }
    let mut task = task_at(inner, row, upto).await?;
    (task.history, task.artifacts) = (Vec::new(), Vec::new());
    Ok(wire::webhook_body(&task, None, line))
}

/// A task without its messages and artifacts.
fn bare(row: &TaskRow) -> Task {
    Task {
        id: row.id.clone(),
        context_id: row.context_id.clone(),
        status: row.status.clone(),
        artifacts: Vec::new(),
        history: Vec::new(),
        metadata: row.metadata.clone(),
    }
}

/// A task as it was after an event; as it is, if its log is gone.
async fn task_at(inner: &Inner, row: &TaskRow, upto: u64) -> Result<Task, StoreError> {
    let content = inner.records.content(&row.id).await?;
    let mut now = bare(row);
    now.history.clone_from(&content.history);
    let mut task = now.clone();
    now.artifacts = content.artifacts;
    if row.state().is_terminal() && upto >= row.last_seq {
        return Ok(now);
    }
    let mut last = 0;
    while last < upto {
        let events = inner.records.events(&row.id, last, PAGE).await?;
        if events.first().is_none_or(|first| first.seq != last + 1) {
            return Ok(now);
        }
        for event in events.iter().take_while(|event| event.seq <= upto) {
            (inner.apply)(&mut task, &event.event);
            // The status of the row may be newer than the event.
            if let TaskEvent::Status { status, .. } = &event.event
                && event.seq == upto
            {
                task.status = status.clone();
            }
        }
        last = events.last().map_or(upto, |event| event.seq);
    }
    Ok(task)
}
