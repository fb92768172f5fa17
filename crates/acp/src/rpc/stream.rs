//! Sources and sinks of messages.

use std::future::Future;
use std::io;

use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};

/// The longest accepted message: room for a prompt with some images.
pub const MAX_LINE: usize = 32 << 20;
/// Bytes per read.
const READ_BUFFER: usize = 64 << 10;

/// What a source produced.
#[derive(Debug, PartialEq)]
pub enum Received {
    /// A message.
    Line(Vec<u8>),
    /// A message longer than [`MAX_LINE`], skipped.
    TooLong,
    /// The peer disconnected.
    End,
}

/// A source of messages.
pub trait Source: Send {
    /// Waits for the next message. Cancel safe.
    fn next(&mut self) -> impl Future<Output = Received> + Send;
}

/// A sink of messages.
pub trait Sink: Send {
    /// Sends messages in order; none has a line end.
    fn send(&mut self, messages: Vec<Vec<u8>>) -> impl Future<Output = io::Result<()>> + Send;
}

/// Reads one message per line.
pub struct ByteSource<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
    too_long: bool,
}

impl<R: AsyncRead + Unpin + Send> ByteSource<R> {
    /// Reads from `reader`.
    pub fn new(reader: R) -> Self {
        Self { reader: BufReader::with_capacity(READ_BUFFER, reader), line: Vec::new(), too_long: false }
    }

    fn finish(&mut self) -> Received {
        if std::mem::take(&mut self.too_long) {
            return Received::TooLong;
        }
        Received::Line(std::mem::take(&mut self.line))
    }
}

impl<R: AsyncRead + Unpin + Send> Source for ByteSource<R> {
    async fn next(&mut self) -> Received {
        loop {
            let read = match fill(&mut self.reader).await {
                Ok(read) => read,
                Err(error) => {
                    tracing::debug!(%error, "cannot read from the other side any more");
                    return Received::End;
                }
            };
            if read.is_empty() {
                // A last line without a line end still counts.
                return if self.line.is_empty() && !self.too_long { Received::End } else { self.finish() };
            }
            let end = read.iter().position(|byte| *byte == b'\n');
            let piece = &read[..end.unwrap_or(read.len())];
            if !self.too_long {
                if self.line.len() + piece.len() > MAX_LINE {
                    self.too_long = true;
                    self.line = Vec::new();
                } else {
                    self.line.extend_from_slice(piece);
                }
            }
            let used = piece.len() + usize::from(end.is_some());
            self.reader.consume(used);
            if end.is_some() {
                return self.finish();
            }
        }
    }
}

async fn fill(reader: &mut (impl AsyncBufRead + Unpin)) -> io::Result<&[u8]> {
    reader.fill_buf().await
}

/// Writes one message per line.
pub struct ByteSink<W>(W);

impl<W: AsyncWrite + Unpin + Send> ByteSink<W> {
    /// Writes to `writer`.
    pub fn new(writer: W) -> Self {
        Self(writer)
    }
}

impl<W: AsyncWrite + Unpin + Send> Sink for ByteSink<W> {
    async fn send(&mut self, messages: Vec<Vec<u8>>) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(messages.iter().map(|message| message.len() + 1).sum());
        for message in messages {
            bytes.extend_from_slice(&message);
            bytes.push(b'\n');
        }
        self.0.write_all(&bytes).await?;
        self.0.flush().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_of_all_lengths() {
        let long = vec![b'x'; MAX_LINE + 1];
        let bytes = [b"one\n\ntwo\r\n", long.as_slice(), b"\nthree"].concat();
        let mut source = ByteSource::new(bytes.as_slice());
        for want in ["one", "", "two\r"] {
            assert_eq!(source.next().await, Received::Line(want.into()));
        }
        assert_eq!(source.next().await, Received::TooLong);
        assert_eq!(source.next().await, Received::Line(b"three".to_vec()));
        assert_eq!(source.next().await, Received::End);
        assert_eq!(source.next().await, Received::End);
    }
}
