//! `trefoil worktree …`: what subagents changed beside, also after a crash at any moment.

use std::io::{Read as _, Write as _};

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::{on_thread, until};

use super::rig::{Rig, finish, signal, spawn};

/// Where an agent has worktrees, and the steps of a turn that has it write a file.
fn forge() -> (Rig, Value) {
    let rig = Rig::new();
    rig.configure(json!({"agent": {"smith": {"mode": "subagent", "description": "s", "isolation": "worktree"}}}));
    let child = json!([{ "tools": [["bash", { "command": "echo x > x.txt" }]] }, { "text": "forged" }]).to_string();
    let call = json!({ "description": "Forge", "prompt": format!("SCRIPT: {child}"), "subagent_type": "smith" });
    (rig, json!([{ "tools": [["task", call]] }, { "text": "end" }]))
}

fn only(rig: &Rig) -> Value {
    let listed = rig.trefoil(&["worktree", "list", "--json"]).expect(0).json();
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed:#}");
    listed[0].clone()
}

#[test]
fn worktrees_are_listed_shown_merged_and_thrown_away() {
    let (rig, steps) = forge();
    rig.trefoil(&["worktree", "list"]).expect(0).says("no subagent has a worktree");
    rig.play(steps, &["go"]).expect(0);
    let tree = only(&rig);
    let id = tree["worktree"]["sessionID"].as_str().unwrap();
    assert_eq!((&tree["title"], &tree["running"]), (&json!("Forge (@smith subagent)"), &json!(false)));
    let listed = rig.trefoil(&["worktree", "list"]).expect(0);
    assert!(listed.stdout.starts_with(id) && listed.stdout.contains("idle  1 changed file  "), "{}", listed.stdout);
    let patch = rig.trefoil(&["worktree", "diff", id]).expect(0).stdout;
    assert!(patch.contains("+++ b/x.txt") && patch.contains("+x"), "{patch}");
    assert_eq!(rig.trefoil(&["worktree", "diff", id, "--stat"]).expect(0).stdout, "A  x.txt  +1 -0\n");

    rig.project.write("x.txt", "mine\n");
    rig.trefoil(&["worktree", "merge", id]).expect(1).says("Nothing was merged: x.txt");
    assert_eq!(rig.project.read("x.txt"), "mine\n");
    std::fs::remove_file(rig.project.path().join("x.txt")).unwrap();
    rig.trefoil(&["worktree", "merge", id]).expect(0).says("merged 1 file into ");
    assert_eq!(rig.project.read("x.txt"), "x\n");
    rig.trefoil(&["worktree", "merge", id]).expect(0).says("nothing to merge");
    rig.trefoil(&["worktree", "discard", id]).expect(0).says("with 0 changed files away");
    rig.trefoil(&["worktree", "diff", id]).expect(1).says("unknown worktree");
    rig.trefoil(&["worktree", "clean"]).expect(0).says("nothing to clean");
    assert_eq!(rig.project.git(&["worktree", "list"]).lines().count(), 1);
}

