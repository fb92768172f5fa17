//! Terminals that clients type into. Each is a program on a pseudo terminal below a supervisor, so that it cannot outlive
//! this process, and what it showed lately.

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

pub use socket::{Begin, MAX_MESSAGE, attend};
pub use ticket::{GOOD_FOR, Tickets};

use crate::State;
use crate::error::{Error, Where};
use scrollback::{Next, Scrollback};

/// The most terminals at a time.
pub const MAX: usize = 64;

/// The most clients of one terminal.
const MAX_CLIENTS: usize = 16;

/// How long terminals may take to end when the server stops.
const CLOSE_WAIT: Duration = Duration::from_secs(3);

/// How long what a program showed last may take to be read after its end.
const REST_WAIT: Duration = Duration::from_secs(1);

/// What is read from a terminal at once, in bytes.
const READ: usize = 16 << 10;

/// The largest title, in bytes.
const MAX_TITLE: usize = 1024;

/// Shells that begin as they do after a login if they are asked to with `-l`.
const LOGIN: [&str; 6] = ["bash", "dash", "fish", "ksh", "sh", "zsh"];

/// What a client wants to run; a shell if it says nothing.
#[derive(Debug, Default)]
pub struct Wanted {
    /// The program.
    pub command: Option<String>,
    /// Its arguments.
    pub args: Vec<String>,
    /// Where, relative to the directory.
    pub cwd: Option<String>,
    /// What a client shows.
    pub title: Option<String>,
    /// Further variables.
    pub env: IndexMap<String, String>,
}

/// A terminal.
pub struct Terminal {
    directory: String,
    project: String,
    info: Mutex<Pty>,
    log: Mutex<Scrollback>,
    /// Changes with everything that is shown; true once nothing comes any more.
    news: watch::Sender<bool>,
    screen: exec::Terminal,
    stop: CancellationToken,
    clients: Arc<Semaphore>,
}

/// The terminals of this server.
pub struct Ptys {
    open: Mutex<IndexMap<PtyId, Arc<Terminal>>>,
    room: Arc<Semaphore>,
    /// Those who watch over programs and serve clients.
    pub tasks: TaskTracker,
    /// Tickets for connections.
    pub tickets: Tickets,
}

impl Default for Ptys {
    fn default() -> Self {
        let room = Arc::new(Semaphore::new(MAX));
        Self { open: Mutex::default(), room, tasks: TaskTracker::new(), tickets: Tickets::default() }
    }
}

impl Ptys {
    /// How many there are.
    pub fn count(&self) -> usize {
        locked(&self.open).len()
    }

    /// Those of a directory.
    pub fn list(&self, scope: &Scope) -> Vec<Pty> {
        let open = locked(&self.open);
        open.values().filter(|terminal| terminal.directory == scope.directory).map(|terminal| terminal.info()).collect()
    }

    /// One of a directory.
    pub fn get(&self, scope: &Scope, id: &PtyId) -> Option<Arc<Terminal>> {
        locked(&self.open).get(id).filter(|terminal| terminal.directory == scope.directory).cloned()
    }

    /// Ends one; false if it is gone.
    pub fn remove(&self, state: &State, scope: &Scope, id: &PtyId) -> bool {
        let Some(terminal) = self.get(scope, id) else { return false };
        // Whoever takes it out tells it: the end of its program may come at the same time.
        if locked(&self.open).shift_remove(id).is_none() {
            return false;
        }
        terminal.end(state, id.clone());
        true
    }

    /// Ends those of a directory that is dropped, or all if every one is.
    pub fn dispose(&self, state: &State, directory: Option<&str>) {
        let dropped = |terminal: &Terminal| directory.is_none_or(|directory| terminal.directory == directory);
        let ended = locked(&self.open).extract_if(.., |_, terminal| dropped(terminal)).collect::<Vec<_>>();
        for (id, terminal) in ended {
            terminal.end(state, id);
        }
    }

