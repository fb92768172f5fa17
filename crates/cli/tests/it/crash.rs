//! `kill -9` after every commit of a turn with two tools, and again after every commit of its recovery. At every moment the promises
//! P1 to P6 and P11 of ARCHITECTURE.md hold: `crash/facts.rs` checks them.

#![cfg(target_os = "linux")]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "whatever is missing fails the test"
)]

mod a2a;
mod facts;
mod fixture;
mod subagent;
mod tree;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};
use testkit::{WAIT, on_thread};

use facts::{Facts, Stage, check_answered, check_killed, check_settled, interrupted};
use fixture::{Fixture, RunResult, finish};
use subagent::ParentAndChild;
use tree::Tree;

/// More commits than any turn of these tests has.
const COMMITS_MAX: u64 = 100;
/// How many moments are tried in parallel: most of the time is spent waiting for commands and processes.
const THREADS: usize = 4;

/// Leaves a trace and a stubborn process, and takes long enough to be killed while it runs.
const COMMAND: &str = "echo ran >> state/effects; setsid sleep 300 & echo working; sleep 0.1";

fn fixture(command: &str, config: Value, flags: &'static [&'static str]) -> Fixture {
    let tools = json!([["bash", { "command": command }], ["read", { "filePath": "notes.txt" }]]);
    Fixture::new(json!([{ "text": "Looking. ", "tools": tools }, { "text": "Finished." }]), config, flags)
}

fn plain() -> Fixture {
    fixture(COMMAND, json!({}), &[])
}

/// A configuration in which the command needs a permission, which `--yes` grants.
fn asking() -> Fixture {
    fixture(COMMAND, json!({ "permission": { "bash": "ask" } }), &["--yes"])
}

/// Prints the moment if the test fails there.
struct Moment(String);

impl Drop for Moment {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.0);
        }
    }
}

/// Kills a turn after each of its commits, and its recovery after each of its own where that is `worth` it. Returns the states after
/// the first kills.
fn sweep(make: fn() -> Fixture, worth: fn(&Facts) -> bool) -> Vec<Facts> {
    let kills = Mutex::new(Vec::new());
    each_commit(|number| {
        let fixture = make();
        let ran = fixture.send(Some(number));
        if !ran.killed() {
            ran.expect(0);
            check_settled(&fixture, &Facts::read(&fixture));
            return false;
        }
        // P11: the processes end although nobody waits for them.
        fixture.wait_for_silence();
        let killed = check_killed(&fixture, &ran);
        if worth(&killed) {
            sweep_recovery(&fixture, &killed);
        } else {
            recover(&fixture, &killed, fixture.resume(None));
        }
        kills.lock().unwrap().push(killed);
        true
    });
    kills.into_inner().unwrap()
}

/// Tries each commit of a turn, several in parallel, until `kill` says that there are no more.
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

/// Recovers from a kill: first with another kill after each commit of the recovery, then undisturbed. Returns the state after the
/// last of the other kills.
fn sweep_recovery(fixture: &Fixture, killed: &Facts) -> Option<Facts> {
    let mut last = None;
    fixture.keep();
    for number in 1..COMMITS_MAX {
        let _moment = Moment(format!("the recovery was killed after commit {number}"));
        fixture.go_back();
        let ran = fixture.resume(Some(number));
        if !ran.killed() {
            recover(fixture, killed, ran);
            return last;
        }
        let again = check_killed(fixture, &ran);
        // At once: processes of the killed recovery may still be dying, and the next recovery has to wait for them.
        fixture.resume(None).expect(again.exit());
        check_settled(fixture, &again);
        last = Some(again);
    }
    panic!("the recovery has no end");
}

/// Checks an undisturbed recovery, and that the session continues.
fn recover(fixture: &Fixture, killed: &Facts, ran: RunResult) {
    let ran = ran.expect(killed.exit());
    assert_eq!(ran.stderr.contains("there is no interrupted turn to resume"), killed.exit() == 2, "{}", ran.stderr);
    check_settled(fixture, killed);
    if killed.stage >= Stage::Empty {
        fixture.again().expect(0);
    }
}

#[test]
fn a_turn_survives_a_kill_at_every_commit_and_another_one_while_it_recovers() {
    let kills = sweep(plain, |_| true);
    // The sweep means something only if it hit the moments that matter.
    let hit = |fits: fn(&Facts) -> bool| kills.iter().any(fits);
    assert!(hit(|kill| kill.stage == Stage::Empty));
    assert!(hit(|kill| kill.stage == Stage::Accepted && kill.messages.len() == 1), "accepted, not begun");
    assert!(hit(|kill| kill.bash.as_ref().is_some_and(|bash| bash.started)), "the command's outcome is unknown");
}

