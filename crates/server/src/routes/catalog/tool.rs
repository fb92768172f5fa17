//! Tools, and how it is with what they work with.

use api::{FormatterStatus, Json, LspStatus, ModelRef};
use axum::http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::operation::request::{Call, Nothing};
use crate::operation::{Data, Operation, operation};

pub fn operations() -> Vec<Operation> {
    let capabilities = "/experimental/capabilities";
    vec![
        operation(Method::GET, "/experimental/tool/ids", "tool.ids", "The names of all tools.", ids),
        operation(Method::GET, "/experimental/tool", "tool.list", "The tools that a model gets.", list),
        operation(Method::GET, "/lsp", "lsp.status", "The language servers that run.", lsp)
            .partial("always empty: no language server is started yet"),
        operation(Method::GET, "/formatter", "formatter.status", "The formatters of a directory.", formatters)
            .partial("always empty: files are not formatted yet"),
        operation(Method::GET, capabilities, "experimental.capabilities.get", "What is tried out.", self::capabilities),
    ]
}

/// Names of tools.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ToolIDs")]
struct Ids(Vec<String>);

async fn ids(call: Call) -> Result<Data<Ids>, Error> {
    let tools = call.state.engine.tools(&call.scope, None).await;
    Ok(Data(Ids(tools.iter().map(|tool| tool.name().to_owned()).collect())))
}

/// Tools.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ToolList")]
struct Tools(Vec<Tool>);

/// A tool as a model sees it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ToolListItem")]
struct Tool {
    id: String,
    description: String,
    /// The JSON schema of its arguments.
    parameters: Json,
}

/// For which model.
#[derive(Debug, Deserialize, JsonSchema)]
struct OfModel {
    provider: String,
    model: String,
}

async fn list(call: Call<Nothing, OfModel>) -> Result<Data<Tools>, Error> {
    let model = ModelRef::new(&call.query.provider, &call.query.model);
    let tools = call.state.engine.tools(&call.scope, Some(&model)).await;
    let told = tools.iter().map(|tool| Tool {
        id: tool.name().to_owned(),
        description: tool.description().to_string(),
        parameters: Json::clone(&tool.schema()),
    });
    Ok(Data(Tools(told.collect())))
}

async fn lsp(_: Call) -> Result<Data<Vec<LspStatus>>, Error> {
    Ok(Data(Vec::new()))
}

async fn formatters(_: Call) -> Result<Data<Vec<FormatterStatus>>, Error> {
    Ok(Data(Vec::new()))
}

/// What is tried out.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ExperimentalCapabilities")]
struct Capabilities {
    #[serde(rename = "backgroundSubagents")]
    background_subagents: bool,
}

async fn capabilities(_: Call) -> Result<Data<Capabilities>, Error> {
    Ok(Data(Capabilities { background_subagents: true }))
}
