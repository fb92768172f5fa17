//! Server-sent events, as far as model servers use them: bytes in, `data` payloads out. Pure.

use crate::LlmError;
use crate::error::bounded;

/// The maximum size of an event, in bytes. A stream that exceeds it is broken or hostile.
pub const MAX_EVENT: usize = 8 * 1024 * 1024;
/// How many bytes are kept of lines that are not events, to explain a response without any.
const MAX_STRAY: usize = 2 * 1024;

/// Splits a byte stream into the payloads of its events.
///
/// It works on bytes and decodes whole lines, so a chunk may end anywhere, even within a character.
#[derive(Debug, Default)]
pub struct SseReader {
    /// The incomplete line.
    line: Vec<u8>,
    /// The payload of the incomplete event; `None` before its first `data` line.
    data: Option<String>,
    /// The last line ended with CR, so that a following LF belongs to it.
    after_cr: bool,
    started: bool,
    stray: Vec<u8>,
}

impl SseReader {
    /// Takes the next bytes and passes each complete payload to `sink`.
    pub fn push(
        &mut self,
        mut bytes: &[u8],
        sink: &mut impl FnMut(&str) -> Result<(), LlmError>,
    ) -> Result<(), LlmError> {
        if self.after_cr && !bytes.is_empty() {
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
            self.after_cr = false;
        }
        while let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.extend(&bytes[..end])?;
            let line = std::mem::take(&mut self.line);
            self.end_line(&line, sink)?;
            // Reuse the buffer: one allocation per stream, not per line.
            self.line = line;
            self.line.clear();
            let carriage_return = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            if carriage_return {
                self.after_cr = bytes.is_empty();
                bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
            }
        }
        self.extend(bytes)
    }

    /// Ends the stream: an event that only lacks its blank line is passed on too, because many servers forget it.
    pub fn finish(&mut self, sink: &mut impl FnMut(&str) -> Result<(), LlmError>) -> Result<(), LlmError> {
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            self.end_line(&line, sink)?;
        }
        self.end_line(b"", sink)
    }

    /// The beginning of what arrived outside of events.
    pub fn stray(&self) -> String {
        String::from_utf8_lossy(&self.stray).trim().to_owned()
    }

    fn extend(&mut self, bytes: &[u8]) -> Result<(), LlmError> {
        let size = self.line.len() + self.data.as_ref().map_or(0, String::len) + bytes.len();
        if size > MAX_EVENT {
            return Err(LlmError::retryable(format!(
                "The model's server sent a single event of more than {MAX_EVENT} bytes; the stream was closed"
            )));
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line(&mut self, line: &[u8], sink: &mut impl FnMut(&str) -> Result<(), LlmError>) -> Result<(), LlmError> {
        let line = if self.started { line } else { line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line) };
        self.started = true;
        if line.is_empty() {
            return self.data.take().map_or(Ok(()), |data| sink(&data));
        }
        let (field, value) = match line.iter().position(|byte| *byte == b':') {
            Some(colon) => (&line[..colon], line[colon + 1..].strip_prefix(b" ").unwrap_or(&line[colon + 1..])),
            None => (line, &b""[..]),
        };
        match field {
            b"data" => {
                let value = String::from_utf8_lossy(value);
                match &mut self.data {
                    Some(data) => {
                        data.push('\n');
                        data.push_str(&value);
                    }
                    None => self.data = Some(value.into_owned()),
                }
            }
            // Comments keep the connection alive; names, ids and retry times have no meaning for us.
            b"" | b"event" | b"id" | b"retry" => {}
            _ => {
                let room = MAX_STRAY.saturating_sub(self.stray.len());
                self.stray.extend_from_slice(&line[..line.len().min(room)]);
                if room > 0 {
                    self.stray.push(b'\n');
                }
            }
        }
        Ok(())
    }
}

