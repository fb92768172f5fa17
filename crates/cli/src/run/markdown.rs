//! Renders streaming markdown on a terminal: word by word, wrapped to the width. A mark without its counterpart stays as it is, so
//! nothing that a model wrote is lost. Without colours all marks stay.

mod span;

use unicode_width::UnicodeWidthChar as _;

use self::span::{Span, TextStyle, span};
use crate::terminal::Style;

/// The longest emphasis, code or link that is recognised, in bytes; longer ones are shown as they are written.
const MAX_SPAN: usize = 400;
/// The longest number of a list item.
const MAX_DIGITS: usize = 9;
/// The widest rule.
const MAX_RULE: usize = 40;

/// What a line starts with.
#[derive(Debug, PartialEq, Eq)]
enum LineStart {
    /// Prose.
    Text,
    /// A heading; its text begins at this byte.
    Heading(usize),
    /// A list item: the indent, the mark, and the byte where its text begins.
    Item(usize, String, usize),
    /// A quote; its text begins at this byte.
    Quote(usize),
    /// A line that is shown as a whole: a table row, a fence, a rule.
    Line(WholeLine),
}

#[derive(Debug, PartialEq, Eq)]
enum WholeLine {
    Row,
    Rule,
    /// A fence: its character and length.
    Fence(char, usize),
}

/// How the current line of the input is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Block {
    /// Not known yet: the line has not begun, or more of it is needed.
    Begin,
    Prose(TextStyle),
    /// Code or a table: neither parsed nor wrapped.
    Verbatim(TextStyle),
}

/// A text that is being rendered.
pub struct Markdown {
    style: Style,
    /// Input that is not rendered yet.
    raw: String,
    block: Block,
    /// The fence of the open code block.
    fence: Option<(char, usize)>,
    /// What continuation lines begin with, painted, and its width.
    lead: (String, usize),
    /// The current word, and the blanks before it.
    word: Vec<(char, TextStyle)>,
    blanks: usize,
    /// The last rendered character.
    before: Option<char>,
    column: usize,
}

impl Markdown {
    /// An empty text.
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

    /// Takes the new width of the terminal.
    pub fn resize(&mut self, width: usize) {
        self.style.width = width;
    }

    /// Whether the last printed line is still open.
    pub fn is_open(&self) -> bool {
        self.column > 0
    }

    /// Adds text; returns what can be shown now.
    pub fn push(&mut self, text: &str) -> String {
        self.raw.push_str(text);
        let mut out = String::new();
        self.advance(false, &mut out);
        out
    }

    /// Ends the text; returns what was held back. The next text begins on a new line.
    pub fn finish(&mut self) -> String {
        let mut out = String::new();
        self.advance(true, &mut out);
        self.flush(&mut out);
        self.fence = None;
        (self.block, self.blanks, self.before) = (Block::Begin, 0, None);
        out
    }

    /// Tells that the caller has ended the line.
    pub fn line_closed(&mut self) {
        self.column = 0;
    }

    /// Renders as much input as possible; `last`: nothing follows.
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

