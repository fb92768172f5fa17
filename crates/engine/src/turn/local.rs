//! What this process keeps in memory for its turns. All of it can be lost: the rows say what a turn has to do.

use std::collections::HashSet;
use std::future::Future;
use std::sync::{Arc, Mutex};

use api::{MessageId, SessionId};
use tokio_util::task::TaskTracker;

use crate::lock;
use crate::turn::conversation_cache::ConversationCache;
use crate::turn::runs::{Run, Runs};
use crate::turn::trace::Traces;

/// The turns of this process.
#[derive(Default)]
pub(crate) struct LocalTurns {
    runs: Runs,
    conversations: ConversationCache,
    traces: Traces,
    /// The sessions this process has opened, if its watchdog covers only those.
    opened: Mutex<Option<HashSet<SessionId>>>,
    /// Sessions whose turn was abandoned without a trace in the database, because every write failed.
    given_up: Mutex<HashSet<SessionId>>,
    titles: TaskTracker,
}

impl LocalTurns {
    /// Whether a turn of the session runs here.
    pub(crate) fn is_running(&self, session: &SessionId) -> bool {
        self.runs.get(session).is_some()
    }

    /// The number of turns that run here.
    pub(crate) fn running(&self) -> usize {
        self.runs.len()
    }

    /// Aborts the turn of a session for good. Returns `None` if none runs here.
    pub(crate) fn abort(&self, session: &SessionId) -> Option<Arc<Run>> {
        self.runs.abort(session)
    }

    /// Aborts the turn with this lease epoch for good; 0 means any turn.
    pub(crate) fn abort_turn(&self, session: &SessionId, epoch: u64) {
        self.runs.abort_turn(session, epoch);
    }

    /// Stops all turns so that they resume at the next start.
    pub(crate) fn park_all(&self) {
        self.runs.park_all();
    }

    /// Whether turns are being parked: a turn that ends now is not finished.
    pub(crate) fn is_parking(&self) -> bool {
        self.runs.is_parking()
    }

    /// The trace header of a model call for a prompt.
    pub(crate) fn trace_header(&self, prompt: &MessageId) -> Option<(String, String)> {
        self.traces.header(prompt)
    }

    /// The trace context that a prompt came with.
    pub(crate) fn sender_trace(&self, prompt: &MessageId) -> Option<String> {
        self.traces.sender(prompt)
    }

    /// Drops the cached conversation of a session.
    pub(crate) fn forget_conversation(&self, session: &SessionId) {
        drop(self.conversations.take(session));
    }

    /// Waits for the titles that are being written. No new ones are expected.
    pub(crate) async fn finish_titles(&self) {
        self.titles.close();
        self.titles.wait().await;
    }

    pub(super) fn runs(&self) -> &Runs {
        &self.runs
    }

    pub(super) fn conversations(&self) -> &ConversationCache {
        &self.conversations
    }

    pub(super) fn traces(&self) -> &Traces {
        &self.traces
    }

    /// Runs work that writes a title.
    pub(super) fn spawn_title(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.titles.spawn(work);
    }

    /// From now on records which sessions this process opens.
    pub(super) fn record_opened(&self) {
        lock(&self.opened).get_or_insert_default();
    }

    /// Records that this process has opened a session, if that matters.
    pub(super) fn note_opened(&self, session: &SessionId) {
        if let Some(opened) = &mut *lock(&self.opened) {
            opened.insert(session.clone());
        }
    }

    /// Whether the watchdog covers a session by itself, without the sessions above it.
    pub(super) fn is_watched(&self, session: &SessionId) -> bool {
        lock(&self.opened).as_ref().is_none_or(|opened| opened.contains(session))
    }

    /// Records that the turn of a session was abandoned and nothing of that could be stored.
    pub(super) fn give_up(&self, session: &SessionId) {
        lock(&self.given_up).insert(session.clone());
    }

    /// Whether the last turn of a session was given up; forgets it.
    pub(super) fn take_given_up(&self, session: &SessionId) -> bool {
        lock(&self.given_up).remove(session)
    }
}
