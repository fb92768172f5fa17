//! Accepting HTTP connections: who may connect and call, how many connections are open, how much may wait for a slow client.
//!
//! Nothing here knows OpenCode's operations; a second HTTP face can share it. Only [`listen`] touches the server's state: it
//! hands each request to it.

pub mod backlog;
pub mod guard;
pub mod listen;
pub mod peer;
pub mod secret;
