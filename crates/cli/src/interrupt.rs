//! Ctrl-C: the first one cancels, the second one quits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::exit::Exit;

/// That this process shall end.
#[derive(Debug, Clone, Default)]
pub struct Interrupt {
    /// Cancelled by the first Ctrl-C, SIGTERM or SIGHUP.
    pub token: CancellationToken,
    typed: Arc<AtomicBool>,
}

impl Interrupt {
    /// Listens from now on; a second signal ends the process at once. Nothing is lost by that: the journal has what was
    /// done, and the supervisors kill what still runs.
    pub fn listen() -> anyhow::Result<Self> {
        let catch = |kind| signal(kind).context("cannot listen for signals");
        let mut interrupt = catch(SignalKind::interrupt())?;
        let mut terminate = catch(SignalKind::terminate())?;
        let mut hangup = catch(SignalKind::hangup())?;
        let this = Self::default();
        let first = this.clone();
        tokio::spawn(async move {
            loop {
                let typed = tokio::select! {
                    _ = interrupt.recv() => true,
                    _ = terminate.recv() => false,
                    _ = hangup.recv() => false,
                };
                if first.token.is_cancelled() {
                    crate::term::eprint("\n");
                    std::process::exit(Exit::Cancelled as i32);
                }
                first.typed.store(typed, Ordering::Release);
                first.token.cancel();
            }
        });
        Ok(this)
    }

    /// Whether it was Ctrl-C: then there is somebody who can press it again.
    pub fn typed(&self) -> bool {
        self.typed.load(Ordering::Acquire)
    }
}
