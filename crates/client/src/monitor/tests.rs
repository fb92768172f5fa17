//! The state machine on recorded events, with and without gaps between them.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::Duration;

use api::{Event, EventBody, Message, MessageError, MessageWithParts, Part, Session, SessionId, SessionStatus, Usd};
use indexmap::IndexMap;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::event::*;
use super::throttle::Batch;
use super::tree::{Read, ReadSession, SESSIONS, Tree};

const SCENARIOS: [&str; 9] = [
    "06_task_general",
    "06_task_explore_parallel",
    "06_task_errors",
    "06_task_abort",
    "06_subtask_part_and_agent_mention",
    "15_permission_task_child",
    "24_nested_task_depth2",
    "32_task_background",
    "33_task_promote_background",
];

/// What a server knows after some events: an independent fold of them, without what is never stored.
#[derive(Default)]
struct World {
    sessions: IndexMap<SessionId, Session>,
    messages: IndexMap<SessionId, IndexMap<String, MessageWithParts>>,
    statuses: HashMap<SessionId, SessionStatus>,
    asks: Vec<Ask>,
}

impl World {
    fn after(events: &[Event]) -> Self {
        let mut world = Self::default();
        for event in events {
            world.apply(&event.body);
        }
        world
    }

    fn apply(&mut self, body: &EventBody) {
        match body {
            EventBody::SessionCreated { info, .. } | EventBody::SessionUpdated { info, .. } => {
                self.sessions.insert(info.id.clone(), (**info).clone());
            }
            EventBody::SessionDeleted { session_id, .. } => drop(self.sessions.shift_remove(session_id)),
            EventBody::SessionStatus { session_id, status } => {
                self.statuses.insert(session_id.clone(), status.clone());
            }
            EventBody::MessageUpdated { session_id, info } => {
                let messages = self.messages.entry(session_id.clone()).or_default();
                let row = messages
                    .entry(info.id().as_str().to_owned())
                    .or_insert_with(|| MessageWithParts { info: (**info).clone(), parts: Vec::new() });
                row.info = (**info).clone();
            }
            EventBody::PartUpdated { session_id, part, .. } => {
                let head = part.head().unwrap();
                let message = &mut self.messages[session_id][head.message_id.as_str()];
                match message.parts.iter_mut().find(|known| known.head() == Some(head)) {
                    Some(known) => *known = (**part).clone(),
                    None => message.parts.push((**part).clone()),
                }
            }
            EventBody::PermissionAsked(ask) => self.asks.push(Ask::Permission(ask.clone())),
            EventBody::PermissionReplied { request_id, .. } => self.asks.retain(|ask| ask.id() != request_id.as_str()),
            _ => {}
        }
    }

    fn read(&self) -> Read {
        let row = |session: &Session| ReadSession {
            status: self.statuses.get(&session.id).cloned().unwrap_or(SessionStatus::Idle),
            messages: self.messages.get(&session.id).map(|rows| rows.values().cloned().collect()).unwrap_or_default(),
            session: session.clone(),
        };
        Read { sessions: self.sessions.values().map(row).collect(), asks: self.asks.clone(), truncated: false }
    }
}

/// The recorded events from the creation of the root on.
fn recorded(scenario: &str) -> &'static [Event] {
    static READ: LazyLock<HashMap<&str, Vec<Event>>> =
        LazyLock::new(|| SCENARIOS.into_iter().map(|scenario| (scenario, load(scenario))).collect());
    &READ[scenario]
}

fn load(scenario: &str) -> Vec<Event> {
    let events = testkit::recorded_events(scenario).into_iter();
    let events = events.map(|event| serde_json::from_value::<Event>(event).unwrap());
    events.skip_while(|event| !matches!(event.body, EventBody::SessionCreated { .. })).collect()
}

fn begun(events: &[Event]) -> Tree {
    let root = events[0].body.session_id().unwrap().clone();
    Tree::new(root, World::after(&events[..1]).read())
}

fn play(tree: &mut Tree, events: &[Event]) -> Vec<MonitorEvent> {
    events.iter().flat_map(|event| tree.apply(event)).collect()
}

