//! Turns: prompts, commands and shell lines, and how they are stopped or reverted.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use api::{
    CommandInput, FileDiff, HostError, MessageId, MessageWithParts, ModelRef, OutputFormat, PartId, PromptInput,
    PromptPart, PromptTarget, Session, ShellInput, SummarizeInput,
};
use axum::body::Body;
use axum::http::Method;
use axum::http::request::Parts;
use bytes::Bytes;
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;
use tokio::time::{Instant, interval_at, sleep};
use tokio_util::sync::CancellationToken;

use super::session::SessionPath;
use crate::State;
use crate::error::{Error, RequestPart};
use crate::operation::request::{JsonBody, NoParams, ParsedId, Request};
use crate::operation::{JsonReply, NoContent, Operation, RawReply, operation};

/// How long an operation may take before its response begins, still without content. Clients give up on a silent server
/// after minutes, and a turn can take longer.
const BLANK_INTERVAL: Duration = Duration::from_secs(10);

/// How long turns may take to be parked when the server stops, before waiting clients are answered anyway. Shorter than
/// the time that connections have to finish.
const PARKING_TIMEOUT: Duration = Duration::from_secs(2);

/// The client chose the id of another message for its own.
pub const ID_TAKEN: &[&str] = &["ConflictError"];

pub fn operations() -> Vec<Operation> {
    vec![
        operation(
            Method::POST,
            "/session/{sessionID}/message",
            "session.prompt",
            "Send a prompt, and return the last answer of its turn.",
            prompt,
        )
        .not_found()
        .error(409, ID_TAKEN),
        operation(
            Method::POST,
            "/session/{sessionID}/prompt_async",
            "session.prompt_async",
            "Send a prompt; returns once it is durable.",
            prompt_async,
        )
        .not_found()
        .error(409, ID_TAKEN),
        operation(Method::POST, "/session/{sessionID}/command", "session.command", "Run a command.", command)
            .not_found()
            .error(409, ID_TAKEN),
        operation(Method::POST, "/session/{sessionID}/shell", "session.shell", "Run a shell line as the user.", shell)
            .not_found()
            .error(409, &["SessionBusyError", "ConflictError"]),
        operation(Method::POST, "/session/{sessionID}/init", "session.init", "Write AGENTS.md.", init)
            .not_found()
            .error(409, ID_TAKEN),
        operation(Method::POST, "/session/{sessionID}/abort", "session.abort", "Stop the running turn.", abort)
            .not_found(),
        operation(Method::GET, "/session/{sessionID}/diff", "session.diff", "What a session changed.", diff)
            .partial("always empty: there are no snapshots yet"),
        operation(Method::POST, "/session/{sessionID}/summarize", "session.summarize", "Compact a session.", summarize)
            .not_found()
            .not_offered("conversations are not compacted yet"),
        operation(Method::POST, "/session/{sessionID}/revert", "session.revert", "Revert a message.", revert)
            .not_found()
            .busy()
            .not_offered("there is no undo yet"),
        operation(Method::POST, "/session/{sessionID}/unrevert", "session.unrevert", "Undo a revert.", unrevert)
            .not_found()
            .busy()
            .not_offered("there is no undo yet"),
    ]
}

/// A prompt.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct PromptBody {
    #[serde(rename = "messageID")]
    message: Option<ParsedId<MessageId>>,
    model: Option<ModelRef>,
    agent: Option<String>,
    #[serde(rename = "noReply")]
    no_reply: Option<bool>,
    tools: Option<IndexMap<String, bool>>,
    format: Option<OutputFormat>,
    system: Option<String>,
    variant: Option<String>,
    parts: Vec<PromptPart>,
}

impl From<PromptBody> for PromptInput {
    fn from(prompt: PromptBody) -> Self {
        Self {
            parts: prompt.parts,
            message_id: prompt.message.map(|id| id.0),
            model: prompt.model,
            agent: prompt.agent,
            no_reply: prompt.no_reply.unwrap_or_default(),
            tools: prompt.tools,
            system: prompt.system,
            variant: prompt.variant,
            format: prompt.format,
            traceparent: None,
        }
    }
}

