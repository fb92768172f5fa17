//! Decodes an answer: one payload in, events out. Pure.

use api::{Json, JsonMap, json_size};

use crate::bound::MAX_ANSWER;
use crate::error::bounded;
use crate::openai::chunk::{CallDelta, Choice, Chunk, Delta, Text, usage};
use crate::openai::details::Details;
use crate::{BlockKind, FinishReason, LlmError, LlmEvent, Usage, classify};

/// The maximum number of calls in one answer.
const MAX_CALLS: usize = 256;
/// The maximum length of a tool name, in bytes; a longer one is cut, and then matches no tool.
const MAX_NAME: usize = 256;
/// The maximum length of a call id, in bytes. Some gateways hide whole signatures in it.
const MAX_ID: usize = 64 * 1024;
/// The field of a call with what a gateway wants back with it, and its name below the vendor's on the part.
pub const EXTRA_CONTENT: &str = "extra_content";

/// Decodes one answer. Push each payload, then call [`Decoder::finish`] once.
#[derive(Debug, Default)]
pub struct Decoder {
    /// Under which name the server's data is kept.
    vendor: String,
    /// The open block.
    block: Option<BlockKind>,
    details: Details,
    /// The total size of the data. Not all of it was emitted: details wait for the end of their block.
    data_bytes: usize,
    calls: Vec<PendingCall>,
    /// The total size of the arguments. Not all of it was emitted: a call may have no name yet.
    argument_bytes: usize,
    usage: Option<Usage>,
    finish: Option<FinishReason>,
    done: bool,
    /// The ends of the calls were emitted.
    ended: bool,
}

#[derive(Debug, Default)]
struct PendingCall {
    /// The server's index of the call.
    number: Option<u64>,
    /// The server's id of the call; ours may differ if it is not unique.
    wire_id: String,
    id: String,
    name: Option<String>,
    arguments: String,
    scanner: ArgumentScanner,
    /// What the server wants back with it.
    extra: Option<Json>,
    /// Its end was emitted.
    ended: bool,
}

impl PendingCall {
    /// What goes back with it, as data of a vendor.
    fn metadata(&mut self, vendor: &str) -> JsonMap {
        let extra = self.extra.take().map(|extra| (EXTRA_CONTENT.to_owned(), extra));
        let extra = extra.map(|extra| (vendor.to_owned(), Json::Object(JsonMap::from_iter([extra]))));
        extra.into_iter().collect()
    }
}

/// Scans arguments as they arrive, to detect when the object is complete. Looks at each byte once.
#[derive(Debug, Default)]
struct ArgumentScanner {
    depth: u32,
    started: bool,
    in_string: bool,
    escaped: bool,
}

impl ArgumentScanner {
    /// Takes a piece; returns true once the object that the arguments started with is closed.
    fn push(&mut self, piece: &str) -> bool {
        for byte in piece.bytes() {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_string => self.escaped = true,
                b'"' => self.in_string = !self.in_string,
                _ if self.in_string => {}
                b'{' | b'[' => {
                    self.started = true;
                    self.depth += 1;
                }
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
        self.started && self.depth == 0 && !self.in_string
    }
}

impl Decoder {
    /// A decoder of an answer whose data is kept under this name.
    pub fn new(vendor: &str) -> Self {
        Self { vendor: vendor.to_owned(), ..Self::default() }
    }

    /// Takes one `data` payload of the stream.
    pub fn push(&mut self, data: &str) -> Result<Vec<LlmEvent>, LlmError> {
        let data = data.trim();
        let mut events = Vec::new();
        if self.done || data.is_empty() {
            return Ok(events);
        }
        if data == "[DONE]" {
            self.done = true;
            return Ok(events);
        }
        let chunk: Chunk = serde_json::from_str(data).map_err(|error| {
            LlmError::retryable(format!(
                "The model's server sent a chunk that is not valid ({error}): {}",
                bounded(data.to_owned(), 200)
            ))
        })?;
        if chunk.error.is_some() || chunk.object.as_ref().is_some_and(|object| object.0 == "error") {
            // Rare, so the payload is parsed a second time instead of keeping every chunk as a tree.
            return Err(classify::stream_error(&serde_json::from_str(data).unwrap_or_default()));
        }
        if let Some(wire) = &chunk.usage {
            self.usage = Some(usage(wire));
        }
        // Only one choice was requested.
        let choice = chunk.choices.into_iter().flatten().find(|choice| choice.index.is_none_or(|index| index.0 == 0));
        if let Some(Choice { delta, message, finish_reason: reason, .. }) = choice {
            if let Some(delta) = delta.or(message) {
                self.delta(delta, &mut events)?;
            }
            if let Some(Text(reason)) = reason
                && !reason.is_empty()
            {
                self.finish = Some(finish_reason(&reason));
                self.end_calls(&mut events);
            }
        }
        Ok(events)
    }

