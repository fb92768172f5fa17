//! Permission requests and questions that wait for the human.

use api::{
    Approval, ApprovalId, HostError, PermissionId, PermissionReply, PermissionReplyKind, PermissionRequest, QuestionId,
    QuestionRequest, Scope, SessionId,
};
use axum::http::{Method, StatusCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::operation::request::{JsonBody, NoParams, ParsedId, Request};
use crate::operation::{JsonReply, NoContent, Operation, operation};

pub fn operations() -> Vec<Operation> {
    const SAVED: &str = "/api/permission/saved";
    const ONE_SAVED: &str = "/api/permission/saved/{id}";
    const LEGACY: &str = "/session/{sessionID}/permissions/{permissionID}";
    vec![
        operation(
            Method::GET,
            "/permission",
            "permission.list",
            "The permission requests that wait for an answer.",
            permissions,
        ),
        operation(
            Method::POST,
            "/permission/{requestID}/reply",
            "permission.reply",
            "Answer a permission request.",
            reply,
        )
        .error(404, &["PermissionNotFoundError"]),
        operation(
            Method::POST,
            LEGACY,
            "permission.respond",
            "Answer a permission request, in the older form.",
            respond,
        )
        .error(404, &["NotFoundError", "PermissionNotFoundError"]),
        operation(Method::GET, "/question", "question.list", "The questions that wait for an answer.", questions),
        operation(Method::POST, "/question/{requestID}/reply", "question.reply", "Answer a question.", answer)
            .error(404, &["QuestionNotFoundError"]),
        operation(Method::POST, "/question/{requestID}/reject", "question.reject", "Reject a question.", reject)
            .error(404, &["QuestionNotFoundError"]),
        operation(
            Method::GET,
            SAVED,
            "v2.permission.saved.list",
            "The permissions that were granted permanently.",
            list_saved,
        )
        .v2()
        .global(),
        operation(Method::DELETE, ONE_SAVED, "v2.permission.saved.remove", "Remove a saved permission.", remove_saved)
            .v2()
            .global(),
    ]
}

/// Filters by project.
#[derive(Debug, Deserialize, JsonSchema)]
struct ProjectQuery {
    #[serde(rename = "projectID")]
    project: Option<String>,
}

/// A saved permission.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "PermissionSavedInfo")]
struct SavedPermission {
    id: String,
    #[serde(rename = "projectID")]
    project: String,
    action: String,
    resource: String,
    /// The directory that it applies to.
    directory: String,
}

impl From<Approval> for SavedPermission {
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

/// Saved permissions.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct SavedPermissions {
    data: Vec<SavedPermission>,
}

async fn list_saved(request: Request<NoParams, ProjectQuery>) -> Result<JsonReply<SavedPermissions>, Error> {
    let approvals = request.engine.approvals(request.query.project.as_deref())?;
    Ok(JsonReply(SavedPermissions { data: approvals.into_iter().map(SavedPermission::from).collect() }))
}

/// A saved permission in the path.
#[derive(Debug, Deserialize, JsonSchema)]
struct SavedPath {
    id: String,
}

/// A malformed id names no saved permission, so there is nothing to remove.
async fn remove_saved(request: Request<SavedPath>) -> Result<NoContent, Error> {
    if let Ok(id) = ApprovalId::parse(&request.path.id) {
        request.engine.revoke(Some(&id)).await?;
    }
    Ok(NoContent)
}

async fn permissions(request: Request) -> Result<JsonReply<Vec<PermissionRequest>>, Error> {
    Ok(JsonReply(request.host.permissions(&request.scope).await?))
}

/// A permission request in the path.
#[derive(Debug, Deserialize, JsonSchema)]
struct PermissionPath {
    #[serde(rename = "requestID")]
    id: ParsedId<PermissionId>,
}

/// The reply to a permission request.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct ReplyBody {
    reply: PermissionReplyKind,
    message: Option<String>,
}

async fn reply(request: Request<PermissionPath, NoParams, JsonBody<ReplyBody>>) -> Result<JsonReply<bool>, Error> {
    let JsonBody(ReplyBody { reply, message }) = request.body;
    let reply = PermissionReply { reply, message };
    let id = request.path.id.0;
    let replied = request.host.reply_permission(&id, reply).await;
    replied.map_err(|error| reply_error("PermissionNotFoundError", id.as_str(), error))?;
    Ok(JsonReply(true))
}

/// A permission request of a session in the path.
#[derive(Debug, Deserialize, JsonSchema)]
struct LegacyPath {
    #[serde(rename = "sessionID")]
    session: ParsedId<SessionId>,
    #[serde(rename = "permissionID")]
    permission: ParsedId<PermissionId>,
}

/// The reply to a permission request, in the older form.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct LegacyReplyBody {
    response: PermissionReplyKind,
}

async fn respond(request: Request<LegacyPath, NoParams, JsonBody<LegacyReplyBody>>) -> Result<JsonReply<bool>, Error> {
    let session = request.path.session.0;
    let scope = Scope::new(request.host.session(&session).await?.directory);
    let reply = PermissionReply { reply: request.body.0.response, message: None };
    let id = request.path.permission.0;
    // The request of a subagent may be answered in the name of any session above it, and of no other.
    if let Some(pending) = request.host.permissions(&scope).await?.into_iter().find(|pending| pending.id == id)
        && !request.engine.is_within(&pending.session_id, &session)?
    {
        let message =
            format!("Permission request not found: {id} belongs neither to {session} nor to a session below it");
        return Err(Error::tagged(
            StatusCode::NOT_FOUND,
            "PermissionNotFoundError",
            &[("requestID", id.as_str())],
            message,
        ));
    }
    let replied = request.host.reply_permission(&id, reply).await;
    replied.map_err(|error| reply_error("PermissionNotFoundError", id.as_str(), error))?;
    Ok(JsonReply(true))
}

async fn questions(request: Request) -> Result<JsonReply<Vec<QuestionRequest>>, Error> {
    Ok(JsonReply(request.host.questions(&request.scope).await?))
}

/// A question in the path.
#[derive(Debug, Deserialize, JsonSchema)]
struct QuestionPath {
    #[serde(rename = "requestID")]
    id: ParsedId<QuestionId>,
}

/// The chosen labels of each question.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct AnswersBody {
    answers: Vec<Vec<String>>,
}

async fn answer(request: Request<QuestionPath, NoParams, JsonBody<AnswersBody>>) -> Result<JsonReply<bool>, Error> {
    let id = request.path.id.0;
    let replied = request.host.reply_question(&id, Some(request.body.0.answers)).await;
    replied.map_err(|error| reply_error("QuestionNotFoundError", id.as_str(), error))?;
    Ok(JsonReply(true))
}

async fn reject(request: Request<QuestionPath>) -> Result<JsonReply<bool>, Error> {
    let id = request.path.id.0;
    let replied = request.host.reply_question(&id, None).await;
    replied.map_err(|error| reply_error("QuestionNotFoundError", id.as_str(), error))?;
    Ok(JsonReply(true))
}

/// Clients know one refusal of a reply: that no request waits for it. The message says whether one ever did.
fn reply_error(tag: &str, id: &str, error: HostError) -> Error {
    match error {
        HostError::Conflict(message) => Error::tagged(StatusCode::NOT_FOUND, tag, &[("requestID", id)], message),
        error => error.into(),
    }
}
