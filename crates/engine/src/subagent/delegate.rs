//! Runs a call of the `task` tool: a child session does the work, and its last text is the result.
//!
//! One durable commit creates the child and a [task link](store::TaskLink), which ties it to the call and
//! holds its prompt. An interrupted call finds its child again, sends the prompt if it was not sent, and waits for the
//! same answer: nothing runs twice, and the result comes once.
//!
//! A call whose child works in the [background](crate::subagent::background) ends at once, or when it is told to stop
//! waiting.

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
use store::{Background, LinkedTask, Store, StoreError, TaskLink};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::spending::budget;
use crate::subagent::task::{self, TaskInput};
use crate::turn::batch::TurnBatch;
use crate::turn::history;
use crate::turn::text_writer::row_interval;
use crate::turn::tool_call::{CallEnd, PROGRESS_INTERVAL, ToolCall};
use crate::{Error, SharedEnvironment};

/// The maximum number of calls in a subagent's summary; the newest are kept.
const SUMMARY_MAX: usize = 100;
/// The maximum size of a result. The whole text is in the child's session.
const RESULT_MAX: usize = 50 * 1024;

/// The result for the model while a task works in the background.
const BACKGROUND: &str = "The subagent is working in the background; its report arrives by itself, as a message, \
                          when it has finished. Do not wait or poll for it, do not ask about its progress, and \
                          leave its work and its files to it. Continue with something else, or briefly tell the \
                          user what was started and end your turn.";
/// The refusal if background tasks are disabled.
const NO_BACKGROUND: &str = "Background tasks are disabled here (\"subagents\": {\"background\": false}). Call it \
                             without `background` and wait for the result.";
/// The refusal if the constraints on a subagent are too many to store.
const TOO_MANY_RULES: &str = "There are too many agents with rules of their own above this one, so it cannot have a subagent \
                              with all of them. Do the work yourself.";
/// The result of a task that was stopped.
const CANCELLED: &str = "Task cancelled";

/// A `task` call in progress.
struct Delegation {
    input: Json,
    started: i64,
    model: ModelRef,
    task: LinkedTask,
    summary: CallSummary,
    resources: ChildResources,
}

/// What the caller holds while a child works.
#[derive(Default)]
pub(crate) struct ChildResources {
    /// The permit to be one of the concurrent children.
    pub(crate) slot: Option<OwnedSemaphorePermit>,
    /// Lets the child see files as its caller does.
    pub(crate) shared: Option<SharedEnvironment>,
}

/// How the wait for a child ended.
enum WaitOutcome {
    Ended(TaskEnd),
    /// The caller must stop waiting.
    Moved,
}

/// How a child's work for a call ended.
pub(crate) enum TaskEnd {
    /// With this result.
    Done(String),
    Failed(String),
    Cancelled,
}

impl TaskEnd {
    pub(crate) fn of(answer: Result<MessageWithParts, HostError>) -> Self {
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return Self::Failed(error.to_string()),
        };
        match answer.info.as_assistant().and_then(|answer| answer.error.as_ref()) {
            None => Self::Done(final_text(&answer)),
            Some(MessageError::MessageAbortedError(_)) => Self::Cancelled,
            Some(error) => Self::Failed(error.message().to_owned()),
        }
    }
}

impl Delegation {
    fn metadata(&self) -> JsonMap {
        let model = json!({ "modelID": self.model.model_id, "providerID": self.model.provider_id });
        let mut metadata = JsonMap::from_iter([
            ("parentSessionId".to_owned(), json!(self.task.parent)),
            ("sessionId".to_owned(), json!(self.task.child)),
            ("model".to_owned(), model),
            ("summary".to_owned(), self.summary.to_json()),
        ]);
        if self.task.background.is_some() {
            metadata.insert("background".to_owned(), true.into());
            // As in OpenCode: a task that was moved to the background has it from then on, one started there when its
            // call ends.
            if self.input["background"] != true {
                metadata.insert("jobId".to_owned(), json!(self.task.child));
            }
        }
        metadata
    }
}

impl ToolCall {
    /// Whether the call needs no further decision: it was allowed before a restart, or the user asked for it.
    pub(crate) fn is_preapproved_task(&self) -> Result<bool, StoreError> {
        let store = self.turn.store();
        Ok(self.part.tool == task::TOOL
            && (store.task_link(&self.part.head.id)?.is_some() || self.requesting_part()?.is_some()))
    }