/// Everything but progress, in short.
fn essence(told: &[MonitorEvent]) -> Vec<String> {
    let mut names: HashMap<SessionId, String> = HashMap::new();
    let mut lines = Vec::new();
    for event in told {
        if let MonitorEvent::ChildCreated { session } = event {
            names.insert(session.id.clone(), session.title.clone());
        }
        let name = names.get(event.session_id()).expect("a child is told before what it does").clone();
        lines.push(match event {
            MonitorEvent::ChildCreated { .. } => format!("{name}: created"),
            MonitorEvent::ChildProgress { .. } => continue,
            MonitorEvent::ChildAsked { .. } => format!("{name}: asked"),
            MonitorEvent::ChildAnswered { .. } => format!("{name}: answered"),
            MonitorEvent::ChildError { error, .. } => format!("{name}: error {}", error.name()),
            MonitorEvent::ChildCompleted { outcome, .. } => match outcome {
                Outcome::Failed { error } => format!("{name}: failed {}", error.name()),
                other => format!("{name}: {other:?}"),
            },
            MonitorEvent::ChildRemoved { .. } => format!("{name}: removed"),
        });
    }
    lines
}

/// The tree without what differs by the order of additions.
fn rounded(tree: &Tree) -> SubagentTree {
    let mut tree = tree.snapshot();
    let round = |usage: &mut Usage| usage.cost = Usd((usage.cost.0 * 1e9).round());
    for session in &mut tree.sessions {
        round(&mut session.total);
        round(&mut session.progress.usage);
    }
    tree
}

#[test]
fn recorded_children_are_told_once_and_in_order() {
    let told = |scenario: &str| {
        let events = recorded(scenario);
        essence(&play(&mut begun(events), &events[1..]))
    };
    let general = "Read hello (@general subagent)";
    let want = ["created", "Succeeded", "Succeeded"].map(|what| format!("{general}: {what}"));
    assert_eq!(told("06_task_general"), want, "a child that is continued completes twice");
    assert_eq!(
        told("06_task_errors"),
        [
            "Y (@general subagent): created",
            "Y (@general subagent): error APIError",
            "Y (@general subagent): failed APIError",
            "Nested (@general subagent): created",
            "Nested (@general subagent): Succeeded",
        ]
    );
    let slow = "Slow child (@general subagent)";
    let want = ["created", "error MessageAbortedError", "Aborted"].map(|what| format!("{slow}: {what}"));
    assert_eq!(told("06_task_abort"), want, "two words of being idle are one end");
    let child = "Child bash (@general subagent)";
    let want = ["created", "asked", "answered", "Succeeded"].map(|what| format!("{child}: {what}"));
    assert_eq!(told("15_permission_task_child"), want);
    for (scenario, children) in [("06_task_explore_parallel", 2), ("24_nested_task_depth2", 1)] {
        let told = told(scenario);
        assert_eq!(told.iter().filter(|line| line.ends_with("created")).count(), children, "{told:?}");
        assert_eq!(told.iter().filter(|line| line.ends_with("Succeeded")).count(), children, "{told:?}");
    }
    for (scenario, title) in [("32_task_background", "BG job"), ("33_task_promote_background", "Slow job")] {
        let want = ["created", "Succeeded"].map(|what| format!("{title} (@general subagent): {what}"));
        assert_eq!(told(scenario), want);
    }
}

