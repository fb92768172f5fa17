//! Commands under a real supervisor, which is this very binary: hence no libtest harness.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a test without libtest")]

use std::fs::File;
use std::future::Future;
use std::io::{BufRead, BufReader, Write as _};
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::pin::Pin;
use std::process::{ChildStdout, Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, test_kill_process};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;
use trefoil_exec::{End, Exec, ExecError, Process, RunOutcome, SUPERVISE_ARG, Size, Spec, Terminal, supervise};

/// How long an event may take before its test fails.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Timeouts within which a command has started: the first one on most machines, the last one even on a busy one.
const START_TIMEOUTS: [Duration; 3] = [Duration::from_millis(500), Duration::from_secs(5), Duration::from_secs(25)];

/// The first argument that makes this binary a Trefoil that is about to be killed: `OWN lock-file command`.
const OWN: &str = "own";

/// Likewise, with a terminal for the command: `OWN_TERMINAL command`.
const OWN_TERMINAL: &str = "own-terminal";

/// Likewise, with pipes: `OWN_PIPES command`.
const OWN_PIPES: &str = "own-pipes";

type Test = fn() -> Pin<Box<dyn Future<Output = ()>>>;

macro_rules! tests {
    ($($name:ident),* $(,)?) => { &[$((stringify!($name), || Box::pin($name()))),*] };
}

const TESTS: &[(&str, Test)] = tests![
    exit_codes_and_signals,
    stdout_and_stderr_keep_their_order,
    programs_and_directories_that_are_missing,
    environment_and_descriptors,
    invalid_utf8_and_long_lines,
    endless_output_is_bounded,
    background_children_do_not_block_and_are_killed,
    daemons_are_killed,
    a_timeout_kills_everything,
    a_command_may_handle_sigterm,
    an_abort_kills_everything,
    a_cancelled_command_is_not_started,
    a_command_that_is_cancelled_at_once_ends_at_once,
    a_command_that_is_cancelled_while_it_starts_ends_at_once,
    a_dropped_run_kills_everything,
    a_killed_supervisor_is_an_error,
    a_killed_owner_leaves_nothing,
    the_lock_is_held_until_all_are_dead,
    a_hundred_concurrent_commands,
    without_a_supervisor,
    a_command_has_its_own_terminal,
    a_terminal_leaves_no_processes,
    a_killed_owner_leaves_no_terminal,
    a_program_that_is_missing_has_no_terminal,
    a_command_has_its_own_pipes,
    a_killed_owner_leaves_no_pipes,
    a_lingering_command_finishes,
    a_command_that_lingers_too_long_gets_sigterm,
    a_command_that_ignores_sigterm_is_killed,
];

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next() {
        Some(first) if first == SUPERVISE_ARG => return supervise(args),
        Some(first) if first == OWN => {
            let lock = File::options().read(true).write(true).open(args.next().unwrap()).unwrap();
            return own(lock, args.next().unwrap().to_str().unwrap());
        }
        Some(first) if first == OWN_TERMINAL => return own_terminal(args.next().unwrap().to_str().unwrap()),
        Some(first) if first == OWN_PIPES => return own_pipes(args.next().unwrap().to_str().unwrap()),
        _ => {}
    }
    run_tests()
}

