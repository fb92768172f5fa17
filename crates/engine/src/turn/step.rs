//! One step: a model call, the parts it produces, and the tools it runs. Each step writes one assistant message.

use std::collections::{HashMap, HashSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use api::{
    AssistantMessage, EventBody, Extra, HostError, Json, JsonMap, Message, MessageError, MessageId, Part, PartHead,
    ProviderAuthData, SessionId, SessionStatus, StepFinishPart, StepStartPart, StructuredOutputData, TextData,
    ToolCompleted, ToolError, ToolPart, ToolPending, ToolRunning, ToolState, ToolTime, UserMessage,
};
use futures::{FutureExt, Stream, StreamExt};
use llm::{ErrorClass, FinishReason, LlmError, LlmEvent, Prompt, retry};
use serde_json::json;
use store::{Batch, Reservation, StoreError};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::ask::rules::Rules;
use crate::project::models::{self, ModelTarget};
use crate::spending::budget::Admission;
use crate::spending::ledger::{self, REPORTED, ReportedUsage, StreamUsage};
use crate::turn::batch::TurnBatch;
use crate::turn::prompt::{self, StepRequest};
use crate::turn::text_writer::TextWriter;
use crate::turn::tool_call::{CallEnd, ToolCall};
use crate::turn::vendor_data::{self, PROVIDER_EXECUTED};
use crate::turn::{Conversation, Turn, structured_output};
use crate::{Error, remote};

/// Marks reasoning of a failed attempt.
pub(crate) const IGNORED: &str = "ignored";
/// The error of a call that the vendor ran without telling its result.
const NO_VENDOR_RESULT: &str = "The provider ran this call itself, and its answer ended without the result.";
/// The maximum number of stream events in one commit.
const BATCHED_EVENTS_MAX: usize = 64;
/// The maximum number of tool calls in one step.
const CALLS_MAX: usize = 128;

/// What the turn does after a step.
pub(crate) enum AfterStep {
    /// Another step, if the model called tools or another prompt waits.
    Continue,
    /// Another step: the model ended without a finish reason.
    Unknown,
    /// No further step, whatever waits: the step failed, was stopped, or was the last one allowed.
    Stop,
}

/// Runs one step. `rules` are those for the calls of the prompt's agent.
pub(crate) async fn run(
    turn: &Arc<Turn>,
    conversation: &mut Conversation,
    user: &UserMessage,
    rules: Rules,
    parent: Option<&SessionId>,
    number: u32,
) -> Result<AfterStep, Error> {
    if turn.cancel().is_cancelled() {
        return end_stopped(turn, conversation, user).await;
    }
    let found =
        turn.instance.agent(&user.agent).and_then(|a| Ok((a, turn.inner.resolve(&turn.instance, &user.model)?)));
    let (agent, target) = match found {
        Ok(found) => found,
        Err(error) => {
            let message = error.to_string();
            let error = match error {
                HostError::NoModel { .. } => MessageError::ProviderAuthError(ProviderAuthData {
                    provider_id: user.model.provider_id.clone(),
                    message,
                }),
                _ => MessageError::unknown(message),
            };
            end_with_error(turn, conversation, user, error).await?;
            return Ok(AfterStep::Stop);
        }
    };
    let is_last = agent.steps.is_some_and(|most| number + 1 >= most);
    let tools = turn.wait(turn.tools(&target.model.api.id)).await?;
    let mut prompt = prompt::build(&StepRequest {
        instance: &turn.instance,
        agent,
        target: &target,
        user,
        conversation,
        rules: &rules,
        step: number,
        is_last,
        tools: &tools,
        servers: turn.server_instructions(&rules),
        session: (&turn.session_id, parent),
    });
    prompt.settings.headers.extend(turn.inner.turns.trace_header(&user.id));
    let mut step = Step::new(turn, user, rules, conversation, &prompt, &target);
    step.is_last = is_last;
    match step.open().await? {
        Admission::Admitted => {}
        Admission::Stopped => return end_stopped(turn, conversation, user).await,
        Admission::Expired(error) => {
            end_with_error(turn, conversation, user, error).await?;
            return Ok(AfterStep::Stop);
        }
    }
    let outcome = step.call_model_with_retries(&target, &prompt).await?;
    let next = step.finish(&target, outcome).await?;
    let (message, parts) = step.into_parts();
    conversation.push_answer(message, parts);
    Ok(next)
}

/// Ends a turn that was stopped before its next step.
pub(crate) async fn end_stopped(
    turn: &Turn,
    conversation: &mut Conversation,
    user: &UserMessage,
) -> Result<AfterStep, Error> {
    if turn.run.is_parked() {
        return Err(Error::Parked);
    }
    end_with_error(turn, conversation, user, MessageError::aborted()).await?;
    Ok(AfterStep::Stop)
}

/// Ends a turn with an error as its answer.
pub(crate) async fn end_with_error(
    turn: &Turn,
    conversation: &mut Conversation,
    user: &UserMessage,
    error: MessageError,
) -> Result<(), StoreError> {
    let mut message = turn.new_answer(user);
    message.error = Some(error.clone());
    message.time.completed = Some(api::now());
    let mut batch = turn.batch().durable();
    batch.event(EventBody::SessionError { session_id: Some(turn.session_id.clone()), error: Some(error) });
    batch.publish_message(Message::Assistant(message.clone()));
    turn.commit(batch).await?;
    conversation.push_answer(message, Vec::new());
    Ok(())
}

/// How the model call of a step ended.
enum ModelCallOutcome {
    Finished,
    Failed(LlmError),
    Cancelled,
    /// The model was not called again because a budget had no room.
    OverBudget(MessageError),
}

struct Step<'a> {
    turn: &'a Arc<Turn>,
    user: &'a UserMessage,
    rules: Rules,
    message: AssistantMessage,
    /// The finished parts, in order. Tool parts join when their call has ended.
    parts: Vec<Part>,
    /// The text or reasoning being written.
    text: TextWriter,
    /// Calls that the model is still writing, by index.
    unfinished_calls: HashMap<usize, ToolPart>,
    calls: JoinSet<Result<(ToolPart, CallEnd), Error>>,
    /// Whether a call has started: then the same request must not be repeated.
    has_called_tools: bool,
    /// The call ids of earlier steps, and of this one: some servers reuse theirs.
    earlier_calls: Arc<HashSet<String>>,
    call_ids: HashSet<String>,
    /// The vendor's name of the model.
    vendor_model: String,
    /// The prompts this turn answers.
    pending: Vec<MessageId>,
    /// The index of the current attempt's first part.
    attempt_from: usize,
    /// The reservation of the model call, until its usage is written.
    reserved: Option<Reservation>,
    /// The usage seen in this attempt.
    usage: StreamUsage,
    /// The usage of all attempts together.
    spent: api::Usage,
    /// Whether the reported usage is stored for recovery.
    usage_recorded: bool,
    finish: Option<FinishReason>,
    rejected: bool,
    /// Whether no further step may follow.
    is_last: bool,
}

