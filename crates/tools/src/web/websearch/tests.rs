use super::*;
use crate::tool::registry::testing::Workspace;
use api::Json;
use axum::Router;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Mutex;

/// The requests that a service got: parameters, a header and the body.
type Requests = Arc<Mutex<Vec<(HashMap<String, String>, String, String)>>>;

async fn answer(
    State(asked): State<Requests>,
    Query(parameters): Query<HashMap<String, String>>,
    headers: HeaderMap,
    body: String,
) -> Response {
    let key = headers.get("x-key").and_then(|key| key.to_str().ok()).unwrap_or_default().to_owned();
    let query = parameters.get("q").cloned().unwrap_or_default();
    asked.lock().unwrap().push((parameters, key, body));
    match query.as_str() {
        "denied" => StatusCode::UNAUTHORIZED.into_response(),
        "elsewhere" => (StatusCode::FOUND, [(header::LOCATION, "http://127.0.0.1:9/")]).into_response(),
        "huge" => "x".repeat(3 << 20).into_response(),
        "nothing" => json!({"results": []}).to_string().into_response(),
        "page" => ([(header::CONTENT_TYPE, "text/html")], "<h1>Found</h1><script>bad()</script>").into_response(),
        "words" => "plain words".into_response(),
        _ => json!({"results": [{"title": "T\u{1b}[31m", "url": "https://a.example", "content": "one\n two"}]})
            .to_string()
            .into_response(),
    }
}

