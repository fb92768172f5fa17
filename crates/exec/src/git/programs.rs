//! The programs that a repository's own configuration would have git start, and how git is kept from them.
//!
//! Attributes choose filters and drivers by name; what a name means stands in a configuration. The user's own (global, system,
//! environment) counts. That of a repository was written by whoever made the repository: each of its settings that names a
//! program is laid over with the user's own, or with one that starts nothing, unless the user trusts these programs.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::GitError;

/// The most settings of a repository that name programs; nobody has so many.
const MAX_PROGRAMS: usize = 1000;
/// Repositories that are known to name none. Beyond that all are looked at again.
const MAX_KNOWN: usize = 256;
/// Parents of a directory that are looked at.
const MAX_PARENTS: usize = 128;
/// The largest `.git` file that is read, in bytes.
const MAX_LINK: u64 = 1 << 12;
/// A file that changed so lately may change once more without another time.
const SETTLED: Duration = Duration::from_secs(1);

/// What makes git list all settings with the place that they come from.
pub(super) const SETTINGS: [&str; 5] = ["config", "--list", "--show-scope", "--includes", "-z"];

/// Names of settings whose values are programs, in whatever section they stand: filters, drivers, converters, helpers.
const PROGRAM_NAMES: [&str; 24] = [
    "alternaterefscommand",
    "askpass",
    "browser",
    "clean",
    "cmd",
    "command",
    "difffilter",
    "driver",
    "editor",
    "external",
    "gitproxy",
    "helper",
    "packobjectshook",
    "pager",
    "process",
    "program",
    "receivepack",
    "smudge",
    "standalonetransferagent",
    "textconv",
    "tool",
    "tunnel",
    "uploadpack",
    "vcs",
];

/// Sections in which a `path` is that of a program.
const PROGRAM_PATHS: [&str; 5] = ["browser", "difftool", "lfs", "man", "mergetool"];

/// Merges texts as git does without a driver.
const PLAIN_MERGE: &str = "git merge-file --quiet %A %O %B";

type Trusts = dyn Fn(&Path, &str) -> bool + Send + Sync;

/// What is known of repositories, and which of their programs may run. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Repositories {
    trusts: Arc<Trusts>,
    /// Directories in whose repositories nothing names a program, with the state of the files that say so.
    harmless: Arc<Mutex<HashMap<PathBuf, Marks>>>,
}

impl Default for Repositories {
    fn default() -> Self {
        Self::trusting(|_, _| false)
    }
}

impl fmt::Debug for Repositories {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Repositories").finish_non_exhaustive()
    }
}

impl Repositories {
    pub(crate) fn trusting(trusts: impl Fn(&Path, &str) -> bool + Send + Sync + 'static) -> Self {
        Self { trusts: Arc::new(trusts), harmless: Arc::default() }
    }

    pub(super) fn trusts(&self, programs: &Programs) -> bool {
        (self.trusts)(&programs.file, &programs.text())
    }

    pub(super) fn is_harmless(&self, directory: &Path, place: &Place) -> bool {
        let known = self.harmless.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(directory).is_some_and(|marks| *marks == place.marks)
    }

    /// Remembers that nothing names a program here, unless the files changed so lately that this cannot be told later.
    pub(super) fn remember(&self, directory: &Path, place: Place) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let settled = |mark: &Option<Mark>| mark.is_none_or(|mark| mark.changed + SETTLED < now);
        if place.marks.iter().all(settled) {
            let mut known = self.harmless.lock().unwrap_or_else(PoisonError::into_inner);
            if known.len() >= MAX_KNOWN {
                known.clear();
            }
            known.insert(directory.to_owned(), place.marks);
        }
    }
}

/// A file as it is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    inode: u64,
    size: u64,
    modified: (i64, i64),
    /// Nobody can set this one back.
    changed: Duration,
}

type Marks = [Option<Mark>; 5];

fn mark(path: &Path) -> Option<Mark> {
    let there = fs::metadata(path).ok()?;
    let seconds = Duration::from_secs(there.ctime().try_into().unwrap_or_default());
    let changed = seconds + Duration::from_nanos(there.ctime_nsec().try_into().unwrap_or_default());
    let modified = (there.mtime(), there.mtime_nsec());
    Some(Mark { inode: there.ino(), size: there.size(), modified, changed })
}

