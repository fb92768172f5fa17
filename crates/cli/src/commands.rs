//! The commands, one module each, and how a command finds its host: this process's engine, or the server that `--attach` names.
//!
//! `run` itself is in [`crate::run`]; [`run`] here prepares it.

mod a2a;
mod acp;
mod acp_client;
mod agent;
mod auth;
mod config;
mod demo;
mod doctor;
mod gc;
mod mcp;
mod models;
mod permission;
mod run;
mod serve;
pub mod session;
mod tree;
mod trust;
mod worktree;

use std::sync::Arc;

use api::{AgentRuntime, HostError, Scope};

use crate::args::{self, Agent, Command, Permission, Session, Worktree};
use crate::exit::{Exit, Failure};
use crate::terminal::{self, Style};
use crate::wiring::{self, Interrupt, Invocation, LocalEngine};

/// Performs a command that needs no asynchronous runtime; `None` for all others.
pub fn without_runtime(command: &Command, invocation: &Invocation) -> Option<anyhow::Result<Exit>> {
    match command {
        Command::Config(args) => Some(config::command(args, invocation)),
        Command::Auth(args) => Some(auth::command(args, invocation).map(|()| Exit::Success)),
        Command::Acp(args) if args.login => Some(auth::login(invocation, None).map(|()| {
            terminal::say("Open the agent in your editor again.\n");
            Exit::Success
        })),
        _ => None,
    }
}

/// Performs a command.
pub async fn perform(command: &Command, invocation: &Invocation) -> anyhow::Result<Exit> {
    match command {
        Command::Doctor { json } => doctor::command(invocation, *json).await,
        command => work(command, invocation).await.map(|()| Exit::Success),
    }
}

async fn work(command: &Command, invocation: &Invocation) -> anyhow::Result<()> {
    match command {
        Command::Run(args) => return run::command(args, invocation).await,
        Command::Demo { folder, model } => {
            let (args, invocation) = demo::prepare(folder.as_deref(), model.as_deref(), invocation)?;
            return run::command(&args, &invocation).await;
        }
        Command::Serve(args) => return serve::command(args, invocation).await,
        Command::A2a(args) => return a2a::command(args, invocation).await,
        Command::Acp(args) => return acp::command(args, invocation).await,
        Command::AcpClient(args) => return acp_client::command(args, invocation).await,
        Command::Trust(args) => return trust::command(args, invocation, Interrupt::listen()?.token).await,
        _ => {}
    }
    if let Some(remote) = remote(command)
        && let Some((client, scope)) = wiring::remote_client(invocation, remote)?
    {
        let result = query(command, Arc::new(client.clone()), None, &scope, invocation).await;
        // If the address belongs to something else, that says more than the failed call.
        if result.as_ref().is_err_and(|error| error.is::<HostError>()) {
            client.identify().await?;
        }
        return result;
    }
    let local = match is_read_only(command) {
        true => wiring::open_for_reading(invocation)?,
        false => wiring::open(invocation, invocation.script_file().as_deref(), false)?,
    };
    let scope = Scope::new(invocation.directory.to_string_lossy());
    let result = match command {
        Command::Mcp { command, .. } => mcp::command(command, &local.engine, Some(&local.engine), &scope).await,
        Command::Gc { dry_run, json } => gc::command(&local, invocation, *dry_run, *json).await,
        _ => query(command, Arc::new(local.engine.clone()), Some(&local), &scope, invocation).await,
    };
    local.engine.shutdown().await;
    result
}

/// Whether a command writes nothing, so that it works where nothing can be written.
fn is_read_only(command: &Command) -> bool {
    match command {
        Command::Session { command, .. } => {
            matches!(command, Session::List { .. } | Session::Show { .. } | Session::Export { .. })
        }
        Command::Agent { command, .. } => matches!(command, Agent::List { .. } | Agent::Show { .. }),
        Command::Permission(command) => matches!(command, Permission::List { .. }),
        Command::Tree { watch, .. } => !watch,
        Command::Models { .. } => true,
        _ => false,
    }
}

