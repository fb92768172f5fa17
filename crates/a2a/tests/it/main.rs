//! The service on the engine of this process, driven by the scripted model.

#![expect(clippy::unwrap_used, reason = "whatever is missing fails the test")]

mod common;
mod fake;
#[cfg(feature = "grpc")]
mod grpc;
mod http;
mod opencode;
mod owners;
mod push;
mod race;
mod tasks;
mod upstream;
