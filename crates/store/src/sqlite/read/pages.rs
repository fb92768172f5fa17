//! Reads a long conversation in pages, so that nobody holds all of it in memory and no read takes long.

use api::{MessageId, MessagePage, MessageWithParts, SessionId};
use rusqlite::{Connection, OptionalExtension, params};

use crate::Store;
use crate::error::StoreError;
use crate::sqlite::read::message::{LiveTexts, part_row, position};
use crate::sqlite::row::{self, int};

/// The most messages in a page.
const MAX_MESSAGES: usize = 128;
/// Up to this many messages may be read on their caller's thread.
const FEW_MESSAGES: usize = 32;
/// A page ends with the message that reaches this many bytes.
const MAX_BYTES: usize = 512 << 10;

/// The messages that a session had when the pages were requested, oldest first.
#[derive(Debug)]
pub struct MessagePages {
    store: Store,
    session: SessionId,
    /// Everything up to this position was read.
    after: i64,
    /// The first position that is not included.
    end: i64,
    /// Whether everything was read.
    done: bool,
    older: bool,
}

impl Store {
    /// Reads a session in pages: all of it, or the newest `limit` messages before a message.
    pub fn message_pages(
        &self,
        session: &SessionId,
        limit: Option<usize>,
        before: Option<&MessageId>,
    ) -> Result<MessagePages, StoreError> {
        let (after, end) = self.read(|conn| {
            let end = match before {
                Some(id) => position(conn, session, id)?,
                None => position_from_end(conn, session, i64::MAX, 0)?.map_or(0, |newest| newest + 1),
            };
            let after = limit.map(|limit| position_from_end(conn, session, end, limit)).transpose()?.flatten();
            Ok((after, end))
        })?;
        let (store, session, older) = (self.clone(), session.clone(), after.is_some());
        Ok(MessagePages { store, session, after: after.unwrap_or(i64::MIN), end, done: false, older })
    }

    /// Like [`messages`](Self::messages), but holds up nobody: a few short messages are read at once, everything else
    /// page by page as [long reads](Self::long_read).
    pub async fn list_messages(
        &self,
        session: &SessionId,
        limit: Option<usize>,
        before: Option<&MessageId>,
    ) -> Result<MessagePage, StoreError> {
        if !self.has_many_messages(session, limit, before)?
            && let Some(page) = self.short_messages(session, limit, before)?
        {
            return Ok(page);
        }
        let (session, before) = (session.clone(), before.cloned());
        let read = move |store: &Self| {
            let mut pages = store.message_pages(&session, limit, before.as_ref())?;
            let page = pages.next_page()?;
            Ok::<_, StoreError>((pages, page))
        };
        let (mut pages, mut messages) = self.long_read(read).await?;
        while !pages.is_done() {
            let page;
            (pages, page) = pages.read_page().await?;
            messages.extend(page);
        }
        let older = messages.first().filter(|_| pages.has_older()).map(|message| message.info.id().clone());
        Ok(MessagePage { messages, older })
    }
}

impl Store {
    /// Whether a list has so many messages that an attempt to read them at once would likely be in vain. A look into
    /// the index.
    fn has_many_messages(
        &self,
        session: &SessionId,
        limit: Option<usize>,
        before: Option<&MessageId>,
    ) -> Result<bool, StoreError> {
        if limit.is_some_and(|limit| limit <= FEW_MESSAGES) {
            return Ok(false);
        }
        self.read(|conn| {
            let end = before.map_or(Ok(i64::MAX), |id| position(conn, session, id))?;
            Ok(position_from_end(conn, session, end, FEW_MESSAGES)?.is_some())
        })
    }
}

/// The position of the message that is `skip` messages before the newest one.
fn position_from_end(
    conn: &Connection,
    session: &SessionId,
    before: i64,
    skip: usize,
) -> Result<Option<i64>, StoreError> {
    let mut statement = conn.prepare_cached(
        "SELECT position FROM message WHERE session = ?1 AND position < ?2 ORDER BY position DESC LIMIT 1 OFFSET ?3",
    )?;
    Ok(statement.query_row(params![session.as_str(), before, int(skip as u64)], |row| row.get(0)).optional()?)
}

