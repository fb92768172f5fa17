//! The state machine on recorded events, with and without gaps.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::Duration;

use api::{
    Ask, Event, EventBody, Message, MessageError, MessageWithParts, Part, Session, SessionId, SessionSnapshot,
    SessionStatus, SessionUsage, SubagentState, SubagentTree, TreeChange, TreeSnapshot, TreeTracker, TurnOutcome, Usd,
};
use indexmap::IndexMap;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::event::MonitorEvent;
use super::throttle::ProgressThrottle;

const MAX_SESSIONS: usize = TreeTracker::MAX_SESSIONS;

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

/// A tracker whose changes are read as a monitor's events.
struct Tree {
    root: SessionId,
    tracker: TreeTracker,
}

impl Tree {
    fn new(root: SessionId, snapshot: TreeSnapshot) -> Self {
        Self { tracker: TreeTracker::from_snapshot(root.clone(), snapshot, 0), root }
    }

    fn apply(&mut self, event: &Event) -> Vec<MonitorEvent> {
        let changes = self.tracker.apply(&event.body, 0);
        self.events(changes)
    }

    fn resync(&mut self, snapshot: TreeSnapshot, is_recheck: bool) -> Vec<MonitorEvent> {
        let changes = self.tracker.resync(snapshot, is_recheck, 0);
        self.events(changes)
    }

    fn events(&self, changes: Vec<TreeChange>) -> Vec<MonitorEvent> {
        let below = changes.into_iter().filter(|change| *change.session_id() != self.root);
        below.filter_map(MonitorEvent::of).collect()
    }

    fn snapshot(&self) -> SubagentTree {
        self.tracker.snapshot()
    }

    fn is_uncertain(&self) -> bool {
        self.tracker.is_uncertain()
    }

    fn is_gone(&self) -> bool {
        self.tracker.is_gone()
    }
}

/// What a server knows after some events: an independent fold over them, without what is never stored.
#[derive(Default)]
struct ServerState {
    sessions: IndexMap<SessionId, Session>,
    messages: IndexMap<SessionId, IndexMap<String, MessageWithParts>>,
    statuses: HashMap<SessionId, SessionStatus>,
    asks: Vec<Ask>,
}

