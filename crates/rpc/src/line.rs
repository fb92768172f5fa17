//! Bounded splitting of a stream into lines.

/// A line of a byte stream.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// A line, without its line end.
    Text(Vec<u8>),
    /// A line that was too long and was dropped.
    TooLong,
}

/// Splits a stream into lines, and drops those that are too long without buffering them.
#[derive(Debug)]
pub struct LineSplitter {
    max: usize,
    line: Vec<u8>,
    is_too_long: bool,
}

impl LineSplitter {
    /// Splits into lines of up to `max` bytes.
    pub fn new(max: usize) -> Self {
        Self { max, line: Vec::new(), is_too_long: false }
    }

    /// Takes bytes up to the end of a line. Returns how many it took, and the line if that is complete.
    pub fn take(&mut self, bytes: &[u8]) -> (usize, Option<Line>) {
        match bytes.iter().position(|byte| *byte == b'\n') {
            Some(end) => {
                self.extend(&bytes[..end]);
                (end + 1, Some(self.complete()))
            }
            None => {
                self.extend(bytes);
                (bytes.len(), None)
            }
        }
    }

    /// Adds bytes and hands over the completed lines.
    pub fn push(&mut self, mut bytes: &[u8], mut sink: impl FnMut(Line)) {
        while !bytes.is_empty() {
            let (used, line) = self.take(bytes);
            bytes = &bytes[used..];
            if let Some(line) = line {
                sink(line);
            }
        }
    }

    /// Ends the stream. A last line without a line end still counts.
    pub fn finish(&mut self) -> Option<Line> {
        (self.is_too_long || !self.line.is_empty()).then(|| self.complete())
    }

    fn complete(&mut self) -> Line {
        let line = std::mem::take(&mut self.line);
        if std::mem::take(&mut self.is_too_long) { Line::TooLong } else { Line::Text(line) }
    }

    fn extend(&mut self, bytes: &[u8]) {
        if self.is_too_long {
            return;
        }
        if self.line.len() + bytes.len() > self.max {
            self.is_too_long = true;
            self.line = Vec::new();
        } else {
            self.line.extend_from_slice(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_complete_and_long_ones_are_dropped() {
        const MAX: usize = 1 << 20;
        let mut lines = LineSplitter::new(MAX);
        let mut seen = Vec::new();
        lines.push(b"on", |line| seen.push(line));
        lines.push(b"e\n\ntwo\nth", |line| seen.push(line));
        let long = vec![b'x'; MAX / 2 + 1];
        lines.push(&long, |line| seen.push(line));
        lines.push(&long, |line| seen.push(line));
        assert!(lines.line.capacity() == 0 && lines.is_too_long);
        lines.push(b"xx\nfour\nfive", |line| seen.push(line));
        let text = |text: &str| Line::Text(text.as_bytes().to_vec());
        assert_eq!(seen, [text("one"), text(""), text("two"), Line::TooLong, text("four")]);
        assert_eq!((lines.finish(), lines.finish()), (Some(text("five")), None));
    }
}
