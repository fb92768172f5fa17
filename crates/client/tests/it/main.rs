//! The client, against servers that answer as a test says and against real ones.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail as tests do")]

mod hosts;
mod wire;
