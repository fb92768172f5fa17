//! The arguments of `trefoil a2a`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{ACCESS, MODEL};

/// `trefoil a2a`.
#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct A2a {
    /// How to serve.
    #[command(flatten)]
    pub serve: A2aServe,
    /// What to do instead.
    #[command(subcommand)]
    pub command: Option<A2aCommand>,
}

/// What `trefoil a2a` does with other agents.
#[derive(Debug, Clone, Subcommand)]
pub enum A2aCommand {
    /// Send a message to another agent and print its answer
    Call(A2aCall),
    /// Show the card of another agent: what it is and where it can be reached
    Card(A2aCard),
}

/// `trefoil a2a call`.
#[derive(Debug, Clone, Args)]
pub struct A2aCall {
    /// The agent.
    #[command(flatten)]
    pub agent: RemoteAgent,
    /// The message; may be left out with --task, to wait for its answer
    #[arg(value_name = "TEXT", required_unless_present = "task")]
    pub text: Vec<String>,
    /// Continue this conversation
    #[arg(long, value_name = "ID")]
    pub context: Option<String>,
    /// Continue this task: answer what it asks, or wait for its answer
    #[arg(long, value_name = "ID")]
    pub task: Option<String>,
    /// Print everything the agent says, one JSON object per line
    #[arg(long)]
    pub json: bool,
}

/// `trefoil a2a card`.
#[derive(Debug, Clone, Args)]
pub struct A2aCard {
    /// The agent.
    #[command(flatten)]
    pub agent: RemoteAgent,
    /// Print the whole card
    #[arg(long)]
    pub json: bool,
}

/// An agent elsewhere.
#[derive(Debug, Clone, Args)]
pub struct RemoteAgent {
    /// The URL of the agent, or of its card
    pub url: String,
    /// The variable that holds the agent's bearer token, instead of A2A_CLIENT_BEARER_TOKEN; of several, the first that is set
    #[arg(long, value_name = "NAME")]
    pub token_env: Vec<String>,
}

/// How `trefoil a2a` serves.
#[derive(Debug, Clone, Args)]
pub struct A2aServe {
    /// The port; 0 picks a free one. A2A_PORT can name it too; by default 8000
    #[arg(long)]
    pub port: Option<u16>,
    /// The address or name to listen on; A2A_HOST can name it too. By default only this machine can connect
    #[arg(long, visible_alias = "host", value_name = "HOST")]
    pub hostname: Option<String>,
    /// Answer with the script that conformance kits drive by message id, not with the agent
    #[arg(long)]
    pub conformance: bool,
    /// Ask callers for no credentials; only your own user on this machine can connect then
    #[arg(long, help_heading = ACCESS)]
    pub no_auth: bool,
    /// Play this script instead of calling a model; TREFOIL_SCRIPT can name it too
    #[arg(long, value_name = "FILE", help_heading = MODEL)]
    pub script: Option<PathBuf>,
}
