//! The `task` tool as the model sees it. [`delegate`](crate::subagent::delegate) runs the calls: that takes sessions,
//! which tools do not have.

use std::fmt::Write as _;
use std::sync::{Arc, LazyLock};

use api::{Agent, AgentMode, Budget, Json, SerializedJson};
use futures::future::BoxFuture;
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;
use tools::{Context, Effect, Need, Output, Tool, ToolError, TypedTool, erase};

/// The name of the tool and of its permission.
pub(crate) const TOOL: &str = "task";

/// Hands a piece of work to a subagent and returns what it reports.
///
/// The subagent works in a session of its own: it sees nothing of this conversation, and of its work you see only its last
/// message. So the prompt must hold everything it needs, and say what it should report. Use it for work that would fill this
/// conversation with things nobody needs later, such as a long search, or that can be done beside other work: several calls
/// in one message run at the same time. Do not use it for what one or two calls of other tools can do. The user does not
/// see the report: tell them what matters. To ask the same subagent again, pass the id of its task as `task_id`; it
/// remembers its work. With `background` the call returns at once and the report comes later, as a message: for work that
/// you do not need for your next steps.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct TaskInput {
    /// The work in three to five words.
    pub(crate) description: String,
    /// The work in full, and what to report.
    pub(crate) prompt: String,
    /// The agent that should do it.
    pub(crate) subagent_type: String,
    /// The id of an earlier task of this session, to continue it.
    #[serde(default, alias = "session_id")]
    pub(crate) task_id: Option<String>,
    /// The command that asked for it.
    #[serde(default)]
    #[expect(dead_code, reason = "for clients, which read it from the call's input")]
    pub(crate) command: Option<String>,
    /// Whether to continue without waiting for the report.
    #[serde(default)]
    pub(crate) background: Option<bool>,
    /// What the subagent and everything below it may use. Not offered to models: OpenCode's tool has no such parameter.
    #[serde(default)]
    #[schemars(skip)]
    pub(crate) budget: Option<Budget>,
}

/// The text that every agent reads about the tool. Built once, because it comes with a schema and every step reads it.
static TEXT: LazyLock<Arc<str>> = LazyLock::new(|| erase(TaskSchema { names: Vec::new() }).description());

/// The tool for these agents.
pub(crate) fn tool(agents: &IndexMap<String, Agent>) -> Arc<dyn Tool> {
    let names = callable(agents).map(|agent| agent.name.clone()).collect();
    Arc::new(TaskTool { inner: erase(TaskSchema { names }), description: describe(callable(agents)).into() })
}

/// The tool's description with only the agents that may be called.
pub(crate) fn description(agents: &IndexMap<String, Agent>, denied: impl Fn(&str) -> bool) -> String {
    describe(callable(agents).filter(|agent| !denied(&agent.name)))
}

/// The error for an agent that cannot be called.
pub(crate) fn unknown(agent: &str) -> String {
    format!("Unknown agent type: {agent} is not a valid agent type")
}

fn callable(agents: &IndexMap<String, Agent>) -> impl Iterator<Item = &Agent> {
    agents.values().filter(|agent| agent.mode != AgentMode::Primary && agent.hidden != Some(true))
}

fn describe<'a>(agents: impl Iterator<Item = &'a Agent>) -> String {
    let mut text = format!("{}\n\nThe agents:", *TEXT);
    for agent in agents {
        let what = agent.description.as_deref().unwrap_or("Made for this project; use it when the user asks for it.");
        let _ = write!(text, "\n- {}: {what}", agent.name);
    }
    text
}

/// The tool with a description that lists the agents.
struct TaskTool {
    inner: Arc<dyn Tool>,
    description: Arc<str>,
}

impl Tool for TaskTool {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn description(&self) -> Arc<str> {
        self.description.clone()
    }

    fn schema(&self) -> SerializedJson {
        self.inner.schema()
    }

    fn effect(&self) -> Effect {
        self.inner.effect()
    }

    fn needs<'a>(&'a self, input: &'a Json, ctx: &'a Context) -> BoxFuture<'a, Result<Vec<Need>, ToolError>> {
        self.inner.needs(input, ctx)
    }

    fn run<'a>(&'a self, input: Json, ctx: Context) -> BoxFuture<'a, Result<Output, ToolError>> {
        self.inner.run(input, ctx)
    }
}

struct TaskSchema {
    names: Vec<String>,
}

impl TypedTool for TaskSchema {
    type Input = TaskInput;
    const NAME: &'static str = TOOL;
    const EFFECT: Effect = Effect::Resumes;

    async fn needs(&self, input: &TaskInput, _: &Context) -> Result<Vec<Need>, ToolError> {
        if !self.names.contains(&input.subagent_type) {
            return Err(ToolError::failed(unknown(&input.subagent_type)));
        }
        let need = Need::new(TOOL, input.subagent_type.clone());
        let need = need.with("description", input.description.clone());
        Ok(vec![need.with("subagent_type", input.subagent_type.clone())])
    }

    async fn run(&self, _: TaskInput, _: Context) -> Result<Output, ToolError> {
        Err(ToolError::failed("A subagent works only for a session; this call belongs to none"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agents() -> IndexMap<String, Agent> {
        let agent = |name: &str, mode: &str| {
            let json = serde_json::json!({"name": name, "mode": mode, "permission": [], "options": {}});
            (name.to_owned(), serde_json::from_value(json).unwrap())
        };
        [agent("build", "primary"), agent("general", "subagent"), agent("helper", "all")].into_iter().collect()
    }

    #[test]
    fn the_schema_is_the_recorded_one() {
        let schema = tool(&agents()).schema();
        let mut keys: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
        keys.sort();
        assert_eq!(keys, ["background", "command", "description", "prompt", "subagent_type", "task_id"]);
        assert_eq!(schema["required"], serde_json::json!(["description", "prompt", "subagent_type"]));
        let old = serde_json::json!({"description": "d", "prompt": "p", "subagent_type": "x", "session_id": "ses_1"});
        assert_eq!(serde_json::from_value::<TaskInput>(old).unwrap().task_id.as_deref(), Some("ses_1"));
    }

    #[test]
    fn only_callable_agents_are_listed() {
        let all = tool(&agents()).description();
        assert!(all.contains("\n- general:") && all.contains("\n- helper:") && !all.contains("\n- build:"), "{all}");
        let some = description(&agents(), |agent| agent == "general");
        assert!(!some.contains("\n- general:") && some.contains("\n- helper:"), "{some}");
    }
}