/// The error for a response without any event.
pub fn not_a_stream(stray: &str) -> LlmError {
    if crate::classify::is_html(stray) {
        return LlmError::invalid(
            "The server answered with a web page instead of a model's stream; check the provider's baseURL (it usually ends in /v1)",
        );
    }
    if let Ok(json) = serde_json::from_str::<api::Json>(stray)
        && json.is_object()
    {
        return crate::classify::stream_error(&json);
    }
    if stray.is_empty() {
        return LlmError::retryable("The model's server closed the connection before it answered anything");
    }
    LlmError::retryable(format!("The server's answer is not a model's stream: {}", bounded(stray.to_owned(), 300)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(chunks: &[&[u8]]) -> (Vec<String>, String) {
        let mut reader = SseReader::default();
        let mut out = Vec::new();
        let mut sink = |data: &str| {
            out.push(data.to_owned());
            Ok(())
        };
        for chunk in chunks {
            reader.push(chunk, &mut sink).unwrap();
        }
        reader.finish(&mut sink).unwrap();
        let stray = reader.stray();
        (out, stray)
    }

    #[test]
    fn events_comments_and_line_ends() {
        let text =
            b"\xef\xbb\xbfdata: one\n\n: keep-alive\n\ndata:two\r\n\r\nevent: x\nid: 7\ndata: a\ndata: b\n\ndata: last";
        assert_eq!(read(&[text]).0, ["one", "two", "a\nb", "last"]);
        assert_eq!(read(&[b"data: a\r\rdata: b\r", b"\n\r", b"\ndata: c\n\n"]).0, ["a", "b", "c"]);
        assert_eq!(read(&[b"data:\n\n", b"data\n\n"]).0, ["", ""]);
    }

    #[test]
    fn a_chunk_may_end_inside_a_character() {
        let text = "data: h\u{e9}llo \u{1f980}\n\n".as_bytes();
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(read(&bytes).0, ["h\u{e9}llo \u{1f980}"]);
        assert_eq!(read(&[b"data: \xff\n\n"]).0, ["\u{fffd}"]);
    }

    #[test]
    fn stray_text_is_kept_for_the_error() {
        let (events, stray) = read(&[b"<html>\n<p>no</p>\n"]);
        assert!(events.is_empty());
        assert_eq!(stray, "<html>\n<p>no</p>");
        assert!(read(&[&[b'x'; 100_000], b"\n"]).1.len() <= MAX_STRAY);
    }

    #[test]
    fn an_endless_line_is_refused() {
        let mut reader = SseReader::default();
        let block = vec![b'x'; MAX_EVENT / 4];
        let results: Vec<bool> = (0..5).map(|_| reader.push(&block, &mut |_| Ok(())).is_ok()).collect();
        assert_eq!(results, [true, true, true, true, false]);
    }

    #[test]
    fn responses_that_are_not_streams_are_explained() {
        use crate::ErrorClass;
        assert_eq!(not_a_stream("<!DOCTYPE html>\n").class, ErrorClass::Invalid);
        assert_eq!(not_a_stream("").class, ErrorClass::Retryable);
        let error = not_a_stream(r#"{"error":{"message":"too long","code":"context_length_exceeded"}}"#);
        assert_eq!((error.class, error.message.as_str()), (ErrorClass::ContextOverflow, "too long"));
        assert!(not_a_stream("hm").message.ends_with("hm"));
    }

    proptest! {
        #[test]
        fn chunk_boundaries_do_not_matter(
            text in "(data: ?|: |event: |[a-zé:🦀 ]){0,8}(\n|\r\n|\r){0,3}(data: [a-zé🦀]{0,9}(\n|\r\n|\r){0,3}){0,6}",
            size in 1usize..9,
        ) {
            let whole = read(&[text.as_bytes()]);
            let chunks: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
            prop_assert_eq!(read(&chunks), whole);
        }

        #[test]
        fn payloads_survive_a_round_trip(lines in prop::collection::vec("[^\r\n]{0,40}", 0..8)) {
            let stream: String = lines.iter().map(|line| format!("data: {line}\n\n")).collect();
            prop_assert_eq!(read(&[stream.as_bytes()]).0, lines);
        }
    }
}
