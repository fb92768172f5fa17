//! Walks a folder tree as ripgrep does: in parallel, respecting `.gitignore` and the like, following no symbolic links.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use globset::{Glob, GlobBuilder, GlobMatcher};
use ignore::{DirEntry, WalkBuilder, WalkState};
use tokio_util::sync::CancellationToken;

use crate::tool::ToolError;

/// After this time a search returns what it has found.
pub(crate) const SEARCH_TIME: Duration = Duration::from_secs(60);
/// The maximum number of results shown.
pub(crate) const MAX_RESULTS: usize = 100;

/// Tells a search when to stop.
#[derive(Clone)]
pub(crate) struct StopCondition {
    cancel: CancellationToken,
    deadline: Instant,
}

impl StopCondition {
    pub fn new(cancel: CancellationToken) -> Self {
        Self { cancel, deadline: Instant::now() + SEARCH_TIME }
    }

    pub fn reached(&self) -> bool {
        self.cancel.is_cancelled() || self.timed_out()
    }

    pub fn timed_out(&self) -> bool {
        Instant::now() >= self.deadline
    }
}

/// Runs a tool's search on a blocking thread. A cancelled search is an error, whatever it has found.
pub(crate) async fn search<T: Send + 'static>(
    cancel: &CancellationToken,
    work: impl FnOnce(&StopCondition) -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    let stop = StopCondition::new(cancel.clone());
    let found = tokio::task::spawn_blocking(move || work(&stop)).await;
    let found = found.map_err(|error| ToolError::failed(format!("The search failed: {error}")))?;
    if cancel.is_cancelled() { Err(ToolError::Aborted) } else { found }
}

/// Passes every file below `root` to a visitor, one per thread. Skips hidden files unless `hidden`, and always `.git`.
pub(crate) fn files<V>(root: &Path, hidden: bool, stop: &StopCondition, visitor: impl Fn() -> V + Sync)
where
    V: FnMut(DirEntry) -> WalkState + Send,
{
    if is_kernel_fs(root) {
        return;
    }
    let whole_disk = root == Path::new("/");
    let walk = WalkBuilder::new(root)
        .hidden(!hidden)
        .add_custom_ignore_filename(".rgignore")
        .filter_entry(move |entry| {
            let kernel = whole_disk && entry.depth() == 1 && is_kernel_fs(entry.path());
            !kernel && (entry.depth() == 0 || entry.file_name() != ".git")
        })
        .build_parallel();
    walk.run(|| {
        let mut visit = visitor();
        Box::new(move |entry| {
            if stop.reached() {
                return WalkState::Quit;
            }
            match entry {
                Ok(entry) if entry.file_type().is_some_and(|kind| kind.is_file()) => visit(entry),
                // Skip what cannot be read, as ripgrep does.
                _ => WalkState::Continue,
            }
        })
    });
}

/// Whether a folder exposes kernel state. What looks like a file there may never end, or block forever.
fn is_kernel_fs(path: &Path) -> bool {
    let real = path.canonicalize();
    let path = real.as_deref().unwrap_or(path);
    ["/dev", "/proc", "/sys"].iter().any(|kernel| path.starts_with(kernel))
}

/// The modification time of a file, for sorting results.
pub(crate) fn modified(entry: &DirEntry) -> SystemTime {
    entry.metadata().ok().and_then(|m| m.modified().ok()).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Parses a glob as in `.gitignore`: without a slash it matches at any depth.
pub(crate) fn glob(pattern: &str) -> Result<GlobMatcher, ToolError> {
    let build = |pattern: &str| -> Result<Glob, globset::Error> {
        GlobBuilder::new(pattern).literal_separator(true).backslash_escape(true).build()
    };
    let trimmed = pattern.strip_prefix("./").unwrap_or(pattern);
    let anywhere = if trimmed.contains('/') { trimmed.to_owned() } else { format!("**/{trimmed}") };
    let glob = build(anywhere.strip_prefix('/').unwrap_or(&anywhere));
    glob.map(|glob| glob.compile_matcher()).map_err(|error| {
        ToolError::failed(format!(
            "{pattern:?} is not a glob: {}. Examples: **/*.rs, src/**/*.{{ts,tsx}}",
            error.kind()
        ))
    })
}

/// Splits a glob into the folder before its first wildcard and the rest, so that a search can start there:
/// `src/**/*.rs` is `src` and `/**/*.rs`.
pub(crate) fn split_folder(pattern: &str) -> (&str, &str) {
    let open = pattern.find(['*', '?', '[', '{', '\\']).unwrap_or(pattern.len());
    match pattern[..open].rfind('/') {
        // The root keeps its slash.
        Some(at) => (&pattern[..at.max(1)], &pattern[at..]),
        None => ("", pattern),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs() {
        let fits = |pattern, path| glob(pattern).unwrap().is_match(path);
        assert!(fits("*.rs", "a.rs") && fits("*.rs", "x/y/a.rs") && fits("src/*.rs", "src/a.rs"));
        assert!(!fits("src/*.rs", "src/x/a.rs") && fits("src/**/*.{ts,tsx}", "src/x/a.tsx") && fits("./a/*", "a/b"));
        assert!(glob("a[").unwrap_err().to_string().contains("not a glob"));
    }

    #[test]
    fn folders_of_globs() {
        for (pattern, folder, rest) in [
            ("*.rs", "", "*.rs"),
            ("main.rs", "", "main.rs"),
            ("src/main.rs", "src", "/main.rs"),
            ("./*.rs", ".", "/*.rs"),
            ("a/b/**/c/*.rs", "a/b", "/**/c/*.rs"),
            ("a/b{c/d,e}/*", "a", "/b{c/d,e}/*"),
            ("a/\\*/b", "a", "/\\*/b"),
            ("/etc/*.conf", "/etc", "/*.conf"),
            ("/*", "/", "/*"),
            ("ä/ö*", "ä", "/ö*"),
        ] {
            assert_eq!(split_folder(pattern), (folder, rest));
        }
    }
}
