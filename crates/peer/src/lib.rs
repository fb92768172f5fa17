//! Installs other programs that Trefoil is tested and compared with: OpenCode, its SDK, those of ACP and A2A, MCP servers,
//! Codex and the core of Gemini CLI from npm, Schemathesis, opencode-a2a and the SDKs of ACP and A2A from PyPI. Without dependencies, because `xtask` builds it before
//! everything else.

mod port;

use std::fs::File;
use std::io::{Error, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub use port::free_port;

/// The folder with the pinned package versions, and the scripts that use them.
pub fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/clients")
}

/// Installs OpenCode and its SDK below the target folder if necessary; returns the path of OpenCode's program.
pub fn install(target: &Path) -> Result<PathBuf> {
    let folder = packages(target)?;
    program(&folder).ok_or_else(|| {
        let machine = format!("{}-{}", std::env::consts::OS, std::env::consts::ARCH);
        Error::other(format!(
            "npm installed no OpenCode program into {}: there is none for {machine}",
            folder.display()
        ))
    })
}

/// Installs OpenCode and its SDK below the target folder if necessary; returns the folder, which also contains the
/// scripts that import the SDK, so that they find it.
pub fn packages(target: &Path) -> Result<PathBuf> {
    let folder = target.join("clients");
    let sources = sources();
    // Held until the end: several tests may start the installation concurrently.
    let _lock = lock(&folder)?;
    copy_scripts(&sources, &folder)?;
    npm(&folder, &sources)?;
    Ok(folder)
}

/// Installs the core of Gemini CLI below the target folder if necessary; returns the folder, which also contains the script
/// that imports it.
pub fn gemini_cli_core(target: &Path) -> Result<PathBuf> {
    let folder = target.join("gemini-cli-core");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/gemini-cli-core");
    let _lock = lock(&folder)?;
    copy_scripts(&sources, &folder)?;
    copy(&self::sources().join("a2a-common.mjs"), &folder)?;
    npm(&folder, &sources)?;
    Ok(folder)
}

/// Installs the reference MCP servers below the target folder if necessary; returns the folder of their programs.
pub fn mcp_servers(target: &Path) -> Result<PathBuf> {
    let folder = target.join("mcp-servers");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/mcp");
    let _lock = lock(&folder)?;
    npm(&folder, &sources)?;
    Ok(folder.join("node_modules/.bin"))
}

/// Installs Codex as an ACP agent below the target folder if necessary; returns the path of its program.
pub fn codex_acp(target: &Path) -> Result<PathBuf> {
    let folder = target.join("codex-acp");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/codex-acp");
    let _lock = lock(&folder)?;
    npm(&folder, &sources)?;
    folder.join("node_modules/.bin/codex-acp").canonicalize()
}

/// Installs Codex below the target folder if necessary; returns the path of its native program.
pub fn codex(target: &Path) -> Result<PathBuf> {
    codex_acp(target)?;
    let packages = target.join("codex-acp/node_modules/@openai");
    let inside = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let programs = inside(&packages).flat_map(|package| inside(&package.join("vendor")).collect::<Vec<_>>());
    let found = programs.map(|machine| machine.join("bin/codex")).find(|program| program.is_file());
    found.ok_or_else(|| Error::other(format!("npm installed no Codex program into {}", packages.display())))
}

/// Installs the packages of a lock file into a folder if necessary.
fn npm(folder: &Path, sources: &Path) -> Result<()> {
    once(folder, &sources.join("package-lock.json"), || {
        for name in ["package.json", "package-lock.json"] {
            copy(&sources.join(name), folder)?;
        }
        let mut npm = Command::new("npm");
        npm.current_dir(folder).args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]);
        run(npm, "install Node.js")
    })
}

/// Installs Schemathesis below the target folder if necessary; returns the path of its program.
pub fn schemathesis(target: &Path) -> Result<PathBuf> {
    Ok(python(&target.join("schemathesis"), "requirements.txt")?.join("schemathesis"))
}

