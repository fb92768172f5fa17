//! What tests share: a temporary project, a model server that the test drives chunk by chunk, and a recorder of events.
//!
//! Everything here fails the test with a message that says what was awaited and what came instead; nothing waits longer
//! than [`WAIT`]. For tests only: unlike the other crates below `cli` it reads the environment (`PATH`, the test's own
//! executable).

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test kit fails the test")]

mod binary;
mod call;
mod mcp;
mod model;
mod opencode;
mod outline;
mod program;
mod project;
mod recorder;
mod recording;
mod reply;
mod wait;

use std::time::Duration;

pub use binary::{target_folder, trefoil_bin};
pub use call::{Call, Request};
pub use mcp::mcp_server;
pub use model::ModelServer;
pub use opencode::OpenCode;
pub use outline::{by_session, outline};
pub use program::{autopsy, finish};
pub use project::TempProject;
pub use recorder::Recorder;
pub use recording::{recorded_events, recorded_lines, recordings};
pub use reply::Reply;
pub use wait::{aside, eventually, soon, until};

/// The longest that anything in here waits for something to happen.
pub const WAIT: Duration = Duration::from_secs(60);