async fn prompt(
    request: Request<SessionPath, NoParams, JsonBody<PromptBody>>,
) -> Result<RawReply<MessageWithParts>, Error> {
    let (host, session) = (request.host, request.path.session.0);
    let input = PromptInput { traceparent: traceparent(&request.parts), ..request.body.0.into() };
    wait_for_turn(&request.state, async move { host.prompt(&session, input).await }).await
}

async fn prompt_async(request: Request<SessionPath, NoParams, JsonBody<PromptBody>>) -> Result<NoContent, Error> {
    let (host, session) = (request.host, request.path.session.0);
    let input = PromptInput { traceparent: traceparent(&request.parts), ..request.body.0.into() };
    // On a task of its own, so that a client that hangs up cannot leave an accepted prompt without its turn.
    let sent = tokio::spawn(async move { host.prompt_async(&session, input).await });
    sent.await.map_err(Error::internal)??;
    Ok(NoContent)
}

/// The trace that the client is in. It is validated where it is used.
pub fn traceparent(parts: &Parts) -> Option<String> {
    parts.headers.get("traceparent").and_then(|value| value.to_str().ok()).map(str::to_owned)
}

/// A command.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct CommandBody {
    #[serde(rename = "messageID")]
    message: Option<ParsedId<MessageId>>,
    agent: Option<String>,
    /// `provider/model`.
    model: Option<String>,
    arguments: String,
    command: String,
    variant: Option<String>,
    #[serde(default)]
    parts: Vec<PromptPart>,
}

async fn command(
    request: Request<SessionPath, NoParams, JsonBody<CommandBody>>,
) -> Result<RawReply<MessageWithParts>, Error> {
    let (host, session) = (request.host, request.path.session.0);
    let JsonBody(body) = request.body;
    let model = body.model.as_deref().map(parse_model).transpose()?;
    let target =
        PromptTarget { agent: body.agent, model, variant: body.variant, message_id: body.message.map(|id| id.0) };
    let input = CommandInput { command: body.command, arguments: body.arguments, target, parts: body.parts };
    wait_for_turn(&request.state, async move { host.command(&session, input).await }).await
}

fn parse_model(text: &str) -> Result<ModelRef, Error> {
    let (provider, model) = text.split_once('/').ok_or_else(|| {
        Error::bad_request(RequestPart::Payload, format!("Expected provider/model, got {text:?}\n  at [\"model\"]"))
    })?;
    Ok(ModelRef { provider_id: provider.into(), model_id: model.into(), variant: None })
}

/// A shell line to run.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct ShellBody {
    #[serde(rename = "messageID")]
    message: Option<ParsedId<MessageId>>,
    agent: String,
    model: Option<ModelRef>,
    command: String,
}

async fn shell(
    request: Request<SessionPath, NoParams, JsonBody<ShellBody>>,
) -> Result<RawReply<MessageWithParts>, Error> {
    let (host, session) = (request.host, request.path.session.0);
    let JsonBody(body) = request.body;
    let target = PromptTarget {
        agent: Some(body.agent),
        model: body.model,
        variant: None,
        message_id: body.message.map(|id| id.0),
    };
    let input = ShellInput { command: body.command, target };
    wait_for_turn(&request.state, async move { host.shell(&session, input).await }).await
}

/// The model that writes AGENTS.md.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct InitBody {
    #[serde(rename = "modelID")]
    model: String,
    #[serde(rename = "providerID")]
    provider: String,
    #[serde(rename = "messageID")]
    message: ParsedId<MessageId>,
}

