//! The contents of a journal, and whether they keep the promises.

use std::collections::HashMap;
use std::sync::Arc;

use api::{
    AssistantMessage, Event, EventBody, MessageWithParts, Part, PermissionRequest, SessionStatus, ToolPart, ToolState,
    Usage,
};
use store::{AskFilter, Batch, Location, SessionQuery, Store, StoreError};

use super::fixture::{self, Fixture, RunResult, block_on};

/// How far the prompt got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// There is no session.
    Nothing,
    /// There is a session without a prompt.
    Empty,
    /// The prompt is accepted, its turn has not ended.
    Accepted,
    /// The turn has ended.
    Ended,
}

/// All tokens that the scripted model reports for a step.
const STEP: u64 = 120;
/// A prompt is given up after its turn crashed this often.
const CRASHES: u32 = 2;

/// A tool call, as far as it got.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    pub part: ToolPart,
    /// It may have taken effect.
    pub started: bool,
}

/// The contents of a journal at one moment.
pub struct Facts {
    pub stage: Stage,
    /// The counted crashes of the prompt's turn; the next recovery counts the last one.
    attempts: u32,
    pub messages: Vec<MessageWithParts>,
    /// The holder of the lease.
    pub owner: Option<String>,
    /// Permission requests that wait.
    pub open: Vec<PermissionRequest>,
    pub bash: Option<Call>,
    read: Option<Call>,
    events: Vec<Arc<Event>>,
}

impl Facts {
    /// Reads a journal, and checks what always holds: at most one session with one prompt, and P5.
    pub fn read(fixture: &Fixture) -> Self {
        let store = fixture.journal();
        let events = replay(fixture, &store);
        let sessions = store.sessions(&SessionQuery::default()).unwrap();
        assert!(sessions.len() <= 1, "{sessions:#?}");
        let Some(session) = sessions.first() else {
            let (stage, messages, owner, open) = (Stage::Nothing, Vec::new(), None, Vec::new());
            return Self { stage, attempts: 0, messages, owner, open, bash: None, read: None, events };
        };
        let messages = store.messages(&session.id, None, None).unwrap().messages;
        let users = messages.iter().filter(|message| message.info.as_user().is_some()).count();
        let inbox = store.inbox(&session.id).unwrap();
        let stage = match (users, inbox.len()) {
            (0, 0) => Stage::Empty,
            (1, 1) => Stage::Accepted,
            (1, 0) => Stage::Ended,
            other => panic!("(prompts, inbox) are {other:?}"),
        };
        let tool = |name: &str| {
            let mut tools = messages.iter().flat_map(|message| message.parts.iter().filter_map(Part::as_tool));
            let part = tools.find(|tool| tool.tool == name)?.clone();
            assert_eq!(tools.find(|tool| tool.tool == name), None, "{name} was called twice");
            let started = store.record("started", part.head.id.as_str()).unwrap().is_some();
            Some(Call { part, started })
        };
        let attempts = inbox.first().map_or(0, |row| row.attempts);
        let (bash, read) = (tool("bash"), tool("read"));
        let owner = store.lease_holder(&session.id).unwrap().map(|holder| holder.owner);
        let open = store.permissions(&AskFilter::default()).unwrap();
        assert_rows_equal_log(&store, &session.id, &messages, &events);
        assert_counted(&store, &session.id, &messages);
        Self { stage, attempts, messages, owner, open, bash, read, events }
    }

    /// The session, once it has a message.
    pub fn session(&self) -> Option<&api::SessionId> {
        self.messages.first().map(|message| message.info.session_id())
    }

    /// Whether the turn ends as one that crashed too often; a complete answer counts nevertheless.
    fn given_up(&self) -> bool {
        match self.answers().last() {
            Some(last) if last.error.is_some() => true,
            Some(last) if last.finish.as_deref() == Some("stop") => false,
            _ => self.attempts + u32::from(self.owner.is_some()) >= CRASHES,
        }
    }

    /// The exit code of an undisturbed recovery.
    pub fn exit(&self) -> i32 {
        match self.stage {
            Stage::Nothing => 1,
            Stage::Empty | Stage::Ended => 2,
            Stage::Accepted => i32::from(self.given_up()),
        }
    }

    fn answers(&self) -> Vec<&AssistantMessage> {
        self.messages.iter().filter_map(|message| message.info.as_assistant()).collect()
    }

    fn count(&self, fits: impl Fn(&EventBody) -> bool) -> usize {
        self.events.iter().filter(|event| fits(&event.body)).count()
    }
}

