//! Finds the text that an edit replaces: exactly, or by a ladder of matches that forgive what models get wrong (line
//! endings, indentation, spaces, escapes). The first rung that finds something decides; more than one place is an error.

use std::ops::Range;
use std::time::Duration;

use similar::TextDiff;

/// Line comparisons per search; a file that needs more has too little to tell its lines apart.
const MAX_COMPARISONS: usize = 4_000_000;
/// How alike the inner lines of a block must be when only its first and last line fit.
const BLOCK_SIMILARITY: f32 = 0.9;
/// The longest block that is compared by likeness, and how many are.
const MAX_BLOCK_BYTES: usize = 32 * 1024;
const MAX_BLOCKS: usize = 20;
/// Time for one comparison by likeness.
const BLOCK_EFFORT: Duration = Duration::from_millis(100);

/// Places to replace, in order and apart from each other, each with its new text.
pub(super) type Splices = Vec<(Range<usize>, String)>;

#[derive(Debug, PartialEq)]
pub(super) enum MatchError {
    /// Nothing fits. If its first line is there, its number.
    NotFound(Option<usize>),
    /// Several places fit.
    Ambiguous,
}

/// The content with the splices applied; everything outside them is untouched.
pub(super) fn apply(content: &str, splices: &Splices) -> String {
    let mut out = String::with_capacity(content.len());
    let mut at = 0;
    for (range, text) in splices {
        out.push_str(&content[at..range.start]);
        out.push_str(text);
        at = range.end;
    }
    out.push_str(&content[at..]);
    out
}

/// Where `old` is and what takes its place. `old` is not empty.
pub(super) fn find(content: &str, old: &str, new: &str, all: bool) -> Result<Splices, MatchError> {
    let rungs: [fn(&Search) -> Splices; 6] = [exact, other_line_ends, indented, trimmed, collapsed, unescaped];
    let search = Search::new(content, old, new, all);
    for rung in rungs {
        let found = rung(&search);
        match found.len() {
            0 => {}
            1 => return Ok(found),
            _ if all => return Ok(apart(found)),
            _ => return Err(MatchError::Ambiguous),
        }
    }
    // A likeness is never good enough to change several places at once.
    let found = if all { Vec::new() } else { blocks(&search) };
    match found.len() {
        0 => Err(MatchError::NotFound(search.first_line())),
        1 => Ok(found),
        _ => Err(MatchError::Ambiguous),
    }
}

/// Drops matches that overlap an earlier one.
fn apart(found: Splices) -> Splices {
    let mut end = 0;
    found
        .into_iter()
        .filter(|(range, _)| {
            let keep = range.start >= end;
            end = if keep { range.end } else { end };
            keep
        })
        .collect()
}

struct Line<'a> {
    start: usize,
    /// Without its line ending.
    text: &'a str,
    /// With it.
    end: usize,
}

struct Search<'a> {
    content: &'a str,
    old: &'a str,
    new: &'a str,
    all: bool,
    lines: Vec<Line<'a>>,
    /// The lines of `old`.
    wanted: Vec<&'a str>,
    /// Where the trimmed lines of `old` are, by the number of the first line.
    windows: Vec<usize>,
}

impl<'a> Search<'a> {
    fn new(content: &'a str, old: &'a str, new: &'a str, all: bool) -> Self {
        let mut start = 0;
        let lines: Vec<Line> = content
            .split_inclusive('\n')
            .map(|line| {
                let text = line.strip_suffix('\n').map_or(line, |l| l.strip_suffix('\r').unwrap_or(l));
                start += line.len();
                Line { start: start - line.len(), text, end: start }
            })
            .collect();
        let wanted: Vec<&str> = old.lines().collect();
        let mut search = Self { content, old, new, all, lines, wanted, windows: Vec::new() };
        search.windows = search.windows(|a, b| a.trim() == b.trim());
        search
    }

    /// The number of the first line of `old` in the file, for the error message.
    fn first_line(&self) -> Option<usize> {
        let first = self.wanted.iter().map(|line| line.trim()).find(|line| !line.is_empty())?;
        self.lines.iter().position(|line| line.text.trim() == first).map(|at| at + 1)
    }

