//! Tells connections of HTTP/2 from those of HTTP/1 by how they begin.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};

/// What clients that know of HTTP/2 beforehand send first.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A connection whose first bytes were read already.
pub struct Rewound<S> {
    read: Bytes,
    stream: S,
}

/// Reads until it is clear whether a connection begins as HTTP/2. The connection that it returns has all bytes.
pub async fn is_http2<S: AsyncRead + Unpin>(mut stream: S) -> io::Result<(bool, Rewound<S>)> {
    let mut read = Vec::with_capacity(PREFACE.len());
    while read.len() < PREFACE.len() && PREFACE.starts_with(&read) {
        let mut rest = (&mut stream).take((PREFACE.len() - read.len()) as u64);
        if rest.read_buf(&mut read).await? == 0 {
            break;
        }
    }
    Ok((read == PREFACE, Rewound { read: read.into(), stream }))
}

impl<S: AsyncRead + Unpin> AsyncRead for Rewound<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.read.is_empty() {
            return Pin::new(&mut self.stream).poll_read(context, to);
        }
        let count = self.read.len().min(to.remaining());
        to.put_slice(&self.read[..count]);
        self.read.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Rewound<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[tokio::test]
    async fn the_preface_tells_and_nothing_is_lost() {
        let http2 = [PREFACE, b"rest"].concat();
        for (sent, want) in [
            (http2.as_slice(), true),
            (b"GET / HTTP/1.1\r\n\r\n", false),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r", false),
            (b"PROPFIND / HTTP/1.1\r\n\r\n", false),
            (b"", false),
        ] {
            let (mut client, server) = tokio::io::duplex(7);
            let bytes = sent.to_vec();
            let writer = tokio::spawn(async move { client.write_all(&bytes).await });
            let (found, mut stream) = is_http2(server).await.unwrap();
            let mut read = Vec::new();
            stream.read_to_end(&mut read).await.unwrap();
            writer.await.unwrap().unwrap();
            assert_eq!((found, read.as_slice()), (want, sent));
        }
    }
}
