//! The sessions of subagents below a task, as tasks with their place in the tree. What subagents say stays private.

use api::{Json, JsonMap, SessionId, Tree, TreeNode, TreeState, Usage};
use serde_json::json;

use super::{Request, results};
use crate::model::{Task, TaskState, TaskStatus};
use crate::{Error, wire};

/// The most sessions that are shown.
const MAX_SESSIONS: usize = 500;

pub(super) async fn tree(request: &Request<'_>) -> Result<Json, Error> {
    request.params.only(&["task_id", "metadata"])?;
    request.params.metadata()?;
    let id = request.params.required_text("task_id")?;
    let session = request.service.session_of_task(request.who, id)?;
    let tree = request.host().tree(&session).await.map_err(|error| request.upstream(Some(&session)).error(error))?;
    let total = tree.sessions.len().saturating_sub(1);
    let items: Vec<Json> = tasks(&tree, id, &session).iter().map(|task| wire::task_json(task, request.line)).collect();
    Ok(json!({ "items": items, "total": total }))
}

/// The descendants of a session as tasks, each after its parent.
fn tasks(tree: &Tree, root_task: &str, root: &SessionId) -> Vec<Task> {
    let descendants = tree.sessions.iter().filter(|node| node.session_id != *root).take(MAX_SESSIONS);
    descendants.map(|node| task(node, root_task, root)).collect()
}

fn task(node: &TreeNode, root_task: &str, root: &SessionId) -> Task {
    let (state, since) = match (node.state, node.ended.or(node.started)) {
        // It has had no turn yet.
        (TreeState::Idle, None) => (TaskState::Submitted, node.created),
        (state, since) => (task_state(state), since.unwrap_or(node.created)),
    };
    let parent = node.parent_id.as_ref().unwrap_or(root);
    let mut place = json!({
        "task_id": root_task,
        "session_id": node.session_id,
        // The task's own session appears as the task.
        "parent_id": if parent == root { root_task } else { parent.as_str() },
        "depth": node.depth,
        "state": node.state,
        "background": node.background,
        "created": node.created,
    });
    let optional = [
        ("agent", node.agent.as_ref().map(|agent| json!(agent))),
        ("model", node.model.as_ref().map(|model| json!(model))),
        ("tool", node.tool.as_ref().map(|tool| json!(tool.tool))),
        ("started", node.started.map(Json::from)),
        ("ended", node.ended.map(Json::from)),
    ];
    for (key, value) in optional {
        if let Some(value) = value {
            place[key] = value;
        }
    }
    let shared = json!({
        "session": { "id": node.session_id, "title": node.title },
        "usage": usage(&node.total),
    });
    Task {
        id: node.session_id.to_string(),
        context_id: results::context_of(&node.session_id),
        status: TaskStatus { state, message: None, timestamp: since },
        artifacts: Vec::new(),
        history: Vec::new(),
        metadata: JsonMap::from_iter([
            ("shared".to_owned(), shared),
            ("trefoil".to_owned(), json!({ "subagent": place })),
        ]),
    }
}

fn task_state(state: TreeState) -> TaskState {
    match state {
        TreeState::Running
        | TreeState::Retrying
        | TreeState::Paused
        | TreeState::Blocked
        // It goes on once somebody resumes it.
        | TreeState::Interrupted => TaskState::Working,
        TreeState::Asking => TaskState::InputRequired,
        TreeState::Idle => TaskState::Completed,
        TreeState::Failed => TaskState::Failed,
        TreeState::Cancelled => TaskState::Canceled,
    }
}

/// What a session and its descendants have used, as tasks report it.
fn usage(usage: &Usage) -> Json {
    let tokens = &usage.tokens;
    json!({
        "input_tokens": tokens.input,
        "output_tokens": tokens.output,
        "reasoning_tokens": tokens.reasoning,
        "total_tokens": usage.all_tokens(),
        "cache_tokens": { "read_tokens": tokens.cache.read, "write_tokens": tokens.cache.write },
        "cost": usage.cost,
    })
}

#[cfg(test)]
mod tests;
