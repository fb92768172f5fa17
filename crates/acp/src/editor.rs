//! The editor's files and terminals, as the engine of this process uses them.

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

pub use pending::{Change, Changes, Reads, Terminals};

use crate::capabilities::Abilities;
use crate::rpc::{Error, Peer, Waits};
use crate::{lock, size};

/// How long an editor may take for a file or for opening a terminal.
const ANSWER: Waits = Waits::For(Duration::from_secs(30));
/// The longest text that is sent to the editor to be written; a longer one goes to the disk.
const MAX_TEXT: usize = 900 << 10;
/// Files that one call remembers, and the bytes of all of them; what is beyond is asked for again.
const MAX_SEEN: usize = 64;
const MAX_SEEN_BYTES: usize = 8 << 20;

/// What a session sees: the editor's files where it has them, the disk elsewhere.
pub struct Editor {
    /// The editor.
    pub peer: Peer,
    /// What it can do.
    pub abilities: Abilities,
    /// The session that it knows.
    pub session: SessionId,
    /// The folders that it has open.
    pub roots: Vec<PathBuf>,
    /// Everything else.
    pub disk: Arc<dyn Environment>,
    /// Where changes are noted, to be shown.
    pub changes: Changes,
    /// Where texts are kept that a permission may be about.
    pub reads: Reads,
    /// Which terminals were shown.
    pub terminals: Terminals,
    /// How many files were written so far.
    pub writes: AtomicU64,
}

impl Editor {
    fn has(&self, path: &Path) -> bool {
        self.roots.iter().any(|root| path.starts_with(root))
    }

    /// What the editor shows of a file, saved or not; nothing if it gives no text: then the disk counts.
    async fn buffer(&self, path: &Path) -> Option<String> {
        let request = ReadTextFileRequest::new(self.session.to_string(), path);
        match self.peer.ask::<ReadTextFileResponse>("fs/read_text_file", &request, ANSWER).await {
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
            // The error is the disk's.
            Content::Large { .. } => self.disk.read(path).await,
        }
    }

    /// A file as the editor has it. One that is too large to be held is always the disk's: an editor would have to load all
    /// of it to give a part.
    async fn content(&self, path: &Path) -> Result<Content, EnvironmentError> {
        let stored = self.disk.open(path).await;
        let may_be_text = match &stored {
            Ok(Content::Whole(content)) => std::str::from_utf8(content).is_ok_and(|text| !text.contains('\0')),
            Ok(Content::Large { .. }) => false,
            Err(error) => is_missing(error),
        };
        if !(self.abilities.read && may_be_text && self.has(path)) {
            return stored;
        }
        self.buffer(path).await.map(|text| Content::Whole(text.into_bytes())).map_or(stored, Ok)
    }

    /// Writes a file that was like this before.
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
            // It is shown by its diff.
            Ok(Content::Large { .. }) => return self.disk.write(path, content).await,
            Err(_) => None,
        };
        match text.filter(|text| self.abilities.write && self.has(path) && size::json_len(text) <= MAX_TEXT) {
            Some(text) => {
                let request = WriteTextFileRequest::new(self.session.to_string(), path, text);
                let written = self.peer.ask::<Value>("fs/write_text_file", &request, ANSWER).await;
                written.map_err(|error| refused(path, &error))?;
            }
            None => self.disk.write(path, content).await?,
        }
        if let (Some(new), Ok(old)) = (text, old.transpose()) {
            self.changes.put(Change { path: path.to_owned(), old, new: new.to_owned() });
        }
        Ok(())
    }

    async fn start(&self, command: TerminalCommand) -> Result<Option<Box<dyn Terminal>>, EnvironmentError> {
        if !self.abilities.terminal {
            return Ok(None);
        }
        let directory = command.directory;
        let env = command.env.into_iter().map(|(name, value)| EnvVariable::new(name, value)).collect();
        let request = CreateTerminalRequest::new(self.session.to_string(), command.program.to_string_lossy())
            .args(command.args)
            .env(env)
            .cwd(directory.clone())
            .output_byte_limit(command.max_bytes as u64);
        let made: CreateTerminalResponse =
            self.peer.ask("terminal/create", &request, ANSWER).await.map_err(|error| refused(&directory, &error))?;
        Ok(Some(Box::new(EditorTerminal {
            peer: self.peer.clone(),
            session: self.session.to_string(),
            id: made.terminal_id,
            directory,
            shown: self.terminals.clone(),
            released: AtomicBool::new(false),
        })))
    }
}

impl Environment for Editor {
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
        Some(Arc::new(OneCall { editor: self, seen: Mutex::default() }))
    }

    fn terminal(&self, command: TerminalCommand) -> BoxFuture<'_, Result<Option<Box<dyn Terminal>>, EnvironmentError>> {
        Box::pin(self.start(command))
    }
}

