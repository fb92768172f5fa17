//! `kill -9` after every commit of a turn with two tools, and again after every commit of its recovery. Whatever moment is
//! hit, the promises P1 to P6 and P11 of ARCHITECTURE.md hold: `crash/facts.rs` checks them.

#![cfg(target_os = "linux")]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "whatever is missing fails the test"
)]

mod facts;
mod family;
mod lab;
mod tree;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};
use testkit::{WAIT, on_thread};

use facts::{Facts, Stage, check_answered, check_killed, check_settled, interrupted};
use family::Family;
use lab::{Lab, Ran, finish};
use tree::Tree;

/// More commits than any turn of this test has.
const COMMITS_MAX: u64 = 100;
/// Moments that are tried side by side: most of the time is spent waiting for commands and processes.
const THREADS: usize = 4;

/// Leaves a trace and a process that would like to stay, and takes long enough to be killed at work.
const COMMAND: &str = "echo ran >> state/effects; setsid sleep 300 & echo working; sleep 0.1";

fn lab(command: &str, config: Value, flags: &'static [&'static str]) -> Lab {
    let tools = json!([["bash", { "command": command }], ["read", { "filePath": "notes.txt" }]]);
    Lab::new(json!([{ "text": "Looking. ", "tools": tools }, { "text": "Finished." }]), config, flags)
}

fn plain() -> Lab {
    lab(COMMAND, json!({}), &[])
}

/// Where the command needs a permission, which `--yes` gives.
fn asking() -> Lab {
    lab(COMMAND, json!({ "permission": { "bash": "ask" } }), &["--yes"])
}

/// Says which moment it was, should the test fail there.
struct Moment(String);

impl Drop for Moment {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.0);
        }
    }
}

/// Kills a turn after each of its commits, and the recovery after each of its own where that is `worth` it. Gives what the
/// first kills left.
fn sweep(make: fn() -> Lab, worth: fn(&Facts) -> bool) -> Vec<Facts> {
    let kills = Mutex::new(Vec::new());
    each_commit(|number| {
        let lab = make();
        let ran = lab.send(Some(number));
        if !ran.killed() {
            ran.expect(0);
            check_settled(&lab, &Facts::read(&lab));
            return false;
        }
        // P11: nobody waits for the processes to end, and yet they do.
        lab.wait_for_silence();
        let killed = check_killed(&lab, &ran);
        if worth(&killed) {
            sweep_recovery(&lab, &killed);
        } else {
            recover(&lab, &killed, lab.resume(None));
        }
        kills.lock().unwrap().push(killed);
        true
    });
    kills.into_inner().unwrap()
}

/// Tries each commit of a turn, several side by side, until `kill` says that there was none left to kill at.
fn each_commit(kill: impl Fn(u64) -> bool + Sync) {
    let (next, end) = (AtomicU64::new(1), AtomicU64::new(COMMITS_MAX));
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= end.load(Ordering::Relaxed) {
                return;
            }
            let _moment = Moment(format!("killed after commit {number}"));
            if !kill(number) {
                end.fetch_min(number, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(work);
        }
    });
    assert!(end.load(Ordering::Relaxed) < COMMITS_MAX, "the turn has no end");
}

/// Recovers from a kill; first with another kill after each commit of the recovery, at last undisturbed. Gives what the
/// last of the other kills left.
fn sweep_recovery(lab: &Lab, killed: &Facts) -> Option<Facts> {
    let mut last = None;
    lab.keep();
    for number in 1..COMMITS_MAX {
        let _moment = Moment(format!("the recovery was killed after commit {number}"));
        lab.go_back();
        let ran = lab.resume(Some(number));
        if !ran.killed() {
            recover(lab, killed, ran);
            return last;
        }
        let again = check_killed(lab, &ran);
        // At once: what the killed recovery ran may still be dying, so the next one has to wait for that.
        lab.resume(None).expect(again.exit());
        check_settled(lab, &again);
        last = Some(again);
    }
    panic!("the recovery has no end");
}

/// Checks a recovery that nobody disturbed, and that the session goes on.
fn recover(lab: &Lab, killed: &Facts, ran: Ran) {
    let ran = ran.expect(killed.exit());
    assert_eq!(ran.stderr.contains("nothing is to be resumed"), killed.exit() == 2, "{}", ran.stderr);
    check_settled(lab, killed);
    if killed.stage >= Stage::Empty {
        lab.again().expect(0);
    }
}