/// Installs the official Python SDK of ACP below the target folder if necessary; returns the Python interpreter that
/// has it.
pub fn acp_python(target: &Path) -> Result<PathBuf> {
    Ok(python(&target.join("acp-python"), "acp-requirements.txt")?.join("python"))
}

/// Installs the Python SDK of A2A 1.0, google-adk and agent-framework-a2a below the target folder if necessary; returns the
/// Python interpreter that has them.
pub fn a2a_python(target: &Path) -> Result<PathBuf> {
    Ok(python(&target.join("a2a-python"), "a2a-requirements.txt")?.join("python"))
}

/// The same with the last SDK of A2A 0.3.
pub fn a2a_python_03(target: &Path) -> Result<PathBuf> {
    Ok(python(&target.join("a2a-python-03"), "a2a-requirements-03.txt")?.join("python"))
}

/// Installs opencode-a2a below the target folder if necessary; returns the path of its program.
pub fn opencode_a2a(target: &Path) -> Result<PathBuf> {
    Ok(python(&target.join("opencode-a2a"), "opencode-a2a-requirements.txt")?.join("opencode-a2a"))
}

/// Installs a requirements list into a folder if necessary; returns the folder of its programs.
fn python(folder: &Path, list: &str) -> Result<PathBuf> {
    let list = sources().join(list);
    let _lock = lock(folder)?;
    once(folder, &list, || {
        let mut venv = Command::new("python3");
        venv.args(["-m", "venv", "--clear"]).arg(folder.join("venv"));
        run(venv, "install Python 3 with its venv module (Debian: python3-venv)")?;
        let mut pip = Command::new(folder.join("venv/bin/pip"));
        pip.args(["install", "--quiet", "--no-deps", "--disable-pip-version-check", "--requirement"]).arg(&list);
        run(pip, "install Python 3 with its venv module (Debian: python3-venv)")
    })?;
    Ok(folder.join("venv/bin"))
}

/// Creates a folder and locks it against other processes.
fn lock(folder: &Path) -> Result<File> {
    std::fs::create_dir_all(folder)?;
    let lock = File::create(folder.join(".lock"))?;
    lock.lock()?;
    Ok(lock)
}

/// Fills a folder, unless that was done before with the same list.
fn once(folder: &Path, list: &Path, fill: impl FnOnce() -> Result<()>) -> Result<()> {
    let done = folder.join("installed");
    let wanted = std::fs::read(list)?;
    if std::fs::read(&done).is_ok_and(|there| there == wanted) {
        return Ok(());
    }
    fill()?;
    // Last, so that an interrupted installation is repeated.
    std::fs::write(done, wanted)
}

fn run(mut command: Command, advice: &str) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.stdout(Stdio::null()).status();
    let status =
        status.map_err(|error| Error::new(error.kind(), format!("{name} cannot be run: {error}; {advice}")))?;
    if status.success() { Ok(()) } else { Err(Error::other(format!("{command:?} failed: {status}; {advice}"))) }
}

/// Copies the scripts of a folder, so that they find the packages beside them.
fn copy_scripts(sources: &Path, folder: &Path) -> Result<()> {
    for file in std::fs::read_dir(sources)? {
        let file = file?.path();
        if file.extension().is_some_and(|extension| extension == "mjs") {
            copy(&file, folder)?;
        }
    }
    Ok(())
}

/// Copies a file if it differs; an unchanged one that another test may be reading is left alone.
fn copy(file: &Path, folder: &Path) -> Result<()> {
    let content = std::fs::read(file)?;
    let there = folder.join(file.file_name().unwrap_or_default());
    if std::fs::read(&there).is_ok_and(|there| there == content) { Ok(()) } else { std::fs::write(there, content) }
}

/// OpenCode's native program; the package's own `bin` is a script that starts it, which would be measured as well.
fn program(folder: &Path) -> Option<PathBuf> {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => other,
    };
    let system = if cfg!(target_os = "macos") { "darwin" } else { std::env::consts::OS };
    let program = folder.join(format!("node_modules/opencode-{system}-{arch}/bin/opencode"));
    program.is_file().then(|| program.canonicalize().ok()).flatten()
}
