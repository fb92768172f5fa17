//! Decodes server-sent events by the WHATWG rules: bytes in, events out. Pure, and bounded.

use std::time::Duration;

/// How many bytes are kept of lines that are no fields of an event.
const MAX_STRAY: usize = 2 << 10;

/// An event of a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SseEvent {
    /// Its type; empty means `message`.
    pub name: String,
    /// Its data: the `data` lines, joined by line feeds.
    pub data: String,
    /// The id that came with it. It is not repeated for later events, which have none of their own.
    pub id: Option<String>,
    /// The value of the decoder's [extension field](SseDecoder::with_extension).
    pub extension: Option<String>,
}

/// An event exceeds the limit. Nothing after it can be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventTooLarge {
    /// The limit, in bytes.
    pub limit: usize,
}

impl std::fmt::Display for EventTooLarge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "an event beyond {} bytes", self.limit)
    }
}

impl std::error::Error for EventTooLarge {}

/// Splits a byte stream into events.
///
/// It collects bytes and decodes whole lines, so a chunk may end anywhere, even within a character.
#[derive(Debug)]
pub struct SseDecoder {
    max_event: usize,
    /// The incomplete line.
    line: Vec<u8>,
    /// The incomplete event.
    event: SseEvent,
    /// Whether the event has a `data` line; otherwise it is dropped.
    has_data: bool,
    /// The last line ended with CR, so a following LF belongs to it.
    after_cr: bool,
    /// The first line is complete. A byte order mark is allowed only there.
    started: bool,
    retry: Option<Duration>,
    /// The name of the extension field.
    extension: Option<&'static str>,
    stray: Vec<u8>,
}

impl SseDecoder {
    /// A decoder of events of up to `max_event` bytes, an incomplete line included.
    pub fn new(max_event: usize) -> Self {
        Self {
            max_event,
            line: Vec::new(),
            event: SseEvent::default(),
            has_data: false,
            after_cr: false,
            started: false,
            retry: None,
            extension: None,
            stray: Vec::new(),
        }
    }

    /// Also reads a field that the standard does not know, and that other readers therefore skip.
    pub fn with_extension(self, field: &'static str) -> Self {
        Self { extension: Some(field), ..self }
    }

    /// Decodes the next bytes and passes each complete event to `sink`.
    pub fn push<E: From<EventTooLarge>>(
        &mut self,
        mut bytes: &[u8],
        sink: &mut impl FnMut(SseEvent) -> Result<(), E>,
    ) -> Result<(), E> {
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
        Ok(self.extend(bytes)?)
    }

