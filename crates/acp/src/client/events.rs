//! What an agent tells and asks, in its order. The queue is bounded: while it is full, the agent is not read.

use std::collections::VecDeque;

use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use super::form::Form;
use super::subagents::{Family, Subagent};
use crate::rpc::{Received, Request, Source};

/// Messages that may wait.
const MAX_WAITING: usize = 256;

/// What an agent tells and asks.
#[derive(Debug)]
pub enum Event {
    /// Something happened in a session, or in one of a subagent.
    Update {
        /// Where.
        session: String,
        /// What, as `session/update` has it.
        update: Value,
    },
    /// A subagent appeared, or its state changed.
    Subagent(Subagent),
    /// It asks whether it may do something.
    Permission(Box<Permission>),
    /// It wants something filled in.
    Form(Box<Form>),
}

/// A message as it came.
pub(super) enum Heard {
    Event(Event),
    /// OpenCode's `child_update`.
    Child(Value),
}

/// A queue of what was heard.
pub(super) fn channel() -> (mpsc::Sender<Heard>, Events) {
    let (sender, heard) = mpsc::channel(MAX_WAITING);
    (sender, Events { heard, family: Family::default(), ready: VecDeque::new() })
}

/// The events of a connection.
pub struct Events {
    heard: mpsc::Receiver<Heard>,
    family: Family,
    /// What the last message meant: an update and what it says of a subagent.
    ready: VecDeque<Event>,
}

impl Events {
    /// The next event; nothing once the agent hung up. Nothing is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            match self.heard.recv().await? {
                Heard::Event(event) => {
                    let news = match &event {
                        Event::Update { session, update } => self.family.update(session, update),
                        _ => None,
                    };
                    // A call is known before the subagent that it waits for.
                    self.ready.push_back(event);
                    self.ready.extend(news.map(Event::Subagent));
                }
                Heard::Child(mut params) => {
                    let news = self.family.child_update(&params);
                    self.ready.extend(news.map(Event::Subagent));
                    if let (Some(session), true) = (params["childSessionId"].as_str(), params["update"].is_object()) {
                        let session = session.to_owned();
                        self.ready.push_back(Event::Update { session, update: params["update"].take() });
                    }
                }
            }
        }
    }

    /// How deep below its root a session is: 0 for one that is no subagent's.
    pub fn depth(&self, session: &str) -> usize {
        self.family.depth(session)
    }
}

/// A source that is read only while there is room for what it says: every message is at most one that is heard.
pub(super) struct Paced<S> {
    source: S,
    room: mpsc::Sender<Heard>,
}

impl<S> Paced<S> {
    pub fn new(source: S, room: mpsc::Sender<Heard>) -> Self {
        Self { source, room }
    }
}

impl<S: Source> Source for Paced<S> {
    async fn next(&mut self) -> Received {
        // An error means that nobody listens any more; then the rest is not kept.
        drop(self.room.reserve().await);
        self.source.next().await
    }
}

/// A choice that an agent offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Its id.
    pub id: String,
    /// What the human reads.
    pub name: String,
    /// `allow_once`, `allow_always`, `reject_once` or `reject_always`.
    pub kind: String,
}

/// A question whether something may be done. It must be answered.
pub struct Permission {
    /// The session that it is about.
    pub session: String,
    /// The call, as far as the agent describes it.
    pub call: Value,
    /// What can be answered.
    pub answers: Vec<Answer>,
    asker: Asker,
}

/// Who waits for the answer.
enum Asker {
    /// The agent asked.
    Agent(Request),
    /// The agent wants something done here, and never asked: whether it may.
    Here(oneshot::Sender<bool>),
}

/// The ids of the answers to what the agent never asked.
const ALLOW: &str = "allow_once";
const REJECT: &str = "reject_once";

impl std::fmt::Debug for Permission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Permission").field("session", &self.session).field("answers", &self.answers).finish()
    }
}

impl Permission {
    pub(super) fn new(mut request: Request) -> Self {
        let mut params = request.params.take();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let answer = |option: &Value| {
            let id = option["optionId"].as_str()?.to_owned();
            Some(Answer { name: text(&option["name"]), kind: text(&option["kind"]), id })
        };
        let answers = params["options"].as_array().into_iter().flatten().filter_map(answer).collect();
        let (session, call) = (text(&params["sessionId"]), params["toolCall"].take());
        Self { session, call, answers, asker: Asker::Agent(request) }
    }

    /// A question of our own about something that the agent wants done here. The receiver gets the answer; a question that is
    /// dropped is a no.
    pub(super) fn here(session: &Value, call: Value) -> (Self, oneshot::Receiver<bool>) {
        let answer = |id: &str, name: &str| Answer { id: id.to_owned(), name: name.to_owned(), kind: id.to_owned() };
        let answers = vec![answer(ALLOW, "Allow once"), answer(REJECT, "Reject")];
        let (sender, receiver) = oneshot::channel();
        let session = session.as_str().unwrap_or_default().to_owned();
        (Self { session, call, answers, asker: Asker::Here(sender) }, receiver)
    }

    /// Whether the agent itself asked.
    pub fn is_asked(&self) -> bool {
        matches!(self.asker, Asker::Agent(_))
    }

    /// The answer of the first of these kinds that is offered.
    pub fn of_kind(&self, kinds: &[&str]) -> Option<&Answer> {
        kinds.iter().find_map(|kind| self.answers.iter().find(|answer| answer.kind == *kind))
    }

    /// Waits until the agent no longer wants an answer.
    pub async fn withdrawn(&self) {
        match &self.asker {
            Asker::Agent(request) => request.cancel.cancelled().await,
            Asker::Here(_) => std::future::pending().await,
        }
    }

    /// Answers it.
    pub fn choose(self, id: &str) {
        match self.asker {
            Asker::Agent(request) => {
                request.reply(Ok(json!({"outcome": {"outcome": "selected", "optionId": id}})));
            }
            Asker::Here(answer) => drop(answer.send(id == ALLOW)),
        }
    }

    /// Allows it once, if that is offered.
    pub fn allow(self) {
        match self.of_kind(&["allow_once"]).map(|answer| answer.id.clone()) {
            Some(id) => self.choose(&id),
            None => self.cancel(),
        }
    }

    /// Says that nobody decides: the turn is over.
    pub fn cancel(self) {
        if let Asker::Agent(request) = self.asker {
            request.reply(Ok(json!({"outcome": {"outcome": "cancelled"}})));
        }
    }
}
