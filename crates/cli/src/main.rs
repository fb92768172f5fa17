//! `trefoil`: the command line. The only crate that reads the environment, the arguments and the current directory, and
//! the only one that prints.

mod acp;
mod acp_client;
mod args;
mod config_cmd;
mod demo;
mod doctor;
mod exit;
mod import;
mod interrupt;
mod log;
mod login;
mod models;
mod run;
mod serve;
mod session;
mod term;
mod trust;
mod wire;

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use api::{Host, Scope};
use clap::{CommandFactory as _, Parser as _};

use args::{Cli, Command, Format, Session};
use exit::{Exit, Failure};
use interrupt::Interrupt;
use term::Style;
use wire::World;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Threads for asynchronous work; what takes time runs in threads and processes of its own.
const WORKERS: usize = 2;
/// How many configuration problems `run` names; `config check` names them all.
const MAX_PROBLEMS: usize = 8;

fn main() -> ExitCode {
    let mut given = std::env::args_os().skip(1).peekable();
    if given.next_if(|first| first == exec::SUPERVISE_ARG).is_some() {
        return exec::supervise(given);
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(Exit::Usage as u8));
        }
    };
    match dispatch(cli) {
        Ok(exit) => exit.into(),
        // Somebody has read enough (`trefoil session list | head`): nothing to say, and nobody to say it to.
        Err(error) if is_broken_pipe(&error) => Exit::Failed.into(),
        Err(error) => {
            let (exit, text) = exit::explain(error);
            term::eprint(&text);
            exit.into()
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

fn dispatch(cli: Cli) -> anyhow::Result<Exit> {
    if let Command::Completion { shell } = cli.command {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut Cli::command(), "trefoil", &mut script);
        term::print(&String::from_utf8_lossy(&script))?;
        return Ok(Exit::Success);
    }
    let world = World::read()?;
    log::start(cli.log_level.as_deref(), cli.print_logs, &world.dirs.state)?;
    match &cli.command {
        Command::Config(args) => return config_cmd::command(args, &world),
        Command::Doctor { json } => return doctor::command(&world, *json),
        Command::Acp(args) if args.login => return login::login(&world),
        _ => {}
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build();
    let runtime = runtime.context("cannot start the asynchronous runtime")?;
    let result = runtime.block_on(perform(&cli.command, &world));
    // A reader of the terminal may still be blocked; it must not keep the process.
    runtime.shutdown_background();
    result.map(|()| Exit::Success)
}

async fn perform(command: &Command, world: &World) -> anyhow::Result<()> {
    match command {
        Command::Run(args) => return perform_run(args, world).await,
        Command::Demo { folder } => {
            let (args, world) = demo::prepare(folder.as_deref(), world)?;
            return perform_run(&args, &world).await;
        }
        Command::Serve(args) => return serve::serve(args, world).await,
        Command::Acp(args) => return acp::acp(args, world).await,
        Command::AcpClient(args) => return acp_client::acp_client(args, world).await,
        Command::Trust(args) => return trust::command(args, world, Interrupt::listen()?.token).await,
        _ => {}
    }
    if let Command::Session { remote, .. } | Command::Models { remote, .. } | Command::Agents { remote, .. } = command
        && let Some((host, scope)) = wire::attach(world, remote)?
    {
        return query(command, host.as_ref(), None, &scope, world).await;
    }
    let local = wire::open(world, world.script().as_deref(), false)?;
    let scope = Scope::new(world.directory.to_string_lossy());
    let result = query(command, &local.engine, Some(&local.store), &scope, world).await;
    local.engine.shutdown().await;
    result
}

/// Everything that only looks, or changes what is stored. A host far away has no store.
async fn query(
    command: &Command,
    host: &dyn Host,
    store: Option<&store::Store>,
    scope: &Scope,
    world: &World,
) -> anyhow::Result<()> {
    match command {
        Command::Session { command, .. } => match command {
            Session::List { all, limit, json } => session::list(host, scope, *all, *limit, *json).await,
            Session::Show { id, json } => session::show(host, scope, id, *json, Style::stdout(world.no_color())).await,
            Session::Export { id } => session::export(host, scope, id).await,
            Session::Import { file } => {
                let local = store.ok_or_else(|| {
                    Failure::new(
                        Exit::Usage,
                        "a session is imported into the database of this machine, not of a server",
                    )
                    .hint("run `trefoil session import` where the server runs; it shares the database")
                })?;
                import::import(host, local, scope, &world.directory, file).await
            }
            Session::Delete { ids } => session::delete(host, scope, ids).await,
        },
        Command::Models { provider, json, .. } => models::models(host, scope, provider.as_deref(), *json).await,
        Command::Agents { json, .. } => models::agents(host, scope, *json).await,
        Command::Run(_)
        | Command::Demo { .. }
        | Command::Serve(_)
        | Command::Acp(_)
        | Command::AcpClient(_)
        | Command::Trust(_)
        | Command::Config(_)
        | Command::Doctor { .. }
        | Command::Completion { .. } => Ok(()),
    }
}

async fn perform_run(args: &args::Run, world: &World) -> anyhow::Result<()> {
    let interrupt = Interrupt::listen()?;
    let task = interrupt.token.run_until_cancelled(run::Task::read(args, &world.directory)).await;
    let task = task.ok_or_else(run::cancelled)??;
    let interactive = run::interactive();
    if let Some((host, scope)) = wire::attach(world, &args.remote)? {
        return run::run(args, task, scope, host, run::Typed::default(), world.no_color(), interrupt).await;
    }
    let args = &args::Run { script: args.script.clone().or_else(|| world.script()), ..args.clone() };
    let scope = Scope::new(world.directory.to_string_lossy());
    let mut local = wire::open(world, args.script.as_deref(), interactive)?;
    let loaded = local.engine.loaded(&scope);
    for problem in loaded.problems.iter().take(MAX_PROBLEMS) {
        term::eprint(&format!("configuration: {}\n", term::one_line(&problem.to_string(), 500)));
    }
    if loaded.problems.len() > MAX_PROBLEMS {
        term::eprint("configuration: there is more; `trefoil config check` names it all\n");
    }
    let mut typed = run::Typed::default();
    let ask = (interactive && args.format == Format::Default).then_some(&mut typed);
    if trust::offer(&loaded, world, ask, interrupt.token.clone()).await? {
        local.engine.shutdown().await;
        drop(local);
        local = wire::open(world, args.script.as_deref(), interactive)?;
    }
    let host: Arc<dyn Host> = Arc::new(local.engine.clone());
    let result = run::run(args, task, scope, host, typed, world.no_color(), interrupt).await;
    local.engine.shutdown().await;
    result
}
