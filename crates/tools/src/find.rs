//! Search for clients: files by name, lines by pattern. The same walk as the tools', other results.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use api::FindTextMatch;
use grep_matcher::Matcher;
use grep_searcher::{Searcher, Sink, SinkMatch};
use ignore::WalkState;
use ignore::gitignore::Gitignore;
use tokio_util::sync::CancellationToken;

use crate::grep;
use crate::tool::ToolError;
use crate::walk::{self, MAX_FILES, Stop};

/// Files below `root` whose path contains the letters of `query` in their order, the closest first. Blocks.
pub fn find_files(root: &Path, query: &str, limit: usize, cancel: CancellationToken) -> Vec<String> {
    let wanted: Vec<char> = query.to_lowercase().chars().filter(|c| !c.is_whitespace()).collect();
    let found: Mutex<Vec<(u32, String)>> = Mutex::default();
    walk::files(root, false, &Stop::new(cancel), || {
        |entry: ignore::DirEntry| {
            let path = entry.path().strip_prefix(root).unwrap_or(entry.path()).to_string_lossy().into_owned();
            let Some(distance) = distance(&wanted, &path) else { return WalkState::Continue };
            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
            found.push((distance, path));
            if found.len() >= MAX_FILES { WalkState::Quit } else { WalkState::Continue }
        }
    });
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.sort();
    found.truncate(limit);
    found.into_iter().map(|(_, path)| path).collect()
}

/// How far a path is from a query: letters skipped between matches, with the file's name counting more than its
/// folders. `None` if it lacks a letter.
fn distance(wanted: &[char], path: &str) -> Option<u32> {
    let lower = path.to_lowercase();
    let name_at = lower.rfind('/').map_or(0, |at| at + 1);
    let in_name = gaps(wanted, &lower[name_at..]);
    let in_path = gaps(wanted, &lower).map(|gaps| gaps + 1_000);
    let length = u32::try_from(lower.len()).unwrap_or(u32::MAX);
    in_name.or(in_path).map(|gaps| gaps.saturating_mul(1_000).saturating_add(length))
}

/// Characters skipped between the first and the last match, matching from the end, where names differ.
fn gaps(wanted: &[char], text: &str) -> Option<u32> {
    let mut left = wanted.iter().rev().peekable();
    let mut skipped = 0;
    let mut begun = false;
    for c in text.chars().rev() {
        match left.peek() {
            None => break,
            Some(want) if **want == c => {
                left.next();
                begun = true;
            }
            Some(_) if begun => skipped += 1,
            Some(_) => {}
        }
    }
    left.peek().is_none().then_some(skipped)
}

/// Lines below `root` that match a regular expression, at most `limit`. Blocks.
pub fn find_text(
    root: &Path,
    pattern: &str,
    limit: usize,
    cancel: CancellationToken,
) -> Result<Vec<FindTextMatch>, ToolError> {
    let matcher = grep::matcher(pattern)?;
    let found: Mutex<Vec<FindTextMatch>> = Mutex::default();
    let stop = Stop::new(cancel);
    walk::files(root, false, &stop, || {
        let mut searcher = grep::searcher();
        let (found, matcher) = (&found, matcher.clone());
        move |entry: ignore::DirEntry| {
            let path = entry.path().strip_prefix(root).unwrap_or(entry.path()).to_string_lossy().into_owned();
            let mut lines = Lines { path, matcher: &matcher, lines: Vec::new(), limit };
            // A file that cannot be read is passed over, as ripgrep does it.
            let _ = searcher.search_path(&matcher, entry.path(), &mut lines);
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

/// What `.gitignore` files say about the entries of one folder.
pub struct Ignored(Vec<Gitignore>);

impl Ignored {
    /// Reads the rules that hold in `folder`, from the root of its repository down.
    pub fn new(root: &Path, folder: &Path) -> Self {
        let mut chain: Vec<PathBuf> =
            folder.ancestors().take_while(|p| p.starts_with(root)).map(Path::to_owned).collect();
        chain.reverse();
        Self(chain.iter().map(|folder| Gitignore::new(folder.join(".gitignore")).0).collect())
    }

    /// Whether an entry is ignored; the rules nearest to it decide.
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
        let mut matches = Vec::new();
        let _ = self.matcher.find_iter(found.bytes(), |m| {
            matches.push((m.start() as u64, m.end() as u64));
            matches.len() < self.limit
        });
        self.lines.push(FindTextMatch {
            path: self.path.clone(),
            line: String::from_utf8_lossy(found.bytes()).into_owned(),
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
        let find = |query: &str, limit| find_files(dir.path(), query, limit, CancellationToken::new());
        assert_eq!(find("main", 10), ["src/main.rs", "src/domain.rs"]);
        assert_eq!(find("srcmain", 1), ["src/main.rs"]);
        assert_eq!(find("", 2).len(), 2);
        assert!(find("zzz", 10).is_empty());
    }

    #[test]
    fn ignored_entries() {
        let dir = tree();
        std::fs::write(dir.path().join(".gitignore"), "*.log\n").unwrap();
        std::fs::write(dir.path().join("src/.gitignore"), "!keep.log\n").unwrap();
        let ignored = Ignored::new(dir.path(), &dir.path().join("src"));
        assert!(ignored.matches(&dir.path().join("src/a.log"), false));
        assert!(!ignored.matches(&dir.path().join("src/keep.log"), false));
        assert!(!ignored.matches(&dir.path().join("src/main.rs"), false));
    }

    #[test]
    fn lines_with_their_place() {
        let dir = tree();
        let found = find_text(dir.path(), "ma(in)", 10, CancellationToken::new()).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!((found[1].path.as_str(), found[1].line_number, found[1].offset), ("src/main.rs", 1, 0));
        assert_eq!(found[1].matches, [(3, 7)]);
        assert!(find_text(dir.path(), "ma(", 10, CancellationToken::new()).is_err());
    }
}
