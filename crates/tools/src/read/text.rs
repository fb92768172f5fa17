//! One page of a text file: numbered lines within the limits.

use super::Window;

/// Longer lines are cut: they are generated, and one of them could fill the model's memory.
const MAX_LINE_CHARS: usize = 2000;

#[derive(Debug)]
pub(super) struct Page {
    /// The lines with their numbers.
    pub numbered: String,
    /// The lines alone.
    pub text: String,
    /// What comes after them.
    pub note: String,
    pub first: usize,
    pub last: usize,
    pub total: usize,
    pub truncated: bool,
}

/// Takes the lines that are wanted. The error goes on with the name of the file.
pub(super) fn page(content: &[u8], window: Window) -> Result<Page, String> {
    let content = String::from_utf8_lossy(content);
    let content = content.strip_prefix('\u{feff}').unwrap_or(&content);
    let total = content.lines().count();
    let first = window.offset;
    if first > total.max(1) {
        return Err(format!("has {total} lines, so there is no line {first}. Use a smaller offset."));
    }
    let (mut numbered, mut text) = (String::new(), String::new());
    let mut last = first - 1;
    let mut full = false;
    for line in content.lines().skip(first - 1).take(window.limit) {
        let line = cut(line);
        // The first line is given in any case, so that there is always a way on.
        if last >= first && text.len() + line.len() + 1 > window.max_bytes {
            full = true;
            break;
        }
        if last >= first {
            numbered.push('\n');
            text.push('\n');
        }
        last += 1;
        numbered.push_str(&format!("{last}: {line}"));
        text.push_str(&line);
    }
    let truncated = last < total;
    let next = last + 1;
    let note = if full {
        format!("(Showing lines {first}-{last} of {total}, as many as fit. Use offset={next} to continue.)")
    } else if truncated {
        format!("(Showing lines {first}-{last} of {total}. Use offset={next} to continue.)")
    } else {
        format!("(End of file - total {total} lines)")
    };
    Ok(Page { numbered, text, note, first, last, total, truncated })
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
        assert_eq!((empty.first, empty.last, empty.total, empty.numbered.as_str()), (1, 0, 0, ""));
    }

    #[test]
    fn a_mark_and_carriage_returns_are_not_shown() {
        assert_eq!(page(b"\xef\xbb\xbfa\r\nb\r\n", window(1, 9)).unwrap().numbered, "1: a\n2: b");
    }

    #[test]
    fn a_long_line_is_cut() {
        let line = "é".repeat(10_000_000);
        let page = page(line.as_bytes(), window(1, 9)).unwrap();
        assert!(page.text.chars().count() < 2100 && page.text.ends_with("(line cut after 2000 characters)"));
    }

    #[test]
    fn bytes_are_bounded_and_say_how_to_go_on() {
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
