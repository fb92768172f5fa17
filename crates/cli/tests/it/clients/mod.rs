//! The server with clients that others wrote: OpenCode's SDK, its terminal client, its `run`; with a generator of requests
//! made from our own description; and with clients that mean no good. And the agent with the SDKs of ACP.

mod abuse;
mod acp;
mod acp_client;
mod environment;
mod generator;
mod hostile;
mod opencode_run;
pub mod opencode_terminal;
mod promise;
mod recorder;
mod refused;
mod rig;
mod runner;
mod sdk;
