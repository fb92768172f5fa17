//! One job: sends the message, reports what the agent does, gets its requests answered, and ends with its task.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::{MessageId, RunnerContext, RunnerEnd, RunnerError, RunnerJob, RunnerMessage, RunnerUpdate, Usage};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::asks::{Outcome, Request};
use super::progress;
use super::saved::{Progress, Saved};
use crate::SendRequest;
use crate::client::{Change, ClientError, Follower, Peer, request_of};
use crate::error::ErrorKind;
use crate::model::{Part, TaskState, TaskStatus};

/// How long a cancelled task may take to confirm it. The engine waits a little longer.
const CANCEL_WAIT: Duration = Duration::from_secs(5);
/// How long a job that is left alone waits for the id of its task.
const PARK_WAIT: Duration = Duration::from_millis(1500);
/// Requests of the agent that may be open at the same time.
const MAX_ASKS: usize = 64;

/// A job.
pub(super) struct Job {
    peer: Peer,
    context: Arc<dyn RunnerContext>,
    silence: Duration,
    saved: Saved,
    /// The trace context of who gave the job.
    traceparent: Option<String>,
    /// What the task has used so far.
    used: Usage,
    /// The open requests of the agent, by its ids.
    open: HashMap<String, OpenRequest>,
    /// Requests that wait for an answer, each on its own task.
    asks: JoinSet<(String, Outcome)>,
}

struct OpenRequest {
    call: String,
    withdrawn: CancellationToken,
}

/// Why a job does not go on.
enum JobEnd {
    Ended(RunnerEnd),
    /// The agent failed.
    Failed(RunnerError),
    /// The session takes no more.
    Refused(RunnerError),
}

impl From<RunnerError> for JobEnd {
    fn from(error: RunnerError) -> Self {
        Self::Refused(error)
    }
}

impl Job {
    pub fn new(peer: Peer, context: Arc<dyn RunnerContext>, silence: Duration) -> Self {
        let saved = Saved { url: peer.url().to_string(), ..Saved::default() };
        let (used, open, asks) = (Usage::default(), HashMap::new(), JoinSet::new());
        Self { peer, context, silence, saved, traceparent: None, used, open, asks }
    }

    pub async fn run(mut self, job: &RunnerJob) -> Result<RunnerEnd, RunnerError> {
        self.traceparent.clone_from(&job.traceparent);
        let context = self.context.clone();
        let begun = tokio::select! {
            biased;
            () = context.stopped() => return Ok(RunnerEnd::Stopped),
            begun = self.begin(job) => begun,
        };
        let mut follower = begun?;
        let ended = self.follow(&mut follower).await;
        self.asks.abort_all();
        match ended {
            JobEnd::Ended(end) => Ok(end),
            JobEnd::Failed(error) => Err(error),
            JobEnd::Refused(error) => {
                follower.cancel(CANCEL_WAIT).await;
                Err(error)
            }
        }
    }

    /// Sends the message, or finds the task of an interrupted job.
    async fn begin(&mut self, job: &RunnerJob) -> Result<Follower, RunnerError> {
        let saved = Saved::read(job.kept.as_ref(), &self.saved.url);
        if job.prompt.is_empty() {
            let Some((saved, task)) = saved.and_then(|saved| Some((saved.clone(), saved.task?))) else {
                return Err(RunnerError(
                    "It was interrupted while it handed the task over, so whether the agent works on it is not known. \
                     Check before you repeat the task"
                        .to_owned(),
                ));
            };
            self.saved = saved;
            self.started().await?;
            return Ok(self.peer.follow_task(&task));
        }
        let saved = saved.unwrap_or_else(|| self.saved.clone());
        let unfinished = saved.task.clone().filter(|_| saved.progress != Progress::Done);
        let goes_on = match &unfinished {
            // An unfinished task takes a further message, unless it has ended meanwhile.
            Some(task) => match self.peer.get_task(task, Some(0)).await {
                Ok(task) => !task.status.state.is_terminal(),
                Err(error) if is_missing(&error) => false,
                Err(error) => return Err(failure(&self.peer, &error)),
            },
            None => false,
        };
        self.saved = match goes_on {
            true => saved,
            false => Saved { url: saved.url, context: saved.context, ..Saved::default() },
        };
        self.started().await?;
        let task = self.saved.task.as_deref().filter(|_| goes_on);
        Ok(self.peer.follow(self.request(progress::parts(&job.prompt), task)))
    }

