//! Turns: prompts, commands, shell lines, and what stops or takes them back.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use api::{
    CommandInput, FileDiff, Host as _, HostError, MessageId, MessageWithParts, ModelRef, OutputFormat, PartId,
    PromptInput, PromptPart, PromptTarget, RevertInput, Session, ShellInput, SummarizeInput,
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
use crate::error::{Error, Where};
use crate::operation::request::{Call, Given, JsonBody, Nothing};
use crate::operation::{Data, NoContent, Operation, Raw, operation};

/// How long a call may take before its answer begins, still without content. Clients give up on a silent server after
/// minutes, and a turn can take longer.
const SOON: Duration = Duration::from_secs(10);

/// How long turns may take to be parked when the server stops, before those who wait for them are answered all the same: less
/// than connections have to end.
const PARKING: Duration = Duration::from_secs(2);

/// The client chose an id for its message, and another message has it.
const ID_TAKEN: &[&str] = &["ConflictError"];

pub fn operations() -> Vec<Operation> {
    vec![
        operation(
            Method::POST,
            "/session/{sessionID}/message",
            "session.prompt",
            "Send a prompt, and get the last answer of its turn.",
            prompt,
        )
        .not_found()
        .error(409, ID_TAKEN),
        operation(
            Method::POST,
            "/session/{sessionID}/prompt_async",
            "session.prompt_async",
            "Send a prompt; answered once it is durable.",
            prompt_async,
        )
        .not_found()
        .error(409, ID_TAKEN),
        operation(Method::POST, "/session/{sessionID}/command", "session.command", "Run a command.", command)
            .not_found()
            .error(409, ID_TAKEN),
        operation(Method::POST, "/session/{sessionID}/shell", "session.shell", "Run a shell line as the human.", shell)
            .not_found()
            .error(409, &["SessionBusyError", "ConflictError"]),
        operation(Method::POST, "/session/{sessionID}/init", "session.init", "Write AGENTS.md.", init)
            .not_found()
            .error(409, ID_TAKEN),
        operation(Method::POST, "/session/{sessionID}/abort", "session.abort", "Stop the turn.", abort).not_found(),
        operation(Method::GET, "/session/{sessionID}/diff", "session.diff", "What a session changed.", diff)
            .partial("always empty: there are no snapshots yet"),
        operation(Method::POST, "/session/{sessionID}/summarize", "session.summarize", "Compact it.", summarize)
            .not_found()
            .not_offered("conversations are not compacted yet"),
        operation(Method::POST, "/session/{sessionID}/revert", "session.revert", "Take back a message.", revert)
            .not_found()
            .busy()
            .not_offered("there is no undo yet"),
        operation(Method::POST, "/session/{sessionID}/unrevert", "session.unrevert", "Bring it back.", unrevert)
            .not_found()
            .busy()
            .not_offered("there is no undo yet"),
    ]
}

/// A prompt.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct Prompt {
    #[serde(rename = "messageID")]
    message: Option<Given<MessageId>>,
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

impl From<Prompt> for PromptInput {
    fn from(prompt: Prompt) -> Self {
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

async fn prompt(call: Call<SessionPath, Nothing, JsonBody<Prompt>>) -> Result<Raw<MessageWithParts>, Error> {
    let (engine, scope, session) = (call.state.engine.clone(), call.scope, call.path.session.0);
    let input = PromptInput { traceparent: traceparent(&call.parts), ..call.body.0.into() };
    turn(&call.state, async move { engine.prompt(&scope, &session, input).await }).await
}

async fn prompt_async(call: Call<SessionPath, Nothing, JsonBody<Prompt>>) -> Result<NoContent, Error> {
    let (engine, scope, session) = (call.state.engine.clone(), call.scope, call.path.session.0);
    let input = PromptInput { traceparent: traceparent(&call.parts), ..call.body.0.into() };
    // On a task of its own, so that a client that hangs up cannot leave an accepted prompt without its turn.
    let sent = tokio::spawn(async move { engine.prompt_async(&scope, &session, input).await });
    sent.await.map_err(Error::internal)??;
    Ok(NoContent)
}

/// The trace that the client is in. Whether it is a valid one is seen where it is used.
fn traceparent(parts: &Parts) -> Option<String> {
    parts.headers.get("traceparent").and_then(|value| value.to_str().ok()).map(str::to_owned)
}

/// A command.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct CommandBody {
    #[serde(rename = "messageID")]
    message: Option<Given<MessageId>>,
    agent: Option<String>,
    /// `provider/model`.
    model: Option<String>,
    arguments: String,
    command: String,
    variant: Option<String>,
    #[serde(default)]
    parts: Vec<PromptPart>,
}

async fn command(call: Call<SessionPath, Nothing, JsonBody<CommandBody>>) -> Result<Raw<MessageWithParts>, Error> {
    let (engine, scope, session) = (call.state.engine.clone(), call.scope, call.path.session.0);
    let JsonBody(body) = call.body;
    let model = body.model.as_deref().map(model_name).transpose()?;
    let target =
        PromptTarget { agent: body.agent, model, variant: body.variant, message_id: body.message.map(|id| id.0) };
    let input = CommandInput { command: body.command, arguments: body.arguments, target, parts: body.parts };
    turn(&call.state, async move { engine.command(&scope, &session, input).await }).await
}

fn model_name(text: &str) -> Result<ModelRef, Error> {
    let (provider, model) = text.split_once('/').ok_or_else(|| {
        Error::bad_request(Where::Payload, format!("Expected provider/model, got {text:?}\n  at [\"model\"]"))
    })?;
    Ok(ModelRef { provider_id: provider.into(), model_id: model.into(), variant: None })
}

/// A shell line.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct Shell {
    #[serde(rename = "messageID")]
    message: Option<Given<MessageId>>,
    agent: String,
    model: Option<ModelRef>,
    command: String,
}

