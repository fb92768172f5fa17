//! A monitor of subagents on an unreliable server.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use api::{Scope, SessionId, TreeChange, TreeState};
use serde_json::{Value, json};
use trefoil_client::{MonitorEvent, SubagentMonitor, TurnOutcome};

use super::fake::{Fake, Kind, PendingRequest, Writer};

/// A server with a session and a running child.
struct Lab {
    fake: Fake,
    /// The event stream.
    writer: Option<Writer>,
    busy: bool,
    /// The child's only answer.
    answer: Value,
    /// How often reading the root fails.
    failures: usize,
    /// How often the root was read.
    reads: usize,
}

fn session(id: &str, parent: Option<&str>) -> Value {
    let mut session = json!({"id": id, "slug": "a", "projectID": "p", "directory": "/p", "title": id, "version": "1",
        "time": {"created": 1, "updated": 1}});
    if let Some(parent) = parent {
        session["parentID"] = parent.into();
    }
    session
}

fn answer(completed: Option<u64>) -> Value {
    let mut info = json!({"id": "msg_2", "sessionID": "ses_child", "role": "assistant", "parentID": "msg_1",
        "mode": "general", "agent": "general", "path": {"cwd": "/p", "root": "/p"}, "cost": 0,
        "tokens": {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}},
        "modelID": "m", "providerID": "p", "time": {"created": 2}});
    if let Some(completed) = completed {
        info["time"]["completed"] = completed.into();
        info["finish"] = "stop".into();
    }
    info
}

impl Lab {
    async fn open() -> (Self, SubagentMonitor) {
        let fake = Fake::start(Kind::OpenCode).await;
        let client = Arc::new(fake.client());
        let mut lab = Self { fake, writer: None, busy: true, answer: answer(None), failures: 0, reads: 0 };
        let root = SessionId::parse("ses_root").unwrap();
        let monitor = lab.serve(SubagentMonitor::open(client, Scope::new("/p"), root)).await.unwrap();
        (lab, monitor)
    }

    /// Answers requests until the future is ready.
    async fn serve<T>(&mut self, wanted: impl Future<Output = T>) -> T {
        let mut wanted = pin!(wanted);
        loop {
            let request = tokio::select! {
                done = &mut wanted => return done,
                request = self.fake.next() => request,
            };
            self.handle(request).await;
        }
    }

    async fn handle(&mut self, request: PendingRequest) {
        let path = request.uri.path().to_owned();
        let body = match path.trim_start_matches('/') {
            "global/event" => return self.writer = Some(request.events().await),
            "session/ses_root" => {
                self.reads += 1;
                if self.failures > 0 {
                    self.failures -= 1;
                    return request.json(500, &json!({}));
                }
                session("ses_root", None)
            }
            "session/ses_root/children" => json!([session("ses_child", Some("ses_root"))]),
            "session/ses_child/message" => json!([{"info": self.answer, "parts": []}]),
            "session/status" if self.busy => json!({"ses_child": {"type": "busy"}}),
            "session/status" => json!({}),
            _ => json!([]),
        };
        request.json(200, &body);
    }
}

fn outcome(event: Option<MonitorEvent>) -> TurnOutcome {
    match event {
        Some(MonitorEvent::ChildCompleted { outcome, .. }) => outcome,
        other => panic!("no end but {other:?}"),
    }
}

#[tokio::test]
async fn a_gap_is_read_until_that_succeeds() {
    let (mut lab, mut monitor) = Lab::open().await;
    assert_eq!(monitor.tree().sessions.len(), 2);
    (lab.busy, lab.answer, lab.failures) = (false, answer(Some(3)), 2);
    lab.writer.take().unwrap().cut().await;
    assert_eq!(outcome(lab.serve(monitor.next()).await), TurnOutcome::Succeeded);
    assert_eq!(lab.reads, 4, "when it was opened, twice in vain, and once more");
    // The new stream repeats the end of the turn, which is already known.
    for event in [
        json!({"id": "evt_1", "type": "session.idle", "properties": {"sessionID": "ses_child"}}),
        json!({"id": "evt_2", "type": "session.created",
            "properties": {"sessionID": "ses_new", "info": session("ses_new", Some("ses_child"))}}),
    ] {
        lab.writer.as_ref().unwrap().event(None, &event).await;
    }
    let event = lab.serve(monitor.next()).await.unwrap();
    assert!(matches!(&event, MonitorEvent::ChildCreated { session } if session.id.as_str() == "ses_new"), "{event:?}");
}

#[tokio::test]
async fn a_server_that_forgot_a_turn_is_read_twice() {
    let (mut lab, mut monitor) = Lab::open().await;
    lab.busy = false;
    lab.writer.take().unwrap().cut().await;
    // First, the child is reported as idle.
    let event = lab.serve(monitor.next()).await;
    assert!(matches!(&event, Some(MonitorEvent::ChildProgress { .. })), "{event:?}");
    assert_eq!(outcome(lab.serve(monitor.next()).await), TurnOutcome::Interrupted);
    assert_eq!(lab.reads, 3);
}

#[tokio::test]
async fn a_disposed_directory_is_read_again() {
    let (mut lab, mut monitor) = Lab::open().await;
    (lab.busy, lab.answer) = (false, answer(Some(3)));
    for directory in ["/elsewhere", "/p"] {
        let properties = json!({"directory": directory});
        let event = json!({"id": "evt_1", "type": "server.instance.disposed", "properties": properties});
        lab.writer.as_ref().unwrap().event(None, &event).await;
    }
    assert_eq!(outcome(lab.serve(monitor.next()).await), TurnOutcome::Succeeded);
    assert_eq!(lab.reads, 2);
}

#[tokio::test]
async fn a_turn_that_ends_without_an_event_is_found_by_polling() {
    let (mut lab, monitor) = Lab::open().await;
    let mut monitor = monitor.with_polling(Duration::from_millis(10));
    (lab.busy, lab.answer) = (false, answer(Some(3)));
    assert_eq!(outcome(lab.serve(monitor.next()).await), TurnOutcome::Succeeded);
    assert_eq!(lab.reads, 2, "when it was opened, and when the statuses differed");
}

#[tokio::test]
async fn changes_of_the_root_are_reported_to_those_who_want_them() {
    let (mut lab, mut monitor) = Lab::open().await;
    let states = |monitor: &SubagentMonitor| {
        monitor.tracker().tree().sessions.into_iter().map(|node| node.state).collect::<Vec<_>>()
    };
    assert_eq!(states(&monitor), [TreeState::Idle, TreeState::Running]);
    let status = json!({"sessionID": "ses_root", "status": {"type": "busy"}});
    let event = json!({"id": "evt_1", "type": "session.status", "properties": status});
    lab.writer.as_ref().unwrap().event(None, &event).await;
    let changes = lab.serve(monitor.changed()).await.unwrap();
    let root = SessionId::parse("ses_root").unwrap();
    assert!(changes.contains(&TreeChange::Started(root)), "{changes:?}");
    assert_eq!(states(&monitor), [TreeState::Running, TreeState::Running]);
}
