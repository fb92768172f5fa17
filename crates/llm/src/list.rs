//! Lists the models of a server: `GET /models`, as OpenAI-compatible servers answer it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::http::{Clients, HttpRequest, fetch};
use crate::llm::authorized;
use crate::{LlmError, OpenAiChat};

/// The maximum size of a list, in bytes.
const MAX_LIST: usize = 8 << 20;
/// The maximum number of models taken from a list.
pub const MAX_LISTED: usize = 2_000;
/// The maximum length of a model id, in bytes.
const MAX_ID: usize = 256;

/// Asks a server for its models, within `wait`.
pub(crate) async fn models(clients: Arc<Clients>, chat: &OpenAiChat, wait: Duration) -> Result<Vec<String>, LlmError> {
    let text = get(clients, chat, "models", wait).await?;
    read(&text).ok_or_else(|| LlmError::invalid("The server answered, but not with a list of models"))
}

/// Fetches a path below the server's base URL, within `wait`.
pub(crate) async fn get(
    clients: Arc<Clients>,
    chat: &OpenAiChat,
    path: &str,
    wait: Duration,
) -> Result<String, LlmError> {
    // Some users configure the URL of the chat endpoint itself, which works there too.
    let base = chat.base_url.trim_end_matches('/');
    let base = base.strip_suffix("/chat/completions").unwrap_or(base);
    let request = HttpRequest::new(base, path, authorized(chat, []), Vec::new(), chat.timeouts)?;
    fetch(&clients, request, wait, MAX_LIST).await
}

/// The ids in a list of models. OpenAI puts the list under `data`, Ollama's own API under `models`, and some servers
/// send the bare list.
fn read(text: &str) -> Option<Vec<String>> {
    let value: Value = serde_json::from_str(text).ok()?;
    let list =
        [value.get("data"), value.get("models"), Some(&value)].into_iter().flatten().find_map(Value::as_array)?;
    let id = |model: &Value| {
        let id = ["id", "model", "name"].into_iter().find_map(|key| model.get(key)?.as_str());
        let usable = |id: &&str| !id.is_empty() && id.len() <= MAX_ID && !id.contains(char::is_control);
        id.or(model.as_str()).filter(usable).map(str::to_owned)
    };
    let mut ids: Vec<String> = Vec::new();
    let mut seen = std::collections::HashSet::new();
    for id in list.iter().filter_map(id).take(MAX_LISTED) {
        if seen.insert(id.clone()) {
            ids.push(id);
        }
    }
    Some(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_many_servers_are_parsed() {
        for (text, want) in [
            (r#"{"object": "list", "data": [{"id": "a", "object": "model"}, {"id": "b/c:d"}]}"#, &["a", "b/c:d"][..]),
            (r#"[{"id": "a"}, {"id": "a"}, {"id": ""}, {"x": 1}, 7]"#, &["a"]),
            (r#"{"models": [{"name": "llama3:8b", "model": "llama3:8b"}]}"#, &["llama3:8b"]),
            (r#"{"models": [{"name": "first", "model": "gguf"}], "data": [{"id": "gguf"}]}"#, &["gguf"]),
            (r#"{"data": []}"#, &[]),
            ("{\"data\": [{\"id\": \"e\\u001b[31m\"}]}", &[]),
        ] {
            assert_eq!(
                read(text).as_deref(),
                Some(want.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>()).as_deref(),
                "{text}"
            );
        }
        for text in ["", "<html>", "{}", "7", r#"{"data": 3}"#, r#"{"error": {"message": "no"}}"#] {
            assert_eq!(read(text), None, "{text}");
        }
        let many =
            format!("[{}]", (0..3 * MAX_LISTED).map(|n| format!("{{\"id\": \"m{n}\"}}")).collect::<Vec<_>>().join(","));
        assert_eq!(read(&many).unwrap().len(), MAX_LISTED);
    }
}