/// Killed after any of its commits: the turn goes on, the work is there once, and nothing else is left behind.
#[test]
fn a_crash_leaves_nothing_that_is_not_cleaned() {
    let mut written = 0;
    // The first ones are about the worktree.
    for commits in (1..14).chain((14..).step_by(4)) {
        assert!(commits < 200, "the turn does not end");
        let (rig, steps) = forge();
        let script = rig.script(steps);
        let mut run = rig.command(&["run", "--script", &script, "go"]);
        run.env("TREFOIL_CRASH_AFTER", commits.to_string());
        let crashed = finish(spawn(run));
        if crashed.code == 0 {
            break;
        }
        if rig.sessions().is_empty() {
            continue;
        }
        let cleaned = rig.trefoil(&["worktree", "clean", "--json"]).expect(0).json();
        assert_eq!((&cleaned["kept"], &cleaned["problems"]), (&json!([]), &json!([])), "after {commits} commits");
        let again = rig.trefoil(&["run", "--script", &script, "--continue"]);
        // Without a prompt there is nothing to go on with.
        assert!([0, 2].contains(&again.code), "after {commits} commits: {}", again.stderr);
        let listed = rig.trefoil(&["worktree", "list", "--json"]).expect(0).json();
        let trees = listed.as_array().unwrap();
        assert!(trees.len() <= 1, "after {commits} commits: {listed:#}");
        for tree in trees {
            // A command that may have run is not run again: the file is there once or not at all.
            let files = tree["worktree"]["files"].as_array().unwrap();
            assert!(tree["problem"].is_null() && files.len() <= 1, "after {commits} commits: {listed:#}");
            written += files.len();
            rig.trefoil(&["worktree", "discard", tree["worktree"]["sessionID"].as_str().unwrap()]).expect(0);
        }
        assert_eq!(rig.project.git(&["worktree", "list"]).lines().count(), 1, "after {commits} commits");
        assert_eq!(rig.project.git(&["branch", "--format=%(refname:short)"]), "main", "after {commits} commits");
    }
    assert!(written > 2, "{written}");
}

/// A git that writes is not cut off, for the lock that it may leave stops every later one; whoever comes next waits for it.
#[test]
fn git_ends_its_work_without_the_program() {
    let (rig, steps) = forge();
    let script = rig.script(steps);
    let (begun, go, ended) = (rig.pipe("begun"), rig.pipe("go"), rig.project.home().join("ended"));
    let first = format!("echo begun > {}; read go < {}", begun.display(), go.display());
    let real = "PATH=${PATH#*:} git \"$@\"";
    let reset = format!("*' reset '*) {first}; {real}; echo $? > {}; exit 0;;", ended.display());
    let path = rig.program("git", &format!("case \" $* \" in {reset} esac\n{real}"));
    let mut run = rig.command(&["run", "--script", &script, "go"]);
    run.env("PATH", path);
    let mut program = spawn(run);
    assert_eq!(on_thread("git begins", || std::fs::read_to_string(begun)).unwrap(), "begun\n");
    signal(program.id(), Signal::KILL);
    program.wait().unwrap();
    // It is there before git has ended.
    let mut again = spawn(rig.command(&["run", "--script", &script, "--continue"]));
    let locks = rig.project.home().join(".local/share/trefoil/locks");
    let owners = || {
        std::fs::read_dir(&locks)
            .unwrap()
            .filter(|entry| entry.as_ref().unwrap().path().extension() == Some("own".as_ref()))
    };
    until("the next one is there", || {
        assert!(again.try_wait().unwrap().is_none(), "it waits");
        owners().count() >= 2
    });
    // Opened for both, it blocks nobody if git should be gone.
    let mut go = std::fs::File::options().read(true).write(true).open(go).unwrap();
    go.write_all(b"go\n").unwrap();
    finish(again).expect(0);
    assert_eq!(std::fs::read_to_string(ended).unwrap(), "0\n");
    let tree = only(&rig);
    assert_eq!(tree["worktree"]["files"].as_array().unwrap().len(), 1, "{tree:#}");
    rig.trefoil(&["worktree", "discard", tree["worktree"]["sessionID"].as_str().unwrap()]).expect(0);
}

/// A git that hangs holds a pipe open until it dies.
#[test]
fn git_dies_with_the_program() {
    let (rig, steps) = forge();
    rig.play(steps, &["go"]).expect(0);
    let pipe = rig.pipe("alive");
    let path = rig.program("git", &format!("exec 3>{}\nexec sleep 1000", pipe.display()));
    let mut list = rig.command(&["worktree", "list"]);
    list.env("PATH", path);
    let mut program = spawn(list);
    // Opened only when git runs.
    let mut alive = on_thread("git begins", || std::fs::File::open(pipe)).unwrap();
    signal(program.id(), Signal::KILL);
    program.wait().unwrap();
    assert_eq!(on_thread("git is gone", move || alive.read(&mut [0])).unwrap(), 0);
}