    /// Whether the server said that nothing follows.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// Ends the stream and returns the remaining events. A call that was cut off in its arguments is an error, since we
    /// do not know what the model wanted; text that was cut off ends with [`FinishReason::Unknown`].
    pub fn finish(&mut self) -> Result<Vec<LlmEvent>, LlmError> {
        let cut = |call: &PendingCall| !call.arguments.is_empty() && !is_json(&call.arguments);
        if self.finish.is_none() && !self.done && self.calls.iter().any(cut) {
            return Err(LlmError::retryable("The model's stream was cut in the middle of a tool call"));
        }
        self.done = true;
        let mut events = Vec::new();
        self.end_calls(&mut events);
        self.end_block(&mut events);
        events.extend(self.usage.take().map(LlmEvent::Usage));
        events.push(LlmEvent::Finish(match self.finish {
            // Some servers say "stop" although they called tools; the loop must continue anyway.
            Some(FinishReason::Stop | FinishReason::Unknown) if !self.calls.is_empty() => FinishReason::ToolCalls,
            Some(reason) => reason,
            None => FinishReason::Unknown,
        }));
        Ok(events)
    }

    fn delta(&mut self, delta: Delta, events: &mut Vec<LlmEvent>) -> Result<(), LlmError> {
        let text = |text: Option<Text>| text.map(|text| text.0).filter(|text| !text.is_empty());
        let mut detailed = String::new();
        for piece in delta.reasoning_details.unwrap_or_default().0 {
            self.count_data(&piece)?;
            detailed += &self.details.push(piece).ok_or_else(LlmError::too_long)?;
        }
        // Servers that are renaming the field send both, with the same text; that of details is the same once more.
        let reasoning = text(delta.reasoning_content).or_else(|| text(delta.reasoning));
        if let Some(reasoning) = reasoning.or(Some(detailed)).filter(|text| !text.is_empty()) {
            self.enter(BlockKind::Reasoning, events);
            events.push(LlmEvent::Reasoning(reasoning));
        }
        for text in [delta.content, delta.refusal].into_iter().filter_map(text) {
            self.enter(BlockKind::Text, events);
            events.push(LlmEvent::Text(text));
        }
        for call in delta.tool_calls.into_iter().flatten() {
            self.call(call, events)?;
        }
        Ok(())
    }

    /// Begins a block, unless one of its kind is open.
    fn enter(&mut self, kind: BlockKind, events: &mut Vec<LlmEvent>) {
        if self.block != Some(kind) {
            match (kind, self.block) {
                // Details that wait belong to the reasoning that begins.
                (BlockKind::Reasoning, Some(_)) => events.push(LlmEvent::end()),
                (BlockKind::Reasoning, None) => {}
                (BlockKind::Text, _) => self.end_block(events),
            }
            self.block = Some(kind);
            events.push(LlmEvent::begin(kind));
        }
    }

    /// Ends the open block. Details belong to reasoning; those that came without any get a block without text.
    fn end_block(&mut self, events: &mut Vec<LlmEvent>) {
        let details = self.details.take(&self.vendor);
        match self.block.take() {
            Some(BlockKind::Reasoning) => return events.push(LlmEvent::End { metadata: details }),
            Some(BlockKind::Text) => events.push(LlmEvent::end()),
            None => {}
        }
        if !details.is_empty() {
            events.extend([LlmEvent::begin(BlockKind::Reasoning), LlmEvent::End { metadata: details }]);
        }
    }

    fn count_data(&mut self, data: &Json) -> Result<(), LlmError> {
        self.data_bytes += json_size(data);
        if self.data_bytes > MAX_ANSWER { Err(LlmError::too_long()) } else { Ok(()) }
    }

