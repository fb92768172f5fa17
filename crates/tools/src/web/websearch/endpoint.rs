//! A search service at a configured URL.

use std::time::Duration;

use api::Json;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use url::Url;

use super::{SearchEngine, results};
use crate::tool::ToolError;
use crate::tool::context::Context;

/// Placeholders for the query and the number of results, in the URL and in the body.
const QUERY: &str = "{query}";
const COUNT: &str = "{count}";
/// The timeout for an answer, and for connecting.
const TIMEOUT: Duration = Duration::from_secs(30);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum size of an answer.
const MAX_BYTES: usize = 2 << 20;

/// How to call a search service: with `GET`, or with `POST` if there is a body.
#[derive(Clone)]
pub struct SearchEndpoint {
    url: String,
    headers: HeaderMap,
    body: Option<Json>,
}

impl std::fmt::Debug for SearchEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // URL, headers and body may contain a key.
        f.debug_struct("SearchEndpoint").finish_non_exhaustive()
    }
}

impl SearchEndpoint {
    /// Reads the `websearch` key of a configuration; the error says what is wrong with it.
    pub fn read(config: &Json) -> Result<Self, String> {
        let url = config["url"].as_str().ok_or("websearch.url is missing: the address of a search service")?;
        let endpoint = Self { url: url.to_owned(), headers: HeaderMap::new(), body: None };
        let address = endpoint.address("test", 1).map_err(|error| format!("websearch.url is not a URL: {error}"))?;
        if !matches!(address.scheme(), "http" | "https") {
            return Err(format!("websearch.url must begin with http:// or https://, not {}:", address.scheme()));
        }
        let mut headers = HeaderMap::new();
        for (name, value) in config["headers"].as_object().into_iter().flatten() {
            let illegal = || format!("websearch.headers.{name} has characters that HTTP does not allow");
            let key: HeaderName = name.parse().map_err(|_| illegal())?;
            let mut value = HeaderValue::from_str(value.as_str().unwrap_or_default()).map_err(|_| illegal())?;
            value.set_sensitive(true);
            headers.insert(key, value);
        }
        Ok(Self { headers, body: config.get("body").filter(|body| !body.is_null()).cloned(), ..endpoint })
    }

    /// The URL of a search. Without a placeholder the query is the parameter `q`, unless there is a body.
    fn address(&self, query: &str, results: u64) -> Result<Url, url::ParseError> {
        let encoded: String = url::form_urlencoded::byte_serialize(query.as_bytes()).collect();
        let mut url: Url = self.url.replace(QUERY, &encoded).replace(COUNT, &results.to_string()).parse()?;
        if !self.url.contains(QUERY) && self.body.is_none() {
            url.query_pairs_mut().append_pair("q", query);
        }
        Ok(url)
    }

    async fn ask(&self, query: &str, results: u64, user_agent: &str) -> Result<String, String> {
        let url = self.address(query, results).map_err(|error| error.to_string())?;
        let client = ::web::ClientKind::of(&url).client(CONNECT_TIMEOUT).map_err(|error| error.to_string())?;
        let client = client.user_agent(user_agent).timeout(TIMEOUT).build().map_err(|error| cause(&error))?;
        let request = match &self.body {
            None => client.get(url),
            Some(body) => {
                let body = fill(body, query, results).to_string();
                client.post(url).header(CONTENT_TYPE, "application/json").body(body)
            }
        };
        let answer = request.headers(self.headers.clone()).send().await.map_err(|error| cause(&error))?;
        let status = answer.status();
        if !status.is_success() {
            return Err(format!("it answered with status {status}"));
        }
        let kind = answer.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let is_html = kind.contains("html");
        let mut bytes = Vec::new();
        let mut chunks = answer.bytes_stream();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|error| cause(&error))?;
            if bytes.len() + chunk.len() > MAX_BYTES {
                return Err(format!("its answer is larger than {} MB", MAX_BYTES >> 20));
            }
            bytes.extend_from_slice(&chunk);
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let read = move || results::read(&text, is_html, results);
        tokio::task::spawn_blocking(read).await.map_err(|error| error.to_string())
    }
}

impl SearchEngine for SearchEndpoint {
    fn search<'a>(
        &'a self,
        query: &'a str,
        results: u64,
        ctx: &'a Context,
    ) -> BoxFuture<'a, Result<String, ToolError>> {
        Box::pin(async move {
            self.ask(query, results, &ctx.options.user_agent).await.map_err(|why| {
                ToolError::failed(format!("The search service of `websearch` in the configuration failed: {why}."))
            })
        })
    }
}

/// Fills the placeholders in a body: the query inside texts, the number of results as a number if it is the whole text.
fn fill(body: &Json, query: &str, results: u64) -> Json {
    match body {
        Json::String(text) if text == COUNT => results.into(),
        Json::String(text) => text.replace(COUNT, &results.to_string()).replace(QUERY, query).into(),
        Json::Array(list) => list.iter().map(|value| fill(value, query, results)).collect(),
        Json::Object(map) => map.iter().map(|(key, value)| (key.clone(), fill(value, query, results))).collect(),
        other => other.clone(),
    }
}

/// The innermost cause, without the URL, which may contain a key.
fn cause(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return format!("it did not answer within {} s", TIMEOUT.as_secs());
    }
    let cause = ::web::root_cause(error);
    match std::ptr::addr_eq(cause, std::ptr::from_ref(error)) {
        true => "it could not be reached".to_owned(),
        false => cause.to_string(),
    }
}
