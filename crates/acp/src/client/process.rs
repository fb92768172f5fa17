//! The agent's program. It ends with us, whatever ends us: a supervisor is between.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use exec::{ExecError, Process, Spec};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;
use tokio::task::JoinHandle;

use super::{Client, ClientError, Events, Options};
use crate::lock;
use crate::rpc::{ByteSink, ByteSource};

/// What is kept of the agent's complaints, in bytes: their end.
const MAX_COMPLAINTS: usize = 4 << 10;
/// How long an agent may take to end after we hung up, before it is ended.
const LEAVE: Duration = Duration::from_secs(2);
/// How long the last complaints of an agent that ended may take to be read.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// An agent that runs. Dropping it kills it, with everything that it started.
pub struct Program {
    process: Process,
    complaints: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Client {
    /// Starts an agent and connects to it.
    pub async fn start(spec: Spec, options: Options) -> Result<(Self, Events, Program), ClientError> {
        let (pipes, process) = options.exec.pipes(spec).await?;
        let complaints = Arc::default();
        let reader = tokio::spawn(listen(pipes.stderr, Arc::clone(&complaints)));
        let (client, events) = Self::connect(ByteSource::new(pipes.stdout), ByteSink::new(pipes.stdin), options);
        Ok((client, events, Program { process, complaints, reader }))
    }
}

impl Program {
    /// Waits a moment for the end of an agent whose client was closed, then ends it.
    pub async fn end(mut self) -> Result<(), ExecError> {
        if let Ok(ended) = tokio::time::timeout(LEAVE, self.process.ended()).await {
            return ended.map(drop);
        }
        self.kill().await
    }

    /// Ends an agent at once.
    pub async fn kill(mut self) -> Result<(), ExecError> {
        self.process.terminate();
        // It is killed when this is over, and that is bounded.
        self.process.ended().await.map(drop)
    }

    /// The end of what it wrote to standard error: why it hung up, if it did.
    pub async fn complaints(&mut self) -> String {
        let _ = tokio::time::timeout(LAST_WORDS, &mut self.reader).await;
        String::from_utf8_lossy(&lock(&self.complaints)).trim().to_owned()
    }
}

/// Reads what the agent complains about, so that it is never stuck with it.
async fn listen(mut stderr: Receiver, kept: Arc<Mutex<Vec<u8>>>) {
    let mut buffer = vec![0; MAX_COMPLAINTS];
    while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
        tracing::debug!(text = %String::from_utf8_lossy(&buffer[..count]), "the agent writes to standard error");
        let mut kept = lock(&kept);
        kept.extend_from_slice(&buffer[..count]);
        let over = kept.len().saturating_sub(MAX_COMPLAINTS);
        kept.drain(..over);
    }
}
