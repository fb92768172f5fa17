//! Messages and parts, with the text that this process's model is writing right now.

use std::collections::HashMap;

use api::{Message, MessageId, MessagePage, MessageWithParts, Part, PartId, SessionId};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::Store;
use crate::error::StoreError;
use crate::read::one_moment;
use crate::row::{self, int};
use crate::{log, text};

/// Texts that are newer than their rows. They are taken before the rows are read: a row that ended meanwhile wins.
type Texts = HashMap<PartId, String>;

fn overlay(part: &mut Part, texts: &mut Texts) {
    if !text::is_open(part) {
        return;
    }
    let newer = part.head().and_then(|head| texts.remove(&head.id));
    if let (Some(newer), Some(text)) = (newer, text::text_mut(part))
        && newer.len() > text.len()
    {
        *text = newer;
    }
}

/// A message of which the parts are still to be read.
fn bare(row: &Row<'_>) -> Result<Message, StoreError> {
    let text = |column| row.get_ref(column)?.as_str().map_err(rusqlite::Error::from);
    row::json("message", text(0)?, text(1)?)
}

fn part(row: &Row<'_>, texts: &mut Texts) -> Result<Part, StoreError> {
    let text = |column| row.get_ref(column)?.as_str().map_err(rusqlite::Error::from);
    let (id, json) = (text(0)?, text(1)?);
    let mut part = Part::from_json(json).map_err(|error| row::unreadable("part", id, &error))?;
    overlay(&mut part, texts);
    Ok(part)
}

fn with_parts(conn: &Connection, info: Message, texts: &mut Texts) -> Result<MessageWithParts, StoreError> {
    let mut statement = conn.prepare_cached("SELECT id, json FROM part WHERE message = ?1 ORDER BY id")?;
    let mut rows = statement.query([info.id().as_str()])?;
    let mut parts = Vec::new();
    while let Some(row) = rows.next()? {
        parts.push(part(row, texts)?);
    }
    Ok(MessageWithParts { info, parts })
}

/// Where a message stands in its session.
fn place(conn: &Connection, session: &SessionId, id: &MessageId) -> Result<Option<(i64, i64)>, StoreError> {
    let mut statement = conn.prepare_cached("SELECT created, rowid FROM message WHERE id = ?1 AND session = ?2")?;
    Ok(statement.query_row([id.as_str(), session.as_str()], |row| Ok((row.get(0)?, row.get(1)?))).optional()?)
}

fn page(
    conn: &Connection,
    session: &SessionId,
    limit: Option<usize>,
    before: Option<&MessageId>,
    texts: &mut Texts,
) -> Result<MessagePage, StoreError> {
    let end = match before {
        Some(id) => place(conn, session, id)?.ok_or_else(|| StoreError::NoMessage { id: id.clone() })?,
        None => (i64::MAX, i64::MAX),
    };
    // One more than wanted tells whether there is an older page; a negative limit means all.
    let most = limit.map_or(-1, |limit| int(limit as u64).saturating_add(1));
    let mut statement = conn.prepare_cached(
        "SELECT id, json, created, rowid FROM message WHERE session = ?1 AND (created, rowid) < (?2, ?3)
         ORDER BY created DESC, rowid DESC LIMIT ?4",
    )?;
    let mut rows = statement.query(params![session.as_str(), end.0, end.1, most])?;
    let (mut messages, mut begin, mut older) = (Vec::new(), end, None);
    while let Some(row) = rows.next()? {
        if limit == Some(messages.len()) {
            older = messages.last().map(|message: &MessageWithParts| message.info.id().clone());
            break;
        }
        messages.push(MessageWithParts { info: bare(row)?, parts: Vec::new() });
        begin = (row.get(2)?, row.get(3)?);
    }
    messages.reverse();
    add_parts(conn, session, (begin, end), &mut messages, texts)?;
    Ok(MessagePage { messages, older })
}

/// Reads the parts of successive messages, from one place up to another, with one query: a query for each message would
/// take most of the time that a long conversation takes.
fn add_parts(
    conn: &Connection,
    session: &SessionId,
    (begin, end): ((i64, i64), (i64, i64)),
    messages: &mut [MessageWithParts],
    texts: &mut Texts,
) -> Result<(), StoreError> {
    let mut statement = conn.prepare_cached(
        "SELECT part.id, part.json, message.id FROM message CROSS JOIN part ON part.message = message.id
         WHERE message.session = ?1 AND (message.created, message.rowid) >= (?2, ?3)
           AND (message.created, message.rowid) < (?4, ?5)
         ORDER BY message.created, message.rowid, part.id",
    )?;
    let mut rows = statement.query(params![session.as_str(), begin.0, begin.1, end.0, end.1])?;
    let mut messages = messages.iter_mut();
    let mut current = messages.next();
    while let Some(row) = rows.next()? {
        let id = row.get_ref(2)?.as_str().map_err(rusqlite::Error::from)?;
        while current.as_ref().is_some_and(|message| message.info.id().as_str() != id) {
            current = messages.next();
        }
        if let Some(message) = &mut current {
            message.parts.push(part(row, texts)?);
        }
    }
    Ok(())
}

