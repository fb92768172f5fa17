//! The editor's files and terminals as an [`Environment`] for the engine of this process.

mod pending;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_client_protocol_schema::v1::{
    CreateTerminalRequest, CreateTerminalResponse, EnvVariable, KillTerminalRequest, ReadTextFileRequest,
    ReadTextFileResponse, ReleaseTerminalRequest, TerminalId, TerminalOutputRequest, TerminalOutputResponse,
    WaitForTerminalExitRequest, WaitForTerminalExitResponse, WriteTextFileRequest,
};
use api::{Content, Environment, EnvironmentError, SessionId, Terminal, TerminalCommand, TerminalExit, TerminalOutput};
use futures::future::BoxFuture;
use serde_json::Value;

pub use pending::{FileChange, PendingChanges, RecentReads, ShownTerminals};

use crate::capabilities::Capabilities;
use crate::rpc::{Error, Peer, Timeout};
use crate::{lock, size};

/// How long an editor may take to read or write a file, or to open a terminal.
const REQUEST_TIMEOUT: Timeout = Timeout::After(Duration::from_secs(30));
/// The longest text that the editor writes; a longer one goes to the disk.
const MAX_TEXT: usize = 900 << 10;
/// Files that one tool call caches, and their total bytes; the editor is asked again for anything beyond.
const MAX_CACHED_FILES: usize = 64;
const MAX_CACHED_BYTES: usize = 8 << 20;

/// What a session sees: the editor's files where it has them, the disk elsewhere.
pub struct EditorEnvironment {
    /// The editor.
    pub peer: Peer,
    /// What it can do.
    pub capabilities: Capabilities,
    /// The session's id in the editor.
    pub session: SessionId,
    /// The folders that the editor has open.
    pub roots: Vec<PathBuf>,
    /// All other files.
    pub disk: Arc<dyn Environment>,
    /// Collects changes until the client is shown them.
    pub changes: PendingChanges,
    /// Keeps recently read texts for permission requests about them.
    pub recent_reads: RecentReads,
    /// The terminals that the client was shown.
    pub shown_terminals: ShownTerminals,
    /// How many files were written so far.
    pub writes: AtomicU64,
}

impl EditorEnvironment {
    fn contains(&self, path: &Path) -> bool {
        self.roots.iter().any(|root| path.starts_with(root))
    }

    /// The text that the editor shows, saved or not; `None` if it gives no text, and then the disk counts.
    async fn read_buffer(&self, path: &Path) -> Option<String> {
        let request = ReadTextFileRequest::new(self.session.to_string(), path);
        match self.peer.request::<ReadTextFileResponse>("fs/read_text_file", &request, REQUEST_TIMEOUT).await {
            Ok(answer) => Some(answer.content),
            Err(error) => {
                tracing::debug!(%error, path = %path.display(), "the editor gave no text");
                None
            }
        }
    }

    async fn read(&self, path: &Path) -> Result<Vec<u8>, EnvironmentError> {
        match self.content(path).await? {
            Content::Whole(content) => Ok(content),
            // Returns the disk's error.
            Content::Large { .. } => self.disk.read(path).await,
        }
    }

    /// A file as the editor has it. One that is too large to hold in memory always comes from the disk: an editor would
    /// have to load all of it to return a part.
    async fn content(&self, path: &Path) -> Result<Content, EnvironmentError> {
        let stored = self.disk.open(path).await;
        let may_be_text = match &stored {
            Ok(Content::Whole(content)) => std::str::from_utf8(content).is_ok_and(|text| !text.contains('\0')),
            Ok(Content::Large { .. }) => false,
            Err(error) => is_missing(error),
        };
        if !(self.capabilities.read_files && may_be_text && self.contains(path)) {
            return stored;
        }
        self.read_buffer(path).await.map(|text| Content::Whole(text.into_bytes())).map_or(stored, Ok)
    }

