//! A call of the `task` tool: a child session works, its last text is the result.
//!
//! The child is made in one durable commit with a record that binds it to the call and names the message id that its
//! prompt will have. A prompt is accepted once per id, so a call that a crash cut off finds its child, sends the same
//! prompt again without effect if it was sent, and waits for the same answer: nothing runs twice, and the result comes
//! once.

use std::pin::pin;

use api::{
    Action, Agent, CreateSession, Event, EventBody, HostError, Json, JsonMap, MessageError, MessageId,
    MessageWithParts, ModelRef, Part, PartId, PromptInput, PromptPart, Rule, Session, SessionId, SubtaskPart, ToolPart,
    ToolRunning, ToolState, ToolTime, WatchItem, WatchScope,
};
use futures::StreamExt;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::json;
use store::{Batch, Store, StoreError};
use tokio::time::Instant;

use crate::Error;
use crate::call::{Call, Ended, PROGRESS_INTERVAL};
use crate::step::put_part;
use crate::task::{self, Input};

/// The most calls of a subagent that its summary lists: its newest.
const SUMMARY_MAX: usize = 100;
/// The most bytes of a result; the whole text is in the child's session.
const RESULT_MAX: usize = 50 * 1024;

/// Where calls are bound to their children, by the call's part.
pub(crate) const BOUND: &str = "task";

/// What the model and clients are told when a task was stopped.
const CANCELLED: &str = "Task cancelled";

/// Which child works on a call, and which of its prompts is the call's.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Bound {
    session: SessionId,
    message: MessageId,
    call: String,
    pub(crate) child: SessionId,
    prompt: MessageId,
}

/// The child of a call, if it has one.
pub(crate) fn bound(store: &Store, part: &PartId) -> Result<Option<Bound>, StoreError> {
    Ok(store.record(BOUND, part.as_str())?.and_then(|record| serde_json::from_value(record.value).ok()))
}

/// What is known of a call's work.
struct Work {
    input: Json,
    started: i64,
    title: String,
    prompt: String,
    agent: String,
    model: ModelRef,
    bound: Bound,
    summary: Summary,
}

impl Work {
    fn metadata(&self) -> JsonMap {
        let model = json!({ "modelID": self.model.model_id, "providerID": self.model.provider_id });
        JsonMap::from_iter([
            ("parentSessionId".to_owned(), json!(self.bound.session)),
            ("sessionId".to_owned(), json!(self.bound.child)),
            ("model".to_owned(), model),
            ("summary".to_owned(), self.summary.json()),
        ])
    }
}

