//! Terminals that clients type into. Each is a program on a pseudo terminal with its recent output. A supervisor runs the
//! program, so that it cannot outlive this process.

mod scrollback;
mod socket;
mod ticket;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::{EventBody, Pty, PtyId, PtyStatus, Scope};
use axum::http::StatusCode;
use exec::{End, ExecError, Process, Size, Spec};
use indexmap::IndexMap;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use socket::{MAX_MESSAGE_BYTES, StartPosition, serve_client};
pub use ticket::{TICKET_LIFETIME, Tickets};

use crate::State;
use crate::error::{Error, RequestPart};
use scrollback::{Scrollback, ScrollbackRead};

/// The most open terminals.
pub const MAX_TERMINALS: usize = 64;

/// The most clients of one terminal.
const MAX_CLIENTS: usize = 16;

/// How long terminals may take to end when the server stops.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// How long reading a program's last output may take after its end.
const LAST_OUTPUT_TIMEOUT: Duration = Duration::from_secs(1);

/// Size of a read from a terminal, in bytes.
const READ_BYTES: usize = 16 << 10;

/// The largest title, in bytes.
const MAX_TITLE_BYTES: usize = 1024;

/// Shells that take `-l` to start as a login shell.
const LOGIN_SHELLS: [&str; 6] = ["bash", "dash", "fish", "ksh", "sh", "zsh"];

/// What to run in a new terminal; a shell if no command is given.
#[derive(Debug, Default)]
pub struct TerminalOptions {
    /// The program.
    pub command: Option<String>,
    /// Its arguments.
    pub args: Vec<String>,
    /// The working directory, relative to the client's directory.
    pub cwd: Option<String>,
    /// The title that clients show.
    pub title: Option<String>,
    /// Further environment variables.
    pub env: IndexMap<String, String>,
}

/// A terminal.
pub struct Terminal {
    directory: String,
    project: String,
    info: Mutex<Pty>,
    scrollback: Mutex<Scrollback>,
    /// Notifies of new output; true once there will be no more.
    output_ended: watch::Sender<bool>,
    pty: exec::Terminal,
    stop_token: CancellationToken,
    clients: Arc<Semaphore>,
}

/// The terminals of this server.
pub struct Terminals {
    open: Mutex<IndexMap<PtyId, Arc<Terminal>>>,
    permits: Arc<Semaphore>,
    /// The tasks that supervise programs and serve clients.
    pub tasks: TaskTracker,
    /// Tickets for connections.
    pub tickets: Tickets,
}

impl Default for Terminals {
    fn default() -> Self {
        let permits = Arc::new(Semaphore::new(MAX_TERMINALS));
        Self { open: Mutex::default(), permits, tasks: TaskTracker::new(), tickets: Tickets::default() }
    }
}

impl Terminals {
    /// How many are open.
    pub fn count(&self) -> usize {
        lock(&self.open).len()
    }

    /// The terminals of a directory.
    pub fn list(&self, scope: &Scope) -> Vec<Pty> {
        let open = lock(&self.open);
        open.values().filter(|terminal| terminal.directory == scope.directory).map(|terminal| terminal.info()).collect()
    }

    /// A terminal of a directory.
    pub fn get(&self, scope: &Scope, id: &PtyId) -> Option<Arc<Terminal>> {
        lock(&self.open).get(id).filter(|terminal| terminal.directory == scope.directory).cloned()
    }

    /// Ends a terminal; false if there is none.
    pub fn remove(&self, state: &State, scope: &Scope, id: &PtyId) -> bool {
        let Some(terminal) = self.get(scope, id) else { return false };
        // Whoever removes it announces it: its program may end at the same time.
        if lock(&self.open).shift_remove(id).is_none() {
            return false;
        }
        terminal.stop(state, id.clone());
        true
    }

    /// Ends the terminals of a directory whose state is dropped, or all of them.
    pub fn dispose(&self, state: &State, directory: Option<&str>) {
        let is_disposed = |terminal: &Terminal| directory.is_none_or(|directory| terminal.directory == directory);
        let ended = lock(&self.open).extract_if(.., |_, terminal| is_disposed(terminal)).collect::<Vec<_>>();
        for (id, terminal) in ended {
            terminal.stop(state, id);
        }
    }

