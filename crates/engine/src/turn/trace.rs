//! W3C trace context: the trace of a prompt's sender continues in the model calls the prompt causes.
//!
//! Traces are kept in memory only: after a restart a turn continues without one.

use std::sync::Mutex;

use api::MessageId;
use indexmap::IndexMap;

use crate::lock;

/// The maximum number of prompts whose trace is kept; the oldest is dropped.
const TRACES_MAX: usize = 256;

/// The header name, incoming and outgoing.
const TRACEPARENT: &str = "traceparent";

/// The traces of prompts.
#[derive(Default)]
pub(crate) struct Traces(Mutex<IndexMap<MessageId, Trace>>);

/// A trace to continue.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Trace {
    id: String,
    /// The sender's span.
    parent: String,
    flags: String,
}

impl Traces {
    /// Stores the trace of a prompt, if it has a valid one.
    pub(crate) fn store(&self, prompt: &MessageId, traceparent: Option<&str>) {
        let Some(trace) = traceparent.and_then(Trace::parse) else { return };
        let mut known = lock(&self.0);
        if known.len() >= TRACES_MAX {
            known.shift_remove_index(0);
        }
        known.insert(prompt.clone(), trace);
    }

    /// Moves the trace of a queued prompt to the message that it became.
    pub(crate) fn rename(&self, queued: &MessageId, message: &MessageId) {
        let mut known = lock(&self.0);
        if let Some(trace) = known.shift_remove(queued) {
            known.insert(message.clone(), trace);
        }
    }

    /// The header of a model call for a prompt: the same trace, a new span.
    pub(crate) fn header(&self, prompt: &MessageId) -> Option<(String, String)> {
        let Trace { id, flags, .. } = lock(&self.0).get(prompt)?.clone();
        // A span id must not be zero.
        Some((TRACEPARENT.to_owned(), format!("00-{id}-{:016x}-{flags}", fastrand::u64(1..))))
    }

    /// The trace context that a prompt came with, for the prompts and requests that it causes: their sender is the same.
    pub(crate) fn sender(&self, prompt: &MessageId) -> Option<String> {
        let Trace { id, parent, flags } = lock(&self.0).get(prompt)?.clone();
        Some(format!("00-{id}-{parent}-{flags}"))
    }
}

impl Trace {
    /// Parses `version-trace-parent-flags` in lower-case hex. Unknown versions may have more fields.
    fn parse(text: &str) -> Option<Self> {
        let hex = |text: &str, length: usize| {
            text.len() == length && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
        };
        let is_id = |text: &str, length| hex(text, length) && text.bytes().any(|b| b != b'0');
        let fields: Vec<&str> = text.trim().split('-').collect();
        let (version, id, parent, flags) = match fields.as_slice() {
            [version, id, parent, flags] => (*version, *id, *parent, *flags),
            [version, id, parent, flags, ..] if *version != "00" => (*version, *id, *parent, *flags),
            _ => return None,
        };
        let valid = hex(version, 2) && version != "ff" && is_id(id, 32) && is_id(parent, 16) && hex(flags, 2);
        valid.then(|| Self { id: id.to_owned(), parent: parent.to_owned(), flags: flags.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    #[test]
    fn the_trace_stays_and_the_span_is_new() {
        let (traces, prompt) = (Traces::default(), MessageId::new());
        traces.store(&prompt, Some(&format!("00-{ID}-00f067aa0ba902b7-01")));
        let (name, value) = traces.header(&prompt).unwrap();
        assert_eq!(name, "traceparent");
        assert!(value.starts_with(&format!("00-{ID}-")) && value.ends_with("-01"), "{value}");
        assert!(Trace::parse(&value).is_some() && !value.contains("00f067aa0ba902b7"), "{value}");
        assert_eq!(traces.sender(&prompt), Some(format!("00-{ID}-00f067aa0ba902b7-01")));
        assert_eq!((traces.header(&MessageId::new()), traces.sender(&MessageId::new())), (None, None));
    }

    #[test]
    fn an_invalid_trace_is_ignored() {
        let parent = "00f067aa0ba902b7";
        assert!(Trace::parse(&format!("42-{ID}-{parent}-01-more")).is_some());
        for wrong in [
            String::new(),
            format!("00-{ID}-{parent}"),
            format!("00-{ID}-{parent}-01-more"),
            format!("ff-{ID}-{parent}-01"),
            format!("00-{}-{parent}-01", ID.to_uppercase()),
            format!("00-{}-{parent}-01", "0".repeat(32)),
            format!("00-{ID}-{}-01", "0".repeat(16)),
            format!("00-{ID}-{parent}-1"),
            format!("00-{ID}x-{parent}-01"),
        ] {
            assert_eq!(Trace::parse(&wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_number_of_traces_is_bounded() {
        let traces = Traces::default();
        let prompts: Vec<MessageId> = (0..=TRACES_MAX).map(|_| MessageId::new()).collect();
        for prompt in &prompts {
            traces.store(prompt, Some(&format!("00-{ID}-00f067aa0ba902b7-00")));
        }
        assert_eq!(traces.header(&prompts[0]), None);
        assert!(traces.header(&prompts[TRACES_MAX]).is_some());
    }
}
