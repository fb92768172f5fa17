//! Messages and parts, including the text that this process's model is writing right now.

use std::collections::HashMap;

use api::{IdStamp, Message, MessageId, MessagePage, MessageWithParts, Part, PartId, SessionId};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::Store;
use crate::error::StoreError;
use crate::feed::text;
use crate::sqlite::log;
use crate::sqlite::read::read_transaction;
use crate::sqlite::row::{self, int, uint};

/// The most bytes of rows that a list of messages reads on its caller's thread, which takes about 0.3 ms.
const SHORT_BYTES: usize = 64 << 10;

/// Texts that are newer than their rows. They are taken before the rows are read, so that a row that has ended in
/// between wins.
pub(super) type LiveTexts = HashMap<PartId, String>;

fn overlay(part: &mut Part, texts: &mut LiveTexts) {
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

/// Parses a message row; its parts are read separately.
fn message_row(row: &Row<'_>) -> Result<Message, StoreError> {
    let text = |column| row.get_ref(column)?.as_str().map_err(rusqlite::Error::from);
    row::json("message", text(0)?, text(1)?)
}

pub(super) fn part_row(row: &Row<'_>, texts: &mut LiveTexts) -> Result<Part, StoreError> {
    let text = |column| row.get_ref(column)?.as_str().map_err(rusqlite::Error::from);
    let (id, json) = (text(0)?, text(1)?);
    let mut part = Part::from_json(json).map_err(|error| row::unreadable("part", id, &error))?;
    overlay(&mut part, texts);
    Ok(part)
}

fn with_parts(conn: &Connection, info: Message, texts: &mut LiveTexts) -> Result<MessageWithParts, StoreError> {
    let mut statement = conn.prepare_cached("SELECT id, json FROM part WHERE message = ?1 ORDER BY position, id")?;
    let mut rows = statement.query([info.id().as_str()])?;
    let mut parts = Vec::new();
    while let Some(row) = rows.next()? {
        parts.push(part_row(row, texts)?);
    }
    Ok(MessageWithParts { info, parts })
}

/// The bytes of JSON in a row of messages or parts.
fn json_bytes(row: &Row<'_>) -> Result<usize, StoreError> {
    Ok(row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?.len())
}

/// A message's position in its session.
pub(super) fn position(conn: &Connection, session: &SessionId, id: &MessageId) -> Result<i64, StoreError> {
    let mut statement = conn.prepare_cached("SELECT position FROM message WHERE id = ?1 AND session = ?2")?;
    let found = statement.query_row([id.as_str(), session.as_str()], |row| row.get(0)).optional()?;
    found.ok_or_else(|| StoreError::NoMessage { id: id.clone() })
}

/// The greatest id stamp among the messages of a session.
pub(crate) fn newest_stamp(conn: &Connection, session: &SessionId) -> Result<IdStamp, StoreError> {
    let mut statement =
        conn.prepare_cached("SELECT stamp FROM message WHERE session = ?1 ORDER BY position DESC LIMIT 1")?;
    let found: Option<String> = statement.query_row([session.as_str()], |row| row.get(0)).optional()?;
    Ok(found.and_then(|digits| IdStamp::parse(&digits)).unwrap_or_default())
}

/// Reads a page, unless its rows have more than `max_bytes`.
fn page(
    conn: &Connection,
    session: &SessionId,
    (limit, before): (Option<usize>, Option<&MessageId>),
    mut max_bytes: usize,
    texts: &mut LiveTexts,
) -> Result<Option<MessagePage>, StoreError> {
    let end = before.map_or(Ok(i64::MAX), |id| position(conn, session, id))?;
    // One more than requested, to see whether there is an older page. A negative limit means all.
    let limit_plus_one = limit.map_or(-1, |limit| int(limit as u64).saturating_add(1));
    let mut statement = conn.prepare_cached(
        "SELECT id, json, position FROM message WHERE session = ?1 AND position < ?2
         ORDER BY position DESC LIMIT ?3",
    )?;
    let mut rows = statement.query(params![session.as_str(), end, limit_plus_one])?;
    let (mut messages, mut begin, mut older) = (Vec::new(), end, None);
    while let Some(row) = rows.next()? {
        if limit == Some(messages.len()) {
            older = messages.last().map(|message: &MessageWithParts| message.info.id().clone());
            break;
        }
        let Some(left) = max_bytes.checked_sub(json_bytes(row)?) else { return Ok(None) };
        max_bytes = left;
        messages.push(MessageWithParts { info: message_row(row)?, parts: Vec::new() });
        begin = row.get(2)?;
    }
    messages.reverse();
    let is_complete = add_parts(conn, session, (begin, end), max_bytes, &mut messages, texts)?;
    Ok(is_complete.then_some(MessagePage { messages, older }))
}

/// Reads the parts of consecutive messages, from position `begin` up to `end`, in one query. One query per message
/// would dominate the time to read a long conversation. Returns false if they have more than `max_bytes`.
fn add_parts(
    conn: &Connection,
    session: &SessionId,
    (begin, end): (i64, i64),
    mut max_bytes: usize,
    messages: &mut [MessageWithParts],
    texts: &mut LiveTexts,
) -> Result<bool, StoreError> {
    let mut statement = conn.prepare_cached(
        "SELECT part.id, part.json, message.id FROM message CROSS JOIN part ON part.message = message.id
         WHERE message.session = ?1 AND message.position >= ?2 AND message.position < ?3
         ORDER BY message.position, part.position, part.id",
    )?;
    let mut rows = statement.query(params![session.as_str(), begin, end])?;
    let mut messages = messages.iter_mut();
    let mut current = messages.next();
    while let Some(row) = rows.next()? {
        let id = row.get_ref(2)?.as_str().map_err(rusqlite::Error::from)?;
        while current.as_ref().is_some_and(|message| message.info.id().as_str() != id) {
            current = messages.next();
        }
        let Some(left) = max_bytes.checked_sub(json_bytes(row)?) else { return Ok(false) };
        max_bytes = left;
        if let Some(message) = &mut current {
            message.parts.push(part_row(row, texts)?);
        }
    }
    Ok(true)
}

impl Store {
    /// Messages of a session with their parts, oldest first: all of them, or the newest `limit` before a message. Has
    /// no bound; [`list_messages`](Self::list_messages) holds up nobody.
    pub fn messages(
        &self,
        session: &SessionId,
        limit: Option<usize>,
        before: Option<&MessageId>,
    ) -> Result<MessagePage, StoreError> {
        Ok(self.messages_within(session, limit, before, usize::MAX)?.unwrap_or_default())
    }

    /// Like [`messages`](Self::messages), if it is a short read: at most 64 KB of rows.
    pub(crate) fn short_messages(
        &self,
        session: &SessionId,
        limit: Option<usize>,
        before: Option<&MessageId>,
    ) -> Result<Option<MessagePage>, StoreError> {
        self.messages_within(session, limit, before, SHORT_BYTES)
    }

    fn messages_within(
        &self,
        session: &SessionId,
        limit: Option<usize>,
        before: Option<&MessageId>,
        max_bytes: usize,
    ) -> Result<Option<MessagePage>, StoreError> {
        let mut texts = self.live_texts(|part| part.head().is_some_and(|head| head.session_id == *session));
        self.read(|conn| {
            let _snapshot = read_transaction(conn)?;
            page(conn, session, (limit, before), max_bytes, &mut texts)
        })
    }

    /// A message and all later ones of its session, each with the number of the turn that wrote it; 0 if unknown. The
    /// engine reads the messages of one turn this way, whose steps are limited.
    pub fn messages_from(
        &self,
        session: &SessionId,
        from: &MessageId,
    ) -> Result<Vec<(MessageWithParts, u64)>, StoreError> {
        let mut texts = self.live_texts(|part| part.head().is_some_and(|head| head.session_id == *session));
        self.read(|conn| {
            let _snapshot = read_transaction(conn)?;
            let mut statement = conn.prepare_cached(
                "SELECT id, json, turn FROM message WHERE session = ?1 AND position >= ?2 ORDER BY position",
            )?;
            let mut rows = statement.query(params![session.as_str(), position(conn, session, from)?])?;
            let mut messages = Vec::new();
            while let Some(row) = rows.next()? {
                messages.push((with_parts(conn, message_row(row)?, &mut texts)?, uint(row.get(2)?)));
            }
            Ok(messages)
        })
    }

    /// The ids of a message and all later ones of its session, or of all its messages. From the index, about 1 µs each;
    /// a turn asks for those after the last one that it knows.
    pub fn message_ids(&self, session: &SessionId, from: Option<&MessageId>) -> Result<Vec<MessageId>, StoreError> {
        self.read(|conn| {
            let _snapshot = read_transaction(conn)?;
            let begin = from.map_or(Ok(0), |id| position(conn, session, id))?;
            let mut statement =
                conn.prepare_cached("SELECT id FROM message WHERE session = ?1 AND position >= ?2 ORDER BY position")?;
            let mut rows = statement.query(params![session.as_str(), begin])?;
            let mut ids = Vec::new();
            while let Some(row) = rows.next()? {
                ids.push(row::id("message", &row.get::<_, String>(0)?)?);
            }
            Ok(ids)
        })
    }

    /// The greatest id stamp among a session's messages: an id [made after it](MessageId::after) sorts last.
    pub fn newest_stamp(&self, session: &SessionId) -> Result<IdStamp, StoreError> {
        self.read(|conn| newest_stamp(conn, session))
    }

    /// The incomplete answers among the newest messages of a session, oldest first. The database filters the rows, so
    /// scanning a long conversation costs next to nothing.
    pub fn incomplete_answers(&self, session: &SessionId, newest: usize) -> Result<Vec<MessageWithParts>, StoreError> {
        let mut texts = self.live_texts(|part| part.head().is_some_and(|head| head.session_id == *session));
        self.read(|conn| {
            let _snapshot = read_transaction(conn)?;
            let mut statement = conn.prepare_cached(
                "SELECT id, json FROM (SELECT id, json, open, position FROM message WHERE session = ?1
                                       ORDER BY position DESC LIMIT ?2)
                 WHERE open = 1 ORDER BY position",
            )?;
            let mut rows = statement.query(params![session.as_str(), int(newest as u64)])?;
            let mut messages = Vec::new();
            while let Some(row) = rows.next()? {
                messages.push(with_parts(conn, message_row(row)?, &mut texts)?);
            }
            Ok(messages)
        })
    }

    /// A message with its parts. Reads rows by key; a message has few parts.
    pub fn message(&self, id: &MessageId) -> Result<Option<MessageWithParts>, StoreError> {
        let mut texts = self.live_texts(|part| part.head().is_some_and(|head| head.message_id == *id));
        self.read(|conn| {
            let _snapshot = read_transaction(conn)?;
            let mut statement = conn.prepare_cached("SELECT id, json FROM message WHERE id = ?1")?;
            let mut rows = statement.query([id.as_str()])?;
            let Some(row) = rows.next()? else { return Ok(None) };
            with_parts(conn, message_row(row)?, &mut texts).map(Some)
        })
    }

    /// Calls `visit` with the JSON of every part that contains `text`. Scans all parts, which takes seconds: for
    /// clean-up on a thread of its own.
    pub fn for_each_part_containing(&self, text: &str, mut visit: impl FnMut(&str)) -> Result<(), StoreError> {
        self.read(|conn| {
            let mut statement = conn.prepare("SELECT json FROM part WHERE instr(json, ?1) > 0")?;
            let mut rows = statement.query([text])?;
            while let Some(row) = rows.next()? {
                visit(row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?);
            }
            Ok(())
        })
    }

    /// A part.
    pub fn part(&self, id: &PartId) -> Result<Option<Part>, StoreError> {
        let mut texts = self.live_texts(|part| part.head().is_some_and(|head| head.id == *id));
        let mut part = self.read(|conn| log::part(conn, id))?;
        if let Some(part) = &mut part {
            overlay(part, &mut texts);
        }
        Ok(part)
    }
}
