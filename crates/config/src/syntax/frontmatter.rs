//! The front matter of a markdown file: YAML between two lines of dashes, recognised as in OpenCode.
//!
//! Files that OpenCode uses although their YAML is invalid are used here too, and the problem is reported.

use api::{Json, JsonMap};

#[cfg(test)]
mod tests;
mod yaml;

pub(crate) use yaml::KeyPositions;

/// The maximum length of a name searched for in unreadable front matter, in bytes, …
const MAX_NAME: usize = 256;
/// … and the maximum number of names.
const MAX_NAMES: usize = 32;

/// Starts and ends front matter.
const FENCE: &str = "---";

/// A syntax error in front matter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FrontMatterError {
    /// The line in the file, from 1.
    pub(crate) line: usize,
    /// What is wrong there.
    pub(crate) message: String,
}

/// A text split into front matter and body.
#[derive(Debug, PartialEq)]
pub(crate) struct FrontMatter<'a> {
    /// The front matter; empty if there is none.
    pub(crate) map: JsonMap,
    /// The text after it.
    pub(crate) body: &'a str,
    /// The positions of its keys in the file.
    pub(crate) positions: KeyPositions,
    /// How well it could be parsed.
    pub(crate) state: FrontMatterState,
}

/// How well front matter could be parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FrontMatterState {
    /// It is valid.
    Valid,
    /// It is invalid YAML, and was parsed after treating values with a colon as text.
    Repaired(FrontMatterError),
    /// It has no effect. If it is invalid YAML, the whole text is the body.
    Ignored(FrontMatterError),
}

/// Splits a text. Fails where OpenCode ignores the file.
pub(crate) fn split(text: &str) -> Result<FrontMatter<'_>, FrontMatterError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let whole = |state| FrontMatter { map: JsonMap::new(), body: text, positions: KeyPositions::new(), state };
    let Some(after) = text.strip_prefix(FENCE).filter(|after| !after.starts_with('-')) else {
        return Ok(whole(FrontMatterState::Valid));
    };
    let (language, rest) = after.split_at(after.find('\n').unwrap_or(after.len()));
    if !["", "yaml", "yml"].contains(&language.trim().to_ascii_lowercase().as_str()) {
        let message = format!("front matter in {:?} cannot be read, only YAML", language.trim());
        return Ok(whole(FrontMatterState::Ignored(FrontMatterError { line: 1, message })));
    }
    let (source, body) = match rest.split_once("\n---") {
        Some((source, body)) => {
            let body = body.strip_prefix('\r').unwrap_or(body);
            (source, body.strip_prefix('\n').unwrap_or(body))
        }
        None => (rest, ""),
    };
    let first = match read(source, |line| line) {
        Ok((Some(map), positions)) => return Ok(FrontMatter { map, body, positions, state: FrontMatterState::Valid }),
        Ok((None, _)) => {
            let message = "the front matter must be made of \"key: value\" lines".to_owned();
            return Ok(FrontMatter { body, ..whole(FrontMatterState::Ignored(FrontMatterError { line: 2, message })) });
        }
        Err(broken) => broken,
    };
    let (repaired, lines) = repair(source);
    if repaired == source || !language.trim_end_matches('\r').is_empty() || !rest.contains("\n---") {
        return Ok(whole(FrontMatterState::Ignored(first)));
    }
    match read(&repaired, |line| lines.get(line - 1).copied().unwrap_or(line)) {
        Ok((Some(map), positions)) => {
            Ok(FrontMatter { map, body, positions, state: FrontMatterState::Repaired(first) })
        }
        Ok((None, _)) | Err(_) => Err(first),
    }
}

/// The position of a key by its path; of the nearest parent if it has none of its own.
pub(crate) fn locate(positions: &KeyPositions, path: &[String]) -> Option<(usize, usize)> {
    let depth = |known: &[String]| if path.starts_with(known) { known.len() } else { 0 };
    positions
        .iter()
        .filter(|(known, _)| depth(known) > 0)
        .max_by_key(|(known, _)| depth(known))
        .map(|(_, place)| *place)
}

/// Every name that unreadable front matter may give its file; `None` if there are too many.
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

/// Parses YAML whose first line is the rest of the file's first line; `None` if it is not a map. `line` maps its lines
/// to those of the file.
fn read(source: &str, line: impl Fn(usize) -> usize) -> Result<(Option<JsonMap>, KeyPositions), FrontMatterError> {
    // Unclosed constructs are reported after the last line.
    let place = |at: usize| line(at.clamp(1, source.lines().count().max(1)));
    let (value, mut positions) =
        yaml::parse(source).map_err(|broken| FrontMatterError { line: place(broken.line), ..broken })?;
    positions.iter_mut().for_each(|(_, place)| place.0 = line(place.0));
    let map = match value {
        // A key without a value has no meaning.
        Json::Object(map) => Some(map.into_iter().filter(|(_, value)| !value.is_null()).collect()),
        Json::Null => Some(JsonMap::new()),
        _ => None,
    };
    Ok((map, positions))
}

/// Turns the values of top-level keys into block text if they contain a colon, which YAML wants quoted. Also returns
/// the original line of each resulting line.
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

/// A top-level key and its unquoted value, if that contains a colon.
fn with_colon(line: &str) -> Option<(&str, &str)> {
    let end = line.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))?;
    let (key, rest) = line.split_at(end);
    let named = key.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let value = rest.trim_start().strip_prefix(':')?.trim();
    (named && value.contains(':') && !value.starts_with(['"', '\''])).then_some((key, value))
}
