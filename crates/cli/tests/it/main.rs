//! The program `trefoil`, alone and with real clients.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail as tests do")]

#[path = "../../../acp/tests/it/schema.rs"]
mod schema;

mod clients;
mod crash;
mod demo;
mod documents;
mod e2e;
mod runner;
