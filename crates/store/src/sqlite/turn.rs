//! Turns: the rows behind them, how prompts find their turn, and how a turn begins and ends.

use std::ops::ControlFlow;

use api::{EventBody, ListTurns, MessageId, SessionId, TurnId, TurnState};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::Store;
use crate::error::StoreError;
use crate::sqlite::ledger::money;
use crate::sqlite::read::read_transaction;
use crate::sqlite::row::{self, int, uint};
use crate::sqlite::write::apply::{BatchWriter, run};
use crate::turn::{EnqueuedPrompt, MAX_QUEUED_TURNS, NextTurn, TurnEnd, TurnOp, TurnRow};

/// How many turns a page has if its query names no limit, and at most.
const PAGE: usize = 100;
const MAX_PAGE: usize = 1000;

/// What a session and its descendants have used, as `ledger` counts it.
const SPENT: &str = "coalesce((SELECT total_cost FROM ledger WHERE session = ?1), 0)";

pub(crate) fn apply(writer: &mut BatchWriter<'_>, op: &TurnOp) -> Result<(), StoreError> {
    let conn = writer.conn;
    match op {
        TurnOp::Enqueue(prompt) => {
            writer.applied.turn = enqueue(conn, prompt)?.map(|number| (prompt.session.clone(), number));
        }
        TurnOp::Promote { queued, message } => writer.applied.turn = promote(conn, queued, message)?,
        TurnOp::Dequeue(message) => {
            run(conn, "DELETE FROM inbox WHERE message = ?1", [message.as_str()])?;
        }
        TurnOp::CountAttempt(message) => {
            run(conn, "UPDATE inbox SET attempts = attempts + 1 WHERE message = ?1", [message.as_str()])?;
        }
        TurnOp::Begin { session, number, is_joinable } => {
            writer.applied.turn = Some((session.clone(), begin(conn, session, *number, *is_joinable)?));
        }
        TurnOp::Suspend { session, number } => suspend(conn, session, *number)?,
        TurnOp::AnswerEnded { session, error } => {
            let sql = "UPDATE turn SET error = ?3 WHERE session = ?1 AND number = ?2 AND error IS NOT ?3";
            run(conn, sql, params![session.as_str(), writer.turn_of(session).map(int), error])?;
        }
        // The writer calls `end`, because that decides whether the rest of the batch is applied.
        TurnOp::End(_) => {}
        TurnOp::CancelQueued(turn) => {
            cancel_queued(conn, turn)?;
            writer.applied.turn = Some((turn.session.clone(), turn.number));
        }
        TurnOp::Event(session, state) => {
            if let Some(number) = writer.turn_of(session) {
                let (session_id, turn_id) = (session.clone(), TurnId::new(session, number));
                writer.log_new_event(EventBody::SessionTurn { session_id, turn_id, state: *state })?;
            }
        }
    }
    Ok(())
}

/// The turn that runs in a session, or that runs next: first what joined, then what was queued.
pub(crate) fn current(conn: &Connection, session: &SessionId) -> Result<Option<NextTurn>, StoreError> {
    if let Some(number) = joinable(conn, session)? {
        // A turn that stopped right after its beginning still has its prompt in the queue.
        let sql = "SELECT 1 FROM inbox WHERE session = ?1 AND turn = ?2 AND input IS NOT NULL";
        let is_queued = conn.prepare_cached(sql)?.exists(params![session.as_str(), int(number)])?;
        return Ok(Some(NextTurn { number, is_queued }));
    }
    let mut statement = conn.prepare_cached("SELECT min(turn) FROM inbox WHERE session = ?1")?;
    let queued = statement.query_row([session.as_str()], |row| row.get::<_, Option<i64>>(0))?.map(uint);
    Ok(queued.map(|number| NextTurn { number, is_queued: true }))
}

/// Ends the turns that a dead process was running, except the one that is resumed.
pub(crate) fn end_interrupted(
    conn: &Connection,
    session: &SessionId,
    resumed: Option<NextTurn>,
) -> Result<(), StoreError> {
    conn.prepare_cached(
        "UPDATE turn SET state = 'failed', ended = ?3, cost = 0
         WHERE session = ?1 AND state = 'running' AND number IS NOT ?2 AND ended IS NULL",
    )?
    .execute(params![session.as_str(), resumed.map(|turn| int(turn.number)), api::now()])?;
    Ok(())
}

