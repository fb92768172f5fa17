//! `trefoil a2a`: this agent for other agents.

mod serve;

use crate::args::A2a;
use crate::wiring::Invocation;

/// Performs the command.
pub async fn command(args: &A2a, invocation: &Invocation) -> anyhow::Result<()> {
    serve::command(&args.serve, invocation).await
}