#[test]
fn progress_has_the_current_tool_the_text_and_the_figures() {
    let events = recorded("06_task_general");
    let mut tree = begun(events);
    let told = play(&mut tree, &events[1..]);
    let progress = || {
        told.iter().filter_map(|event| match event {
            MonitorEvent::ChildProgress { progress, .. } => Some(&**progress),
            _ => None,
        })
    };
    assert!(progress().any(|progress| progress.tools.iter().any(|tool| tool.tool == "read" && tool.start.is_some())));
    assert!(progress().any(|progress| progress.text == "Subagent answer: hello w"), "text grows by its deltas");
    assert!(progress().all(|progress| !progress.text.starts_with("SCRIPT")), "a prompt is not what the child said");
    let mut last = None;
    for progress in progress() {
        assert_ne!(last, Some(progress), "nothing is told twice");
        last = Some(progress);
    }
    let tree = rounded(&tree);
    let [root, child] = &tree.sessions[..] else { panic!("{tree:?}") };
    assert_eq!((root.depth, child.depth, child.parent_id.as_ref()), (0, 1, Some(&root.id)));
    assert_eq!((child.title.as_str(), child.agent.as_deref()), ("Read hello (@general subagent)", Some("general")));
    assert_eq!(child.progress.state, State::Ended { outcome: Outcome::Succeeded });
    assert_eq!((child.progress.tool_calls, child.progress.text.as_str()), (1, "Hello from fake LLM"));
    assert!(child.progress.tools.is_empty());
    // Three steps of the child, and two of each of the root's turns.
    assert_eq!((child.total.cost, root.total.cost), (Usd(393_000.0), Usd(917_000.0)));
    assert_eq!(child.total.tokens.output, 60);
    assert_eq!(root.progress.usage.tokens.output + child.total.tokens.output, root.total.tokens.output);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// However a connection breaks, and however old the first events of the next one are: nothing is missed, nothing is
    /// told twice, and in the end the tree is the same.
    #[test]
    fn a_gap_changes_nothing(scenario in 0..SCENARIOS.len(), places: [Index; 3]) {
        let events = recorded(SCENARIOS[scenario]);
        let mut whole = begun(events);
        let want = essence(&play(&mut whole, &events[1..]));
        // Events up to the break; from there on until the new subscription they are lost; the read is later than that.
        let mut places = places.map(|place| 1 + place.index(events.len() - 1));
        places.sort_unstable();
        let [broken, subscribed, read] = places;
        let mut tree = begun(events);
        let mut told = play(&mut tree, &events[1..broken]);
        told.extend(tree.resync(World::after(&events[..read]).read(), false));
        told.extend(play(&mut tree, &events[subscribed..]));
        if tree.is_doubtful() {
            told.extend(tree.resync(World::after(events).read(), true));
        }
        prop_assert!(!tree.is_doubtful());
        let told = essence(&told);
        let count = |lines: &[String], line: &String| lines.iter().filter(|other| *other == line).count();
        for line in &told {
            prop_assert!(count(&told, line) <= count(&want, line), "{line} too often: {told:?}");
        }
        for line in &want {
            // What began and ended within the gap is no news, and two turns of a child are one there.
            let ask = line.ends_with("asked") || line.ends_with("answered");
            prop_assert!(ask || count(&told, line) >= 1, "{line} is missing: {told:?}");
        }
        for (asked, answered) in [("asked", "answered"), ("created", "Succeeded")] {
            let first = |end: &str| told.iter().position(|line| line.ends_with(end));
            prop_assert!(first(answered).is_none_or(|at| first(asked).is_some_and(|before| before < at)), "{told:?}");
        }
        prop_assert_eq!(rounded(&tree), rounded(&whole));
    }

    /// Where it begins is not told, whenever that is; what comes after it is.
    #[test]
    fn it_can_begin_at_any_time(scenario in 0..SCENARIOS.len(), places: [Index; 2]) {
        let events = recorded(SCENARIOS[scenario]);
        let mut whole = begun(events);
        play(&mut whole, &events[1..]);
        let mut places = places.map(|place| 1 + place.index(events.len() - 1));
        places.sort_unstable();
        let [subscribed, read] = places;
        let root = events[0].body.session_id().unwrap().clone();
        let mut tree = Tree::new(root, World::after(&events[..read]).read());
        let known: Vec<SessionId> = tree.snapshot().sessions.into_iter().map(|session| session.id).collect();
        let told = play(&mut tree, &events[subscribed..]);
        for event in &told {
            let created = matches!(event, MonitorEvent::ChildCreated { .. });
            prop_assert!(!created || !known.contains(event.session_id()), "{event:?}");
        }
        tree.resync(World::after(events).read(), true);
        prop_assert_eq!(rounded(&tree), rounded(&whole));
    }
}

fn session(id: &str, parent: Option<&str>) -> Session {
    let mut json = json!({"id": id, "slug": "a", "projectID": "p", "directory": "/p", "title": id, "version": "1",
        "time": {"created": 1, "updated": 1}});
    if let Some(parent) = parent {
        json["parentID"] = parent.into();
    }
    serde_json::from_value(json).unwrap()
}

fn event(kind: &str, properties: Value) -> Event {
    serde_json::from_value(json!({"id": "evt_1", "type": kind, "properties": properties})).unwrap()
}

