//! Local servers, well-behaved and hostile ones.

use std::time::{Duration, Instant};

use crate::common::{Rig, failure, soon};
use api::McpStatus;
use indexmap::IndexMap;
use rustix::process::{Pid, test_kill_process};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use trefoil_mcp::{Content, Error};

#[tokio::test]
async fn tools_prompts_resources_and_instructions() {
    let rig = Rig::local("polite");
    assert_eq!(rig.status("s"), McpStatus::Disabled);
    rig.ready().await;
    assert_eq!(rig.status("s"), McpStatus::Connected);
    let names: Vec<String> = rig.servers.tools().into_iter().map(|tool| tool.name).collect();
    assert_eq!(names[..3], ["s_echo", "s_picture", "s_fail"]);
    assert_eq!(rig.text("s_echo", json!({"text": "hi"})).await, "echo: hi");
    let picture = rig.call("s_picture", json!({})).await.unwrap().content;
    assert!(matches!(&picture[1], Content::Image { mime_type, .. } if mime_type == "image/png"), "{picture:?}");
    assert!(rig.call("s_fail", json!({})).await.unwrap().is_error);
    let prompts = rig.servers.prompts();
    assert_eq!((prompts[0].server.as_str(), prompts[0].arguments.len()), ("s", 2));
    let arguments = IndexMap::from([("who".to_owned(), "$1".to_owned()), ("how".to_owned(), "$2".to_owned())]);
    let text = rig.servers.prompt("s", "greet", arguments).await.unwrap();
    assert_eq!(text, "Greet $1 in a $2 way");
    let resources = rig.servers.resources(None).await;
    assert_eq!((resources[0].uri.as_str(), resources[0].server.as_str()), ("memo://1", "s"));
    assert_eq!(rig.servers.resource_templates(Some("s")).await[0].uri_template, "memo://{n}");
    let read = rig.servers.read("s", "memo://1").await.unwrap();
    assert_eq!(read[0].text.as_deref(), Some("the memo memo://1"));
    assert_eq!(rig.servers.instructions()[0].text, "Echo before you leap.");
}

#[tokio::test]
async fn noise_on_stdout_is_skipped() {
    let rig = Rig::local("noisy");
    rig.ready().await;
    assert_eq!(rig.status("s"), McpStatus::Connected);
    assert_eq!(rig.text("s_echo", json!({"text": "hi"})).await, "echo: hi");
}

#[tokio::test]
async fn a_server_that_exits_at_startup_says_why() {
    let rig = Rig::local("gone");
    rig.ready().await;
    let error = failure(rig.status("s"));
    assert!(error.contains("exit code 7") && error.contains("no such database"), "{error}");
    assert!(rig.servers.tools().is_empty());
}

#[tokio::test]
async fn a_missing_program_is_named() {
    let rig = Rig::new(json!({ "s": { "type": "local", "command": ["no-such-program"] } }));
    rig.ready().await;
    let error = failure(rig.status("s"));
    assert!(error.contains("no-such-program"), "{error}");
}

#[tokio::test]
async fn a_silent_server_is_given_up_and_others_work() {
    let rig = Rig::new(json!({
        "mute": { "type": "local", "command": ["python3", "SERVER", "mute"], "timeout": 300 },
        "s": { "type": "local", "command": ["python3", "SERVER"] },
        "off": { "type": "local", "command": ["python3", "SERVER"], "enabled": false },
    }));
    rig.ready().await;
    let error = failure(rig.status("mute"));
    assert!(error.contains("300 ms"), "{error}");
    assert_eq!(rig.status("s"), McpStatus::Connected);
    assert_eq!(rig.status("off"), McpStatus::Disabled);
    assert!(rig.servers.tools().iter().all(|tool| tool.server == "s"));
}

#[tokio::test]
async fn a_server_that_floods_its_output_is_ended() {
    // It has plenty of time to start: its output must end it.
    let flood = json!({ "type": "local", "command": ["python3", "SERVER", "flood"], "timeout": 600_000 });
    let rig = Rig::new(json!({ "s": flood }));
    let before = resident();
    rig.ready().await;
    let grown = resident().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes more");
    assert!(failure(rig.status("s")).contains("without a message"));
}

#[tokio::test]
async fn a_response_of_100_mb_is_dropped_and_the_server_goes_on() {
    let rig = Rig::local("polite");
    rig.ready().await;
    let before = resident();
    let error = soon(rig.call("s_huge", json!({}))).await.unwrap_err();
    assert_eq!(error, Error::TooLarge);
    let grown = resident().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes more");
    assert_eq!(rig.text("s_echo", json!({"text": "still here"})).await, "echo: still here");
    assert_eq!(rig.text("s_huge", json!({"bytes": 1_000_000})).await.len(), 1_000_000);
}

