//! Shared test helpers: a temporary project, a model server that the test drives chunk by chunk, and an event recorder.
//!
//! Everything here fails the test with a message that says what was expected and what happened instead; nothing waits
//! longer than [`WAIT`]. For tests only: unlike the other crates below `cli` it reads the environment (`PATH`, the
//! test's own executable).

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test kit fails the test")]

mod a2a_peer;
mod binary;
mod mcp;
mod model;
mod model_call;
mod opencode;
mod outline;
mod program;
mod project;
mod recorder;
mod recording;
mod reply;
mod wait;

use std::time::Duration;

pub use a2a_peer::{
    A2A_CONTEXT, A2A_TASK, A2aLine, A2aPeer, A2aRequest, broken_stream, event_stream, json_response, open_stream,
};
pub use binary::{target_folder, trefoil_bin};
pub use mcp::mcp_server;
pub use model::ModelServer;
pub use model_call::{ModelCall, Request};
pub use opencode::OpenCode;
pub use outline::{by_session, outline};
pub use program::{autopsy, finish};
pub use project::TempProject;
pub use recorder::Recorder;
pub use recording::{recorded_events, recorded_lines, recordings};
pub use reply::Reply;
pub use wait::{eventually, on_thread, soon, until};

/// The maximum time that anything here waits.
pub const WAIT: Duration = Duration::from_secs(60);
