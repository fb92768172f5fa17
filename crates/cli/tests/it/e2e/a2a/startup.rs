//! What keeps a service from starting says what to do next.

use std::net::TcpListener;

use rustix::process::Signal;
use serde_json::json;

use super::process::{A2aProcess, TOKEN};
use crate::e2e::harness::{Harness, RunResult, finish, spawn};

fn start(harness: &Harness, args: &[&str], env: &[(&str, &str)]) -> RunResult {
    let mut command = harness.command(args);
    command.envs(env.iter().copied());
    finish(spawn(command))
}

#[test]
fn without_credentials_it_does_not_start() {
    let harness = Harness::new();
    let ran = start(&harness, &["a2a"], &[]).expect(2);
    ran.says("error: there are no credentials for the A2A service");
    ran.says("hint: set A2A_BEARER_TOKEN");
    start(&harness, &["serve", "--a2a", "--port", "0"], &[]).expect(2).says("A2A_BEARER_TOKEN");
    let token = [("A2A_BEARER_TOKEN", TOKEN)];
    start(&harness, &["a2a", "--no-auth"], &token).expect(2).says("--no-auth contradicts the credentials");
    start(&harness, &["a2a", "--no-auth", "--hostname", "0.0.0.0"], &[]).expect(2).says("can be reached from others");
    let registry = [("A2A_STATIC_AUTH_CREDENTIALS", "[{\"scheme\": \"bearer\", \"token\": \"SECRET\"}]")];
    let ran = start(&harness, &["a2a"], &registry).expect(2);
    ran.says("A2A_STATIC_AUTH_CREDENTIALS: credential 1: principal is missing");
    assert!(!ran.stderr.contains("SECRET"), "{}", ran.stderr);
}

#[test]
fn a_wrong_setting_is_named() {
    let harness = Harness::new();
    let run = |name, value| start(&harness, &["a2a"], &[("A2A_BEARER_TOKEN", TOKEN), (name, value)]).expect(2);
    run("A2A_PORT", "many").says("error: A2A_PORT is not a whole number in range");
    run("A2A_LOG_LEVEL", "loud").says("A2A_LOG_LEVEL: unknown log level: loud");
    run("A2A_CARD_SIGNING_KEY", "missing.pem").says("A2A_CARD_SIGNING_KEY");
    run("OPENCODE_WORKSPACE_ROOT", "missing").says("OPENCODE_WORKSPACE_ROOT");
    run("A2A_TASK_STORE_DATABASE_URL", "postgres://x").says("only sqlite+aiosqlite:///PATH is supported");
    // Nothing enforces it, so declaring it would mislead.
    let ran = run("A2A_SANDBOX_MODE", "read-only");
    ran.says("does not enforce");
    ran.says("hint: remove A2A_SANDBOX_*");
    let upstream = [("A2A_BEARER_TOKEN", TOKEN), ("OPENCODE_BASE_URL", "http://127.0.0.1:9")];
    start(&harness, &["serve", "--a2a", "--port", "0"], &upstream).expect(2).says("use `trefoil a2a`");
    harness.configure(json!({ "a2a": { "prot": 1 } }));
    start(&harness, &["a2a", "--no-auth"], &[]).expect(2).says("a2a.prot is no setting of the A2A service");
}

#[test]
fn a_port_in_use_is_named() {
    let harness = Harness::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let ran = start(&harness, &["a2a", "--no-auth", "--port", &port], &[]).expect(1);
    ran.says(&format!("cannot listen on 127.0.0.1:{port}"));
    ran.says("hint: another program listens there; choose another --port or A2A_PORT");
}

#[test]
fn a_database_of_another_program_is_left_alone() {
    let harness = Harness::new();
    let path = harness.project.path().join("opencode-a2a.db");
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE tasks (id TEXT PRIMARY KEY); CREATE TABLE a2a_schema_version (version)").unwrap();
    drop(other);
    let before = std::fs::read(&path).unwrap();
    let url = [("A2A_BEARER_TOKEN", TOKEN), ("A2A_TASK_STORE_DATABASE_URL", "sqlite+aiosqlite:///./opencode-a2a.db")];
    let ran = start(&harness, &["a2a", "--port", "0"], &url).expect(1);
    ran.says("cannot open A2A_TASK_STORE_DATABASE_URL");
    ran.says("hint: a database of another program is left as it is");
    assert!(std::fs::read(&path).unwrap() == before, "the file has changed");
}

#[test]
fn one_service_uses_a_database() {
    let harness = Harness::new();
    let first = A2aProcess::start(&harness, &[]);
    let ran = start(&harness, &["a2a", "--port", "0"], &[("A2A_BEARER_TOKEN", TOKEN)]).expect(1);
    ran.says("error: another A2A service uses the database");
    ran.says("hint: one A2A service per database");
    // Another database, or none, is fine.
    let url = "sqlite+aiosqlite:///own/tasks.db";
    let own = [("A2A_BEARER_TOKEN", TOKEN), ("A2A_TASK_STORE_DATABASE_URL", url)];
    A2aProcess::with(&harness, &[], &own).end(Signal::TERM).expect(0);
    assert!(harness.project.path().join("own/tasks.db").exists());
    let memory = [("A2A_BEARER_TOKEN", TOKEN), ("A2A_TASK_STORE_BACKEND", "memory")];
    A2aProcess::with(&harness, &[], &memory).end(Signal::TERM).expect(0);
    first.end(Signal::TERM).expect(0);
    A2aProcess::start(&harness, &[]).end(Signal::INT).expect(0);
}

#[test]
fn the_log_says_where_the_state_is() {
    let harness = Harness::new();
    let token = [("A2A_BEARER_TOKEN", TOKEN), ("A2A_LOG_LEVEL", "INFO")];
    let ran = A2aProcess::with(&harness, &["--print-logs"], &token).end(Signal::TERM).expect(0);
    ran.says("backend=\"sqlite\"");
    ran.says("trefoil.db");
    ran.says("push configurations");
    assert!(!ran.stderr.contains(TOKEN), "{}", ran.stderr);
}
