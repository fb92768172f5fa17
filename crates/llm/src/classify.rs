//! Interprets the error responses of vendors: what they say, and how to react. Pure.

use std::time::SystemTime;

use api::Json;
use indexmap::IndexMap;

use crate::error::{MAX_BODY, MAX_MESSAGE, bounded};
use crate::{ErrorClass, LlmError, retry};

/// Headers that may contain a credential; errors leave them out.
const SECRET_HEADERS: [&str; 5] = ["authorization", "proxy-authorization", "set-cookie", "set-cookie2", "x-api-key"];

/// How vendors describe a conversation that is too long.
const OVERFLOW: [&str; 17] = [
    "context_length_exceeded",
    "exceed_context_size",
    "model_max_prompt_tokens_exceeded",
    "maximum context length",
    "maximum prompt length",
    "context length exceeded",
    "exceeds the context",
    "exceeds the available context",
    "exceed context limit",
    "greater than the context length",
    "context window",
    "prompt is too long",
    "input is too long",
    "input token count",
    "exceeded model token limit",
    "reduce the length of the messages",
    "too many input tokens",
];
/// How vendors describe refused content.
const FILTER: [&str; 5] = [
    "content_filter",
    "content_policy_violation",
    "responsibleaipolicyviolation",
    "content management policy",
    "data_inspection_failed",
];
/// An account without credit: a retry does not help, whatever the status says.
const QUOTA: [&str; 3] = ["insufficient_quota", "insufficient_balance", "billing_not_active"];
/// Overload behind another status.
const OVERLOADED: [&str; 7] = [
    "overloaded",
    "rate_limit",
    "rate limit",
    "too many requests",
    "temporarily unavailable",
    "server is busy",
    "server_busy",
];

/// The content of an error response.
struct ErrorBody {
    message: Option<String>,
    /// Code, type and message in lower case, which the tables above are matched against.
    words: String,
    /// An HTTP status inside the body.
    status: Option<u16>,
}

/// The error for an HTTP response that is not a success.
pub fn http_error(
    status: u16,
    reason: &str,
    headers: impl IntoIterator<Item = (String, String)>,
    body: &str,
    now: SystemTime,
) -> LlmError {
    let headers: IndexMap<String, String> =
        headers.into_iter().filter(|(name, _)| !SECRET_HEADERS.contains(&name.as_str())).collect();
    let parsed = serde_json::from_str::<Json>(body).ok().as_ref().map(parse_body);
    let words = parsed.as_ref().map_or_else(|| body.to_lowercase(), |parsed| parsed.words.clone());
    let message = parsed.and_then(|parsed| parsed.message).unwrap_or_else(|| describe(status, reason, &headers, body));
    LlmError {
        retry_after: retry::after(&headers, now),
        status: Some(status),
        headers: Box::new(headers),
        body: Some(bounded(body.to_owned(), MAX_BODY)),
        ..LlmError::new(class(Some(status), &words), message)
    }
}

/// The error that a server sent in the middle of a stream.
pub fn stream_error(error: &Json) -> LlmError {
    let parsed = parse_body(error);
    let text = error.to_string();
    let message = parsed.message.unwrap_or_else(|| format!("The model's server reported an error: {text}"));
    LlmError { body: Some(bounded(text, MAX_BODY)), ..LlmError::new(class(parsed.status, &parsed.words), message) }
}

fn class(status: Option<u16>, words: &str) -> ErrorClass {
    let any = |table: &[&str]| table.iter().any(|word| words.contains(word));
    match status {
        Some(401 | 403) if !any(&FILTER) => ErrorClass::Auth,
        _ if any(&QUOTA) => ErrorClass::Invalid,
        // "Too large" in a rate limit counts tokens per minute, not the context: only the exact code is an overflow.
        Some(429) if !words.contains(OVERFLOW[0]) => ErrorClass::Retryable,
        Some(413) => ErrorClass::ContextOverflow,
        _ if any(&OVERFLOW) => ErrorClass::ContextOverflow,
        _ if any(&FILTER) => ErrorClass::ContentFilter,
        None | Some(408 | 409 | 425 | 500..) => ErrorClass::Retryable,
        Some(400 | 422) if any(&OVERLOADED) => ErrorClass::Retryable,
        Some(_) => ErrorClass::Invalid,
    }
}

/// Parses the formats of common servers: `{"error": {message, type, code}}` (OpenAI, OpenRouter, llama.cpp), `{"error":
/// "text"}` (Ollama), `{"object": "error", "message": …}` (vLLM), `{"detail": …}` (FastAPI), `[{"error": …}]` (Google),
/// `{"message": …}`.
fn parse_body(body: &Json) -> ErrorBody {
    let body = body.get(0).unwrap_or(body);
    let error = body.get("error").filter(|error| !error.is_null()).unwrap_or(body);
    let text = |value: &Json| value.as_str().filter(|text| !text.trim().is_empty()).map(str::to_owned);
    let field = |name: &str| error.get(name).and_then(text);
    let message = text(error)
        .or_else(|| field("message"))
        .or_else(|| field("detail"))
        .or_else(|| error.pointer("/detail/0/msg").and_then(text))
        .or_else(|| error.get("detail")?.get("message").and_then(text));
    // OpenRouter wraps the vendor's own response, which says what is wrong.
    let raw = error.pointer("/metadata/raw").and_then(text);
    let message = match (message, raw) {
        (Some(message), Some(raw)) => Some(format!("{message}: {raw}")),
        (message, raw) => message.or(raw),
    };
    let mut words = String::new();
    for word in [field("code"), field("type"), field("status"), message.clone()].into_iter().flatten() {
        words.push_str(&word.to_lowercase());
        words.push('\n');
    }
    let status = ["code", "status", "status_code"]
        .iter()
        .filter_map(|name| error.get(name))
        .filter_map(|code| code.as_u64().or_else(|| code.as_str()?.parse().ok()))
        .find_map(|code| u16::try_from(code).ok().filter(|code| (400..600).contains(code)));
    ErrorBody { message: message.map(|message| bounded(message, MAX_MESSAGE)), words, status }
}

/// Describes a response without a message of its own.
fn describe(status: u16, reason: &str, headers: &IndexMap<String, String>, body: &str) -> String {
    if (300..400).contains(&status) {
        let target = headers.get("location").map_or("another address", String::as_str);
        return format!(
            "HTTP {status}: the server redirects to {target}; set the provider's baseURL to the final address"
        );
    }
    let start = body.trim_start();
    if start.is_empty() {
        format!("HTTP {status} {reason}").trim_end().to_owned()
    } else if is_html(start) {
        format!("HTTP {status} {reason}: the server answered with a web page; check the provider's baseURL")
    } else {
        format!("HTTP {status} {reason}: {}", bounded(start.trim_end().to_owned(), 300))
    }
}

/// Whether a text is a web page.
pub fn is_html(text: &str) -> bool {
    let start = text.trim_start().get(..14).unwrap_or(text).to_ascii_lowercase();
    start.starts_with("<!doctype html") || start.starts_with("<html") || start.starts_with("<head")
}

/// Removes credentials that a server echoed.
pub fn redact(error: &mut LlmError, secrets: &[String]) {
    for secret in secrets {
        let cut = |text: &mut String| {
            if text.contains(secret.as_str()) {
                *text = text.replace(secret.as_str(), "***");
            }
        };
        cut(&mut error.message);
        error.body.iter_mut().for_each(cut);
        error.headers.values_mut().for_each(cut);
    }
}

#[cfg(test)]
mod tests;