/// The turn that a prompt joins: the running one, or the one that other prompts wait for.
fn joinable(conn: &Connection, session: &SessionId) -> Result<Option<u64>, StoreError> {
    let running = running(conn, session)?;
    if running.is_some() {
        return Ok(running);
    }
    let mut statement = conn.prepare_cached("SELECT min(turn) FROM inbox WHERE session = ?1 AND input IS NULL")?;
    Ok(statement.query_row([session.as_str()], |row| row.get::<_, Option<i64>>(0))?.map(uint))
}

/// The turn that a session is running, or was when its process died.
pub(crate) fn running(conn: &Connection, session: &SessionId) -> Result<Option<u64>, StoreError> {
    let mut statement = conn.prepare_cached("SELECT turn FROM status WHERE session = ?1")?;
    let turn: Option<Option<i64>> = statement.query_row([session.as_str()], |row| row.get(0)).optional()?;
    Ok(turn.flatten().map(uint))
}

/// The turn that a session is running, also one that takes in no prompts, or the next one that it will run.
fn running_or_next(conn: &Connection, session: &SessionId) -> Result<Option<u64>, StoreError> {
    let mut statement = conn.prepare_cached("SELECT turn FROM status WHERE session = ?1")?;
    let status: Option<Option<i64>> = statement.query_row([session.as_str()], |row| row.get(0)).optional()?;
    if status == Some(None) {
        // A turn that takes in no prompts is not named there. Those that were queued since have greater numbers.
        let mut statement = conn.prepare_cached(
            "SELECT number FROM turn WHERE session = ?1 AND state = 'running' ORDER BY number DESC LIMIT 1",
        )?;
        let running: Option<i64> = statement.query_row([session.as_str()], |row| row.get(0)).optional()?;
        if running.is_some() {
            return Ok(running.map(uint));
        }
    }
    Ok(current(conn, session)?.map(|next| next.number))
}

/// Adds a row for a turn. Returns its number.
fn insert(
    conn: &Connection,
    session: &SessionId,
    prompts: &str,
    caller: Option<&str>,
    started: bool,
) -> Result<u64, StoreError> {
    let mut statement = conn.prepare_cached("SELECT max(number) FROM turn WHERE session = ?1")?;
    let last: Option<i64> = statement.query_row([session.as_str()], |row| row.get(0))?;
    let (number, now) = (last.map_or(1, |last| uint(last) + 1), api::now());
    let state = if started { TurnState::Running } else { TurnState::Queued };
    conn.prepare_cached(&format!(
        "INSERT INTO turn (session, number, state, prompts, caller, spent_before, created, started)
         VALUES (?1, ?2, ?3, ?4, ?5, {SPENT}, ?6, ?7)"
    ))?
    .execute(params![
        session.as_str(),
        int(number),
        name(state),
        prompts,
        caller,
        now,
        started.then_some(now)
    ])?;
    Ok(number)
}

/// Adds a prompt to the inbox, and to its turn. Returns the turn's number, or `None` if the prompt was already there.
fn enqueue(conn: &Connection, prompt: &EnqueuedPrompt) -> Result<Option<u64>, StoreError> {
    let EnqueuedPrompt { session, message, data, caller, input } = prompt;
    let known = conn.prepare_cached("SELECT turn FROM inbox WHERE message = ?1")?.exists([message.as_str()])?;
    if known {
        return Ok(None);
    }
    let number = match input {
        None => match joinable(conn, session)? {
            Some(number) => {
                conn.prepare_cached(
                    "UPDATE turn SET prompts = CASE prompts WHEN '' THEN ?3 ELSE prompts || ' ' || ?3 END
                     WHERE session = ?1 AND number = ?2",
                )?
                .execute(params![session.as_str(), int(number), message.as_str()])?;
                number
            }
            None => insert(conn, session, message.as_str(), caller.as_deref(), false)?,
        },
        Some(_) => {
            let mut statement = conn.prepare_cached("SELECT count(*) FROM inbox WHERE session = ?1")?;
            if uint(statement.query_row([session.as_str()], |row| row.get(0))?) >= MAX_QUEUED_TURNS {
                return Err(StoreError::Overloaded("prompts of this session"));
            }
            insert(conn, session, "", caller.as_deref(), false)?
        }
    };
    conn.prepare_cached(
        "INSERT INTO inbox (message, session, attempts, accepted, position, data, turn, input)
         VALUES (?1, ?2, 0, ?3, (SELECT coalesce(max(position), 0) + 1 FROM inbox), ?4, ?5, ?6)",
    )?
    .execute(params![message.as_str(), session.as_str(), api::now(), data, int(number), input])?;
    Ok(Some(number))
}

