//! The SQLite back end: the file, its tables, the single writer, the queries, and the leases that processes share.
//!
//! Nothing outside this folder knows SQLite: [`Store`](crate::Store) holds a writer and readers without looking into them,
//! [`feed`](crate::feed) reads the log through a trait, and so do leases ask who is alive
//! ([`Peers`](crate::lease::Peers)). `tests/it/sources.rs` watches over it.
//!
//! What counts on a single writer at a time, as SQLite guarantees it, because it costs less here than a statement that
//! would not: the positions of messages, parts and waiting prompts and the numbers of turns are the greatest so far plus
//! one (unique in their key, except for those of parts and prompts); records are compared, then set; a reservation reads
//! the budgets above and the calls that run, then adds itself; a prompt looks for the turn that it joins; the log's
//! numbers grow without gaps in the order of the commits, which watchers rely on. A back end with several writers at
//! a time takes a lock on the session's row for these (on the root's for budgets), and one for the log.

pub(crate) mod ask;
mod error;
pub(crate) mod file;
pub(crate) mod hold;
pub(crate) mod lease;
pub(crate) mod ledger;
pub(crate) mod log;
mod open;
pub(crate) mod read;
pub(crate) mod record;
pub(crate) mod row;
pub(crate) mod schema;
pub(crate) mod task;
pub(crate) mod turn;
pub(crate) mod upkeep;
pub(crate) mod worktree;
pub(crate) mod write;