    /// Writes a file, given its content before.
    async fn replace(
        &self,
        path: &Path,
        before: Result<Content, EnvironmentError>,
        content: &[u8],
    ) -> Result<(), EnvironmentError> {
        self.writes.fetch_add(1, Ordering::AcqRel);
        let text = std::str::from_utf8(content).ok();
        let old = match before {
            Ok(Content::Whole(old)) => Some(String::from_utf8(old)),
            // The client is shown its diff instead.
            Ok(Content::Large { .. }) => return self.disk.write(path, content).await,
            Err(_) => None,
        };
        match text
            .filter(|text| self.capabilities.write_files && self.contains(path) && size::json_len(text) <= MAX_TEXT)
        {
            Some(text) => {
                let request = WriteTextFileRequest::new(self.session.to_string(), path, text);
                let written = self.peer.request::<Value>("fs/write_text_file", &request, REQUEST_TIMEOUT).await;
                written.map_err(|error| refused_error(path, &error))?;
            }
            None => self.disk.write(path, content).await?,
        }
        if let (Some(new), Ok(old)) = (text, old.transpose()) {
            self.changes.put(FileChange { path: path.to_owned(), old, new: new.to_owned() });
        }
        Ok(())
    }

    async fn create_terminal(&self, command: TerminalCommand) -> Result<Option<Box<dyn Terminal>>, EnvironmentError> {
        if !self.capabilities.terminals {
            return Ok(None);
        }
        let directory = command.directory;
        let env = command.env.into_iter().map(|(name, value)| EnvVariable::new(name, value)).collect();
        let request = CreateTerminalRequest::new(self.session.to_string(), command.program.to_string_lossy())
            .args(command.args)
            .env(env)
            .cwd(directory.clone())
            .output_byte_limit(command.max_bytes as u64);
        let made: CreateTerminalResponse = self
            .peer
            .request("terminal/create", &request, REQUEST_TIMEOUT)
            .await
            .map_err(|error| refused_error(&directory, &error))?;
        Ok(Some(Box::new(EditorTerminal {
            peer: self.peer.clone(),
            session: self.session.to_string(),
            id: made.terminal_id,
            directory,
            shown: self.shown_terminals.clone(),
            released: AtomicBool::new(false),
        })))
    }
}

impl Environment for EditorEnvironment {
    fn read<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<Vec<u8>, EnvironmentError>> {
        Box::pin(self.read(path))
    }

    fn open<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<Content, EnvironmentError>> {
        Box::pin(self.content(path))
    }

    fn write<'a>(&'a self, path: &'a Path, content: &'a [u8]) -> BoxFuture<'a, Result<(), EnvironmentError>> {
        Box::pin(async move { self.replace(path, self.content(path).await, content).await })
    }

    fn for_call(self: Arc<Self>) -> Option<Arc<dyn Environment>> {
        Some(Arc::new(CallEnvironment { editor: self, cache: Mutex::default() }))
    }

    fn terminal(&self, command: TerminalCommand) -> BoxFuture<'_, Result<Option<Box<dyn Terminal>>, EnvironmentError>> {
        Box::pin(self.create_terminal(command))
    }
}

/// The editor as one tool call sees it: it reads a file once, until something is written.
struct CallEnvironment {
    editor: Arc<EditorEnvironment>,
    cache: Mutex<ReadCache>,
}

/// Files that a tool call has read, and how many were written before.
#[derive(Default)]
struct ReadCache {
    writes: u64,
    files: HashMap<PathBuf, Option<Vec<u8>>>,
}

impl CallEnvironment {
    /// The cached content of a file, or that there is none.
    fn cached(&self, path: &Path) -> Option<Result<Content, EnvironmentError>> {
        let cache = lock(&self.cache);
        let cached = cache.files.get(path).filter(|_| cache.writes == self.editor.writes.load(Ordering::Acquire))?;
        Some(
            cached.clone().map(Content::Whole).ok_or_else(|| EnvironmentError::Io {
                path: path.to_owned(),
                source: std::io::ErrorKind::NotFound.into(),
            }),
        )
    }

    fn remember(&self, path: &Path, writes: u64, content: &Result<Content, EnvironmentError>) {
        let content = match content {
            Ok(Content::Whole(content)) => Some(content),
            Err(error) if is_missing(error) => None,
            _ => return,
        };
        let text = content.map(|content| String::from_utf8(content.clone())).transpose();
        if let Ok(text) = text {
            self.editor.recent_reads.put(path, text);
        }
        let mut cache = lock(&self.cache);
        if cache.writes != writes {
            *cache = ReadCache { writes, files: HashMap::new() };
        }
        let bytes: usize = cache.files.values().flatten().chain(content).map(Vec::len).sum();
        if cache.files.len() < MAX_CACHED_FILES && bytes <= MAX_CACHED_BYTES {
            cache.files.insert(path.to_owned(), content.cloned());
        }
    }

