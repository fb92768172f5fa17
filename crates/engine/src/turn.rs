//! The turn loop: from an accepted prompt to its last answer.

use std::sync::{Arc, Mutex};

use api::{
    AssistantMessage, AssistantPath, AssistantTime, Bound, EventBody, Extra, Message, MessageError, MessageId,
    MessageWithParts, ModelRef, Part, PermissionReply, PermissionReplyKind, PermissionRequest, QuestionRequest,
    Session, SessionId, SessionStatus, SubtaskPart, Tokens, Usd, UserMessage,
};
use store::{Acquire, AskFilter, Batch, Lease, Signal, Store, StoreError};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::bound::Bond;
use crate::instance::Instance;
use crate::runs::{Occupied, Run};
use crate::step::{self, Next};
use crate::{Error, Inner, control, recover, remote, subtask, title};

/// The most steps of one turn; an agent may set fewer.
pub(crate) const STEPS_MAX: u32 = 1_000;
/// How often in a row a model may end without a reason before the turn is given up.
const UNKNOWN_MAX: u32 = 3;

/// Where a turn ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ran {
    /// In this process.
    Here,
    /// In another process, which was told about the prompt.
    Elsewhere,
}

/// What a turn sees before each step, all of one moment.
#[derive(Default)]
struct Look {
    /// The prompt to answer, with its session.
    prompt: Option<(UserMessage, Session)>,
    /// Whether it, or one above it, is paused.
    paused: bool,
    /// Whether there may be tasks in the background to wait for, before the turn ends.
    awaits: bool,
    /// What is to be settled at its end.
    asks: Asks,
}

/// Whom the turn has asked without an answer.
type Asks = (Vec<PermissionRequest>, Vec<QuestionRequest>);

/// A turn that this process runs, and what its steps share.
pub(crate) struct Turn {
    pub(crate) inner: Arc<Inner>,
    pub(crate) instance: Arc<Instance>,
    pub(crate) session_id: SessionId,
    pub(crate) lease: Lease,
    pub(crate) run: Arc<Run>,
    /// The tools' settings, with the instruction files that this conversation's model knows.
    pub(crate) options: Arc<tools::Options>,
    /// The calls of this turn as the model wrote them, to notice a model that turns in circles.
    pub(crate) called: Mutex<Vec<(String, String)>>,
    /// Lets so many subagents of this session work at once.
    pub(crate) subagents: Arc<Semaphore>,
    /// What goes out with the next commit, because that follows at once: a commit costs more than what it writes.
    held: Mutex<Option<Batch>>,
}

impl Inner {
    /// Runs the waiting prompts of a session to their end.
    pub(crate) async fn turn(self: &Arc<Self>, held: &mut Occupied) -> Result<Ran, Error> {
        let session_id = &held.session.clone();
        let instance = match held.instance() {
            Some(instance) => instance,
            None => {
                if self.closing.is_cancelled() {
                    return Err(Error::Parked);
                }
                // What is gone must get no lease.
                let Some(session) = self.store.session(session_id)? else { return Ok(Ran::Here) };
                self.instance(session.directory.as_ref())
            }
        };
        let (acquired, kept) = held.acquire().await?;
        let (lease, took_over, revision) = match acquired {
            Acquire::Taken { lease, took_over, revision } => (lease, took_over, revision),
            Acquire::Held { .. } => {
                self.store.signal(session_id, Signal::Wake).await?;
                return Ok(Ran::Elsewhere);
            }
        };
        let turn = Arc::new(Turn::new(self, instance, session_id, lease, &held.run));
        match turn.work(took_over, revision, kept).await {
            Ok(conversation) => {
                self.kept.put(conversation);
                Ok(Ran::Here)
            }
            Err(error) => {
                turn.give_back(&error).await;
                Err(error)
            }
        }
    }
}

impl Turn {
    pub(crate) fn new(
        inner: &Arc<Inner>,
        instance: Arc<Instance>,
        session_id: &SessionId,
        lease: Lease,
        run: &Arc<Run>,
    ) -> Self {
        let options = Arc::new(instance.options_for_session());
        let (inner, session_id, run) = (inner.clone(), session_id.clone(), run.clone());
        let subagents = inner.slots(&session_id, instance.limits.at_once);
        Self {
            inner,
            instance,
            session_id,
            lease,
            run,
            options,
            called: Mutex::default(),
            subagents,
            held: Mutex::default(),
        }
    }

