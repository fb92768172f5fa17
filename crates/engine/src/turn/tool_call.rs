//! One tool call: intent, decision, work, outcome. Each is a commit, so a crash never hides what may have happened.

use std::sync::Arc;
use std::time::Duration;

use api::{
    Action, Environment, EventBody, Extra, FilePart, Json, JsonMap, MessageId, ModelRef, OutputFormat, Part, PartHead,
    PermissionId, PermissionReply, PermissionReplyKind, PermissionRequest, QuestionId, QuestionRequest, Rule,
    ToolCompleted, ToolPart, ToolRef, ToolRunning, ToolState, ToolTime, Usage,
};
use store::{Batch, StoreError};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;
use tools::{Answers, Change, Context, Effect, FileChange, Need, Output, Progress, ProgressUpdate, Tool, ToolError};

use crate::ask::rules::Rules;
use crate::subagent::task;
use crate::turn::batch::TurnBatch;
use crate::turn::text_writer::row_interval;
use crate::turn::{Turn, known_files, prompt, structured_output};
use crate::{Error, ask};

/// The minimum interval between live updates of a running call.
pub(crate) const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// This many equal calls in a row are a loop, and need a special permission.
const DOOM_LOOP_CALLS: usize = 3;
/// The permission to continue such a loop.
const DOOM_LOOP_PERMISSION: &str = "doom_loop";
/// How much of a model's invalid arguments an error quotes.
const QUOTED_MAX: usize = 500;

/// Marks a permission request whose command was not fully understood.
pub(crate) const OPAQUE: &str = "opaque";

/// The key of the path to a subagent in its requests.
const SUBAGENT: &str = "subagent";

/// The record namespace of running calls with side effects.
pub(crate) const STARTED: &str = "started";

/// The tool that stands for calls that cannot run.
pub(crate) const INVALID: &str = "invalid";

/// What the end of a call means for the turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallEnd {
    /// The turn continues.
    Done,
    /// The user rejected the call: the turn stops.
    Rejected,
}

/// A call that is ready to run.
pub(crate) struct ToolCall {
    pub(crate) turn: Arc<Turn>,
    pub(crate) rules: Rules,
    /// The vendor's name of the calling model, …
    pub(crate) vendor_model: String,
    /// … and our own reference to it.
    pub(crate) model_ref: ModelRef,
    pub(crate) agent: String,
    /// The prompt the turn answers.
    pub(crate) prompt: MessageId,
    pub(crate) format: Option<OutputFormat>,
    /// How many equal calls came right before it.
    pub(crate) repeats: usize,
    pub(crate) part: ToolPart,
    /// The permission requests it made before a restart, answered or not.
    pub(crate) earlier_asks: Vec<PermissionRequest>,
    /// Notified when the call is shown as running.
    pub(crate) on_running: Option<oneshot::Sender<()>>,
}

/// Why a call does not run.
enum Refusal {
    Text(String, CallEnd),
    Cancelled,
}

impl Refusal {
    async fn apply(self, call: ToolCall, input: Json, started: i64) -> Result<(ToolPart, CallEnd), Error> {
        match self {
            Self::Text(text, ended) => call.end_with_error(input, started, text, None, ended).await,
            Self::Cancelled => call.end_cancelled(input, started).await,
        }
    }
}

/// The result of asking the user questions.
pub(crate) enum QuestionOutcome {
    Answered(Answers),
    /// Nobody answered in time.
    Expired,
    /// The turn was stopped meanwhile.
    Stopped,
}

/// The result of a permission decision.
pub(crate) enum Decision {
    Allowed,
    Denied(String),
    Rejected(String),
    Feedback(String),
    Cancelled,
}

impl Decision {
    /// The refusal, unless the call is allowed.
    fn refusal(self) -> Option<Refusal> {
        Some(match self {
            Self::Allowed => return None,
            Self::Denied(text) | Self::Feedback(text) => Refusal::Text(text, CallEnd::Done),
            Self::Rejected(text) => Refusal::Text(text, CallEnd::Rejected),
            Self::Cancelled => Refusal::Cancelled,
        })
    }
}

