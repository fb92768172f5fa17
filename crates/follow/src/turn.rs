//! One turn, from its beginning to its answer.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use api::{
    CommandInput, Delivery, EventBody, Host, HostError, ListMessages, MessageWithParts, PromptInput, Scope, SessionId,
    SessionStatus, SummarizeInput, TurnId, WatchItem, WatchScope,
};
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::delivery::FeedHandle;
use crate::retry::Patience;
use crate::running::{Running, running};
use crate::stop::{Phase, Stopper};
use crate::stored::MAX_MESSAGES;

/// How often to ask whether a turn without a name still runs, in case its end was missed.
const RECHECK: Duration = Duration::from_secs(5);

/// What a turn does.
#[derive(Debug, Clone)]
pub enum Task {
    /// It answers a prompt. One that was sent before is recognised by its message id.
    Prompt(Box<PromptInput>),
    /// It runs a command.
    Command(Box<CommandInput>),
    /// It compacts the conversation; there is no answer.
    Summary(SummarizeInput),
    /// Somebody else has begun it.
    Begun(TurnId),
    /// It is whatever runs in the session; if nothing does, there is no answer.
    Running,
}

/// What a turn ends with; without an answer if its task has none.
pub type Answer = Result<Option<MessageWithParts>, HostError>;

enum State {
    Working(BoxFuture<'static, Answer>),
    /// The answer is there, and the feed has yet to deliver it.
    Delivering(BoxFuture<'static, ()>, Box<Answer>),
    Done,
}

/// A turn that is waited for. It begins when [`answer`](Self::answer) is polled first.
pub struct TurnHandle {
    state: State,
    feed: Option<FeedHandle>,
    stopper: Stopper,
}

impl TurnHandle {
    /// A turn of a session.
    pub fn new(host: Arc<dyn Host>, session: SessionId, task: Task, patience: Patience) -> Self {
        let names = host.features().turns && matches!(&task, Task::Prompt(prompt) if !prompt.no_reply);
        let phase = match &task {
            Task::Begun(turn) => Phase::Named(turn.clone()),
            _ if names => Phase::Starting,
            _ => Phase::Unnamed,
        };
        let (sender, phase) = watch::channel(phase);
        let stopper = Stopper { host: host.clone(), session: session.clone(), patience, phase };
        let worker = Worker { host, session, patience, phase: sender };
        let work = async move {
            let answer = worker.run(task, names).await;
            worker.phase.send_replace(Phase::Ended);
            answer
        };
        Self { state: State::Working(work.boxed()), feed: None, stopper }
    }

    /// The turn, ending only once a feed of its session has delivered the answer.
    #[must_use]
    pub fn delivered_by(self, feed: FeedHandle) -> Self {
        Self { feed: Some(feed), ..self }
    }

    /// Stops the turn.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Waits for the answer, which it returns once. Cancel safe.
    pub async fn answer(&mut self) -> Answer {
        self.work().await;
        let State::Delivering(delivering, _) = &mut self.state else { return std::future::pending().await };
        delivering.await;
        match std::mem::replace(&mut self.state, State::Done) {
            State::Delivering(_, answer) => *answer,
            State::Working(_) | State::Done => Ok(None),
        }
    }

    /// Waits for the answer, and stops the turn once `stop` is ready; `None` if it does not stop within the limit.
    pub async fn answer_until(&mut self, stop: impl Future<Output = ()>, limit: Duration) -> Option<Answer> {
        tokio::select! {
            biased;
            answer = self.answer() => return Some(answer),
            () = stop => {}
        }
        let stopper = self.stopper();
        let stopped = async {
            stopper.stop().await;
            // Its answer follows.
            std::future::pending().await
        };
        tokio::select! {
            biased;
            () = self.work() => {}
            () = stopped => {}
            () = sleep(limit) => {
                tracing::error!(session = %stopper.session, "the turn did not stop");
                return None;
            }
        }
        Some(self.answer().await)
    }

    /// Waits until there is an answer, delivered or not.
    async fn work(&mut self) {
        let State::Working(work) = &mut self.state else { return };
        let answer = work.await;
        let id = answer.as_ref().ok().and_then(Option::as_ref);
        let id = id.and_then(|answer| answer.info.as_assistant()).map(|answer| answer.id.clone());
        let delivering = match (self.feed.take(), id) {
            (Some(feed), Some(id)) => async move { feed.delivered(&id).await }.boxed(),
            _ => std::future::ready(()).boxed(),
        };
        self.state = State::Delivering(delivering, Box::new(answer));
    }
}

/// Does a task on a host.
struct Worker {
    host: Arc<dyn Host>,
    session: SessionId,
    patience: Patience,
    phase: watch::Sender<Phase>,
}

impl Worker {
    async fn run(&self, task: Task, names: bool) -> Answer {
        let Self { host, session, patience, .. } = self;
        match task {
            Task::Prompt(input) if names => self.submit(&input).await.map(Some),
            Task::Prompt(input) => self.prompt(&input).await.map(Some),
            Task::Command(input) => {
                let command = patience.retry(|| host.command(session, (*input).clone()));
                command.await.map(Some)
            }
            Task::Summary(input) => host.summarize(session, input).await.map(|()| None),
            Task::Begun(turn) => self.wait(&turn).await,
            Task::Running => {
                let scope = Scope::new(host.session(session).await?.directory);
                match running(&**host, &scope, session).await? {
                    None => Ok(None),
                    Some(Running::Turn(turn)) => {
                        self.phase.send_replace(Phase::Named(turn.clone()));
                        self.wait(&turn).await
                    }
                    Some(Running::Unnamed) => self.wait_until_idle(&scope).await,
                }
            }
        }
    }

    async fn prompt(&self, input: &PromptInput) -> Result<MessageWithParts, HostError> {
        self.patience.retry(|| self.host.prompt(&self.session, input.clone())).await
    }

    async fn submit(&self, input: &PromptInput) -> Result<MessageWithParts, HostError> {
        let submit = || self.host.submit(&self.session, input.clone(), Delivery::Join);
        let submitted = self.patience.retry(submit).await?;
        let Some(turn) = &submitted.turn_id else {
            self.phase.send_replace(Phase::Unnamed);
            return self.prompt(input).await;
        };
        self.phase.send_replace(Phase::Named(turn.clone()));
        // A prompt that was sent before may have been answered in a turn that is not known any more.
        let (Some(message), Some(_)) = (&submitted.message_id, &submitted.cursor) else {
            return self.prompt(input).await;
        };
        match self.wait(turn).await? {
            Some(answer) => Ok(answer),
            None => self.patience.retry(|| self.host.message(&self.session, message)).await,
        }
    }

    /// Waits for a turn. Returns its last answer, if it has one.
    async fn wait(&self, turn: &TurnId) -> Answer {
        let ended = self.patience.retry(|| self.host.wait(turn)).await?;
        let Some(answer) = &ended.answer else { return Ok(None) };
        self.patience.retry(|| self.host.message(&turn.session, answer)).await.map(Some)
    }

    /// Waits for a turn without a name. Returns the newest answer.
    async fn wait_until_idle(&self, scope: &Scope) -> Answer {
        let mut events = self.host.watch(WatchScope::Session(self.session.clone()), None).await?.fuse();
        let is_end = |item: &WatchItem| match item {
            WatchItem::Frame(frame) => frame.event().is_some_and(|event| match &event.body {
                EventBody::SessionIdle { session_id } => *session_id == self.session,
                EventBody::SessionStatus { session_id, status } => {
                    *session_id == self.session && *status == SessionStatus::Idle
                }
                _ => false,
            }),
            WatchItem::Resync(_) | WatchItem::Lagged => true,
        };
        while running(&*self.host, scope, &self.session).await?.is_some() {
            let ended = async {
                while let Some(item) = events.next().await {
                    if is_end(&item) {
                        return;
                    }
                }
                std::future::pending().await
            };
            // Either way, its status is read next.
            let _ = timeout(RECHECK, ended).await;
        }
        let query = ListMessages { limit: Some(MAX_MESSAGES), before: None };
        let page = self.patience.retry(|| self.host.messages(&self.session, query.clone())).await?;
        Ok(page.messages.into_iter().rev().find(|message| message.info.as_assistant().is_some()))
    }
}
