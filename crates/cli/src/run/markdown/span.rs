//! Marks within a line: emphasis, code and links.

/// The style of a piece of text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TextStyle {
    pub bold: bool,
    pub italic: bool,
    pub underlined: bool,
    pub dim: bool,
    pub code: bool,
}

impl TextStyle {
    /// Code.
    pub const CODE: Self = Self { bold: false, italic: false, underlined: false, dim: false, code: true };
    /// Less important.
    pub const DIM: Self = Self { bold: false, italic: false, underlined: false, dim: true, code: false };

    /// The text with its control sequences.
    pub fn paint(self, text: &str) -> String {
        let codes = [(self.bold, "1"), (self.dim, "2"), (self.italic, "3"), (self.underlined, "4"), (self.code, "36")];
        let codes: Vec<&str> = codes.into_iter().filter_map(|(is_on, code)| is_on.then_some(code)).collect();
        if codes.is_empty() { text.to_owned() } else { format!("\x1b[{}m{text}\x1b[0m", codes.join(";")) }
    }

    /// This style within another one.
    pub fn over(self, around: Self) -> Self {
        Self {
            bold: self.bold || around.bold,
            italic: self.italic || around.italic,
            underlined: self.underlined || around.underlined,
            dim: self.dim || around.dim,
            code: self.code || around.code,
        }
    }
}

/// What a mark begins.
#[derive(Debug, PartialEq, Eq)]
pub enum Span<'a> {
    /// More of the line is needed.
    Wait,
    /// That many bytes of plain text.
    Plain(usize),
    Marked {
        text: &'a str,
        inner: TextStyle,
        length: usize,
    },
    Link {
        text: &'a str,
        address: &'a str,
        length: usize,
    },
}

/// What the first character of a text begins. `ended`: no more text follows.
pub fn span(text: &str, before: Option<char>, ended: bool) -> Span<'_> {
    let Some(first) = text.chars().next() else { return Span::Plain(0) };
    let run = text.chars().take_while(|c| *c == first).count() * first.len_utf8();
    let after = &text[run..];
    let wait = |length| if ended { Span::Plain(length) } else { Span::Wait };
    match first {
        '`' | '*' | '_' | '\\' if after.is_empty() && !ended => Span::Wait,
        '`' => match closing_code(after, run, ended) {
            Some(end) => Span::Marked { text: &after[..end], inner: TextStyle::CODE, length: 2 * run + end },
            None => wait(run),
        },
        '*' | '_' => {
            // Names contain underscores: only single ones around words are marks.
            let alone = first == '*' || run == 1 && !before.is_some_and(char::is_alphanumeric);
            let opens = run <= 3 && after.starts_with(|c: char| !c.is_whitespace()) && alone;
            if !opens {
                return Span::Plain(run);
            }
            let inner = TextStyle { bold: run >= 2, italic: run != 2, ..TextStyle::default() };
            match closing(after, first, run, ended) {
                Some(end) => Span::Marked { text: &after[..end], inner, length: 2 * run + end },
                None => wait(run),
            }
        }
        '[' => link(text, ended),
        // A backslash escapes only what would be a mark; elsewhere it is text.
        '\\' if after.starts_with(['*', '_', '`', '[', '#']) && run == 1 => {
            Span::Marked { text: &text[1..2], inner: TextStyle::default(), length: 2 }
        }
        _ => Span::Plain(if first == '\\' { run } else { first.len_utf8() }),
    }
}

/// Where a code span is closed by the same number of backticks. Backticks at the end of the text may become more.
fn closing_code(text: &str, run: usize, ended: bool) -> Option<usize> {
    let mut at = 0;
    while let Some(found) = text[at..].find('`') {
        let start = at + found;
        let length = text[start..].bytes().take_while(|b| *b == b'`').count();
        at = start + length;
        if length == run && (ended || at < text.len()) {
            return Some(start).filter(|start| *start > 0);
        }
    }
    None
}

/// Where an emphasis is closed: by the same number of marks after a word. Code spans are skipped.
fn closing(text: &str, mark: char, run: usize, ended: bool) -> Option<usize> {
    let mut before: Option<char> = None;
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        let length = text[at..].chars().take_while(|other| *other == c).count() * c.len_utf8();
        if c == '`' {
            let after = at + length;
            at = match closing_code(&text[after..], length, ended) {
                Some(end) => after + end + length,
                None if ended => after,
                // The rest may be code, in which no emphasis ends.
                None => return None,
            };
            before = Some('`');
        } else if c == mark {
            let next = text[at + length..].chars().next();
            let complete = next.is_some() || ended;
            let fits = mark == '*' || !next.is_some_and(char::is_alphanumeric);
            if length == run && complete && fits && before.is_some_and(|c| !c.is_whitespace()) {
                return Some(at);
            }
            before = Some(c);
            at += length;
        } else {
            before = Some(c);
            at += c.len_utf8();
        }
    }
    None
}

/// A link; other brackets are plain text.
fn link(text: &str, ended: bool) -> Span<'_> {
    let wait = if ended { Span::Plain(1) } else { Span::Wait };
    let Some(close) = text.find(']') else { return wait };
    match text[close + 1..].chars().next() {
        None => wait,
        Some('(') => match text[close + 2..].find(')') {
            Some(end) if close > 1 && end > 0 => Span::Link {
                text: &text[1..close],
                address: &text[close + 2..close + 2 + end],
                length: close + end + 3,
            },
            Some(_) => Span::Plain(1),
            None => wait,
        },
        Some(_) => Span::Plain(1),
    }
}
