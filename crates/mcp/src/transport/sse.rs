//! Server-sent events: bytes in, events out. Pure, and bounded.

use crate::error::Error;
use crate::rpc::MESSAGE_MAX;

/// One event.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Event {
    /// Its name; `message` without one.
    pub name: String,
    /// Its data.
    pub data: String,
}

/// Splits a byte stream into events. A chunk may end anywhere.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    line: Vec<u8>,
    event: Event,
    has_data: bool,
    after_cr: bool,
}

impl Reader {
    /// Takes the next bytes; gives the events that they complete.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<Vec<Event>, Error> {
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

    fn end_line(&mut self, line: &[u8]) -> Option<Event> {
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
    fn events_come_whole_however_they_are_cut() {
        let text = b": hi\r\nevent: endpoint\r\ndata: /x\r\n\r\ndata: a\ndata:b\n\nid: 1\n\ndata\r\rdata: lost";
        let want = [("endpoint", "/x"), ("", "a\nb"), ("", "")];
        for size in 1..text.len() {
            let mut reader = Reader::default();
            let events: Vec<Event> = text.chunks(size).flat_map(|chunk| reader.push(chunk).unwrap()).collect();
            let events: Vec<_> = events.iter().map(|event| (event.name.as_str(), event.data.as_str())).collect();
            assert_eq!(events, want, "{size}");
        }
    }

    #[test]
    fn an_endless_event_is_refused() {
        let mut reader = Reader::default();
        let chunk = vec![b'x'; MESSAGE_MAX / 2 + 1];
        assert!(reader.push(&chunk).is_ok());
        assert_eq!(reader.push(&chunk), Err(Error::TooLarge));
    }
}