/// The editor as one call sees it: a file is asked for once, until something is written.
struct OneCall {
    editor: Arc<Editor>,
    seen: Mutex<Seen>,
}

/// Files that a call has read, and how many were written before.
#[derive(Default)]
struct Seen {
    writes: u64,
    files: HashMap<PathBuf, Option<Vec<u8>>>,
}

impl OneCall {
    /// What the call knows of a file: its content, or that there is none.
    fn known(&self, path: &Path) -> Option<Result<Content, EnvironmentError>> {
        let seen = lock(&self.seen);
        let known = seen.files.get(path).filter(|_| seen.writes == self.editor.writes.load(Ordering::Acquire))?;
        Some(
            known.clone().map(Content::Whole).ok_or_else(|| EnvironmentError::Io {
                path: path.to_owned(),
                source: std::io::ErrorKind::NotFound.into(),
            }),
        )
    }

    fn note(&self, path: &Path, writes: u64, content: &Result<Content, EnvironmentError>) {
        let content = match content {
            Ok(Content::Whole(content)) => Some(content),
            Err(error) if is_missing(error) => None,
            _ => return,
        };
        let text = content.map(|content| String::from_utf8(content.clone())).transpose();
        if let Ok(text) = text {
            self.editor.reads.put(path, text);
        }
        let mut seen = lock(&self.seen);
        if seen.writes != writes {
            *seen = Seen { writes, files: HashMap::new() };
        }
        let bytes: usize = seen.files.values().flatten().chain(content).map(Vec::len).sum();
        if seen.files.len() < MAX_SEEN && bytes <= MAX_SEEN_BYTES {
            seen.files.insert(path.to_owned(), content.cloned());
        }
    }

    async fn content(&self, path: &Path) -> Result<Content, EnvironmentError> {
        if let Some(known) = self.known(path) {
            return known;
        }
        let writes = self.editor.writes.load(Ordering::Acquire);
        let content = self.editor.content(path).await;
        self.note(path, writes, &content);
        content
    }
}

impl Environment for OneCall {
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

fn refused(path: &Path, error: &Error) -> EnvironmentError {
    EnvironmentError::Refused { path: path.to_owned(), message: format!("the editor said: {}", error.message) }
}

/// A terminal of the editor.
struct EditorTerminal {
    peer: Peer,
    session: String,
    id: TerminalId,
    directory: PathBuf,
    shown: Terminals,
    released: AtomicBool,
}

impl EditorTerminal {
    async fn ask<T: serde::de::DeserializeOwned>(
        &self,
        method: &str,
        request: &impl serde::Serialize,
        waits: Waits,
    ) -> Result<T, EnvironmentError> {
        self.peer.ask(method, request, waits).await.map_err(|error| refused(&self.directory, &error))
    }
}

impl Terminal for EditorTerminal {
    fn id(&self) -> &str {
        &self.id.0
    }

    fn wait(&self) -> BoxFuture<'_, Result<TerminalExit, EnvironmentError>> {
        Box::pin(async {
            let request = WaitForTerminalExitRequest::new(self.session.clone(), self.id.clone());
            // The command takes as long as it takes; who waits has a time of its own.
            let answer: WaitForTerminalExitResponse =
                self.ask("terminal/wait_for_exit", &request, Waits::Forever).await?;
            let code = answer.exit_status.exit_code.map(|code| i32::try_from(code).unwrap_or(i32::MAX));
            Ok(TerminalExit { code, signal: answer.exit_status.signal })
        })
    }

    fn output(&self) -> BoxFuture<'_, Result<TerminalOutput, EnvironmentError>> {
        Box::pin(async {
            let request = TerminalOutputRequest::new(self.session.clone(), self.id.clone());
            let answer: TerminalOutputResponse = self.ask("terminal/output", &request, ANSWER).await?;
            Ok(TerminalOutput { text: answer.output, truncated: answer.truncated })
        })
    }

    fn kill(&self) -> BoxFuture<'_, Result<(), EnvironmentError>> {
        Box::pin(async {
            let request = KillTerminalRequest::new(self.session.clone(), self.id.clone());
            self.ask::<Value>("terminal/kill", &request, ANSWER).await.map(drop)
        })
    }

    fn release(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            if !self.released.swap(true, Ordering::AcqRel) {
                // Once it is given back it can no longer be put into the call.
                self.shown.until_shown(&self.id.0).await;
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
    if let Err(error) = peer.ask::<Value>("terminal/release", &request, ANSWER).await {
        tracing::debug!(%error, "a terminal was not given back");
    }
}
