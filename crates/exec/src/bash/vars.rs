//! The values of the variables of a command line, as far as the line itself sets them.
//!
//! A variable may be set anywhere, even by a later iteration of a loop, so questions are collected while the source is
//! read and answered at its end. A variable that the line does not set comes from the environment, which the line does
//! not control.

use std::collections::{HashMap, HashSet};

use super::{arith, names};

/// The maximum number of paths that one word may expand to.
const MAX_PATHS: usize = 64;

/// What a variable is set to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    /// A text.
    Text(String),
    /// The names of files that a pattern matches.
    Pattern(String),
    /// A number.
    Number,
    /// The name of a file below the working directory.
    Inside,
    /// The working directory, or the root of its repository.
    Here,
    /// Anything.
    Unknown,
}

/// A part of a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    Text(String),
    Variable(String),
    /// A variable whose value is cut at its end, or to its last component.
    Trimmed(String),
    Number,
    /// The working directory, or the root of its repository.
    Here,
    /// The name of a file below the working directory.
    Inside,
    /// A value that was recorded where it is set.
    Noted,
}

/// Why a variable must hold nothing dangerous.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// It is evaluated as arithmetic.
    Arithmetic,
    /// It becomes arguments of `test`, one of whose operators evaluates a subscript.
    Test,
}

/// The variables of a command line.
#[derive(Debug, Default)]
pub(super) struct Vars {
    values: HashMap<String, Vec<Value>>,
    uses: Vec<(String, Use, String)>,
    /// Variables that are certainly set at the current position.
    certain: HashSet<String>,
}

/// The variables that were set at some position, to return to.
pub(super) type Certain = HashSet<String>;

impl Vars {
    /// Records that a variable is set to something at the current position.
    pub(super) fn set(&mut self, name: &str, value: Value) {
        self.values.entry(name.to_owned()).or_default().push(value);
        self.certain.insert(name.to_owned());
    }

    /// Records that a variable is unset.
    pub(super) fn unset(&mut self, name: &str) {
        self.values.entry(name.to_owned()).or_default().push(Value::Text(String::new()));
        self.certain.remove(name);
    }

    /// The texts that variables are set to.
    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        self.values.values().flatten().filter_map(|value| match value {
            Value::Text(text) | Value::Pattern(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// The variables that are set here.
    pub(super) fn certain(&self) -> Certain {
        self.certain.clone()
    }

    /// Returns to what was set at some position.
    pub(super) fn restore(&mut self, certain: Certain) {
        self.certain = certain;
    }

    /// Records that a variable is evaluated as arithmetic.
    pub(super) fn evaluate(&mut self, name: &str, snippet: &str) {
        self.uses.push((name.to_owned(), Use::Arithmetic, snippet.to_owned()));
    }

    /// Records that a variable becomes arguments of `test`.
    pub(super) fn test(&mut self, name: &str, snippet: &str) {
        self.uses.push((name.to_owned(), Use::Test, snippet.to_owned()));
    }

    /// The pieces of source in which looking up a variable may have side effects.
    pub(super) fn dangerous(&self) -> impl Iterator<Item = &str> {
        self.uses.iter().filter(|(name, how, _)| !self.is_harmless(name, *how)).map(|(_, _, snippet)| snippet.as_str())
    }

    fn is_harmless(&self, name: &str, how: Use) -> bool {
        let mut seen: HashSet<&str> = HashSet::new();
        let mut open = vec![name];
        while let Some(name) = open.pop() {
            if !seen.insert(name) {
                continue;
            }
            if names::holds_text(name) {
                return false;
            }
            for value in self.values.get(name).into_iter().flatten() {
                match (value, how) {
                    (Value::Number, _) => {}
                    (Value::Text(text), Use::Arithmetic) if text.is_empty() || arith::is_integer(text) => {}
                    // Evaluating it also evaluates the value of this name.
                    (Value::Text(text), Use::Arithmetic) if names::is_variable(text) => open.push(text),
                    (Value::Text(text), Use::Test) if !text.contains(['[', '$', '`']) => {}
                    _ => return false,
                }
            }
        }
        true
    }

    /// Whether all variables of a word are set at its position.
    pub(super) fn are_set(&self, pieces: &[Piece]) -> bool {
        pieces.iter().all(|piece| match piece {
            Piece::Variable(name) | Piece::Trimmed(name) => self.certain.contains(name),
            _ => true,
        })
    }

    /// The paths that a word may expand to; `None` if they are unknown. `splits`: its values become separate words.
    pub(super) fn paths(&self, pieces: &[Piece], splits: bool) -> Option<Vec<String>> {
        let mut paths = vec![String::new()];
        for (at, piece) in pieces.iter().enumerate() {
            let options: Vec<String> = match piece {
                Piece::Text(text) => vec![text.clone()],
                Piece::Number => vec!["0".to_owned()],
                Piece::Inside => vec![".".to_owned()],
                Piece::Noted => return None,
                Piece::Here if begins_path(pieces, at) => vec![".".to_owned()],
                Piece::Here => return None,
                Piece::Variable(name) | Piece::Trimmed(name) => {
                    let trimmed = matches!(piece, Piece::Trimmed(_));
                    let mut options = Vec::new();
                    for value in self.values.get(name)? {
                        match value {
                            Value::Number => options.push("0".to_owned()),
                            Value::Inside => options.push(".".to_owned()),
                            Value::Here if begins_path(pieces, at) => options.push(".".to_owned()),
                            Value::Text(text) | Value::Pattern(text) if trimmed && !is_plainly_inside(text) => {
                                return None;
                            }
                            Value::Pattern(text) => options.push(text.clone()),
                            Value::Text(text) if splits && pieces.len() == 1 => {
                                options.extend(text.split_whitespace().map(str::to_owned));
                            }
                            Value::Text(text) if splits && text.contains([' ', '\t', '\n']) => return None,
                            Value::Text(text) => options.push(text.clone()),
                            Value::Here | Value::Unknown => return None,
                        }
                    }
                    options
                }
            };
            if paths.len() * options.len() > MAX_PATHS {
                return None;
            }
            paths = paths.iter().flat_map(|path| options.iter().map(move |option| format!("{path}{option}"))).collect();
        }
        Some(paths)
    }
}

/// Whether the piece there is a directory with a path below it.
fn begins_path(pieces: &[Piece], at: usize) -> bool {
    let below = |piece: &Piece| matches!(piece, Piece::Text(text) if !text.contains(".."));
    let follows = match pieces.get(at + 1) {
        None => true,
        Some(Piece::Text(text)) => text.starts_with('/'),
        Some(_) => false,
    };
    at == 0 && follows && pieces[1..].iter().all(below)
}

/// Whether a path stays inside the working directory after each of its components.
fn is_plainly_inside(path: &str) -> bool {
    !path.starts_with(['/', '~']) && !path.contains("..")
}
