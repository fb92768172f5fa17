//! Reloads configuration that is edited while in use. The files are checked before every prompt and every list made
//! from them, and periodically for directories with subscribers. Running turns keep their configuration, and an edit
//! that breaks something has no effect.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use api::{EventBody, MessageError, WatchItem};
use config::{AffectedAgents, LoadedConfig, Problem, Severity};
use futures::Stream;
use futures::stream::BoxStream;
use store::Batch;
use tokio::sync::Notify;

use crate::project::instance::Instance;
use crate::{Inner, lock, run_blocking};

/// The pause between two checks of the directories with subscribers, …
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// … longer if checking would take more than 1/100 of the time, …
const INTERVAL_FACTOR: u32 = 100;
/// … up to this.
const LONGEST_INTERVAL: Duration = Duration::from_secs(10);
/// Changed files are read once they have stayed the same for this long: editors write in several steps.
const SETTLE: Duration = Duration::from_millis(50);
/// How many times to wait for that.
const SETTLE_TRIES: usize = 20;
/// Up to this many files are checked inline; more are checked on a blocking thread.
const INLINE_STAMPS_MAX: usize = 256;
/// The maximum number of problems reported for one edit.
const REPORTED_PROBLEMS_MAX: usize = 3;

/// The directories whose events have subscribers.
#[derive(Default)]
pub(crate) struct WatchedDirectories {
    directories: Mutex<HashMap<PathBuf, usize>>,
    added: Notify,
}

impl WatchedDirectories {
    /// Counts a stream of events for as long as it exists.
    pub(crate) fn track(
        self: &Arc<Self>,
        directory: PathBuf,
        events: BoxStream<'static, WatchItem>,
    ) -> BoxStream<'static, WatchItem> {
        *lock(&self.directories).entry(directory.clone()).or_default() += 1;
        self.added.notify_one();
        Box::pin(TrackedEvents { events, directory, watched: self.clone() })
    }

    fn directories(&self) -> Vec<PathBuf> {
        lock(&self.directories).keys().cloned().collect()
    }
}

struct TrackedEvents {
    events: BoxStream<'static, WatchItem>,
    directory: PathBuf,
    watched: Arc<WatchedDirectories>,
}

impl Stream for TrackedEvents {
    type Item = WatchItem;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<WatchItem>> {
        self.events.as_mut().poll_next(context)
    }
}

impl Drop for TrackedEvents {
    fn drop(&mut self) {
        let mut directories = lock(&self.watched.directories);
        if let Some(streams) = directories.get_mut(&self.directory) {
            *streams -= 1;
            if *streams == 0 {
                directories.remove(&self.directory);
            }
        }
    }
}

/// Checks the files of directories with subscribers until the engine is dropped.
pub(crate) fn spawn_watcher(inner: &Arc<Inner>) {
    let (weak, watched, closing) =
        (Arc::downgrade(inner), inner.projects.watched().clone(), inner.tasks.closing().clone());
    let watch = async move {
        loop {
            let directories = watched.directories();
            if directories.is_empty() {
                watched.added.notified().await;
                continue;
            }
            let Some(inner) = weak.upgrade() else { return };
            let mut spent = Duration::ZERO;
            for directory in directories {
                // A directory that was never used is loaded on first use.
                let Some(known) = inner.projects.loaded(&directory) else { continue };
                let began = Instant::now();
                let old = known.is_outdated().await;
                spent += began.elapsed();
                if old {
                    inner.current_instance(&directory).await;
                }
            }
            drop(inner);
            tokio::time::sleep((spent * INTERVAL_FACTOR).clamp(POLL_INTERVAL, LONGEST_INTERVAL)).await;
        }
    };
    tokio::spawn(async move { closing.run_until_cancelled(watch).await });
}

impl Instance {
    /// Whether a file this instance was loaded from has changed.
    async fn is_outdated(self: &Arc<Self>) -> bool {
        {
            let mut stamps = lock(&self.file_stamps);
            if stamps.len() <= INLINE_STAMPS_MAX {
                return stamps.have_changed();
            }
        }
        let this = self.clone();
        run_blocking(move || lock(&this.file_stamps).have_changed()).await.unwrap_or(false)
    }
}

