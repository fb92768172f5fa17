//! Open permission requests and questions, as the newer API lists them. Clients answer them through the older one.

use api::{JsonMap, PermissionId, PermissionRequest, Question, QuestionId, QuestionRequest, Scope, SessionId};
use axum::http::Method;
use schemars::JsonSchema;
use serde::Serialize;

use super::sessions::{SESSION_NOT_FOUND, session};
use super::{DataOnly, WithLocation, with_location};
use crate::error::Error;
use crate::operation::request::Request;
use crate::operation::{JsonReply, Operation, operation};
use crate::routes::sessions::session::SessionPath;

pub fn operations() -> Vec<Operation> {
    let permissions_of = "/api/session/{sessionID}/permission";
    let questions_of = "/api/session/{sessionID}/question";
    vec![
        operation(
            Method::GET,
            "/api/permission/request",
            "v2.permission.request.list",
            "The open permission requests.",
            permissions,
        )
        .v2(),
        operation(Method::GET, "/api/question/request", "v2.question.request.list", "The open questions.", questions)
            .v2(),
        operation(
            Method::GET,
            permissions_of,
            "v2.session.permission.list",
            "The open permission requests of a session.",
            session_permissions,
        )
        .v2()
        .global()
        .error(404, SESSION_NOT_FOUND),
        operation(
            Method::GET,
            questions_of,
            "v2.session.question.list",
            "The open questions of a session.",
            session_questions,
        )
        .v2()
        .global()
        .error(404, SESSION_NOT_FOUND),
    ]
}

/// The tool call that needs a permission.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "PermissionV2Source")]
struct PermissionSource {
    #[serde(rename = "type")]
    #[schemars(extend("enum" = ["tool"]))]
    kind: &'static str,
    #[serde(rename = "messageID")]
    message: String,
    #[serde(rename = "callID")]
    call_id: String,
}

/// A permission request.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "PermissionV2Request")]
struct PendingPermission {
    id: PermissionId,
    #[serde(rename = "sessionID")]
    session: SessionId,
    action: String,
    resources: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    save: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<JsonMap>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<PermissionSource>,
}

impl From<PermissionRequest> for PendingPermission {
    fn from(pending: PermissionRequest) -> Self {
        let source = |tool: api::ToolRef| PermissionSource {
            kind: "tool",
            message: tool.message_id.to_string(),
            call_id: tool.call_id,
        };
        Self {
            id: pending.id,
            session: pending.session_id,
            action: pending.permission,
            resources: pending.patterns,
            save: Some(pending.always).filter(|patterns| !patterns.is_empty()),
            metadata: Some(pending.metadata).filter(|metadata| !metadata.is_empty()),
            source: pending.tool.map(source),
        }
    }
}

/// The tool call that asks a question.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "QuestionV2Tool")]
struct QuestionTool {
    #[serde(rename = "messageID")]
    message: String,
    #[serde(rename = "callID")]
    call_id: String,
}

/// An agent's questions to the user.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "QuestionV2Request")]
struct PendingQuestion {
    id: QuestionId,
    #[serde(rename = "sessionID")]
    session: SessionId,
    questions: Vec<Question>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<QuestionTool>,
}

impl From<QuestionRequest> for PendingQuestion {
    fn from(pending: QuestionRequest) -> Self {
        let tool = |tool: api::ToolRef| QuestionTool { message: tool.message_id.to_string(), call_id: tool.call_id };
        Self { id: pending.id, session: pending.session_id, questions: pending.questions, tool: pending.tool.map(tool) }
    }
}

async fn permissions(request: Request) -> Result<JsonReply<WithLocation<Vec<PendingPermission>>>, Error> {
    let open = request.host.permissions(&request.scope).await?;
    with_location(&request.state, &request.scope, open.into_iter().map(PendingPermission::from).collect()).await
}

async fn questions(request: Request) -> Result<JsonReply<WithLocation<Vec<PendingQuestion>>>, Error> {
    let open = request.host.questions(&request.scope).await?;
    with_location(&request.state, &request.scope, open.into_iter().map(PendingQuestion::from).collect()).await
}

async fn session_permissions(
    request: Request<SessionPath>,
) -> Result<JsonReply<DataOnly<Vec<PendingPermission>>>, Error> {
    let session = session(&*request.host, &request.path.session.0).await?;
    let open = request.host.permissions(&Scope::new(session.directory)).await?;
    let own = open.into_iter().filter(|pending| pending.session_id == session.id);
    Ok(JsonReply(DataOnly { data: own.map(PendingPermission::from).collect() }))
}

async fn session_questions(request: Request<SessionPath>) -> Result<JsonReply<DataOnly<Vec<PendingQuestion>>>, Error> {
    let session = session(&*request.host, &request.path.session.0).await?;
    let open = request.host.questions(&Scope::new(session.directory)).await?;
    let own = open.into_iter().filter(|pending| pending.session_id == session.id);
    Ok(JsonReply(DataOnly { data: own.map(PendingQuestion::from).collect() }))
}
