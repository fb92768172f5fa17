//! The words of a command, without their quotes.

use tree_sitter::Node;

use super::arith;
use super::vars::Piece;

/// A word of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word {
    /// The text that the command gets, if the word is literal; else its source.
    pub(super) text: String,
    /// Whether the shell only removes quotes.
    pub(super) literal: bool,
    /// The path that it expands to, with `~` and wildcards, if it is not literal.
    pub(super) pattern: Option<String>,
    /// Whether it may expand to several words, or to none.
    pub(super) splits: bool,
    /// Its parts, if they are known.
    pub(super) pieces: Option<Vec<Piece>>,
}

/// The path that a word, or the value of an option in it, expands to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    Path(String),
    /// It depends on variables.
    Pieces(Vec<Piece>, bool),
    Unknown,
}

impl Word {
    pub(super) fn literal(text: impl Into<String>) -> Word {
        Word { text: text.into(), literal: true, pattern: None, splits: false, pieces: None }
    }

    pub(super) fn dynamic(text: impl Into<String>) -> Word {
        Word { text: text.into(), literal: false, pattern: None, splits: true, pieces: None }
    }

    /// The text, if it is literal.
    pub(super) fn known(&self) -> Option<&str> {
        self.literal.then_some(self.text.as_str())
    }

    /// The path that the word expands to: literal, or with `~` and wildcards.
    pub(super) fn path(&self) -> Option<&str> {
        self.known().or(self.pattern.as_deref())
    }

    /// The beginning of the word that does not depend on expansions.
    pub(super) fn head(&self) -> &str {
        match (self.path(), &self.pieces) {
            (Some(path), _) => path,
            (None, Some(pieces)) => match pieces.first() {
                Some(Piece::Text(text)) => text,
                _ => "",
            },
            (None, None) => "",
        }
    }

    /// Whether its expansion depends on anything but which files exist.
    pub(super) fn is_dynamic(&self) -> bool {
        self.path().is_none()
    }

    /// Whether it expands to a number.
    pub(super) fn is_number(&self) -> bool {
        self.pieces.as_ref().is_some_and(|pieces| {
            pieces.iter().all(|piece| match piece {
                Piece::Number => true,
                Piece::Text(text) => text.chars().all(|c| c.is_ascii_digit()),
                _ => false,
            })
        })
    }

    /// The path in a word after its first bytes.
    pub(super) fn target(&self, skipped: usize) -> Target {
        if let Some(path) = self.path() {
            return path.get(skipped..).map_or(Target::Unknown, |path| Target::Path(path.to_owned()));
        }
        let Some(mut pieces) = self.pieces.clone() else { return Target::Unknown };
        if skipped > 0 {
            let Some(Piece::Text(text)) = pieces.first_mut() else { return Target::Unknown };
            let Some(rest) = text.get(skipped..) else { return Target::Unknown };
            *text = rest.to_owned();
        }
        pieces.retain(|piece| *piece != Piece::Text(String::new()));
        Target::Pieces(pieces, self.splits)
    }

    /// Reads a word; the walker visits its expansions.
    pub(super) fn read(node: Node<'_>, source: &str) -> Word {
        let kind = node.kind();
        if kind == "command_name"
            && node.child_count() == 1
            && let Some(child) = node.child(0)
        {
            return Word::read(child, source);
        }
        // Most words are like this.
        let text = &source[node.byte_range()];
        if kind == "word" && node.child_count() == 0 && is_bare(text) {
            return Word::literal(text);
        }
        let mut reader = Reader {
            source,
            text: String::new(),
            unquoted: String::new(),
            dynamic: false,
            pattern: false,
            splits: false,
            pieces: Some(Vec::new()),
        };
        reader.read(node);
        // Braces turn one word into several.
        let brace = reader.unquoted.contains('{') && (reader.unquoted.contains(',') || reader.unquoted.contains(".."));
        if reader.dynamic || brace {
            let pieces = reader.pieces.filter(|_| !brace);
            return Word {
                text: text.to_owned(),
                literal: false,
                pattern: None,
                splits: reader.splits || reader.pattern || brace,
                pieces,
            };
        }
        if reader.pattern || reader.unquoted.starts_with('~') {
            return Word {
                text: text.to_owned(),
                literal: false,
                pattern: Some(reader.text),
                splits: true,
                pieces: None,
            };
        }
        Word::literal(reader.text)
    }
}

struct Reader<'a> {
    source: &'a str,
    text: String,
    /// The text outside quotes that is not escaped, with a placeholder for the rest.
    unquoted: String,
    dynamic: bool,
    pattern: bool,
    splits: bool,
    pieces: Option<Vec<Piece>>,
}

/// The placeholder for quoted text in `unquoted`.
const QUOTED: char = '\u{0}';