#[test]
fn a_turn_survives_a_kill_at_every_commit_and_another_one_while_it_recovers() {
    let kills = sweep(plain, |_| true);
    // The sweep is worth something only if it came by the moments that matter.
    let hit = |fits: fn(&Facts) -> bool| kills.iter().any(fits);
    assert!(hit(|kill| kill.stage == Stage::Empty));
    assert!(hit(|kill| kill.stage == Stage::Accepted && kill.messages.len() == 1), "accepted, not begun");
    assert!(hit(|kill| kill.bash.as_ref().is_some_and(|bash| bash.started)), "the command's outcome is unknown");
}

#[test]
fn an_ask_survives_a_kill_at_every_commit() {
    // Before and after the call this is the turn of the test above.
    let kills = sweep(asking, |kill| kill.bash.as_ref().is_some_and(|bash| !bash.part.state.is_done()));
    assert!(kills.iter().any(|kill| !kill.open.is_empty()), "the ask waits");
}

#[test]
fn an_ask_that_waited_through_a_kill_is_answered_once() {
    for number in 1..COMMITS_MAX {
        let lab = asking();
        let killed = check_killed(&lab, &lab.send(Some(number)));
        let [ask] = &killed.open[..] else { continue };
        lab.resume(None).expect(0);
        check_settled(&lab, &killed);
        assert_eq!(lab.effects(), 1, "the command ran once");
        check_answered(&lab, ask);
        return;
    }
    panic!("nothing was asked");
}

#[test]
fn a_command_that_was_killed_at_work_is_not_repeated_and_leaves_nothing_running() {
    let lab = lab("echo ran >> state/effects; setsid sleep 300 & echo started > alive; sleep 300", json!({}), &[]);
    let pipe = lab.project.path().join("alive");
    assert!(lab.project.command("mkfifo").arg(&pipe).status().unwrap().success());
    let mut child = lab.start();
    assert_eq!(on_thread("the command starts", || std::fs::read_to_string(pipe)).unwrap(), "started\n");
    // The supervisor is held up, so that what it has to kill outlives the program for a while.
    let supervisor = lab.supervisor().unwrap();
    kill_process(supervisor, Signal::STOP).unwrap();
    child.kill().unwrap();
    let ran = finish(child);
    assert!(ran.killed());
    let killed = check_killed(&lab, &ran);
    // P11: a recovery has the lease only once nothing of the command is left. The first commit of `resume` is the attempt
    // to get the lease.
    let try_lease = || check_killed(&lab, &lab.resume(Some(1))).owner;
    let (owner, living) = (try_lease(), lab.living());
    kill_process(supervisor, Signal::CONT).unwrap();
    assert!(living.iter().any(|process| process.contains("sleep 300")), "{living:#?}");
    assert_eq!(owner, killed.owner, "the command still ran");
    let began = Instant::now();
    while try_lease() == killed.owner {
        assert!(began.elapsed() < WAIT, "nobody gets the lease; still alive: {:#?}", lab.living());
    }
    assert_eq!(lab.living(), Vec::<String>::new());
    lab.resume_session(killed.session().unwrap()).expect(0);
    let after = check_settled(&lab, &killed);
    assert!(after.bash.is_some_and(|bash| interrupted(&bash.part)));
    assert_eq!(lab.effects(), 1);
}

#[test]
fn a_prompt_that_crashes_too_often_is_given_up_visibly() {
    let lab = plain();
    lab.keep();
    let mut killed = (1..COMMITS_MAX).map(|number| {
        lab.go_back();
        let killed = check_killed(&lab, &lab.send(Some(number)));
        lab.wait_for_silence();
        killed
    });
    let mut killed = killed.find(|killed| killed.bash.as_ref().is_some_and(|bash| bash.started)).unwrap();
    while killed.exit() == 0 {
        // Commits of a recovery: the lease, the count of the crashes, and then what it is there for.
        let ran = lab.resume(Some(3));
        assert!(ran.killed());
        killed = check_killed(&lab, &ran);
        lab.wait_for_silence();
        let last = sweep_recovery(&lab, &killed).map(|last| last.stage);
        assert_eq!(last, Some(Stage::Ended), "the last commit ends the turn");
        lab.go_back();
    }
    let ran = lab.resume(None).expect(1);
    assert!(ran.stderr.contains("given up") && ran.stdout.contains("given up"), "{}\n{}", ran.stderr, ran.stdout);
    check_settled(&lab, &killed);
}

/// A parent whose subagent runs the command.
fn delegating() -> Lab {
    let child = json!([{ "tools": [["bash", { "command": COMMAND }]] }, { "text": "Child end." }]);
    let input = json!({ "description": "Run it", "prompt": format!("SCRIPT: {child}"), "subagent_type": "general" });
    Lab::new(json!([{ "tools": [["task", input]] }, { "text": "Finished." }]), json!({}), &[])
}