impl Call {
    /// Whether the call goes to a subagent without another decision: it was decided before a restart, or a human wants it.
    pub(crate) fn is_settled_task(&self) -> Result<bool, StoreError> {
        let store = self.turn.store();
        Ok(self.part.tool == task::TOOL
            && (bound(store, &self.part.head.id)?.is_some() || self.wanted_by_human()?.is_some()))
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
                if let Some(bound) = bound(self.turn.store(), &self.part.head.id)? {
                    self.call_off(&bound.child).await;
                }
                return self.end_with(input, started, refusal, None, Ended::Done).await;
            }
        };
        let child = work.bound.child.clone();
        let _shared = self.turn.inner.share_environment(&self.turn.session_id, &child);
        let answer = self.work(&mut work).await;
        if self.turn.run.is_parked() {
            // We stopped ourselves to go on later, and so does the child.
            return Err(Error::Parked);
        }
        let answer = answer?;
        if !matches!(answer, Some(Ok(_))) {
            self.call_off(&child).await;
        }
        // The last events may not have come yet.
        work.summary.load(self.turn.store(), &work.bound)?;
        let aborted = |message: &MessageWithParts| {
            let error = message.info.as_assistant().and_then(|answer| answer.error.as_ref());
            matches!(error, Some(MessageError::MessageAbortedError(_)))
        };
        let metadata = work.metadata();
        let (input, started) = (work.input, work.started);
        let failure = match answer {
            None => CANCELLED.to_owned(),
            Some(Ok(answer)) if aborted(&answer) => CANCELLED.to_owned(),
            Some(Ok(answer)) => match answer.info.as_assistant().and_then(|answer| answer.error.as_ref()) {
                None => {
                    let output = output(&child, &answer, work.title, metadata);
                    return self.complete(input, started, output, Ended::Done).await;
                }
                Some(error) => failed(&child, error.message()),
            },
            Some(Err(error)) => failed(&child, &error.to_string()),
        };
        self.end_with(input, started, failure, Some(metadata), Ended::Done).await
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
        let Some(model) = model.map_or_else(|| self.own_model(), |model| Ok(Some(model)))? else {
            return Ok(Err("The message that calls is gone".to_owned()));
        };
        let work = |bound| Work {
            input: input.clone(),
            started,
            title: task.description.clone(),
            prompt: task.prompt.clone(),
            agent: agent.name.clone(),
            model: ModelRef { variant: None, ..model.clone() },
            bound,
            summary: Summary::default(),
        };
        if let Some(known) = bound(self.turn.store(), &self.part.head.id)? {
            return Ok(Ok(work(known)));
        }
        let inner = self.turn.inner.clone();
        let _birth = inner.births.lock().await;
        if self.turn.cancel().is_cancelled() {
            return if self.turn.run.is_parked() { Err(Error::Parked) } else { Ok(Err(CANCELLED.to_owned())) };
        }
        let (child, new) = match self.child(&task, agent)? {
            Ok(child) => child,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let work = work(Bound {
            session: self.turn.session_id.clone(),
            message: self.part.head.message_id.clone(),
            call: self.part.call_id.clone(),
            child: child.id.clone(),
            prompt: MessageId::new(),
        });
        let mut batch = self.turn.batch().durable();
        if new {
            batch.session(&child);
            batch.event(EventBody::SessionCreated { session_id: child.id.clone(), info: Box::new(child) });
        }
        batch.record(BOUND, self.part.head.id.as_str(), Some(&json!(work.bound)), None);
        self.tell(batch, &work).await?;
        self.is_visible();
        Ok(Ok(work))
    }

    /// The model that calls.
    fn own_model(&self) -> Result<Option<ModelRef>, StoreError> {
        let message = self.turn.store().message(&self.part.head.message_id)?;
        let caller = message.as_ref().and_then(|m| m.info.as_assistant());
        Ok(caller.map(|caller| ModelRef::new(&caller.provider_id, &caller.model_id)))
    }

    /// The session that shall work, and whether it is a new one; or why there is none.
    fn child(&self, task: &Input, agent: &Agent) -> Result<Result<(Session, bool), String>, StoreError> {
        let (inner, store) = (&self.turn.inner, self.turn.store());
        let Some(own) = store.session(&self.turn.session_id)? else { return Ok(Err(CANCELLED.to_owned())) };
        let limits = &self.turn.instance.limits;
        let most = limits.depth;
        let (root, depth) = inner.root(own.clone())?;
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
        if inner.tree(root)?.len() > limits.descendants {
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

    /// Shows the call as running, with what is known of its child.
    async fn tell(&mut self, mut batch: Batch, work: &Work) -> Result<(), StoreError> {
        self.part.state = ToolState::Running(ToolRunning {
            input: work.input.clone(),
            title: Some(work.title.clone()),
            metadata: Some(work.metadata()),
            time: ToolTime { start: work.started, end: None, compacted: None },
        });
        put_part(&mut batch, &Part::Tool(self.part.clone()));
        self.turn.store().commit(batch).await.map(drop)
    }

    /// Has the child work, and tells what it does; nothing if the turn was stopped meanwhile.
    async fn work(&mut self, work: &mut Work) -> Result<Option<Result<MessageWithParts, HostError>>, Error> {
        let (turn, inner) = (self.turn.clone(), self.turn.inner.clone());
        let permit = turn.cancel().run_until_cancelled(turn.subagents.acquire()).await;
        // The semaphore is never closed; without a permit the turn was stopped.
        let Some(Ok(_permit)) = permit else { return Ok(None) };
        if turn.cancel().is_cancelled() {
            return Ok(None);
        }
        let (child, prompt) = (work.bound.child.clone(), work.bound.prompt.clone());
        let mut events = inner.store.watch(WatchScope::Session(child.clone()), None)?;
        let input = PromptInput {
            parts: vec![PromptPart::text(&work.prompt)],
            message_id: Some(prompt.clone()),
            model: Some(work.model.clone()),
            agent: Some(work.agent.clone()),
            traceparent: turn.inner.traces.header(&self.prompt).map(|(_, value)| value),
            ..PromptInput::default()
        };
        if let Err(error) = inner.submit(&child, input).await {
            return Ok(Some(Err(error)));
        }
        work.summary.load(&inner.store, &work.bound)?;
        self.tell(turn.batch(), work).await?;
        let mut answered = pin!(inner.answered(&child, &prompt));
        let (mut told, mut news) = (Instant::now(), false);
        loop {
            tokio::select! {
                biased;
                () = turn.cancel().cancelled() => return Ok(None),
                answer = &mut answered => return Ok(Some(answer)),
                item = events.next() => match item {
                    Some(WatchItem::Frame(frame)) => {
                        news |= frame.event().is_some_and(|event| work.summary.take(&event));
                    }
                    _ => {
                        // Cut off for being too slow: the rows have what was missed.
                        events = inner.store.watch(WatchScope::Session(child.clone()), None)?;
                        work.summary.load(&inner.store, &work.bound)?;
                        news = true;
                    }
                },
                () = tokio::time::sleep_until(told + PROGRESS_INTERVAL), if news => {
                    self.tell(turn.batch(), work).await?;
                    (told, news) = (Instant::now(), false);
                }
            }
        }
    }
}

fn failed(child: &SessionId, why: &str) -> String {
    format!("Subagent failed (task_id: {child}): {why}")
}

/// The rules of a new child: what its caller may not do it may not either, and it hands work on only if its agent has a
/// rule about that.
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
fn output(child: &SessionId, answer: &MessageWithParts, title: String, mut metadata: JsonMap) -> tools::Output {
    let text = result(answer);
    let cut = text.floor_char_boundary(RESULT_MAX);
    let rest = if cut < text.len() { "\n(The rest is cut off; ask the subagent for it.)" } else { "" };
    metadata.insert("truncated".to_owned(), (cut < text.len()).into());
    tools::Output {
        title,
        output: format!(
            "<task id=\"{child}\" state=\"completed\">\n<task_result>\n{}{rest}\n</task_result>\n</task>\n\n\
             <task_metadata>\nsession_id: {child}\n</task_metadata>",
            &text[..cut]
        ),
        metadata,
        ..tools::Output::default()
    }
}

/// The last text of an answer; without one, why there is none.
fn result(answer: &MessageWithParts) -> String {
    let mut texts = answer.parts.iter().filter_map(Part::as_text);
    if let Some(text) = texts.rfind(|text| text.ignored != Some(true) && !text.text.is_empty()) {
        return text.text.clone();
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
        let messages = store.messages_from(&bound.child, &bound.prompt)?;
        for tool in messages.iter().flat_map(|m| m.parts.iter().filter_map(Part::as_tool)) {
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
