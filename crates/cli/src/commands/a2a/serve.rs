//! `trefoil a2a`: the A2A service.

use std::sync::Arc;

use a2a::service::Agent;
use api::{AgentRuntime, Host as _, Scope};
use engine::WatchdogScope;
use transport::backlog::Backlog;
use transport::listen::{self, AcceptOptions, Listen, StartError};
use transport::metrics::Gauge;

use crate::args::A2aServe;
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
    let has_credentials = settings.bearer_token.is_some() || settings.static_credentials.is_some();
    let listen = Listen::Tcp { host: settings.host.clone(), port: Some(settings.port) };
    let bound = listen.bind(settings.port, has_credentials).await.map_err(explain)?;
    let local = match settings.upstream_url {
        None => Some(open_engine(args, invocation)?),
        Some(_) => None,
    };
    let (host, store): (Arc<dyn AgentRuntime>, store::Store) = match &local {
        Some(local) => (Arc::new(local.engine.clone()), local.store.clone()),
        None => {
            let path = invocation.database_path();
            let store = store::Store::open(&path)
                .map_err(|error| wiring::database_failure(&error, "cannot open the database"))?;
            (wiring::a2a::upstream(&settings)?, store)
        }
    };
    let options = A2aOptions {
        host,
        store,
        agent: if args.conformance { Agent::Script } else { Agent::Host },
        open: args.no_auth,
        url: bound.url.clone(),
        at_root: true,
        closing: stop.token.clone(),
    };
    // Tasks that were cancelled before a crash stop here, before the engine resumes interrupted turns.
    let (service, endpoint) = wiring::a2a::open(settings, invocation, options).await?;
    terminal::print(&format!("a2a service listening on {}\n", bound.url))?;
    if let Some(local) = &local {
        let engine = local.engine.clone();
        tokio::spawn(async move {
            match engine.recover(None).await {
                Ok(0) => {}
                Ok(turns) => tracing::info!(turns, "resumed interrupted turns"),
                Err(error) => tracing::error!(%error, "cannot resume interrupted turns"),
            }
        });
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

fn open_engine(args: &A2aServe, invocation: &Invocation) -> anyhow::Result<LocalEngine> {
    let script = args.script.clone().or_else(|| invocation.script_file());
    wiring::open(invocation, script.as_deref(), true)
}

fn explain(error: StartError) -> Failure {
    let hint = match &error {
        StartError::Open(_) => "set A2A_BEARER_TOKEN, or listen on 127.0.0.1",
        StartError::Listen { error, .. } if error.kind() == std::io::ErrorKind::AddrInUse => {
            "another program listens there; choose another A2A_PORT, or 0 for any free one"
        }
        StartError::Listen { .. } => "check A2A_HOST and A2A_PORT",
    };
    Failure::new(Exit::Failed, error.to_string()).hint(hint)
}
