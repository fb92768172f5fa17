//! The tree of a session as watchers see it: what every session does, what it has used, and which asks are open.

use std::collections::{HashMap, HashSet};

use api::{
    Budget, CurrentTool, HostError, MessageError, ModelRef, SessionId, SessionModel, SessionStatus, TitleUsage,
    ToolPart, ToolState, Tree, TreeAsk, TreeNode, TreeState, Usage, Usd,
};
use store::{Reservation, Store, StoreError, TreeRows, TreeSession};

use crate::Inner;
use crate::error::store_error;
use crate::spending::budget::is_budget_wait;
use crate::turn::title::{STEPS, TITLING};

/// The variant name that stands for none.
const NO_VARIANT: &str = "default";

/// The maximum length of a running call's subject: a command can be long.
const MAX_TITLE: usize = 200;

/// What the titles of sessions used, by session id.
type Titling = HashMap<String, Usage>;

impl Inner {
    /// A session and everything below it.
    pub(crate) async fn tree(&self, id: &SessionId) -> Result<Tree, HostError> {
        let root = id.clone();
        let tree = self.store.long_read(move |store| read_tree(store, &root)).await.map_err(store_error)?;
        tree.ok_or_else(|| HostError::not_found("session", id.as_str()))
    }

    /// The same as JSON.
    pub(crate) async fn tree_json(&self, id: &SessionId) -> Result<Vec<u8>, HostError> {
        let root = id.clone();
        let read = move |store: &Store| Ok(read_tree(store, &root)?.map(|tree| serde_json::to_vec(&tree)));
        let json = self.store.long_read(read).await.map_err(store_error)?;
        let json = json.ok_or_else(|| HostError::not_found("session", id.as_str()))?;
        json.map_err(|error| HostError::Failed(error.to_string()))
    }
}

/// Reads a session and everything below it; `None` if it does not exist.
fn read_tree(store: &Store, id: &SessionId) -> Result<Option<Tree>, StoreError> {
    let Some(rows) = store.tree(id)? else { return Ok(None) };
    let titling = store.records(TITLING)?.into_iter();
    let titling = titling.filter_map(|(id, record)| Some((id, serde_json::from_value(record.value).ok()?))).collect();
    // A paused ancestor pauses the tree as well.
    Ok(Some(build_tree(rows, &titling, store.is_lineage_paused(id)?)))
}

/// Builds the tree. `is_paused_above`: whether an ancestor is paused.
fn build_tree(rows: TreeRows, titles: &Titling, is_paused_above: bool) -> Tree {
    let places: HashMap<&SessionId, usize> = rows.sessions.iter().enumerate().map(|(at, s)| (&s.id, at)).collect();
    let parents: Vec<Option<usize>> = (rows.sessions.iter())
        .map(|session| session.parent.as_ref().and_then(|parent| places.get(parent).copied()))
        .collect();
    let up = |at: usize| std::iter::successors(Some(at), |at| parents[*at]);
    let mut reserved = vec![Budget::default(); rows.sessions.len()];
    for call in &rows.reservations {
        for at in places.get(&call.session).into_iter().flat_map(|at| up(*at)) {
            add_reservation(&mut reserved[at], call);
        }
    }
    let mut asks: Vec<Vec<TreeAsk>> = vec![Vec::new(); rows.sessions.len()];
    let mut asking = HashSet::new();
    for (id, session_id, text) in open_asks(&rows) {
        let Some(asker) = places.get(session_id).copied() else { continue };
        asking.insert(asker);
        let mut path = Vec::new();
        for at in up(asker) {
            let session = &rows.sessions[at];
            path.insert(0, session.agent.clone().unwrap_or_else(|| session.title.clone()));
            let (id, session_id) = (id.to_owned(), session_id.clone());
            asks[at].push(TreeAsk { id, session_id, path: path.clone(), text: text.clone() });
        }
    }
    let mut tools: HashMap<&SessionId, CurrentTool> = HashMap::new();
    for tool in &rows.tools {
        // The one that started last wins.
        if let Some(current) = current_tool(tool) {
            tools.insert(&tool.head.session_id, current);
        }
    }
    let budgets: Vec<_> =
        rows.sessions.iter().zip(reserved).map(|(session, reserved)| rows.budget_of(session, reserved)).collect();
    // Parents come first, so their state is known.
    let mut paused = vec![false; rows.sessions.len()];
    let mut nodes = Vec::with_capacity(rows.sessions.len());
    for ((at, session), budget) in rows.sessions.into_iter().enumerate().zip(budgets) {
        let above = parents[at].map_or(is_paused_above, |parent| paused[parent]);
        paused[at] = above || session.paused;
        // A paused session does not resume when its budget is raised either.
        let is_waiting = session.status.as_ref().is_some_and(is_budget_wait);
        let is_blocked = session.blocked.is_some() && is_waiting && !paused[at];
        let state = state(&session, asking.contains(&at), paused[at], is_blocked);
        let live = state.is_live();
        nodes.push(TreeNode {
            parent_id: session.parent,
            depth: session.depth,
            agent: session.agent,
            title: session.title,
            model: session.model.map(model_ref),
            state,
            background: session.background,
            tool: tools.remove(&session.id).filter(|_| live),
            asks: std::mem::take(&mut asks[at]),
            blocked: session.blocked.filter(|_| is_blocked),
            error: session.error.filter(|_| !live),
            own: session.own,
            titling: titling(&session.id, titles, &rows.reservations),
            total: session.total,
            budget,
            created: session.created,
            started: session.started,
            ended: session.ended.filter(|_| !live),
            worktree: session.worktree,
            session_id: session.id,
        });
    }
    Tree { sessions: nodes, cursor: rows.cursor.map(|cursor| cursor.to_string()) }
}

