//! The terminal: colours, width, the spinner, and the one rule of where things go: the answer to standard output,
//! everything about it to standard error.

use std::io::{self, IsTerminal as _, Write as _};

use unicode_width::UnicodeWidthStr as _;

/// How wide text is that goes to no terminal.
const DEFAULT_WIDTH: usize = 100;
/// Narrower terminals get lines that wrap.
const MIN_WIDTH: usize = 20;
/// How high a terminal is that does not know.
const DEFAULT_HEIGHT: usize = 22;
/// How far the rest of a broken line is indented.
const HANGING: usize = 2;
/// The most lines above the spinner.
const MAX_LINES: usize = 16;
const FRAMES: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

/// What a terminal can show, and is wanted to.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// No colours.
    pub no_color: bool,
    /// Nothing but text: what is there cannot be changed.
    pub dumb: bool,
}

/// Whether and how text is painted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Style {
    /// Whether colours are wanted.
    pub color: bool,
    /// The columns there are.
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

    /// To be noticed.
    pub fn yellow(self, text: &str) -> String {
        self.paint("33", text)
    }

    /// To be answered.
    pub fn cyan(self, text: &str) -> String {
        self.paint("36", text)
    }
}

/// How wide the help may be: the columns of the terminal that it goes to, or what COLUMNS says.
pub fn columns() -> usize {
    let terminal = rustix::termios::tcgetwinsize(io::stdout()).map_or(0, |size| usize::from(size.ws_col));
    let said = || crate::wire::variable("COLUMNS").and_then(|columns| columns.parse().ok());
    Some(terminal).filter(|columns| *columns > 0).or_else(said).unwrap_or(DEFAULT_WIDTH)
}

/// How wide the terminal is now.
pub fn width() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stderr()).or_else(|_| rustix::termios::tcgetwinsize(io::stdout()));
    match size.map_or(0, |size| usize::from(size.ws_col)) {
        // A terminal that does not know, or no terminal at all.
        0 => DEFAULT_WIDTH,
        columns => columns.max(MIN_WIDTH),
    }
}

/// How many lines may be drawn at once and taken away again: those of the terminal, but for the one below.
pub fn height() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stderr()).or_else(|_| rustix::termios::tcgetwinsize(io::stdout()));
    let rows = size.map_or(0, |size| usize::from(size.ws_row));
    if rows == 0 { DEFAULT_HEIGHT } else { rows.saturating_sub(2).max(1) }
}

/// How many columns a text takes on a terminal, control sequences left out.
pub fn visible(text: &str) -> usize {
    api::strip_control(text).width()
}

/// How many rows lines take on a terminal of that width: one that is wider than it was written for breaks them.
fn rows<'a>(lines: impl IntoIterator<Item = &'a usize>, width: usize) -> usize {
    lines.into_iter().map(|columns| columns.div_ceil(width.max(1)).max(1)).sum()
}

/// Takes lines away, the last of which the cursor is in.
fn erase(lines: &[usize]) -> String {
    let above = rows(lines, width()).saturating_sub(1);
    // Row by row: some terminals keep what is cleared from their first row on in their history.
    "\r\x1b[K".to_owned() + &"\x1b[1A\x1b[K".repeat(above)
}

/// One line of at most that many characters: control sequences removed, line breaks and tabs as spaces, the rest cut.
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

/// A text about the answer with its long lines broken between words, if it goes to a terminal.
pub fn fit(text: &str) -> String {
    if !io::stderr().is_terminal() {
        return text.to_owned();
    }
    let width = width();
    let line = |line: &str| {
        let words = line.trim_start();
        let indent = line.len() - words.len();
        format!("{:indent$}{}\n", "", wrap(words, indent + HANGING, width))
    };
    text.lines().map(line).collect()
}

