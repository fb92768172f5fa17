//! `trefoil worktree …`: the changes of subagents in worktrees of their own, also after a crash at any moment.

use std::io::{Read as _, Write as _};

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::{on_thread, until};

use super::harness::{Harness, finish, signal, spawn};

/// An agent with worktrees, and the steps of a turn in which it writes a file.
fn forge() -> (Harness, Value) {
    let harness = Harness::new();
    harness.configure(json!({"agent": {"smith": {"mode": "subagent", "description": "s", "isolation": "worktree"}}}));
    let child = json!([{ "tools": [["bash", { "command": "echo x > x.txt" }]] }, { "text": "forged" }]).to_string();
    let call = json!({ "description": "Forge", "prompt": format!("SCRIPT: {child}"), "subagent_type": "smith" });
    (harness, json!([{ "tools": [["task", call]] }, { "text": "end" }]))
}

fn only(harness: &Harness) -> Value {
    let listed = harness.trefoil(&["worktree", "list", "--json"]).expect(0).json();
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed:#}");
    listed[0].clone()
}

#[test]
fn worktrees_are_listed_shown_merged_and_discarded() {
    let (harness, steps) = forge();
    harness.trefoil(&["worktree", "list"]).expect(0).says("no subagent has a worktree");
    harness.play(steps, &["go"]).expect(0);
    let tree = only(&harness);
    let id = tree["worktree"]["sessionID"].as_str().unwrap();
    assert_eq!((&tree["title"], &tree["running"]), (&json!("Forge (@smith subagent)"), &json!(false)));
    let listed = harness.trefoil(&["worktree", "list"]).expect(0);
    assert!(listed.stdout.starts_with(id) && listed.stdout.contains("idle  1 changed file  "), "{}", listed.stdout);
    let patch = harness.trefoil(&["worktree", "diff", id]).expect(0).stdout;
    assert!(patch.contains("+++ b/x.txt") && patch.contains("+x"), "{patch}");
    assert_eq!(harness.trefoil(&["worktree", "diff", id, "--stat"]).expect(0).stdout, "A  x.txt  +1 -0\n");

    harness.project.write("x.txt", "mine\n");
    harness.trefoil(&["worktree", "merge", id]).expect(1).says("Nothing was merged: x.txt");
    assert_eq!(harness.project.read("x.txt"), "mine\n");
    std::fs::remove_file(harness.project.path().join("x.txt")).unwrap();
    harness.trefoil(&["worktree", "merge", id]).expect(0).says("merged 1 file into ");
    assert_eq!(harness.project.read("x.txt"), "x\n");
    harness.trefoil(&["worktree", "merge", id]).expect(0).says("nothing to merge");
    harness.trefoil(&["worktree", "discard", id]).expect(0).says("with 0 changed files");
    harness.trefoil(&["worktree", "diff", id]).expect(1).says("unknown worktree");
    harness.trefoil(&["worktree", "clean"]).expect(0).says("nothing to clean");
    assert_eq!(harness.project.git(&["worktree", "list"]).lines().count(), 1);
}

