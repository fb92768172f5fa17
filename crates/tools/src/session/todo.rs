//! The `todowrite` tool: the agent's todo list.

use api::Todo;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::files::write::object;
use crate::tool::context::Context;
use crate::tool::{Change, Effect, Need, Output, ToolError, TypedTool};

/// The maximum number of entries.
const MAX_TODOS: usize = 200;

/// Replaces your whole task list: tasks that you leave out are removed. The human sees it.
///
/// Use it for work of three or more steps. Keep one task `in_progress`, and mark a task `completed` as soon as it is done.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Input {
    /// The whole new list.
    todos: Vec<TodoInput>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct TodoInput {
    /// The task, in a few words.
    content: String,
    /// `pending`, `in_progress`, `completed` or `cancelled`.
    status: String,
    /// `high`, `medium` or `low`.
    priority: String,
}

pub(crate) struct TodoWrite;

impl TypedTool for TodoWrite {
    type Input = Input;
    const NAME: &'static str = "todowrite";
    // The list is stored with the outcome, so a call without one changed nothing.
    const EFFECT: Effect = Effect::ReadOnly;

    async fn needs(&self, _: &Input, _: &Context) -> Result<Vec<Need>, ToolError> {
        Ok(vec![Need::new("todowrite", "*")])
    }

    async fn run(&self, input: Input, _: Context) -> Result<Output, ToolError> {
        if input.todos.len() > MAX_TODOS {
            let count = input.todos.len();
            return Err(ToolError::failed(format!("{count} todos are too many; at most {MAX_TODOS} are kept.")));
        }
        let todo = |entry: TodoInput| Todo { content: entry.content, status: entry.status, priority: entry.priority };
        let todos: Vec<Todo> = input.todos.into_iter().map(todo).collect();
        let open = todos.iter().filter(|todo| todo.status != "completed").count();
        Ok(Output {
            title: format!("{open} todos"),
            output: serde_json::to_string_pretty(&todos).map_err(|error| ToolError::failed(error.to_string()))?,
            metadata: object(json!({"todos": todos, "truncated": false})),
            changes: vec![Change::Todos(todos)],
            ..Output::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::registry::testing::Workspace;

    #[tokio::test]
    async fn output_matches_the_recording() {
        let ws = Workspace::new();
        let todos = json!([
            {"content": "First", "status": "in_progress", "priority": "high"},
            {"content": "Second", "status": "completed", "priority": "low"},
        ]);
        let output = ws.run("todowrite", json!({"todos": todos})).await.unwrap();
        assert_eq!(output.title, "1 todos");
        assert!(output.output.starts_with("[\n  {\n    \"content\": \"First\",\n    \"status\": \"in_progress\""));
        assert_eq!(output.metadata, object(json!({"todos": todos, "truncated": false})));
        assert!(matches!(&output.changes[..], [Change::Todos(list)] if list.len() == 2));
        assert_eq!(ws.needs("todowrite", json!({"todos": []})).await.unwrap(), [Need::new("todowrite", "*")]);
        let many = vec![todos[0].clone(); MAX_TODOS + 1];
        assert!(ws.fail("todowrite", json!({"todos": many})).await.contains("too many"));
    }
}