    /// The prompt part that requests this call.
    fn requesting_part(&self) -> Result<Option<SubtaskPart>, StoreError> {
        let Ok(id) = PartId::parse(&self.part.call_id) else { return Ok(None) };
        let part = self.turn.store().part(&id)?;
        Ok(part.as_ref().and_then(Part::as_subtask).filter(|p| p.head.session_id == self.turn.session_id).cloned())
    }

    /// Runs an allowed call. `is_running`: whether it is already shown as running.
    pub(crate) async fn delegate(
        mut self,
        input: Json,
        started: i64,
        is_running: bool,
    ) -> Result<(ToolPart, CallEnd), Error> {
        let started = if let ToolState::Running(running) = &self.part.state { running.time.start } else { started };
        let mut delegation = match self.prepare(&input, started).await? {
            Ok(delegation) => delegation,
            Err(refusal) => {
                if !is_running {
                    self.show_running(&input, started, false, |_| {}).await?;
                }
                // Its agent may have been removed since it started.
                if let Some(link) = self.turn.store().task_link(&self.part.head.id)? {
                    self.stop_unwanted(&link.task.child).await;
                }
                return self.end_with_error(input, started, refusal, None, CallEnd::Done).await;
            }
        };
        let child = delegation.task.child.clone();
        delegation.resources.shared = self.turn.inner.share_environment(&self.turn.session_id, &child);
        let waited = self.run_child(&mut delegation).await;
        if self.turn.run.is_parked() {
            // We are parking, and so is the child.
            return Err(Error::Parked);
        }
        let end = match waited? {
            WaitOutcome::Ended(end) => end,
            WaitOutcome::Moved => return self.leave_in_background(delegation).await,
        };
        if !matches!(end, TaskEnd::Done(_)) {
            self.stop_unwanted(&child).await;
        }
        // The last events may not have arrived yet.
        delegation.summary.load(self.turn.store(), &delegation.task)?;
        let (end, worktree) = self.turn.inner.add_worktree_report(&child, end).await;
        let mut metadata = delegation.metadata();
        metadata.extend(worktree.map(|worktree| ("worktree".to_owned(), worktree)));
        let (input, started) = (delegation.input, delegation.started);
        let failure = match end {
            TaskEnd::Done(text) => {
                let result = task_output(&child, &text, delegation.task.title, metadata);
                return self.complete(input, started, result, CallEnd::Done).await;
            }
            TaskEnd::Cancelled => CANCELLED.to_owned(),
            TaskEnd::Failed(why) => format!("Subagent failed (task_id: {child}): {why}"),
        };
        self.end_with_error(input, started, failure, Some(metadata), CallEnd::Done).await
    }

    /// Ends the call while the child continues in the background.
    async fn leave_in_background(mut self, mut delegation: Delegation) -> Result<(ToolPart, CallEnd), Error> {
        let inner = self.turn.inner.clone();
        if delegation.resources.slot.is_none() {
            delegation.resources.slot = self.turn.subagent_slots.clone().try_acquire_owned().ok();
        }
        if delegation.resources.slot.is_some()
            && let Some(link) = inner.store.task_link(&self.part.head.id)?
            && let Err(error) = self.send_prompt(&link).await
        {
            // The follower gets the same error, and reports it.
            tracing::debug!(child = %link.task.child, %error, "a background task did not start yet");
        }
        delegation.summary.load(&inner.store, &delegation.task)?;
        self.show_progress(self.turn.batch(), &delegation).await?;
        let mut metadata = delegation.metadata();
        metadata.insert("jobId".to_owned(), json!(delegation.task.child));
        metadata.insert("truncated".to_owned(), false.into());
        self.part.state = ToolState::Completed(ToolCompleted {
            input: delegation.input,
            output: task_block(
                &delegation.task.child,
                "running",
                Some("Background task started"),
                "task_result",
                BACKGROUND,
            ),
            title: delegation.task.title,
            metadata,
            time: ToolTime { start: delegation.started, end: Some(api::now()), compacted: None },
            attachments: None,
        });
        // Unlike other outcomes it keeps the task link, which the report removes.
        let mut batch = self.turn.batch().durable();
        batch.publish_part(&Part::Tool(self.part.clone()));
        self.turn.commit(batch).await?;
        inner.follow(&self.part.head.id, delegation.resources);
        Ok((self.part, CallEnd::Done))
    }

