//! Indents new text whose old text matched except for its indentation.
//!
//! The match pairs every line of the old text with a line of the file, which shows what the model's indentation is in
//! the file. If it does not, there is no result: a wrong guess would be a broken file reported as a success.

use std::collections::BTreeMap;

/// Pairs of indentations, one for each line that is not blank: in the old text and in the file.
pub(crate) struct Indents<'a>(Vec<(&'a str, &'a str)>);

/// One level of indentation in the model's text, and its equivalent in the file.
struct Unit<'a> {
    old: &'a str,
    file: &'a str,
}

impl<'a> Indents<'a> {
    /// Takes pairs of lines.
    pub fn new(lines: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        Self(lines.filter(|(old, _)| !old.trim().is_empty()).map(|(old, file)| (indent(old), indent(file))).collect())
    }

    /// Whether the old text is indented like the file.
    pub fn is_same(&self) -> bool {
        self.0.iter().all(|(old, file)| old == file)
    }

    /// Whether no line of the old text is indented like the file.
    pub fn is_foreign(&self) -> bool {
        self.0.iter().all(|(old, file)| old != file)
    }

    /// Whether all lines are shifted by the same indentation.
    pub fn is_shift(&self) -> bool {
        let (from, to) = self.common();
        self.0.iter().all(|(old, file)| old.strip_prefix(from) == file.strip_prefix(to))
    }

    /// The new text as it should be in the file, if the match shows how.
    pub fn apply(&self, new: &str) -> Option<String> {
        let own: Vec<&str> = new.split('\n').filter(|line| !line.trim().is_empty()).map(indent).collect();
        if own.is_empty() || self.is_same() {
            return Some(new.to_owned());
        }
        let (from, to) = self.common();
        let outer = common_prefix(own.iter().copied());
        let verbatim = || Some(new.to_owned());
        let in_file = |own: &&str| self.0.iter().any(|(_, file)| file == own);
        let Some(levels) = self.levels() else {
            // A flat copy of a block says nothing about its lines, but new text with the file's own indentation needs
            // no change.
            let indented = own.iter().all(in_file) && own.iter().any(|own| *own != outer);
            return if outer == to && (from != to || indented) { verbatim() } else { None };
        };
        if self.lost_first() && !is_nested(&levels) && own[1..].contains(&"") {
            return None;
        }
        let known = own.iter().all(|own| levels.contains_key(own));
        if from == to {
            return if !known && own.iter().all(in_file) { verbatim() } else { self.translate(&levels, new) };
        }
        // The first lines of both texts are usually the same line. If it contradicts the other lines, the meaning is
        // unclear.
        let first = self.0.first().map_or(("", ""), |pair| *pair);
        let like_old = own[0] == first.0 && own[0] != first.1;
        let like_file = own[0] == first.1 && own[0] != first.0;
        match outer == to {
            true if !like_old => verbatim(),
            false if !like_file && (outer == from || known) => self.translate(&levels, new),
            _ => None,
        }
    }

    fn common(&self) -> (&'a str, &'a str) {
        (common_prefix(self.0.iter().map(|(old, _)| *old)), common_prefix(self.0.iter().map(|(_, file)| *file)))
    }

    /// Maps each indentation of the old text to that of the file; `None` if the mapping is ambiguous or does not
    /// preserve nesting.
    fn levels(&self) -> Option<BTreeMap<&'a str, &'a str>> {
        let mut levels = BTreeMap::new();
        if self.is_shift() {
            let (from, to) = self.common();
            levels.insert(from, to);
        }
        for (old, file) in &self.0 {
            if *levels.entry(*old).or_insert(*file) != *file {
                return None;
            }
        }
        (is_nested(&levels) || self.lost_first()).then_some(levels)
    }

    fn translate(&self, levels: &BTreeMap<&str, &str>, new: &str) -> Option<String> {
        let unit = unit(levels);
        if !self.lost_first() {
            return self.translate_by(levels, unit.as_ref(), new);
        }
        let kept = self.translate_by(levels, None, new)?;
        // The same lines may show that the file uses another unit. If that makes a difference, the meaning is unclear.
        let scaled = unit.and_then(|unit| self.translate_by(levels, Some(&unit), new));
        scaled.is_none_or(|scaled| scaled == kept).then_some(kept)
    }

