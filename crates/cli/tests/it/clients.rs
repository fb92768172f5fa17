//! The server with real clients: OpenCode's SDK, its terminal client, its `run`; with requests generated from our own description; and
//! with hostile clients. The agent with the SDKs of ACP, and the A2A service with
//! those of A2A.

mod a2a;
mod abuse;
mod acp;
mod acp_client;
mod environment;
mod generator;
pub mod harness;
mod hostile;
mod opencode_run;
pub mod opencode_terminal;
mod promise;
mod recorder;
mod refused;
mod runner;
mod sdk;
