//! Records: the durable rows of a face, and small ones of the engine, which the store does not interpret.
//!
//! The contract:
//!
//! * A record is a JSON value under a key in a namespace. A face uses namespaces of its own.
//! * Every write gives a record a new version, greater than all versions before it, also of deleted records.
//! * [`Batch::record`](crate::Batch::record) writes or deletes a record if it still has the version that the caller
//!   read (0: there was none). One batch may contain several such writes: if one of them conflicts, nothing of the
//!   batch is written. A durable batch is on disk when its commit returns.
//! * Keys are ordered by their bytes. A list is a range of keys, read [page by page](Store::records_page); choose keys
//!   so that what is listed together is adjacent, for example with a common prefix.
//! * A record may [expire](crate::Batch::record_until). From that moment it counts as missing, for reads and for
//!   conditional writes alike. Later writes of records that expire delete it, or [`Store::sweep_records`].

use std::ops::{Bound, RangeBounds};

use api::{Json, Timestamp};
use rusqlite::{OptionalExtension, params};

use crate::Store;
use crate::error::StoreError;
use crate::sqlite::row::{self, int, uint};

/// The most records in a page.
pub const RECORD_PAGE_MAX: usize = 1000;

/// A page ends with the record that reaches this many bytes.
const PAGE_BYTES: usize = 512 << 10;

/// A durable value owned by a protocol face or the engine.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// The value.
    pub value: Json,
    /// Its version. Later writes have greater ones, even after a deletion.
    pub version: u64,
}

/// Records with their keys, ordered by key.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RecordPage {
    /// The records.
    pub records: Vec<(String, Record)>,
    /// Whether the range may have more. The next page begins after the last key of this one.
    pub has_more: bool,
}

impl Store {
    /// A record, unless it has expired. One row by key.
    pub fn record(&self, namespace: &str, key: &str) -> Result<Option<Record>, StoreError> {
        self.record_at(namespace, key, api::now())
    }

    /// Like [`record`](Self::record), at another time than the present.
    pub fn record_at(&self, namespace: &str, key: &str, now: Timestamp) -> Result<Option<Record>, StoreError> {
        self.read(|conn| {
            let mut statement = conn.prepare_cached(
                "SELECT json, version FROM record
                 WHERE namespace = ?1 AND key = ?2 AND (expires IS NULL OR expires > ?3)",
            )?;
            let row: Option<(String, i64)> =
                statement.query_row(params![namespace, key, now], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
            row.map(|(json, version)| record(key, &json, version)).transpose()
        })
    }

    /// The records whose keys are in a range, ordered by key: at most `limit` of them, which is at most
    /// [`RECORD_PAGE_MAX`]. Those that have expired by `now` are left out. A page of up to about 100 small records may
    /// be read inline; a larger one is a [long read](Self::long_read).
    pub fn records_page<'a>(
        &self,
        namespace: &str,
        keys: impl RangeBounds<&'a str>,
        limit: usize,
        now: Timestamp,
    ) -> Result<RecordPage, StoreError> {
        let (from, lower) = match keys.start_bound() {
            Bound::Included(key) => (*key, ">="),
            Bound::Excluded(key) => (*key, ">"),
            Bound::Unbounded => ("", ">="),
        };
        let (to, upper) = match keys.end_bound() {
            Bound::Included(key) => (*key, "AND key <= ?3"),
            Bound::Excluded(key) => (*key, "AND key < ?3"),
            // Bound all the same, so that all shapes of the statement take the same values.
            Bound::Unbounded => ("", "AND ?3 = ''"),
        };
        let limit = limit.min(RECORD_PAGE_MAX);
        self.read(|conn| {
            // One more than requested shows whether there are more.
            let mut statement = conn.prepare_cached(&format!(
                "SELECT key, json, version FROM record WHERE namespace = ?1 AND key {lower} ?2 {upper}
                 AND (expires IS NULL OR expires > ?4) ORDER BY key LIMIT ?5"
            ))?;
            let mut rows = statement.query(params![namespace, from, to, now, int(limit as u64 + 1)])?;
            let (mut page, mut bytes) = (RecordPage::default(), 0);
            while let Some(row) = rows.next()? {
                if page.records.len() == limit || bytes >= PAGE_BYTES {
                    page.has_more = true;
                    break;
                }
                let (key, json): (String, String) = (row.get(0)?, row.get(1)?);
                bytes += key.len() + json.len();
                let record = record(&key, &json, row.get(2)?)?;
                page.records.push((key, record));
            }
            Ok(page)
        })
    }

    /// All records of a namespace, ordered by key. Only for namespaces that the engine keeps small; everyone else reads
    /// [pages](Self::records_page).
    pub fn records(&self, namespace: &str) -> Result<Vec<(String, Record)>, StoreError> {
        self.read(|conn| {
            let mut statement = conn.prepare_cached(
                "SELECT key, json, version FROM record
                 WHERE namespace = ?1 AND (expires IS NULL OR expires > ?2) ORDER BY key",
            )?;
            let mut rows = statement.query(params![namespace, api::now()])?;
            let mut records = Vec::new();
            while let Some(row) = rows.next()? {
                let (key, json): (String, String) = (row.get(0)?, row.get(1)?);
                let record = record(&key, &json, row.get(2)?)?;
                records.push((key, record));
            }
            Ok(records)
        })
    }

    /// Whether any record has expired by `now`.
    pub(crate) fn has_expired_records(&self, now: Timestamp) -> Result<bool, StoreError> {
        self.read(|conn| {
            let mut statement = conn.prepare_cached("SELECT EXISTS (SELECT 1 FROM record WHERE expires <= ?1)")?;
            Ok(statement.query_row([now], |row| row.get(0))?)
        })
    }
}

fn record(key: &str, json: &str, version: i64) -> Result<Record, StoreError> {
    Ok(Record { value: row::json("record", key, json)?, version: uint(version) })
}
