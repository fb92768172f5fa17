//! What every HTTP face needs below its protocol: accepting connections, who may connect and call, how much may wait for a
//! slow client, framing of event streams, metrics as text.
//!
//! Invariants: nothing here knows a protocol on top of HTTP, the engine or the store; a face maps each refusal to an error
//! of its own shape; nothing is durable.

pub mod backlog;
pub mod body;
pub mod conditional;
pub mod gzip;
pub mod limit;
pub mod listen;
pub mod metrics;
pub mod mount;
pub mod origin;
pub mod peer;
pub mod request_id;
pub mod secret;
pub mod sse;
pub mod trace;