    /// Ends the stream: an event that only lacks its blank line is passed on. The rules drop it, but many servers forget
    /// the line; without a call of this, it is dropped.
    pub fn finish<E>(&mut self, sink: &mut impl FnMut(SseEvent) -> Result<(), E>) -> Result<(), E> {
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            self.end_line(&line, sink)?;
        }
        self.end_line(b"", sink)
    }

    /// How long the server wants clients to wait before they reconnect.
    pub fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// The beginning of the lines that are no fields of an event, to explain a response that is not an event stream.
    pub fn stray(&self) -> String {
        String::from_utf8_lossy(&self.stray).trim().to_owned()
    }

    fn extend(&mut self, bytes: &[u8]) -> Result<(), EventTooLarge> {
        let SseEvent { name, data, id, extension } = &self.event;
        let optional = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let held = self.line.len() + name.len() + data.len() + optional(id) + optional(extension);
        if held + bytes.len() > self.max_event {
            return Err(EventTooLarge { limit: self.max_event });
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line<E>(&mut self, line: &[u8], sink: &mut impl FnMut(SseEvent) -> Result<(), E>) -> Result<(), E> {
        let line = if self.started { line } else { line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line) };
        self.started = true;
        if line.is_empty() {
            if std::mem::take(&mut self.has_data) {
                return sink(std::mem::take(&mut self.event));
            }
            // An id without data is the id of what follows.
            self.event.name.clear();
            self.event.extension = None;
            return Ok(());
        }
        let (field, value) = match line.iter().position(|byte| *byte == b':') {
            Some(colon) => (&line[..colon], line[colon + 1..].strip_prefix(b" ").unwrap_or(&line[colon + 1..])),
            None => (line, &b""[..]),
        };
        let text = || String::from_utf8_lossy(value);
        match field {
            b"data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(&text());
            }
            b"event" => self.event.name = text().into_owned(),
            b"id" if !value.contains(&0) => self.event.id = Some(text().into_owned()),
            b"retry" if value.iter().all(u8::is_ascii_digit) => {
                self.retry = text().parse().ok().map(Duration::from_millis).or(self.retry);
            }
            field if self.extension.is_some_and(|name| name.as_bytes() == field) => {
                self.event.extension = Some(text().into_owned());
            }
            // Comments keep the connection alive.
            b"" | b"id" | b"retry" => {}
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMIT: usize = 1 << 20;

    /// What a decoder made of some chunks: its events, and whether one was too large.
    fn decode(limit: usize, chunks: &[&[u8]]) -> (Vec<SseEvent>, Result<(), EventTooLarge>, SseDecoder) {
        let mut decoder = SseDecoder::new(limit);
        let mut events = Vec::new();
        let mut sink = |event| {
            events.push(event);
            Ok(())
        };
        let result = chunks.iter().try_for_each(|chunk| decoder.push(chunk, &mut sink));
        (events, result, decoder)
    }

    /// The data of all events, an incomplete last one included, and the stray text.
    fn read(chunks: &[&[u8]]) -> (Vec<String>, String) {
        let (mut events, result, mut decoder) = decode(LIMIT, chunks);
        result.unwrap();
        let mut sink = |event| {
            events.push(event);
            Ok::<(), EventTooLarge>(())
        };
        decoder.finish(&mut sink).unwrap();
        (events.into_iter().map(|event| event.data).collect(), decoder.stray())
    }

    #[test]
    fn events_comments_and_line_ends() {
        let text =
            b"\xef\xbb\xbfdata: one\n\n: keep-alive\n\ndata:two\r\n\r\nevent: x\nid: 7\ndata: a\ndata: b\n\ndata: last";
        assert_eq!(read(&[text]).0, ["one", "two", "a\nb", "last"]);
        assert_eq!(read(&[b"data: a\r\rdata: b\r", b"\n\r", b"\ndata: c\n\n"]).0, ["a", "b", "c"]);
        assert_eq!(read(&[b"data:\n\n", b"data\n\n"]).0, ["", ""]);
        assert_eq!(read(&[b"data:  two spaces\n\n"]).0, [" two spaces"]);
        assert_eq!(read(&[b"\xef\xbb\xbf\xef\xbb\xbfdata: x\n\n", b"\xef\xbb\xbfdata: y\n\n"]).0, Vec::<String>::new());
    }

    #[test]
    fn names_and_ids_belong_to_their_event() {
        let text = b"event: endpoint\r\nid: 1\r\ndata: /x\r\n\r\ndata: a\n\nevent: no data\nid: 2\n\ndata: b\n\nid: 3\nid: \x00\nid\ndata: c\n\n";
        let (events, ..) = decode(LIMIT, &[text]);
        let event = |name: &str, data: &str, id: Option<&str>| SseEvent {
            name: name.to_owned(),
            data: data.to_owned(),
            id: id.map(str::to_owned),
            extension: None,
        };
        let want = [
            event("endpoint", "/x", Some("1")),
            event("", "a", None),
            event("", "b", Some("2")),
            event("", "c", Some("")),
        ];
        assert_eq!(events, want);
    }

    #[test]
    fn an_extension_belongs_to_its_event() {
        let mut decoder = SseDecoder::new(LIMIT).with_extension("turn");
        let mut extensions = Vec::new();
        let mut sink = |event: SseEvent| {
            extensions.push(event.extension);
            Ok::<(), EventTooLarge>(())
        };
        let text = b"data: a\nturn: 1\n\nturn: lost\n\ndata: b\n\nturn:2\ndata: c\nturns: 3\n\n";
        decoder.push(text, &mut sink).unwrap();
        assert_eq!(extensions, [Some("1".to_owned()), None, Some("2".to_owned())]);
        assert_eq!(decoder.stray(), "turns: 3");
    }

    #[test]
    fn retry_is_a_number_of_milliseconds() {
        let retry = |text: &[u8]| decode(LIMIT, &[text]).2.retry();
        assert_eq!(retry(b"retry: 250\n"), Some(Duration::from_millis(250)));
        assert_eq!(
            retry(b"retry: 250\nretry: soon\nretry: -1\nretry\nretry: 99999999999999999999\n"),
            Some(Duration::from_millis(250))
        );
        assert_eq!(retry(b"retry: 1.5\n"), None);
    }

    #[test]
    fn an_incomplete_event_is_dropped_without_finish() {
        let text = b": hi\r\nevent: endpoint\r\ndata: /x\r\n\r\ndata: a\ndata:b\n\nid: 1\n\ndata\r\rdata: lost";
        let (events, ..) = decode(LIMIT, &[text]);
        let events: Vec<_> = events.iter().map(|event| (event.name.as_str(), event.data.as_str())).collect();
        assert_eq!(events, [("endpoint", "/x"), ("", "a\nb"), ("", "")]);
    }

    #[test]
    fn a_chunk_may_end_inside_a_character() {
        let text = "data: h\u{e9}llo \u{1f980}\n\n".as_bytes();
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(read(&bytes).0, ["h\u{e9}llo \u{1f980}"]);
        assert_eq!(read(&[b"data: \xff\n\n"]).0, ["\u{fffd}"]);
    }

    #[test]
    fn stray_text_is_kept_to_explain_the_response() {
        let (events, stray) = read(&[b"<html>\n<p>no</p>\n"]);
        assert!(events.is_empty());
        assert_eq!(stray, "<html>\n<p>no</p>");
        assert!(read(&[&[b'x'; 100_000], b"\n"]).1.len() <= MAX_STRAY);
    }

    #[test]
    fn endless_lines_and_events_are_refused() {
        let block = &[b'x'; LIMIT / 4][..];
        let too_large = Err(EventTooLarge { limit: LIMIT });
        assert_eq!(decode(LIMIT, &[block; 4]).1, Ok(()));
        assert_eq!(decode(LIMIT, &[block; 5]).1, too_large);
        let line = &[b"data: ", block, b"\n"].concat()[..];
        assert_eq!(decode(LIMIT, &[line; 3]).1, Ok(()));
        assert_eq!(decode(LIMIT, &[line; 4]).1, too_large);
        let ended = &[line, b"\n"].concat()[..];
        assert_eq!(decode(LIMIT, &[ended; 9]).1, Ok(()));
        let comment = &[b": ", block, b"\n"].concat()[..];
        assert_eq!(decode(LIMIT, &[comment; 9]).1, Ok(()), "comments are not kept");
    }

    /// Bytes that are likely to be fields, line ends and broken characters.
    fn stream_bytes() -> impl Strategy<Value = Vec<u8>> {
        let word = prop_oneof![
            Just(&b"data"[..]),
            Just(&b"data: "[..]),
            Just(&b"event: "[..]),
            Just(&b"id: "[..]),
            Just(&b"retry: 12"[..]),
            Just(&b":"[..]),
            Just(&b" "[..]),
            Just(&b"\n"[..]),
            Just(&b"\r"[..]),
            Just(&b"\r\n"[..]),
            Just(&b"\n\n"[..]),
            Just("\u{feff}".as_bytes()),
            Just("\u{1f980}".as_bytes()),
            Just(&b"\xff"[..]),
            Just(&b"\0"[..]),
            Just(&b"some text"[..]),
        ];
        prop::collection::vec(word, 0..40).prop_map(|words| words.concat())
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_events(
            bytes in stream_bytes(),
            mut cuts in prop::collection::vec(0usize..200, 0..12),
            limit in 1usize..64,
        ) {
            cuts.iter_mut().for_each(|cut| *cut = (*cut).min(bytes.len()));
            cuts.sort_unstable();
            let (mut chunks, mut from) = (Vec::new(), 0);
            for cut in cuts {
                chunks.push(&bytes[from..cut]);
                from = cut;
            }
            chunks.push(&bytes[from..]);
            for limit in [limit, LIMIT] {
                let (whole, split) = (decode(limit, &[&bytes]), decode(limit, &chunks));
                prop_assert_eq!((&whole.0, whole.1), (&split.0, split.1));
                prop_assert_eq!((whole.2.stray(), whole.2.retry()), (split.2.stray(), split.2.retry()));
            }
            prop_assert_eq!(read(&[&bytes]), read(&chunks));
        }

        #[test]
        fn payloads_survive_a_round_trip(lines in prop::collection::vec("[^\r\n]{0,40}", 0..8)) {
            let stream: String = lines.iter().map(|line| format!("data: {line}\n\n")).collect();
            prop_assert_eq!(read(&[stream.as_bytes()]).0, lines);
        }
    }
}
