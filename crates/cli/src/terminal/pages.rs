//! Text that a person decides about, page by page: nothing of it is cut, and nothing of it is invisible.

use std::borrow::Cow;

use super::Style;

/// What a tab becomes.
const TAB: &str = "    ";
/// Text is never wrapped to fewer columns.
const MIN_WIDTH: usize = 10;
/// The lines below a page, which say what can be typed.
const KEY_LINES: usize = 2;
/// The smallest page, in lines.
const MIN_PAGE: usize = 3;

/// Writes characters that a terminal would hide, obey or reorder as `\u{202e}`. Line breaks stay, tabs become blanks.
pub fn escape_hidden(text: &str) -> Cow<'_, str> {
    if !text.chars().any(|c| c == '\t' || is_hidden(c)) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\t' => out.push_str(TAB),
            c if is_hidden(c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out.into()
}

/// Whether a character is invisible, moves the cursor, reorders others, or looks like a blank.
fn is_hidden(c: char) -> bool {
    let format = matches!(c, '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{890}'
        | '\u{891}' | '\u{8e2}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{fff0}'..='\u{ffff}'
        | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1345f}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{10ffff}' | '\u{e000}'..='\u{f8ff}');
    let blank = matches!(
        c,
        '\u{a0}' | '\u{115f}' | '\u{1160}' | '\u{1680}' | '\u{2000}'
            ..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{2800}' | '\u{3000}' | '\u{3164}' | '\u{ffa0}'
    );
    (c.is_control() && c != '\n') || format || blank
}

/// Breaks a text into lines of at most `width` columns, at any character. Nothing is left out.
pub fn hard_wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(MIN_WIDTH);
    let mut lines = Vec::new();
    for whole in escape_hidden(text).split('\n') {
        let (mut line, mut used) = (String::new(), 0);
        for c in whole.chars() {
            let columns = max_columns(c);
            if used + columns > width {
                lines.push(std::mem::take(&mut line));
                used = 0;
            }
            line.push(c);
            used += columns;
        }
        lines.push(line);
    }
    lines
}

/// The most columns that a character takes: beyond the first alphabets it may be two.
fn max_columns(c: char) -> usize {
    if c < '\u{1100}' { 1 } else { 2 }
}

/// The whole text, wrapped, with every line indented.
pub fn indented(indent: &str, text: &str, width: usize) -> Vec<String> {
    let rows = hard_wrap(text, width.saturating_sub(indent.len() + 1));
    rows.into_iter().map(|row| format!("{indent}{row}")).collect()
}

/// A question that may be too long for the terminal, shown page by page.
pub struct PagedQuestion {
    /// Lines that fit the terminal.
    pub lines: Vec<String>,
    /// What can be typed on the last page.
    pub keys: String,
    /// The height of the terminal, in lines.
    pub height: usize,
    /// The current page.
    pub page: usize,
}

impl PagedQuestion {
    fn page_lines(&self) -> usize {
        self.height.saturating_sub(KEY_LINES).max(MIN_PAGE)
    }

    /// Whether this is the last page.
    pub fn is_last(&self) -> bool {
        (self.page + 1) * self.page_lines() >= self.lines.len()
    }

    /// Turns the page, if there are more and the typed line asks for it.
    pub fn turn_page(&mut self, line: &str) -> bool {
        if self.is_last() {
            return false;
        }
        match line.trim() {
            "" => self.page += 1,
            "e" | "E" => self.page = self.lines.len() / self.page_lines(),
            _ => return false,
        }
        true
    }

    /// The page, and what can be typed below it.
    pub fn text(&self, style: Style) -> String {
        let (page_lines, total) = (self.page_lines(), self.lines.len());
        let (lines, keys) = if self.is_last() {
            // A full page, so that the question stands below what was just read.
            (&self.lines[total.saturating_sub(page_lines)..], self.keys.clone())
        } else {
            let end = (self.page + 1) * page_lines;
            (&self.lines[end - page_lines..end], format!("{end} of {total} lines: [Enter] more  [e] the end  [n] no >"))
        };
        let keys = indented("  ", &keys, style.width);
        let keys = keys.iter().map(|row| style.cyan(row)).collect::<Vec<_>>().join("\n");
        lines.iter().map(|line| format!("{line}\n")).collect::<String>() + &keys + " "
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn plain_text_stays() {
        for text in ["", "git status", "é ü ß 漢字 🎉 → ●", "a\nb"] {
            assert!(matches!(escape_hidden(text), Cow::Borrowed(same) if same == text), "{text}");
        }
    }

    #[test]
    fn what_hides_or_reorders_is_written_out() {
        for (text, shown) in [
            ("a\u{202e}b", "a\\u{202e}b"),
            ("rm\u{200b} x", "rm\\u{200b} x"),
            ("ls\r rm", "ls\\u{d} rm"),
            ("\u{1b}[2Kls", "\\u{1b}[2Kls"),
            ("a\u{a0}b\u{3000}c", "a\\u{a0}b\\u{3000}c"),
            ("a\u{e0061}b\u{2066}", "a\\u{e0061}b\\u{2066}"),
            ("x\u{7f}\u{9b}1m\u{8}", "x\\u{7f}\\u{9b}1m\\u{8}"),
            ("\u{3164}=1 ls\u{fe0f}", "\\u{3164}=1 ls\\u{fe0f}"),
            ("a\tb", "a    b"),
        ] {
            assert_eq!(escape_hidden(text), shown);
        }
    }

    #[test]
    fn long_lines_continue_in_the_next() {
        assert_eq!(hard_wrap("abcdefghijklm\nx", 10), ["abcdefghij", "klm", "x"]);
        assert_eq!(hard_wrap("漢字漢字漢字", 10), ["漢字漢字漢", "字"]);
        assert_eq!(hard_wrap("", 10), [""]);
    }

    #[test]
    fn every_line_is_on_a_page() {
        for total in 0..40 {
            let lines: Vec<String> = (0..total).map(|line| format!("<{line}>")).collect();
            let mut pages = PagedQuestion { lines: lines.clone(), keys: "yes or no >".into(), height: 9, page: 0 };
            let mut seen = pages.text(Style::plain());
            while pages.turn_page("\n") {
                assert!(!seen.contains("yes or no"), "{total}: it is asked before the end");
                seen += &pages.text(Style::plain());
            }
            assert!(pages.is_last() && seen.ends_with("  yes or no > "), "{seen}");
            assert!(lines.iter().all(|line| seen.contains(line.as_str())), "{seen}");
            let mut short = PagedQuestion { lines, keys: String::new(), height: 9, page: 0 };
            assert_eq!(short.turn_page("e"), total > 7);
            assert!(short.is_last() && !short.turn_page("") && !short.turn_page("e"));
        }
    }

    proptest! {
        #[test]
        fn nothing_is_lost(text in "[^\t]*", width in 0usize..60) {
            let lines = hard_wrap(&text, width);
            prop_assert!(lines.iter().all(|line| line.chars().count() <= width.max(MIN_WIDTH)));
            prop_assert_eq!(lines.concat(), escape_hidden(&text).replace('\n', ""));
        }

        #[test]
        fn nothing_hidden_is_left(text in any::<String>()) {
            prop_assert!(!escape_hidden(&text).chars().any(|c| c != '\n' && is_hidden(c)));
        }
    }
}
