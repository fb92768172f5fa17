//! Removes what is no longer needed: leftovers of deletions, expired sessions, and unreferenced tool outputs.
//!
//! Each session has its own folder for long outputs, which is deleted with it. Folders of unknown sessions are kept
//! until they are old, because another database may use the same data directory.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use api::{HostError, Session, SessionId};
use config::Dirs;
use serde::Serialize;
use store::{AskFilter, Batch, Location, SessionQuery, StoreError};

use crate::error::store_error;
use crate::{Engine, Error, Inner, run_blocking};

/// The folder of long outputs, below the data directory.
const OUTPUT_FOLDER: &str = "tool-output";
/// The prefix of output file names.
const OUTPUT_PREFIX: &str = "tool_";
/// An output of this age is removed, even if a part refers to it.
const OUTPUT_AGE: Duration = Duration::from_secs(30 * DAY);
/// An unreferenced output is kept this long: the call that writes it may still be running.
const UNREFERENCED_AGE: Duration = Duration::from_secs(DAY);
/// The maximum number of files removed in one run; the next run continues.
const FILES_MAX: usize = 100_000;
/// The maximum number of expired sessions removed in one run.
const SESSIONS_MAX: usize = 1_000;

const DAY: u64 = 24 * 60 * 60;

/// What to look for.
#[derive(Debug, Clone, Copy, Default)]
pub struct TidyOptions {
    /// Only count, remove nothing.
    pub dry_run: bool,
    /// Also look for what older versions left of deleted sessions, and for outputs whose call is gone.
    pub thorough: bool,
}

/// What was removed, or would be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct TidyReport {
    /// Sessions older than the configured age, each with everything below it.
    pub sessions: Vec<SessionId>,
    /// Deleted sessions that had left something behind.
    pub leftovers: usize,
    /// The number of long tool outputs.
    pub outputs: usize,
    /// Their size in bytes.
    pub output_bytes: u64,
    /// What could not be removed, and why.
    pub problems: Vec<String>,
}

/// The folder of long outputs.
pub(crate) fn outputs(dirs: &Dirs) -> PathBuf {
    dirs.data.join(OUTPUT_FOLDER)
}

/// The name of a session's output folder. Ids may come from elsewhere and must not lead out of the parent folder.
pub(crate) fn session_folder(session: &SessionId) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    session.as_str().chars().map(|c| if safe(c) { c } else { '~' }).collect()
}

impl Engine {
    /// Removes what is no longer needed. The store returns free database space by itself.
    pub async fn tidy(&self, options: TidyOptions) -> Result<TidyReport, HostError> {
        self.inner.tidy(options).await
    }

    /// Finishes interrupted deletions.
    pub async fn sweep(&self) -> Result<(), HostError> {
        self.inner.sweep().await.map_err(HostError::from)
    }

    /// The folder of long outputs.
    pub fn outputs(dirs: &Dirs) -> PathBuf {
        outputs(dirs)
    }
}

impl Inner {
    async fn tidy(self: &Arc<Self>, options: TidyOptions) -> Result<TidyReport, HostError> {
        let mut report = TidyReport::default();
        for session in self.expired_sessions().await? {
            if !options.dry_run
                && let Err(error) = self.delete(&session).await
            {
                report.problems.push(format!("{session}: {error}"));
                continue;
            }
            report.sessions.push(session);
        }
        let mut leftovers: HashSet<SessionId> =
            self.store.unswept_sessions().map_err(store_error)?.into_iter().collect();
        if options.thorough {
            let store = self.store.clone();
            let orphaned = run_blocking(move || store.orphaned_sessions()).await?.map_err(store_error)?;
            let new: Vec<SessionId> = orphaned.into_iter().filter(|id| !leftovers.contains(id)).collect();
            if !options.dry_run && !new.is_empty() {
                let mut batch = Batch::new(&Location::new("", "")).durable();
                new.iter().for_each(|id| batch.mark_orphaned(id));
                self.store.commit(batch).await.map_err(store_error)?;
            }
            leftovers.extend(new);
        }
        report.leftovers = leftovers.len();
        if !options.dry_run {
            self.sweep().await.map_err(HostError::from)?;
        }
        let (store, folder) = (self.store.clone(), outputs(&self.settings.inputs.dirs));
        let scanned = run_blocking(move || OutputScan { store, folder, options, report }.scan()).await?;
        scanned.map_err(store_error)
    }