async fn shell(call: Call<SessionPath, Nothing, JsonBody<Shell>>) -> Result<Raw<MessageWithParts>, Error> {
    let (engine, scope, session) = (call.state.engine.clone(), call.scope, call.path.session.0);
    let JsonBody(body) = call.body;
    let target = PromptTarget {
        agent: Some(body.agent),
        model: body.model,
        variant: None,
        message_id: body.message.map(|id| id.0),
    };
    let input = ShellInput { command: body.command, target };
    turn(&call.state, async move { engine.shell(&scope, &session, input).await }).await
}

/// Who writes AGENTS.md.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct Init {
    #[serde(rename = "modelID")]
    model: String,
    #[serde(rename = "providerID")]
    provider: String,
    #[serde(rename = "messageID")]
    message: Given<MessageId>,
}

async fn init(call: Call<SessionPath, Nothing, JsonBody<Init>>) -> Result<Raw<bool>, Error> {
    let (engine, scope, session) = (call.state.engine.clone(), call.scope, call.path.session.0);
    let JsonBody(body) = call.body;
    let model = ModelRef { provider_id: body.provider, model_id: body.model, variant: None };
    let target = PromptTarget { model: Some(model), message_id: Some(body.message.0), ..PromptTarget::default() };
    let input = CommandInput { command: "init".into(), target, ..CommandInput::default() };
    turn(&call.state, async move { engine.command(&scope, &session, input).await.map(|_| true) }).await
}

async fn abort(call: Call<SessionPath>) -> Result<Data<bool>, Error> {
    call.state.engine.abort(&call.scope, &call.path.session.0).await?;
    Ok(Data(true))
}

/// Of which turn.
#[derive(Debug, Deserialize, JsonSchema)]
struct DiffQuery {
    #[serde(rename = "messageID")]
    message: Option<Given<MessageId>>,
}

async fn diff(call: Call<SessionPath, DiffQuery>) -> Result<Data<Vec<FileDiff>>, Error> {
    let message = call.query.message.map(|id| id.0);
    match call.state.engine.diff(&call.scope, &call.path.session.0, message).await {
        Ok(diff) => Ok(Data(diff)),
        // Terminal clients read it at every session they show: that nothing is known is no reason to fail them.
        Err(HostError::Unsupported(_) | HostError::NotFound { .. }) => Ok(Data(Vec::new())),
        Err(error) => Err(error.into()),
    }
}

/// Who summarises.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct Summarize {
    #[serde(rename = "providerID")]
    provider: String,
    #[serde(rename = "modelID")]
    model: String,
    auto: Option<bool>,
}

async fn summarize(call: Call<SessionPath, Nothing, JsonBody<Summarize>>) -> Result<Raw<bool>, Error> {
    let (engine, scope, session) = (call.state.engine.clone(), call.scope, call.path.session.0);
    engine.session(&scope, &session).await?;
    let JsonBody(body) = call.body;
    let model = ModelRef { provider_id: body.provider, model_id: body.model, variant: None };
    let input = SummarizeInput { model, auto: body.auto.unwrap_or_default() };
    patient(&call.state, async move { engine.summarize(&scope, &session, input).await.map(|()| true) }).await
}

/// A point to go back to.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct Revert {
    #[serde(rename = "messageID")]
    message: Given<MessageId>,
    #[serde(rename = "partID")]
    part: Option<Given<PartId>>,
}

async fn revert(call: Call<SessionPath, Nothing, JsonBody<Revert>>) -> Result<Data<Session>, Error> {
    call.state.engine.session(&call.scope, &call.path.session.0).await?;
    let JsonBody(Revert { message, part }) = call.body;
    let input = RevertInput { message_id: message.0, part_id: part.map(|id| id.0) };
    Ok(Data(call.state.engine.revert(&call.scope, &call.path.session.0, input).await?))
}

