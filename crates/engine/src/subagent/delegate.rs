//! A call of the `task` tool: a child session works, its last text is the result.
//!
//! The child is made in one durable commit with a record that [binds](crate::subagent::task_link) it to the call and holds the prompt
//! that it is to get. A call that a crash cut off finds its child, sends the prompt if it was not sent, and waits for the
//! same answer: nothing runs twice, and the result comes once.
//!
//! A call whose child works in the [background](crate::subagent::background) ends at once, or when it is told to wait no longer.

use std::pin::pin;
use std::time::Duration;

use api::{
    Action, Agent, CreateSession, Event, EventBody, HostError, Json, JsonMap, MessageError, MessageId,
    MessageWithParts, ModelRef, Part, PartId, PromptInput, PromptPart, Rule, Session, SessionId, SubtaskPart,
    ToolCompleted, ToolPart, ToolRunning, ToolState, ToolTime, WatchItem, WatchScope,
};
use futures::StreamExt;
use indexmap::IndexMap;
use serde_json::json;
use store::{Batch, Store, StoreError};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::spending::budget;
use crate::subagent::task::{self, Input};
use crate::subagent::task_link::{self, Background, Bond, Bound};
use crate::turn::history;
use crate::turn::step::put_part;
use crate::turn::text_writer::row_interval;
use crate::turn::tool_call::{Call, Ended, PROGRESS_INTERVAL};
use crate::{Error, Shared};

/// The most calls of a subagent that its summary lists: its newest.
const SUMMARY_MAX: usize = 100;
/// The most bytes of a result; the whole text is in the child's session.
const RESULT_MAX: usize = 50 * 1024;

/// What the model reads of a task in the background while it works.
const BACKGROUND: &str = "The subagent works in the background; its report comes to you by itself, as a message, when it \
                          has ended. Do not wait or poll for it, do not ask it how far it is, and leave its work and its \
                          files to it. Go on with something else, or tell the user in short what was begun and end your \
                          turn.";
/// What it reads where there is no background.
const NO_BACKGROUND: &str = "Tasks in the background are switched off here (\"subagents\": {\"background\": false}). Call \
                             it without `background` and wait for the result.";
/// What it reads if the rules above a subagent cannot be stored with it.
const TOO_MANY_RULES: &str = "There are too many agents with rules of their own above this one, so it cannot have a subagent \
                              with all of them. Do the work yourself.";
/// What the model and clients are told when a task was stopped.
const CANCELLED: &str = "Task cancelled";

/// What is known of a call's work.
struct Work {
    input: Json,
    started: i64,
    model: ModelRef,
    bound: Bound,
    summary: Summary,
    held: Held,
}

/// What the caller of a child holds while the child works.
#[derive(Default)]
pub(crate) struct Held {
    /// The right to be one of those that work at once.
    pub(crate) slot: Option<OwnedSemaphorePermit>,
    /// The child sees files as its caller does.
    pub(crate) shared: Option<Shared>,
}

/// How the wait for a child ended.
enum Waited {
    Ended(Ending),
    /// The caller shall not wait any longer.
    Moved,
}

/// How a child ended its work for a call.
pub(crate) enum Ending {
    /// With this text.
    Done(String),
    Failed(String),
    Cancelled,
}

impl Ending {
    pub(crate) fn of(answer: Result<MessageWithParts, HostError>) -> Self {
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return Self::Failed(error.to_string()),
        };
        match answer.info.as_assistant().and_then(|answer| answer.error.as_ref()) {
            None => Self::Done(result(&answer)),
            Some(MessageError::MessageAbortedError(_)) => Self::Cancelled,
            Some(error) => Self::Failed(error.message().to_owned()),
        }
    }
}

