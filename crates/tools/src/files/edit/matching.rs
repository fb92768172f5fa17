//! Finds the text that an edit replaces: exactly, or by a series of strategies that forgive common mistakes of models
//! (indentation, spaces, escapes). The first strategy that finds something decides; more than one place is an error.
//! All texts use `\n` for line endings.

use std::ops::Range;
use std::time::Duration;

use similar::TextDiff;

use crate::files::indent::Indents;
use crate::files::newlines::{Splices, normalise};

/// Line comparisons per search; a file that needs more has too many similar lines.
const MAX_COMPARISONS: usize = 4_000_000;
/// How similar the inner lines of a block must be if only its first and last line match.
const BLOCK_SIMILARITY: f32 = 0.9;
/// The longest block that is compared by similarity, and how many are.
const MAX_BLOCK_BYTES: usize = 32 * 1024;
const MAX_BLOCKS: usize = 20;
/// Timeout of one similarity comparison.
const BLOCK_TIMEOUT: Duration = Duration::from_millis(100);

#[derive(Debug, PartialEq)]
pub(super) enum MatchError {
    /// Nothing matches. Holds the line number of its first line, if the file has it.
    NotFound(Option<usize>),
    /// Several places match.
    Ambiguous,
    /// The lines from this one on match except for their indentation, and the indentation for the new lines is
    /// ambiguous.
    Indentation(usize),
}

/// One way to find `old`; returns nothing if it does not match.
type MatchStrategy = fn(&Search) -> Result<Splices, MatchError>;

/// Finds `old` and what replaces it. `old` is not empty.
pub(super) fn find(content: &str, old: &str, new: &str, all: bool) -> Result<Splices, MatchError> {
    let search = Search::new(content, old, new, all);
    let exact = search.occurrences(old, new);
    if !exact.is_empty() {
        return search.one_or_all(exact);
    }
    let strategies: [MatchStrategy; 5] = [match_padded, match_shifted, match_trimmed, match_collapsed, match_unescaped];
    for strategy in strategies {
        let found = strategy(&search)?;
        if !found.is_empty() {
            return search.one_or_all(found);
        }
    }
    // Similarity is never good enough to change several places.
    let found = if all { Vec::new() } else { match_blocks(&search)? };
    if found.is_empty() { Err(MatchError::NotFound(search.first_line())) } else { search.one_or_all(found) }
}

struct Line<'a> {
    start: usize,
    /// Without its line ending.
    text: &'a str,
    /// Including its line ending.
    end: usize,
}

struct Search<'a> {
    content: &'a str,
    old: &'a str,
    new: &'a str,
    all: bool,
    lines: Vec<Line<'a>>,
    /// The lines of `old`.
    old_lines: Vec<&'a str>,
    /// The first line numbers at which all trimmed lines of `old` match.
    windows: Vec<usize>,
}

impl<'a> Search<'a> {
    fn new(content: &'a str, old: &'a str, new: &'a str, all: bool) -> Self {
        let mut start = 0;
        let lines: Vec<Line> = content
            .split_inclusive('\n')
            .map(|line| {
                let text = line.strip_suffix('\n').unwrap_or(line);
                start += line.len();
                Line { start: start - line.len(), text, end: start }
            })
            .collect();
        let old_lines: Vec<&str> =
            old.split_inclusive('\n').map(|line| line.strip_suffix('\n').unwrap_or(line)).collect();
        let mut search = Self { content, old, new, all, lines, old_lines, windows: Vec::new() };
        search.windows = search.windows(|a, b| a.trim() == b.trim());
        search
    }

    /// The matches, if there is exactly one or all are to be replaced.
    fn one_or_all(&self, mut found: Splices) -> Result<Splices, MatchError> {
        if !self.all {
            return if found.len() == 1 { Ok(found) } else { Err(MatchError::Ambiguous) };
        }
        // Of overlapping matches, the first counts.
        let mut end = 0;
        found.retain(|(range, _)| {
            let apart = range.start >= end;
            end = if apart { range.end } else { end };
            apart
        });
        Ok(found)
    }

    /// The line number of the first line of `old` in the file, for the error message.
    fn first_line(&self) -> Option<usize> {
        let first = self.old_lines.iter().map(|line| line.trim()).find(|line| !line.is_empty())?;
        self.lines.iter().position(|line| line.text.trim() == first).map(|at| at + 1)
    }

