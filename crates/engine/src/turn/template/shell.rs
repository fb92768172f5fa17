//! Arguments in the shell pieces of a template. Each word is quoted where it stands, and the result is held against the same
//! command with harmless words: it must call the same programs, or it is not run.

use exec::bash::{self, Parsed};

use super::{Arguments, Piece, Value};

/// A word that means nothing to anybody.
const HARMLESS: &str = "trefoilargument";

/// What the scanner is inside of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inside {
    Command,
    Parentheses,
    Double,
    Single,
}

/// A shell command of a template, with the arguments put in.
pub(super) fn piece(command: &str, arguments: &Arguments<'_>) -> Piece {
    let filled = fill(command, arguments, Value::clone);
    let harmless = fill(command, arguments, |value| Value {
        words: vec![HARMLESS.to_owned(); value.words.len()],
        text: if value.text.is_empty() { String::new() } else { HARMLESS.to_owned() },
    });
    match filled == harmless || is_same(&bash::parse(&filled), &bash::parse(&harmless)) {
        true => Piece::Shell(filled),
        false => Piece::Refused(command.to_owned()),
    }
}

/// Whether a command does what the harmless one does, and that one takes no argument for something to run.
fn is_same(filled: &Parsed, harmless: &Parsed) -> bool {
    let names = |parsed: &Parsed| -> Vec<String> {
        parsed.commands.iter().map(|command| command.text.split(' ').next().unwrap_or_default().to_owned()).collect()
    };
    let (names, wanted) = (names(filled), names(harmless));
    let runs = wanted.iter().chain(&harmless.opaque).any(|text| text.contains(HARMLESS));
    !runs && names == wanted && filled.opaque.len() == harmless.opaque.len()
}

/// Puts values into a command, each quoted for the place where it stands.
fn fill(command: &str, arguments: &Arguments<'_>, value_of: impl Fn(&Value) -> Value) -> String {
    let mut filled = String::new();
    let mut inside = vec![Inside::Command];
    let mut rest = command;
    while let Some(c) = rest.chars().next() {
        let here = inside.last().copied().unwrap_or(Inside::Command);
        if let Some((value, after)) = arguments.take(rest) {
            put(&mut filled, &value_of(&value), here);
            rest = after;
            continue;
        }
        let mut length = c.len_utf8();
        match (here, c) {
            (Inside::Single, '\'') | (Inside::Double, '"') | (Inside::Parentheses, ')') => drop(inside.pop()),
            (Inside::Single, _) => {}
            // What it escapes is no placeholder.
            (_, '\\') => length += rest[length..].chars().next().map_or(0, char::len_utf8),
            (Inside::Double, '$') if rest.starts_with("$(") => {
                length += 1;
                inside.push(Inside::Parentheses);
            }
            (Inside::Double, _) => {}
            (_, '\'') => inside.push(Inside::Single),
            (_, '"') => inside.push(Inside::Double),
            (_, '(') => inside.push(Inside::Parentheses),
            _ => {}
        }
        filled.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    filled
}

/// Outside of quotes each word is one word; in quotes everything is part of the one that is there.
fn put(filled: &mut String, value: &Value, inside: Inside) {
    match inside {
        Inside::Command | Inside::Parentheses => {
            filled.push_str(&value.words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "));
        }
        Inside::Double | Inside::Single if value.text.is_empty() => {}
        Inside::Double => filled.push_str(&format!("\"{}\"", quoted(&value.text))),
        Inside::Single => filled.push_str(&format!("'{}'", quoted(&value.text))),
    }
}

/// A text as one word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
#[path = "shell/tests.rs"]
mod tests;
