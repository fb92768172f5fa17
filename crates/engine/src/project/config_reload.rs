//! Configuration that is edited while it is in use. It is looked at before every prompt and every list that comes from it, and
//! from time to time for whoever follows a directory. Turns that run keep what they have, and an edit that breaks something
//! changes nothing.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use api::{EventBody, MessageError, WatchItem};
use config::{Closes, Loaded, Problem, Severity};
use futures::Stream;
use futures::stream::BoxStream;
use store::Batch;
use tokio::sync::Notify;

use crate::project::instance::Instance;
use crate::{Inner, lock};

/// The pause between two looks at the files of the directories that are followed, …
const PAUSE: Duration = Duration::from_secs(1);
/// … longer if looking would take more than this part of the time (one in a hundred), …
const SHARE: u32 = 100;
/// … up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Files that changed are read when they have been the same for this long: editors write in several steps.
const SETTLE: Duration = Duration::from_millis(50);
/// How often that is waited for.
const SETTLE_TRIES: usize = 20;
/// As many files are looked at by whoever asks; more of them on a thread where that may take its time.
const QUICK_MARKS: usize = 256;
/// The most problems of an edit that are told.
const MAX_TOLD: usize = 3;

/// The directories whose events somebody follows.
#[derive(Default)]
pub(crate) struct Followed {
    directories: Mutex<HashMap<PathBuf, usize>>,
    more: Notify,
}

impl Followed {
    /// Counts a stream of events as long as it is there.
    pub(crate) fn by(
        self: &Arc<Self>,
        directory: PathBuf,
        events: BoxStream<'static, WatchItem>,
    ) -> BoxStream<'static, WatchItem> {
        *lock(&self.directories).entry(directory.clone()).or_default() += 1;
        self.more.notify_one();
        Box::pin(Following { events, directory, followed: self.clone() })
    }

    fn directories(&self) -> Vec<PathBuf> {
        lock(&self.directories).keys().cloned().collect()
    }
}

struct Following {
    events: BoxStream<'static, WatchItem>,
    directory: PathBuf,
    followed: Arc<Followed>,
}

impl Stream for Following {
    type Item = WatchItem;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<WatchItem>> {
        self.events.as_mut().poll_next(context)
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let mut directories = lock(&self.followed.directories);
        if let Some(streams) = directories.get_mut(&self.directory) {
            *streams -= 1;
            if *streams == 0 {
                directories.remove(&self.directory);
            }
        }
    }
}

/// Looks at the files of the directories that are followed, until the engine is gone.
pub(crate) fn keep(inner: &Arc<Inner>) {
    let (weak, followed, closing) = (Arc::downgrade(inner), inner.followed.clone(), inner.closing.clone());
    let looking = async move {
        loop {
            let directories = followed.directories();
            if directories.is_empty() {
                followed.more.notified().await;
                continue;
            }
            let Some(inner) = weak.upgrade() else { return };
            let mut spent = Duration::ZERO;
            for directory in directories {
                // What was not used yet is read when it is.
                let known = lock(&inner.instances).get(&directory).cloned();
                let Some(known) = known else { continue };
                let began = Instant::now();
                let old = known.is_old().await;
                spent += began.elapsed();
                if old {
                    inner.current(&directory).await;
                }
            }
            drop(inner);
            tokio::time::sleep((spent * SHARE).clamp(PAUSE, LONGEST_PAUSE)).await;
        }
    };
    tokio::spawn(async move { closing.run_until_cancelled(looking).await });
}

impl Instance {
    /// Whether a file that this was made from is another one now.
    async fn is_old(self: &Arc<Self>) -> bool {
        {
            let marks = lock(&self.marks);
            if marks.len() <= QUICK_MARKS {
                return marks.are_old();
            }
        }
        let this = self.clone();
        aside(move || lock(&this.marks).are_old()).await.unwrap_or(false)
    }
}

impl Inner {
    /// What is known about a directory, as its files are now.
    pub(crate) async fn current(self: &Arc<Self>, directory: &Path) -> Arc<Instance> {
        let known = self.instance(directory);
        if known.origin != known.directory {
            return self.current_tree(known).await;
        }
        if !known.is_old().await {
            return known;
        }
        // On a task of its own: those who follow must be told, even if the caller hangs up.
        let (inner, directory) = (self.clone(), directory.to_owned());
        let read = tokio::spawn(async move { inner.read_again(&directory).await });
        read.await.unwrap_or(known)
    }

