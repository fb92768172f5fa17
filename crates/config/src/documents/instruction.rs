//! AGENTS.md and similar files: text that precedes every conversation.

use std::path::{Path, PathBuf};

use globset::GlobBuilder;

use crate::files;
use crate::files::walk;
use crate::problem::Problem;

/// The largest instruction file that is read.
pub const MAX_INSTRUCTION_BYTES: u64 = 1 << 18;
/// The maximum number of instruction files.
pub const MAX_INSTRUCTIONS: usize = 200;

/// The names of a project's instruction files; only the first name that exists in any of its folders is used.
const NAMES: &[&str] = &["AGENTS.md", "CLAUDE.md", "CONTEXT.md"];

/// Text that precedes every conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instruction {
    /// The file.
    pub path: PathBuf,
    /// Its text.
    pub text: String,
}

/// An instruction file, and whether it is the user's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) path: PathBuf,
    pub(crate) own: bool,
}

/// An entry of `instructions`, and the file that contains it.
#[derive(Debug, Clone)]
pub(crate) struct InstructionEntry {
    pub(crate) pattern: String,
    /// The folder of the configuration file.
    pub(crate) base: PathBuf,
    /// The configuration file, for messages.
    pub(crate) file: Option<PathBuf>,
    /// Whether it may name files anywhere.
    pub(crate) own: bool,
}

/// The user's own files: AGENTS.md in the global directories, or else Claude Code's.
pub(crate) fn global(folders: &[PathBuf], claude: Option<&Path>) -> Vec<Candidate> {
    let mut found: Vec<PathBuf> =
        folders.iter().map(|folder| folder.join("AGENTS.md")).filter(|p| p.exists()).collect();
    if found.is_empty() {
        found.extend(claude.map(Path::to_owned).filter(|path| path.exists()));
    }
    found.into_iter().map(|path| Candidate { path, own: true }).collect()
}

/// The project's files, from its root down to the directory.
pub(crate) fn project(folders: &[PathBuf]) -> Vec<Candidate> {
    let of_name = |name: &&str| {
        let paths = folders.iter().map(|folder| folder.join(name)).filter(|path| path.exists());
        paths.map(|path| Candidate { path, own: false }).collect::<Vec<_>>()
    };
    NAMES.iter().map(of_name).find(|found| !found.is_empty()).unwrap_or_default()
}

/// The files that an entry of `instructions` names: next to its configuration file, or else in the project's folders
/// from the directory up to its root.
pub(crate) fn resolve_entry(
    entry: &InstructionEntry,
    folders: &[PathBuf],
    home: &Path,
    problems: &mut Vec<Problem>,
) -> Vec<Candidate> {
    let warn = |message: String| {
        let problem = Problem::warning(message).about("instructions");
        match &entry.file {
            Some(file) => problem.in_file(file),
            None => problem,
        }
    };
    let pattern = entry.pattern.as_str();
    if pattern.contains("://") {
        problems.push(warn(format!("instructions: {pattern} is not fetched; only files are read")));
        return Vec::new();
    }
    let absolute = Path::new(pattern).is_absolute() || pattern.starts_with("~/");
    let nearest_first = folders.iter().rev().filter(|_| !absolute);
    for base in std::iter::once(&entry.base).chain(nearest_first) {
        match expand(pattern, base, home) {
            Ok(paths) if paths.is_empty() => {}
            Ok(paths) => return paths.into_iter().map(|path| Candidate { path, own: entry.own }).collect(),
            Err(message) => {
                problems.push(warn(format!("instructions: {pattern} is not a pattern: {message}")));
                return Vec::new();
            }
        }
    }
    problems.push(warn(format!("instructions: there is no file {pattern}")));
    Vec::new()
}

