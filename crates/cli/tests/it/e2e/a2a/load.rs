//! Streams that nobody reads to their end, and cancellations that come when a task ends anyway.

use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use testkit::until;

use super::process::{A2aProcess, TOKEN, begin, new_message, script};
use crate::e2e::harness::Harness;

/// How many streams are open at the same time, and how often that happens.
const STREAMS: usize = 250;
const ROUNDS: usize = 4;
/// How much more memory may be in use after all rounds than after the first.
const GROWTH_KIB: u64 = 16 << 10;

/// The numbers of open files of a process.
fn descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

/// The memory that a process has, in KiB.
fn memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// A stream of which the first event was read. Dropping it abandons it.
fn open_stream(url: &str, method: &str, path: &str, body: Option<&Value>) -> BufReader<TcpStream> {
    let bearer = format!("Bearer {TOKEN}");
    let stream = begin(url, method, path, &[("authorization", &bearer)], body);
    let mut lines = BufReader::new(stream);
    let (mut line, mut seen) = (String::new(), String::new());
    while !line.starts_with("data: ") {
        line.clear();
        assert_ne!(lines.read_line(&mut line).unwrap(), 0, "the stream ends before its first event: {seen}");
        seen += &line;
    }
    lines
}

fn start_task(service: &A2aProcess, id: &str, steps: &Value) -> String {
    let params = json!({ "message": new_message(id, &script(steps)), "configuration": { "returnImmediately": true } });
    service.call("SendMessage", params)["task"]["id"].as_str().unwrap().to_owned()
}

fn state(service: &A2aProcess, id: &str) -> String {
    service.call("GetTask", json!({ "id": id }))["status"]["state"].as_str().unwrap().to_owned()
}

fn open_streams(service: &A2aProcess) -> f64 {
    let metrics = service.send("GET", "/metrics", &[], None).expect(200);
    let line = metrics.as_str().unwrap().lines().find_map(|line| line.strip_prefix("a2a_stream_active "));
    line.unwrap().parse().unwrap()
}

#[test]
fn a_thousand_abandoned_streams_leave_nothing_behind() {
    let harness = Harness::new();
    let service = A2aProcess::start(&harness, &[]);
    let gate = harness.project.path().join("gate");
    let steps = json!([{ "text": "First. ", "tools": [["bash", { "command": "true" }]] },
        { "after": gate, "text": "Second." }]);
    let id = start_task(&service, "m-1", &steps);
    let path = format!("/tasks/{id}:subscribe");
    let mut faithful = service.stream("GET", &path, &[], None);
    faithful.wait_for("First.");
    let (mut files, mut kib) = (0, 0);
    for round in 0..ROUNDS {
        let streams: Vec<_> = (0..STREAMS).map(|_| open_stream(&service.url, "GET", &path, None)).collect();
        assert!(open_streams(&service) > STREAMS as f64, "all of them are open");
        drop(streams);
        until("the streams are gone", || open_streams(&service) < 1.5);
        if round == 0 {
            // The connection of the last look is closed a moment after its response.
            (files, kib) = (descriptors(service.pid()) + 1, memory(service.pid()));
        }
    }
    until("the descriptors are free again", || descriptors(service.pid()) <= files);
    let after = memory(service.pid());
    assert!(after < kib + GROWTH_KIB, "{kib} KiB after the first round, {after} KiB after the last");
    harness.project.write("gate", "");
    faithful.wait_for("Second.");
    faithful.wait_for("TASK_STATE_COMPLETED");
    faithful.rest();
    assert_eq!(state(&service, &id), "TASK_STATE_COMPLETED");
}

#[test]
fn tasks_go_on_when_their_streams_are_abandoned() {
    const TASKS: usize = 100;
    let harness = Harness::new();
    let service = A2aProcess::start(&harness, &[]);
    let gate = harness.project.path().join("gate");
    for number in 0..TASKS {
        let text = script(&json!([{ "text": "Begun. ", "hold": gate }]));
        let body = json!({ "message": new_message(&format!("m-{number}"), &text) });
        drop(open_stream(&service.url, "POST", "/message:stream", Some(&body)));
    }
    until("the streams are gone", || open_streams(&service) < 0.5);
    harness.project.write("gate", "");
    let ended = || service.call("ListTasks", json!({ "status": "TASK_STATE_COMPLETED" }))["totalSize"].clone();
    until("all tasks complete", || ended() == TASKS);
}

#[test]
fn cancelling_tasks_that_complete_gives_each_one_end() {
    const ROUNDS: usize = 300;
    const THREADS: usize = 4;
    let harness = Harness::new();
    let service = A2aProcess::start(&harness, &[]);
    let (next, canceled, completed) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let race = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= ROUNDS {
                return;
            }
            let id = start_task(&service, &format!("m-{number}"), &json!([{ "text": "x" }]));
            // Each round cancels a little later than the one before.
            for _ in 0..number % 12 {
                state(&service, &id);
            }
            let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "CancelTask", "params": { "id": id } });
            let answer = service.send("POST", "/", &[], Some(&body)).expect(200);
            let (counter, end) = match answer["error"]["code"].as_i64() {
                None => (&canceled, "TASK_STATE_CANCELED"),
                Some(-32002) => (&completed, "TASK_STATE_COMPLETED"),
                Some(_) => panic!("{answer:#}"),
            };
            counter.fetch_add(1, Ordering::Relaxed);
            assert_eq!(state(&service, &id), end, "{answer:#}");
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(race);
        }
    });
    let (canceled, completed) = (canceled.into_inner(), completed.into_inner());
    assert!(canceled > 0 && completed > 0, "the race had one outcome: {canceled} canceled, {completed} completed");
    for (state, count) in [("TASK_STATE_CANCELED", canceled), ("TASK_STATE_COMPLETED", completed)] {
        assert_eq!(service.call("ListTasks", json!({ "status": state }))["totalSize"], count, "they stay {state}");
    }
}
