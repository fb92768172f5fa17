//! Whether a turn really succeeded.

use api::{AssistantMessage, Blocked, Bound, Message, MessageError, MessageWithParts, Part, SessionId, ToolState};

use crate::exit::{Exit, Failure};
use crate::interrupt::Signal;

/// What happened while the turn ran, beyond what its last message says.
#[derive(Debug, Clone, Copy, Default)]
pub struct Seen {
    /// Somebody pressed Ctrl-C.
    pub cancelled: bool,
    /// A permission or a question was rejected, so that the turn stopped there.
    pub rejected: bool,
}

/// The failure that the last answer of a turn is, if it is one.
pub fn judge(answer: &MessageWithParts, seen: Seen) -> Result<(), Failure> {
    if seen.cancelled {
        return Err(cancelled());
    }
    let calls_failed = answer.parts.iter().filter_map(Part::as_tool).any(|t| matches!(t.state, ToolState::Error(_)));
    // A prompt that is only stored has no answer that could fail.
    let Message::Assistant(answer) = &answer.info else { return Ok(()) };
    if let Some(error) = &answer.error {
        return Err(failed(error, answer));
    }
    match answer.finish.as_deref() {
        // A turn that went on after a crash ends with `stop` then.
        Some(finish) if seen.rejected && (finish == "tool-calls" || finish == "stop" && calls_failed) => {
            Err(Failure::new(Exit::Denied, "the turn stopped because a permission or a question was rejected").hint(
                "allow it with --yes or a `permission` rule in trefoil.json; go on with `trefoil run -c \"go on\"`",
            ))
        }
        Some("length") => Err(Failure::new(Exit::Model, "the answer was cut off: it reached the model's output limit")
            .hint("go on with `trefoil run -c \"go on\"`")),
        Some("content-filter") => Err(Failure::new(Exit::Model, "the provider's content filter cut the answer off")),
        Some("error") => Err(Failure::new(Exit::Model, "the model ended its answer with an error")),
        Some("tool-calls") => Err(Failure::new(Exit::Failed, "the turn stopped before the model had finished")
            .hint("go on with `trefoil run -c \"go on\"`")),
        _ => Ok(()),
    }
}

/// Ctrl-C.
pub fn cancelled() -> Failure {
    Failure::new(Exit::Cancelled, "cancelled").hint("what was done is kept; go on with `trefoil run -c \"go on\"`")
}

/// A signal in a turn that another process runs: it is not stopped.
pub fn left(signal: Signal) -> Failure {
    Failure::new(signal.exit(), "left the session; its turn goes on in the process that began it")
        .hint("a message that was sent is answered there; follow it with `trefoil run -c`")
}

/// A signal that does not cancel, in a turn of this process.
pub fn parked(signal: Signal, session: &SessionId) -> Failure {
    Failure::new(signal.exit(), format!("{} came: the turn is parked, and what was done is kept", signal.name()))
        .hint(format!("let it go on with `trefoil run -c`, or `trefoil run --session {session}`"))
}

/// A signal before anything was sent.
pub fn unsent(signal: Signal) -> Failure {
    match signal {
        Signal::Interrupt => cancelled(),
        _ => Failure::new(signal.exit(), format!("{} came before the message was sent", signal.name()))
            .hint("run the same command again"),
    }
}

/// The turn waits for its budget, and nobody is there to raise it.
pub fn blocked(blocked: &Blocked) -> Failure {
    Failure::new(Exit::Budget, blocked.message.clone())
        .hint(format!("raise it with `{}`, then go on with `trefoil run -c \"go on\"`", raise(blocked)))
}

/// The command that raises a budget.
pub fn raise(blocked: &Blocked) -> String {
    let bound = match blocked.bound {
        Bound::Cost => "--cost DOLLARS",
        Bound::Tokens => "--tokens N",
        Bound::Steps => "--steps N",
        Bound::Seconds => "--seconds N",
    };
    format!("trefoil budget {} {bound}", blocked.session_id)
}

/// Whether an answer says something or calls a tool. What a failed attempt said does not count.
pub fn acts(answer: &MessageWithParts) -> bool {
    answer.parts.iter().any(|part| match part {
        Part::Text(text) => text.ignored != Some(true) && !text.text.trim().is_empty(),
        Part::Tool(_) => true,
        _ => false,
    })
}

fn failed(error: &MessageError, answer: &AssistantMessage) -> Failure {
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
            model_error("it was tried several times; go on later with `trefoil run -c \"go on\"`")
        }
        MessageError::ApiError(_) => model_error("`trefoil models` lists what can be used instead"),
        MessageError::ContextOverflowError(_) => model_error(
            "the conversation is too long for this model: start a new session, or take a larger one with --model",
        ),
        MessageError::ContentFilterError(_) => model_error("word it differently, or take another model with --model"),
        MessageError::MessageOutputLengthError(_) => model_error("go on with `trefoil run -c \"go on\"`"),
        MessageError::StructuredOutputError(_) => model_error("take another model with --model"),
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
        judge(&answer(change), Seen { cancelled, rejected }).map_or_else(|failure| failure.exit, |()| Exit::Success)
    }

    #[test]
    fn codes() {
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
        // Rejected with a message, or something else was allowed instead: the model went on and finished.
        assert_eq!(exit(json!({}), false, true), Exit::Success);
    }
}
