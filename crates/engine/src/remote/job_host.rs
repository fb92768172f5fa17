//! The host of a runner: takes its reports and answers its requests.

use std::path::Path;
use std::sync::{Arc, Mutex, Weak};

use api::{
    Action, EventBody, Json, JsonMap, MessageId, Question, RunnerAnswers, RunnerCall, RunnerCallState, RunnerChild,
    RunnerChildHandle, RunnerDecision, RunnerError, RunnerMessage, RunnerUpdate, ToolPart, UserMessage,
};
use futures::future::BoxFuture;
use serde_json::json;
use store::StoreError;
use tokio_util::sync::CancellationToken;
use tools::{Answers, Change, FileChange, Need, Progress};

use super::POLL_INTERVAL;
use super::child::{ChildHandle, Job};
use super::transcript::{JobTranscript, diff};
use crate::ask::permission;
use crate::ask::rules::Rules;
use crate::turn::Turn;
use crate::turn::tool_call::{Decision, QuestionOutcome, ToolCall};
use crate::{Error, lock};

/// The refusal once the job has ended.
pub(super) const ENDED: &str = "The job has ended";

/// The refusal of questions where nobody is.
const NOBODY: &str = "Nobody is there to answer questions";

/// The host of one job, or of a subagent of the remote agent.
pub(super) struct JobHost {
    pub(super) turn: Arc<Turn>,
    pub(super) rules: Rules,
    pub(super) agent: String,
    /// The prompt being answered.
    pub(super) user: UserMessage,
    /// Cancelled when the whole job must end.
    pub(super) stop: CancellationToken,
    /// State shared by all hosts of the job. Dropped with it.
    pub(super) job: Weak<Job>,
    /// Holds the session of a subagent; `None` for the job itself.
    pub(super) handle: Option<ChildHandle>,
    /// `None` once the job has ended.
    pub(super) transcript: tokio::sync::Mutex<Option<JobTranscript>>,
    /// The prompts that were handed over. Kept outside the transcript, so that waiting for another prompt never blocks
    /// it.
    handed: Mutex<Vec<MessageId>>,
}

impl JobHost {
    pub(super) fn new(
        turn: &Arc<Turn>,
        rules: Rules,
        user: &UserMessage,
        transcript: JobTranscript,
        job: &Arc<Job>,
    ) -> Self {
        Self {
            turn: turn.clone(),
            rules,
            agent: user.agent.clone(),
            user: user.clone(),
            stop: job.stop.clone(),
            job: Arc::downgrade(job),
            handle: None,
            transcript: tokio::sync::Mutex::new(Some(transcript)),
            handed: Mutex::default(),
        }
    }

    /// The host of a subagent of this agent.
    pub(super) fn for_child(
        &self,
        turn: Arc<Turn>,
        rules: Rules,
        user: UserMessage,
        transcript: JobTranscript,
        handle: ChildHandle,
    ) -> Self {
        Self {
            turn,
            rules,
            agent: self.agent.clone(),
            user,
            stop: self.stop.clone(),
            job: self.job.clone(),
            handle: Some(handle),
            transcript: tokio::sync::Mutex::new(Some(transcript)),
            handed: Mutex::default(),
        }
    }

    /// Takes the transcript: from now on reports are refused.
    pub(super) async fn close(&self) -> Option<JobTranscript> {
        self.stop.cancel();
        self.transcript.lock().await.take()
    }

    /// Stops the job if a budget of the session or an ancestor is exhausted. `running` are tokens the job has used that
    /// no budget has counted yet.
    pub(super) async fn check_budgets(&self, running: u64) {
        match self.exceeded_budget(running) {
            Ok(None) => {}
            Ok(Some(text)) => {
                if let Some(job) = self.job.upgrade() {
                    job.stop_over_budget(text);
                }
            }
            Err(error) => tracing::warn!(%error, "cannot read the budgets"),
        }
    }

    fn exceeded_budget(&self, running: u64) -> Result<Option<String>, StoreError> {
        for session in self.turn.inner.lineage(&self.turn.session_id)? {
            let Some(state) = self.turn.store().budget(&session.id)? else { continue };
            let (limit, spent) = (&state.limit, &state.spent);
            let reached = |limit: Option<u64>, spent: u64| limit.is_some_and(|limit| spent >= limit);
            let what = if limit.cost.is_some_and(|limit| spent.cost.is_some_and(|spent| spent.0 >= limit.0)) {
                format!("${:.4}", limit.cost.unwrap_or_default().0)
            } else if reached(limit.tokens, spent.tokens.unwrap_or(0).saturating_add(running)) {
                format!("{} tokens", limit.tokens.unwrap_or(0))
            } else if reached(limit.seconds, spent.seconds.unwrap_or(0)) {
                format!("{} s", limit.seconds.unwrap_or(0))
            } else {
                continue;
            };
            return Ok(Some(format!(
                "The budget of {} ({what}) is used up, so the agent was stopped. Raise it and send a message to \
                 continue",
                session.id
            )));
        }
        Ok(None)
    }

