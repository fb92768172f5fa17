//! Subagents: the tree of a session, and operations on it. All but one of these operations are Trefoil's own.

use api::{
    Budget, BudgetState, CancelResult, Event, MessageId, PromptPart, SteerInput, Tree, WatchScope, Worktree,
    WorktreeDiff,
};
use axum::http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::event::ResumeQuery;
use super::session::SessionPath;
use super::turn::long_running;
use crate::error::Error;
use crate::events::{self, Envelope};
use crate::operation::request::{JsonBody, NoParams, Request};
use crate::operation::{EventStream, JsonReply, Operation, RawReply, operation};

/// The session's state does not allow the operation.
const CONFLICT: &[&str] = &["ConflictError"];

pub fn operations() -> Vec<Operation> {
    const TREE: &str = "/session/{sessionID}/tree";
    const EVENTS: &str = "/session/{sessionID}/tree/event";
    const STEER: &str = "/session/{sessionID}/steer";
    const PAUSE: &str = "/session/{sessionID}/pause";
    const RESUME: &str = "/session/{sessionID}/resume";
    const CANCEL: &str = "/session/{sessionID}/cancel";
    const BUDGET: &str = "/session/{sessionID}/budget";
    const BACKGROUND: &str = "/experimental/session/{sessionID}/background";
    const FOREGROUND: &str = "/experimental/session/{sessionID}/foreground";
    const WORKTREE: &str = "/session/{sessionID}/worktree";
    let await_all = "Wait for background subagents again.";
    let changes = "The changes in a session's worktree that are not merged.";
    let merge = "Merge the changes of its worktree into the working tree that it was created from.";
    let discard = "Discard its worktree.";
    vec![
        operation(Method::GET, TREE, "trefoil.session.tree", "A session and its descendants.", tree).not_found(),
        operation(
            Method::GET,
            EVENTS,
            "trefoil.session.events",
            "The events of a session and its descendants.",
            tree_events,
        )
        .not_found(),
        operation(Method::POST, STEER, "trefoil.session.steer", "Send a message to a running turn.", steer)
            .not_found()
            .error(409, CONFLICT),
        operation(Method::POST, PAUSE, "trefoil.session.pause", "Pause a session and its descendants.", pause)
            .not_found(),
        operation(Method::POST, RESUME, "trefoil.session.resume", "Resume a session and its descendants.", resume)
            .not_found(),
        operation(Method::POST, CANCEL, "trefoil.session.cancel", "Stop a session and its descendants.", cancel)
            .not_found(),
        operation(Method::POST, BUDGET, "trefoil.session.budget", "Set the budget that they share.", budget)
            .not_found()
            .error(409, CONFLICT),
        operation(
            Method::POST,
            BACKGROUND,
            "experimental.session.background",
            "Move subagents to the background.",
            detach,
        )
        .not_found(),
        operation(Method::POST, FOREGROUND, "trefoil.session.foreground", await_all, attach).not_found(),
        operation(Method::GET, WORKTREE, "trefoil.session.worktree.diff", changes, worktree_diff).not_found(),
        operation(Method::POST, WORKTREE, "trefoil.session.worktree.merge", merge, self::merge)
            .not_found()
            .error(409, &["SessionBusyError", "ConflictError"]),
        operation(Method::DELETE, WORKTREE, "trefoil.session.worktree.discard", discard, self::discard)
            .not_found()
            .error(409, &["SessionBusyError", "ConflictError"]),
    ]
}

async fn tree(request: Request<SessionPath>) -> Result<RawReply<Tree>, Error> {
    Ok(RawReply::json(request.engine.tree_json(&request.path.session.0).await?))
}

async fn tree_events(request: Request<SessionPath, ResumeQuery>) -> Result<EventStream<Event>, Error> {
    let after = events::resume_cursor(&request.parts.headers, request.query.after.as_deref());
    let client = request.state.backlog.client_of(&request.parts);
    let scope = WatchScope::Subtree(request.path.session.0);
    Ok(EventStream::new(events::stream(&request.state, &*request.host, client, scope, Envelope::Plain, after).await?))
}

/// A message for a running turn: a text, parts as in a prompt, or both.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct SteerBody {
    text: Option<String>,
    #[serde(default)]
    parts: Vec<PromptPart>,
}

/// The message that was added.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct SteerResult {
    #[serde(rename = "messageID")]
    message: MessageId,
}

async fn steer(request: Request<SessionPath, NoParams, JsonBody<SteerBody>>) -> Result<JsonReply<SteerResult>, Error> {
    let (host, session) = (request.host, request.path.session.0);
    let JsonBody(SteerBody { text, parts }) = request.body;
    let input = SteerInput { text, parts };
    // On a task of its own, so that a client that hangs up cannot leave it half done.
    let sent = tokio::spawn(async move { host.steer(&session, input).await });
    let message = sent.await.map_err(Error::internal)??;
    Ok(JsonReply(SteerResult { message }))
}

async fn set_paused(request: Request<SessionPath>, paused: bool) -> Result<JsonReply<bool>, Error> {
    Ok(JsonReply(request.host.pause(&request.path.session.0, paused).await?))
}

async fn pause(request: Request<SessionPath>) -> Result<JsonReply<bool>, Error> {
    set_paused(request, true).await
}

async fn resume(request: Request<SessionPath>) -> Result<JsonReply<bool>, Error> {
    set_paused(request, false).await
}

async fn cancel(request: Request<SessionPath>) -> Result<RawReply<CancelResult>, Error> {
    let (host, session) = (request.host, request.path.session.0);
    long_running(&request.state, async move { host.cancel(&session).await }).await
}

async fn budget(request: Request<SessionPath, NoParams, JsonBody<Budget>>) -> Result<JsonReply<BudgetState>, Error> {
    Ok(JsonReply(request.host.budget(&request.path.session.0, request.body.0).await?))
}

async fn detach(request: Request<SessionPath>) -> Result<JsonReply<bool>, Error> {
    set_background(request, true).await
}

async fn attach(request: Request<SessionPath>) -> Result<JsonReply<bool>, Error> {
    set_background(request, false).await
}

async fn set_background(request: Request<SessionPath>, background: bool) -> Result<JsonReply<bool>, Error> {
    Ok(JsonReply(request.host.background(&request.path.session.0, background).await?))
}

async fn worktree_diff(request: Request<SessionPath>) -> Result<JsonReply<WorktreeDiff>, Error> {
    Ok(JsonReply(request.host.worktree_diff(&request.path.session.0).await?))
}

async fn merge(request: Request<SessionPath>) -> Result<RawReply<Worktree>, Error> {
    let (host, session) = (request.host, request.path.session.0);
    long_running(&request.state, async move { host.worktree_merge(&session).await }).await
}

async fn discard(request: Request<SessionPath>) -> Result<RawReply<Worktree>, Error> {
    let (host, session) = (request.host, request.path.session.0);
    long_running(&request.state, async move { host.worktree_discard(&session).await }).await
}
