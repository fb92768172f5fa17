//! OpenCode, to compare with.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cargo;

/// The version that the design's figures are of.
const PACKAGE: &str = "opencode-ai@1.18.33";

/// Installs OpenCode from npm below the target folder, unless it is there; gives the path of its program.
pub fn install() -> Result<PathBuf> {
    let folder = cargo::target().join("peer");
    std::fs::create_dir_all(&folder)?;
    if find(&folder).is_none() {
        println!("installing {PACKAGE} into {}", folder.display());
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-audit", "--no-fund", "--prefix"]).arg(&folder).arg(PACKAGE);
        if !npm.status().context("cannot run npm; install Node.js, or name a program with --opencode")?.success() {
            bail!("npm could not install {PACKAGE}; name a program with --opencode instead");
        }
    }
    find(&folder).with_context(|| format!("no OpenCode program in {}", folder.display()))
}

/// The native program itself: the package's own `bin` is a script that starts it, which would be measured as well.
fn find(folder: &std::path::Path) -> Option<PathBuf> {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => other,
    };
    let system = if cfg!(target_os = "macos") { "darwin" } else { std::env::consts::OS };
    let program = folder.join(format!("node_modules/opencode-{system}-{arch}/bin/opencode"));
    program.is_file().then(|| program.canonicalize().ok()).flatten()
}
