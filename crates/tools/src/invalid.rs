//! The `invalid` tool: what a call becomes that names no tool, or whose arguments are no JSON.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::context::Context;
use crate::tool::{Effect, Need, Output, ToolError, TypedTool};
use crate::write::object;

/// What is shown of arguments that are no JSON.
const SHOWN_BYTES: usize = 2000;

/// Do not use.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Input {
    /// The tool that was called.
    #[expect(dead_code, reason = "part of the recorded input; clients show it")]
    tool: String,
    /// What was wrong.
    error: String,
}

pub(crate) struct Invalid;

impl TypedTool for Invalid {
    type Input = Input;
    const NAME: &'static str = "invalid";
    const EFFECT: Effect = Effect::ReadOnly;

    async fn needs(&self, _: &Input, _: &Context) -> Result<Vec<Need>, ToolError> {
        Ok(Vec::new())
    }

    async fn run(&self, input: Input, _: Context) -> Result<Output, ToolError> {
        Ok(output(&input.error))
    }
}

/// The outcome of a call of a tool that does not exist.
pub fn invalid_tool_output(tool: &str, available: &[&str]) -> Output {
    output(&format!("Model tried to call unavailable tool '{tool}'. Available tools: {}.", available.join(", ")))
}

/// The outcome of a call whose arguments are no JSON.
pub fn invalid_json_output(tool: &str, arguments: &str, error: &str) -> Output {
    let shown = &arguments[..arguments.floor_char_boundary(SHOWN_BYTES)];
    output(&format!("Invalid input for tool {tool}: JSON parsing failed: Text: {shown}.\nError message: {error}"))
}

fn output(error: &str) -> Output {
    Output {
        title: "Invalid Tool".into(),
        output: format!("The arguments provided to the tool are invalid: {error}"),
        metadata: object(json!({"truncated": false})),
        ..Output::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recorded_shape() {
        let output = invalid_tool_output("frobnicate", &["bash", "edit"]);
        assert_eq!(output.title, "Invalid Tool");
        let want = "The arguments provided to the tool are invalid: Model tried to call unavailable tool 'frobnicate'. \
                    Available tools: bash, edit.";
        assert_eq!(output.output, want);
        let long = "é".repeat(5000);
        assert!(invalid_json_output("bash", &long, "EOF").output.len() < 2300);
    }
}
