//! Checks the data model against recordings of OpenCode.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail as tests do")]

mod recordings;
mod schema;
