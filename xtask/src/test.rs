//! `cargo xtask test`: everything that must pass.

mod load;
mod pool;

use std::collections::BTreeMap;
use std::num::NonZero;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::cargo::{self, Built, Package};
use crate::{fuzz, tools};
use load::Load;
use pool::Done;
pub use pool::Job;

/// Overrides how many tests run at once.
const THREADS: &str = "RUST_TEST_THREADS";
/// What takes longest begins first, so that the end does not wait for it alone.
const FIRST: [&str; 12] = [
    "cli::clients::generator",
    "server::configurations::",
    "examples in the documentation",
    "tools::web::html",
    "bench smoke",
    "soak smoke",
    "cli::clients::opencode_",
    "cli::crash::",
    "client::hosts::",
    "cli::clients::",
    "server::replay::",
    "cli::",
];
/// What `--fast` leaves out: minutes of requests that Schemathesis makes, and OpenCode's own program, which takes seconds to
/// start.
const SLOW: [&str; 10] = [
    "cli::clients::a2a::upstream::",
    "cli::clients::acp_client::",
    "cli::clients::generator::",
    "cli::clients::opencode_run::",
    "cli::clients::opencode_terminal::",
    "cli::clients::runner::",
    "cli::e2e::tree_watch::a_tree_of_opencode_",
    "client::hosts::opencode_",
    "client::hosts::subagents_of_opencode_",
    "server::configurations::",
];
/// How many of the slowest tests are listed.
const SLOWEST: usize = 10;

/// What the command line asks for.
#[derive(Debug, Default, PartialEq)]
struct Wanted {
    fast: bool,
    package: Option<String>,
    filter: Option<String>,
    /// How many rounds under load.
    stress: Option<u32>,
}

impl Wanted {
    fn parse(arguments: &[String]) -> Result<Self> {
        let mut wanted = Self::default();
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--fast" => wanted.fast = true,
                "-p" | "--package" => wanted.package = Some(arguments.next().context("-p needs a crate")?.clone()),
                "--stress" => {
                    let rounds = arguments.next().and_then(|rounds| rounds.parse().ok()).filter(|rounds| *rounds > 0);
                    wanted.stress = Some(rounds.context("--stress needs a number of rounds")?);
                }
                filter if !filter.starts_with('-') && wanted.filter.is_none() => {
                    wanted.filter = Some(filter.to_owned())
                }
                other => {
                    bail!("{other:?} is not understood: cargo xtask test [--fast] [-p CRATE] [FILTER] [--stress N]")
                }
            }
        }
        Ok(wanted)
    }

    /// Whether only some tests are asked for, and nothing else.
    fn some(&self) -> bool {
        self.package.is_some() || self.filter.is_some()
    }

    fn wants(&self, name: &str) -> bool {
        self.filter.as_ref().is_none_or(|filter| name.contains(filter.as_str()))
            && !(self.fast && SLOW.iter().any(|slow| name.starts_with(slow)))
    }
}

#[derive(Debug, Default, PartialEq)]
struct Tally {
    passed: usize,
    failed: usize,
}

/// Runs the command. Every step runs, whatever became of the ones before it, if it can.
pub fn run(arguments: &[String]) -> Result<()> {
    let wanted = Wanted::parse(arguments)?;
    let mut tally = Tally::default();
    let packages = cargo::packages()?;
    let selection = selection(&packages, &wanted)?;
    let selection: Vec<&str> = selection.iter().map(String::as_str).collect();
    if !wanted.some() {
        step(&mut tally, "format", || plain(&["fmt", "--all", "--check"]));
    }
    // Downloads wait for others most of the time.
    let (built, installed) = std::thread::scope(|scope| {
        let installed = scope.spawn(tools::install);
        let built = step(&mut tally, "build and lints", || {
            let built = cargo::tests(&packages, &selection)?;
            println!("{} test programs", built.programs.len());
            Ok(built)
        });
        (built, installed.join())
    });
    step(&mut tally, "programs that tests need", || installed.unwrap_or_else(|_| bail!("the installation panicked")));
    if let Some(built) = built {
        step(&mut tally, "warnings", || match built.warnings {
            0 => Ok(()),
            warnings => bail!("{warnings} warnings; see above"),
        });
        if let Some(jobs) = step(&mut tally, "list of tests", || jobs(&packages, &built, &wanted)) {
            rounds(&mut tally, &jobs, wanted.stress)?;
        }
    }
    println!("{} passed, {} failed", tally.passed, tally.failed);
    if tally.failed > 0 {
        bail!("not everything passed");
    }
    Ok(())
}

