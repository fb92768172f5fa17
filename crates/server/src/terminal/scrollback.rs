//! The recent output of a terminal. Positions count UTF-16 units since the terminal was opened, as OpenCode's clients
//! count them by the length of a JavaScript string.

use std::collections::VecDeque;

/// How much is kept, in bytes; older output is discarded.
pub const MAX_BYTES: usize = 1 << 20;

/// The most that one read returns, in bytes.
pub const MAX_READ_BYTES: usize = 64 << 10;

/// Pieces are filled up to this size, in bytes.
const PIECE_BYTES: usize = 4 << 10;

/// Text with its position.
struct Piece {
    at: u64,
    text: String,
}

/// The recent output of a terminal.
#[derive(Default)]
pub struct Scrollback {
    pieces: VecDeque<Piece>,
    bytes: usize,
    end: u64,
    /// The first bytes of a character that is not complete yet.
    partial: Vec<u8>,
}

/// The result of a read.
#[derive(Debug, PartialEq, Eq)]
pub enum ScrollbackRead {
    /// Text, and the position after it.
    Text(String, u64),
    /// No output there yet.
    Empty,
    /// The output there was discarded.
    Discarded,
}

impl Scrollback {
    /// The position after all output.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// The first position that is kept.
    pub fn start(&self) -> u64 {
        self.pieces.front().map_or(self.end, |piece| piece.at)
    }

    /// Adds output. Invalid UTF-8 is replaced.
    pub fn push(&mut self, bytes: &[u8]) {
        let mut all = std::mem::take(&mut self.partial);
        all.extend_from_slice(bytes);
        let whole = all.len() - incomplete_tail(&all);
        self.partial = all.split_off(whole);
        let text = String::from_utf8_lossy(&all);
        if text.is_empty() {
            return;
        }
        match self.pieces.back_mut() {
            Some(last) if last.text.len() < PIECE_BYTES => last.text.push_str(&text),
            _ => self.pieces.push_back(Piece { at: self.end, text: text.as_ref().to_owned() }),
        }
        self.end += utf16_len(&text);
        self.bytes += text.len();
        while self.bytes > MAX_BYTES
            && let Some(oldest) = self.pieces.pop_front()
        {
            self.bytes -= oldest.text.len();
        }
    }

    /// The output from `position` on, up to `limit`.
    pub fn read_from(&self, position: u64, limit: u64) -> ScrollbackRead {
        if position >= self.end.min(limit) {
            return ScrollbackRead::Empty;
        }
        if position < self.start() {
            return ScrollbackRead::Discarded;
        }
        let first = self.pieces.partition_point(|piece| piece.at <= position).saturating_sub(1);
        let mut text = String::new();
        let mut at = position;
        for piece in self.pieces.range(first..) {
            let rest = skip_utf16(&piece.text, at.saturating_sub(piece.at));
            let wanted = &rest[..rest.len() - skip_utf16(rest, limit - at).len()];
            if !text.is_empty() && text.len() + wanted.len() > MAX_READ_BYTES {
                break;
            }
            text.push_str(wanted);
            at += utf16_len(wanted);
            if at >= limit {
                break;
            }
        }
        ScrollbackRead::Text(text, at)
    }
}

/// The length of a JavaScript string.
fn utf16_len(text: &str) -> u64 {
    if text.is_ascii() { text.len() as u64 } else { text.encode_utf16().count() as u64 }
}

/// The text after its first `count` units. A position within a character counts as the one after it.
fn skip_utf16(text: &str, count: u64) -> &str {
    let mut seen = 0;
    let start = text.char_indices().find(|(_, c)| {
        let is_after = seen >= count;
        seen += c.len_utf16() as u64;
        is_after
    });
    start.map_or("", |(index, _)| &text[index..])
}

/// How many bytes at the end may be the start of a character.
fn incomplete_tail(bytes: &[u8]) -> usize {
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

    fn read_from(scrollback: &Scrollback, position: u64) -> ScrollbackRead {
        scrollback.read_from(position, u64::MAX)
    }

    fn text(text: &str, at: u64) -> ScrollbackRead {
        ScrollbackRead::Text(text.into(), at)
    }

    #[test]
    fn positions_are_counted_in_utf16_units() {
        let mut scrollback = Scrollback::default();
        scrollback.push("aé😀b".as_bytes());
        assert_eq!(scrollback.end(), 5);
        assert_eq!(read_from(&scrollback, 0), text("aé😀b", 5));
        assert_eq!(read_from(&scrollback, 2), text("😀b", 5));
        assert_eq!(read_from(&scrollback, 4), text("b", 5));
        assert_eq!(scrollback.read_from(1, 4), text("é😀", 4));
        assert_eq!(read_from(&scrollback, 5), ScrollbackRead::Empty);
        assert_eq!(read_from(&scrollback, 99), ScrollbackRead::Empty);
    }

    #[test]
    fn split_characters_are_joined_and_invalid_bytes_replaced() {
        let mut scrollback = Scrollback::default();
        for byte in "é😀".bytes() {
            scrollback.push(&[byte]);
        }
        assert_eq!(read_from(&scrollback, 0), text("é😀", 3));
        scrollback.push(b"\xffx\xc3");
        scrollback.push(b"(\x80");
        assert_eq!(read_from(&scrollback, 3), text("\u{fffd}x\u{fffd}(\u{fffd}", 8));
    }

    #[test]
    fn old_output_is_discarded_and_positions_stay() {
        let mut scrollback = Scrollback::default();
        let line = "0123456789abcde\n";
        for _ in 0..2 * MAX_BYTES / line.len() {
            scrollback.push(line.as_bytes());
        }
        assert_eq!(scrollback.end(), 2 * MAX_BYTES as u64);
        assert!(
            scrollback.end() - scrollback.start() <= MAX_BYTES as u64
                && scrollback.end() - scrollback.start() > (MAX_BYTES - 2 * PIECE_BYTES) as u64
        );
        assert_eq!(read_from(&scrollback, scrollback.start() - 1), ScrollbackRead::Discarded);
        let mut at = scrollback.start();
        let mut all = 0;
        while let ScrollbackRead::Text(text, next) = read_from(&scrollback, at) {
            assert!(text.len() <= MAX_READ_BYTES && text.starts_with(line));
            all += text.len();
            at = next;
        }
        assert_eq!((at, all as u64), (scrollback.end(), scrollback.end() - scrollback.start()));
    }
}
