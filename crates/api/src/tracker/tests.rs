//! Sequences of events, and what the tree says after them. The `client` crate's tests replay recorded ones.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn id(text: &str) -> SessionId {
    SessionId::parse(text).unwrap()
}

fn row(id: &str, parent: Option<&str>) -> Session {
    let mut json = json!({"id": id, "slug": "s", "projectID": "p", "directory": "/p", "title": format!("Title of {id}"),
        "version": "0", "agent": format!("agent of {id}"), "time": {"created": 1, "updated": 1}});
    if let Some(parent) = parent {
        json["parentID"] = parent.into();
    }
    serde_json::from_value(json).unwrap()
}

fn event(kind: &str, properties: Json) -> EventBody {
    serde_json::from_value(json!({"type": kind, "properties": properties})).unwrap()
}

fn created(id: &str, parent: &str) -> EventBody {
    event("session.created", json!({"sessionID": id, "info": row(id, Some(parent))}))
}

fn deleted(id: &str) -> EventBody {
    event("session.deleted", json!({"sessionID": id, "info": row(id, None)}))
}

fn busy(id: &str) -> EventBody {
    event("session.status", json!({"sessionID": id, "status": {"type": "busy"}}))
}

fn retry(id: &str, attempt: u32) -> EventBody {
    let status = json!({"type": "retry", "attempt": attempt, "message": "overloaded", "next": 9});
    event("session.status", json!({"sessionID": id, "status": status}))
}

fn idle(id: &str) -> EventBody {
    event("session.idle", json!({"sessionID": id}))
}

fn error(id: &str, name: &str) -> EventBody {
    event("session.error", json!({"sessionID": id, "error": {"name": name, "data": {"message": "it broke"}}}))
}

fn tree_event(id: &str, state: &str) -> EventBody {
    let mut properties = json!({"sessionID": id, "state": state});
    if state == "blocked" {
        properties["blocked"] = json!({"bound": "steps", "sessionID": "ses_root", "message": "3 of 3 steps are used"});
    }
    event("session.tree", properties)
}

fn asked(id: &str, ask: &str) -> EventBody {
    event(
        "permission.asked",
        json!({"id": ask, "sessionID": id, "permission": "bash", "patterns": ["rm\n x"], "metadata": {}, "always": []}),
    )
}

fn replied(id: &str, ask: &str) -> EventBody {
    event("permission.replied", json!({"sessionID": id, "requestID": ask, "reply": "once"}))
}

fn part(id: &str, mut part: Json) -> EventBody {
    part["sessionID"] = json!(id);
    part["messageID"] = json!(format!("msg_{id}"));
    event("message.part.updated", json!({"sessionID": id, "part": part, "time": 1}))
}

fn call(id: &str, part_id: &str, status: &str) -> EventBody {
    let state = match status {
        "running" => json!({"status": "running", "input": {"command": "ls"}, "time": {"start": 5}}),
        _ => json!({"status": "completed", "input": {}, "output": "", "title": "ls", "metadata": {},
            "time": {"start": 5, "end": 6}}),
    };
    part(id, json!({"id": part_id, "type": "tool", "tool": "bash", "callID": "c", "state": state}))
}

/// A `task` call of `id` that runs `child`.
fn task(id: &str, child: &str, background: bool) -> EventBody {
    let state = json!({"status": "running", "input": {"description": "Look around"}, "time": {"start": 5},
        "metadata": {"sessionId": child, "background": background}});
    part(id, json!({"id": "prt_task", "type": "tool", "tool": "task", "callID": "c", "state": state}))
}

fn step(id: &str, part_id: &str) -> EventBody {
    let tokens = json!({"input": 1000, "output": 50, "reasoning": 0, "cache": {"read": 0, "write": 0}});
    part(id, json!({"id": part_id, "type": "step-finish", "reason": "stop", "cost": 2, "tokens": tokens}))
}

fn answer(id: &str, cost: f64) -> EventBody {
    let info = json!({"id": format!("msg_{id}"), "sessionID": id, "role": "assistant", "parentID": "msg_0",
        "mode": "general", "agent": "general", "path": {"cwd": "/p", "root": "/p"}, "cost": cost,
        "tokens": {"input": 1, "output": 2, "reasoning": 0, "cache": {"read": 0, "write": 0}},
        "modelID": "m", "providerID": "p", "time": {"created": 5}});
    event("message.updated", json!({"sessionID": id, "info": info}))
}

