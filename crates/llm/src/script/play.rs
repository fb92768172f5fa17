//! Turns a step into a list of actions, and performs them as a stream.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use api::{Json, JsonMap};
use futures::stream::{self, Stream};
use serde_json::json;

use super::Step;
use super::step::{Block, MAX_DELAY};
use crate::openai::{Decoder, finish_reason, usage};
use crate::{BlockKind, FinishReason, LlmError, LlmEvent, classify};

/// Characters per piece of text.
const PIECE_CHARS: usize = 12;
/// The number of pieces that arguments are split into.
const ARGUMENT_PIECES: usize = 3;
/// The interval between checks for a file.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// A chunk that is not JSON.
const BROKEN_CHUNK: &str = r#"{"choices":[{"delta":{"content":"cut"#;

/// An action of the stream.
#[derive(Debug, PartialEq)]
pub enum Action {
    Wait(Duration),
    /// Waits until the file exists.
    Until(PathBuf),
    Event(LlmEvent),
    Fail(Box<LlmError>),
}

/// Plans the actions of a step. Errors come from the same code as real ones. Pure.
pub fn plan(step: &Step, failing: bool, call_prefix: &str) -> Vec<Action> {
    let mut plan = Plan { pause: Duration::from_millis(step.chunk_delay_ms), actions: Vec::new() };
    if step.delay_ms > 0 {
        plan.actions.push(Action::Wait(Duration::from_millis(step.delay_ms)));
    }
    plan.until(step.after.as_deref());
    if failing && step.fails_first() {
        plan.fail(first_error(step));
        return plan.actions;
    }
    let size = step.size.unwrap_or(PIECE_CHARS);
    if !step.reasoning.is_empty() {
        plan.block(BlockKind::Reasoning, &step.reasoning, size, JsonMap::new());
    }
    let speaks = step.chunks > 0 || !step.text.is_empty();
    if speaks {
        plan.actions.push(Action::Event(LlmEvent::begin(BlockKind::Text)));
    }
    for number in 0..step.chunks {
        plan.event(LlmEvent::Text(format!("w{number} ")));
    }
    for piece in pieces(&step.text, size) {
        plan.event(LlmEvent::Text(piece));
    }
    let written = blocks(step, call_prefix, size, &mut plan);
    plan.until(step.hold.as_deref());
    let broken =
        if step.malformed { Some(BROKEN_CHUNK.to_owned()) } else { step.error_chunk.as_ref().map(Json::to_string) };
    if failing && let Some(Err(mut error)) = broken.map(|chunk| Decoder::default().push(&chunk)) {
        error.retry_after = step.retry_after_ms.map(Duration::from_millis);
        plan.fail(error);
        return plan.actions;
    }
    if let Some(silence) = step.silence_ms.filter(|_| failing) {
        plan.actions.push(Action::Wait(Duration::from_millis(silence)));
        plan.fail(LlmError::retryable(format!("The script sent nothing for {silence} ms; the stream was closed")));
        return plan.actions;
    }
    if step.drop {
        plan.actions.push(Action::Event(LlmEvent::Finish(FinishReason::Unknown)));
        return plan.actions;
    }
    for (index, call) in (written..).zip(&step.tools) {
        let input = step.raw_args.clone().unwrap_or_else(|| call.arguments());
        plan.call(index, call_prefix, call.name(), input, false, JsonMap::new());
    }
    if speaks && step.blocks.is_empty() {
        plan.actions.push(Action::Event(LlmEvent::end()));
    }
    end(step, &mut plan);
    plan.actions
}

/// Plans the blocks with data. Returns how many calls are among them.
fn blocks(step: &Step, prefix: &str, size: usize, plan: &mut Plan) -> usize {
    let mut index = 0;
    for block in &step.blocks {
        match block {
            Block::Text { text, metadata } => plan.block(BlockKind::Text, text, size, metadata.clone()),
            Block::Reasoning { text, metadata } => plan.block(BlockKind::Reasoning, text, size, metadata.clone()),
            Block::Tool { name, input, output, error, unfinished, metadata } => {
                let result =
                    output.as_ref().map(|output| (output, false)).or(error.as_ref().map(|error| (error, true)));
                let executed = result.is_some() || *unfinished;
                plan.call(index, prefix, name, Json::Object(input.clone()).to_string(), executed, metadata.clone());
                if let Some((output, is_error)) = result {
                    let (output, metadata) = (output.clone(), JsonMap::new());
                    plan.event(LlmEvent::ToolResult { index, output, is_error, metadata });
                }
                index += 1;
            }
        }
    }
    index
}

