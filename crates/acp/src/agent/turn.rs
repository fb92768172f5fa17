//! A prompt and its turn.

use std::sync::Arc;
use std::time::Duration;

use agent_client_protocol_schema::v1::{PromptResponse, StopReason, Usage};
use api::{Bound, CommandInput, Message, MessageError, MessageWithParts, PromptInput, PromptTarget, SummarizeInput};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::blocks::{self, Wanted};
use super::open_session::Open;
use crate::agent::Agent;
use crate::lock;
use crate::rpc::{Error, code};
use crate::view::Used;

/// How long a cancelled turn may take to stop.
const STOP_WAIT: Duration = Duration::from_secs(15);
/// A turn that has not begun yet cannot be aborted; how soon that is tried again.
const ABORT_AGAIN: Duration = Duration::from_millis(20);
/// How long the last events of a turn may take to come.
const LAST_EVENTS: Duration = Duration::from_secs(3);

impl Agent {
    /// Runs a prompt to its end. `cancel` is cancelled by `session/cancel` or `$/cancel_request`.
    pub async fn prompt(
        self: &Arc<Self>,
        open: &Arc<Open>,
        params: &Value,
        cancel: CancellationToken,
    ) -> Result<Value, Error> {
        if params["prompt"][0]["text"].as_str().is_some_and(|text| text.trim_start().starts_with('/')) {
            // A command that was written or edited a moment ago counts.
            cancel.run_until_cancelled(self.refresh(open)).await;
        } else {
            cancel.run_until_cancelled(self.restore_servers(open)).await;
        }
        let choices = open.choices();
        let commands: Vec<&str> = choices.commands().iter().map(|command| command.name.as_str()).collect();
        let all = self.reach(|| self.host().agents(&open.scope)).await?;
        let agents: Vec<&str> = all
            .iter()
            .filter(|agent| agent.mode != api::AgentMode::Primary && agent.hidden != Some(true))
            .map(|agent| agent.name.as_str())
            .collect();
        let wanted = blocks::read(&params["prompt"], &commands, &agents)?;
        let chosen = open.chosen();
        let message = self.reach(|| self.host().message_id(&open.scope, &open.id)).await?;
        open.show(|view| {
            view.prompted(&message, choices.context(&chosen));
            Vec::new()
        })
        .await;
        let work = async {
            match wanted {
                Wanted::Prompt(parts) if is_compact(&parts) => {
                    let model = match chosen.model.clone() {
                        Some(model) => model,
                        None => self.reach(|| self.host().default_model(&open.scope)).await?,
                    };
                    let input = SummarizeInput { model, auto: false };
                    self.host().summarize(&open.scope, &open.id, input).await?;
                    Ok(None)
                }
                Wanted::Prompt(parts) => {
                    let input = PromptInput {
                        parts,
                        message_id: Some(message.clone()),
                        model: chosen.model.clone(),
                        agent: Some(chosen.mode.clone()),
                        variant: chosen.effort.clone(),
                        ..PromptInput::default()
                    };
                    let answer = self.reach(|| self.host().prompt(&open.scope, &open.id, input.clone())).await?;
                    Ok(Some(answer))
                }
                Wanted::Command(command, arguments, parts) => {
                    let target = PromptTarget {
                        agent: Some(chosen.mode.clone()),
                        model: chosen.model.clone(),
                        variant: chosen.effort.clone(),
                        message_id: Some(message.clone()),
                    };
                    let input = CommandInput { command, arguments, target, parts };
                    let answer = self.reach(|| self.host().command(&open.scope, &open.id, input.clone())).await?;
                    Ok(Some(answer))
                }
            }
        };
        let answer = self.until_stopped(open, work, &cancel).await;
        self.last_events(open, answer.as_ref().and_then(|answer| answer.as_ref().ok()?.as_ref())).await;
        let mut used = Used::default();
        open.show(|view| {
            used = view.turn();
            view.usage().into_iter().collect()
        })
        .await;
        if cancel.is_cancelled() {
            return Ok(json!(PromptResponse::new(StopReason::Cancelled).usage(usage(used))));
        }
        let reason = match answer {
            None => StopReason::Cancelled,
            Some(answer) => match answer? {
                None => StopReason::EndTurn,
                Some(answer) if self.is_last(open, &answer, &all).await? => StopReason::MaxTurnRequests,
                Some(answer) => judge(&answer)?,
            },
        };
        Ok(json!(PromptResponse::new(reason).usage(usage(used))))
    }