/// Does what libtest does, as far as the test command needs it: `--list`, `--exact`, names.
fn run_tests() -> ExitCode {
    let (flags, names): (Vec<String>, Vec<String>) = std::env::args().skip(1).partition(|word| word.starts_with('-'));
    let flag = |name: &str| flags.iter().any(|flag| flag == name);
    if flag("--list") {
        TESTS.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let fits = |test: &str, name: &String| if flag("--exact") { test == name } else { test.contains(name.as_str()) };
    let wanted = |test: &str| names.iter().all(|name| fits(test, name));
    let (mut passed, mut failed) = (0, 0);
    for (name, test) in TESTS.iter().filter(|(name, _)| wanted(name)) {
        let start = Instant::now();
        let result = catch_unwind(AssertUnwindSafe(|| runtime().block_on(async { bounded(test()).await })));
        println!(
            "test {name} ... {} ({} ms)",
            if result.is_ok() { "ok" } else { "FAILED" },
            start.elapsed().as_millis()
        );
        if result.is_ok() { passed += 1 } else { failed += 1 }
    }
    let state = if failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {state}. {passed} passed; {failed} failed; 0 ignored");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

async fn bounded<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(TEST_TIMEOUT, future).await.expect("it ends in time")
}

fn exec(lock: Option<OwnedFd>) -> Exec {
    Exec::supervised(std::env::current_exe().unwrap(), lock)
}

fn shell(command: &str) -> Spec {
    Spec::shell(Path::new("/bin/bash"), command, Path::new("/"))
}

async fn run(spec: Spec) -> Result<RunOutcome, ExecError> {
    bounded(exec(None).run(spec, CancellationToken::new(), &mut |_| {})).await
}

/// Runs a command until its timeout; with a longer one if it had not started by then.
async fn run_out_of_time(exec: &Exec, spec: impl Fn() -> Spec, begun: impl Fn(&RunOutcome) -> bool) -> RunOutcome {
    let mut last = None;
    for limit in START_TIMEOUTS {
        let spec = Spec { timeout: Some(limit), ..spec() };
        let outcome = exec.run(spec, CancellationToken::new(), &mut |_| {}).await.unwrap();
        assert_eq!(outcome.end, End::TimedOut);
        if begun(&outcome) {
            return outcome;
        }
        last = Some(outcome);
    }
    panic!("it did not begin: {last:?}")
}

async fn ok(command: &str) -> RunOutcome {
    run(shell(command)).await.unwrap()
}

fn pids(text: &str) -> Vec<Pid> {
    text.split_whitespace().filter_map(|word| Pid::from_raw(word.parse().ok()?)).collect()
}

fn is_gone(pid: Pid) -> bool {
    test_kill_process(pid).is_err()
}

fn assert_gone(outcome: &RunOutcome, count: usize) {
    let pids = pids(&outcome.output.text);
    assert_eq!(pids.len(), count, "{outcome:?}");
    for pid in pids {
        assert!(is_gone(pid), "{pid} is still there");
    }
}

/// Waits until a process has ended, which another process may have to collect.
fn wait_dead(pid: Pid) {
    let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    let limit = Timespec { tv_sec: TEST_TIMEOUT.as_secs().cast_signed(), tv_nsec: 0 };
    let ended = loop {
        match poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&limit)) {
            Err(Errno::INTR) => {}
            result => break result.unwrap(),
        }
    };
    assert_eq!(ended, 1, "{pid} does not end");
}

/// A process that ignores SIGTERM and prints its pid; `prefix` may detach it.
fn stubborn(prefix: &str) -> String {
    format!("{prefix} bash -c 'trap \"\" TERM; echo $$; exec sleep 1000' &")
}

/// A child, a grandchild, and a daemon in its own session whose parent is gone.
fn process_family() -> String {
    format!("{} ({}); ( (setsid -f bash -c 'echo $$; exec sleep 1000') & ); ", stubborn(""), stubborn("nohup"))
}

async fn exit_codes_and_signals() {
    for (command, end) in [
        ("true", End::Exited(0)),
        ("exit 7", End::Exited(7)),
        ("exit 255", End::Exited(255)),
        ("kill -9 $$", End::Signalled(9)),
        ("kill -TERM 0; sleep 1000", End::Signalled(15)),
    ] {
        assert_eq!(ok(command).await.end, end, "{command}");
    }
}

async fn stdout_and_stderr_keep_their_order() {
    let outcome = ok("for i in {1..200}; do echo out $i; echo err $i >&2; done; read x || echo no stdin").await;
    let want: String = (1..=200).map(|i| format!("out {i}\nerr {i}\n")).collect();
    assert_eq!(outcome.output.text, want + "no stdin\n");
    assert_eq!(outcome.output.total_lines, 401);
}