#[test]
fn a_task_survives_a_kill_at_every_commit_and_its_result_comes_once() {
    let at_work = AtomicU64::new(0);
    each_commit(|number| {
        let lab = delegating();
        let ran = lab.send(Some(number));
        if ran.killed() {
            lab.wait_for_silence();
            let killed = Family::read(&lab);
            at_work.fetch_add(u64::from(killed.at_work()), Ordering::Relaxed);
            lab.resume(None).expect(killed.exit());
        }
        lab.wait_for_silence();
        Family::read(&lab).check_settled(&lab);
        ran.killed()
    });
    assert!(at_work.into_inner() > 5, "the sweep came by the child's work");
}

#[test]
fn a_task_whose_recovery_is_killed_too_is_given_up_with_its_child() {
    let lab = delegating();
    lab.keep();
    let mut kills = (1..COMMITS_MAX).map(|number| {
        lab.go_back();
        lab.send(Some(number));
        lab.wait_for_silence();
        Family::read(&lab)
    });
    assert!(kills.any(|killed| killed.at_work()), "the child began");
    lab.keep();
    for number in 1..COMMITS_MAX {
        let _moment = Moment(format!("the recovery was killed after commit {number}"));
        lab.go_back();
        if !lab.resume(Some(number)).killed() {
            Family::read(&lab).check_settled(&lab);
            return;
        }
        lab.wait_for_silence();
        Family::read(&lab);
        let ran = lab.resume(None);
        assert!(matches!(ran.code, Some(0..=2)), "{}", ran.stderr);
        lab.wait_for_silence();
        Family::read(&lab).check_quiet();
    }
    panic!("the recovery has no end");
}

/// The same, but the subagent works in the background.
fn backgrounding() -> Lab {
    let lab = Lab::new(json!([]), json!({}), &[]);
    let child = json!([{ "tools": [["bash", { "command": COMMAND }]] }, { "text": "Child end." }]);
    let prompt = format!("SCRIPT: {child}");
    let input = json!({ "description": "Run it", "prompt": prompt, "subagent_type": "general", "background": true });
    let steps = json!([{ "tools": [["task", input]] }, { "text": "Begun." }]);
    let rules = json!({ "rules": [{ "when": { "glob": "go" }, "steps": steps }], "default": [{ "text": "Noted." }] });
    lab.project.write_home("script.json", rules.to_string());
    lab
}

#[test]
fn a_task_in_the_background_survives_a_kill_at_every_commit_and_is_reported_once() {
    let at_work = AtomicU64::new(0);
    each_commit(|number| {
        let lab = backgrounding();
        let ran = lab.send(Some(number));
        if ran.killed() {
            lab.wait_for_silence();
            let killed = Family::read(&lab);
            at_work.fetch_add(u64::from(killed.at_work()), Ordering::Relaxed);
            let resumed = lab.resume(None);
            assert!(matches!(resumed.code, Some(0..=2)), "{}", resumed.stderr);
        }
        lab.wait_for_silence();
        Family::read(&lab).check_reported(&lab);
        ran.killed()
    });
    assert!(at_work.into_inner() > 5, "the sweep came by the child's work");
}

/// How often the tree is killed.
const KILLS: u64 = 50;
/// The commits after which it is, in an order that has them spread from the beginning on; a prime, so that all come by.
const MOMENTS: u64 = 113;

#[test]
fn a_tree_of_twenty_subagents_survives_fifty_kills() {
    let (next, kills, at_work) = (AtomicU64::new(1), AtomicU64::new(0), AtomicU64::new(0));
    let work = || {
        while kills.load(Ordering::Relaxed) < KILLS {
            let number = next.fetch_add(1, Ordering::Relaxed);
            assert!(number < MOMENTS, "the tree has too few commits to be killed {KILLS} times");
            let commit = number * 37 % MOMENTS;
            let _moment = Moment(format!("killed after commit {commit}"));
            let lab = tree::lab();
            let mut again = false;
            if lab.send(Some(commit)).killed() {
                kills.fetch_add(1, Ordering::Relaxed);
                lab.wait_for_silence();
                at_work.fetch_add(u64::from(Tree::read(&lab).at_work() > 0), Ordering::Relaxed);
                // Whoever was at work at both kills is given up.
                again = number % 5 == 0 && lab.resume(Some(commit / 2 + 1)).killed();
                let ran = lab.resume(None);
                assert!(matches!(ran.code, Some(0..=2)), "{}", ran.stderr);
            }
            lab.wait_for_silence();
            let tree = Tree::read(&lab);
            if again { tree.check_quiet(&lab) } else { tree.check_settled(&lab) }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(work);
        }
    });
    assert!(at_work.into_inner() > KILLS / 2, "the kills hit the children at work");
}
