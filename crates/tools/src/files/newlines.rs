//! Normalises the line endings of a file to `\n`, and maps changes back to its original bytes.
//!
//! Tools that change part of a file match and replace in the normalised text. The rest keeps its bytes; inserted text
//! gets the line endings of the file.

use std::borrow::Cow;
use std::ops::Range;
use std::time::Duration;

use similar::{DiffOp, TextDiff};

/// A byte order mark. It is not part of the text, and stays in place.
pub(crate) const BOM: char = '\u{feff}';

/// After this time, lines of a replacement may be paired less well with the lines they replace. Only files with mixed
/// line endings need it.
const DIFF_TIMEOUT: Duration = Duration::from_millis(500);

/// Ranges of the text to replace, in order and disjoint, each with its new text.
pub(crate) type Splices = Vec<(Range<usize>, String)>;

/// A line ending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineEnding {
    Lf,
    CrLf,
}

impl LineEnding {
    fn of(line: &str) -> Option<Self> {
        match line.strip_suffix('\n') {
            None => None,
            Some(body) if body.ends_with('\r') => Some(Self::CrLf),
            Some(_) => Some(Self::Lf),
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Lf => "\n",
            Self::CrLf => "\r\n",
        }
    }
}

/// Returns a text with `\n` for every line ending.
pub(crate) fn normalise(text: &str) -> Cow<'_, str> {
    if text.contains("\r\n") { text.replace("\r\n", "\n").into() } else { text.into() }
}

/// Lines including their line endings, each with its offset.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.split_inclusive('\n').scan(0, |at, line| {
        *at += line.len();
        Some((*at - line.len(), line))
    })
}

/// A file's content and its normalised text.
pub(crate) struct NormalisedText<'a> {
    /// Without the byte order mark.
    source: &'a str,
    text: Cow<'a, str>,
    has_bom: bool,
    /// The ending of all lines; `None` if they differ, or if there is none.
    uniform: Option<LineEnding>,
    /// The ending of the first line.
    first: LineEnding,
}

impl<'a> NormalisedText<'a> {
    pub fn new(content: &'a str) -> Self {
        let source = content.strip_prefix(BOM).unwrap_or(content);
        let mut endings = lines(source).filter_map(|(_, line)| LineEnding::of(line));
        let first = endings.next();
        let uniform = first.filter(|first| endings.all(|ending| ending == *first));
        let has_bom = source.len() < content.len();
        Self { source, text: normalise(source), has_bom, uniform, first: first.unwrap_or(LineEnding::Lf) }
    }

    /// The text, without a byte order mark.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The content of the file with the splices applied.
    pub fn splice(&self, splices: &Splices) -> String {
        let mut out = String::with_capacity(self.source.len());
        out.extend(self.has_bom.then_some(BOM));
        let mut source = SourceCursor::new(self.source);
        for (range, new) in splices {
            out.push_str(source.advance(range.start));
            let replaced = source.advance(range.end);
            // Half a line ending: the new text was cut from a file with CRLF line endings.
            let new = match new.strip_suffix('\r') {
                Some(whole) if self.text[range.end..].starts_with('\n') => whole,
                _ => new,
            };
            match self.uniform {
                Some(ending) => out.push_str(&new.replace('\n', ending.as_str())),
                None => self.push_mixed(&mut out, source.at, replaced, new),
            }
        }
        out.push_str(source.rest());
        out
    }

    /// Pushes a replacement whose lines keep the endings of the lines they replace. Additional lines end like the one
    /// before.
    fn push_mixed(&self, out: &mut String, end: usize, replaced: &str, new: &str) {
        let old: Vec<Option<LineEnding>> = lines(replaced).map(|(_, line)| LineEnding::of(line)).collect();
        let around = self.ending_around(end);
        let text = normalise(replaced);
        let text: Vec<&str> = lines(&text).map(|(_, line)| line).collect();
        let new: Vec<&str> = lines(new).map(|(_, line)| line).collect();
        let diff = TextDiff::configure().timeout(DIFF_TIMEOUT).diff_slices(&text, &new);
        let mut last = old.iter().flatten().next().copied().unwrap_or(around);
        for op in diff.ops() {
            let replaced = match op {
                DiffOp::Insert { .. } => 0..0,
                _ => op.old_range(),
            };
            for (number, line) in new[op.new_range()].iter().enumerate() {
                let paired = replaced.clone().nth(number).and_then(|at| old.get(at));
                // A fragment of a line ends like that line, whose ending follows the match.
                last = paired.map_or(last, |ending| ending.unwrap_or(around));
                match line.strip_suffix('\n') {
                    Some(body) => out.extend([body, last.as_str()]),
                    None => out.push_str(line),
                }
            }
        }
    }

    /// The ending of the line at an offset, or else of the line before.
    fn ending_around(&self, at: usize) -> LineEnding {
        let after = self.source[at..].find('\n').map(|n| at + n);
        let near = after.or_else(|| self.source[..at].rfind('\n'));
        near.and_then(|n| LineEnding::of(&self.source[..=n])).unwrap_or(self.first)
    }
}

/// Walks a file by offsets in its normalised text.
struct SourceCursor<'a> {
    source: &'a str,
    at: usize,
    /// The offset in the text that corresponds to `at`.
    text_at: usize,
}

impl<'a> SourceCursor<'a> {
    fn new(source: &'a str) -> Self {
        Self { source, at: 0, text_at: 0 }
    }

    /// Returns the part of the file up to an offset in the text. Never splits a line ending.
    fn advance(&mut self, to: usize) -> &'a str {
        let start = self.at;
        while self.text_at < to {
            let rest = &self.source[self.at..];
            let body = rest.find('\n').map_or(rest, |n| rest[..n].strip_suffix('\r').unwrap_or(&rest[..n]));
            let ending = match rest.as_bytes().get(body.len()) {
                None => 0,
                Some(b'\r') => 2,
                Some(_) => 1,
            };
            let step = body.len().min(to - self.text_at);
            self.at += step;
            self.text_at += step;
            if self.text_at < to {
                if ending == 0 {
                    break;
                }
                self.at += ending;
                self.text_at += 1;
            }
        }
        &self.source[start..self.at]
    }

    fn rest(&self) -> &'a str {
        &self.source[self.at..]
    }
}

/// For the fuzzer: checks that splices change nothing outside their ranges, and add no half of a line ending.
pub(crate) fn check_splice(content: &str, splices: &Splices) {
    let file = NormalisedText::new(content);
    let result = file.splice(splices);
    let (Some(first), Some(last)) = (splices.first(), splices.last()) else {
        return assert_eq!(result, content, "nothing is replaced");
    };
    let mut cursor = SourceCursor::new(file.source);
    let head = content.len() - file.source.len() + cursor.advance(first.0.start).len();
    let _ = cursor.advance(last.0.end);
    assert_eq!(result.get(..head), content.get(..head), "bytes before the first place");
    assert!(result.len() >= head && result[head..].ends_with(cursor.rest()), "bytes behind the last place");
    let want = spliced(file.text(), splices);
    if !want.contains('\r') {
        let bom = if file.has_bom { "\u{feff}" } else { "" };
        assert_eq!(normalise(&result), format!("{bom}{want}"), "the text, without half a line ending");
    }
}

/// Applies splices without any conversion.
fn spliced(text: &str, splices: &Splices) -> String {
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    for (range, new) in splices {
        out.push_str(&text[at..range.start]);
        out.push_str(new);
        at = range.end;
    }
    out.push_str(&text[at..]);
    out
}

#[cfg(test)]
mod tests;
