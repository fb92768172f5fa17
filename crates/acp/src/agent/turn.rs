//! Runs prompts: `session/prompt` and steering.

use std::sync::Arc;
use std::time::Duration;

use agent_client_protocol_schema::v1::{PromptResponse, StopReason, Usage};
use api::{
    Bound, CommandInput, Message, MessageError, MessageId, MessageWithParts, PromptInput, PromptPart, PromptTarget,
    SummarizeInput,
};
use follow::{Task, TurnHandle};
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
        let task = self.task(open, &message, &selection, parsed).await?;
        open.show(|view| {
            view.begin_turn(&message, catalog.context(&selection));
            Vec::new()
        })
        .await;
        let mut turn = TurnHandle::new(self.shared_host(), open.id.clone(), task, self.patience());
        if let Some(feed) = open.feed() {
            turn = turn.delivered_by(feed);
        }
        let answer = turn.answer_until(cancel.cancelled(), STOP_TIMEOUT).await;
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

    /// What a parsed prompt asks for.
    async fn task(
        &self,
        open: &OpenSession,
        message: &MessageId,
        selection: &Selection,
        parsed: ParsedPrompt,
    ) -> Result<Task, Error> {
        Ok(match parsed {
            ParsedPrompt::Prompt(parts) if is_compact(&parts) => {
                let model = match selection.model.clone() {
                    Some(model) => model,
                    None => self.retry(|| self.host().default_model(&open.scope)).await?,
                };
                Task::Summary(SummarizeInput { model, auto: false })
            }
            ParsedPrompt::Prompt(parts) => Task::Prompt(Box::new(prompt_input(parts, message, selection))),
            ParsedPrompt::Command(command, arguments, parts) => {
                let target = PromptTarget {
                    agent: Some(selection.mode.clone()),
                    model: selection.model.clone(),
                    variant: selection.effort.clone(),
                    message_id: Some(message.clone()),
                };
                Task::Command(Box::new(CommandInput { command, arguments, target, parts }))
            }
        })
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

    /// Sends a message into the turn that runs, whoever began it.
    pub async fn steer(self: &Arc<Self>, open: &Arc<OpenSession>, params: &Value) -> Result<Value, Error> {
        // A prompt of this client may be on its way to the host.
        let is_ours = lock(&self.running_prompts).get(&open.id).is_some_and(|turns| !turns.is_empty());
        if !is_ours && self.retry(|| follow::running(self.host(), &open.scope, &open.id)).await?.is_none() {
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
        let input = prompt_input(parts, &message, &open.selection());
        self.host().prompt_async(&open.id, input).await?;
        Ok(json!({ "messageId": message }))
    }
}

/// A prompt with what the user selected.
fn prompt_input(parts: Vec<PromptPart>, message: &MessageId, selection: &Selection) -> PromptInput {
    PromptInput {
        parts,
        message_id: Some(message.clone()),
        model: selection.model.clone(),
        agent: Some(selection.mode.clone()),
        variant: selection.effort.clone(),
        ..PromptInput::default()
    }
}

/// Whether a prompt is the command that compacts the conversation, which is not in any command list.
fn is_compact(parts: &[PromptPart]) -> bool {
    matches!(parts, [PromptPart::Text { text, .. }] if text.trim() == "/compact")
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
