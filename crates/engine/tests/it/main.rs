//! Tests of the engine through its contract: sessions, turns, subagents and their parts.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail as tests do")]

mod agents;
mod approvals;
mod asks;
mod background;
mod budgets;
mod callers;
mod common;
mod config_reload;
mod control;
mod conversation_cache;
mod faults;
mod known_files;
mod load;
mod mcp;
mod order;
mod providers;
mod races;
mod recorded;
mod remote;
mod rules;
mod schedules;
mod search;
mod tasks;
mod tidy;
mod turn_objects;
mod turns;
mod vendor_data;
mod watchdog;
mod workspaces;
mod worktrees;