/// Usage is counted once, whatever died in between: every answer is a model call that runs or is in the ledger, as it was reported
/// or as estimated when it was cut off.
pub fn assert_counted(store: &Store, session: &api::SessionId, messages: &[MessageWithParts]) {
    let (own, _) = store.usage(session).unwrap();
    let running = store.reservations(session).unwrap().len();
    let answers: Vec<_> = messages.iter().filter_map(|message| message.info.as_assistant()).collect();
    let asked = answers.iter().filter(|answer| answer.error.is_none()).count();
    assert_eq!(own.steps as usize + running, asked, "{own:#?}");
    assert_eq!(own.all_tokens() - own.estimated_tokens, STEP * (own.steps - own.estimated_steps), "{own:#?}");
    // A report is held until its step ends; then its message has it.
    if store.record("reported", session.as_str()).unwrap().is_none() {
        let told =
            |answer: &&AssistantMessage| Usage { tokens: answer.tokens.clone(), ..Usage::default() }.all_tokens();
        assert_eq!(answers.iter().map(told).sum::<u64>(), own.all_tokens() - own.estimated_tokens, "{answers:#?}");
    }
    let tools: Vec<&ToolPart> =
        messages.iter().flat_map(|message| message.parts.iter().filter_map(Part::as_tool)).collect();
    let began =
        tools.iter().filter(|tool| matches!(tool.state, ToolState::Running(_) | ToolState::Completed(_))).count();
    assert!((began..=tools.len()).contains(&(own.tool_calls as usize)), "{own:#?}");
}

/// P5, first half: all events after the first are replayed, in order and without a gap.
fn replay(fixture: &Fixture, store: &Store) -> Vec<Arc<Event>> {
    let mut events = Vec::new();
    for frame in fixture::replay(store, &fixture.origin) {
        // A part that still grows is sent once more, in its current state.
        let Some(cursor) = &frame.cursor else { continue };
        events.push(frame.event().unwrap());
        assert_eq!(cursor.seq, fixture.origin.seq + events.len() as u64, "the log has a gap");
    }
    assert_eq!(store.stats().unwrap().last_seq, fixture.origin.seq + events.len() as u64, "the replay ends too early");
    events
}

/// P5, second half: a listener learns everything that the rows contain.
fn assert_rows_equal_log(
    store: &Store,
    session: &api::SessionId,
    messages: &[MessageWithParts],
    events: &[Arc<Event>],
) {
    let (mut infos, mut parts, mut info) = (HashMap::new(), HashMap::new(), None);
    for event in events {
        match &event.body {
            EventBody::SessionCreated { info: new, .. } | EventBody::SessionUpdated { info: new, .. } => {
                info = Some((**new).clone());
            }
            EventBody::MessageUpdated { info, .. } => {
                infos.insert(info.id().clone(), (**info).clone());
            }
            EventBody::PartUpdated { part, .. } => {
                parts.insert(part.head().unwrap().id.clone(), (**part).clone());
            }
            _ => {}
        }
    }
    assert_eq!(info, store.session(session).unwrap());
    let mut known = 0;
    for message in messages {
        assert_eq!(infos.get(message.info.id()), Some(&message.info));
        for part in &message.parts {
            assert_eq!(parts.get(&part.head().unwrap().id), Some(part));
        }
        known += message.parts.len();
    }
    assert_eq!((infos.len(), parts.len()), (messages.len(), known), "the log tells of things that no row has");
}

/// What holds right after a kill: P1, and that everything that may have happened was announced (P3).
pub fn check_killed(fixture: &Fixture, ran: &RunResult) -> Facts {
    let facts = Facts::read(fixture);
    if ran.stdout.lines().next().is_some() {
        assert!(facts.stage >= Stage::Accepted, "P1: something was told of a prompt that is not there: {}", ran.stdout);
    }
    let may_have_run = facts.bash.as_ref().is_some_and(|bash| bash.started || done(&bash.part));
    assert!(fixture.effects() <= usize::from(may_have_run), "P3: the command ran before its intent was stored");
    for ask in &facts.open {
        assert_eq!(facts.bash.as_ref().map(|bash| (bash.started, done(&bash.part))), Some((false, false)), "{ask:?}");
    }
    facts
}

