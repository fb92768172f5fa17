//! Follows a task from event to event, over broken connections.
//!
//! A stream that breaks off is continued where it was: after the last number if the agent counts its events, else from a
//! snapshot of the task. If neither is possible, text could be missing, so the task is read again and again instead.

use std::time::Duration;

use futures::future::BoxFuture;
use tokio::time::Instant;

use super::send::Answer;
use super::stream::PeerStream;
use super::view::{Change, TaskView};
use super::{ClientError, Peer, StreamItem};
use crate::call::{Call, SendRequest};
use crate::error::ErrorKind;
use crate::event::TaskEvent;

/// How often in a row continuing may fail.
const MAX_FAILURES: u32 = 8;
/// How many messages of a task are read: its answer may be in the last one alone.
const HISTORY: u32 = 10;

/// How long to follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    /// Until the agent ends its stream, whatever the task's state is then.
    StreamEnds,
    /// Until the task ends.
    TaskEnds,
}

/// Follows a task. Its futures can be dropped at any time: nothing is lost.
pub struct Follower {
    peer: Peer,
    until: Until,
    /// Whether the agent streams.
    streams: bool,
    answer: Answer,
    mode: Mode,
    /// The number of the last event, if all of them have one.
    last: Option<u64>,
    failures: u32,
    /// Whether the last stream ended without anything new.
    was_quiet: bool,
    interval: Duration,
}

enum Mode {
    /// Sends a message; the result also says whether its reply is a stream.
    Send(BoxFuture<'static, Result<(bool, PeerStream), ClientError>>),
    /// Reads a stream.
    Stream(Box<PeerStream>, Expected),
    /// Opens a stream at that time.
    Resume(Instant),
    /// Reads the task at that time.
    Poll(Instant),
    Ended,
}

/// How the rest of a stream must begin, so that nothing is missing.
#[derive(Clone, Copy)]
enum Expected {
    Anything,
    After(u64),
    Snapshot,
}

enum Fit {
    Take,
    Drop,
    Gap,
}

impl Peer {
    /// Sends a message and follows its task until that ends. The task goes on if the follower is dropped.
    pub fn follow(&self, request: SendRequest) -> Follower {
        Follower::of_message(self, request, Until::TaskEnds)
    }

    /// Follows a task until it ends. What it has done so far comes first.
    pub fn follow_task(&self, id: &str) -> Follower {
        let mut follower = Follower::new(self, Until::TaskEnds, Mode::Resume(Instant::now()));
        follower.answer.view = TaskView::of_task(id);
        follower
    }

    /// Sends a message. Returns whether the reply is a stream, and the reply.
    async fn open(self, mut request: SendRequest, at_once: bool) -> Result<(bool, PeerStream), ClientError> {
        let route = self.route().await?;
        if route.card.streaming {
            match self.start(&route, Call::Stream(Box::new(request.clone()))).await {
                Err(error) if error.is_unsupported() => {}
                stream => return Ok((true, stream?)),
            }
        }
        request.options.return_immediately = at_once;
        Ok((false, self.start(&route, Call::Send(Box::new(request))).await?))
    }
}

impl Follower {
    fn new(peer: &Peer, until: Until, mode: Mode) -> Self {
        let interval = peer.options().polling.first();
        let (answer, peer) = (Answer::default(), peer.clone());
        Self { peer, until, streams: true, answer, mode, last: None, failures: 0, was_quiet: false, interval }
    }

    /// Sends a message and follows its task.
    pub(super) fn of_message(peer: &Peer, request: SendRequest, until: Until) -> Self {
        let mut follower = Self::new(peer, until, Mode::Ended);
        follower.send(request);
        follower
    }

    /// Sends a further message to the task, and goes on with the events that follow. An error may mean that it did not
    /// arrive; it is never sent twice.
    pub fn send(&mut self, request: SendRequest) {
        let at_once = self.until == Until::TaskEnds || self.peer.options().polling.enabled;
        (self.last, self.was_quiet, self.failures) = (None, false, 0);
        self.mode = Mode::Send(Box::pin(self.peer.clone().open(request, at_once)));
    }