    /// A message of the job's conversation.
    fn request(&self, parts: Vec<Part>, task: Option<&str>) -> SendRequest {
        let traceparent = self.traceparent.clone();
        SendRequest { traceparent, ..request_of(parts, self.saved.context.as_deref(), task) }
    }

    /// Reports that the prompt is about to be handed over.
    async fn started(&self) -> Result<(), RunnerError> {
        self.context.tell(RunnerUpdate::Started(json!(self.saved))).await
    }

    /// Saves how far the job is.
    async fn save(&mut self) -> Result<(), RunnerError> {
        let used = self.saved.since(&self.used);
        // What was reported before a restart is not reported again, so the baseline stays as it was when the job began.
        let mut kept = self.saved.clone();
        if self.used != Usage::default() {
            (kept.cost, kept.tokens) = (self.saved.cost + used.cost.0, self.used.tokens.clone());
        }
        self.context.tell(RunnerUpdate::Usage { used, kept: json!(kept) }).await
    }

    async fn follow(&mut self, follower: &mut Follower) -> JobEnd {
        let context = self.context.clone();
        let mut next_message = std::pin::pin!(context.steered());
        let mut steering = FuturesUnordered::new();
        let mut can_steer = true;
        let mut limit = Instant::now() + self.silence;
        loop {
            let is_working = matches!(follower.view().state(), Some(TaskState::Working | TaskState::Submitted));
            let steers = can_steer && is_working && self.open.is_empty() && steering.is_empty();
            let step = tokio::select! {
                biased;
                () = context.stopped() => return self.stop(follower).await,
                changes = follower.next() => {
                    limit = Instant::now() + self.silence;
                    match changes {
                        Some(Ok(changes)) => self.changed(changes, follower).await,
                        Some(Err(error)) => Err(JobEnd::Failed(self.failed(&error, follower))),
                        None => return self.ended(follower).await,
                    }
                }
                Some(settled) = self.asks.join_next() => {
                    limit = Instant::now() + self.silence;
                    match settled {
                        Ok((id, outcome)) => self.settled(&id, outcome, follower).await,
                        Err(_) => Ok(()),
                    }
                }
                message = &mut next_message, if steers => {
                    let request = self.request(progress::parts(&message.parts), self.saved.task.as_deref());
                    steering.push(steer(self.peer.clone(), request, message));
                    next_message.set(context.steered());
                    Ok(())
                }
                Some((id, sent)) = steering.next() => match sent {
                    Ok(()) => context.tell(RunnerUpdate::Steered(id)).await.map_err(JobEnd::from),
                    Err(error) => {
                        tracing::info!(%error, "the agent takes no messages now; it gets them later");
                        can_steer = false;
                        Ok(())
                    }
                },
                () = tokio::time::sleep_until(limit) => match self.open.is_empty() {
                    true => {
                        follower.cancel(CANCEL_WAIT).await;
                        let seconds = self.silence.as_secs();
                        let why = format!("it said nothing for {seconds} s (\"silence\" gives it more)");
                        Err(self.failure(&why))
                    }
                    // The user is deciding.
                    false => {
                        limit = Instant::now() + self.silence;
                        Ok(())
                    }
                },
            };
            if let Err(end) = step {
                return end;
            }
        }
    }