impl<'a> Step<'a> {
    fn new(
        turn: &'a Arc<Turn>,
        user: &'a UserMessage,
        rules: Rules,
        conversation: &Conversation,
        prompt: &Prompt,
        target: &ModelTarget,
    ) -> Self {
        let message = turn.new_answer(user);
        let reserved = ledger::reservation(message.id.as_str(), &turn.session_id, 1, prompt, &target.model);
        Self {
            turn,
            user,
            rules,
            message,
            parts: Vec::new(),
            text: TextWriter::default(),
            unfinished_calls: HashMap::new(),
            calls: JoinSet::new(),
            has_called_tools: false,
            earlier_calls: conversation.calls(),
            call_ids: HashSet::new(),
            vendor_model: target.model.api.id.clone(),
            pending: conversation.pending.clone(),
            attempt_from: 0,
            reserved: Some(reserved),
            usage: StreamUsage::default(),
            spent: api::Usage::default(),
            usage_recorded: false,
            finish: None,
            rejected: false,
            is_last: false,
        }
    }

    /// Writes the empty answer, so that clients have something to show, as soon as the budget allows.
    async fn open(&self) -> Result<Admission, Error> {
        let Some(call) = &self.reserved else { return Ok(Admission::Admitted) };
        let status = self.turn.status_event(SessionStatus::Busy);
        let begin = |batch: &mut Batch| {
            batch.publish_message(Message::Assistant(self.message.clone()));
            batch.event(status.clone());
        };
        self.turn.admit(call, begin).await
    }

    /// The usage of this attempt, unless it is already written.
    fn used(&self, target: &ModelTarget, failed: bool) -> api::Usage {
        self.reserved.as_ref().map(|call| self.usage.used(call, &target.model, failed)).unwrap_or_default()
    }

