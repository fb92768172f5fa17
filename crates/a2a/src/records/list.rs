//! Pages of tasks, the most recently changed first.
//!
//! Tasks that have not ended are in memory, ended ones in lanes of the index, one per state. A page reads at most as many
//! keys of each lane as it has tasks, and the totals are read from the numbers in the index, so that it costs the same
//! however many tasks there are.

use std::ops::Bound;

use api::Timestamp;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use store::{RecordPage, Store, StoreError};

use super::keys::{self, Lane, Stamp};
use super::{Records, RowPage, from_json, read, tasks};
use crate::call::ListRequest;
use crate::model::TaskState;
use crate::{Error, ErrorKind};

/// The tasks of a page, if the request does not say.
const DEFAULT_PAGE: u32 = 50;
/// The most tasks of a page.
const MAX_PAGE: u32 = 100;
/// The longest cursor that is read.
const MAX_TOKEN_BYTES: usize = 1024;

/// A task's place in a list: the newest first, and by id where two changed at the same time.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    stamp: Stamp,
    task: String,
}

impl Ord for Place {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.stamp.cmp(&self.stamp).then_with(|| self.task.cmp(&other.task))
    }
}

impl PartialOrd for Place {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Place {
    fn token(&self) -> String {
        URL_SAFE_NO_PAD.encode(format!("{:x}/{}", self.stamp.0, self.task))
    }

    fn parse(token: &str) -> Option<Self> {
        if token.len() > MAX_TOKEN_BYTES {
            return None;
        }
        let text = String::from_utf8(URL_SAFE_NO_PAD.decode(token).ok()?).ok()?;
        let (stamp, task) = text.split_once('/')?;
        Some(Self { stamp: Stamp(u64::from_str_radix(stamp, 16).ok()?), task: task.to_owned() })
    }
}

/// The places of a page and one more, if there is one, and the number of tasks in all pages.
struct Found {
    places: Vec<Place>,
    total: u64,
}

/// What a list is about.
struct Query<'a> {
    identity: &'a str,
    context: Option<&'a str>,
    state: Option<TaskState>,
    since: Option<Timestamp>,
    after: Option<Place>,
    size: usize,
}

impl Query<'_> {
    fn states(&self) -> impl Iterator<Item = TaskState> {
        let state = self.state;
        TaskState::ALL.into_iter().filter(move |one| one.is_terminal() && state.is_none_or(|state| state == *one))
    }
}

/// The number of the newest task of a lane. It counts the deleted ones too.
pub(super) fn last_number(store: &Store, lane: &Lane) -> Result<u64, StoreError> {
    match number_from(store, lane, None)? {
        Some(number) => Ok(number),
        None => Ok(deleted(store, lane)?),
    }
}

/// The number of the newest task of a lane, or the newest that changed before a time.
fn number_from(store: &Store, lane: &Lane, before: Option<Stamp>) -> Result<Option<u64>, StoreError> {
    let from = before.map_or_else(|| lane.name().to_owned(), |before| lane.until(before));
    let range = (Bound::Excluded(from.as_str()), Bound::Excluded(&*lane.end()));
    let page = index_page(store, range, 1)?;
    page.records.into_iter().next().map(|(key, record)| from_json(keys::INDEX, &key, record.value)).transpose()
}

fn deleted(store: &Store, lane: &Lane) -> Result<u64, StoreError> {
    Ok(read(store, keys::DELETED, lane.name())?.unwrap_or(0))
}

fn index_page(store: &Store, range: (Bound<&str>, Bound<&str>), limit: usize) -> Result<RecordPage, StoreError> {
    let page = store.records_page(keys::INDEX, range, limit, api::now())?;
    #[cfg(test)]
    READ.with(|read| read.set(read.get() + 1 + page.records.len()));
    Ok(page)
}

