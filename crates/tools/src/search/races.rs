//! Paths that lead elsewhere while tools use them: nothing that needs permission may ever appear in an output.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use api::Json;
use rustix::fs::{CWD, RenameFlags};
use serde_json::json;

use crate::tool::registry::testing::Workspace;

/// How often each call is made, and the time limit for all of them.
const ROUNDS: usize = 60;
const TIME: Duration = Duration::from_secs(40);

/// What must not be revealed: the content of a file, and the name of one.
const CONTENT: &str = "TOPSECRET";
const NAME: &str = "hidden-name";

/// Swaps two folder entries as fast as possible until it is dropped. Both names always exist.
struct EntrySwapper {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<usize>>,
}

impl EntrySwapper {
    fn new(one: PathBuf, other: PathBuf) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut swaps = 0;
            while !stopped.load(Ordering::Relaxed) {
                rustix::fs::renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).unwrap();
                swaps += 1;
                // Now and then each state lasts long enough for a whole walk.
                if swaps % 7 == 0 {
                    std::thread::yield_now();
                }
            }
            swaps
        });
        Self { stop, thread: Some(thread) }
    }

    fn end(mut self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for EntrySwapper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Plays an engine that allows what needs no asking, and nothing else.
async fn call(ws: &Workspace, tool: &str, input: &Json) -> Option<String> {
    let mut ctx = ws.context();
    let needs = ws.needs(tool, input.clone()).await.ok()?;
    let asks = |need: &crate::Need| match need.permission.as_str() {
        "external_directory" => true,
        "read" => need.patterns.iter().any(|pattern| !ctx.readable.without_asking(pattern)),
        _ => false,
    };
    if needs.iter().any(asks) {
        return None;
    }
    ctx.granted = needs.into();
    Some(match ws.run_granted(ctx, tool, input.clone()).await {
        Ok(output) => format!("{} {} {}", output.title, output.output, json!(output.metadata)),
        Err(error) => error.to_string(),
    })
}

/// Makes all calls while two entries are being swapped; returns how many succeeded.
async fn race(ws: &Workspace, swap: (&str, &str), calls: &[(&str, Json)]) -> usize {
    let swapping = EntrySwapper::new(ws.path(swap.0), ws.path(swap.1));
    let (began, mut answered) = (Instant::now(), 0);
    'all: for round in 0..ROUNDS {
        for (tool, input) in calls {
            if began.elapsed() > TIME {
                break 'all;
            }
            let Some(told) = call(ws, tool, input).await else { continue };
            answered += 1;
            assert!(!told.contains(CONTENT) && !told.contains(NAME), "round {round}: {tool} {input} told:\n{told}");
        }
    }
    assert!(swapping.end() > 0);
    answered
}

/// A workspace with harmless files, some of which have the names of secret ones, and a folder of secrets next to it.
fn workspace() -> (Workspace, PathBuf) {
    let ws = Workspace::new();
    let outside = ws.outside().join("outside");
    for folder in [outside.join("deep"), ws.path("sub/deep")] {
        std::fs::create_dir_all(folder).unwrap();
    }
    for name in ["notes.txt", "deep/notes.txt", NAME, "deep/hidden-name.txt"] {
        std::fs::write(outside.join(name), format!("{CONTENT} word\n")).unwrap();
    }
    std::fs::write(outside.join("AGENTS.md"), CONTENT).unwrap();
    for n in 0..20 {
        ws.file(&format!("sub/{n}.txt"), "a word\n");
    }
    ws.file("sub/notes.txt", "a word\n");
    ws.file("sub/deep/notes.txt", "a word\n");
    ws.file("keys.env", format!("{CONTENT} word\n"));
    (ws, outside)
}

fn link(to: &Path, at: PathBuf) {
    std::os::unix::fs::symlink(to, at).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_becomes_a_link_out_of_the_workspace() {
    let (ws, outside) = workspace();
    link(&outside, ws.path("link"));
    let calls = [
        ("grep", json!({"pattern": "word"})),
        ("grep", json!({"pattern": "word", "path": "sub"})),
        ("grep", json!({"pattern": "word", "path": "sub/deep"})),
        ("grep", json!({"pattern": "word", "path": "sub/notes.txt"})),
        ("grep", json!({"pattern": "word", "include": "sub/notes.txt"})),
        ("glob", json!({"pattern": "**/*"})),
        ("glob", json!({"pattern": "sub/**"})),
        ("glob", json!({"pattern": "*", "path": "sub/deep"})),
        ("list", json!({})),
        ("list", json!({"path": "sub"})),
        ("read", json!({"filePath": "sub/notes.txt"})),
        ("read", json!({"filePath": "sub/deep/notes.txt"})),
        ("read", json!({"filePath": "sub"})),
        ("read", json!({"filePath": "sub/hidden-nam.txt"})),
    ];
    assert!(race(&ws, ("sub", "link"), &calls).await > ROUNDS);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_becomes_a_link_to_one_that_is_asked_for() {
    let (ws, outside) = workspace();
    link(&ws.path("keys.env"), ws.path("sub/near"));
    link(&outside.join(NAME), ws.path("sub/far"));
    let calls = [
        ("grep", json!({"pattern": "word"})),
        ("grep", json!({"pattern": "word", "path": "sub"})),
        ("grep", json!({"pattern": "word", "path": "sub/notes.txt"})),
        ("grep", json!({"pattern": "word", "include": "notes.txt"})),
        ("read", json!({"filePath": "sub/notes.txt"})),
    ];
    assert!(race(&ws, ("sub/notes.txt", "sub/near"), &calls).await > ROUNDS);
    assert!(race(&ws, ("sub/0.txt", "sub/far"), &calls).await > ROUNDS);
}

#[tokio::test(flavor = "multi_thread")]
async fn instructions_that_become_a_link_to_a_secret() {
    let (ws, outside) = workspace();
    ws.file("sub/AGENTS.md", "be kind");
    link(&ws.path("keys.env"), ws.path("sub/near"));
    link(&outside.join("AGENTS.md"), ws.path("sub/far"));
    let calls = [("read", json!({"filePath": "sub/1.txt"}))];
    for swapped in ["sub/near", "sub/far"] {
        assert!(race(&ws, ("sub/AGENTS.md", swapped), &calls).await > 0);
    }
}