    /// Reports what is new.
    async fn changed(&mut self, changes: Vec<Change>, follower: &mut Follower) -> Result<(), JobEnd> {
        self.note_ids(follower).await?;
        for change in changes {
            let update = match change {
                Change::Text(text) => RunnerUpdate::Text(text),
                Change::Reasoning(text) => RunnerUpdate::Reasoning(text),
                Change::Part(part) => RunnerUpdate::Text(progress::describe_part(&part)),
                Change::ToolCall(data) => match progress::call(&data) {
                    Some(call) => RunnerUpdate::Call(call),
                    None => continue,
                },
                Change::Usage(usage) => {
                    self.used = progress::usage(&usage);
                    self.save().await?;
                    continue;
                }
                Change::Interrupt(interrupt) => {
                    let about = follower.view().status_text();
                    if let Some(request) = Request::of_interrupt(&interrupt, about.as_deref()) {
                        self.ask(request).await?;
                    }
                    continue;
                }
                Change::Resolved(id) => {
                    self.withdraw(&id).await?;
                    continue;
                }
                Change::Status(status) => {
                    self.status(&status, follower).await?;
                    continue;
                }
            };
            self.context.tell(update).await?;
        }
        Ok(())
    }

    async fn status(&mut self, status: &TaskStatus, follower: &mut Follower) -> Result<(), JobEnd> {
        let words = follower.view().status_text();
        match status.state {
            TaskState::Submitted | TaskState::Working => {
                // A question in plain words has been answered by somebody else.
                let plain: Vec<String> = self.open.keys().filter(|id| id.starts_with(PLAIN)).cloned().collect();
                for id in plain {
                    self.withdraw(&id).await?;
                }
                if let Some(words) = words {
                    self.context.tell(RunnerUpdate::Reasoning(format!("{words}\n"))).await?;
                }
                Ok(())
            }
            TaskState::InputRequired if self.open.is_empty() => {
                let id = status.message.as_ref().map(|message| message.message_id.as_str()).unwrap_or_default();
                let text =
                    words.unwrap_or_else(|| "The agent needs an answer, and does not say what it asks.".to_owned());
                self.ask(Request::of_words(&format!("{PLAIN}{id}"), &text)).await
            }
            TaskState::AuthRequired => {
                self.saved.progress = Progress::Waits;
                self.save().await?;
                let words = words.unwrap_or_else(|| "it does not say which".to_owned());
                let why = format!("it needs credentials: {words}. Send it a message when it has them");
                Err(self.failure(&why))
            }
            _ => Ok(()),
        }
    }

    /// Saves the ids of context and task once they are known.
    async fn note_ids(&mut self, follower: &mut Follower) -> Result<(), RunnerError> {
        let (context, task) = (follower.view().context_id(), follower.view().task_id());
        let is_known = self.saved.task.as_deref() == task && self.saved.progress != Progress::Sent;
        if task.is_none() || is_known && (context.is_none() || self.saved.context.as_deref() == context) {
            return Ok(());
        }
        self.saved.task = task.map(str::to_owned);
        self.saved.context = context.map(str::to_owned).or_else(|| self.saved.context.take());
        self.saved.progress = Progress::Running;
        self.save().await
    }

    /// Gets a request decided on its own task: waiting for an answer must not delay what else the agent says.
    async fn ask(&mut self, request: Request) -> Result<(), JobEnd> {
        if self.open.len() >= MAX_ASKS || self.open.contains_key(&request.id) {
            return Ok(());
        }
        // Report the call first: the user must see what the question is about.
        self.context.tell(RunnerUpdate::Call(request.call.clone())).await?;
        let (id, call, withdrawn) = (request.id.clone(), request.call.id.clone(), CancellationToken::new());
        self.open.insert(id.clone(), OpenRequest { call, withdrawn: withdrawn.clone() });
        let settled = request.settle(self.context.clone(), self.peer.clone(), withdrawn);
        self.asks.spawn(async move { (id, settled.await) });
        Ok(())
    }

    /// Somebody else has answered.
    async fn withdraw(&mut self, id: &str) -> Result<(), JobEnd> {
        let Some(open) = self.open.remove(id) else { return Ok(()) };
        open.withdrawn.cancel();
        self.context.tell(RunnerUpdate::CallWithdrawn(open.call)).await?;
        Ok(())
    }

