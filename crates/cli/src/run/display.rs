//! What a run prints: the answer to standard output, the rest to standard error, in one of two forms.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use api::{EventBody, MessageError, SessionId, Timestamp};

use super::json;
use super::render::{Piece, Renderer, Totals};
use super::subagents::{SubagentNotice, SubagentTracker};
use crate::terminal::{self, Screen, Style, plural, tree_rows};

enum View {
    Text(Box<Renderer>),
    Json(json::EventLines),
}

/// Where a turn is shown.
pub struct Display {
    session: SessionId,
    view: View,
    screen: Screen,
    style: Style,
    /// Both output streams go to a terminal.
    on_terminal: bool,
}

impl Display {
    /// The display of a session; `json` for one event per line, `dumb` for a terminal that takes nothing but text.
    pub fn new(session: SessionId, style: Style, on_terminal: bool, json: bool, dumb: bool) -> Self {
        let view = if json {
            View::Json(json::EventLines::new(session.clone()))
        } else {
            let renderer = Renderer::new(session.clone(), style, on_terminal).with_tracked_subagents();
            View::Text(Box::new(if io::stdout().is_terminal() { renderer.with_markdown() } else { renderer }))
        };
        Self { session, view, screen: Screen::new(dumb), style, on_terminal }
    }

    /// How notes are painted.
    pub fn style(&self) -> Style {
        self.style
    }

    /// Whether the totals of the turn are shown.
    pub fn shows_totals(&self) -> bool {
        self.on_terminal && matches!(self.view, View::Text(_))
    }

    /// Whether the last lines can be drawn again.
    pub fn can_redraw(&self) -> bool {
        self.screen.can_redraw()
    }

    /// Shows an event.
    pub fn event(&mut self, event: &EventBody) -> io::Result<()> {
        match &mut self.view {
            View::Text(renderer) => {
                let pieces = renderer.event(event, api::now());
                self.show(pieces)
            }
            View::Json(lines) => lines.event(event).map_or(Ok(()), |line| self.screen.text(&line)),
        }
    }

    /// Prints a line about a subagent. Where the tree is drawn, it shows new subagents itself.
    pub fn notice(&mut self, notice: SubagentNotice) {
        let text = match notice {
            SubagentNotice::Started(_) if self.screen.can_redraw() => return,
            SubagentNotice::Started(text) | SubagentNotice::Ended(text) => text,
        };
        self.text_note(&text);
    }

    /// Prints sentences about the turn.
    pub fn note(&mut self, text: &str) {
        let text = terminal::wrap_for_stderr(text);
        match &self.view {
            View::Text(_) => self.text_note(&self.style.yellow(&text)),
            View::Json(_) => self.screen.note(&text),
        }
    }

    /// Prints text in its place between the pieces of the answer. JSON has no such place.
    fn text_note(&mut self, text: &str) {
        let View::Text(renderer) = &mut self.view else { return };
        let mut pieces = Vec::new();
        renderer.note(text, &mut pieces);
        // A closed pipe shows with the next event.
        let _ = self.show(pieces);
    }

    /// Prints what all subagents did, once their tree has left the screen.
    pub fn subagent_summary(&mut self, subagents: &SubagentTracker) {
        if self.on_terminal
            && let Some(summary) = subagents.summary()
        {
            self.text_note(&format!("{}\n", self.style.dim(&summary)));
        }
    }

    /// Sets what the footer says was used.
    pub fn set_totals(&mut self, totals: Totals) {
        if let View::Text(renderer) = &mut self.view {
            renderer.set_totals(totals);
        }
    }

    /// Ends the answer, with a footer if the turn took this long. One that never began used nothing.
    pub fn finish(&mut self, took: Option<Duration>) -> io::Result<()> {
        let View::Text(renderer) = &mut self.view else { return Ok(()) };
        let pieces = match took {
            Some(took) => renderer.finish(Some(took)),
            None => renderer.end_line(),
        };
        self.show(pieces)
    }

    /// Prints the id of the session and how to continue it.
    pub fn continue_hint(&mut self, attached: Option<&str>) {
        if !self.shows_totals() {
            return;
        }
        let attached = attached.map(|url| format!(" --attach {url}")).unwrap_or_default();
        let line = format!("{} · continue with: trefoil run{attached} -c \"what next\"", self.session);
        let line = terminal::wrap(&line, 0, self.style.width);
        self.screen.note(&format!("{}\n", self.style.dim(&line)));
    }

    /// Prints advice after everything else.
    pub fn advise(&mut self, text: &str) {
        self.screen.note(&self.style.yellow(&terminal::wrap_for_stderr(text)));
    }

    /// Shows the error of a turn that never began: there is no event for it.
    pub fn error(&mut self, error: &str) -> io::Result<()> {
        match &self.view {
            View::Json(lines) => self.screen.text(&lines.error(&MessageError::unknown(error))),
            View::Text(_) => Ok(()),
        }
    }

    /// Shows a question to the user.
    pub fn ask(&mut self, text: &str) {
        self.text_note("");
        self.screen.ask(text);
    }

    /// Ends the question.
    pub fn close_question(&mut self) {
        self.screen.close_question();
    }

    /// Prints a line about a question.
    pub fn remark(&mut self, line: &str) {
        self.screen.note(&format!("{line}\n"));
    }

    /// Removes what is drawn below the text.
    pub fn hide(&mut self) {
        self.screen.hide();
    }

    /// Adapts to the current size of the terminal. Returns whether it has changed.
    pub fn update_size(&mut self) -> bool {
        let width = terminal::width();
        if !self.screen.can_redraw() || width == self.style.width {
            return false;
        }
        self.style.width = width;
        if let View::Text(renderer) = &mut self.view {
            renderer.resize(width);
        }
        true
    }

    /// Draws the spinner and the live lines.
    pub fn redraw(&mut self, subagents: &SubagentTracker, is_stopping: bool, now: Timestamp) {
        // One line is reserved for the number of those that do not fit.
        let max = self.screen.max_lines().saturating_sub(1);
        let mut lines = Vec::new();
        let label = match &self.view {
            _ if is_stopping => "stopping".to_string(),
            View::Text(_) if subagents.is_paused() && !subagents.has_live() => {
                format!("paused; `trefoil resume {}` resumes it", self.session)
            }
            View::Text(_) if subagents.has_live() => {
                let (rows, more) = subagents.rows(now, max);
                lines = tree_rows::draw(&rows, self.style);
                if more > 0 {
                    lines.push(self.style.dim(&format!("   … and {more} more")));
                }
                format!("{} at work", plural(rows.len() + more, "subagent"))
            }
            View::Text(renderer) => {
                lines = renderer.live(now, max);
                renderer.status(now)
            }
            View::Json(_) => "working".to_string(),
        };
        self.screen.draw(&lines, &label, self.style);
    }

    fn show(&mut self, pieces: Vec<Piece>) -> io::Result<()> {
        for piece in pieces {
            match piece {
                Piece::Text(text) => self.screen.text(&text)?,
                Piece::Note(text) => self.screen.note(&text),
            }
        }
        Ok(())
    }
}