    /// Ends all of them.
    pub async fn close(&self) {
        for (_, terminal) in locked(&self.open).drain(..) {
            terminal.stop.cancel();
        }
        self.tasks.close();
        let _ = timeout(CLOSE_WAIT, self.tasks.wait()).await;
    }
}

/// Opens a terminal.
pub async fn open(state: &Arc<State>, scope: &Scope, wanted: Wanted) -> Result<Pty, Error> {
    let room = state.ptys.room.clone().try_acquire_owned().map_err(|_| {
        let message = format!("{MAX} terminals are open already; remove one first");
        Error::named(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message)
    })?;
    let id = PtyId::new();
    let command = wanted.command.filter(|command| !command.is_empty());
    let command = command.unwrap_or_else(|| state.engine.terminal_shell(scope).to_string_lossy().into_owned());
    let mut args = wanted.args;
    if is_login_shell(&command) {
        args.push("-l".into());
    }
    let directory = Path::new(&scope.directory);
    let cwd = wanted.cwd.map_or_else(|| directory.to_owned(), |cwd| directory.join(cwd));
    let title = wanted.title.filter(|title| !title.is_empty());
    let title = title.unwrap_or_else(|| format!("Terminal {}", &id.as_str()[id.as_str().len().saturating_sub(4)..]));
    let env = wanted
        .env
        .into_iter()
        .chain([("TERM".to_owned(), "xterm-256color".to_owned()), ("OPENCODE_TERMINAL".to_owned(), "1".to_owned())]);
    let env: Vec<(String, String)> = env.collect();
    check(&command, &args, &cwd, &env)?;
    let env = env.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
    let spec = Spec { env, ..Spec::new(&command, &args, &cwd) };
    let (screen, process) = state.engine.exec_at(scope).terminal(spec, Size::default()).await.map_err(refused)?;
    let info = Pty {
        id: id.clone(),
        title: shortened(title),
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
        log: Mutex::default(),
        news: watch::Sender::new(false),
        screen,
        stop: state.closing.child_token(),
        clients: Arc::new(Semaphore::new(MAX_CLIENTS)),
    });
    locked(&state.ptys.open).insert(id, terminal.clone());
    state.tell(&terminal.directory, &terminal.project, EventBody::PtyCreated { info: Box::new(info.clone()) });
    state.ptys.tasks.spawn(watch_over(state.clone(), terminal, process, room));
    Ok(info)
}

/// Whether the system could pass it on at all.
fn check(command: &str, args: &[String], cwd: &Path, env: &[(String, String)]) -> Result<(), Error> {
    let bad = |what: &str, place: &str| Err(Error::bad_request(Where::Payload, format!("{what}\n  at [{place:?}]")));
    let nul = |text: &str| text.contains('\0');
    if nul(command) {
        return bad("A program's name has no NUL", "command");
    }
    if args.iter().any(|text| nul(text)) {
        return bad("An argument has no NUL", "args");
    }
    if nul(&cwd.to_string_lossy()) {
        return bad("A path has no NUL", "cwd");
    }
    if env.iter().any(|(name, value)| name.is_empty() || name.contains('=') || nul(name) || nul(value)) {
        return bad("A variable has a name without \"=\", and neither it nor its value has a NUL", "env");
    }
    Ok(())
}

/// A program that cannot be started is the client's mistake; a supervisor that cannot is ours, unless it was given too much.
fn refused(error: ExecError) -> Error {
    match &error {
        ExecError::Supervisor { source, .. } if source.kind() != std::io::ErrorKind::ArgumentListTooLong => {
            Error::internal(error)
        }
        ExecError::Io { .. } | ExecError::SupervisorDied { .. } => Error::internal(error),
        _ => Error::bad_request(Where::Payload, error.to_string()),
    }
}

