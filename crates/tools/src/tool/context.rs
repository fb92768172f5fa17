//! What a call gets: its session, its directory, its limits, and a way to report progress.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::{Environment, JsonMap, MessageId, SessionId, Skill};
use exec::Exec;
use tokio_util::sync::CancellationToken;

use crate::files::known_files::KnownFiles;
use crate::tool::Need;

/// The context of one call. Cheap to clone.
#[derive(Clone)]
pub struct Context {
    /// The session.
    pub session: SessionId,
    /// The assistant message that contains the call.
    pub message: MessageId,
    /// The call's id.
    pub call_id: String,
    /// The agent that makes the call.
    pub agent: String,
    /// The absolute path of the working directory; relative paths start here.
    pub directory: PathBuf,
    /// The root of the repository, or `/` if there is none. Paths in it count as inside the workspace, except below
    /// `/`.
    pub worktree: PathBuf,
    /// Files: the disk, or an editor's buffers.
    pub env: Arc<dyn Environment>,
    /// Runs processes.
    pub exec: Exec,
    /// Cancels the call.
    pub cancel: CancellationToken,
    /// Receives live updates.
    pub progress: Progress,
    /// Limits and settings.
    pub options: Arc<Options>,
    /// The human's answers, for a tool with questions.
    pub answers: Option<Answers>,
    /// The needs that the engine allowed. If a path leads elsewhere by the time of `run` (a swapped symbolic link), it
    /// is refused.
    pub granted: Arc<[Need]>,
    /// Which files may be read without asking, for tools that open files which the call does not name.
    pub readable: ReadPolicy,
    /// The W3C trace context of the prompt that the call belongs to, if its sender named one.
    pub traceparent: Option<String>,
}

impl Context {
    /// Whether every pattern of a need was allowed for this call.
    pub(crate) fn grants(&self, need: &Need) -> bool {
        need.patterns.iter().all(|pattern| {
            self.granted.iter().any(|given| given.permission == need.permission && given.patterns.contains(pattern))
        })
    }
}

/// Which files may be read without asking: the rules for `read`, as far as tools need them. Cheap to clone.
#[derive(Clone)]
pub struct ReadPolicy(Arc<dyn Fn(&str) -> bool + Send + Sync>);

impl ReadPolicy {
    /// Decides with `judge`, which gets the pattern that rules match a file by.
    pub fn new(judge: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(judge))
    }

    /// Allows no file.
    pub fn nothing() -> Self {
        Self::new(|_| false)
    }

    /// Whether the file with that pattern may be read without asking.
    pub fn without_asking(&self, pattern: &str) -> bool {
        (self.0)(pattern)
    }
}

/// The human's answers to a call's questions.
#[derive(Debug, Clone, PartialEq)]
pub enum Answers {
    /// The chosen labels, per question.
    Given(Vec<Vec<String>>),
    /// The human declined to answer.
    Dismissed,
}

/// Limits and settings for all tools.
#[derive(Debug, Clone)]
pub struct Options {
    /// The maximum number of lines in an output.
    pub max_lines: usize,
    /// The maximum number of bytes in an output.
    pub max_bytes: usize,
    /// The absolute path of the directory for the full text of truncated outputs; empty for none.
    pub output_dir: PathBuf,
    /// The shell that `bash` uses.
    pub shell: PathBuf,
    /// Environment variables for its commands.
    pub shell_env: Vec<(String, String)>,
    /// The default timeout of a command.
    pub bash_timeout: Duration,
    /// The skills that `skill` can load.
    pub skills: Vec<Skill>,
    /// Names of instruction files; the first one found in a folder is used.
    pub instruction_files: Vec<String>,
    /// Instruction files that the model already has.
    pub loaded_instructions: LoadedInstructions,
    /// The versions of files that the agent knows.
    pub known_files: KnownFiles,
    /// Whether `webfetch` may reach private addresses.
    pub allow_private_fetch: bool,
    /// The user agent of `webfetch`.
    pub user_agent: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_lines: 2000,
            max_bytes: 51200,
            output_dir: PathBuf::new(),
            shell: PathBuf::from("/bin/bash"),
            shell_env: Vec::new(),
            bash_timeout: Duration::from_secs(120),
            skills: Vec::new(),
            instruction_files: vec!["AGENTS.md".into(), "CLAUDE.md".into()],
            loaded_instructions: LoadedInstructions::default(),
            known_files: KnownFiles::default(),
            allow_private_fetch: false,
            user_agent: concat!("trefoil/", env!("CARGO_PKG_VERSION")).into(),
        }
    }
}

/// The instruction files that a session's model already has. A handle: clones share the set. The engine creates one per
/// session from the files in the system prompt and `metadata.loaded` of earlier reads.
#[derive(Debug, Clone, Default)]
pub struct LoadedInstructions(Arc<Mutex<HashSet<PathBuf>>>);

impl LoadedInstructions {
    /// A set with these files.
    pub fn new(files: impl IntoIterator<Item = PathBuf>) -> Self {
        Self(Arc::new(Mutex::new(files.into_iter().collect())))
    }

    /// Adds a file; returns false if it was already there.
    pub fn claim(&self, file: &Path) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(file.to_owned())
    }
}

/// Reports live updates of a running call. Cheap to clone; the engine limits the rate.
#[derive(Clone)]
pub struct Progress(Option<Arc<dyn Fn(ProgressUpdate) + Send + Sync>>);

/// One live update.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProgressUpdate {
    /// A new title.
    pub title: Option<String>,
    /// The complete new metadata.
    pub metadata: Option<JsonMap>,
}

impl Progress {
    /// Sends updates to `f`.
    pub fn new(f: impl Fn(ProgressUpdate) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(f)))
    }

    /// Discards updates.
    pub fn none() -> Self {
        Self(None)
    }

    /// Sends an update.
    pub fn send(&self, update: ProgressUpdate) {
        if let Some(f) = &self.0 {
            f(update);
        }
    }
}
