//! `trefoil run`: opens the host that a task runs on, and offers to trust the repository's configuration first.

use std::sync::Arc;

use api::{Caller, Scope};
use engine::WatchdogScope;

use super::trust;
use crate::args::{Format, Run};
use crate::run::{self, TaskInput};
use crate::terminal::{self, LineReader, is_interactive};
use crate::wiring::{self, Interrupt, Invocation, Signal};

/// The name of this program among the callers of a host.
const CLIENT: &str = "trefoil run";
/// How many configuration problems are shown; `config check` shows them all.
const MAX_PROBLEMS: usize = 8;

/// Runs a task to its end.
pub async fn command(args: &Run, invocation: &Invocation) -> anyhow::Result<()> {
    let interrupt = Interrupt::listen()?;
    let task = interrupt.token.run_until_cancelled(TaskInput::read(args, &invocation.directory)).await;
    let task = task.ok_or_else(|| run::unsent(interrupt.signal().unwrap_or(Signal::Interrupt)))??;
    let interactive = is_interactive();
    let capabilities = invocation.terminal_capabilities();
    if let Some((client, scope)) = wiring::remote_client(invocation, &args.remote)? {
        // The address may belong to something else, which must not get the task.
        client.identify().await?;
        let host = Arc::new(client.with_caller(Caller::owner(CLIENT)));
        return run::run(args, task, scope, host, LineReader::default(), capabilities, interrupt).await;
    }
    let args = &Run { script: args.script.clone().or_else(|| invocation.script_file()), ..args.clone() };
    let scope = Scope::new(invocation.directory.to_string_lossy());
    let mut local = wiring::open(invocation, args.script.as_deref(), interactive)?;
    let loaded = local.engine.loaded(&scope);
    for problem in loaded.problems.iter().take(MAX_PROBLEMS) {
        terminal::say(&format!("configuration: {}\n", terminal::one_line(&problem.to_string(), 500)));
    }
    if loaded.problems.len() > MAX_PROBLEMS {
        terminal::say("configuration: there is more; `trefoil config check` names it all\n");
    }
    let mut input = LineReader::default();
    let ask = (interactive && args.format == Format::Default).then_some(&mut input);
    if trust::offer(&loaded, invocation, ask, interrupt.token.clone()).await? {
        local.engine.shutdown().await;
        drop(local);
        local = wiring::open(invocation, args.script.as_deref(), interactive)?;
    }
    invocation.start_watchdog(&local.engine, WatchdogScope::Opened);
    let host = Arc::new(local.engine.with_caller(Caller::owner(CLIENT)));
    let result = run::run(args, task, scope, host, input, capabilities, interrupt).await;
    local.engine.shutdown().await;
    result
}