/// A tree of `ses_root`, `ses_a` and `ses_b` below it, and `ses_c` below `ses_a`.
fn tracker() -> TreeTracker {
    let mut tracker = TreeTracker::new(id("ses_root"));
    for event in [created("ses_a", "ses_root"), created("ses_b", "ses_root"), created("ses_c", "ses_a")] {
        let changes = tracker.apply(&event, 0);
        assert!(matches!(&changes[..], [TreeChange::Created(_)]), "{changes:?}");
    }
    tracker
}

fn node(tracker: &TreeTracker, session: &str) -> TreeNode {
    let found = tracker.tree().sessions.into_iter().find(|node| node.session_id.as_str() == session);
    found.unwrap_or_else(|| panic!("{session} is not in the tree"))
}

#[test]
fn the_state_follows_the_events() {
    use TreeState::{Asking, Blocked, Cancelled, Failed, Idle, Paused, Retrying, Running};
    let b = "ses_b";
    let table = [
        (vec![], Idle),
        (vec![busy(b)], Running),
        (vec![busy(b), idle(b)], Idle),
        (vec![busy(b), error(b, "UnknownError"), idle(b)], Failed),
        (vec![busy(b), error(b, "MessageAbortedError"), idle(b)], Cancelled),
        (vec![busy(b), error(b, "UnknownError"), busy(b)], Running),
        (vec![busy(b), retry(b, 1)], Retrying),
        (vec![busy(b), retry(b, 1), busy(b)], Running),
        // Attempt 0 is a wait for a budget, which has its own event.
        (vec![busy(b), retry(b, 0)], Running),
        (vec![busy(b), tree_event(b, "blocked")], Blocked),
        (vec![busy(b), tree_event(b, "blocked"), tree_event(b, "running")], Running),
        (vec![busy(b), tree_event(b, "blocked"), tree_event("ses_root", "paused")], Paused),
        (vec![busy(b), tree_event(b, "paused")], Paused),
        (vec![busy(b), tree_event("ses_root", "paused")], Paused),
        // A running step ends first.
        (vec![busy(b), call(b, "prt_1", "running"), tree_event("ses_root", "paused")], Running),
        (vec![busy(b), tree_event("ses_root", "paused"), tree_event("ses_root", "running")], Running),
        (vec![busy(b), tree_event("ses_a", "paused")], Running),
        (vec![busy(b), asked(b, "per_1")], Asking),
        (vec![busy(b), asked(b, "per_1"), asked(b, "per_2"), replied(b, "per_1")], Asking),
        (vec![busy(b), asked(b, "per_1"), asked(b, "per_1"), replied(b, "per_1")], Running),
        (vec![asked(b, "per_1")], Idle),
    ];
    for (events, state) in table {
        let mut tracker = tracker();
        for event in &events {
            tracker.apply(event, 1);
        }
        assert_eq!(node(&tracker, b).state, state, "{events:?}");
    }
}

#[test]
fn changes_say_who_starts_and_stops() {
    let mut tracker = tracker();
    let b = "ses_b";
    let mut changes = |event: EventBody, now| {
        let changes = tracker.apply(&event, now).into_iter();
        changes.filter(|change| !matches!(change, TreeChange::Progress(..))).collect::<Vec<_>>()
    };
    assert_eq!(changes(busy(b), 5), [TreeChange::Started(id(b))]);
    assert!(changes(busy(b), 6).is_empty());
    assert_eq!(changes(call(b, "prt_1", "running"), 7), [TreeChange::Changed(id(b))]);
    assert_eq!(changes(call(b, "prt_1", "completed"), 8), [TreeChange::Changed(id(b))]);
    assert_eq!(changes(idle(b), 9), [TreeChange::Stopped(id(b))]);
    assert!(changes(idle(b), 10).is_empty());
    assert!(changes(busy("ses_stranger"), 11).is_empty());
    assert_eq!(changes(deleted("ses_a"), 12), [TreeChange::Removed(id("ses_c")), TreeChange::Removed(id("ses_a"))]);
    assert!(changes(created("ses_late", "ses_a"), 13).is_empty());
    let node = node(&tracker, b);
    assert_eq!((node.started, node.ended), (Some(5), Some(9)));
    assert!(!tracker.contains(&id("ses_c")) && !tracker.has_live() && tracker.descendants() == 1);
}

#[test]
fn calls_and_steps_are_counted_once() {
    let mut tracker = tracker();
    for _ in 0..2 {
        for event in [call("ses_b", "prt_1", "completed"), step("ses_b", "prt_2")] {
            tracker.apply(&event, 1);
        }
    }
    let used = tracker.used(&id("ses_b")).unwrap();
    assert_eq!((used.tool_calls, used.steps, used.cost.0, used.all_tokens()), (1, 1, 2.0, 1050));
}