/// Replaces a queued prompt by the message that it becomes. Returns its turn.
fn promote(conn: &Connection, queued: &MessageId, message: &MessageId) -> Result<Option<(SessionId, u64)>, StoreError> {
    let mut statement = conn.prepare_cached("SELECT session, turn FROM inbox WHERE message = ?1")?;
    let found: Option<(String, i64)> =
        statement.query_row([queued.as_str()], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let Some((session, number)) = found else { return Ok(None) };
    conn.prepare_cached("UPDATE inbox SET message = ?2, input = NULL WHERE message = ?1")?
        .execute([queued.as_str(), message.as_str()])?;
    conn.prepare_cached("UPDATE turn SET prompts = ?3 WHERE session = ?1 AND number = ?2")?.execute(params![
        session,
        number,
        message.as_str()
    ])?;
    Ok(Some((row::id("inbox", &session)?, uint(number))))
}

/// Marks a turn as running; without a number, a new one. Returns its number.
fn begin(conn: &Connection, session: &SessionId, number: Option<u64>, is_joinable: bool) -> Result<u64, StoreError> {
    let number = match number {
        None => insert(conn, session, "", None, true)?,
        Some(number) => {
            conn.prepare_cached(&format!(
                "UPDATE turn SET state = 'running', started = coalesce(started, ?3),
                     spent_before = CASE WHEN started IS NULL THEN {SPENT} ELSE spent_before END
                 WHERE session = ?1 AND number = ?2"
            ))?
            .execute(params![session.as_str(), int(number), api::now()])?;
            number
        }
    };
    conn.prepare_cached(
        "INSERT INTO status (session, json, turn) VALUES (?1, '{\"type\":\"busy\"}', ?2)
         ON CONFLICT (session) DO UPDATE SET turn = ?2",
    )?
    .execute(params![session.as_str(), is_joinable.then(|| int(number))])?;
    Ok(number)
}

/// Marks a turn that is to be resumed later.
fn suspend(conn: &Connection, session: &SessionId, number: u64) -> Result<(), StoreError> {
    conn.prepare_cached("UPDATE turn SET state = 'queued' WHERE session = ?1 AND number = ?2 AND ended IS NULL")?
        .execute(params![session.as_str(), int(number)])?;
    Ok(())
}

/// Ends a turn. Breaks if one of its prompts still waits: then it goes on.
pub(crate) fn end(writer: &mut BatchWriter<'_>, end: &TurnEnd) -> Result<ControlFlow<()>, StoreError> {
    let TurnEnd { session, number, is_cancelled, answer, error } = end;
    let conn = writer.conn;
    let error = error.as_ref().map(serde_json::to_string).transpose();
    let error = error.map_err(|error| StoreError::Invalid(error.to_string()))?;
    let mut statement = conn.prepare_cached("SELECT coalesce(max(turn = ?2), -1) FROM inbox WHERE session = ?1")?;
    let waiting: i64 = statement.query_row(params![session.as_str(), int(*number)], |row| row.get(0))?;
    if waiting == 1 {
        return Ok(ControlFlow::Break(()));
    }
    conn.prepare_cached(&format!(
        "UPDATE turn SET ended = ?3, answer = ?4, cost = max({SPENT} - spent_before, 0), error = coalesce(?6, error),
             state = CASE WHEN ?5 THEN 'cancelled' WHEN coalesce(?6, error) IS NULL THEN 'done' ELSE 'failed' END
         WHERE session = ?1 AND number = ?2 AND ended IS NULL"
    ))?
    .execute(params![
        session.as_str(),
        int(*number),
        api::now(),
        answer.as_ref().map(MessageId::as_str),
        is_cancelled,
        error
    ])?;
    writer.applied.more_turns = waiting == 0;
    Ok(ControlFlow::Continue(()))
}

/// Cancels a turn that waits with its prompt in the queue.
fn cancel_queued(conn: &Connection, turn: &TurnId) -> Result<(), StoreError> {
    let key = params![turn.session.as_str(), int(turn.number)];
    let removed = conn
        .prepare_cached("DELETE FROM inbox WHERE session = ?1 AND turn = ?2 AND input IS NOT NULL")?
        .execute(key)?;
    if removed == 0 {
        return Err(StoreError::NotQueued { turn: turn.clone() });
    }
    conn.prepare_cached(
        "UPDATE turn SET state = 'cancelled', ended = ?3, cost = 0 WHERE session = ?1 AND number = ?2",
    )?
    .execute(params![turn.session.as_str(), int(turn.number), api::now()])?;
    Ok(())
}

/// The name of a state in its row.
fn name(state: TurnState) -> &'static str {
    match state {
        TurnState::Queued => "queued",
        TurnState::Running | TurnState::Waiting => "running",
        TurnState::Done => "done",
        TurnState::Failed => "failed",
        TurnState::Cancelled => "cancelled",
    }
}

