//! The `invalid` tool: stands in for a call that names an unknown tool, or whose arguments are not JSON.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::files::write::object;
use crate::tool::context::Context;
use crate::tool::{Effect, Need, Output, ToolError, TypedTool};

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
    fn output_matches_the_recording() {
        let output = output("Model tried to call unavailable tool 'frobnicate'. Available tools: bash, edit.");
        assert_eq!(output.title, "Invalid Tool");
        let want = "The arguments provided to the tool are invalid: Model tried to call unavailable tool 'frobnicate'. \
                    Available tools: bash, edit.";
        assert_eq!(output.output, want);
    }
}
