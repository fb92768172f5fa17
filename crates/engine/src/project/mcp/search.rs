//! `websearch` through a tool of an MCP server.

use std::sync::Arc;

use ::mcp::Servers;
use api::{Json, JsonMap};
use futures::future::BoxFuture;
use tools::{Context, SearchEngine, Tool, ToolError};

use super::tool;

/// Words in names of servers and tools that search the web, besides `web` itself.
const ENGINE_NAMES: [&str; 13] = [
    "bing",
    "brave",
    "ddg",
    "duckduckgo",
    "exa",
    "firecrawl",
    "internet",
    "kagi",
    "linkup",
    "perplexity",
    "searxng",
    "serper",
    "tavily",
];
/// Names of the query parameter.
const QUERY_PARAMETERS: [&str; 3] = ["query", "q", "search_query"];
/// Names of the parameter for the number of results.
const COUNT_PARAMETERS: [&str; 7] = ["numResults", "num_results", "count", "max_results", "maxResults", "limit", "num"];

/// The `websearch` tool backed by a tool of these servers: the one that the configuration names, otherwise one whose
/// name suggests that it searches the web. The server added last wins.
pub(super) fn websearch(servers: &[Arc<Servers>], named: Option<&str>) -> Option<Arc<dyn Tool>> {
    let fits = |tool: &::mcp::Tool| named.map_or_else(|| searches_the_web(&tool.name), |name| tool.name == name);
    servers.iter().rev().find_map(|servers| {
        let usable = |tool: ::mcp::Tool| Some((SearchArguments::of(&tool)?, tool));
        let (arguments, tool) = servers.tools().into_iter().filter(fits).find_map(usable)?;
        Some(tools::websearch(ServerSearch {
            name: tool.name.clone(),
            arguments,
            tool: self::tool::tool(servers, tool),
        }))
    })
}

/// Whether a tool's name suggests that it searches the web, and not something else.
fn searches_the_web(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let words: Vec<&str> = name.split(|char: char| !char.is_ascii_alphanumeric()).collect();
    let has = |wanted: &str| words.contains(&wanted);
    has("websearch") || has("search") && (has("web") || ENGINE_NAMES.iter().any(|engine| has(engine)))
}

/// The parameters of a web search tool.
#[derive(Debug, PartialEq, Eq)]
struct SearchArguments {
    query: &'static str,
    count: Option<&'static str>,
}

impl SearchArguments {
    /// The parameters of a tool, if it requires nothing but a query.
    fn of(tool: &::mcp::Tool) -> Option<Self> {
        let properties = tool.schema["properties"].as_object()?;
        let known = |names: &[&'static str], kinds: &[&str]| {
            let is = |name: &&&'static str| {
                let kind = properties.get(**name).map(|schema| &schema["type"]);
                kind.is_some_and(|kind| kind.is_null() || kinds.iter().any(|wanted| kind == wanted))
            };
            names.iter().find(is).copied()
        };
        let query = known(&QUERY_PARAMETERS, &["string"])?;
        let mut required = tool.schema["required"].as_array().into_iter().flatten();
        let count = known(&COUNT_PARAMETERS, &["integer", "number"]);
        required.all(|name| name == query || count.is_some_and(|count| name == count)).then_some(Self { query, count })
    }

    fn fill(&self, query: &str, results: u64) -> Json {
        let count = self.count.map(|name| (name.to_owned(), results.into()));
        JsonMap::from_iter([(self.query.to_owned(), query.into())].into_iter().chain(count)).into()
    }
}

struct ServerSearch {
    name: String,
    arguments: SearchArguments,
    tool: Arc<dyn Tool>,
}

impl SearchEngine for ServerSearch {
    fn tool(&self) -> Option<&str> {
        Some(&self.name)
    }

    fn search<'a>(
        &'a self,
        query: &'a str,
        results: u64,
        ctx: &'a Context,
    ) -> BoxFuture<'a, Result<String, ToolError>> {
        Box::pin(async move { Ok(self.tool.run(self.arguments.fill(query, results), ctx.clone()).await?.output) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn arguments(name: &str, properties: &[&str], required: Json) -> Option<SearchArguments> {
        let kind = |name: &&str| if COUNT_PARAMETERS.contains(name) { "integer" } else { "string" };
        let properties: JsonMap =
            properties.iter().map(|name| ((*name).to_owned(), json!({"type": kind(name)}))).collect();
        let schema = json!({"type": "object", "properties": properties, "required": required});
        let (server, tool) = name.split_once('_').unwrap();
        let (name, server, tool) = (name.to_owned(), server.to_owned(), tool.to_owned());
        SearchArguments::of(&::mcp::Tool { name, server, tool, description: String::new(), schema })
    }

    #[test]
    fn web_search_tools_are_recognised() {
        for (name, properties, required, wanted) in [
            (
                "brave-search_brave_web_search",
                &["query", "count", "offset"][..],
                json!(["query"]),
                Some(("query", Some("count"))),
            ),
            ("exa_web_search_exa", &["query", "numResults"], json!(["query"]), Some(("query", Some("numResults")))),
            ("tavily_tavily-search", &["query", "max_results"], json!(["query"]), Some(("query", Some("max_results")))),
            ("ddg_search", &["query"], json!([]), Some(("query", None))),
            ("web_search", &["q"], json!(["q"]), Some(("q", None))),
            ("my_WebSearch", &["query"], json!(["query"]), Some(("query", None))),
            ("google-drive_search", &["query"], json!(["query"]), None),
            ("github_search_repositories", &["query"], json!(["query"]), None),
            ("files_search", &["query", "path"], json!(["query", "path"]), None),
            ("brave_web_search", &["query", "country"], json!(["query", "country"]), None),
            ("brave_web_search", &["text"], json!([]), None),
            ("web_fetch", &["query"], json!(["query"]), None),
            ("memory_search_nodes", &["query"], json!(["query"]), None),
        ] {
            let wanted = wanted.map(|(query, count)| SearchArguments { query, count });
            let found = arguments(name, properties, required).filter(|_| searches_the_web(name));
            assert_eq!(found, wanted, "{name}");
        }
        assert_eq!(SearchArguments { query: "q", count: Some("num") }.fill("x", 3), json!({"q": "x", "num": 3}));
    }
}
