//! MCP servers: how it is with them, connecting, signing in, and what they have to read.

use api::{Host, HostError, McpAuthorization, McpConfig, McpResource, McpStatus};
use axum::http::{Method, StatusCode};
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::operation::request::{Call, JsonBody, Nothing};
use crate::operation::{Data, NoContent, Operation, Raw, operation};
use crate::routes::sessions::session::SessionPath;
use crate::routes::sessions::turn::patient;

pub fn operations() -> Vec<Operation> {
    const MISSING: &[&str] = &["McpServerNotFoundError"];
    const NO_OAUTH: &[&str] = &["McpUnsupportedOAuthError"];
    let auth = "/mcp/{name}/auth";
    let (callback, authenticate) = ("/mcp/{name}/auth/callback", "/mcp/{name}/auth/authenticate");
    let post = Method::POST;
    let named = |operation: Operation| operation.error(404, MISSING);
    let resource = "/experimental/resource";
    let (of_session, bring) =
        ("/session/{sessionID}/mcp", "The MCP servers that a session alone uses, until it has others.");
    vec![
        operation(Method::GET, "/mcp", "mcp.status", "The MCP servers of a directory.", status),
        operation(post.clone(), "/mcp", "mcp.add", "Add an MCP server.", add),
        named(operation(post.clone(), auth, "mcp.auth.start", "Begin to sign in at one.", auth_start))
            .error(400, NO_OAUTH),
        named(operation(Method::DELETE, auth, "mcp.auth.remove", "Forget how to sign in at one.", auth_remove)),
        named(operation(post.clone(), callback, "mcp.auth.callback", "Finish to sign in.", auth_callback)),
        named(operation(post.clone(), authenticate, "mcp.auth.authenticate", "Sign in.", auth_authenticate))
            .error(400, NO_OAUTH),
        named(operation(post.clone(), "/mcp/{name}/connect", "mcp.connect", "Connect to one.", connect)),
        named(operation(post.clone(), "/mcp/{name}/disconnect", "mcp.disconnect", "Disconnect from one.", disconnect)),
        operation(post, of_session, "trefoil.session.mcp", bring, self::bring)
            .not_found()
            .error(409, &["ConflictError"]),
        operation(Method::GET, resource, "experimental.resource.list", "What MCP servers have to read.", resources),
    ]
}

async fn status(call: Call) -> Result<Data<IndexMap<String, McpStatus>>, Error> {
    Ok(Data(call.state.engine.mcp(&call.scope).await?))
}

/// A server to add.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct Add {
    name: String,
    config: McpConfig,
}

async fn add(call: Call<Nothing, Nothing, JsonBody<Add>>) -> Result<Raw<IndexMap<String, McpStatus>>, Error> {
    let (engine, scope, JsonBody(Add { name, config })) = (call.state.engine.clone(), call.scope, call.body);
    patient(&call.state, async move { engine.mcp_add(&scope, &name, config).await }).await
}

/// How servers are given to a session.
#[derive(Debug, Deserialize, JsonSchema)]
struct BringQuery {
    /// Only if the session has none: this server was started anew meanwhile.
    restore: Option<bool>,
}

type Bring = Call<SessionPath, BringQuery, JsonBody<IndexMap<String, McpConfig>>>;

async fn bring(call: Bring) -> Result<NoContent, Error> {
    let (engine, session, JsonBody(servers)) = (&call.state.engine, &call.path.session.0, call.body);
    if call.query.restore == Some(true) {
        engine.restore_servers(&call.scope, session, servers).await?;
    } else {
        engine.session_servers(&call.scope, session, servers).await?;
    }
    Ok(NoContent)
}

/// A server in the path.
#[derive(Debug, Deserialize, JsonSchema)]
struct ServerPath {
    name: String,
}

/// Why one cannot sign in has a shape of its own.
fn no_oauth(error: HostError) -> Error {
    match error {
        HostError::Invalid(error) => Error::new(StatusCode::BAD_REQUEST, serde_json::json!({ "error": error })),
        error => error.into(),
    }
}

async fn auth_start(call: Call<ServerPath>) -> Result<Data<McpAuthorization>, Error> {
    Ok(Data(call.state.engine.mcp_auth_start(&call.scope, &call.path.name).await.map_err(no_oauth)?))
}

/// It is forgotten.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct Forgotten {
    #[schemars(extend("enum" = [true]))]
    success: bool,
}

async fn auth_remove(call: Call<ServerPath>) -> Result<Data<Forgotten>, Error> {
    call.state.engine.mcp_auth_remove(&call.scope, &call.path.name).await?;
    Ok(Data(Forgotten { success: true }))
}

/// What the browser brought back.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct Code {
    code: String,
}

async fn auth_callback(call: Call<ServerPath, Nothing, JsonBody<Code>>) -> Result<Data<McpStatus>, Error> {
    let JsonBody(Code { code }) = &call.body;
    Ok(Data(call.state.engine.mcp_auth_callback(&call.scope, &call.path.name, code).await?))
}

async fn auth_authenticate(call: Call<ServerPath>) -> Result<Raw<McpStatus>, Error> {
    let (engine, scope, name) = (call.state.engine.clone(), call.scope, call.path.name);
    engine.mcp_oauth(&scope, &name).map_err(no_oauth)?;
    patient(&call.state, async move { engine.mcp_authenticate(&scope, &name).await }).await
}

async fn connect(call: Call<ServerPath>) -> Result<Raw<bool>, Error> {
    let (engine, scope, name) = (call.state.engine.clone(), call.scope, call.path.name);
    patient(&call.state, async move { engine.mcp_connect(&scope, &name).await.map(|()| true) }).await
}

async fn disconnect(call: Call<ServerPath>) -> Result<Data<bool>, Error> {
    call.state.engine.mcp_disconnect(&call.scope, &call.path.name).await?;
    Ok(Data(true))
}

async fn resources(call: Call) -> Result<Data<IndexMap<String, McpResource>>, Error> {
    Ok(Data(call.state.engine.mcp_resources(&call.scope).await?))
}
