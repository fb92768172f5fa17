//! `trefoil a2a`: this agent for other agents, and other agents for its user.

mod call;
mod card;
mod display;
mod serve;

use ::a2a::client::{A2AClient, ChosenBy, ClientCredentials, ClientError, Peer};

use crate::args::{A2a, A2aCommand, RemoteAgent};
use crate::exit::{Exit, Failure};
use crate::wiring::{Invocation, agents};

/// Performs the command.
pub async fn command(args: &A2a, invocation: &Invocation) -> anyhow::Result<()> {
    match &args.command {
        None => serve::command(&args.serve, invocation).await,
        Some(A2aCommand::Call(args)) => call::command(args, invocation).await,
        Some(A2aCommand::Card(args)) => card::command(args, invocation).await,
    }
}

/// The agent that the user names. Credentials come from the environment alone: others can read command lines.
fn peer(args: &RemoteAgent, invocation: &Invocation) -> Result<Peer, Failure> {
    let mut options = agents::client_options(invocation).map_err(|error| {
        Failure::new(Exit::Usage, error.to_string()).hint("docs/a2a-outbound.md lists the settings of the client")
    })?;
    if !args.token_env.is_empty() {
        let value =
            |name: &String| invocation.env.get(name).map(|token| token.trim()).filter(|token| !token.is_empty());
        let token = args.token_env.iter().find_map(value).ok_or_else(|| {
            let message = format!("the environment has no {}", args.token_env.join(" and no "));
            Failure::new(Exit::Usage, message).hint("set it to the agent's token")
        })?;
        options.credentials = Some(ClientCredentials::Bearer(token.to_owned()));
    }
    A2AClient::new(options).peer(&args.url, ChosenBy::User).map_err(|error| failure(&error))
}

/// The failure of a call.
fn failure(error: &ClientError) -> Failure {
    let exit = if matches!(error, ClientError::Url { .. }) { Exit::Usage } else { Exit::Failed };
    Failure::new(exit, error.to_string())
}