    async fn settled(&mut self, id: &str, outcome: Outcome, follower: &mut Follower) -> Result<(), JobEnd> {
        if self.open.remove(id).is_none() {
            return Ok(());
        }
        match outcome {
            Outcome::Settled(call) => self.context.tell(RunnerUpdate::Call(call)).await?,
            Outcome::Message(call, text) => {
                self.context.tell(RunnerUpdate::Call(call)).await?;
                follower.send(self.request(vec![Part::text(text)], self.saved.task.as_deref()));
            }
            Outcome::Unanswered(call, why) => {
                self.context.tell(RunnerUpdate::Call(call)).await?;
                follower.cancel(CANCEL_WAIT).await;
                self.done().await?;
                return Err(self.failure(&format!("it asked something, and has no answer: {why}")));
            }
            Outcome::Failed(error) => return Err(JobEnd::Failed(failure(&self.peer, &error))),
            Outcome::Dropped => {}
        }
        Ok(())
    }

    /// The task has ended, or the agent has answered without one.
    async fn ended(&mut self, follower: &mut Follower) -> JobEnd {
        if let Err(error) = self.done().await {
            return error.into();
        }
        let words = follower.view().status_text();
        let because = || words.unwrap_or_else(|| "it does not say why".to_owned());
        match follower.view().state() {
            Some(TaskState::Completed) => JobEnd::Ended(RunnerEnd::Done),
            Some(TaskState::Canceled) => JobEnd::Ended(RunnerEnd::Stopped),
            Some(TaskState::Rejected) => self.failure(&format!("it declined: {}", because())),
            Some(TaskState::Failed) => self.failure(&because()),
            _ => self.failure("its answer ended before its task"),
        }
    }

    /// Saves that nothing of the task is left to do.
    async fn done(&mut self) -> Result<(), RunnerError> {
        self.saved.progress = Progress::Done;
        self.save().await
    }

    /// Cancels the task, unless the next process goes on with it.
    async fn stop(&mut self, follower: &mut Follower) -> JobEnd {
        self.asks.abort_all();
        let stopped = match self.context.is_parked() {
            true => {
                let known = async {
                    while follower.view().task_id().is_none() && matches!(follower.next().await, Some(Ok(_))) {}
                };
                // If it stays unknown, the next process says so.
                let _ = tokio::time::timeout(PARK_WAIT, known).await;
                self.note_ids(follower).await
            }
            false => {
                if !follower.cancel(CANCEL_WAIT).await {
                    tracing::warn!(url = %self.peer.url(), "the agent did not confirm that its task is cancelled");
                }
                self.done().await
            }
        };
        if let Err(error) = stopped {
            tracing::debug!(%error, "the end of the job cannot be saved");
        }
        JobEnd::Ended(RunnerEnd::Stopped)
    }

    fn failed(&self, error: &ClientError, follower: &mut Follower) -> RunnerError {
        match follower.view().task_id() {
            None if error.is_transient() => RunnerError(format!(
                "The agent at {} failed: {error}. Whether it got the message is not known; check before you repeat it",
                host(&self.peer)
            )),
            _ => failure(&self.peer, error),
        }
    }

    fn failure(&self, why: &str) -> JobEnd {
        JobEnd::Failed(RunnerError(format!("The agent at {} failed: {why}", host(&self.peer))))
    }
}

/// The beginning of the ids of questions in plain words.
const PLAIN: &str = "words:";

/// Sends a further message to the task.
async fn steer(peer: Peer, mut request: SendRequest, message: RunnerMessage) -> (MessageId, Result<(), ClientError>) {
    // The same message never counts twice with an agent that knows its id.
    request.message.message_id = message.id.to_string();
    (message.id, peer.post_message(request).await)
}

fn is_missing(error: &ClientError) -> bool {
    matches!(error, ClientError::Peer { error, .. } if matches!(error.kind, ErrorKind::TaskNotFound | ErrorKind::PathNotFound))
}

fn failure(peer: &Peer, error: &ClientError) -> RunnerError {
    RunnerError(format!("The agent at {} failed: {error}", host(peer)))
}

/// What of a URL holds no secret.
fn host(peer: &Peer) -> String {
    let url = peer.url();
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}
