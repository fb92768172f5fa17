//! MCP servers: what is configured is told, but none is connected yet.

use api::{Json, McpConfig, McpResource, McpStatus};
use axum::http::{Method, StatusCode};
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::call::{Call, JsonBody, Nothing};
use crate::error::Error;
use crate::operation::{Data, Never, Operation, operation};

const NOT_YET: &str = "Trefoil does not connect to MCP servers yet";

pub fn operations() -> Vec<Operation> {
    const MISSING: &[&str] = &["McpServerNotFoundError"];
    const NO_OAUTH: &[&str] = &["McpUnsupportedOAuthError"];
    let auth = "/mcp/{name}/auth";
    let (callback, authenticate) = ("/mcp/{name}/auth/callback", "/mcp/{name}/auth/authenticate");
    let post = Method::POST;
    let refusing = |operation: Operation| operation.error(404, MISSING).not_offered(NOT_YET);
    let resource = "/experimental/resource";
    vec![
        operation(Method::GET, "/mcp", "mcp.status", "The MCP servers of a directory.", status)
            .partial("configured servers are listed as failed: none is connected yet"),
        operation(post.clone(), "/mcp", "mcp.add", "Add an MCP server.", add).not_offered(NOT_YET),
        refusing(operation(post.clone(), auth, "mcp.auth.start", "Begin to sign in at one.", auth_start))
            .error(400, NO_OAUTH),
        refusing(operation(Method::DELETE, auth, "mcp.auth.remove", "Forget how to sign in at one.", auth_remove)),
        refusing(operation(post.clone(), callback, "mcp.auth.callback", "Finish to sign in.", auth_callback)),
        refusing(operation(post.clone(), authenticate, "mcp.auth.authenticate", "Sign in.", auth_authenticate))
            .error(400, NO_OAUTH),
        refusing(operation(post.clone(), "/mcp/{name}/connect", "mcp.connect", "Connect to one.", connect)),
        refusing(operation(post, "/mcp/{name}/disconnect", "mcp.disconnect", "Disconnect from one.", disconnect)),
        operation(Method::GET, resource, "experimental.resource.list", "What MCP servers have to read.", resources)
            .partial("always empty: no MCP server is connected yet"),
    ]
}

async fn status(call: Call) -> Result<Data<IndexMap<String, McpStatus>>, Error> {
    let loaded = call.state.engine.loaded(&call.scope);
    let status = |config: &Json| match config.get("enabled") {
        Some(Json::Bool(false)) => McpStatus::Disabled,
        _ => McpStatus::Failed { error: NOT_YET.to_owned() },
    };
    Ok(Data(loaded.config.mcp.iter().map(|(name, config)| (name.clone(), status(config))).collect()))
}

/// A server to add.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
#[expect(dead_code, reason = "only its shape is looked at")]
struct Add {
    name: String,
    config: McpConfig,
}

async fn add(_: Call<Nothing, Nothing, JsonBody<Add>>) -> Result<Never<IndexMap<String, McpStatus>>, Error> {
    Err(Error::unsupported(NOT_YET))
}

/// A server in the path.
#[derive(Debug, Deserialize, JsonSchema)]
struct ServerPath {
    name: String,
}

/// Refuses a call about a server, in the words for one that is configured or for one that nobody knows.
fn refuse<T, B>(call: &Call<ServerPath, Nothing, B>) -> Result<Never<T>, Error> {
    known(call)?;
    Err(Error::unsupported(NOT_YET))
}

fn refuse_oauth<T>(call: &Call<ServerPath>) -> Result<Never<T>, Error> {
    known(call)?;
    let body = Some(serde_json::json!({ "error": NOT_YET }));
    Err(Error { status: StatusCode::BAD_REQUEST, body, cause: None })
}

fn known<B>(call: &Call<ServerPath, Nothing, B>) -> Result<(), Error> {
    let name = &call.path.name;
    if call.state.engine.loaded(&call.scope).config.mcp.contains_key(name) {
        return Ok(());
    }
    let message = format!("There is no MCP server {name:?} in the configuration");
    Err(Error::tagged(StatusCode::NOT_FOUND, "McpServerNotFoundError", &[("name", name)], message))
}

/// Where to sign in.
#[derive(Debug, JsonSchema)]
#[schemars(inline)]
#[expect(dead_code, reason = "only documented")]
struct Authorization {
    #[schemars(rename = "authorizationUrl")]
    url: String,
    #[schemars(rename = "oauthState")]
    state: String,
}

async fn auth_start(call: Call<ServerPath>) -> Result<Never<Authorization>, Error> {
    refuse_oauth(&call)
}

/// It is forgotten.
#[derive(Debug, JsonSchema)]
#[schemars(inline)]
#[expect(dead_code, reason = "only documented")]
struct Forgotten {
    #[schemars(extend("enum" = [true]))]
    success: bool,
}

async fn auth_remove(call: Call<ServerPath>) -> Result<Never<Forgotten>, Error> {
    refuse(&call)
}

/// What the browser brought back.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
#[expect(dead_code, reason = "only its shape is looked at")]
struct Code {
    code: String,
}

async fn auth_callback(call: Call<ServerPath, Nothing, JsonBody<Code>>) -> Result<Never<McpStatus>, Error> {
    refuse(&call)
}

async fn auth_authenticate(call: Call<ServerPath>) -> Result<Never<McpStatus>, Error> {
    refuse_oauth(&call)
}

async fn connect(call: Call<ServerPath>) -> Result<Never<bool>, Error> {
    refuse(&call)
}

async fn disconnect(call: Call<ServerPath>) -> Result<Never<bool>, Error> {
    refuse(&call)
}

async fn resources(_: Call) -> Result<Data<IndexMap<String, McpResource>>, Error> {
    Ok(Data(IndexMap::new()))
}