fn created(id: &str, parent: &str) -> Event {
    event("session.created", json!({"sessionID": id, "info": session(id, Some(parent))}))
}

fn status(id: &str, status: &str) -> Event {
    event("session.status", json!({"sessionID": id, "status": {"type": status}}))
}

fn prompted(id: &str, time: i64) -> Event {
    let info = json!({"id": format!("msg_{time}"), "sessionID": id, "role": "user", "time": {"created": time},
        "agent": "general", "model": {"providerID": "p", "modelID": "m"}});
    event("message.updated", json!({"sessionID": id, "info": info}))
}

fn step(id: &str, time: i64, cost: f64, finish: Option<&str>) -> Event {
    let mut info = json!({"id": format!("msg_{time}"), "sessionID": id, "role": "assistant", "parentID": "msg_0",
        "mode": "general", "agent": "general", "path": {"cwd": "/p", "root": "/p"}, "cost": cost,
        "tokens": {"input": 1, "output": 2, "reasoning": 0, "cache": {"read": 0, "write": 0}},
        "modelID": "m", "providerID": "p", "time": {"created": time}});
    if let Some(finish) = finish {
        info["finish"] = finish.into();
        info["time"]["completed"] = (time + 1).into();
    }
    event("message.updated", json!({"sessionID": id, "info": info}))
}

fn call(id: &str, time: i64, part: &str, state: &str) -> Event {
    let state = match state {
        "pending" => json!({"status": "pending", "input": {}, "raw": ""}),
        "running" => json!({"status": "running", "input": {}, "title": "a call", "time": {"start": 5}}),
        _ => json!({"status": "completed", "input": {}, "output": "", "title": "", "metadata": {},
            "time": {"start": 5, "end": 6}}),
    };
    let part = json!({"id": part, "sessionID": id, "messageID": format!("msg_{time}"), "type": "tool", "tool": "bash",
        "callID": "c", "state": state});
    event("message.part.updated", json!({"sessionID": id, "part": part, "time": 1}))
}

fn tree() -> Tree {
    let root = session("ses_root", None);
    let read = ReadSession { session: root.clone(), status: SessionStatus::Idle, messages: Vec::new() };
    Tree::new(root.id, Read { sessions: vec![read], ..Read::default() })
}

fn shape(tree: &Tree) -> Vec<(usize, String)> {
    tree.snapshot().sessions.into_iter().map(|session| (session.depth, session.id.as_str().to_owned())).collect()
}

#[test]
fn children_of_children_belong_to_it_and_others_do_not() {
    let mut tree = tree();
    let others = [created("ses_x", "ses_other"), status("ses_x", "busy"), step("ses_x", 5, 1.0, Some("stop"))];
    assert!(play(&mut tree, &others).is_empty());
    let told = play(
        &mut tree,
        &[
            created("ses_a", "ses_root"),
            created("ses_b", "ses_root"),
            created("ses_a1", "ses_a"),
            created("ses_a11", "ses_a1"),
            created("ses_a", "ses_root"),
        ],
    );
    assert_eq!(told.len(), 4, "{told:?}");
    play(&mut tree, &[step("ses_a11", 5, 1.0, None), step("ses_b", 5, 2.0, None), step("ses_root", 5, 4.0, None)]);
    let names = |rows: &[(usize, &str)]| rows.iter().map(|(depth, id)| (*depth, (*id).to_owned())).collect::<Vec<_>>();
    assert_eq!(shape(&tree), names(&[(0, "ses_root"), (1, "ses_a"), (2, "ses_a1"), (3, "ses_a11"), (1, "ses_b")]));
    let costs: Vec<f64> = tree.snapshot().sessions.iter().map(|session| session.total.cost.0).collect();
    assert_eq!(costs, [7.0, 1.0, 1.0, 1.0, 2.0]);

    let deleted = |id: &str| event("session.deleted", json!({"sessionID": id, "info": session(id, None)}));
    let told = tree.apply(&deleted("ses_a"));
    let removed: Vec<&str> = told.iter().map(|event| event.session_id().as_str()).collect();
    assert_eq!(removed, ["ses_a11", "ses_a1", "ses_a"], "the deepest first");
    assert!(tree.apply(&deleted("ses_a1")).is_empty());
    assert!(!tree.is_gone());
    assert_eq!(tree.apply(&deleted("ses_root")).len(), 1);
    assert!(tree.is_gone() && tree.snapshot().sessions.is_empty());
}

