//! The engine, through its contract: sessions, turns, subagents and what they are made of.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail as tests do")]

mod agents;
mod approvals;
mod asks;
mod background;
mod budgets;
mod common;
mod control;
mod faults;
mod fresh;
mod kept;
mod known;
mod load;
mod mcp;
mod order;
mod races;
mod recorded;
mod remote;
mod rules;
mod schedules;
mod search;
mod tasks;
mod tidy;
mod turns;
mod watchdog;
mod worktrees;
