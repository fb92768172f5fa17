//! Methods that list and answer requests: permissions and questions.

use api::{Json, PermissionReply, PermissionReplyKind};
use serde_json::json;

use super::Request;
use crate::Error;
use crate::records::{Interrupt, InterruptKind};
use crate::service::shown_details;

pub(super) fn permissions(request: &Request<'_>) -> Result<Json, Error> {
    list(request, InterruptKind::Permission)
}

pub(super) fn questions(request: &Request<'_>) -> Result<Json, Error> {
    list(request, InterruptKind::Question)
}

fn list(request: &Request<'_>, kind: InterruptKind) -> Result<Json, Error> {
    request.params.only(&["metadata"])?;
    request.params.metadata()?;
    let interrupts = request.service.access().interrupts(request.who, kind);
    Ok(json!({ "items": interrupts.iter().map(item).collect::<Vec<_>>() }))
}

fn item(interrupt: &Interrupt) -> Json {
    json!({
        "request_id": interrupt.request_id,
        "session_id": interrupt.session_id,
        "interrupt_type": interrupt.kind,
        "task_id": interrupt.task_id,
        "context_id": interrupt.context_id,
        "details": shown_details(interrupt),
        // Seconds, as clients of the first release expect.
        "expires_at": interrupt.expires_at as f64 / 1000.0,
    })
}

pub(super) async fn permission(request: &Request<'_>) -> Result<Json, Error> {
    request.params.only(&["request_id", "reply", "message", "metadata"])?;
    let id = request.params.required_text("request_id")?;
    let reply = match request.params.required_text("reply")? {
        "once" => PermissionReplyKind::Once,
        "always" => PermissionReplyKind::Always,
        "reject" => PermissionReplyKind::Reject,
        _ => return Err(request.params.invalid("reply", "must be one of: once, always, reject")),
    };
    let message = request.params.text("message")?.map(str::to_owned);
    request.scope().await?;
    request.service.reply_permission(request.who, id, PermissionReply { reply, message }).await?;
    Ok(json!({ "ok": true, "request_id": id }))
}

/// Answers a question, or declines to.
pub(super) async fn question(request: &Request<'_>, answered: bool) -> Result<Json, Error> {
    let keys: &[&str] = if answered { &["request_id", "answers", "metadata"] } else { &["request_id", "metadata"] };
    request.params.only(keys)?;
    let id = request.params.required_text("request_id")?;
    let answers = match (answered, request.params.get("answers")) {
        (false, _) => None,
        (true, Some(answers)) => {
            let problem = |_| request.params.invalid("answers", "must be a list of lists of strings");
            Some(serde_json::from_value(answers.clone()).map_err(problem)?)
        }
        (true, None) => return Err(request.params.invalid("answers", "must be a list of lists of strings")),
    };
    request.scope().await?;
    request.service.reply_question(request.who, id, answers).await?;
    Ok(json!({ "ok": true, "request_id": id }))
}
