//! A project, the program in it, and what a kill leaves behind.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use api::{Cursor, EventBody, Frame, WatchItem, WatchScope};
use futures::StreamExt as _;
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
use store::{Batch, Location, Store};
use testkit::{TempProject, WAIT};

/// How often to look for dying processes: only a parent is told of their end.
const LOOK: Duration = Duration::from_millis(2);

/// A project with its journal and its command's traces in one folder, so that a state can be saved and restored.
pub struct Fixture {
    pub project: TempProject,
    /// The log's first event.
    pub origin: Cursor,
    /// The arguments of every `run`.
    flags: &'static [&'static str],
}

/// How a run of the program ended.
pub struct RunResult {
    /// `None` if it was killed.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl RunResult {
    pub fn killed(&self) -> bool {
        self.code.is_none()
    }

    /// Fails with the whole output unless the program exited with that code.
    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "\nstdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }
}

impl Fixture {
    /// A project whose model plays `steps`, and a journal with one event.
    pub fn new(steps: Value, config: Value, flags: &'static [&'static str]) -> Self {
        let project = TempProject::without_git();
        project.write("notes.txt", "a line to read\n");
        project.write_home("script.json", json!({ "default": steps }).to_string());
        project.write_home(".config/trefoil/trefoil.json", config.to_string());
        let store = Store::open(&project.path().join("state/trefoil.db")).unwrap();
        let mut batch = Batch::new(&Location::new("", ""));
        batch.event(EventBody::LspUpdated {});
        let origin = block_on(store.commit(batch)).unwrap().last.unwrap();
        Self { project, origin, flags }
    }

    fn command(&self, args: &[&str], crash_after: Option<u64>) -> Command {
        let mut command = self.project.command(env!("CARGO_BIN_EXE_trefoil"));
        command.arg("run").args(self.flags).args(args);
        command.env("TREFOIL_DB", self.state().join("trefoil.db"));
        command.env("TREFOIL_SCRIPT", self.project.home().join("script.json"));
        command.envs(crash_after.map(|number| ("TREFOIL_CRASH_AFTER", number.to_string())));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Sends the prompt. The session has a title, so that no title is made during the turn.
    pub fn send(&self, crash_after: Option<u64>) -> RunResult {
        finish(self.command(&["--title", "crash", "--format", "json", "go"], crash_after).spawn().unwrap())
    }

    /// Sends the prompt, and leaves the program running.
    pub fn start(&self) -> Child {
        self.command(&["--title", "crash", "--format", "json", "go"], None).spawn().unwrap()
    }

    /// Resumes what was interrupted.
    pub fn resume(&self, crash_after: Option<u64>) -> RunResult {
        finish(self.command(&["--continue", "--format", "json"], crash_after).spawn().unwrap())
    }

    /// Resumes a session by its id.
    pub fn resume_session(&self, id: &api::SessionId) -> RunResult {
        finish(self.command(&["--session", id.as_str(), "--format", "json"], None).spawn().unwrap())
    }

    /// Sends another prompt to the same session.
    pub fn again(&self) -> RunResult {
        finish(self.command(&["--continue", "--format", "json", "again"], None).spawn().unwrap())
    }

    fn state(&self) -> PathBuf {
        self.project.path().join("state")
    }

    /// How often the command's side effect happened.
    pub fn effects(&self) -> usize {
        fs::read_to_string(self.state().join("effects")).map_or(0, |text| text.lines().count())
    }

    /// Saves the current state.
    pub fn keep(&self) {
        copy(&self.state(), &self.project.root().join("kept"));
    }

    /// Restores the saved state.
    pub fn go_back(&self) {
        copy(&self.project.root().join("kept"), &self.state());
    }

    /// A copy of the journal: opening the real one would clean up what a crash left.
    pub fn journal(&self) -> Store {
        let view = self.project.root().join("view");
        copy(&self.state(), &view);
        Store::open(&view.join("trefoil.db")).unwrap()
    }

    /// The processes that work in the project. One without a command line is a zombie.
    pub fn living(&self) -> Vec<String> {
        let mut living = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let here = fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(self.project.path()));
            let line = fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
            if here && !line.is_empty() {
                living.push(format!("{} {}", entry.file_name().display(), line.replace('\0', " ")));
            }
        }
        living
    }

    /// The supervisor of the running command.
    pub fn supervisor(&self) -> Option<Pid> {
        let living = self.living();
        let line = living.iter().find(|line| line.contains(exec::SUPERVISE_ARG))?;
        Pid::from_raw(line.split(' ').next()?.parse().ok()?)
    }

    /// Waits until no process works in the project.
    pub fn wait_for_silence(&self) {
        let began = Instant::now();
        while !self.living().is_empty() {
            assert!(began.elapsed() < WAIT, "still alive after {WAIT:?}: {:#?}", self.living());
            std::thread::sleep(LOOK);
        }
    }
}

/// Waits for the program's end, within a limit.
#[track_caller]
pub fn finish(child: Child) -> RunResult {
    let output = testkit::finish("the program", child, WAIT);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let (status, stdout, stderr) = (output.status, text(output.stdout), text(output.stderr));
    let killed = status.signal() == Some(Signal::KILL.as_raw());
    assert!(killed || status.code().is_some(), "{status}\n{stderr}");
    RunResult { code: status.code(), stdout, stderr }
}

/// Makes `to` a folder with the same files as `from`.
pub fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

/// The events after a cursor as a watcher gets them, with the parts that still grow at the end.
pub fn replay(store: &Store, after: &Cursor) -> Vec<Frame> {
    let mut watch = store.watch(WatchScope::All, Some(after.clone())).unwrap();
    // Nothing of the replay comes after it.
    let end = EventBody::TuiToastShow { title: None, message: "end".into(), variant: "info".into(), duration: None };
    store.publish_transient(&Location::new("", ""), end);
    let is_end =
        |frame: &Frame| frame.cursor.is_none() && matches!(frame.event().unwrap().body, EventBody::TuiToastShow { .. });
    block_on(async {
        let mut frames = Vec::new();
        loop {
            match tokio::time::timeout(WAIT, watch.next()).await.expect("the end of the replay") {
                Some(WatchItem::Frame(frame)) if is_end(&frame) => return frames,
                Some(WatchItem::Frame(frame)) => frames.push(frame),
                other => panic!("{other:?}"),
            }
        }
    })
}
