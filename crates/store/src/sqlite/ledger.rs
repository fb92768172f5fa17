//! The ledger: what sessions have used, what running model calls may still use, and the budgets that limit both.
//!
//! Every use is added to its session and all ancestors at once. So the total of a tree is one row, a deletion subtracts
//! nothing from it, and a budget check does not read the tree below.

use std::fmt::Write as _;
use std::sync::LazyLock;

use api::{Bound, Budget, BudgetState, SessionId, Timestamp, Usage, Usd};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};

use crate::budget::{BudgetExceeded, LedgerOp, Reservation};
use crate::error::StoreError;
use crate::sqlite::row::{self, int, uint};

/// The deepest tree of sessions that is followed.
const MAX_DEPTH: usize = 100;

/// The amounts of a use, named like the ledger's columns.
const COLUMNS: [&str; 12] = [
    "cost",
    "input",
    "output",
    "reasoning",
    "cache_read",
    "cache_write",
    "steps",
    "tool_calls",
    "files",
    "estimated_cost",
    "estimated_tokens",
    "estimated_steps",
];

/// Adds to a session's own sum and total.
static ADD_OWN: LazyLock<String> = LazyLock::new(|| upsert_sql(&["own", "total"]));
/// Adds to the total of an ancestor.
static ADD_TOTAL: LazyLock<String> = LazyLock::new(|| upsert_sql(&["total"]));
/// The columns of both sums for a `SELECT`, own sums first.
pub(crate) static SUMS: LazyLock<String> = LazyLock::new(|| {
    let of = |kind: &str| COLUMNS.map(|column| format!("ledger.{kind}_{column}")).join(", ");
    format!("{}, {}", of("own"), of("total"))
});

fn upsert_sql(kinds: &[&str]) -> String {
    let (mut names, mut values, mut sums) = (String::new(), String::new(), String::new());
    for kind in kinds {
        for (at, column) in COLUMNS.iter().enumerate() {
            let (name, value) = (format!("{kind}_{column}"), at + 2);
            let _ = write!(names, ", {name}");
            let _ = write!(values, ", ?{value}");
            let _ = write!(sums, "{}{name} = {name} + ?{value}", if sums.is_empty() { "" } else { ", " });
        }
    }
    format!("INSERT INTO ledger (session{names}) VALUES (?1{values}) ON CONFLICT (session) DO UPDATE SET {sums}")
}

pub(crate) fn apply(conn: &Connection, op: &LedgerOp) -> Result<(), StoreError> {
    match op {
        LedgerOp::Usage { session, used } => add(conn, session.as_str(), used),
        LedgerOp::ChangedFile { session, file } => count_changed_file(conn, session.as_str(), file),
        // The writer calls `reserve`, because that decides whether the rest of the batch is applied.
        LedgerOp::Reserve(_) => Ok(()),
        LedgerOp::Spend { id, used } => spend(conn, id, used),
        LedgerOp::Budget { session, budget, is_additional } => {
            set_budget(conn, session, budget.as_ref(), *is_additional)
        }
    }
}

/// Converts dollars to the ledger's billionths.
pub(crate) fn nanos(money: Usd) -> i64 {
    (money.0 * 1e9).round() as i64
}

/// Converts the ledger's billionths to dollars.
pub(crate) fn money(nanos: i64) -> Usd {
    Usd(nanos as f64 / 1e9)
}

fn amounts(used: &Usage) -> [i64; 12] {
    let tokens = &used.tokens;
    [
        nanos(used.cost),
        int(tokens.input),
        int(tokens.output),
        int(tokens.reasoning),
        int(tokens.cache.read),
        int(tokens.cache.write),
        int(used.steps),
        int(used.tool_calls),
        int(used.files),
        nanos(used.estimated_cost),
        int(used.estimated_tokens),
        int(used.estimated_steps),
    ]
}

