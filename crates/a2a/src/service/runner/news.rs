//! What happens at the agent runtime becomes events of the task.

use std::time::Duration;

use api::{Frame, JsonMap};
use tokio::time::timeout;

use super::Runner;
use crate::event::{StreamMark, TaskEvent};
use crate::model::{TaskState, TaskStatus};
use crate::service::driver;
use crate::service::hub::{Mail, Subscription};
use crate::service::interrupts::Asked;
use crate::service::translate::{Chunk, News};

/// How many events that wait are taken in together.
const MAX_TOGETHER: usize = 64;
/// How long reading the stored state may take. What it would have told comes with the end of the turn.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

impl Runner {
    /// Takes in an event, and those that wait behind it.
    pub(super) async fn take_mail(&mut self, mail: Mail, subscription: &mut Subscription) {
        let mut frame = match mail {
            Mail::Gap => return self.reread(subscription).await,
            Mail::Frame(frame) => frame,
        };
        let mut news = Vec::new();
        for _ in 0..MAX_TOGETHER {
            news.extend(self.translate(&frame));
            match subscription.try_next() {
                Some(next) => frame = next,
                None => break,
            }
        }
        self.tell(news).await;
        if self.translator.take_behind() {
            self.reread(subscription).await;
        }
    }

    fn translate(&mut self, frame: &Frame) -> Vec<News> {
        let is_other_turn = match (&self.row.turn, frame.turn) {
            (Some(ours), Some(turn)) => frame.session == self.row.session_id && turn != ours.number,
            _ => false,
        };
        match frame.event() {
            Some(event) if !is_other_turn => self.translator.event(&event.body),
            _ => Vec::new(),
        }
    }

    /// Reads the stored state: what was missed is told now.
    pub(super) async fn reread(&mut self, subscription: &Subscription) {
        let inner = self.inner.clone();
        let Some(session) = self.row.session_id.clone() else { return };
        let host = &*inner.host;
        let (scope, prompt) = (self.row.scope(), self.work.prompt.id.clone());
        let read = async {
            let family = follow::family(host, &session).await?;
            let asks = follow::open_asks(host, &scope, &session, &family).await?;
            let messages = driver::messages_since(host, &session, &prompt).await?;
            Ok::<_, api::HostError>((family, asks, messages))
        };
        match timeout(READ_TIMEOUT, read).await {
            Ok(Ok((family, asks, messages))) => {
                subscription.adopt(family.into_iter().map(|child| child.id));
                let has_begun = messages.first().is_some_and(|first| *first.info.id() == prompt);
                let mut news = if has_begun { self.translator.stored(&messages) } else { Vec::new() };
                news.extend(self.translator.open_asks(&asks));
                self.tell(news).await;
                if self.asks.is_empty() && self.live.state() == TaskState::InputRequired {
                    // What it waited for before a restart is not asked any more.
                    self.publish_state(TaskState::Working);
                }
            }
            Ok(Err(error)) => tracing::warn!(%error, %session, "cannot read what happened in a session"),
            Err(_) => tracing::warn!(%session, "reading what happened in a session takes too long"),
        }
    }

    /// Subagents of earlier tasks may still run in the background. What they ask belongs to this task.
    pub(super) async fn adopt_subagents(&mut self, subscription: &Subscription) {
        let inner = self.inner.clone();
        let Some(session) = self.row.session_id.clone() else { return };
        let (host, scope) = (&*inner.host, self.row.scope());
        let read = async {
            let family = follow::family(host, &session).await?;
            let asks = match family.is_empty() {
                true => Vec::new(),
                false => follow::open_asks(host, &scope, &session, &family).await?,
            };
            Ok::<_, api::HostError>((family, asks))
        };
        match timeout(READ_TIMEOUT, read).await {
            Ok(Ok((family, asks))) => {
                subscription.adopt(family.into_iter().map(|child| child.id));
                let news = self.translator.open_asks(&asks);
                self.tell(news).await;
            }
            Ok(Err(error)) => tracing::warn!(%error, %session, "cannot read the subagents of a session"),
            Err(_) => tracing::warn!(%session, "reading the subagents of a session takes too long"),
        }
    }

    /// Publishes news. Text waits for the log a while, everything else is written at once.
    pub(super) async fn tell(&mut self, news: Vec<News>) {
        let mut chunk: Option<Chunk> = None;
        let mut is_urgent = false;
        for news in news {
            match (news, chunk.take()) {
                (News::Block(next), None) => chunk = Some(next),
                (News::Block(next), Some(mut held)) => match held.merge(next) {
                    Ok(()) => chunk = Some(held),
                    Err(next) => {
                        self.publish_chunk(Some(held), &mut is_urgent);
                        chunk = Some(next);
                    }
                },
                (other, held) => {
                    self.publish_chunk(held, &mut is_urgent);
                    is_urgent = true;
                    self.tell_other(other).await;
                }
            }
        }
        self.publish_chunk(chunk, &mut is_urgent);
        if is_urgent {
            self.flush().await;
        }
    }

    fn publish_chunk(&mut self, chunk: Option<Chunk>, is_urgent: &mut bool) {
        let Some(chunk) = chunk else { return };
        if matches!(chunk.lane, crate::event::Lane::Tool(_)) {
            self.inner.metrics.tool_call_chunks.add();
            *is_urgent = true;
        }
        self.publish(chunk.into_event());
    }

    async fn tell_other(&mut self, news: News) {
        match news {
            News::Note { shared, mark } => self.publish_note(shared, mark),
            News::Permission(ask) => self.asked(Asked::Permission(&ask)).await,
            News::Question(ask) => self.asked(Asked::Question(&ask)).await,
            News::Resolved { request, declined } => self.resolved(&request, declined).await,
            News::Block(_) => {}
        }
    }

    /// Progress: the status stays as it is.
    fn publish_note(&mut self, shared: JsonMap, mark: StreamMark) {
        let state = self.live.state();
        let status = TaskStatus { state, message: None, timestamp: api::now() };
        let metadata = JsonMap::from_iter([("shared".to_owned(), shared.into())]);
        self.publish(TaskEvent::Status { status, metadata, mark: Some(mark) });
    }
}