#[test]
fn what_a_gap_deleted_is_told() {
    let mut tree = tree();
    play(&mut tree, &[created("ses_a", "ses_root"), created("ses_a1", "ses_a")]);
    let idle = |session| ReadSession { session, status: SessionStatus::Idle, messages: Vec::new() };
    let sessions = vec![idle(session("ses_root", None)), idle(session("ses_b", Some("ses_root")))];
    let told = tree.resync(Read { sessions, ..Read::default() }, false);
    let kinds: Vec<Value> = told.iter().map(|event| serde_json::to_value(event).unwrap()).collect();
    let kinds: Vec<(&str, &str)> = kinds
        .iter()
        .zip(&told)
        .map(|(json, event)| (json["type"].as_str().unwrap(), event.session_id().as_str()))
        .collect();
    assert_eq!(kinds, [("child_removed", "ses_a1"), ("child_removed", "ses_a"), ("child_created", "ses_b")]);
    assert!(tree.resync(Read::default(), false).len() == 1 && tree.is_gone());
}

#[test]
fn a_turn_that_nobody_ended_is_interrupted_at_the_second_look() {
    let mut tree = tree();
    let events = [
        created("ses_a", "ses_root"),
        prompted("ses_a", 3),
        status("ses_a", "busy"),
        step("ses_a", 5, 1.0, None),
        call("ses_a", 5, "prt_1", "running"),
    ];
    play(&mut tree, &events);
    let read = |status| {
        let mut world = World::default();
        world.sessions.insert(SessionId::parse("ses_root").unwrap(), session("ses_root", None));
        for event in &events {
            world.apply(&event.body);
        }
        world.statuses.insert(SessionId::parse("ses_a").unwrap(), status);
        world.read()
    };
    let ends = |told: &[MonitorEvent]| told.iter().any(|told| matches!(told, MonitorEvent::ChildCompleted { .. }));
    // A word of the turn before, twice, as OpenCode says it.
    let told = play(&mut tree, &[status("ses_a", "idle"), event("session.idle", json!({"sessionID": "ses_a"}))]);
    assert!(!ends(&told) && tree.is_doubtful(), "{told:?}");
    assert!(!ends(&tree.resync(read(SessionStatus::Busy), true)) && !tree.is_doubtful());
    assert!(!ends(&tree.resync(read(SessionStatus::Idle), true)), "the first time that it is seen so");
    assert!(!ends(&tree.resync(read(SessionStatus::Idle), false)), "too early");
    let told = tree.resync(read(SessionStatus::Idle), true);
    assert!(ends(&told) && !tree.is_doubtful());
    let child = &tree.snapshot().sessions[1];
    assert_eq!(child.progress.state, State::Ended { outcome: Outcome::Interrupted });
    assert!(child.progress.tools.is_empty(), "what was cut off does not run");
    assert!(tree.resync(read(SessionStatus::Idle), true).is_empty());
}

#[test]
fn asks_end_with_their_turn() {
    let mut tree = tree();
    let ask = json!({"id": "per_1", "sessionID": "ses_a", "permission": "bash", "patterns": ["ls"], "metadata": {},
        "always": []});
    play(&mut tree, &[created("ses_a", "ses_root"), prompted("ses_a", 3), status("ses_a", "busy")]);
    assert!(matches!(&tree.apply(&event("permission.asked", ask.clone()))[..], [MonitorEvent::ChildAsked { .. }]));
    assert!(tree.apply(&event("permission.asked", ask)).is_empty());
    assert_eq!(tree.snapshot().sessions[1].asks[0].id(), "per_1");
    let question = json!({"id": "que_1", "sessionID": "ses_a", "questions": []});
    tree.apply(&event("question.asked", question));
    let told = tree.apply(&event("question.rejected", json!({"sessionID": "ses_a", "requestID": "que_1"})));
    assert!(matches!(&told[..], [MonitorEvent::ChildAnswered { ask_id, .. }] if ask_id == "que_1"), "{told:?}");
    let aborted = json!({"name": "MessageAbortedError", "data": {"message": "Aborted"}});
    tree.apply(&event("session.error", json!({"sessionID": "ses_a", "error": aborted})));
    let told = tree.apply(&status("ses_a", "idle"));
    let answered = matches!(&told[0], MonitorEvent::ChildAnswered { ask_id, .. } if ask_id == "per_1");
    let ended = matches!(&told[1], MonitorEvent::ChildCompleted { outcome: Outcome::Aborted, .. });
    assert!(answered && ended, "{told:?}");
    assert!(tree.snapshot().sessions[1].asks.is_empty());
}