impl ToolCall {
    /// Runs a call that the model has just written.
    pub(crate) async fn run(self, raw: &str) -> Result<(ToolPart, CallEnd), Error> {
        let input = match parse_arguments(raw) {
            Ok(input) => input,
            Err(error) => {
                let quoted: String = raw.chars().take(QUOTED_MAX).collect();
                let text = format!("Invalid input for tool {}: {error}. It was: {quoted}", self.part.tool);
                return self.execute_invalid(text).await;
            }
        };
        self.execute(input).await
    }

    /// Runs a call with parsed arguments: a new one, or an interrupted one that may run again.
    pub(crate) async fn execute(mut self, input: Json) -> Result<(ToolPart, CallEnd), Error> {
        if self.part.tool == structured_output::TOOL
            && let Some(OutputFormat::JsonSchema { schema, .. }) = self.format.clone()
        {
            return self.submit_structured_output(&schema, input).await;
        }
        if self.is_preapproved_task()? {
            return self.delegate(input, api::now(), true).await;
        }
        let Some(tool) = self.find_tool().await else {
            let text = self.unavailable_text().await;
            return Box::pin(self.execute_invalid(text)).await;
        };
        let started = api::now();
        let mut is_running = false;
        self.earlier_asks = self.stored_asks()?;
        if self.part.tool == INVALID {
            // The invalid tool does nothing, so it does not wait for requests of the original call.
            self.earlier_asks.retain(|ask| ask.permission == DOOM_LOOP_PERMISSION && ask.patterns == [INVALID]);
        }
        // Detect a loop before examining the call: a model often repeats a call that fails.
        let doom_loop = self.doom_loop(&input);
        if let Some(need) = &doom_loop
            && let Some(refusal) = self.check_need(need, &input, started, &mut is_running).await?
        {
            return refusal.apply(self, input, started).await;
        }
        let mut ctx = self.context(Progress::none());
        let needs = match tool.needs(&input, &ctx).await {
            Ok(needs) => needs,
            Err(error) => {
                self.show_running(&input, started, false, |_| {}).await?;
                return self.end_failed(input, started, error).await;
            }
        };
        for need in &needs {
            if let Some(refusal) = self.check_need(need, &input, started, &mut is_running).await? {
                return refusal.apply(self, input, started).await;
            }
        }
        if let Some(refusal) = self.await_earlier_asks(doom_loop.iter().chain(&needs), &mut is_running).await? {
            return refusal.apply(self, input, started).await;
        }
        if let Some(questions) = tool.questions(&input) {
            match self.ask_questions(questions, &input, started, &mut is_running).await? {
                QuestionOutcome::Answered(answers) => ctx.answers = Some(answers),
                QuestionOutcome::Expired => {}
                QuestionOutcome::Stopped => return self.end_cancelled(input, started).await,
            }
        }
        if tool.effect() == Effect::Resumes {
            return self.delegate(input, started, is_running).await;
        }
        if is_running {
            // The files may have changed while the user was asked.
            ctx.env = self.environment();
        }
        self.mark_started(&input, started, is_running, tool.effect()).await?;
        let dismissed = ctx.answers == Some(Answers::Dismissed);
        let (updates, progress) = watch::channel(None);
        ctx.progress = Progress::new(move |update| {
            updates.send_replace(Some(update));
        });
        ctx.granted = needs.into();
        let outcome = self.run_tool(&tool, input.clone(), ctx, started, progress).await?;
        if self.turn.run.is_parked() {
            // We stopped it ourselves; recovery decides what may run again.
            return Err(Error::Parked);
        }
        match outcome {
            Ok(output) => self.complete(input, started, output, CallEnd::Done).await,
            Err(error) => {
                let (part, ended) = self.end_failed(input, started, error).await?;
                Ok((part, if dismissed { CallEnd::Rejected } else { ended }))
            }
        }
    }

    /// Records the failure of a call whose tool panicked.
    pub(crate) async fn record_panic(turn: &Turn, mut part: ToolPart) -> Result<(ToolPart, CallEnd), Error> {
        let now = api::now();
        let error = format!("The {} tool failed unexpectedly; try another way", part.tool);
        let time = ToolTime { start: now, end: Some(now), compacted: None };
        let input = part.state.input().clone();
        part.state = ToolState::Error(api::ToolError { input, error, metadata: None, time });
        let mut batch = turn.batch();
        batch.publish_part(&Part::Tool(part.clone()));
        turn.commit(batch).await?;
        Ok((part, CallEnd::Done))
    }

