//! What a tree of sessions may use, and what it has used: budgets, the ledger, and the limits on subagents. The store
//! keeps the sums and decides about reservations; this room knows how much to reserve and how a turn waits.

pub(crate) mod budget;
pub(crate) mod ledger;
pub(crate) mod limits;

use tokio::sync::watch;

/// Tells turns of this process that a model call has ended and may have freed budget. Cheap while nobody waits.
#[derive(Default)]
pub(crate) struct Spending {
    call_ended: watch::Sender<()>,
}

impl Spending {
    /// Wakes the turns that wait for budget.
    pub(crate) fn call_ended(&self) {
        self.call_ended.send_replace(());
    }

    /// Notified when a call ends after this.
    fn ended_calls(&self) -> watch::Receiver<()> {
        self.call_ended.subscribe()
    }
}
