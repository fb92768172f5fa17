//! Local servers: one message per line on the program's standard input and output.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;

use exec::{End, Exec, Pipes, Process, Spec};
use indexmap::IndexMap;
use rpc::{Line, LineSplitter};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::error::Error;
use crate::peer::{MESSAGE_MAX, Peer};
use crate::truncated;

/// Messages that may wait to be written.
const QUEUE_LENGTH: usize = 64;
/// Bytes per read.
const READ_BYTES: usize = 64 << 10;
/// The server is given up after this many consecutive bytes without a message.
const NOISE_MAX: usize = 256 << 20;
/// How many lines of standard error are kept, and of what length, to explain the server's end.
const STDERR_LINES: usize = 5;
const STDERR_LINE_MAX: usize = 300;
/// How long a server that closed its output may take to exit, so that its exit code is known.
const EXIT_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(1);

/// The program of a server.
#[derive(Debug, Clone)]
pub(crate) struct ProgramSpec<'a> {
    pub command: &'a [String],
    pub cwd: &'a Path,
    pub environment: &'a IndexMap<String, String>,
}

/// The sending end.
pub(crate) struct StdioTransport {
    queue: mpsc::Sender<Vec<u8>>,
}

impl StdioTransport {
    /// Starts the program. Cancelling `end` ends it; `tasks` tracks its task.
    pub(crate) async fn start(
        exec: &Exec,
        program: ProgramSpec<'_>,
        peer: &Arc<Peer>,
        end: &CancellationToken,
        tasks: &TaskTracker,
    ) -> Result<Self, Error> {
        let [name, args @ ..] = program.command else {
            return Err(Error::Config("A local MCP server needs a `command`".to_owned()));
        };
        let env = program.environment.iter().map(|(name, value)| (name.into(), value.into())).collect();
        let spec = Spec { env, ..Spec::new(name, args, program.cwd) };
        let (pipes, process) = exec.pipes(spec).await.map_err(|error| Error::Closed(error.to_string()))?;
        let (queue, messages) = mpsc::channel(QUEUE_LENGTH);
        let (peer, end, replies) = (peer.clone(), end.clone(), queue.downgrade());
        tasks.spawn(async move { run_program(process, pipes, messages, replies, &peer, &end).await });
        Ok(Self { queue })
    }

    pub(crate) async fn send(&self, mut message: Vec<u8>) -> Result<(), Error> {
        message.push(b'\n');
        self.queue.send(message).await.map_err(|_| Error::Closed("The server has ended".to_owned()))
    }

    /// Sends a message that may be lost.
    pub(crate) fn try_send(&self, mut message: Vec<u8>) {
        message.push(b'\n');
        let _ = self.queue.try_send(message);
    }
}

/// Runs the program for its whole life.
async fn run_program(
    mut process: Process,
    pipes: Pipes,
    messages: mpsc::Receiver<Vec<u8>>,
    replies: mpsc::WeakSender<Vec<u8>>,
    peer: &Peer,
    end: &CancellationToken,
) {
    let Pipes { stdin, stdout, mut stderr } = pipes;
    let mut stderr_tail = StderrTail { lines: LineSplitter::new(MESSAGE_MAX), last: VecDeque::new() };
    let closed = tokio::select! {
        closed = read(stdout, peer, &replies) => closed,
        closed = write(stdin, messages) => closed,
        never = stderr_tail.collect_forever(&mut stderr) => match never {},
        () = end.cancelled() => CloseReason::Because("The server was disconnected".to_owned()),
    };
    let why = match closed {
        CloseReason::Because(why) => why,
        CloseReason::Output => {
            let ended = tokio::time::timeout(EXIT_TIMEOUT, process.ended()).await.ok().and_then(Result::ok);
            let _ = tokio::time::timeout(EXIT_TIMEOUT, stderr_tail.collect(&mut stderr)).await;
            stderr_tail.explain(describe_exit(ended))
        }
    };
    peer.close(Error::Closed(why));
    process.terminate();
    if let Err(error) = process.ended().await {
        tracing::warn!(%error, "an MCP server did not end cleanly");
    }
}

