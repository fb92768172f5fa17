//! The screen of a run: both streams, the spinner, and the question that waits for an answer.

use std::io::{self, IsTerminal as _};

use super::{Style, eprint, height, one_line, print, visible_width, width};

/// The most lines above the spinner.
const MAX_LINES: usize = 16;
const FRAMES: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

/// How many rows lines take on a terminal of that width. One that is narrower than they were written for breaks them.
fn row_count<'a>(lines: impl IntoIterator<Item = &'a usize>, width: usize) -> usize {
    lines.into_iter().map(|columns| columns.div_ceil(width.max(1)).max(1)).sum()
}

/// The control sequence that erases lines of these widths, with the cursor in the last of them.
fn erase_sequence(lines: &[usize]) -> String {
    let above = row_count(lines, width()).saturating_sub(1);
    // Row by row: some terminals move what is cleared from their first row on into their history.
    "\r\x1b[K".to_owned() + &"\x1b[1A\x1b[K".repeat(above)
}

/// The streams of a run, with a spinner and live lines between them.
pub struct Screen {
    /// Whether the terminal can change what was printed.
    can_redraw: bool,
    /// The width of each live line, if some are drawn; the spinner's is the last.
    drawn: Option<Vec<usize>>,
    line_open: bool,
    frame: usize,
    /// The question that waits for its answer: it stays below everything else.
    question: Option<String>,
}

impl Screen {
    /// The process's own streams. A `dumb` terminal only takes text.
    pub fn new(dumb: bool) -> Self {
        let can_redraw = io::stderr().is_terminal() && !dumb;
        Self { can_redraw, drawn: None, line_open: false, frame: 0, question: None }
    }

    /// Whether a spinner and live lines can be drawn.
    pub fn can_redraw(&self) -> bool {
        self.can_redraw
    }

    /// Prints the answer, to standard output.
    pub fn text(&mut self, text: &str) -> io::Result<()> {
        self.above_question(|screen| {
            screen.hide();
            if let Some(last) = text.chars().last() {
                screen.line_open = last != '\n';
            }
            print(text)
        })
    }

    /// Prints something about the answer, to standard error.
    pub fn note(&mut self, text: &str) {
        self.above_question(|screen| {
            screen.hide();
            eprint(text);
            screen.line_open = false;
        });
    }

    /// Asks a question and drops what was typed before it. It stays the last thing on the screen until
    /// [`close_question`](Self::close_question). Its lines must fit the terminal.
    pub fn ask(&mut self, text: &str) {
        let _ = rustix::termios::tcflush(io::stdin(), rustix::termios::QueueSelector::IFlush);
        self.close_question();
        self.note(text);
        self.line_open = true;
        self.question = Some(text.to_owned());
    }

    /// Ends the question: a line was typed, or its answer is no longer wanted.
    pub fn close_question(&mut self) {
        if self.question.take().is_some() {
            self.line_open = false;
        }
    }

    /// Writes something above the open question, and draws the question again.
    fn above_question<T>(&mut self, write: impl FnOnce(&mut Self) -> T) -> T {
        let Some(question) = self.question.take() else { return write(self) };
        if self.can_redraw {
            eprint(&erase_sequence(&question.split('\n').map(visible_width).collect::<Vec<_>>()));
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

    /// How many live lines fit above the spinner.
    pub fn max_lines(&self) -> usize {
        height().min(MAX_LINES)
    }

    /// Draws live lines and the spinner below them. Draws nothing while a line is open, which it would overwrite.
    pub fn draw(&mut self, lines: &[String], label: &str, style: Style) {
        if !self.can_redraw || self.line_open {
            return;
        }
        self.frame = (self.frame + 1) % FRAMES.len();
        // Some characters take two columns. A line that wraps because of them would stay behind, so wrapping is off.
        let mut picture = self.take_erase_sequence() + "\x1b[?7l";
        for line in lines {
            picture += line;
            picture.push('\n');
        }
        let label = one_line(label, style.width.saturating_sub(3));
        picture += &format!("{} {}\x1b[?7h", FRAMES[self.frame], style.dim(&label));
        eprint(&picture);
        let columns = lines.iter().map(|line| visible_width(line)).chain([label.chars().count() + 2]);
        self.drawn = Some(columns.map(|columns| columns.min(style.width)).collect());
    }

    /// Erases the live lines and the spinner.
    pub fn hide(&mut self) {
        let erase = self.take_erase_sequence();
        if !erase.is_empty() {
            eprint(&erase);
        }
    }

    fn take_erase_sequence(&mut self) -> String {
        self.drawn.take().map(|lines| erase_sequence(&lines)).unwrap_or_default()
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
    fn lines_take_the_rows_that_the_terminal_breaks_them_into() {
        for (lines, width, want) in
            [(&[10, 0, 80][..], 80, 3), (&[81, 80], 80, 3), (&[100, 100], 40, 6), (&[5], 0, 5), (&[0], 10, 1)]
        {
            assert_eq!(row_count(lines, width), want, "{lines:?} at {width}");
        }
    }
}
