//! A parent and its twenty subagents, and the contents of a journal about them.

use std::collections::HashMap;
use std::fs;

use api::{EventBody, Frame, MessageWithParts, Part, Session, SessionId, ToolPart, ToolState, Usage};
use serde_json::{Value, json};
use store::{SessionQuery, Store};

use super::facts::{assert_counted, interrupted};
use super::fixture::{Fixture, replay};

/// The number of subagents.
const CHILDREN: usize = 20;

/// A parent that calls all subagents in one step. Some run a command, some edit a file, some only write text; every fourth works in
/// the background.
pub fn fixture() -> Fixture {
    let steps = json!([{ "tools": (0..CHILDREN).map(call).collect::<Vec<_>>() }, { "text": "Begun." }]);
    let rules = json!({ "rules": [{ "when": { "glob": "go" }, "steps": steps }], "default": [{ "text": "Noted." }] });
    let fixture = Fixture::new(json!([]), json!({}), &[]);
    fixture.project.write_home("script.json", rules.to_string());
    for number in 0..CHILDREN {
        fixture.project.write(trace(number), "did:");
    }
    fixture
}

fn in_background(number: usize) -> bool {
    number % 4 == 3
}

/// The file in which a child's work leaves a word.
fn trace(number: usize) -> String {
    format!("state/trace-{number}")
}

/// The `task` call for a child.
fn call(number: usize) -> Value {
    let file = trace(number);
    let last = json!({ "text": format!("Result {number}.") });
    let steps = match number % 3 {
        0 => json!([{ "tools": [["bash", { "command": format!("printf ' work' >> {file}") }]] }, last]),
        1 => {
            json!([{ "tools": [["edit", { "filePath": file, "oldString": "did:", "newString": "did: work" }]] }, last])
        }
        _ => json!([last]),
    };
    let input = json!({
        "description": title(number), "prompt": format!("SCRIPT: {steps}"), "subagent_type": "general",
        "background": in_background(number),
    });
    json!(["task", input])
}

fn title(number: usize) -> String {
    format!("Task {number}")
}

/// The contents of a journal about the tree.
pub struct Tree {
    store: Store,
    parent: Option<Session>,
    /// By their numbers.
    children: HashMap<usize, Session>,
    messages: HashMap<SessionId, Vec<MessageWithParts>>,
}

impl Tree {
    /// Reads a journal, and checks what always holds: each child is created once and has at most one prompt, its work is done once,
    /// and the ledger has every model call.
    pub fn read(fixture: &Fixture) -> Self {
        let store = fixture.journal();
        let sessions = store.sessions(&SessionQuery::default()).unwrap();
        let messages: HashMap<_, _> = sessions
            .iter()
            .map(|session| (session.id.clone(), store.messages(&session.id, None, None).unwrap().messages))
            .collect();
        let (made, mut roots): (Vec<_>, Vec<_>) = sessions.into_iter().partition(|s| s.parent_id.is_some());
        assert!(roots.len() <= 1, "{roots:#?}");
        let count = made.len();
        let number = |session: &Session| {
            (0..CHILDREN).find(|number| session.title == format!("{} (@general subagent)", title(*number))).unwrap()
        };
        let children: HashMap<_, _> = made.into_iter().map(|session| (number(&session), session)).collect();
        assert_eq!(children.len(), count, "a child was made twice");
        let tree = Self { store, parent: roots.pop(), children, messages };
        for (number, child) in &tree.children {
            let prompts = tree.messages[&child.id].iter().filter(|m| m.info.as_user().is_some());
            assert!(prompts.count() <= 1, "{child:#?}");
            assert!(traces(fixture, *number) <= 1, "P3: child {number} did its work twice");
        }
        tree.check_ledger();
        tree
    }

    /// The ledger has each report and estimate once, and the parent's total includes all of them.
    fn check_ledger(&self) {
        let mut all = Usage::default();
        for (session, messages) in &self.messages {
            assert_counted(&self.store, session, messages);
            let (own, total) = self.store.usage(session).unwrap();
            if self.parent.as_ref().is_none_or(|parent| parent.id != *session) {
                assert_eq!(total, own);
            }
            all += &own;
        }
        if let Some(parent) = &self.parent {
            assert_eq!(self.store.usage(&parent.id).unwrap().1, all, "a parent's total has what its children used");
        }
    }

    /// The number of children that had started and not ended.
    pub fn at_work(&self) -> usize {
        self.children.values().filter(|child| !self.store.inbox(&child.id).unwrap().is_empty()).count()
    }

