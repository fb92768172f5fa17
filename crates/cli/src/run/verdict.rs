//! Whether a turn succeeded, and the error if it did not.

use api::{AssistantMessage, Blocked, Bound, Message, MessageError, MessageWithParts, Part, SessionId, ToolState};

use crate::exit::{Exit, Failure};
use crate::wiring::Signal;

/// What happened during the turn that its last message does not show.
#[derive(Debug, Clone, Copy, Default)]
pub struct TurnFlags {
    /// The user pressed Ctrl-C.
    pub cancelled: bool,
    /// A permission or a question was rejected, which may have stopped the turn.
    pub rejected: bool,
}

/// Checks the last answer of a turn.
pub fn check_answer(answer: &MessageWithParts, flags: TurnFlags) -> Result<(), Failure> {
    if flags.cancelled {
        return Err(cancelled());
    }
    let calls_failed = answer.parts.iter().filter_map(Part::as_tool).any(|t| matches!(t.state, ToolState::Error(_)));
    // A prompt that was only stored has no answer that could fail.
    let Message::Assistant(answer) = &answer.info else { return Ok(()) };
    if let Some(error) = &answer.error {
        return Err(failure(error, answer));
    }
    match answer.finish.as_deref() {
        // A turn that was resumed after a crash ends with `stop` in this case.
        Some(finish) if flags.rejected && (finish == "tool-calls" || finish == "stop" && calls_failed) => {
            Err(Failure::new(Exit::Denied, "the turn stopped because a permission or a question was rejected").hint(
                "allow it with --yes or a `permission` rule in trefoil.json; continue with `trefoil run -c \"continue\"`",
            ))
        }
        Some("length") => Err(Failure::new(Exit::Model, "the answer was cut off: it reached the model's output limit")
            .hint("continue with `trefoil run -c \"continue\"`")),
        Some("content-filter") => Err(Failure::new(Exit::Model, "the provider's content filter cut the answer off")),
        Some("error") => Err(Failure::new(Exit::Model, "the model ended its answer with an error")),
        Some("tool-calls") => Err(Failure::new(Exit::Failed, "the turn stopped before the model had finished")
            .hint("continue with `trefoil run -c \"continue\"`")),
        _ => Ok(()),
    }
}

/// The error after Ctrl-C.
pub fn cancelled() -> Failure {
    Failure::new(Exit::Cancelled, "cancelled")
        .hint("what was done is kept; continue with `trefoil run -c \"continue\"`")
}

/// The error after a signal in a turn that another process runs: the turn is not stopped.
pub fn detached(signal: Signal) -> Failure {
    Failure::new(signal.exit(), "left the session; its turn continues in the process that started it")
        .hint("your message is answered there; follow it with `trefoil run -c`")
}

/// The error after a signal that parks a turn of this process.
pub fn parked(signal: Signal, session: &SessionId) -> Failure {
    Failure::new(signal.exit(), format!("received {}: the turn is parked, and what was done is kept", signal.name()))
        .hint(format!("resume it with `trefoil run -c`, or `trefoil run --session {session}`"))
}

/// The error after a signal before the message was sent.
pub fn unsent(signal: Signal) -> Failure {
    match signal {
        Signal::Interrupt => cancelled(),
        _ => Failure::new(signal.exit(), format!("received {} before the message was sent", signal.name()))
            .hint("run the same command again"),
    }
}

/// The error of a turn that waits for its budget when nobody can raise it.
pub fn blocked(blocked: &Blocked) -> Failure {
    Failure::new(Exit::Budget, blocked.message.clone())
        .hint(format!("raise it with `{}`, then continue with `trefoil run -c \"continue\"`", raise_command(blocked)))
}

/// The command that raises a budget.
pub fn raise_command(blocked: &Blocked) -> String {
    let bound = match blocked.bound {
        Bound::Cost => "--cost DOLLARS",
        Bound::Tokens => "--tokens N",
        Bound::Steps => "--steps N",
        Bound::Seconds => "--seconds N",
    };
    format!("trefoil budget {} {bound}", blocked.session_id)
}

