//! Markdown on a terminal, as it streams in: text goes out word by word, wrapped to the terminal. A mark without its
//! counterpart stays as it is, so nothing that a model wrote is lost. Without colours all marks stay.

mod span;

use unicode_width::UnicodeWidthChar as _;

use self::span::{Look, Span, span};
use crate::term::Style;

/// The longest emphasis, code or link that is waited for, in bytes; what is longer is shown as it is written.
const MAX_SPAN: usize = 400;
/// The longest run of digits that can number a list.
const MAX_DIGITS: usize = 9;
/// The widest rule.
const MAX_RULE: usize = 40;

/// What a line is.
#[derive(Debug, PartialEq, Eq)]
enum Start {
    /// Prose.
    Text,
    /// A heading; its text begins there.
    Heading(usize),
    /// An entry of a list: the indent, the mark, and where its text begins.
    Item(usize, String, usize),
    /// A quote; its text begins there.
    Quote(usize),
    /// Something that is shown as a whole line: a row of a table, a fence, a rule.
    Line(Whole),
}

#[derive(Debug, PartialEq, Eq)]
enum Whole {
    Row,
    Rule,
    /// The fence: its character, how often it is repeated.
    Fence(char, usize),
}

/// What the current line of the input is shown as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Block {
    /// The line has not begun, or not enough of it is there to tell.
    Begin,
    Prose(Look),
    /// Code or a table: neither parsed nor wrapped.
    Verbatim(Look),
}

/// What was shown so far of a text, and what waits for more of it.
pub struct Markdown {
    style: Style,
    /// What came and is not understood yet.
    raw: String,
    block: Block,
    /// The code block that is open.
    fence: Option<(char, usize)>,
    /// What lines begin with that continue the current one, painted, and how wide that is.
    lead: (String, usize),
    /// The word that is being written, and the blanks before it.
    word: Vec<(char, Look)>,
    blanks: usize,
    /// The last character that was understood.
    before: Option<char>,
    column: usize,
}

impl Markdown {
    /// Nothing yet.
    pub fn new(style: Style) -> Self {
        Self {
            style,
            raw: String::new(),
            block: Block::Begin,
            fence: None,
            lead: (String::new(), 0),
            word: Vec::new(),
            blanks: 0,
            before: None,
            column: 0,
        }
    }

    /// The terminal has another width now.
    pub fn resize(&mut self, width: usize) {
        self.style.width = width;
    }

    /// Whether the last line that was shown is not at its end.
    pub fn is_open(&self) -> bool {
        self.column > 0
    }

    /// More text; gives what can be shown now.
    pub fn push(&mut self, text: &str) -> String {
        self.raw.push_str(text);
        let mut out = String::new();
        self.advance(false, &mut out);
        out
    }

    /// The end of the text; gives what was held back. The next text begins with a line of its own.
    pub fn finish(&mut self) -> String {
        let mut out = String::new();
        self.advance(true, &mut out);
        self.flush(&mut out);
        self.fence = None;
        (self.block, self.blanks, self.before) = (Block::Begin, 0, None);
        out
    }

    /// The caller has ended the line.
    pub fn closed(&mut self) {
        self.column = 0;
    }

    /// Shows what is understood of what came; `last`: nothing follows.
    fn advance(&mut self, last: bool, out: &mut String) {
        let raw = std::mem::take(&mut self.raw);
        let mut rest = raw.as_str();
        while !rest.is_empty() {
            let used = match self.block {
                Block::Begin => self.begin(rest, last, out),
                Block::Prose(look) => self.prose(rest, look, last, out),
                Block::Verbatim(look) => Some(self.verbatim(rest, look, out)),
            };
            match used {
                Some(used) => rest = &rest[used..],
                None => break,
            }
        }
        self.raw = rest.to_owned();
    }