/// Where the repository of a directory is, as git finds it.
#[derive(Debug)]
pub(super) struct Place {
    /// The root of the working tree.
    pub(super) root: PathBuf,
    /// The configuration that all working trees share.
    config: PathBuf,
    marks: Marks,
}

impl Place {
    pub(super) fn find(directory: &Path) -> Option<Self> {
        let root = directory.ancestors().take(MAX_PARENTS).find(|at| fs::symlink_metadata(at.join(".git")).is_ok())?;
        let link = root.join(".git");
        let own = if link.is_dir() { link.clone() } else { root.join(read(&link)?.strip_prefix("gitdir:")?.trim()) };
        let common = read(&own.join("commondir")).map_or_else(|| own.clone(), |common| own.join(common.trim()));
        let config = common.join("config");
        let marks = [
            mark(&link),
            mark(&own.join("commondir")),
            mark(&config),
            mark(&own.join("config")),
            mark(&own.join("config.worktree")),
        ];
        Some(Self { root: root.to_owned(), config, marks })
    }
}

fn read(path: &Path) -> Option<String> {
    if fs::metadata(path).ok()?.len() > MAX_LINK {
        return None;
    }
    fs::read_to_string(path).ok()
}

/// The settings of a repository that name programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Programs {
    /// The repository's configuration file. Some may stand in others, which it includes.
    pub file: PathBuf,
    /// Each setting with its value.
    settings: Vec<(String, String)>,
}

impl Programs {
    /// All of them as a text, which changes when one does.
    pub fn text(&self) -> String {
        self.settings.iter().map(|(key, value)| format!("{key}\n{value}\0")).collect()
    }

    /// What they start, for a human.
    pub fn what(&self) -> Vec<String> {
        self.settings.iter().map(|(key, value)| format!("{key} has git run `{value}`")).collect()
    }
}

/// What the configuration of a repository says that matters here.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Its programs.
    pub(super) programs: Option<Programs>,
    /// Settings that take their places.
    pub(super) overlay: Vec<(String, String)>,
    /// It says that the files are elsewhere.
    pub(super) moves_tree: bool,
    /// It includes files, so it can change without a change of its own.
    pub(super) includes: bool,
}

impl Found {
    /// Reads what git answers to [`SETTINGS`]: `scope\0key\nvalue\0…`.
    pub(super) fn read(output: &[u8], place: Option<&Place>, directory: &Path) -> Result<Self, GitError> {
        let text = String::from_utf8_lossy(output);
        let mut fields = text.split('\0');
        let (mut own, mut users) = (Vec::new(), HashMap::new());
        while let (Some(scope), Some(setting)) = (fields.next(), fields.next()) {
            let (key, value) = setting.split_once('\n').unwrap_or((setting, ""));
            match scope {
                "system" | "global" | "command" => drop(users.insert(key, value)),
                // The repository's, the working tree's, and whatever git may come to know.
                _ => own.push((key, value)),
            }
        }
        let mut found = Self::default();
        let mut settings = Vec::new();
        let mut lay = |key: String, nothing: &str| {
            let value = users.get(key.as_str()).map_or(nothing, |value| value);
            found.overlay.push((key, value.to_owned()));
        };
        for (key, value) in own {
            let (section, name) = (part(key.split_once('.'), true), part(key.rsplit_once('.'), false));
            found.includes |= section == "include" || section == "includeif";
            found.moves_tree |= key == "core.worktree";
            if section == "filter" && name == "required" {
                lay(key.to_owned(), "false");
            }
            if is_program(section, name, value) {
                settings.push((key.to_owned(), value.to_owned()));
                lay(key.to_owned(), if name == "driver" { PLAIN_MERGE } else { "" });
            }
        }
        if found.overlay.len() > MAX_PROGRAMS {
            let message = format!("the repository's own configuration names more than {MAX_PROGRAMS} programs");
            return Err(GitError::Refused(message));
        }
        if !settings.is_empty() {
            settings.sort();
            let file = place.map_or_else(|| directory.to_owned(), |place| place.config.clone());
            let file = fs::canonicalize(&file).unwrap_or(file);
            found.programs = Some(Programs { file, settings });
        }
        Ok(found)
    }

    pub(super) fn is_harmless(&self) -> bool {
        self.overlay.is_empty() && !self.includes && !self.moves_tree
    }
}

