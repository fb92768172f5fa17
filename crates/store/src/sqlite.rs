//! The SQLite back end: the file, its tables, the one writer, the queries, and the leases that several processes share.
//!
//! What is left of SQLite outside of this folder: [`Store`](crate::Store) opens connections, [`feed`](crate::feed) reads the
//! log for watchers that attach, [`draft`](crate::draft) has one query, and [`error`](crate::error) translates error codes.

pub(crate) mod file;
pub(crate) mod lease;
pub(crate) mod ledger;
pub(crate) mod log;
pub(crate) mod read;
pub(crate) mod row;
pub(crate) mod schema;
pub(crate) mod upkeep;
pub(crate) mod write;
