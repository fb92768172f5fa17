//! What a model answers, independent of vendors.

/// One event of an answer, in the order of arrival.
///
/// A complete stream ends with `Usage` (if the vendor reported it) and exactly one `Finish`; nothing follows an error.
#[derive(Debug, Clone, PartialEq)]
pub enum LlmEvent {
    /// More text.
    Text(String),
    /// More reasoning.
    Reasoning(String),
    /// A tool call starts.
    ToolStart {
        /// Its index among the calls of this answer, from 0 and without gaps.
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
        /// The next piece of the arguments.
        delta: String,
    },
    /// A call's arguments are complete.
    ToolEnd {
        /// Which call.
        index: usize,
        /// The complete arguments; not necessarily JSON.
        input: String,
    },
    /// The tokens used.
    Usage(Usage),
    /// The answer ended.
    Finish(FinishReason),
}

/// Token counts of one answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Input, except for cached tokens.
    pub input: u64,
    /// Output, except for reasoning.
    pub output: u64,
    /// Reasoning.
    pub reasoning: u64,
    /// Input read from the vendor's cache.
    pub cache_read: u64,
    /// Input written to the vendor's cache.
    pub cache_write: u64,
    /// The vendor's total.
    pub total: Option<u64>,
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// The model finished.
    Stop,
    /// It wants results for its tool calls.
    ToolCalls,
    /// It reached the output limit.
    Length,
    /// The vendor's filter cut it off.
    ContentFilter,
    /// The stream ended without a reason, or with an unknown one.
    Unknown,
    /// The vendor reported a failure.
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