async fn programs_and_directories_that_are_missing() {
    let missing = Spec { program: "no-such-program".into(), ..shell("") };
    let error = run(missing).await.unwrap_err();
    assert!(matches!(&error, ExecError::Spawn { .. }) && error.to_string().contains("no-such-program"), "{error}");
    let error = run(Spec { cwd: "/no/such/place".into(), ..shell("true") }).await.unwrap_err();
    assert!(matches!(error, ExecError::Directory(_)), "{error}");
    let nobody = Exec::supervised("/no/such/trefoil".into(), None);
    let error = nobody.run(shell("true"), CancellationToken::new(), &mut |_| {}).await.unwrap_err();
    assert!(matches!(error, ExecError::Supervisor { .. }), "{error}");
    let long = run(shell(&"x".repeat(200_000))).await.unwrap_err();
    assert!(long.to_string().contains("too long"), "{long}");
}

async fn environment_and_descriptors() {
    let lock = tempfile::NamedTempFile::new().unwrap();
    let file = File::open(lock.path()).unwrap();
    let mut spec = shell("echo \"$A-$TREFOIL_SECRET-${PATH:+path}\"; readlink /proc/self/fd/*; pwd");
    spec.env = vec![("A".into(), "b c".into()), ("TREFOIL_SECRET".into(), "x".into())];
    spec.cwd = "/usr".into();
    let run = exec(Some(file.into())).run(spec, CancellationToken::new(), &mut |_| {}).await.unwrap();
    let text = run.output.text;
    assert!(text.starts_with("b c--path\n/dev/null\npipe:") && text.ends_with("/usr\n"), "{text}");
    let name = lock.path().to_str().unwrap();
    assert!(!text.contains("socket:") && !text.contains(name), "{text}");
}

async fn invalid_utf8_and_long_lines() {
    let mut live = String::new();
    let spec = Spec { keep_bytes: 20 << 20, ..shell("printf 'a\\377b\\303'; head -c 10000000 /dev/zero | tr '\\0' x") };
    let outcome = exec(None).run(spec, CancellationToken::new(), &mut |text| live.push_str(text)).await.unwrap();
    assert!(outcome.output.text.starts_with("a\u{fffd}b\u{fffd}xxx"));
    assert_eq!((outcome.output.total_bytes, outcome.output.total_lines), (10_000_004, 1));
    assert!(live == outcome.output.text, "the pieces add up to the output");
}

async fn endless_output_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let spill = dir.path().join("all");
    let spec = || Spec { keep_bytes: 1000, spill: Some(spill.clone()), ..shell("yes") };
    let outcome = run_out_of_time(&exec(None), spec, |outcome| outcome.output.total_bytes > 1000).await;
    assert_eq!(outcome.output.text.len(), 1000);
    assert_eq!(std::fs::metadata(&spill).unwrap().len(), outcome.output.total_bytes);
}

async fn background_children_do_not_block_and_are_killed() {
    let outcome = ok("sleep 1000 & echo $!; (sleep 1001 & echo $!)").await;
    assert_eq!(outcome.end, End::Exited(0));
    assert_gone(&outcome, 2);
}

async fn daemons_are_killed() {
    // Each one has printed its pid when the command ends.
    let outcome =
        ok(&format!("exec 3< <({}); for i in 1 2 3; do read -r -u 3 pid; echo $pid; done", process_family())).await;
    assert_eq!(outcome.end, End::Exited(0));
    assert_gone(&outcome, 3);
}

async fn a_timeout_kills_everything() {
    let spec = || shell(&(process_family() + " wait; sleep 1000"));
    let outcome = run_out_of_time(&exec(None), spec, |outcome| pids(&outcome.output.text).len() == 3).await;
    assert_gone(&outcome, 3);
}

async fn a_command_may_handle_sigterm() {
    // The shell waits for a child, which it stops doing at once for a signal.
    let spec = || shell("trap 'echo bye; exit 3' TERM; echo begun; sleep 1000 & wait");
    let outcome = run_out_of_time(&exec(None), spec, |outcome| outcome.output.text.starts_with("begun\n")).await;
    assert_eq!(outcome.output.text, "begun\nbye\n");
}

