//! Helpers shared by all tests of the store.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use api::*;
use futures::StreamExt;
use futures::stream::BoxStream;
use rusqlite::Connection;
use serde_json::json;
use trefoil_store::{AcquireOutcome, Batch, Lease, Location, Store};

/// The longest that any test waits for something to happen.
pub const WAIT: Duration = Duration::from_secs(60);

pub struct Temp {
    pub folder: tempfile::TempDir,
}

impl Temp {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("data/trefoil.db")
    }

    pub fn open(&self) -> Store {
        Store::open(&self.path()).unwrap()
    }

    /// Creates the database as the version with this schema left it, without rows.
    pub fn create_old(&self, version: u32) -> Connection {
        fs::create_dir_all(self.path().parent().unwrap()).unwrap();
        let old = Connection::open(self.path()).unwrap();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/sqlite/schema");
        for version in 1..=version {
            old.execute_batch(&fs::read_to_string(folder.join(format!("{version}.sql"))).unwrap()).unwrap();
        }
        old.execute_batch(&format!("PRAGMA application_id = 1416783206; PRAGMA user_version = {version}")).unwrap();
        old
    }
}

pub fn location() -> Location {
    Location::new("/repo", "project")
}

pub fn batch() -> Batch {
    Batch::new(&location())
}

pub fn session(title: &str, updated: i64) -> Session {
    serde_json::from_value(json!({
        "id": SessionId::new(), "slug": "calm-fox", "projectID": "project", "directory": "/repo", "title": title,
        "version": "1", "time": {"created": 1, "updated": updated}, "unknown": {"kept": true},
    }))
    .unwrap()
}

pub fn user(session: &SessionId, created: i64) -> Message {
    serde_json::from_value(json!({
        "role": "user", "id": MessageId::new(), "sessionID": session, "time": {"created": created}, "agent": "build",
        "model": {"providerID": "script", "modelID": "demo"},
    }))
    .unwrap()
}

pub fn text(message: &Message, text: &str, open: bool) -> Part {
    let mut value = json!({
        "type": "text", "id": PartId::new(), "sessionID": message.session_id(), "messageID": message.id(), "text": text,
        "time": {"start": 1},
    });
    if !open {
        value["time"]["end"] = json!(2);
    }
    serde_json::from_value(value).unwrap()
}

/// The part with another text.
pub fn with_text(part: &Part, text: &str, end: Option<i64>) -> Part {
    let mut part = part.clone();
    if let Part::Text(inner) = &mut part {
        inner.text = text.to_owned();
        inner.time.as_mut().unwrap().end = end;
    }
    part
}

pub fn part_text(part: &Part) -> String {
    part.as_text().unwrap().text.clone()
}

pub fn toast(message: impl Into<String>) -> EventBody {
    EventBody::TuiToastShow { title: None, message: message.into(), variant: "info".into(), duration: None }
}

pub fn toast_batch(message: impl Into<String>) -> Batch {
    let mut batch = batch();
    batch.event(toast(message));
    batch
}

pub fn toast_text(frame: &Frame) -> Option<String> {
    match &frame.event()?.body {
        EventBody::TuiToastShow { message, .. } => Some(message.clone()),
        _ => None,
    }
}

pub async fn next(stream: &mut BoxStream<'static, WatchItem>) -> WatchItem {
    tokio::time::timeout(WAIT, stream.next()).await.expect("an item in time").expect("the stream goes on")
}

pub async fn next_frame(stream: &mut BoxStream<'static, WatchItem>) -> Frame {
    match next(stream).await {
        WatchItem::Frame(frame) => frame,
        other => panic!("expected a frame, got {other:?}"),
    }
}

pub async fn lease(store: &Store, session: &SessionId) -> Lease {
    match store.acquire(session).await.unwrap() {
        AcquireOutcome::Acquired { lease, .. } => lease,
        held => panic!("expected to take the lease, got {held:?}"),
    }
}

/// Runs this test binary again, with only the given test of `processes` and the database in `TREFOIL_TEST_DB`.
pub fn child(name: &str, temp: &Temp) -> Child {
    // Makes a write beyond the file size limit an error instead of ending the process.
    Command::new("sh")
        .args(["-c", "trap '' XFSZ; exec \"$@\"", "sh"])
        .arg(std::env::current_exe().unwrap())
        .args([&format!("processes::{name}"), "--exact", "--nocapture", "--test-threads=1"])
        .env("TREFOIL_TEST_DB", temp.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The database that a parent test wants this process to work on; `None` in a normal test run.
pub fn as_child() -> Option<Store> {
    std::env::var_os("TREFOIL_TEST_DB").map(|path| Store::open(path.as_ref()).unwrap())
}

/// Sends a word to the parent test.
pub fn tell_parent(word: &str) {
    use std::io::Write;
    let mut out = std::io::stdout();
    writeln!(out, "\n@{word}").unwrap();
    out.flush().unwrap();
}

/// The output of a child, line by line.
pub struct ChildOutput {
    lines: mpsc::Receiver<String>,
    lines_read: Vec<String>,
}

impl ChildOutput {
    pub fn of(child: &mut Child) -> Self {
        let out = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || out.lines().map_while(Result::ok).all(|line| sender.send(line).is_ok()));
        Self { lines, lines_read: Vec::new() }
    }

    /// The next word that the child sends to us.
    pub fn next_word(&mut self) -> String {
        loop {
            let line = self.lines.recv_timeout(WAIT);
            let line =
                line.unwrap_or_else(|error| panic!("the child says nothing ({error}); read: {:#?}", self.lines_read));
            self.lines_read.push(line.clone());
            if let Some(word) = line.trim().strip_prefix('@') {
                return word.to_owned();
            }
        }
    }

    /// Waits until the child has ended.
    pub fn wait_for_end(self) {
        let began = Instant::now();
        while self.lines.recv_timeout(WAIT.saturating_sub(began.elapsed())) != Err(RecvTimeoutError::Disconnected) {
            assert!(began.elapsed() < WAIT, "the child does not end; read: {:#?}", self.lines_read);
        }
    }
}

/// Waits until the parent closes our input or ends.
pub fn wait_for_parent() {
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
}