    /// Gives the conversation as it is in the rows then.
    async fn work(
        self: &Arc<Self>,
        took_over: bool,
        revision: u64,
        kept: Option<Conversation>,
    ) -> Result<Conversation, Error> {
        let repaired = recover::repair(self, took_over, kept.is_some()).await?;
        let mut conversation = match kept.filter(|_| !repaired) {
            Some(kept) => kept,
            None => Conversation::load(&self.inner.store, &self.session_id, revision)?,
        };
        self.know(&conversation);
        let mut unknown = 0;
        // What the last look found, if there was one.
        let mut looked = None;
        for round in 0.. {
            let Look { prompt, paused, awaits, asks } = self.look(&mut conversation)?;
            let Some((user, session)) = prompt else {
                if awaits && self.await_background(&conversation.pending).await? {
                    continue;
                }
                if round == 0 && !(took_over || repaired) {
                    // Whoever started this saw a prompt that another run has answered since: nobody hears of it.
                    let mut batch = self.batch();
                    batch.release(&self.lease);
                    self.store().commit(batch).await?;
                    return Ok(conversation);
                }
                looked = Some(asks);
                break;
            };
            let mut batch = self.batch();
            batch.event(self.status_event(SessionStatus::Busy));
            self.hold(batch);
            if paused {
                self.wait_out_pause().await?;
            }
            if round == 0 {
                self.name(&conversation, &user, &session);
            }
            let number = conversation.steps(&user.id);
            if round.max(number) >= STEPS_MAX {
                let text = format!("The turn was stopped after {STEPS_MAX} steps");
                let error = MessageError::limit(Bound::Steps, text);
                step::fail(self, &mut conversation, &user, error).await?;
                break;
            }
            let next = match conversation.subtask() {
                Some((prompt, task)) => subtask::run(self, &mut conversation, &prompt, &task).await?,
                None if conversation.is_command(&user.id) => subtask::follow_up(self, &user).await?,
                None if self.instance.remote(&user.agent).is_some() => {
                    remote::run(self, &mut conversation, &user).await?
                }
                None => step::run(self, &mut conversation, &user, &session, number).await?,
            };
            match next {
                Next::Continue => unknown = 0,
                Next::Unknown if unknown + 1 < UNKNOWN_MAX => unknown += 1,
                Next::Unknown => {
                    let text = format!("The model ended its answer without a reason {UNKNOWN_MAX} times in a row");
                    step::fail(self, &mut conversation, &user, MessageError::unknown(text)).await?;
                    break;
                }
                Next::Stop => break,
            }
        }
        if self.cancel().is_cancelled() {
            self.abandon(&mut conversation).await?;
            if !self.run.is_parked() {
                self.flush().await?;
                self.inner.end_background(&self.session_id).await?;
            }
        }
        self.finish(&conversation, looked).await?;
        self.run.settle(std::mem::take(&mut conversation.pending), conversation.last_answer());
        Ok(conversation)
    }

    /// Prompts that waited when the turn was aborted are aborted with it, visibly.
    async fn abandon(&self, conversation: &mut Conversation) -> Result<(), Error> {
        while let Some(user) = conversation.next(&self.inner.store)? {
            step::fail(self, conversation, &user, MessageError::aborted()).await?;
        }
        Ok(())
    }

    /// The instruction files that earlier reads brought along need not come again.
    fn know(&self, conversation: &Conversation) {
        let tools = conversation.messages.iter().flat_map(|m| m.parts.iter().filter_map(api::Part::as_tool));
        for tool in tools.filter(|tool| tool.tool == "read") {
            if let api::ToolState::Completed(done) = &tool.state
                && let Some(files) = done.metadata.get("loaded").and_then(api::Json::as_array)
            {
                for file in files.iter().filter_map(api::Json::as_str) {
                    self.options.loaded_instructions.claim(file.as_ref());
                }
            }
        }
    }

    /// A batch of this turn, with what was held back: refused once somebody else holds the session.
    pub(crate) fn batch(&self) -> Batch {
        let held = crate::lock(&self.held).take();
        held.unwrap_or_else(|| Batch::new(&self.instance.place).fence(&self.lease))
    }

