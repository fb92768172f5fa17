//! `cargo xtask fuzz`: runs the fuzz targets, each in a process of its own.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cargo;
use crate::test::Job;

/// Runs the command.
pub fn run(arguments: &[String]) -> Result<()> {
    let seconds = cargo::option(arguments, "--seconds")?.unwrap_or("60").parse().context("--seconds needs a number")?;
    let seed =
        cargo::option(arguments, "--seed")?.map(|seed| seed.parse().context("--seed needs a number")).transpose()?;
    let named = arguments.first().filter(|argument| !argument.starts_with("--"));
    cargo::release(&["trefoil-fuzz"])?;
    targets(&cargo::program("release", "trefoil-fuzz")?, named.map(String::as_str), seconds, seed)
}

/// A little of every target, in the build that the tests use.
pub fn smokes() -> Result<Vec<Job>> {
    let program = cargo::program("debug", "trefoil-fuzz")?;
    let job = |name: String| {
        let save = cargo::target().join("fuzz").display().to_string();
        let arguments = [&name, "--seconds", "2", "--seed", "1", "--save", &save].map(str::to_owned);
        Job::smoke(format!("fuzz smoke {name}"), program.clone(), arguments.to_vec())
    };
    Ok(names(&program)?.into_iter().map(job).collect())
}

/// Fuzzes one target, or all of them.
fn targets(program: &Path, named: Option<&str>, seconds: u64, seed: Option<u64>) -> Result<()> {
    let names = match named {
        Some(name) => vec![name.to_owned()],
        None => names(program)?,
    };
    let failed: Vec<String> = names.into_iter().filter(|name| !one(program, name, seconds, seed)).collect();
    if !failed.is_empty() {
        bail!("finds in: {}. Repeat one with `trefoil-fuzz TARGET --replay FILE`", failed.join(", "));
    }
    Ok(())
}

fn names(program: &Path) -> Result<Vec<String>> {
    let list = Command::new(program).arg("--list").output()?;
    Ok(String::from_utf8_lossy(&list.stdout).lines().map(str::to_owned).collect())
}

/// Whether a target passes.
fn one(program: &Path, name: &str, seconds: u64, seed: Option<u64>) -> bool {
    // Chosen here, so that a crash of the whole process can be repeated.
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()) ^ (name.len() as u64) << 32);
    let save = cargo::target().join("fuzz");
    let run = |trace: bool| {
        let mut command = Command::new(program);
        command.arg(name).args(["--seconds", &seconds.to_string(), "--seed", &seed.to_string()]);
        command.arg("--save").arg(&save);
        if trace {
            command.arg("--trace");
        }
        command.status()
    };
    match run(false) {
        Ok(status) if status.success() => true,
        Ok(status) if status.code().is_none() => {
            println!("{name}: the process was killed ({status}); once more, to save the input");
            // The exit is known to be bad; what counts is the file that the second run leaves behind.
            let _ = run(true);
            println!("{name}: the find is {}/{name}-trace-{seed}", save.display());
            false
        }
        Ok(_) => false,
        Err(error) => {
            println!("{name}: cannot run {}: {error}", program.display());
            false
        }
    }
}
