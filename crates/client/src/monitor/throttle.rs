//! Merges rapid progress events.

use std::collections::VecDeque;
use std::time::Duration;

use api::{Progress, SessionId};
use indexmap::IndexMap;
use tokio::time::Instant;

use super::event::MonitorEvent;

/// Holds back the progress of each session for an interval, and nothing else.
pub(super) struct ProgressThrottle {
    interval: Duration,
    ready: VecDeque<MonitorEvent>,
    /// The latest progress of each session, in the order in which they started to wait.
    waiting: IndexMap<SessionId, Box<Progress>>,
    /// When the waiting progress is reported.
    due: Option<Instant>,
}

impl ProgressThrottle {
    pub fn new(interval: Duration) -> Self {
        Self { interval, ready: VecDeque::new(), waiting: IndexMap::new(), due: None }
    }

    pub fn set_interval(&mut self, interval: Duration) {
        self.interval = interval;
    }

    pub fn push(&mut self, event: MonitorEvent, now: Instant) {
        match event {
            MonitorEvent::ChildProgress { session_id, progress } => {
                self.waiting.insert(session_id, progress);
                self.due.get_or_insert(now + self.interval);
            }
            event => {
                // Earlier progress of the session is reported first.
                if let Some((session_id, progress)) = self.waiting.shift_remove_entry(event.session_id()) {
                    self.ready.push_back(MonitorEvent::ChildProgress { session_id, progress });
                }
                self.ready.push_back(event);
            }
        }
        if self.waiting.is_empty() {
            self.due = None;
        }
    }

    /// The next event to report now.
    pub fn pop(&mut self, now: Instant) -> Option<MonitorEvent> {
        if self.ready.is_empty() && self.due.is_some_and(|due| due <= now) {
            self.flush();
        }
        self.ready.pop_front()
    }

    /// Makes all waiting progress ready.
    pub fn flush(&mut self) {
        self.due = None;
        let waiting = self.waiting.drain(..);
        let flushed = waiting.map(|(session_id, progress)| MonitorEvent::ChildProgress { session_id, progress });
        self.ready.extend(flushed);
    }

    /// When there will be something to report if nothing else happens.
    pub fn due(&self) -> Option<Instant> {
        self.due
    }
}
