//! Signals that end this process. Ctrl-C cancels its work; the others leave the work to be resumed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::exit::Exit;

/// A signal that ends this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Ctrl-C: SIGINT.
    Interrupt = 1,
    /// The terminal was closed: SIGHUP.
    Hangup,
    /// A request to end: SIGTERM.
    Terminate,
}

impl Signal {
    /// The system's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "SIGINT",
            Self::Hangup => "SIGHUP",
            Self::Terminate => "SIGTERM",
        }
    }

    /// The exit code of a command that it ends.
    pub fn exit(self) -> Exit {
        match self {
            Self::Interrupt => Exit::Cancelled,
            Self::Hangup => Exit::Hangup,
            Self::Terminate => Exit::Terminated,
        }
    }
}

/// Tells whether a signal has come. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Interrupt {
    /// Cancelled by the first signal.
    pub token: CancellationToken,
    first: Arc<AtomicU8>,
}

impl Interrupt {
    /// Listens from now on. A second signal exits at once, which loses nothing: the journal has the work that is done, and the
    /// supervisors kill what still runs.
    pub fn listen() -> anyhow::Result<Self> {
        let catch = |kind| signal(kind).context("cannot listen for signals");
        let mut interrupt = catch(SignalKind::interrupt())?;
        let mut terminate = catch(SignalKind::terminate())?;
        // Under `nohup` the process is meant to continue.
        let mut hangup = if exec::ignores_hangup() { None } else { Some(catch(SignalKind::hangup())?) };
        let this = Self::default();
        let listener = this.clone();
        tokio::spawn(async move {
            loop {
                let next_hangup = async {
                    match &mut hangup {
                        Some(hangup) => hangup.recv().await,
                        None => std::future::pending().await,
                    }
                };
                let signal = tokio::select! {
                    _ = interrupt.recv() => Signal::Interrupt,
                    _ = terminate.recv() => Signal::Terminate,
                    _ = next_hangup => Signal::Hangup,
                };
                if listener.token.is_cancelled() {
                    crate::terminal::eprint("\n");
                    std::process::exit(signal.exit() as i32);
                }
                listener.first.store(signal as u8, Ordering::Release);
                listener.token.cancel();
            }
        });
        Ok(this)
    }

    /// The first signal that came.
    pub fn signal(&self) -> Option<Signal> {
        let first = self.first.load(Ordering::Acquire);
        [Signal::Interrupt, Signal::Hangup, Signal::Terminate].into_iter().find(|signal| *signal as u8 == first)
    }
}
