//! The durable journal: rows and their events in one SQLite file that several processes share.
//!
//! [`Store::commit`] is the only way to change durable state, [`Store::watch`] replays the log and then follows it,
//! [`Store::acquire`] decides which process runs a session, [`Store::signal`] sends that process a signal.
//!
//! Invariants: what a watcher saw was committed (growing text is the exception, see [`Store::send_delta`]); frames go
//! out in the order of their sequence numbers, which are never reused; nothing waits for a watcher.
//!
//! | room | what lives there |
//! |---|---|
//! | `store` | the handle, its options, and how a call reaches the writer |
//! | `batch` | the description of one write; knows no database |
//! | `session_change` `turn` `ask` `task` `hold` | its changes of a session, of turns and the prompts that wait for them, of asks and approvals, of links from calls to children, of what holds up a turn |
//! | `worktree` `record` | its changes of worktrees, and of records |
//! | `upkeep` | finishing deletions, and the size of the file, when a caller asks for it |
//! | `draft` | a session written in several commits and published at the end |
//! | `feed` | live events: the watchers of this process, their queues, and text that is still growing |
//! | `long_read` | the few threads that do the reads without a small bound |
//! | `shared` | texts that many rows have in common, stored once by their hash |
//! | `lease` `budget` | who runs a session and who is alive; what sessions use, and what a model call may use |
//! | `sqlite` | the back end, and the only place that knows SQLite: schema, writer, queries, leases and upkeep |

mod ask;
mod batch;
mod budget;
mod draft;
mod error;
mod feed;
mod hold;
mod lease;
mod long_read;
mod record;
mod session_change;
mod shared;
mod sqlite;
mod store;
mod task;
mod turn;
mod upkeep;
mod worktree;

pub use ask::AskKind;
pub use batch::{Batch, CommitOutcome, Location};
pub use budget::{BudgetExceeded, Reservation};
pub use draft::SessionDraft;
pub use error::{DatabaseErrorKind, StoreError};
pub use feed::WATCH_BYTES;
pub use feed::queue::WATCH_QUEUE;
pub use lease::{AcquireOutcome, Lease, LeaseHolder, Signal};
pub use long_read::MAX_LONG_READS;
pub use session_change::{Retitle, RuleSwitch, SessionChange, SessionPlace};
pub use shared::SharedText;
pub use sqlite::file::data_loss::DataLoss;
pub use sqlite::read::{
    AskFilter, AskRow, CreationOrder, InboxEntry, MessagePages, RECORD_PAGE_MAX, Record, RecordPage, SessionQuery,
    Stats, TreeRows, TreeSession,
};
pub use sqlite::upkeep::space::{CompactOutcome, DiskUsage};
pub use store::{BUSY_TIMEOUT, KEEP_EVENT_BYTES, KEEP_EVENTS, Options, Store, WRITE_RETRY_TIMEOUT, WriteSchedule};
pub use task::{Background, LinkedTask, TaskLink};
pub use turn::{MAX_QUEUED_TURNS, NextTurn, TurnEnd, TurnRow};
pub use worktree::WorktreeRow;