    async fn handle_news(&self, news: RunnerUpdate) -> Result<Result<(), String>, Error> {
        if let RunnerUpdate::Finished(ended) = news {
            return self.end_child(ended).await.map(Ok);
        }
        let mut transcript = self.transcript.lock().await;
        let Some(transcript) = transcript.as_mut() else { return Ok(Err(ENDED.to_owned())) };
        let turn = &self.turn;
        match news {
            RunnerUpdate::Started(kept) => {
                transcript.begin(turn, kept).await?;
                lock(&self.handed).clone_from(&transcript.record.handed);
            }
            RunnerUpdate::Steered(id) => {
                let message = turn.store().message(&id)?;
                if let Some(user) = message.as_ref().and_then(|message| message.info.as_user()) {
                    transcript.begin_message(turn, user).await?;
                    lock(&self.handed).clone_from(&transcript.record.handed);
                }
            }
            RunnerUpdate::Text(text) => return Ok(transcript.write(turn, &text, false).await?),
            RunnerUpdate::Reasoning(text) => return Ok(transcript.write(turn, &text, true).await?),
            RunnerUpdate::Call(call) => return Ok(transcript.call(turn, &call).await?.map(drop)),
            RunnerUpdate::CallWithdrawn(id) => super::reject_open_asks(turn, Some(&id)).await?,
            RunnerUpdate::Todos(todos) => {
                let mut batch = turn.batch();
                batch.todos(&turn.session_id, &todos);
                batch.event(EventBody::TodoUpdated { session_id: turn.session_id.clone(), todos });
                turn.commit(batch).await?;
            }
            RunnerUpdate::Usage { used, kept } => {
                let running = used.all_tokens();
                transcript.spend(turn, used, kept).await?;
                self.check_budgets(running).await;
            }
            // Handled above, before taking the lock.
            RunnerUpdate::Finished(_) => {}
        }
        Ok(Ok(()))
    }

    /// A call that is judged like one of our own.
    fn tool_call(&self, part: ToolPart) -> ToolCall {
        ToolCall {
            turn: self.turn.clone(),
            rules: self.rules.clone(),
            vendor_model: String::new(),
            model_ref: self.user.model.clone(),
            agent: self.agent.clone(),
            prompt: self.user.id.clone(),
            format: None,
            repeats: 0,
            part,
            earlier_asks: Vec::new(),
            on_running: None,
        }
    }

    /// The needs of a call: those of our own tool of the same kind.
    async fn needs(&self, call: &ToolCall, wanted: &RunnerCall) -> Vec<Need> {
        let ctx = call.context(Progress::none());
        let registry = self.turn.instance.tools_for("");
        let mut needs = Vec::new();
        for change in &wanted.changes {
            let input = json!({ "filePath": change.path, "content": change.new });
            match registry.get("write") {
                Some(write) => match write.needs(&input, &ctx).await {
                    Ok(found) => needs.extend(found),
                    Err(_) => needs.push(Need::new("edit", change.path.to_string_lossy())),
                },
                None => needs.push(Need::new("edit", change.path.to_string_lossy())),
            }
        }
        if let Some(diff) = diff(wanted) {
            for need in needs.iter_mut().filter(|need| need.permission == "edit") {
                need.metadata.insert("diff".to_owned(), diff.clone().into());
            }
            return needs;
        }
        let mut input = Json::Object(wanted.input.clone());
        let tool = match permission::permission_of_tool(&wanted.tool) {
            // The decision depends on the file; its new content is unknown.
            "edit" => {
                input["content"] = "".into();
                registry.get("write")
            }
            _ => registry.get(&wanted.tool),
        };
        if let Some(tool) = tool
            && let Ok(needs) = tool.needs(&input, &ctx).await
        {
            return needs;
        }
        let pattern = if wanted.title.is_empty() { "*" } else { &wanted.title };
        let mut need =
            Need::new(permission::permission_of_tool(&wanted.tool), pattern).with("title", wanted.title.clone());
        // A narrow rule may apply to exactly this.
        need.opaque = true;
        need.metadata.insert("input".to_owned(), Json::Object(wanted.input.clone()));
        vec![need]
    }

    /// Decides about the needs of a call.
    async fn decide(&self, wanted: &RunnerCall, mut call: ToolCall, needs: &[Need]) -> Result<RunnerDecision, Error> {
        let input = Json::Object(wanted.input.clone());
        for need in needs {
            self.turn.wait_out_pause().await?;
            match call.decide(need, &input, api::now(), &mut true).await? {
                Decision::Allowed => {}
                Decision::Denied(text) | Decision::Rejected(text) | Decision::Feedback(text) => {
                    return Ok(RunnerDecision::Rejected(text));
                }
                Decision::Cancelled => return Ok(RunnerDecision::Stopped),
            }
        }
        Ok(RunnerDecision::Allowed)
    }

