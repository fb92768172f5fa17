//! The remote control of a terminal client.

use std::time::Duration;

use api::{EventBody, Json, SessionId};
use axum::http::{Method, StatusCode};
use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::error::Error;
use crate::operation::request::{JsonBody, NoParams, ParsedId, Request};
use crate::operation::{JsonReply, Operation, operation};
use crate::tui::{self, TuiRequest};

/// How long a client may wait for a request before it is told to ask again.
const NEXT_TIMEOUT: Duration = Duration::from_secs(600);

pub fn operations() -> Vec<Operation> {
    let post = Method::POST;
    vec![
        operation(post.clone(), "/tui/append-prompt", "tui.appendPrompt", "Add text to the prompt.", append_prompt),
        operation(post.clone(), "/tui/open-help", "tui.openHelp", "Show the help.", open_help),
        operation(post.clone(), "/tui/open-sessions", "tui.openSessions", "Show the sessions.", open_sessions),
        operation(post.clone(), "/tui/open-themes", "tui.openThemes", "Show the themes.", open_themes),
        operation(post.clone(), "/tui/open-models", "tui.openModels", "Show the models.", open_models),
        operation(post.clone(), "/tui/submit-prompt", "tui.submitPrompt", "Send the prompt.", submit_prompt),
        operation(post.clone(), "/tui/clear-prompt", "tui.clearPrompt", "Clear the prompt.", clear_prompt),
        operation(
            post.clone(),
            "/tui/execute-command",
            "tui.executeCommand",
            "Run a command of the client by name.",
            execute_command,
        ),
        operation(post.clone(), "/tui/show-toast", "tui.showToast", "Show a toast.", show_toast),
        operation(post.clone(), "/tui/publish", "tui.publish", "Publish one of these events.", publish),
        operation(post.clone(), "/tui/select-session", "tui.selectSession", "Show a session.", select_session)
            .not_found(),
        operation(Method::GET, "/tui/control/next", "tui.control.next", "Wait for the next request.", control_next),
        operation(post, "/tui/control/response", "tui.control.response", "Answer a request.", control_response)
            .partial("nothing waits for the answer"),
    ]
}

/// Publishes an event, and queues the request for clients that poll.
fn forward<P, Q, B>(request: &Request<P, Q, B>, event: EventBody, body: Json) -> Result<JsonReply<bool>, Error> {
    let directory = &request.scope.directory;
    request.state.tui_requests.push(directory, request.parts.uri.path(), body);
    request.state.publish(directory, &request.engine.loaded(&request.scope).project.id, event);
    Ok(JsonReply(true))
}

fn execute(request: &Request, command: &str) -> Result<JsonReply<bool>, Error> {
    forward(request, EventBody::TuiCommandExecute { command: command.to_owned() }, Json::Null)
}

async fn open_help(request: Request) -> Result<JsonReply<bool>, Error> {
    execute(&request, "help.show")
}

async fn open_sessions(request: Request) -> Result<JsonReply<bool>, Error> {
    execute(&request, "session.list")
}

async fn open_themes(request: Request) -> Result<JsonReply<bool>, Error> {
    execute(&request, "theme.switch")
}

async fn open_models(request: Request) -> Result<JsonReply<bool>, Error> {
    execute(&request, "model.list")
}

async fn submit_prompt(request: Request) -> Result<JsonReply<bool>, Error> {
    execute(&request, "prompt.submit")
}

async fn clear_prompt(request: Request) -> Result<JsonReply<bool>, Error> {
    execute(&request, "prompt.clear")
}

/// Text to add to the prompt.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
struct PromptText {
    text: String,
}

async fn append_prompt(request: Request<NoParams, NoParams, JsonBody<PromptText>>) -> Result<JsonReply<bool>, Error> {
    let body = to_json(&request.body.0)?;
    let event = EventBody::TuiPromptAppend { text: request.body.0.text.clone() };
    forward(&request, event, body)
}

