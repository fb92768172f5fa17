//! A project, a script, and the program to run in it.

use std::io::{Read, Write};
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Instant;

use serde_json::{Value, json};
use testkit::{TempProject, WAIT};

/// A project with a home of its own, and the program to run in it.
pub struct Harness {
    pub project: TempProject,
}

/// The result of a run of the program.
pub struct RunResult {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl RunResult {
    /// Fails with the whole output unless the program exited with that code.
    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, code, "\nstdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }

    /// The lines of standard output as JSON.
    pub fn json_lines(&self) -> Vec<Value> {
        self.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Standard output as one JSON value.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}:\n{}", self.stdout))
    }

    #[track_caller]
    pub fn says(&self, text: &str) {
        assert!(self.stderr.contains(text), "{text:?} is not in:\n{}", self.stderr);
    }
}

impl Harness {
    pub fn new() -> Self {
        Self { project: TempProject::new() }
    }

    /// A script that plays these steps for every message; returns its path.
    pub fn script(&self, steps: Value) -> String {
        self.rules(json!({ "default": steps }))
    }

    /// A script with rules.
    pub fn rules(&self, script: Value) -> String {
        let path = self.project.write_home("script.json", script.to_string());
        path.to_str().unwrap().to_owned()
    }

    /// The user's own configuration, which needs no trust.
    pub fn configure(&self, config: Value) {
        self.project.write_home(".config/trefoil/trefoil.json", config.to_string());
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = self.project.command(env!("CARGO_BIN_EXE_trefoil"));
        command.args(args);
        command
    }

    /// The program with or without SIGHUP ignored, whatever the tests inherited (`nohup`).
    pub fn hearing(&self, hangup: bool, args: &[&str]) -> Command {
        let mut command = self.project.command("env");
        command.arg(if hangup { "--default-signal=HUP" } else { "--ignore-signal=HUP" });
        command.arg(env!("CARGO_BIN_EXE_trefoil")).args(args);
        command
    }

    /// Runs the program to its end.
    pub fn trefoil(&self, args: &[&str]) -> RunResult {
        finish(spawn(self.command(args)))
    }

    /// Runs the program with that standard input.
    pub fn piped(&self, args: &[&str], input: &[u8]) -> RunResult {
        let mut command = self.command(args);
        command.stdin(Stdio::piped());
        let mut child = spawn(command);
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        let writer = std::thread::spawn(move || stdin.write_all(&input));
        let ran = finish(child);
        let _ = writer.join().unwrap();
        ran
    }

    /// `run --script` with these steps.
    pub fn play(&self, steps: Value, args: &[&str]) -> RunResult {
        let script = self.script(steps);
        let mut all = vec!["run", "--script", &script];
        all.extend(args);
        self.trefoil(&all)
    }

    /// The sessions of the project.
    pub fn sessions(&self) -> Vec<Value> {
        let list = self.trefoil(&["session", "list", "--json"]).expect(0).json();
        list.as_array().unwrap().clone()
    }

    /// A session as `export` writes it.
    pub fn export(&self, id: &str) -> Value {
        self.trefoil(&["session", "export", id]).expect(0).json()
    }

    /// A shell script that comes before any other program of that name; returns the `PATH` for it.
    pub fn program(&self, name: &str, script: &str) -> String {
        let file = self.project.write_home(format!("bin/{name}"), format!("#!/bin/sh\n{script}\n"));
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        format!("{}:{}", file.parent().unwrap().display(), std::env::var("PATH").unwrap())
    }

    /// A named pipe in the project, whose other end a command of the agent opens.
    pub fn pipe(&self, name: &str) -> PathBuf {
        let path = self.project.path().join(name);
        let status = self.project.command("mkfifo").arg(&path).status().unwrap();
        assert!(status.success());
        path
    }
}

/// A running program. If the test fails, it is killed, and the test prints its output.
pub struct Program(Option<Child>);

impl From<Child> for Program {
    fn from(child: Child) -> Self {
        Self(Some(child))
    }
}

impl Deref for Program {
    type Target = Child;

    fn deref(&self) -> &Child {
        self.0.as_ref().unwrap()
    }
}

impl DerefMut for Program {
    fn deref_mut(&mut self) -> &mut Child {
        self.0.as_mut().unwrap()
    }
}

impl Drop for Program {
    #[expect(clippy::print_stderr, reason = "the test's output says why it failed")]
    fn drop(&mut self) {
        let Some(child) = &mut self.0 else { return };
        let found = testkit::autopsy(child);
        if std::thread::panicking() {
            eprintln!("a program of the test: {found}");
        }
    }
}

pub fn spawn(mut command: Command) -> Program {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap().into()
}

/// Waits for the program's end, within a limit.
#[track_caller]
pub fn finish(mut program: Program) -> RunResult {
    let output = testkit::finish("the program", program.0.take().unwrap(), WAIT);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    RunResult { code: output.status.code().unwrap_or(-1), stdout: text(output.stdout), stderr: text(output.stderr) }
}

pub fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid.try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// Reads a source bit by bit, with a limit on every wait.
pub struct Reader {
    receiver: mpsc::Receiver<Vec<u8>>,
    /// What was read and not waited for yet.
    seen: String,
    /// Everything before that.
    before: String,
}

impl Drop for Reader {
    #[expect(clippy::print_stderr, reason = "the test's output says why it failed")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("what was read:\n{}{}", self.before, self.seen);
        }
    }
}

impl Reader {
    /// Opens the source on a thread of its own, because that may block too.
    pub fn new<R: Read + Send + 'static>(open: impl FnOnce() -> R + Send + 'static) -> Self {
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            let mut source = open();
            let mut buffer = [0; 4096];
            while let Ok(read) = source.read(&mut buffer) {
                if read == 0 || sender.send(buffer[..read].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { receiver, seen: String::new(), before: String::new() }
    }

    /// Waits for a text; returns everything up to it.
    #[track_caller]
    pub fn wait_for(&mut self, text: &str) -> String {
        let limit = Instant::now() + WAIT;
        loop {
            if let Some(at) = self.seen.find(text) {
                let rest = self.seen.split_off(at + text.len());
                let found = std::mem::replace(&mut self.seen, rest);
                self.before += &found;
                return found;
            }
            match self.receiver.recv_timeout(limit.saturating_duration_since(Instant::now())) {
                Ok(bytes) => self.seen += &String::from_utf8_lossy(&bytes),
                Err(error) => panic!("waited for {text:?} ({error}), got:\n{}", self.seen),
            }
        }
    }

    /// Waits for the end; returns what came until then.
    #[track_caller]
    pub fn rest(mut self) -> String {
        let limit = Instant::now() + WAIT;
        loop {
            match self.receiver.recv_timeout(limit.saturating_duration_since(Instant::now())) {
                Ok(bytes) => self.seen += &String::from_utf8_lossy(&bytes),
                Err(mpsc::RecvTimeoutError::Disconnected) => return std::mem::take(&mut self.seen),
                Err(mpsc::RecvTimeoutError::Timeout) => panic!("it does not end; got:\n{}", self.seen),
            }
        }
    }
}
