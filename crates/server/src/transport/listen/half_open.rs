//! Clients that have sent everything and wait for the answer (`shutdown(SHUT_WR)`). Their end of the connection reads like that of
//! a client which is gone, for whom nothing is to be done any more; the kernel knows which of both it is.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::task::AtomicWaker;
use http_body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

use crate::transport::peer;

/// How often is looked whether a client that sends nothing more still waits: nobody tells us when it goes.
const LOOK: Duration = Duration::from_secs(1);

/// The answers of a connection that are on their way.
#[derive(Default)]
pub struct Answers {
    open: AtomicUsize,
    reader: AtomicWaker,
}

/// One of them, until this is dropped.
pub struct Answer(Arc<Answers>);

impl Answers {
    /// Begins one.
    pub fn begin(self: &Arc<Self>) -> Answer {
        self.open.fetch_add(1, Ordering::Relaxed);
        Answer(self.clone())
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
        self.0.reader.wake();
    }
}

/// The body of an answer, which is on its way as long as it is there.
pub struct Answered<B> {
    body: B,
    _answer: Answer,
}

impl<B> Answered<B> {
    /// The body of that answer.
    pub fn new(body: B, answer: Answer) -> Self {
        Self { body, _answer: answer }
    }
}

impl<B: Body + Unpin> Body for Answered<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A connection on this machine that does not end before its answers do, if its client waits for them.
pub struct HalfOpen {
    stream: TcpStream,
    peer: SocketAddr,
    own: SocketAddr,
    answers: Arc<Answers>,
    look: Option<Pin<Box<Sleep>>>,
}

impl HalfOpen {
    /// A connection between two addresses of this machine.
    pub fn new(stream: TcpStream, peer: SocketAddr, own: SocketAddr, answers: Arc<Answers>) -> Self {
        Self { stream, peer, own, answers, look: None }
    }
}

impl AsyncRead for HalfOpen {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        if buffer.filled().len() > before || buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        self.answers.reader.register(cx.waker());
        if self.answers.open.load(Ordering::Relaxed) == 0 || peer::user(self.peer, self.own).is_none() {
            return Poll::Ready(Ok(()));
        }
        let look = self.look.get_or_insert_with(|| Box::pin(tokio::time::sleep(LOOK)));
        while look.as_mut().poll(cx).is_ready() {
            look.as_mut().reset(Instant::now() + LOOK);
        }
        Poll::Pending
    }
}

impl AsyncWrite for HalfOpen {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