fn is_login_shell(command: &str) -> bool {
    let name = command.rsplit('/').next().unwrap_or_default().to_lowercase();
    LOGIN.contains(&name.as_str())
}

fn shortened(mut title: String) -> String {
    title.truncate(title.floor_char_boundary(MAX_TITLE));
    title
}

/// Keeps what a program shows until it ends, by itself or because it has to.
async fn watch_over(state: Arc<State>, terminal: Arc<Terminal>, mut process: Process, _room: OwnedSemaphorePermit) {
    let mut buffer = vec![0; READ];
    let (mut shows, mut stopped) = (true, false);
    let end = loop {
        tokio::select! {
            read = terminal.screen.read(&mut buffer), if shows => shows = terminal.push(read, &buffer),
            () = terminal.stop.cancelled(), if !stopped => {
                stopped = true;
                process.terminate();
            }
            end = process.ended() => break end,
        }
    };
    while shows && let Ok(read) = timeout(REST_WAIT, terminal.screen.read(&mut buffer)).await {
        shows = terminal.push(read, &buffer);
    }
    let exit_code = match end {
        Ok(End::Exited(code)) => code.into(),
        Ok(End::Signalled(signal)) => 128 + i64::from(signal),
        Ok(End::TimedOut | End::Cancelled) => 0,
        Err(error) => {
            tracing::warn!(%error, "a terminal ended badly");
            1
        }
    };
    let info = {
        let mut info = locked(&terminal.info);
        info.status = PtyStatus::Exited;
        info.exit_code = Some(exit_code);
        info.clone()
    };
    if locked(&state.ptys.open).shift_remove(&info.id).is_some() {
        state.tell(&terminal.directory, &terminal.project, EventBody::PtyExited { id: info.id, exit_code });
    }
    terminal.news.send_replace(true);
}

impl Terminal {
    /// What a client sees of it.
    pub fn info(&self) -> Pty {
        locked(&self.info).clone()
    }

    /// Ends its program. To be called by whoever took it out of the list.
    fn end(&self, state: &State, id: PtyId) {
        self.stop.cancel();
        state.tell(&self.directory, &self.project, EventBody::PtyDeleted { id });
    }

    /// Gives it another title or size, and tells everybody.
    pub fn update(&self, state: &State, title: Option<String>, size: Option<Size>) -> Result<Pty, Error> {
        if let Some(size) = size {
            self.screen.resize(size).map_err(Error::internal)?;
        }
        let info = {
            let mut info = locked(&self.info);
            if let Some(title) = title.filter(|title| !title.is_empty()) {
                info.title = shortened(title);
            }
            info.clone()
        };
        state.tell(&self.directory, &self.project, EventBody::PtyUpdated { info: Box::new(info.clone()) });
        Ok(info)
    }

    /// A place for a client, if there is one.
    pub fn seat(&self) -> Option<OwnedSemaphorePermit> {
        self.clients.clone().try_acquire_owned().ok()
    }

    /// Takes in what was read; false if nothing comes any more.
    fn push(&self, read: std::io::Result<usize>, buffer: &[u8]) -> bool {
        let Ok(count @ 1..) = read else { return false };
        locked(&self.log).push(&buffer[..count]);
        self.news.send_replace(false);
        true
    }

    fn after(&self, place: u64, limit: u64) -> Next {
        locked(&self.log).after(place, limit)
    }

    fn bounds(&self) -> (u64, u64) {
        let log = locked(&self.log);
        (log.start(), log.end())
    }
}

/// What is behind these locks is whole after every statement, so a panic leaves it good.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shells_begin_as_after_a_login() {
        for shell in ["/bin/sh", "bash", "/usr/bin/ZSH", "fish"] {
            assert!(is_login_shell(shell), "{shell}");
        }
        for other in ["/usr/bin/top", "nu", "pwsh", "", "/bin/sh/"] {
            assert!(!is_login_shell(other), "{other}");
        }
    }
}
