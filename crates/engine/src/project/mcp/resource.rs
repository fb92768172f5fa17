//! The tools with which a model lists and reads the resources of MCP servers.

use std::sync::Arc;

use ::mcp::Servers;
use api::JsonMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tools::{Context, Effect, Need, Output, Tool, ToolError, TypedTool, erase};

use super::tool::{ContentPiece, output, pieces};

/// The three tools for these servers.
pub(super) fn tools(servers: &[Arc<Servers>]) -> [Arc<dyn Tool>; 3] {
    let all = || SessionServers(servers.to_vec());
    [erase(ListResources(all())), erase(ListTemplates(all())), erase(ReadResource(all()))]
}

/// The servers a session can use.
struct SessionServers(Vec<Arc<Servers>>);

impl SessionServers {
    /// The names of servers with resources: the given one, or all.
    fn selected(&self, server: Option<&str>) -> Result<Vec<String>, ToolError> {
        let all: Vec<String> = self.0.iter().flat_map(|servers| servers.with_resources()).collect();
        match server.filter(|server| !server.is_empty()) {
            None => Ok(all),
            Some(server) if all.iter().any(|other| other == server) => Ok(vec![server.to_owned()]),
            Some(server) => Err(ToolError::failed(format!(
                "The MCP server {server:?} has no resources. Servers with resources: {}",
                all.join(", ")
            ))),
        }
    }

    fn needs(&self, server: Option<&str>) -> Result<Vec<Need>, ToolError> {
        let patterns: Vec<String> = self.selected(server)?.iter().map(|server| format!("mcp:{server}:*")).collect();
        let need = Need { always: patterns.clone(), patterns, ..Need::new("read", "") };
        Ok(vec![match server {
            Some(server) => need.with("server", server),
            None => need,
        }])
    }
}

/// Formats a list as tool output.
async fn list_output<T: Serialize>(title: &str, key: &str, list: Vec<T>, ctx: &Context) -> Output {
    let count = list.len();
    let text = serde_json::to_string_pretty(&json!({ key: list })).unwrap_or_default();
    let mut output = output(title.to_owned(), vec![ContentPiece::Text(text)], ctx).await;
    output.metadata.insert("count".to_owned(), count.into());
    output
}

/// Lists the resources of connected MCP servers: documents, tables, or anything else they offer as context.
#[derive(Debug, Deserialize, JsonSchema)]
struct ListInput {
    /// Only list the resources of this server; omit it to list those of every server.
    server: Option<String>,
}

struct ListResources(SessionServers);

impl TypedTool for ListResources {
    type Input = ListInput;
    const NAME: &'static str = "list_mcp_resources";
    const EFFECT: Effect = Effect::ReadOnly;

    async fn needs(&self, input: &ListInput, _: &Context) -> Result<Vec<Need>, ToolError> {
        self.0.needs(input.server.as_deref())
    }

    async fn run(&self, input: ListInput, ctx: Context) -> Result<Output, ToolError> {
        let wanted = self.0.selected(input.server.as_deref())?;
        let mut all = Vec::new();
        for servers in &self.0.0 {
            all.extend(servers.resources(None).await);
        }
        all.retain(|resource| wanted.contains(&resource.server));
        Ok(list_output("MCP resources", "resources", all, &ctx).await)
    }
}

/// Lists the resource templates of connected MCP servers: URI patterns to fill in and read.
#[derive(Debug, Deserialize, JsonSchema)]
struct TemplatesInput {
    /// Only list the templates of this server; omit it to list those of every server.
    server: Option<String>,
}

struct ListTemplates(SessionServers);

impl TypedTool for ListTemplates {
    type Input = TemplatesInput;
    const NAME: &'static str = "list_mcp_resource_templates";
    const EFFECT: Effect = Effect::ReadOnly;

    async fn needs(&self, input: &TemplatesInput, _: &Context) -> Result<Vec<Need>, ToolError> {
        self.0.needs(input.server.as_deref())
    }

    async fn run(&self, input: TemplatesInput, ctx: Context) -> Result<Output, ToolError> {
        let wanted = self.0.selected(input.server.as_deref())?;
        let mut all = Vec::new();
        for servers in &self.0.0 {
            all.extend(servers.resource_templates(None).await);
        }
        all.retain(|template| wanted.contains(&template.server));
        Ok(list_output("MCP resource templates", "resourceTemplates", all, &ctx).await)
    }
}

/// Reads a resource of an MCP server. The server defines its URI, which need not be a file or a web address.
#[derive(Debug, Deserialize, JsonSchema)]
struct ReadInput {
    /// The server, as `list_mcp_resources` names it.
    server: String,
    /// The URI, exactly as `list_mcp_resources` gives it.
    uri: String,
}

struct ReadResource(SessionServers);

impl TypedTool for ReadResource {
    type Input = ReadInput;
    const NAME: &'static str = "read_mcp_resource";
    const EFFECT: Effect = Effect::ReadOnly;

    async fn needs(&self, input: &ReadInput, _: &Context) -> Result<Vec<Need>, ToolError> {
        self.0.selected(Some(&input.server))?;
        let need = Need::new("read", format!("mcp:{}:{}", input.server, input.uri));
        let need = Need { always: vec![format!("mcp:{}:*", input.server)], ..need };
        Ok(vec![need.with("server", input.server.as_str()).with("uri", input.uri.as_str())])
    }

    async fn run(&self, input: ReadInput, ctx: Context) -> Result<Output, ToolError> {
        let servers = self.0.0.iter().rev().find(|servers| servers.with_resources().contains(&input.server));
        let servers = servers.ok_or_else(|| ToolError::failed("The MCP server is not connected"))?;
        let contents = servers.read(&input.server, &input.uri).await;
        let contents = contents.map_err(|error| ToolError::failed(format!("{}: {error}", input.uri)))?;
        let mut output = output(format!("MCP resource: {}", input.uri), pieces(contents), &ctx).await;
        let facts = JsonMap::from_iter([("server".into(), input.server.into()), ("uri".into(), input.uri.into())]);
        output.metadata.extend(facts);
        Ok(output)
    }
}
