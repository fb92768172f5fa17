//! `trefoil serve`: the OpenCode server.

use std::time::Duration;

use api::{Host as _, JsonMap, Scope};
use engine::{TidyOptions, TidyReport, WatchdogScope};
use server::{Listen, Options, Password, Server, StartError};

use crate::args::Serve;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::term;
use crate::wire::{self, World};

/// How often what nobody needs any more is removed, beginning with the start.
const TIDY: Duration = Duration::from_secs(24 * 60 * 60);

/// Serves until a signal comes; turns that run are parked then, and go on at the next start.
pub async fn serve(args: &Serve, world: &World) -> anyhow::Result<()> {
    let stop = Interrupt::listen()?;
    let script = args.script.clone().or_else(|| world.script());
    let local = wire::open(world, script.as_deref(), true)?;
    // Better now than at the first prompt: a full disk lets itself be opened.
    let mut batch = store::Batch::new(&store::Location::new("", "")).durable();
    batch.record_if_changed("server", "started", &serde_json::json!({ "time": api::now() }));
    local.store.commit(batch).await.map_err(|error| wire::cannot_write(&error, "cannot serve"))?;
    let loaded = local.engine.loaded(&Scope::new(world.directory.to_string_lossy()));
    let password = password(args, world);
    if password.is_some() {
        conceal();
    }
    let options = Options {
        engine: local.engine.clone(),
        directory: world.directory.clone(),
        listen: listen(args, &loaded.config.server),
        password,
        cors: args.cors.iter().cloned().chain(texts(&loaded.config.server, "cors")).collect(),
        hosts: args.allow_host.clone(),
        version: env!("CARGO_PKG_VERSION").to_string(),
    };
    let server = Server::bind(options).await.map_err(explain)?;
    // OpenCode's clients wait for this line and take the address from it.
    term::print(&format!("opencode server listening on {}\n", server.url()))?;
    let engine = local.engine.clone();
    tokio::spawn(async move {
        // First: while the turn of their caller runs, nobody can tell them from those that are being made.
        match engine.clean_worktrees(false).await {
            Ok(cleaned) if cleaned == Default::default() => {}
            Ok(cleaned) => tracing::info!(?cleaned, "worktrees that a crash left behind are removed"),
            Err(error) => tracing::error!(%error, "worktrees that a crash left behind cannot be removed"),
        }
        match engine.recover(None).await {
            Ok(0) => {}
            Ok(turns) => tracing::info!(turns, "turns that were cut off go on"),
            Err(error) => tracing::error!(%error, "turns that were cut off cannot go on"),
        }
        loop {
            match engine.tidy(TidyOptions::default()).await {
                Ok(tidied) if tidied == TidyReport::default() => {}
                Ok(tidied) => tracing::info!(?tidied, "what nobody needs any more is removed"),
                Err(error) => tracing::error!(%error, "what nobody needs any more cannot be removed"),
            }
            tokio::time::sleep(TIDY).await;
        }
    });
    world.watch_over(&local.engine, WatchdogScope::All);
    let parked = async {
        stop.token.cancelled().await;
        local.engine.shutdown().await;
    };
    // Together: whoever waits for a turn learns at once that it is parked.
    tokio::join!(server.run(stop.token.clone()), parked);
    Ok(())
}

fn listen(args: &Serve, config: &JsonMap) -> Listen {
    if let Some(path) = &args.socket {
        return Listen::Unix(path.clone());
    }
    let configured = config.get("hostname").and_then(|name| name.as_str()).map(str::to_owned);
    let host = args.hostname.clone().or(configured).unwrap_or_else(|| "127.0.0.1".to_string());
    let configured = config.get("port").and_then(|port| port.as_u64()).and_then(|port| u16::try_from(port).ok());
    Listen::Tcp { host, port: args.port.or(configured) }
}

fn texts(config: &JsonMap, key: &str) -> Vec<String> {
    let list = config.get(key).and_then(|list| list.as_array()).map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(|item| item.as_str().map(str::to_owned)).collect()
}

/// Keeps the password from commands that we run: no process of the same user may read our memory or the environment that we were
/// started with, in which it stands. Debuggers and core dumps go with that.
fn conceal() {
    if let Err(error) = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "commands could read the password of this server");
    }
}

/// The password of the command line, else of the environment.
fn password(args: &Serve, world: &World) -> Option<Password> {
    let password = args.password.clone().or_else(|| world.server_secret("PASSWORD"))?;
    Some(Password { username: world.server_secret("USERNAME").unwrap_or_else(|| "opencode".to_string()), password })
}

fn explain(error: StartError) -> Failure {
    let hint = match &error {
        StartError::Open(_) => "set OPENCODE_SERVER_PASSWORD or --password, or listen on 127.0.0.1",
        StartError::Listen { error, .. } if error.kind() == std::io::ErrorKind::AddrInUse => {
            "something listens there already; choose another --port, or 0 for any that is free"
        }
        StartError::Listen { .. } => "check --hostname, --port and --socket",
    };
    Failure::new(Exit::Failed, error.to_string()).hint(hint)
}
