//! The requests of the task that wait for an answer: what its client sees of them, and the end of those that nobody answers.

use std::time::Duration;

use api::{Json, JsonMap, PermissionReply, PermissionReplyKind, Timestamp};
use tokio::time::{Instant, timeout};

use super::{Runner, mark};
use crate::ErrorKind;
use crate::event::TaskEvent;
use crate::model::TaskState;
use crate::records::{Change, Interrupt, InterruptKind};
use crate::service::interrupts::{self, Answer, Asked, Asker, Resolution};

/// How long declining a request may take, and after which time it is tried again.
const DECLINE_TIMEOUT: Duration = Duration::from_secs(10);
const DECLINE_AGAIN: Duration = Duration::from_secs(30);

impl Runner {
    /// Something is asked.
    pub(super) async fn asked(&mut self, asked: Asked<'_>) {
        let asker = Asker {
            task_id: &self.row.id,
            context_id: &self.row.context_id,
            identity: &self.row.identity,
            credential: self.row.credential.as_deref(),
        };
        let interrupt = self.inner.interrupts.interrupt(&asker, asked);
        self.inner.metrics.interrupts_asked.add();
        if !self.asks.iter().any(|known| known.request_id == interrupt.request_id) {
            self.asks.push(interrupt.clone());
        }
        // Whoever hears of it may answer at once, and must be understood.
        let mut change = Change::of(&self.row.id);
        change.interrupt(interrupt.clone(), self.inner.interrupts.tombstone);
        self.flush_with(change).await;
        self.show_ask(&interrupt);
        self.flush().await;
    }

    /// Says that the task waits, and for what.
    fn show_ask(&mut self, interrupt: &Interrupt) {
        let text = interrupts::asked_text(interrupt);
        self.show_ask_as(interrupt, &text);
    }

    /// Likewise, in other words.
    pub(super) fn show_ask_as(&mut self, interrupt: &Interrupt, text: &str) {
        let status = self.status(TaskState::InputRequired, Some(text));
        let metadata = self.shared_interrupt(interrupts::asked_metadata(interrupt));
        self.publish(TaskEvent::Status { status, metadata, mark: Some(mark("interrupt")) });
    }

    /// A request was answered. If others are open, the task waits for the next.
    pub(super) async fn resolved(&mut self, request: &str, declined: bool) {
        let Some(index) = self.asks.iter().position(|ask| ask.request_id == request) else { return };
        let ask = self.asks.remove(index);
        self.inner.metrics.interrupts_resolved.add();
        let resolution = if declined { Resolution::Rejected } else { Resolution::Replied };
        let metadata = self.shared_interrupt(interrupts::resolved_metadata(&ask.request_id, ask.kind, resolution));
        let status = self.status(TaskState::Working, None);
        self.publish(TaskEvent::Status { status, metadata, mark: Some(mark("interrupt")) });
        if let Some(next) = self.asks.first().cloned() {
            self.show_ask(&next);
        }
        let mut change = Change::of(&self.row.id);
        change.resolve(request);
        self.flush_with(change).await;
    }

    /// When the first of the requests is to be declined that nobody answers: once it is not even remembered as expired.
    /// Until then, plain text still answers it.
    pub(super) fn decline_at(&self) -> Option<Instant> {
        let first = self.asks.iter().map(|ask| self.forgotten_at(ask)).min()?;
        let left = Duration::from_millis(u64::try_from(first.saturating_sub(api::now())).unwrap_or(0));
        // A time that cannot be told is never.
        let at = Instant::now().checked_add(left)?;
        Some(self.decline_again_at.map_or(at, |again| at.max(again)))
    }

    /// Declines the requests that nobody has answered, so that the turn goes on without them, and its task ends.
    pub(super) async fn decline_expired(&mut self) {
        self.decline_again_at = None;
        let now = api::now();
        let expired: Vec<Interrupt> = self.asks.iter().filter(|ask| self.forgotten_at(ask) <= now).cloned().collect();
        for ask in expired {
            let answer = match ask.kind {
                InterruptKind::Permission => {
                    Answer::Permission(PermissionReply { reply: PermissionReplyKind::Reject, message: None })
                }
                InterruptKind::Question => Answer::Question(None),
            };
            let failed = match timeout(DECLINE_TIMEOUT, self.inner.answer(&ask, answer)).await {
                Ok(Ok(())) => None,
                // Somebody else has answered it.
                Ok(Err(error)) if error.kind == ErrorKind::InterruptNotFound => None,
                Ok(Err(error)) => Some(error.message),
                Err(_) => Some("The agent runtime does not answer".to_owned()),
            };
            if let Some(error) = failed {
                tracing::warn!(error, task = %self.row.id, request = %ask.request_id, "cannot decline an expired request");
                self.decline_again_at = Some(Instant::now() + DECLINE_AGAIN);
                continue;
            }
            tracing::info!(task = %self.row.id, request = %ask.request_id, "declined a request that nobody answered");
            self.translator.note_resolved(&ask.request_id);
            self.resolved(&ask.request_id, true).await;
        }
    }

    fn forgotten_at(&self, ask: &Interrupt) -> Timestamp {
        let tombstone = Timestamp::try_from(self.inner.interrupts.tombstone.as_millis()).unwrap_or(Timestamp::MAX);
        ask.expires_at.saturating_add(tombstone)
    }

    /// Metadata with the session and an interrupt.
    fn shared_interrupt(&self, interrupt: Json) -> JsonMap {
        self.shared(JsonMap::from_iter([("interrupt".to_owned(), interrupt)]))
    }
}
