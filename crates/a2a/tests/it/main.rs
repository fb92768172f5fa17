//! The service on the engine of this process, driven by the scripted model.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "whatever is missing fails the test")]

mod common;
mod tasks;