/// Runs until three pids were printed, then calls `then`.
async fn after_three_pids(exec: &Exec, cancel: CancellationToken, mut then: impl FnMut(&[Pid]) + Send) -> RunOutcome {
    let mut text = String::new();
    let mut seen = false;
    let mut listen = |new: &str| {
        text.push_str(new);
        if !seen && text.lines().count() == 3 && text.ends_with('\n') {
            seen = true;
            then(&pids(&text));
        }
    };
    exec.run(shell(&(process_family() + " wait; sleep 1000")), cancel, &mut listen).await.unwrap()
}

async fn an_abort_kills_everything() {
    let cancel = CancellationToken::new();
    let outcome = after_three_pids(&exec(None), cancel.clone(), |_| cancel.cancel()).await;
    assert_eq!(outcome.end, End::Cancelled);
    assert_gone(&outcome, 3);
}

async fn a_cancelled_command_is_not_started() {
    let dir = tempfile::tempdir().unwrap();
    let cancel = CancellationToken::new();
    cancel.cancel();
    let spec = Spec { cwd: dir.path().into(), ..shell("touch started") };
    let outcome = exec(None).run(spec, cancel, &mut |_| {}).await.unwrap();
    assert_eq!((outcome.end, dir.path().join("started").exists()), (End::Cancelled, false));
}

/// The request reaches the supervisor before it has started the command.
async fn a_command_that_is_cancelled_at_once_ends_at_once() {
    for _ in 0..10 {
        let (exec, cancel) = (exec(None), CancellationToken::new());
        let mut ignore = |_: &str| {};
        let run = exec.run(shell("sleep 1000"), cancel.clone(), &mut ignore);
        let (outcome, ()) = tokio::join!(run, async { cancel.cancel() });
        assert_eq!(outcome.unwrap().end, End::Cancelled);
    }
}

async fn a_command_that_is_cancelled_while_it_starts_ends_at_once() {
    let exec = exec(None);
    for round in 0..30 {
        let cancel = CancellationToken::new();
        let mut output = |_: &str| {};
        let running = exec.run(shell("sleep 1000"), cancel.clone(), &mut output);
        let stopping = async {
            // The supervisor is starting, and gets further with each round.
            for _ in 0..round {
                tokio::task::yield_now().await;
            }
            cancel.cancel();
        };
        let (outcome, ()) = bounded(async { tokio::join!(running, stopping) }).await;
        assert_eq!(outcome.unwrap().end, End::Cancelled);
    }
}

async fn a_dropped_run_kills_everything() {
    let (send, mut receive) = tokio::sync::mpsc::unbounded_channel();
    let task = tokio::spawn(async move {
        after_three_pids(&exec(None), CancellationToken::new(), |pids| send.send(pids.to_vec()).unwrap()).await
    });
    let pids = receive.recv().await.unwrap();
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    pids.into_iter().for_each(wait_dead);
}

async fn a_killed_supervisor_is_an_error() {
    let mut text = String::new();
    let spec = shell("sleep 1000 & echo $! $$; kill -9 $PPID; sleep 1000");
    let error = exec(None).run(spec, CancellationToken::new(), &mut |new| text.push_str(new)).await.unwrap_err();
    assert!(matches!(error, ExecError::SupervisorDied { .. }), "{error}");
    assert_eq!(pids(&text).len(), 2);
    pids(&text).into_iter().for_each(wait_dead);
}

/// A Trefoil: holds the lock, runs a command, and passes on its output.
fn own(lock: File, command: &str) -> ExitCode {
    flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
    runtime().block_on(async {
        let mut pass = |text: &str| std::io::stdout().write_all(text.as_bytes()).unwrap();
        let _ = exec(Some(lock.into())).run(shell(command), CancellationToken::new(), &mut pass).await;
    });
    ExitCode::FAILURE
}

