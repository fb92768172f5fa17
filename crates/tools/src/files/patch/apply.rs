//! Applies the hunks of a patch to a text. Only lines that the patch deletes or inserts change; context lines keep
//! their bytes. The last line gets a line ending.

use std::ops::Range;

use super::parse::{Hunk, Kind};
use crate::files::indent::Indents;
use crate::files::newlines::{NormalisedText, Splices};

/// Line comparisons per file; more means that its lines are too similar.
const MAX_COMPARISONS: usize = 4_000_000;

/// Line ranges to replace, in order and disjoint, each with its new lines.
type LineSplices = Vec<(Range<usize>, Vec<String>)>;

/// Applies all hunks. The result ends with a line ending, as in Codex.
pub(super) fn apply(content: &str, hunks: &[Hunk]) -> Result<String, String> {
    if hunks.is_empty() {
        return Ok(content.to_owned());
    }
    let closed = end_last_line(content);
    let file = NormalisedText::new(&closed);
    Ok(file.splice(&splices(file.text(), hunks)?))
}

/// Adds a line ending to the last line if it has none.
pub(super) fn end_last_line(content: &str) -> String {
    let file = NormalisedText::new(content);
    let end = file.text().len();
    let open = !file.text().is_empty() && !file.text().ends_with('\n');
    file.splice(&open.then(|| (end..end, "\n".to_owned())).into_iter().collect())
}

/// The changes that the hunks make to a text whose last line has a line ending.
pub(super) fn splices(text: &str, hunks: &[Hunk]) -> Result<Splices, String> {
    let lines: Vec<&str> = text.split_terminator('\n').collect();
    let mut starts: Vec<usize> = Vec::with_capacity(lines.len() + 1);
    starts.push(0);
    starts.extend(text.match_indices('\n').map(|(at, _)| at + 1));
    let splices = locate(&lines, hunks)?.into_iter().map(|(range, new)| {
        let new: String = new.iter().flat_map(|line| [line, "\n"]).collect();
        (starts[range.start]..starts[range.end], new)
    });
    Ok(splices.collect())
}

/// Finds the place of every hunk, from top to bottom.
fn locate(lines: &[&str], hunks: &[Hunk]) -> Result<LineSplices, String> {
    let mut search = Search { lines, budget: MAX_COMPARISONS };
    let mut splices = LineSplices::new();
    let mut from = 0;
    for hunk in hunks {
        for anchor in &hunk.anchors {
            let found = search.find(&[anchor.as_str()], from, false);
            from = found.ok_or_else(|| format!("has no line \"{anchor}\" (from line {} on)", from + 1))? + 1;
        }
        let mut shown = hunk.lines.clone();
        let at = loop {
            let wanted: Vec<&str> = old_lines(&shown).collect();
            let found = if wanted.is_empty() { None } else { search.find(&wanted, from, hunk.at_end) };
            if found.is_some() || wanted.is_empty() {
                break found;
            }
            shown = without_end(&shown).ok_or_else(|| missing(&shown, from))?;
        };
        if let Some(at) = at {
            let shown = reindent(&shown, &lines[at..]).ok_or_else(|| misindented(at))?;
            from = rewrite(at, &shown, &mut splices);
            continue;
        }
        // Lines that are only added go below the anchor, or to the end; the next hunk may still be above.
        let below_anchor = !hunk.anchors.is_empty() && !hunk.at_end;
        let at = if below_anchor { from } else { lines.len() };
        splices.push((at..at, shown.into_iter().map(|(_, text)| text).collect()));
    }
    // Hunks that insert at the same place keep their order.
    splices.sort_by_key(|(range, _)| (range.start, range.end));
    Ok(splices)
}

/// Drops the last old line of a hunk if it is empty: patches often represent the end of the file like that.
fn without_end(shown: &[(Kind, String)]) -> Option<Vec<(Kind, String)>> {
    let at = shown.iter().rposition(|(kind, _)| *kind != Kind::Insert).filter(|&at| shown[at].1.is_empty())?;
    let last = at + 1 == shown.len();
    if !last && old_lines(&shown[..at]).next().is_none() {
        return None;
    }
    let mut rest = shown.to_vec();
    match shown[at].0 {
        // It separates existing lines from added ones.
        Kind::Context if !last => rest[at].0 = Kind::Insert,
        _ => drop(rest.remove(at)),
    }
    Some(rest)
}