    /// Calls the model, with retries where they may help.
    async fn call_model_with_retries(
        &mut self,
        target: &ModelTarget,
        prompt: &Prompt,
    ) -> Result<ModelCallOutcome, Error> {
        let mut attempt = 0;
        loop {
            self.attempt_from = self.parts.len();
            self.finish = None;
            self.usage = StreamUsage::default();
            let error = match self.call_model(target, prompt).await? {
                ModelCallOutcome::Failed(error) => error,
                other => return Ok(other),
            };
            if error.class == ErrorClass::TooLong {
                // Even if it called tools: another step would run away again.
                self.finish = Some(FinishReason::Length);
                return Ok(ModelCallOutcome::Failed(error));
            }
            if self.has_called_tools {
                // Calls must not be repeated: their results go into another step instead.
                tracing::warn!(error = %error.message, "the model's stream failed after tool calls");
                self.finish = Some(FinishReason::ToolCalls);
                return Ok(ModelCallOutcome::Finished);
            }
            attempt += 1;
            let delay = match error.class {
                ErrorClass::Retryable => retry::delay(attempt, &error, jitter()),
                _ => None,
            };
            let Some(delay) = delay else { return Ok(ModelCallOutcome::Failed(error)) };
            self.discard_attempt().await?;
            let next = api::now() + i64::try_from(delay.as_millis()).unwrap_or(i64::MAX);
            let status = SessionStatus::Retry { attempt, message: error.message, action: None, next };
            let session_id = self.turn.session_id.clone();
            let mut batch = self.turn.batch();
            batch.event(EventBody::SessionStatus { session_id: session_id.clone(), status });
            let reserved = self.reserved.clone();
            self.settle_reservation(&mut batch, &self.used(target, true));
            self.commit(batch).await?;
            self.turn.inner.spending.call_ended();
            if self.turn.cancel().run_until_cancelled(tokio::time::sleep(delay)).await.is_none() {
                return Ok(ModelCallOutcome::Cancelled);
            }
            let Some(call) = reserved else { continue };
            let status = EventBody::SessionStatus { session_id, status: SessionStatus::Busy };
            match self.turn.admit(&call, |batch| batch.event(status.clone())).await? {
                Admission::Admitted => self.reserved = Some(call),
                Admission::Stopped => return Ok(ModelCallOutcome::Cancelled),
                Admission::Expired(error) => return Ok(ModelCallOutcome::OverBudget(error)),
            }
        }
    }

    /// Replaces the reservation with the actual usage.
    fn settle_reservation(&mut self, batch: &mut Batch, used: &api::Usage) {
        if let Some(call) = self.reserved.take() {
            batch.spend(&call.id, used);
            self.spent += used;
        }
    }

    /// One model call.
    async fn call_model(&mut self, target: &ModelTarget, prompt: &Prompt) -> Result<ModelCallOutcome, Error> {
        let mut stream = self.turn.inner.llm.stream(&target.endpoint, prompt);
        let mut batched = 0;
        loop {
            // Events that are ready are written together, up to a limit.
            let may_batch = batched < BATCHED_EVENTS_MAX && !self.turn.cancel().is_cancelled();
            let ready = if may_batch { stream.next().now_or_never() } else { None };
            batched += 1;
            let next = match ready {
                Some(next) => Some(next),
                None => {
                    batched = 0;
                    self.turn.flush().await?;
                    self.turn.cancel().run_until_cancelled(stream.next()).await
                }
            };
            let event = match next {
                None => {
                    self.drain_usage(stream);
                    return Ok(ModelCallOutcome::Cancelled);
                }
                Some(None) => return Ok(ModelCallOutcome::Finished),
                Some(Some(Err(error))) => return Ok(ModelCallOutcome::Failed(error)),
                Some(Some(Ok(event))) => event,
            };
            if self.usage.bytes.is_none() {
                let head = self.head();
                self.push_part(Part::StepStart(StepStartPart { head, snapshot: None, extra: Extra::default() }));
            }
            self.usage.record(&event);
            match event {
                LlmEvent::Text(delta) => self.write(&delta, false).await?,
                LlmEvent::Reasoning(delta) => self.write(&delta, true).await?,
                LlmEvent::Begin { kind, metadata } => {
                    self.text.begin_block(self.turn, kind, metadata, &mut self.parts);
                }
                LlmEvent::End { metadata } => {
                    self.text.end_block(self.turn, &self.message.id, metadata, &mut self.parts);
                }
                LlmEvent::ToolStart { index, id, name, provider_executed } => {
                    self.begin_call(index, id, name, provider_executed).await?;
                }
                LlmEvent::ToolInput { .. } | LlmEvent::Usage(_) => {}
                LlmEvent::ToolEnd { index, input, metadata } => {
                    let Some(part) = self.unfinished_calls.get_mut(&index) else { continue };
                    add_metadata(part, metadata);
                    if remote::is_provider_executed(part) {
                        self.show_vendor_call(index, &input).await?;
                    } else {
                        self.run_call(index, input).await;
                    }
                }
                LlmEvent::ToolResult { index, output, is_error, metadata } => {
                    self.end_vendor_call(index, output, is_error, metadata).await?;
                }
                LlmEvent::Finish(reason) => self.finish = Some(reason),
            }
        }
    }