async fn unrevert(call: Call<SessionPath>) -> Result<Data<Session>, Error> {
    call.state.engine.session(&call.scope, &call.path.session.0).await?;
    Ok(Data(call.state.engine.unrevert(&call.scope, &call.path.session.0).await?))
}

/// Waits for a turn. It is answered after what it told: see [`crate::events::flush`].
async fn turn<T: Serialize + Send + 'static>(
    state: &Arc<State>,
    work: impl Future<Output = Result<T, HostError>> + Send + 'static,
) -> Result<Raw<T>, Error> {
    let listeners = state.clone();
    patient(state, async move {
        let done = work.await;
        listeners.listeners.told().await;
        done
    })
    .await
}

/// Waits for work that can take long. It runs on a task of its own, so it does not end with its client's connection. What
/// ends soon is answered as ever; else the answer begins, and blanks (JSON allows them) show that it is still on its way.
/// What fails after that ends the answer with the error's body: the status can no longer say it.
pub async fn patient<T: Serialize + Send + 'static>(
    state: &Arc<State>,
    work: impl Future<Output = Result<T, HostError>> + Send + 'static,
) -> Result<Raw<T>, Error> {
    let mut work = tokio::spawn(work);
    let mut stopped = Box::pin(stopped(state.closing.clone(), PARKING));
    tokio::select! {
        biased;
        done = &mut work => Ok(Raw::json(written(done)?)),
        error = &mut stopped => Err(error),
        () = sleep(SOON) => Ok(Raw::json(Body::from_stream(blanks(work, stopped, SOON)))),
    }
}

/// What is said to whoever waits when the server stops, once turns had their time to be parked.
async fn stopped(closing: CancellationToken, parking: Duration) -> Error {
    closing.cancelled().await;
    sleep(parking).await;
    let message = "The server is stopping. A prompt that it has accepted is kept, and goes on at the next start";
    HostError::Unavailable(message.to_owned()).into()
}

fn written<T: Serialize>(done: Result<Result<T, HostError>, tokio::task::JoinError>) -> Result<Bytes, Error> {
    let value = done.map_err(Error::internal)??;
    serde_json::to_vec(&value).map(Bytes::from).map_err(Error::internal)
}

fn blanks<T: Serialize + Send + 'static>(
    work: JoinHandle<Result<T, HostError>>,
    stopped: impl Future<Output = Error> + Send + Unpin + 'static,
    pause: Duration,
) -> impl futures::Stream<Item = Result<Bytes, std::io::Error>> {
    let ticks = interval_at(Instant::now(), pause);
    futures::stream::unfold(Some((work, stopped, ticks)), |state| async {
        let (mut work, mut stopped, mut ticks) = state?;
        let done = tokio::select! {
            biased;
            done = &mut work => written(done),
            error = &mut stopped => Err(error),
            _ = ticks.tick() => return Some((Ok(Bytes::from_static(b" ")), Some((work, stopped, ticks)))),
        };
        let last = done.or_else(|error| {
            tracing::warn!(body = ?error.body, cause = error.cause, "a turn failed after its answer began");
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

    /// What comes after some blanks, once `then` has happened.
    async fn body(
        work: JoinHandle<Result<bool, HostError>>,
        closing: &CancellationToken,
        then: impl FnOnce(),
    ) -> String {
        let stopped = Box::pin(stopped(closing.clone(), Duration::ZERO));
        let mut body = Box::pin(blanks(work, stopped, Duration::from_millis(1)));
        for _ in 0..3 {
            assert_eq!(body.next().await.unwrap().unwrap(), " ");
        }
        then();
        let mut text = String::new();
        while let Some(bytes) = testkit::soon("the end of the answer", body.next()).await {
            text.push_str(std::str::from_utf8(&bytes.unwrap()).unwrap());
        }
        text
    }

    #[tokio::test]
    async fn an_answer_that_began_ends_in_json_whatever_happens() {
        let closing = CancellationToken::new();
        let ends = |end: Result<bool, HostError>| {
            let (now, then) = tokio::sync::oneshot::channel::<()>();
            (now, tokio::spawn(async move { then.await.map_or(Ok(false), |()| end) }))
        };
        let (now, work) = ends(Ok(true));
        let told = body(work, &closing, || now.send(()).unwrap()).await;
        assert!(serde_json::from_str::<bool>(&told).unwrap());
        let (now, work) = ends(Err(HostError::Failed("secret".to_owned())));
        let told = body(work, &closing, || now.send(()).unwrap()).await;
        let told: api::Json = serde_json::from_str(&told).unwrap();
        assert!(told["name"] == "UnknownError" && told["data"]["ref"].is_string(), "{told}");
        let (_never, work) = ends(Ok(true));
        let told = body(work, &closing, || closing.cancel()).await;
        let told: api::Json = serde_json::from_str(&told).unwrap();
        assert_eq!(told["_tag"], "ServiceUnavailableError");
        assert!(told["message"].as_str().unwrap().contains("next start"), "{told}");
    }
}
