//! Resolves the paths in a call: where they lead, whether that is inside the workspace, and which permissions they
//! need.

use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};

use api::EnvironmentError;

use crate::files::disk;
use crate::tool::context::Context;
use crate::tool::{Need, ToolError};

/// A file or folder that a call names.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// The absolute path as given, for display.
    pub shown: PathBuf,
    /// The path with symbolic links resolved, which decisions and file access use.
    pub real: PathBuf,
    /// Whether `real` is outside both the working directory and the worktree.
    pub external: bool,
    /// Whether it is in a git directory, or is a file that points to one.
    pub in_git: bool,
    /// `real` relative to the resolved worktree.
    relative: String,
}

/// Resolves `path` for this call.
pub(crate) fn locate(ctx: &Context, path: &str) -> Result<Target, ToolError> {
    locate_from(ctx, &ctx.directory, path)
}

/// Likewise, with the working directory as the default.
pub(crate) fn locate_or_here(ctx: &Context, path: Option<&str>) -> Result<Target, ToolError> {
    locate(ctx, path.unwrap_or("."))
}

/// Likewise, for a path relative to `base`.
pub(crate) fn locate_from(ctx: &Context, base: &Path, path: &str) -> Result<Target, ToolError> {
    Locator::new(ctx)?.locate_from(base, path)
}

/// Resolves the paths of one call. The working directory and the worktree are resolved once, however many paths there
/// are: each component of a path is a system call.
pub(crate) struct Locator<'a> {
    ctx: &'a Context,
    directory: PathBuf,
    worktree: PathBuf,
}

impl<'a> Locator<'a> {
    pub(crate) fn new(ctx: &'a Context) -> Result<Self, ToolError> {
        let directory = resolve(&ctx.directory)?;
        let worktree = if ctx.worktree == ctx.directory { directory.clone() } else { resolve(&ctx.worktree)? };
        Ok(Self { ctx, directory, worktree })
    }

    /// Resolves a path relative to `base`.
    pub(crate) fn locate_from(&self, base: &Path, path: &str) -> Result<Target, ToolError> {
        let shown = absolute(base, path)?;
        let real = match shown.strip_prefix(&self.ctx.directory) {
            Ok(rest) => with_path(&shown, disk::resolve_from(self.directory.clone(), rest))?,
            Err(_) => resolve(&shown)?,
        };
        Ok(self.describe(shown, real))
    }

    fn describe(&self, shown: PathBuf, real: PathBuf) -> Target {
        let Self { directory, worktree, .. } = self;
        // Without a repository the worktree is `/`. That must not put every file inside the workspace.
        let rooted = worktree.parent().is_some();
        let inside = real.starts_with(directory) || (rooted && real.starts_with(worktree));
        let relative = relative(&real, if rooted { worktree } else { directory });
        let in_git = is_in_git(&shown, &real);
        Target { shown, real, external: !inside, in_git, relative }
    }
}

/// Likewise, for a folder entry itself: a symbolic link is not followed.
pub(crate) fn locate_entry(ctx: &Context, path: &str) -> Result<Target, ToolError> {
    let shown = absolute(&ctx.directory, path)?;
    let real = match (shown.parent(), shown.file_name()) {
        (Some(parent), Some(name)) => resolve(parent)?.join(name),
        _ => shown.clone(),
    };
    Ok(Locator::new(ctx)?.describe(shown, real))
}

fn absolute(base: &Path, path: &str) -> Result<PathBuf, ToolError> {
    if path.contains('\0') {
        return Err(ToolError::failed(format!("{path:?} is not a path: it contains a NUL byte")));
    }
    Ok(normalise(&base.join(path)))
}

fn resolve(path: &Path) -> Result<PathBuf, ToolError> {
    with_path(path, disk::resolve(path))
}

fn with_path(path: &Path, resolved: io::Result<PathBuf>) -> Result<PathBuf, ToolError> {
    resolved.map_err(|error| ToolError::failed(format!("{}: {error}", path.display())))
}

