//! The engine, through its contract: sessions, turns, subagents and what they are made of.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail as tests do")]

mod agents;
mod asks;
mod background;
mod budgets;
mod common;
mod control;
mod fresh;
mod kept;
mod mcp;
mod races;
mod recorded;
mod remote;
mod schedules;
mod tasks;
mod turns;
mod watchdog;
mod worktrees;
