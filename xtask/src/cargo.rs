//! Cargo, as the xtask calls it.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// The repository's root.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// Names the program that compiles our own crates instead of rustc.
pub const WRAPPER: &str = "RUSTC_WORKSPACE_WRAPPER";

/// Cargo itself.
pub fn binary() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// A cargo command in the root.
pub fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.current_dir(root()).args(arguments);
    forget(&mut command);
    command
}

/// Takes from a command what cargo tells this program about itself. Some build scripts watch these names, and everything above
/// them would be built anew whenever cargo is called from here and then by hand.
pub fn forget(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let told = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_", "CARGO_PRIMARY_"];
        if name.to_str().is_some_and(|name| told.iter().any(|prefix| name.starts_with(prefix))) {
            command.env_remove(name);
        }
    }
}

/// Clippy as a compiler. What it builds is linted on the way, and so dependencies are compiled once for both.
pub fn clippy() -> Result<OsString> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let sysroot = Command::new(rustc).args(["--print", "sysroot"]).output().context("rustc cannot be run")?;
    let sysroot = String::from_utf8(sysroot.stdout)?;
    let driver = Path::new(sysroot.trim()).join("bin").join(format!("clippy-driver{}", std::env::consts::EXE_SUFFIX));
    if !driver.is_file() {
        bail!("{} is not there; `rustup component add clippy` installs it", driver.display());
    }
    Ok(driver.into())
}

/// Where cargo builds to.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |folder| root().join(folder))
}

/// A package of the workspace.
pub struct Package {
    /// As cargo has it: `trefoil-engine`.
    pub name: String,
    /// As people call it, by its folder: `engine`.
    pub short: String,
    /// Where it lies.
    pub folder: PathBuf,
    id: String,
}

/// The packages of the workspace.
pub fn packages() -> Result<Vec<Package>> {
    let output = cargo(&["metadata", "--no-deps", "--format-version", "1"]).stderr(Stdio::inherit()).output()?;
    let metadata: Value = serde_json::from_slice(&output.stdout).context("`cargo metadata` gave no JSON")?;
    let packages = metadata["packages"].as_array().into_iter().flatten().map(|package| {
        let text = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
        let folder = Path::new(&text("manifest_path")).parent().map(Path::to_owned).unwrap_or_default();
        let short = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Package { name: text("name"), short, folder, id: text("id") }
    });
    Ok(packages.collect())
}

/// A test program that was built.
pub struct Program {
    /// The package that it belongs to, as an index.
    pub package: usize,
    pub path: PathBuf,
}

/// What a build gave.
pub struct Built {
    pub programs: Vec<Program>,
    /// How many warnings there were.
    pub warnings: usize,
}

/// Builds and lints the selection (`--workspace`, or some `-p NAME`) with all its tests.
pub fn tests(packages: &[Package], selection: &[&str]) -> Result<Built> {
    let rendered = if std::io::stderr().is_terminal() { "json,json-diagnostic-rendered-ansi" } else { "json" };
    let mut command = cargo(&["build", "--all-targets", "--message-format", rendered]);
    let mut child = command.args(selection).env(WRAPPER, clippy()?).stdout(Stdio::piped()).spawn()?;
    let mut built = Built { programs: Vec::new(), warnings: 0 };
    for line in BufReader::new(child.stdout.take().context("the output is piped")?).lines() {
        let message: Value = serde_json::from_str(&line?).context("cargo gave no JSON")?;
        match message["reason"].as_str() {
            Some("compiler-message") => {
                let diagnostic = &message["message"];
                eprint!("{}", diagnostic["rendered"].as_str().unwrap_or_default());
                built.warnings += usize::from(diagnostic["level"] == "warning" && !diagnostic["spans"][0].is_null());
            }
            Some("compiler-artifact") if message["profile"]["test"] == true => {
                let package = packages.iter().position(|package| message["package_id"] == package.id.as_str());
                let path = message["executable"].as_str();
                let (Some(package), Some(path)) = (package, path) else { continue };
                built.programs.push(Program { package, path: path.into() });
            }
            _ => {}
        }
    }
    if !child.wait()?.success() {
        bail!("the build failed");
    }
    Ok(built)
}

/// The path of a program that was built.
pub fn program(profile: &str, name: &str) -> Result<PathBuf> {
    let program = target().join(profile).join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    program.canonicalize().with_context(|| format!("{} is not there after the build", program.display()))
}

/// Builds packages in release mode. Together: one by one they would be built with other features each, and so anew each time.
pub fn release(packages: &[&str]) -> Result<()> {
    let mut command = cargo(&["build", "--quiet", "--release"]);
    for package in packages {
        command.args(["--package", package]);
    }
    if !command.status()?.success() {
        bail!("`cargo build --release` failed");
    }
    Ok(())
}

/// The value of a `--name value` pair.
pub fn option<'a>(arguments: &'a [String], name: &str) -> Result<Option<&'a str>> {
    let Some(place) = arguments.iter().position(|argument| argument == name) else { return Ok(None) };
    arguments.get(place + 1).map(|value| Some(value.as_str())).with_context(|| format!("{name} needs a value"))
}
