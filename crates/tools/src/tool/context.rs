//! What a call is given: its session, its place on disk, its limits, and a way to report progress.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::{Environment, JsonMap, MessageId, SessionId, Skill};
use exec::Exec;
use tokio_util::sync::CancellationToken;

use crate::files::known_files::KnownFiles;
use crate::tool::Need;

/// The surroundings of one call. Cheap to clone.
#[derive(Clone)]
pub struct Context {
    /// The session.
    pub session: SessionId,
    /// The assistant message that calls.
    pub message: MessageId,
    /// The call.
    pub call_id: String,
    /// The agent that calls.
    pub agent: String,
    /// Where the agent works, absolute; relative paths start here.
    pub directory: PathBuf,
    /// The root of the repository; `/` where there is none. Paths in it count as inside, except below `/`.
    pub worktree: PathBuf,
    /// Files: the disk, or an editor's buffers.
    pub env: Arc<dyn Environment>,
    /// Runs processes.
    pub exec: Exec,
    /// Ends the call.
    pub cancel: CancellationToken,
    /// Where live updates go.
    pub progress: Progress,
    /// Limits and settings.
    pub options: Arc<Options>,
    /// What the human answered, for a tool with questions.
    pub answers: Option<Answers>,
    /// What the engine allowed: the answer of `needs`. A path that is something else by the time of `run` (a swapped
    /// symbolic link) is refused.
    pub granted: Arc<[Need]>,
    /// Which files may be read without asking, for tools that look into files that the call does not name.
    pub readable: Readable,
}

impl Context {
    /// Whether every pattern of that need was allowed for this call.
    pub(crate) fn grants(&self, need: &Need) -> bool {
        need.patterns.iter().all(|pattern| {
            self.granted.iter().any(|given| given.permission == need.permission && given.patterns.contains(pattern))
        })
    }
}

/// Which files may be read without asking anybody: the rules for `read`, as far as a tool needs to know them. Cheap to clone.
#[derive(Clone)]
pub struct Readable(Arc<dyn Fn(&str) -> bool + Send + Sync>);

impl Readable {
    /// Asks `judge`, with the pattern that rules know a file by.
    pub fn new(judge: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(judge))
    }

    /// No file.
    pub fn nothing() -> Self {
        Self::new(|_| false)
    }

    /// Whether the file with that pattern may be read without asking.
    pub fn without_asking(&self, pattern: &str) -> bool {
        (self.0)(pattern)
    }
}

/// What the human said to the questions of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Answers {
    /// The chosen labels, per question.
    Given(Vec<Vec<String>>),
    /// No answer is wanted.
    Dismissed,
}

/// Limits and settings of all tools.
#[derive(Debug, Clone)]
pub struct Options {
    /// Lines of one output.
    pub max_lines: usize,
    /// Bytes of one output.
    pub max_bytes: usize,
    /// Where the full text of a longer output goes, absolute; if it is empty, nowhere.
    pub output_dir: PathBuf,
    /// The shell of `bash`.
    pub shell: PathBuf,
    /// Variables for its commands.
    pub shell_env: Vec<(String, String)>,
    /// How long a command may take, unless the call says otherwise.
    pub bash_timeout: Duration,
    /// What `skill` can load.
    pub skills: Vec<Skill>,
    /// Names of instruction files; the first that a folder has is used.
    pub instruction_files: Vec<String>,
    /// Instruction files that the model was given already.
    pub loaded_instructions: Loaded,
    /// Which contents of files the agent knows.
    pub known_files: KnownFiles,
    /// Whether `webfetch` may reach private addresses.
    pub allow_private_fetch: bool,
    /// How `webfetch` names itself.
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
            loaded_instructions: Loaded::default(),
            known_files: KnownFiles::default(),
            allow_private_fetch: false,
            user_agent: concat!("trefoil/", env!("CARGO_PKG_VERSION")).into(),
        }
    }
}

/// The instruction files that a session's model knows. A handle: clones share the set. The engine makes one per session
/// from the files of the system prompt and `metadata.loaded` of earlier reads.
#[derive(Debug, Clone, Default)]
pub struct Loaded(Arc<Mutex<HashSet<PathBuf>>>);

impl Loaded {
    /// A set that knows these files.
    pub fn new(files: impl IntoIterator<Item = PathBuf>) -> Self {
        Self(Arc::new(Mutex::new(files.into_iter().collect())))
    }

    /// Adds a file; false if it was known.
    pub fn claim(&self, file: &Path) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(file.to_owned())
    }
}

/// Live updates of a running call. Cheap to clone; the engine limits the rate.
#[derive(Clone)]
pub struct Progress(Option<Arc<dyn Fn(ProgressUpdate) + Send + Sync>>);

/// One live update.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProgressUpdate {
    /// A new title.
    pub title: Option<String>,
    /// The whole new metadata.
    pub metadata: Option<JsonMap>,
}

impl Progress {
    /// Updates go to `f`.
    pub fn new(f: impl Fn(ProgressUpdate) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(f)))
    }

    /// Nobody looks.
    pub fn none() -> Self {
        Self(None)
    }

    /// Sends one.
    pub fn send(&self, update: ProgressUpdate) {
        if let Some(f) = &self.0 {
            f(update);
        }
    }
}