/// The usage of a session's title, if a model wrote it or is writing it.
fn titling(session: &SessionId, titles: &Titling, calls: &[Reservation]) -> Option<TitleUsage> {
    let running = calls.iter().any(|call| call.session == *session && call.steps == STEPS);
    let used = titles.get(session.as_str()).cloned();
    (running || used.is_some()).then(|| TitleUsage { used: used.unwrap_or_default(), running })
}

/// The open asks: id, asking session, and a one-line description.
fn open_asks(rows: &TreeRows) -> Vec<(&str, &SessionId, String)> {
    let permissions = rows.permissions.iter().map(|ask| {
        let text = format!("{}: {}", ask.permission, ask.patterns.join(", "));
        (ask.id.as_str(), &ask.session_id, text)
    });
    let questions = rows.questions.iter().map(|ask| {
        let text = ask.questions.first().map(|question| question.question.clone()).unwrap_or_default();
        (ask.id.as_str(), &ask.session_id, text)
    });
    permissions.chain(questions).collect()
}

fn state(session: &TreeSession, asking: bool, paused: bool, blocked: bool) -> TreeState {
    match (&session.status, &session.error) {
        (None, _) if session.started.is_some() && session.ended.is_none() => TreeState::Interrupted,
        (None, None) => TreeState::Idle,
        (None, Some(MessageError::MessageAbortedError(_))) => TreeState::Cancelled,
        (None, Some(_)) => TreeState::Failed,
        (Some(_), _) if asking => TreeState::Asking,
        (Some(_), _) if blocked => TreeState::Blocked,
        (Some(_), _) if paused => TreeState::Paused,
        (Some(SessionStatus::Retry { .. }), _) => TreeState::Retrying,
        (Some(_), _) => TreeState::Running,
    }
}

fn add_reservation(sum: &mut Budget, call: &Reservation) {
    let Usd(cost) = sum.cost.unwrap_or_default();
    sum.cost = Some(Usd(cost + call.max_cost.0));
    sum.tokens = Some(sum.tokens.unwrap_or(0) + call.max_tokens);
    sum.steps = Some(sum.steps.unwrap_or(0) + call.steps);
}

fn current_tool(tool: &ToolPart) -> Option<CurrentTool> {
    let ToolState::Running(running) = &tool.state else { return None };
    let subject: String = tool.subject().lines().next().unwrap_or_default().chars().take(MAX_TITLE).collect();
    let title = Some(subject).filter(|subject| !subject.is_empty());
    Some(CurrentTool { tool: tool.tool.clone(), title, since: running.time.start })
}

fn model_ref(model: SessionModel) -> ModelRef {
    let variant = model.variant.filter(|variant| variant != NO_VARIANT);
    ModelRef { provider_id: model.provider_id, model_id: model.id, variant }
}