fn parse_state(text: &str) -> Option<TurnState> {
    use TurnState::{Cancelled, Done, Failed, Queued, Running};
    [Queued, Running, Done, Failed, Cancelled].into_iter().find(|state| name(*state) == text)
}

const COLUMNS: &str = "number, state, prompts, caller, answer, error, cost, spent_before, created, started, ended";

fn turn_row(row: &Row<'_>, session: &SessionId, spent: i64) -> Result<TurnRow, StoreError> {
    let text = |column| row.get_ref(column)?.as_str().map_err(rusqlite::Error::from);
    let optional = |column| row.get_ref(column)?.as_str_or_null().map_err(rusqlite::Error::from);
    let id = TurnId::new(session, uint(row.get(0)?));
    let state = parse_state(text(1)?).ok_or_else(|| StoreError::Row {
        table: "turn",
        id: id.to_string(),
        detail: format!("unknown state {:?}", text(1).unwrap_or_default()),
    })?;
    let cost = match (row.get::<_, Option<i64>>(6)?, row.get::<_, Option<i64>>(9)?) {
        (Some(cost), _) => cost,
        (None, Some(_)) => (spent - row.get::<_, i64>(7)?).max(0),
        (None, None) => 0,
    };
    let prompts = text(2)?.split(' ').filter(|id| !id.is_empty()).map(|id| row::id("turn", id));
    Ok(TurnRow {
        state,
        prompts: prompts.collect::<Result<_, _>>()?,
        caller: row.get(3)?,
        answer: optional(4)?.map(|id| row::id("turn", id)).transpose()?,
        error: optional(5)?.map(|json| row::json("turn", session.as_str(), json)).transpose()?,
        cost: money(cost),
        created: row.get(8)?,
        started: row.get(9)?,
        ended: row.get(10)?,
        id,
    })
}

fn spent(conn: &Connection, session: &SessionId) -> Result<i64, StoreError> {
    let mut statement = conn.prepare_cached(&format!("SELECT {SPENT}"))?;
    Ok(statement.query_row([session.as_str()], |row| row.get(0))?)
}

impl Store {
    /// A turn's row. Quick: one row by its key.
    pub fn turn(&self, id: &TurnId) -> Result<Option<TurnRow>, StoreError> {
        self.read(|conn| {
            let _snapshot = read_transaction(conn)?;
            let spent = spent(conn, &id.session)?;
            let mut statement =
                conn.prepare_cached(&format!("SELECT {COLUMNS} FROM turn WHERE session = ?1 AND number = ?2"))?;
            let mut rows = statement.query(params![id.session.as_str(), int(id.number)])?;
            rows.next()?.map(|row| turn_row(row, &id.session, spent)).transpose()
        })
    }