    /// Stops a child that nobody waits for any more, so that it does not resume, now or after a restart.
    async fn stop_unwanted(&self, child: &SessionId) {
        if let Err(error) = self.turn.inner.stop_unwanted(child).await {
            tracing::warn!(%child, %error, "cannot stop a subagent");
        }
    }

    /// Finds or creates the child, or returns the refusal for the model.
    async fn prepare(&mut self, input: &Json, started: i64) -> Result<Result<Delegation, String>, Error> {
        let task: TaskInput = match serde_json::from_value(input.clone()) {
            Ok(task) => task,
            Err(error) => return Ok(Err(tools::invalid_arguments(task::TOOL, &error.to_string()))),
        };
        let instance = self.turn.instance.clone();
        let Ok(agent) = instance.agent(&task.subagent_type) else { return Ok(Err(task::unknown(&task.subagent_type))) };
        let model = self.requesting_part()?.and_then(|part| part.model).or_else(|| agent.model.clone());
        let model = instance.remote(&agent.name).map(|remote| remote.model(&agent.name)).or(model);
        let model = ModelRef { variant: None, ..model.unwrap_or_else(|| self.model_ref.clone()) };
        let delegation = |task| Delegation {
            input: input.clone(),
            started,
            model: model.clone(),
            task,
            summary: CallSummary::default(),
            resources: ChildResources::default(),
        };
        if let Some(known) = self.turn.store().task_link(&self.part.head.id)? {
            return Ok(Ok(delegation(known.task)));
        }
        if task.background == Some(true) && !instance.limits.background {
            return Ok(Err(NO_BACKGROUND.to_owned()));
        }
        self.turn.wait_out_pause().await?;
        let inner = self.turn.inner.clone();
        let _spawning = inner.subagents.lock_spawning().await;
        if self.turn.cancel().is_cancelled() {
            return if self.turn.run.is_parked() { Err(Error::Parked) } else { Ok(Err(CANCELLED.to_owned())) };
        }
        let (mut child, new) = match self.find_or_create_child(&task, agent)? {
            Ok(child) => child,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let is_root = self.turn.store().session(&self.turn.session_id)?.is_some_and(|own| own.parent_id.is_none());
        let budget = match budget::for_task(&instance, &task, is_root) {
            Ok(budget) => budget,
            Err(refusal) => return Ok(Err(refusal)),
        };
        if new
            && instance.agent_limits(&agent.name).isolation.is_some()
            && let Err(refusal) = inner.create_worktree(&instance, &mut child).await?
        {
            return Ok(Err(refusal));
        }
        let before = if new { None } else { Some(inner.constraints(&inner.store, &child)?) };
        let Some(constraints) = self.rules.child_constraints(before.as_deref()) else {
            return Ok(Err(TOO_MANY_RULES.to_owned()));
        };
        let delegation = delegation(self.linked_task(&task, &child.id, &model, &agent.name)?);
        let mut batch = self.turn.batch().durable();
        if new {
            batch.session(&child);
            batch.event(EventBody::SessionCreated { session_id: child.id.clone(), info: Box::new(child) });
        }
        constraints.put(&mut batch, &delegation.task.child);
        if let Some(budget) = &budget {
            batch.grant(&delegation.task.child, budget);
        }
        batch.link_task(&self.part.head.id, &delegation.task);
        self.show_progress(batch, &delegation).await?;
        self.signal_running();
        Ok(Ok(delegation))
    }

    /// The task of a child, with the prompt that it will be sent.
    fn linked_task(
        &self,
        task: &TaskInput,
        child: &SessionId,
        model: &ModelRef,
        agent: &str,
    ) -> Result<LinkedTask, StoreError> {
        let store = self.turn.store();
        let prompt = MessageId::after(store.newest_stamp(child)?);
        let first = PromptInput {
            parts: vec![PromptPart::text(&task.prompt)],
            message_id: Some(prompt.clone()),
            model: Some(model.clone()),
            agent: Some(agent.to_owned()),
            ..PromptInput::default()
        };
        let background = || Background { awaited: false, follower: Some(store.owner().to_owned()) };
        Ok(LinkedTask {
            parent: self.turn.session_id.clone(),
            child: child.clone(),
            prompt,
            title: task.description.clone(),
            input: Some(Box::new(first)),
            cancelled: false,
            careful: self.rules.is_careful(),
            background: (task.background == Some(true)).then(background),
        })
    }

    /// The session that does the work, and whether it is new; or the refusal.
    fn find_or_create_child(
        &self,
        task: &TaskInput,
        agent: &Agent,
    ) -> Result<Result<(Session, bool), String>, StoreError> {
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
                    "There is no task {id} of this session; it may have been deleted. Omit task_id to start a new task."
                )
            }));
        }
        if store.count_descendants(&root.id, limits.descendants)? >= limits.descendants {
            return Ok(Err(format!(
                "This session and its subagents have {} subagents, which is the maximum. Continue one of them by \
                 its task_id, or do the work yourself.",
                limits.descendants
            )));
        }
        let caller = self.turn.instance.agents.get(&self.agent);
        let input = CreateSession {
            parent_id: Some(own.id.clone()),
            title: Some(format!("{} (@{} subagent)", task.description, agent.name)),
            agent: Some(agent.name.clone()),
            permission: Some(child_rules(&own, caller, agent, depth + 1 < most)),
            workspace_id: own.workspace_id,
            ..CreateSession::default()
        };
        Ok(Ok((inner.new_session(&self.turn.instance, input), true)))
    }

    /// Shows the call as running, with the progress of its child. Returns how long to wait before the next update.
    async fn show_progress(&mut self, mut batch: TurnBatch, delegation: &Delegation) -> Result<Duration, StoreError> {
        self.count_usage(&mut batch);
        self.part.state = ToolState::Running(ToolRunning {
            input: delegation.input.clone(),
            title: Some(delegation.task.title.clone()),
            metadata: Some(delegation.metadata()),
            time: ToolTime { start: delegation.started, end: None, compacted: None },
        });
        let bytes = batch.publish_part(&Part::Tool(self.part.clone()));
        self.turn.commit(batch).await?;
        Ok(row_interval(PROGRESS_INTERVAL, bytes))
    }

    /// Sends the child its prompt, unless it was sent already.
    async fn send_prompt(&self, link: &TaskLink) -> Result<(), HostError> {
        let mut retry = self.turn.write_retry();
        loop {
            let sent = self.turn.inner.send_task_prompt(link, self.traceparent()).await;
            if !retry.should_retry(&sent).await {
                return sent;
            }
        }
    }

    /// The trace that the child's model calls belong to.
    fn traceparent(&self) -> Option<String> {
        self.turn.inner.turns.sender_trace(&self.prompt)
    }

    /// Whether the wait for the child ends before the child does.
    fn check_wait(&self, delegation: &mut Delegation) -> Result<Option<WaitOutcome>, StoreError> {
        let Some(link) = self.turn.store().task_link(&self.part.head.id)? else {
            return Ok(Some(WaitOutcome::Ended(TaskEnd::Cancelled)));
        };
        delegation.task = link.task;
        Ok(if delegation.task.background.is_some() {
            Some(WaitOutcome::Moved)
        } else {
            delegation.task.cancelled.then_some(WaitOutcome::Ended(TaskEnd::Cancelled))
        })
    }

    /// Waits for the child's work, and shows its progress.
    async fn run_child(&mut self, delegation: &mut Delegation) -> Result<WaitOutcome, Error> {
        let (turn, inner) = (self.turn.clone(), self.turn.inner.clone());
        let stopped = || Ok(WaitOutcome::Ended(TaskEnd::Cancelled));
        let mut wakeups = turn.run.wakeups();
        let mut slot = pin!(turn.subagent_slots.clone().acquire_owned());
        loop {
            if let Some(outcome) = self.check_wait(delegation)? {
                return Ok(outcome);
            }
            tokio::select! {
                biased;
                () = turn.cancel().cancelled() => return stopped(),
                // The semaphore is never closed.
                permit = &mut slot => delegation.resources.slot = permit.ok(),
                _ = wakeups.changed() => continue,
            }
            break;
        }
        let (child, prompt) = (delegation.task.child.clone(), delegation.task.prompt.clone());
        // A large worktree takes a while. Sending the prompt checks it again.
        if turn.cancel().run_until_cancelled(inner.prepare_worktree(&child)).await.transpose()?.is_none() {
            return stopped();
        }
        let mut events = inner.store.watch(WatchScope::Session(child.clone()), None)?;
        if let Some(link) = inner.store.task_link(&self.part.head.id)?
            && let Err(error) = self.send_prompt(&link).await
        {
            let outcome = self.check_wait(delegation)?;
            return Ok(outcome.unwrap_or_else(|| WaitOutcome::Ended(TaskEnd::Failed(error.to_string()))));
        }
        delegation.summary.load(&inner.store, &delegation.task)?;
        let pause = self.show_progress(turn.batch(), delegation).await?;
        let mut answered = pin!(inner.await_answer(&child, &prompt));
        let (mut next, mut is_stale) = (Instant::now() + pause, false);
        loop {
            tokio::select! {
                biased;
                () = turn.cancel().cancelled() => return stopped(),
                answer = &mut answered => return Ok(WaitOutcome::Ended(TaskEnd::of(answer))),
                _ = wakeups.changed() => if let Some(outcome) = self.check_wait(delegation)? {
                    return Ok(outcome);
                },
                item = events.next() => match item {
                    Some(WatchItem::Frame(frame)) => {
                        is_stale |= frame.event().is_some_and(|event| delegation.summary.apply(&event));
                    }
                    _ => {
                        // Cut off for being too slow: the rows have what was missed.
                        events = inner.store.watch(WatchScope::Session(child.clone()), None)?;
                        delegation.summary.load(&inner.store, &delegation.task)?;
                        is_stale = true;
                    }
                },
                () = tokio::time::sleep_until(next), if is_stale => {
                    let pause = self.show_progress(turn.batch(), delegation).await?;
                    (next, is_stale) = (Instant::now() + pause, false);
                }
            }
        }
    }
}

