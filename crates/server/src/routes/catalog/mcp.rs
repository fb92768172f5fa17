//! MCP servers: their status, connecting, signing in, and their resources.

use api::{HostError, McpAuthorization, McpConfig, McpResource, McpStatus};
use axum::http::{Method, StatusCode};
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::operation::request::{JsonBody, NoParams, Request};
use crate::operation::{JsonReply, NoContent, Operation, RawReply, operation};
use crate::routes::sessions::session::SessionPath;
use crate::routes::sessions::turn::long_running;

pub fn operations() -> Vec<Operation> {
    const MISSING: &[&str] = &["McpServerNotFoundError"];
    const NO_OAUTH: &[&str] = &["McpUnsupportedOAuthError"];
    let auth = "/mcp/{name}/auth";
    let (callback, authenticate) = ("/mcp/{name}/auth/callback", "/mcp/{name}/auth/authenticate");
    let post = Method::POST;
    let named = |operation: Operation| operation.error(404, MISSING);
    let resource = "/experimental/resource";
    let (of_session, summary) = ("/session/{sessionID}/mcp", "Set the MCP servers that only this session uses.");
    vec![
        operation(Method::GET, "/mcp", "mcp.status", "The status of a directory's MCP servers.", status),
        operation(post.clone(), "/mcp", "mcp.add", "Add an MCP server.", add),
        named(operation(post.clone(), auth, "mcp.auth.start", "Start to sign in to an MCP server.", auth_start))
            .error(400, NO_OAUTH),
        named(operation(
            Method::DELETE,
            auth,
            "mcp.auth.remove",
            "Forget the credentials of an MCP server.",
            auth_remove,
        )),
        named(operation(post.clone(), callback, "mcp.auth.callback", "Finish signing in.", auth_callback)),
        named(operation(
            post.clone(),
            authenticate,
            "mcp.auth.authenticate",
            "Sign in to an MCP server.",
            auth_authenticate,
        ))
        .error(400, NO_OAUTH),
        named(operation(post.clone(), "/mcp/{name}/connect", "mcp.connect", "Connect to an MCP server.", connect)),
        named(operation(
            post.clone(),
            "/mcp/{name}/disconnect",
            "mcp.disconnect",
            "Disconnect from an MCP server.",
            disconnect,
        )),
        operation(post, of_session, "trefoil.session.mcp", summary, set_session_servers)
            .not_found()
            .error(409, &["ConflictError"]),
        operation(Method::GET, resource, "experimental.resource.list", "The resources of the MCP servers.", resources),
    ]
}

async fn status(request: Request) -> Result<JsonReply<IndexMap<String, McpStatus>>, Error> {
    Ok(JsonReply(request.host.mcp(&request.scope).await?))
}

/// A server to add.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct AddBody {
    name: String,
    config: McpConfig,
}

async fn add(
    request: Request<NoParams, NoParams, JsonBody<AddBody>>,
) -> Result<RawReply<IndexMap<String, McpStatus>>, Error> {
    let (host, scope, JsonBody(AddBody { name, config })) = (request.host, request.scope, request.body);
    long_running(&request.state, async move { host.mcp_add(&scope, &name, config).await }).await
}

/// How a session gets its servers.
#[derive(Debug, Deserialize, JsonSchema)]
struct SessionServersQuery {
    /// Only if the session has none, because this server was restarted meanwhile.
    restore: Option<bool>,
}

type SessionServersRequest = Request<SessionPath, SessionServersQuery, JsonBody<IndexMap<String, McpConfig>>>;

async fn set_session_servers(request: SessionServersRequest) -> Result<NoContent, Error> {
    let (host, session, JsonBody(servers)) = (&request.host, &request.path.session.0, request.body);
    if request.query.restore == Some(true) {
        host.restore_servers(session, servers).await?;
    } else {
        host.session_servers(session, servers).await?;
    }
    Ok(NoContent)
}

/// A server in the path.
#[derive(Debug, Deserialize, JsonSchema)]
struct ServerPath {
    name: String,
}

/// Clients know a body of its own shape for a server that has no OAuth.
fn oauth_error(error: HostError) -> Error {
    match error {
        HostError::Invalid(error) => Error::new(StatusCode::BAD_REQUEST, serde_json::json!({ "error": error })),
        error => error.into(),
    }
}

async fn auth_start(request: Request<ServerPath>) -> Result<JsonReply<McpAuthorization>, Error> {
    Ok(JsonReply(request.host.mcp_auth_start(&request.scope, &request.path.name).await.map_err(oauth_error)?))
}

/// The credentials were forgotten.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct RemoveResult {
    #[schemars(extend("enum" = [true]))]
    success: bool,
}

async fn auth_remove(request: Request<ServerPath>) -> Result<JsonReply<RemoveResult>, Error> {
    request.host.mcp_auth_remove(&request.scope, &request.path.name).await?;
    Ok(JsonReply(RemoveResult { success: true }))
}

/// The code from the browser.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct CodeBody {
    code: String,
}

async fn auth_callback(
    request: Request<ServerPath, NoParams, JsonBody<CodeBody>>,
) -> Result<JsonReply<McpStatus>, Error> {
    let JsonBody(CodeBody { code }) = &request.body;
    Ok(JsonReply(request.engine.mcp_auth_callback(&request.scope, &request.path.name, code).await?))
}

async fn auth_authenticate(request: Request<ServerPath>) -> Result<RawReply<McpStatus>, Error> {
    let (host, scope, name) = (request.host, request.scope, request.path.name);
    request.engine.mcp_oauth(&scope, &name).map_err(oauth_error)?;
    long_running(&request.state, async move { host.mcp_authenticate(&scope, &name).await }).await
}

async fn connect(request: Request<ServerPath>) -> Result<RawReply<bool>, Error> {
    let (host, scope, name) = (request.host, request.scope, request.path.name);
    long_running(&request.state, async move { host.mcp_connect(&scope, &name).await.map(|()| true) }).await
}

async fn disconnect(request: Request<ServerPath>) -> Result<JsonReply<bool>, Error> {
    request.host.mcp_disconnect(&request.scope, &request.path.name).await?;
    Ok(JsonReply(true))
}

async fn resources(request: Request) -> Result<JsonReply<IndexMap<String, McpResource>>, Error> {
    Ok(JsonReply(request.host.mcp_resources(&request.scope).await?))
}
