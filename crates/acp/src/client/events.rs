//! What an agent reports and asks, in order. The queue is bounded: while it is full, the agent's messages are not read.

use std::collections::VecDeque;

use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use super::form::Form;
use super::subagents::{Subagent, SubagentTracker};
use crate::rpc::{Received, Request, Source};

/// Messages that may be queued.
const MAX_QUEUED_MESSAGES: usize = 256;

/// What an agent reports or asks.
#[derive(Debug)]
pub enum Event {
    /// An update of a session, or of a subagent's session.
    Update {
        /// The session.
        session: String,
        /// The update, as in `session/update`.
        update: Value,
    },
    /// A subagent appeared, or its state changed.
    Subagent(Subagent),
    /// It asks for a permission.
    Permission(Box<Permission>),
    /// It asks for input.
    Form(Box<Form>),
}

/// A message from the agent, before it becomes events.
pub(super) enum AgentMessage {
    Event(Event),
    /// OpenCode's `child_update`.
    ChildUpdate(Value),
}

/// The queue of messages.
pub(super) fn channel() -> (mpsc::Sender<AgentMessage>, Events) {
    let (sender, messages) = mpsc::channel(MAX_QUEUED_MESSAGES);
    (sender, Events { messages, subagents: SubagentTracker::default(), ready: VecDeque::new() })
}

/// The events of a connection.
pub struct Events {
    messages: mpsc::Receiver<AgentMessage>,
    subagents: SubagentTracker,
    /// Events of the last message: an update, and what it says about a subagent.
    ready: VecDeque<Event>,
}

impl Events {
    /// Waits for the next event; `None` once the agent has disconnected. Cancel safe.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            match self.messages.recv().await? {
                AgentMessage::Event(event) => {
                    let changed = match &event {
                        Event::Update { session, update } => self.subagents.update(session, update),
                        _ => None,
                    };
                    // Report the call before the subagent that it waits for.
                    self.ready.push_back(event);
                    self.ready.extend(changed.map(Event::Subagent));
                }
                AgentMessage::ChildUpdate(mut params) => {
                    let changed = self.subagents.child_update(&params);
                    self.ready.extend(changed.map(Event::Subagent));
                    if let (Some(session), true) = (params["childSessionId"].as_str(), params["update"].is_object()) {
                        let session = session.to_owned();
                        self.ready.push_back(Event::Update { session, update: params["update"].take() });
                    }
                }
            }
        }
    }

    /// How deep below its root a session is: 0 for a session that is not a subagent's.
    pub fn depth(&self, session: &str) -> usize {
        self.subagents.depth(session)
    }
}

/// A source that is read only while the queue has room: every message adds at most one.
pub(super) struct BackpressureSource<S> {
    source: S,
    queue: mpsc::Sender<AgentMessage>,
}

impl<S> BackpressureSource<S> {
    pub fn new(source: S, queue: mpsc::Sender<AgentMessage>) -> Self {
        Self { source, queue }
    }
}

impl<S: Source> Source for BackpressureSource<S> {
    async fn next(&mut self) -> Received {
        // An error means that nobody listens any more; then messages are dropped.
        drop(self.queue.reserve().await);
        self.source.next().await
    }
}

/// An option that an agent offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermissionChoice {
    /// Its id.
    pub id: String,
    /// The name shown to the user.
    pub name: String,
    /// `allow_once`, `allow_always`, `reject_once` or `reject_always`.
    pub kind: String,
}

/// A permission request. It must be answered.
pub struct Permission {
    /// The session that it is about.
    pub session: String,
    /// The tool call, as far as the agent describes it.
    pub call: Value,
    /// The options.
    pub choices: Vec<PermissionChoice>,
    responder: Responder,
}

/// Where the answer goes.
enum Responder {
    /// To the agent, which asked.
    Agent(Request),
    /// To this client: the agent wants something done here and did not ask by itself.
    Local(oneshot::Sender<bool>),
}

/// The option ids of permission requests of our own.
const ALLOW: &str = "allow_once";
const REJECT: &str = "reject_once";

impl std::fmt::Debug for Permission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Permission").field("session", &self.session).field("choices", &self.choices).finish()
    }
}

impl Permission {
    pub(super) fn new(mut request: Request) -> Self {
        let mut params = request.params.take();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let choice = |option: &Value| {
            let id = option["optionId"].as_str()?.to_owned();
            Some(PermissionChoice { name: text(&option["name"]), kind: text(&option["kind"]), id })
        };
        let choices = params["options"].as_array().into_iter().flatten().filter_map(choice).collect();
        let (session, call) = (text(&params["sessionId"]), params["toolCall"].take());
        Self { session, call, choices, responder: Responder::Agent(request) }
    }

    /// A permission request of our own, about something that the agent wants done here. The receiver gets the answer;
    /// dropping the request means no.
    pub(super) fn local(session: &Value, call: Value) -> (Self, oneshot::Receiver<bool>) {
        let choice =
            |id: &str, name: &str| PermissionChoice { id: id.to_owned(), name: name.to_owned(), kind: id.to_owned() };
        let choices = vec![choice(ALLOW, "Allow once"), choice(REJECT, "Reject")];
        let (sender, receiver) = oneshot::channel();
        let session = session.as_str().unwrap_or_default().to_owned();
        (Self { session, call, choices, responder: Responder::Local(sender) }, receiver)
    }

    /// Whether the agent itself asked.
    pub fn is_from_agent(&self) -> bool {
        matches!(self.responder, Responder::Agent(_))
    }

    /// The first option with one of these kinds, in the order of `kinds`.
    pub fn choice_of_kind(&self, kinds: &[&str]) -> Option<&PermissionChoice> {
        kinds.iter().find_map(|kind| self.choices.iter().find(|choice| choice.kind == *kind))
    }

    /// Waits until the agent withdraws the request.
    pub async fn withdrawn(&self) {
        match &self.responder {
            Responder::Agent(request) => request.cancel.cancelled().await,
            Responder::Local(_) => std::future::pending().await,
        }
    }

    /// Answers with an option.
    pub fn choose(self, id: &str) {
        match self.responder {
            Responder::Agent(request) => {
                request.reply(Ok(json!({"outcome": {"outcome": "selected", "optionId": id}})));
            }
            Responder::Local(answer) => drop(answer.send(id == ALLOW)),
        }
    }

    /// Allows it once, if that is offered.
    pub fn allow(self) {
        match self.choice_of_kind(&["allow_once"]).map(|choice| choice.id.clone()) {
            Some(id) => self.choose(&id),
            None => self.cancel(),
        }
    }

    /// Answers that nobody will decide: the turn is over.
    pub fn cancel(self) {
        if let Responder::Agent(request) = self.responder {
            request.reply(Ok(json!({"outcome": {"outcome": "cancelled"}})));
        }
    }
}
