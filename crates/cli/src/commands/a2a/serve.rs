//! `trefoil a2a`: the A2A service.

use std::sync::Arc;

use ::a2a::service::Agent;
use api::{AgentRuntime, Scope};
use engine::WatchdogScope;
use transport::backlog::Backlog;
use transport::listen::{self, AcceptOptions, Listen, StartError};
use transport::metrics::Gauge;

use crate::args::A2aServe;
use crate::commands::serve::start_upkeep;
use crate::exit::{Exit, Failure};
use crate::terminal;
use crate::wiring::{self, Interrupt, Invocation, LocalEngine, a2a::A2aOptions};

/// Serves until a signal comes. Running turns of the engine are parked, and continue at the next start.
pub async fn command(args: &A2aServe, invocation: &Invocation) -> anyhow::Result<()> {
    let stop = Interrupt::listen()?;
    let config = config::load(&invocation.config_inputs()).config;
    let mut settings = wiring::a2a::settings(invocation, &config.a2a)?;
    settings.host = args.hostname.clone().unwrap_or(settings.host);
    settings.port = args.port.unwrap_or(settings.port);
    let prepared = wiring::a2a::prepare(settings, invocation, args.no_auth)?;
    let settings = &prepared.settings;
    let listen = Listen::Tcp { host: settings.host.clone(), port: Some(settings.port) };
    let bound = listen.bind(settings.port, !args.no_auth).await.map_err(explain)?;
    let local = match settings.upstream_url {
        None => Some(open_engine(args, invocation).await?),
        Some(_) => None,
    };
    let host: Arc<dyn AgentRuntime> = match &local {
        Some(local) => Arc::new(local.engine.clone()),
        None => wiring::a2a::upstream(settings)?,
    };
    if !args.no_auth {
        wiring::protect_memory();
    }
    let options = A2aOptions {
        host,
        store: local.as_ref().map(|local| local.store.clone()),
        agent: if args.conformance { Agent::Script } else { Agent::Host },
        url: bound.url.clone(),
        closing: stop.token.clone(),
    };
    // Tasks that were cancelled before a crash stop here, before the engine resumes interrupted turns.
    let (service, endpoint) = wiring::a2a::open(prepared, invocation, options).await?;
    terminal::print(&format!("a2a service listening on {}\n", bound.url))?;
    if let Some(local) = &local {
        start_upkeep(&local.engine);
        invocation.start_watchdog(&local.engine, WatchdogScope::All);
    }
    let accept = AcceptOptions {
        closing: stop.token.clone(),
        backlog: Backlog::default(),
        connections: Gauge::default(),
        stranger_refusal: args.no_auth.then_some(STRANGER_REFUSAL),
        descriptor_limit: exec::descriptor_limit(),
    };
    let parked = async {
        stop.token.cancelled().await;
        service.shutdown().await;
        if let Some(local) = &local {
            local.engine.shutdown().await;
        }
    };
    // At the same time, so that waiting clients learn at once that the service stops.
    tokio::join!(listen::accept(bound.socket, accept, endpoint), parked);
    Ok(())
}

/// The answer to another user of this machine when there are no credentials.
const STRANGER_REFUSAL: &str = "{\"error\":\"This service belongs to another user of this machine, or it cannot tell who \
    you are; start it with credentials to share it\"}";

async fn open_engine(args: &A2aServe, invocation: &Invocation) -> anyhow::Result<LocalEngine> {
    let script = args.script.clone().or_else(|| invocation.script_file());
    let local = wiring::open(invocation, script.as_deref(), true)?;
    wiring::prove_writable(&local.store).await?;
    // Loads the configuration now, and not with the first message.
    local.engine.loaded(&Scope::new(invocation.directory.to_string_lossy()));
    Ok(local)
}

fn explain(error: StartError) -> Failure {
    let hint = match &error {
        StartError::Open(_) => "set A2A_BEARER_TOKEN, or listen on 127.0.0.1",
        StartError::Listen { error, .. } if error.kind() == std::io::ErrorKind::AddrInUse => {
            "another program listens there; choose another --port or A2A_PORT, or 0 for any free one"
        }
        StartError::Listen { .. } => "check --hostname and --port, or A2A_HOST and A2A_PORT",
    };
    Failure::new(Exit::Failed, error.to_string()).hint(hint)
}
