//! Decodes server-sent events. Pure, and bounded.

use crate::error::Error;
use crate::rpc::MESSAGE_MAX;

/// An event.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SseEvent {
    /// Its name; empty means `message`.
    pub name: String,
    /// Its data.
    pub data: String,
}

/// Splits a byte stream into events. A chunk may end anywhere.
#[derive(Debug, Default)]
pub(crate) struct SseDecoder {
    line: Vec<u8>,
    event: SseEvent,
    has_data: bool,
    after_cr: bool,
}

impl SseDecoder {
    /// Adds bytes and returns the completed events.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<Vec<SseEvent>, Error> {
        let mut events = Vec::new();
        for piece in bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            let (line, end) = match piece.split_last() {
                Some((end @ (b'\n' | b'\r'), line)) => (line, Some(*end)),
                _ => (piece, None),
            };
            let second_half = std::mem::take(&mut self.after_cr) && line.is_empty() && end == Some(b'\n');
            if second_half {
                continue;
            }
            if self.line.len() + self.event.data.len() + line.len() > MESSAGE_MAX {
                return Err(Error::TooLarge);
            }
            self.line.extend_from_slice(line);
            if let Some(end) = end {
                self.after_cr = end == b'\r';
                let line = std::mem::take(&mut self.line);
                events.extend(self.end_line(&line));
            }
        }
        Ok(events)
    }

    fn end_line(&mut self, line: &[u8]) -> Option<SseEvent> {
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            return std::mem::take(&mut self.has_data).then_some(event);
        }
        let (field, value) = match line.iter().position(|byte| *byte == b':') {
            Some(colon) => (&line[..colon], line[colon + 1..].strip_prefix(b" ").unwrap_or(&line[colon + 1..])),
            None => (line, &b""[..]),
        };
        let value = String::from_utf8_lossy(value);
        match field {
            b"event" => self.event.name = value.into_owned(),
            b"data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(&value);
            }
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_complete_however_they_are_split() {
        let text = b": hi\r\nevent: endpoint\r\ndata: /x\r\n\r\ndata: a\ndata:b\n\nid: 1\n\ndata\r\rdata: lost";
        let want = [("endpoint", "/x"), ("", "a\nb"), ("", "")];
        for size in 1..text.len() {
            let mut decoder = SseDecoder::default();
            let events: Vec<SseEvent> = text.chunks(size).flat_map(|chunk| decoder.push(chunk).unwrap()).collect();
            let events: Vec<_> = events.iter().map(|event| (event.name.as_str(), event.data.as_str())).collect();
            assert_eq!(events, want, "{size}");
        }
    }

    #[test]
    fn an_endless_event_is_refused() {
        let mut decoder = SseDecoder::default();
        let chunk = vec![b'x'; MESSAGE_MAX / 2 + 1];
        assert!(decoder.push(&chunk).is_ok());
        assert_eq!(decoder.push(&chunk), Err(Error::TooLarge));
    }
}