    fn call(&mut self, delta: CallDelta, events: &mut Vec<LlmEvent>) -> Result<(), LlmError> {
        if self.ended {
            return Ok(());
        }
        // Reasoning ends where a call begins; text may go on after it.
        if self.block != Some(BlockKind::Text) && (self.block.is_some() || !self.details.is_empty()) {
            self.end_block(events);
        }
        let number = delta.index.map(|index| index.0);
        let id = delta.id.map(|id| id.0).unwrap_or_default();
        let function = delta.function.unwrap_or_default();
        let name = function.name.map(|name| name.0).filter(|name| !name.is_empty());
        let arguments = function.arguments.map(|arguments| arguments.0).unwrap_or_default();
        let index = match self.find(number, &id, name.is_some(), &arguments) {
            Some(index) => index,
            None => self.open(number, id)?,
        };
        self.argument_bytes += arguments.len();
        if self.argument_bytes > MAX_ANSWER {
            return Err(LlmError::too_long());
        }
        if let Some(extra) = &delta.extra_content {
            self.count_data(extra)?;
        }
        let Some(call) = self.calls.get_mut(index) else { return Ok(()) };
        call.extra = delta.extra_content.filter(|extra| !extra.is_null()).or(call.extra.take());
        call.arguments.push_str(&arguments);
        match (&call.name, name) {
            (None, Some(name)) => {
                let name = bounded(name, MAX_NAME);
                events.push(start(index, &call.id, name.clone()));
                call.name = Some(name);
                // What arrived before the name.
                if !call.arguments.is_empty() {
                    events.push(LlmEvent::ToolInput { index, delta: call.arguments.clone() });
                }
            }
            (Some(_), _) if !arguments.is_empty() && !call.ended => {
                events.push(LlmEvent::ToolInput { index, delta: arguments.clone() });
            }
            _ => {}
        }
        // A call can run while the model writes the next one.
        let whole = call.scanner.push(&arguments);
        if whole && !call.ended && call.name.is_some() && is_json(&call.arguments) {
            call.ended = true;
            let metadata = call.metadata(&self.vendor);
            events.push(LlmEvent::ToolEnd { index, input: call.arguments.clone(), metadata });
        }
        Ok(())
    }

    /// The call that a piece belongs to; `None` if it starts a new one. By index if there is one, else by id, else the
    /// last one. For servers that give every call the same index or id, a second complete call reveals the new one.
    fn find(&self, number: Option<u64>, id: &str, named: bool, arguments: &str) -> Option<usize> {
        let index = match number {
            Some(number) => self.calls.iter().rposition(|call| call.number == Some(number))?,
            None if !id.is_empty() => self.calls.iter().rposition(|call| call.wire_id == id)?,
            None if named && self.calls.last().is_some_and(|call| call.name.is_some()) => return None,
            None => self.calls.len().checked_sub(1)?,
        };
        let call = &self.calls[index];
        let other_id = named && !id.is_empty() && !call.wire_id.is_empty() && id != call.wire_id;
        let second = named
            && arguments.trim_start().starts_with('{')
            && call.arguments.trim_end().ends_with('}')
            && is_json(&call.arguments);
        (!other_id && !second).then_some(index)
    }

    fn open(&mut self, number: Option<u64>, wire_id: String) -> Result<usize, LlmError> {
        let index = self.calls.len();
        if index >= MAX_CALLS || wire_id.len() > MAX_ID {
            return Err(LlmError::retryable(format!(
                "The model's server sent more than {MAX_CALLS} tool calls or an id of more than {MAX_ID} bytes; \
                 the stream was closed"
            )));
        }
        let mut id = if wire_id.is_empty() { format!("call_{index}") } else { wire_id.clone() };
        // The new id ends with this call's index, so a few rounds find a free one.
        while self.calls.iter().any(|call| call.id == id) {
            id = format!("{id}_{index}");
        }
        self.calls.push(PendingCall { number, wire_id, id, ..PendingCall::default() });
        Ok(index)
    }

    fn end_calls(&mut self, events: &mut Vec<LlmEvent>) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let vendor = &self.vendor;
        for (index, call) in self.calls.iter_mut().enumerate().filter(|(_, call)| !call.ended) {
            if call.name.is_none() {
                events.push(start(index, &call.id, String::new()));
                if !call.arguments.is_empty() {
                    events.push(LlmEvent::ToolInput { index, delta: call.arguments.clone() });
                }
            }
            let (metadata, input) = (call.metadata(vendor), std::mem::take(&mut call.arguments));
            events.push(LlmEvent::ToolEnd { index, input, metadata });
        }
    }
}

fn start(index: usize, id: &str, name: String) -> LlmEvent {
    LlmEvent::ToolStart { index, id: id.to_owned(), name, provider_executed: false }
}

/// Interprets the vendor's reason for the end of an answer.
pub fn finish_reason(word: &str) -> FinishReason {
    match word {
        "stop" | "eos" | "end_turn" | "stop_sequence" => FinishReason::Stop,
        "tool_calls" | "function_call" | "tool-calls" | "tool_use" => FinishReason::ToolCalls,
        "length" | "max_tokens" | "model_length" => FinishReason::Length,
        "content_filter" | "content-filter" | "safety" => FinishReason::ContentFilter,
        "error" => FinishReason::Error,
        _ => FinishReason::Unknown,
    }
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

#[cfg(test)]
mod tests;
