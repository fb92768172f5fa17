//! JSON-RPC messages, and the bounded splitting of a stream into lines.

mod peer;

use serde::Deserialize;
use serde_json::value::RawValue;

use api::Json;
pub(crate) use peer::Peer;

/// The largest message that is read, in bytes.
pub const MESSAGE_MAX: usize = 16 << 20;

/// A message of a server: an answer, a request or a notification.
#[derive(Debug, Deserialize)]
pub(crate) struct Message {
    /// Which request it answers, or what our answer shall name. Absent for a notification.
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

/// Why a request was refused.
#[derive(Debug, Deserialize)]
pub(crate) struct RpcError {
    #[serde(default)]
    pub code: i64,
    #[serde(default)]
    pub message: String,
}

/// What a stream of bytes has.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// A line, without its end.
    Text(Vec<u8>),
    /// A line that was too long; it is gone.
    TooLong,
}

/// Splits a stream into lines, and drops those that are too long without keeping them.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    line: Vec<u8>,
    dropping: bool,
}

impl Lines {
    /// Takes the next bytes and hands over what is complete.
    pub(crate) fn push(&mut self, mut bytes: &[u8], mut take: impl FnMut(Line)) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.extend(&bytes[..end]);
            bytes = &bytes[end + 1..];
            let line = std::mem::take(&mut self.line);
            if std::mem::take(&mut self.dropping) {
                take(Line::TooLong);
            } else {
                take(Line::Text(line));
            }
        }
        self.extend(bytes);
    }

    fn extend(&mut self, bytes: &[u8]) {
        if self.dropping {
            return;
        }
        if self.line.len() + bytes.len() > MESSAGE_MAX {
            self.dropping = true;
            self.line = Vec::new();
        } else {
            self.line.extend_from_slice(bytes);
        }
    }
}

/// The beginning of a text, for an error.
pub(crate) fn beginning(text: &str, most: usize) -> String {
    let text = text.trim();
    if text.len() <= most { text.to_owned() } else { format!("{}…", &text[..text.floor_char_boundary(most)]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole_and_long_ones_are_dropped() {
        let mut lines = Lines::default();
        let mut seen = Vec::new();
        lines.push(b"on", |line| seen.push(line));
        lines.push(b"e\n\ntwo\nth", |line| seen.push(line));
        let long = vec![b'x'; MESSAGE_MAX / 2 + 1];
        lines.push(&long, |line| seen.push(line));
        lines.push(&long, |line| seen.push(line));
        assert!(lines.line.capacity() == 0 && lines.dropping);
        lines.push(b"xx\nfour\n", |line| seen.push(line));
        let text = |text: &str| Line::Text(text.as_bytes().to_vec());
        assert_eq!(seen, [text("one"), text(""), text("two"), Line::TooLong, text("four")]);
    }
}
