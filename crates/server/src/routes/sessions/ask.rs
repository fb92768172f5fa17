//! Permissions and questions that wait for the human.

use api::{
    Approval, ApprovalId, Host as _, HostError, PermissionId, PermissionReply, PermissionReplyKind, PermissionRequest,
    QuestionId, QuestionRequest, SessionId,
};
use axum::http::{Method, StatusCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::operation::request::{Call, Given, JsonBody, Nothing};
use crate::operation::{Data, NoContent, Operation, operation};

pub fn operations() -> Vec<Operation> {
    const SAVED: &str = "/api/permission/saved";
    const ONE_SAVED: &str = "/api/permission/saved/{id}";
    const LEGACY: &str = "/session/{sessionID}/permissions/{permissionID}";
    vec![
        operation(Method::GET, "/permission", "permission.list", "Permissions that wait for an answer.", permissions),
        operation(Method::POST, "/permission/{requestID}/reply", "permission.reply", "Answer one.", reply)
            .error(404, &["PermissionNotFoundError"]),
        operation(Method::POST, LEGACY, "permission.respond", "Answer one, the older way.", respond)
            .error(404, &["NotFoundError", "PermissionNotFoundError"]),
        operation(Method::GET, "/question", "question.list", "Questions that wait for an answer.", questions),
        operation(Method::POST, "/question/{requestID}/reply", "question.reply", "Answer one.", answer)
            .error(404, &["QuestionNotFoundError"]),
        operation(Method::POST, "/question/{requestID}/reject", "question.reject", "Do not answer one.", reject)
            .error(404, &["QuestionNotFoundError"]),
        operation(Method::GET, SAVED, "v2.permission.saved.list", "What is allowed for always.", saved).v2().global(),
        operation(Method::DELETE, ONE_SAVED, "v2.permission.saved.remove", "Be asked about it again.", forget)
            .v2()
            .global(),
    ]
}

/// Of which project.
#[derive(Debug, Deserialize, JsonSchema)]
struct OfProject {
    #[serde(rename = "projectID")]
    project: Option<String>,
}

/// Something that is allowed for always.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "PermissionSavedInfo")]
struct Saved {
    id: String,
    #[serde(rename = "projectID")]
    project: String,
    action: String,
    resource: String,
    /// Where it counts.
    directory: String,
}

impl From<Approval> for Saved {
    fn from(approval: Approval) -> Self {
        Self {
            id: approval.id.to_string(),
            project: approval.project_id,
            action: approval.permission,
            resource: approval.pattern,
            directory: approval.directory,
        }
    }
}

/// What is allowed for always.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct AllSaved {
    data: Vec<Saved>,
}

async fn saved(call: Call<Nothing, OfProject>) -> Result<Data<AllSaved>, Error> {
    let approvals = call.state.engine.approvals(call.query.project.as_deref())?;
    Ok(Data(AllSaved { data: approvals.into_iter().map(Saved::from).collect() }))
}

/// An approval in the path.
#[derive(Debug, Deserialize, JsonSchema)]
struct SavedPath {
    id: String,
}

/// What is no id is none of those that there are, and gone all the same.
async fn forget(call: Call<SavedPath>) -> Result<NoContent, Error> {
    if let Ok(id) = ApprovalId::parse(&call.path.id) {
        call.state.engine.revoke(Some(&id)).await?;
    }
    Ok(NoContent)
}

async fn permissions(call: Call) -> Result<Data<Vec<PermissionRequest>>, Error> {
    Ok(Data(call.state.engine.permissions(&call.scope).await?))
}

/// A permission request in the path.
#[derive(Debug, Deserialize, JsonSchema)]
struct PermissionPath {
    #[serde(rename = "requestID")]
    request: Given<PermissionId>,
}

/// An answer.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct ReplyBody {
    reply: PermissionReplyKind,
    message: Option<String>,
}

async fn reply(call: Call<PermissionPath, Nothing, JsonBody<ReplyBody>>) -> Result<Data<bool>, Error> {
    let JsonBody(ReplyBody { reply, message }) = call.body;
    let reply = PermissionReply { reply, message };
    let id = call.path.request.0;
    let replied = call.state.engine.reply_permission(&call.scope, &id, reply).await;
    replied.map_err(|error| waits_no_more("PermissionNotFoundError", id.as_str(), error))?;
    Ok(Data(true))
}

/// A permission request of a session in the path.
#[derive(Debug, Deserialize, JsonSchema)]
struct LegacyPath {
    #[serde(rename = "sessionID")]
    session: Given<SessionId>,
    #[serde(rename = "permissionID")]
    permission: Given<PermissionId>,
}

/// An answer, the older way.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct Response {
    response: PermissionReplyKind,
}

async fn respond(call: Call<LegacyPath, Nothing, JsonBody<Response>>) -> Result<Data<bool>, Error> {
    let session = call.path.session.0;
    call.state.engine.session(&call.scope, &session).await?;
    let reply = PermissionReply { reply: call.body.0.response, message: None };
    let id = call.path.permission.0;
    // What a subagent asks may be answered in the name of any session above it, and in nobody else's.
    if let Some(asked) = call.state.engine.permissions(&call.scope).await?.into_iter().find(|asked| asked.id == id)
        && !call.state.engine.is_within(&asked.session_id, &session)?
    {
        let message = format!("Permission request not found: {id} is neither of {session} nor of a session below it");
        return Err(Error::tagged(
            StatusCode::NOT_FOUND,
            "PermissionNotFoundError",
            &[("requestID", id.as_str())],
            message,
        ));
    }
    let replied = call.state.engine.reply_permission(&call.scope, &id, reply).await;
    replied.map_err(|error| waits_no_more("PermissionNotFoundError", id.as_str(), error))?;
    Ok(Data(true))
}

async fn questions(call: Call) -> Result<Data<Vec<QuestionRequest>>, Error> {
    Ok(Data(call.state.engine.questions(&call.scope).await?))
}

/// A question in the path.
#[derive(Debug, Deserialize, JsonSchema)]
struct QuestionPath {
    #[serde(rename = "requestID")]
    request: Given<QuestionId>,
}

/// The chosen labels of each question.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct Answers {
    answers: Vec<Vec<String>>,
}

async fn answer(call: Call<QuestionPath, Nothing, JsonBody<Answers>>) -> Result<Data<bool>, Error> {
    let id = call.path.request.0;
    let replied = call.state.engine.reply_question(&call.scope, &id, Some(call.body.0.answers)).await;
    replied.map_err(|error| waits_no_more("QuestionNotFoundError", id.as_str(), error))?;
    Ok(Data(true))
}

async fn reject(call: Call<QuestionPath>) -> Result<Data<bool>, Error> {
    let id = call.path.request.0;
    let replied = call.state.engine.reply_question(&call.scope, &id, None).await;
    replied.map_err(|error| waits_no_more("QuestionNotFoundError", id.as_str(), error))?;
    Ok(Data(true))
}

/// Clients know one refusal of an answer: that nothing waits for it. Whether it ever did is in the message.
fn waits_no_more(tag: &str, id: &str, error: HostError) -> Error {
    match error {
        HostError::Conflict(message) => Error::tagged(StatusCode::NOT_FOUND, tag, &[("requestID", id)], message),
        error => error.into(),
    }
}