impl Work {
    fn metadata(&self) -> JsonMap {
        let model = json!({ "modelID": self.model.model_id, "providerID": self.model.provider_id });
        let mut metadata = JsonMap::from_iter([
            ("parentSessionId".to_owned(), json!(self.bound.session)),
            ("sessionId".to_owned(), json!(self.bound.child)),
            ("model".to_owned(), model),
            ("summary".to_owned(), self.summary.json()),
        ]);
        if self.bound.background.is_some() {
            metadata.insert("background".to_owned(), true.into());
            // As OpenCode: a task that was moved has it from then on, one that was begun so when its call ends.
            if self.input["background"] != true {
                metadata.insert("jobId".to_owned(), json!(self.bound.child));
            }
        }
        metadata
    }
}

impl Call {
    /// Whether the call goes to a subagent without another decision: it was decided before a restart, or a human wants it.
    pub(crate) fn is_settled_task(&self) -> Result<bool, StoreError> {
        let store = self.turn.store();
        Ok(self.part.tool == task::TOOL
            && (Bond::of_call(store, &self.part.head.id)?.is_some() || self.wanted_by_human()?.is_some()))
    }

    /// The part of a prompt that asks for just this call.
    fn wanted_by_human(&self) -> Result<Option<SubtaskPart>, StoreError> {
        let Ok(id) = PartId::parse(&self.part.call_id) else { return Ok(None) };
        let part = self.turn.store().part(&id)?;
        Ok(part.as_ref().and_then(Part::as_subtask).filter(|p| p.head.session_id == self.turn.session_id).cloned())
    }

    /// Runs the call. It is allowed; `begun` if it is visible as running.
    pub(crate) async fn delegate(mut self, input: Json, started: i64, begun: bool) -> Result<(ToolPart, Ended), Error> {
        let started = if let ToolState::Running(running) = &self.part.state { running.time.start } else { started };
        let mut work = match self.prepare(&input, started).await? {
            Ok(work) => work,
            Err(refusal) => {
                if !begun {
                    self.begin(&input, started, false, |_| {}).await?;
                }
                // Its agent may be gone since it began.
                if let Some(bond) = Bond::of_call(self.turn.store(), &self.part.head.id)? {
                    self.call_off(&bond.bound.child).await;
                }
                return self.end_with(input, started, refusal, None, Ended::Done).await;
            }
        };
        let child = work.bound.child.clone();
        work.held.shared = self.turn.inner.share_environment(&self.turn.session_id, &child);
        let waited = self.work(&mut work).await;
        if self.turn.run.is_parked() {
            // We stopped ourselves to go on later, and so does the child.
            return Err(Error::Parked);
        }
        let ending = match waited? {
            Waited::Ended(ending) => ending,
            Waited::Moved => return self.leave(work).await,
        };
        if !matches!(ending, Ending::Done(_)) {
            self.call_off(&child).await;
        }
        // The last events may not have come yet.
        work.summary.load(self.turn.store(), &work.bound)?;
        let (ending, worktree) = self.turn.inner.with_worktree(&child, ending).await;
        let mut metadata = work.metadata();
        metadata.extend(worktree.map(|worktree| ("worktree".to_owned(), worktree)));
        let (input, started) = (work.input, work.started);
        let failure = match ending {
            Ending::Done(text) => {
                let output = output(&child, &text, work.bound.title, metadata);
                return self.complete(input, started, output, Ended::Done).await;
            }
            Ending::Cancelled => CANCELLED.to_owned(),
            Ending::Failed(why) => format!("Subagent failed (task_id: {child}): {why}"),
        };
        self.end_with(input, started, failure, Some(metadata), Ended::Done).await
    }