/// The server options of a command, if it can work on a server.
fn remote(command: &Command) -> Option<&args::Remote> {
    match command {
        Command::Session { remote, .. }
        | Command::Tree { remote, .. }
        | Command::Steer { remote, .. }
        | Command::Pause { remote, .. }
        | Command::Resume { remote, .. }
        | Command::Cancel { remote, .. }
        | Command::Budget { remote, .. }
        | Command::Models { remote, .. }
        | Command::Agent { remote, .. }
        | Command::Mcp { remote, .. }
        | Command::Worktree { remote, .. } => Some(remote),
        _ => None,
    }
}

/// Performs a command that reads or changes what is stored, on any host. Some of them need the engine of this machine.
async fn query(
    command: &Command,
    shared: Arc<dyn AgentRuntime>,
    local: Option<&LocalEngine>,
    scope: &Scope,
    invocation: &Invocation,
) -> anyhow::Result<()> {
    let host = &*shared;
    match command {
        Command::Session { command, .. } => match command {
            Session::List { all, limit, json } => session::list(host, scope, *all, *limit, *json).await,
            Session::Show { id, json } => {
                session::show(host, scope, id, *json, Style::stdout(invocation.no_color())).await
            }
            Session::Export { id } => session::export(host, scope, id).await,
            Session::Import { file } => {
                session::import(host, need_local(local)?, scope, &invocation.directory, file).await
            }
            Session::Delete { ids } => session::delete(host, scope, ids).await,
        },
        Command::Tree { id, watch, json, .. } => {
            let style = Style::stdout(invocation.no_color());
            if *watch {
                return tree::watch(shared, scope, id, *json, style, Interrupt::listen()?.token).await;
            }
            tree::show(shared, scope, id, *json, style).await
        }
        Command::Steer { id, text, .. } => tree::steer(host, scope, id, &text.join(" ")).await,
        Command::Pause { id, .. } => tree::pause(host, scope, id, true).await,
        Command::Resume { id, .. } => tree::pause(host, scope, id, false).await,
        Command::Cancel { id, .. } => tree::cancel(host, scope, id).await,
        Command::Budget { id, bounds, .. } => tree::budget(host, scope, id, bounds).await,
        Command::Models { provider, json, .. } => models::list(host, scope, provider.as_deref(), *json).await,
        Command::Mcp { command, .. } => mcp::command(command, host, None, scope).await,
        Command::Agent { command, .. } => agent::command(command, host, local, scope, invocation).await,
        Command::Permission(command) => match command {
            Permission::List { json } => permission::list(&need_local(local)?.engine, *json),
            Permission::Revoke { ids, all, json } => {
                permission::revoke(&need_local(local)?.engine, ids, *all, *json).await
            }
        },
        Command::Worktree { command, .. } => match command {
            Worktree::List { json } => worktree::list(&need_local(local)?.engine, *json).await,
            Worktree::Diff { id, stat, json } => worktree::diff(host, scope, id, *stat, *json).await,
            Worktree::Merge { id, json } => worktree::merge(host, scope, id, *json).await,
            Worktree::Discard { id, json } => worktree::discard(host, scope, id, *json).await,
            Worktree::Clean { json } => worktree::clean(&need_local(local)?.engine, *json).await,
        },
        Command::Run(_)
        | Command::Demo { .. }
        | Command::Serve(_)
        | Command::A2a(_)
        | Command::Acp(_)
        | Command::AcpClient(_)
        | Command::Trust(_)
        | Command::Auth(_)
        | Command::Config(_)
        | Command::Doctor { .. }
        | Command::Gc { .. }
        | Command::Completion { .. } => Ok(()),
    }
}

/// The engine of this machine, for commands that need its files and its database.
fn need_local(local: Option<&LocalEngine>) -> Result<&LocalEngine, Failure> {
    local.ok_or_else(|| {
        Failure::new(Exit::Usage, "this works on the files and the database of this machine, not of a server")
            .hint("run it without --attach where the server runs; it shares the database")
    })
}
