//! Clients that have sent everything and wait for the response (`shutdown(SHUT_WR)`). Their connection reads like that of
//! a client that is gone and needs no response; only the kernel can tell the two apart.

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

use crate::peer;

/// How often to check whether a client that sends nothing more still waits: nothing tells us when it leaves.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The responses of a connection that are being sent.
#[derive(Default)]
pub struct PendingResponses {
    open: AtomicUsize,
    reader: AtomicWaker,
}

/// A response that is being sent until this is dropped.
pub struct PendingResponse(Arc<PendingResponses>);

impl PendingResponses {
    /// Starts a response.
    pub fn begin(self: &Arc<Self>) -> PendingResponse {
        self.open.fetch_add(1, Ordering::Relaxed);
        PendingResponse(self.clone())
    }
}

impl Drop for PendingResponse {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
        self.0.reader.wake();
    }
}

/// The body of a response; the response counts as pending while the body lives.
pub struct TrackedBody<B> {
    body: B,
    _pending: PendingResponse,
}

impl<B> TrackedBody<B> {
    /// Tracks the body of a response.
    pub fn new(body: B, pending: PendingResponse) -> Self {
        Self { body, _pending: pending }
    }
}

impl<B: Body + Unpin> Body for TrackedBody<B> {
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

/// A connection on this machine that stays open until its responses are sent, if its client waits for them.
pub struct HalfOpenStream {
    stream: TcpStream,
    peer: SocketAddr,
    own: SocketAddr,
    responses: Arc<PendingResponses>,
    next_check: Option<Pin<Box<Sleep>>>,
}

impl HalfOpenStream {
    /// A connection between two addresses of this machine.
    pub fn new(stream: TcpStream, peer: SocketAddr, own: SocketAddr, responses: Arc<PendingResponses>) -> Self {
        Self { stream, peer, own, responses, next_check: None }
    }
}

impl AsyncRead for HalfOpenStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        if buffer.filled().len() > before || buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        self.responses.reader.register(cx.waker());
        if self.responses.open.load(Ordering::Relaxed) == 0 || peer::user(self.peer, self.own).is_none() {
            return Poll::Ready(Ok(()));
        }
        let next_check = self.next_check.get_or_insert_with(|| Box::pin(tokio::time::sleep(CHECK_INTERVAL)));
        while next_check.as_mut().poll(cx).is_ready() {
            next_check.as_mut().reset(Instant::now() + CHECK_INTERVAL);
        }
        Poll::Pending
    }
}

impl AsyncWrite for HalfOpenStream {
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