#[test]
fn a_request_survives_a_kill_at_every_commit() {
    // Before and after the call this is the turn of the previous test.
    let kills = sweep(asking, |kill| kill.bash.as_ref().is_some_and(|bash| !bash.part.state.is_done()));
    assert!(kills.iter().any(|kill| !kill.open.is_empty()), "the ask waits");
}

#[test]
fn a_request_that_waited_through_a_kill_is_answered_once() {
    for number in 1..COMMITS_MAX {
        let fixture = asking();
        let killed = check_killed(&fixture, &fixture.send(Some(number)));
        let [ask] = &killed.open[..] else { continue };
        fixture.resume(None).expect(0);
        check_settled(&fixture, &killed);
        assert_eq!(fixture.effects(), 1, "the command ran once");
        check_answered(&fixture, ask);
        return;
    }
    panic!("nothing was asked");
}

#[test]
fn a_killed_command_is_not_repeated_and_leaves_nothing_running() {
    let fixture =
        fixture("echo ran >> state/effects; setsid sleep 300 & echo started > alive; sleep 300", json!({}), &[]);
    let pipe = fixture.project.path().join("alive");
    assert!(fixture.project.command("mkfifo").arg(&pipe).status().unwrap().success());
    let mut child = fixture.start();
    assert_eq!(on_thread("the command starts", || std::fs::read_to_string(pipe)).unwrap(), "started\n");
    // The supervisor is stopped, so that the command outlives the program for a while.
    let supervisor = fixture.supervisor().unwrap();
    kill_process(supervisor, Signal::STOP).unwrap();
    child.kill().unwrap();
    let ran = finish(child);
    assert!(ran.killed());
    let killed = check_killed(&fixture, &ran);
    // P11: a recovery gets the lease only once nothing of the command is left. The first commit of `resume` is the attempt to get the
    // lease.
    let try_lease = || check_killed(&fixture, &fixture.resume(Some(1))).owner;
    let (owner, living) = (try_lease(), fixture.living());
    kill_process(supervisor, Signal::CONT).unwrap();
    assert!(living.iter().any(|process| process.contains("sleep 300")), "{living:#?}");
    assert_eq!(owner, killed.owner, "the command still ran");
    let began = Instant::now();
    while try_lease() == killed.owner {
        assert!(began.elapsed() < WAIT, "nobody gets the lease; still alive: {:#?}", fixture.living());
    }
    assert_eq!(fixture.living(), Vec::<String>::new());
    fixture.resume_session(killed.session().unwrap()).expect(0);
    let after = check_settled(&fixture, &killed);
    assert!(after.bash.is_some_and(|bash| interrupted(&bash.part)));
    assert_eq!(fixture.effects(), 1);
}

#[test]
fn a_prompt_that_crashes_too_often_is_given_up_visibly() {
    let fixture = plain();
    fixture.keep();
    let mut killed = (1..COMMITS_MAX).map(|number| {
        fixture.go_back();
        let killed = check_killed(&fixture, &fixture.send(Some(number)));
        fixture.wait_for_silence();
        killed
    });
    let mut killed = killed.find(|killed| killed.bash.as_ref().is_some_and(|bash| bash.started)).unwrap();
    while killed.exit() == 0 {
        // Commits of a recovery: the lease, the number of crashes, and then its work.
        let ran = fixture.resume(Some(3));
        assert!(ran.killed());
        killed = check_killed(&fixture, &ran);
        fixture.wait_for_silence();
        let last = sweep_recovery(&fixture, &killed).map(|last| last.stage);
        assert_eq!(last, Some(Stage::Ended), "the last commit ends the turn");
        fixture.go_back();
    }
    let ran = fixture.resume(None).expect(1);
    assert!(ran.stderr.contains("given up") && ran.stdout.contains("given up"), "{}\n{}", ran.stderr, ran.stdout);
    check_settled(&fixture, &killed);
}

/// A parent whose subagent runs the command.
fn delegating() -> Fixture {
    let child = json!([{ "tools": [["bash", { "command": COMMAND }]] }, { "text": "Child end." }]);
    let input = json!({ "description": "Run it", "prompt": format!("SCRIPT: {child}"), "subagent_type": "general" });
    Fixture::new(json!([{ "tools": [["task", input]] }, { "text": "Finished." }]), json!({}), &[])
}