/// The permission rules of a new child as clients know them from OpenCode: some of its caller's denials, and it may
/// delegate only if its agent has a rule about that. Its [floors](crate::ask::rules) ensure that it may do no more than
/// its caller.
fn child_rules(parent: &Session, caller: Option<&Agent>, agent: &Agent, deeper: bool) -> Vec<Rule> {
    let mentions = |permission: &str| agent.permission.iter().any(|rule| rule.permission == permission);
    let strict = |rule: &&Rule| rule.action == Action::Deny || rule.permission == "external_directory";
    // A planning agent must not have its edits made by another one.
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

/// The result for the caller's model.
fn task_output(child: &SessionId, text: &str, title: String, mut metadata: JsonMap) -> tools::Output {
    metadata.insert("truncated".to_owned(), (text.len() > RESULT_MAX).into());
    tools::Output {
        title,
        output: task_block(child, "completed", None, "task_result", text),
        metadata,
        ..tools::Output::default()
    }
}

/// A task's state as text for a model.
fn task_block(child: &SessionId, state: &str, summary: Option<&str>, tag: &str, text: &str) -> String {
    format!(
        "{}\n\n<task_metadata>\nsession_id: {child}\n</task_metadata>",
        task_report(child, state, summary, tag, text)
    )
}

/// The same as a separate message.
pub(crate) fn task_report(child: &SessionId, state: &str, summary: Option<&str>, tag: &str, text: &str) -> String {
    let summary = summary.map(|summary| format!("<summary>{summary}</summary>\n")).unwrap_or_default();
    let cut = text.floor_char_boundary(RESULT_MAX);
    let rest = if cut < text.len() { "\n(The rest is cut off; ask the subagent for it.)" } else { "" };
    format!("<task id=\"{child}\" state=\"{state}\">\n{summary}<{tag}>\n{}{rest}\n</{tag}>\n</task>", &text[..cut])
}

/// The last text of an answer, or the reason why there is none.
fn final_text(answer: &MessageWithParts) -> String {
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

/// The calls a child has made for a task, oldest first.
#[derive(Default)]
struct CallSummary(IndexMap<PartId, Json>);

impl CallSummary {
    /// Reads the calls from the rows, which have what a restart or a slow watcher missed.
    fn load(&mut self, store: &Store, task: &LinkedTask) -> Result<(), StoreError> {
        let messages = match store.messages_from(&task.child, &task.prompt) {
            // It has not started, or its session is gone.
            Err(StoreError::NoMessage { .. }) => return Ok(()),
            messages => messages?,
        };
        for tool in messages.iter().flat_map(|(m, _)| m.parts.iter().filter_map(Part::as_tool)) {
            self.put(tool);
        }
        Ok(())
    }

    /// Applies an event. Returns whether it changed anything.
    fn apply(&mut self, event: &Event) -> bool {
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
        let changed = self.0.get(&tool.head.id) != Some(&entry);
        self.0.insert(tool.head.id.clone(), entry);
        while self.0.len() > SUMMARY_MAX {
            self.0.shift_remove_index(0);
        }
        changed
    }

    fn to_json(&self) -> Json {
        self.0.values().cloned().collect()
    }
}
