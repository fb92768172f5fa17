//! The seam for subagents whose work is done elsewhere: by another program, or by a peer.
//!
//! A [`Runner`] knows how to reach whoever does the work; the [`Desk`] is where that one reports and asks. The session, its
//! log, the rules and the human stay with us.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::BoxFuture;

use crate::{Json, JsonMap, MessageId, PromptPart, Todo, Usage};

/// Somebody who can do an agent's work elsewhere.
pub trait Runner: Send + Sync {
    /// Does one piece of work to its end. Once [`Desk::stopped`] says so, it ends soon; when the future has ended, nothing
    /// of the work runs any more. If the future is dropped, everything is ended too, as soon as that can be.
    fn run(&self, job: RunnerJob, desk: Arc<dyn Desk>) -> BoxFuture<'_, Result<RunnerEnd, RunnerError>>;
}

/// A piece of work.
#[derive(Debug, Clone)]
pub struct RunnerJob {
    /// What the agent's configuration says for this kind of runner.
    pub settings: JsonMap,
    /// The session's directory: the work is done there, and nowhere else.
    pub directory: PathBuf,
    /// Variables of our environment that a program which does the work does not get; a star stands for anything.
    pub hidden: Vec<String>,
    /// What shall be done. Nothing if it was handed over before and a restart cut it off: then the work goes on.
    pub prompt: Vec<PromptPart>,
    /// What was kept of earlier work of the same session ([`RunnerNews::Begun`] and later).
    pub kept: Option<Json>,
}

/// How work ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunnerEnd {
    /// With an answer.
    Done,
    /// The answer is cut off: it became too long.
    Length,
    /// It was refused.
    Refused,
    /// It was stopped.
    Stopped,
}

/// Why work failed; the text is for models and humans.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RunnerError(pub String);

/// What whoever works tells.
#[derive(Debug, Clone, PartialEq)]
pub enum RunnerNews {
    /// The prompt is about to be handed over; from now on the work may have happened. This is kept, and comes back with the
    /// session's next job.
    Begun(Json),
    /// A message for the running work was taken in.
    Steered(MessageId),
    /// Its answer grows.
    Text(String),
    /// Its thoughts grow.
    Reasoning(String),
    /// A call appeared or changed; everything that is known of it.
    Call(RunnerCall),
    /// It does not want to know any more whether that call may be done.
    Withdrawn(String),
    /// Its plan, whole.
    Todos(Vec<Todo>),
    /// What was used so far for this job, and what shall be kept from now on.
    Used {
        /// Money as it was reported, and tokens; what is estimated says so.
        used: Usage,
        /// Kept as that of [`RunnerNews::Begun`].
        kept: Json,
    },
    /// It rests. Only for the desk of a [subagent](Desk::child), which is closed then: the work itself ends with
    /// [`Runner::run`].
    Rests(Result<RunnerEnd, RunnerError>),
}

/// A subagent of whoever works.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunnerChild {
    /// Its id there.
    pub id: String,
    /// What it does, in short.
    pub title: String,
    /// What it was told to do, if that is known.
    pub prompt: Option<String>,
    /// The id of the call that waits for it, if there is one.
    pub call: Option<String>,
    /// Whether it can be stopped alone.
    pub stops: bool,
}

/// Where a subagent of whoever works reports and asks.
#[derive(Clone)]
pub struct RunnerSeat {
    /// Its own desk.
    pub desk: Arc<dyn Desk>,
    /// What was kept of its earlier work ([`RunnerNews::Used`]).
    pub kept: Option<Json>,
}

/// How far a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RunnerCallState {
    /// It has not begun.
    #[default]
    Pending,
    /// It runs.
    Running,
    /// It ended with a result.
    Completed,
    /// It ended without one.
    Failed,
}

/// A file that a call changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunnerChange {
    /// Which, absolute.
    pub path: PathBuf,
    /// What was there, as far as it is shown; nothing for a new file.
    pub old: Option<String>,
    /// What is there then.
    pub new: String,
}

/// A call of a tool, in the words of our own tools where there is one of its kind.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunnerCall {
    /// Its id there.
    pub id: String,
    /// The tool: one of ours if it does the same, else its name there.
    pub tool: String,
    /// A headline.
    pub title: String,
    /// The arguments, as our tool would have them if it is one of ours.
    pub input: JsonMap,
    /// How far it is.
    pub state: RunnerCallState,
    /// What came out so far.
    pub output: String,
    /// What it changes.
    pub changes: Vec<RunnerChange>,
    /// Further facts for clients.
    pub metadata: JsonMap,
}

/// What was decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunnerAnswer {
    /// It may be done.
    Allowed,
    /// It may not, and why.
    Rejected(String),
    /// The work was stopped meanwhile.
    Stopped,
}

/// A message for work that runs.
#[derive(Debug, Clone)]
pub struct RunnerSteer {
    /// Its id.
    pub id: MessageId,
    /// What it says.
    pub parts: Vec<PromptPart>,
}

/// Where whoever works elsewhere reports and asks. Nothing happens behind its back: what is told is durable when the future
/// ends, what is asked is decided by the session's rules first, then by a human.
pub trait Desk: Send + Sync {
    /// Takes news, in their order. An error ends the work.
    fn tell(&self, news: RunnerNews) -> BoxFuture<'_, Result<(), RunnerError>>;
    /// Whether a call may be done.
    fn ask(&self, call: RunnerCall) -> BoxFuture<'_, RunnerAnswer>;
    /// The content of a file, as the session sees it; else why not.
    fn read<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<Vec<u8>, String>>;
    /// Writes a file; else says why not.
    fn write<'a>(&'a self, path: &'a Path, content: &'a [u8]) -> BoxFuture<'a, Result<(), String>>;
    /// Whether a command line may run in a folder; else why not.
    fn execute<'a>(&'a self, command: &'a str, directory: &'a Path) -> BoxFuture<'a, Result<(), String>>;
    /// Waits until the work shall end.
    fn stopped(&self) -> BoxFuture<'_, ()>;
    /// Waits for a message for the running work. Nothing is lost if the future is dropped, and a message comes again until
    /// it was [taken in](RunnerNews::Steered); what is never taken in is the next job.
    fn steered(&self) -> BoxFuture<'_, RunnerSteer>;
    /// A subagent of whoever works here works: it gets a session below this one, the same one for the same id, and a desk
    /// of its own until it [rests](RunnerNews::Rests). Told again, what is known of it is brought up to date. An error says
    /// why there is no room for it; the work goes on.
    fn child(&self, child: RunnerChild) -> BoxFuture<'_, Result<RunnerSeat, RunnerError>>;
}
