//! Turns as objects: submitted, looked at, waited for and cancelled one by one. All of these operations are Trefoil's
//! own.

use api::{Delivery, HostError, ListTurns, PromptInput, Submitted, Turn, TurnId, TurnPage};
use axum::http::Method;
use schemars::JsonSchema;
use serde::Deserialize;

use super::session::{SessionPath, whole_number};
use super::turn::{ID_TAKEN, PromptBody, long_running, traceparent, wait_for_turn};
use crate::error::Error;
use crate::operation::request::{JsonBody, NoParams, ParsedId, Request};
use crate::operation::{JsonReply, Operation, RawReply, operation};

pub fn operations() -> Vec<Operation> {
    const TURNS: &str = "/session/{sessionID}/turn";
    const TURN: &str = "/session/{sessionID}/turn/{turnID}";
    const WAIT: &str = "/session/{sessionID}/turn/{turnID}/wait";
    const CANCEL: &str = "/session/{sessionID}/turn/{turnID}/cancel";
    vec![
        operation(Method::POST, TURNS, "trefoil.turn.submit", "Send a prompt; returns its turn.", submit)
            .not_found()
            .error(409, ID_TAKEN),
        operation(Method::GET, TURNS, "trefoil.turn.list", "The turns of a session, newest first.", list).not_found(),
        operation(Method::GET, TURN, "trefoil.turn.get", "A turn.", get).not_found(),
        operation(Method::POST, WAIT, "trefoil.turn.wait", "Wait for a turn to end.", wait).not_found(),
        operation(Method::POST, CANCEL, "trefoil.turn.cancel", "Cancel one turn, queued or running.", cancel)
            .not_found(),
    ]
}

/// A turn in the path.
#[derive(Debug, Deserialize, JsonSchema)]
struct TurnPath {
    #[serde(flatten)]
    session: SessionPath,
    #[serde(rename = "turnID")]
    turn: ParsedId<TurnId>,
}

impl TurnPath {
    /// The turn, which must be one of the session in the path.
    fn turn(self) -> Result<TurnId, Error> {
        let Self { session, turn: ParsedId(turn) } = self;
        if turn.session == session.session.0 {
            Ok(turn)
        } else {
            Err(HostError::not_found("turn", turn.to_string()).into())
        }
    }
}

/// A prompt, and what happens to it while a turn is running.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct SubmitBody {
    #[serde(default)]
    delivery: Delivery,
    #[serde(flatten)]
    prompt: PromptBody,
}

async fn submit(request: Request<SessionPath, NoParams, JsonBody<SubmitBody>>) -> Result<JsonReply<Submitted>, Error> {
    let (host, session) = (request.host, request.path.session.0);
    let SubmitBody { delivery, prompt } = request.body.0;
    let input = PromptInput { traceparent: traceparent(&request.parts), ..prompt.into() };
    // On a task of its own, so that a client that hangs up cannot leave an accepted prompt without its turn.
    let sent = tokio::spawn(async move { host.submit(&session, input, delivery).await });
    Ok(JsonReply(sent.await.map_err(Error::internal)??))
}

/// Filters the turns.
#[derive(Debug, Deserialize, JsonSchema)]
struct ListQuery {
    /// Only turns that have ended, or only those that have not.
    ended: Option<bool>,
    /// Only the turn that is running, or if there is none, the next one that will.
    current: Option<bool>,
    /// Only turns before this one: the cursor of a page.
    before: Option<ParsedId<TurnId>>,
    /// The most to list.
    limit: Option<f64>,
}

async fn list(request: Request<SessionPath, ListQuery>) -> Result<JsonReply<TurnPage>, Error> {
    let ListQuery { ended, current, before, limit } = request.query;
    let limit = whole_number("limit", limit)?.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let (before, current) = (before.map(|id| id.0), current.unwrap_or(false));
    let query = ListTurns { ended, current, before, limit };
    Ok(JsonReply(request.host.turns(&request.path.session.0, query).await?))
}

async fn get(request: Request<TurnPath>) -> Result<JsonReply<Turn>, Error> {
    Ok(JsonReply(request.host.turn(&request.path.turn()?).await?))
}

async fn wait(request: Request<TurnPath>) -> Result<RawReply<Turn>, Error> {
    let (host, turn) = (request.host, request.path.turn()?);
    wait_for_turn(&request.state, async move { host.wait(&turn).await }).await
}

async fn cancel(request: Request<TurnPath>) -> Result<RawReply<Turn>, Error> {
    let (host, turn) = (request.host, request.path.turn()?);
    long_running(&request.state, async move { host.cancel_turn(&turn).await }).await
}