    /// Reads the usage of a cancelled call, if the model has already sent it.
    fn drain_usage(&mut self, mut stream: impl Stream<Item = Result<LlmEvent, LlmError>> + Unpin) {
        for _ in 0..BATCHED_EVENTS_MAX {
            match stream.next().now_or_never() {
                Some(Some(Ok(event @ LlmEvent::Usage(_)))) => self.usage.record(&event),
                Some(Some(Ok(_))) => {}
                _ => break,
            }
        }
    }

    /// Appends to the text or the reasoning.
    async fn write(&mut self, delta: &str, reasoning: bool) -> Result<(), StoreError> {
        // A running call commits too, and could overtake a deferred part.
        let defer = self.calls.is_empty();
        self.text.write(self.turn, &self.message.id, delta, reasoning, defer, &mut self.parts).await
    }

    /// Ends the open text. `discard`: the model must not see it again.
    fn end_text(&mut self, discard: bool) {
        self.text.close(self.turn, discard, &mut self.parts);
    }

    /// Marks what a failed attempt wrote: it stays visible, but the next attempt and later steps ignore it. Unfinished
    /// calls are removed.
    async fn discard_attempt(&mut self) -> Result<(), StoreError> {
        self.end_text(true);
        let mut batch = self.turn.batch();
        for (_, part) in self.unfinished_calls.drain() {
            let PartHead { id, session_id, message_id } = part.head;
            batch.delete_part(&id);
            batch.event(EventBody::PartRemoved { session_id, message_id, part_id: id });
        }
        for part in &mut self.parts[self.attempt_from..] {
            match part {
                Part::Text(text) if text.ignored.is_none() => text.ignored = Some(true),
                Part::Reasoning(text) => {
                    text.metadata.get_or_insert_default().insert(IGNORED.to_owned(), true.into());
                }
                // Only calls that the vendor ran can be here: after one of ours, no attempt is repeated.
                Part::Tool(tool) => {
                    tool.metadata.get_or_insert_default().insert(IGNORED.to_owned(), true.into());
                }
                _ => continue,
            }
            batch.publish_part(part);
        }
        self.turn.commit_any(batch).await.map(drop)
    }

    /// Shows a call that the model begins to write.
    async fn begin_call(
        &mut self,
        index: usize,
        id: String,
        name: String,
        provider_executed: bool,
    ) -> Result<(), StoreError> {
        if self.text.is_reasoning() {
            self.end_text(false);
        }
        let state = ToolState::Pending(ToolPending { input: Json::Object(Default::default()), raw: String::new() });
        let used = id.is_empty() || self.earlier_calls.contains(&id) || !self.call_ids.insert(id.clone());
        let call_id = if used { api::tool_call_id() } else { id };
        let mark = || JsonMap::from_iter([(PROVIDER_EXECUTED.to_owned(), true.into())]);
        let metadata = provider_executed.then(mark);
        let part = ToolPart { head: self.head(), call_id, tool: name, state, metadata, extra: Extra::default() };
        let mut batch = self.turn.batch();
        batch.publish_part(&Part::Tool(part.clone()));
        self.unfinished_calls.insert(index, part);
        self.commit(batch).await
    }