#[cfg(test)]
thread_local! {
    /// How much was read of the index on this thread: pages and records.
    pub(super) static READ: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// How many tasks of a lane changed at or after a time.
fn count(store: &Store, lane: &Lane, since: Option<Timestamp>) -> Result<u64, StoreError> {
    let Some(last) = number_from(store, lane, None)? else { return Ok(0) };
    let older = match since {
        // Nothing is older than the beginning of time.
        Some(since) if since > 0 => number_from(store, lane, Some(Stamp::of(since)))?,
        _ => None,
    };
    let before = match older {
        Some(number) => number,
        None => deleted(store, lane)?,
    };
    Ok(last.saturating_sub(before))
}

impl Records {
    /// A page of the tasks of an owner. A bad cursor is an invalid-params error.
    pub async fn list(&self, identity: &str, request: &ListRequest) -> Result<RowPage, Error> {
        let page_size = request.page_size.unwrap_or(DEFAULT_PAGE).clamp(1, MAX_PAGE);
        let after = match request.page_token.as_deref().filter(|token| !token.is_empty()) {
            None => None,
            Some(token) => Some(Place::parse(token).ok_or_else(bad_token)?),
        };
        let query = Query {
            identity,
            context: request.context_id.as_deref(),
            state: request.state,
            since: request.changed_since,
            after,
            size: page_size as usize,
        };
        let Found { mut places, total } = self.find(&query).await.map_err(Error::internal)?;
        let has_more = places.len() > query.size;
        places.truncate(query.size);
        let next = places.last().filter(|_| has_more).map(Place::token).unwrap_or_default();
        let read = move |store: &Store| {
            let rows = places.iter().map(|place| tasks::row(store, &place.task));
            // One that was deleted a moment ago is left out.
            rows.filter_map(Result::transpose).collect::<Result<Vec<_>, StoreError>>()
        };
        let rows = self.inner.store.long_read(read).await.map_err(Error::internal)?;
        Ok(RowPage { rows, next, page_size, total })
    }

    async fn find(&self, query: &Query<'_>) -> Result<Found, StoreError> {
        // No task ends meanwhile, so that none is missed or found twice.
        let _ends_wait = self.inner.totals.read().await;
        let since = query.since.map(Stamp::of);
        let open = self.inner.open.of_owner(query.identity, |task| {
            query.context.is_none_or(|context| context == task.context)
                && query.state.is_none_or(|state| state == task.state)
                && since.is_none_or(|since| task.stamp >= since)
        });
        let mut found = Found { total: open.len() as u64, places: Vec::new() };
        let open = open.into_iter().map(|(stamp, task)| Place { stamp, task });
        found.places.extend(open.filter(|place| query.after.as_ref().is_none_or(|after| place > after)));
        keep_first(&mut found.places, query.size);
        for state in query.states() {
            let lane = Lane::new(query.identity, query.context, state);
            found.total += count(&self.inner.store, &lane, query.since)?;
            self.add_lane(&mut found.places, query, &lane)?;
            keep_first(&mut found.places, query.size);
        }
        Ok(found)
    }

    /// Adds what a lane has before the last of the places that fill a page.
    fn add_lane(&self, places: &mut Vec<Place>, query: &Query<'_>, lane: &Lane) -> Result<(), StoreError> {
        let from = match &query.after {
            None => lane.name().to_owned(),
            Some(after) => lane.key(after.stamp, &after.task),
        };
        let mut end = query.since.map_or_else(|| lane.end(), |since| lane.until(Stamp::of(since)));
        if let Some(last) = places.get(query.size) {
            end = end.min(lane.key(last.stamp, &last.task));
        }
        if from >= end {
            return Ok(());
        }
        let range = (Bound::Excluded(from.as_str()), Bound::Excluded(end.as_str()));
        let page = index_page(&self.inner.store, range, query.size + 1)?;
        let found = page.records.iter().filter_map(|(key, _)| lane.parse(key));
        places.extend(found.map(|(stamp, task)| Place { stamp, task: task.to_owned() }));
        Ok(())
    }
}

/// Keeps a page, and one more that shows that there is another page.
fn keep_first(places: &mut Vec<Place>, size: usize) {
    places.sort_unstable();
    places.truncate(size + 1);
}

fn bad_token() -> Error {
    Error::new(ErrorKind::InvalidParams, "pageToken is no cursor of a page that was listed before; begin without one")
        .with("type", "INVALID_FIELD")
        .with("field", "pageToken")
}