    /// Ends the call while the child goes on in the background.
    async fn leave(mut self, mut work: Work) -> Result<(ToolPart, Ended), Error> {
        let inner = self.turn.inner.clone();
        if work.held.slot.is_none() {
            work.held.slot = self.turn.subagents.clone().try_acquire_owned().ok();
        }
        if work.held.slot.is_some()
            && let Some(bond) = Bond::of_call(&inner.store, &self.part.head.id)?
            && let Err(error) = self.send(&bond).await
        {
            // Whoever follows the child finds the same, and reports it.
            tracing::debug!(child = %bond.bound.child, %error, "a task in the background did not begin yet");
        }
        work.summary.load(&inner.store, &work.bound)?;
        self.tell(self.turn.batch(), &work).await?;
        let mut metadata = work.metadata();
        metadata.insert("jobId".to_owned(), json!(work.bound.child));
        metadata.insert("truncated".to_owned(), false.into());
        self.part.state = ToolState::Completed(ToolCompleted {
            input: work.input,
            output: block(&work.bound.child, "running", Some("Background task started"), "task_result", BACKGROUND),
            title: work.bound.title,
            metadata,
            time: ToolTime { start: work.started, end: Some(api::now()), compacted: None },
            attachments: None,
        });
        // Unlike other outcomes it leaves the bond, which goes with the report.
        let mut batch = self.turn.batch().durable();
        put_part(&mut batch, &Part::Tool(self.part.clone()));
        self.turn.commit(batch).await?;
        inner.follow(&self.part.head.id, work.held);
        Ok((self.part, Ended::Done))
    }

    /// Nobody waits for the child any more, so it must not go on, now or after a restart.
    async fn call_off(&self, child: &SessionId) {
        if let Err(error) = self.turn.inner.call_off(child).await {
            tracing::warn!(%child, %error, "a subagent was not stopped");
        }
    }