impl Store {
    /// Messages of a session with their parts, oldest first: all, or the newest `limit` of those before one.
    pub fn messages(
        &self,
        session: &SessionId,
        limit: Option<usize>,
        before: Option<&MessageId>,
    ) -> Result<MessagePage, StoreError> {
        let mut texts = self.texts(|part| part.head().is_some_and(|head| head.session_id == *session));
        self.read(|conn| {
            let _moment = one_moment(conn)?;
            page(conn, session, limit, before, &mut texts)
        })
    }

    /// That message and all later ones of its session.
    pub fn messages_from(&self, session: &SessionId, from: &MessageId) -> Result<Vec<MessageWithParts>, StoreError> {
        let mut texts = self.texts(|part| part.head().is_some_and(|head| head.session_id == *session));
        self.read(|conn| {
            let _moment = one_moment(conn)?;
            let (created, rowid) =
                place(conn, session, from)?.ok_or_else(|| StoreError::NoMessage { id: from.clone() })?;
            let mut statement = conn.prepare_cached(
                "SELECT id, json FROM message WHERE session = ?1 AND (created, rowid) >= (?2, ?3)
                 ORDER BY created, rowid",
            )?;
            let mut rows = statement.query(params![session.as_str(), created, rowid])?;
            let mut messages = Vec::new();
            while let Some(row) = rows.next()? {
                messages.push(with_parts(conn, bare(row)?, &mut texts)?);
            }
            Ok(messages)
        })
    }

    /// The ids of that message and of all later ones of its session.
    pub fn message_ids_from(&self, session: &SessionId, from: &MessageId) -> Result<Vec<MessageId>, StoreError> {
        self.read(|conn| {
            let _moment = one_moment(conn)?;
            let (created, rowid) =
                place(conn, session, from)?.ok_or_else(|| StoreError::NoMessage { id: from.clone() })?;
            let mut statement = conn.prepare_cached(
                "SELECT id FROM message WHERE session = ?1 AND (created, rowid) >= (?2, ?3) ORDER BY created, rowid",
            )?;
            let mut rows = statement.query(params![session.as_str(), created, rowid])?;
            let mut ids = Vec::new();
            while let Some(row) = rows.next()? {
                ids.push(row::id("message", &row.get::<_, String>(0)?)?);
            }
            Ok(ids)
        })
    }

    /// The answers among the newest so many messages of a session that are not complete, oldest first. The rows are
    /// judged by the database, so that looking through a long conversation costs next to nothing.
    pub fn incomplete(&self, session: &SessionId, newest: usize) -> Result<Vec<MessageWithParts>, StoreError> {
        let mut texts = self.texts(|part| part.head().is_some_and(|head| head.session_id == *session));
        self.read(|conn| {
            let _moment = one_moment(conn)?;
            let mut statement = conn.prepare_cached(
                "SELECT id, json FROM (SELECT id, json, created, rowid AS place FROM message WHERE session = ?1
                                       ORDER BY created DESC, rowid DESC LIMIT ?2)
                 WHERE json ->> '$.role' = 'assistant' AND json ->> '$.time.completed' IS NULL ORDER BY created, place",
            )?;
            let mut rows = statement.query(params![session.as_str(), int(newest as u64)])?;
            let mut messages = Vec::new();
            while let Some(row) = rows.next()? {
                messages.push(with_parts(conn, bare(row)?, &mut texts)?);
            }
            Ok(messages)
        })
    }

    /// A message with its parts.
    pub fn message(&self, id: &MessageId) -> Result<Option<MessageWithParts>, StoreError> {
        let mut texts = self.texts(|part| part.head().is_some_and(|head| head.message_id == *id));
        self.read(|conn| {
            let _moment = one_moment(conn)?;
            let mut statement = conn.prepare_cached("SELECT id, json FROM message WHERE id = ?1")?;
            let mut rows = statement.query([id.as_str()])?;
            let Some(row) = rows.next()? else { return Ok(None) };
            with_parts(conn, bare(row)?, &mut texts).map(Some)
        })
    }

    /// A part.
    pub fn part(&self, id: &PartId) -> Result<Option<Part>, StoreError> {
        let mut texts = self.texts(|part| part.head().is_some_and(|head| head.id == *id));
        let mut part = self.read(|conn| log::part(conn, id))?;
        if let Some(part) = &mut part {
            overlay(part, &mut texts);
        }
        Ok(part)
    }
}