/// Breaks a text between words, so that no line is wider, and indents all but the first.
pub fn wrap(text: &str, indent: usize, width: usize) -> String {
    let mut lines: Vec<String> = vec![String::new()];
    for word in text.split_whitespace() {
        let Some(line) = lines.last_mut() else { continue };
        if line.is_empty() {
            line.push_str(word);
        } else if indent + line.chars().count() + 1 + word.chars().count() <= width {
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

/// Writes to standard output. That a reader closed the pipe is an error that callers end on.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Writes to standard error; there is nobody to tell if that fails.
pub fn eprint(text: &str) {
    let mut err = io::stderr().lock();
    let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
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

/// Both streams of a `run`, and the spinner between them.
pub struct Screen {
    /// Whether what is on the terminal can be changed.
    moves: bool,
    /// How wide each line of the picture is, if there is one; the spinner's is the last.
    shown: Option<Vec<usize>>,
    line_open: bool,
    frame: usize,
    /// The question that waits for its answer: it stays below whatever else is written.
    question: Option<String>,
}

impl Screen {
    /// The process's own streams. A terminal that is `dumb` only takes text.
    pub fn new(dumb: bool) -> Self {
        let moves = io::stderr().is_terminal() && !dumb;
        Self { moves, shown: None, line_open: false, frame: 0, question: None }
    }

    /// Whether a spinner can be shown at all.
    pub fn spins(&self) -> bool {
        self.moves
    }

    /// The answer, to standard output.
    pub fn text(&mut self, text: &str) -> io::Result<()> {
        self.above(|screen| {
            screen.hide();
            if let Some(last) = text.chars().last() {
                screen.line_open = last != '\n';
            }
            print(text)
        })
    }

    /// Everything about the answer, to standard error.
    pub fn note(&mut self, text: &str) {
        self.above(|screen| {
            screen.hide();
            eprint(text);
            screen.line_open = false;
        });
    }

    /// A question whose answer is typed behind it; what was typed before it appeared does not count. It stays the last thing
    /// on the screen until it is [answered](Self::answered). Its lines must fit the terminal.
    pub fn ask(&mut self, text: &str) {
        let _ = rustix::termios::tcflush(io::stdin(), rustix::termios::QueueSelector::IFlush);
        self.answered();
        self.note(text);
        self.line_open = true;
        self.question = Some(text.to_owned());
    }

    /// The question is no longer open: a line was typed, or nobody wants to know any more.
    pub fn answered(&mut self) {
        if self.question.take().is_some() {
            self.line_open = false;
        }
    }

    /// Writes something above the question, if one is open, and draws that again.
    fn above<T>(&mut self, write: impl FnOnce(&mut Self) -> T) -> T {
        let Some(question) = self.question.take() else { return write(self) };
        if self.moves {
            eprint(&erase(&question.split('\n').map(visible).collect::<Vec<_>>()));
        } else {
            eprint("\n");
        }
        self.line_open = false;
        let written = write(self);
        if self.line_open {
            eprint("\n");
        }
        eprint(&question);
        self.line_open = true;
        self.question = Some(question);
        written
    }

    /// How many lines can stand above the spinner.
    pub fn room(&self) -> usize {
        height().min(MAX_LINES)
    }

    /// The next picture: these lines, and the spinner below them; none while a line is open, which it would overwrite.
    pub fn tick(&mut self, lines: &[String], label: &str, style: Style) {
        if !self.moves || self.line_open {
            return;
        }
        self.frame = (self.frame + 1) % FRAMES.len();
        // A line that is wider than it seems (some characters take two columns) must not wrap: it would stay behind.
        let mut picture = self.take_away() + "\x1b[?7l";
        for line in lines {
            picture += line;
            picture.push('\n');
        }
        let label = one_line(label, style.width.saturating_sub(3));
        picture += &format!("{} {}\x1b[?7h", FRAMES[self.frame], style.dim(&label));
        eprint(&picture);
        let columns = lines.iter().map(|line| visible(line)).chain([label.chars().count() + 2]);
        self.shown = Some(columns.map(|columns| columns.min(style.width)).collect());
    }

    /// Takes the picture away.
    pub fn hide(&mut self) {
        let erase = self.take_away();
        if !erase.is_empty() {
            eprint(&erase);
        }
    }

    fn take_away(&mut self) -> String {
        self.shown.take().map(|lines| erase(&lines)).unwrap_or_default()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.hide();
    }
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
    fn lines_take_the_rows_that_the_terminal_breaks_them_into() {
        for (lines, width, want) in
            [(&[10, 0, 80][..], 80, 3), (&[81, 80], 80, 3), (&[100, 100], 40, 6), (&[5], 0, 5), (&[0], 10, 1)]
        {
            assert_eq!(rows(lines, width), want, "{lines:?} at {width}");
        }
        assert_eq!(visible("\x1b[1mab\x1b[0m 日"), 5);
    }

    #[test]
    fn tables_align() {
        let rows = vec![vec!["a".to_string(), "b".into()], vec!["long".into(), "c".into()]];
        assert_eq!(table(&rows), "a     b\nlong  c\n");
    }
}
