//! Tasks that a prompt itself hands to a subagent: `subtask` parts, and commands meant for a subagent. The model is
//! asked only afterwards.

use std::sync::Arc;

use api::{
    EventBody, Extra, Json, Message, MessageError, Part, PartHead, SubtaskPart, ToolPart, ToolRunning, ToolState,
    ToolTime, Usage, UserMessage, UserTime,
};

use crate::Error;
use crate::subagent::task;
use crate::turn::input::synthetic_text;
use crate::turn::step::{self, AfterStep};
use crate::turn::tool_call::ToolCall;
use crate::turn::{Conversation, Turn};

/// The prompt that asks the model about a command's result.
const FOLLOW_UP: &str = "Briefly tell the user the result of the task above, and continue with your work.";

/// Runs a task as a call of the `task` tool that no model made. The call has the id of the prompt's part, so that after
/// a restart it is known which tasks were started.
pub(crate) async fn run(
    turn: &Arc<Turn>,
    conversation: &mut Conversation,
    user: &UserMessage,
    task: &SubtaskPart,
) -> Result<AfterStep, Error> {
    if turn.cancel().is_cancelled() {
        return step::end_stopped(turn, conversation, user).await;
    }
    let agent = turn.instance.agents.get(&task.agent);
    let model = task.model.clone().or_else(|| agent.and_then(|agent| agent.model.clone()));
    let model = model.unwrap_or_else(|| user.model.clone());
    let mut message = turn.new_assistant_message(&user.id, &task.agent, &model);
    let mut input = serde_json::json!({
        "prompt": task.prompt, "description": task.description, "subagent_type": task.agent,
    });
    if let Some(command) = &task.command {
        input["command"] = Json::String(command.clone());
    }
    let part = ToolPart {
        head: PartHead::new(&turn.session_id, &message.id),
        call_id: task.head.id.to_string(),
        tool: task::TOOL.to_owned(),
        state: ToolState::Running(ToolRunning {
            input: input.clone(),
            title: None,
            metadata: None,
            time: ToolTime { start: api::now(), end: None, compacted: None },
        }),
        metadata: None,
        extra: Extra::default(),
    };
    let mut batch = turn.batch();
    batch.publish_message(Message::Assistant(message.clone()));
    batch.publish_part(&Part::Tool(part.clone()));
    batch.usage(&turn.session_id, &Usage { tool_calls: 1, ..Usage::default() });
    turn.commit(batch).await?;
    let call = ToolCall {
        turn: turn.clone(),
        rules: turn.rules(&user.agent).await?,
        vendor_model: model.model_id.clone(),
        model_ref: model,
        agent: user.agent.clone(),
        prompt: user.id.clone(),
        format: None,
        repeats: 0,
        part,
        earlier_asks: Vec::new(),
        on_running: None,
    };
    let (part, _) = call.execute(input).await?;
    message.finish = Some("tool-calls".to_owned());
    message.time.completed = Some(api::now());
    let mut batch = turn.batch().durable();
    if turn.cancel().is_cancelled() {
        let error = MessageError::aborted();
        let session_id = Some(turn.session_id.clone());
        batch.event(EventBody::SessionError { session_id, error: Some(error.clone()) });
        message.finish = None;
        message.error = Some(error);
    }
    batch.publish_message(Message::Assistant(message.clone()));
    turn.commit(batch).await?;
    let stopped = message.error.is_some();
    conversation.push_answer(message, vec![Part::Tool(part)]);
    Ok(if stopped { AfterStep::Stop } else { AfterStep::Continue })
}

/// Asks the model about a command's result, in a separate prompt, because the command was not meant for it.
pub(crate) async fn follow_up(turn: &Arc<Turn>, user: &UserMessage) -> Result<AfterStep, Error> {
    let message = UserMessage {
        id: turn.new_message_id(),
        time: UserTime { created: api::now() },
        summary: None,
        ..user.clone()
    };
    let (id, info) = (message.id.clone(), Message::User(message));
    // It continues the command's work, under the same rules.
    let inbox = turn.inbox()?;
    let mut batch = turn.batch().durable();
    match inbox.into_iter().find(|row| row.message_id == user.id).and_then(|row| row.data) {
        Some(data) => batch.enqueue_like(&turn.session_id, &id, data),
        None => batch.enqueue(&turn.session_id, &id),
    }
    batch.publish_new_message(info);
    batch.publish_part(&synthetic_text(&turn.session_id, &id, FOLLOW_UP.to_owned()));
    turn.commit(batch).await?;
    Ok(AfterStep::Continue)
}