/// What holds after the last recovery; `before` is the state after the last kill.
pub fn check_settled(fixture: &Fixture, before: &Facts) -> Facts {
    // P11
    fixture.wait_for_silence();
    let after = Facts::read(fixture);
    let expected = if before.stage == Stage::Accepted { Stage::Ended } else { before.stage };
    assert_eq!(after.stage, expected, "P2");
    assert_eq!(after.owner, None, "P2: a lease is left");
    assert_eq!(after.open, [], "P2: an ask is left");
    check_calls(fixture, before, &after);
    if after.stage != Stage::Ended {
        return after;
    }
    let (answers, given_up) = (after.answers(), before.given_up());
    let last = answers.last().expect("P2: an answer");
    assert_eq!(last.error.is_some(), given_up, "P2: {last:#?}");
    assert_eq!(last.finish.as_deref(), (!given_up).then_some("stop"), "P2: {last:#?}");
    for answer in answers {
        let ends = after.count(|body| {
            matches!(body, EventBody::MessageUpdated { info, .. }
                if info.as_assistant().is_some_and(|info| info.id == answer.id && info.time.completed.is_some()))
        });
        assert_eq!(ends, 1, "P4: {answer:#?}");
    }
    assert_eq!(after.count(|body| matches!(body, EventBody::SessionIdle { .. })), 1, "P4");
    let idle = after.events.iter().rposition(|event| matches!(event.body, EventBody::SessionIdle { .. }));
    let busy = after.events.iter().rposition(
        |event| matches!(&event.body, EventBody::SessionStatus { status, .. } if *status != SessionStatus::Idle),
    );
    assert!(busy < idle, "P4: busy after idle");
    after
}

/// P3, P4 and P6 of the two calls.
fn check_calls(fixture: &Fixture, before: &Facts, after: &Facts) {
    for (was, is, repeatable) in [(&before.bash, &after.bash, false), (&before.read, &after.read, true)] {
        let Some(is) = is else {
            assert_eq!(*was, None, "a call is gone");
            continue;
        };
        assert!(!is.started, "the mark of an intent is left: {is:#?}");
        let same = |tool: &ToolPart| tool.head.id == is.part.head.id && done(tool);
        let ends =
            after.count(|body| matches!(body, EventBody::PartUpdated { part, .. } if part.as_tool().is_some_and(same)));
        assert_eq!(ends, 1, "P4: {is:#?}");
        match was {
            Some(was) if done(&was.part) => assert_eq!(*is, *was, "P4: a terminal state changed"),
            Some(was) => {
                // A call that the model had not finished writing cannot run, and one that is given up must not.
                let running = matches!(was.part.state, ToolState::Running(_)) && !before.given_up();
                let repeated = running && (repeatable || !was.started);
                assert_eq!(interrupted(&is.part), !repeated, "P3: {is:#?}");
            }
            None => assert!(!interrupted(&is.part), "P3: {is:#?}"),
        }
    }
    match &after.bash {
        Some(bash) if interrupted(&bash.part) => {
            // Its outcome is unknown, but it did not run twice, and if it never started it did not run at all.
            let may_have_run = before.bash.as_ref().is_some_and(|bash| bash.started || done(&bash.part));
            assert!(fixture.effects() <= usize::from(may_have_run), "P3");
        }
        bash => assert_eq!(fixture.effects(), usize::from(bash.is_some()), "P3"),
    }
    let asked = after.count(|body| matches!(body, EventBody::PermissionAsked(_)));
    let replied = after.count(|body| matches!(body, EventBody::PermissionReplied { .. }));
    assert!(asked <= 1 && asked == replied, "P6: asked {asked} times, answered {replied} times");
}

/// P6: an answered request accepts no other answer, and an unknown one none.
pub fn check_answered(fixture: &Fixture, ask: &PermissionRequest) {
    let store = fixture.journal();
    let answer = |id: &str| {
        let mut batch = Batch::new(&Location::new("", ""));
        batch.answer(id, &serde_json::json!({ "reply": "once" }));
        block_on(store.commit(batch)).unwrap_err()
    };
    assert!(matches!(answer(ask.id.as_str()), StoreError::NotOpen { answered: true, .. }));
    assert!(matches!(answer("per_unknown"), StoreError::NotOpen { answered: false, .. }));
}

fn done(tool: &ToolPart) -> bool {
    tool.state.is_done()
}

/// Whether a call ended with an unknown outcome.
pub fn interrupted(tool: &ToolPart) -> bool {
    let ToolState::Error(error) = &tool.state else { return false };
    let marked = error.metadata.as_ref().is_some_and(|data| data.get("interrupted") == Some(&api::Json::Bool(true)));
    assert!(marked && error.error.contains("interrupted"), "no call of this turn fails otherwise: {error:#?}");
    true
}