    /// Ends a call that must not run.
    pub(crate) async fn refuse(mut self, text: String) -> Result<(ToolPart, CallEnd), Error> {
        let (now, input) = (api::now(), Json::Object(JsonMap::new()));
        self.show_running(&input, now, false, |_| {}).await?;
        self.end_with_error(input, now, text, None, CallEnd::Done).await
    }

    /// The answer to a call of a tool that the model does not have.
    async fn unavailable_text(&self) -> String {
        let registry = self.turn.tools(&self.vendor_model).await;
        let names: Vec<&str> = prompt::offered(&registry, &self.rules).into_iter().map(|t| t.name()).collect();
        let (tool, names) = (&self.part.tool, names.join(", "));
        let mut text = format!("Model tried to call unavailable tool '{tool}'. Available tools: {names}.");
        if tool == tools::WEBSEARCH && registry.get(tool).is_none() {
            text += &format!(" {}.", tools::NO_SEARCH_ENGINE);
        }
        text
    }

    async fn find_tool(&self) -> Option<Arc<dyn Tool>> {
        let tool = self.turn.tool(&self.vendor_model, &self.part.tool).await?;
        let refused = tool.name() != INVALID && self.rules.refuses_tool(&*tool);
        (!refused).then_some(tool)
    }

    /// A fresh view of the files.
    fn environment(&self) -> Arc<dyn Environment> {
        let environment = self.turn.inner.environments.of(&self.turn.session_id);
        environment.clone().for_call().unwrap_or(environment)
    }

    pub(crate) fn context(&self, progress: Progress) -> Context {
        let turn = &self.turn;
        Context {
            session: turn.session_id.clone(),
            message: self.part.head.message_id.clone(),
            call_id: self.part.call_id.clone(),
            agent: self.agent.clone(),
            directory: turn.instance.directory.clone(),
            worktree: turn.instance.worktree().to_owned(),
            env: self.environment(),
            exec: turn.instance.exec.clone(),
            cancel: turn.cancel().child_token(),
            progress,
            options: turn.options.clone(),
            answers: None,
            granted: Arc::from([]),
            readable: turn.readable_files(&self.rules),
            traceparent: turn.inner.turns.sender_trace(&self.prompt),
        }
    }

    /// The need of a repeated call, or of one that asked for this permission before a restart.
    fn doom_loop(&self, input: &Json) -> Option<Need> {
        if self.repeats + 1 < DOOM_LOOP_CALLS
            && !self.earlier_asks.iter().any(|ask| ask.permission == DOOM_LOOP_PERMISSION)
        {
            return None;
        }
        let need = Need::new(DOOM_LOOP_PERMISSION, &self.part.tool).with("tool", self.part.tool.clone());
        Some(need.with("input", input.clone()))
    }

    /// Checks a need. Returns the refusal if it is not granted.
    async fn check_need(
        &mut self,
        need: &Need,
        input: &Json,
        started: i64,
        is_running: &mut bool,
    ) -> Result<Option<Refusal>, Error> {
        let decision = self.decide(need, input, started, is_running).await?;
        if !*is_running && !matches!(decision, Decision::Allowed) {
            self.show_running(input, started, false, |_| {}).await?;
        }
        Ok(decision.refusal())
    }

    /// Waits for replies to requests that the call made before a restart and no longer needs, because the files may
    /// have changed.
    async fn await_earlier_asks(
        &self,
        needs: impl Iterator<Item = &Need> + Clone,
        is_running: &mut bool,
    ) -> Result<Option<Refusal>, Error> {
        for ask in &self.earlier_asks {
            if needs.clone().any(|need| is_about(ask, need)) {
                continue;
            }
            *is_running = true;
            if let Some(ended) = self.await_decision(&ask.id).await?.refusal() {
                return Ok(Some(ended));
            }
        }
        Ok(None)
    }

