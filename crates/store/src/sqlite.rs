//! The SQLite back end: the file, its tables, the single writer, the queries, and the leases that processes share.
//!
//! Outside this folder, four places still know SQLite: [`Store`](crate::Store) opens connections, [`feed`](crate::feed) reads
//! the log for new watchers, [`draft`](crate::draft) has one query, and [`error`](crate::error) maps error codes.

pub(crate) mod file;
pub(crate) mod hold;
pub(crate) mod lease;
pub(crate) mod ledger;
pub(crate) mod log;
pub(crate) mod read;
pub(crate) mod row;
pub(crate) mod schema;
pub(crate) mod task;
pub(crate) mod turn;
pub(crate) mod upkeep;
pub(crate) mod worktree;
pub(crate) mod write;
