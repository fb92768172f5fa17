//! Walks a folder tree as ripgrep does: in parallel, `.gitignore` and the like obeyed, symbolic links not followed.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use globset::{Glob, GlobBuilder, GlobMatcher};
use ignore::{DirEntry, WalkBuilder, WalkState};
use tokio_util::sync::CancellationToken;

use crate::tool::ToolError;

/// After this a search gives what it has found.
pub(crate) const SEARCH_TIME: Duration = Duration::from_secs(60);
/// Results that are shown.
pub(crate) const MAX_RESULTS: usize = 100;

/// When a search has to end.
#[derive(Clone)]
pub(crate) struct Stop {
    cancel: CancellationToken,
    deadline: Instant,
}

impl Stop {
    pub fn new(cancel: CancellationToken) -> Self {
        Self { cancel, deadline: Instant::now() + SEARCH_TIME }
    }

    pub fn reached(&self) -> bool {
        self.cancel.is_cancelled() || self.late()
    }

    pub fn late(&self) -> bool {
        Instant::now() >= self.deadline
    }
}

/// Runs a search of a tool on a thread where it may block. One that was cancelled is an error, whatever it has found.
pub(crate) async fn search<T: Send + 'static>(
    cancel: &CancellationToken,
    work: impl FnOnce(&Stop) -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    let stop = Stop::new(cancel.clone());
    let found = tokio::task::spawn_blocking(move || work(&stop)).await;
    let found = found.map_err(|error| ToolError::failed(format!("The search failed: {error}")))?;
    if cancel.is_cancelled() { Err(ToolError::Aborted) } else { found }
}

/// Hands every file below `root` to a visitor; each thread has its own. Hidden files are left out unless `hidden`; the
/// data of git always is.
pub(crate) fn files<V>(root: &Path, hidden: bool, stop: &Stop, visitor: impl Fn() -> V + Sync)
where
    V: FnMut(DirEntry) -> WalkState + Send,
{
    if is_kernel(root) {
        return;
    }
    let whole_disk = root == Path::new("/");
    let walk = WalkBuilder::new(root)
        .hidden(!hidden)
        .add_custom_ignore_filename(".rgignore")
        .filter_entry(move |entry| {
            let kernel = whole_disk && entry.depth() == 1 && is_kernel(entry.path());
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
                // What cannot be read is passed over, as ripgrep does it.
                _ => WalkState::Continue,
            }
        })
    });
}

/// Whether a folder shows the kernel's state. What looks like a file there may never end, or wait for ever.
fn is_kernel(path: &Path) -> bool {
    let real = path.canonicalize();
    let path = real.as_deref().unwrap_or(path);
    ["/dev", "/proc", "/sys"].iter().any(|kernel| path.starts_with(kernel))
}

/// When a file was last changed, for the order of results.
pub(crate) fn modified(entry: &DirEntry) -> SystemTime {
    entry.metadata().ok().and_then(|m| m.modified().ok()).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// A glob as in `.gitignore`: without a slash it fits at any depth.
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

/// The folder that a glob names before anything in it is open, and the rest, which fits only from there on: a search need
/// not look elsewhere. `src/**/*.rs` is `src` and `/**/*.rs`.
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