    /// Shows a call that the vendor runs itself. It never runs here, and needs no permission: it touches nothing of ours.
    async fn show_vendor_call(&mut self, index: usize, raw: &str) -> Result<(), StoreError> {
        let Some(part) = self.unfinished_calls.get_mut(&index) else { return Ok(()) };
        let input = serde_json::from_str(raw).ok().filter(Json::is_object).unwrap_or_else(|| json!({}));
        let time = ToolTime { start: api::now(), end: None, compacted: None };
        part.state = ToolState::Running(ToolRunning { input, title: None, metadata: None, time });
        let part = Part::Tool(part.clone());
        let mut batch = self.turn.batch();
        batch.publish_part(&part);
        self.commit(batch).await
    }

    /// Stores the outcome of a call that the vendor ran itself.
    async fn end_vendor_call(
        &mut self,
        index: usize,
        output: String,
        is_error: bool,
        metadata: JsonMap,
    ) -> Result<(), StoreError> {
        let is_vendors = self.unfinished_calls.get(&index).is_some_and(remote::is_provider_executed);
        let Some(mut part) = self.unfinished_calls.remove(&index).filter(|_| is_vendors) else { return Ok(()) };
        add_metadata(&mut part, metadata);
        let now = api::now();
        let time = ToolTime { start: start_of(&part.state).unwrap_or(now), end: Some(now), compacted: None };
        let input = part.state.input().clone();
        part.state = if is_error {
            ToolState::Error(ToolError { input, error: output, metadata: None, time })
        } else {
            let (title, metadata) = (String::new(), JsonMap::new());
            ToolState::Completed(ToolCompleted { input, output, title, metadata, time, attachments: None })
        };
        self.push_part(Part::Tool(part));
        self.turn.flush().await
    }

    /// Runs a call that the model has finished writing, in parallel with the rest of the stream. Returns once the call
    /// is shown as running, so that everybody sees the parts of a step in the same order.
    async fn run_call(&mut self, index: usize, raw: String) {
        let Some(part) = self.unfinished_calls.remove(&index) else { return };
        self.has_called_tools = true;
        let repeats = {
            let mut past_calls = crate::lock(&self.turn.past_calls);
            let same = |earlier: &&(String, String)| earlier.0 == part.tool && earlier.1 == raw;
            let repeats = past_calls.iter().rev().take_while(same).count();
            past_calls.push((part.tool.clone(), raw.clone()));
            repeats
        };
        let (on_running, running) = oneshot::channel();
        let call = ToolCall {
            turn: self.turn.clone(),
            rules: self.rules.clone(),
            vendor_model: self.vendor_model.clone(),
            model_ref: self.user.model.clone(),
            agent: self.user.agent.clone(),
            prompt: self.user.id.clone(),
            format: self.user.format.clone(),
            repeats,
            part,
            earlier_asks: Vec::new(),
            on_running: Some(on_running),
        };
        let is_structured_output = call.part.tool == structured_output::TOOL;
        let refusal = if self.is_last && !is_structured_output {
            Some("No tools are available in the last step of a turn".to_owned())
        } else if self.calls.len() >= CALLS_MAX {
            Some(format!("A step has at most {CALLS_MAX} calls"))
        } else {
            None
        };
        let (turn, part) = (self.turn.clone(), call.part.clone());
        self.calls.spawn(async move {
            let work = async move {
                match refusal {
                    Some(refusal) => call.refuse(refusal).await,
                    None => call.run(&raw).await,
                }
            };
            match AssertUnwindSafe(work).catch_unwind().await {
                Ok(result) => result,
                Err(_) => ToolCall::record_panic(&turn, part).await,
            }
        });
        // An error means that the call ended before it was shown; joining the calls reports it.
        let _ = running.await;
    }

    /// Waits for all calls, even if one fails: none may still run when the session is released. The usage is written
    /// first, because calls may take hours and subagents need the reserved budget.
    async fn finish_calls(&mut self, used: &api::Usage) -> Result<(), Error> {
        let mut batch = self.turn.batch();
        if self.reserved.is_some() && self.usage.usage.is_some() {
            ReportedUsage::store(&mut batch, &self.turn.session_id, &self.message.id, used);
            self.usage_recorded = true;
        }
        self.settle_reservation(&mut batch, used);
        let turn = self.turn.clone();
        let write = async move {
            if turn.commit_any(batch).await? {
                turn.inner.spending.call_ended();
            }
            Ok::<_, StoreError>(())
        };
        let (written, joined) = tokio::join!(write, self.join_calls());
        written?;
        joined
    }