    fn translate_by(&self, levels: &BTreeMap<&str, &str>, unit: Option<&Unit<'_>>, new: &str) -> Option<String> {
        let mut out = String::with_capacity(new.len());
        for line in new.split_inclusive('\n') {
            if line.trim().is_empty() {
                out.push_str(line.trim_start_matches([' ', '\t']));
                continue;
            }
            let own = indent(line);
            let (old, file) =
                levels.iter().filter(|(old, _)| own.starts_with(**old)).max_by_key(|(old, _)| old.len())?;
            out.push_str(file);
            out.push_str(&self.deeper(&own[old.len()..], old, file, unit)?);
            out.push_str(&line[own.len()..]);
        }
        Some(out)
    }

    /// Translates the indentation beyond a known level to the file's style.
    fn deeper(&self, rest: &str, old: &str, file: &str, unit: Option<&Unit<'_>>) -> Option<String> {
        if rest.is_empty() {
            return Some(String::new());
        }
        if let Some(unit) = unit {
            let count = rest.len() / unit.old.len();
            return (unit.old.repeat(count) == rest).then(|| unit.file.repeat(count));
        }
        // Mixing tabs and spaces would introduce a third style.
        let blends = file.chars().any(|c| !rest.contains(c));
        ((self.is_shift() || (self.lost_first() && old == file)) && !blends).then(|| rest.to_owned())
    }

    /// Whether the old text was copied without the indentation of its first line.
    fn lost_first(&self) -> bool {
        let Some((first, rest)) = self.0.split_first() else { return false };
        first.0.is_empty() && !rest.is_empty() && rest.iter().all(|(old, file)| old == file)
    }
}

/// Whether deeper levels of the old text are deeper in the file, too.
fn is_nested(levels: &BTreeMap<&str, &str>) -> bool {
    let mut sorted: Vec<(usize, usize)> = levels.iter().map(|(old, file)| (old.len(), file.len())).collect();
    sorted.sort_unstable();
    sorted.windows(2).all(|pair| pair[0].1 < pair[1].1)
}

/// The unit of indentation, if model and file use different ones and the levels show both.
fn unit<'a>(levels: &BTreeMap<&'a str, &'a str>) -> Option<Unit<'a>> {
    let mut sorted: Vec<(&'a str, &'a str)> = levels.iter().map(|(old, file)| (*old, *file)).collect();
    sorted.sort_by_key(|(old, _)| old.len());
    let mut steps: Vec<(&'a str, &'a str)> = Vec::new();
    for pair in sorted.windows(2) {
        steps.push((pair[1].0.strip_prefix(pair[0].0)?, pair[1].1.strip_prefix(pair[0].1)?));
    }
    let (old, file) = *steps.iter().min_by_key(|(old, _)| old.len())?;
    if old == file || same_kind(old).is_none() || same_kind(file).is_none() {
        return None;
    }
    // Eight spaces for two tabs are two units.
    let count = (1..=old.len().min(file.len())).rev().find(|n| old.len() % n == 0 && file.len() % n == 0)?;
    let count = if same_kind(old) == same_kind(file) { 1 } else { count };
    let unit = Unit { old: &old[..old.len() / count], file: &file[..file.len() / count] };
    let fits = |&(old, file): &(&str, &str)| {
        let count = old.len() / unit.old.len();
        unit.old.repeat(count) == old && unit.file.repeat(count) == file
    };
    steps.iter().all(fits).then_some(unit)
}

/// The single character that an indentation consists of.
fn same_kind(indent: &str) -> Option<char> {
    let first = indent.chars().next()?;
    indent.chars().all(|c| c == first).then_some(first)
}

fn indent(line: &str) -> &str {
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

fn common_prefix<'a>(mut indents: impl Iterator<Item = &'a str>) -> &'a str {
    let first = indents.next().unwrap_or_default();
    indents.fold(first, |shared, own| {
        let same = shared.bytes().zip(own.bytes()).take_while(|(a, b)| a == b).count();
        &shared[..same]
    })
}

#[cfg(test)]
mod tests;
