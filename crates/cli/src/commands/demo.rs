//! `trefoil demo`: creates a small repository with a bug for the agent to fix.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;

use crate::args::{Format, Remote, Run};
use crate::exit::{Exit, Failure};
use crate::terminal;
use crate::wiring::Invocation;

/// The sample repository, from `examples/greeter`.
const FILES: [(&str, &str); 3] = [
    ("README.md", include_str!("../../../../examples/greeter/README.md")),
    ("greeter.sh", include_str!("../../../../examples/greeter/greeter.sh")),
    ("test.sh", include_str!("../../../../examples/greeter/test.sh")),
];
/// The scripted model, which uses real tools.
const OFFLINE: &str = "script/demo";
const TASK: &str = "The test fails. Find out why, and fix it.";

/// Creates the sample repository; returns what to run, and where.
pub fn prepare(
    wanted: Option<&Path>,
    model: Option<&str>,
    invocation: &Invocation,
) -> anyhow::Result<(Run, Invocation)> {
    let directory = match wanted {
        Some(path) => invocation.directory.join(path),
        None => std::env::temp_dir().join(format!("trefoil-demo-{}", std::process::id())),
    };
    create(&directory)?;
    // Resolved, as after a `cd` in a shell.
    let directory = directory.canonicalize().with_context(|| directory.display().to_string())?;
    terminal::eprint(&format!("A small repository with a bug: {}\nThe task: {TASK}\n\n", directory.display()));
    let run = Run {
        remote: Remote::default(),
        message: vec![TASK.to_owned()],
        format: Format::Default,
        last: false,
        session: None,
        agent: None,
        model: Some(model.unwrap_or(OFFLINE).to_owned()),
        variant: None,
        files: Vec::new(),
        title: None,
        command: None,
        yes: false,
        script: None,
    };
    Ok((run, Invocation { directory, ..invocation.clone() }))
}

fn create(directory: &PathBuf) -> anyhow::Result<()> {
    fs::create_dir(directory).map_err(|error| {
        Failure::new(Exit::Failed, format!("cannot create {}: {error}", directory.display()))
            .hint("name a folder that does not exist yet: trefoil demo FOLDER")
    })?;
    for (name, text) in FILES {
        let path = directory.join(name);
        fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    // Agents usually work in a repository, but the demo also works without git.
    let identity = ["-c", "user.name=Trefoil", "-c", "user.email=demo@localhost"];
    for arguments in [&["init", "--quiet"][..], &["add", "."], &["commit", "--quiet", "-m", "A greeter with a bug"]] {
        let mut git = Command::new("git");
        git.args(identity).args(arguments).current_dir(directory);
        let _ = git.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
    Ok(())
}
