//! The durable journal: rows and their events in one SQLite file that several processes share.
//!
//! [`Store::commit`] is the one way to change durable state, [`Store::watch`] replays the log and then follows it,
//! [`Store::acquire`] says who runs a session, [`Store::signal`] reaches that process.
//!
//! Invariants: what a watcher saw was committed (text that grows is the exception, see [`Store::live`]); frames go out
//! in the order of their sequence numbers, which are never used twice; nothing waits for a watcher.
//!
//! | room | what lives there |
//! |---|---|
//! | `store` | the handle, its options, and the way from a call to the writer |
//! | `batch` | the description of one write; knows no database |
//! | `draft` | a session that is written in pieces and published at the end |
//! | `feed` | the live side: watchers of this process, their queues, and text that is still growing |
//! | `sqlite` | the back end: schema, writer, queries, leases and upkeep. New SQL and `rusqlite` calls belong there |

mod batch;
mod draft;
mod error;
mod feed;
mod sqlite;
mod store;

pub use batch::{AskKind, Batch, CommitOutcome, Location};
pub use draft::SessionDraft;
pub use error::{DatabaseErrorKind, StoreError};
pub use feed::WATCH_BYTES;
pub use feed::queue::WATCH_QUEUE;
pub use sqlite::file::data_loss::DataLoss;
pub use sqlite::lease::signal::Signal;
pub use sqlite::lease::{AcquireOutcome, Lease, LeaseHolder};
pub use sqlite::ledger::{BudgetExceeded, Reservation};
pub use sqlite::read::{
    AskFilter, AskRow, CreationOrder, InboxEntry, MessagePages, Record, SessionQuery, Stats, TreeRows, TreeSession,
};
pub use sqlite::upkeep::space::{CompactOutcome, DiskUsage};
pub use store::{BUSY_TIMEOUT, KEEP_EVENT_BYTES, KEEP_EVENTS, Options, Store, WRITE_RETRY_TIMEOUT, WriteSchedule};
