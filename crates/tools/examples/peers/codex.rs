//! The real Codex: its program applies a patch when called by the name `apply_patch`.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::Outcome;
use crate::cases::{Case, FILE};

pub fn run(cases: &[Case]) -> Vec<Outcome> {
    let program = peer::codex(&testkit::target_folder()).expect("Codex is needed here");
    let folder = tempfile::tempdir().unwrap();
    let apply_patch = folder.path().join("apply_patch");
    std::os::unix::fs::symlink(program, &apply_patch).unwrap();
    let work = folder.path().join("work");
    std::fs::create_dir(&work).unwrap();
    let apply = |case: &Case| {
        std::fs::write(work.join(FILE), &case.content).unwrap();
        let mut command = Command::new(&apply_patch);
        command.current_dir(&work).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let patch = case.input["patchText"].as_str().unwrap();
        child.stdin.take().unwrap().write_all(patch.as_bytes()).unwrap();
        child.wait().unwrap().success().then(|| std::fs::read(work.join(FILE)).unwrap())
    };
    cases.iter().map(apply).collect()
}
