//! Command templates: `$ARGUMENTS`, `$1`, `$2` …, `` !`shell` ``, `@file` and `@agent`.

mod shell;

/// A piece of a template with its arguments filled in.
#[derive(Debug, PartialEq)]
pub(crate) enum TemplatePiece {
    /// Plain text.
    Text(String),
    /// A shell command to be replaced by its output.
    Shell(String),
    /// A shell command that must not run, because it might execute an argument.
    Refused(String),
}

/// The arguments of a command.
struct CommandArguments<'a> {
    line: &'a str,
    words: Vec<String>,
    /// The highest placeholder number, which takes all remaining words.
    last: usize,
}

/// The value of a placeholder.
#[derive(Clone)]
struct ArgumentValue {
    /// Its words.
    words: Vec<String>,
    /// All of it as one text.
    text: String,
}

impl<'a> CommandArguments<'a> {
    fn new(template: &str, line: &'a str) -> Self {
        let numbers = template.match_indices('$').filter_map(|(at, _)| number(&template[at..]));
        Self { line, words: words(line), last: numbers.map(|(number, _)| number).max().unwrap_or(0) }
    }

    /// The value of the placeholder at the start of `text`, and the text after it.
    fn take<'t>(&self, text: &'t str) -> Option<(ArgumentValue, &'t str)> {
        if let Some(rest) = text.strip_prefix("$ARGUMENTS") {
            return Some((ArgumentValue { words: self.words.clone(), text: self.line.to_owned() }, rest));
        }
        let (number, rest) = number(text)?;
        let end = if number == self.last { self.words.len() } else { number.min(self.words.len()) };
        let words = self.words.get(number - 1..end).unwrap_or_default().to_vec();
        Some((ArgumentValue { text: words.join(" "), words }, rest))
    }
}

/// The number of the placeholder at the start of `text`, and the text after it. There is no placeholder 0.
fn number(text: &str) -> Option<(usize, &str)> {
    let digits = text.strip_prefix('$')?;
    let (digits, rest) = digits.split_at(digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len()));
    digits.parse().ok().filter(|number| *number > 0).map(|number| (number, rest))
}

/// Splits an argument line into words as OpenCode does: a quoted text is one word, and so is a mention of an image.
pub(crate) fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let quoted = ['"', '\''].contains(&first).then(|| rest[1..].find(first)).flatten();
        let plain = rest.find(|c: char| c.is_whitespace() || c == '"' || c == '\'').unwrap_or(rest.len());
        let end = match (quoted, image(rest)) {
            (Some(end), _) => end + 2,
            (None, Some(end)) => end,
            (None, None) if plain > 0 => plain,
            // Whitespace, or a quote that is never closed.
            _ => {
                rest = &rest[first.len_utf8()..];
                continue;
            }
        };
        let word = &rest[..end];
        words.push(word.strip_prefix(['"', '\'']).map_or(word, |word| &word[..word.len() - 1]).to_owned());
        rest = &rest[end..];
    }
    words
}

/// The length of an `[Image 3]` at the start of a text.
fn image(text: &str) -> Option<usize> {
    let name = text.get(..6).filter(|name| name.eq_ignore_ascii_case("[image"))?;
    let rest = &text[name.len()..];
    let number = rest.trim_start();
    let digits = number.find(|c: char| !c.is_ascii_digit())?;
    let fits = number.len() < rest.len() && digits > 0 && number[digits..].starts_with(']');
    fits.then(|| text.len() - number.len() + digits + 1)
}

/// Fills in the arguments. If a template has no placeholder, the line is appended.
///
/// Only the template itself can contain shell pieces, and arguments inside them are quoted words: what a caller passes
/// is never executed.
pub(crate) fn expand(template: &str, line: &str) -> Vec<TemplatePiece> {
    let arguments = CommandArguments::new(template, line);
    let mut pieces = Vec::new();
    let mut text = String::new();
    let mut rest = template;
    while let Some(at) = rest.find(['$', '!']) {
        text.push_str(&rest[..at]);
        rest = &rest[at..];
        let piece =
            rest.strip_prefix("!`").and_then(|after| after.split_once('`')).filter(|(inside, _)| !inside.is_empty());
        if let Some((value, after)) = arguments.take(rest) {
            text.push_str(&value.text);
            rest = after;
        } else if let Some((command, after)) = piece {
            pieces.push(TemplatePiece::Text(std::mem::take(&mut text)));
            pieces.push(shell::piece(command, &arguments));
            rest = after;
        } else {
            text.push_str(&rest[..1]);
            rest = &rest[1..];
        }
    }
    text.push_str(rest);
    if arguments.last == 0 && !template.contains("$ARGUMENTS") && !line.trim().is_empty() {
        text.push_str("\n\n");
        text.push_str(line);
    }
    pieces.push(TemplatePiece::Text(text));
    pieces
}

