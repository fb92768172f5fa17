//! Other agents as subagents: our own `trefoil acp` with a home of its own, hostile programs, and agents elsewhere.

mod crash;
mod fixture;
mod hostile;
mod own;
mod remote;
mod subagents;
