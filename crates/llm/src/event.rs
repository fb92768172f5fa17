//! What a model answers, independent of vendors.

use api::{JsonMap, json_size};

/// What kind of block the model writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockKind {
    /// Text for the user.
    Text,
    /// Reasoning.
    Reasoning,
}

/// One event of an answer, in the order of arrival.
///
/// At most one block is open at a time; a call may arrive while a block of text is open. `metadata` is what the vendor
/// wants back unchanged with a block, by vendor (`{"anthropic": {"signature": …}}`); nobody but the vendor's own wire
/// looks into it. What comes at the end of a block adds to what came with its begin.
///
/// A complete stream ends with `Usage` (if the vendor reported it) and exactly one `Finish`; nothing follows an error.
#[derive(Debug, Clone, PartialEq)]
pub enum LlmEvent {
    /// A block begins; this ends the one before. It may stay empty: encrypted reasoning has data, but no text.
    Begin {
        /// Its kind.
        kind: BlockKind,
        /// The vendor's data.
        metadata: JsonMap,
    },
    /// More text.
    Text(String),
    /// More reasoning.
    Reasoning(String),
    /// The open block ends.
    End {
        /// The vendor's data.
        metadata: JsonMap,
    },
    /// A tool call starts.
    ToolStart {
        /// Its index among the calls of this answer, from 0 and without gaps.
        index: usize,
        /// Its id, unique within the answer.
        id: String,
        /// The tool's name as the model wrote it (bounded).
        name: String,
        /// Whether the vendor runs it itself; then a `ToolResult` follows, and nobody else runs it.
        provider_executed: bool,
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
        /// The vendor's data.
        metadata: JsonMap,
    },
    /// The outcome of a call that the vendor ran itself.
    ToolResult {
        /// Which call.
        index: usize,
        /// Its result as text, for people.
        output: String,
        /// Whether it failed.
        is_error: bool,
        /// The vendor's data, which adds to that of the call.
        metadata: JsonMap,
    },
    /// The tokens used.
    Usage(Usage),
    /// The answer ended.
    Finish(FinishReason),
}

impl LlmEvent {
    /// A block that begins without data.
    pub(crate) fn begin(kind: BlockKind) -> Self {
        Self::Begin { kind, metadata: JsonMap::new() }
    }

    /// The end of a block without data.
    pub(crate) fn end() -> Self {
        Self::End { metadata: JsonMap::new() }
    }

    /// The number of bytes that it adds to the answer.
    pub fn size(&self) -> usize {
        match self {
            Self::Text(piece) | Self::Reasoning(piece) | Self::ToolInput { delta: piece, .. } => piece.len(),
            Self::Begin { metadata, .. } | Self::End { metadata } => data_size(metadata),
            Self::ToolStart { id, name, .. } => id.len() + name.len(),
            // The end of a call repeats its pieces.
            Self::ToolEnd { metadata, .. } => data_size(metadata),
            Self::ToolResult { output, metadata, .. } => output.len() + data_size(metadata),
            Self::Usage(_) | Self::Finish(_) => 0,
        }
    }
}

fn data_size(metadata: &JsonMap) -> usize {
    if metadata.is_empty() { 0 } else { json_size(metadata) }
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