/// Reads a usage from the columns starting at `at`. Empty if the row does not exist.
pub(crate) fn usage_columns(row: &Row<'_>, at: usize) -> rusqlite::Result<Usage> {
    let mut used = Usage::default();
    if row.get::<_, Option<i64>>(at)?.is_none() {
        return Ok(used);
    }
    let number = |column: usize| row.get(at + column).map(uint);
    used.cost = money(row.get(at)?);
    used.tokens.input = number(1)?;
    used.tokens.output = number(2)?;
    used.tokens.reasoning = number(3)?;
    used.tokens.cache.read = number(4)?;
    used.tokens.cache.write = number(5)?;
    used.steps = number(6)?;
    used.tool_calls = number(7)?;
    used.files = number(8)?;
    used.estimated_cost = money(row.get(at + 9)?);
    used.estimated_tokens = number(10)?;
    used.estimated_steps = number(11)?;
    Ok(used)
}

/// What a session used itself, and including its descendants.
pub(crate) fn sums(conn: &Connection, session: &str) -> Result<(Usage, Usage), StoreError> {
    let mut statement = conn.prepare_cached(&format!("SELECT {} FROM ledger WHERE session = ?1", *SUMS))?;
    let found = statement
        .query_row([session], |row| Ok((usage_columns(row, 0)?, usage_columns(row, COLUMNS.len())?)))
        .optional()?;
    Ok(found.unwrap_or_default())
}

/// How many columns [`SUMS`] has.
pub(crate) const SUMS_LEN: usize = 2 * COLUMNS.len();

/// A session and its ancestors, nearest first. Empty if the session is gone.
fn ancestors(conn: &Connection, session: &str) -> Result<Vec<String>, StoreError> {
    let mut statement = conn.prepare_cached("SELECT parent FROM session WHERE id = ?1")?;
    let mut path = Vec::new();
    let mut next = Some(session.to_owned());
    while let Some(id) = next.filter(|_| path.len() < MAX_DEPTH) {
        let found: Option<Option<String>> = statement.query_row([&id], |row| row.get(0)).optional()?;
        let Some(parent) = found else { break };
        path.push(id);
        next = parent;
    }
    Ok(path)
}

/// Adds what a session used. Does nothing if the session is gone.
fn add(conn: &Connection, session: &str, used: &Usage) -> Result<(), StoreError> {
    if *used == Usage::default() {
        return Ok(());
    }
    let amounts = amounts(used);
    for (above, session) in ancestors(conn, session)?.iter().enumerate() {
        add_amounts(conn, session, above > 0, &amounts)?;
    }
    Ok(())
}

/// Counts a changed file in the session and in each ancestor that has not counted it before.
fn count_changed_file(conn: &Connection, session: &str, file: &str) -> Result<(), StoreError> {
    let one = amounts(&Usage { files: 1, ..Usage::default() });
    let mut insert = conn.prepare_cached("INSERT OR IGNORE INTO touched (session, path) VALUES (?1, ?2)")?;
    for (above, session) in ancestors(conn, session)?.iter().enumerate() {
        if insert.execute(params![session, file])? > 0 {
            add_amounts(conn, session, above > 0, &one)?;
        }
    }
    Ok(())
}

fn add_amounts(conn: &Connection, session: &str, above: bool, amounts: &[i64]) -> Result<(), StoreError> {
    let sql = if above { &ADD_TOTAL } else { &ADD_OWN };
    let values = std::iter::once(Value::from(session.to_owned())).chain(amounts.iter().map(|number| (*number).into()));
    conn.prepare_cached(sql)?.execute(params_from_iter(values))?;
    Ok(())
}