    async fn content(&self, path: &Path) -> Result<Content, EnvironmentError> {
        if let Some(cached) = self.cached(path) {
            return cached;
        }
        let writes = self.editor.writes.load(Ordering::Acquire);
        let content = self.editor.content(path).await;
        self.remember(path, writes, &content);
        content
    }
}

impl Environment for CallEnvironment {
    fn read<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<Vec<u8>, EnvironmentError>> {
        Box::pin(async move {
            match self.content(path).await? {
                Content::Whole(content) => Ok(content),
                Content::Large { .. } => self.editor.read(path).await,
            }
        })
    }

    fn open<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<Content, EnvironmentError>> {
        Box::pin(self.content(path))
    }

    fn write<'a>(&'a self, path: &'a Path, content: &'a [u8]) -> BoxFuture<'a, Result<(), EnvironmentError>> {
        Box::pin(async move { self.editor.replace(path, self.content(path).await, content).await })
    }

    fn terminal(&self, command: TerminalCommand) -> BoxFuture<'_, Result<Option<Box<dyn Terminal>>, EnvironmentError>> {
        self.editor.terminal(command)
    }
}

fn is_missing(error: &EnvironmentError) -> bool {
    matches!(error, EnvironmentError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound)
}

fn refused_error(path: &Path, error: &Error) -> EnvironmentError {
    EnvironmentError::Refused { path: path.to_owned(), message: format!("the editor said: {}", error.message) }
}

/// A terminal of the editor.
struct EditorTerminal {
    peer: Peer,
    session: String,
    id: TerminalId,
    directory: PathBuf,
    shown: ShownTerminals,
    released: AtomicBool,
}

impl EditorTerminal {
    async fn request<T: serde::de::DeserializeOwned>(
        &self,
        method: &str,
        request: &impl serde::Serialize,
        timeout: Timeout,
    ) -> Result<T, EnvironmentError> {
        self.peer.request(method, request, timeout).await.map_err(|error| refused_error(&self.directory, &error))
    }
}

impl Terminal for EditorTerminal {
    fn id(&self) -> &str {
        &self.id.0
    }

    fn wait(&self) -> BoxFuture<'_, Result<TerminalExit, EnvironmentError>> {
        Box::pin(async {
            let request = WaitForTerminalExitRequest::new(self.session.clone(), self.id.clone());
            // A command takes as long as it takes; the caller has its own timeout.
            let answer: WaitForTerminalExitResponse =
                self.request("terminal/wait_for_exit", &request, Timeout::Never).await?;
            let code = answer.exit_status.exit_code.map(|code| i32::try_from(code).unwrap_or(i32::MAX));
            Ok(TerminalExit { code, signal: answer.exit_status.signal })
        })
    }

    fn output(&self) -> BoxFuture<'_, Result<TerminalOutput, EnvironmentError>> {
        Box::pin(async {
            let request = TerminalOutputRequest::new(self.session.clone(), self.id.clone());
            let answer: TerminalOutputResponse = self.request("terminal/output", &request, REQUEST_TIMEOUT).await?;
            Ok(TerminalOutput { text: answer.output, truncated: answer.truncated })
        })
    }

    fn kill(&self) -> BoxFuture<'_, Result<(), EnvironmentError>> {
        Box::pin(async {
            let request = KillTerminalRequest::new(self.session.clone(), self.id.clone());
            self.request::<Value>("terminal/kill", &request, REQUEST_TIMEOUT).await.map(drop)
        })
    }

    fn release(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            if !self.released.swap(true, Ordering::AcqRel) {
                // A released terminal can no longer be shown in the tool call.
                self.shown.wait_until_shown(&self.id.0).await;
                release(&self.peer, &self.session, &self.id).await;
            }
        })
    }
}

impl Drop for EditorTerminal {
    fn drop(&mut self) {
        if !self.released.swap(true, Ordering::AcqRel) {
            let (peer, session, id) = (self.peer.clone(), self.session.clone(), self.id.clone());
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                runtime.spawn(async move { release(&peer, &session, &id).await });
            }
        }
    }
}

async fn release(peer: &Peer, session: &str, id: &TerminalId) {
    let request = ReleaseTerminalRequest::new(session.to_owned(), id.clone());
    if let Err(error) = peer.request::<Value>("terminal/release", &request, REQUEST_TIMEOUT).await {
        tracing::debug!(%error, "failed to release a terminal");
    }
}
