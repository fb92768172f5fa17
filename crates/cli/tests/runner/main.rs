//! Other agents as subagents: our own `trefoil acp` with a home of its own, and programs that mean no good.

#![expect(clippy::unwrap_used, reason = "whatever is missing fails the test")]

mod crash;
mod hostile;
mod lab;
mod own;
mod subagents;
