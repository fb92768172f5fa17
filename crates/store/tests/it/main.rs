//! The store, through what it offers to the engine.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail as tests do")]

mod common;
mod feed;
mod files;
mod ledger;
mod processes;
mod rows;