    /// Renders the beginning of a line. Returns how many bytes are done, or `None` if more input is needed.
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
            self.block = Block::Verbatim(if closes { TextStyle::DIM } else { TextStyle::CODE });
            return Some(0);
        }
        match classify(line, ended)? {
            LineStart::Text => {
                let indent = line.len() - line.trim_start_matches(' ').len();
                self.lead = (" ".repeat(indent), indent);
                self.block = Block::Prose(TextStyle::default());
                Some(0)
            }
            LineStart::Heading(at) => {
                self.block = Block::Prose(TextStyle { bold: true, ..TextStyle::default() });
                Some(if marks { at } else { 0 })
            }
            LineStart::Item(indent, mark, at) => {
                let mark =
                    if marks && !mark.starts_with(|c: char| c.is_ascii_digit()) { "•".to_owned() } else { mark };
                let width = indent + mark.chars().count() + 1;
                self.block = Block::Prose(TextStyle::default());
                out.push_str(&format!("{:indent$}{mark} ", ""));
                self.column = width;
                self.lead = (" ".repeat(width), width);
                Some(at)
            }
            LineStart::Quote(at) => {
                self.lead = (self.style.dim(if marks { "│ " } else { "> " }), 2);
                self.block = Block::Prose(TextStyle { dim: true, ..TextStyle::default() });
                out.push_str(&self.lead.0);
                self.column = 2;
                Some(at)
            }
            LineStart::Line(WholeLine::Rule) if marks => {
                let rule = "─".repeat(MAX_RULE.min(self.style.width));
                out.push_str(&self.style.dim(&rule));
                self.column = 1;
                self.block = Block::Verbatim(TextStyle::default());
                // Trailing blanks would count as text.
                Some(line.len())
            }
            LineStart::Line(WholeLine::Fence(mark, length)) => {
                self.fence = Some((mark, length));
                self.block = Block::Verbatim(TextStyle::DIM);
                Some(0)
            }
            LineStart::Line(_) => {
                self.block = Block::Verbatim(TextStyle::default());
                Some(0)
            }
        }
    }

    /// Renders text as it is.
    fn verbatim(&mut self, rest: &str, look: TextStyle, out: &mut String) -> usize {
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

    /// Renders the next piece of prose. Returns how many bytes are done, or `None` if more input is needed.
    fn prose(&mut self, rest: &str, look: TextStyle, last: bool, out: &mut String) -> Option<usize> {
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
                    self.marked(text, inner.over(look), inner == TextStyle::CODE, out);
                    length
                }
                Span::Link { text, address, length } => {
                    self.marked(text, TextStyle { underlined: true, ..look }, false, out);
                    if text != address {
                        format!(" ({address})").chars().for_each(|c| self.put(c, TextStyle { dim: true, ..look }, out));
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

    /// Renders text between marks, which may contain marks itself.
    fn marked(&mut self, text: &str, look: TextStyle, verbatim: bool, out: &mut String) {
        let mut rest = text;
        let mut before = None;
        while let Some(first) = rest.chars().next() {
            let mut length = first.len_utf8();
            match span(rest, before, true) {
                Span::Marked { text, inner, length: whole } if !verbatim => {
                    self.marked(text, inner.over(look), inner == TextStyle::CODE, out);
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

    /// Adds a character of prose.
    fn put(&mut self, c: char, look: TextStyle, out: &mut String) {
        if c == ' ' || c == '\t' {
            self.flush(out);
            self.blanks += 1;
        } else {
            self.word.push((c, look));
        }
    }

    /// Prints the completed word, on a new line if it does not fit on this one.
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

    fn painted(&self, text: &str, look: TextStyle) -> String {
        if self.style.color { look.paint(text) } else { text.to_owned() }
    }

    fn end_line(&mut self, out: &mut String) {
        out.push('\n');
        (self.block, self.column, self.blanks) = (Block::Begin, 0, 0);
    }
}

/// The first line of a text, as far as it is examined, and whether it is complete.
fn next_line(text: &str, last: bool) -> (&str, bool) {
    let (line, ended) = text.split_once('\n').map_or((text, last), |(line, _)| (line, true));
    if line.len() > MAX_SPAN { (&line[..line.floor_char_boundary(MAX_SPAN)], true) } else { (line, ended) }
}

fn width(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

/// What a line starts with, or `None` if more of it is needed. `ended`: no more of it follows.
fn classify(line: &str, ended: bool) -> Option<LineStart> {
    let text = line.trim_start_matches(' ');
    let indent = line.len() - text.len();
    let Some(first) = text.chars().next() else { return ended.then_some(LineStart::Text) };
    let run = text.chars().take_while(|c| *c == first).count() * first.len_utf8();
    let after = &text[run..];
    // Whether the line could still become something else.
    let open = after.is_empty() && !ended;
    match first {
        '#' if run <= 6 && open => None,
        '#' if run <= 6 && after.starts_with(' ') => Some(LineStart::Heading(indent + run + 1)),
        '`' | '~' if run < 3 && open => None,
        '`' | '~' if run >= 3 && !(first == '`' && after.contains('`')) => {
            ended.then_some(LineStart::Line(WholeLine::Fence(first, run)))
        }
        '-' | '*' | '_' | '+' if open => None,
        '-' | '*' | '_' if run >= 3 && after.trim().is_empty() => ended.then_some(LineStart::Line(WholeLine::Rule)),
        '-' | '*' | '+' if run == 1 && after.starts_with(' ') => {
            Some(LineStart::Item(indent, first.to_string(), indent + 2))
        }
        '>' if run == 1 && open => None,
        '>' => Some(LineStart::Quote(indent + 1 + usize::from(text[1..].starts_with(' ')))),
        '|' => ended.then_some(LineStart::Line(WholeLine::Row)),
        '0'..='9' => {
            let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let mut rest = text[digits..].chars();
            match (rest.next(), rest.next()) {
                _ if digits > MAX_DIGITS => Some(LineStart::Text),
                (None, _) | (Some('.' | ')'), None) if !ended => None,
                (Some('.' | ')'), Some(' ')) => {
                    Some(LineStart::Item(indent, text[..=digits].to_owned(), indent + digits + 2))
                }
                _ => Some(LineStart::Text),
            }
        }
        _ => Some(LineStart::Text),
    }
}

#[cfg(test)]
mod tests;
