//! `trefoil serve`: the OpenCode server.

use std::time::Duration;

use api::{Host as _, JsonMap, Scope};
use engine::{TidyOptions, TidyReport, WatchdogScope};
use server::{Listen, Options, Password, Server, StartError};

use crate::args::Serve;
use crate::exit::{Exit, Failure};
use crate::terminal;
use crate::wiring::{self, Interrupt, Invocation};

/// How often expired data is removed; the first time at the start.
const TIDY_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

/// Serves until a signal comes. Running turns are parked, and continue at the next start.
pub async fn command(args: &Serve, invocation: &Invocation) -> anyhow::Result<()> {
    let stop = Interrupt::listen()?;
    let script = args.script.clone().or_else(|| invocation.script_file());
    let local = wiring::open(invocation, script.as_deref(), true)?;
    // A database on a full disk can be opened. A write shows that now, not at the first prompt.
    let mut batch = store::Batch::new(&store::Location::new("", "")).durable();
    batch.record_if_changed("server", "started", &serde_json::json!({ "time": api::now() }));
    local.store.commit(batch).await.map_err(|error| wiring::database_failure(&error, "cannot serve"))?;
    let loaded = local.engine.loaded(&Scope::new(invocation.directory.to_string_lossy()));
    let password = password(args, invocation);
    if password.is_some() {
        protect_memory();
    }
    let options = Options {
        engine: local.engine.clone(),
        directory: invocation.directory.clone(),
        listen: listen(args, &loaded.config.server),
        password,
        cors: args.cors.iter().cloned().chain(strings(&loaded.config.server, "cors")).collect(),
        hosts: args.allow_host.clone(),
        version: env!("CARGO_PKG_VERSION").to_string(),
    };
    let server = Server::bind(options).await.map_err(explain)?;
    // OpenCode's clients wait for this line and take the address from it.
    terminal::print(&format!("opencode server listening on {}\n", server.url()))?;
    let engine = local.engine.clone();
    tokio::spawn(async move {
        // Before the recovery: while the caller's turn runs, leftovers look like worktrees that are being created.
        match engine.clean_worktrees(false).await {
            Ok(cleaned) if cleaned == Default::default() => {}
            Ok(cleaned) => tracing::info!(?cleaned, "removed worktrees that a crash left behind"),
            Err(error) => tracing::error!(%error, "cannot remove worktrees that a crash left behind"),
        }
        match engine.recover(None).await {
            Ok(0) => {}
            Ok(turns) => tracing::info!(turns, "resumed interrupted turns"),
            Err(error) => tracing::error!(%error, "cannot resume interrupted turns"),
        }
        loop {
            match engine.tidy(TidyOptions::default()).await {
                Ok(tidied) if tidied == TidyReport::default() => {}
                Ok(tidied) => tracing::info!(?tidied, "removed expired data"),
                Err(error) => tracing::error!(%error, "cannot remove expired data"),
            }
            tokio::time::sleep(TIDY_INTERVAL).await;
        }
    });
    invocation.start_watchdog(&local.engine, WatchdogScope::All);
    let parked = async {
        stop.token.cancelled().await;
        local.engine.shutdown().await;
    };
    // At the same time, so that waiting clients learn at once that their turn is parked.
    tokio::join!(server.run(stop.token.clone(), None), parked);
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

fn strings(config: &JsonMap, key: &str) -> Vec<String> {
    let list = config.get(key).and_then(|list| list.as_array()).map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(|item| item.as_str().map(str::to_owned)).collect()
}

/// Hides the password from commands: no process of the same user can read this process's memory or its initial environment, which
/// has the password. This also disables debuggers and core dumps.
fn protect_memory() {
    if let Err(error) = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "commands can read the password of this server");
    }
}

/// The password from the command line, or else from the environment.
fn password(args: &Serve, invocation: &Invocation) -> Option<Password> {
    let password = args.password.clone().or_else(|| invocation.server_secret("PASSWORD"))?;
    Some(Password {
        username: invocation.server_secret("USERNAME").unwrap_or_else(|| "opencode".to_string()),
        password,
    })
}

fn explain(error: StartError) -> Failure {
    let hint = match &error {
        StartError::Open(_) => "set OPENCODE_SERVER_PASSWORD or --password, or listen on 127.0.0.1",
        StartError::Listen { error, .. } if error.kind() == std::io::ErrorKind::AddrInUse => {
            "another program listens there; choose another --port, or 0 for any free one"
        }
        StartError::Listen { .. } => "check --hostname, --port and --socket",
    };
    Failure::new(Exit::Failed, error.to_string()).hint(hint)
}