    /// Decides about a call, and remembers what was allowed.
    async fn grant(&self, wanted: &RunnerCall, part: ToolPart) -> Result<RunnerDecision, Error> {
        let call = self.tool_call(part);
        let needs = self.needs(&call, wanted).await;
        let answer = self.decide(wanted, call, &needs).await?;
        if let (RunnerDecision::Allowed, Some(job)) = (&answer, self.job.upgrade()) {
            job.grant(needs);
        }
        Ok(answer)
    }

    /// Asks the user questions, shown as a call. Where nobody answers questions of our own tool, nobody answers these.
    async fn ask_questions(&self, call: &RunnerCall, questions: Vec<Question>) -> Result<RunnerAnswers, Error> {
        if !self.turn.inner.settings.question_tool {
            return Ok(RunnerAnswers::Dismissed(NOBODY.to_owned()));
        }
        let part = match self.show_call(call).await {
            Ok(part) => part,
            Err(why) => return Ok(RunnerAnswers::Dismissed(why)),
        };
        self.turn.wait_out_pause().await?;
        let input = Json::Object(call.input.clone());
        let outcome = self.tool_call(part).ask_questions(questions, &input, api::now(), &mut true).await?;
        Ok(match outcome {
            QuestionOutcome::Answered(Answers::Given(answers)) => RunnerAnswers::Given(answers),
            QuestionOutcome::Answered(Answers::Dismissed) => {
                RunnerAnswers::Dismissed("The user declined to answer".to_owned())
            }
            QuestionOutcome::Expired => RunnerAnswers::Dismissed("Nobody answered in time".to_owned()),
            QuestionOutcome::Stopped => RunnerAnswers::Stopped,
        })
    }

    /// Decides whether a file may be used or a command run. What was just allowed for a call is not asked again.
    async fn permit(&self, wanted: RunnerCall) -> Result<(), String> {
        let mut transcript = self.transcript.lock().await;
        let Some(open) = transcript.as_mut() else { return Err(ENDED.to_owned()) };
        let Some(message) = open.message().cloned() else { return Err(ENDED.to_owned()) };
        let running_call = open.running_call().cloned();
        drop(transcript);
        let blank = ToolPart {
            head: api::PartHead::new(&self.turn.session_id, &message),
            call_id: wanted.id.clone(),
            tool: wanted.tool.clone(),
            state: api::ToolState::Pending(api::ToolPending { input: Json::Null, raw: String::new() }),
            metadata: None,
            extra: api::Extra::default(),
        };
        let mut needs = self.needs(&self.tool_call(blank), &wanted).await;
        if let Some(job) = self.job.upgrade() {
            job.use_grants(&mut needs);
        }
        let decisions = needs.iter().map(|need| self.turn.judge(&self.rules, need));
        let decisions = decisions.collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;
        if decisions.iter().all(|decision| *decision == Action::Allow) {
            return self.turn.wait_out_pause().await.map(drop).map_err(|error| error.to_string());
        }
        // A request or a refusal must belong to a visible call.
        let (part, own) = match running_call {
            Some(part) => (part, false),
            None => (self.show_call(&wanted).await?, true),
        };
        let answer = self.decide(&wanted, self.tool_call(part), &needs).await.map_err(|error| error.to_string())?;
        let (result, state) = match answer {
            RunnerDecision::Allowed => (Ok(()), RunnerCallState::Completed),
            RunnerDecision::Rejected(text) => (Err(text), RunnerCallState::Failed),
            RunnerDecision::Stopped => (Err(ENDED.to_owned()), RunnerCallState::Failed),
        };
        if own {
            let output = result.clone().err().unwrap_or_default();
            self.show_call(&RunnerCall { state, output, ..wanted }).await?;
        }
        result
    }

    /// Shows a call and returns its part.
    async fn show_call(&self, call: &RunnerCall) -> Result<ToolPart, String> {
        let mut transcript = self.transcript.lock().await;
        let Some(transcript) = transcript.as_mut() else { return Err(ENDED.to_owned()) };
        transcript.call(&self.turn, call).await.map_err(|error| error.to_string())?
    }

    async fn record_write(&self, path: &Path, existed: bool) -> Result<(), StoreError> {
        let kind = if existed { FileChange::Change } else { FileChange::Add };
        let mut batch = self.turn.batch();
        ToolCall::record_change(&self.turn, &mut batch, Change::File { path: path.to_owned(), kind });
        self.turn.commit(batch).await.map(drop)
    }

