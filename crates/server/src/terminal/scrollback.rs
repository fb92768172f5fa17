//! What a terminal showed lately. Places in it are counted as OpenCode's clients count them, by the length of a string in
//! JavaScript: in UTF-16 units since the terminal was opened.

use std::collections::VecDeque;

/// How much is kept, in bytes; what is older is forgotten.
pub const KEPT: usize = 1 << 20;

/// The most that is handed out at once, in bytes.
pub const CHUNK: usize = 64 << 10;

/// Pieces are filled up to this size, in bytes.
const PIECE: usize = 4 << 10;

/// Text with its place.
struct Piece {
    at: u64,
    text: String,
}

/// What a terminal showed lately.
#[derive(Default)]
pub struct Scrollback {
    pieces: VecDeque<Piece>,
    bytes: usize,
    end: u64,
    /// The beginning of a character whose rest is still to come.
    partial: Vec<u8>,
}

/// What there is from some place on.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// Text, and the place behind it.
    Text(String, u64),
    /// Nothing yet.
    Nothing,
    /// It was forgotten.
    Forgotten,
}

impl Scrollback {
    /// The place behind all that was shown.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// The first place that is still known.
    pub fn start(&self) -> u64 {
        self.pieces.front().map_or(self.end, |piece| piece.at)
    }

    /// Adds what was shown. Bytes that are no UTF-8 are replaced.
    pub fn push(&mut self, bytes: &[u8]) {
        let mut all = std::mem::take(&mut self.partial);
        all.extend_from_slice(bytes);
        let whole = all.len() - unfinished(&all);
        self.partial = all.split_off(whole);
        let text = String::from_utf8_lossy(&all);
        if text.is_empty() {
            return;
        }
        match self.pieces.back_mut() {
            Some(last) if last.text.len() < PIECE => last.text.push_str(&text),
            _ => self.pieces.push_back(Piece { at: self.end, text: text.as_ref().to_owned() }),
        }
        self.end += units(&text);
        self.bytes += text.len();
        while self.bytes > KEPT
            && let Some(oldest) = self.pieces.pop_front()
        {
            self.bytes -= oldest.text.len();
        }
    }

    /// What was shown at `place` and behind it, up to `limit`.
    pub fn after(&self, place: u64, limit: u64) -> Next {
        if place >= self.end.min(limit) {
            return Next::Nothing;
        }
        if place < self.start() {
            return Next::Forgotten;
        }
        let first = self.pieces.partition_point(|piece| piece.at <= place).saturating_sub(1);
        let mut text = String::new();
        let mut at = place;
        for piece in self.pieces.range(first..) {
            let known = skip(&piece.text, at.saturating_sub(piece.at));
            let wanted = &known[..known.len() - skip(known, limit - at).len()];
            if !text.is_empty() && text.len() + wanted.len() > CHUNK {
                break;
            }
            text.push_str(wanted);
            at += units(wanted);
            if at >= limit {
                break;
            }
        }
        Next::Text(text, at)
    }
}

/// How long a text is for JavaScript.
fn units(text: &str) -> u64 {
    if text.is_ascii() { text.len() as u64 } else { text.encode_utf16().count() as u64 }
}

/// A text without its first so many units. A place within a character counts as behind it.
fn skip(text: &str, count: u64) -> &str {
    let mut seen = 0;
    let start = text.char_indices().find(|(_, c)| {
        let there = seen >= count;
        seen += c.len_utf16() as u64;
        there
    });
    start.map_or("", |(index, _)| &text[index..])
}

/// How many bytes at the end begin a character that may be completed.
fn unfinished(bytes: &[u8]) -> usize {
    let tail = &bytes[bytes.len().saturating_sub(3)..];
    match tail.utf8_chunks().last() {
        Some(chunk) if std::str::from_utf8(chunk.invalid()).is_err_and(|error| error.error_len().is_none()) => {
            chunk.invalid().len()
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(log: &Scrollback, place: u64) -> Next {
        log.after(place, u64::MAX)
    }

    fn text(text: &str, at: u64) -> Next {
        Next::Text(text.into(), at)
    }

    #[test]
    fn places_are_counted_as_javascript_does() {
        let mut log = Scrollback::default();
        log.push("aé😀b".as_bytes());
        assert_eq!(log.end(), 5);
        assert_eq!(after(&log, 0), text("aé😀b", 5));
        assert_eq!(after(&log, 2), text("😀b", 5));
        assert_eq!(after(&log, 4), text("b", 5));
        assert_eq!(log.after(1, 4), text("é😀", 4));
        assert_eq!(after(&log, 5), Next::Nothing);
        assert_eq!(after(&log, 99), Next::Nothing);
    }

    #[test]
    fn characters_may_come_in_pieces_and_rubbish_is_replaced() {
        let mut log = Scrollback::default();
        for byte in "é😀".bytes() {
            log.push(&[byte]);
        }
        assert_eq!(after(&log, 0), text("é😀", 3));
        log.push(b"\xffx\xc3");
        log.push(b"(\x80");
        assert_eq!(after(&log, 3), text("\u{fffd}x\u{fffd}(\u{fffd}", 8));
    }

    #[test]
    fn old_text_is_forgotten_and_places_stay() {
        let mut log = Scrollback::default();
        let line = "0123456789abcde\n";
        for _ in 0..2 * KEPT / line.len() {
            log.push(line.as_bytes());
        }
        assert_eq!(log.end(), 2 * KEPT as u64);
        assert!(log.end() - log.start() <= KEPT as u64 && log.end() - log.start() > (KEPT - 2 * PIECE) as u64);
        assert_eq!(after(&log, log.start() - 1), Next::Forgotten);
        let mut at = log.start();
        let mut all = 0;
        while let Next::Text(text, next) = after(&log, at) {
            assert!(text.len() <= CHUNK && text.starts_with(line));
            all += text.len();
            at = next;
        }
        assert_eq!((at, all as u64), (log.end(), log.end() - log.start()));
    }
}