    /// Ends all terminals, when the server stops.
    pub async fn close(&self) {
        for (_, terminal) in lock(&self.open).drain(..) {
            terminal.stop_token.cancel();
        }
        self.tasks.close();
        let _ = timeout(CLOSE_TIMEOUT, self.tasks.wait()).await;
    }
}

/// Opens a terminal.
pub async fn open(state: &Arc<State>, scope: &Scope, options: TerminalOptions) -> Result<Pty, Error> {
    let permit = state.terminals.permits.clone().try_acquire_owned().map_err(|_| {
        let message = format!("{MAX_TERMINALS} terminals are open already; remove one first");
        Error::named(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message)
    })?;
    let id = PtyId::new();
    let command = options.command.filter(|command| !command.is_empty());
    let command = command.unwrap_or_else(|| state.engine.terminal_shell(scope).to_string_lossy().into_owned());
    let mut args = options.args;
    if is_login_shell(&command) {
        args.push("-l".into());
    }
    let directory = Path::new(&scope.directory);
    let cwd = options.cwd.map_or_else(|| directory.to_owned(), |cwd| directory.join(cwd));
    let title = options.title.filter(|title| !title.is_empty());
    let title = title.unwrap_or_else(|| format!("Terminal {}", &id.as_str()[id.as_str().len().saturating_sub(4)..]));
    let env = options
        .env
        .into_iter()
        .chain([("TERM".to_owned(), "xterm-256color".to_owned()), ("OPENCODE_TERMINAL".to_owned(), "1".to_owned())]);
    let env: Vec<(String, String)> = env.collect();
    check_command(&command, &args, &cwd, &env)?;
    let env = env.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
    let spec = Spec { env, ..Spec::new(&command, &args, &cwd) };
    let (pty, process) = state.engine.exec_at(scope).terminal(spec, Size::default()).await.map_err(spawn_error)?;
    let info = Pty {
        id: id.clone(),
        title: truncated_title(title),
        command,
        args,
        cwd: cwd.to_string_lossy().into_owned(),
        status: PtyStatus::Running,
        pid: u32::try_from(process.pid()).unwrap_or_default(),
        exit_code: None,
    };
    let terminal = Arc::new(Terminal {
        directory: scope.directory.clone(),
        project: state.engine.loaded(scope).project.id.clone(),
        info: Mutex::new(info.clone()),
        scrollback: Mutex::default(),
        output_ended: watch::Sender::new(false),
        pty,
        stop_token: state.closing.child_token(),
        clients: Arc::new(Semaphore::new(MAX_CLIENTS)),
    });
    lock(&state.terminals.open).insert(id, terminal.clone());
    state.publish(&terminal.directory, &terminal.project, EventBody::PtyCreated { info: Box::new(info.clone()) });
    state.terminals.tasks.spawn(supervise(state.clone(), terminal, process, permit));
    Ok(info)
}

/// Checks that the system can pass on the command at all.
fn check_command(command: &str, args: &[String], cwd: &Path, env: &[(String, String)]) -> Result<(), Error> {
    let bad =
        |what: &str, place: &str| Err(Error::bad_request(RequestPart::Payload, format!("{what}\n  at [{place:?}]")));
    let has_nul = |text: &str| text.contains('\0');
    if has_nul(command) {
        return bad("A command cannot contain NUL", "command");
    }
    if args.iter().any(|text| has_nul(text)) {
        return bad("An argument cannot contain NUL", "args");
    }
    if has_nul(&cwd.to_string_lossy()) {
        return bad("A path cannot contain NUL", "cwd");
    }
    if env.iter().any(|(name, value)| name.is_empty() || name.contains('=') || has_nul(name) || has_nul(value)) {
        return bad("A variable needs a name without \"=\", and neither its name nor its value can contain NUL", "env");
    }
    Ok(())
}

/// A program that cannot be started is the client's mistake. A supervisor that cannot is ours, unless its arguments are
/// too long.
fn spawn_error(error: ExecError) -> Error {
    match &error {
        ExecError::Supervisor { source, .. } if source.kind() != std::io::ErrorKind::ArgumentListTooLong => {
            Error::internal(error)
        }
        ExecError::Io { .. } | ExecError::SupervisorDied { .. } => Error::internal(error),
        _ => Error::bad_request(RequestPart::Payload, error.to_string()),
    }
}

