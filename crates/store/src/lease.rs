//! What the processes that share a store know of each other: who runs a session, who is alive, and what they tell each
//! other. A back end implements it; see `sqlite/lease.rs`.

use api::{IdStamp, MessageId, SessionId};
use serde::{Deserialize, Serialize};

use crate::NextTurn;

/// Which of the processes that share a store are alive. A process is known by the name that it has in leases, which no
/// other one gets, before or after.
pub(crate) trait Peers: std::fmt::Debug + Send + Sync {
    /// The name of this process.
    fn name(&self) -> &str;
    /// Whether a process is alive. It must not be said of one that may still run a turn that it is not.
    fn is_alive(&self, owner: &str) -> bool;
    /// Whether a process that counts as alive has itself ended, and only a child of it is left, which will end.
    fn is_lingering(&self, owner: &str) -> bool;
    /// How many other live processes share the store.
    fn count_others(&self) -> usize;
}

/// The right to run a session's turn. Its epoch is greater than that of every earlier lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    pub(crate) session: SessionId,
    pub(crate) owner: String,
    pub(crate) epoch: u64,
}

impl Lease {
    /// The session.
    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// The name of the process that holds it.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// Its position in the order of all leases.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }
}

/// The outcome of trying to acquire a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AcquireOutcome {
    /// This store holds it now.
    Acquired {
        /// The lease.
        lease: Lease,
        /// Whether the previous holder did not release it: a process that died, or this one when it could not write.
        /// Its turn was interrupted.
        took_over: bool,
        /// Changes whenever any conversation may have changed other than through its own turn or a prompt added to its
        /// inbox.
        revision: u64,
        /// The greatest stamp among the ids of the session's messages.
        newest: IdStamp,
        /// The turn to run: the one that was interrupted, otherwise the next one that waits.
        turn: Option<NextTurn>,
    },
    /// Another live process holds it.
    HeldElsewhere {
        /// The name of that process.
        owner: String,
    },
}

/// The holder of a session's lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseHolder {
    /// The name of the process.
    pub owner: String,
    /// The epoch of its lease.
    pub epoch: u64,
    /// Whether the process is alive.
    pub alive: bool,
    /// Whether it is this store.
    pub own: bool,
}

impl LeaseHolder {
    /// The process id, as seen by the process itself.
    pub fn pid(&self) -> Option<i32> {
        self.owner.split('-').next()?.parse().ok()
    }
}

/// A signal to the owner of a session's lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Signal {
    /// Stop the turn. If it has ended by the time this is read, the next turn is not meant.
    Abort {
        /// The epoch of the turn's lease. An older version sends 0, which means whatever turn is running.
        #[serde(default)]
        epoch: u64,
    },
    /// Read the rows again.
    Wake,
    /// An ask was answered.
    Reply {
        /// The ask.
        ask: String,
    },
    /// A message for the running turn has arrived.
    Steer {
        /// The message.
        message: MessageId,
    },
}