#[test]
fn asks_that_come_and_go_in_a_gap_are_told() {
    let mut tree = tree();
    play(&mut tree, &[created("ses_a", "ses_root"), prompted("ses_a", 3), status("ses_a", "busy")]);
    let ask = |id: &str| {
        let ask =
            json!({"id": id, "sessionID": "ses_a", "permission": "bash", "patterns": [], "metadata": {}, "always": []});
        Ask::Permission(serde_json::from_value(ask).unwrap())
    };
    let read = |asks: Vec<Ask>| {
        let busy = |session| ReadSession { session, status: SessionStatus::Busy, messages: Vec::new() };
        let sessions = vec![busy(session("ses_root", None)), busy(session("ses_a", Some("ses_root")))];
        Read { sessions, asks, truncated: false }
    };
    let told = tree.resync(read(vec![ask("per_1")]), false);
    assert!(matches!(&told[..], [MonitorEvent::ChildAsked { ask, .. }] if ask.id() == "per_1"), "{told:?}");
    let told = tree.resync(read(vec![ask("per_2")]), false);
    let [MonitorEvent::ChildAnswered { ask_id, .. }, MonitorEvent::ChildAsked { ask, .. }] = &told[..] else {
        panic!("{told:?}")
    };
    assert_eq!((ask_id.as_str(), ask.id()), ("per_1", "per_2"));
}

#[test]
fn text_neither_doubles_nor_goes_back() {
    let mut tree = tree();
    let text = |text: &str, time: Value| json!({"id": "prt_1", "sessionID": "ses_a", "messageID": "msg_5", "type": "text", "text": text, "time": time});
    let updated = |part: Value| event("message.part.updated", json!({"sessionID": "ses_a", "part": part, "time": 1}));
    let delta = |delta: &str| {
        let place =
            json!({"sessionID": "ses_a", "messageID": "msg_5", "partID": "prt_1", "field": "text", "delta": delta});
        event("message.part.delta", place)
    };
    let said = |tree: &Tree| tree.snapshot().sessions.remove(1).progress.text;
    let EventBody::MessageUpdated { info, .. } = step("ses_a", 5, 0.0, None).body else { panic!() };
    let part: Part = serde_json::from_value(text("one two", json!({"start": 1}))).unwrap();
    let busy = |session, messages| ReadSession { session, status: SessionStatus::Busy, messages };
    let child = busy(session("ses_a", Some("ses_root")), vec![MessageWithParts { info: *info, parts: vec![part] }]);
    let sessions = vec![busy(session("ses_root", None), Vec::new()), child];
    tree.resync(Read { sessions, ..Read::default() }, false);
    // It was in what was read.
    tree.apply(&delta(" two"));
    assert_eq!(said(&tree), "one two");
    play(&mut tree, &[updated(text("one two", json!({"start": 1}))), delta(" three")]);
    assert_eq!(said(&tree), "one two three");
    play(&mut tree, &[updated(text("one two three!", json!({"start": 1, "end": 2})))]);
    play(&mut tree, &[updated(text("", json!({"start": 1}))), delta("one")]);
    assert_eq!(said(&tree), "one two three!", "a text that is whole does not change");
}

#[test]
fn an_error_that_is_overcome_is_no_failure() {
    let mut tree = tree();
    play(&mut tree, &[created("ses_a", "ses_root"), prompted("ses_a", 3), status("ses_a", "busy")]);
    let error = json!({"name": "ContextOverflowError", "data": {"message": "too long"}});
    let told = tree.apply(&event("session.error", json!({"sessionID": "ses_a", "error": error})));
    assert!(matches!(&told[..], [MonitorEvent::ChildError { error: MessageError::ContextOverflowError(_), .. }]));
    let told = play(&mut tree, &[step("ses_a", 5, 1.0, Some("stop")), status("ses_a", "idle")]);
    assert!(matches!(told.last(), Some(MonitorEvent::ChildCompleted { outcome: Outcome::Succeeded, .. })), "{told:?}");
}