/// The pids in the first lines that a process prints.
fn printed_pids(out: ChildStdout, lines: usize) -> Vec<Pid> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || BufReader::new(out).lines().map_while(Result::ok).all(|line| sender.send(line).is_ok()));
    let mut text = String::new();
    for _ in 0..lines {
        let line = receiver.recv_timeout(TEST_TIMEOUT);
        text += &line.unwrap_or_else(|error| panic!("{lines} lines did not arrive ({error}): {text:?}"));
        text.push('\n');
    }
    pids(&text)
}

struct Owner {
    process: std::process::Child,
    lock: tempfile::NamedTempFile,
    family: Vec<Pid>,
}

/// A Trefoil whose command has started its process family and printed all pids; the first one is that of its
/// supervisor.
fn owner() -> Owner {
    let lock = tempfile::NamedTempFile::new().unwrap();
    let mut process = Command::new(std::env::current_exe().unwrap())
        .arg(OWN)
        .arg(lock.path())
        .arg(format!("echo $PPID; {} wait; sleep 1000", process_family()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let family = printed_pids(process.stdout.take().unwrap(), 4);
    assert_eq!(family.len(), 4);
    Owner { process, lock, family }
}

async fn a_killed_owner_leaves_nothing() {
    let mut owner = owner();
    owner.process.kill().unwrap();
    owner.process.wait().unwrap();
    owner.family.into_iter().for_each(wait_dead);
}

async fn the_lock_is_held_until_all_are_dead() {
    let mut owner = owner();
    let supervisor = owner.family[0];
    let file = File::open(owner.lock.path()).unwrap();
    assert!(flock(&file, FlockOperation::NonBlockingLockExclusive).is_err(), "its owner is alive");
    kill_process(supervisor, Signal::STOP).unwrap();
    owner.process.kill().unwrap();
    owner.process.wait().unwrap();
    assert!(flock(&file, FlockOperation::NonBlockingLockExclusive).is_err(), "its supervisor is alive");
    kill_process(supervisor, Signal::CONT).unwrap();
    let locked = tokio::task::spawn_blocking(move || flock(&file, FlockOperation::LockExclusive));
    bounded(locked).await.unwrap().unwrap();
    for pid in &owner.family[1..] {
        assert!(is_gone(*pid), "{pid} outlived the lock");
    }
}

async fn a_hundred_concurrent_commands() {
    let exec = exec(None);
    let mut all = tokio::task::JoinSet::new();
    for i in 0..100 {
        let exec = exec.clone();
        all.spawn(async move {
            let outcome = exec
                .run(shell(&format!("sleep 1000 & echo {i}; exit {i}")), CancellationToken::new(), &mut |_| {})
                .await
                .unwrap();
            assert_eq!((outcome.end, outcome.output.text), (End::Exited(i), format!("{i}\n")));
        });
    }
    while let Some(result) = all.join_next().await {
        result.unwrap();
    }
}

async fn without_a_supervisor() {
    let exec = Exec::direct();
    let run = |spec: Spec| exec.run(spec, CancellationToken::new(), Box::leak(Box::new(|_: &str| {})));
    let outcome = run(shell("sleep 1000 & echo $!; exit 3")).await.unwrap();
    assert_eq!(outcome.end, End::Exited(3));
    pids(&outcome.output.text).into_iter().for_each(wait_dead);
    let spec = || shell("trap '' TERM; echo $$; while :; do sleep 1000; done");
    let outcome = run_out_of_time(&exec, spec, |outcome| pids(&outcome.output.text).len() == 1).await;
    assert_gone(&outcome, 1);
    assert!(matches!(run(Spec { program: "no-such".into(), ..shell("") }).await, Err(ExecError::Spawn { .. })));
}

/// Reads until the text is shown; returns everything shown so far.
async fn shown(terminal: &Terminal, wanted: &str) -> String {
    let mut text = String::new();
    let mut buffer = [0; 4096];
    while !text.contains(wanted) {
        let count = bounded(terminal.read(&mut buffer)).await.unwrap();
        assert_ne!(count, 0, "{wanted:?} was not shown: {text:?}");
        text.push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
    text
}

async fn a_command_has_its_own_terminal() {
    for exec in [exec(None), Exec::direct()] {
        let script = "tty >/dev/null && stty size; read -r line; echo \"got $line\"; stty size; read -r line; exit 7";
        let (terminal, mut process) = bounded(exec.terminal(shell(script), Size::default())).await.unwrap();
        assert!(!is_gone(Pid::from_raw(process.pid()).unwrap()));
        shown(&terminal, "24 80").await;
        terminal.resize(Size { rows: 10, cols: 40 }).unwrap();
        terminal.write(b"hello\n").await.unwrap();
        shown(&terminal, "10 40").await;
        terminal.write(b"\n").await.unwrap();
        assert_eq!(bounded(process.ended()).await.unwrap(), End::Exited(7));
        let mut rest = [0; 64];
        while bounded(terminal.read(&mut rest)).await.unwrap() > 0 {}
    }
}

/// A shell on a terminal that ignores all requests to end, with a child and a daemon; also returns their pids, which it
/// showed.
async fn stubborn_terminal() -> (Process, Vec<Pid>) {
    let daemon = "( (setsid -f bash -c 'echo $$; exec sleep 1000') & );";
    let script = format!("trap '' TERM HUP; {} {daemon} wait; sleep 1000", stubborn(""));
    let (terminal, process) = exec(None).terminal(shell(&script), Size::default()).await.unwrap();
    let mut text = String::new();
    while text.lines().count() < 2 || !text.ends_with('\n') {
        text += &shown(&terminal, "\n").await;
    }
    (process, pids(&text))
}

async fn a_terminal_leaves_no_processes() {
    let (mut process, family) = stubborn_terminal().await;
    process.terminate();
    assert_eq!(bounded(process.ended()).await.unwrap(), End::Signalled(9));
    assert_eq!(family.len(), 2);
    assert!(family.into_iter().all(is_gone));
    let (process, family) = stubborn_terminal().await;
    drop(process);
    family.into_iter().for_each(wait_dead);
}

/// A Trefoil that shows what a command shows on its terminal.
fn own_terminal(command: &str) -> ExitCode {
    runtime().block_on(async {
        let (terminal, _process) = exec(None).terminal(shell(command), Size::default()).await.unwrap();
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = terminal.read(&mut buffer).await {
            std::io::stdout().write_all(&buffer[..count]).unwrap();
        }
    });
    ExitCode::FAILURE
}

async fn a_killed_owner_leaves_no_terminal() {
    a_killed_owner_leaves_nobody(OWN_TERMINAL);
}

/// Starts ourselves in a role that runs a command, and kills us there.
fn a_killed_owner_leaves_nobody(role: &str) {
    let daemon = "( (setsid -f bash -c 'echo $$; exec sleep 1000') & );";
    let script = format!("trap '' TERM HUP; echo $$ $PPID; {} {daemon} wait; sleep 1000", stubborn(""));
    let mut owner =
        Command::new(std::env::current_exe().unwrap()).args([role, &script]).stdout(Stdio::piped()).spawn().unwrap();
    let family = printed_pids(owner.stdout.take().unwrap(), 3);
    assert_eq!(family.len(), 4);
    owner.kill().unwrap();
    owner.wait().unwrap();
    family.into_iter().for_each(wait_dead);
}

async fn a_program_that_is_missing_has_no_terminal() {
    for exec in [exec(None), Exec::direct()] {
        let missing = Spec { program: "no-such-program".into(), ..shell("") };
        let error = bounded(exec.terminal(missing, Size::default())).await.err().unwrap();
        assert!(matches!(&error, ExecError::Spawn { .. }), "{error}");
        let nowhere = Spec { cwd: "/no/such/place".into(), ..shell("true") };
        let error = bounded(exec.terminal(nowhere, Size::default())).await.err().unwrap();
        assert!(matches!(error, ExecError::Directory(_)), "{error}");
    }
}

async fn a_command_has_its_own_pipes() {
    for exec in [exec(None), Exec::direct()] {
        let script = "while read line; do echo \"got $line\"; echo \"hm $line\" >&2; done; echo bye";
        let (mut pipes, mut process) = bounded(exec.pipes(shell(script))).await.unwrap();
        pipes.stdin.write_all(b"one\n").await.unwrap();
        let mut told = [0; 8];
        bounded(pipes.stdout.read_exact(&mut told)).await.unwrap();
        assert_eq!(&told, b"got one\n");
        drop(pipes.stdin);
        let (mut rest, mut errors) = (String::new(), String::new());
        bounded(pipes.stdout.read_to_string(&mut rest)).await.unwrap();
        bounded(pipes.stderr.read_to_string(&mut errors)).await.unwrap();
        assert_eq!((rest.as_str(), errors.as_str()), ("bye\n", "hm one\n"));
        assert_eq!(bounded(process.ended()).await.unwrap(), End::Exited(0));
        let missing = Spec { program: "no-such-program".into(), ..shell("") };
        let error = bounded(exec.pipes(missing)).await.err().unwrap();
        assert!(matches!(&error, ExecError::Spawn { .. }), "{error}");
    }
}

/// A Trefoil that shows what a command prints through its pipes.
fn own_pipes(command: &str) -> ExitCode {
    runtime().block_on(async {
        let (mut pipes, _process) = exec(None).pipes(shell(command)).await.unwrap();
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = pipes.stdout.read(&mut buffer).await {
            std::io::stdout().write_all(&buffer[..count]).unwrap();
        }
    });
    ExitCode::FAILURE
}

async fn a_killed_owner_leaves_no_pipes() {
    a_killed_owner_leaves_nobody(OWN_PIPES);
}

/// Starts a command that may linger and waits until it prints its pid; then nobody waits for it any more.
async fn abandoned(exec: &Exec, command: &str) -> Pid {
    let (mut pipes, process) = bounded(exec.pipes(shell(command))).await.unwrap();
    let mut told = Vec::new();
    while !told.ends_with(b"\n") {
        bounded(pipes.stdout.read_buf(&mut told)).await.unwrap();
    }
    drop(process);
    pids(&String::from_utf8(told).unwrap())[0]
}

async fn a_lingering_command_finishes() {
    let dir = tempfile::tempdir().unwrap();
    let (go, done) = (dir.path().join("go"), dir.path().join("done"));
    for exec in [exec(None), Exec::direct()] {
        assert!(Command::new("mkfifo").arg(&go).status().unwrap().success());
        let command = format!("echo $$; read go < {}; echo \"$go\" > {}", go.display(), done.display());
        let pid = abandoned(&exec.lingering(TEST_TIMEOUT * 2), &command).await;
        // Opened for reading and writing, it does not block if the command should be gone.
        let mut gate = File::options().read(true).write(true).open(&go).unwrap();
        gate.write_all(b"on\n").unwrap();
        wait_dead(pid);
        assert_eq!(std::fs::read_to_string(&done).unwrap(), "on\n");
        std::fs::remove_file(&go).unwrap();
        std::fs::remove_file(&done).unwrap();
    }
}

async fn a_command_that_lingers_too_long_gets_sigterm() {
    let dir = tempfile::tempdir().unwrap();
    let done = dir.path().join("done");
    let command = format!("trap 'echo asked > {}; exit' TERM; sleep 1000 & echo $$; wait", done.display());
    let pid = abandoned(&exec(None).lingering(Duration::from_millis(1)), &command).await;
    wait_dead(pid);
    assert_eq!(std::fs::read_to_string(&done).unwrap(), "asked\n");
}

async fn a_command_that_ignores_sigterm_is_killed() {
    let command = "trap '' TERM; echo $$; while :; do sleep 1000; done";
    let pid = abandoned(&exec(None).lingering(Duration::from_millis(1)), command).await;
    wait_dead(pid);
}
