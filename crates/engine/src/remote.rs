//! A turn of a remote agent. A [`Runner`](api::Runner) does the work, and its reports become messages and parts like
//! those of our own turns: one message per job, and one more for each prompt that joins it.
//!
//! A record of the session holds the runner's state and the prompts that were handed over. Prompts are handed over
//! once: after a crash the runner resumes its work or fails, but never silently starts again.
//!
//! A remote agent may have [subagents](child) of its own. Each is a session below this one.

mod child;
mod job_host;
mod transcript;

use std::sync::Arc;
use std::time::Duration;

use api::{
    Json, JsonMap, Message, MessageError, MessageId, ModelRef, Part, PermissionReply, PermissionReplyKind, PromptPart,
    RunnerEnd, RunnerError, RunnerJob, SessionId, SessionStatus, TextData, ToolPart, ToolRef, Usd, UserMessage,
};
use serde::{Deserialize, Serialize};
use store::{AskFilter, Batch, Reservation, Store, StoreError};
use tokio::time::Instant;

use crate::ask::rules::Rules;
use crate::spending::budget::Admission;
use crate::spending::ledger;
use crate::turn::step::{self, AfterStep};
use crate::turn::vendor_data::PROVIDER_EXECUTED;
use crate::turn::{Conversation, Turn};
use crate::{Error, ask};
use child::{ForeignSubagent, Job};
use job_host::JobHost;
use transcript::JobTranscript;

pub(crate) use child::cut_off;

/// The record namespace for runner state and handed-over prompts, by session.
pub(crate) const REMOTE: &str = "remote";
/// How often budgets are checked while a runner works: time passes, and other sessions spend too.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How long a runner may take to stop. Its own limits are shorter.
const STOP_WAIT: Duration = Duration::from_secs(8);

/// The runner of an agent and its settings.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RemoteAgent<'a> {
    /// The kind of runner.
    pub(crate) kind: &'a str,
    /// The runner's settings.
    pub(crate) settings: &'a JsonMap,
}

impl RemoteAgent<'_> {
    /// The model named in its messages. Only the remote side knows the real one.
    pub(crate) fn model(&self, agent: &str) -> ModelRef {
        ModelRef::new(self.kind, agent)
    }
}

/// Whether a remote agent or the vendor of a model ran this call.
pub(crate) fn is_provider_executed(tool: &ToolPart) -> bool {
    tool.metadata.as_ref().is_some_and(|metadata| metadata.get(PROVIDER_EXECUTED) == Some(&Json::Bool(true)))
}

/// The durable record of a session's remote work.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct RemoteRecord {
    /// State that the runner wants back.
    kept: Option<Json>,
    /// The waiting prompts that were handed over.
    handed: Vec<MessageId>,
    /// Set if the session belongs to a remote agent's subagent.
    #[serde(skip_serializing_if = "Option::is_none")]
    child: Option<ForeignSubagent>,
}

impl RemoteRecord {
    fn load(store: &Store, session: &SessionId) -> Result<Self, StoreError> {
        let record = store.record(REMOTE, session.as_str())?;
        Ok(record.and_then(|record| serde_json::from_value(record.value).ok()).unwrap_or_default())
    }

    fn put(&self, batch: &mut Batch, session: &SessionId) {
        batch.record(REMOTE, session.as_str(), Some(&serde_json::json!(self)), None);
    }
}

/// Runs the waiting prompts with the agent's runner.
pub(crate) async fn run(
    turn: &Arc<Turn>,
    conversation: &mut Conversation,
    user: &UserMessage,
    rules: Rules,
) -> Result<AfterStep, Error> {
    if turn.cancel().is_cancelled() {
        return step::end_stopped(turn, conversation, user).await;
    }
    let (Ok(agent), Some(remote)) = (turn.instance.agent(&user.agent), turn.instance.remote(&user.agent)) else {
        return Ok(AfterStep::Stop);
    };
    let Some(runner) = turn.inner.settings.runners.get(remote.kind).cloned() else {
        let text = format!("There is no runner for agents with \"{}\" in their configuration", remote.kind);
        step::end_with_error(turn, conversation, user, MessageError::unknown(text)).await?;
        return Ok(AfterStep::Stop);
    };
    reject_open_asks(turn, None).await?;
    child::settle_lost(turn).await?;
    let mut record = RemoteRecord::load(turn.store(), &turn.session_id)?;
    record.handed.retain(|id| conversation.pending.contains(id));
    let new: Vec<MessageId> = conversation.pending.iter().filter(|id| !record.handed.contains(id)).cloned().collect();
    let mut prompt = prompt_parts(conversation, &new);
    if record.kept.is_none()
        && let Some(text) = agent.prompt.as_ref().filter(|text| !text.trim().is_empty())
    {
        prompt.insert(0, PromptPart::text(text.trim()));
    }
    let message = turn.new_answer(user);
    let call = reservation(turn, &message.id, &prompt);
    let begin = |batch: &mut Batch| {
        batch.publish_message(Message::Assistant(message.clone()));
        batch.event(turn.status_event(SessionStatus::Busy));
    };
    match turn.admit(&call, begin).await? {
        Admission::Admitted => {}
        Admission::Stopped => return step::end_stopped(turn, conversation, user).await,
        Admission::Expired(error) => {
            step::end_with_error(turn, conversation, user, error).await?;
            return Ok(AfterStep::Stop);
        }
    }
    let job = RunnerJob {
        settings: remote.settings.clone(),
        directory: turn.instance.directory.clone(),
        hidden: turn.instance.loaded.config.env.hide.clone(),
        prompt,
        kept: record.kept.clone(),
        traceparent: turn.inner.turns.sender_trace(&user.id),
    };
    let job_state = Arc::new(Job::new(turn));
    let host = Arc::new(JobHost::new(turn, rules, user, JobTranscript::new(message, record, new, call), &job_state));
    let ended = wait_for_end(&host, runner.run(job, host.clone())).await;
    job_state.end().await;
    let Some(mut transcript) = host.close().await else { return Ok(AfterStep::Stop) };
    if turn.cancel().is_cancelled() && turn.run.is_parked() {
        transcript.save(turn).await?;
        return Err(Error::Parked);
    }
    let exhausted = job_state.exhausted_budget();
    let (reason, error) = match ended {
        _ if exhausted.is_some() => ("stop", exhausted.map(MessageError::unknown)),
        _ if turn.cancel().is_cancelled() => ("stop", Some(MessageError::aborted())),
        Ok(RunnerEnd::Stopped) => ("stop", Some(MessageError::unknown("The agent stopped before it had finished"))),
        ended => end_reason(ended),
    };
    let failed = error.is_some();
    conversation.pending.retain(|id| !transcript.record.handed.contains(id));
    for (message, parts) in transcript.finish(turn, reason, error).await? {
        conversation.push_answer(message, parts);
    }
    turn.inner.spending.call_ended();
    Ok(if failed { AfterStep::Stop } else { AfterStep::Continue })
}

