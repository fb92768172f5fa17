use super::*;
use api::{Blocked, Bound, Json, MessageError, MessageId, PermissionId, PermissionReplyKind, SessionStatus};
use serde_json::json;

struct Fixture {
    tracker: SubagentTracker,
    root: SessionId,
}

impl Fixture {
    fn new() -> Self {
        let root = SessionId::new();
        Self { tracker: SubagentTracker::new(root.clone(), Style::plain()), root }
    }

    fn feed(&mut self, event: EventBody, now: Timestamp) -> Option<SubagentNotice> {
        self.tracker.event(&event, now)
    }

    fn created(&mut self, parent: &SessionId, title: &str) -> SessionId {
        let id = SessionId::new();
        let info: Session = serde_json::from_value(json!({
            "id": id, "slug": "s", "projectID": "p", "directory": "/p", "title": title, "version": "0",
            "parentID": parent, "time": {"created": 1, "updated": 1},
        }))
        .unwrap();
        assert_eq!(self.feed(EventBody::SessionCreated { session_id: id.clone(), info: Box::new(info) }, 0), None);
        id
    }

    fn busy(&mut self, id: &SessionId, now: Timestamp) -> Option<SubagentNotice> {
        self.feed(EventBody::SessionStatus { session_id: id.clone(), status: SessionStatus::Busy }, now)
    }

    fn idle(&mut self, id: &SessionId, now: Timestamp) -> Option<SubagentNotice> {
        self.feed(EventBody::SessionIdle { session_id: id.clone() }, now)
    }

    fn part(&mut self, session: &SessionId, id: &PartId, mut value: Json) -> Option<SubagentNotice> {
        value["id"] = json!(id);
        value["sessionID"] = json!(session);
        value["messageID"] = json!(MessageId::new());
        self.feed(EventBody::part(serde_json::from_value(value).unwrap()).unwrap(), 0)
    }

    fn call(&mut self, session: &SessionId, id: &PartId, status: &str) {
        let state = match status {
            "running" => json!({"status": "running", "input": {"command": "ls"}, "time": {"start": 1}}),
            _ => json!({"status": "completed", "input": {}, "output": "", "title": "ls", "metadata": {},
                "time": {"start": 1, "end": 2}}),
        };
        self.part(session, id, json!({"type": "tool", "tool": "bash", "callID": "c", "state": state}));
    }

    fn step(&mut self, session: &SessionId, id: &PartId, cost: f64) {
        let tokens = json!({"input": 1000, "output": 50, "reasoning": 0, "cache": {"read": 0, "write": 0}});
        self.part(session, id, json!({"type": "step-finish", "reason": "stop", "cost": cost, "tokens": tokens}));
    }

    fn doing(&self) -> Vec<(usize, String, String)> {
        let (rows, _) = self.tracker.rows(5_000, 100);
        rows.into_iter().map(|row| (row.depth, row.task, row.doing)).collect()
    }
}

#[test]
fn a_subagent_gets_a_line_when_it_starts_and_when_it_ends() {
    let mut fixture = Fixture::new();
    let (root, stranger) = (fixture.root.clone(), SessionId::new());
    let child = fixture.created(&root, "Look around (@explore subagent)");
    let foreign = fixture.created(&stranger, "Not ours");
    assert!(fixture.tracker.contains(&child) && !fixture.tracker.contains(&foreign) && !fixture.tracker.has_live());
    assert_eq!(fixture.busy(&foreign, 1), None);
    assert_eq!(fixture.busy(&child, 1_000), Some(SubagentNotice::Started("▸ explore  Look around\n".into())));
    assert_eq!(fixture.busy(&child, 1_100), None, "once");
    let (call, step) = (PartId::new(), PartId::new());
    fixture.call(&child, &call, "running");
    fixture.step(&child, &step, 0.25);
    assert_eq!(fixture.doing(), [(1, "Look around".into(), "bash  ls".into())]);
    for _ in 0..2 {
        fixture.call(&child, &call, "completed");
        fixture.step(&child, &step, 0.25);
    }
    assert_eq!(fixture.doing(), [(1, "Look around".into(), "thinking".into())]);
    let ended = "✓ explore  Look around  1 call · 2.5 s · $0.2500\n";
    assert_eq!(fixture.idle(&child, 3_500), Some(SubagentNotice::Ended(ended.into())), "counted once");
    assert_eq!(fixture.idle(&child, 3_600), None);
    assert!(!fixture.tracker.has_live() && fixture.doing().is_empty());
    assert_eq!(fixture.tracker.summary().unwrap(), "1 subagent · 1 call · 1.1k tokens · $0.2500");
}

#[test]
fn working_subagents_are_shown_below_their_parents() {
    let mut fixture = Fixture::new();
    let root = fixture.root.clone();
    let one = fixture.created(&root, "One (@general subagent)");
    let two = fixture.created(&root, "Two (@general subagent)");
    let below = fixture.created(&one, "Below (@explore subagent)");
    for id in [&one, &two, &below] {
        fixture.busy(id, 0);
    }
    assert_eq!(
        fixture.doing().iter().map(|row| (row.0, &*row.1)).collect::<Vec<_>>(),
        [(1, "One"), (2, "Below"), (1, "Two")]
    );
    fixture.idle(&two, 1);
    fixture.idle(&one, 1);
    assert_eq!(fixture.doing().iter().map(|row| (row.0, &*row.1)).collect::<Vec<_>>(), [(1, "One"), (2, "Below")]);
    assert_eq!(
        fixture.idle(&below, 1_000),
        Some(SubagentNotice::Ended("  ✓ explore  Below  0 calls · 1.0 s\n".into())),
        "indented"
    );
    for n in 0..30 {
        let id = fixture.created(&root, &format!("Task {n}"));
        fixture.busy(&id, 0);
    }
    let (rows, more) = fixture.tracker.rows(0, 10);
    assert_eq!((rows.len(), more), (10, 20));
}

