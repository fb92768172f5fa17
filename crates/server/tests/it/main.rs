//! The OpenCode face over HTTP: every kind of operation, the recorded exchanges, and ACP.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail as tests do")]

#[path = "../../../acp/tests/it/schema.rs"]
mod schema;

mod accepted_differences;
mod acp;
mod catalog;
mod common;
mod configurations;
mod events;
mod faults;
mod load;
mod openapi;
mod operations;
mod project;
mod pty;
mod replay;
mod secrets;
mod services;
mod sessions;
mod tree;
mod tui;
mod turns;
mod v2;