async fn init(request: Request<SessionPath, NoParams, JsonBody<InitBody>>) -> Result<RawReply<bool>, Error> {
    let (host, session) = (request.host, request.path.session.0);
    let JsonBody(body) = request.body;
    let model = ModelRef { provider_id: body.provider, model_id: body.model, variant: None };
    let target = PromptTarget { model: Some(model), message_id: Some(body.message.0), ..PromptTarget::default() };
    let input = CommandInput { command: "init".into(), target, ..CommandInput::default() };
    wait_for_turn(&request.state, async move { host.command(&session, input).await.map(|_| true) }).await
}

async fn abort(request: Request<SessionPath>) -> Result<JsonReply<bool>, Error> {
    request.host.abort(&request.path.session.0).await?;
    Ok(JsonReply(true))
}

/// Selects a turn.
#[derive(Debug, Deserialize, JsonSchema)]
struct DiffQuery {
    #[serde(rename = "messageID")]
    message: Option<ParsedId<MessageId>>,
}

/// Terminal clients request this for every session they show, so a session that is gone must not be an error.
async fn diff(request: Request<SessionPath, DiffQuery>) -> Result<JsonReply<Vec<FileDiff>>, Error> {
    let message = request.query.message.map(|id| id.0);
    match request.host.session_diff(&request.path.session.0, message.as_ref()).await {
        Err(HostError::NotFound { .. }) => Ok(JsonReply(Vec::new())),
        diff => Ok(JsonReply(diff?)),
    }
}

/// The model that summarises.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct SummarizeBody {
    #[serde(rename = "providerID")]
    provider: String,
    #[serde(rename = "modelID")]
    model: String,
    auto: Option<bool>,
}

async fn summarize(request: Request<SessionPath, NoParams, JsonBody<SummarizeBody>>) -> Result<RawReply<bool>, Error> {
    let (host, session) = (request.host, request.path.session.0);
    host.session(&session).await?;
    let JsonBody(body) = request.body;
    let model = ModelRef { provider_id: body.provider, model_id: body.model, variant: None };
    let input = SummarizeInput { model, auto: body.auto.unwrap_or_default() };
    long_running(&request.state, async move { host.summarize(&session, input).await.map(|()| true) }).await
}

/// The point to revert to.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct RevertBody {
    #[serde(rename = "messageID")]
    message: ParsedId<MessageId>,
    #[serde(rename = "partID")]
    part: Option<ParsedId<PartId>>,
}

async fn revert(request: Request<SessionPath, NoParams, JsonBody<RevertBody>>) -> Result<JsonReply<Session>, Error> {
    let JsonBody(RevertBody { message, part }) = request.body;
    let part = part.map(|id| id.0);
    Ok(JsonReply(request.host.revert(&request.path.session.0, message.0, part).await?))
}

async fn unrevert(request: Request<SessionPath>) -> Result<JsonReply<Session>, Error> {
    Ok(JsonReply(request.host.unrevert(&request.path.session.0).await?))
}

/// Waits for a turn. The response goes out after the turn's events: see [`crate::events::flush`].
pub async fn wait_for_turn<T: Serialize + Send + 'static>(
    state: &Arc<State>,
    work: impl Future<Output = Result<T, HostError>> + Send + 'static,
) -> Result<RawReply<T>, Error> {
    let shared = state.clone();
    long_running(state, async move {
        let done = work.await;
        shared.event_streams.flush().await;
        done
    })
    .await
}

/// Waits for work that can take long. It runs on a task of its own, so it does not end with its client's connection. If
/// it ends soon the response is an ordinary one. Otherwise the response begins, and blanks (JSON allows them) show that
/// it is still alive; a failure then ends the response with the error's body, as the status is already sent.
pub async fn long_running<T: Serialize + Send + 'static>(
    state: &Arc<State>,
    work: impl Future<Output = Result<T, HostError>> + Send + 'static,
) -> Result<RawReply<T>, Error> {
    let mut work = tokio::spawn(work);
    let mut stopped = Box::pin(server_stopped(state.closing.clone(), PARKING_TIMEOUT));
    tokio::select! {
        biased;
        done = &mut work => Ok(RawReply::json(to_json(done)?)),
        error = &mut stopped => Err(error),
        () = sleep(BLANK_INTERVAL) => Ok(RawReply::json(Body::from_stream(blanks_until_done(work, stopped, BLANK_INTERVAL)))),
    }
}