    /// Leaves a batch to the next commit of this turn. Only for what that commit follows at once: before a wait it must go
    /// out by itself.
    pub(crate) fn hold(&self, batch: Batch) {
        let mut held = crate::lock(&self.held);
        match &mut *held {
            Some(held) => held.append(batch),
            None => *held = Some(batch),
        }
    }

    /// Text that grew reaches subscribers, behind what is held back.
    pub(crate) fn live(&self, part: &Part, delta: &str) {
        match &mut *crate::lock(&self.held) {
            Some(held) => held.live(part, delta),
            None => self.store().live(&self.instance.place, part, delta),
        }
    }

    /// Sends out what was held back.
    pub(crate) async fn flush(&self) -> Result<(), StoreError> {
        let held = crate::lock(&self.held).take();
        match held {
            Some(batch) => self.store().commit(batch).await.map(drop),
            None => Ok(()),
        }
    }

    pub(crate) fn store(&self) -> &Store {
        &self.inner.store
    }

    pub(crate) fn cancel(&self) -> &CancellationToken {
        &self.run.cancel
    }

    /// Says what the session does.
    pub(crate) async fn status(&self, status: SessionStatus) -> Result<(), StoreError> {
        let mut batch = self.batch();
        batch.event(self.status_event(status));
        self.store().commit(batch).await.map(drop)
    }

    pub(crate) fn status_event(&self, status: SessionStatus) -> EventBody {
        EventBody::SessionStatus { session_id: self.session_id.clone(), status }
    }

    /// A new assistant message that answers a prompt.
    pub(crate) fn answer_to(&self, user: &UserMessage) -> AssistantMessage {
        assistant(&self.instance, &self.session_id, &user.id, &user.agent, &user.model)
    }

    /// What is to be done next, and what decides about it.
    fn look(&self, conversation: &mut Conversation) -> Result<Look, Error> {
        let look = self.store().together(|store| {
            let Some(user) = conversation.next(store)? else {
                let (awaits, asks) = (!Bond::background(store)?.is_empty(), self.asks(store)?);
                return Ok(Look { awaits, asks, ..Look::default() });
            };
            let session = store.session(&self.session_id)?;
            let session = session.ok_or_else(|| StoreError::Stale { session: self.session_id.clone() })?;
            let paused = control::is_paused(store, &self.session_id)?;
            Ok(Look { prompt: Some((user, session)), paused, ..Look::default() })
        });
        Ok(look?)
    }

    /// Asks for a title, beside the turn, while the session has none.
    fn name(&self, conversation: &Conversation, user: &UserMessage, session: &Session) {
        if session.parent_id.is_none() && title::is_initial(&session.title) {
            let text = conversation.text_of(&user.id);
            let (instance, id) = (self.instance.clone(), self.session_id.clone());
            title::generate(&self.inner, instance, id, text, user.model.clone());
        }
    }

    fn asks(&self, store: &Store) -> Result<Asks, StoreError> {
        let filter = AskFilter { session: Some(self.session_id.clone()), ..AskFilter::default() };
        Ok((store.permissions(&filter)?, store.questions(&filter)?))
    }

    /// The end of the turn, in one durable commit: its prompts are done, its asks are settled, the session is idle and
    /// free. `looked`: it ends after a look, which has found these asks.
    async fn finish(&self, conversation: &Conversation, looked: Option<Asks>) -> Result<(), Error> {
        let mut batch = self.batch().durable();
        if looked.is_some() {
            // Clients are told `busy` before every look for work, the last one included.
            batch.event(self.status_event(SessionStatus::Busy));
        }
        let (permissions, questions) = match looked {
            Some(asks) => asks,
            None => self.store().together(|store| self.asks(store))?,
        };
        for ask in permissions {
            let reply = PermissionReply { reply: PermissionReplyKind::Reject, message: None };
            crate::asks::settle(&mut batch, &ask, &reply);
        }
        for ask in questions {
            let rejected = EventBody::QuestionRejected { session_id: ask.session_id, request_id: ask.id.clone() };
            batch.settle(ask.id.as_str(), &serde_json::json!({ "answers": null }), rejected);
        }
        for message in &conversation.pending {
            batch.dequeue(message);
        }
        self.idle(&mut batch);
        self.store().commit(batch).await?;
        self.inner.freed.tell();
        Ok(())
    }

