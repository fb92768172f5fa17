use super::*;
use api::{Blocked, Bound, MessageId, PermissionId, PermissionReplyKind};
use serde_json::json;

struct Rig {
    family: Family,
    root: SessionId,
}

impl Rig {
    fn new() -> Self {
        let root = SessionId::new();
        Self { family: Family::new(root.clone(), Style::plain()), root }
    }

    fn feed(&mut self, event: EventBody, now: Timestamp) -> Option<Note> {
        self.family.event(&event, now)
    }

    fn born(&mut self, parent: &SessionId, title: &str) -> SessionId {
        let id = SessionId::new();
        let info: Session = serde_json::from_value(json!({
            "id": id, "slug": "s", "projectID": "p", "directory": "/p", "title": title, "version": "0",
            "parentID": parent, "time": {"created": 1, "updated": 1},
        }))
        .unwrap();
        assert_eq!(self.feed(EventBody::SessionCreated { session_id: id.clone(), info: Box::new(info) }, 0), None);
        id
    }

    fn busy(&mut self, id: &SessionId, now: Timestamp) -> Option<Note> {
        self.feed(EventBody::SessionStatus { session_id: id.clone(), status: SessionStatus::Busy }, now)
    }

    fn idle(&mut self, id: &SessionId, now: Timestamp) -> Option<Note> {
        self.feed(EventBody::SessionIdle { session_id: id.clone() }, now)
    }

    fn part(&mut self, session: &SessionId, id: &PartId, mut value: Json) -> Option<Note> {
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
        let (rows, _) = self.family.rows(5_000, 100);
        rows.into_iter().map(|row| (row.depth, row.task, row.doing)).collect()
    }
}

#[test]
fn a_subagent_is_told_of_when_it_begins_and_when_it_ends() {
    let mut rig = Rig::new();
    let (root, stranger) = (rig.root.clone(), SessionId::new());
    let child = rig.born(&root, "Look around (@explore subagent)");
    let foreign = rig.born(&stranger, "Not ours");
    assert!(rig.family.contains(&child) && !rig.family.contains(&foreign) && !rig.family.live());
    assert_eq!(rig.busy(&foreign, 1), None);
    assert_eq!(rig.busy(&child, 1_000), Some(Note::Began("▸ explore  Look around\n".into())));
    assert_eq!(rig.busy(&child, 1_100), None, "once");
    let (call, step) = (PartId::new(), PartId::new());
    rig.call(&child, &call, "running");
    rig.step(&child, &step, 0.25);
    assert_eq!(rig.doing(), [(1, "Look around".into(), "bash  ls".into())]);
    for _ in 0..2 {
        rig.call(&child, &call, "completed");
        rig.step(&child, &step, 0.25);
    }
    assert_eq!(rig.doing(), [(1, "Look around".into(), "thinking".into())]);
    let ended = "✓ explore  Look around  1 call · 2.5 s · $0.2500\n";
    assert_eq!(rig.idle(&child, 3_500), Some(Note::Ended(ended.into())), "counted once");
    assert_eq!(rig.idle(&child, 3_600), None);
    assert!(!rig.family.live() && rig.doing().is_empty());
    assert_eq!(rig.family.summary().unwrap(), "1 subagent · 1 call · 1.1k tokens · $0.2500");
}

#[test]
fn those_that_work_are_shown_below_their_parents() {
    let mut rig = Rig::new();
    let root = rig.root.clone();
    let one = rig.born(&root, "One (@general subagent)");
    let two = rig.born(&root, "Two (@general subagent)");
    let below = rig.born(&one, "Below (@explore subagent)");
    for id in [&one, &two, &below] {
        rig.busy(id, 0);
    }
    assert_eq!(
        rig.doing().iter().map(|row| (row.0, &*row.1)).collect::<Vec<_>>(),
        [(1, "One"), (2, "Below"), (1, "Two")]
    );
    rig.idle(&two, 1);
    rig.idle(&one, 1);
    assert_eq!(rig.doing().iter().map(|row| (row.0, &*row.1)).collect::<Vec<_>>(), [(1, "One"), (2, "Below")]);
    assert_eq!(rig.idle(&below, 1_000), Some(Note::Ended("  ✓ explore  Below  0 calls · 1.0 s\n".into())), "indented");
    for n in 0..30 {
        let id = rig.born(&root, &format!("Task {n}"));
        rig.busy(&id, 0);
    }
    let (rows, more) = rig.family.rows(0, 10);
    assert_eq!((rows.len(), more), (10, 20));
}

