//! Programs of others that tests need: installed before the tests run, so that no test waits for a download.

use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use crate::cargo;

/// What comes from the system, by its Debian package, and the command that succeeds where it is there.
const SYSTEM: [(&str, &[&str]); 4] = [
    ("tmux", &["tmux", "-V"]),
    ("python3-venv", &["python3", "-c", "import ensurepip"]),
    ("curl", &["curl", "--version"]),
    ("npm", &["npm", "--version"]),
];

/// Installs what is missing.
pub fn install() -> Result<()> {
    let missing: Vec<&str> =
        SYSTEM.iter().filter(|(_, command)| !succeeds(command)).map(|(package, _)| *package).collect();
    if !missing.is_empty() {
        let install = [&["apt-get", "install", "--yes", "--no-install-recommends"], &missing[..]].concat();
        if !(succeeds(&["apt-get", "update"]) && succeeds(&install)) {
            bail!("tests need {}, and apt-get could not install that; install it and try again", missing.join(", "));
        }
    }
    let target = cargo::target();
    peer::install(&target)?;
    peer::schemathesis(&target)?;
    peer::mcp_servers(&target)?;
    peer::acp_python(&target)?;
    peer::a2a_python(&target)?;
    peer::a2a_python_03(&target)?;
    peer::opencode_a2a(&target)?;
    peer::gemini_cli_core(&target)?;
    Ok(())
}

fn succeeds(command: &[&str]) -> bool {
    let [program, arguments @ ..] = command else { return false };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