#[test]
fn what_a_subagent_waits_for_is_shown() {
    let mut fixture = Fixture::new();
    let root = fixture.root.clone();
    let id = fixture.created(&root, "Work");
    fixture.busy(&id, 0);
    let tree = |state, message: Option<&str>| EventBody::SessionTree {
        session_id: id.clone(),
        state,
        blocked: message.map(|message| Blocked {
            bound: Bound::Steps,
            session_id: root.clone(),
            message: message.into(),
        }),
    };
    let state = |fixture: &Fixture| fixture.tracker.rows(0, 1).0[0].state;
    let doing = |fixture: &Fixture| fixture.tracker.rows(0, 1).0[0].doing.clone();
    fixture.feed(tree(TreeState::Blocked, Some("3 of 3 steps are used")), 0);
    assert_eq!((state(&fixture), doing(&fixture)), (TreeState::Blocked, "3 of 3 steps are used".into()));
    fixture.feed(tree(TreeState::Running, None), 0);
    assert_eq!(doing(&fixture), "thinking");
    fixture.feed(tree(TreeState::Paused, None), 0);
    assert_eq!((state(&fixture), doing(&fixture)), (TreeState::Paused, "paused".into()));
    fixture.feed(tree(TreeState::Running, None), 0);
    assert_eq!(doing(&fixture), "thinking");
    // A pause of the root holds all subagents once their calls have ended.
    let pause = |state| EventBody::SessionTree { session_id: root.clone(), state, blocked: None };
    let call = PartId::new();
    fixture.call(&id, &call, "running");
    fixture.feed(pause(TreeState::Paused), 0);
    assert!(fixture.tracker.is_paused());
    assert_eq!(doing(&fixture), "bash  ls");
    fixture.call(&id, &call, "completed");
    assert_eq!(doing(&fixture), "paused");
    fixture.feed(pause(TreeState::Running), 0);
    assert_eq!((fixture.tracker.is_paused(), doing(&fixture)), (false, "thinking".into()));
    let ask = json!({"id": PermissionId::new(), "sessionID": id, "permission": "bash", "patterns": ["rm x"],
        "metadata": {}, "always": []});
    let ask: api::PermissionRequest = serde_json::from_value(ask).unwrap();
    let request_id = ask.id.clone();
    fixture.feed(EventBody::PermissionAsked(Box::new(ask)), 0);
    assert_eq!((state(&fixture), doing(&fixture)), (TreeState::Asking, "asks: bash rm x".into()));
    let reply = PermissionReplyKind::Once;
    fixture.feed(EventBody::PermissionReplied { session_id: id.clone(), request_id, reply }, 0);
    assert_eq!(state(&fixture), TreeState::Running);
    let status = SessionStatus::Retry { attempt: 1, message: "overloaded".into(), action: None, next: 1 };
    fixture.feed(EventBody::SessionStatus { session_id: id.clone(), status }, 0);
    assert_eq!(doing(&fixture), "retrying: overloaded");
    fixture.busy(&id, 0);
    assert_eq!(doing(&fixture), "thinking");
}

#[test]
fn the_last_line_says_how_a_subagent_ended() {
    let mut fixture = Fixture::new();
    let root = fixture.root.clone();
    let (bad, stopped) = (fixture.created(&root, "Bad"), fixture.created(&root, "Stopped"));
    let error = |id: &SessionId, error| EventBody::SessionError { session_id: Some(id.clone()), error: Some(error) };
    fixture.busy(&bad, 0);
    fixture.busy(&stopped, 0);
    let ended = fixture.feed(error(&bad, MessageError::unknown("it\nbroke")), 1_000);
    assert_eq!(ended, Some(SubagentNotice::Ended("✗   Bad  0 calls · 1.0 s\n  it broke\n".into())));
    assert_eq!(fixture.idle(&bad, 1_001), None, "told once");
    let ended = fixture.feed(error(&stopped, MessageError::aborted()), 1_000);
    assert_eq!(ended, Some(SubagentNotice::Ended("⊘   Stopped  0 calls · 1.0 s\n".into())));
    assert_eq!(fixture.tracker.summary().unwrap(), "2 subagents · 1 failed · 0 calls · 0 tokens");
}

#[test]
fn the_call_names_the_task_and_whether_the_caller_waits() {
    let mut fixture = Fixture::new();
    let root = fixture.root.clone();
    let id = fixture.created(&root, "First (@general subagent)");
    fixture.busy(&id, 0);
    let state = json!({"status": "running", "input": {"description": "Second", "subagent_type": "general"},
        "metadata": {"sessionId": id, "background": true}, "time": {"start": 1}});
    fixture.part(&root, &PartId::new(), json!({"type": "tool", "tool": "task", "callID": "c", "state": state}));
    let row = fixture.tracker.rows(0, 1).0.remove(0);
    assert_eq!((row.task.as_str(), row.background), ("Second", true));
    assert_eq!(fixture.idle(&id, 100), Some(SubagentNotice::Ended("✓ general &  Second  0 calls · 0.1 s\n".into())));
    fixture.feed(EventBody::SessionDeleted { session_id: id.clone(), info: Box::new(session(&id)) }, 0);
    assert!(!fixture.tracker.contains(&id));
}

fn session(id: &SessionId) -> Session {
    serde_json::from_value(json!({"id": id, "slug": "s", "projectID": "p", "directory": "/p", "title": "t",
        "version": "0", "time": {"created": 1, "updated": 1}}))
    .unwrap()
}
