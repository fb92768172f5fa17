//! Reads a page of a text file: numbered lines within the limits, reading no further than necessary.

use std::io::{self, BufRead};

use super::Window;

/// Longer lines are cut: they are usually generated, and a single one could fill the model's context.
const MAX_LINE_CHARS: usize = 2000;

/// How much of a line is kept: enough bytes for the characters shown and one more.
const MAX_LINE_BYTES: usize = 4 * (MAX_LINE_CHARS + 1);

/// How many lines, and bytes within a line, are read between checks of `stop`.
const CHECK_LINES: usize = 10_000;
const CHECK_BYTES: u64 = 16 << 20;

/// The mark that some editors put at the beginning of a text.
const BYTE_ORDER_MARK: &str = "\u{feff}";

#[derive(Debug)]
pub(super) struct Page {
    /// The lines with their numbers.
    pub numbered: String,
    /// The lines alone.
    pub text: String,
    /// A note for after the lines.
    pub note: String,
    pub first: usize,
    pub last: usize,
    /// The number of lines in the file, if it was read to its end.
    pub total: Option<usize>,
    pub truncated: bool,
}

/// Reads the lines of a window. With `count` it goes on to the end of the file to count its lines; otherwise it stops
/// after the window. `stop` ends it early. The error continues a sentence that starts with the file's name.
pub(super) fn page(
    mut source: impl BufRead,
    window: Window,
    count: bool,
    stop: &dyn Fn() -> bool,
) -> Result<Page, String> {
    let failed = |error: io::Error| format!("could not be read: {error}.");
    let first = window.offset;
    let after = first.saturating_add(window.limit);
    let (mut numbered, mut text) = (String::new(), String::new());
    let (mut seen, mut last, mut full) = (0, first - 1, false);
    let mut line = Vec::new();
    let whole = loop {
        let wanted = seen + 1 >= first && seen + 1 < after && !full;
        if !wanted && seen + 1 >= first && !count {
            // Whether there is another line decides how the page ends.
            break source.fill_buf().map_err(failed)?.is_empty();
        }
        if seen % CHECK_LINES == 0 && stop() {
            return Err(format!("took too long to read up to line {seen}. Use grep, or sed and tail in bash."));
        }
        line.clear();
        if !next(&mut source, wanted.then_some(&mut line), stop).map_err(failed)? {
            break true;
        }
        seen += 1;
        if !wanted {
            continue;
        }
        let decoded = String::from_utf8_lossy(&line);
        let shown = cut(if seen == 1 { decoded.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&decoded) } else { &decoded });
        // The first line is always included, so that reading can continue.
        if last >= first && text.len() + shown.len() + 1 > window.max_bytes {
            full = true;
            continue;
        }
        if last >= first {
            numbered.push('\n');
            text.push('\n');
        }
        last += 1;
        numbered.push_str(&format!("{last}: {shown}"));
        text.push_str(&shown);
    };
    let total = whole.then_some(seen);
    if let Some(total) = total.filter(|total| first > (*total).max(1)) {
        return Err(format!("has {total} lines, so there is no line {first}. Use a smaller offset."));
    }
    let truncated = total.is_none_or(|total| last < total);
    let (next, of) = (last + 1, total.map_or_else(|| "a longer file".to_owned(), |total| total.to_string()));
    let note = match total {
        _ if full => format!("(Showing lines {first}-{last} of {of}, as many as fit. Use offset={next} to continue.)"),
        Some(total) if !truncated => format!("(End of file - total {total} lines)"),
        _ => format!("(Showing lines {first}-{last} of {of}. Use offset={next} to continue.)"),
    };
    Ok(Page { numbered, text, note, first, last, total, truncated })
}