    /// A page of a session's turns, newest first, and whether there are older ones.
    pub fn turns(&self, session: &SessionId, query: &ListTurns) -> Result<(Vec<TurnRow>, bool), StoreError> {
        let limit = query.limit.unwrap_or(PAGE).clamp(1, MAX_PAGE);
        let before = query.before.as_ref().map_or(i64::MAX, |turn| int(turn.number));
        self.read(|conn| {
            let _snapshot = read_transaction(conn)?;
            let (from, before) = match query.current {
                false => (0, before),
                true => match running_or_next(conn, session)?.map(int) {
                    Some(current) => (current, before.min(current + 1)),
                    None => return Ok((Vec::new(), false)),
                },
            };
            let spent = spent(conn, session)?;
            let mut statement = conn.prepare_cached(&format!(
                "SELECT {COLUMNS} FROM turn WHERE session = ?1 AND number >= ?5 AND number < ?2
                 AND (?3 IS NULL OR (ended IS NOT NULL) = ?3) ORDER BY number DESC LIMIT ?4"
            ))?;
            let values = params![session.as_str(), before, query.ended, int(limit as u64 + 1), from];
            let mut rows = statement.query(values)?;
            let mut turns = Vec::new();
            while let Some(row) = rows.next()? {
                turns.push(turn_row(row, session, spent)?);
            }
            let has_older = turns.len() > limit;
            turns.truncate(limit);
            Ok((turns, has_older))
        })
    }

    /// The turn that a message is part of; `None` if that is unknown or the message does not exist. Quick: one row.
    pub fn turn_of_message(&self, message: &MessageId) -> Result<Option<u64>, StoreError> {
        self.read(|conn| {
            let mut statement = conn.prepare_cached("SELECT turn FROM message WHERE id = ?1")?;
            let turn: Option<i64> = statement.query_row([message.as_str()], |row| row.get(0)).optional()?;
            Ok(turn.map(uint).filter(|turn| *turn > 0))
        })
    }

    /// The turn that runs in a session, or that runs next. Quick: rows of running and waiting things only.
    pub fn current_turn(&self, session: &SessionId) -> Result<Option<NextTurn>, StoreError> {
        self.read(|conn| current(conn, session))
    }

    /// The prompt of a queued turn, as [`Batch::queue`](crate::Batch::queue) stored it, with its key in the inbox.
    pub fn queued_prompt(&self, turn: &TurnId) -> Result<Option<(MessageId, String)>, StoreError> {
        self.read(|conn| {
            let sql = "SELECT message, input FROM inbox WHERE session = ?1 AND turn = ?2 AND input IS NOT NULL";
            let mut statement = conn.prepare_cached(sql)?;
            let key = params![turn.session.as_str(), int(turn.number)];
            let found: Option<(String, String)> =
                statement.query_row(key, |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
            found.map(|(message, input)| Ok((row::id("inbox", &message)?, input))).transpose()
        })
    }

    /// The turn of a prompt that is queued under this key.
    pub fn queued_turn(&self, message: &MessageId) -> Result<Option<TurnId>, StoreError> {
        self.read(|conn| {
            let sql = "SELECT session, turn FROM inbox WHERE message = ?1 AND input IS NOT NULL";
            let mut statement = conn.prepare_cached(sql)?;
            let found: Option<(String, i64)> =
                statement.query_row([message.as_str()], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
            found.map(|(session, turn)| Ok(TurnId::new(&row::id("inbox", &session)?, uint(turn)))).transpose()
        })
    }

    /// The queued turns of a session, in order.
    pub fn queued_turns(&self, session: &SessionId) -> Result<Vec<TurnId>, StoreError> {
        self.read(|conn| {
            let sql = "SELECT turn FROM inbox WHERE session = ?1 AND input IS NOT NULL ORDER BY turn";
            let mut statement = conn.prepare_cached(sql)?;
            let turns = statement.query_map([session.as_str()], |row| row.get::<_, i64>(0))?;
            turns.map(|turn| Ok(TurnId::new(session, uint(turn?)))).collect()
        })
    }
}