    /// Whether an answer is the last that its agent may give to one prompt: it was told so, and got no tools any more.
    async fn is_last(&self, open: &Open, answer: &MessageWithParts, agents: &[api::Agent]) -> Result<bool, Error> {
        let Some(answer) = answer.info.as_assistant().filter(|answer| answer.error.is_none()) else { return Ok(false) };
        let most = agents.iter().find(|agent| agent.name == answer.agent).and_then(|agent| agent.steps);
        let Some(most) = most.and_then(|most| usize::try_from(most).ok()) else { return Ok(false) };
        if matches!(answer.finish.as_deref(), Some("length" | "content-filter")) {
            return Ok(false);
        }
        let query = api::ListMessages { limit: Some(most.saturating_add(1)), before: None };
        let page = self.reach(|| self.host().messages(&open.scope, &open.id, query.clone())).await?;
        let given = page.messages.iter().filter_map(|message| message.info.as_assistant());
        Ok(given.filter(|other| other.parent_id == answer.parent_id).count() >= most)
    }

    /// Waits for the work; once it is no longer wanted, the turn is stopped. Nothing if it does not stop.
    async fn until_stopped<T>(
        &self,
        open: &Open,
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
            while !self.reach(|| self.host().abort(&open.scope, &open.id)).await.unwrap_or(true) {
                tokio::time::sleep(ABORT_AGAIN).await;
            }
            // What was aborted answers at once.
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            result = work => Some(result),
            () = stop => None,
            () = tokio::time::sleep(STOP_WAIT) => {
                tracing::error!(session = %open.id, "the turn did not stop");
                None
            }
        }
    }

    /// Everything of the turn is told before its end is. Events of a server may come later than its answer.
    async fn last_events(self: &Arc<Self>, open: &Arc<Open>, answer: Option<&MessageWithParts>) {
        let Some(answer) = answer.filter(|answer| answer.info.as_assistant().is_some()) else { return };
        loop {
            if tokio::time::timeout(LAST_EVENTS, open.until_told(answer.info.id())).await.is_ok() {
                return;
            }
            // A client that reads slowly is waited for, however long it takes.
            if self.peer().is_closed() || !open.is_telling() {
                break;
            }
        }
        match self.reach(|| open.reread(self.host())).await {
            Ok(left) => self.act(open, left).await,
            Err(error) => tracing::warn!(%error, "the end of the turn cannot be read"),
        }
    }

    /// Puts a message into the turn that runs.
    pub async fn steer(self: &Arc<Self>, open: &Arc<Open>, params: &Value) -> Result<Value, Error> {
        let running = lock(&self.turns).get(&open.id).is_some_and(|turns| !turns.is_empty());
        if !running {
            return Err(Error::invalid_request("No turn runs; send session/prompt"));
        }
        let blocks = params.get("prompt").or_else(|| params.get("content")).unwrap_or(&Value::Null);
        let Wanted::Prompt(parts) = blocks::read(blocks, &[], &[])? else { return Ok(json!({})) };
        let message = self.host().message_id(&open.scope, &open.id).await?;
        open.show(|view| {
            view.steered(&message);
            Vec::new()
        })
        .await;
        let chosen = open.chosen();
        let input = PromptInput {
            parts,
            message_id: Some(message.clone()),
            model: chosen.model,
            agent: Some(chosen.mode),
            variant: chosen.effort,
            ..PromptInput::default()
        };
        self.host().prompt_async(&open.scope, &open.id, input).await?;
        Ok(json!({ "messageId": message }))
    }
}

/// Whether a prompt is the command that compacts the conversation, which no list of commands has.
fn is_compact(parts: &[api::PromptPart]) -> bool {
    matches!(parts, [api::PromptPart::Text { text, .. }] if text.trim() == "/compact")
}

/// How a turn ended.
fn judge(answer: &MessageWithParts) -> Result<StopReason, Error> {
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

fn usage(used: Used) -> Usage {
    let some = |tokens: u64| (tokens > 0).then_some(tokens);
    Usage::new(used.total, used.input, used.output)
        .thought_tokens(some(used.thought))
        .cached_read_tokens(some(used.cached_read))
        .cached_write_tokens(some(used.cached_write))
}
