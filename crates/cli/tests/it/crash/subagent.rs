//! The contents of a journal about a session and its subagent.

use api::{EventBody, Frame, MessageWithParts, Part, Session, ToolPart, ToolState};
use store::{SessionQuery, Store};

use super::facts::{assert_counted, interrupted};
use super::fixture::{Fixture, replay};

/// A parent that has a child run a command.
pub struct ParentAndChild {
    store: Store,
    pub parent: Option<Session>,
    pub child: Option<Session>,
}

impl ParentAndChild {
    /// Reads a journal, and checks what always holds: the child is created once, and has at most one prompt.
    pub fn read(fixture: &Fixture) -> Self {
        let store = fixture.journal();
        let sessions = store.sessions(&SessionQuery::default()).unwrap();
        let (mut children, mut roots): (Vec<_>, Vec<_>) = sessions.into_iter().partition(|s| s.parent_id.is_some());
        assert!(roots.len() <= 1 && children.len() <= roots.len(), "{roots:#?}\n{children:#?}");
        let family = Self { store, parent: roots.pop(), child: children.pop() };
        let prompts = family.messages(family.child.as_ref()).into_iter().filter(|m| m.info.as_user().is_some());
        assert!(prompts.count() <= 1);
        assert!(fixture.effects() <= 1, "P3: the child's command ran twice");
        let mut all = 0;
        for session in family.child.iter().chain(&family.parent) {
            assert_counted(&family.store, &session.id, &family.messages(Some(session)));
            let (own, total) = family.store.usage(&session.id).unwrap();
            all += own.all_tokens();
            assert_eq!(total.all_tokens(), all, "a parent's total has what its child used");
        }
        family
    }

    fn messages(&self, session: Option<&Session>) -> Vec<MessageWithParts> {
        session.map_or_else(Vec::new, |session| self.store.messages(&session.id, None, None).unwrap().messages)
    }

    fn tool(&self, session: Option<&Session>, name: &str) -> Option<ToolPart> {
        let messages = self.messages(session);
        let mut tools =
            messages.iter().flat_map(|m| m.parts.iter().filter_map(Part::as_tool)).filter(|t| t.tool == name);
        let tool = tools.next().cloned();
        assert_eq!(tools.next(), None, "{name} was called twice");
        tool
    }

    /// The exit code of an undisturbed recovery.
    pub fn exit(&self) -> i32 {
        match &self.parent {
            None => 1,
            Some(parent) => match self.store.inbox(&parent.id).unwrap().first() {
                None => 2,
                Some(_) => 0,
            },
        }
    }

    /// Whether the child had started and not ended.
    pub fn at_work(&self) -> bool {
        self.child.as_ref().is_some_and(|child| !self.store.inbox(&child.id).unwrap().is_empty())
    }

    /// What holds once nothing is left to do: nothing waits or runs, and no call is linked to a child.
    pub fn check_quiet(&self) {
        for session in self.parent.iter().chain(&self.child) {
            assert_eq!(self.store.inbox(&session.id).unwrap(), [], "P2: {session:#?}");
            assert_eq!(self.store.lease_holder(&session.id).unwrap(), None, "P2: {session:#?}");
        }
        for bonds in ["task", "background"] {
            assert_eq!(self.store.records(bonds).unwrap(), [], "a call is bound to a child for ever");
        }
        assert_eq!(self.store.records("started").unwrap(), []);
    }

    /// What holds after a turn with at most one crash.
    pub fn check_settled(&self, fixture: &Fixture) {
        self.check_quiet();
        let Some(task) = self.tool(self.parent.as_ref(), "task") else { return };
        let ends = self.events(fixture).into_iter().filter(|body| match body {
            EventBody::PartUpdated { part, .. } => {
                part.as_tool().is_some_and(|tool| tool.head.id == task.head.id && tool.state.is_done())
            }
            _ => false,
        });
        assert_eq!(ends.count(), 1, "P4: the parent gets the result once");
        for session in self.parent.iter().chain(&self.child) {
            let idle =
                |body: &EventBody| matches!(body, EventBody::SessionIdle { session_id } if *session_id == session.id);
            assert_eq!(self.events(fixture).iter().filter(|body| idle(body)).count(), 1, "P4: {session:#?}");
        }
        let last = self.messages(self.parent.as_ref()).pop().unwrap();
        assert_eq!(last.info.as_assistant().unwrap().finish.as_deref(), Some("stop"), "{last:#?}");
        let ToolState::Completed(done) = &task.state else {
            // Only a call that the model had not finished writing has no child.
            assert!(interrupted(&task) && self.child.is_none(), "{task:#?}");
            return;
        };
        let answer = self.messages(self.child.as_ref()).pop().unwrap();
        let text = answer.parts.iter().filter_map(Part::as_text).next_back().unwrap();
        assert!(done.output.contains(&format!("<task_result>\n{}\n</task_result>", text.text)), "{}", done.output);
        match self.tool(self.child.as_ref(), "bash") {
            Some(bash) if interrupted(&bash) => {}
            Some(_) => assert_eq!(fixture.effects(), 1, "P3"),
            None => panic!("the child did not work"),
        }
    }

    /// What holds once a background task has ended and nothing is left to do: its caller got one report.
    pub fn check_reported(&self, fixture: &Fixture) {
        self.check_quiet();
        let task = self.tool(self.parent.as_ref(), "task");
        let users = self.messages(self.parent.as_ref()).into_iter().filter(|m| m.info.as_user().is_some());
        let texts = users.flat_map(|m| m.parts).filter_map(|part| part.as_text().map(|text| text.text.clone()));
        let reports: Vec<String> = texts.filter(|text| text.starts_with("<task ")).collect();
        let Some(ToolState::Completed(done)) = task.as_ref().map(|task| &task.state) else {
            assert!(self.child.is_none() && reports.is_empty(), "{task:#?} {reports:#?}");
            return;
        };
        assert!(done.output.contains("state=\"running\""), "{}", done.output);
        let [report] = &reports[..] else { panic!("P4: the caller is told once: {reports:#?}") };
        let answer = self.messages(self.child.as_ref()).pop().unwrap();
        let text = answer.parts.iter().filter_map(Part::as_text).next_back().unwrap();
        assert!(report.contains(&format!("<task_result>\n{}\n</task_result>", text.text)), "{report}");
        match self.tool(self.child.as_ref(), "bash") {
            Some(bash) if interrupted(&bash) => {}
            _ => assert_eq!(fixture.effects(), 1, "P3"),
        }
    }

    fn events(&self, fixture: &Fixture) -> Vec<EventBody> {
        let frames = replay(&self.store, &fixture.origin);
        frames.iter().filter_map(Frame::event).map(|event| event.body.clone()).collect()
    }
}
