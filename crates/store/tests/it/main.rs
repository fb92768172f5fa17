//! Tests of the store through its public interface.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail as tests do")]

mod common;
mod faults;
mod feed;
mod files;
mod ledger;
mod long_reads;
mod order;
mod owners;
mod pages;
mod processes;
mod records;
mod rows;
mod sources;
mod space;
mod tables;
mod turns;
