//! The SQLite back end: the file, its tables, the single writer, the queries, and the leases that processes share.
//!
//! Nothing outside this folder knows SQLite: [`Store`](crate::Store) holds a writer and readers without looking into them,
//! [`feed`](crate::feed) reads the log through a trait, and so do leases ask who is alive
//! ([`Peers`](crate::lease::Peers)). `tests/it/sources.rs` watches over it.
//!
//! # With several writers at a time
//!
//! SQLite has one writer at a time. A change that depends on what is stored is one conditional statement wherever that
//! costs no more: records, task links, pauses, the answers to asks, leases and queued turns that are cancelled. The
//! numbers of turns and the positions of messages are the greatest so far plus one, and unique in their key, so a second
//! writer would fail and try again. What remains counts on the single writer:
//!
//! * The positions of parts and waiting prompts are the greatest so far plus one, and not unique: an index that says so
//!   would cost a page of every commit.
//! * A reservation reads the budgets above and the calls that run, then adds itself. As one statement it would walk the
//!   tree once for each bound, and could not say which of them was hit.
//! * A prompt looks for the turn that it joins, a turn's end for prompts that joined, and a lease for the turn to run:
//!   several rows of one session that change together.
//! * The log's numbers grow without gaps in the order of the commits, which watchers rely on.
//!
//! Another back end takes a lock on the session's row for these (on the root's for budgets), and one for the log.
//!
//! # What another back end does differently
//!
//! * The search of titles is `instr` on a column that holds them in lower case. Every database has such a function under
//!   some name; `LIKE` is the standard, but it bounds the length of its pattern here, and wildcards would need escapes.
//! * The clock is not the database's: each statement gets its time from [`api::now`], which tests move. So it needs no
//!   trait. No order depends on it, and no decision between processes but whether records have expired and budgets of
//!   time are over; several machines need clocks that agree to about a second for these.
//! * JSON is opaque. Only migrations look into it, and the search for what an older version left behind
//!   (`upkeep/space.rs`), which reports on a file of SQLite's anyway.

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
