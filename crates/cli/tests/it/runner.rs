//! Other agents as subagents: our own `trefoil acp` with a home of its own, and hostile programs.

mod crash;
mod fixture;
mod hostile;
mod own;
mod subagents;
