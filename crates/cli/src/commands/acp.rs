//! `trefoil acp`: the agent that an editor starts. Standard output belongs to the protocol.

use std::sync::Arc;

use ::acp::rpc::{ByteSink, ByteSource};
use ::acp::{AgentOptions, LocalEngine, Login, McpOwners};
use api::{AgentRuntime, Environment, SessionId};
use engine::{Engine, WatchdogScope};

use crate::args::Acp;
use crate::wiring::{self, Interrupt, Invocation};

/// Serves the editor until it disconnects or a signal comes. Running turns are parked, and continue when their session is opened
/// again.
pub async fn command(args: &Acp, invocation: &Invocation) -> anyhow::Result<()> {
    let stop = Interrupt::listen()?;
    let script = args.script.clone().or_else(|| invocation.script_file());
    let (host, engine): (Arc<dyn AgentRuntime>, Option<Engine>) = match wiring::remote_client(invocation, &args.remote)?
    {
        Some((client, _)) => (Arc::new(client), None),
        None => {
            let engine = wiring::open_for_editor(invocation, script.as_deref())?.engine;
            invocation.start_watchdog(&engine, WatchdogScope::Opened);
            (Arc::new(engine.clone()), Some(engine))
        }
    };
    let program = std::env::current_exe().map_or_else(|_| "trefoil".into(), |path| path.to_string_lossy().into_owned());
    let options = AgentOptions {
        host,
        local: engine.clone().map(|engine| Arc::new(ProcessEngine(engine)) as Arc<dyn LocalEngine>),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        login: Login { program, command: vec!["acp".to_owned()], args: vec!["--login".to_owned()] },
        mcp_owners: McpOwners::default(),
    };
    let (source, sink) = (ByteSource::new(tokio::io::stdin()), ByteSink::new(tokio::io::stdout()));
    ::acp::serve(options, source, sink, stop.token).await;
    if let Some(engine) = engine {
        engine.shutdown().await;
    }
    Ok(())
}

/// The engine of this process, whose sessions can use the editor's files and terminals.
struct ProcessEngine(Engine);

impl LocalEngine for ProcessEngine {
    fn disk(&self) -> Arc<dyn Environment> {
        Arc::new(tools::LocalEnvironment)
    }

    fn bind(&self, session: &SessionId, environment: Option<Arc<dyn Environment>>) {
        self.0.bind(session, environment);
    }
}
