//! The programs that a repository's own configuration would make git start, and how that is prevented.
//!
//! Attributes choose filters and drivers by name; a configuration defines the names. The user's own configuration
//! (global, system, environment) counts. A repository's was written by its authors: each of its settings that names a
//! program is overridden with the user's own, or with one that starts nothing, unless the user trusts these programs.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::GitError;

/// The maximum number of program settings in a repository.
const MAX_PROGRAMS: usize = 1000;
/// The maximum number of repositories remembered as harmless; beyond it all are checked again.
const MAX_KNOWN: usize = 256;
/// The maximum number of parent directories to examine.
const MAX_PARENTS: usize = 128;
/// The maximum size of a `.git` file, in bytes.
const MAX_LINK: u64 = 1 << 12;
/// A file that changed this recently may change again without a new timestamp.
const SETTLED: Duration = Duration::from_secs(1);

/// Makes git list all settings with their scopes.
pub(super) const SETTINGS: [&str; 5] = ["config", "--list", "--show-scope", "--includes", "-z"];

/// Names of settings whose values are programs, in any section: filters, drivers, converters, helpers.
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

/// Sections in which `path` names a program.
const PROGRAM_PATHS: [&str; 5] = ["browser", "difftool", "lfs", "man", "mergetool"];

/// Merges texts as git does without a driver.
const PLAIN_MERGE: &str = "git merge-file --quiet %A %O %B";

type TrustPredicate = dyn Fn(&Path, &str) -> bool + Send + Sync;

/// What is known about repositories, and which of their programs may run. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Repositories {
    trusts: Arc<TrustPredicate>,
    /// Directories whose repositories name no programs, with the stamps of the files that determine this.
    harmless: Arc<Mutex<HashMap<PathBuf, ConfigStamps>>>,
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

    pub(super) fn is_harmless(&self, directory: &Path, place: &RepositoryLocation) -> bool {
        let known = self.harmless.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(directory).is_some_and(|stamps| *stamps == place.stamps)
    }

    /// Remembers that nothing here names a program, unless the files changed so recently that a later change might go
    /// unnoticed.
    pub(super) fn remember(&self, directory: &Path, place: RepositoryLocation) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let settled = |stamp: &Option<FileStamp>| stamp.is_none_or(|stamp| stamp.changed + SETTLED < now);
        if place.stamps.iter().all(settled) {
            let mut known = self.harmless.lock().unwrap_or_else(PoisonError::into_inner);
            if known.len() >= MAX_KNOWN {
                known.clear();
            }
            known.insert(directory.to_owned(), place.stamps);
        }
    }
}

/// The state of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileStamp {
    inode: u64,
    size: u64,
    modified: (i64, i64),
    /// Nobody can set this one back.
    changed: Duration,
}

type ConfigStamps = [Option<FileStamp>; 5];

fn stamp(path: &Path) -> Option<FileStamp> {
    let there = fs::metadata(path).ok()?;
    let seconds = Duration::from_secs(there.ctime().try_into().unwrap_or_default());
    let changed = seconds + Duration::from_nanos(there.ctime_nsec().try_into().unwrap_or_default());
    let modified = (there.mtime(), there.mtime_nsec());
    Some(FileStamp { inode: there.ino(), size: there.size(), modified, changed })
}

/// Where the repository of a directory is, as git finds it.
#[derive(Debug)]
pub(super) struct RepositoryLocation {
    /// The root of the working tree.
    pub(super) root: PathBuf,
    /// The configuration shared by all working trees.
    config: PathBuf,
    stamps: ConfigStamps,
}

