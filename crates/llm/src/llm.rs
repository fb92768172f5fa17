//! The handle that the engine holds.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::{self, BoxStream};

use crate::bound::bounded;
use crate::http::{Clients, HttpRequest};
use crate::{Endpoint, LlmError, LlmEvent, OpenAiChat, Prompt, list, openai};

/// Sends requests to models. Cheap to clone; clones share their connections. Nothing is built before the first request,
/// because loading TLS roots must not cost start-up time.
#[derive(Debug, Clone)]
pub struct Llm {
    clients: Arc<Clients>,
}

impl Llm {
    /// A handle whose requests have this `user-agent`.
    pub fn new(user_agent: &str) -> Self {
        Self { clients: Arc::new(Clients::new(user_agent)) }
    }

    /// Sends a prompt to a model. The request starts when the stream is polled, and dropping the stream closes it; one
    /// polled to its end leaves the connection for the next request. The first error ends the stream; an answer beyond
    /// [`MAX_ANSWER`](crate::MAX_ANSWER) ends with one.
    pub fn stream(&self, endpoint: &Endpoint, prompt: &Prompt) -> BoxStream<'static, Result<LlmEvent, LlmError>> {
        match endpoint {
            Endpoint::Script(script) => bounded(script.stream(prompt)).boxed(),
            Endpoint::OpenAiChat(chat) => match chat_request(chat, prompt) {
                Ok(request) => bounded(crate::http::stream(self.clients.clone(), request)).boxed(),
                Err(error) => stream::iter([Err(error)]).boxed(),
            },
        }
    }

    /// The ids of the models that a server lists. Waits no longer than `wait`; servers that check keys do so here too.
    pub async fn models(&self, server: &OpenAiChat, wait: Duration) -> Result<Vec<String>, LlmError> {
        list::models(self.clients.clone(), server, wait).await
    }

    /// Checks at `path`, which must cost nothing, whether a server accepts its key. Waits no longer than `wait`.
    pub async fn check_key(&self, server: &OpenAiChat, path: &str, wait: Duration) -> Result<(), LlmError> {
        list::get(self.clients.clone(), server, path, wait).await.map(drop)
    }
}

/// The headers of a request: the server's, the given ones, and the key unless one of them contains another.
pub(crate) fn authorized(chat: &OpenAiChat, more: impl IntoIterator<Item = (String, String)>) -> Vec<(String, String)> {
    let mut headers = chat.headers.clone();
    headers.extend(more);
    let has_authorization = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"));
    if let Some(key) = chat.api_key.as_deref().filter(|key| !key.is_empty() && !has_authorization) {
        headers.insert(0, ("authorization".to_owned(), format!("Bearer {key}")));
    }
    headers
}

/// The HTTP request for a chat completion.
fn chat_request(chat: &OpenAiChat, prompt: &Prompt) -> Result<HttpRequest, LlmError> {
    let headers = authorized(chat, prompt.settings.headers.iter().cloned());
    let body = serde_json::to_vec(&openai::request(prompt, &chat.model, &chat.dialect))
        .map_err(|error| LlmError::invalid(format!("The request cannot be written as JSON: {error}")))?;
    HttpRequest::new(&chat.base_url, "chat/completions", headers, body, chat.timeouts)
        .map(|request| request.of_vendor(&chat.dialect.vendor))
}
