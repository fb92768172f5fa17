//! The remote control of a terminal client: what it is asked to do, for clients that listen to events and for those that
//! ask for the next request.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use api::{EventBody, Json};
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::Notify;

/// The most requests that wait; the oldest gives way.
const MAX_WAITING: usize = 64;

/// How long a request waits to be fetched: an old one must not surprise a client that comes much later.
const GOOD_FOR: Duration = Duration::from_secs(30);

/// What a terminal client is asked to do.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct Request {
    /// The path that was called.
    pub path: String,
    /// What was sent there.
    pub body: Json,
}

struct Waiting {
    directory: String,
    until: Instant,
    request: Request,
}

/// Requests that wait to be fetched, oldest first.
#[derive(Default)]
pub struct Control {
    waiting: Mutex<VecDeque<Waiting>>,
    more: Notify,
}

impl Control {
    fn waiting(&self) -> MutexGuard<'_, VecDeque<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a request for the client of a directory.
    pub fn push(&self, directory: &str, path: &str, body: Json) {
        self.add(Instant::now(), directory, path, body);
    }

    fn add(&self, now: Instant, directory: &str, path: &str, body: Json) {
        let mut waiting = self.waiting();
        waiting.retain(|one| one.until > now);
        if waiting.len() >= MAX_WAITING {
            waiting.pop_front();
        }
        let request = Request { path: path.to_owned(), body };
        waiting.push_back(Waiting { directory: directory.to_owned(), until: now + GOOD_FOR, request });
        self.more.notify_waiters();
    }

    /// Waits for the next request for a directory.
    pub async fn next(&self, directory: &str) -> Request {
        loop {
            let more = self.more.notified();
            let mut more = std::pin::pin!(more);
            // Before the look, so that what is added after it is not missed.
            more.as_mut().enable();
            if let Some(request) = self.take(directory) {
                return request;
            }
            more.await;
        }
    }

    fn take(&self, directory: &str) -> Option<Request> {
        let mut waiting = self.waiting();
        let now = Instant::now();
        waiting.retain(|one| one.until > now);
        let index = waiting.iter().position(|one| one.directory == directory)?;
        waiting.remove(index).map(|one| one.request)
    }
}

/// How long a notice of ours is shown, in milliseconds: long enough to read a sentence.
const NOTICE: u64 = 6_000;

/// A notice that something was not done.
pub fn warning(message: &str) -> EventBody {
    EventBody::TuiToastShow {
        title: None,
        message: message.to_owned(),
        variant: "warning".to_owned(),
        duration: Some(NOTICE),
    }
}

/// The command that an older name stands for. Any other is passed on as it is.
pub fn command(name: &str) -> &str {
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
    async fn requests_are_fetched_in_their_order_and_by_their_directory() {
        let control = Control::default();
        control.push("/a", "/tui/open-help", Json::Null);
        control.push("/b", "/tui/append-prompt", serde_json::json!({ "text": "x" }));
        control.push("/a", "/tui/clear-prompt", Json::Null);
        assert_eq!(control.next("/b").await.body["text"], "x");
        assert_eq!(control.next("/a").await.path, "/tui/open-help");
        assert_eq!(control.next("/a").await.path, "/tui/clear-prompt");
        let (next, ()) = tokio::join!(control.next("/a"), async { control.push("/a", "/tui/late", Json::Null) });
        assert_eq!(next.path, "/tui/late");
    }

    #[tokio::test]
    async fn old_and_too_many_requests_are_dropped() {
        let control = Control::default();
        let long_ago = Instant::now() - GOOD_FOR;
        control.add(long_ago, "/a", "/tui/old", Json::Null);
        assert_eq!(control.take("/a"), None);
        for number in 0..=MAX_WAITING {
            control.push("/a", "/tui/new", number.into());
        }
        assert_eq!(control.next("/a").await.body, Json::from(1));
        assert_eq!(control.waiting().len(), MAX_WAITING - 1);
    }

    #[test]
    fn older_names_of_commands() {
        assert_eq!(command("messages_half_page_up"), "session.half.page.up");
        assert_eq!(command("theme.switch"), "theme.switch");
    }
}
