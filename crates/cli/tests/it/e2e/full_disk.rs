//! A data folder that cannot be written: its disk is full, or it is mounted read-only. Real file systems in a namespace of their own:
//! without root, the system must allow user namespaces (`unshare --user`).

use serde_json::{Value, json};

use super::harness::{Harness, RunResult, finish, spawn};

/// The commands that only read, as shell arguments; `$ID` is the session's id.
const READING: [&str; 8] = [
    "session list --json",
    "session show $ID",
    "session export $ID",
    "tree $ID",
    "agent list",
    "models",
    "doctor",
    "config check",
];

/// The start of every script: a small disk in `$BOX` with a session on it, and functions to fill the disk.
const PRELUDE: &str = r#"
mount -t tmpfs -o size=3m,nr_inodes=300 none "$BOX"
export TREFOIL_DATA_DIR="$BOX/data" XDG_STATE_HOME="$BOX/state" XDG_CACHE_HOME="$BOX/cache"
"$T" run --script "$SCRIPT" first > /dev/null 2>&1
ID=$("$T" session list --json | tr ',' '\n' | sed -n 's/.*"id": *"\(ses_[^"]*\)".*/\1/p' | head -n 1)
fill() {
    dd if=/dev/zero of="$BOX/blocks" bs=4096 2> /dev/null || true
    n=0; while (: > "$BOX/file$n") 2> /dev/null; do n=$((n + 1)); done
    [ "$n" -gt 0 ]
}
crash() { TREFOIL_CRASH_AFTER=1 "$T" run --script "$SCRIPT" -c second > /dev/null 2>&1 || true; }
"#;

/// Runs a script in a mount namespace of its own.
fn in_namespace(harness: &Harness, script: &str) -> RunResult {
    let place = harness.project.root().join("box");
    std::fs::create_dir_all(&place).unwrap();
    let answer = harness.script(json!([{ "text": "An answer." }]));
    let unshare = |flags: &[&str], script: &str| {
        let mut command = harness.project.command("unshare");
        command.args(flags).args(["sh", "-euc", script]).env("BOX", &place).env("SCRIPT", &answer);
        command.env("T", env!("CARGO_BIN_EXE_trefoil"));
        command
    };
    let works = |flags: &[&str]| {
        let mut command = unshare(flags, "mount -t tmpfs -o size=1m none \"$BOX\"");
        command.output().is_ok_and(|output| output.status.success())
    };
    let flags: &[&str] =
        [&["--mount"][..], &["--user", "--map-root-user", "--mount"]].into_iter().find(|flags| works(flags)).expect(
            "a small disk can be mounted: run this as root with CAP_SYS_ADMIN, or where user namespaces are allowed",
        );
    finish(spawn(unshare(flags, &format!("{PRELUDE}\n{script}"))))
}

/// Runs every reading command after `state`, and fails unless all of them work and show the session.
fn all_read(state: &str, messages: usize) {
    let harness = Harness::new();
    let commands: String = READING
        .iter()
        .map(|command| format!("echo '== {command}'; \"$T\" {command} < /dev/null || echo \"FAILED $?\"\n"))
        .collect();
    let ran = in_namespace(&harness, &format!("{state}\n{commands}")).expect(0);
    let said = |command: &str| {
        let (_, rest) = ran.stdout.split_once(&format!("== {command}\n")).unwrap_or_else(|| panic!("{}", ran.stdout));
        rest.split("\n== ").next().unwrap().to_owned()
    };
    for command in READING {
        assert!(!said(command).contains("FAILED"), "{command}: {}\n{}", said(command), ran.stderr);
    }
    let list: Value = serde_json::from_str(&said("session list --json")).unwrap();
    assert_eq!(list.as_array().unwrap().len(), 1, "{list}");
    let export: Value = serde_json::from_str(&said("session export $ID")).unwrap();
    assert_eq!(export["messages"].as_array().unwrap().len(), messages, "{export:#}");
    assert!(said("session show $ID").contains("An answer."), "{}", said("session show $ID"));
    assert!(said("tree $ID").contains(list[0]["title"].as_str().unwrap()), "{}", said("tree $ID"));
    assert!(said("models").contains("demo") && said("agent list").contains("build"));
    // All messages on the terminal are about the database.
    let noise = ran.stderr.lines().find(|line| line.contains("tracing") || line.contains("panicked"));
    assert_eq!(noise, None, "{}", ran.stderr);
}

#[test]
fn a_database_at_rest_on_a_full_disk() {
    all_read("fill", 2);
}

#[test]
fn what_a_killed_process_left_on_a_full_disk() {
    // Its accepted prompt is only in the WAL, and the index that readers share is gone.
    all_read("crash; test -s \"$BOX/data/trefoil.db-wal\"; rm \"$BOX/data/trefoil.db-shm\"; fill", 3);
}

#[test]
fn a_full_disk_with_a_server_at_work() {
    all_read(
        "\"$T\" serve --port 0 --script \"$SCRIPT\" > \"$HOME/serve.log\" 2>&1 & trap \"kill $!\" EXIT\n\
         n=0; until grep -q listening \"$HOME/serve.log\"; do n=$((n + 1)); [ $n -lt 600 ]; sleep 0.1; done\n\
         \"$T\" run --script \"$SCRIPT\" -c second > /dev/null 2>&1; fill",
        4,
    );
}

#[test]
fn a_read_only_disk() {
    all_read("crash; mount -o remount,ro \"$BOX\"", 3);
}

#[test]
fn what_has_to_write_says_what_to_do() {
    let harness = Harness::new();
    let script = "fill\n\
                  for command in \"run --script $SCRIPT again\" 'serve --port 0' \"session delete $ID\"; do\n\
                  code=0; \"$T\" $command < /dev/null || code=$?; echo \"$code\"; done";
    let ran = in_namespace(&harness, script).expect(0);
    assert_eq!(ran.stdout, "1\n1\n1\n", "{}", ran.stderr);
    assert_eq!(ran.stderr.matches("the disk is full").count(), 3, "{}", ran.stderr);
    assert_eq!(ran.stderr.matches("hint: free some space").count(), 3, "{}", ran.stderr);
}

#[test]
fn a_full_disk_without_a_database() {
    let harness = Harness::new();
    let script = "rm -r \"$TREFOIL_DATA_DIR\"; fill\n\
                  \"$T\" session list; \"$T\" models > /dev/null; \"$T\" agent list > /dev/null; \"$T\" doctor > /dev/null";
    let ran = in_namespace(&harness, script).expect(0);
    assert_eq!(ran.stdout, "");
    ran.says("the disk is full");
}
