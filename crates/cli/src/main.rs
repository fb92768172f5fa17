//! `trefoil`: the command line. The only crate that reads the environment, the arguments and the current directory, and
//! the only one that prints.

mod acp;
mod acp_client;
mod agent;
mod args;
mod auth;
mod config_cmd;
mod demo;
mod doctor;
mod exit;
mod gc;
mod help;
mod import;
mod interrupt;
mod log;
mod mcp;
mod memory;
mod models;
mod permission;
mod picture;
mod reveal;
mod run;
mod serve;
mod session;
mod term;
mod tree;
mod trust;
mod wire;
mod worktree;

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use api::{Host, HostError, Scope};
use clap::{CommandFactory as _, Parser as _};
use engine::WatchdogScope;

use args::{Agent, Cli, Command, Format, Permission, Session, Worktree};
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
    exec::raise_descriptor_limit();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // The help has more than what parsing needs, and is made only for those who read it.
            let shown = help::command(term::columns()).try_get_matches().err().unwrap_or(error);
            let _ = shown.print();
            return ExitCode::from(u8::try_from(shown.exit_code()).unwrap_or(Exit::Usage as u8));
        }
    };
    match dispatch(cli) {
        Ok(exit) => exit.into(),
        // Somebody has read enough (`trefoil session list | head`): nothing to say, and nobody to say it to.
        Err(error) if is_broken_pipe(&error) => Exit::Failed.into(),
        Err(error) => {
            let (exit, text) = exit::explain(error);
            term::eprint(&term::fit(&text));
            exit.into()
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

fn dispatch(cli: Cli) -> anyhow::Result<Exit> {
    let Some(command) = &cli.command else {
        term::print(&help::welcome())?;
        return Ok(Exit::Success);
    };
    if let Command::Completion { shell } = *command {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut Cli::command(), "trefoil", &mut script);
        term::print(&String::from_utf8_lossy(&script))?;
        return Ok(Exit::Success);
    }
    let world = World::read()?;
    world.set_clock()?;
    let redactor = config::Redactor::read(&world.env, &world.dirs.data);
    log::start(cli.log_level.as_deref(), cli.print_logs, &world.dirs.state, redactor)?;
    match command {
        Command::Config(args) => return config_cmd::command(args, &world),
        Command::Auth(args) => return auth::command(args, &world).map(|()| Exit::Success),
        Command::Acp(args) if args.login => {
            auth::login(&world, None)?;
            term::eprint("Open the agent in your editor again.\n");
            return Ok(Exit::Success);
        }
        _ => {}
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build();
    let runtime = runtime.context("cannot start the asynchronous runtime")?;
    let result = runtime.block_on(async {
        tokio::select! {
            result = perform(command, &world) => result,
            never = memory::give_back() => match never {},
        }
    });
    // A reader of the terminal may still be blocked; it must not keep the process.
    runtime.shutdown_background();
    result
}

async fn perform(command: &Command, world: &World) -> anyhow::Result<Exit> {
    match command {
        Command::Doctor { json } => doctor::command(world, *json).await,
        command => work(command, world).await.map(|()| Exit::Success),
    }
}

async fn work(command: &Command, world: &World) -> anyhow::Result<()> {
    match command {
        Command::Run(args) => return perform_run(args, world).await,
        Command::Demo { folder, model } => {
            let (args, world) = demo::prepare(folder.as_deref(), model.as_deref(), world)?;
            return perform_run(&args, &world).await;
        }
        Command::Serve(args) => return serve::serve(args, world).await,
        Command::Acp(args) => return acp::acp(args, world).await,
        Command::AcpClient(args) => return acp_client::acp_client(args, world).await,
        Command::Trust(args) => return trust::command(args, world, Interrupt::listen()?.token).await,
        _ => {}
    }
    if let Some(remote) = remote(command)
        && let Some((client, scope)) = wire::client(world, remote)?
    {
        let result = query(command, &client, None, &scope, world).await;
        // What is there may be something else altogether, which says more than what it answered.
        if result.as_ref().is_err_and(|error| error.is::<HostError>()) {
            client.identify().await?;
        }
        return result;
    }
    let local = match only_looks(command) {
        true => wire::open_to_read(world)?,
        false => wire::open(world, world.script().as_deref(), false)?,
    };
    let scope = Scope::new(world.directory.to_string_lossy());
    let result = match command {
        Command::Mcp { command, .. } => mcp::command(command, &local.engine, Some(&local.engine), &scope).await,
        Command::Gc { dry_run, json } => gc::gc(&local, world, *dry_run, *json).await,
        _ => query(command, &local.engine, Some(&local), &scope, world).await,
    };
    local.engine.shutdown().await;
    result
}

/// Whether a command writes nothing, so that it works where nothing can be written.
fn only_looks(command: &Command) -> bool {
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

/// Where a command works, if it can be elsewhere.
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

/// Everything that only looks, or changes what is stored. Some of it only this machine can do.
async fn query(
    command: &Command,
    host: &dyn Host,
    local: Option<&wire::Local>,
    scope: &Scope,
    world: &World,
) -> anyhow::Result<()> {
    match command {
        Command::Session { command, .. } => match command {
            Session::List { all, limit, json } => session::list(host, scope, *all, *limit, *json).await,
            Session::Show { id, json } => session::show(host, scope, id, *json, Style::stdout(world.no_color())).await,
            Session::Export { id } => session::export(host, scope, id).await,
            Session::Import { file } => import::import(host, here(local)?, scope, &world.directory, file).await,
            Session::Delete { ids } => session::delete(host, scope, ids).await,
        },
        Command::Tree { id, watch, json, .. } => {
            let style = Style::stdout(world.no_color());
            if *watch {
                return tree::watch(host, scope, id, *json, style, Interrupt::listen()?.token).await;
            }
            tree::show(host, scope, id, *json, style).await
        }
        Command::Steer { id, text, .. } => tree::steer(host, scope, id, &text.join(" ")).await,
        Command::Pause { id, .. } => tree::pause(host, scope, id, true).await,
        Command::Resume { id, .. } => tree::pause(host, scope, id, false).await,
        Command::Cancel { id, .. } => tree::cancel(host, scope, id).await,
        Command::Budget { id, bounds, .. } => tree::budget(host, scope, id, bounds).await,
        Command::Models { provider, json, .. } => models::models(host, scope, provider.as_deref(), *json).await,
        Command::Mcp { command, .. } => mcp::command(command, host, None, scope).await,
        Command::Agent { command, .. } => {
            let tools = async |local: &wire::Local| -> Vec<String> {
                local.engine.tools(scope, None).await.iter().map(|tool| tool.name().to_owned()).collect()
            };
            match command {
                Agent::List { json } => {
                    let known = match local {
                        Some(local) => Some(tools(local).await),
                        None => None,
                    };
                    agent::list(host, scope, known.as_deref(), *json).await
                }
                Agent::Show { name, json } => agent::show(host, scope, name, *json).await,
                Agent::Add { name, place } => agent::add(world, &tools(here(local)?).await, name, place),
                Agent::Create(args) => {
                    here(local)?;
                    agent::create(host, scope, world, args).await
                }
            }
        }
        Command::Permission(command) => match command {
            Permission::List { json } => permission::list(&here(local)?.engine, *json),
            Permission::Revoke { ids, all, json } => permission::revoke(&here(local)?.engine, ids, *all, *json).await,
        },
        Command::Worktree { command, .. } => match command {
            Worktree::List { json } => worktree::list(&here(local)?.engine, *json).await,
            Worktree::Diff { id, stat, json } => worktree::diff(host, scope, id, *stat, *json).await,
            Worktree::Merge { id, json } => worktree::merge(host, scope, id, *json).await,
            Worktree::Discard { id, json } => worktree::discard(host, scope, id, *json).await,
            Worktree::Clean { json } => worktree::clean(&here(local)?.engine, *json).await,
        },
        Command::Run(_)
        | Command::Demo { .. }
        | Command::Serve(_)
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

/// What only the machine can do where the files and the database are.
fn here(local: Option<&wire::Local>) -> Result<&wire::Local, Failure> {
    local.ok_or_else(|| {
        Failure::new(Exit::Usage, "this works on the files and the database of this machine, not of a server")
            .hint("run it without --attach where the server runs; it shares the database")
    })
}

async fn perform_run(args: &args::Run, world: &World) -> anyhow::Result<()> {
    let interrupt = Interrupt::listen()?;
    let task = interrupt.token.run_until_cancelled(run::Task::read(args, &world.directory)).await;
    let task = task.ok_or_else(|| run::unsent(interrupt.signal().unwrap_or(interrupt::Signal::Interrupt)))??;
    let interactive = run::interactive();
    if let Some((client, scope)) = wire::client(world, &args.remote)? {
        // Before anything is sent to what may be something else.
        client.identify().await?;
        return run::run(args, task, scope, Arc::new(client), run::Typed::default(), world.look(), interrupt).await;
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
    world.watch_over(&local.engine, WatchdogScope::Opened);
    let host: Arc<dyn Host> = Arc::new(local.engine.clone());
    let result = run::run(args, task, scope, host, typed, world.look(), interrupt).await;
    local.engine.shutdown().await;
    result
}
