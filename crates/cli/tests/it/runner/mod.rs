//! Other agents as subagents: our own `trefoil acp` with a home of its own, and programs that mean no good.

mod crash;
mod hostile;
mod lab;
mod own;
mod subagents;