impl Reader<'_> {
    fn read(&mut self, node: Node<'_>) {
        let source = &self.source[node.byte_range()];
        match node.kind() {
            "word" | "number" | "==" | "=~" | "$" if node.child_count() == 0 => self.bare(source),
            "concatenation" | "command_name" => {
                let mut cursor = node.walk();
                for child in node.children(&mut cursor) {
                    // Bash may read it together with what follows, as in `$"…"`.
                    if child.kind() == "$" && child.end_byte() < node.end_byte() {
                        self.unknown();
                    }
                    self.read(child);
                }
            }
            "raw_string" => self.quoted(source.get(1..source.len().saturating_sub(1)).unwrap_or_default()),
            "ansi_c_string" => match source.get(2..source.len().saturating_sub(1)).and_then(unescape_ansi) {
                Some(text) => self.quoted(&text),
                None => self.unknown(),
            },
            "string" => self.string(node),
            _ => self.expansion(node, true),
        }
    }

    fn bare(&mut self, source: &str) {
        if is_bare(source) {
            self.push(source);
            self.unquoted.push_str(source);
            return;
        }
        let mut chars = source.chars();
        while let Some(c) = chars.next() {
            match c {
                '\\' => match chars.next() {
                    Some('\n') | None => {}
                    Some(escaped) => self.quoted(escaped.encode_utf8(&mut [0; 4])),
                },
                c => {
                    self.pattern |= matches!(c, '*' | '?' | '[');
                    self.push(c.encode_utf8(&mut [0; 4]));
                    self.unquoted.push(c);
                }
            }
        }
    }

    fn quoted(&mut self, text: &str) {
        self.push(text);
        self.unquoted.push(QUOTED);
    }

    fn push(&mut self, text: &str) {
        self.text.push_str(text);
        match self.pieces.as_mut().map(|pieces| (pieces.last_mut(), text)) {
            Some((Some(Piece::Text(last)), text)) => last.push_str(text),
            Some((_, text)) => self.piece(Piece::Text(text.to_owned())),
            None => {}
        }
    }

    fn piece(&mut self, piece: Piece) {
        if let Some(pieces) = &mut self.pieces {
            pieces.push(piece);
        }
    }

    fn unknown(&mut self) {
        self.dynamic = true;
        self.pieces = None;
    }

    /// Reads the source between the expansions, because the grammar's content nodes leave out blanks.
    fn string(&mut self, node: Node<'_>) {
        let (start, end) = (node.start_byte() + 1, node.end_byte().saturating_sub(1));
        let mut at = start;
        let mut cursor = node.walk();
        for child in node.named_children(&mut cursor).filter(|child| child.kind() != "string_content") {
            self.quoted(&unescape_double(self.source.get(at..child.start_byte()).unwrap_or_default()));
            self.expansion(child, false);
            at = child.end_byte();
        }
        self.quoted(&unescape_double(self.source.get(at..end).unwrap_or_default()));
    }

    fn expansion(&mut self, node: Node<'_>, bare: bool) {
        let source = &self.source[node.byte_range()];
        // `$HOME` at the beginning of a word is a known path.
        if self.text.is_empty() && !self.dynamic && matches!(source, "$HOME" | "${HOME}") {
            self.push("~");
            self.pattern = true;
            return;
        }
        self.dynamic = true;
        self.splits |= bare || source.contains("[@]") || source.contains('@');
        match piece(source) {
            Some(piece) => self.piece(piece),
            None => self.unknown(),
        }
    }
}

/// Whether every character of a word stands for itself.
fn is_bare(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'/' | b'=' | b':'))
}

/// What an expansion puts into a word.
fn piece(source: &str) -> Option<Piece> {
    let inside = source.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
    let name = inside.or(source.strip_prefix('$').filter(|rest| !rest.starts_with('(')));
    match name {
        Some("PWD") => return Some(Piece::Here),
        Some("#" | "?" | "$" | "!" | "RANDOM" | "SECONDS" | "LINENO") => return Some(Piece::Number),
        Some(name) if super::names::is_variable(name) => return Some(Piece::Variable(name.to_owned())),
        _ => {}
    }
    if let Some(inside) = inside {
        if inside.starts_with('#') {
            return Some(Piece::Number);
        }
        let end = inside.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')?;
        let (name, operator) = inside.split_at(end);
        let trims = operator.starts_with('%') || operator == "##*/";
        return (trims && super::names::is_variable(name)).then(|| Piece::Trimmed(name.to_owned()));
    }
    if source.starts_with("$((") || source.starts_with("$[") {
        return Some(Piece::Number);
    }
    let command = source.strip_prefix("$(").and_then(|rest| rest.strip_suffix(')'))?.trim();
    match command {
        "pwd" | "git rev-parse --show-toplevel" => Some(Piece::Here),
        _ if arith::prints_number(command) => Some(Piece::Number),
        _ if super::paths::lists_files_inside(command) => Some(Piece::Inside),
        _ => None,
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

/// The text of `$'…'`; `None` if it has an escape that is unknown or does not yield one character of text.
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
        // A NUL ends the string, and bytes beyond ASCII depend on their neighbours.
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
