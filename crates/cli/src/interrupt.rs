//! Ctrl-C: the first one cancels, the second one quits.

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::exit::Exit;

/// A token that the first Ctrl-C (or SIGTERM, SIGHUP) cancels; the second one ends the process at once. Nothing is lost
/// by that: the journal has what was done, and the supervisors kill what still runs.
pub fn token() -> anyhow::Result<CancellationToken> {
    let token = CancellationToken::new();
    let catch = |kind| signal(kind).context("cannot listen for signals");
    let mut interrupt = catch(SignalKind::interrupt())?;
    let mut terminate = catch(SignalKind::terminate())?;
    let mut hangup = catch(SignalKind::hangup())?;
    let first = token.clone();
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hangup.recv() => {}
            }
            if first.is_cancelled() {
                crate::term::eprint("\n");
                std::process::exit(Exit::Cancelled as i32);
            }
            first.cancel();
        }
    });
    Ok(token)
}
