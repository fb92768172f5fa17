//! `script`: a deterministic model that plays rules from a file. Tests use it, and its built-in demo is what a newcomer
//! without a key gets.
//!
//! A script is a JSON object. The first rule whose conditions all hold decides; `default` applies if none does.
//!
//! ```json
//! {
//!   "rules": [
//!     { "when": { "text": "fix the bug", "model": "fast-*" },
//!       "steps": [ { "text": "Looking. ", "tools": [["read", {"filePath": "a.txt"}]] }, { "text": "Fixed." } ] },
//!     { "when": { "system": "title" }, "steps": [ { "text": "A title" } ] }
//!   ],
//!   "default": [ { "text": "Hello from the script model" } ]
//! }
//! ```
//!
//! Conditions (`when`): `text` (the user's text contains it), `glob` (`*` and `?` match the whole text), `step`,
//! `message` (the user message's id), `model` (a glob), `system` (the system prompt contains it), `tools` (whether
//! there are any). Matching ignores case, except for ids.
//!
//! The step to play is the number of assistant messages since the last user message, so a script needs no memory, and
//! plays the same step again after a crash. After the last step the model says "done". All keys of a step are optional,
//! and play in this order:
//!
//! | key | effect |
//! |---|---|
//! | `delay_ms` | waits before anything else |
//! | `after` | says nothing until this file exists (an absolute path) |
//! | `http_error` | fails with this status; with `error_body` (any JSON), `headers` (an object), `retry_after` (seconds), `retry_after_ms` |
//! | `network_error` | fails without a response, with this text |
//! | `fail_times` | fails in these ways only this often per user message, then plays the step without the failure. Counted in memory |
//! | `reasoning` | emits this reasoning |
//! | `chunks` | says `w0 w1 …`, this many pieces |
//! | `text` | says this; `size` characters per piece (12) |
//! | `chunk_delay_ms` | waits before each piece |
//! | `blocks` | emits blocks with data of a vendor: `{"type": "reasoning" \| "text", "text": …, "metadata": …}`, and calls `{"type": "tool", "name": …, "input": …, "metadata": …}`; with `output`, `error` or `unfinished: true` the vendor runs the call |
//! | `hold` | after all of that, waits until this file exists (an absolute path) |
//! | `malformed` | breaks the stream with a chunk that is not JSON; `retry_after_ms` applies to this and the next two as well |
//! | `error_chunk` | breaks the stream with this error object |
//! | `silence_ms` | says nothing for this long, then fails with an idle timeout |
//! | `drop` | the stream ends here, without a reason |
//! | `tools` | calls tools: `[name, input]` or `{"name": …, "input": …, "raw": "text of the arguments"}` |
//! | `raw_args` | the text of the arguments of all calls, for broken ones |
//! | `usage` | replaces fields of the `usage` object of a chat completion |
//! | `finish` | the finish reason: `stop`, `tool_calls`, `length`, `content_filter` … |
//!
//! Nothing waits longer than ten minutes: if a file does not exist by then, the step fails for good.
//!
//! A user text that starts with `SCRIPT:` and a JSON array of steps is played before any rule. A prompt without tools
//! whose system prompt asks for a title or a summary gets one, unless a rule with `system` matches.

mod demo;
mod play;
mod rule;
mod step;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use futures::stream::Stream;

use crate::{CachedMessage, Content, ErrorClass, LlmError, LlmEvent, Prompt, PromptMessage};
use rule::Rules;
use step::Step;

/// The maximum number of `fail_times` counters; beyond it all of them start over.
const MAX_COUNTERS: usize = 4096;
/// Starts an inline script.
const INLINE: &str = "SCRIPT:";

/// A deterministic model; see the module's documentation for the format.
#[derive(Debug)]
pub struct Script {
    /// `None` for the demo, which decides by code.
    rules: Option<Rules>,
    /// How often a step of a message has failed.
    failures: Mutex<HashMap<String, u32>>,
}

/// Why a script is invalid.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// Not JSON, or not in the format of a script.
    #[error("the script is not valid: {0}; see the documented keys of rules and steps")]
    Format(#[from] serde_json::Error),
    /// A value beyond its limit.
    #[error("the script is not valid: {0}")]
    Bound(String),
}

