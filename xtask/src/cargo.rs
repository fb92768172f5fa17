//! Cargo, as the xtask calls it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The repository's root.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// A cargo command in the root.
pub fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).args(arguments);
    // What cargo tells this program about itself must not reach build scripts: some watch these names, and everything above
    // them would be built anew whenever cargo is called from here and then by hand.
    for (name, _) in std::env::vars_os() {
        let told = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_", "CARGO_PRIMARY_"];
        if name.to_str().is_some_and(|name| told.iter().any(|prefix| name.starts_with(prefix))) {
            command.env_remove(name);
        }
    }
    command
}

/// Where cargo builds to.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |folder| root().join(folder))
}

/// Builds something.
pub fn build(arguments: &[&str]) -> Result<()> {
    if !cargo(&["build", "--quiet"]).args(arguments).status()?.success() {
        bail!("`cargo build {}` failed", arguments.join(" "));
    }
    Ok(())
}

/// Builds all that tests and smokes run, without optimisation. One selection for all of them: another would be built with
/// other features, and so once more.
pub fn everything() -> Result<()> {
    build(&["--workspace", "--all-targets"])
}

/// The path of a program that was built.
pub fn program(profile: &str, name: &str) -> Result<PathBuf> {
    let program = target().join(profile).join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    program.canonicalize().with_context(|| format!("{} is not there after the build", program.display()))
}

/// Builds a package in release mode; gives the path of its program.
pub fn release(package: &str) -> Result<PathBuf> {
    build(&["--release", "--package", package])?;
    program("release", package)
}

/// The value of a `--name value` pair.
pub fn option<'a>(arguments: &'a [String], name: &str) -> Result<Option<&'a str>> {
    let Some(place) = arguments.iter().position(|argument| argument == name) else { return Ok(None) };
    arguments.get(place + 1).map(|value| Some(value.as_str())).with_context(|| format!("{name} needs a value"))
}
