//! The directories that this process works in: what is loaded for each, which of them have subscribers, and the MCP
//! servers of single sessions.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use api::WatchItem;
use futures::stream::BoxStream;
use store::Location;
use tokio::sync::MutexGuard;

use crate::project::config_reload::WatchedDirectories;
use crate::project::instance::Instance;
use crate::project::mcp::SessionServers;
use crate::{Inner, lock};

/// The maximum number of directories whose configuration stays loaded.
const INSTANCES_MAX: usize = 64;

/// What is loaded for directories.
#[derive(Default)]
pub(crate) struct Projects {
    instances: Mutex<HashMap<PathBuf, Arc<Instance>>>,
    watched: Arc<WatchedDirectories>,
    /// Held while edited configuration is reloaded.
    reloading: tokio::sync::Mutex<()>,
    session_servers: SessionServers,
}

impl Projects {
    /// What is loaded for a directory.
    pub(super) fn loaded(&self, directory: &Path) -> Option<Arc<Instance>> {
        lock(&self.instances).get(directory).cloned()
    }

    /// Keeps what was loaded for a directory, unless another caller was faster. Returns what is kept.
    fn add(&self, directory: &Path, loaded: Arc<Instance>) -> Arc<Instance> {
        let mut instances = lock(&self.instances);
        if instances.len() >= INSTANCES_MAX {
            // Evict any instance: it is loaded again when needed, and current users keep theirs. Prefer one whose files
            // can still be read, because a rejected edit leaves its configuration only in memory.
            let is_readable = |instance: &Instance| !instance.has_rejected_edit.load(Ordering::Relaxed);
            let evicted =
                instances.iter().find(|(_, instance)| is_readable(instance)).or_else(|| instances.iter().next());
            evicted.map(|(directory, _)| directory.clone()).map(|directory| instances.remove(&directory));
        }
        instances.entry(directory.to_owned()).or_insert(loaded).clone()
    }

    /// Replaces what is loaded for a directory.
    pub(super) fn replace(&self, new: &Arc<Instance>) {
        lock(&self.instances).insert(new.directory.clone(), new.clone());
    }

    /// The same, and drops the instances of subagent worktrees with this configuration; they reload when needed.
    pub(super) fn replace_with_worktrees(&self, new: &Arc<Instance>) {
        let mut instances = lock(&self.instances);
        let tree = |path: &Path, other: &Instance| path != other.origin && other.origin == new.origin;
        instances.retain(|path, other| *path == new.directory || !tree(path, other));
        instances.insert(new.directory.clone(), new.clone());
    }

    /// Drops what is loaded for a directory.
    pub(super) fn forget(&self, directory: &Path) {
        // A subagent's worktree uses the configuration of the directory it was made from.
        lock(&self.instances).retain(|path, instance| path != directory && instance.origin != directory);
    }

    /// Drops what is loaded for a directory and those below it. Returns the affected places.
    pub(super) fn forget_below(&self, directory: &str) -> Vec<Location> {
        // A subagent's worktree uses the configuration of the directory it was made from.
        let below = |at: &PathBuf, instance: &mut Arc<Instance>| {
            at.starts_with(directory) || instance.origin.starts_with(directory)
        };
        let forgotten: Vec<_> = lock(&self.instances).extract_if(below).collect();
        forgotten.into_iter().map(|(_, instance)| instance.place.clone()).collect()
    }

    /// Waits until nobody else reloads configuration.
    pub(super) async fn lock_reloading(&self) -> MutexGuard<'_, ()> {
        self.reloading.lock().await
    }

    /// The directories whose events have subscribers.
    pub(super) fn watched(&self) -> &Arc<WatchedDirectories> {
        &self.watched
    }

    /// Counts a stream of a directory's events for as long as it exists.
    pub(crate) fn track(
        &self,
        directory: PathBuf,
        events: BoxStream<'static, WatchItem>,
    ) -> BoxStream<'static, WatchItem> {
        self.watched.track(directory, events)
    }

    /// The MCP servers of single sessions.
    pub(crate) fn session_servers(&self) -> &SessionServers {
        &self.session_servers
    }
}

impl Inner {
    /// Everything known about a directory, loaded on first use.
    pub(crate) fn instance(&self, directory: &Path) -> Arc<Instance> {
        match self.projects.loaded(directory) {
            Some(loaded) => loaded,
            None => self.projects.add(directory, Arc::new(Instance::load(self, directory, None))),
        }
    }
}