    /// Shows the call as running. It has not started yet: see [`mark_started`](Self::mark_started).
    pub(crate) async fn show_running(
        &mut self,
        input: &Json,
        started: i64,
        durable: bool,
        first: impl FnOnce(&mut Batch),
    ) -> Result<(), StoreError> {
        let mut batch = self.turn.batch();
        self.count_usage(&mut batch);
        self.part.state = ToolState::Running(ToolRunning {
            input: input.clone(),
            title: None,
            metadata: None,
            time: ToolTime { start: started, end: None, compacted: None },
        });
        first(&mut batch);
        batch.publish_part(&Part::Tool(self.part.clone()));
        let batch = if durable { batch.durable() } else { batch };
        self.turn.commit(batch).await?;
        self.signal_running();
        Ok(())
    }

    /// Counts the call once: an interrupted one was already counted.
    pub(crate) fn count_usage(&self, batch: &mut Batch) {
        if matches!(self.part.state, ToolState::Pending(_)) {
            batch.usage(&self.turn.session_id, &Usage { tool_calls: 1, ..Usage::default() });
        }
    }

    pub(crate) fn signal_running(&mut self) {
        if let Some(on_running) = self.on_running.take() {
            let _ = on_running.send(());
        }
    }

    /// Records the intent: from now on the call may have happened. A call with side effects leaves a durable mark until
    /// its outcome is stored; a crash in between makes it `interrupted`.
    async fn mark_started(
        &mut self,
        input: &Json,
        started: i64,
        is_running: bool,
        effect: Effect,
    ) -> Result<(), StoreError> {
        let mark = (effect == Effect::SideEffect).then(|| self.part.head.id.clone());
        let put = |batch: &mut Batch| {
            if let Some(part) = &mark {
                batch.record(STARTED, part.as_str(), Some(&Json::Bool(true)), None);
            }
        };
        if !is_running {
            return self.show_running(input, started, mark.is_some(), put).await;
        }
        let mut batch = self.turn.batch().durable();
        put(&mut batch);
        self.turn.commit_any(batch).await.map(drop)
    }

    /// A batch for the outcome. It removes the mark of the intent, and the task link.
    fn outcome_batch(&self) -> TurnBatch {
        let mut batch = self.turn.batch();
        batch.record(STARTED, self.part.head.id.as_str(), None, None);
        if self.part.tool == task::TOOL {
            batch.end_task(&self.part.head.id);
        }
        batch
    }

    pub(crate) async fn decide(
        &mut self,
        need: &Need,
        input: &Json,
        started: i64,
        is_running: &mut bool,
    ) -> Result<Decision, Error> {
        match self.turn.judge(&self.rules, need)? {
            Action::Deny => Ok(Decision::Denied(denial_text(&self.rules.denying_rules(need), need))),
            // The reply to a request decides: rules that allow the call by now do not replace it.
            Action::Allow if !self.earlier_asks.iter().any(|ask| is_about(ask, need)) => Ok(Decision::Allowed),
            Action::Allow | Action::Ask => {
                let id = self.ask(need, input, started, is_running).await?;
                self.await_decision(&id).await
            }
        }
    }

    /// Waits for the reply to a permission request.
    async fn await_decision(&self, id: &PermissionId) -> Result<Decision, Error> {
        let Some(reply) = self.await_reply(id.as_str()).await? else { return Ok(Decision::Cancelled) };
        let expired = reply.get(ask::EXPIRED).is_some();
        Ok(decision_of(serde_json::from_value(reply).ok(), expired))
    }

    /// The requests this call made before a restart, answered or not.
    fn stored_asks<T: serde::de::DeserializeOwned>(&self) -> Result<Vec<T>, StoreError> {
        if matches!(self.part.state, ToolState::Pending(_)) {
            // A request is stored together with the running call.
            return Ok(Vec::new());
        }
        // Servers reuse call ids across messages, so compare the message too.
        let mine = |row: &&store::AskRow| {
            let data: Json = serde_json::from_str(&row.data).unwrap_or_default();
            data["tool"]["messageID"] == self.part.head.message_id.as_str()
        };
        let rows = self.turn.store().asks_of_call(&self.turn.session_id, &self.part.call_id)?;
        Ok(rows.iter().filter(mine).filter_map(|row| serde_json::from_str(&row.data).ok()).collect())
    }