fn is_login_shell(command: &str) -> bool {
    let name = command.rsplit('/').next().unwrap_or_default().to_lowercase();
    LOGIN_SHELLS.contains(&name.as_str())
}

fn truncated_title(mut title: String) -> String {
    title.truncate(title.floor_char_boundary(MAX_TITLE_BYTES));
    title
}

/// Records a program's output until it exits or is stopped.
async fn supervise(state: Arc<State>, terminal: Arc<Terminal>, mut process: Process, _permit: OwnedSemaphorePermit) {
    let mut buffer = vec![0; READ_BYTES];
    let (mut has_output, mut is_stopping) = (true, false);
    let end = loop {
        tokio::select! {
            read = terminal.pty.read(&mut buffer), if has_output => has_output = terminal.push_output(read, &buffer),
            () = terminal.stop_token.cancelled(), if !is_stopping => {
                is_stopping = true;
                process.terminate();
            }
            end = process.ended() => break end,
        }
    };
    while has_output && let Ok(read) = timeout(LAST_OUTPUT_TIMEOUT, terminal.pty.read(&mut buffer)).await {
        has_output = terminal.push_output(read, &buffer);
    }
    let exit_code = match end {
        Ok(End::Exited(code)) => code.into(),
        Ok(End::Signalled(signal)) => 128 + i64::from(signal),
        Ok(End::TimedOut | End::Cancelled) => 0,
        Err(error) => {
            tracing::warn!(%error, "cannot tell how a terminal ended");
            1
        }
    };
    let info = {
        let mut info = lock(&terminal.info);
        info.status = PtyStatus::Exited;
        info.exit_code = Some(exit_code);
        info.clone()
    };
    if lock(&state.terminals.open).shift_remove(&info.id).is_some() {
        state.publish(&terminal.directory, &terminal.project, EventBody::PtyExited { id: info.id, exit_code });
    }
    terminal.output_ended.send_replace(true);
}

impl Terminal {
    /// The terminal as clients see it.
    pub fn info(&self) -> Pty {
        lock(&self.info).clone()
    }

    /// Stops the program. The caller has removed the terminal from the list.
    fn stop(&self, state: &State, id: PtyId) {
        self.stop_token.cancel();
        state.publish(&self.directory, &self.project, EventBody::PtyDeleted { id });
    }

    /// Changes the title or size, and announces it.
    pub fn update(&self, state: &State, title: Option<String>, size: Option<Size>) -> Result<Pty, Error> {
        if let Some(size) = size {
            self.pty.resize(size).map_err(Error::internal)?;
        }
        let info = {
            let mut info = lock(&self.info);
            if let Some(title) = title.filter(|title| !title.is_empty()) {
                info.title = truncated_title(title);
            }
            info.clone()
        };
        state.publish(&self.directory, &self.project, EventBody::PtyUpdated { info: Box::new(info.clone()) });
        Ok(info)
    }

    /// A permit for one more client, if the terminal takes one.
    pub fn client_permit(&self) -> Option<OwnedSemaphorePermit> {
        self.clients.clone().try_acquire_owned().ok()
    }

    /// Adds what was read; false if there will be no more output.
    fn push_output(&self, read: std::io::Result<usize>, buffer: &[u8]) -> bool {
        let Ok(count @ 1..) = read else { return false };
        lock(&self.scrollback).push(&buffer[..count]);
        self.output_ended.send_replace(false);
        true
    }

    fn read_from(&self, position: u64, limit: u64) -> ScrollbackRead {
        lock(&self.scrollback).read_from(position, limit)
    }

    fn bounds(&self) -> (u64, u64) {
        let scrollback = lock(&self.scrollback);
        (scrollback.start(), scrollback.end())
    }
}

/// The data behind these locks is consistent after every statement, so it is still good after a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_shells_start_as_login_shells() {
        for shell in ["/bin/sh", "bash", "/usr/bin/ZSH", "fish"] {
            assert!(is_login_shell(shell), "{shell}");
        }
        for other in ["/usr/bin/top", "nu", "pwsh", "", "/bin/sh/"] {
            assert!(!is_login_shell(other), "{other}");
        }
    }
}
