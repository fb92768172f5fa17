//! Search for clients: files by name, lines by pattern. It shares the walk with the tools.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use api::FindTextMatch;
use grep_matcher::Matcher;
use grep_searcher::{Searcher, Sink, SinkMatch};
use ignore::WalkState;
use ignore::gitignore::Gitignore;
use nucleo_matcher::pattern::{AtomKind, CaseMatching, Normalization, Pattern};
use nucleo_matcher::{Config, Utf32Str};
use tokio_util::sync::CancellationToken;

use crate::files::disk;
use crate::search::folder::Folder;
use crate::search::grep;
use crate::search::top_n::TopN;
use crate::search::walk::{self, StopCondition};
use crate::tool::ToolError;

/// The maximum length of a line in the results, in bytes.
const MAX_LINE: usize = 16 << 10;
/// The maximum number of matches reported per line.
const MAX_MATCHES: usize = 1000;
/// The maximum number of directories that a search collects; beyond it, it finds only files.
const MAX_FOLDERS: usize = 100_000;

/// The kinds of entries to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entries {
    /// Files alone.
    Files,
    /// Directories that contain a file somewhere below.
    Directories,
    /// Both.
    Both,
}

/// Finds paths below `root` that contain the letters of `query` in order, best match first; directories end in a slash.
/// Blocks.
pub fn find_paths(root: &Path, query: &str, entries: Entries, limit: usize, cancel: CancellationToken) -> Vec<String> {
    let pattern = Pattern::new(query, CaseMatching::Smart, Normalization::Smart, AtomKind::Fuzzy);
    // Of equally good matches, prefer the shortest.
    let best = Mutex::new(TopN::<(Reverse<u32>, usize, String)>::new(limit));
    let folders: Mutex<HashSet<String>> = Mutex::default();
    walk::files(root, true, &StopCondition::new(cancel), || {
        let (pattern, best, folders) = (&pattern, &best, &folders);
        let mut matcher = nucleo_matcher::Matcher::new(Config::DEFAULT.match_paths());
        let mut letters = Vec::new();
        let mut judge = move |path: String| {
            if let Some(score) = pattern.score(Utf32Str::new(&path, &mut letters), &mut matcher) {
                let found = (Reverse(score), path.len(), path);
                best.lock().unwrap_or_else(PoisonError::into_inner).add(found);
            }
        };
        move |entry: ignore::DirEntry| {
            let path = entry.path().strip_prefix(root).unwrap_or(entry.path());
            if entries != Entries::Files {
                let above = path.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty());
                for folder in above.map(|folder| format!("{}/", folder.display())) {
                    let mut folders = folders.lock().unwrap_or_else(PoisonError::into_inner);
                    // If a directory was seen, so were its parents.
                    if folders.len() >= MAX_FOLDERS || !folders.insert(folder.clone()) {
                        break;
                    }
                    drop(folders);
                    judge(folder);
                }
            }
            if entries != Entries::Directories {
                judge(path.to_string_lossy().into_owned());
            }
            WalkState::Continue
        }
    });
    let best = best.into_inner().unwrap_or_else(PoisonError::into_inner);
    best.into_sorted().into_iter().map(|(_, _, path)| path).collect()
}

/// Finds up to `limit` lines below `root` that match a regular expression. Blocks.
pub fn find_text(
    root: &Path,
    pattern: &str,
    limit: usize,
    cancel: CancellationToken,
) -> Result<Vec<FindTextMatch>, ToolError> {
    let matcher = grep::matcher(pattern)?;
    let folder = disk::resolve(root).and_then(|root| Folder::open(&root)).ok();
    let found: Mutex<Vec<FindTextMatch>> = Mutex::default();
    let stop = StopCondition::new(cancel);
    walk::files(root, true, &stop, || {
        let mut searcher = grep::searcher();
        let (found, folder, matcher) = (&found, &folder, matcher.clone());
        move |entry: ignore::DirEntry| {
            let relative = entry.path().strip_prefix(root).unwrap_or(entry.path());
            let path = relative.to_string_lossy().into_owned();
            // Skip unreadable files, as ripgrep does, and files behind a link that just appeared.
            let Some(Ok(file)) = folder.as_ref().map(|folder| folder.file(relative)) else {
                return WalkState::Continue;
            };
            let mut lines = Lines { path, matcher: &matcher, lines: Vec::new(), limit };
            let _ = searcher.search_file(&matcher, &file, &mut lines);
            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
            found.append(&mut lines.lines);
            if found.len() >= limit { WalkState::Quit } else { WalkState::Continue }
        }
    });
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.sort_by(|a, b| (&a.path, a.line_number).cmp(&(&b.path, b.line_number)));
    found.truncate(limit);
    Ok(found)
}

/// The `.gitignore` rules for the entries of a folder.
pub struct IgnoreRules(Vec<Gitignore>);

