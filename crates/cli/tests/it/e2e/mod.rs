//! The built program from outside: script files as models, real files, real processes.

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
mod openai;
mod permissions;
mod rig;
mod run;
mod serve;
mod sessions;
mod signals;
mod space;
mod subagents;
mod terminal;
mod worktrees;