    /// The next waiting prompt for the same agent.
    fn next_steer(&self, handed: &[MessageId]) -> Result<Option<RunnerMessage>, StoreError> {
        for row in self.turn.inbox()? {
            if handed.contains(&row.message_id) {
                continue;
            }
            let Some(message) = self.turn.store().message(&row.message_id)? else { continue };
            if message.info.as_user().is_some_and(|user| user.agent == self.agent) {
                let parts = message.parts.iter().filter_map(super::prompt_part).collect();
                return Ok(Some(RunnerMessage { id: row.message_id, parts }));
            }
        }
        Ok(None)
    }
}

/// A call that represents the use of a file or a command.
fn synthetic_call(tool: &str, title: &str, input: Json) -> RunnerCall {
    let input = match input {
        Json::Object(map) => map,
        _ => JsonMap::new(),
    };
    let (id, tool, title) = (api::tool_call_id(), tool.to_owned(), title.to_owned());
    RunnerCall { id, tool, title, input, state: RunnerCallState::Running, ..RunnerCall::default() }
}

impl api::RunnerContext for JobHost {
    fn tell(&self, news: RunnerUpdate) -> BoxFuture<'_, Result<(), RunnerError>> {
        Box::pin(async move {
            let taken = self.handle_news(news).await.map_err(|error| RunnerError(error.to_string()))?;
            taken.map_err(RunnerError)
        })
    }

    fn ask(&self, call: RunnerCall) -> BoxFuture<'_, RunnerDecision> {
        Box::pin(async move {
            let running = RunnerCall { state: RunnerCallState::Running, ..call };
            let part = match self.show_call(&running).await {
                Ok(part) => part,
                Err(why) => return RunnerDecision::Rejected(why),
            };
            match self.grant(&running, part).await {
                Ok(answer) => answer,
                Err(Error::Parked) => RunnerDecision::Stopped,
                Err(error) => RunnerDecision::Rejected(error.to_string()),
            }
        })
    }

    fn question(&self, call: RunnerCall, questions: Vec<Question>) -> BoxFuture<'_, RunnerAnswers> {
        Box::pin(async move {
            let running = RunnerCall { state: RunnerCallState::Running, ..call };
            match self.ask_questions(&running, questions).await {
                Ok(answers) => answers,
                Err(Error::Parked) => RunnerAnswers::Stopped,
                Err(error) => RunnerAnswers::Dismissed(error.to_string()),
            }
        })
    }

    fn read<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<Vec<u8>, String>> {
        Box::pin(async move {
            let shown = path.to_string_lossy();
            self.permit(synthetic_call("read", &shown, json!({ "filePath": shown }))).await?;
            let environment = self.turn.inner.environments.of(&self.turn.session_id);
            environment.read(path).await.map_err(|error| error.to_string())
        })
    }

    fn write<'a>(&'a self, path: &'a Path, content: &'a [u8]) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            let (shown, text) = (path.to_string_lossy(), String::from_utf8_lossy(content));
            self.permit(synthetic_call("write", &shown, json!({ "filePath": shown, "content": text }))).await?;
            let environment = self.turn.inner.environments.of(&self.turn.session_id);
            let existed = environment.read(path).await.is_ok();
            environment.write(path, content).await.map_err(|error| error.to_string())?;
            self.record_write(path, existed).await.map_err(|error| error.to_string())
        })
    }

    fn execute<'a>(&'a self, command: &'a str, directory: &'a Path) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            let input = json!({ "command": command, "workdir": directory });
            self.permit(synthetic_call("bash", command, input)).await
        })
    }

    fn stopped(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            tokio::select! {
                () = self.stop.cancelled() => {}
                () = self.turn.cancel().cancelled() => {}
            }
        })
    }

    fn is_parked(&self) -> bool {
        self.turn.run.is_parked()
    }

    fn steered(&self) -> BoxFuture<'_, RunnerMessage> {
        Box::pin(async move {
            let mut wakeups = self.turn.run.wakeups();
            loop {
                let handed = lock(&self.handed).clone();
                match self.next_steer(&handed) {
                    Ok(Some(steer)) if self.turn.wait_out_pause().await.is_ok() => return steer,
                    Err(error) => tracing::warn!(%error, "cannot read prompts for the running job"),
                    _ => {}
                }
                // The sender may die before it wakes us, so poll as well.
                let _ = tokio::time::timeout(POLL_INTERVAL, wakeups.changed()).await;
            }
        })
    }

    fn child(&self, child: RunnerChild) -> BoxFuture<'_, Result<RunnerChildHandle, RunnerError>> {
        Box::pin(async move {
            let child = self.adopt_child(child).await.map_err(|error| RunnerError(error.to_string()))?;
            child.map_err(RunnerError)
        })
    }
}