/// A command, by name.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
struct CommandName {
    command: String,
}

async fn execute_command(
    request: Request<NoParams, NoParams, JsonBody<CommandName>>,
) -> Result<JsonReply<bool>, Error> {
    let body = to_json(&request.body.0)?;
    let command = tui::current_command_name(&request.body.0.command).to_owned();
    forward(&request, EventBody::TuiCommandExecute { command }, body)
}

/// A toast.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
struct Toast {
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    message: String,
    variant: ToastVariant,
    /// In milliseconds.
    #[serde(default = "default_duration", deserialize_with = "positive")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    duration: u64,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum ToastVariant {
    Info,
    Success,
    Warning,
    Error,
}

fn default_duration() -> u64 {
    5_000
}

fn positive<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    match u64::deserialize(deserializer)? {
        0 => Err(D::Error::custom("Expected a value greater than 0, got 0")),
        value => Ok(value),
    }
}

async fn show_toast(request: Request<NoParams, NoParams, JsonBody<Toast>>) -> Result<JsonReply<bool>, Error> {
    let body = to_json(&request.body.0)?;
    let event = parse_event("tui.toast.show", body.clone())?;
    forward(&request, event, body)
}

/// The session to show.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct SelectBody {
    #[serde(rename = "sessionID")]
    session: ParsedId<SessionId>,
}

async fn select_session(request: Request<NoParams, NoParams, JsonBody<SelectBody>>) -> Result<JsonReply<bool>, Error> {
    let session_id = request.body.0.session.0.clone();
    request.host.session(&session_id).await?;
    let body = serde_json::json!({ "sessionID": session_id });
    forward(&request, EventBody::TuiSessionSelect { session_id }, body)
}

/// An event for a terminal client.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "properties")]
#[schemars(inline)]
enum TuiEvent {
    #[serde(rename = "tui.prompt.append")]
    #[schemars(title = "EventTuiPromptAppend")]
    Append(PromptText),
    #[serde(rename = "tui.command.execute")]
    #[schemars(title = "EventTuiCommandExecute")]
    Execute(CommandName),
    #[serde(rename = "tui.toast.show")]
    #[schemars(title = "EventTuiToastShow")]
    Toast(Toast),
    #[serde(rename = "tui.session.select")]
    #[schemars(title = "EventTuiSessionSelect")]
    Select(SelectedSession),
}

/// The session to show, as an event names it.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
struct SelectedSession {
    #[serde(rename = "sessionID")]
    session: SessionId,
}

async fn publish(request: Request<NoParams, NoParams, JsonBody<TuiEvent>>) -> Result<JsonReply<bool>, Error> {
    let body = to_json(&request.body.0)?;
    let event = serde_json::from_value(body.clone()).map_err(Error::internal)?;
    forward(&request, event, body)
}

fn to_json(value: &impl Serialize) -> Result<Json, Error> {
    serde_json::to_value(value).map_err(Error::internal)
}

fn parse_event(kind: &str, properties: Json) -> Result<EventBody, Error> {
    serde_json::from_value(serde_json::json!({ "type": kind, "properties": properties })).map_err(Error::internal)
}

async fn control_next(request: Request) -> Result<JsonReply<TuiRequest>, Error> {
    let next = request.state.tui_requests.next(&request.scope.directory);
    let next = tokio::time::timeout(NEXT_TIMEOUT, request.state.closing.run_until_cancelled(next));
    let ask_again = |why: &str| Error::named(StatusCode::REQUEST_TIMEOUT, "RequestTimeout", why);
    match next.await {
        Ok(Some(request)) => Ok(JsonReply(request)),
        Ok(None) => Err(ask_again("The server is stopping; ask again after its restart")),
        Err(_) => Err(ask_again("There was no request; ask again")),
    }
}

async fn control_response(_: Request<NoParams, NoParams, JsonBody<Json>>) -> Result<JsonReply<bool>, Error> {
    Ok(JsonReply(true))
}