    /// Cancels the task, as soon as its id is known. Returns whether it has ended, as far as the agent says so in time.
    pub async fn cancel(&mut self, limit: Duration) -> bool {
        let work = async {
            let id = loop {
                if let Some(id) = self.view().task_id() {
                    break id.to_owned();
                }
                if !matches!(self.next().await, Some(Ok(_))) {
                    return self.has_ended();
                }
            };
            while !self.has_ended() {
                match self.peer.cancel_task(&id).await {
                    Ok(task) => return task.status.state.is_terminal(),
                    Err(error) if error.is_transient() => tokio::time::sleep_until(self.later()).await,
                    Err(ClientError::Peer { error, .. }) => return error.kind == ErrorKind::TaskNotCancelable,
                    Err(_) => return false,
                }
            }
            true
        };
        tokio::time::timeout(limit, work).await.unwrap_or(false)
    }

    /// What is known of the task.
    pub fn view(&self) -> &TaskView {
        &self.answer.view
    }

    pub(super) fn into_answer(self) -> Answer {
        self.answer
    }

    /// What is new; `None` once the end is reached. After an error nothing follows.
    pub async fn next(&mut self) -> Option<Result<Vec<Change>, ClientError>> {
        loop {
            let step = match &mut self.mode {
                Mode::Ended => return None,
                Mode::Send(opening) => {
                    let opened = opening.await;
                    self.opened(opened)
                }
                Mode::Stream(stream, _) => {
                    let item = stream.next().await;
                    self.received(item)
                }
                Mode::Resume(at) => {
                    tokio::time::sleep_until(*at).await;
                    self.resume().await
                }
                Mode::Poll(at) => {
                    tokio::time::sleep_until(*at).await;
                    self.poll().await
                }
            };
            match step {
                Ok(changes) if changes.is_empty() => {}
                Ok(changes) => return Some(Ok(changes)),
                Err(error) => {
                    self.mode = Mode::Ended;
                    return Some(Err(error));
                }
            }
        }
    }

    fn opened(&mut self, opened: Result<(bool, PeerStream), ClientError>) -> Result<Vec<Change>, ClientError> {
        let (streams, stream) = opened?;
        self.streams = streams;
        self.mode = Mode::Stream(Box::new(stream), Expected::Anything);
        Ok(Vec::new())
    }

    fn received(&mut self, item: Option<Result<StreamItem, ClientError>>) -> Result<Vec<Change>, ClientError> {
        let item = match item {
            Some(Ok(item)) => item,
            Some(Err(error)) => return self.broken(error),
            None => {
                self.stream_ended();
                return Ok(Vec::new());
            }
        };
        match self.fit(&item) {
            Fit::Take => self.take(item),
            Fit::Drop => Ok(Vec::new()),
            Fit::Gap => {
                self.mode = Mode::Poll(Instant::now());
                Ok(Vec::new())
            }
        }
    }

    /// Whether an event is what must follow.
    fn fit(&mut self, item: &StreamItem) -> Fit {
        let Mode::Stream(_, expected) = &mut self.mode else { return Fit::Take };
        match (*expected, item) {
            (Expected::Anything, _) | (_, StreamItem::Message(_)) => Fit::Take,
            (_, StreamItem::Task(_)) => {
                *expected = Expected::Anything;
                Fit::Take
            }
            (Expected::Snapshot, StreamItem::Event { .. }) => Fit::Gap,
            (Expected::After(last), StreamItem::Event { seq: Some(seq), .. }) if *seq <= last => Fit::Drop,
            (Expected::After(last), StreamItem::Event { seq: Some(seq), .. }) if *seq == last + 1 => {
                *expected = Expected::Anything;
                Fit::Take
            }
            (Expected::After(_), StreamItem::Event { seq: Some(_), .. }) => Fit::Gap,
            (Expected::After(_), StreamItem::Event { event, .. }) => {
                let is_harmless = matches!(&**event, TaskEvent::Status { .. }) && !event.is_last();
                if is_harmless { Fit::Take } else { Fit::Gap }
            }
        }
    }