/// Reserves the most that a model call may use, or returns the budget that it would exceed.
pub(crate) fn reserve(conn: &Connection, wanted: &Reservation) -> Result<Option<BudgetExceeded>, StoreError> {
    let bounded = conn.prepare_cached("SELECT EXISTS (SELECT 1 FROM budget)")?.query_row([], |row| row.get(0))?;
    if bounded {
        for session in ancestors(conn, wanted.session.as_str())? {
            if let Some(exceeded) = check_budget(conn, &session, wanted)? {
                return Ok(Some(exceeded));
            }
        }
    }
    let mut insert = conn.prepare_cached(
        "INSERT OR REPLACE INTO reservation
         (id, session, steps, prompt, prompt_cost, output_price, most_tokens, most_cost)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?;
    insert.execute(params![
        wanted.id,
        wanted.session.as_str(),
        int(wanted.steps),
        int(wanted.prompt),
        nanos(wanted.prompt_cost),
        nanos(wanted.output_price),
        int(wanted.max_tokens),
        nanos(wanted.max_cost),
    ])?;
    Ok(None)
}

fn check_budget(conn: &Connection, session: &str, wanted: &Reservation) -> Result<Option<BudgetExceeded>, StoreError> {
    let Some((limit, began)) = budget_row(conn, session)? else { return Ok(None) };
    let state = budget_state(limit, began, &sums(conn, session)?.1, reserved(conn, session, &wanted.id)?);
    let dollars = |money: Option<Usd>| money.map(|money| uint(nanos(money)));
    let (spent, reserved) = (&state.spent, &state.reserved);
    let bounds = [
        (Bound::Seconds, limit.seconds, spent.seconds, None, 0),
        (Bound::Cost, dollars(limit.cost), dollars(spent.cost), dollars(reserved.cost), uint(nanos(wanted.max_cost))),
        (Bound::Tokens, limit.tokens, spent.tokens, reserved.tokens, wanted.max_tokens),
        (Bound::Steps, limit.steps, spent.steps, reserved.steps, wanted.steps),
    ];
    for (bound, limit, spent, reserved, needed) in bounds {
        let Some(limit) = limit else { continue };
        let (spent, reserved) = (spent.unwrap_or(0), reserved.unwrap_or(0));
        if spent >= limit || spent.saturating_add(reserved).saturating_add(needed) > limit {
            let session = row::id("budget", session)?;
            return Ok(Some(BudgetExceeded { session, bound, limit, spent, reserved, needed }));
        }
    }
    Ok(None)
}

/// Replaces a reservation by what was used. Does nothing if it was already replaced.
fn spend(conn: &Connection, id: &str, used: &Usage) -> Result<(), StoreError> {
    let mut statement = conn.prepare_cached("DELETE FROM reservation WHERE id = ?1 RETURNING session")?;
    let session: Option<String> = statement.query_row([id], |row| row.get(0)).optional()?;
    session.map_or(Ok(()), |session| add(conn, &session, used))
}

/// Sets or removes a budget. With `is_additional`, it comes on top of what was used so far, and its clock starts now.
fn set_budget(
    conn: &Connection,
    session: &SessionId,
    budget: Option<&Budget>,
    is_additional: bool,
) -> Result<(), StoreError> {
    let id = session.as_str();
    if ancestors(conn, id)?.is_empty() {
        return Err(StoreError::NoSession { id: session.clone() });
    }
    let Some(budget) = budget else {
        conn.prepare_cached("DELETE FROM budget WHERE session = ?1")?.execute([id])?;
        return Ok(());
    };
    let mut limit = *budget;
    let mut began = api::now();
    if is_additional {
        let total = sums(conn, id)?.1;
        limit.cost = limit.cost.map(|cost| Usd(cost.0 + total.cost.0));
        limit.tokens = limit.tokens.map(|tokens| tokens.saturating_add(total.all_tokens()));
        limit.steps = limit.steps.map(|steps| steps.saturating_add(total.steps));
    } else if let Some((before, since)) = budget_row(conn, id)?
        && before.seconds.is_some()
    {
        began = since;
    }
    let mut insert = conn.prepare_cached(
        "INSERT OR REPLACE INTO budget (session, cost, tokens, steps, seconds, began) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    let whole = |number: Option<u64>| number.map(int);
    insert.execute(params![
        id,
        limit.cost.map(nanos),
        whole(limit.tokens),
        whole(limit.steps),
        whole(limit.seconds),
        began
    ])?;
    Ok(())
}

/// Deletes a session's rows of the ledger. Interrupted calls are estimated first, so that the ancestors pay for them.
pub(crate) fn delete_session(conn: &Connection, session: &SessionId) -> Result<(), StoreError> {
    for call in reservations(conn, Some(session))? {
        spend(conn, &call.id, &call.estimate(0))?;
    }
    for sql in [
        "DELETE FROM ledger WHERE session = ?1",
        "DELETE FROM touched WHERE session = ?1",
        "DELETE FROM budget WHERE session = ?1",
    ] {
        conn.prepare_cached(sql)?.execute([session.as_str()])?;
    }
    Ok(())
}

/// Reads a budget and its start from the columns starting at `at`.
pub(crate) fn budget_columns(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<(Budget, Timestamp)>> {
    let Some(began) = row.get::<_, Option<i64>>(at + 4)? else { return Ok(None) };
    let number = |column: usize| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(at + column)?.map(uint));
    let cost = row.get::<_, Option<i64>>(at)?.map(money);
    Ok(Some((Budget { cost, tokens: number(1)?, steps: number(2)?, seconds: number(3)? }, began)))
}

/// A session's budget, and when its seconds started to count.
pub(crate) fn budget_row(conn: &Connection, session: &str) -> Result<Option<(Budget, Timestamp)>, StoreError> {
    let mut statement =
        conn.prepare_cached("SELECT cost, tokens, steps, seconds, began FROM budget WHERE session = ?1")?;
    Ok(statement.query_row([session], |row| budget_columns(row, 0)).optional()?.flatten())
}

/// A budget with what was used and reserved of it.
pub(crate) fn budget_state(limit: Budget, began: Timestamp, total: &Usage, reserved: Budget) -> BudgetState {
    let passed = u64::try_from(api::now() - began).unwrap_or(0) / 1000;
    let spent = Budget {
        cost: Some(total.cost),
        tokens: Some(total.all_tokens()),
        steps: Some(total.steps),
        seconds: Some(passed),
    };
    BudgetState { limit, spent, reserved }
}

/// What running calls in a session and its descendants may still use, except one call.
pub(crate) fn reserved(conn: &Connection, session: &str, except: &str) -> Result<Budget, StoreError> {
    // Walks up from the few running calls, because the tree below may be large.
    let mut statement = conn.prepare_cached(
        "WITH RECURSIVE above (call, id) AS (
             SELECT id, session FROM reservation WHERE id <> ?2
             UNION SELECT above.call, session.parent FROM above JOIN session ON session.id = above.id
             WHERE session.parent IS NOT NULL
         )
         SELECT coalesce(sum(most_cost), 0), coalesce(sum(most_tokens), 0), coalesce(sum(steps), 0)
         FROM above JOIN reservation ON reservation.id = above.call WHERE above.id = ?1",
    )?;
    Ok(statement.query_row([session, except], |row| {
        Ok(Budget {
            cost: Some(money(row.get(0)?)),
            tokens: Some(uint(row.get(1)?)),
            steps: Some(uint(row.get(2)?)),
            seconds: None,
        })
    })?)
}

/// The running or interrupted calls of one session, or of all.
pub(crate) fn reservations(conn: &Connection, of: Option<&SessionId>) -> Result<Vec<Reservation>, StoreError> {
    const ALL: &str =
        "SELECT id, session, steps, prompt, prompt_cost, output_price, most_tokens, most_cost FROM reservation";
    let mut statement = match of {
        Some(_) => conn.prepare_cached(&format!("{ALL} WHERE session = ?1 ORDER BY id"))?,
        None => conn.prepare_cached(&format!("{ALL} ORDER BY id"))?,
    };
    let mut rows = statement.query(params_from_iter(of.map(SessionId::as_str)))?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(Reservation {
            id: row.get(0)?,
            session: row::id("reservation", row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?)?,
            steps: uint(row.get(2)?),
            prompt: uint(row.get(3)?),
            prompt_cost: money(row.get(4)?),
            output_price: money(row.get(5)?),
            max_tokens: uint(row.get(6)?),
            max_cost: money(row.get(7)?),
        });
    }
    Ok(found)
}
