//! JSON-RPC messages, and bounded splitting of a stream into lines.

mod peer;

use serde::Deserialize;
use serde_json::value::RawValue;

use api::Json;
pub(crate) use peer::Peer;

/// The largest message that is read, in bytes.
pub const MESSAGE_MAX: usize = 16 << 20;

/// A message of a server: a response, a request or a notification.
#[derive(Debug, Deserialize)]
pub(crate) struct Message {
    /// The request's id. Absent for a notification.
    #[serde(default)]
    pub id: Option<Json>,
    #[serde(default)]
    pub method: Option<String>,
    #[serde(default)]
    pub params: Option<Box<RawValue>>,
    #[serde(default)]
    pub result: Option<Box<RawValue>>,
    #[serde(default)]
    pub error: Option<RpcError>,
}

/// A JSON-RPC error.
#[derive(Debug, Deserialize)]
pub(crate) struct RpcError {
    #[serde(default)]
    pub code: i64,
    #[serde(default)]
    pub message: String,
}

/// A line of a byte stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// A line, without its line end.
    Text(Vec<u8>),
    /// A line that was too long and was dropped.
    TooLong,
}

/// Splits a stream into lines, and drops those that are too long without buffering them.
#[derive(Debug, Default)]
pub(crate) struct LineSplitter {
    line: Vec<u8>,
    is_too_long: bool,
}

impl LineSplitter {
    /// Adds bytes and hands over the completed lines.
    pub(crate) fn push(&mut self, mut bytes: &[u8], mut take: impl FnMut(Line)) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.extend(&bytes[..end]);
            bytes = &bytes[end + 1..];
            let line = std::mem::take(&mut self.line);
            if std::mem::take(&mut self.is_too_long) {
                take(Line::TooLong);
            } else {
                take(Line::Text(line));
            }
        }
        self.extend(bytes);
    }

    fn extend(&mut self, bytes: &[u8]) {
        if self.is_too_long {
            return;
        }
        if self.line.len() + bytes.len() > MESSAGE_MAX {
            self.is_too_long = true;
            self.line = Vec::new();
        } else {
            self.line.extend_from_slice(bytes);
        }
    }
}

/// The beginning of a text, for messages.
pub(crate) fn truncated(text: &str, max: usize) -> String {
    let text = text.trim();
    if text.len() <= max { text.to_owned() } else { format!("{}…", &text[..text.floor_char_boundary(max)]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_complete_and_long_ones_are_dropped() {
        let mut lines = LineSplitter::default();
        let mut seen = Vec::new();
        lines.push(b"on", |line| seen.push(line));
        lines.push(b"e\n\ntwo\nth", |line| seen.push(line));
        let long = vec![b'x'; MESSAGE_MAX / 2 + 1];
        lines.push(&long, |line| seen.push(line));
        lines.push(&long, |line| seen.push(line));
        assert!(lines.line.capacity() == 0 && lines.is_too_long);
        lines.push(b"xx\nfour\n", |line| seen.push(line));
        let text = |text: &str| Line::Text(text.as_bytes().to_vec());
        assert_eq!(seen, [text("one"), text(""), text("two"), Line::TooLong, text("four")]);
    }
}