/// What cargo is to build: everything, or one crate and the program, which tests of several crates start.
fn selection(packages: &[Package], wanted: &Wanted) -> Result<Vec<String>> {
    let Some(named) = &wanted.package else { return Ok(vec!["--workspace".to_owned()]) };
    let Some(package) = packages.iter().find(|package| *named == package.short || *named == package.name) else {
        let names: Vec<&str> = packages.iter().map(|package| package.short.as_str()).collect();
        bail!("there is no crate {named:?}; there are {}", names.join(", "));
    };
    Ok(vec!["-p".to_owned(), package.name.clone(), "-p".to_owned(), "trefoil".to_owned()])
}

/// Runs a step; one that fails counts as a failure of its own.
fn step<T>(tally: &mut Tally, name: &str, run: impl FnOnce() -> Result<T>) -> Option<T> {
    println!("== {name}");
    let start = Instant::now();
    match run() {
        Ok(value) => {
            println!("== {name}: ok, {:.1} s", start.elapsed().as_secs_f64());
            Some(value)
        }
        Err(error) => {
            println!("== {name}: FAILED: {error:#}");
            tally.failed += 1;
            None
        }
    }
}

fn plain(arguments: &[&str]) -> Result<()> {
    if !cargo::cargo(arguments).status()?.success() {
        bail!("`cargo {}` failed", arguments.join(" "));
    }
    Ok(())
}

/// Every test of the programs that were built, and what else is to be run beside them.
fn jobs(packages: &[Package], built: &Built, wanted: &Wanted) -> Result<Vec<Job>> {
    let mut jobs = Vec::new();
    for program in &built.programs {
        let package = &packages[program.package];
        if wanted.package.as_ref().is_some_and(|named| *named != package.short && *named != package.name) {
            continue;
        }
        let list =
            Command::new(&program.path).args(["--list", "--format", "terse"]).current_dir(&package.folder).output();
        let list = list.with_context(|| program.path.display().to_string())?;
        if !list.status.success() {
            bail!("{} --list: {}", program.path.display(), list.status);
        }
        for line in String::from_utf8_lossy(&list.stdout).lines() {
            let Some(test) = line.strip_suffix(": test") else { continue };
            jobs.push(Job {
                name: format!("{}::{test}", package.short),
                program: program.path.clone(),
                arguments: [test, "--exact", "--nocapture"].map(str::to_owned).to_vec(),
                folder: package.folder.clone(),
                // As cargo gives it to tests. Cargo itself must not get it: build scripts that watch it would run again.
                environment: vec![("CARGO_MANIFEST_DIR", package.folder.clone().into())],
                libtest: true,
            });
        }
    }
    if wanted.package.is_none() {
        jobs.push(examples()?);
    }
    if !wanted.some() && !wanted.fast {
        jobs.extend(fuzz::smokes()?);
        let bench = cargo::program("debug", "trefoil-bench")?;
        let soak = ["soak", "--seconds", "10", "--sessions", "30"].map(str::to_owned).to_vec();
        jobs.push(Job::smoke("soak smoke".to_owned(), bench.clone(), soak));
        jobs.push(Job::smoke("bench smoke".to_owned(), bench, vec!["--smoke".to_owned()]));
    }
    jobs.retain(|job| wanted.wants(&job.name));
    if jobs.is_empty() {
        bail!("no test has {:?} in its name", wanted.filter.as_deref().unwrap_or_default());
    }
    jobs.sort_by_key(|job| FIRST.iter().position(|first| job.name.starts_with(first)).unwrap_or(FIRST.len()));
    Ok(jobs)
}