    /// Sends a permission request to the user: the one from before a restart, or a new one.
    async fn ask(
        &mut self,
        need: &Need,
        input: &Json,
        started: i64,
        is_running: &mut bool,
    ) -> Result<PermissionId, StoreError> {
        let earlier = self.stored_asks::<PermissionRequest>()?;
        if let Some(earlier) = earlier.into_iter().find(|ask| is_about(ask, need)) {
            *is_running = true;
            return Ok(earlier.id);
        }
        let mut metadata = ask_metadata(&self.rules, need);
        if let Some(path) = self.turn.inner.subagent_path(&self.turn.session_id)? {
            metadata.insert(SUBAGENT.to_owned(), path);
        }
        let ask = PermissionRequest {
            id: PermissionId::new(),
            session_id: self.turn.session_id.clone(),
            permission: need.permission.clone(),
            patterns: need.patterns.clone(),
            metadata,
            always: need.always.clone(),
            tool: Some(self.tool_ref()),
            extra: Extra::default(),
        };
        let ask = ask.with_directory(&self.turn.instance.approval_directory());
        let id = ask.id.clone();
        if ["edit", "external_directory"].contains(&need.permission.as_str()) && !std::mem::replace(is_running, true) {
            // For requests about files, clients expect to see the running call first; for all others, the request
            // first.
            self.show_running(input, started, false, |_| {}).await?;
        }
        self.store_ask(input, started, is_running, |batch| {
            batch.permission(&ask);
            batch.event(EventBody::PermissionAsked(Box::new(ask)));
        })
        .await?;
        Ok(id)
    }

    /// Asks the user the tool's questions.
    pub(crate) async fn ask_questions(
        &mut self,
        questions: Vec<api::Question>,
        input: &Json,
        started: i64,
        is_running: &mut bool,
    ) -> Result<QuestionOutcome, Error> {
        let id = match self.stored_asks::<QuestionRequest>()?.into_iter().next() {
            Some(earlier) => earlier.id,
            None => {
                let mut extra = Extra::default();
                if let Some(path) = self.turn.inner.subagent_path(&self.turn.session_id)? {
                    extra.set(SUBAGENT, path);
                }
                let ask = QuestionRequest {
                    id: QuestionId::new(),
                    session_id: self.turn.session_id.clone(),
                    questions,
                    tool: Some(self.tool_ref()),
                    extra,
                };
                let id = ask.id.clone();
                self.store_ask(input, started, is_running, |batch| {
                    batch.question(&ask);
                    batch.event(EventBody::QuestionAsked(Box::new(ask)));
                })
                .await?;
                id
            }
        };
        *is_running = true;
        let Some(reply) = self.await_reply(id.as_str()).await? else { return Ok(QuestionOutcome::Stopped) };
        if reply.get(ask::EXPIRED).is_some() {
            return Ok(QuestionOutcome::Expired);
        }
        let answers = serde_json::from_value(reply.get("answers").cloned().unwrap_or_default());
        Ok(QuestionOutcome::Answered(answers.map_or(Answers::Dismissed, Answers::Given)))
    }

    /// Stores an ask durably, and with the first one the running call.
    async fn store_ask(
        &mut self,
        input: &Json,
        started: i64,
        is_running: &mut bool,
        put: impl FnOnce(&mut Batch),
    ) -> Result<(), StoreError> {
        if std::mem::replace(is_running, true) {
            let mut batch = self.turn.batch().durable();
            put(&mut batch);
            return self.turn.commit(batch).await.map(drop);
        }
        self.show_running(input, started, true, put).await
    }

    async fn await_reply(&self, ask: &str) -> Result<Option<Json>, Error> {
        let answer = self.turn.inner.await_reply(ask, self.turn.instance.limits.ask);
        let reply = self.turn.cancel().run_until_cancelled(answer).await.transpose()?;
        if reply.is_none() && self.turn.run.is_parked() {
            return Err(Error::Parked);
        }
        Ok(reply)
    }

