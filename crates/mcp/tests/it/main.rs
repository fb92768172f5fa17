//! The client of MCP servers, against servers of ours and of others.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail as tests do")]

mod common;
mod local;
mod reference;
mod remote;