#[test]
fn a_retry_is_seen() {
    let mut tree = tree();
    play(&mut tree, &[created("ses_a", "ses_root"), prompted("ses_a", 3), status("ses_a", "busy")]);
    let retry = json!({"type": "retry", "attempt": 2, "message": "overloaded", "next": 9});
    let told = tree.apply(&event("session.status", json!({"sessionID": "ses_a", "status": retry})));
    let MonitorEvent::ChildProgress { progress, .. } = &told[0] else { panic!("{told:?}") };
    assert_eq!(progress.state, State::Retrying { attempt: 2, message: "overloaded".to_owned(), next: 9 });
}

#[test]
fn memory_is_bounded_and_sums_stay_exact() {
    let mut tree = tree();
    let mut events = vec![created("ses_a", "ses_root"), prompted("ses_a", 3), status("ses_a", "busy")];
    for time in 100..400 {
        events.push(step("ses_a", time, 0.5, None));
        events.push(call("ses_a", time, &format!("prt_{time}"), "running"));
        events.push(call("ses_a", time, &format!("prt_{time}"), "completed"));
        events.push(step("ses_a", time, 1.0, Some("tool-calls")));
    }
    play(&mut tree, &events);
    let sums = |tree: &Tree| {
        let progress = tree.snapshot().sessions.remove(1).progress;
        (progress.usage.cost.0, progress.usage.tokens.output, progress.tool_calls)
    };
    assert_eq!(sums(&tree), (300.0, 600, 300));
    // The same again changes nothing, and a call that is done does not run again.
    assert!(play(&mut tree, &events).is_empty());
    assert_eq!(sums(&tree), (300.0, 600, 300));
    assert!(tree.snapshot().sessions[1].progress.tools.is_empty());

    // A long text is kept by its end, however its letters are cut.
    let text = |text: &str| {
        let part = json!({"id": "prt_9", "sessionID": "ses_a", "messageID": "msg_399", "type": "text", "text": text});
        event("message.part.updated", json!({"sessionID": "ses_a", "part": part, "time": 1}))
    };
    tree.apply(&text(""));
    let delta = json!({"sessionID": "ses_a", "messageID": "msg_399", "partID": "prt_9", "field": "text",
        "delta": format!("ü{}", "€".repeat(300))});
    for _ in 0..20 {
        tree.apply(&event("message.part.delta", delta.clone()));
    }
    let said = tree.snapshot().sessions.remove(1).progress.text;
    assert!(said.len() <= 2048 && said.len() > 2040 && said.ends_with('€'), "{}", said.len());

    let many: Vec<Event> = (0..SESSIONS + 10).map(|n| created(&format!("ses_n{n}"), "ses_root")).collect();
    play(&mut tree, &many);
    let tree = tree.snapshot();
    assert!(tree.sessions.len() == SESSIONS && tree.truncated);
}

#[test]
fn a_long_session_is_counted_from_its_row() {
    let mut row = session("ses_a", Some("ses_root"));
    row.cost = Some(Usd(10.0));
    let EventBody::MessageUpdated { info, .. } = step("ses_a", 50, 2.0, Some("tool-calls")).body else { panic!() };
    let message = MessageWithParts { info: *info, parts: Vec::<Part>::new() };
    assert!(matches!(message.info, Message::Assistant(_)));
    let root = ReadSession { session: session("ses_root", None), status: SessionStatus::Busy, messages: Vec::new() };
    let child = ReadSession { session: row, status: SessionStatus::Busy, messages: vec![message] };
    let read = Read { sessions: vec![root, child], ..Read::default() };
    let mut tree = Tree::new(SessionId::parse("ses_root").unwrap(), read);
    tree.apply(&step("ses_a", 60, 3.0, Some("stop")));
    assert_eq!(tree.snapshot().sessions[1].total.cost, Usd(13.0));
}