    /// The beginning of a line; gives how much of it is done, or nothing if more of it is needed.
    fn begin(&mut self, rest: &str, last: bool, out: &mut String) -> Option<usize> {
        let (line, ended) = next_line(rest, last);
        (self.lead, self.before) = ((String::new(), 0), None);
        let marks = self.style.color;
        if let Some((mark, length)) = self.fence {
            let shut = line.trim_start().chars().take_while(|c| *c == mark).count();
            let only = line.trim().chars().all(|c| c == mark);
            if only && !ended {
                return None;
            }
            let closes = only && shut >= length;
            self.fence = self.fence.filter(|_| !closes);
            self.block = Block::Verbatim(if closes { Look::DIM } else { Look::CODE });
            return Some(0);
        }
        match classify(line, ended)? {
            Start::Text => {
                let indent = line.len() - line.trim_start_matches(' ').len();
                self.lead = (" ".repeat(indent), indent);
                self.block = Block::Prose(Look::default());
                Some(0)
            }
            Start::Heading(at) => {
                self.block = Block::Prose(Look { bold: true, ..Look::default() });
                Some(if marks { at } else { 0 })
            }
            Start::Item(indent, mark, at) => {
                let mark =
                    if marks && !mark.starts_with(|c: char| c.is_ascii_digit()) { "•".to_owned() } else { mark };
                let width = indent + mark.chars().count() + 1;
                self.block = Block::Prose(Look::default());
                out.push_str(&format!("{:indent$}{mark} ", ""));
                self.column = width;
                self.lead = (" ".repeat(width), width);
                Some(at)
            }
            Start::Quote(at) => {
                self.lead = (self.style.dim(if marks { "│ " } else { "> " }), 2);
                self.block = Block::Prose(Look { dim: true, ..Look::default() });
                out.push_str(&self.lead.0);
                self.column = 2;
                Some(at)
            }
            Start::Line(Whole::Rule) if marks => {
                let rule = "─".repeat(MAX_RULE.min(self.style.width));
                out.push_str(&self.style.dim(&rule));
                self.column = 1;
                self.block = Block::Verbatim(Look::default());
                // Blanks behind it would count as text.
                Some(line.len())
            }
            Start::Line(Whole::Fence(mark, length)) => {
                self.fence = Some((mark, length));
                self.block = Block::Verbatim(Look::DIM);
                Some(0)
            }
            Start::Line(_) => {
                self.block = Block::Verbatim(Look::default());
                Some(0)
            }
        }
    }

    /// Text that is shown as it is.
    fn verbatim(&mut self, rest: &str, look: Look, out: &mut String) -> usize {
        let line = rest.split('\n').next().unwrap_or_default();
        if !line.is_empty() {
            out.push_str(&self.painted(line, look));
            self.column += width(line);
        }
        if line.len() == rest.len() {
            return line.len();
        }
        self.end_line(out);
        line.len() + 1
    }

    /// The next piece of prose; gives how much of it is done, or nothing if more of it is needed.
    fn prose(&mut self, rest: &str, look: Look, last: bool, out: &mut String) -> Option<usize> {
        let (line, ended) = next_line(rest, last);
        let Some(first) = line.chars().next() else {
            self.flush(out);
            self.end_line(out);
            return Some(1);
        };
        if self.style.color && matches!(first, '`' | '*' | '_' | '[' | '\\') {
            let length = match span(line, self.before, ended) {
                Span::Wait => return None,
                Span::Plain(length) => {
                    line[..length].chars().for_each(|c| self.put(c, look, out));
                    length
                }
                Span::Marked { text, inner, length } => {
                    self.marked(text, inner.over(look), inner == Look::CODE, out);
                    length
                }
                Span::Link { text, address, length } => {
                    self.marked(text, Look { underlined: true, ..look }, false, out);
                    if text != address {
                        format!(" ({address})").chars().for_each(|c| self.put(c, Look { dim: true, ..look }, out));
                    }
                    length
                }
            };
            self.before = line[..length].chars().last();
            return Some(length);
        }
        self.put(first, look, out);
        self.before = Some(first);
        Some(first.len_utf8())
    }

    /// Text between marks, which may have marks itself.
    fn marked(&mut self, text: &str, look: Look, verbatim: bool, out: &mut String) {
        let mut rest = text;
        let mut before = None;
        while let Some(first) = rest.chars().next() {
            let mut length = first.len_utf8();
            match span(rest, before, true) {
                Span::Marked { text, inner, length: whole } if !verbatim => {
                    self.marked(text, inner.over(look), inner == Look::CODE, out);
                    length = whole;
                }
                Span::Plain(whole) if !verbatim => {
                    rest[..whole].chars().for_each(|c| self.put(c, look, out));
                    length = whole;
                }
                _ => self.put(first, look, out),
            }
            before = rest[..length].chars().last();
            rest = &rest[length..];
        }
    }