#[test]
fn a_task_survives_a_kill_at_every_commit_and_its_result_comes_once() {
    let at_work = AtomicU64::new(0);
    each_commit(|number| {
        let fixture = delegating();
        let ran = fixture.send(Some(number));
        if ran.killed() {
            fixture.wait_for_silence();
            let killed = ParentAndChild::read(&fixture);
            at_work.fetch_add(u64::from(killed.at_work()), Ordering::Relaxed);
            fixture.resume(None).expect(killed.exit());
        }
        fixture.wait_for_silence();
        ParentAndChild::read(&fixture).check_settled(&fixture);
        ran.killed()
    });
    assert!(at_work.into_inner() > 5, "the sweep came by the child's work");
}

#[test]
fn a_task_whose_recovery_is_killed_too_is_given_up_with_its_child() {
    let fixture = delegating();
    fixture.keep();
    let mut kills = (1..COMMITS_MAX).map(|number| {
        fixture.go_back();
        fixture.send(Some(number));
        fixture.wait_for_silence();
        ParentAndChild::read(&fixture)
    });
    assert!(kills.any(|killed| killed.at_work()), "the child began");
    fixture.keep();
    for number in 1..COMMITS_MAX {
        let _moment = Moment(format!("the recovery was killed after commit {number}"));
        fixture.go_back();
        if !fixture.resume(Some(number)).killed() {
            ParentAndChild::read(&fixture).check_settled(&fixture);
            return;
        }
        fixture.wait_for_silence();
        ParentAndChild::read(&fixture);
        let ran = fixture.resume(None);
        assert!(matches!(ran.code, Some(0..=2)), "{}", ran.stderr);
        fixture.wait_for_silence();
        ParentAndChild::read(&fixture).check_quiet();
    }
    panic!("the recovery has no end");
}

/// A parent whose subagent runs the command in the background.
fn backgrounding() -> Fixture {
    let fixture = Fixture::new(json!([]), json!({}), &[]);
    let child = json!([{ "tools": [["bash", { "command": COMMAND }]] }, { "text": "Child end." }]);
    let prompt = format!("SCRIPT: {child}");
    let input = json!({ "description": "Run it", "prompt": prompt, "subagent_type": "general", "background": true });
    let steps = json!([{ "tools": [["task", input]] }, { "text": "Begun." }]);
    let rules = json!({ "rules": [{ "when": { "glob": "go" }, "steps": steps }], "default": [{ "text": "Noted." }] });
    fixture.project.write_home("script.json", rules.to_string());
    fixture
}

#[test]
fn a_task_in_the_background_survives_a_kill_at_every_commit_and_is_reported_once() {
    let at_work = AtomicU64::new(0);
    each_commit(|number| {
        let fixture = backgrounding();
        let ran = fixture.send(Some(number));
        if ran.killed() {
            fixture.wait_for_silence();
            let killed = ParentAndChild::read(&fixture);
            at_work.fetch_add(u64::from(killed.at_work()), Ordering::Relaxed);
            let resumed = fixture.resume(None);
            assert!(matches!(resumed.code, Some(0..=2)), "{}", resumed.stderr);
        }
        fixture.wait_for_silence();
        ParentAndChild::read(&fixture).check_reported(&fixture);
        ran.killed()
    });
    assert!(at_work.into_inner() > 5, "the sweep came by the child's work");
}

/// How often the tree is killed.
const KILLS: u64 = 50;
/// The commits after which it is killed, spread over the turn from the start; a prime, so that each comes once.
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
            let fixture = tree::fixture();
            let mut again = false;
            if fixture.send(Some(commit)).killed() {
                kills.fetch_add(1, Ordering::Relaxed);
                fixture.wait_for_silence();
                at_work.fetch_add(u64::from(Tree::read(&fixture).at_work() > 0), Ordering::Relaxed);
                // A subagent that was working at both kills is given up.
                again = number % 5 == 0 && fixture.resume(Some(commit / 2 + 1)).killed();
                let ran = fixture.resume(None);
                assert!(matches!(ran.code, Some(0..=2)), "{}", ran.stderr);
            }
            fixture.wait_for_silence();
            let tree = Tree::read(&fixture);
            if again { tree.check_quiet(&fixture) } else { tree.check_settled(&fixture) }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(work);
        }
    });
    assert!(at_work.into_inner() > KILLS / 2, "the kills hit the children at work");
}
