//! The project's own commands: `cargo xtask test`, `cargo xtask fuzz`, `cargo xtask soak`, `cargo xtask bench`.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the output is what the program is for")]

mod cargo;
mod fuzz;
mod test;
mod tools;

use std::process::Command;

use anyhow::{Context as _, Result, bail};

const USAGE: &str = "cargo xtask <command>

  test [--fast] [-p CRATE] [FILTER] [--stress N]
                                 everything that must pass: format, lints, build, tests, fuzz and benchmark smoke.
                                 --fast leaves the smokes, the generated requests and OpenCode's own program out;
                                 -p and FILTER run the tests of one crate, those whose names contain the filter;
                                 --stress runs all of it N times while other programs keep processor and disk busy
  fuzz [TARGET] [--seconds N] [--seed N]
                                 random input for one parser, or for all of them
  soak [--minutes N] [--sessions N] [--seed N]
                                 many clients at once on one server, with faults; nothing may be lost, stuck or half-answered
  bench [--smoke] [--only NAME] [--json] [--peer | --opencode PATH]
                                 the benchmark table; --peer installs OpenCode, Codex and opencode-a2a to compare with,
                                 --smoke only sees that everything works";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (command, rest) = arguments.split_first().map_or(("", &[][..]), |(first, rest)| (first.as_str(), rest));
    match command {
        "test" => test::run(rest),
        "fuzz" => fuzz::run(rest),
        "bench" => bench(rest),
        "soak" => bench(&[&["soak".to_owned()], rest].concat()),
        "" | "help" | "--help" | "-h" => {
            println!("{USAGE}");
            Ok(())
        }
        other => bail!("no command {other:?}\n\n{USAGE}"),
    }
}

/// Runs the benchmark or the soak, a program of their own, on a release build.
fn bench(arguments: &[String]) -> Result<()> {
    cargo::release(&["trefoil", "trefoil-bench"])?;
    let program = cargo::program("release", "trefoil-bench")?;
    let status = Command::new(&program).args(arguments).status().with_context(|| program.display().to_string())?;
    if !status.success() {
        bail!("{} failed ({status})", program.display());
    }
    Ok(())
}