fn part<'a>(split: Option<(&'a str, &'a str)>, first: bool) -> &'a str {
    split.map_or("", |(left, right)| if first { left } else { right })
}

/// Whether a setting names a program. Hooks and the file system monitor are never started, whoever names them.
fn is_program(section: &str, name: &str, value: &str) -> bool {
    match (section, name) {
        ("alias" | "include" | "includeif" | "branch" | "user", _) => false,
        ("pager", _) => true,
        ("submodule", "update") => value.trim_start().starts_with('!'),
        (section, "path") => PROGRAM_PATHS.contains(&section),
        (_, name) => PROGRAM_NAMES.contains(&name) || name.ends_with("command") || name.ends_with("cmd"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(settings: &[(&str, &str, &str)]) -> Found {
        let text: String = settings.iter().map(|(scope, key, value)| format!("{scope}\0{key}\n{value}\0")).collect();
        Found::read(text.as_bytes(), None, Path::new("/nowhere")).unwrap()
    }

    #[test]
    fn what_a_repository_names_is_laid_over() {
        for (key, value, over) in [
            ("filter.x.clean", "evil", Some("")),
            ("filter.X=y z.smudge", "evil", Some("")),
            ("filter.a.b.process", "evil", Some("")),
            ("filter.x.required", "true", Some("false")),
            ("merge.x.driver", "evil", Some(PLAIN_MERGE)),
            ("diff.external", "evil", Some("")),
            ("diff.x.textconv", "evil", Some("")),
            ("diff.x.command", "evil", Some("")),
            ("core.sshcommand", "evil", Some("")),
            ("core.editor", "evil", Some("")),
            ("credential.helper", "!evil", Some("")),
            ("credential.https://h/p.helper", "!evil", Some("")),
            ("gpg.program", "evil", Some("")),
            ("gpg.ssh.program", "evil", Some("")),
            ("gpg.ssh.defaultkeycommand", "evil", Some("")),
            ("hook.x.command", "evil", Some("")),
            ("lfs.extension.x.clean", "evil", Some("")),
            ("lfs.customtransfer.x.path", "evil", Some("")),
            ("remote.o.uploadpack", "evil", Some("")),
            ("submodule.s.update", "!evil", Some("")),
            ("pager.diff", "evil", Some("")),
            ("newer.than.thiscommand", "evil", Some("")),
            ("submodule.s.update", "rebase", None),
            ("submodule.s.path", "s", None),
            ("branch.main.merge", "refs/heads/main", None),
            ("remote.o.url", "ssh://h/x", None),
            ("core.bare", "false", None),
            ("user.name", "n", None),
        ] {
            let read = found(&[("local", key, value)]);
            let want: Vec<_> = over.into_iter().map(|over| (key.to_owned(), over.to_owned())).collect();
            assert_eq!(read.overlay, want, "{key}");
            assert_eq!(read.is_harmless(), over.is_none(), "{key}");
            let users = found(&[("global", key, "mine"), ("worktree", key, value)]);
            assert_eq!(users.overlay.first().map(|(_, value)| value.as_str()), over.map(|_| "mine"), "{key}");
            assert!(found(&[("global", key, "mine"), ("system", key, value)]).is_harmless(), "{key}");
        }
    }

    #[test]
    fn what_can_change_unseen_is_not_remembered() {
        assert!(!found(&[("local", "include.path", "x")]).is_harmless());
        assert!(!found(&[("local", "includeif.onbranch:x.path", "x")]).is_harmless());
        assert!(!found(&[("worktree", "core.worktree", "/")]).is_harmless());
        assert!(found(&[("global", "include.path", "x")]).is_harmless());
        let many: String = (0..=MAX_PROGRAMS).map(|n| format!("local\0filter.f{n}.clean\nx\0")).collect();
        assert!(Found::read(many.as_bytes(), None, Path::new("/")).is_err());
    }

    #[test]
    fn the_text_of_programs_names_each() {
        let one = found(&[("local", "filter.a.clean", "x"), ("local", "filter.b.clean", "y")]).programs.unwrap();
        let other = found(&[("local", "filter.b.clean", "y"), ("local", "filter.a.clean", "x")]).programs.unwrap();
        assert_eq!(one.text(), other.text());
        assert_eq!(one.what()[0], "filter.a.clean has git run `x`");
        assert_ne!(one.text(), found(&[("local", "filter.a.clean", "x")]).programs.unwrap().text());
    }
}