impl Script {
    /// Parses a script.
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        let rules: Rules = serde_json::from_str(text)?;
        rules.steps().try_for_each(Step::check)?;
        Ok(Self { rules: Some(rules), failures: Mutex::default() })
    }

    /// The offline demo: explores the directory with real tools, repairs the sample project if it is there, and says
    /// plainly that it is not a language model.
    pub fn demo() -> Self {
        Self { rules: None, failures: Mutex::default() }
    }

    /// Plays the step that the prompt calls for.
    pub(crate) fn stream(&self, prompt: &Prompt) -> impl Stream<Item = Result<LlmEvent, LlmError>> + Send + 'static {
        let turn = Turn::of(prompt);
        play::play(match self.choose(prompt, &turn) {
            Ok(step) => {
                let failing = step.fails() && self.still_failing(&step, &turn);
                play::plan(&step, failing, &turn.call_prefix())
            }
            Err(error) => vec![play::Action::Fail(Box::new(LlmError::new(
                ErrorClass::Invalid,
                format!("The inline script cannot be played: {error}"),
            )))],
        })
    }

    /// The step to play. Pure.
    fn choose(&self, prompt: &Prompt, turn: &Turn<'_>) -> Result<Step, ScriptError> {
        let rules = self.rules.as_ref();
        if let Some(text) = rule::side_request(prompt, turn) {
            let own = rules.and_then(|rules| rules.pick(prompt, turn, true));
            return Ok(own.unwrap_or_else(|| Step::say(text)));
        }
        if let Some(step) = turn.inline()? {
            return Ok(step);
        }
        Ok(match rules {
            Some(rules) => rules.pick(prompt, turn, false).unwrap_or_else(|| rules.fallback(turn)),
            None => demo::step(prompt, turn),
        })
    }

    fn still_failing(&self, step: &Step, turn: &Turn<'_>) -> bool {
        let Some(times) = step.fail_times else { return true };
        let key = format!("{}#{}", turn.call_prefix(), turn.step);
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() >= MAX_COUNTERS && !failures.contains_key(&key) {
            failures.clear();
        }
        let count = failures.entry(key).or_default();
        *count = count.saturating_add(1);
        *count <= times
    }
}

/// The position of a prompt in a conversation.
struct Turn<'a> {
    /// The texts of the user's last message.
    texts: Vec<&'a str>,
    /// The messages after it.
    since: &'a [CachedMessage],
    /// The number of assistant messages since then.
    step: usize,
    /// The number of messages up to and including the last user message.
    before: usize,
    message_id: Option<&'a str>,
}

impl<'a> Turn<'a> {
    fn of(prompt: &'a Prompt) -> Self {
        let last = prompt.messages.iter().rposition(|message| matches!(**message, PromptMessage::User(_)));
        let texts = match last.map(|last| &*prompt.messages[last]) {
            Some(PromptMessage::User(content)) => content.iter().filter_map(text_of).collect(),
            _ => Vec::new(),
        };
        let since = &prompt.messages[last.map_or(0, |last| last + 1)..];
        let step = since.iter().filter(|message| matches!(***message, PromptMessage::Assistant(_))).count();
        Self {
            texts,
            since,
            step,
            before: prompt.messages.len() - since.len(),
            message_id: prompt.settings.message_id.as_deref(),
        }
    }

    /// The step of an inline script, if the user's message contains one.
    fn inline(&self) -> Result<Option<Step>, ScriptError> {
        let Some(script) = self.texts.iter().find_map(|text| text.trim_start().strip_prefix(INLINE)) else {
            return Ok(None);
        };
        // What follows the array does not belong to the script, for example reminders that an engine adds.
        let mut documents = serde_json::Deserializer::from_str(script).into_iter::<Vec<Step>>();
        let steps = documents.next().transpose()?.unwrap_or_default();
        steps.iter().try_for_each(Step::check)?;
        Ok(Some(Step::nth(&steps, self.step)))
    }

    /// The prefix for the ids of this message's calls: the same after a crash, and unique within a conversation.
    fn call_prefix(&self) -> String {
        let tail = |id: &str| id[id.floor_char_boundary(id.len().saturating_sub(10))..].to_owned();
        format!("call_{}_{}", self.message_id.map_or_else(|| self.before.to_string(), tail), self.step)
    }
}

fn text_of(content: &Content) -> Option<&str> {
    match content {
        Content::Text(text) => Some(text),
        Content::Image { .. } | Content::File { .. } => None,
    }
}