/// Reads a line without its ending; keeps its beginning in `kept`. Returns false at the end of the file.
fn next(source: &mut impl BufRead, mut kept: Option<&mut Vec<u8>>, stop: &dyn Fn() -> bool) -> io::Result<bool> {
    let (mut any, mut length) = (false, 0_u64);
    loop {
        let bytes = match source.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            bytes => bytes?,
        };
        if bytes.is_empty() {
            return Ok(any);
        }
        any = true;
        let end = memchr::memchr(b'\n', bytes);
        let piece = &bytes[..end.unwrap_or(bytes.len())];
        length += piece.len() as u64;
        if let Some(kept) = &mut kept {
            kept.extend_from_slice(&piece[..piece.len().min(MAX_LINE_BYTES - kept.len())]);
        }
        let used = piece.len() + usize::from(end.is_some());
        source.consume(used);
        if end.is_some() {
            if let Some(kept) = kept
                && length == kept.len() as u64
                && kept.last() == Some(&b'\r')
            {
                kept.pop();
            }
            return Ok(true);
        }
        // A line may be as long as the file.
        if length > CHECK_BYTES && stop() {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
}

fn cut(line: &str) -> std::borrow::Cow<'_, str> {
    match line.char_indices().nth(MAX_LINE_CHARS) {
        None => line.into(),
        Some((end, _)) => format!("{}... (line cut after {MAX_LINE_CHARS} characters)", &line[..end]).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn window(offset: usize, limit: usize) -> Window {
        Window { offset, limit, max_bytes: 51200 }
    }

    fn page(content: &[u8], window: Window) -> Result<Page, String> {
        super::page(content, window, true, &|| false)
    }

    #[test]
    fn pages() {
        let page_of = |offset, limit| page(b"a\nb\nc", window(offset, limit)).unwrap();
        assert_eq!(page_of(1, 9).numbered, "1: a\n2: b\n3: c");
        assert_eq!(page_of(1, 9).note, "(End of file - total 3 lines)");
        let middle = page_of(2, 1);
        assert_eq!((middle.text.as_str(), middle.first, middle.last, middle.truncated), ("b", 2, 2, true));
        assert_eq!(middle.note, "(Showing lines 2-2 of 3. Use offset=3 to continue.)");
        assert_eq!(page_of(3, 9).note, "(End of file - total 3 lines)");
        assert!(page(b"a\n", window(2, 9)).unwrap_err().contains("no line 2"));
        let empty = page(b"", window(1, 9)).unwrap();
        assert_eq!((empty.first, empty.last, empty.total, empty.numbered.as_str()), (1, 0, Some(0), ""));
    }

    #[test]
    fn byte_order_mark_and_carriage_returns_are_hidden() {
        assert_eq!(page(b"\xef\xbb\xbfa\r\nb\r\n", window(1, 9)).unwrap().numbered, "1: a\n2: b");
    }

    #[test]
    fn a_long_line_is_cut() {
        let line = "é".repeat(10_000_000);
        let page = page(line.as_bytes(), window(1, 9)).unwrap();
        assert!(page.text.chars().count() < 2100 && page.text.ends_with("(line cut after 2000 characters)"));
    }

    /// An infinite stream of lines, which counts the bytes read.
    struct InfiniteReader(std::rc::Rc<std::cell::Cell<usize>>, &'static [u8]);

    impl io::Read for InfiniteReader {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let read = self.0.get();
            for (at, byte) in buffer.iter_mut().enumerate() {
                *byte = self.1[(read + at) % self.1.len()];
            }
            self.0.set(read + buffer.len());
            Ok(buffer.len())
        }
    }

    #[test]
    fn an_infinite_file_is_read_only_as_far_as_needed() {
        let read = std::rc::Rc::default();
        let source = io::BufReader::new(InfiniteReader(std::rc::Rc::clone(&read), b"0123456789\n"));
        let page = super::page(source, window(20_001, 2), false, &|| false).unwrap();
        assert_eq!(page.numbered, "20001: 0123456789\n20002: 0123456789");
        assert_eq!((page.total, page.truncated), (None, true));
        assert_eq!(page.note, "(Showing lines 20001-20002 of a longer file. Use offset=20003 to continue.)");
        assert!(read.get() < 20_003 * 11 + 20_000, "{}", read.get());
        // Reading ends in time, whether the line is far away or never ends.
        for line in [&b"0123456789\n"[..], b"no end "] {
            let (source, asked) =
                (io::BufReader::new(InfiniteReader(std::rc::Rc::default(), line)), std::cell::Cell::new(0));
            let stop = || asked.replace(asked.get() + 1) > 3;
            let refused = super::page(source, window(usize::MAX, 2), false, &stop).unwrap_err();
            assert!(refused.contains("too long") || refused.contains("timed out"), "{refused}");
        }
    }

    #[test]
    fn the_line_count_is_known_once_the_end_is_read() {
        let of = |window| super::page(&b"a\nb\nc"[..], window, false, &|| false);
        assert_eq!(of(window(2, 9)).unwrap().note, "(End of file - total 3 lines)");
        assert_eq!(of(window(2, 2)).unwrap().note, "(End of file - total 3 lines)");
        assert_eq!(of(window(1, 2)).unwrap().note, "(Showing lines 1-2 of a longer file. Use offset=3 to continue.)");
        assert!(of(window(5, 2)).unwrap_err().contains("has 3 lines"));
    }

    #[test]
    fn bytes_are_bounded_and_the_note_says_how_to_continue() {
        let page = page(&b"0123456789\n".repeat(100), Window { offset: 1, limit: 1000, max_bytes: 50 }).unwrap();
        assert_eq!((page.last, page.truncated), (4, true));
        assert!(page.note.contains("as many as fit. Use offset=5"));
    }

    proptest! {
        #[test]
        fn following_the_offsets_reads_everything(lines in prop::collection::vec("[a-z]{0,20}", 1..30), max in 1usize..60) {
            let content: String = lines.iter().map(|l| format!("{l}\n")).collect();
            let (mut offset, mut seen) = (1, Vec::new());
            loop {
                let page = page(content.as_bytes(), Window { offset, limit: 7, max_bytes: max }).unwrap();
                seen.extend(page.text.split('\n').map(str::to_owned));
                offset = page.last + 1;
                if !page.truncated {
                    break;
                }
            }
            prop_assert_eq!(seen, lines);
        }
    }
}
