//! What a tree of sessions may use, and what it has used: budgets, the ledger, and the limits on subagents. The store
//! keeps the sums and decides about reservations; this room knows how much to reserve and how a turn waits.

pub(crate) mod budget;
pub(crate) mod ledger;
pub(crate) mod limits;