/// Indents the inserted lines of a hunk as the match shows. If some of its lines have the file's indentation, the
/// others are a slip, and the inserted lines are correct. Returns `None` if none has, and the match does not show how
/// to indent.
fn reindent(shown: &[(Kind, String)], lines: &[&str]) -> Option<Vec<(Kind, String)>> {
    let indents = Indents::new(old_lines(shown).zip(lines.iter().copied()));
    if shown.iter().all(|(kind, _)| *kind != Kind::Insert) {
        return Some(shown.to_vec());
    }
    // Context lines are part of the new text: the inserted lines are relative to them.
    let new = shown.iter().filter(|(kind, _)| *kind != Kind::Delete).map(|(_, text)| text.as_str());
    let Some(new) = indents.apply(&new.collect::<Vec<_>>().join("\n")) else {
        return (!indents.is_foreign()).then(|| shown.to_vec());
    };
    let mut new = new.split('\n');
    let line = |(kind, text): &(Kind, String)| match kind {
        Kind::Delete => (*kind, text.clone()),
        _ => (*kind, new.next().unwrap_or_default().to_owned()),
    };
    Some(shown.iter().map(line).collect())
}

fn misindented(at: usize) -> String {
    format!(
        "has these lines from line {} on, but with another indentation, and it cannot be told how the new lines should be \
         indented. Read the file again and copy the lines with their indentation",
        at + 1
    )
}

fn missing(shown: &[(Kind, String)], from: usize) -> String {
    let wanted: Vec<&str> = old_lines(shown).take(3).collect();
    format!(
        "has no lines like these from line {} on:\n{}\nRead the file again and copy the lines exactly",
        from + 1,
        wanted.join("\n")
    )
}

fn old_lines(shown: &[(Kind, String)]) -> impl Iterator<Item = &str> {
    shown.iter().filter(|(kind, _)| *kind != Kind::Insert).map(|(_, text)| text.as_str())
}

/// Turns a hunk at a line of the file into splices, without its context lines. Returns the line after the hunk.
fn rewrite(at: usize, shown: &[(Kind, String)], splices: &mut LineSplices) -> usize {
    let (mut start, mut end, mut new) = (at, at, Vec::new());
    for (kind, text) in shown {
        match kind {
            Kind::Delete => end += 1,
            Kind::Insert => new.push(text.clone()),
            Kind::Context => {
                if start < end || !new.is_empty() {
                    splices.push((start..end, std::mem::take(&mut new)));
                }
                end += 1;
                start = end;
            }
        }
    }
    if start < end || !new.is_empty() {
        splices.push((start..end, new));
    }
    end
}

struct Search<'a> {
    lines: &'a [&'a str],
    budget: usize,
}

impl Search<'_> {
    /// Finds lines: identical, or ignoring trailing spaces, or spaces at both ends, or typography.
    fn find(&mut self, wanted: &[&str], from: usize, at_end: bool) -> Option<usize> {
        let comparisons: [fn(&str, &str) -> bool; 4] = [
            |a, b| a == b,
            |a, b| a.trim_end() == b.trim_end(),
            |a, b| a.trim() == b.trim(),
            |a, b| plain(a).eq(plain(b)),
        ];
        let last = self.lines.len().checked_sub(wanted.len())?;
        let from = if at_end { from.max(last) } else { from };
        for same in comparisons {
            if let Some(at) = (from..=last).find(|&at| self.fits(wanted, at, same)) {
                return Some(at);
            }
        }
        None
    }

    fn fits(&mut self, wanted: &[&str], at: usize, same: fn(&str, &str) -> bool) -> bool {
        self.lines[at..].iter().zip(wanted).all(|(line, want)| {
            self.budget = self.budget.saturating_sub(1);
            self.budget > 0 && same(line, want)
        })
    }
}

/// A line with typographic dashes, quotes and spaces replaced by plain ones.
fn plain(line: &str) -> impl Iterator<Item = char> {
    line.trim().chars().map(|c| match c {
        '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
        '\u{2018}'..='\u{201b}' => '\'',
        '\u{201c}'..='\u{201f}' => '"',
        '\u{a0}' | '\u{2002}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => ' ',
        other => other,
    })
}
