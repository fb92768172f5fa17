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
use crate::subagent::{task, task_link};
use crate::turn::Turn;
use crate::turn::step::put_part;
use crate::turn::text_writer::row_interval;
use crate::turn::{known_files, prompt, structured_output};
use crate::{Error, ask};

/// Live updates of a running call are written this often at most.
pub(crate) const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// So many equal calls in a row are a loop, and need a permission of their own.
const DOOM_LOOP_CALLS: usize = 3;
/// That permission.
const DOOM_LOOP_PERMISSION: &str = "doom_loop";
/// The longest piece of a model's broken arguments that an error quotes.
const QUOTED_MAX: usize = 500;

/// Marks a permission request whose command was not fully understood.
pub(crate) const OPAQUE: &str = "opaque";

/// Where a request of a subagent tells the way to it.
const SUBAGENT: &str = "subagent";

/// Where calls with side effects leave their mark while they run.
pub(crate) const STARTED: &str = "started";

/// The tool that stands for calls which cannot run.
pub(crate) const INVALID: &str = "invalid";

/// What a call's end means for the turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallEnd {
    /// The turn goes on.
    Done,
    /// The human said no: the turn stops.
    Rejected,
}

/// A call, ready to run.
pub(crate) struct ToolCall {
    pub(crate) turn: Arc<Turn>,
    pub(crate) rules: Rules,
    /// The model that calls, as its vendor names it, …
    pub(crate) vendor_model: String,
    /// … and as we do.
    pub(crate) model_ref: ModelRef,
    pub(crate) agent: String,
    /// The prompt that the turn answers.
    pub(crate) prompt: MessageId,
    pub(crate) format: Option<OutputFormat>,
    /// How many equal calls came just before it.
    pub(crate) repeats: usize,
    pub(crate) part: ToolPart,
    /// What it asked before a restart, answered or not.
    pub(crate) earlier_asks: Vec<PermissionRequest>,
    /// Told when the call is visible as running.
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

/// What questions to the human came to.
enum QuestionOutcome {
    Answered(Answers),
    /// Nobody was there in time.
    Expired,
    /// The turn was stopped meanwhile.
    Stopped,
}

/// What a decision came to.
pub(crate) enum Decision {
    Allowed,
    Denied(String),
    Rejected(String),
    Feedback(String),
    Cancelled,
}

impl Decision {
    /// How the call ends, if it is not allowed.
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

    /// Runs a call whose arguments are known: a new one, or one that a crash cut off and that may run again.
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
            let registry = self.turn.tools(&self.vendor_model).await;
            let names: Vec<&str> = prompt::offered(&registry, &self.rules).into_iter().map(|t| t.name()).collect();
            let (tool, names) = (&self.part.tool, names.join(", "));
            let mut text = format!("Model tried to call unavailable tool '{tool}'. Available tools: {names}.");
            if tool == tools::WEBSEARCH && registry.get(tool).is_none() {
                text += &format!(" {}.", tools::NO_SEARCH_ENGINE);
            }
            return Box::pin(self.execute_invalid(text)).await;
        };
        let started = api::now();
        let mut is_running = false;
        self.earlier_asks = self.stored_asks()?;
        if self.part.tool == INVALID {
            // It does nothing: what a call asked that has become one is not waited for.
            self.earlier_asks.retain(|ask| ask.permission == DOOM_LOOP_PERMISSION && ask.patterns == [INVALID]);
        }
        // A model that turns in circles is noticed before the call is looked at: it often repeats one that fails.
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
            // While somebody was asked, the files may have become others.
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
            // We stopped it ourselves to go on later; recovery knows best what may run again.
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

    /// A call that broke down: a tool that panics is a tool that failed.
    pub(crate) async fn record_panic(turn: &Turn, mut part: ToolPart) -> Result<(ToolPart, CallEnd), Error> {
        let now = api::now();
        let error = format!("The {} tool broke down; try another way", part.tool);
        let time = ToolTime { start: now, end: Some(now), compacted: None };
        let input = part.state.input().clone();
        part.state = ToolState::Error(api::ToolError { input, error, metadata: None, time });
        let mut batch = turn.batch();
        put_part(&mut batch, &Part::Tool(part.clone()));
        turn.commit(batch).await?;
        Ok((part, CallEnd::Done))
    }

    /// A call that must not run.
    pub(crate) async fn refuse(mut self, text: String) -> Result<(ToolPart, CallEnd), Error> {
        let (now, input) = (api::now(), Json::Object(JsonMap::new()));
        self.show_running(&input, now, false, |_| {}).await?;
        self.end_with_error(input, now, text, None, CallEnd::Done).await
    }

