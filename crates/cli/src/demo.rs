//! `trefoil demo`: a small repository with a bug, and the agent at work on it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;

use crate::args::{Format, Remote, Run};
use crate::exit::{Exit, Failure};
use crate::term;
use crate::wire::World;

/// The sample, as it lies in `examples/greeter`.
const FILES: [(&str, &str); 3] = [
    ("README.md", include_str!("../../../examples/greeter/README.md")),
    ("greeter.sh", include_str!("../../../examples/greeter/greeter.sh")),
    ("test.sh", include_str!("../../../examples/greeter/test.sh")),
];
/// The model that plays it: a script with real tools.
const OFFLINE: &str = "script/demo";
const TASK: &str = "The test fails. Find out why, and fix it.";

/// Makes the sample repository and says what to run in it.
pub fn prepare(wanted: Option<&Path>, model: Option<&str>, world: &World) -> anyhow::Result<(Run, World)> {
    let directory = match wanted {
        Some(path) => world.directory.join(path),
        None => std::env::temp_dir().join(format!("trefoil-demo-{}", std::process::id())),
    };
    make(&directory)?;
    // Resolved, as the shell would give it after a `cd`.
    let directory = directory.canonicalize().with_context(|| directory.display().to_string())?;
    term::eprint(&format!("A small repository with a bug: {}\nThe task: {TASK}\n\n", directory.display()));
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
    let World { env, home, dirs, .. } = world;
    Ok((run, World { env: env.clone(), home: home.clone(), dirs: dirs.clone(), directory }))
}

fn make(directory: &PathBuf) -> anyhow::Result<()> {
    fs::create_dir(directory).map_err(|error| {
        Failure::new(Exit::Failed, format!("cannot make {}: {error}", directory.display()))
            .hint("name a folder that does not exist yet: trefoil demo FOLDER")
    })?;
    for (name, text) in FILES {
        let path = directory.join(name);
        fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    // A repository is what an agent usually works in; without git the folder does as well.
    let identity = ["-c", "user.name=Trefoil", "-c", "user.email=demo@localhost"];
    for arguments in [&["init", "--quiet"][..], &["add", "."], &["commit", "--quiet", "-m", "A greeter with a bug"]] {
        let mut git = Command::new("git");
        git.args(identity).args(arguments).current_dir(directory);
        let _ = git.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
    Ok(())
}