impl IgnoreRules {
    /// Reads the rules that apply in `folder`, from the root of its repository down.
    pub fn new(root: &Path, folder: &Path) -> Self {
        let mut chain: Vec<PathBuf> =
            folder.ancestors().take_while(|p| p.starts_with(root)).map(Path::to_owned).collect();
        chain.reverse();
        Self(chain.iter().map(|folder| Gitignore::new(folder.join(".gitignore")).0).collect())
    }

    /// Whether an entry is ignored; the nearest rules decide.
    pub fn matches(&self, path: &Path, is_folder: bool) -> bool {
        let said =
            self.0.iter().rev().map(|rules| rules.matched_path_or_any_parents(path, is_folder)).find(|m| !m.is_none());
        said.is_some_and(|m| m.is_ignore())
    }
}

struct Lines<'a, M> {
    path: String,
    matcher: &'a M,
    lines: Vec<FindTextMatch>,
    limit: usize,
}

impl<M: Matcher> Sink for Lines<'_, M> {
    type Error = std::io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, Self::Error> {
        // The beginning of a generated line is enough.
        let line = &found.bytes()[..found.bytes().len().min(MAX_LINE)];
        let mut matches = Vec::new();
        let _ = self.matcher.find_iter(line, |m| {
            matches.push((m.start() as u64, m.end() as u64));
            matches.len() < MAX_MATCHES
        });
        self.lines.push(FindTextMatch {
            path: self.path.clone(),
            line: String::from_utf8_lossy(line).into_owned(),
            line_number: found.line_number().unwrap_or_default(),
            offset: found.absolute_byte_offset(),
            matches,
        });
        Ok(self.lines.len() < self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [("src/main.rs", "fn main() {}\n"), ("src/domain.rs", "// main\n"), ("a.txt", "x\n")] {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        dir
    }

    #[test]
    fn the_closest_name_comes_first() {
        let dir = tree();
        let find =
            |query: &str, entries, limit| find_paths(dir.path(), query, entries, limit, CancellationToken::new());
        assert_eq!(find("main", Entries::Files, 10), ["src/main.rs", "src/domain.rs"]);
        assert_eq!(find("srcmain", Entries::Files, 1), ["src/main.rs"]);
        assert_eq!(find("", Entries::Both, 10), ["src/", "a.txt", "src/main.rs", "src/domain.rs"]);
        assert_eq!(find("s", Entries::Directories, 10), ["src/"]);
        assert!(find("zzz", Entries::Both, 10).is_empty());
    }

    #[test]
    fn only_the_best_matches_are_returned() {
        let dir = tree();
        for number in 0..300 {
            std::fs::create_dir_all(dir.path().join(format!("{}", number / 10))).unwrap();
            std::fs::File::create(dir.path().join(format!("{}/{number}", number / 10))).unwrap();
        }
        let find = |query: &str, entries| find_paths(dir.path(), query, entries, 2, CancellationToken::new());
        assert_eq!(find("", Entries::Files), ["0/0", "0/1"]);
        assert_eq!(find("domainrs", Entries::Files), ["src/domain.rs"]);
        assert_eq!(find("rc", Entries::Directories), ["src/"]);
    }

    #[test]
    fn the_kernel_is_not_searched() {
        let dir = tree();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("/dev", &link).unwrap();
        for root in [Path::new("/dev"), Path::new("/proc/self"), &link] {
            let found = find_paths(root, "", Entries::Both, 10, CancellationToken::new());
            assert!(found.is_empty(), "{}: {found:?}", root.display());
        }
    }

    #[test]
    fn ignored_entries() {
        let dir = tree();
        std::fs::write(dir.path().join(".gitignore"), "*.log\n").unwrap();
        std::fs::write(dir.path().join("src/.gitignore"), "!keep.log\n").unwrap();
        let ignored = IgnoreRules::new(dir.path(), &dir.path().join("src"));
        assert!(ignored.matches(&dir.path().join("src/a.log"), false));
        assert!(!ignored.matches(&dir.path().join("src/keep.log"), false));
        assert!(!ignored.matches(&dir.path().join("src/main.rs"), false));
    }

    #[test]
    fn matches_have_line_numbers_and_offsets() {
        let dir = tree();
        let found = find_text(dir.path(), "ma(in)", 10, CancellationToken::new()).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!((found[1].path.as_str(), found[1].line_number, found[1].offset), ("src/main.rs", 1, 0));
        assert_eq!(found[1].matches, [(3, 7)]);
        assert!(find_text(dir.path(), "ma(", 10, CancellationToken::new()).is_err());
        std::fs::write(dir.path().join(".hidden"), "needle ".repeat(100_000)).unwrap();
        let found = find_text(dir.path(), "needle", 10, CancellationToken::new()).unwrap();
        assert_eq!((found[0].line.len(), found[0].matches.len()), (MAX_LINE, MAX_MATCHES));
    }
}