#[test]
fn what_a_subagent_waits_for_is_shown() {
    let mut rig = Rig::new();
    let root = rig.root.clone();
    let id = rig.born(&root, "Work");
    rig.busy(&id, 0);
    let tree = |state, message: Option<&str>| EventBody::SessionTree {
        session_id: id.clone(),
        state,
        blocked: message.map(|message| Blocked {
            bound: Bound::Steps,
            session_id: root.clone(),
            message: message.into(),
        }),
    };
    let state = |rig: &Rig| rig.family.rows(0, 1).0[0].state;
    let doing = |rig: &Rig| rig.family.rows(0, 1).0[0].doing.clone();
    rig.feed(tree(TreeState::Blocked, Some("3 of 3 steps are used")), 0);
    assert_eq!((state(&rig), doing(&rig)), (TreeState::Blocked, "3 of 3 steps are used".into()));
    rig.feed(tree(TreeState::Running, None), 0);
    assert_eq!(doing(&rig), "thinking");
    rig.feed(tree(TreeState::Paused, None), 0);
    assert_eq!((state(&rig), doing(&rig)), (TreeState::Paused, "paused".into()));
    rig.feed(tree(TreeState::Running, None), 0);
    assert_eq!(doing(&rig), "thinking");
    // A pause of the root holds everybody, once their tools have ended.
    let pause = |state| EventBody::SessionTree { session_id: root.clone(), state, blocked: None };
    let call = PartId::new();
    rig.call(&id, &call, "running");
    rig.feed(pause(TreeState::Paused), 0);
    assert!(rig.family.is_paused());
    assert_eq!(doing(&rig), "bash  ls");
    rig.call(&id, &call, "completed");
    assert_eq!(doing(&rig), "paused");
    rig.feed(pause(TreeState::Running), 0);
    assert_eq!((rig.family.is_paused(), doing(&rig)), (false, "thinking".into()));
    let ask = json!({"id": PermissionId::new(), "sessionID": id, "permission": "bash", "patterns": ["rm x"],
        "metadata": {}, "always": []});
    let ask: api::PermissionRequest = serde_json::from_value(ask).unwrap();
    let request_id = ask.id.clone();
    rig.feed(EventBody::PermissionAsked(Box::new(ask)), 0);
    assert_eq!((state(&rig), doing(&rig)), (TreeState::Asking, "asks: bash rm x".into()));
    let reply = PermissionReplyKind::Once;
    rig.feed(EventBody::PermissionReplied { session_id: id.clone(), request_id, reply }, 0);
    assert_eq!(state(&rig), TreeState::Running);
    let status = SessionStatus::Retry { attempt: 1, message: "overloaded".into(), action: None, next: 1 };
    rig.feed(EventBody::SessionStatus { session_id: id.clone(), status }, 0);
    assert_eq!(doing(&rig), "tries again: overloaded");
    rig.busy(&id, 0);
    assert_eq!(doing(&rig), "thinking");
}

#[test]
fn how_a_subagent_ends_is_told() {
    let mut rig = Rig::new();
    let root = rig.root.clone();
    let (bad, stopped) = (rig.born(&root, "Bad"), rig.born(&root, "Stopped"));
    let error = |id: &SessionId, error| EventBody::SessionError { session_id: Some(id.clone()), error: Some(error) };
    rig.busy(&bad, 0);
    rig.busy(&stopped, 0);
    let ended = rig.feed(error(&bad, MessageError::unknown("it\nbroke")), 1_000);
    assert_eq!(ended, Some(Note::Ended("✗   Bad  0 calls · 1.0 s\n  it broke\n".into())));
    assert_eq!(rig.idle(&bad, 1_001), None, "told once");
    let ended = rig.feed(error(&stopped, MessageError::aborted()), 1_000);
    assert_eq!(ended, Some(Note::Ended("⊘   Stopped  0 calls · 1.0 s\n".into())));
    assert_eq!(rig.family.summary().unwrap(), "2 subagents · 1 failed · 0 calls · 0 tokens");
}

#[test]
fn the_call_says_what_for_and_whether_anybody_waits() {
    let mut rig = Rig::new();
    let root = rig.root.clone();
    let id = rig.born(&root, "First (@general subagent)");
    rig.busy(&id, 0);
    let state = json!({"status": "running", "input": {"description": "Second", "subagent_type": "general"},
        "metadata": {"sessionId": id, "background": true}, "time": {"start": 1}});
    rig.part(&root, &PartId::new(), json!({"type": "tool", "tool": "task", "callID": "c", "state": state}));
    let row = rig.family.rows(0, 1).0.remove(0);
    assert_eq!((row.task.as_str(), row.background), ("Second", true));
    assert_eq!(rig.idle(&id, 100), Some(Note::Ended("✓ general &  Second  0 calls · 0.1 s\n".into())));
    rig.feed(EventBody::SessionDeleted { session_id: id.clone(), info: Box::new(session(&id)) }, 0);
    assert!(!rig.family.contains(&id));
}

fn session(id: &SessionId) -> Session {
    serde_json::from_value(json!({"id": id, "slug": "s", "projectID": "p", "directory": "/p", "title": "t",
        "version": "0", "time": {"created": 1, "updated": 1}}))
    .unwrap()
}
