//! A running server, and real clients to talk to it.

use std::fs::File;
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::{TempProject, WAIT, until};

/// How often to check whether a client listens, which no event tells.
const LOOK: Duration = Duration::from_millis(10);
/// A program that was idle at this many checks waits for input.
const RESTS: usize = 20;

/// `trefoil serve` in a project of its own, with the scripted model. Ends when dropped.
pub struct TestServer {
    pub project: TempProject,
    pub url: String,
    child: Child,
    log: PathBuf,
}

impl TestServer {
    pub fn start() -> Self {
        Self::with(TempProject::new(), |_| {})
    }

    /// In this project, with changes to the command.
    pub fn with(project: TempProject, change: impl FnOnce(&mut Command)) -> Self {
        let log = project.root().join("serve.log");
        allow(&project, true);
        let (child, url) = serve(&project, 0, &log, change);
        Self { project, url, child, log }
    }

    /// Kills it, and starts it again at the same address.
    pub fn restart(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let url = self.url.clone();
        (self.child, self.url) = serve(&self.project, self.address().port(), &self.log, |_| {});
        assert_eq!(self.url, url);
    }

    /// Where it listens, for plain connections.
    pub fn address(&self) -> SocketAddr {
        self.url.strip_prefix("http://").unwrap().parse().unwrap()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Runs a program that sends a prompt, subscribes to events, and exits when the prompt is answered. It would miss an answer that
    /// comes before it subscribes, so the model waits until the program listens and is idle.
    #[track_caller]
    pub fn heard_by(&self, mut command: Command, longest: Duration) -> Output {
        until("those who listened are gone", || self.gauge("trefoil_subscribers") == 0);
        allow(&self.project, false);
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let child = child.unwrap_or_else(|error| panic!("{name} cannot be run: {error}"));
        let pid = child.id();
        let run = std::thread::spawn(move || testkit::finish(&name, child, longest));
        let (began, mut looks) = (Instant::now(), 0);
        while looks < RESTS && !run.is_finished() && began.elapsed() < longest {
            looks = if self.gauge("trefoil_subscribers") > 0 && rests(pid) { looks + 1 } else { 0 };
            std::thread::sleep(LOOK);
        }
        allow(&self.project, true);
        run.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// A value of `/metrics`.
    pub fn gauge(&self, name: &str) -> i64 {
        let (_, metrics) = self.raw("GET", "/metrics", &[], None);
        let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("no {name} in:\n{metrics}")).parse().unwrap()
    }

    /// Sends a request; returns the status and the body.
    pub fn send(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let (status, body) = self.raw(method, path, &[], body);
        (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
    }

    /// Sends a request with additional headers.
    pub fn raw(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Option<&Value>) -> (u16, String) {
        let mut stream = TcpStream::connect(self.address()).unwrap();
        stream.set_read_timeout(Some(WAIT)).unwrap();
        let body = body.map(Value::to_string).unwrap_or_default();
        let mut head = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\ncontent-length: {}\r\n", body.len());
        if !headers.iter().any(|(name, _)| *name == "host") {
            head += &format!("host: {}\r\n", self.address());
        }
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        stream.write_all(format!("{head}\r\n{body}").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer to {path}: {answer:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, body.to_owned())
    }
}

/// Starts a server; returns it with its address.
fn serve(project: &TempProject, port: u16, log: &Path, change: impl FnOnce(&mut Command)) -> (Child, String) {
    let script = project.write_home("script.json", script(project).to_string());
    let mut command = project.command(env!("CARGO_BIN_EXE_trefoil"));
    command.args(["serve", "--port", &port.to_string(), "--print-logs", "--log-level", "warn", "--script"]).arg(script);
    command.stdout(Stdio::piped()).stderr(File::options().create(true).append(true).open(log).unwrap());
    change(&mut command);
    let mut child = command.spawn().unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    match address(stdout) {
        Some(url) => (child, url),
        None => {
            let found = testkit::autopsy(&mut child);
            let log = std::fs::read_to_string(log).unwrap_or_default();
            panic!("the server told no address within {WAIT:?}: {found}\nits log:\n{log}")
        }
    }
}

impl Drop for TestServer {
    #[expect(clippy::print_stderr, reason = "the test's output says why it failed")]
    fn drop(&mut self) {
        let found = testkit::autopsy(&mut self.child);
        if std::thread::panicking() {
            eprintln!("the server: {found}\nits log:\n{}", std::fs::read_to_string(&self.log).unwrap_or_default());
        }
    }
}

/// A proxy in front of a server whose connections can be cut.
pub struct Proxy {
    address: SocketAddr,
    way: Arc<Way>,
}

struct Way {
    upstream: SocketAddr,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    streams: Vec<TcpStream>,
    cut: bool,
    refused: u32,
}

impl Proxy {
    pub fn start(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let way = Arc::new(Way { upstream, state: Mutex::default(), changed: Condvar::new() });
        let accepting = way.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                accepting.take(client);
            }
        });
        Self { address, way }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Breaks every connection, and refuses new ones.
    pub fn cut(&self) {
        let mut state = self.way.state.lock().unwrap();
        state.cut = true;
        state.refused = 0;
        for stream in state.streams.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Waits until a client has tried to connect in vain.
    pub fn refused(&self) {
        let state = self.way.state.lock().unwrap();
        let (_state, waited) = self.way.changed.wait_timeout_while(state, WAIT, |state| state.refused == 0).unwrap();
        assert!(!waited.timed_out(), "nobody tried within {WAIT:?}");
    }

    pub fn mend(&self) {
        self.way.state.lock().unwrap().cut = false;
    }
}

impl Way {
    fn take(&self, client: TcpStream) {
        let mut state = self.state.lock().unwrap();
        if state.cut {
            state.refused += 1;
            self.changed.notify_all();
            return;
        }
        let server = TcpStream::connect(self.upstream).unwrap();
        for (from, to) in [(&client, &server), (&server, &client)] {
            let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut from, &mut to);
                let _ = to.shutdown(Shutdown::Write);
            });
        }
        state.streams.extend([client, server]);
    }
}