/// Whether an answer has text or calls a tool. The text of a failed attempt does not count.
pub fn has_content(answer: &MessageWithParts) -> bool {
    answer.parts.iter().any(|part| match part {
        Part::Text(text) => text.ignored != Some(true) && !text.text.trim().is_empty(),
        Part::Tool(_) => true,
        _ => false,
    })
}

fn failure(error: &MessageError, answer: &AssistantMessage) -> Failure {
    let model = format!("{}/{}", answer.provider_id, answer.model_id);
    let model_error = |hint: &str| Failure::new(Exit::Model, format!("{model}: {}", error.message())).hint(hint);
    match error {
        MessageError::MessageAbortedError(_) => cancelled(),
        MessageError::ProviderAuthError(_) => {
            model_error("check the provider's key; `trefoil doctor` shows what was found")
        }
        MessageError::ApiError(data) if matches!(data.status_code, Some(401 | 403)) => {
            model_error("check the provider's key; `trefoil doctor` shows what was found")
        }
        MessageError::ApiError(data) if data.is_retryable => {
            model_error("all attempts failed; continue later with `trefoil run -c \"continue\"`")
        }
        MessageError::ApiError(_) => model_error("`trefoil models` lists what can be used instead"),
        MessageError::ContextOverflowError(_) => model_error(
            "the conversation is too long for this model: start a new session, or choose a larger model with --model",
        ),
        MessageError::ContentFilterError(_) => model_error("rephrase it, or choose another model with --model"),
        MessageError::MessageOutputLengthError(_) => model_error("continue with `trefoil run -c \"continue\"`"),
        MessageError::StructuredOutputError(_) => model_error("choose another model with --model"),
        MessageError::UnknownError(_) => Failure::new(Exit::Failed, error.message()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::{ApiErrorData, Json, MessageId};
    use serde_json::json;

    fn answer(change: Json) -> MessageWithParts {
        let mut info = json!({
            "id": MessageId::new(), "sessionID": SessionId::new(), "parentID": MessageId::new(), "role": "assistant",
            "mode": "build", "agent": "build", "path": {"cwd": "/", "root": "/"}, "cost": 0,
            "tokens": {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}},
            "modelID": "m", "providerID": "p", "time": {"created": 1, "completed": 2}, "finish": "stop",
        });
        for (key, value) in change.as_object().unwrap() {
            info[key] = value.clone();
        }
        MessageWithParts { info: serde_json::from_value(info).unwrap(), parts: Vec::new() }
    }

    fn exit(change: Json, cancelled: bool, rejected: bool) -> Exit {
        check_answer(&answer(change), TurnFlags { cancelled, rejected })
            .map_or_else(|failure| failure.exit, |()| Exit::Success)
    }

    #[test]
    fn exit_codes() {
        let api = |status: u16| {
            json!({"error": MessageError::ApiError(ApiErrorData {
            message: "no".into(), status_code: Some(status), ..ApiErrorData::default() })})
        };
        assert_eq!(exit(json!({}), false, false), Exit::Success);
        assert_eq!(exit(json!({}), true, false), Exit::Cancelled);
        assert_eq!(exit(json!({"error": MessageError::aborted()}), false, false), Exit::Cancelled);
        assert_eq!(exit(api(401), false, false), Exit::Model);
        assert_eq!(exit(api(400), false, false), Exit::Model);
        assert_eq!(exit(json!({"error": MessageError::unknown("x")}), false, false), Exit::Failed);
        assert_eq!(exit(json!({"finish": "tool-calls"}), false, true), Exit::Denied);
        assert_eq!(exit(json!({"finish": "tool-calls"}), false, false), Exit::Failed);
        assert_eq!(exit(json!({"finish": "length"}), false, false), Exit::Model);
        assert_eq!(exit(json!({"finish": "content-filter"}), false, false), Exit::Model);
        // Rejected with a message, or something else was allowed instead: the model continued and finished.
        assert_eq!(exit(json!({}), false, true), Exit::Success);
    }
}