/// Why the connection to a program ended.
enum CloseReason {
    /// It closed its output, usually because it exited.
    Output,
    /// Another reason.
    Because(String),
}

fn describe_exit(end: Option<End>) -> String {
    match end {
        Some(End::Exited(code)) => format!("The server has ended with exit code {code}"),
        Some(End::Signalled(signal)) => format!("The server was ended by signal {signal}"),
        _ => "The server closed the connection".to_owned(),
    }
}

/// Reads messages until the server closes its output or is given up.
async fn read(mut stdout: Receiver, peer: &Peer, replies: &mpsc::WeakSender<Vec<u8>>) -> CloseReason {
    let mut lines = LineSplitter::new(MESSAGE_MAX);
    let mut buffer = vec![0; READ_BYTES];
    let mut noise = 0;
    loop {
        let count = match stdout.read(&mut buffer).await {
            Ok(0) => return CloseReason::Output,
            Ok(count) => count,
            Err(error) => return CloseReason::Because(format!("The server's output cannot be read: {error}")),
        };
        noise += count;
        lines.push(&buffer[..count], |line| match line {
            Line::TooLong => {
                tracing::warn!("an MCP server sent a line of more than {MESSAGE_MAX} bytes; it is dropped");
                peer.fail_all(&Error::TooLarge);
            }
            Line::Text(text) if text.trim_ascii().is_empty() => {}
            Line::Text(text) => match peer.receive(&text) {
                Ok(reply) => {
                    noise = 0;
                    if let (Some(mut reply), Some(queue)) = (reply, replies.upgrade()) {
                        reply.push(b'\n');
                        // A server that asks faster than it reads gets no reply.
                        let _ = queue.try_send(reply);
                    }
                }
                Err(()) => {
                    let text = truncated(&String::from_utf8_lossy(&text), STDERR_LINE_MAX);
                    tracing::debug!(text, "an MCP server printed something that is not a message");
                }
            },
        });
        if noise > NOISE_MAX {
            return CloseReason::Because(format!("The server printed {} MB without a message", NOISE_MAX >> 20));
        }
    }
}

async fn write(mut stdin: Sender, mut messages: mpsc::Receiver<Vec<u8>>) -> CloseReason {
    while let Some(message) = messages.recv().await {
        if let Err(error) = stdin.write_all(&message).await {
            // Usually it is about to exit, and its exit code says more.
            tokio::time::sleep(EXIT_TIMEOUT).await;
            return CloseReason::Because(format!("The server does not read any more: {error}"));
        }
    }
    // The handle is gone; its owner also ends the program.
    std::future::pending().await
}

/// The last lines of the server's standard error.
struct StderrTail {
    lines: LineSplitter,
    last: VecDeque<String>,
}

impl StderrTail {
    /// Never returns: a server may close standard error and live on.
    async fn collect_forever(&mut self, stderr: &mut Receiver) -> Infallible {
        self.collect(stderr).await;
        std::future::pending().await
    }

    async fn collect(&mut self, stderr: &mut Receiver) {
        let mut buffer = vec![0; READ_BYTES];
        while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
            let last = &mut self.last;
            self.lines.push(&buffer[..count], |line| {
                let Line::Text(text) = line else { return };
                let text = truncated(&String::from_utf8_lossy(&text), STDERR_LINE_MAX);
                if text.is_empty() {
                    return;
                }
                if last.len() == STDERR_LINES {
                    last.pop_front();
                }
                last.push_back(text);
            });
        }
    }

    fn explain(&self, why: String) -> String {
        let last: Vec<&str> = self.last.iter().map(String::as_str).collect();
        if last.is_empty() { why } else { format!("{why}. It said: {}", last.join("\n")) }
    }
}
