//! The built program, end to end: scripts as models, real files, real processes.

pub mod a2a;
mod a2a_call;
mod acp_client;
mod agents;
mod cancel;
mod config;
mod costs;
mod descriptors;
mod errors;
mod faults;
mod first_hour;
mod full_disk;
pub mod harness;
mod openai;
mod permissions;
mod run;
mod serve;
mod sessions;
mod signals;
mod space;
mod subagents;
mod terminal;
mod tree_watch;
mod worktrees;