/// After a kill at any commit, the turn continues, the work is done once, and nothing else is left behind.
#[test]
fn everything_that_a_crash_leaves_is_cleaned() {
    let mut written = 0;
    // The first commits are about the worktree.
    for commits in (1..14).chain((14..).step_by(4)) {
        assert!(commits < 200, "the turn does not end");
        let (harness, steps) = forge();
        let script = harness.script(steps);
        let mut run = harness.command(&["run", "--script", &script, "go"]);
        run.env("TREFOIL_CRASH_AFTER", commits.to_string());
        let crashed = finish(spawn(run));
        if crashed.code == 0 {
            break;
        }
        if harness.sessions().is_empty() {
            continue;
        }
        let cleaned = harness.trefoil(&["worktree", "clean", "--json"]).expect(0).json();
        assert_eq!((&cleaned["kept"], &cleaned["problems"]), (&json!([]), &json!([])), "after {commits} commits");
        let again = harness.trefoil(&["run", "--script", &script, "--continue"]);
        // Without a prompt there is nothing to resume.
        assert!([0, 2].contains(&again.code), "after {commits} commits: {}", again.stderr);
        let listed = harness.trefoil(&["worktree", "list", "--json"]).expect(0).json();
        let trees = listed.as_array().unwrap();
        assert!(trees.len() <= 1, "after {commits} commits: {listed:#}");
        for tree in trees {
            // A command that may have run does not run again: the file was written once or not at all.
            let files = tree["worktree"]["files"].as_array().unwrap();
            assert!(tree["problem"].is_null() && files.len() <= 1, "after {commits} commits: {listed:#}");
            written += files.len();
            harness.trefoil(&["worktree", "discard", tree["worktree"]["sessionID"].as_str().unwrap()]).expect(0);
        }
        assert_eq!(harness.project.git(&["worktree", "list"]).lines().count(), 1, "after {commits} commits");
        assert_eq!(harness.project.git(&["branch", "--format=%(refname:short)"]), "main", "after {commits} commits");
    }
    assert!(written > 2, "{written}");
}

/// A git process that writes is not killed, because its lock would stop every later one; the next process waits for it.
#[test]
fn git_ends_its_work_without_the_program() {
    let (harness, steps) = forge();
    let script = harness.script(steps);
    let (begun, go, ended) = (harness.pipe("begun"), harness.pipe("go"), harness.project.home().join("ended"));
    let first = format!("echo begun > {}; read go < {}", begun.display(), go.display());
    let real = "PATH=${PATH#*:} git \"$@\"";
    let reset = format!("*' reset '*) {first}; {real}; echo $? > {}; exit 0;;", ended.display());
    let path = harness.program("git", &format!("case \" $* \" in {reset} esac\n{real}"));
    let mut run = harness.command(&["run", "--script", &script, "go"]);
    run.env("PATH", path);
    let mut program = spawn(run);
    assert_eq!(on_thread("git begins", || std::fs::read_to_string(begun)).unwrap(), "begun\n");
    signal(program.id(), Signal::KILL);
    program.wait().unwrap();
    // The worktree exists before git has ended.
    let mut again = spawn(harness.command(&["run", "--script", &script, "--continue"]));
    let locks = harness.project.home().join(".local/share/trefoil/locks");
    let owners = || {
        std::fs::read_dir(&locks)
            .unwrap()
            .filter(|entry| entry.as_ref().unwrap().path().extension() == Some("own".as_ref()))
    };
    until("the next one is there", || {
        assert!(again.try_wait().unwrap().is_none(), "it waits");
        owners().count() >= 2
    });
    // Opened for reading and writing, the pipe does not block if git is gone.
    let mut go = std::fs::File::options().read(true).write(true).open(go).unwrap();
    go.write_all(b"go\n").unwrap();
    finish(again).expect(0);
    assert_eq!(std::fs::read_to_string(ended).unwrap(), "0\n");
    let tree = only(&harness);
    assert_eq!(tree["worktree"]["files"].as_array().unwrap().len(), 1, "{tree:#}");
    harness.trefoil(&["worktree", "discard", tree["worktree"]["sessionID"].as_str().unwrap()]).expect(0);
}

/// A hanging git process holds a pipe open until it dies.
#[test]
fn git_dies_with_the_program() {
    let (harness, steps) = forge();
    harness.play(steps, &["go"]).expect(0);
    let pipe = harness.pipe("alive");
    let path = harness.program("git", &format!("exec 3>{}\nexec sleep 1000", pipe.display()));
    let mut list = harness.command(&["worktree", "list"]);
    list.env("PATH", path);
    let mut program = spawn(list);
    // Opens only when git runs.
    let mut alive = on_thread("git begins", || std::fs::File::open(pipe)).unwrap();
    signal(program.id(), Signal::KILL);
    program.wait().unwrap();
    assert_eq!(on_thread("git is gone", move || alive.read(&mut [0])).unwrap(), 0);
}
