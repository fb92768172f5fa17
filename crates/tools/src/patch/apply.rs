//! Applies the hunks of a patch to a text. Only the lines that the patch deletes or inserts change; lines that it merely
//! shows stay as they are in the file, byte by byte.

use std::ops::Range;

use super::parse::{Hunk, Kind};

/// Line comparisons per file; more means that its lines are too much alike.
const MAX_COMPARISONS: usize = 4_000_000;

/// Lines to replace, in order and apart from each other, each with the lines that take their place.
pub(super) type Splices = Vec<(Range<usize>, Vec<String>)>;

/// The text with all hunks applied.
pub(super) fn apply(content: &str, hunks: &[Hunk]) -> Result<String, String> {
    let lines = split(content);
    let splices = place(&lines, hunks)?;
    Ok(join(content, &lines, &splices))
}

/// Lines without their line feed; a carriage return stays with its line.
pub(super) fn split(content: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = content.split('\n').collect();
    if lines.last() == Some(&"") {
        lines.pop();
    }
    lines
}

/// Puts the lines together. A file that did not end in a line feed still does not, unless its last line is gone.
pub(super) fn join(content: &str, lines: &[&str], splices: &Splices) -> String {
    let mut out = String::with_capacity(content.len());
    let mut push = |line: &str| {
        out.push_str(line);
        out.push('\n');
    };
    let mut at = 0;
    for (range, new) in splices {
        lines[at..range.start].iter().for_each(|line| push(line));
        new.iter().for_each(|line| push(line));
        at = range.end;
    }
    lines[at..].iter().for_each(|line| push(line));
    let open_ended = !content.is_empty() && !content.ends_with('\n');
    let last_line_stands = splices.last().is_none_or(|(range, new)| range.end < lines.len() || !new.is_empty());
    if open_ended && last_line_stands {
        out.pop();
    }
    out
}

/// Finds the place of every hunk, from the top to the bottom.
pub(super) fn place(lines: &[&str], hunks: &[Hunk]) -> Result<Splices, String> {
    let mut search = Search { lines, budget: MAX_COMPARISONS };
    let crlf = lines.first().is_some_and(|line| line.ends_with('\r'));
    let mut splices = Splices::new();
    let mut from = 0;
    for hunk in hunks {
        if let Some(anchor) = &hunk.anchor {
            let found = search.find(&[anchor.as_str()], from, false);
            from = found.ok_or_else(|| format!("has no line \"{anchor}\" (from line {} on)", from + 1))? + 1;
        }
        let mut shown: &[(Kind, String)] = &hunk.lines;
        let mut at = search.place(shown, from, hunk);
        // A patch often shows the empty end of the file as a line.
        while let (None, [rest @ .., (Kind::Keep, last)]) = (at, shown)
            && last.is_empty()
        {
            shown = rest;
            at = search.place(shown, from, hunk);
        }
        let at = at.ok_or_else(|| missing(shown, from))?;
        from = rewrite(at, shown, crlf, &mut splices);
    }
    Ok(splices)
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

/// Turns a hunk at a line of the file into splices, and gives the line behind it. Lines that are only shown are in none.
fn rewrite(at: usize, shown: &[(Kind, String)], crlf: bool, splices: &mut Splices) -> usize {
    let (mut start, mut end, mut new) = (at, at, Vec::new());
    for (kind, text) in shown {
        match kind {
            Kind::Delete => end += 1,
            Kind::Insert if crlf && !text.ends_with('\r') => new.push(format!("{text}\r")),
            Kind::Insert => new.push(text.clone()),
            Kind::Keep => {
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
    fn place(&mut self, shown: &[(Kind, String)], from: usize, hunk: &Hunk) -> Option<usize> {
        let wanted: Vec<&str> = old_lines(shown).collect();
        if wanted.is_empty() {
            // Lines that are only added go below the anchor, or to the end.
            let below_anchor = hunk.anchor.is_some() && !hunk.at_end;
            return Some(if below_anchor { from } else { self.lines.len() });
        }
        self.find(&wanted, from, hunk.at_end)
    }

    /// Where lines are: the very same, else but for spaces at the end, else at both ends, else but for typography.
    fn find(&mut self, wanted: &[&str], from: usize, at_end: bool) -> Option<usize> {
        let rungs: [fn(&str, &str) -> bool; 4] = [
            |a, b| a.strip_suffix('\r').unwrap_or(a) == b.strip_suffix('\r').unwrap_or(b),
            |a, b| a.trim_end() == b.trim_end(),
            |a, b| a.trim() == b.trim(),
            |a, b| plain(a).eq(plain(b)),
        ];
        let last = self.lines.len().checked_sub(wanted.len())?;
        for same in rungs {
            if at_end && last >= from && self.fits(wanted, last, same) {
                return Some(last);
            }
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

/// A line with typographic dashes, quotes and spaces made plain.
fn plain(line: &str) -> impl Iterator<Item = char> {
    line.trim().chars().map(|c| match c {
        '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
        '\u{2018}'..='\u{201b}' => '\'',
        '\u{201c}'..='\u{201f}' => '"',
        '\u{a0}' | '\u{2002}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => ' ',
        other => other,
    })
}
