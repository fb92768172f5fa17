//! The words of a command, without their quotes.

use tree_sitter::Node;

/// A word of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word {
    /// What the command gets, if the word is literal; else its source.
    pub(super) text: String,
    /// Whether the shell changes nothing but quotes.
    pub(super) literal: bool,
    /// The path that the word would be: literal, or with `~` and wildcards.
    pub(super) path: Option<String>,
}

impl Word {
    pub(super) fn literal(text: impl Into<String>) -> Word {
        let text = text.into();
        Word { path: Some(text.clone()), text, literal: true }
    }

    pub(super) fn dynamic(text: impl Into<String>) -> Word {
        Word { text: text.into(), literal: false, path: None }
    }

    /// The text, if it is literal.
    pub(super) fn known(&self) -> Option<&str> {
        self.literal.then_some(self.text.as_str())
    }

    /// Reads a word; what it expands is for the walker to visit.
    pub(super) fn read(node: Node<'_>, source: &str) -> Word {
        let mut reader =
            Reader { source, text: String::new(), unquoted: String::new(), dynamic: false, pattern: false };
        reader.read(node);
        // Braces make several words out of one.
        let brace = reader.unquoted.contains('{') && (reader.unquoted.contains(',') || reader.unquoted.contains(".."));
        if reader.dynamic || brace {
            return Word::dynamic(&source[node.byte_range()]);
        }
        if reader.pattern || reader.unquoted.starts_with('~') {
            let text = source[node.byte_range()].to_owned();
            return Word { text, literal: false, path: Some(reader.text) };
        }
        Word::literal(reader.text)
    }
}

struct Reader<'a> {
    source: &'a str,
    text: String,
    /// What was outside of quotes and not escaped, with a placeholder for the rest.
    unquoted: String,
    dynamic: bool,
    pattern: bool,
}

/// Stands in `unquoted` for what was quoted.
const QUOTED: char = '\u{0}';

impl Reader<'_> {
    fn read(&mut self, node: Node<'_>) {
        let source = &self.source[node.byte_range()];
        match node.kind() {
            "word" | "number" | "==" | "=~" | "$" if node.child_count() == 0 => self.bare(source),
            "concatenation" | "command_name" => {
                let mut cursor = node.walk();
                for child in node.children(&mut cursor) {
                    // Bash may take it together with what follows, as in `$"…"`.
                    self.dynamic |= child.kind() == "$" && child.end_byte() < node.end_byte();
                    self.read(child);
                }
            }
            "raw_string" => self.quoted(source.get(1..source.len().saturating_sub(1)).unwrap_or_default()),
            "ansi_c_string" => match source.get(2..source.len().saturating_sub(1)).and_then(unescape_ansi) {
                Some(text) => self.quoted(&text),
                None => self.dynamic = true,
            },
            "string" => self.string(node),
            "simple_expansion" | "expansion" if self.is_home(node) => {
                self.text.push('~');
                self.pattern = true;
            }
            _ => self.dynamic = true,
        }
    }

    fn bare(&mut self, source: &str) {
        let mut chars = source.chars();
        while let Some(c) = chars.next() {
            match c {
                '\\' => match chars.next() {
                    Some('\n') | None => {}
                    Some(escaped) => self.quoted(escaped.encode_utf8(&mut [0; 4])),
                },
                c => {
                    self.pattern |= matches!(c, '*' | '?' | '[');
                    self.text.push(c);
                    self.unquoted.push(c);
                }
            }
        }
    }

    fn quoted(&mut self, text: &str) {
        self.text.push_str(text);
        self.unquoted.push(QUOTED);
    }

    /// Takes the source between the expansions, since the grammar leaves blanks out of its content nodes.
    fn string(&mut self, node: Node<'_>) {
        let (start, end) = (node.start_byte() + 1, node.end_byte().saturating_sub(1));
        let mut at = start;
        let mut cursor = node.walk();
        for child in node.named_children(&mut cursor).filter(|child| child.kind() != "string_content") {
            self.quoted(&unescape_double(self.source.get(at..child.start_byte()).unwrap_or_default()));
            if self.is_home(child) {
                self.text.push('~');
                self.pattern = true;
            } else {
                self.dynamic = true;
            }
            at = child.end_byte();
        }
        self.quoted(&unescape_double(self.source.get(at..end).unwrap_or_default()));
    }

    /// `$HOME` at the beginning of a word is a path that we know.
    fn is_home(&self, node: Node<'_>) -> bool {
        self.text.is_empty() && matches!(&self.source[node.byte_range()], "$HOME" | "${HOME}")
    }
}

fn unescape_double(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut chars = source.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, chars.peek()) {
            ('\\', Some('\n')) => {
                chars.next();
            }
            ('\\', Some(&next @ ('$' | '`' | '"' | '\\'))) => {
                chars.next();
                text.push(next);
            }
            _ => text.push(c),
        }
    }
    text
}

/// The inside of `$'…'`; none if it has an escape that we do not know or that is not one character of text.
fn unescape_ansi(source: &str) -> Option<String> {
    let mut text = String::with_capacity(source.len());
    let mut chars = source.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\\' {
            text.push(c);
            continue;
        }
        let c = chars.next()?;
        let (radix, digits) = match c {
            'x' => (16, 2),
            'u' => (16, 4),
            'U' => (16, 8),
            '0'..='7' => (8, 3),
            _ => {
                text.push(match c {
                    'a' => '\u{7}',
                    'b' => '\u{8}',
                    'e' | 'E' => '\u{1b}',
                    'f' => '\u{c}',
                    'n' => '\n',
                    'r' => '\r',
                    't' => '\t',
                    'v' => '\u{b}',
                    '\\' | '\'' | '"' | '?' => c,
                    _ => return None,
                });
                continue;
            }
        };
        let mut number = if radix == 8 { c.to_digit(8)? } else { 0 };
        let mut count = u32::from(radix == 8);
        while count < digits
            && let Some(digit) = chars.peek().and_then(|c| c.to_digit(radix))
        {
            number = number.checked_mul(radix)?.checked_add(digit)?;
            count += 1;
            chars.next();
        }
        // A NUL ends the string, and bytes beyond ASCII depend on what is around them.
        if count == 0 || number == 0 || (number > 127 && matches!(c, 'x' | '0'..='7')) {
            return None;
        }
        text.push(char::from_u32(number)?);
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ansi_escapes() {
        assert_eq!(unescape_ansi(r"r\x6d\t\101\u00e9\'"), Some("rm\tA\u{e9}'".into()));
        for unknown in [r"\xff", r"\x", r"\0", r"\cA", r"\q", "\\", r"\Uffffffff"] {
            assert_eq!(unescape_ansi(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn double_quotes_keep_most_backslashes() {
        assert_eq!(unescape_double("a\\b \\$x \\\"q\\\" \\\\ \\\n."), "a\\b $x \"q\" \\ .");
    }
}