    /// Finds or makes the child; else the text for the model that says why there is none.
    async fn prepare(&mut self, input: &Json, started: i64) -> Result<Result<Work, String>, Error> {
        let task: Input = match serde_json::from_value(input.clone()) {
            Ok(task) => task,
            Err(error) => return Ok(Err(tools::invalid_arguments(task::TOOL, &error.to_string()))),
        };
        let instance = self.turn.instance.clone();
        let Ok(agent) = instance.agent(&task.subagent_type) else { return Ok(Err(task::unknown(&task.subagent_type))) };
        let model = self.wanted_by_human()?.and_then(|wanted| wanted.model).or_else(|| agent.model.clone());
        let model = instance.remote(&agent.name).map(|remote| remote.model(&agent.name)).or(model);
        let model = ModelRef { variant: None, ..model.unwrap_or_else(|| self.caller.clone()) };
        let work = |bound| Work {
            input: input.clone(),
            started,
            model: model.clone(),
            bound,
            summary: Summary::default(),
            held: Held::default(),
        };
        if let Some(known) = Bond::of_call(self.turn.store(), &self.part.head.id)? {
            return Ok(Ok(work(known.bound)));
        }
        let background = task.background.unwrap_or(false);
        if background && !instance.limits.background {
            return Ok(Err(NO_BACKGROUND.to_owned()));
        }
        self.turn.wait_out_pause().await?;
        let inner = self.turn.inner.clone();
        let _birth = inner.births.lock().await;
        if self.turn.cancel().is_cancelled() {
            return if self.turn.run.is_parked() { Err(Error::Parked) } else { Ok(Err(CANCELLED.to_owned())) };
        }
        let (mut child, new) = match self.child(&task, agent)? {
            Ok(child) => child,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let is_root = self.turn.store().session(&self.turn.session_id)?.is_some_and(|own| own.parent_id.is_none());
        let budget = match budget::of_task(&instance, &task, is_root) {
            Ok(budget) => budget,
            Err(refusal) => return Ok(Err(refusal)),
        };
        if new
            && instance.agent_limits(&agent.name).isolation.is_some()
            && let Err(refusal) = inner.isolate(&instance, &mut child).await?
        {
            return Ok(Err(refusal));
        }
        let before = if new { None } else { Some(inner.standing(&inner.store, &child)?) };
        let Some(binding) = self.rules.below(before.as_deref()) else { return Ok(Err(TOO_MANY_RULES.to_owned())) };
        let prompt = MessageId::after(self.turn.store().newest(&child.id)?);
        let first = PromptInput {
            parts: vec![PromptPart::text(&task.prompt)],
            message_id: Some(prompt.clone()),
            model: Some(model.clone()),
            agent: Some(agent.name.clone()),
            ..PromptInput::default()
        };
        let work = work(Bound {
            session: self.turn.session_id.clone(),
            child: child.id.clone(),
            prompt,
            title: task.description.clone(),
            input: Some(Box::new(first)),
            cancelled: false,
            careful: self.rules.careful(),
            background: background
                .then(|| Background { awaited: false, follower: Some(inner.store.owner().to_owned()) }),
        });
        let mut batch = self.turn.batch().durable();
        if new {
            batch.session(&child);
            batch.event(EventBody::SessionCreated { session_id: child.id.clone(), info: Box::new(child) });
        }
        binding.put(&mut batch, &work.bound.child);
        if let Some(budget) = &budget {
            batch.grant(&work.bound.child, budget);
        }
        task_link::put(&mut batch, &self.part.head.id, &work.bound);
        self.tell(batch, &work).await?;
        self.is_visible();
        Ok(Ok(work))
    }

    /// The session that shall work, and whether it is a new one; or why there is none.
    fn child(&self, task: &Input, agent: &Agent) -> Result<Result<(Session, bool), String>, StoreError> {
        let (inner, store) = (&self.turn.inner, self.turn.store());
        let Some(own) = store.session(&self.turn.session_id)? else { return Ok(Err(CANCELLED.to_owned())) };
        let limits = &self.turn.instance.limits;
        let most = limits.depth;
        let line = inner.lineage(&own.id)?;
        let (root, depth) = (line.first().unwrap_or(&own), line.len().saturating_sub(1));
        let depth = u32::try_from(depth).unwrap_or(u32::MAX);
        if depth >= most {
            return Ok(Err(format!(
                "Subagent depth limit reached ({most}). Increase \"subagent_depth\" to allow nested subagents."
            )));
        }
        if let Some(id) = &task.task_id {
            let found = SessionId::parse(id).ok().map(|id| store.session(&id)).transpose()?.flatten();
            let found = found.filter(|child| child.parent_id.as_ref() == Some(&own.id));
            return Ok(found.map(|child| (child, false)).ok_or_else(|| {
                format!(
                    "There is no task {id} of this session; it may have been deleted. Leave task_id out to begin anew."
                )
            }));
        }
        if store.descendants(&root.id, limits.descendants)? >= limits.descendants {
            return Ok(Err(format!(
                "This session and its subagents have {} subagents, which is the most. Go on with one of \
                 them by its task_id, or do the work yourself.",
                limits.descendants
            )));
        }
        let caller = self.turn.instance.agents.get(&self.agent);
        let input = CreateSession {
            parent_id: Some(own.id.clone()),
            title: Some(format!("{} (@{} subagent)", task.description, agent.name)),
            agent: Some(agent.name.clone()),
            permission: Some(rules(&own, caller, agent, depth + 1 < most)),
            workspace_id: own.workspace_id,
            ..CreateSession::default()
        };
        Ok(Ok((inner.blank(&self.turn.instance, input), true)))
    }

    /// Shows the call as running, with what is known of its child. Returns how long that waits until it is shown again.
    async fn tell(&mut self, mut batch: Batch, work: &Work) -> Result<Duration, StoreError> {
        self.count(&mut batch);
        self.part.state = ToolState::Running(ToolRunning {
            input: work.input.clone(),
            title: Some(work.bound.title.clone()),
            metadata: Some(work.metadata()),
            time: ToolTime { start: work.started, end: None, compacted: None },
        });
        let bytes = batch.tell_part(&Part::Tool(self.part.clone()));
        self.turn.commit(batch).await?;
        Ok(row_interval(PROGRESS_INTERVAL, bytes))
    }

    /// Sends the child its prompt, if that was not done.
    async fn send(&self, bond: &Bond) -> Result<(), HostError> {
        let mut patience = self.turn.patience();
        loop {
            let sent = self.turn.inner.send(bond, self.traceparent()).await;
            if !patience.lasts(&sent).await {
                return sent;
            }
        }
    }

    /// The trace that the child's model calls belong to.
    fn traceparent(&self) -> Option<String> {
        self.turn.inner.traces.header(&self.prompt).map(|(_, value)| value)
    }

    /// Whether the wait for the child is over before the child is.
    fn reconsider(&self, work: &mut Work) -> Result<Option<Waited>, StoreError> {
        let Some(bond) = Bond::of_call(self.turn.store(), &self.part.head.id)? else {
            return Ok(Some(Waited::Ended(Ending::Cancelled)));
        };
        work.bound = bond.bound;
        Ok(if work.bound.background.is_some() {
            Some(Waited::Moved)
        } else {
            work.bound.cancelled.then_some(Waited::Ended(Ending::Cancelled))
        })
    }

    /// Has the child work, and tells what it does.
    async fn work(&mut self, work: &mut Work) -> Result<Waited, Error> {
        let (turn, inner) = (self.turn.clone(), self.turn.inner.clone());
        let stopped = || Ok(Waited::Ended(Ending::Cancelled));
        let mut news = turn.run.news();
        let mut slot = pin!(turn.subagents.clone().acquire_owned());
        loop {
            if let Some(over) = self.reconsider(work)? {
                return Ok(over);
            }
            tokio::select! {
                biased;
                () = turn.cancel().cancelled() => return stopped(),
                // It is never closed.
                permit = &mut slot => work.held.slot = permit.ok(),
                _ = news.changed() => continue,
            }
            break;
        }
        let (child, prompt) = (work.bound.child.clone(), work.bound.prompt.clone());
        // A large worktree takes a while; sending looks at it again.
        if turn.cancel().run_until_cancelled(inner.enter(&child)).await.transpose()?.is_none() {
            return stopped();
        }
        let mut events = inner.store.watch(WatchScope::Session(child.clone()), None)?;
        if let Some(bond) = Bond::of_call(&inner.store, &self.part.head.id)?
            && let Err(error) = self.send(&bond).await
        {
            let over = self.reconsider(work)?;
            return Ok(over.unwrap_or_else(|| Waited::Ended(Ending::Failed(error.to_string()))));
        }
        work.summary.load(&inner.store, &work.bound)?;
        let pause = self.tell(turn.batch(), work).await?;
        let mut answered = pin!(inner.answered(&child, &prompt));
        let (mut next, mut fresh) = (Instant::now() + pause, false);
        loop {
            tokio::select! {
                biased;
                () = turn.cancel().cancelled() => return stopped(),
                answer = &mut answered => return Ok(Waited::Ended(Ending::of(answer))),
                _ = news.changed() => if let Some(over) = self.reconsider(work)? {
                    return Ok(over);
                },
                item = events.next() => match item {
                    Some(WatchItem::Frame(frame)) => {
                        fresh |= frame.event().is_some_and(|event| work.summary.take(&event));
                    }
                    _ => {
                        // Cut off for being too slow: the rows have what was missed.
                        events = inner.store.watch(WatchScope::Session(child.clone()), None)?;
                        work.summary.load(&inner.store, &work.bound)?;
                        fresh = true;
                    }
                },
                () = tokio::time::sleep_until(next), if fresh => {
                    let pause = self.tell(turn.batch(), work).await?;
                    (next, fresh) = (Instant::now() + pause, false);
                }
            }
        }
    }
}

/// The rules of a new child as clients know them from OpenCode: some of its caller's denials, and it hands work on only if its
/// agent has a rule about that. That it may do no more than its caller is for its [floors](crate::ask::rules) to see to.
fn rules(parent: &Session, caller: Option<&Agent>, agent: &Agent, deeper: bool) -> Vec<Rule> {
    let mentions = |permission: &str| agent.permission.iter().any(|rule| rule.permission == permission);
    let strict = |rule: &&Rule| rule.action == Action::Deny || rule.permission == "external_directory";
    // An agent that plans must not have its edits made by another one.
    let no_edits = |rule: &&Rule| rule.action == Action::Deny && rule.permission == "edit";
    let inherited = caller.into_iter().flat_map(|caller| caller.permission.iter().filter(no_edits));
    let inherited = inherited.chain(parent.permission.iter().flatten().filter(strict));
    let mut rules: Vec<Rule> = Vec::new();
    let todowrite = (!mentions("todowrite")).then(|| Rule::new("todowrite", "*", Action::Deny));
    let task = (!(deeper && mentions(task::TOOL))).then(|| Rule::new(task::TOOL, "*", Action::Deny));
    for rule in inherited.cloned().chain(todowrite).chain(task) {
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    }
    rules
}

/// What the caller's model reads.
fn output(child: &SessionId, text: &str, title: String, mut metadata: JsonMap) -> tools::Output {
    metadata.insert("truncated".to_owned(), (text.len() > RESULT_MAX).into());
    tools::Output {
        title,
        output: block(child, "completed", None, "task_result", text),
        metadata,
        ..tools::Output::default()
    }
}

/// What becomes of a task as a model reads it.
fn block(child: &SessionId, state: &str, summary: Option<&str>, tag: &str, text: &str) -> String {
    format!("{}\n\n<task_metadata>\nsession_id: {child}\n</task_metadata>", report(child, state, summary, tag, text))
}

/// The same as a message of its own.
pub(crate) fn report(child: &SessionId, state: &str, summary: Option<&str>, tag: &str, text: &str) -> String {
    let summary = summary.map(|summary| format!("<summary>{summary}</summary>\n")).unwrap_or_default();
    let cut = text.floor_char_boundary(RESULT_MAX);
    let rest = if cut < text.len() { "\n(The rest is cut off; ask the subagent for it.)" } else { "" };
    format!("<task id=\"{child}\" state=\"{state}\">\n{summary}<{tag}>\n{}{rest}\n</{tag}>\n</task>", &text[..cut])
}

/// The last text of an answer; without one, why there is none.
fn result(answer: &MessageWithParts) -> String {
    if let Some(text) = history::last_text(&answer.parts) {
        return text;
    }
    let error = answer.parts.iter().rev().filter_map(Part::as_tool).find_map(|tool| match &tool.state {
        ToolState::Error(error) => Some(format!("its call of {} failed: {}", tool.tool, error.error)),
        _ => None,
    });
    format!(
        "The subagent ended without an answer{}",
        error.map_or_else(|| ".".to_owned(), |error| format!("; {error}"))
    )
}

/// What a child has called for a task, oldest first.
#[derive(Default)]
struct Summary(IndexMap<PartId, Json>);

impl Summary {
    /// Reads it from the rows: what a restart or a slow watcher missed is there.
    fn load(&mut self, store: &Store, bound: &Bound) -> Result<(), StoreError> {
        let messages = match store.messages_from(&bound.child, &bound.prompt) {
            // It has not begun, or its session is gone.
            Err(StoreError::NoMessage { .. }) => return Ok(()),
            messages => messages?,
        };
        for tool in messages.iter().flat_map(|(m, _)| m.parts.iter().filter_map(Part::as_tool)) {
            self.put(tool);
        }
        Ok(())
    }

    /// Whether an event changes it.
    fn take(&mut self, event: &Event) -> bool {
        let EventBody::PartUpdated { part, .. } = &event.body else { return false };
        part.as_tool().is_some_and(|tool| self.put(tool))
    }

    fn put(&mut self, tool: &ToolPart) -> bool {
        let mut state = json!({ "status": tool.state.status() });
        let title = match &tool.state {
            ToolState::Completed(done) => Some(&done.title),
            ToolState::Running(running) => running.title.as_ref(),
            _ => None,
        };
        if let Some(title) = title {
            state["title"] = json!(title);
        }
        let entry = json!({ "id": tool.head.id, "tool": tool.tool, "state": state });
        let news = self.0.get(&tool.head.id) != Some(&entry);
        self.0.insert(tool.head.id.clone(), entry);
        while self.0.len() > SUMMARY_MAX {
            self.0.shift_remove_index(0);
        }
        news
    }

    fn json(&self) -> Json {
        self.0.values().cloned().collect()
    }
}