    /// Runs of lines that are the same as `old`, line by line. A blank `old` fits everywhere, so it fits nowhere.
    fn windows(&self, same: impl Fn(&str, &str) -> bool) -> Vec<usize> {
        if self.wanted.iter().all(|line| line.trim().is_empty()) {
            return Vec::new();
        }
        let mut budget = MAX_COMPARISONS;
        let mut found = Vec::new();
        for (at, window) in self.lines.windows(self.wanted.len()).enumerate() {
            let mut pairs = window.iter().zip(&self.wanted);
            let fits = pairs.all(|(line, want)| {
                budget = budget.saturating_sub(1);
                budget > 0 && same(line.text, want)
            });
            if budget == 0 {
                return Vec::new();
            }
            if fits {
                found.push(at);
            }
        }
        found
    }

    /// Replaces the lines from `at` on. The last line ending belongs to the match only if `old` has one.
    fn splice_lines(&self, at: usize, new: &str) -> (Range<usize>, String) {
        let lines = &self.lines[at..at + self.wanted.len()];
        let (first, last) = (&lines[0], &lines[lines.len() - 1]);
        let body_end = last.start + last.text.len();
        let mut new = with_line_ends(new, crlf(self.content, first.start));
        let end = if !self.old.ends_with('\n') {
            body_end
        } else if last.end > body_end {
            last.end
        } else {
            // The file ends without a line ending, and shall do so afterwards.
            new.truncate(new.trim_end_matches(['\r', '\n']).len());
            body_end
        };
        (first.start..end, new)
    }

    /// The same, where the lines differ from `old` in more than a shift. If `old` began behind the indentation, so does
    /// the match.
    fn splice_loose(&self, at: usize) -> (Range<usize>, String) {
        let (mut range, new) = self.splice_lines(at, self.new);
        if indent(self.wanted[0]).is_empty() && indent(self.new).is_empty() {
            range.start += indent(self.lines[at].text).len().min(range.len());
        }
        (range, new)
    }
}

/// Rung 1: the very text.
fn exact(search: &Search) -> Splices {
    let found = occurrences(search.content, search.old, search.all);
    let crlf = found.first().is_some_and(|range| crlf(search.content, range.start));
    // Only new line endings follow the file; a text that names its own keeps them.
    let new = if crlf { with_line_ends(search.new, true) } else { search.new.to_owned() };
    found.into_iter().map(|range| (range, new.clone())).collect()
}

/// Rung 2: the same text with the file's line endings.
fn other_line_ends(search: &Search) -> Splices {
    let crlf = crlf(search.content, 0);
    let old = with_line_ends(search.old, crlf);
    if old == search.old {
        return Vec::new();
    }
    let new = with_line_ends(search.new, crlf);
    occurrences(search.content, &old, search.all).into_iter().map(|range| (range, new.clone())).collect()
}

/// Rung 3: the same lines, all shifted by the same indentation; the new text is shifted too.
fn indented(search: &Search) -> Splices {
    let from = common_indent(search.wanted.iter().copied());
    let shift = |&at: &usize| {
        let window = &search.lines[at..at + search.wanted.len()];
        let to = common_indent(window.iter().map(|line| line.text));
        let mut pairs = window.iter().zip(&search.wanted);
        let same = pairs.all(|(line, want)| unindent(line.text, to) == unindent(want, from));
        same.then(|| reindent(search.new, from, to)).flatten().map(|new| search.splice_lines(at, &new))
    };
    search.windows.iter().filter_map(shift).collect()
}

/// Rung 4: the same lines but for spaces at their ends.
fn trimmed(search: &Search) -> Splices {
    search.windows.iter().map(|&at| search.splice_loose(at)).collect()
}

/// Rung 5: the same lines but for the number of spaces anywhere.
fn collapsed(search: &Search) -> Splices {
    let found = search.windows(|a, b| a.split_whitespace().eq(b.split_whitespace()));
    found.into_iter().map(|at| search.splice_loose(at)).collect()
}