/// Whether every thread of a process sleeps. A runnable thread does not sleep.
fn rests(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut states = threads.map(|thread| std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default());
    states.all(|stat| stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('S')))
}

/// The file that some answers of the model wait for.
fn gate(project: &TempProject) -> PathBuf {
    project.root().join("answers")
}

/// Whether the model gives these answers.
fn allow(project: &TempProject, answers: bool) {
    if answers {
        std::fs::write(gate(project), "").unwrap();
    } else {
        std::fs::remove_file(gate(project)).unwrap();
    }
}

/// The script of the model.
fn script(project: &TempProject) -> Value {
    let after = gate(project);
    let echo = json!({"tools": [["bash", {"command": "echo 6*7=$((6*7))"}]], "after": after});
    json!({
        "rules": [
            {"when": {"text": "greet"}, "steps": [{"text": "Good morning from Trefoil.", "after": after}]},
            {"when": {"text": "multiply"}, "steps": [echo, {"text": "That was easy."}]},
            {"when": {"text": "think"}, "steps": [{"text": "Here is what to do.", "after": after}]},
        ],
        "default": [{"text": "Hello from the script."}],
    })
}

/// The address that a server announces.
fn address(mut stdout: impl BufRead + Send + 'static) -> Option<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        let _ = stdout.read_line(&mut line);
        let _ = sender.send(line);
        // Its later output must not block it.
        let _ = std::io::copy(&mut stdout, &mut std::io::sink());
    });
    let line = receiver.recv_timeout(WAIT).ok()?;
    Some(line.strip_prefix("opencode server listening on ")?.trim_end().to_owned())
}

/// Waits for a program's end, within that limit.
#[track_caller]
pub fn finish(mut command: Command, longest: Duration) -> Output {
    let name = command.get_program().to_string_lossy().into_owned();
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    testkit::finish(&name, child.unwrap_or_else(|error| panic!("{name} cannot be run: {error}")), longest)
}

/// Fails with the whole output unless a program succeeded; returns its standard output.
#[track_caller]
pub fn succeeded(output: &Output) -> String {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{}\nstdout:\n{stdout}\nstderr:\n{stderr}", output.status);
    stdout
}

/// The folder of the SDK and of the scripts that use it.
pub fn scripts() -> PathBuf {
    peer::packages(&testkit::target_folder()).unwrap_or_else(|error| panic!("OpenCode's SDK is needed here: {error}"))
}

/// How long OpenCode may take for anything: it takes seconds to start, and minutes on a busy machine.
pub const OPENCODE_LONGEST: Duration = Duration::from_secs(300);

/// The real OpenCode, in a project and with its home.
pub fn opencode(project: &TempProject) -> Command {
    let program = peer::install(&testkit::target_folder());
    let mut command = project.command(program.unwrap_or_else(|error| panic!("OpenCode is needed here: {error}")));
    for name in ["AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "SHARE", "DEFAULT_PLUGINS"] {
        command.env(format!("OPENCODE_DISABLE_{name}"), "1");
    }
    command
}

/// A folder whose `opencode` is Trefoil, for programs that search `PATH`.
pub fn disguise(project: &TempProject) -> PathBuf {
    let folder = project.root().join("bin");
    std::fs::create_dir(&folder).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_trefoil"), folder.join("opencode")).unwrap();
    folder
}

/// `PATH` with that folder first.
pub fn path_with(folder: &Path) -> String {
    format!("{}:{}", folder.display(), std::env::var("PATH").unwrap())
}