impl ServerState {
    fn after(events: &[Event]) -> Self {
        let mut server = Self::default();
        for event in events {
            server.apply(&event.body);
        }
        server
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

    fn read(&self) -> TreeSnapshot {
        let row = |session: &Session| SessionSnapshot {
            status: self.statuses.get(&session.id).cloned().unwrap_or(SessionStatus::Idle),
            messages: self.messages.get(&session.id).map(|rows| rows.values().cloned().collect()).unwrap_or_default(),
            session: session.clone(),
        };
        let sessions = self.sessions.values().map(row).collect();
        TreeSnapshot { sessions, asks: self.asks.clone(), ..TreeSnapshot::default() }
    }
}

/// The recorded events, starting with the creation of the root.
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

fn new_tree(events: &[Event]) -> Tree {
    let root = events[0].body.session_id().unwrap().clone();
    Tree::new(root, ServerState::after(&events[..1]).read())
}

fn play(tree: &mut Tree, events: &[Event]) -> Vec<MonitorEvent> {
    events.iter().flat_map(|event| tree.apply(event)).collect()
}

/// A short line for every event but progress.
fn summary(events: &[MonitorEvent]) -> Vec<String> {
    let mut names: HashMap<SessionId, String> = HashMap::new();
    let mut lines = Vec::new();
    for event in events {
        if let MonitorEvent::ChildCreated { session } = event {
            names.insert(session.id.clone(), session.title.clone());
        }
        let name = names.get(event.session_id()).expect("a child is reported before its events").clone();
        lines.push(match event {
            MonitorEvent::ChildCreated { .. } => format!("{name}: created"),
            MonitorEvent::ChildProgress { .. } => continue,
            MonitorEvent::ChildAsked { .. } => format!("{name}: asked"),
            MonitorEvent::ChildAnswered { .. } => format!("{name}: answered"),
            MonitorEvent::ChildError { error, .. } => format!("{name}: error {}", error.name()),
            MonitorEvent::ChildCompleted { outcome, .. } => match outcome {
                TurnOutcome::Failed { error } => format!("{name}: failed {}", error.name()),
                other => format!("{name}: {other:?}"),
            },
            MonitorEvent::ChildRemoved { .. } => format!("{name}: removed"),
        });
    }
    lines
}

/// The tree without differences caused by the order of additions.
fn rounded(tree: &Tree) -> SubagentTree {
    let mut tree = tree.snapshot();
    let round = |usage: &mut SessionUsage| usage.cost = Usd((usage.cost.0 * 1e9).round());
    for session in &mut tree.sessions {
        round(&mut session.total);
        round(&mut session.progress.usage);
    }
    tree
}

#[test]
fn recorded_children_are_reported_once_and_in_order() {
    let emitted = |scenario: &str| {
        let events = recorded(scenario);
        summary(&play(&mut new_tree(events), &events[1..]))
    };
    let general = "Read hello (@general subagent)";
    let want = ["created", "Succeeded", "Succeeded"].map(|what| format!("{general}: {what}"));
    assert_eq!(emitted("06_task_general"), want, "a child that is continued completes twice");
    assert_eq!(
        emitted("06_task_errors"),
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
    assert_eq!(emitted("06_task_abort"), want, "two words of being idle are one end");
    let child = "Child bash (@general subagent)";
    let want = ["created", "asked", "answered", "Succeeded"].map(|what| format!("{child}: {what}"));
    assert_eq!(emitted("15_permission_task_child"), want);
    for (scenario, children) in [("06_task_explore_parallel", 2), ("24_nested_task_depth2", 1)] {
        let emitted = emitted(scenario);
        assert_eq!(emitted.iter().filter(|line| line.ends_with("created")).count(), children, "{emitted:?}");
        assert_eq!(emitted.iter().filter(|line| line.ends_with("Succeeded")).count(), children, "{emitted:?}");
    }
    for (scenario, title) in [("32_task_background", "BG job"), ("33_task_promote_background", "Slow job")] {
        let want = ["created", "Succeeded"].map(|what| format!("{title} (@general subagent): {what}"));
        assert_eq!(emitted(scenario), want);
    }
}

#[test]
fn progress_has_current_tool_text_and_figures() {
    let events = recorded("06_task_general");
    let mut tree = new_tree(events);
    let emitted = play(&mut tree, &events[1..]);
    let progress = || {
        emitted.iter().filter_map(|event| match event {
            MonitorEvent::ChildProgress { progress, .. } => Some(&**progress),
            _ => None,
        })
    };
    assert!(progress().any(|progress| progress.tools.iter().any(|tool| tool.tool == "read" && tool.start.is_some())));
    assert!(progress().any(|progress| progress.text == "Subagent answer: hello w"), "text grows by its deltas");
    assert!(progress().all(|progress| !progress.text.starts_with("SCRIPT")), "a prompt is not what the child said");
    let mut last = None;
    for progress in progress() {
        assert_ne!(last, Some(progress), "nothing is reported twice");
        last = Some(progress);
    }
    let tree = rounded(&tree);
    let [root, child] = &tree.sessions[..] else { panic!("{tree:?}") };
    assert_eq!((root.depth, child.depth, child.parent_id.as_ref()), (0, 1, Some(&root.id)));
    assert_eq!((child.title.as_str(), child.agent.as_deref()), ("Read hello (@general subagent)", Some("general")));
    assert_eq!(child.progress.state, SubagentState::Ended { outcome: TurnOutcome::Succeeded });
    assert_eq!((child.progress.tool_calls, child.progress.text.as_str()), (1, "Hello from fake LLM"));
    assert!(child.progress.tools.is_empty());
    // Three steps of the child, and two of each of the root's turns.
    assert_eq!((child.total.cost, root.total.cost), (Usd(393_000.0), Usd(917_000.0)));
    assert_eq!(child.total.tokens.output, 60);
    assert_eq!(root.progress.usage.tokens.output + child.total.tokens.output, root.total.tokens.output);
}

/// Recorded events lead to the same nodes as reading what they lead to: OpenCode has no tree to read.
#[test]
fn events_and_reads_agree_on_who_works() {
    for scenario in SCENARIOS {
        let events = recorded(scenario);
        let mut live = new_tree(events);
        play(&mut live, &events[1..]);
        let read = Tree::new(live.root.clone(), ServerState::after(events).read());
        let nodes = |tree: &Tree| {
            let nodes = tree.tracker.tree().sessions.into_iter();
            nodes.map(|node| (node.session_id, node.parent_id, node.depth, node.state.is_live())).collect::<Vec<_>>()
        };
        assert_eq!(nodes(&live), nodes(&read), "{scenario}");
    }
}

/// OpenCode tells which subagents work in the background, and what for, only in the calls that start them.
#[test]
fn recorded_calls_say_who_works_in_the_background() {
    for (scenario, background, task) in [
        ("06_task_general", false, "Continue"),
        ("32_task_background", true, "BG job"),
        ("33_task_promote_background", true, "Slow job"),
    ] {
        let events = recorded(scenario);
        let mut live = new_tree(events);
        play(&mut live, &events[1..]);
        let read = Tree::new(live.root.clone(), ServerState::after(events).read());
        for tree in [live, read] {
            let child = tree.tracker.tree().sessions.remove(1);
            let known = (child.background, tree.tracker.task(&child.session_id));
            assert_eq!(known, (background, Some(task)), "{scenario}");
            assert_eq!(tree.tracker.task_call(&child.session_id), None, "the call has ended");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// However a connection breaks, and however old the first events of the next one are, nothing is missed, nothing is
    /// reported twice, and the tree is the same in the end.
    #[test]
    fn a_gap_changes_nothing(scenario in 0..SCENARIOS.len(), places: [Index; 3]) {
        let events = recorded(SCENARIOS[scenario]);
        let mut whole = new_tree(events);
        let want = summary(&play(&mut whole, &events[1..]));
        // Events arrive up to the break and are lost until the new subscription; the read comes after that.
        let mut places = places.map(|place| 1 + place.index(events.len() - 1));
        places.sort_unstable();
        let [broken, subscribed, read] = places;
        let mut tree = new_tree(events);
        let mut emitted = play(&mut tree, &events[1..broken]);
        emitted.extend(tree.resync(ServerState::after(&events[..read]).read(), false));
        emitted.extend(play(&mut tree, &events[subscribed..]));
        if tree.is_uncertain() {
            emitted.extend(tree.resync(ServerState::after(events).read(), true));
        }
        prop_assert!(!tree.is_uncertain());
        let emitted = summary(&emitted);
        let count = |lines: &[String], line: &String| lines.iter().filter(|other| *other == line).count();
        for line in &emitted {
            prop_assert!(count(&emitted, line) <= count(&want, line), "{line} too often: {emitted:?}");
        }
        for line in &want {
            // An ask that began and ended within the gap is not reported, and two turns of a child within it count as
            // one.
            let ask = line.ends_with("asked") || line.ends_with("answered");
            prop_assert!(ask || count(&emitted, line) >= 1, "{line} is missing: {emitted:?}");
        }
        for (asked, answered) in [("asked", "answered"), ("created", "Succeeded")] {
            let first = |end: &str| emitted.iter().position(|line| line.ends_with(end));
            prop_assert!(first(answered).is_none_or(|at| first(asked).is_some_and(|before| before < at)), "{emitted:?}");
        }
        prop_assert_eq!(rounded(&tree), rounded(&whole));
    }

    /// The initial state is not reported, whenever the monitor starts; everything after it is.
    #[test]
    fn a_monitor_can_start_at_any_time(scenario in 0..SCENARIOS.len(), places: [Index; 2]) {
        let events = recorded(SCENARIOS[scenario]);
        let mut whole = new_tree(events);
        play(&mut whole, &events[1..]);
        let mut places = places.map(|place| 1 + place.index(events.len() - 1));
        places.sort_unstable();
        let [subscribed, read] = places;
        let root = events[0].body.session_id().unwrap().clone();
        let mut tree = Tree::new(root, ServerState::after(&events[..read]).read());
        let known: Vec<SessionId> = tree.snapshot().sessions.into_iter().map(|session| session.id).collect();
        let emitted = play(&mut tree, &events[subscribed..]);
        for event in &emitted {
            let created = matches!(event, MonitorEvent::ChildCreated { .. });
            prop_assert!(!created || !known.contains(event.session_id()), "{event:?}");
        }
        tree.resync(ServerState::after(events).read(), true);
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
    let read = SessionSnapshot { session: root.clone(), status: SessionStatus::Idle, messages: Vec::new() };
    Tree::new(root.id, TreeSnapshot { sessions: vec![read], ..TreeSnapshot::default() })
}

fn shape(tree: &Tree) -> Vec<(usize, String)> {
    tree.snapshot().sessions.into_iter().map(|session| (session.depth, session.id.as_str().to_owned())).collect()
}

#[test]
fn grandchildren_belong_to_the_tree_and_others_do_not() {
    let mut tree = tree();
    let others = [created("ses_x", "ses_other"), status("ses_x", "busy"), step("ses_x", 5, 1.0, Some("stop"))];
    assert!(play(&mut tree, &others).is_empty());
    let emitted = play(
        &mut tree,
        &[
            created("ses_a", "ses_root"),
            created("ses_b", "ses_root"),
            created("ses_a1", "ses_a"),
            created("ses_a11", "ses_a1"),
            created("ses_a", "ses_root"),
        ],
    );
    assert_eq!(emitted.len(), 4, "{emitted:?}");
    play(&mut tree, &[step("ses_a11", 5, 1.0, None), step("ses_b", 5, 2.0, None), step("ses_root", 5, 4.0, None)]);
    let names = |rows: &[(usize, &str)]| rows.iter().map(|(depth, id)| (*depth, (*id).to_owned())).collect::<Vec<_>>();
    assert_eq!(shape(&tree), names(&[(0, "ses_root"), (1, "ses_a"), (2, "ses_a1"), (3, "ses_a11"), (1, "ses_b")]));
    let costs: Vec<f64> = tree.snapshot().sessions.iter().map(|session| session.total.cost.0).collect();
    assert_eq!(costs, [7.0, 1.0, 1.0, 1.0, 2.0]);

    let deleted = |id: &str| event("session.deleted", json!({"sessionID": id, "info": session(id, None)}));
    let emitted = tree.apply(&deleted("ses_a"));
    let removed: Vec<&str> = emitted.iter().map(|event| event.session_id().as_str()).collect();
    assert_eq!(removed, ["ses_a11", "ses_a1", "ses_a"], "the deepest first");
    assert!(tree.apply(&deleted("ses_a1")).is_empty());
    assert!(!tree.is_gone());
    assert_eq!(tree.apply(&deleted("ses_root")).len(), 1);
    assert!(tree.is_gone() && tree.snapshot().sessions.is_empty());
}

#[test]
fn deletions_during_a_gap_are_reported() {
    let mut tree = tree();
    play(&mut tree, &[created("ses_a", "ses_root"), created("ses_a1", "ses_a")]);
    let idle = |session| SessionSnapshot { session, status: SessionStatus::Idle, messages: Vec::new() };
    let sessions = vec![idle(session("ses_root", None)), idle(session("ses_b", Some("ses_root")))];
    let emitted = tree.resync(TreeSnapshot { sessions, ..TreeSnapshot::default() }, false);
    let kinds: Vec<Value> = emitted.iter().map(|event| serde_json::to_value(event).unwrap()).collect();
    let kinds: Vec<(&str, &str)> = kinds
        .iter()
        .zip(&emitted)
        .map(|(json, event)| (json["type"].as_str().unwrap(), event.session_id().as_str()))
        .collect();
    assert_eq!(kinds, [("child_removed", "ses_a1"), ("child_removed", "ses_a"), ("child_created", "ses_b")]);
    assert!(tree.resync(TreeSnapshot::default(), false).len() == 1 && tree.is_gone());
}

#[test]
fn an_unfinished_turn_is_interrupted_at_the_recheck() {
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
        let mut server = ServerState::default();
        server.sessions.insert(SessionId::parse("ses_root").unwrap(), session("ses_root", None));
        for event in &events {
            server.apply(&event.body);
        }
        server.statuses.insert(SessionId::parse("ses_a").unwrap(), status);
        server.read()
    };
    let ends =
        |emitted: &[MonitorEvent]| emitted.iter().any(|event| matches!(event, MonitorEvent::ChildCompleted { .. }));
    // The status of the turn before, twice, as OpenCode sends it.
    let emitted = play(&mut tree, &[status("ses_a", "idle"), event("session.idle", json!({"sessionID": "ses_a"}))]);
    assert!(!ends(&emitted) && tree.is_uncertain(), "{emitted:?}");
    assert!(!ends(&tree.resync(read(SessionStatus::Busy), true)) && !tree.is_uncertain());
    assert!(!ends(&tree.resync(read(SessionStatus::Idle), true)), "the first time that it is seen so");
    assert!(!ends(&tree.resync(read(SessionStatus::Idle), false)), "too early");
    let emitted = tree.resync(read(SessionStatus::Idle), true);
    assert!(ends(&emitted) && !tree.is_uncertain());
    let child = &tree.snapshot().sessions[1];
    assert_eq!(child.progress.state, SubagentState::Ended { outcome: TurnOutcome::Interrupted });
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
    let emitted = tree.apply(&event("question.rejected", json!({"sessionID": "ses_a", "requestID": "que_1"})));
    assert!(matches!(&emitted[..], [MonitorEvent::ChildAnswered { ask_id, .. }] if ask_id == "que_1"), "{emitted:?}");
    let aborted = json!({"name": "MessageAbortedError", "data": {"message": "Aborted"}});
    tree.apply(&event("session.error", json!({"sessionID": "ses_a", "error": aborted})));
    let emitted = tree.apply(&status("ses_a", "idle"));
    let answered = matches!(&emitted[0], MonitorEvent::ChildAnswered { ask_id, .. } if ask_id == "per_1");
    let ended = matches!(&emitted[1], MonitorEvent::ChildCompleted { outcome: TurnOutcome::Aborted, .. });
    assert!(answered && ended, "{emitted:?}");
    assert!(tree.snapshot().sessions[1].asks.is_empty());
}

#[test]
fn asks_that_change_during_a_gap_are_reported() {
    let mut tree = tree();
    play(&mut tree, &[created("ses_a", "ses_root"), prompted("ses_a", 3), status("ses_a", "busy")]);
    let ask = |id: &str| {
        let ask =
            json!({"id": id, "sessionID": "ses_a", "permission": "bash", "patterns": [], "metadata": {}, "always": []});
        Ask::Permission(serde_json::from_value(ask).unwrap())
    };
    let read = |asks: Vec<Ask>| {
        let busy = |session| SessionSnapshot { session, status: SessionStatus::Busy, messages: Vec::new() };
        let sessions = vec![busy(session("ses_root", None)), busy(session("ses_a", Some("ses_root")))];
        TreeSnapshot { sessions, asks, ..TreeSnapshot::default() }
    };
    let emitted = tree.resync(read(vec![ask("per_1")]), false);
    assert!(matches!(&emitted[..], [MonitorEvent::ChildAsked { ask, .. }] if ask.id() == "per_1"), "{emitted:?}");
    let emitted = tree.resync(read(vec![ask("per_2")]), false);
    let [MonitorEvent::ChildAnswered { ask_id, .. }, MonitorEvent::ChildAsked { ask, .. }] = &emitted[..] else {
        panic!("{emitted:?}")
    };
    assert_eq!((ask_id.as_str(), ask.id()), ("per_1", "per_2"));
}

#[test]
fn text_is_neither_duplicated_nor_reverted() {
    let mut tree = tree();
    let part = |text: &str, time: Value| json!({"id": "prt_1", "sessionID": "ses_a", "messageID": "msg_5", "type": "text", "text": text, "time": time});
    let updated = |part: Value| event("message.part.updated", json!({"sessionID": "ses_a", "part": part, "time": 1}));
    let delta = |delta: &str| {
        let place =
            json!({"sessionID": "ses_a", "messageID": "msg_5", "partID": "prt_1", "field": "text", "delta": delta});
        event("message.part.delta", place)
    };
    let text = |tree: &Tree| tree.snapshot().sessions.remove(1).progress.text;
    let EventBody::MessageUpdated { info, .. } = step("ses_a", 5, 0.0, None).body else { panic!() };
    let first: Part = serde_json::from_value(part("one two", json!({"start": 1}))).unwrap();
    let busy = |session, messages| SessionSnapshot { session, status: SessionStatus::Busy, messages };
    let child = busy(session("ses_a", Some("ses_root")), vec![MessageWithParts { info: *info, parts: vec![first] }]);
    let sessions = vec![busy(session("ses_root", None), Vec::new()), child];
    tree.resync(TreeSnapshot { sessions, ..TreeSnapshot::default() }, false);
    // It was already in the snapshot.
    tree.apply(&delta(" two"));
    assert_eq!(text(&tree), "one two");
    play(&mut tree, &[updated(part("one two", json!({"start": 1}))), delta(" three")]);
    assert_eq!(text(&tree), "one two three");
    play(&mut tree, &[updated(part("one two three!", json!({"start": 1, "end": 2})))]);
    play(&mut tree, &[updated(part("", json!({"start": 1}))), delta("one")]);
    assert_eq!(text(&tree), "one two three!", "a text that is whole does not change");
}

#[test]
fn an_error_that_is_overcome_is_not_a_failure() {
    let mut tree = tree();
    play(&mut tree, &[created("ses_a", "ses_root"), prompted("ses_a", 3), status("ses_a", "busy")]);
    let error = json!({"name": "ContextOverflowError", "data": {"message": "too long"}});
    let emitted = tree.apply(&event("session.error", json!({"sessionID": "ses_a", "error": error})));
    assert!(matches!(&emitted[..], [MonitorEvent::ChildError { error: MessageError::ContextOverflowError(_), .. }]));
    let emitted = play(&mut tree, &[step("ses_a", 5, 1.0, Some("stop")), status("ses_a", "idle")]);
    assert!(
        matches!(emitted.last(), Some(MonitorEvent::ChildCompleted { outcome: TurnOutcome::Succeeded, .. })),
        "{emitted:?}"
    );
}

#[test]
fn a_retry_is_reported() {
    let mut tree = tree();
    play(&mut tree, &[created("ses_a", "ses_root"), prompted("ses_a", 3), status("ses_a", "busy")]);
    let retry = json!({"type": "retry", "attempt": 2, "message": "overloaded", "next": 9});
    let emitted = tree.apply(&event("session.status", json!({"sessionID": "ses_a", "status": retry})));
    let MonitorEvent::ChildProgress { progress, .. } = &emitted[0] else { panic!("{emitted:?}") };
    assert_eq!(progress.state, SubagentState::Retrying { attempt: 2, message: "overloaded".to_owned(), next: 9 });
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
    // Repeating the events changes nothing, and a finished call does not run again.
    assert!(play(&mut tree, &events).is_empty());
    assert_eq!(sums(&tree), (300.0, 600, 300));
    assert!(tree.snapshot().sessions[1].progress.tools.is_empty());

    // Only the end of a long text is kept, cut at a character boundary.
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
    let text = tree.snapshot().sessions.remove(1).progress.text;
    assert!(text.len() <= 2048 && text.len() > 2040 && text.ends_with('€'), "{}", text.len());

    let many: Vec<Event> = (0..MAX_SESSIONS + 10).map(|n| created(&format!("ses_n{n}"), "ses_root")).collect();
    play(&mut tree, &many);
    let tree = tree.snapshot();
    assert!(tree.sessions.len() == MAX_SESSIONS && tree.truncated);
}

#[test]
fn a_long_session_is_counted_from_its_row() {
    let mut row = session("ses_a", Some("ses_root"));
    row.cost = Some(Usd(10.0));
    let EventBody::MessageUpdated { info, .. } = step("ses_a", 50, 2.0, Some("tool-calls")).body else { panic!() };
    let message = MessageWithParts { info: *info, parts: Vec::<Part>::new() };
    assert!(matches!(message.info, Message::Assistant(_)));
    let root =
        SessionSnapshot { session: session("ses_root", None), status: SessionStatus::Busy, messages: Vec::new() };
    let child = SessionSnapshot { session: row, status: SessionStatus::Busy, messages: vec![message] };
    let read = TreeSnapshot { sessions: vec![root, child], ..TreeSnapshot::default() };
    let mut tree = Tree::new(SessionId::parse("ses_root").unwrap(), read);
    tree.apply(&step("ses_a", 60, 3.0, Some("stop")));
    assert_eq!(tree.snapshot().sessions[1].total.cost, Usd(13.0));
}

#[test]
fn rapid_progress_is_merged() {
    let mut tree = tree();
    let mut batch = ProgressThrottle::new(Duration::from_millis(100));
    let start = Instant::now();
    let at = |millis| start + Duration::from_millis(millis);
    let mut feed = |batch: &mut ProgressThrottle, events: &[Event], millis| {
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
    let emitted = batch.pop(at(110));
    let Some(MonitorEvent::ChildProgress { progress, .. }) = emitted else { panic!("{emitted:?}") };
    assert_eq!((progress.tool_calls, progress.state), (89, SubagentState::Running));
    assert!(batch.pop(at(500)).is_none() && batch.due().is_none());
    // An event that cannot wait also flushes the progress before it.
    let aborted = json!({"name": "MessageAbortedError", "data": {"message": "Aborted"}});
    let error = event("session.error", json!({"sessionID": "ses_a", "error": aborted}));
    feed(&mut batch, &[running("prt_a"), running("prt_b"), error, status("ses_a", "idle")], 600);
    assert!(matches!(batch.pop(at(600)), Some(MonitorEvent::ChildProgress { .. })));
    assert!(matches!(batch.pop(at(600)), Some(MonitorEvent::ChildError { .. })));
    assert!(matches!(batch.pop(at(600)), Some(MonitorEvent::ChildCompleted { .. })));
    assert!(batch.pop(at(9999)).is_none());
}

#[test]
fn events_serialize_with_their_public_names() {
    let mut tree = tree();
    let emitted = play(&mut tree, &[created("ses_a", "ses_root"), prompted("ses_a", 3), status("ses_a", "busy")]);
    let json: Vec<Value> = emitted.iter().map(|event| serde_json::to_value(event).unwrap()).collect();
    assert_eq!((&json[0]["type"], &json[0]["session"]["id"]), (&json!("child_created"), &json!("ses_a")));
    assert_eq!((&json[1]["type"], &json[1]["sessionID"]), (&json!("child_progress"), &json!("ses_a")));
    assert_eq!(json[1]["progress"]["state"], json!({"type": "running"}));
}

/// With a clock that goes back and ids chosen by clients, every turn has its end, however it is observed.
#[test]
fn turns_end_whatever_the_clocks_and_ids() {
    for reads in [false, true] {
        let mut tree = tree();
        let mut server = ServerState::default();
        let mut emitted = Vec::new();
        server.sessions.insert(SessionId::parse("ses_root").unwrap(), session("ses_root", None));
        let mut receive = |events: &[Event]| {
            for event in events {
                server.apply(&event.body);
            }
            if reads {
                emitted.extend(tree.resync(server.read(), false));
            } else {
                emitted.extend(play(&mut tree, events));
            }
        };
        receive(&[created("ses_a", "ses_root")]);
        for (place, time) in [500, 300, 900, 100].into_iter().enumerate() {
            receive(&[status("ses_a", "busy"), prompted("ses_a", time), step("ses_a", time + 1, 1.0, None)]);
            let mut row = session("ses_a", Some("ses_root"));
            (row.title, row.time.updated) = (format!("after {place}"), time);
            row.cost = Some(Usd(place as f64 + 1.0));
            let row = event("session.updated", json!({"sessionID": "ses_a", "info": row}));
            receive(&[step("ses_a", time + 1, 1.0, Some("stop")), row, status("ses_a", "idle")]);
        }
        let ends = emitted.iter().filter(|event| matches!(event, MonitorEvent::ChildCompleted { .. })).count();
        assert_eq!(ends, 4, "reads: {reads}, {emitted:#?}");
        let child = &tree.snapshot().sessions[1];
        assert_eq!((child.title.as_str(), child.total.cost), ("after 3", Usd(4.0)));
    }
}