    fn take(&mut self, item: StreamItem) -> Result<Vec<Change>, ClientError> {
        match &item {
            StreamItem::Event { seq: Some(seq), .. } => self.last = Some(*seq),
            StreamItem::Event { event, .. } if matches!(&**event, TaskEvent::Artifact { .. }) => self.last = None,
            _ => {}
        }
        let changes = self.answer.take(item, self.peer.url())?;
        if !changes.is_empty() {
            (self.failures, self.was_quiet) = (0, false);
            self.interval = self.peer.options().polling.first();
        }
        if self.has_ended() {
            self.mode = Mode::Ended;
        }
        Ok(changes)
    }

    fn has_ended(&self) -> bool {
        self.view().state().is_some_and(|state| state.is_terminal())
    }

    /// The agent has ended the stream.
    fn stream_ended(&mut self) {
        self.mode = if self.has_ended() || self.until == Until::StreamEnds || self.view().task_id().is_none() {
            Mode::Ended
        } else if self.streams && !self.was_quiet {
            self.was_quiet = true;
            Mode::Resume(Instant::now())
        } else {
            Mode::Poll(self.later())
        };
    }

    /// The connection is lost, or the agent is not there.
    fn broken(&mut self, error: ClientError) -> Result<Vec<Change>, ClientError> {
        if !error.is_transient() || self.view().task_id().is_none() {
            return Err(error);
        }
        // Silence is no failure: the work may take that long.
        if !matches!(error, ClientError::Silent { .. }) {
            self.failures += 1;
        }
        if self.failures > MAX_FAILURES {
            return Err(error);
        }
        let polls = !self.streams || matches!(self.mode, Mode::Poll(_));
        self.mode = if polls { Mode::Poll(self.later()) } else { Mode::Resume(self.later()) };
        Ok(Vec::new())
    }

    /// The time of the next attempt.
    fn later(&mut self) -> Instant {
        let at = Instant::now() + self.interval;
        self.interval = self.peer.options().polling.after(self.interval);
        at
    }

    async fn resume(&mut self) -> Result<Vec<Change>, ClientError> {
        let Some(id) = self.view().task_id().map(str::to_owned) else { return Ok(Vec::new()) };
        let opened = match self.peer.get_agent_card().await {
            Ok(card) if !card.streaming => {
                (self.streams, self.mode) = (false, Mode::Poll(Instant::now()));
                return Ok(Vec::new());
            }
            Ok(_) => self.peer.resubscribe_task(&id, self.last).await,
            Err(error) => return self.broken(error),
        };
        match opened {
            Ok(stream) => {
                let expected = self.last.map_or(Expected::Snapshot, Expected::After);
                self.mode = Mode::Stream(Box::new(stream), expected);
            }
            Err(error) if error.is_transient() => return self.broken(error),
            // For example because the task has ended. Reading it tells.
            Err(_) => self.mode = Mode::Poll(Instant::now()),
        }
        Ok(Vec::new())
    }

    async fn poll(&mut self) -> Result<Vec<Change>, ClientError> {
        let Some(id) = self.view().task_id().map(str::to_owned) else { return Ok(Vec::new()) };
        let task = match self.peer.get_task(&id, Some(HISTORY)).await {
            Ok(task) => task,
            Err(error) => return self.broken(error),
        };
        let changes = self.take(StreamItem::Task(Box::new(task)))?;
        self.mode = match self.has_ended() || self.until == Until::StreamEnds {
            true => Mode::Ended,
            false => Mode::Poll(self.later()),
        };
        Ok(changes)
    }
}