    /// A character of prose.
    fn put(&mut self, c: char, look: Look, out: &mut String) {
        if c == ' ' || c == '\t' {
            self.flush(out);
            self.blanks += 1;
        } else {
            self.word.push((c, look));
        }
    }

    /// Shows the word that is complete, in a new line if it does not fit into this one.
    fn flush(&mut self, out: &mut String) {
        if self.word.is_empty() {
            return;
        }
        let word = std::mem::take(&mut self.word);
        let size: usize = word.iter().map(|(c, _)| c.width().unwrap_or(0)).sum();
        if self.column > self.lead.1 && self.column + self.blanks + size > self.style.width {
            out.push('\n');
            out.push_str(&self.lead.0);
            self.column = self.lead.1;
        } else {
            out.extend(std::iter::repeat_n(' ', self.blanks));
            self.column += self.blanks;
        }
        self.blanks = 0;
        self.column += size;
        for run in word.chunk_by(|(_, a), (_, b)| a == b) {
            let text: String = run.iter().map(|(c, _)| *c).collect();
            out.push_str(&self.painted(&text, run.first().map(|(_, look)| *look).unwrap_or_default()));
        }
    }

    fn painted(&self, text: &str, look: Look) -> String {
        if self.style.color { look.paint(text) } else { text.to_owned() }
    }

    fn end_line(&mut self, out: &mut String) {
        out.push('\n');
        (self.block, self.column, self.blanks) = (Block::Begin, 0, 0);
    }
}

/// The line that a text begins with, as far as it is looked at, and whether nothing of it follows that would count.
fn next_line(text: &str, last: bool) -> (&str, bool) {
    let (line, ended) = text.split_once('\n').map_or((text, last), |(line, _)| (line, true));
    if line.len() > MAX_SPAN { (&line[..line.floor_char_boundary(MAX_SPAN)], true) } else { (line, ended) }
}

fn width(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

/// What a line is, as far as it is there; nothing if more of it is needed. `ended`: no more of it follows.
fn classify(line: &str, ended: bool) -> Option<Start> {
    let text = line.trim_start_matches(' ');
    let indent = line.len() - text.len();
    let Some(first) = text.chars().next() else { return ended.then_some(Start::Text) };
    let run = text.chars().take_while(|c| *c == first).count() * first.len_utf8();
    let after = &text[run..];
    // Whether the line so far could still become something else.
    let open = after.is_empty() && !ended;
    match first {
        '#' if run <= 6 && open => None,
        '#' if run <= 6 && after.starts_with(' ') => Some(Start::Heading(indent + run + 1)),
        '`' | '~' if run < 3 && open => None,
        '`' | '~' if run >= 3 && !(first == '`' && after.contains('`')) => {
            ended.then_some(Start::Line(Whole::Fence(first, run)))
        }
        '-' | '*' | '_' | '+' if open => None,
        '-' | '*' | '_' if run >= 3 && after.trim().is_empty() => ended.then_some(Start::Line(Whole::Rule)),
        '-' | '*' | '+' if run == 1 && after.starts_with(' ') => {
            Some(Start::Item(indent, first.to_string(), indent + 2))
        }
        '>' if run == 1 && open => None,
        '>' => Some(Start::Quote(indent + 1 + usize::from(text[1..].starts_with(' ')))),
        '|' => ended.then_some(Start::Line(Whole::Row)),
        '0'..='9' => {
            let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let mut rest = text[digits..].chars();
            match (rest.next(), rest.next()) {
                _ if digits > MAX_DIGITS => Some(Start::Text),
                (None, _) | (Some('.' | ')'), None) if !ended => None,
                (Some('.' | ')'), Some(' ')) => {
                    Some(Start::Item(indent, text[..=digits].to_owned(), indent + digits + 2))
                }
                _ => Some(Start::Text),
            }
        }
        _ => Some(Start::Text),
    }
}

#[cfg(test)]
#[path = "markdown/tests.rs"]
mod tests;