/// The `@name` mentions in a text, of files or agents: each once, in order.
pub(crate) fn mentions(text: &str) -> Vec<&str> {
    let mut found: Vec<&str> = Vec::new();
    for (at, _) in text.match_indices('@') {
        let before = text[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '`') {
            continue;
        }
        let rest = &text[at + 1..];
        let stops = |c: char| c.is_whitespace() || c == '`' || c == ',';
        let rest = &rest[..rest.find(stops).unwrap_or(rest.len())];
        // A dot belongs to a name only if more of the name follows. Two in a row are only possible at the start.
        let doubled = rest.get(1..).and_then(|after| after.find("..")).map_or(rest.len(), |at| at + 1);
        let name = rest[..doubled].strip_suffix('.').filter(|name| !name.is_empty()).unwrap_or(&rest[..doubled]);
        if !name.is_empty() && !found.contains(&name) {
            found.push(name);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn flat(template: &str, line: &str) -> String {
        expand(template, line)
            .into_iter()
            .map(|piece| match piece {
                TemplatePiece::Text(text) => text,
                TemplatePiece::Shell(command) => format!("[{command}]"),
                TemplatePiece::Refused(command) => format!("<{command}>"),
            })
            .collect()
    }

    #[test]
    fn placeholders_as_recorded() {
        let template = "greet $ARGUMENTS first=$1 second=$2 shell=!`echo sh`";
        assert_eq!(
            flat(template, "Bob \"Mary Ann\""),
            "greet Bob \"Mary Ann\" first=Bob second=Mary Ann shell=[echo sh]"
        );
        assert_eq!(flat(template, "x"), "greet x first=x second= shell=[echo sh]");
        assert_eq!(flat("$1 and $2", "a b c d"), "a and b c d");
        assert_eq!(flat("Do it.", "now"), "Do it.\n\nnow");
        assert_eq!(flat("Do it.", "  "), "Do it.");
        assert_eq!(flat("costs $5! or `x`", ""), "costs ! or `x`");
        assert_eq!(flat("$12 $1 $0", &["a"; 13].join(" ")), "a a a $0");
        assert_eq!(flat("!`` $1", "x"), "!`` x");
    }

    /// The expected words are OpenCode's.
    #[test]
    fn quoted_text_is_one_word() {
        for (line, want) in [
            ("a b  c", vec!["a", "b", "c"]),
            ("\"a b\" 'c d'", vec!["a b", "c d"]),
            ("a\"b c\"d", vec!["a", "b c", "d"]),
            ("it's fine", vec!["it", "s", "fine"]),
            ("\"open end", vec!["open", "end"]),
            ("\"\" x ''", vec!["", "x", ""]),
            ("\"it's\"", vec!["it's"]),
            ("[Image 1] look [image  22] [Image x]", vec!["[Image 1]", "look", "[image  22]", "[Image", "x]"]),
            ("--flag=\"x y\"", vec!["--flag=", "x y"]),
            ("é\u{a0}ü", vec!["é", "ü"]),
            ("", vec![]),
        ] {
            assert_eq!(words(line), want, "{line:?}");
        }
    }

    #[test]
    fn mentioned_names() {
        for (text, want) in [
            ("see @src/main.rs, and @README.md. mail a@b.c `@no`", vec!["src/main.rs", "README.md"]),
            ("@general look at @app/[slug]/(x)/page.tsx", vec!["general", "app/[slug]/(x)/page.tsx"]),
            ("@.env @../up/x @~/y @a @a", vec![".env", "../up/x", "~/y", "a"]),
            ("x/@y", vec!["y"]),
            ("@a... @ @,", vec!["a"]),
        ] {
            assert_eq!(mentions(text), want, "{text}");
        }
    }

    proptest! {
        #[test]
        fn total_on_any_input(template in any::<String>(), line in any::<String>()) {
            let _ = expand(&template, &line);
            let _ = mentions(&template);
        }

        #[test]
        fn total_on_likely_input(
            template in "([$!`'\"@.a1 \\\\()]|ARGUMENTS|[$]1|!`|\\[Image ){0,12}", line in "(['\"\\[\\] a1]|Image){0,12}",
        ) {
            let _ = expand(&template, &line);
            let _ = mentions(&template);
            let _ = words(&line);
        }
    }
}