impl Target {
    /// The path that rules match: relative to the worktree.
    pub fn pattern(&self) -> String {
        self.relative.clone()
    }

    /// Likewise, for a file below it.
    pub fn pattern_below(&self, relative: &Path) -> String {
        match (self.relative.as_str(), relative.as_os_str().is_empty()) {
            (_, true) => self.relative.clone(),
            ("", false) => relative.to_string_lossy().into_owned(),
            (folder, false) => format!("{folder}/{}", relative.to_string_lossy()),
        }
    }

    /// The title that clients show.
    pub fn title(&self, ctx: &Context) -> String {
        relative(&self.shown, if ctx.worktree.parent().is_some() { &ctx.worktree } else { &ctx.directory })
    }

    /// The need for a file outside the workspace, if it is outside.
    pub fn outside_file_need(&self) -> Option<Need> {
        self.outside_need(self.real.parent().unwrap_or(&self.real))
    }

    /// The need for a folder outside the workspace, if it is outside.
    pub fn outside_folder_need(&self) -> Option<Need> {
        self.outside_need(&self.real)
    }

    /// The need for changing a git directory, if it is in one: the configuration and hooks there name programs that the
    /// next git runs, whoever starts it.
    pub fn git_directory_need(&self) -> Option<Need> {
        let need =
            || Need::new("git_directory", self.pattern()).with("filepath", self.real.to_string_lossy().into_owned());
        self.in_git.then(need)
    }

    fn outside_need(&self, folder: &Path) -> Option<Need> {
        self.external.then(|| external(&self.real.to_string_lossy(), &folder.to_string_lossy()))
    }
}

/// Whether a path is a folder named `.git` or lies in one, or lies in a folder that looks like a git directory (bare, or
/// of a submodule or linked worktree), whatever its name.
fn is_in_git(shown: &Path, real: &Path) -> bool {
    let named = |path: &Path| path.components().any(|step| step.as_os_str().eq_ignore_ascii_case(".git"));
    let repository = |folder: &Path| {
        let has = |name: &str| std::fs::symlink_metadata(folder.join(name)).is_ok();
        has("HEAD") && ((has("objects") && has("refs")) || has("commondir"))
    };
    named(shown) || named(real) || real.ancestors().skip(1).any(repository)
}

/// The need for a folder outside the workspace.
pub(crate) fn external(filepath: &str, folder: &str) -> Need {
    let pattern = format!("{}/*", folder.trim_end_matches('/'));
    let need = Need::new("external_directory", pattern.clone()).with("filepath", filepath).with("parentDir", folder);
    Need { always: vec![pattern], ..need }
}

/// Refuses what the engine did not allow for this call: a path may lead elsewhere since the decision.
pub(crate) fn confirm(ctx: &Context, needs: &[Need]) -> Result<(), ToolError> {
    match needs.iter().find(|need| !ctx.grants(need)) {
        None => Ok(()),
        Some(need) => Err(ToolError::failed(format!(
            "Permission {} for {} was not granted: the path means something else now than when it was judged. \
             Call the tool again.",
            need.permission,
            need.patterns.join(", ")
        ))),
    }
}

/// The error of an environment, for the model.
pub(crate) fn explain(action: &str, error: EnvironmentError) -> ToolError {
    ToolError::failed(format!("Could not {action} {error}"))
}

/// Removes `.` and `..` lexically, as editors and shells do when they show a path.
pub(crate) fn normalise(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                out.pop();
            }
            other => out.push(other),
        }
    }
    out
}

