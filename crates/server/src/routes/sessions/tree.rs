//! Subagents: the tree of a session, and what can be done with it. All but one of these operations are Trefoil's own.

use api::{
    Budget, BudgetState, Cancelled, Event, Host as _, MessageId, PromptPart, SteerInput, Tree, Worktree, WorktreeDiff,
};
use axum::http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::event::After;
use super::session::SessionPath;
use super::turn::patient;
use crate::error::Error;
use crate::events;
use crate::operation::request::{Call, JsonBody, Nothing};
use crate::operation::{Data, Events, Operation, Raw, operation};

/// It is not in a state in which that can be done.
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
    let await_all = "Wait for the subagents that go on alone.";
    let changes = "What a session changed in its worktree and is not merged.";
    let merge = "Bring the changes of its worktree into the working tree that it was made from.";
    let discard = "Remove its worktree.";
    vec![
        operation(Method::GET, TREE, "trefoil.session.tree", "A session and all below it.", tree).not_found(),
        operation(Method::GET, EVENTS, "trefoil.session.events", "The events of a session and all below it.", told)
            .not_found(),
        operation(Method::POST, STEER, "trefoil.session.steer", "Send a message to a turn that runs.", steer)
            .not_found()
            .error(409, CONFLICT),
        operation(Method::POST, PAUSE, "trefoil.session.pause", "Hold a session and all below it.", pause).not_found(),
        operation(Method::POST, RESUME, "trefoil.session.resume", "Let them go on.", resume).not_found(),
        operation(Method::POST, CANCEL, "trefoil.session.cancel", "Stop a session and all below it.", cancel)
            .not_found(),
        operation(Method::POST, BUDGET, "trefoil.session.budget", "Set what they may use together.", budget)
            .not_found()
            .error(409, CONFLICT),
        operation(Method::POST, BACKGROUND, "experimental.session.background", "Let subagents go on alone.", detach)
            .not_found(),
        operation(Method::POST, FOREGROUND, "trefoil.session.foreground", await_all, attach).not_found(),
        operation(Method::GET, WORKTREE, "trefoil.session.worktree.diff", changes, worktree).not_found(),
        operation(Method::POST, WORKTREE, "trefoil.session.worktree.merge", merge, self::merge)
            .not_found()
            .error(409, &["SessionBusyError", "ConflictError"]),
        operation(Method::DELETE, WORKTREE, "trefoil.session.worktree.discard", discard, self::discard)
            .not_found()
            .error(409, &["SessionBusyError", "ConflictError"]),
    ]
}

async fn tree(call: Call<SessionPath>) -> Result<Data<Tree>, Error> {
    Ok(Data(call.state.engine.tree(&call.scope, &call.path.session.0).await?))
}

async fn told(call: Call<SessionPath, After>) -> Result<Events<Event>, Error> {
    let after = events::cursor(&call.parts.headers, call.query.after.as_deref());
    let reader = call.state.backlog.reader(&call.parts);
    Ok(Events::new(events::subtree(&call.state, reader, &call.scope, call.path.session.0, after).await?))
}

/// A message for a turn that runs: a text, parts as a prompt has them, or both.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct Steer {
    text: Option<String>,
    #[serde(default)]
    parts: Vec<PromptPart>,
}

/// The message that it became.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct Steered {
    #[serde(rename = "messageID")]
    message: MessageId,
}

async fn steer(call: Call<SessionPath, Nothing, JsonBody<Steer>>) -> Result<Data<Steered>, Error> {
    let (engine, scope, session) = (call.state.engine.clone(), call.scope, call.path.session.0);
    let JsonBody(Steer { text, parts }) = call.body;
    let input = SteerInput { text, parts };
    // On a task of its own, so that a client that hangs up cannot leave half of it done.
    let sent = tokio::spawn(async move { engine.steer(&scope, &session, input).await });
    let message = sent.await.map_err(Error::internal)??;
    Ok(Data(Steered { message }))
}

async fn hold(call: Call<SessionPath>, paused: bool) -> Result<Data<bool>, Error> {
    Ok(Data(call.state.engine.pause(&call.scope, &call.path.session.0, paused).await?))
}

async fn pause(call: Call<SessionPath>) -> Result<Data<bool>, Error> {
    hold(call, true).await
}

async fn resume(call: Call<SessionPath>) -> Result<Data<bool>, Error> {
    hold(call, false).await
}

async fn cancel(call: Call<SessionPath>) -> Result<Raw<Cancelled>, Error> {
    let (engine, scope, session) = (call.state.engine.clone(), call.scope, call.path.session.0);
    patient(&call.state, async move { engine.cancel(&scope, &session).await }).await
}

async fn budget(call: Call<SessionPath, Nothing, JsonBody<Budget>>) -> Result<Data<BudgetState>, Error> {
    Ok(Data(call.state.engine.budget(&call.scope, &call.path.session.0, call.body.0).await?))
}

async fn detach(call: Call<SessionPath>) -> Result<Data<bool>, Error> {
    background(call, true).await
}

async fn attach(call: Call<SessionPath>) -> Result<Data<bool>, Error> {
    background(call, false).await
}

async fn background(call: Call<SessionPath>, background: bool) -> Result<Data<bool>, Error> {
    Ok(Data(call.state.engine.background(&call.scope, &call.path.session.0, background).await?))
}

async fn worktree(call: Call<SessionPath>) -> Result<Data<WorktreeDiff>, Error> {
    Ok(Data(call.state.engine.worktree_diff(&call.scope, &call.path.session.0).await?))
}

async fn merge(call: Call<SessionPath>) -> Result<Raw<Worktree>, Error> {
    let (engine, scope, session) = (call.state.engine.clone(), call.scope, call.path.session.0);
    patient(&call.state, async move { engine.worktree_merge(&scope, &session).await }).await
}

async fn discard(call: Call<SessionPath>) -> Result<Raw<Worktree>, Error> {
    let (engine, scope, session) = (call.state.engine.clone(), call.scope, call.path.session.0);
    patient(&call.state, async move { engine.worktree_discard(&scope, &session).await }).await
}
