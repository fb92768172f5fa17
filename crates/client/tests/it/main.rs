//! The client against scripted and real servers.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail as tests do")]

mod hosts;
mod wire;
