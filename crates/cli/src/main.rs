//! `trefoil`: the command line. The only crate that reads the environment, the arguments and the current directory, and
//! the only one that prints.

mod args;
mod commands;
mod exit;
mod help;
mod run;
mod terminal;
mod wiring;

use std::process::ExitCode;

use anyhow::Context as _;
use clap::{CommandFactory as _, Parser as _};

use args::{Cli, Command};
use exit::Exit;
use wiring::{Invocation, log, memory};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Threads for asynchronous work; blocking work has threads and processes of its own.
const WORKERS: usize = 2;

fn main() -> ExitCode {
    let mut given = std::env::args_os().skip(1).peekable();
    if given.next_if(|first| first == exec::SUPERVISE_ARG).is_some() {
        return exec::supervise(given);
    }
    exec::raise_descriptor_limit();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Parsing needs no groups and examples, so they are built only for those who read the help.
            let shown = help::command(terminal::help_width()).try_get_matches().err().unwrap_or(error);
            let _ = shown.print();
            return ExitCode::from(u8::try_from(shown.exit_code()).unwrap_or(Exit::Usage as u8));
        }
    };
    match dispatch(cli) {
        Ok(exit) => exit.into(),
        // The reader has closed the pipe (`trefoil session list | head`), so there is nothing to report.
        Err(error) if is_broken_pipe(&error) => Exit::Failed.into(),
        Err(error) => {
            let (exit, text) = exit::explain(error);
            terminal::say(&text);
            exit.into()
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

fn dispatch(cli: Cli) -> anyhow::Result<Exit> {
    let Some(command) = &cli.command else {
        terminal::print(&help::welcome())?;
        return Ok(Exit::Success);
    };
    if let Command::Completion { shell } = *command {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut Cli::command(), "trefoil", &mut script);
        terminal::print(&String::from_utf8_lossy(&script))?;
        return Ok(Exit::Success);
    }
    let mut invocation = Invocation::read()?;
    invocation.shift_clock()?;
    let redactor = config::Redactor::read(&invocation.env, &invocation.dirs.data);
    let log_level = log::start(cli.log_level.as_deref(), cli.print_logs, &invocation.dirs.state, redactor)?;
    invocation.log_level = Some(log_level);
    if let Some(result) = commands::without_runtime(command, &invocation) {
        return result;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build();
    let runtime = runtime.context("cannot start the asynchronous runtime")?;
    let result = runtime.block_on(async {
        tokio::select! {
            result = commands::perform(command, &invocation) => result,
            never = memory::release_free_pages() => match never {},
        }
    });
    // A thread that reads the terminal may still be blocked; it must not keep the process alive.
    runtime.shutdown_background();
    result
}
