//! Sources and sinks of messages.

use std::future::Future;
use std::io;

use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};

use crate::line::{Line, LineSplitter};

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

impl From<Line> for Received {
    fn from(line: Line) -> Self {
        match line {
            Line::Text(line) => Self::Line(line),
            Line::TooLong => Self::TooLong,
        }
    }
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
    lines: LineSplitter,
}

impl<R: AsyncRead + Unpin + Send> ByteSource<R> {
    /// Reads from `reader`.
    pub fn new(reader: R) -> Self {
        Self { reader: BufReader::with_capacity(READ_BUFFER, reader), lines: LineSplitter::new(MAX_LINE) }
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
                return self.lines.finish().map_or(Received::End, Received::from);
            }
            let (used, line) = self.lines.take(read);
            self.reader.consume(used);
            if let Some(line) = line {
                return line.into();
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