    fn tool_ref(&self) -> ToolRef {
        ToolRef { message_id: self.part.head.message_id.clone(), call_id: self.part.call_id.clone() }
    }

    /// Runs the tool and writes its progress.
    async fn run_tool(
        &mut self,
        tool: &Arc<dyn Tool>,
        input: Json,
        ctx: Context,
        started: i64,
        mut updates: watch::Receiver<Option<ProgressUpdate>>,
    ) -> Result<Result<Output, ToolError>, StoreError> {
        let mut work = tool.run(input.clone(), ctx);
        let mut next = Instant::now();
        loop {
            let update_due = async {
                match updates.changed().await {
                    Ok(()) => tokio::time::sleep_until(next).await,
                    Err(_) => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                outcome = &mut work => return Ok(outcome),
                () = update_due => {}
            }
            let update = updates.borrow_and_update().clone();
            if let Some(ProgressUpdate { title, metadata }) = update {
                let time = ToolTime { start: started, end: None, compacted: None };
                self.part.state = ToolState::Running(ToolRunning { input: input.clone(), title, metadata, time });
                let mut batch = self.turn.batch();
                let bytes = batch.publish_part(&Part::Tool(self.part.clone()));
                if let Some(outcome) = self.turn.commit_beside(batch, &mut work).await? {
                    return Ok(outcome);
                }
                next = Instant::now() + row_interval(PROGRESS_INTERVAL, bytes);
            }
        }
    }

    /// Turns an unknown tool or invalid JSON arguments into a call of the `invalid` tool, so that the model gets a
    /// useful error and continues.
    async fn execute_invalid(mut self, error: String) -> Result<(ToolPart, CallEnd), Error> {
        let input = serde_json::json!({ "tool": self.part.tool, "error": error });
        self.part.tool = INVALID.to_owned();
        self.execute(input).await
    }

    /// Takes the structured output of a prompt that requested one.
    async fn submit_structured_output(mut self, schema: &Json, input: Json) -> Result<(ToolPart, CallEnd), Error> {
        let started = api::now();
        self.show_running(&input, started, false, |_| {}).await?;
        match structured_output::check(schema, &input, "", 0) {
            Ok(()) => {
                let output = Output {
                    title: "Structured output".to_owned(),
                    output: "The answer was submitted.".to_owned(),
                    metadata: JsonMap::from_iter([("valid".to_owned(), true.into())]),
                    ..Output::default()
                };
                self.complete(input, started, output, CallEnd::Done).await
            }
            Err(error) => {
                let text = tools::invalid_arguments(structured_output::TOOL, &error);
                self.end_with_error(input, started, text, None, CallEnd::Done).await
            }
        }
    }

    async fn end_cancelled(self, input: Json, started: i64) -> Result<(ToolPart, CallEnd), Error> {
        self.end_failed(input, started, ToolError::Aborted).await
    }

    async fn end_failed(self, input: Json, started: i64, error: ToolError) -> Result<(ToolPart, CallEnd), Error> {
        let text = error.to_string();
        let metadata = match error {
            ToolError::Failed { metadata, .. } => metadata,
            ToolError::Aborted => Some(JsonMap::from_iter([("interrupted".to_owned(), true.into())])),
            _ => None,
        };
        self.end_with_error(input, started, text, metadata, CallEnd::Done).await
    }

    /// Ends a call without a result.
    pub(crate) async fn end_with_error(
        mut self,
        input: Json,
        started: i64,
        error: String,
        metadata: Option<JsonMap>,
        ended: CallEnd,
    ) -> Result<(ToolPart, CallEnd), Error> {
        let time = ToolTime { start: started, end: Some(api::now()), compacted: None };
        self.part.state = ToolState::Error(api::ToolError { input, error, metadata, time });
        let mut batch = self.outcome_batch();
        batch.publish_part(&Part::Tool(self.part.clone()));
        self.turn.commit(batch).await?;
        Ok((self.part, ended))
    }

    /// Ends a call with a result and all its changes, in one commit.
    pub(crate) async fn complete(
        mut self,
        input: Json,
        started: i64,
        output: Output,
        ended: CallEnd,
    ) -> Result<(ToolPart, CallEnd), Error> {
        let attachments: Vec<Part> = output
            .attachments
            .into_iter()
            .map(|file| {
                Part::File(FilePart {
                    head: PartHead::new(&self.part.head.session_id, &self.part.head.message_id),
                    mime: file.mime,
                    filename: file.filename,
                    url: file.url,
                    source: None,
                    extra: Extra::default(),
                })
            })
            .collect();
        self.part.state = ToolState::Completed(ToolCompleted {
            input,
            output: output.output,
            title: output.title,
            metadata: output.metadata,
            time: ToolTime { start: started, end: Some(api::now()), compacted: None },
            attachments: (!attachments.is_empty()).then_some(attachments),
        });
        let mut batch = self.outcome_batch();
        for change in &output.changes {
            Self::record_change(&self.turn, &mut batch, change.clone());
        }
        batch.publish_part(&Part::Tool(self.part.clone()));
        self.turn.commit(batch).await?;
        for change in &output.changes {
            if let Change::KnownFile { path, version } = change {
                self.turn.options.known_files.stored(path, version);
            }
        }
        Ok((self.part, ended))
    }

    /// Writes a tool's change to the batch.
    pub(crate) fn record_change(turn: &Turn, batch: &mut Batch, change: Change) {
        match change {
            Change::File { path, kind } => {
                let file = path.to_string_lossy().into_owned();
                batch.count_changed_file(&turn.session_id, &file);
                let event = match kind {
                    FileChange::Add => "add",
                    FileChange::Change => "change",
                    FileChange::Unlink => "unlink",
                };
                if kind != FileChange::Unlink {
                    batch.event(EventBody::FileEdited { file: file.clone() });
                }
                batch.event(EventBody::FileWatcherUpdated { file, event: event.to_owned() });
            }
            Change::KnownFile { .. } => known_files::store_version(batch, &turn.session_id, &change),
            Change::Todos(todos) => {
                batch.todos(&turn.session_id, &todos);
                batch.event(EventBody::TodoUpdated { session_id: turn.session_id.clone(), todos });
            }
        }
    }
}

/// Parses the arguments as the model wrote them; empty text is an empty object.
fn parse_arguments(raw: &str) -> Result<Json, String> {
    if raw.trim().is_empty() {
        return Ok(Json::Object(JsonMap::new()));
    }
    serde_json::from_str(raw).map_err(|error| format!("not valid JSON: {error}"))
}

/// The metadata that clients show. It marks opaque requests, which an `always` reply to another call does not cover.
fn ask_metadata(rules: &Rules, need: &Need) -> JsonMap {
    let mut metadata = need.metadata.clone();
    // No reply to another request settles it: its effect is unknown, or it names a command that a rule restricts.
    let everything = [Rule::new(&need.permission, "*", Action::Allow)];
    if need.opaque || rules.judge(&everything, need) == Action::Ask {
        metadata.insert(OPAQUE.to_owned(), true.into());
    }
    metadata
}

/// What a reply means for the call.
fn decision_of(reply: Option<PermissionReply>, expired: bool) -> Decision {
    const REJECTED: &str = "The user rejected permission to use this specific tool call";
    match reply {
        Some(PermissionReply { reply: PermissionReplyKind::Once | PermissionReplyKind::Always, .. }) => {
            Decision::Allowed
        }
        Some(PermissionReply { message: Some(message), .. }) if expired => Decision::Denied(message),
        Some(PermissionReply { message: Some(message), .. }) => {
            Decision::Feedback(format!("{REJECTED} with the following feedback: {message}"))
        }
        _ => Decision::Rejected(format!("{REJECTED}.")),
    }
}

/// Whether a request is about this need.
fn is_about(ask: &PermissionRequest, need: &Need) -> bool {
    ask.permission == need.permission && ask.patterns == need.patterns
}

/// Tells the model which rules deny the call, so that it does not try again blindly.
fn denial_text(rules: &[&Rule], need: &Need) -> String {
    let list = serde_json::to_string(rules).unwrap_or_default();
    format!(
        "A rule denies this call ({}: {}). Do not try it again or around it; find another way or tell the user. The \
         rules for it, the last match decides: {list}",
        need.permission,
        need.patterns.join(", ")
    )
}