    /// Runs of lines that equal `old` line by line. A blank `old` would match everywhere, so it matches nowhere.
    fn windows(&self, same: impl Fn(&str, &str) -> bool) -> Vec<usize> {
        if self.old_lines.iter().all(|line| line.trim().is_empty()) {
            return Vec::new();
        }
        let mut budget = MAX_COMPARISONS;
        let mut found = Vec::new();
        for (at, window) in self.lines.windows(self.old_lines.len()).enumerate() {
            let mut pairs = window.iter().zip(&self.old_lines);
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

    /// The occurrences of a text, with its replacement. Unless all are to be replaced, overlapping ones count as two:
    /// nobody can know which one is meant.
    fn occurrences(&self, old: &str, new: &str) -> Splices {
        let splice = |at: usize| (at..at + old.len(), new.to_owned());
        if self.all {
            return self.content.match_indices(old).map(|(at, _)| splice(at)).collect();
        }
        let Some(first) = self.content.find(old) else { return Vec::new() };
        let next = first + old.chars().next().map_or(1, char::len_utf8);
        let second = self.content[next..].find(old).map(|at| next + at);
        std::iter::once(first).chain(second).map(splice).collect()
    }

    /// The indentation of the lines of `old`, and of the matching lines of the file from line `at` on.
    fn indents(&self, at: usize) -> Indents<'_> {
        let pairs = self.old_lines.iter().zip(&self.lines[at..]).map(|(want, line)| (*want, line.text));
        // Lines that are merely similar say nothing about indentation.
        Indents::new(pairs.filter(|(want, line)| want.split_whitespace().eq(line.split_whitespace())))
    }

    /// Replaces the lines at each of these positions with the new text, indented as the match shows.
    fn replace_lines(&self, found: impl IntoIterator<Item = usize>) -> Result<Splices, MatchError> {
        let replace = |at| {
            let new = self.indents(at).apply(self.new).ok_or(MatchError::Indentation(at + 1))?;
            Ok(self.splice_lines(at, new))
        };
        let found: Vec<usize> = found.into_iter().collect();
        // Decide which place is meant before looking at its indentation.
        if found.len() > 1 && !self.all { Err(MatchError::Ambiguous) } else { found.into_iter().map(replace).collect() }
    }

    /// Replaces the lines from `at` on. The last line ending belongs to the match only if `old` has one.
    fn splice_lines(&self, at: usize, mut new: String) -> (Range<usize>, String) {
        let lines = &self.lines[at..at + self.old_lines.len()];
        let (first, last) = (&lines[0], &lines[lines.len() - 1]);
        let body_end = last.start + last.text.len();
        let end = if !self.old.ends_with('\n') {
            body_end
        } else if last.end > body_end {
            last.end
        } else {
            // The file ends without a line ending, and should stay that way.
            new.truncate(new.trim_end_matches('\n').len());
            body_end
        };
        (first.start..end, new)
    }
}

/// Strategy 2: the same lines with the same indentation, ignoring trailing spaces. With `all`, places with a different
/// indentation are wanted too, so this is skipped.
fn match_padded(search: &Search) -> Result<Splices, MatchError> {
    if search.all {
        return Ok(Vec::new());
    }
    search.replace_lines(search.windows.iter().copied().filter(|&at| search.indents(at).is_same()))
}

/// Strategy 3: the same lines, all shifted by the same indentation, ignoring trailing spaces.
fn match_shifted(search: &Search) -> Result<Splices, MatchError> {
    search.replace_lines(search.windows.iter().copied().filter(|&at| search.indents(at).is_shift()))
}

/// Strategy 4: the same lines, ignoring indentation and trailing spaces.
fn match_trimmed(search: &Search) -> Result<Splices, MatchError> {
    search.replace_lines(search.windows.iter().copied())
}

/// Strategy 5: the same lines, ignoring the amount of whitespace.
fn match_collapsed(search: &Search) -> Result<Splices, MatchError> {
    search.replace_lines(search.windows(|a, b| a.split_whitespace().eq(b.split_whitespace())))
}

/// Strategy 6: text that was escaped once too often, with a literal `\n` for every line ending.
fn match_unescaped(search: &Search) -> Result<Splices, MatchError> {
    if search.old.contains('\n') || search.new.contains('\n') || !search.old.contains('\\') {
        return Ok(Vec::new());
    }
    let (old, new) = (unescape(search.old), unescape(search.new));
    Ok(search.occurrences(&normalise(&old), &normalise(&new)))
}

/// Strategy 7: a block of the same length whose first and last line match, and whose inner lines are nearly the same.
fn match_blocks(search: &Search) -> Result<Splices, MatchError> {
    let count = search.old_lines.len();
    let [first, inner @ .., last] = search.old_lines.as_slice() else { return Ok(Vec::new()) };
    let (first, last) = (first.trim(), last.trim());
    if inner.is_empty() || first.is_empty() || last.is_empty() || search.old.len() > MAX_BLOCK_BYTES {
        return Ok(Vec::new());
    }
    let inner = inner.join("\n");
    let fits = |window: &&[Line]| window[0].text.trim() == first && window[count - 1].text.trim() == last;
    let candidates = search.lines.windows(count).enumerate().filter(|(_, window)| fits(window));
    let alike = candidates.take(MAX_BLOCKS).filter(|(_, window)| {
        let text = window[1..count - 1].iter().map(|line| line.text).collect::<Vec<_>>().join("\n");
        text.len() <= 2 * MAX_BLOCK_BYTES
            && TextDiff::configure().timeout(BLOCK_TIMEOUT).diff_chars(inner.as_str(), text.as_str()).ratio()
                >= BLOCK_SIMILARITY
    });
    search.replace_lines(alike.map(|(at, _)| at))
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
