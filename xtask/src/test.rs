//! `cargo xtask test`: everything that must pass.

use std::io::{BufRead, BufReader};
use std::num::NonZero;
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::{bench, cargo, fuzz, tools};

/// How many tests of one program run at once.
const THREADS: &str = "RUST_TEST_THREADS";

#[derive(Debug, Default, PartialEq)]
struct Tally {
    passed: usize,
    failed: usize,
}

/// Runs the command. Every step runs, whatever became of the ones before it.
pub fn run(arguments: &[String]) -> Result<()> {
    let fast = match arguments {
        [] => false,
        [flag] if flag == "--fast" => true,
        _ => bail!("usage: cargo xtask test [--fast]"),
    };
    let mut tally = Tally::default();
    step(&mut tally, "format", |_| plain(&["fmt", "--all", "--check"]));
    step(&mut tally, "lints", |_| plain(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]));
    step(&mut tally, "build", |_| cargo::everything());
    step(&mut tally, "programs that tests need", |_| tools::install());
    step(&mut tally, "tests", |tally| tests(tally, fast));
    if !fast {
        step(&mut tally, "fuzz smoke", |_| fuzz::smoke());
        step(&mut tally, "benchmark smoke", |_| bench::smoke());
    }
    println!("{} passed, {} failed", tally.passed, tally.failed);
    if tally.failed > 0 {
        bail!("not everything passed");
    }
    Ok(())
}

/// Runs a step; one that fails counts as a failure of its own.
fn step(tally: &mut Tally, name: &str, run: impl FnOnce(&mut Tally) -> Result<()>) {
    println!("== {name}");
    let start = Instant::now();
    let failed = tally.failed;
    match run(tally) {
        Ok(()) => println!("== {name}: ok, {:.1} s", start.elapsed().as_secs_f64()),
        Err(error) => {
            println!("== {name}: FAILED: {error:#}");
            // Failed tests are counted one by one already.
            if tally.failed == failed {
                tally.failed += 1;
            }
        }
    }
}

fn plain(arguments: &[&str]) -> Result<()> {
    if !cargo::cargo(arguments).status()?.success() {
        bail!("`cargo {}` failed", arguments.join(" "));
    }
    Ok(())
}

fn tests(tally: &mut Tally, fast: bool) -> Result<()> {
    let mut command = cargo::cargo(&["test", "--workspace", "--no-fail-fast"]);
    if fast {
        // Minutes of requests that Schemathesis makes, and OpenCode's own program, which takes seconds to start.
        command.args(["--", "--skip", "generator::", "--skip", "opencode_run::", "--skip", "opencode_terminal::"]);
        if std::env::var_os(THREADS).is_none() {
            // Most tests wait for other programs most of the time.
            let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
            command.env(THREADS, (2 * cores).to_string());
        }
    }
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let output = child.stdout.take().context("the output is piped")?;
    for line in BufReader::new(output).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        // The thousands of lines that say ok would hide the one that does not.
        if !(line.starts_with("test ") && line.ends_with(" ok")) {
            println!("{line}");
        }
        add(tally, &line);
    }
    if !child.wait()?.success() {
        bail!("tests failed");
    }
    Ok(())
}

/// Adds what a line `test result: ok. 13 passed; 0 failed; …` says.
fn add(tally: &mut Tally, line: &str) {
    let Some(result) = line.strip_prefix("test result: ") else { return };
    let words = result.split([' ', ';', '.']).filter(|word| !word.is_empty());
    let mut last = 0;
    for word in words {
        match word {
            "passed" => tally.passed += last,
            "failed" => tally.failed += last,
            _ => last = word.parse().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_summed() {
        let mut tally = Tally::default();
        for line in [
            "test result: ok. 13 passed; 0 failed; 0 ignored; 0 measured; 7 filtered out; finished in 0.10s",
            "test passed ... ok",
            "test result: FAILED. 4 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.2s",
        ] {
            add(&mut tally, line);
        }
        assert_eq!(tally, Tally { passed: 17, failed: 2 });
    }

    #[test]
    fn a_failed_step_counts_once() {
        let mut tally = Tally { passed: 3, failed: 0 };
        step(&mut tally, "good", |_| Ok(()));
        step(&mut tally, "bad", |_| bail!("no"));
        step(&mut tally, "tests", |tally| {
            tally.failed += 2;
            bail!("tests failed")
        });
        assert_eq!(tally, Tally { passed: 3, failed: 3 });
    }
}