impl Inner {
    /// The instance of a directory, reloaded if its files have changed.
    pub(crate) async fn current_instance(self: &Arc<Self>, directory: &Path) -> Arc<Instance> {
        let known = self.instance(directory);
        if known.origin != known.directory {
            return self.current_worktree_instance(known).await;
        }
        if !known.is_outdated().await {
            return known;
        }
        // On a separate task: subscribers must be notified even if the caller hangs up.
        let (inner, directory) = (self.clone(), directory.to_owned());
        let reloaded = tokio::spawn(async move { inner.reload(&directory).await });
        reloaded.await.unwrap_or(known)
    }

    /// The same for a subagent's worktree, which uses the configuration of the directory it was made from.
    async fn current_worktree_instance(self: &Arc<Self>, known: Arc<Instance>) -> Arc<Instance> {
        let origin = Box::pin(self.current_instance(&known.origin)).await;
        if Arc::ptr_eq(&origin.source, &known.source) {
            return known;
        }
        let new = Arc::new(Instance::load(self, &known.directory, Some(&known)));
        self.projects.replace(&new);
        new
    }

    async fn reload(self: &Arc<Self>, directory: &Path) -> Arc<Instance> {
        // One at a time: later callers find the reload done.
        let _guard = self.projects.lock_reloading().await;
        let known = self.instance(directory);
        if !known.is_outdated().await {
            return known;
        }
        wait_until_settled(&known).await;
        let (inner, before) = (self.clone(), known.clone());
        let Ok(new) = run_blocking(move || Instance::load(&inner, &before.directory, Some(&before))).await else {
            return known;
        };
        let problems = new_problems(&known.loaded, &new.loaded);
        if !problems.is_empty() {
            lock(&known.file_stamps).clone_from(&lock(&new.file_stamps));
            known.has_rejected_edit.store(true, Ordering::Relaxed);
            self.report_rejected_edit(&known, &problems).await;
            return known;
        }
        let new = Arc::new(new);
        self.projects.replace_with_worktrees(&new);
        tracing::info!(directory = %directory.display(), "configuration reloaded");
        self.send_event(&new, EventBody::CatalogUpdated {}).await;
        new
    }

    /// Reports why an edit has no effect.
    async fn report_rejected_edit(&self, known: &Instance, problems: &[&Problem]) {
        // A problem's remark about stricter defaults applies to configuration in effect, which this is not.
        let text = |problem: &&Problem| Problem { affects: AffectedAgents::None, ..(*problem).clone() }.to_string();
        let texts: Vec<String> = problems.iter().take(REPORTED_PROBLEMS_MAX).map(text).collect();
        let more = match problems.len().saturating_sub(REPORTED_PROBLEMS_MAX) {
            0 => String::new(),
            more => format!("\n({more} more)"),
        };
        let text = format!("The configuration stays as it was before this edit:\n{}{more}", texts.join("\n"));
        tracing::warn!(directory = %known.directory.display(), "{text}");
        let error = Some(MessageError::unknown(text));
        self.send_event(known, EventBody::SessionError { session_id: None, error }).await;
    }

    async fn send_event(&self, instance: &Instance, event: EventBody) {
        let mut batch = Batch::new(&instance.place);
        batch.event(event);
        if let Err(error) = self.store.commit(batch).await {
            tracing::warn!(%error, "cannot publish a configuration change");
        }
    }
}

/// Waits, within limits, until the files stop changing.
async fn wait_until_settled(instance: &Arc<Instance>) {
    for _ in 0..SETTLE_TRIES {
        let before = instance.clone();
        let now = run_blocking(move || lock(&before.file_stamps).now()).await;
        tokio::time::sleep(SETTLE).await;
        if !matches!(run_blocking(move || now.is_ok_and(|mut now| now.have_changed())).await, Ok(true)) {
            return;
        }
    }
}

/// The problems an edit introduced: something that could be read before and now cannot.
fn new_problems<'a>(before: &LoadedConfig, after: &'a LoadedConfig) -> Vec<&'a Problem> {
    let same = |a: &Problem, b: &Problem| (&a.file, &a.key, &a.message) == (&b.file, &b.key, &b.message);
    let known = |problem: &Problem| before.problems.iter().any(|other| same(other, problem));
    let counts = |problem: &Problem| problem.severity == Severity::Error || problem.affects != AffectedAgents::None;
    after.problems.iter().filter(|problem| counts(problem) && !known(problem)).collect()
}