    /// Leaves the step as it is for the process that resumes it. That process charges the usage the model reported.
    async fn park(&mut self, used: &api::Usage) -> Result<Error, Error> {
        self.finish_calls(used).await?;
        if !self.usage_recorded {
            let spent = std::mem::take(&mut self.spent);
            let mut batch = self.turn.batch();
            ledger::charge(&mut batch, &self.turn.session_id, spent.cost, spent.tokens);
            self.commit(batch).await?;
        }
        Ok(Error::Parked)
    }

    async fn join_calls(&mut self) -> Result<(), Error> {
        let mut failed = None;
        while let Some(joined) = self.calls.join_next().await {
            match joined {
                Ok(Ok((part, ended))) => {
                    self.rejected |= matches!(ended, CallEnd::Rejected);
                    self.parts.push(Part::Tool(part));
                }
                Ok(Err(error)) => failed = failed.or(Some(error)),
                Err(error) => tracing::error!(%error, "the task of a tool call failed"),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Fails calls that the model never finished writing.
    async fn fail_pending_calls(&mut self, why: &str) -> Result<(), StoreError> {
        if self.unfinished_calls.is_empty() {
            return Ok(());
        }
        let mut batch = self.turn.batch();
        for (_, mut part) in self.unfinished_calls.drain() {
            let (now, start) = (api::now(), start_of(&part.state));
            // Only a call of the vendor can be running here.
            let (why, interrupted) = match start {
                Some(_) => (NO_VENDOR_RESULT, Some(JsonMap::from_iter([("interrupted".to_owned(), true.into())]))),
                None => (why, None),
            };
            part.state = ToolState::Error(ToolError {
                input: part.state.input().clone(),
                error: why.to_owned(),
                metadata: interrupted,
                time: ToolTime { start: start.unwrap_or(now), end: Some(now), compacted: None },
            });
            batch.publish_part(&Part::Tool(part.clone()));
            self.parts.push(Part::Tool(part));
        }
        self.commit(batch).await
    }

    /// Ends the step: what it used, why it ended, and what comes next.
    async fn finish(&mut self, target: &ModelTarget, outcome: ModelCallOutcome) -> Result<AfterStep, Error> {
        let used = self.used(target, matches!(outcome, ModelCallOutcome::Failed(_)));
        if matches!(outcome, ModelCallOutcome::Cancelled) && self.turn.run.is_parked() {
            return Err(self.park(&used).await?);
        }
        self.end_text(false);
        if !self.calls.is_empty() {
            self.finish_calls(&used).await?;
        }
        self.fail_pending_calls("The call was not complete when the model stopped; it did not run.").await?;
        let cancelled = matches!(outcome, ModelCallOutcome::Cancelled) || self.turn.cancel().is_cancelled();
        if cancelled && self.turn.run.is_parked() {
            return Err(self.park(&used).await?);
        }
        let mut reason = self.finish.unwrap_or(FinishReason::Unknown);
        if self.has_tools() && reason == FinishReason::Stop {
            // Some servers send `stop` along with calls.
            reason = FinishReason::ToolCalls;
        }
        let error = match outcome {
            _ if cancelled => Some(MessageError::aborted()),
            ModelCallOutcome::Failed(error) => Some(error.into_message_error(&target.model.provider_id)),
            ModelCallOutcome::OverBudget(error) => Some(error),
            _ if reason == FinishReason::Error => {
                Some(MessageError::unknown("The model ended its answer with an error of its own"))
            }
            _ if reason == FinishReason::ContentFilter => Some(MessageError::ContentFilterError(TextData::new(
                "The provider's content filter blocked the answer",
            ))),
            _ => None,
        };
        let structured = structured_output::answer(&self.parts);
        let error = error.or_else(|| self.missing_structured_output(reason, structured.is_some()));
        self.message.structured = structured;
        let out_of_steps = self.is_last && reason == FinishReason::ToolCalls;
        let stop = error.is_some() || self.message.structured.is_some() || self.rejected || out_of_steps;
        self.write_end(target, reason, error, stop, &used);
        if stop {
            return Ok(AfterStep::Stop);
        }
        Ok(if reason == FinishReason::Unknown { AfterStep::Unknown } else { AfterStep::Continue })
    }

    /// The error if the turn must produce structured output and did not.
    fn missing_structured_output(&self, reason: FinishReason, has_answer: bool) -> Option<MessageError> {
        structured_output::spec(self.user)?;
        let tried =
            crate::lock(&self.turn.past_calls).iter().filter(|(tool, _)| tool == structured_output::TOOL).count();
        let retries = u32::try_from(tried).unwrap_or(u32::MAX);
        let out_of_tries = retries > structured_output::retries(self.user);
        let stopped = !matches!(reason, FinishReason::ToolCalls | FinishReason::Unknown);
        (!has_answer && (stopped || out_of_tries)).then(|| {
            let message = "The model did not submit an answer in the requested format".to_owned();
            MessageError::StructuredOutputError(StructuredOutputData { message, retries })
        })
    }

    /// Writes the end of the step into the commit that ends the turn or begins the next step, so that cost and outcome
    /// are stored together. The last step also dequeues the prompts, so that a crash right after it does not call the
    /// model again.
    fn write_end(
        &mut self,
        target: &ModelTarget,
        reason: FinishReason,
        error: Option<MessageError>,
        stop: bool,
        used: &api::Usage,
    ) {
        let usage = self.usage.usage.unwrap_or_default();
        let (cost, tokens) = (models::cost(&target.model, &usage), models::tokens(&usage));
        let mut batch = self.turn.batch();
        self.settle_reservation(&mut batch, used);
        let has_finished = error.as_ref().is_none_or(|error| {
            matches!(
                error,
                MessageError::ContentFilterError(_)
                    | MessageError::StructuredOutputError(_)
                    | MessageError::MessageOutputLengthError(_)
            )
        });
        if has_finished {
            let part = Part::StepFinish(StepFinishPart {
                head: self.head(),
                reason: reason.as_str().to_owned(),
                snapshot: None,
                cost,
                tokens: tokens.clone(),
                extra: Extra::default(),
            });
            batch.publish_part(&part);
            self.parts.push(part);
            self.message.finish = Some(reason.as_str().to_owned());
        }
        self.message.cost = cost;
        self.message.tokens = tokens.clone();
        if has_finished {
            batch.publish_message(Message::Assistant(self.message.clone()));
        }
        // More than the message shows, if an attempt failed or was interrupted.
        let spent = std::mem::take(&mut self.spent);
        ledger::charge(&mut batch, &self.turn.session_id, spent.cost, spent.tokens);
        if self.usage_recorded {
            batch.record(REPORTED, self.turn.session_id.as_str(), None, None);
        }
        self.message.time.completed = Some(api::now());
        if let Some(error) = error {
            batch.event(EventBody::SessionError {
                session_id: Some(self.turn.session_id.clone()),
                error: Some(error.clone()),
            });
            self.message.error = Some(error);
        }
        batch.publish_message(Message::Assistant(self.message.clone()));
        if stop {
            for prompt in &self.pending {
                batch.dequeue(prompt);
            }
        }
        self.turn.defer(batch.durable());
    }

    /// Whether the model waits for results of ours.
    fn has_tools(&self) -> bool {
        let own = |tool: &ToolPart| !remote::is_provider_executed(tool);
        self.unfinished_calls.values().any(own) || self.parts.iter().filter_map(Part::as_tool).any(own)
    }

    fn head(&self) -> PartHead {
        PartHead::new(&self.turn.session_id, &self.message.id)
    }

    /// Adds a part. Its row goes out with the next commit.
    fn push_part(&mut self, part: Part) {
        let mut batch = self.turn.batch();
        batch.publish_part(&part);
        self.turn.defer(batch);
        self.parts.push(part);
    }

    async fn commit(&self, batch: TurnBatch) -> Result<(), StoreError> {
        self.turn.commit(batch).await.map(drop)
    }

    /// The message and its parts, in order of creation.
    fn into_parts(mut self) -> (AssistantMessage, Vec<Part>) {
        self.parts.sort_by(|a, b| a.head().map(|h| &h.id).cmp(&b.head().map(|h| &h.id)));
        (self.message, self.parts)
    }
}

/// Adds what the vendor wants back with a call.
fn add_metadata(part: &mut ToolPart, metadata: JsonMap) {
    if !metadata.is_empty() {
        vendor_data::merge(part.metadata.get_or_insert_default(), metadata);
    }
}

/// When a running call started.
fn start_of(state: &ToolState) -> Option<i64> {
    if let ToolState::Running(running) = state { Some(running.time.start) } else { None }
}

/// A number from 0 to 1, so that many clients do not retry in lockstep.
fn jitter() -> f64 {
    f64::from(std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().subsec_nanos())
        / 1e9
}
