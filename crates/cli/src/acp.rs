//! `trefoil acp`: the agent of an editor. Standard output belongs to the protocol.

use std::sync::Arc;

use ::acp::rpc::{ByteSink, ByteSource};
use ::acp::{AgentOptions, LocalEngine, Login, McpOwners};
use api::{Environment, Host, SessionId};
use engine::{Engine, WatchdogScope};

use crate::args::Acp;
use crate::interrupt::Interrupt;
use crate::wire::{self, World};

/// Serves the editor until it hangs up or a signal comes; turns that run then are parked, and go on when their session is
/// opened again.
pub async fn acp(args: &Acp, world: &World) -> anyhow::Result<()> {
    let stop = Interrupt::listen()?;
    let script = args.script.clone().or_else(|| world.script());
    let (host, engine): (Arc<dyn Host>, Option<Engine>) = match wire::client(world, &args.remote)? {
        Some((client, _)) => (Arc::new(client), None),
        None => {
            let engine = wire::open_careful(world, script.as_deref())?.engine;
            world.watch_over(&engine, WatchdogScope::Opened);
            (Arc::new(engine.clone()), Some(engine))
        }
    };
    let program = std::env::current_exe().map_or_else(|_| "trefoil".into(), |path| path.to_string_lossy().into_owned());
    let options = AgentOptions {
        host,
        local: engine.clone().map(|engine| Arc::new(Own(engine)) as Arc<dyn LocalEngine>),
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

/// The engine of this process.
struct Own(Engine);

impl LocalEngine for Own {
    fn disk(&self) -> Arc<dyn Environment> {
        Arc::new(tools::LocalEnvironment)
    }

    fn bind(&self, session: &SessionId, environment: Option<Arc<dyn Environment>>) {
        self.0.bind(session, environment);
    }
}
