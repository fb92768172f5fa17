//! The front matter of a markdown file: YAML between two lines of dashes, told apart as OpenCode does it.
//!
//! Files that OpenCode uses although their YAML is invalid are used here, too, and what was wrong is told.

use api::{Json, JsonMap};

#[cfg(test)]
mod tests;
mod yaml;

pub(crate) use yaml::Places;

/// The longest name that is looked for in unreadable front matter, in bytes, …
const MAX_NAME: usize = 256;
/// … and the most names.
const MAX_NAMES: usize = 32;

/// What front matter begins and ends with.
const FENCE: &str = "---";

/// Front matter that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Broken {
    /// The line in the file, from 1.
    pub(crate) line: usize,
    /// What is wrong there.
    pub(crate) message: String,
}

/// A text with its front matter taken apart.
#[derive(Debug, PartialEq)]
pub(crate) struct Front<'a> {
    /// The front matter; empty if there is none.
    pub(crate) map: JsonMap,
    /// The text behind it.
    pub(crate) body: &'a str,
    /// Where its keys stand in the file.
    pub(crate) places: Places,
    /// How well it could be read.
    pub(crate) state: State,
}

/// How well front matter could be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    /// It is good.
    Good,
    /// It is invalid YAML, and was read after values with a colon were taken for text.
    Repaired(Broken),
    /// Nothing in it counts. If it is invalid YAML, the whole text is the body.
    Ignored(Broken),
}

/// Takes a text apart. Fails where OpenCode leaves the file out.
pub(crate) fn split(text: &str) -> Result<Front<'_>, Broken> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let whole = |state| Front { map: JsonMap::new(), body: text, places: Places::new(), state };
    let Some(after) = text.strip_prefix(FENCE).filter(|after| !after.starts_with('-')) else {
        return Ok(whole(State::Good));
    };
    let (language, rest) = after.split_at(after.find('\n').unwrap_or(after.len()));
    if !["", "yaml", "yml"].contains(&language.trim().to_ascii_lowercase().as_str()) {
        let message = format!("front matter in {:?} cannot be read, only YAML", language.trim());
        return Ok(whole(State::Ignored(Broken { line: 1, message })));
    }
    let (source, body) = match rest.split_once("\n---") {
        Some((source, body)) => {
            let body = body.strip_prefix('\r').unwrap_or(body);
            (source, body.strip_prefix('\n').unwrap_or(body))
        }
        None => (rest, ""),
    };
    let first = match read(source, |line| line) {
        Ok((Some(map), places)) => return Ok(Front { map, body, places, state: State::Good }),
        Ok((None, _)) => {
            let message = "the front matter must be made of \"key: value\" lines".to_owned();
            return Ok(Front { body, ..whole(State::Ignored(Broken { line: 2, message })) });
        }
        Err(broken) => broken,
    };
    let (repaired, lines) = repair(source);
    if repaired == source || !language.trim_end_matches('\r').is_empty() || !rest.contains("\n---") {
        return Ok(whole(State::Ignored(first)));
    }
    match read(&repaired, |line| lines.get(line - 1).copied().unwrap_or(line)) {
        Ok((Some(map), places)) => Ok(Front { map, body, places, state: State::Repaired(first) }),
        Ok((None, _)) | Err(_) => Err(first),
    }
}

/// Where something in front matter stands, by its path; if it has no place of its own, what it is part of.
pub(crate) fn locate(places: &Places, path: &[String]) -> Option<(usize, usize)> {
    let depth = |known: &[String]| if path.starts_with(known) { known.len() } else { 0 };
    places.iter().filter(|(known, _)| depth(known) > 0).max_by_key(|(known, _)| depth(known)).map(|(_, place)| *place)
}

/// Every name that unreadable front matter may give its file; `None` if there are too many to tell.
pub(crate) fn possible_names(text: &str) -> Option<Vec<String>> {
    let text = text.split("\n---").next().unwrap_or(text);
    let mut names = Vec::new();
    for (at, key) in text.match_indices("name") {
        let rest = text[at + key.len()..].trim_start_matches(['"', '\'']).trim_start();
        let Some(value) = rest.strip_prefix(':') else { continue };
        let end = |(length, c): &(usize, char)| ['\n', ',', '}', '#'].contains(c) || *length > MAX_NAME;
        let value = value.trim_start();
        let length = value.char_indices().find(end).map_or(value.len(), |(length, _)| length);
        let name = value[..length].trim().trim_matches(['"', '\'']).to_owned();
        if !name.is_empty() && !names.contains(&name) {
            names.push(name);
        }
        if names.len() > MAX_NAMES {
            return None;
        }
    }
    Some(names)
}

/// Reads YAML whose first line is the rest of the file's first one; `None` if it is no map. `line` says where a line of it
/// stands in the file.
fn read(source: &str, line: impl Fn(usize) -> usize) -> Result<(Option<JsonMap>, Places), Broken> {
    // What is not closed is noticed behind the last line.
    let place = |at: usize| line(at.clamp(1, source.lines().count().max(1)));
    let (value, mut places) = yaml::parse(source).map_err(|broken| Broken { line: place(broken.line), ..broken })?;
    places.iter_mut().for_each(|(_, place)| place.0 = line(place.0));
    let map = match value {
        // A key without a value says nothing.
        Json::Object(map) => Some(map.into_iter().filter(|(_, value)| !value.is_null()).collect()),
        Json::Null => Some(JsonMap::new()),
        _ => None,
    };
    Ok((map, places))
}

/// Takes what stands behind a top-level key for text if it has a colon, which YAML would want quoted; and says where each
/// line of the result stood.
fn repair(source: &str) -> (String, Vec<usize>) {
    let mut repaired = Vec::new();
    let mut lines = Vec::new();
    for (index, line) in source.split('\n').enumerate() {
        match with_colon(line.trim_end_matches('\r')) {
            Some((key, value)) => {
                repaired.extend([format!("{key}: |-"), format!("  {value}")]);
                lines.extend([index + 1; 2]);
            }
            None => {
                repaired.push(line.to_owned());
                lines.push(index + 1);
            }
        }
    }
    (repaired.join("\n"), lines)
}

/// A top-level key, and the text behind it that has a colon and no quotes.
fn with_colon(line: &str) -> Option<(&str, &str)> {
    let end = line.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))?;
    let (key, rest) = line.split_at(end);
    let named = key.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let value = rest.trim_start().strip_prefix(':')?.trim();
    (named && value.contains(':') && !value.starts_with(['"', '\''])).then_some((key, value))
}
