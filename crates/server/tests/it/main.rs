//! The OpenCode face over HTTP: every kind of operation, the recorded exchanges, and ACP behind it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail as tests do")]

#[path = "../../../acp/tests/it/schema.rs"]
mod schema;

mod accepted;
mod acp;
mod catalog;
mod common;
mod configurations;
mod events;
mod faults;
mod load;
mod newer;
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
