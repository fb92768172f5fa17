//! From a prompt to its answer. `submit` accepts a prompt durably, `runs` starts its turn, and the loop in this file
//! runs steps until the last answer: `step` calls the model, `tool_call` runs the tools. `recovery` repairs what a
//! crash interrupted.
//!
//! The state of a turn is derived from rows, so another process can resume it. Every write of a turn goes through
//! [`Turn::commit`].

pub(crate) mod batch;
pub(crate) mod command;
pub(crate) mod conversation;
pub(crate) mod conversation_cache;
pub(crate) mod history;
pub(crate) mod input;
pub(crate) mod known_files;
pub(crate) mod local;
pub(crate) mod prompt;
pub(crate) mod recovery;
pub(crate) mod runs;
pub(crate) mod shell;
pub(crate) mod step;
pub(crate) mod structured_output;
pub(crate) mod submit;
pub(crate) mod system;
pub(crate) mod template;
pub(crate) mod text_writer;
pub(crate) mod title;
pub(crate) mod tool_call;
pub(crate) mod trace;
pub(crate) mod turns;
pub(crate) mod vendor_data;
pub(crate) mod watchdog;
pub(crate) mod write_retry;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use api::{
    AssistantMessage, AssistantPath, AssistantTime, Bound, EventBody, Extra, IdStamp, MessageError, MessageId,
    MessageWithParts, ModelRef, PermissionReply, PermissionReplyKind, PermissionRequest, QuestionRequest, Session,
    SessionId, SessionStatus, Tokens, Usd, UserMessage,
};
use store::{AcquireOutcome, AskFilter, Batch, InboxEntry, Lease, Location, Signal, Store, StoreError, TurnEnd};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::ask::rules::Rules;
use crate::project::instance::Instance;
use crate::subagent::subtask;
use crate::{Error, Inner, remote};
use batch::DeferredWrites;
pub(crate) use conversation::Conversation;
use conversation::is_final;
use runs::{ClaimedTurn, Run, SessionGuard};
use step::AfterStep;
use write_retry::WriteRetry;

/// The maximum number of steps of one turn; an agent may set fewer.
pub(crate) const STEPS_MAX: u32 = 1_000;
/// How often in a row a model may end without a finish reason before the turn fails.
const UNKNOWN_MAX: u32 = 3;

/// Where a turn ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TurnLocation {
    /// In this process.
    Here,
    /// In another process, which was notified of the prompt.
    Elsewhere,
}

/// What a turn reads before each step, in one snapshot.
#[derive(Default)]
struct TurnSnapshot {
    /// The prompt to answer, its session, and the rules for its agent's calls.
    prompt: Option<(UserMessage, Session, Rules)>,
    /// Whether the session or an ancestor is paused.
    paused: bool,
    /// Whether there may be background tasks to wait for before the turn ends.
    has_background_tasks: bool,
    /// The asks to settle at its end.
    asks: OpenAsks,
}

/// The turn's asks without a reply.
type OpenAsks = (Vec<PermissionRequest>, Vec<QuestionRequest>);

/// A turn running in this process: the state shared by its steps.
pub(crate) struct Turn {
    pub(crate) inner: Arc<Inner>,
    pub(crate) instance: Arc<Instance>,
    pub(crate) session_id: SessionId,
    pub(crate) lease: Lease,
    pub(crate) run: Arc<Run>,
    /// Its number in the session; 0 until it has one.
    number: AtomicU64,
    /// Whether its row says that it runs, or will with the next commit.
    has_begun: AtomicBool,
    /// The tool settings, including the instruction files the model has already read.
    pub(crate) options: Arc<tools::Options>,
    /// The calls of this turn as the model wrote them, to detect a model that repeats itself.
    pub(crate) past_calls: Mutex<Vec<(String, String)>>,
    /// Limits how many subagents of this session work concurrently.
    pub(crate) subagent_slots: Arc<Semaphore>,
    deferred: DeferredWrites,
    /// The greatest stamp among the session's message ids.
    newest_stamp: Mutex<IdStamp>,
}

impl Inner {
    /// Acquires the lease of a session, unless it came with a prompt. Returns `None` if the session is gone.
    async fn acquire_turn(self: &Arc<Self>, guard: &mut SessionGuard) -> Result<Option<ClaimedTurn>, Error> {
        if let Some(claimed) = guard.take_claim() {
            return Ok(Some(claimed));
        }
        if self.tasks.is_closing() {
            return Err(Error::Parked);
        }
        // A deleted session must not get a lease.
        let Some(session) = self.store.session(&guard.session)? else { return Ok(None) };
        let instance = self.current_instance(session.directory.as_ref()).await;
        let mut retry = self.write_retry(None);
        loop {
            let acquired = guard.acquire().await;
            if !retry.should_retry(&acquired).await {
                let (acquired, cached) = acquired?;
                return Ok(Some(ClaimedTurn { instance, acquired, cached }));
            }
        }
    }