    async fn find_tool(&self) -> Option<Arc<dyn Tool>> {
        let tool = self.turn.tool(&self.vendor_model, &self.part.tool).await?;
        let refused = tool.name() != INVALID && self.rules.refuses_tool(&*tool);
        (!refused).then_some(tool)
    }

    /// The files as they are from now on.
    fn environment(&self) -> Arc<dyn Environment> {
        let environment = self.turn.inner.environment(&self.turn.session_id);
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
        }
    }

    /// Equal calls in a row need a permission of their own. So does a call that asked for it before a restart.
    fn doom_loop(&self, input: &Json) -> Option<Need> {
        if self.repeats + 1 < DOOM_LOOP_CALLS
            && !self.earlier_asks.iter().any(|ask| ask.permission == DOOM_LOOP_PERMISSION)
        {
            return None;
        }
        let need = Need::new(DOOM_LOOP_PERMISSION, &self.part.tool).with("tool", self.part.tool.clone());
        Some(need.with("input", input.clone()))
    }

    /// Whether a need is granted; if not, how the call ends.
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

    /// Waits for the answers to what the call asked before a restart and would not need any more: the files may be others now.
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

    /// The call is visible as running. It has not begun yet: see [`start`](Self::start).
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
        put_part(&mut batch, &Part::Tool(self.part.clone()));
        let batch = if durable { batch.durable() } else { batch };
        self.turn.commit(batch).await?;
        self.signal_running();
        Ok(())
    }

    /// Counts the call, once: one that a crash cut off runs already.
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

    /// The intent: from now on the call may have happened. A call with side effects leaves a durable mark until its
    /// outcome is known; a crash in between makes it `interrupted`.
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
        if batch.is_empty() { Ok(()) } else { self.turn.commit(batch).await.map(drop) }
    }

    /// The outcome's batch: with it the mark of the intent goes, and the bond to a subagent.
    fn outcome_batch(&self) -> Batch {
        let mut batch = self.turn.batch();
        batch.record(STARTED, self.part.head.id.as_str(), None, None);
        if self.part.tool == task::TOOL {
            task_link::remove(&mut batch, &self.part.head.id);
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
            // What was asked is decided by the answer: rules that allow it now do not take its place.
            Action::Allow if !self.earlier_asks.iter().any(|ask| is_about(ask, need)) => Ok(Decision::Allowed),
            Action::Allow | Action::Ask => {
                let id = self.ask(need, input, started, is_running).await?;
                self.await_decision(&id).await
            }
        }
    }

    /// Waits for the answer to a request.
    async fn await_decision(&self, id: &PermissionId) -> Result<Decision, Error> {
        let Some(reply) = self.await_reply(id.as_str()).await? else { return Ok(Decision::Cancelled) };
        let expired = reply.get(ask::EXPIRED).is_some();
        Ok(decision_of(serde_json::from_value(reply).ok(), expired))
    }

    /// What this very call asked before a restart, answered or not.
    fn stored_asks<T: serde::de::DeserializeOwned>(&self) -> Result<Vec<T>, StoreError> {
        if matches!(self.part.state, ToolState::Pending(_)) {
            // A request is stored together with the call as running.
            return Ok(Vec::new());
        }
        // Servers give the same id to calls of different messages, so the message counts too.
        let mine = |row: &&store::AskRow| {
            let data: Json = serde_json::from_str(&row.data).unwrap_or_default();
            data["tool"]["messageID"] == self.part.head.message_id.as_str()
        };
        let rows = self.turn.store().asks_of(&self.turn.session_id, &self.part.call_id)?;
        Ok(rows.iter().filter(mine).filter_map(|row| serde_json::from_str(&row.data).ok()).collect())
    }

    /// Puts a permission request before the human: the one from before a restart, or a new one.
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
        let ask = ask.counts_in(&self.turn.instance.approval_directory());
        let id = ask.id.clone();
        if ["edit", "external_directory"].contains(&need.permission.as_str()) && !std::mem::replace(is_running, true) {
            // Clients know a call as running before they are asked about its files; any other the other way round.
            self.show_running(input, started, false, |_| {}).await?;
        }
        self.store_ask(input, started, is_running, |batch| {
            batch.permission(&ask);
            batch.event(EventBody::PermissionAsked(Box::new(ask)));
        })
        .await?;
        Ok(id)
    }

    /// Puts the tool's questions before the human.
    async fn ask_questions(
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
        let given = serde_json::from_value(reply.get("answers").cloned().unwrap_or_default());
        Ok(QuestionOutcome::Answered(given.map_or(Answers::Dismissed, Answers::Given)))
    }

    /// Stores an ask, durably, and with the first one the intent.
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

    /// Runs the tool, and writes what it tells meanwhile.
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
                => () = update_due => => {}
            }
            let update = updates.borrow_and_update().clone();
            if let Some(ProgressUpdate { title, metadata }) = update {
                let time = ToolTime { start: started, end: None, compacted: None };
                self.part.state = ToolState::Running(ToolRunning { input: input.clone(), title, metadata, time });
                let mut batch = self.turn.batch();
                let bytes = batch.tell_part(&Part::Tool(self.part.clone()));
                if let Some(outcome) = self.turn.commit_beside(batch, &mut work).await? {
                    return Ok(outcome);
                }
                next = Instant::now() + row_interval(PROGRESS_INTERVAL, bytes);
            }
        }
    }

    /// An unknown tool or arguments that are not JSON become a call of the `invalid` tool: the model gets a useful error
    /// and goes on.
    async fn execute_invalid(mut self, error: String) -> Result<(ToolPart, CallEnd), Error> {
        let input = serde_json::json!({ "tool": self.part.tool, "error": error });
        self.part.tool = INVALID.to_owned();
        self.execute(input).await
    }

    /// The answer of a prompt that asked for a shape.
    async fn submit_structured_output(mut self, schema: &Json, input: Json) -> Result<(ToolPart, CallEnd), Error> {
        let started = api::now();
        self.show_running(&input, started, false, |_| {}).await?;
        match structured_output::check(schema, &input, "", 0) {
            Ok(()) => {
                let output = Output {
                    title: "Structured output".to_owned(),
                    output: "The answer was handed in.".to_owned(),
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

    /// The outcome of a call without a result.
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
        put_part(&mut batch, &Part::Tool(self.part.clone()));
        self.turn.commit(batch).await?;
        Ok((self.part, ended))
    }

    /// The outcome of a call with a result, and all that it changed, in one commit.
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
        put_part(&mut batch, &Part::Tool(self.part.clone()));
        self.turn.commit(batch).await?;
        for change in &output.changes {
            if let Change::Known { path, version } = change {
                self.turn.options.known_files.stored(path, version);
            }
        }
        Ok((self.part, ended))
    }

    /// What a change leaves in the log.
    pub(crate) fn record_change(turn: &Turn, batch: &mut Batch, change: Change) {
        match change {
            Change::File { path, kind } => {
                let file = path.to_string_lossy().into_owned();
                batch.touched(&turn.session_id, &file);
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
            Change::Known { .. } => known_files::store_version(batch, &turn.session_id, &change),
            Change::Todos(todos) => {
                batch.todos(&turn.session_id, &todos);
                batch.event(EventBody::TodoUpdated { session_id: turn.session_id.clone(), todos });
            }
        }
    }
}

/// The arguments as the model wrote them; none at all is an empty object.
fn parse_arguments(raw: &str) -> Result<Json, String> {
    if raw.trim().is_empty() {
        return Ok(Json::Object(JsonMap::new()));
    }
    serde_json::from_str(raw).map_err(|error| format!("not valid JSON: {error}"))
}

/// What a client shows. That something was not understood is part of it: an answer `always` to another call does not
/// cover it.
fn ask_metadata(rules: &Rules, need: &Need) -> JsonMap {
    let mut metadata = need.metadata.clone();
    // No answer to another request settles it: what it does is not told, or it names a command that a rule holds back.
    let everything = [Rule::new(&need.permission, "*", Action::Allow)];
    if need.opaque || rules.judge(&everything, need) == Action::Ask {
        metadata.insert(OPAQUE.to_owned(), true.into());
    }
    metadata
}

/// What an answer means.
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

/// Whether a request is for this need.
fn is_about(ask: &PermissionRequest, need: &Need) -> bool {
    ask.permission == need.permission && ask.patterns == need.patterns
}

/// Tells the model which rules are in its way, so that it does not try again blindly.
fn denial_text(rules: &[&Rule], need: &Need) -> String {
    let list = serde_json::to_string(rules).unwrap_or_default();
    format!(
        "A rule denies this call ({}: {}). Do not try it again or around it; find another way or tell the user. The \
         rules for it, the last match decides: {list}",
        need.permission,
        need.patterns.join(", ")
    )
}