fn end(step: &Step, plan: &mut Plan) {
    let thought = if step.reasoning.is_empty() { 0 } else { 5 };
    let mut tokens = json!({
        "prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120,
        "prompt_tokens_details": {"cached_tokens": 10}, "completion_tokens_details": {"reasoning_tokens": thought},
    });
    if let Some(tokens) = tokens.as_object_mut() {
        tokens.extend(step.usage.clone());
    }
    let tokens = serde_json::from_value(tokens).map(|wire| usage(&wire)).unwrap_or_default();
    plan.actions.push(Action::Event(LlmEvent::Usage(tokens)));
    let reason = match &step.finish {
        Some(word) => finish_reason(word),
        None if step.tools.is_empty() && !step.blocks.iter().any(Block::is_own_call) => FinishReason::Stop,
        None => FinishReason::ToolCalls,
    };
    plan.actions.push(Action::Event(LlmEvent::Finish(reason)));
}

fn first_error(step: &Step) -> LlmError {
    let Some(status) = step.http_error else {
        let text = step.network_error.as_deref().unwrap_or_default();
        return LlmError::retryable(format!("The script cannot be reached: {text}"));
    };
    let text = |value: &Json| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut headers: JsonMap = step.headers.clone();
    headers.extend(step.retry_after.clone().map(|seconds| ("retry-after".to_owned(), seconds)));
    headers.extend(step.retry_after_ms.map(|ms| ("retry-after-ms".to_owned(), ms.into())));
    let headers = headers.iter().map(|(name, value)| (name.to_lowercase(), text(value)));
    let body = match &step.error_body {
        Some(body) => text(body),
        None => json!({"error": {"message": format!("scripted error {status}"), "type": "script"}}).to_string(),
    };
    classify::http_error(status, "", headers, &body, SystemTime::now()).at("script:")
}

/// The actions so far; a pause precedes each piece of an answer.
struct Plan {
    pause: Duration,
    actions: Vec<Action>,
}

impl Plan {
    fn event(&mut self, event: LlmEvent) {
        if !self.pause.is_zero() {
            self.actions.push(Action::Wait(self.pause));
        }
        self.actions.push(Action::Event(event));
    }

    fn block(&mut self, kind: BlockKind, text: &str, size: usize, metadata: JsonMap) {
        self.actions.push(Action::Event(LlmEvent::begin(kind)));
        for piece in pieces(text, size) {
            self.event(if kind == BlockKind::Text { LlmEvent::Text(piece) } else { LlmEvent::Reasoning(piece) });
        }
        self.actions.push(Action::Event(LlmEvent::End { metadata }));
    }

    fn call(&mut self, index: usize, prefix: &str, name: &str, input: String, executed: bool, metadata: JsonMap) {
        let (id, name) = (format!("{prefix}_{index}"), name.to_owned());
        self.event(LlmEvent::ToolStart { index, id, name, provider_executed: executed });
        for delta in pieces(&input, input.chars().count().div_ceil(ARGUMENT_PIECES)) {
            self.event(LlmEvent::ToolInput { index, delta });
        }
        self.actions.push(Action::Event(LlmEvent::ToolEnd { index, input, metadata }));
    }

    fn until(&mut self, file: Option<&Path>) {
        self.actions.extend(file.map(|file| Action::Until(file.to_owned())));
    }

    fn fail(&mut self, error: LlmError) {
        self.actions.push(Action::Fail(Box::new(error)));
    }
}

fn pieces(text: &str, size: usize) -> Vec<String> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.char_indices().nth(size.max(1)).map_or(rest.len(), |(at, _)| at);
        let (piece, tail) = rest.split_at(end);
        pieces.push(piece.to_owned());
        rest = tail;
    }
    pieces
}

/// Performs the actions; dropping the stream ends every wait.
pub fn play(actions: Vec<Action>) -> impl Stream<Item = Result<LlmEvent, LlmError>> + Send + 'static {
    stream::unfold(actions.into_iter(), async |mut actions| {
        loop {
            match actions.next()? {
                Action::Wait(time) => tokio::time::sleep(time).await,
                Action::Until(file) => {
                    if let Err(error) = until(&file, MAX_DELAY).await {
                        return Some((Err(error), Vec::new().into_iter()));
                    }
                }
                Action::Event(event) => return Some((Ok(event), actions)),
                Action::Fail(error) => return Some((Err(*error), actions)),
            }
        }
    })
}

/// Waits until the file exists. The error is not retryable: a retry would wait again.
pub async fn until(file: &Path, longest: Duration) -> Result<(), LlmError> {
    let there = async {
        while !file.exists() {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    tokio::time::timeout(longest, there).await.map_err(|_| {
        LlmError::invalid(format!("The script waited {longest:?} for {}, which is not there", file.display()))
    })
}
