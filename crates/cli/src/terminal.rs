//! The terminal: colours, width, wrapping, tables, and one rule about streams: the answer goes to standard output, everything about
//! it to standard error.
//!
//! Below are what several commands draw: questions page by page, rows of subagents, diffs, amounts, and the screen of a run.

pub mod amounts;
pub mod diff;
mod input;
mod json;
pub mod pages;
mod screen;
pub mod tree_rows;

use std::io::{self, IsTerminal as _, Write as _};

use unicode_width::UnicodeWidthStr as _;

pub use input::{LineReader, is_interactive};
pub use json::{escape_json, print_json};
pub use screen::Screen;

/// The width of text that goes to no terminal.
const DEFAULT_WIDTH: usize = 100;
/// A narrower terminal wraps lines itself.
const MIN_WIDTH: usize = 20;
/// The height of a terminal that does not know its own.
const DEFAULT_HEIGHT: usize = 22;
/// How much further the rest of a wrapped line is indented.
const HANGING_INDENT: usize = 2;

/// What the terminal can show and the user wants.
#[derive(Debug, Clone, Copy)]
pub struct Capabilities {
    /// No colours.
    pub no_color: bool,
    /// Nothing but text: what is printed cannot be changed.
    pub dumb: bool,
}

/// How text is painted, and for which width.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Style {
    /// Whether to use colours.
    pub color: bool,
    /// The columns of the terminal.
    pub width: usize,
}

impl Style {
    /// Without colours.
    #[cfg(test)]
    pub fn plain() -> Self {
        Self { color: false, width: DEFAULT_WIDTH }
    }

    fn of(terminal: bool, no_color: bool) -> Self {
        let width = if terminal { width() } else { DEFAULT_WIDTH };
        Self { color: terminal && !no_color, width }
    }

    /// For standard output.
    pub fn stdout(no_color: bool) -> Self {
        Self::of(io::stdout().is_terminal(), no_color)
    }

    /// For standard error.
    pub fn stderr(no_color: bool) -> Self {
        Self::of(io::stderr().is_terminal(), no_color)
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.color && !text.is_empty() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
    }

    /// Less important.
    pub fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    /// More important.
    pub fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    /// Bad, or removed.
    pub fn red(self, text: &str) -> String {
        self.paint("31", text)
    }

    /// Good, or added.
    pub fn green(self, text: &str) -> String {
        self.paint("32", text)
    }

    /// A warning.
    pub fn yellow(self, text: &str) -> String {
        self.paint("33", text)
    }

    /// A question.
    pub fn cyan(self, text: &str) -> String {
        self.paint("36", text)
    }
}

/// The width for help texts: the columns of standard output, or else COLUMNS.
pub fn help_width() -> usize {
    let terminal = rustix::termios::tcgetwinsize(io::stdout()).map_or(0, |size| usize::from(size.ws_col));
    let variable = || crate::wiring::env_var("COLUMNS").and_then(|columns| columns.parse().ok());
    Some(terminal).filter(|columns| *columns > 0).or_else(variable).unwrap_or(DEFAULT_WIDTH)
}

/// The current width of the terminal.
pub fn width() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stderr()).or_else(|_| rustix::termios::tcgetwinsize(io::stdout()));
    match size.map_or(0, |size| usize::from(size.ws_col)) {
        // A terminal that does not know its size, or no terminal.
        0 => DEFAULT_WIDTH,
        columns => columns.max(MIN_WIDTH),
    }
}

/// How many lines can be drawn and erased again: the height of the terminal, without the line below them.
pub fn height() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stderr()).or_else(|_| rustix::termios::tcgetwinsize(io::stdout()));
    let rows = size.map_or(0, |size| usize::from(size.ws_row));
    if rows == 0 { DEFAULT_HEIGHT } else { rows.saturating_sub(2).max(1) }
}

/// The columns that a text takes on a terminal, without its control sequences.
pub fn visible_width(text: &str) -> usize {
    api::strip_control(text).width()
}

/// One line of at most that many characters: without control sequences, with blanks for line breaks and tabs, cut at the end.
pub fn one_line(text: &str, width: usize) -> String {
    let clean = api::strip_control(text);
    let mut chars = clean.trim_end().chars().map(|c| if c == '\n' || c == '\t' { ' ' } else { c });
    let mut line: String = chars.by_ref().take(width).collect();
    if chars.next().is_some() {
        line.pop();
        line.push('…');
    }
    line
}

/// A text for standard error, with its long lines broken between words if that is a terminal.
pub fn wrap_for_stderr(text: &str) -> String {
    if io::stderr().is_terminal() { wrap_lines(text, width()) } else { text.to_owned() }
}

/// Breaks long lines between words. The rest of a line is indented further than its beginning.
pub fn wrap_lines(text: &str, width: usize) -> String {
    let line = |line: &str| {
        let words = line.trim_start();
        let indent = line.len() - words.len();
        format!("{:indent$}{}\n", "", wrap(words, indent + HANGING_INDENT, width))
    };
    text.lines().map(line).collect()
}

/// Breaks a text between words into lines of at most that width, and indents all lines but the first.
pub fn wrap(text: &str, indent: usize, width: usize) -> String {
    let mut lines: Vec<String> = vec![String::new()];
    for word in text.split_whitespace() {
        let Some(line) = lines.last_mut() else { continue };
        if line.is_empty() {
            line.push_str(word);
        } else if indent + line.width() + 1 + word.width() <= width {
            *line += &format!(" {word}");
        } else {
            lines.push(word.to_owned());
        }
    }
    lines.join(&format!("\n{:indent$}", ""))
}

/// `1 file`, `2 files`.
pub fn plural(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// Writes to standard output. A closed pipe is an error on which callers end.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Writes to standard error. A failure is ignored: there is nowhere to report it.
pub fn eprint(text: &str) {
    let mut err = io::stderr().lock();
    let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
}

/// Writes sentences to standard error, wrapped to the terminal.
pub fn say(text: &str) {
    eprint(&wrap_for_stderr(text));
}

/// Rows as aligned columns, two spaces apart; the last column is not padded.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', width.saturating_sub(cell.chars().count()) + 2));
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_only_when_wanted() {
        assert_eq!(Style::plain().red("x"), "x");
        assert_eq!(Style { color: true, width: 10 }.red("x"), "\x1b[31mx\x1b[0m");
        assert_eq!(Style { color: true, width: 10 }.red(""), "");
    }

    #[test]
    fn one_line_cuts_and_cleans() {
        assert_eq!(one_line("a\nb\tc\x1b[31m", 10), "a b c");
        assert_eq!(one_line("abcdefghij", 10), "abcdefghij");
        assert_eq!(one_line("abcdefghijk", 10), "abcdefghi…");
        assert_eq!(one_line("", 10), "");
    }

    #[test]
    fn lines_wrap_between_words_and_keep_their_indent() {
        let text = "error: one two three four\n  hint: 日本 日本 日本 five\n\nsix\n";
        let want = "error: one two\n  three four\n  hint: 日本\n    日本 日本\n    five\n\nsix\n";
        assert_eq!(wrap_lines(text, 16), want);
        assert_eq!(wrap_lines(text, 80), text);
        assert_eq!(wrap_lines("", 80), "");
    }

    #[test]
    fn widths_are_those_of_the_terminal() {
        assert_eq!(visible_width("\x1b[1mab\x1b[0m 日"), 5);
    }

    #[test]
    fn tables_align() {
        let rows = vec![vec!["a".to_string(), "b".into()], vec!["long".into(), "c".into()]];
        assert_eq!(table(&rows), "a     b\nlong  c\n");
    }
}
