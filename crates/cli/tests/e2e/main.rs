//! The built program from outside: script files as models, real files, real processes.

#![expect(clippy::unwrap_used, reason = "whatever is missing fails the test")]

mod acp_client;
mod agents;
mod cancel;
mod config;
mod errors;
mod openai;
mod rig;
mod run;
mod serve;
mod sessions;
mod subagents;
mod terminal;
mod worktrees;
