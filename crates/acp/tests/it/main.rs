//! The agent as a client sees it.

#![expect(clippy::unwrap_used, reason = "whatever is missing fails the test")]

mod abuse;
mod asks;
mod details;
mod editor;
mod replay;
mod rig;
mod schema;
mod sdk;
mod sessions;
mod subagents;
mod turns;