#[tokio::test]
async fn calls_time_out_unless_they_report_progress() {
    let limit = Duration::from_secs(4);
    let rig = Rig::with(json!({ "s": { "type": "local", "command": ["python3", "SERVER"] } }), Some(limit));
    rig.ready().await;
    // The server handles one call after the other, so the slow one comes last.
    let (told, mut steps) = tokio::sync::mpsc::unbounded_channel();
    let slow = rig.servers.tools().into_iter().find(|tool| tool.name == "s_slow").unwrap();
    let progress = move |text| drop(told.send(text));
    let cancel = CancellationToken::new();
    let start = Instant::now();
    let done = soon(rig.servers.call(&slow, json!({"steps": 21}), &cancel, &progress)).await.unwrap();
    assert!(start.elapsed() > limit && !done.is_error);
    assert_eq!(soon(steps.recv()).await.as_deref(), Some("step 0"));
    let error = soon(rig.call("s_slow", json!({}))).await.unwrap_err();
    assert_eq!(error, Error::Timeout(limit));
    let call = rig.servers.call(&slow, json!({}), &cancel, &|_| {});
    cancel.cancel();
    assert_eq!(soon(call).await.unwrap_err(), Error::Cancelled);
    assert_eq!(rig.text("s_echo", json!({"text": 1})).await, "echo: 1");
}

#[tokio::test]
async fn new_tools_are_available_immediately() {
    let mut rig = Rig::local("polite");
    rig.ready().await;
    assert_eq!(soon(rig.changed.recv()).await.as_deref(), Some("s"));
    assert_eq!(rig.text("s_grow", json!({})).await, "there is more now");
    let start = Instant::now();
    soon(rig.servers.ready()).await;
    let grown = || rig.servers.tools().iter().any(|tool| tool.name == "s_grown");
    // A server that takes longer than two seconds to list them delays nobody.
    assert!(grown() || start.elapsed() >= Duration::from_secs(2), "they were not waited for");
    assert_eq!(soon(rig.changed.recv()).await.as_deref(), Some("s"));
    assert!(grown(), "they are there when it is told");
    assert_eq!(rig.text("s_grown", json!({})).await, "so it has");
}

#[tokio::test]
async fn a_server_that_dies_can_be_reconnected() {
    let mut rig = Rig::local("polite");
    rig.ready().await;
    soon(rig.changed.recv()).await;
    let error = soon(rig.call("s_die", json!({}))).await.unwrap_err().to_string();
    assert!(error.contains("exit code 3") && error.contains("I cannot go on"), "{error}");
    soon(rig.changed.recv()).await;
    assert!(failure(rig.status("s")).contains("exit code 3"));
    assert!(rig.servers.tools().is_empty());
    // It is not restarted automatically.
    rig.ready().await;
    failure(rig.status("s"));
    assert_eq!(soon(rig.servers.connect("s")).await.unwrap(), McpStatus::Connected);
    assert_eq!(rig.text("s_echo", json!({"text": "back"})).await, "echo: back");
}

#[tokio::test]
async fn a_disconnected_or_dropped_server_leaves_nothing_behind() {
    let rig = Rig::local("polite");
    rig.ready().await;
    let pid = server_pid(&rig).await;
    soon(rig.servers.disconnect("s")).await.unwrap();
    assert!(test_kill_process(pid).is_err());
    assert_eq!(rig.status("s"), McpStatus::Disabled);
    rig.ready().await;
    assert_eq!(rig.status("s"), McpStatus::Disabled);
    soon(rig.servers.connect("s")).await.unwrap();
    let pid = server_pid(&rig).await;
    drop(rig.servers);
    rig.tasks.close();
    soon(rig.tasks.wait()).await;
    assert!(test_kill_process(pid).is_err());
}

#[tokio::test]
async fn servers_can_be_added_and_unknown_ones_are_refused() {
    let rig = Rig::local("polite");
    let config = json!({ "type": "local", "command": ["python3", rig.folder.path().join("mcp_test_server.py")] });
    soon(rig.servers.add("t", serde_json::from_value(config).unwrap())).await.unwrap();
    assert_eq!(rig.status("t"), McpStatus::Connected);
    let unknown = Error::Unknown("nobody".to_owned());
    assert_eq!(rig.servers.connect("nobody").await.unwrap_err(), unknown);
    assert_eq!(rig.servers.disconnect("nobody").await.unwrap_err(), unknown);
    assert_eq!(rig.servers.begin_auth("t").await.unwrap_err(), Error::NoOAuth("t".to_owned()));
    assert_eq!(rig.servers.read("s", "memo://1").await.unwrap_err(), Error::NotConnected("s".to_owned()));
}

async fn server_pid(rig: &Rig) -> Pid {
    let pids = rig.text("s_pids", json!({})).await;
    Pid::from_raw(pids.split(' ').next().unwrap().parse().unwrap()).unwrap()
}

/// The resident memory of this process, in bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}