    /// What holds once nothing is left to do, after any number of kills: nothing waits or runs, no call is linked to a child, and no
    /// result came twice.
    pub fn check_quiet(&self, fixture: &Fixture) {
        for session in self.parent.iter().chain(self.children.values()) {
            assert_eq!(self.store.inbox(&session.id).unwrap(), [], "P2: {session:#?}");
            assert_eq!(self.store.lease_holder(&session.id).unwrap(), None, "P2: {session:#?}");
        }
        for records in ["task", "background", "started", "blocked", "reported"] {
            assert_eq!(self.store.records(records).unwrap(), [], "{records}");
        }
        let mut ends = HashMap::new();
        let events = self.events(fixture);
        for tool in events.iter().filter_map(ended) {
            *ends.entry(tool).or_insert(0) += 1;
        }
        for tool in self.messages.values().flatten().flat_map(tools) {
            assert_eq!(ends.get(tool.head.id.as_str()), Some(&1), "P4: {tool:#?}");
        }
        for child in self.children.values() {
            assert!(self.reports(child).len() <= 1, "P4: {child:#?}");
        }
    }

    /// What holds after at most one kill: the parent has the result of every child, and every child did its work or says that it was
    /// interrupted.
    pub fn check_settled(&self, fixture: &Fixture) {
        self.check_quiet(fixture);
        let Some(parent) = &self.parent else { return };
        let calls: HashMap<_, _> = self.messages[&parent.id]
            .iter()
            .flat_map(tools)
            .map(|call| (call.state.input()["description"].as_str().unwrap_or_default().to_owned(), call))
            .collect();
        for number in 0..CHILDREN {
            let (call, child) = (calls.get(&title(number)), self.children.get(&number));
            let Some(child) = child else {
                // Only a call that the model had not finished writing has no child.
                assert!(call.is_none_or(|call| interrupted(call)), "child {number} is not there: {call:#?}");
                continue;
            };
            let Some(ToolState::Completed(done)) = call.map(|call| &call.state) else {
                panic!("the call of child {number} got no result: {call:#?}")
            };
            self.check_result(child, in_background(number), &done.output);
            self.check_work(fixture, number, child);
        }
    }

    /// The caller has the child's last words: in the result of its call, or in one message.
    fn check_result(&self, child: &Session, background: bool, output: &str) {
        let last = self.messages[&child.id].last().unwrap();
        let text = last.parts.iter().filter_map(Part::as_text).next_back().unwrap();
        let result = format!("<task_result>\n{}\n</task_result>", text.text);
        let reports = self.reports(child);
        if !background {
            assert!(output.contains(&result) && reports.is_empty(), "{output}\n{reports:#?}");
            return;
        }
        assert!(output.contains("state=\"running\""), "{output}");
        let [report] = &reports[..] else { panic!("P4: the caller is told once: {reports:#?}") };
        assert!(report.contains(&result), "{report}");
    }

    fn check_work(&self, fixture: &Fixture, number: usize, child: &Session) {
        let mut calls = self.messages[&child.id].iter().flat_map(tools);
        match calls.next() {
            Some(call) if interrupted(call) => {}
            Some(_) => assert_eq!(traces(fixture, number), 1, "P3: child {number} did not do its work"),
            // It died before it called a tool, and its next step was the last one.
            None => assert_eq!(traces(fixture, number), 0),
        }
        assert_eq!(calls.next(), None, "P3: child {number} called twice");
    }

    /// The messages that report a child's end to the parent.
    fn reports(&self, child: &Session) -> Vec<&str> {
        let begin = format!("<task id=\"{}\"", child.id);
        let parent = self.parent.iter().flat_map(|parent| &self.messages[&parent.id]);
        let texts =
            parent.filter(|m| m.info.as_user().is_some()).flat_map(|m| m.parts.iter().filter_map(Part::as_text));
        texts.map(|text| text.text.as_str()).filter(|text| text.starts_with(&begin)).collect()
    }

    fn events(&self, fixture: &Fixture) -> Vec<EventBody> {
        let frames = replay(&self.store, &fixture.origin);
        frames.iter().filter_map(Frame::event).map(|event| event.body.clone()).collect()
    }
}

fn tools(message: &MessageWithParts) -> impl Iterator<Item = &ToolPart> {
    message.parts.iter().filter_map(Part::as_tool)
}

/// The call that ends with an event.
fn ended(body: &EventBody) -> Option<&str> {
    let EventBody::PartUpdated { part, .. } = body else { return None };
    part.as_tool().filter(|tool| tool.state.is_done()).map(|tool| tool.head.id.as_str())
}

/// How often a child's work was done.
fn traces(fixture: &Fixture, number: usize) -> usize {
    fs::read_to_string(fixture.project.path().join(trace(number))).unwrap().matches("work").count()
}
