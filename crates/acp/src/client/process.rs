//! The agent's process. A supervisor ends it with us, however we end.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use exec::{ExecError, Process, Spec};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;
use tokio::task::JoinHandle;

use super::{Client, ClientError, ClientOptions, Events};
use crate::lock;
use crate::rpc::{ByteSink, ByteSource};

/// Bytes kept from the end of the agent's standard error.
const MAX_STDERR: usize = 4 << 10;
/// How long an agent may take to exit after we disconnect before it is killed.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long reading the rest of standard error may take after the agent has ended.
const STDERR_TIMEOUT: Duration = Duration::from_millis(500);

/// A running agent. Dropping it kills it, with everything that it started.
pub struct AgentProcess {
    process: Process,
    stderr_tail: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Client {
    /// Starts an agent and connects to it.
    pub async fn start(spec: Spec, options: ClientOptions) -> Result<(Self, Events, AgentProcess), ClientError> {
        let (pipes, process) = options.exec.pipes(spec).await?;
        let stderr_tail = Arc::default();
        let reader = tokio::spawn(drain_stderr(pipes.stderr, Arc::clone(&stderr_tail)));
        let (client, events) = Self::connect(ByteSource::new(pipes.stdout), ByteSink::new(pipes.stdin), options);
        Ok((client, events, AgentProcess { process, stderr_tail, reader }))
    }
}

impl AgentProcess {
    /// Waits briefly for an agent whose client was closed to exit, then ends it.
    pub async fn end(mut self) -> Result<(), ExecError> {
        if let Ok(ended) = tokio::time::timeout(EXIT_TIMEOUT, self.process.ended()).await {
            return ended.map(drop);
        }
        self.kill().await
    }

    /// Ends the agent immediately.
    pub async fn kill(mut self) -> Result<(), ExecError> {
        self.process.terminate();
        // Bounded: the supervisor kills it eventually.
        self.process.ended().await.map(drop)
    }

    /// The end of its standard error, which often says why it disconnected.
    pub async fn stderr_tail(&mut self) -> String {
        let _ = tokio::time::timeout(STDERR_TIMEOUT, &mut self.reader).await;
        String::from_utf8_lossy(&lock(&self.stderr_tail)).trim().to_owned()
    }
}

/// Drains standard error, so that the agent never blocks on it.
async fn drain_stderr(mut stderr: Receiver, tail: Arc<Mutex<Vec<u8>>>) {
    let mut buffer = vec![0; MAX_STDERR];
    while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
        tracing::debug!(text = %String::from_utf8_lossy(&buffer[..count]), "the agent writes to standard error");
        let mut tail = lock(&tail);
        tail.extend_from_slice(&buffer[..count]);
        let over = tail.len().saturating_sub(MAX_STDERR);
        tail.drain(..over);
    }
}
