//! The remote control of a terminal client.

use std::time::Duration;

use api::{EventBody, Host as _, Json, SessionId};
use axum::http::{Method, StatusCode};
use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::error::Error;
use crate::operation::request::{Call, Given, JsonBody, Nothing};
use crate::operation::{Data, Operation, operation};
use crate::tui::{self, Request};

/// How long a client may wait for a request before it is told to ask again.
const NEXT_WAIT: Duration = Duration::from_secs(600);

pub fn operations() -> Vec<Operation> {
    let post = Method::POST;
    vec![
        operation(post.clone(), "/tui/append-prompt", "tui.appendPrompt", "Add text to the prompt.", append_prompt),
        operation(post.clone(), "/tui/open-help", "tui.openHelp", "Show the help.", open_help),
        operation(post.clone(), "/tui/open-sessions", "tui.openSessions", "Show the sessions.", open_sessions),
        operation(post.clone(), "/tui/open-themes", "tui.openThemes", "Show the themes.", open_themes),
        operation(post.clone(), "/tui/open-models", "tui.openModels", "Show the models.", open_models),
        operation(post.clone(), "/tui/submit-prompt", "tui.submitPrompt", "Send the prompt.", submit_prompt),
        operation(post.clone(), "/tui/clear-prompt", "tui.clearPrompt", "Empty the prompt.", clear_prompt),
        operation(post.clone(), "/tui/execute-command", "tui.executeCommand", "Do something by name.", execute_command),
        operation(post.clone(), "/tui/show-toast", "tui.showToast", "Show a notice.", show_toast),
        operation(post.clone(), "/tui/publish", "tui.publish", "One of these events, as it is.", publish),
        operation(post.clone(), "/tui/select-session", "tui.selectSession", "Show a session.", select_session)
            .not_found(),
        operation(Method::GET, "/tui/control/next", "tui.control.next", "Wait for the next request.", control_next),
        operation(post, "/tui/control/response", "tui.control.response", "Answer a request.", control_response)
            .partial("nobody waits for the answer"),
    ]
}

/// Tells clients of an event, and puts the request where those find it that ask for it.
fn pass<P, Q, B>(call: &Call<P, Q, B>, event: EventBody, body: Json) -> Result<Data<bool>, Error> {
    let directory = &call.scope.directory;
    call.state.control.push(directory, call.parts.uri.path(), body);
    call.state.tell(directory, &call.state.engine.loaded(&call.scope).project.id, event);
    Ok(Data(true))
}

fn execute(call: &Call, command: &str) -> Result<Data<bool>, Error> {
    pass(call, EventBody::TuiCommandExecute { command: command.to_owned() }, Json::Null)
}

async fn open_help(call: Call) -> Result<Data<bool>, Error> {
    execute(&call, "help.show")
}

async fn open_sessions(call: Call) -> Result<Data<bool>, Error> {
    execute(&call, "session.list")
}

async fn open_themes(call: Call) -> Result<Data<bool>, Error> {
    execute(&call, "theme.switch")
}

async fn open_models(call: Call) -> Result<Data<bool>, Error> {
    execute(&call, "model.list")
}

async fn submit_prompt(call: Call) -> Result<Data<bool>, Error> {
    execute(&call, "prompt.submit")
}

async fn clear_prompt(call: Call) -> Result<Data<bool>, Error> {
    execute(&call, "prompt.clear")
}

/// Text for the prompt.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
struct Append {
    text: String,
}

async fn append_prompt(call: Call<Nothing, Nothing, JsonBody<Append>>) -> Result<Data<bool>, Error> {
    let body = json(&call.body.0)?;
    let event = EventBody::TuiPromptAppend { text: call.body.0.text.clone() };
    pass(&call, event, body)
}

/// A command by its name.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
struct Execute {
    command: String,
}

async fn execute_command(call: Call<Nothing, Nothing, JsonBody<Execute>>) -> Result<Data<bool>, Error> {
    let body = json(&call.body.0)?;
    let command = tui::command(&call.body.0.command).to_owned();
    pass(&call, EventBody::TuiCommandExecute { command }, body)
}

/// A notice.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
struct Toast {
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    message: String,
    variant: Variant,
    /// In milliseconds.
    #[serde(default = "usual_duration", deserialize_with = "positive")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    duration: u64,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Variant {
    Info,
    Success,
    Warning,
    Error,
}

fn usual_duration() -> u64 {
    5_000
}

fn positive<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    match u64::deserialize(deserializer)? {
        0 => Err(D::Error::custom("Expected a value greater than 0, got 0")),
        value => Ok(value),
    }
}

async fn show_toast(call: Call<Nothing, Nothing, JsonBody<Toast>>) -> Result<Data<bool>, Error> {
    let body = json(&call.body.0)?;
    let event = event("tui.toast.show", body.clone())?;
    pass(&call, event, body)
}

/// A session.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct Select {
    #[serde(rename = "sessionID")]
    session: Given<SessionId>,
}

async fn select_session(call: Call<Nothing, Nothing, JsonBody<Select>>) -> Result<Data<bool>, Error> {
    let session_id = call.body.0.session.0.clone();
    call.state.engine.session(&call.scope, &session_id).await?;
    let body = serde_json::json!({ "sessionID": session_id });
    pass(&call, EventBody::TuiSessionSelect { session_id }, body)
}

/// One of the events of a terminal client.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "properties")]
#[schemars(inline)]
enum Published {
    #[serde(rename = "tui.prompt.append")]
    #[schemars(title = "EventTuiPromptAppend")]
    Append(Append),
    #[serde(rename = "tui.command.execute")]
    #[schemars(title = "EventTuiCommandExecute")]
    Execute(Execute),
    #[serde(rename = "tui.toast.show")]
    #[schemars(title = "EventTuiToastShow")]
    Toast(Toast),
    #[serde(rename = "tui.session.select")]
    #[schemars(title = "EventTuiSessionSelect")]
    Select(Selected),
}

/// A session, as an event names it.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
struct Selected {
    #[serde(rename = "sessionID")]
    session: SessionId,
}

async fn publish(call: Call<Nothing, Nothing, JsonBody<Published>>) -> Result<Data<bool>, Error> {
    let body = json(&call.body.0)?;
    let event = serde_json::from_value(body.clone()).map_err(Error::internal)?;
    pass(&call, event, body)
}

fn json(value: &impl Serialize) -> Result<Json, Error> {
    serde_json::to_value(value).map_err(Error::internal)
}

fn event(kind: &str, properties: Json) -> Result<EventBody, Error> {
    serde_json::from_value(serde_json::json!({ "type": kind, "properties": properties })).map_err(Error::internal)
}

async fn control_next(call: Call) -> Result<Data<Request>, Error> {
    let next = call.state.control.next(&call.scope.directory);
    let next = tokio::time::timeout(NEXT_WAIT, call.state.closing.run_until_cancelled(next));
    let ask_again = |why: &str| Error::named(StatusCode::REQUEST_TIMEOUT, "RequestTimeout", why);
    match next.await {
        Ok(Some(request)) => Ok(Data(request)),
        Ok(None) => Err(ask_again("The server stops; ask its successor")),
        Err(_) => Err(ask_again("There was no request; ask again")),
    }
}

async fn control_response(_: Call<Nothing, Nothing, JsonBody<Json>>) -> Result<Data<bool>, Error> {
    Ok(Data(true))
}
