//! Open permission requests and questions, as the newer API lists them. They are answered through the older one.

use api::{
    Host as _, JsonMap, PermissionId, PermissionRequest, Question, QuestionId, QuestionRequest, Scope, SessionId,
};
use axum::http::Method;
use schemars::JsonSchema;
use serde::Serialize;

use super::sessions::{NO_SESSION, session};
use super::{At, Bare, at};
use crate::error::Error;
use crate::operation::request::Call;
use crate::operation::{Data, Operation, operation};
use crate::routes::sessions::session::SessionPath;

pub fn operations() -> Vec<Operation> {
    let permissions_of = "/api/session/{sessionID}/permission";
    let questions_of = "/api/session/{sessionID}/question";
    vec![
        operation(
            Method::GET,
            "/api/permission/request",
            "v2.permission.request.list",
            "What is asked for.",
            permissions,
        )
        .v2(),
        operation(Method::GET, "/api/question/request", "v2.question.request.list", "Open questions.", questions).v2(),
        operation(
            Method::GET,
            permissions_of,
            "v2.session.permission.list",
            "What a session asks for.",
            session_permissions,
        )
        .v2()
        .global()
        .error(404, NO_SESSION),
        operation(
            Method::GET,
            questions_of,
            "v2.session.question.list",
            "Open questions of a session.",
            session_questions,
        )
        .v2()
        .global()
        .error(404, NO_SESSION),
    ]
}

/// The tool call that asks for a permission.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "PermissionV2Source")]
struct Source {
    #[serde(rename = "type")]
    #[schemars(extend("enum" = ["tool"]))]
    kind: &'static str,
    #[serde(rename = "messageID")]
    message: String,
    #[serde(rename = "callID")]
    call: String,
}

/// May the agent do this?
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "PermissionV2Request")]
struct Asked {
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
    source: Option<Source>,
}

impl From<PermissionRequest> for Asked {
    fn from(asked: PermissionRequest) -> Self {
        let source =
            |tool: api::ToolRef| Source { kind: "tool", message: tool.message_id.to_string(), call: tool.call_id };
        Self {
            id: asked.id,
            session: asked.session_id,
            action: asked.permission,
            resources: asked.patterns,
            save: Some(asked.always).filter(|patterns| !patterns.is_empty()),
            metadata: Some(asked.metadata).filter(|metadata| !metadata.is_empty()),
            source: asked.tool.map(source),
        }
    }
}

/// The tool call that asks a question.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "QuestionV2Tool")]
struct Tool {
    #[serde(rename = "messageID")]
    message: String,
    #[serde(rename = "callID")]
    call: String,
}

/// What an agent wants to know.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "QuestionV2Request")]
struct Wanted {
    id: QuestionId,
    #[serde(rename = "sessionID")]
    session: SessionId,
    questions: Vec<Question>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<Tool>,
}

impl From<QuestionRequest> for Wanted {
    fn from(asked: QuestionRequest) -> Self {
        let tool = |tool: api::ToolRef| Tool { message: tool.message_id.to_string(), call: tool.call_id };
        Self { id: asked.id, session: asked.session_id, questions: asked.questions, tool: asked.tool.map(tool) }
    }
}

async fn permissions(call: Call) -> Result<Data<At<Vec<Asked>>>, Error> {
    let open = call.state.engine.permissions(&call.scope).await?;
    at(&call.state, &call.scope, open.into_iter().map(Asked::from).collect()).await
}

async fn questions(call: Call) -> Result<Data<At<Vec<Wanted>>>, Error> {
    let open = call.state.engine.questions(&call.scope).await?;
    at(&call.state, &call.scope, open.into_iter().map(Wanted::from).collect()).await
}

async fn session_permissions(call: Call<SessionPath>) -> Result<Data<Bare<Vec<Asked>>>, Error> {
    let session = session(&call.state, &call.path.session.0)?;
    let open = call.state.engine.permissions(&Scope::new(session.directory)).await?;
    let own = open.into_iter().filter(|asked| asked.session_id == session.id);
    Ok(Data(Bare { data: own.map(Asked::from).collect() }))
}

async fn session_questions(call: Call<SessionPath>) -> Result<Data<Bare<Vec<Wanted>>>, Error> {
    let session = session(&call.state, &call.path.session.0)?;
    let open = call.state.engine.questions(&Scope::new(session.directory)).await?;
    let own = open.into_iter().filter(|asked| asked.session_id == session.id);
    Ok(Data(Bare { data: own.map(Wanted::from).collect() }))
}