    /// Runs the waiting prompts of a session.
    pub(crate) async fn run_turn(self: &Arc<Self>, guard: &mut SessionGuard) -> Result<TurnLocation, Error> {
        let session_id = &guard.session.clone();
        let Some(ClaimedTurn { instance, acquired, cached }) = self.acquire_turn(guard).await? else {
            return Ok(TurnLocation::Here);
        };
        let (lease, took_over, revision, newest, next) = match acquired {
            AcquireOutcome::Acquired { lease, took_over, revision, newest, turn } => {
                (lease, took_over, revision, newest, turn)
            }
            AcquireOutcome::HeldElsewhere { .. } => {
                let mut retry = self.write_retry(None);
                loop {
                    let signalled = self.store.signal(session_id, Signal::Wake).await;
                    if !retry.should_retry(&signalled).await {
                        signalled?;
                        return Ok(TurnLocation::Elsewhere);
                    }
                }
            }
        };
        let turn = Arc::new(Turn::new(self, instance, session_id, lease, newest, &guard.run));
        turn.set_number(next.map(|next| next.number));
        // A lease left over because nothing could be written is not a crash.
        let crashed = took_over && !self.turns.take_given_up(session_id);
        let is_queued = next.is_some_and(|next| next.is_queued);
        match turn.run_to_end(is_queued, crashed, revision, cached).await {
            Ok(conversation) => {
                self.turns.conversations().put(conversation);
                Ok(TurnLocation::Here)
            }
            Err(error) => {
                turn.release_session(&error).await;
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
        newest: IdStamp,
        run: &Arc<Run>,
    ) -> Self {
        let options = Arc::new(instance.options_for_session(session_id, inner.known_files(session_id)));
        let (inner, session_id, run) = (inner.clone(), session_id.clone(), run.clone());
        let subagent_slots = inner.subagents.slots(&session_id, instance.limits.max_concurrent);
        Self {
            inner,
            instance,
            session_id,
            lease,
            run,
            number: AtomicU64::new(0),
            has_begun: AtomicBool::new(false),
            options,
            past_calls: Mutex::default(),
            subagent_slots,
            deferred: DeferredWrites::default(),
            newest_stamp: Mutex::new(newest),
        }
    }

    /// A new message id. It sorts after all messages of the session, whatever the clock says, because clients sort by
    /// id.
    pub(crate) fn new_message_id(&self) -> MessageId {
        let id = MessageId::after(*crate::lock(&self.newest_stamp));
        self.note_message_id(&id);
        id
    }

    /// Records that the session has a message with this id.
    fn note_message_id(&self, id: &MessageId) {
        self.raise_stamp(IdStamp::of(id.as_str()).unwrap_or_default());
    }

    fn raise_stamp(&self, stamp: IdStamp) {
        let mut newest = crate::lock(&self.newest_stamp);
        *newest = stamp.max(*newest);
    }

    /// Its number in the session, if it has one yet.
    pub(crate) fn number(&self) -> Option<u64> {
        Some(self.number.load(Ordering::Relaxed)).filter(|number| *number > 0)
    }

    /// Records its number.
    pub(crate) fn set_number(&self, number: Option<u64>) {
        self.number.store(number.unwrap_or_default(), Ordering::Relaxed);
        self.run.set_turn(number);
    }

    /// Where its events happen.
    pub(crate) fn place(&self) -> Location {
        self.instance.place.in_turn(self.number())
    }

    /// Marks the turn as running with the next commit, once it has a number.
    fn begin(&self) {
        if let Some(number) = self.number()
            && !self.has_begun.swap(true, Ordering::Relaxed)
        {
            let mut batch = self.batch();
            batch.begin_turn(&self.session_id, Some(number));
            self.defer(batch);
        }
    }

    /// Begins a turn that no prompt asked for, because background tasks will.
    pub(crate) async fn begin_without_prompt(&self) -> Result<(), StoreError> {
        let mut batch = self.batch();
        if self.number().is_none() && !self.has_begun.swap(true, Ordering::Relaxed) {
            batch.begin_turn(&self.session_id, None);
        }
        batch.event(self.status_event(SessionStatus::Busy));
        let committed = self.commit(batch).await?;
        if self.number().is_none() {
            self.set_number(committed.turn);
        }
        Ok(())
    }

    /// Runs the turn to its end. Returns the conversation, which then matches the rows.
    async fn run_to_end(
        self: &Arc<Self>,
        is_queued: bool,
        crashed: bool,
        revision: u64,
        cached: Option<Conversation>,
    ) -> Result<Conversation, Error> {
        self.begin();
        let repaired = recovery::repair(self, crashed, cached.is_some()).await?;
        if is_queued && !self.promote().await? {
            return Ok(Conversation::empty(&self.session_id, 0));
        }
        let mut conversation = match cached.filter(|_| !repaired) {
            Some(cached) => cached,
            None => Conversation::load(&self.inner.store, &self.session_id, revision).await?,
        };
        self.note_instructions(&conversation);
        loop {
            let open_asks = self.run_steps(&mut conversation).await?;
            if self.number().is_none() && !repaired {
                // Another run has answered the prompt since this one was started: tell nobody.
                let mut batch = self.batch();
                batch.release(&self.lease);
                self.commit(batch).await?;
                return Ok(conversation);
            }
            if self.cancel().is_cancelled() {
                self.abort_waiting_prompts(&mut conversation).await?;
                if !self.run.is_parked() {
                    self.flush().await?;
                    self.inner.stop_background(&self.session_id).await?;
                }
            }
            // A prompt that joins at the last moment is answered in the same turn.
            if self.finish(&mut conversation, open_asks).await? {
                return Ok(conversation);
            }
        }
    }

    /// Runs steps until no prompt is left. Returns the open asks, if it ended after a snapshot.
    async fn run_steps(self: &Arc<Self>, conversation: &mut Conversation) -> Result<Option<OpenAsks>, Error> {
        let mut unknown_ends = 0;
        for round in 0.. {
            let TurnSnapshot { prompt, paused, has_background_tasks, asks } = self.snapshot(conversation).await?;
            let Some((user, session, mut rules)) = prompt else {
                if has_background_tasks && self.await_background(&conversation.pending).await? {
                    continue;
                }
                return Ok(Some(asks));
            };
            let mut batch = self.batch();
            batch.event(self.status_event(SessionStatus::Busy));
            self.defer(batch);
            if paused {
                self.wait_out_pause().await?;
                rules = self.rules(&user.agent).await?;
            }
            if round == 0 {
                self.start_title(conversation, &user, &session);
            }
            let number = conversation.steps(&user.id);
            if round.max(number) >= STEPS_MAX {
                let text = format!("The turn was stopped after {STEPS_MAX} steps");
                let error = MessageError::limit(Bound::Steps, text);
                step::end_with_error(self, conversation, &user, error).await?;
                break;
            }
            let next = match conversation.next_subtask() {
                Some((prompt, task)) => subtask::run(self, conversation, &prompt, &task).await?,
                None if conversation.is_delegated_command(&user.id) => subtask::follow_up(self, &user).await?,
                None if self.instance.remote(&user.agent).is_some() => {
                    remote::run(self, conversation, &user, rules).await?
                }
                None => {
                    let parent = session.parent_id.as_ref();
                    step::run(self, conversation, &user, rules, parent, number).await?
                }
            };
            match next {
                AfterStep::Continue => unknown_ends = 0,
                AfterStep::Unknown if unknown_ends + 1 < UNKNOWN_MAX => unknown_ends += 1,
                AfterStep::Unknown => {
                    let text = format!("The model ended its answer without a reason {UNKNOWN_MAX} times in a row");
                    step::end_with_error(self, conversation, &user, MessageError::unknown(text)).await?;
                    break;
                }
                AfterStep::Stop => break,
            }
        }
        Ok(None)
    }

    /// Visibly aborts the prompts that were waiting when the turn was aborted.
    async fn abort_waiting_prompts(&self, conversation: &mut Conversation) -> Result<(), Error> {
        while let Some(user) = conversation.next_prompt(&self.inner.store, self.number())? {
            step::end_with_error(self, conversation, &user, MessageError::aborted()).await?;
        }
        Ok(())
    }

    /// Marks the instruction files of earlier reads as known to the model.
    fn note_instructions(&self, conversation: &Conversation) {
        for file in conversation.instructions() {
            self.options.loaded_instructions.claim(file.as_ref());
        }
    }

    /// Retries for one write or read of this turn.
    pub(crate) fn write_retry(&self) -> WriteRetry<'_> {
        self.inner.write_retry(Some((&self.instance.place, &self.session_id)))
    }

    pub(crate) fn store(&self) -> &Store {
        &self.inner.store
    }

    pub(crate) fn cancel(&self) -> &CancellationToken {
        &self.run.cancel
    }

    pub(crate) fn status_event(&self, status: SessionStatus) -> EventBody {
        EventBody::SessionStatus { session_id: self.session_id.clone(), status }
    }

    /// A new assistant message that answers a prompt.
    pub(crate) fn new_answer(&self, user: &UserMessage) -> AssistantMessage {
        self.note_message_id(&user.id);
        self.new_assistant_message(&user.id, &user.agent, &user.model)
    }

    /// A new assistant message.
    pub(crate) fn new_assistant_message(&self, parent: &MessageId, agent: &str, model: &ModelRef) -> AssistantMessage {
        AssistantMessage {
            id: self.new_message_id(),
            session_id: self.session_id.clone(),
            parent_id: parent.clone(),
            mode: agent.to_owned(),
            agent: agent.to_owned(),
            path: AssistantPath {
                cwd: self.instance.directory.to_string_lossy().into_owned(),
                root: self.instance.worktree().to_string_lossy().into_owned(),
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

    /// Reads what to do next and what decides about it.
    async fn snapshot(&self, conversation: &mut Conversation) -> Result<TurnSnapshot, Error> {
        let mut retry = self.write_retry();
        loop {
            let snapshot = self.store().snapshot(|store| {
                let Some(user) = conversation.next_prompt(store, self.number())? else {
                    let (has_background_tasks, asks) =
                        (store.has_background_tasks(&self.session_id)?, self.open_asks(store)?);
                    return Ok(TurnSnapshot { has_background_tasks, asks, ..TurnSnapshot::default() });
                };
                self.raise_stamp(conversation.stamp());
                let session = self.session(store)?;
                let paused = store.is_lineage_paused(&self.session_id)?;
                let rules = self.rules_in(store, &session, &user.agent)?;
                Ok(TurnSnapshot { prompt: Some((user, session, rules)), paused, ..TurnSnapshot::default() })
            });
            if !retry.should_retry(&snapshot).await {
                return Ok(snapshot?);
            }
        }
    }

    /// The prompts of this turn that wait.
    pub(crate) fn inbox(&self) -> Result<Vec<InboxEntry>, StoreError> {
        let mut inbox = self.store().inbox(&self.session_id)?;
        inbox.retain(|row| Some(row.turn) == self.number());
        Ok(inbox)
    }

    /// The turn's session.
    pub(crate) fn session(&self, store: &Store) -> Result<Session, StoreError> {
        let session = store.session(&self.session_id)?;
        session.ok_or_else(|| StoreError::Stale { session: self.session_id.clone() })
    }

    /// Starts writing a title in parallel, while the session has none.
    fn start_title(&self, conversation: &Conversation, user: &UserMessage, session: &Session) {
        if session.parent_id.is_none() && title::is_initial(&session.title) {
            let text = conversation.text_of(&user.id);
            title::generate(&self.inner, self.instance.clone(), session, text, user.model.clone());
        }
    }

    fn open_asks(&self, store: &Store) -> Result<OpenAsks, StoreError> {
        let filter = AskFilter { session: Some(self.session_id.clone()), ..AskFilter::default() };
        Ok((store.permissions(&filter)?, store.questions(&filter)?))
    }

    /// Ends the turn in one durable commit: its prompts are done, its asks settled, and the session idle and free.
    /// Returns false if a prompt has joined meanwhile, so that the turn goes on. `open_asks` comes from the last
    /// snapshot, if the steps ended after one.
    async fn finish(&self, conversation: &mut Conversation, open_asks: Option<OpenAsks>) -> Result<bool, Error> {
        // Clients see `busy` before every look for work, including the last one.
        let ended_after_snapshot = open_asks.is_some();
        let (permissions, questions) = match open_asks {
            Some(asks) => asks,
            None => self.store().snapshot(|store| self.open_asks(store))?,
        };
        let mut batch = self.batch().durable();
        if ended_after_snapshot {
            batch.event(self.status_event(SessionStatus::Busy));
        }
        for ask in permissions {
            let reply = PermissionReply { reply: PermissionReplyKind::Reject, message: None };
            crate::ask::settle_permission(&mut batch, &ask, &reply);
        }
        for ask in questions {
            let rejected = EventBody::QuestionRejected { session_id: ask.session_id, request_id: ask.id.clone() };
            batch.answer_if_open(ask.id.as_str(), &serde_json::json!({ "answers": null }), rejected);
        }
        for message in &conversation.pending {
            batch.dequeue(message);
        }
        let answer = conversation.last_answer();
        self.go_idle(&mut batch, answer.clone());
        let committed = self.commit(batch).await?;
        self.inner.spending.call_ended();
        if committed.turn_continues {
            return Ok(false);
        }
        conversation.end_turn();
        self.run.record_end(self.number(), answer, committed.more_turns);
        Ok(true)
    }

    /// Ends the turn and frees the session.
    pub(crate) fn go_idle(&self, batch: &mut Batch, answer: Option<MessageId>) {
        self.go_idle_with(batch, answer, None);
    }

    /// Like [`go_idle`](Self::go_idle), with an error that no answer has.
    fn go_idle_with(&self, batch: &mut Batch, answer: Option<MessageId>, error: Option<MessageError>) {
        if let Some(number) = self.number() {
            let (session, is_cancelled) = (self.session_id.clone(), self.cancel().is_cancelled());
            batch.end_turn(TurnEnd { session, number, is_cancelled, answer, error });
        }
        batch.event(self.status_event(SessionStatus::Idle));
        batch.event(EventBody::SessionIdle { session_id: self.session_id.clone() });
        batch.release(&self.lease);
    }

    /// Releases the session of a turn that cannot continue; its prompts stay accepted. If that cannot be stored either,
    /// watchers are told anyway, and the next turn in this process takes the lease again.
    pub(crate) async fn release_session(&self, error: &Error) {
        let mut batch = self.batch();
        let mut events = Vec::new();
        if let Some(number) = self.number() {
            batch.suspend_turn(&self.session_id, number);
        }
        if matches!(error, Error::Parked) {
            // The turn has not ended, so nobody is told that it has.
            batch.release(&self.lease);
        } else {
            let text = match error {
                Error::Store(error) if error.is_transient() => format!(
                    "The turn stopped because its results could not be stored: {error}. Its message is kept, and \
                     the turn resumes by itself once that is possible"
                ),
                error => {
                    // A turn that always fails must not be tried forever.
                    for row in self.inbox().unwrap_or_default() {
                        batch.count_attempt(&row.message_id);
                    }
                    error.to_string()
                }
            };
            let session_id = self.session_id.clone();
            let error = Some(MessageError::unknown(text));
            events.push(EventBody::SessionError { session_id: Some(session_id.clone()), error });
            events.push(self.status_event(SessionStatus::Idle));
            events.push(EventBody::SessionIdle { session_id });
            events.iter().for_each(|event| batch.event(event.clone()));
            batch.release(&self.lease);
        }
        if let Err(error) = self.commit_once(batch).await {
            tracing::warn!(session = %self.session_id, %error, "cannot release the session");
            if error.is_transient() {
                self.inner.turns.give_up(&self.session_id);
                events.into_iter().for_each(|event| self.store().publish_transient(&self.instance.place, event));
            }
        }
    }
}

/// The index of the answer to a prompt: the message that ended its turn. Each message comes with the number of its
/// turn. A prompt that arrived in time joined the turn, and its answer is the answer to the last of them.
pub(crate) fn find_answer(messages: &[(MessageWithParts, u64)], prompt: &MessageId) -> Option<usize> {
    let asked = messages.iter().rposition(|(m, _)| m.info.id() == prompt)?;
    let since = |id: &MessageId| messages[asked..].iter().any(|(m, _)| m.info.id() == id);
    let mut found = None;
    for (place, (message, turn)) in messages.iter().enumerate().skip(asked) {
        // Skip answers to earlier prompts.
        let Some(answer) = message.info.as_assistant().filter(|answer| since(&answer.parent_id)) else { continue };
        // In forked or old history turns have no number: there each prompt counts as a turn.
        let turn = (*turn, Some(&answer.parent_id).filter(|_| *turn == 0));
        match found {
            Some((_, ended)) if ended != turn => break,
            _ if is_final(answer) => found = Some((place, turn)),
            _ => {}
        }
    }
    let own = |m: &MessageWithParts| m.info.as_assistant().is_some_and(|answer| answer.parent_id == *prompt);
    // A turn stopped between two steps has no message that ends it.
    found.map(|(place, _)| place).or_else(|| messages.iter().rposition(|(m, _)| own(m)))
}
