//! Signals that tell this process to end. Ctrl-C cancels what it does; the others leave it to be resumed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::exit::Exit;

/// A signal that tells this process to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Ctrl-C: SIGINT.
    Interrupt = 1,
    /// The terminal is gone: SIGHUP.
    Hangup,
    /// Somebody wants it to end: SIGTERM.
    Terminate,
}

impl Signal {
    /// What the system calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "SIGINT",
            Self::Hangup => "SIGHUP",
            Self::Terminate => "SIGTERM",
        }
    }

    /// The exit code of a command that it ended.
    pub fn exit(self) -> Exit {
        match self {
            Self::Interrupt => Exit::Cancelled,
            Self::Hangup => Exit::Hangup,
            Self::Terminate => Exit::Terminated,
        }
    }
}

/// That this process shall end.
#[derive(Debug, Clone, Default)]
pub struct Interrupt {
    /// Cancelled by the first signal.
    pub token: CancellationToken,
    first: Arc<AtomicU8>,
}

impl Interrupt {
    /// Listens from now on; a second signal ends the process at once. Nothing is lost by that: the journal has what was
    /// done, and the supervisors kill what still runs.
    pub fn listen() -> anyhow::Result<Self> {
        let catch = |kind| signal(kind).context("cannot listen for signals");
        let mut interrupt = catch(SignalKind::interrupt())?;
        let mut terminate = catch(SignalKind::terminate())?;
        // Whoever started us with `nohup` wants us to go on.
        let mut hangup = if exec::ignores_hangup() { None } else { Some(catch(SignalKind::hangup())?) };
        let this = Self::default();
        let first = this.clone();
        tokio::spawn(async move {
            loop {
                let hung_up = async {
                    match &mut hangup {
                        Some(hangup) => hangup.recv().await,
                        None => std::future::pending().await,
                    }
                };
                let signal = tokio::select! {
                    _ = interrupt.recv() => Signal::Interrupt,
                    _ = terminate.recv() => Signal::Terminate,
                    _ = hung_up => Signal::Hangup,
                };
                if first.token.is_cancelled() {
                    crate::term::eprint("\n");
                    std::process::exit(signal.exit() as i32);
                }
                first.first.store(signal as u8, Ordering::Release);
                first.token.cancel();
            }
        });
        Ok(this)
    }

    /// The first signal, if one came.
    pub fn signal(&self) -> Option<Signal> {
        let came = self.first.load(Ordering::Acquire);
        [Signal::Interrupt, Signal::Hangup, Signal::Terminate].into_iter().find(|signal| *signal as u8 == came)
    }
}