impl RepositoryLocation {
    pub(super) fn find(directory: &Path) -> Option<Self> {
        let root = directory.ancestors().take(MAX_PARENTS).find(|at| fs::symlink_metadata(at.join(".git")).is_ok())?;
        let link = root.join(".git");
        let own = if link.is_dir() { link.clone() } else { root.join(read(&link)?.strip_prefix("gitdir:")?.trim()) };
        let common = read(&own.join("commondir")).map_or_else(|| own.clone(), |common| own.join(common.trim()));
        let config = common.join("config");
        let stamps = [
            stamp(&link),
            stamp(&own.join("commondir")),
            stamp(&config),
            stamp(&own.join("config")),
            stamp(&own.join("config.worktree")),
        ];
        Some(Self { root: root.to_owned(), config, stamps })
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
    /// The repository's configuration file. Some settings may be in files that it includes.
    pub file: PathBuf,
    /// Each setting with its value.
    settings: Vec<(String, String)>,
}

impl Programs {
    /// All of them as a text, which changes when one does.
    pub fn text(&self) -> String {
        self.settings.iter().map(|(key, value)| format!("{key}\n{value}\0")).collect()
    }

    /// What they start, for people.
    pub fn what(&self) -> Vec<String> {
        self.settings.iter().map(|(key, value)| format!("{key} has git run `{value}`")).collect()
    }
}

/// The relevant settings of a repository.
#[derive(Debug, Default)]
pub(super) struct RepositorySettings {
    /// Its programs.
    pub(super) programs: Option<Programs>,
    /// Settings that override them.
    pub(super) overlay: Vec<(String, String)>,
    /// It moves the working tree elsewhere.
    pub(super) moves_tree: bool,
    /// It includes files, so it can change without its own file changing.
    pub(super) includes: bool,
}

impl RepositorySettings {
    /// Parses git's output for [`SETTINGS`]: `scope\0key\nvalue\0…`.
    pub(super) fn read(output: &[u8], place: Option<&RepositoryLocation>, directory: &Path) -> Result<Self, GitError> {
        let text = String::from_utf8_lossy(output);
        let mut fields = text.split('\0');
        let (mut own, mut users) = (Vec::new(), HashMap::new());
        while let (Some(scope), Some(setting)) = (fields.next(), fields.next()) {
            let (key, value) = setting.split_once('\n').unwrap_or((setting, ""));
            match scope {
                "system" | "global" | "command" => drop(users.insert(key, value)),
                // The repository's, the working tree's, and any scope that git may add.
                _ => own.push((key, value)),
            }
        }
        let mut found = Self::default();
        let mut settings = Vec::new();
        let mut override_setting = |key: String, nothing: &str| {
            let value = users.get(key.as_str()).map_or(nothing, |value| value);
            found.overlay.push((key, value.to_owned()));
        };
        for (key, value) in own {
            let (section, name) = (part(key.split_once('.'), true), part(key.rsplit_once('.'), false));
            found.includes |= section == "include" || section == "includeif";
            found.moves_tree |= key == "core.worktree";
            if section == "filter" && name == "required" {
                override_setting(key.to_owned(), "false");
            }
            if is_program(section, name, value) {
                settings.push((key.to_owned(), value.to_owned()));
                override_setting(key.to_owned(), if name == "driver" { PLAIN_MERGE } else { "" });
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

    fn found(settings: &[(&str, &str, &str)]) -> RepositorySettings {
        let text: String = settings.iter().map(|(scope, key, value)| format!("{scope}\0{key}\n{value}\0")).collect();
        RepositorySettings::read(text.as_bytes(), None, Path::new("/nowhere")).unwrap()
    }

    #[test]
    fn programs_of_a_repository_are_overridden() {
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
    fn settings_that_can_change_unnoticed_are_not_remembered() {
        assert!(!found(&[("local", "include.path", "x")]).is_harmless());
        assert!(!found(&[("local", "includeif.onbranch:x.path", "x")]).is_harmless());
        assert!(!found(&[("worktree", "core.worktree", "/")]).is_harmless());
        assert!(found(&[("global", "include.path", "x")]).is_harmless());
        let many: String = (0..=MAX_PROGRAMS).map(|n| format!("local\0filter.f{n}.clean\nx\0")).collect();
        assert!(RepositorySettings::read(many.as_bytes(), None, Path::new("/")).is_err());
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
