//! Tools, and the status of the language servers and formatters that they use.

use api::{FormatterStatus, Json, LspStatus, ModelRef};
use axum::http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::operation::request::{NoParams, Request};
use crate::operation::{JsonReply, Operation, operation};

pub fn operations() -> Vec<Operation> {
    let capabilities = "/experimental/capabilities";
    vec![
        operation(Method::GET, "/experimental/tool/ids", "tool.ids", "The names of all tools.", ids),
        operation(Method::GET, "/experimental/tool", "tool.list", "The tools that a model gets.", list),
        operation(Method::GET, "/lsp", "lsp.status", "The running language servers.", lsp)
            .partial("always empty: no language server is started yet"),
        operation(Method::GET, "/formatter", "formatter.status", "The formatters of a directory.", formatters)
            .partial("always empty: files are not formatted yet"),
        operation(
            Method::GET,
            capabilities,
            "experimental.capabilities.get",
            "The experimental capabilities.",
            self::capabilities,
        ),
    ]
}

/// The names of tools.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ToolIDs")]
struct ToolIds(Vec<String>);

async fn ids(request: Request) -> Result<JsonReply<ToolIds>, Error> {
    let tools = request.engine.tools(&request.scope, None).await;
    Ok(JsonReply(ToolIds(tools.iter().map(|tool| tool.name().to_owned()).collect())))
}

/// Tools.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ToolList")]
struct ToolList(Vec<ToolListItem>);

/// A tool as a model sees it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ToolListItem")]
struct ToolListItem {
    id: String,
    description: String,
    /// The JSON schema of its arguments.
    parameters: Json,
}

/// Selects the model.
#[derive(Debug, Deserialize, JsonSchema)]
struct ModelQuery {
    provider: String,
    model: String,
}

async fn list(request: Request<NoParams, ModelQuery>) -> Result<JsonReply<ToolList>, Error> {
    let model = ModelRef::new(&request.query.provider, &request.query.model);
    let tools = request.engine.tools(&request.scope, Some(&model)).await;
    let items = tools.iter().map(|tool| ToolListItem {
        id: tool.name().to_owned(),
        description: tool.description().to_string(),
        parameters: Json::clone(&tool.schema()),
    });
    Ok(JsonReply(ToolList(items.collect())))
}

async fn lsp(_: Request) -> Result<JsonReply<Vec<LspStatus>>, Error> {
    Ok(JsonReply(Vec::new()))
}

async fn formatters(_: Request) -> Result<JsonReply<Vec<FormatterStatus>>, Error> {
    Ok(JsonReply(Vec::new()))
}

/// The experimental capabilities.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ExperimentalCapabilities")]
struct Capabilities {
    #[serde(rename = "backgroundSubagents")]
    background_subagents: bool,
}

async fn capabilities(_: Request) -> Result<JsonReply<Capabilities>, Error> {
    Ok(JsonReply(Capabilities { background_subagents: true }))
}