/// Rung 6: a text that was escaped once too often, so that it has `\n` for every line ending.
fn unescaped(search: &Search) -> Splices {
    if search.old.contains('\n') || search.new.contains('\n') || !search.old.contains('\\') {
        return Vec::new();
    }
    let crlf = crlf(search.content, 0);
    let old = with_line_ends(&unescape(search.old), crlf);
    let new = with_line_ends(&unescape(search.new), crlf);
    occurrences(search.content, &old, search.all).into_iter().map(|range| (range, new.clone())).collect()
}

/// Rung 7: a block of as many lines whose first and last line fit, and whose inside is nearly the same.
fn blocks(search: &Search) -> Splices {
    let count = search.wanted.len();
    let [first, inner @ .., last] = search.wanted.as_slice() else { return Vec::new() };
    let (first, last) = (first.trim(), last.trim());
    if inner.is_empty() || first.is_empty() || last.is_empty() || search.old.len() > MAX_BLOCK_BYTES {
        return Vec::new();
    }
    let inner = inner.join("\n");
    let fits = |window: &&[Line]| window[0].text.trim() == first && window[count - 1].text.trim() == last;
    let candidates = search.lines.windows(count).enumerate().filter(|(_, window)| fits(window));
    candidates
        .take(MAX_BLOCKS)
        .filter(|(_, window)| {
            let text = window[1..count - 1].iter().map(|line| line.text).collect::<Vec<_>>().join("\n");
            text.len() <= 2 * MAX_BLOCK_BYTES
                && TextDiff::configure().timeout(BLOCK_EFFORT).diff_chars(inner.as_str(), text.as_str()).ratio()
                    >= BLOCK_SIMILARITY
        })
        .map(|(at, _)| search.splice_loose(at))
        .collect()
}

/// Where a text is. Unless all are wanted, overlapping places count as two: which one is meant cannot be known.
fn occurrences(content: &str, text: &str, all: bool) -> Vec<Range<usize>> {
    let range = |at: usize| at..at + text.len();
    if all {
        return content.match_indices(text).map(|(at, _)| range(at)).collect();
    }
    let Some(first) = content.find(text) else { return Vec::new() };
    let next = first + text.chars().next().map_or(1, char::len_utf8);
    let second = content[next..].find(text).map(|at| next + at);
    std::iter::once(first).chain(second).map(range).collect()
}

/// Whether the lines at this place end in CR LF.
fn crlf(content: &str, at: usize) -> bool {
    let ending = content[at..].find('\n').map(|n| at + n).or_else(|| content[..at].rfind('\n'));
    ending.is_some_and(|n| content[..n].ends_with('\r'))
}

fn with_line_ends(text: &str, crlf: bool) -> String {
    let text = text.replace("\r\n", "\n");
    if crlf { text.replace('\n', "\r\n") } else { text }
}

fn indent(line: &str) -> &str {
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

/// The indentation that all lines share, blank ones aside.
fn common_indent<'a>(lines: impl Iterator<Item = &'a str>) -> &'a str {
    let mut common: Option<&str> = None;
    for line in lines.filter(|line| !line.trim().is_empty()) {
        let own = indent(line);
        common = Some(match common {
            None => own,
            Some(shared) => {
                let same = shared.bytes().zip(own.bytes()).take_while(|(a, b)| a == b).count();
                &shared[..same]
            }
        });
    }
    common.unwrap_or_default()
}

fn unindent<'a>(line: &'a str, indent: &str) -> &'a str {
    line.strip_prefix(indent).unwrap_or(line).trim_end()
}

/// The text with one indentation in place of another; nothing if a line does not have it.
fn reindent(text: &str, from: &str, to: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        if line.trim().is_empty() {
            out.push_str(line.trim_start_matches([' ', '\t']));
            continue;
        }
        out.push_str(to);
        out.push_str(line.strip_prefix(from)?);
    }
    Some(out)
}

fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('n') => out.push('\n'),
            Some('t') => out.push('\t'),
            Some('r') => out.push('\r'),
            Some(c @ ('\\' | '"' | '\'' | '`' | '$')) => out.push(c),
            Some(c) => out.extend(['\\', c]),
            None => out.push('\\'),
        }
    }
    out
}

#[cfg(test)]
mod tests;