#[test]
fn rapid_progress_is_told_as_one() {
    let mut tree = tree();
    let mut batch = Batch::new(Duration::from_millis(100));
    let start = Instant::now();
    let at = |millis| start + Duration::from_millis(millis);
    let mut feed = |batch: &mut Batch, events: &[Event], millis| {
        for event in play(&mut tree, events) {
            batch.push(event, at(millis));
        }
    };
    let running = |part: &str| call("ses_a", 5, part, "running");
    let busy = [prompted("ses_a", 3), status("ses_a", "busy"), step("ses_a", 5, 1.0, None)];
    feed(&mut batch, &[created("ses_a", "ses_root")], 0);
    assert!(matches!(batch.pop(at(0)), Some(MonitorEvent::ChildCreated { .. })), "only progress waits");
    feed(&mut batch, &busy, 10);
    for millis in 11..100 {
        feed(&mut batch, &[running(&format!("prt_{millis}"))], millis);
        assert!(batch.pop(at(millis)).is_none());
    }
    assert_eq!(batch.due(), Some(at(110)), "the first one says until when");
    let told = batch.pop(at(110));
    let Some(MonitorEvent::ChildProgress { progress, .. }) = told else { panic!("{told:?}") };
    assert_eq!((progress.tool_calls, progress.state), (89, State::Running));
    assert!(batch.pop(at(500)).is_none() && batch.due().is_none());
    // What cannot wait takes along what came before it.
    let aborted = json!({"name": "MessageAbortedError", "data": {"message": "Aborted"}});
    let error = event("session.error", json!({"sessionID": "ses_a", "error": aborted}));
    feed(&mut batch, &[running("prt_a"), running("prt_b"), error, status("ses_a", "idle")], 600);
    assert!(matches!(batch.pop(at(600)), Some(MonitorEvent::ChildProgress { .. })));
    assert!(matches!(batch.pop(at(600)), Some(MonitorEvent::ChildError { .. })));
    assert!(matches!(batch.pop(at(600)), Some(MonitorEvent::ChildCompleted { .. })));
    assert!(batch.pop(at(9999)).is_none());
}

#[test]
fn events_are_written_as_the_names_that_clients_know() {
    let mut tree = tree();
    let told = play(&mut tree, &[created("ses_a", "ses_root"), prompted("ses_a", 3), status("ses_a", "busy")]);
    let json: Vec<Value> = told.iter().map(|event| serde_json::to_value(event).unwrap()).collect();
    assert_eq!((&json[0]["type"], &json[0]["session"]["id"]), (&json!("child_created"), &json!("ses_a")));
    assert_eq!((&json[1]["type"], &json[1]["sessionID"]), (&json!("child_progress"), &json!("ses_a")));
    assert_eq!(json[1]["progress"]["state"], json!({"type": "running"}));
}

/// A server whose clock goes back, and clients that choose ids: each turn has its end, in whichever way it is heard of.
#[test]
fn turns_end_whatever_clocks_and_ids_say() {
    for reads in [false, true] {
        let mut tree = tree();
        let mut world = World::default();
        let mut told = Vec::new();
        world.sessions.insert(SessionId::parse("ses_root").unwrap(), session("ses_root", None));
        let mut hear = |events: &[Event]| {
            for event in events {
                world.apply(&event.body);
            }
            if reads {
                told.extend(tree.resync(world.read(), false));
            } else {
                told.extend(play(&mut tree, events));
            }
        };
        hear(&[created("ses_a", "ses_root")]);
        for (place, time) in [500, 300, 900, 100].into_iter().enumerate() {
            hear(&[status("ses_a", "busy"), prompted("ses_a", time), step("ses_a", time + 1, 1.0, None)]);
            let mut row = session("ses_a", Some("ses_root"));
            (row.title, row.time.updated) = (format!("after {place}"), time);
            row.cost = Some(Usd(place as f64 + 1.0));
            let row = event("session.updated", json!({"sessionID": "ses_a", "info": row}));
            hear(&[step("ses_a", time + 1, 1.0, Some("stop")), row, status("ses_a", "idle")]);
        }
        let ends = told.iter().filter(|event| matches!(event, MonitorEvent::ChildCompleted { .. })).count();
        assert_eq!(ends, 4, "reads: {reads}, {told:#?}");
        let child = &tree.snapshot().sessions[1];
        assert_eq!((child.title.as_str(), child.total.cost), ("after 3", Usd(4.0)));
    }
}