async fn serve() -> (String, Requests) {
    let asked = Requests::default();
    let app = Router::new().route("/search", any(answer)).with_state(asked.clone());
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("http://{}/search", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    (url, asked)
}

async fn search(config: Json, input: Json) -> Result<Output, String> {
    let ws = Workspace::new();
    let tool = websearch(SearchEndpoint::read(&config).unwrap());
    tool.needs(&input, &ws.context()).await.map_err(|error| error.to_string())?;
    tool.run(input, ws.context()).await.map_err(|error| error.to_string())
}

#[tokio::test]
async fn requests_follow_the_configuration() {
    let (url, asked) = serve().await;
    let headers = json!({"x-key": "secret"});
    for (config, query, body) in [
        (json!({"url": url}), Some("a b&c"), Json::Null),
        (
            json!({"url": format!("{url}?format=json&q={{query}}&n={{count}}"), "headers": headers}),
            Some("a b&c"),
            Json::Null,
        ),
        (
            json!({"url": url, "body": {"query": "{query}", "max": "{count}", "deep": [{"x": "about {query}"}]}}),
            None,
            json!({"query": "a b&c", "max": 3, "deep": [{"x": "about a b&c"}]}),
        ),
    ] {
        let output = search(config.clone(), json!({"query": "a b&c", "numResults": 3})).await.unwrap();
        assert_eq!(output.output, format!("{NOTICE}\n\n1. T\n   https://a.example\n   one two"));
        assert_eq!(output.title, "a b&c");
        let (parameters, key, sent) = asked.lock().unwrap().pop().unwrap();
        assert_eq!(parameters.get("q").map(String::as_str), query, "{config}");
        assert_eq!(key, config["headers"]["x-key"].as_str().unwrap_or_default());
        assert_eq!(serde_json::from_str::<Json>(&sent).unwrap_or_default(), body);
    }
}

#[tokio::test]
async fn failures_say_what_happened_and_show_no_key() {
    let (url, _) = serve().await;
    let config = json!({"url": format!("{url}?key=SECRET&q={{query}}")});
    for (query, wanted) in [
        ("denied", "status 401"),
        ("elsewhere", "status 302"),
        ("huge", "larger than 2 MB"),
        ("", "The query is empty"),
        (" \n", "The query is empty"),
    ] {
        let error = search(config.clone(), json!({"query": query})).await.unwrap_err();
        assert!(error.contains(wanted) && !error.contains("SECRET"), "{query}: {error}");
    }
    let long = search(config.clone(), json!({"query": "x".repeat(MAX_QUERY + 1)})).await.unwrap_err();
    assert!(long.contains("Shorten it"), "{long}");
    let gone = json!({"url": "http://127.0.0.1:9/?key=SECRET"});
    let error = search(gone, json!({"query": "x"})).await.unwrap_err();
    assert!(error.contains("websearch") && !error.contains("SECRET"), "{error}");
    assert_eq!(
        search(config.clone(), json!({"query": "nothing"})).await.unwrap().output,
        "Nothing was found for \"nothing\"."
    );
    let page = search(config.clone(), json!({"query": "page"})).await.unwrap().output;
    assert!(page.contains("# Found") && !page.contains("bad()"), "{page}");
    assert!(search(config, json!({"query": "words"})).await.unwrap().output.ends_with("plain words"));
}

#[test]
fn invalid_configurations_are_explained() {
    for (config, wanted) in [
        (json!({}), "websearch.url is missing"),
        (json!({"url": 5}), "websearch.url is missing"),
        (json!({"url": "no address"}), "websearch.url is not a URL"),
        (json!({"url": "file:///etc/passwd?{query}"}), "must begin with http"),
        (json!({"url": "http://x", "headers": {"a b": "c"}}), "websearch.headers.a b"),
        (json!({"url": "http://x", "headers": {"a": "c\nd"}}), "websearch.headers.a"),
    ] {
        let error = SearchEndpoint::read(&config).unwrap_err();
        assert!(error.contains(wanted), "{config}: {error}");
    }
}

/// Answers of well-known services, abbreviated.
#[test]
fn answers_of_many_services_are_parsed() {
    let one = |address: &str, text: &str| json!({"title": "T", address: "https://a.example", text: "words"});
    for answer in [
        json!({"results": [one("url", "content")]}),
        json!({"web": {"results": [one("url", "description")]}}),
        json!({"organic": [one("link", "snippet")]}),
        json!({"organic_results": [one("link", "snippet")]}),
        json!({"items": [one("link", "snippet")]}),
        json!({"data": [one("url", "content")]}),
        json!({"data": {"web": [one("url", "description")]}}),
        json!({"webPages": {"value": [{"name": "T", "url": "https://a.example", "snippet": "words"}]}}),
        json!([one("href", "body")]),
        json!({"results": [{"title": "T", "url": "https://a.example", "highlights": ["words"]}]}),
        json!({"answer": [], "results": [{"no": "address"}, one("url", "text")]}),
    ] {
        assert_eq!(results::read(&answer.to_string(), false, 5), "1. T\n   https://a.example\n   words", "{answer}");
    }
    let many = json!({"results": vec![one("url", "content"); 9]});
    assert_eq!(results::read(&many.to_string(), false, 2).matches("https://").count(), 2);
    let unknown = json!({"strange": 1}).to_string();
    assert_eq!(results::read(&unknown, false, 2), unknown);
    let long = json!({"results": [{"url": "https://a.example", "content": "x".repeat(9_000)}]}).to_string();
    assert!(results::read(&long, false, 2).len() < 2_000);
}

struct ToolEngine;

impl SearchEngine for ToolEngine {
    fn tool(&self) -> Option<&str> {
        Some("brave_web_search")
    }

    fn search<'a>(&'a self, _: &'a str, _: u64, _: &'a Context) -> BoxFuture<'a, Result<String, ToolError>> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn a_search_needs_its_permission_and_that_of_its_backing_tool() {
    let (ws, tool) = (Workspace::new(), websearch(ToolEngine));
    let needs = tool.needs(&json!({"query": "q", "numResults": 99}), &ws.context()).await.unwrap();
    let names: Vec<_> = needs.iter().map(|need| (need.permission.as_str(), need.patterns[0].as_str())).collect();
    assert_eq!(names, [("websearch", "q"), ("brave_web_search", "*")]);
    assert_eq!(needs[0].metadata, object(json!({"query": "q", "numResults": 20})));
    assert_eq!(tool.backing_tool(), Some("brave_web_search"));
    let ctx = ws.context();
    ctx.cancel.cancel();
    assert_eq!(tool.run(json!({"query": "q"}), ctx).await, Err(ToolError::Aborted));
}
