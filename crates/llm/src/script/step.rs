//! A step of a script: what the model does in one answer.

use std::path::PathBuf;
use std::time::Duration;

use api::{Json, JsonMap};
use serde::Deserialize;

use super::ScriptError;

/// The maximum delay in a script, so that a typo does not hang a test for days.
pub const MAX_DELAY: Duration = Duration::from_secs(600);
/// The maximum number of pieces that `chunks` may request.
const MAX_CHUNKS: u32 = 1_000_000;

/// One answer; the module's documentation explains the keys.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Step {
    pub delay_ms: u64,
    pub after: Option<PathBuf>,
    pub http_error: Option<u16>,
    pub error_body: Option<Json>,
    pub headers: JsonMap,
    pub retry_after: Option<Json>,
    pub retry_after_ms: Option<u64>,
    pub network_error: Option<String>,
    pub fail_times: Option<u32>,
    pub reasoning: String,
    pub chunks: u32,
    pub text: String,
    pub size: Option<usize>,
    pub chunk_delay_ms: u64,
    pub hold: Option<PathBuf>,
    #[serde(deserialize_with = "truthy")]
    pub malformed: bool,
    pub error_chunk: Option<Json>,
    pub silence_ms: Option<u64>,
    #[serde(deserialize_with = "truthy")]
    pub drop: bool,
    pub blocks: Vec<Block>,
    pub tools: Vec<ScriptedCall>,
    pub raw_args: Option<String>,
    pub usage: JsonMap,
    pub finish: Option<String>,
}

/// A block with what its vendor wants back.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
pub enum Block {
    Text {
        #[serde(default)]
        text: String,
        #[serde(default)]
        metadata: JsonMap,
    },
    Reasoning {
        #[serde(default)]
        text: String,
        #[serde(default)]
        metadata: JsonMap,
    },
    /// A call; with an output or an error, the vendor has run it.
    Tool {
        name: String,
        #[serde(default)]
        input: JsonMap,
        output: Option<String>,
        error: Option<String>,
        /// The vendor runs it, but its result never comes.
        #[serde(default)]
        unfinished: bool,
        #[serde(default)]
        metadata: JsonMap,
    },
}

impl Block {
    /// Whether it is a call that waits for its result.
    pub fn is_own_call(&self) -> bool {
        matches!(self, Self::Tool { output: None, error: None, unfinished: false, .. })
    }
}

/// A tool call.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "a call is [name, input] or {\"name\": …, \"input\": …, \"raw\": …}")]
pub enum ScriptedCall {
    Pair(String, Json),
    Named {
        name: String,
        #[serde(default)]
        input: Json,
        raw: Option<String>,
    },
}

impl ScriptedCall {
    pub fn name(&self) -> &str {
        match self {
            Self::Pair(name, _) | Self::Named { name, .. } => name,
        }
    }

    /// The text of the arguments.
    pub fn arguments(&self) -> String {
        match self {
            Self::Named { raw: Some(raw), .. } => raw.clone(),
            Self::Pair(_, Json::Null) | Self::Named { input: Json::Null, .. } => "{}".to_owned(),
            Self::Pair(_, input) | Self::Named { input, .. } => input.to_string(),
        }
    }
}

impl Step {
    /// A text-only answer.
    pub fn say(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// The step with that number; after the last one there is nothing left to do.
    pub fn nth(steps: &[Self], step: usize) -> Self {
        steps.get(step).cloned().unwrap_or_else(|| Self::say("done"))
    }

    /// Whether it starts with an error.
    pub fn fails_first(&self) -> bool {
        self.http_error.is_some() || self.network_error.is_some()
    }

    /// Whether it fails at all, immediately or in the middle of its answer.
    pub fn fails(&self) -> bool {
        self.fails_first() || self.malformed || self.error_chunk.is_some() || self.silence_ms.is_some()
    }

    /// Rejects what would run forever, and files that depend on where the program was started.
    pub fn check(&self) -> Result<(), ScriptError> {
        let delay = self.delay_ms.max(self.chunk_delay_ms).max(self.silence_ms.unwrap_or(0));
        if Duration::from_millis(delay) > MAX_DELAY {
            return Err(ScriptError::Bound(format!("a delay of {delay} ms is longer than {MAX_DELAY:?}")));
        }
        if self.chunks > MAX_CHUNKS {
            return Err(ScriptError::Bound(format!("{} chunks are more than {MAX_CHUNKS}", self.chunks)));
        }
        for (key, file) in [("after", &self.after), ("hold", &self.hold)] {
            if let Some(file) = file.as_deref().filter(|file| !file.is_absolute()) {
                let file = file.display();
                return Err(ScriptError::Bound(format!("`{key}` waits for {file:?}, which is not an absolute path")));
            }
        }
        Ok(())
    }
}

/// Accepts `true`, `1` and the like.
fn truthy<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    let value = Json::deserialize(deserializer)?;
    Ok(value.as_bool().unwrap_or_else(|| value.as_f64() != Some(0.0) && !value.is_null()))
}