    pub(crate) fn idle(&self, batch: &mut Batch) {
        batch.event(self.status_event(SessionStatus::Idle));
        batch.event(EventBody::SessionIdle { session_id: self.session_id.clone() });
        batch.release(&self.lease);
    }

    /// Leaves a turn that cannot go on: the session is free again, its prompts stay accepted.
    pub(crate) async fn give_back(&self, error: &Error) {
        let mut batch = self.batch();
        if matches!(error, Error::Parked) {
            // The turn has not ended, so nobody is told that it has.
            batch.release(&self.lease);
        } else {
            // A turn that fails whatever is tried must not be tried for ever.
            for row in self.store().inbox(&self.session_id).unwrap_or_default() {
                batch.attempt(&row.message_id);
            }
            let error = Some(MessageError::unknown(error.to_string()));
            batch.event(EventBody::SessionError { session_id: Some(self.session_id.clone()), error });
            self.idle(&mut batch);
        }
        if let Err(error) = self.store().commit(batch).await {
            tracing::warn!(session = %self.session_id, %error, "the session could not be given back");
        }
    }
}

/// A new assistant message.
pub(crate) fn assistant(
    instance: &Instance,
    session: &SessionId,
    parent: &MessageId,
    agent: &str,
    model: &ModelRef,
) -> AssistantMessage {
    AssistantMessage {
        id: MessageId::new(),
        session_id: session.clone(),
        parent_id: parent.clone(),
        mode: agent.to_owned(),
        agent: agent.to_owned(),
        path: AssistantPath {
            cwd: instance.directory.to_string_lossy().into_owned(),
            root: instance.worktree().to_string_lossy().into_owned(),
        },
        cost: Usd::default(),
        tokens: Tokens::default(),
        model_id: model.model_id.clone(),
        provider_id: model.provider_id.clone(),
        time: AssistantTime { created: api::now(), completed: None },
        error: None,
        summary: None,
        structured: None,
        variant: model.variant.clone(),
        finish: None,
        extra: Extra::default(),
    }
}

/// The messages of a session, and which of them wait for an answer.
pub(crate) struct Conversation {
    pub(crate) session: SessionId,
    /// The store's when the messages were read.
    pub(crate) revision: u64,
    /// What the messages take as JSON, about.
    pub(crate) bytes: usize,
    pub(crate) messages: Vec<MessageWithParts>,
    /// The accepted prompts that this turn has seen, in the order of their acceptance.
    pub(crate) pending: Vec<MessageId>,
}

impl Conversation {
    fn load(store: &Store, session: &SessionId, revision: u64) -> Result<Self, StoreError> {
        let messages = store.messages(session, None, None)?.messages;
        let bytes = messages.iter().map(size).sum();
        Ok(Self { session: session.clone(), revision, bytes, messages, pending: Vec::new() })
    }

    /// The prompt to answer next: the newest that waits, unless it has its final answer. What came in meanwhile joins the
    /// conversation here, prompts and mere notes alike.
    fn next(&mut self, store: &Store) -> Result<Option<UserMessage>, StoreError> {
        let inbox = store.inbox(&self.session)?;
        for row in &inbox {
            if !self.pending.contains(&row.message_id) {
                self.pending.push(row.message_id.clone());
            }
        }
        let Some(newest) = self.pending.last().filter(|newest| !self.is_answered(newest)).cloned() else {
            return Ok(None);
        };
        let newer = match self.messages.last() {
            Some(last) => store.message_ids_from(&self.session, last.info.id())?,
            None => Vec::new(),
        };
        let known = self.messages.len();
        for id in newer.iter().chain(inbox.iter().map(|row| &row.message_id)) {
            if self.messages.iter().rev().any(|m| m.info.id() == id) {
                continue;
            }
            if let Some(message) = store.message(id)?.filter(|message| message.info.as_user().is_some()) {
                self.add(message);
            }
        }
        if self.messages.len() > known {
            self.messages.sort_by(|a, b| (a.info.created(), a.info.id()).cmp(&(b.info.created(), b.info.id())));
        }
        let mut users = self.messages.iter().rev().filter_map(|m| m.info.as_user());
        Ok(users.find(|user| user.id == newest).cloned())
    }

