//! What a tree of sessions may use and what it has used: budgets, the ledger, and the limits of subagents.

pub(crate) mod budget;
pub(crate) mod ledger;
pub(crate) mod limits;
