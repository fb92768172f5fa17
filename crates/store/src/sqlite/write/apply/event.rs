//! Writes the events of a batch to the log.

use std::sync::Arc;

use api::{Cursor, Event, EventBody, Frame, SessionId};
use bytes::Bytes;
use rusqlite::params;

use super::{BatchWriter, run};
use crate::error::StoreError;
use crate::sqlite::row::{int, uint};
use crate::sqlite::{log, turn};

/// A row of the log.
#[derive(Default)]
pub(super) struct LogRow<'a> {
    pub id: &'a str,
    pub session: Option<&'a str>,
    pub turn: Option<u64>,
    pub part: Option<&'a str>,
    pub length: Option<usize>,
    pub json: Option<&'a str>,
    pub owner: Option<&'a str>,
}

impl BatchWriter<'_> {
    /// Logs an event that the batch causes only while it is applied.
    pub(crate) fn log_new_event(&mut self, body: EventBody) -> Result<(), StoreError> {
        let event = Arc::new(Event::new(body));
        let json = serde_json::to_string(&event).map_err(|error| StoreError::Invalid(error.to_string()))?;
        self.log_event(&event, &Bytes::from(json), (None, None))
    }

    pub(crate) fn log_event(
        &mut self,
        event: &Arc<Event>,
        json: &Bytes,
        (part, length): (Option<&str>, Option<usize>),
    ) -> Result<(), StoreError> {
        let turn = self.turn_of_event(event)?;
        let session = event.body.session_id().map(SessionId::as_str);
        // JSON is always UTF-8; stored as text, any SQLite tool can read it.
        let text = std::str::from_utf8(json).map_err(|error| StoreError::Invalid(error.to_string()))?;
        let (owner, id) = (self.owner_of_event(event)?, event.id.as_str());
        self.log(&LogRow { id, session, turn, part, length, json: Some(text), owner: owner.as_deref() })?;
        let location = &self.batch.location;
        let cursor = Cursor { seq: self.applied.last, id: event.id.clone() };
        let (directory, project) = (location.directory.clone(), location.project.clone());
        let frame = Frame::new(Some(cursor), directory, project, event.clone(), json.clone());
        self.applied.frames.push(frame.of_turn(turn).of_owner(owner));
        Ok(())
    }

    /// Sends an event to the watchers of this process, without a row.
    pub(super) fn send_live(&mut self, event: &Arc<Event>) -> Result<(), StoreError> {
        let owner = self.owner_of_event(event)?;
        let location = &self.batch.location;
        let frame = Frame::live(location.directory.clone(), location.project.clone(), event.clone());
        self.applied.frames.push(frame.of_turn(location.turn).of_owner(owner));
        Ok(())
    }

    /// Adds a row to the log.
    pub(super) fn log(&mut self, row: &LogRow<'_>) -> Result<(), StoreError> {
        let LogRow { id, session, turn, part, length, json, owner } = row;
        let length = length.map(|length| i64::try_from(length).unwrap_or(i64::MAX));
        let before = self.applied.total.map_or_else(|| log::total_bytes(self.conn), Ok)?;
        let bytes = json.map_or(0, str::len) as u64 + log::ROW_OVERHEAD_BYTES;
        let location = &self.batch.location;
        let (directory, project, total) = (&*location.directory, &*location.project, int(before + bytes));
        run(
            self.conn,
            "INSERT INTO event (id, session, directory, project, part, length, total, json, turn, owner)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            params![id, session, directory, project, part, length, total, json, turn.map(int), owner],
        )?;
        self.applied.last = uint(self.conn.last_insert_rowid());
        self.applied.logged += 1;
        self.applied.total = Some(before + bytes);
        self.applied.logged_bytes += bytes;
        Ok(())
    }

    /// The owner of the session that an event is about, also if this batch has deleted it.
    fn owner_of_event(&mut self, event: &Event) -> Result<Option<Arc<str>>, StoreError> {
        let Some(session) = event.body.session_id() else { return Ok(None) };
        match self.applied.deleted_owners.iter().find(|(id, _)| id == session) {
            Some((_, owner)) => Ok(Some(owner.clone())),
            None => self.owners.of(self.conn, session),
        }
    }

    /// The turn that an event is part of: the batch's own, or for the answer to an ask the one that asked.
    fn turn_of_event(&self, event: &Event) -> Result<Option<u64>, StoreError> {
        let Some(session) = event.body.session_id() else { return Ok(None) };
        match (self.turn_of(session), &event.body) {
            (
                None,
                EventBody::PermissionReplied { .. }
                | EventBody::QuestionReplied { .. }
                | EventBody::QuestionRejected { .. },
            ) => turn::running(self.conn, session),
            (turn, _) => Ok(turn),
        }
    }

    /// The turn of a session that the batch is part of, or that it has begun or added to.
    pub(crate) fn turn_of(&self, session: &SessionId) -> Option<u64> {
        let is_own = self.batch.fence.as_ref().is_some_and(|lease| lease.session == *session);
        let own = self.batch.location.turn.filter(|_| is_own);
        own.or_else(|| self.applied.turn.as_ref().filter(|(of, _)| of == session).map(|(_, number)| *number))
    }
}
