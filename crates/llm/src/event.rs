//! What a model answers, in no vendor's words.

/// One event of an answer, in the order of arrival.
///
/// A complete stream ends with `Usage` (if the vendor reported it) and exactly one `Finish`; nothing follows an error.
#[derive(Debug, Clone, PartialEq)]
pub enum LlmEvent {
    /// More answer text.
    Text(String),
    /// More thinking.
    Reasoning(String),
    /// A tool call begins.
    ToolStart {
        /// Its place among the calls of this answer, from 0 and without gaps.
        index: usize,
        /// Its id, unique within the answer.
        id: String,
        /// The tool's name as the model wrote it (bounded).
        name: String,
    },
    /// More of a call's arguments.
    ToolInput {
        /// Which call.
        index: usize,
        /// The next piece of the arguments' text.
        delta: String,
    },
    /// A call's arguments are complete.
    ToolEnd {
        /// Which call.
        index: usize,
        /// The whole text of the arguments; not necessarily JSON.
        input: String,
    },
    /// What the answer cost.
    Usage(Usage),
    /// The answer ended.
    Finish(FinishReason),
}

/// Tokens of one answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Input, without what came from or went to the cache.
    pub input: u64,
    /// Output, without reasoning.
    pub output: u64,
    /// Reasoning.
    pub reasoning: u64,
    /// Input that came from the vendor's cache.
    pub cache_read: u64,
    /// Input that was written to the vendor's cache.
    pub cache_write: u64,
    /// The vendor's own total.
    pub total: Option<u64>,
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// The model was done.
    Stop,
    /// It wants its tool calls answered.
    ToolCalls,
    /// It hit the output limit.
    Length,
    /// The vendor's filter cut it.
    ContentFilter,
    /// The stream ended without a reason, or with one that we do not know.
    Unknown,
    /// The vendor says that it failed.
    Error,
}

impl FinishReason {
    /// Its name in a stored message.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::ToolCalls => "tool-calls",
            Self::Length => "length",
            Self::ContentFilter => "content-filter",
            Self::Unknown => "unknown",
            Self::Error => "error",
        }
    }
}