/// The error for waiting clients when the server stops, once turns had time to be parked.
async fn server_stopped(closing: CancellationToken, parking_timeout: Duration) -> Error {
    closing.cancelled().await;
    sleep(parking_timeout).await;
    let message = "The server is stopping. An accepted prompt is kept, and goes on at the next start";
    HostError::Unavailable(message.to_owned()).into()
}

fn to_json<T: Serialize>(done: Result<Result<T, HostError>, tokio::task::JoinError>) -> Result<Bytes, Error> {
    let value = done.map_err(Error::internal)??;
    serde_json::to_vec(&value).map(Bytes::from).map_err(Error::internal)
}

fn blanks_until_done<T: Serialize + Send + 'static>(
    work: JoinHandle<Result<T, HostError>>,
    stopped: impl Future<Output = Error> + Send + Unpin + 'static,
    interval: Duration,
) -> impl futures::Stream<Item = Result<Bytes, std::io::Error>> {
    let ticks = interval_at(Instant::now(), interval);
    futures::stream::unfold(Some((work, stopped, ticks)), |state| async {
        let (mut work, mut stopped, mut ticks) = state?;
        let done = tokio::select! {
            biased;
            done = &mut work => to_json(done),
            error = &mut stopped => Err(error),
            _ = ticks.tick() => return Some((Ok(Bytes::from_static(b" ")), Some((work, stopped, ticks)))),
        };
        let last = done.or_else(|error| {
            tracing::warn!(body = ?error.body, cause = error.cause, "a turn failed after its response began");
            let body = error.body.ok_or_else(|| std::io::Error::other("the turn failed"))?;
            Ok(Bytes::from(body.to_string()))
        });
        Some((last, None))
    })
}

#[cfg(test)]
mod tests {
    use futures::StreamExt as _;

    use super::*;

    /// The text after some blanks, once `then` has happened.
    async fn body(
        work: JoinHandle<Result<bool, HostError>>,
        closing: &CancellationToken,
        then: impl FnOnce(),
    ) -> String {
        let stopped = Box::pin(server_stopped(closing.clone(), Duration::ZERO));
        let mut body = Box::pin(blanks_until_done(work, stopped, Duration::from_millis(1)));
        for _ in 0..3 {
            assert_eq!(body.next().await.unwrap().unwrap(), " ");
        }
        then();
        let mut text = String::new();
        while let Some(bytes) = testkit::soon("the end of the response", body.next()).await {
            text.push_str(std::str::from_utf8(&bytes.unwrap()).unwrap());
        }
        text
    }

    #[tokio::test]
    async fn a_response_that_began_always_ends_in_json() {
        let closing = CancellationToken::new();
        let ends = |end: Result<bool, HostError>| {
            let (now, then) = tokio::sync::oneshot::channel::<()>();
            (now, tokio::spawn(async move { then.await.map_or(Ok(false), |()| end) }))
        };
        let (now, work) = ends(Ok(true));
        let text = body(work, &closing, || now.send(()).unwrap()).await;
        assert!(serde_json::from_str::<bool>(&text).unwrap());
        let (now, work) = ends(Err(HostError::Failed("secret".to_owned())));
        let text = body(work, &closing, || now.send(()).unwrap()).await;
        let text: api::Json = serde_json::from_str(&text).unwrap();
        assert!(text["name"] == "UnknownError" && text["data"]["ref"].is_string(), "{text}");
        let (_never, work) = ends(Ok(true));
        let text = body(work, &closing, || closing.cancel()).await;
        let text: api::Json = serde_json::from_str(&text).unwrap();
        assert_eq!(text["_tag"], "ServiceUnavailableError");
        assert!(text["message"].as_str().unwrap().contains("next start"), "{text}");
    }
}