#[test]
fn asks_name_the_way_to_the_agent_that_asks() {
    let mut tracker = tracker();
    tracker.apply(&busy("ses_c"), 1);
    tracker.apply(&asked("ses_c", "per_1"), 1);
    let paths = |session: &str| node(&tracker, session).asks.into_iter().map(|ask| ask.path).collect::<Vec<_>>();
    assert_eq!(paths("ses_c"), [["agent of ses_c"]]);
    assert_eq!(paths("ses_a"), [["agent of ses_a", "agent of ses_c"]]);
    assert!(paths("ses_b").is_empty());
    assert_eq!(node(&tracker, "ses_c").asks[0].text, "bash rm x");
    assert_eq!(tracker.path(&id("ses_c"))[1..], ["agent of ses_a", "agent of ses_c"]);
    assert_eq!((tracker.open_asks(&id("ses_c")), tracker.open_asks(&id("ses_a"))), (1, 0));
}

#[test]
fn a_task_call_names_the_task_and_whether_the_caller_waits() {
    let mut tracker = tracker();
    tracker.apply(&task("ses_root", "ses_a", true), 1);
    let a = id("ses_a");
    assert!(node(&tracker, "ses_a").background);
    assert_eq!((tracker.task(&a), tracker.task_call(&a).map(PartId::as_str)), (Some("Look around"), Some("prt_task")));
    tracker.apply(&task("ses_b", "ses_c", false), 1);
    assert_eq!(tracker.task_call(&id("ses_c")), None, "the call of another session");
    assert_eq!(tracker.parent(&a), Some(&id("ses_root")));
}

#[test]
fn a_tree_that_was_read_as_paused_is_resumed_by_an_event() {
    let mut tracker = tracker();
    for event in [busy("ses_root"), busy("ses_a"), busy("ses_c"), tree_event("ses_root", "paused")] {
        tracker.apply(&event, 1);
    }
    let mut read = TreeTracker::from_tree(&tracker.tree()).unwrap();
    assert_eq!(node(&read, "ses_c").state, TreeState::Paused);
    read.apply(&tree_event("ses_root", "running"), 2);
    for session in ["ses_root", "ses_a", "ses_c"] {
        assert_eq!(node(&read, session).state, TreeState::Running, "{session}");
    }
}

/// Any event of the tree.
fn any_event() -> impl Strategy<Value = EventBody> {
    let session = || prop::sample::select(vec!["ses_root", "ses_a", "ses_b", "ses_c", "ses_d", "ses_other"]);
    let name = || prop::sample::select(vec!["per_1", "per_2"]);
    prop_oneof![
        (session(), session()).prop_map(|(id, parent)| created(id, parent)),
        session().prop_filter("the root stays", |id| *id != "ses_root").prop_map(deleted),
        session().prop_map(busy),
        (session(), 0..3_u32).prop_map(|(id, attempt)| retry(id, attempt)),
        session().prop_map(idle),
        (session(), prop::sample::select(vec!["UnknownError", "MessageAbortedError"]))
            .prop_map(|(id, name)| error(id, name)),
        (session(), prop::sample::select(vec!["running", "paused", "blocked"]))
            .prop_map(|(id, state)| tree_event(id, state)),
        (session(), name()).prop_map(|(id, ask)| asked(id, ask)),
        (session(), name()).prop_map(|(id, ask)| replied(id, ask)),
        (session(), prop::sample::select(vec!["running", "completed"]))
            .prop_map(|(id, status)| call(id, "prt_1", status)),
        (session(), session(), any::<bool>()).prop_map(|(id, child, background)| task(id, child, background)),
        (session(), 0..9_u32).prop_map(|(id, cost)| answer(id, f64::from(cost))),
    ]
}

proptest! {
    /// Events one by one lead to the same nodes as the tree that they lead to.
    #[test]
    fn events_and_the_final_tree_give_the_same_nodes(events in prop::collection::vec(any_event(), 0..60)) {
        let mut tracker = tracker();
        for (now, event) in events.iter().enumerate() {
            tracker.apply(event, now as Timestamp);
        }
        let tree = tracker.tree();
        let read = TreeTracker::from_tree(&tree).unwrap();
        prop_assert_eq!(read.tree(), tree.clone());
        // Reading it into the tracker that made it changes nothing either.
        tracker.apply_tree(&tree, 99);
        prop_assert_eq!(tracker.tree(), tree);
    }
}