    /// The same for the worktree of a subagent, which has the configuration of the directory that it was made from.
    async fn current_tree(self: &Arc<Self>, known: Arc<Instance>) -> Arc<Instance> {
        let origin = Box::pin(self.current(&known.origin)).await;
        if Arc::ptr_eq(&origin.source, &known.source) {
            return known;
        }
        let new = Arc::new(Instance::load(self, &known.directory, Some(&known)));
        lock(&self.instances).insert(known.directory.clone(), new.clone());
        new
    }

    async fn read_again(self: &Arc<Self>, directory: &Path) -> Arc<Instance> {
        // One at a time: the next one finds it done.
        let _reading = self.reading.lock().await;
        let known = self.instance(directory);
        if !known.is_old().await {
            return known;
        }
        settled(&known).await;
        let (inner, before) = (self.clone(), known.clone());
        let Some(new) = aside(move || Instance::load(&inner, &before.directory, Some(&before))).await else {
            return known;
        };
        let broken = broken(&known.loaded, &new.loaded);
        if !broken.is_empty() {
            lock(&known.marks).clone_from(&lock(&new.marks));
            known.refused.store(true, Ordering::Relaxed);
            self.refuse(&known, &broken).await;
            return known;
        }
        let new = Arc::new(new);
        {
            let mut instances = lock(&self.instances);
            // Worktrees of subagents have this configuration too, and read it again when they need it.
            let tree = |path: &Path, other: &Instance| path != other.origin && other.origin == new.origin;
            instances.retain(|path, other| path == directory || !tree(path, other));
            instances.insert(directory.to_owned(), new.clone());
        }
        tracing::info!(directory = %directory.display(), "the configuration was read again");
        self.tell_of(&new, EventBody::CatalogUpdated {}).await;
        new
    }

    /// An edit does not count: says why.
    async fn refuse(&self, known: &Instance, broken: &[&Problem]) {
        // That more is asked for until it is fixed is said of what is in effect, which this is not.
        let text = |problem: &&Problem| Problem { closes: Closes::Nothing, ..(*problem).clone() }.to_string();
        let texts: Vec<String> = broken.iter().take(MAX_TOLD).map(text).collect();
        let more = match broken.len().saturating_sub(MAX_TOLD) {
            0 => String::new(),
            more => format!("\n({more} more)"),
        };
        let text = format!("The configuration stays as it was before this edit:\n{}{more}", texts.join("\n"));
        tracing::warn!(directory = %known.directory.display(), "{text}");
        let error = Some(MessageError::unknown(text));
        self.tell_of(known, EventBody::SessionError { session_id: None, error }).await;
    }

    async fn tell_of(&self, instance: &Instance, event: EventBody) {
        let mut batch = Batch::new(&instance.place);
        batch.event(event);
        if let Err(error) = self.store.commit(batch).await {
            tracing::warn!(%error, "nobody is told that the configuration was edited");
        }
    }
}

/// Waits until nobody writes the files any more, for a while.
async fn settled(instance: &Arc<Instance>) {
    for _ in 0..SETTLE_TRIES {
        let before = instance.clone();
        let now = aside(move || lock(&before.marks).now()).await;
        tokio::time::sleep(SETTLE).await;
        if !matches!(aside(move || now.is_some_and(|now| now.are_old())).await, Some(true)) {
            return;
        }
    }
}

/// What an edit broke: something of it cannot be read that could be read before.
fn broken<'a>(before: &Loaded, after: &'a Loaded) -> Vec<&'a Problem> {
    let same = |a: &Problem, b: &Problem| (&a.file, &a.key, &a.message) == (&b.file, &b.key, &b.message);
    let known = |problem: &Problem| before.problems.iter().any(|other| same(other, problem));
    let counts = |problem: &Problem| problem.severity == Severity::Error || problem.closes != Closes::Nothing;
    after.problems.iter().filter(|problem| counts(problem) && !known(problem)).collect()
}

/// Does work on files where it holds nobody up; nothing if it panics.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.inspect_err(|error| tracing::error!(%error, "the configuration cannot be looked at")).ok()
}
