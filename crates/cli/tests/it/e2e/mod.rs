//! The built program from outside: script files as models, real files, real processes.

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
