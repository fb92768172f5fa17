//! The remote queue of a terminal client: requests for clients that listen to events, and for clients that poll for the
//! next one.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use api::{EventBody, Json};
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::Notify;

/// The most requests that wait; beyond that the oldest is dropped.
const MAX_WAITING: usize = 64;

/// How long a request waits to be fetched: an old one must not surprise a client that connects much later.
const REQUEST_LIFETIME: Duration = Duration::from_secs(30);

/// A request to a terminal client.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct TuiRequest {
    /// The path that was called.
    pub path: String,
    /// The body that was sent.
    pub body: Json,
}

struct QueuedRequest {
    directory: String,
    expires: Instant,
    request: TuiRequest,
}

/// Requests that wait to be fetched, oldest first.
#[derive(Default)]
pub struct TuiRequestQueue {
    waiting: Mutex<VecDeque<QueuedRequest>>,
    added: Notify,
}

impl TuiRequestQueue {
    fn waiting(&self) -> MutexGuard<'_, VecDeque<QueuedRequest>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a request for the client of a directory.
    pub fn push(&self, directory: &str, path: &str, body: Json) {
        self.push_at(Instant::now(), directory, path, body);
    }

    fn push_at(&self, now: Instant, directory: &str, path: &str, body: Json) {
        let mut waiting = self.waiting();
        waiting.retain(|queued| queued.expires > now);
        if waiting.len() >= MAX_WAITING {
            waiting.pop_front();
        }
        let request = TuiRequest { path: path.to_owned(), body };
        waiting.push_back(QueuedRequest { directory: directory.to_owned(), expires: now + REQUEST_LIFETIME, request });
        self.added.notify_waiters();
    }

    /// Waits for the next request for a directory.
    pub async fn next(&self, directory: &str) -> TuiRequest {
        loop {
            let added = self.added.notified();
            let mut added = std::pin::pin!(added);
            // Enabled before the check, so that a request added after it is not missed.
            added.as_mut().enable();
            if let Some(request) = self.take(directory) {
                return request;
            }
            added.await;
        }
    }

    fn take(&self, directory: &str) -> Option<TuiRequest> {
        let mut waiting = self.waiting();
        let now = Instant::now();
        waiting.retain(|queued| queued.expires > now);
        let index = waiting.iter().position(|queued| queued.directory == directory)?;
        waiting.remove(index).map(|queued| queued.request)
    }
}

/// How long our own toasts are shown, in milliseconds: long enough to read a sentence.
const TOAST_MILLIS: u64 = 6_000;

/// A toast that says that something was not done.
pub fn warning_toast(message: &str) -> EventBody {
    EventBody::TuiToastShow {
        title: None,
        message: message.to_owned(),
        variant: "warning".to_owned(),
        duration: Some(TOAST_MILLIS),
    }
}

/// The current name of a command. Unknown names are passed on as they are.
pub fn current_command_name(name: &str) -> &str {
    match name {
        "session_new" => "session.new",
        "session_share" => "session.share",
        "session_interrupt" => "session.interrupt",
        "session_compact" => "session.compact",
        "messages_page_up" => "session.page.up",
        "messages_page_down" => "session.page.down",
        "messages_line_up" => "session.line.up",
        "messages_line_down" => "session.line.down",
        "messages_half_page_up" => "session.half.page.up",
        "messages_half_page_down" => "session.half.page.down",
        "messages_first" => "session.first",
        "messages_last" => "session.last",
        "agent_cycle" => "agent.cycle",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn requests_are_fetched_in_order_and_by_directory() {
        let queue = TuiRequestQueue::default();
        queue.push("/a", "/tui/open-help", Json::Null);
        queue.push("/b", "/tui/append-prompt", serde_json::json!({ "text": "x" }));
        queue.push("/a", "/tui/clear-prompt", Json::Null);
        assert_eq!(queue.next("/b").await.body["text"], "x");
        assert_eq!(queue.next("/a").await.path, "/tui/open-help");
        assert_eq!(queue.next("/a").await.path, "/tui/clear-prompt");
        let (next, ()) = tokio::join!(queue.next("/a"), async { queue.push("/a", "/tui/late", Json::Null) });
        assert_eq!(next.path, "/tui/late");
    }

    #[tokio::test]
    async fn old_and_too_many_requests_are_dropped() {
        let queue = TuiRequestQueue::default();
        let long_ago = Instant::now() - REQUEST_LIFETIME;
        queue.push_at(long_ago, "/a", "/tui/old", Json::Null);
        assert_eq!(queue.take("/a"), None);
        for number in 0..=MAX_WAITING {
            queue.push("/a", "/tui/new", number.into());
        }
        assert_eq!(queue.next("/a").await.body, Json::from(1));
        assert_eq!(queue.waiting().len(), MAX_WAITING - 1);
    }

    #[test]
    fn old_command_names_are_translated() {
        assert_eq!(current_command_name("messages_half_page_up"), "session.half.page.up");
        assert_eq!(current_command_name("theme.switch"), "theme.switch");
    }
}