/// The examples in the documentation, for which cargo itself is needed.
fn examples() -> Result<Job> {
    let arguments = ["test", "--quiet", "--workspace", "--doc"].map(str::to_owned).to_vec();
    let mut job = Job::smoke("examples in the documentation".to_owned(), cargo::binary().into(), arguments);
    job.environment.push((cargo::WRAPPER, cargo::clippy()?));
    Ok(job)
}

/// Runs all of it once, or so many times under load.
fn rounds(tally: &mut Tally, jobs: &[Job], stress: Option<u32>) -> Result<()> {
    let at_once = match std::env::var(THREADS).ok().and_then(|threads| threads.parse().ok()) {
        Some(threads) => threads,
        // Most tests wait for other programs most of the time.
        None => 2 * std::thread::available_parallelism().map_or(1, NonZero::get),
    };
    let mut failures: BTreeMap<String, u32> = BTreeMap::new();
    let _load = stress.map(|_| Load::start()).transpose()?;
    for round in 1..=stress.unwrap_or(1) {
        println!("== tests");
        let start = Instant::now();
        let mut done = pool::run(jobs, at_once, &cargo::target().join("test-output"))?;
        let failed = done.iter().filter(|done| !done.passed).count();
        for done in done.iter().filter(|done| !done.passed) {
            *failures.entry(done.name.clone()).or_default() += 1;
        }
        tally.passed += done.len() - failed;
        tally.failed += failed;
        slowest(&mut done);
        let which = stress.map(|rounds| format!(", round {round} of {rounds}")).unwrap_or_default();
        let took = start.elapsed().as_secs_f64();
        println!("== tests{which}: {} passed, {failed} failed, {took:.1} s", done.len() - failed);
    }
    for (name, times) in &failures {
        println!("failed {times} of {} times: {name}", stress.unwrap_or(1));
    }
    Ok(())
}

fn slowest(done: &mut [Done]) {
    done.sort_by_key(|done| std::cmp::Reverse(done.took));
    let all: Duration = done.iter().map(|done| done.took).sum();
    println!("the slowest of {} ({:.0} s one after the other):", done.len(), all.as_secs_f64());
    for done in done.iter().take(SLOWEST) {
        println!("{:7.1} s  {}", done.took.as_secs_f64(), done.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Wanted> {
        Wanted::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn arguments_are_read() {
        assert_eq!(parse("").unwrap(), Wanted::default());
        let wanted = parse("-p engine turns:: --fast --stress 3").unwrap();
        assert_eq!((wanted.package.as_deref(), wanted.filter.as_deref()), (Some("engine"), Some("turns::")));
        assert!(wanted.fast && wanted.stress == Some(3) && wanted.some());
        for wrong in ["-p", "--stress", "--stress 0", "--stress x", "--quick", "one two"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn fast_leaves_out_what_is_slow() {
        let wanted = parse("--fast").unwrap();
        assert!(wanted.wants("cli::clients::sdk::turns") && !wanted.wants("cli::clients::generator::x"));
        assert!(parse("").unwrap().wants("cli::clients::generator::x"));
        assert!(!parse("other").unwrap().wants("cli::clients::generator::x"));
    }

    #[test]
    fn a_failed_step_counts() {
        let mut tally = Tally { passed: 3, failed: 0 };
        step(&mut tally, "good", || Ok(()));
        assert!(step(&mut tally, "bad", || -> Result<()> { bail!("no") }).is_none());
        assert_eq!(tally, Tally { passed: 3, failed: 1 });
    }
}
