//! The seam for subagents whose work is done elsewhere: by another program, or by a remote peer.
//!
//! A [`Runner`] knows how to reach the worker; through the [`RunnerContext`] the worker reports progress and asks for
//! permission. The session, its log, the rules and the human stay with us.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::BoxFuture;

use crate::{Json, JsonMap, MessageId, PromptPart, Question, Todo, Usage};

/// Runs an agent's jobs elsewhere.
pub trait Runner: Send + Sync {
    /// Runs one job to its end. It ends soon after [`RunnerContext::stopped`] resolves, and when the future resolves,
    /// nothing of the job is running any more. Dropping the future stops everything as well, as soon as possible.
    fn run(&self, job: RunnerJob, context: Arc<dyn RunnerContext>) -> BoxFuture<'_, Result<RunnerEnd, RunnerError>>;
}

/// A job for a runner.
#[derive(Debug, Clone)]
pub struct RunnerJob {
    /// The agent's configuration for this kind of runner.
    pub settings: JsonMap,
    /// The session's directory: the worker must not leave it.
    pub directory: PathBuf,
    /// Environment variables that the worker's program must not inherit; `*` matches anything.
    pub hidden: Vec<String>,
    /// What to do. Empty if the prompt was handed over before a restart interrupted the job: then the job continues.
    pub prompt: Vec<PromptPart>,
    /// What earlier jobs of the same session saved ([`RunnerUpdate::Started`] and later).
    pub kept: Option<Json>,
    /// The W3C trace context of the prompt's sender, if it has one. Workers elsewhere go on with it.
    pub traceparent: Option<String>,
}

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunnerEnd {
    /// With an answer.
    Done,
    /// The answer was cut off because it became too long.
    Length,
    /// It was refused.
    Refused,
    /// It was stopped.
    Stopped,
}

/// Why a job failed; the text is for models and people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RunnerError(pub String);

/// Progress reported by a runner.
#[derive(Debug, Clone, PartialEq)]
pub enum RunnerUpdate {
    /// The prompt is about to be handed over; from now on the work may have happened. The value is saved, and returned
    /// with the session's next job.
    Started(Json),
    /// A message for the running job was delivered.
    Steered(MessageId),
    /// More text of the answer.
    Text(String),
    /// More reasoning.
    Reasoning(String),
    /// A tool call started or changed; contains everything known about it.
    Call(RunnerCall),
    /// The worker no longer needs a decision about that call.
    CallWithdrawn(String),
    /// The complete todo list.
    Todos(Vec<Todo>),
    /// The total usage of this job so far, and what to save from now on.
    Usage {
        /// Cost and tokens; estimates are marked as such.
        used: Usage,
        /// Saved like the value of [`RunnerUpdate::Started`].
        kept: Json,
    },
    /// A subagent has finished. Only for the context of a [child](RunnerContext::child), which it closes; the job
    /// itself ends with [`Runner::run`].
    Finished(Result<RunnerEnd, RunnerError>),
}

/// A subagent of the worker.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunnerChild {
    /// The worker's id for it.
    pub id: String,
    /// A short description of what it does.
    pub title: String,
    /// Its prompt, if known.
    pub prompt: Option<String>,
    /// The id of the tool call that waits for it, if there is one.
    pub call: Option<String>,
    /// Whether it can be stopped separately.
    pub stops: bool,
}

/// The handle of a worker's subagent.
#[derive(Clone)]
pub struct RunnerChildHandle {
    /// Its own context.
    pub context: Arc<dyn RunnerContext>,
    /// What it saved before ([`RunnerUpdate::Usage`]).
    pub kept: Option<Json>,
}

/// The state of a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RunnerCallState {
    /// It has not started.
    #[default]
    Pending,
    /// It is running.
    Running,
    /// It succeeded.
    Completed,
    /// It failed.
    Failed,
}

/// A file that a call changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunnerChange {
    /// The absolute path.
    pub path: PathBuf,
    /// The previous text, as far as it is shown; `None` for a new file.
    pub old: Option<String>,
    /// The new text.
    pub new: String,
}

/// A tool call, in terms of our own tools where one is equivalent.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunnerCall {
    /// The worker's id for it.
    pub id: String,
    /// The tool: one of ours if it is equivalent, otherwise the worker's name for it.
    pub tool: String,
    /// A title.
    pub title: String,
    /// The arguments, in our tool's form if it is one of ours.
    pub input: JsonMap,
    /// Its state.
    pub state: RunnerCallState,
    /// Its output so far.
    pub output: String,
    /// The files it changes.
    pub changes: Vec<RunnerChange>,
    /// Additional data for clients.
    pub metadata: JsonMap,
}

/// The decision about a tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunnerDecision {
    /// It may run.
    Allowed,
    /// It may not, and why.
    Rejected(String),
    /// The job was stopped in the meantime.
    Stopped,
}

/// The human's answers to a worker's questions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunnerAnswers {
    /// The chosen labels, or the human's own words, per question.
    Given(Vec<Vec<String>>),
    /// There is no answer, and why.
    Dismissed(String),
    /// The job was stopped in the meantime.
    Stopped,
}

/// A message for a running job.
#[derive(Debug, Clone)]
pub struct RunnerMessage {
    /// Its id.
    pub id: MessageId,
    /// Its content.
    pub parts: Vec<PromptPart>,
}

/// The session as a worker sees it. Updates are durable when the future resolves; requests are decided by the session's
/// rules first, then by a human.
pub trait RunnerContext: Send + Sync {
    /// Reports progress; updates must arrive in order. An error ends the job.
    fn tell(&self, update: RunnerUpdate) -> BoxFuture<'_, Result<(), RunnerError>>;
    /// Decides whether a tool call may run.
    fn ask(&self, call: RunnerCall) -> BoxFuture<'_, RunnerDecision>;
    /// Asks the human questions, shown as a tool call.
    fn question(&self, call: RunnerCall, questions: Vec<Question>) -> BoxFuture<'_, RunnerAnswers>;
    /// Reads a file as the session sees it, or says why it cannot.
    fn read<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<Vec<u8>, String>>;
    /// Writes a file, or says why it cannot.
    fn write<'a>(&'a self, path: &'a Path, content: &'a [u8]) -> BoxFuture<'a, Result<(), String>>;
    /// Checks whether a command line may run in a directory, or says why not.
    fn execute<'a>(&'a self, command: &'a str, directory: &'a Path) -> BoxFuture<'a, Result<(), String>>;
    /// Waits until the job must stop.
    fn stopped(&self) -> BoxFuture<'_, ()>;
    /// Whether the job stops only because this process ends. The next process continues it, so work that goes on elsewhere
    /// need not stop.
    fn is_parked(&self) -> bool;
    /// Waits for a message for the running job. Dropping the future loses nothing: a message is returned again until it
    /// was [delivered](RunnerUpdate::Steered), and one that is never delivered becomes the next job.
    fn steered(&self) -> BoxFuture<'_, RunnerMessage>;
    /// Registers a subagent of the worker: it gets a session below this one (always the same for the same id) and a
    /// context of its own until it has [finished](RunnerUpdate::Finished). Calling it again updates what is known about
    /// it. An error says why there is no room for it; the job continues.
    fn child(&self, child: RunnerChild) -> BoxFuture<'_, Result<RunnerChildHandle, RunnerError>>;
}