    /// Finishes deletions: removes expired records, and the files of deleted sessions, then the rest of their rows and
    /// events.
    pub(crate) async fn sweep(&self) -> Result<(), Error> {
        self.store.sweep_records(api::now()).await?;
        let mut removed = self.store.unswept_sessions()?;
        if removed.is_empty() {
            return Ok(());
        }
        let folder = outputs(&self.settings.inputs.dirs);
        let drop_files = move || {
            removed.retain(|session| match fs::remove_dir_all(folder.join(session_folder(session))) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    tracing::warn!(%session, %error, "cannot remove the outputs of a deleted session");
                    false
                }
                _ => true,
            });
            removed
        };
        let removed = run_blocking(drop_files).await?;
        Ok(self.store.sweep(&removed).await?)
    }

    /// Sessions untouched for longer than the user's configuration keeps them, with no active session in or below them.
    async fn expired_sessions(&self) -> Result<Vec<SessionId>, HostError> {
        let inputs = self.inputs_at(Path::new("/"));
        let config = run_blocking(move || config::global(&inputs)).await?;
        let Some(days) = config["session"]["max_age_days"].as_u64().filter(|days| *days > 0) else {
            return Ok(Vec::new());
        };
        let age = i64::try_from(days.saturating_mul(DAY * 1000)).unwrap_or(i64::MAX);
        let before = api::now().saturating_sub(age);
        let query = SessionQuery { roots: true, before: Some(before), limit: SESSIONS_MAX, ..SessionQuery::default() };
        let mut old = Vec::new();
        for session in self.store.long_read(move |store| store.sessions(&query)).await.map_err(store_error)? {
            tokio::task::yield_now().await;
            let family = self.store.subtree(&session.id).map_err(store_error)?;
            let is_idle = |session: &Session| Ok(session.time.updated < before && !self.is_active(&session.id)?);
            if family
                .iter()
                .map(is_idle)
                .collect::<Result<Vec<bool>, StoreError>>()
                .map_err(store_error)?
                .contains(&false)
            {
                continue;
            }
            old.push(session.id);
        }
        Ok(old)
    }

    /// Whether a session is running, was interrupted, or waits for something.
    fn is_active(&self, session: &SessionId) -> Result<bool, StoreError> {
        let filter = AskFilter { session: Some(session.clone()), ..AskFilter::default() };
        Ok(self.turns.is_running(session)
            || self.store.lease_holder(session)?.is_some()
            || self.store.current_turn(session)?.is_some()
            || !self.store.permissions(&filter)?.is_empty()
            || !self.store.questions(&filter)?.is_empty()
            || !self.store.tasks_of(session)?.is_empty()
            || !self.store.tasks_for(session)?.is_empty())
    }
}

/// One scan of the long outputs.
struct OutputScan {
    store: store::Store,
    folder: PathBuf,
    options: TidyOptions,
    report: TidyReport,
}

impl OutputScan {
    fn scan(mut self) -> Result<TidyReport, StoreError> {
        let referenced = if self.options.thorough { self.referenced_names()? } else { None };
        for entry in entries(&self.folder) {
            let name = entry.file_name().to_string_lossy().into_owned();
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                // Older versions put all outputs here.
                if name.starts_with(OUTPUT_PREFIX) && is_old(&entry.path(), OUTPUT_AGE) {
                    self.remove(&entry.path());
                }
                continue;
            }
            let session = SessionId::parse(&name).ok();
            let session = session.map(|id| self.store.session(&id)).transpose()?.flatten();
            // Only for an idle session is it certain that nobody is writing one of its files.
            let is_idle = session.as_ref().map(|session| self.store.lease_holder(&session.id)).transpose()?;
            let is_idle = is_idle.is_some_and(|holder| holder.is_none());
            for file in entries(&entry.path()) {
                let path = file.path();
                let known = |names: &HashSet<String>| names.contains(&*file.file_name().to_string_lossy());
                let lost = is_idle && referenced.as_ref().is_some_and(|names| !known(names));
                if is_old(&path, OUTPUT_AGE) || lost && is_old(&path, UNREFERENCED_AGE) {
                    self.remove(&path);
                }
            }
            if !self.options.dry_run && is_old(&entry.path(), UNREFERENCED_AGE) {
                // Fails if the folder is not empty.
                let _ = fs::remove_dir(entry.path());
            }
        }
        Ok(self.report)
    }

    fn remove(&mut self, path: &Path) {
        if self.report.outputs >= FILES_MAX {
            return;
        }
        let bytes = fs::symlink_metadata(path).map_or(0, |file| file.len());
        if !self.options.dry_run
            && let Err(error) = fs::remove_file(path)
        {
            self.report.problems.push(format!("{}: {error}", path.display()));
            return;
        }
        self.report.outputs += 1;
        self.report.output_bytes += bytes;
    }

    /// The names of all outputs that a stored part refers to. Returns `None` if no file is old enough for it to matter.
    fn referenced_names(&self) -> Result<Option<HashSet<String>>, StoreError> {
        let folders = entries(&self.folder).filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        if !folders.flat_map(|folder| entries(&folder.path())).any(|file| is_old(&file.path(), UNREFERENCED_AGE)) {
            return Ok(None);
        }
        let mut names = HashSet::new();
        self.store.for_each_part_containing(OUTPUT_FOLDER, |json| {
            for (at, _) in json.match_indices(OUTPUT_PREFIX) {
                let rest = &json[at + OUTPUT_PREFIX.len()..];
                let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
                names.insert(json[at..at + OUTPUT_PREFIX.len() + end].to_owned());
            }
        })?;
        Ok(Some(names))
    }
}

fn entries(folder: &Path) -> impl Iterator<Item = fs::DirEntry> + use<> {
    fs::read_dir(folder).into_iter().flatten().flatten()
}

/// Whether a file is at least this old.
fn is_old(path: &Path, age: Duration) -> bool {
    let written = fs::symlink_metadata(path).and_then(|file| file.modified());
    // The same clock as for the age of sessions.
    let now = SystemTime::UNIX_EPOCH + Duration::from_millis(u64::try_from(api::now()).unwrap_or(0));
    written.is_ok_and(|written| now.duration_since(written).is_ok_and(|since| since >= age))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_id_cannot_lead_out_of_its_folder() {
        let name = |id: &str| session_folder(&SessionId::parse(id).unwrap());
        assert_eq!(name("ses_1a2B"), "ses_1a2B");
        assert_eq!(name("ses/../../etc"), "ses~~~~~~~etc");
        assert_eq!(name("ses_ö\0"), "ses_~~");
    }
}
