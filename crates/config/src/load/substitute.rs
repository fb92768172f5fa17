//! Fills `{env:NAME}` and `{file:path}` placeholders in a configuration.

use std::collections::BTreeMap;
use std::path::Path;

use api::Json;

use crate::files::stamps::FileStamps;
use crate::files::{self, MAX_CONFIG_BYTES};
use crate::problem::Severity;
use crate::schema::check::MAX_FINDINGS;

/// The maximum total size of files inserted into one configuration file.
const MAX_FILLED_BYTES: usize = 8 << 20;

/// Where the placeholders of a file are looked up.
pub(crate) struct Lookup<'a> {
    /// The environment.
    pub(crate) env: &'a BTreeMap<String, String>,
    /// The file's folder, which paths are relative to.
    pub(crate) base: &'a Path,
    /// What `~/` stands for.
    pub(crate) home: &'a Path,
}

/// A placeholder that could not be filled.
pub(crate) struct UnfilledPlaceholder {
    /// Keys and indexes from the root.
    pub(crate) path: Vec<String>,
    /// What is missing.
    pub(crate) message: String,
    /// How serious it is.
    pub(crate) severity: Severity,
}

/// A part of a string.
#[derive(Debug, PartialEq)]
enum Piece<'a> {
    Text(&'a str),
    Env(&'a str),
    File(&'a str),
}

/// Whether the string has a placeholder.
pub(crate) fn has_placeholder(text: &str) -> bool {
    pieces(text).iter().any(|piece| !matches!(piece, Piece::Text(_)))
}

fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut plain = 0;
    let mut at = 0;
    while let Some(open) = text[at..].find('{').map(|offset| at + offset) {
        at = open + 1;
        let is_env = text[at..].starts_with("env:");
        if !is_env && !text[at..].starts_with("file:") {
            continue;
        }
        let Some(close) = text[at..].find('}').map(|offset| at + offset) else { break };
        let piece = match text[at..close].split_once(':') {
            Some((_, name)) if is_env => Piece::Env(name.trim()),
            Some((_, path)) => Piece::File(path.trim()),
            None => continue,
        };
        pieces.extend([Piece::Text(&text[plain..open]), piece]);
        at = close + 1;
        plain = at;
    }
    pieces.push(Piece::Text(&text[plain..]));
    pieces
}

/// Fills every placeholder in `value`. An unset variable is empty; a value that names an unreadable file is removed.
pub(crate) fn substitute(value: &mut Json, lookup: &Lookup<'_>, stamps: &mut FileStamps) -> Vec<UnfilledPlaceholder> {
    let mut filler = Filler { lookup, stamps, path: Vec::new(), unfilled: Vec::new(), filled: 0 };
    filler.fill(value);
    filler.unfilled
}

struct Filler<'a> {
    lookup: &'a Lookup<'a>,
    stamps: &'a mut FileStamps,
    path: Vec<String>,
    unfilled: Vec<UnfilledPlaceholder>,
    filled: usize,
}

impl Filler<'_> {
    /// Returns whether the value stays.
    fn fill(&mut self, value: &mut Json) -> bool {
        match value {
            Json::String(text) if text.contains('{') => match self.text(text) {
                Some(filled) => {
                    *text = filled;
                    true
                }
                None => false,
            },
            Json::Array(list) => {
                let mut index = 0;
                list.retain_mut(|value| {
                    let stays = self.step(index.to_string(), value);
                    index += 1;
                    stays
                });
                true
            }
            Json::Object(map) => {
                map.retain(|key, value| self.step(key.clone(), value));
                true
            }
            _ => true,
        }
    }

    fn step(&mut self, step: String, value: &mut Json) -> bool {
        self.path.push(step);
        let stays = self.fill(value);
        self.path.pop();
        stays
    }

    fn text(&mut self, text: &str) -> Option<String> {
        let mut out = String::new();
        for piece in pieces(text) {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Env(name) => match self.lookup.env.get(name) {
                    Some(value) => out.push_str(value),
                    None => self.report(format!("the environment variable {name} is not set"), Severity::Warning),
                },
                Piece::File(written) => match self.file(written) {
                    Ok(content) => out.push_str(content.trim()),
                    Err(message) => {
                        self.report(format!("{message}; the value is ignored"), Severity::Error);
                        return None;
                    }
                },
            }
        }
        Some(out)
    }

    fn file(&mut self, written: &str) -> Result<String, String> {
        let path = files::resolve(written, self.lookup.base, self.lookup.home);
        self.stamps.record(&path);
        let content = files::read(&path, MAX_CONFIG_BYTES).map_err(|problem| problem.to_string())?;
        let content = content.ok_or_else(|| format!("there is no file {}", path.display()))?;
        self.filled += content.len();
        if self.filled > MAX_FILLED_BYTES {
            return Err(format!("the placeholders of this file insert more than {MAX_FILLED_BYTES} bytes"));
        }
        Ok(content)
    }

    fn report(&mut self, message: String, severity: Severity) {
        if self.unfilled.len() < MAX_FINDINGS {
            let message = format!("{}: {message}", self.path.join("."));
            self.unfilled.push(UnfilledPlaceholder { path: self.path.clone(), message, severity });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn placeholders_are_filled() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("key.txt"), "  sk-1\n").unwrap();
        let env = BTreeMap::from([("HOST".to_owned(), "h{env:NO}".to_owned())]);
        let lookup = Lookup { env: &env, base: dir.path(), home: dir.path() };
        let mut value = json!({
            "url": "http://{env:HOST}/{x}/{env: HOST }", "key": "{file:key.txt}", "home": "{file:~/key.txt}",
            "none": "a{env:NONE}b", "gone": "{file:gone}", "list": ["{file:gone}", "{", "{env:HOST"], "n": 1,
        });
        let unfilled = substitute(&mut value, &lookup, &mut FileStamps::default());
        let want = json!({
            "url": "http://h{env:NO}/{x}/h{env:NO}", "key": "sk-1", "home": "sk-1", "none": "ab",
            "list": ["{", "{env:HOST"], "n": 1,
        });
        assert_eq!(value, want);
        let texts: Vec<_> = unfilled.iter().map(|unfilled| unfilled.message.as_str()).collect();
        assert_eq!(texts.len(), 3, "{texts:?}");
        assert!(texts[0].starts_with("none: the environment variable NONE"));
        assert!(texts[1].starts_with("gone: there is no file"));
        assert!(texts[2].starts_with("list.0: "));
    }

    #[test]
    fn placeholders_are_recognised() {
        for text in ["{env:X}", "a {file:b} c", "{{env:X}}", "{a {env:X}", "{a} {file:}"] {
            assert!(has_placeholder(text), "{text}");
        }
        for text in ["", "{", "{env:X", "{x}", "env:X}"] {
            assert!(!has_placeholder(text), "{text}");
        }
    }
}
