//! The MCP client, against our own test servers and the reference servers.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail as tests do")]

mod common;
mod local;
mod reference;
mod remote;
