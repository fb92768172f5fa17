//! Runs prompts: `session/prompt` and steering.

use std::sync::Arc;
use std::time::Duration;

use agent_client_protocol_schema::v1::{PromptResponse, StopReason, Usage};
use api::{
    Bound, CommandInput, Message, MessageError, MessageId, MessageWithParts, PromptInput, PromptTarget, SummarizeInput,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::blocks::{self, ParsedPrompt};
use super::catalog::Selection;
use super::open_session::OpenSession;
use crate::agent::Agent;
use crate::lock;
use crate::rpc::{Error, code};
use crate::view::TurnUsage;

/// How long a cancelled turn may take to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);
/// A turn that has not started cannot be aborted; how soon to try again.
const ABORT_RETRY_DELAY: Duration = Duration::from_millis(20);
/// How long the last events of a turn may take to arrive.
const LAST_EVENTS_TIMEOUT: Duration = Duration::from_secs(3);

impl Agent {
    /// Runs a prompt to its end. `session/cancel` and `$/cancel_request` cancel `cancel`.
    pub async fn prompt(
        self: &Arc<Self>,
        open: &Arc<OpenSession>,
        params: &Value,
        cancel: CancellationToken,
    ) -> Result<Value, Error> {
        if params["prompt"][0]["text"].as_str().is_some_and(|text| text.trim_start().starts_with('/')) {
            // A command file that was just written or edited counts.
            cancel.run_until_cancelled(self.refresh(open)).await;
        } else {
            cancel.run_until_cancelled(self.restore_mcp_servers(open)).await;
        }
        let catalog = open.catalog();
        let commands: Vec<&str> = catalog.commands().iter().map(|command| command.name.as_str()).collect();
        let all = self.retry(|| self.host().agents(&open.scope)).await?;
        let agents: Vec<&str> = all
            .iter()
            .filter(|agent| agent.mode != api::AgentMode::Primary && agent.hidden != Some(true))
            .map(|agent| agent.name.as_str())
            .collect();
        let parsed = blocks::parse(&params["prompt"], &commands, &agents)?;
        let selection = open.selection();
        let message = self.retry(|| self.host().message_id(&open.id)).await?;
        open.show(|view| {
            view.begin_turn(&message, catalog.context(&selection));
            Vec::new()
        })
        .await;
        let work = self.run_prompt(open, &message, &selection, parsed);
        let answer = self.wait_for_turn(open, work, &cancel).await;
        self.wait_for_last_events(open, answer.as_ref().and_then(|answer| answer.as_ref().ok()?.as_ref())).await;
        let mut used = TurnUsage::default();
        open.show(|view| {
            used = view.turn_usage();
            view.usage_update().into_iter().collect()
        })
        .await;
        if cancel.is_cancelled() {
            return Ok(json!(PromptResponse::new(StopReason::Cancelled).usage(usage(used))));
        }
        let reason = match answer {
            None => StopReason::Cancelled,
            Some(answer) => match answer? {
                None => StopReason::EndTurn,
                Some(answer) if self.used_all_steps(open, &answer, &all).await? => StopReason::MaxTurnRequests,
                Some(answer) => stop_reason(&answer)?,
            },
        };
        Ok(json!(PromptResponse::new(reason).usage(usage(used))))
    }

    /// Runs a parsed prompt. Returns its answer; `None` for a command that has none.
    async fn run_prompt(
        &self,
        open: &OpenSession,
        message: &MessageId,
        selection: &Selection,
        parsed: ParsedPrompt,
    ) -> Result<Option<MessageWithParts>, Error> {
        match parsed {
            ParsedPrompt::Prompt(parts) if is_compact(&parts) => {
                let model = match selection.model.clone() {
                    Some(model) => model,
                    None => self.retry(|| self.host().default_model(&open.scope)).await?,
                };
                let input = SummarizeInput { model, auto: false };
                self.host().summarize(&open.id, input).await?;
                Ok(None)
            }
            ParsedPrompt::Prompt(parts) => {
                let input = PromptInput {
                    parts,
                    message_id: Some(message.clone()),
                    model: selection.model.clone(),
                    agent: Some(selection.mode.clone()),
                    variant: selection.effort.clone(),
                    ..PromptInput::default()
                };
                let answer = self.retry(|| self.host().prompt(&open.id, input.clone())).await?;
                Ok(Some(answer))
            }
            ParsedPrompt::Command(command, arguments, parts) => {
                let target = PromptTarget {
                    agent: Some(selection.mode.clone()),
                    model: selection.model.clone(),
                    variant: selection.effort.clone(),
                    message_id: Some(message.clone()),
                };
                let input = CommandInput { command, arguments, target, parts };
                let answer = self.retry(|| self.host().command(&open.id, input.clone())).await?;
                Ok(Some(answer))
            }
        }
    }

    /// Whether an answer used up the agent's steps: the model was told so and got no tools any more.
    async fn used_all_steps(
        &self,
        open: &OpenSession,
        answer: &MessageWithParts,
        agents: &[api::Agent],
    ) -> Result<bool, Error> {
        let Some(answer) = answer.info.as_assistant().filter(|answer| answer.error.is_none()) else { return Ok(false) };
        let most = agents.iter().find(|agent| agent.name == answer.agent).and_then(|agent| agent.steps);
        let Some(most) = most.and_then(|most| usize::try_from(most).ok()) else { return Ok(false) };
        if matches!(answer.finish.as_deref(), Some("length" | "content-filter")) {
            return Ok(false);
        }
        let query = api::ListMessages { limit: Some(most.saturating_add(1)), before: None };
        let page = self.retry(|| self.host().messages(&open.id, query.clone())).await?;
        let given = page.messages.iter().filter_map(|message| message.info.as_assistant());
        Ok(given.filter(|other| other.parent_id == answer.parent_id).count() >= most)
    }

    /// Waits for the turn and aborts it once it is cancelled; `None` if it does not stop.
    async fn wait_for_turn<T>(
        &self,
        open: &OpenSession,
        work: impl Future<Output = Result<T, Error>>,
        cancel: &CancellationToken,
    ) -> Option<Result<T, Error>> {
        let mut work = std::pin::pin!(work);
        tokio::select! {
            biased;
            result = &mut work => return Some(result),
            () = cancel.cancelled() => {}
        }
        let stop = async {
            while !self.retry(|| self.host().abort(&open.id)).await.unwrap_or(true) {
                tokio::time::sleep(ABORT_RETRY_DELAY).await;
            }
            // An aborted turn returns right away.
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            result = work => Some(result),
            () = stop => None,
            () = tokio::time::sleep(STOP_TIMEOUT) => {
                tracing::error!(session = %open.id, "the turn did not stop");
                None
            }
        }
    }

    /// Waits until all updates of the turn were sent. A remote server's events may arrive after its response.
    async fn wait_for_last_events(self: &Arc<Self>, open: &Arc<OpenSession>, answer: Option<&MessageWithParts>) {
        let Some(answer) = answer.filter(|answer| answer.info.as_assistant().is_some()) else { return };
        loop {
            if tokio::time::timeout(LAST_EVENTS_TIMEOUT, open.wait_until_shown(answer.info.id())).await.is_ok() {
                return;
            }
            // Wait for a slow client as long as it takes.
            if self.peer().is_closed() || !open.is_sending() {
                break;
            }
        }
        match self.retry(|| open.reread(self.host())).await {
            Ok(left) => self.apply_effects(open, left).await,
            Err(error) => tracing::warn!(%error, "failed to read the end of the turn"),
        }
    }

    /// Sends a message into the running turn.
    pub async fn steer(self: &Arc<Self>, open: &Arc<OpenSession>, params: &Value) -> Result<Value, Error> {
        let running = lock(&self.running_prompts).get(&open.id).is_some_and(|turns| !turns.is_empty());
        if !running {
            return Err(Error::invalid_request("No turn runs; send session/prompt"));
        }
        let blocks = params.get("prompt").or_else(|| params.get("content")).unwrap_or(&Value::Null);
        let ParsedPrompt::Prompt(parts) = blocks::parse(blocks, &[], &[])? else { return Ok(json!({})) };
        let message = self.host().message_id(&open.id).await?;
        open.show(|view| {
            view.add_own_message(&message);
            Vec::new()
        })
        .await;
        let selection = open.selection();
        let input = PromptInput {
            parts,
            message_id: Some(message.clone()),
            model: selection.model,
            agent: Some(selection.mode),
            variant: selection.effort,
            ..PromptInput::default()
        };
        self.host().prompt_async(&open.id, input).await?;
        Ok(json!({ "messageId": message }))
    }
}

/// Whether a prompt is the command that compacts the conversation, which is not in any command list.
fn is_compact(parts: &[api::PromptPart]) -> bool {
    matches!(parts, [api::PromptPart::Text { text, .. }] if text.trim() == "/compact")
}

/// How a turn ended.
fn stop_reason(answer: &MessageWithParts) -> Result<StopReason, Error> {
    let Message::Assistant(answer) = &answer.info else { return Ok(StopReason::EndTurn) };
    let failed = |code: i64, error: &MessageError| {
        let model = format!("{}/{}", answer.provider_id, answer.model_id);
        Err(Error::new(code, error.message()).with(json!({"errorName": error.name(), "model": model})))
    };
    match &answer.error {
        None => {}
        Some(MessageError::MessageAbortedError(_)) => return Ok(StopReason::Cancelled),
        Some(MessageError::MessageOutputLengthError(_)) => return Ok(StopReason::MaxTokens),
        Some(MessageError::ContentFilterError(_)) => return Ok(StopReason::Refusal),
        Some(MessageError::UnknownError(data)) if data.limit == Some(Bound::Steps) => {
            return Ok(StopReason::MaxTurnRequests);
        }
        Some(error @ MessageError::ProviderAuthError(_)) => return failed(code::AUTH_REQUIRED, error),
        Some(error @ MessageError::ApiError(data)) if matches!(data.status_code, Some(401 | 403)) => {
            return failed(code::AUTH_REQUIRED, error);
        }
        Some(error) => return failed(code::INTERNAL, error),
    }
    Ok(match answer.finish.as_deref() {
        Some("length") => StopReason::MaxTokens,
        Some("content-filter") => StopReason::Refusal,
        _ => StopReason::EndTurn,
    })
}

fn usage(used: TurnUsage) -> Usage {
    let some = |tokens: u64| (tokens > 0).then_some(tokens);
    Usage::new(used.total, used.input, used.output)
        .thought_tokens(some(used.thought))
        .cached_read_tokens(some(used.cached_read))
        .cached_write_tokens(some(used.cached_write))
}