/// Expands a path as written; only that part may have wildcards, not the folder it is relative to.
fn expand(written: &str, base: &Path, home: &Path) -> Result<Vec<PathBuf>, String> {
    let is_pattern = |text: &str| text.contains(['*', '?', '[', '{']);
    let whole = files::resolve(written, base, home);
    if !is_pattern(written) {
        return Ok(if whole.is_file() { vec![whole] } else { Vec::new() });
    }
    let plain: Vec<&str> = written.split('/').take_while(|step| !is_pattern(step)).collect();
    let pattern: Vec<&str> = written.split('/').skip(plain.len()).collect();
    // An empty first component stands for the root, which `join` alone would lose.
    let folder = files::resolve(&format!("{}/", plain.join("/")), base, home);
    let folder = if plain.is_empty() { base.to_owned() } else { folder };
    let glob = GlobBuilder::new(&pattern.join("/")).literal_separator(true).build();
    let matcher = glob.map_err(|error| error.kind().to_string())?.compile_matcher();
    Ok(walk::files(&folder, |_| {}, |path| path.strip_prefix(&folder).is_ok_and(|path| matcher.is_match(path))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn tree(files: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for name in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        }
        dir
    }

    fn names(found: &[Candidate], dir: &Path) -> Vec<String> {
        found.iter().map(|c| c.path.strip_prefix(dir).unwrap().to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn the_first_name_that_exists_is_used_at_every_level() {
        let dir = tree(&["CLAUDE.md", "a/AGENTS.md", "a/b/AGENTS.md", "a/b/CONTEXT.md"]);
        let at = |name: &str| dir.path().join(name);
        let found = project(&[dir.path().to_owned(), at("a"), at("a/b")]);
        assert_eq!(names(&found, dir.path()), ["a/AGENTS.md", "a/b/AGENTS.md"]);
        assert_eq!(names(&project(&[dir.path().to_owned()]), dir.path()), ["CLAUDE.md"]);
        assert_eq!(project(&[at("none")]), []);
    }

    #[test]
    fn claude_is_the_last_resort() {
        let dir = tree(&["one/AGENTS.md", "CLAUDE.md"]);
        let claude = dir.path().join("CLAUDE.md");
        let found = global(&[dir.path().join("one"), dir.path().join("two")], Some(&claude));
        assert_eq!(names(&found, dir.path()), ["one/AGENTS.md"]);
        assert_eq!(names(&global(&[dir.path().join("two")], Some(&claude)), dir.path()), ["CLAUDE.md"]);
        assert_eq!(global(&[], None), []);
    }

    #[test]
    fn entries_are_paths_or_patterns() {
        let dir = tree(&["conf/own.md", "docs/a.md", "docs/deep/b.md", "docs/c.txt", "x.md", "sub/x.md"]);
        let folders = [dir.path().to_owned(), dir.path().join("sub")];
        let mut problems = Vec::new();
        let mut find = |pattern: &str| {
            let entry =
                InstructionEntry { pattern: pattern.to_owned(), base: dir.path().join("conf"), file: None, own: false };
            names(&resolve_entry(&entry, &folders, dir.path(), &mut problems), dir.path())
        };
        assert_eq!(find("own.md"), ["conf/own.md"]);
        assert_eq!(find("x.md"), ["sub/x.md"]);
        assert_eq!(find("docs/*.md"), ["docs/a.md"]);
        assert_eq!(find("docs/**/*.md"), ["docs/a.md", "docs/deep/b.md"]);
        assert_eq!(find("~/docs/a.md"), ["docs/a.md"]);
        assert_eq!(find("~/docs/*.md"), ["docs/a.md"]);
        assert_eq!(find(&format!("{}/docs/*.md", dir.path().display())), ["docs/a.md"]);
        assert_eq!(find("*.md"), ["conf/own.md"]);
        assert!(find("none.md").is_empty());
        assert!(find("docs/[").is_empty());
        assert!(find("https://example.org/x").is_empty());
        let messages: Vec<_> = problems.iter().map(|problem| problem.message.as_str()).collect();
        assert_eq!(messages.len(), 3, "{messages:?}");
        assert!(messages[0].contains("no file none.md"));
        assert!(messages[1].contains("not a pattern"));
        assert!(messages[2].contains("not fetched"));
    }
}