/// The relative path from `base` to `path`, both absolute and normal.
fn relative(path: &Path, base: &Path) -> String {
    let shared = path.components().zip(base.components()).take_while(|(a, b)| a == b).count();
    let up = base.components().skip(shared).map(|_| OsString::from(".."));
    let down = path.components().skip(shared).map(|c| c.as_os_str().to_owned());
    up.chain(down).collect::<PathBuf>().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::registry::testing::Workspace;
    use std::os::unix::fs::symlink;

    #[test]
    fn relative_paths() {
        let cases = [
            ("/p/a/b.txt", "/p", "a/b.txt"),
            ("/p", "/p", ""),
            ("/etc/hostname", "/home/proj", "../../etc/hostname"),
            ("/pq/a", "/p", "../pq/a"),
        ];
        for (path, base, want) in cases {
            assert_eq!(relative(Path::new(path), Path::new(base)), want);
        }
        assert_eq!(normalise(Path::new("/a/./b/../c")), Path::new("/a/c"));
        assert_eq!(normalise(Path::new("/../../x")), Path::new("/x"));
    }

    #[test]
    fn inside_and_outside() {
        let ws = Workspace::new();
        let outside = tempfile::tempdir().unwrap();
        symlink(outside.path(), ws.path("out")).unwrap();
        symlink(ws.path("real.txt"), ws.path("in")).unwrap();
        let ctx = ws.context();
        for (path, external) in
            [("a", false), ("in", false), ("out/a", true), ("../a", true), ("/etc/x", true), (".", false)]
        {
            assert_eq!(locate(&ctx, path).unwrap().external, external, "{path}");
        }
        assert_eq!(locate(&ctx, "in").unwrap().pattern(), "real.txt");
        assert!(locate(&ctx, "a\0b").is_err());
    }

    #[test]
    fn git_directories_are_recognised_by_name_and_content() {
        let ws = Workspace::new();
        for name in ["bare/HEAD", "bare/objects/x", "bare/refs/x", "linked/HEAD", "linked/commondir", "half/HEAD"] {
            ws.file(name, "");
        }
        ws.file("tree/.git", "gitdir: ../linked");
        std::fs::create_dir(ws.path(".git")).unwrap();
        symlink(ws.path(".git"), ws.path("alias")).unwrap();
        symlink(ws.path("bare"), ws.path("sub.git")).unwrap();
        symlink(ws.path("elsewhere"), ws.path("half/.git")).unwrap();
        let ctx = ws.context();
        for (path, in_git) in [
            (".git", true),
            (".git/config", true),
            (".git/hooks/post-checkout", true),
            (".GIT/config", true),
            ("a/b/.git/config", true),
            ("x/../.git/config", true),
            ("alias/config", true),
            ("bare/config", true),
            ("bare/hooks/deep/x", true),
            ("sub.git/config", true),
            ("linked/config.worktree", true),
            ("tree/.git", true),
            ("half/.git/config", true),
            ("half/config", false),
            ("tree/file", false),
            (".gitignore", false),
            (".gitattributes", false),
            (".github/workflows/x.yml", false),
            ("a.git/x", false),
            ("git/config", false),
        ] {
            let target = locate(&ctx, path).unwrap();
            assert_eq!(target.in_git, in_git, "{path}");
            assert_eq!(
                target.git_directory_need().map(|need| need.permission),
                in_git.then(|| "git_directory".into()),
                "{path}"
            );
        }
    }

    #[test]
    fn without_a_repository_the_disk_is_outside() {
        let ws = Workspace::new();
        let mut ctx = ws.context();
        ctx.worktree = PathBuf::from("/");
        let need = locate(&ctx, "/etc/hostname").unwrap().outside_file_need().unwrap();
        assert_eq!(need.patterns, ["/etc/*"]);
        assert_eq!(need.metadata["parentDir"], "/etc");
        assert!(!locate(&ctx, "x").unwrap().external);
    }

    #[test]
    fn a_path_that_changed_is_refused() {
        let ws = Workspace::new();
        let mut ctx = ws.context();
        let need = locate(&ctx, "/etc/x").unwrap().outside_file_need().unwrap();
        assert!(confirm(&ctx, std::slice::from_ref(&need)).unwrap_err().to_string().contains("not granted"));
        ctx.granted = vec![need.clone()].into();
        confirm(&ctx, &[need]).unwrap();
    }
}
