//! The model of the recordings: it plays the script in a prompt, or one of a few by keyword.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use serde::Deserialize;
use serde_json::{Value, json};
use testkit::{ModelCall, ModelServer};
use tokio::sync::watch;

/// One answer of a script.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Step {
    reasoning: String,
    text: String,
    tools: Vec<(String, Value)>,
    raw_args: Option<String>,
    chunks: usize,
    /// Slow answers wait until the test lets them continue, however slow they were.
    chunk_delay_ms: u64,
    http_error: Option<u16>,
    error_body: Value,
    retry_after: Option<u64>,
    fail_times: Option<usize>,
    malformed: bool,
    error_chunk: Option<Value>,
    drop: bool,
    finish: Option<String>,
    usage: Option<Value>,
    /// Sends nothing more until the client hangs up.
    #[serde(skip)]
    endless: bool,
}

/// How often each script failed.
type Failures = Arc<Mutex<HashMap<String, usize>>>;

/// Answers every request. Slow answers stop after their first chunk until `go_on` is true.
pub async fn serve(mut server: ModelServer, go_on: watch::Receiver<bool>) {
    let failures = Failures::default();
    loop {
        let call = server.any_call().await;
        tokio::spawn(answer(call, go_on.clone(), failures.clone()));
    }
}

async fn answer(mut call: ModelCall, mut go_on: watch::Receiver<bool>, failures: Failures) {
    if call.request.tools().is_empty() {
        call.text("Fake session title").await;
        return call.finish("stop").await;
    }
    let prompt = call.request.last_text("user");
    let step = step(&prompt, call.request.messages());
    if let Some(status) = step.http_error
        && should_fail(&prompt, &step, &failures)
    {
        let retry = step.retry_after.map(|seconds| seconds.to_string());
        let headers: Vec<(&str, &str)> = retry.iter().map(|seconds| ("retry-after", seconds.as_str())).collect();
        return call.error(status, step.error_body, &headers);
    }
    let has_reasoning = !step.reasoning.is_empty();
    if has_reasoning {
        call.reasoning(step.reasoning).await;
    }
    for word in step.text.split_inclusive(' ') {
        call.text(word).await;
    }
    for n in 0..step.chunks {
        call.text(format!("w{n} ")).await;
        if step.chunk_delay_ms > 0 {
            // The test may be over.
            let _ = go_on.wait_for(|go_on| *go_on).await;
        }
    }
    if step.endless {
        return call.closed().await;
    }
    if step.malformed {
        call.raw("data: {not json\n\n").await;
    }
    if let Some(error) = step.error_chunk {
        call.raw(format!("data: {error}\n\n")).await;
    }
    if step.drop {
        // The answer ends here.
        return drop(call);
    }
    let before = call.request.messages().len();
    for (n, (name, input)) in step.tools.iter().enumerate() {
        let arguments = step.raw_args.clone().unwrap_or_else(|| input.to_string());
        call.tool_text(&format!("call_{before}_{n}"), name, &arguments).await;
    }
    call.usage(step.usage.unwrap_or_else(|| usage(has_reasoning)));
    let reason = if step.tools.is_empty() { "stop" } else { "tool_calls" };
    call.finish(step.finish.as_deref().unwrap_or(reason)).await;
}

fn usage(has_reasoning: bool) -> Value {
    let mut usage = json!({"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120,
        "prompt_tokens_details": {"cached_tokens": 10}});
    if has_reasoning {
        usage["completion_tokens_details"] = json!({"reasoning_tokens": 5});
    }
    usage
}

fn step(prompt: &str, messages: &[Value]) -> Step {
    if let Some(script) = prompt.trim_start().strip_prefix("SCRIPT:") {
        // The engine may add text after the script.
        let steps = serde_json::Deserializer::from_str(script).into_iter::<Vec<Step>>().next();
        let steps = steps.expect("a script has steps").expect("a script is a list of steps");
        let answers = messages.iter().rev().take_while(|message| message["role"] != "user");
        let answers = answers.filter(|message| message["role"] == "assistant").count();
        return steps.get(answers).cloned().unwrap_or_else(|| Step { text: "done".to_owned(), ..Step::default() });
    }
    let (reasoning, text) = if prompt.contains("kw:reason") {
        ("Let me think about it. ", "Reasoned answer.")
    } else {
        ("", "Hello from fake LLM")
    };
    Step {
        reasoning: reasoning.to_owned(),
        text: text.to_owned(),
        endless: prompt.contains("kw:slow"),
        ..Step::default()
    }
}

fn should_fail(prompt: &str, step: &Step, failures: &Failures) -> bool {
    let mut failures = failures.lock().unwrap();
    let count = failures.entry(prompt.to_owned()).or_default();
    *count += 1;
    step.fail_times.is_none_or(|times| *count <= times)
}