/// The finish reason and the error of an answer.
fn end_reason(ended: Result<RunnerEnd, RunnerError>) -> (&'static str, Option<MessageError>) {
    match ended {
        Ok(RunnerEnd::Done) => ("stop", None),
        Ok(RunnerEnd::Length) => ("length", None),
        Ok(RunnerEnd::Refused) => {
            ("stop", Some(MessageError::ContentFilterError(TextData::new("The agent refused to continue"))))
        }
        Ok(RunnerEnd::Stopped) => ("stop", Some(MessageError::aborted())),
        Err(RunnerError(text)) => ("stop", Some(MessageError::unknown(text))),
    }
}

/// Waits for the runner to end, and stops it when a budget is exhausted.
async fn wait_for_end(
    host: &JobHost,
    work: impl Future<Output = Result<RunnerEnd, RunnerError>>,
) -> Result<RunnerEnd, RunnerError> {
    let mut work = std::pin::pin!(work);
    let mut deadline = None;
    loop {
        let late = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            ended = &mut work => return ended,
            () = late => return Err(RunnerError("The agent did not stop when told to, and was terminated".to_owned())),
            () = host.stop.cancelled(), if deadline.is_none() => deadline = Some(Instant::now() + STOP_WAIT),
            () = tokio::time::sleep(POLL_INTERVAL), if deadline.is_none() => host.check_budgets(0).await,
        }
    }
}

/// Rejects open requests that nobody waits for: those of a call, or those left by a crash.
async fn reject_open_asks(turn: &Turn, call: Option<&str>) -> Result<(), StoreError> {
    let filter = AskFilter { session: Some(turn.session_id.clone()), ..AskFilter::default() };
    let is_meant =
        |tool: &Option<ToolRef>| call.is_none_or(|call| tool.as_ref().is_some_and(|tool| tool.call_id == call));
    let mut open = turn.store().permissions(&filter)?;
    open.retain(|ask| is_meant(&ask.tool));
    let mut questions = turn.store().questions(&filter)?;
    questions.retain(|ask| is_meant(&ask.tool));
    if open.is_empty() && questions.is_empty() {
        return Ok(());
    }
    let mut batch = turn.batch();
    for ask in open {
        ask::settle_permission(
            &mut batch,
            &ask,
            &PermissionReply { reply: PermissionReplyKind::Reject, message: None },
        );
    }
    for ask in questions {
        ask::dismiss_question(&mut batch, &ask);
    }
    turn.commit(batch).await.map(drop)
}

/// The reservation of a job. Its usage is unknown in advance, so budgets are checked while it runs.
fn reservation(turn: &Turn, message: &MessageId, prompt: &[PromptPart]) -> Reservation {
    let bytes = prompt.iter().map(|part| if let PromptPart::Text { text, .. } = part { text.len() } else { 0 }).sum();
    let tokens = ledger::tokens(bytes);
    Reservation {
        id: message.to_string(),
        session: turn.session_id.clone(),
        steps: 1,
        prompt: tokens,
        prompt_cost: Usd::default(),
        output_price: Usd::default(),
        max_tokens: tokens,
        max_cost: Usd::default(),
    }
}

/// The content of these messages as prompt parts.
fn prompt_parts(conversation: &Conversation, messages: &[MessageId]) -> Vec<PromptPart> {
    conversation.parts_of(messages).filter_map(prompt_part).collect()
}

fn prompt_part(part: &Part) -> Option<PromptPart> {
    match part {
        Part::Text(text) if text.ignored != Some(true) => Some(PromptPart::text(&text.text)),
        Part::File(file) => Some(PromptPart::File {
            id: None,
            mime: file.mime.clone(),
            filename: file.filename.clone(),
            url: file.url.clone(),
            source: None,
        }),
        _ => None,
    }
}
