//! Arguments in the shell pieces of a template. Each word is quoted for its context, and the result is compared with
//! the same command with harmless words: unless both call the same programs, it is not run.

use exec::bash::{self, Parsed};

use super::{ArgumentValue, CommandArguments, TemplatePiece};

/// A word without any meaning.
const HARMLESS: &str = "trefoilargument";

/// What the scanner is inside of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Context {
    Command,
    Parentheses,
    Double,
    Single,
}

/// A shell command of a template with its arguments filled in.
pub(super) fn piece(command: &str, arguments: &CommandArguments<'_>) -> TemplatePiece {
    let filled = fill(command, arguments, ArgumentValue::clone);
    let harmless = fill(command, arguments, |value| ArgumentValue {
        words: vec![HARMLESS.to_owned(); value.words.len()],
        text: if value.text.is_empty() { String::new() } else { HARMLESS.to_owned() },
    });
    match filled == harmless || is_same(&bash::parse(&filled), &bash::parse(&harmless)) {
        true => TemplatePiece::Shell(filled),
        false => TemplatePiece::Refused(command.to_owned()),
    }
}

/// Whether a command calls the same programs as the harmless one, and the harmless one does not execute its arguments.
fn is_same(filled: &Parsed, harmless: &Parsed) -> bool {
    let names = |parsed: &Parsed| -> Vec<String> {
        parsed.commands.iter().map(|command| command.text.split(' ').next().unwrap_or_default().to_owned()).collect()
    };
    let (names, wanted) = (names(filled), names(harmless));
    let runs = wanted.iter().chain(&harmless.opaque).any(|text| text.contains(HARMLESS));
    !runs && names == wanted && filled.opaque.len() == harmless.opaque.len()
}

/// Puts values into a command, each quoted for its context.
fn fill(command: &str, arguments: &CommandArguments<'_>, value_of: impl Fn(&ArgumentValue) -> ArgumentValue) -> String {
    let mut filled = String::new();
    let mut inside = vec![Context::Command];
    let mut rest = command;
    while let Some(c) = rest.chars().next() {
        let here = inside.last().copied().unwrap_or(Context::Command);
        if let Some((value, after)) = arguments.take(rest) {
            put(&mut filled, &value_of(&value), here);
            rest = after;
            continue;
        }
        let mut length = c.len_utf8();
        match (here, c) {
            (Context::Single, '\'') | (Context::Double, '"') | (Context::Parentheses, ')') => drop(inside.pop()),
            (Context::Single, _) => {}
            // An escaped character starts no placeholder.
            (_, '\\') => length += rest[length..].chars().next().map_or(0, char::len_utf8),
            (Context::Double, '$') if rest.starts_with("$(") => {
                length += 1;
                inside.push(Context::Parentheses);
            }
            (Context::Double, _) => {}
            (_, '\'') => inside.push(Context::Single),
            (_, '"') => inside.push(Context::Double),
            (_, '(') => inside.push(Context::Parentheses),
            _ => {}
        }
        filled.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    filled
}

/// Outside quotes each word stays a separate word; inside quotes all of them become part of the quoted word.
fn put(filled: &mut String, value: &ArgumentValue, inside: Context) {
    match inside {
        Context::Command | Context::Parentheses => {
            filled.push_str(&value.words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "));
        }
        Context::Double | Context::Single if value.text.is_empty() => {}
        Context::Double => filled.push_str(&format!("\"{}\"", quoted(&value.text))),
        Context::Single => filled.push_str(&format!("'{}'", quoted(&value.text))),
    }
}

/// Quotes a text as one shell word.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
#[path = "shell/tests.rs"]
mod tests;