    /// Whether a prompt has its final answer.
    fn is_answered(&self, prompt: &MessageId) -> bool {
        let answers = self.messages.iter().rev().filter_map(|m| m.info.as_assistant());
        answers.filter(|answer| answer.parent_id == *prompt).any(is_final)
    }

    /// How many steps a prompt has had, in this process and others.
    fn steps(&self, prompt: &MessageId) -> u32 {
        let steps = self.messages.iter().filter_map(|m| m.info.as_assistant()).filter(|a| a.parent_id == *prompt);
        u32::try_from(steps.count()).unwrap_or(u32::MAX)
    }

    /// The next task that a prompt hands to a subagent without asking the model. Its call has the part's id.
    fn subtask(&self) -> Option<(UserMessage, SubtaskPart)> {
        let prompts = self.pending.iter().filter_map(|id| self.messages.iter().find(|m| m.info.id() == id));
        let tasks = prompts.flat_map(|m| m.parts.iter().filter_map(Part::as_subtask).map(move |task| (m, task)));
        let tools = self.messages.iter().rev().flat_map(|m| m.parts.iter().filter_map(Part::as_tool));
        let (message, task) =
            tasks.into_iter().find(|(_, task)| !tools.clone().any(|tool| tool.call_id == task.head.id.as_str()))?;
        Some((message.info.as_user()?.clone(), task.clone()))
    }

    /// Whether a prompt is a command whose work a subagent has done.
    fn is_command(&self, prompt: &MessageId) -> bool {
        let message = self.messages.iter().find(|m| m.info.id() == prompt);
        message.is_some_and(|m| m.parts.iter().filter_map(Part::as_subtask).any(|task| task.command.is_some()))
    }

    /// What the human wrote in a message.
    fn text_of(&self, id: &MessageId) -> String {
        let message = self.messages.iter().find(|m| m.info.id() == id);
        let parts = message.map(|m| m.parts.as_slice()).unwrap_or_default();
        let typed = parts.iter().filter_map(api::Part::as_text).filter(|t| t.synthetic != Some(true));
        typed.map(|t| t.text.as_str()).collect::<Vec<_>>().join("\n")
    }

    /// The newest message of the model.
    fn last_answer(&self) -> Option<MessageId> {
        let last = self.messages.iter().rfind(|m| m.info.as_assistant().is_some());
        last.map(|message| message.info.id().clone())
    }

    /// Adds a finished step.
    pub(crate) fn push(&mut self, message: AssistantMessage, parts: Vec<api::Part>) {
        self.add(MessageWithParts { info: Message::Assistant(message), parts });
    }

    fn add(&mut self, message: MessageWithParts) {
        self.bytes += size(&message);
        self.messages.push(message);
    }
}

/// What something takes as JSON.
pub(crate) fn size(value: &impl serde::Serialize) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // What cannot be written as JSON could not be stored either.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

/// The place of the answer to a prompt, as the rows tell it: the message that ended its turn. Prompts that came before that
/// message was complete have joined the turn, and its answer is the answer to the last of them.
pub(crate) fn answer(messages: &[MessageWithParts], prompt: &MessageId) -> Option<usize> {
    let asked = messages.iter().rposition(|m| m.info.id() == prompt)?;
    let parent = |answer: &AssistantMessage| messages[asked..].iter().find(|m| *m.info.id() == answer.parent_id);
    let mut found: Option<(usize, i64)> = None;
    for (place, message) in messages.iter().enumerate().skip(asked) {
        let Some(answer) = message.info.as_assistant() else { continue };
        // Answers to earlier prompts are not its own.
        let Some(parent) = parent(answer) else { continue };
        match found {
            Some((_, completed)) if parent.info.created() > completed => break,
            _ if is_final(answer) => found = Some((place, answer.time.completed.unwrap_or(i64::MAX))),
            _ => {}
        }
    }
    let own = |m: &MessageWithParts| m.info.as_assistant().is_some_and(|answer| answer.parent_id == *prompt);
    // A turn that was stopped between two steps has no message that ends it.
    found.map(|(place, _)| place).or_else(|| messages.iter().rposition(own))
}

/// Whether an answer ends its turn.
pub(crate) fn is_final(message: &AssistantMessage) -> bool {
    message.error.is_some()
        || message.structured.is_some()
        || message.finish.as_deref().is_some_and(|finish| finish != "tool-calls" && finish != "unknown")
}
