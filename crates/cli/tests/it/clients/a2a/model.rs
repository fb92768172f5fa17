//! A model for the real OpenCode that plays the scripts in prompts as Trefoil's own script model does.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use testkit::{ModelCall, ModelServer};

/// How often to look for the file that lets the model go on, which no event tells.
const LOOK: Duration = Duration::from_millis(10);

/// One answer of a script.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Step {
    reasoning: String,
    text: String,
    tools: Vec<(String, Value)>,
    hold: Option<PathBuf>,
}

/// Answers every request.
pub async fn serve(mut server: ModelServer) {
    loop {
        let call = server.any_call().await;
        tokio::spawn(answer(call));
    }
}

async fn answer(mut call: ModelCall) {
    if call.request.tools().is_empty() {
        call.text("A title").await;
        return call.finish("stop").await;
    }
    let step = step(&call.request.last_text("user"), call.request.messages());
    if !step.reasoning.is_empty() {
        call.reasoning(step.reasoning).await;
    }
    if !step.text.is_empty() {
        call.text(step.text).await;
    }
    if let Some(gate) = step.hold {
        while !gate.exists() {
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                // The turn was stopped.
                () = call.closed() => return,
            }
        }
    }
    let before = call.request.messages().len();
    for (n, (name, input)) in step.tools.iter().enumerate() {
        call.tool_text(&format!("call_{before}_{n}"), name, &input.to_string()).await;
    }
    call.usage(json!({"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}));
    call.finish(if step.tools.is_empty() { "stop" } else { "tool_calls" }).await;
}

/// The step that the prompt calls for.
fn step(prompt: &str, messages: &[Value]) -> Step {
    let Some(script) = prompt.trim_start().strip_prefix("SCRIPT:") else {
        return Step { text: "There is no script.".to_owned(), ..Step::default() };
    };
    // OpenCode may add text after the script.
    let steps = serde_json::Deserializer::from_str(script).into_iter::<Vec<Step>>().next();
    let steps = steps.expect("a script has steps").expect("a script is a list of steps");
    let answers = messages.iter().rev().take_while(|message| message["role"] != "user");
    let answers = answers.filter(|message| message["role"] == "assistant").count();
    steps.get(answers).cloned().unwrap_or_else(|| Step { text: "done".to_owned(), ..Step::default() })
}
