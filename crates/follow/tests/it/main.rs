//! Turns that are followed on the engine of this process, and over HTTP.

#![expect(clippy::unwrap_used, reason = "whatever is missing fails the test")]