impl MessagePages {
    /// Returns the next messages; empty once there are no more. A page has at most 128 messages and ends with the one
    /// that reaches 512 KB, so it is a step of a [long read](Store::long_read).
    pub fn next_page(&mut self) -> Result<Vec<MessageWithParts>, StoreError> {
        if self.done {
            return Ok(Vec::new());
        }
        let mut texts = self.store.live_texts(|part| part.head().is_some_and(|head| head.session_id == self.session));
        let (page, after) = self.store.read(|conn| read_page(conn, &self.session, self.after, self.end, &mut texts))?;
        match after {
            Some(after) => self.after = after,
            None => self.done = true,
        }
        Ok(page)
    }

    /// Returns the next messages, and what comes after them. Reads them as a [long read](Store::long_read).
    pub async fn read_page(mut self) -> Result<(Self, Vec<MessageWithParts>), StoreError> {
        let store = self.store.clone();
        let read = move |_: &Store| {
            let page = self.next_page()?;
            Ok::<_, StoreError>((self, page))
        };
        store.long_read(read).await
    }

    /// Whether there are older messages beyond the limit.
    pub fn has_older(&self) -> bool {
        self.older
    }

    /// Whether everything was read.
    pub fn is_done(&self) -> bool {
        self.done
    }
}

const SELECT_PAGE: &str = "SELECT part.id, part.json, message.id, message.json, message.position
     FROM message LEFT JOIN part ON part.message = message.id
     WHERE message.session = ?1 AND message.position > ?2 AND message.position < ?3
     ORDER BY message.position, part.position, part.id";

/// Reads a page and returns its last position, or `None` if it was the last page.
fn read_page(
    conn: &Connection,
    session: &SessionId,
    after: i64,
    end: i64,
    texts: &mut LiveTexts,
) -> Result<(Vec<MessageWithParts>, Option<i64>), StoreError> {
    // The message's columns are repeated for each of its parts, which costs nothing as long as they are not read.
    let mut statement = conn.prepare_cached(SELECT_PAGE)?;
    let mut rows = statement.query(params![session.as_str(), after, end])?;
    let mut page: Vec<MessageWithParts> = Vec::new();
    let (mut bytes, mut last_position) = (0, after);
    while let Some(row) = rows.next()? {
        let text = |column| row.get_ref(column)?.as_str().map_err(rusqlite::Error::from);
        let id = text(2)?;
        if page.last().is_none_or(|message| message.info.id().as_str() != id) {
            if page.len() >= MAX_MESSAGES || bytes >= MAX_BYTES {
                return Ok((page, Some(last_position)));
            }
            let json = text(3)?;
            bytes += json.len();
            page.push(MessageWithParts { info: row::json("message", id, json)?, parts: Vec::new() });
            last_position = row.get(4)?;
        }
        if let Some(json) = row.get_ref(1)?.as_str_or_null().map_err(rusqlite::Error::from)?
            && let Some(message) = page.last_mut()
        {
            bytes += json.len();
            message.parts.push(part_row(row, texts)?);
        }
    }
    Ok((page, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page must come out of the indexes already ordered: sorting would read all remaining rows for every page.
    #[test]
    fn a_page_is_read_without_sorting() {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(&crate::sqlite::schema::MIGRATIONS.concat()).unwrap();
        let mut statement = conn.prepare(&format!("EXPLAIN QUERY PLAN {SELECT_PAGE}")).unwrap();
        let values = params!["s", 0, 1];
        let plan = statement.query_map(values, |row| row.get::<_, String>(3)).unwrap();
        let plan: Vec<String> = plan.map(Result::unwrap).collect();
        assert_eq!(plan.len(), 2, "{plan:?}");
        assert!(plan[0].contains("message_session") && plan[1].contains("part_message"), "{plan:?}");
    }
}
