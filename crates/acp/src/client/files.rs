//! The files that an agent may use: those below one folder, wherever its paths lead.

use std::io;
use std::path::{Component, Path, PathBuf};

use serde_json::{Value, json};

use crate::rpc::{Error, code};

/// The largest file that is read or written, in bytes: a message is at most three times that.
const MAX_FILE: u64 = 8 << 20;

/// The folder of an agent, by its real path. Cheap to clone.
///
/// The agent runs as this user and can do anything that the user can; this limits only what the client does on its
/// behalf.
#[derive(Debug, Clone)]
pub struct Root(PathBuf);

impl Root {
    /// Resolves a folder.
    pub fn new(path: &Path) -> io::Result<Self> {
        let real = path.canonicalize()?;
        if real.is_dir() { Ok(Self(real)) } else { Err(io::ErrorKind::NotADirectory.into()) }
    }

    /// Its real path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The real path of an existing file or folder.
    fn resolve_existing(&self, path: &Path) -> Result<PathBuf, Error> {
        let real = path.canonicalize().map_err(|error| io_error(path, &error))?;
        self.check_inside(path, real)
    }

    /// The real path of a file that need not exist: its nearest existing ancestor counts.
    fn resolve(&self, path: &Path) -> Result<PathBuf, Error> {
        let existing = path.ancestors().find(|part| part.symlink_metadata().is_ok()).unwrap_or(path);
        let real = existing.canonicalize().map_err(|error| io_error(path, &error))?;
        let rest = path.strip_prefix(existing).unwrap_or(Path::new(""));
        if !rest.components().all(|part| matches!(part, Component::Normal(_))) {
            return Err(Error::invalid_params(format!(
                "{} leads through a folder that does not exist",
                path.display()
            )));
        }
        let real = if rest.as_os_str().is_empty() { real } else { real.join(rest) };
        self.check_inside(path, real)
    }

    fn check_inside(&self, path: &Path, real: PathBuf) -> Result<PathBuf, Error> {
        if real.starts_with(&self.0) {
            return Ok(real);
        }
        let why = format!("{} is outside {}, the folder of this client", path.display(), self.0.display());
        Err(Error::invalid_params(why))
    }

    /// The folder in which a command runs.
    pub(super) fn working_directory(&self, path: Option<&str>) -> Result<PathBuf, Error> {
        let Some(path) = path else { return Ok(self.0.clone()) };
        let real = self.resolve_existing(absolute(path)?)?;
        if real.is_dir() { Ok(real) } else { Err(Error::invalid_params(format!("{path} is not a folder"))) }
    }

    /// The file of a request. It need not exist on disk: an editor may have it.
    pub(super) fn file_path(&self, params: &Value) -> Result<PathBuf, Error> {
        self.resolve(absolute(string(params, "path")?)?)
    }

    /// The response to `fs/read_text_file`.
    pub(super) fn read_response(params: &Value, bytes: Vec<u8>) -> Result<Value, Error> {
        let content = String::from_utf8(bytes).map_err(|_| {
            Error::invalid_params(format!("{} is not UTF-8 text", params["path"].as_str().unwrap_or_default()))
        })?;
        Ok(json!({ "content": lines(content, params["line"].as_u64(), params["limit"].as_u64()) }))
    }

    /// Handles `fs/read_text_file`.
    pub(super) fn read(&self, params: &Value) -> Result<Value, Error> {
        let path = absolute(string(params, "path")?)?;
        let real = self.resolve_existing(path)?;
        let size = std::fs::metadata(&real).map_err(|error| io_error(path, &error))?;
        // Reading a pipe or a device might never end.
        if !size.is_file() {
            return Err(Error::invalid_params(format!("{} is not a file", path.display())));
        }
        if size.len() > MAX_FILE {
            let why = format!("{} has more than {} MB", path.display(), MAX_FILE >> 20);
            return Err(Error::invalid_params(why));
        }
        let bytes = std::fs::read(&real).map_err(|error| io_error(path, &error))?;
        Self::read_response(params, bytes)
    }

    /// The current text of a file that is about to be written, if it can be shown.
    pub(super) fn current_text(&self, path: &Path) -> Option<String> {
        std::fs::metadata(path).ok().filter(|existing| existing.is_file() && existing.len() <= MAX_FILE)?;
        String::from_utf8(std::fs::read(path).ok()?).ok()
    }

    /// Handles `fs/write_text_file`.
    pub(super) fn write(&self, params: &Value) -> Result<Value, Error> {
        let path = absolute(string(params, "path")?)?;
        let content = string(params, "content")?;
        let real = self.resolve(path)?;
        if std::fs::metadata(&real).is_ok_and(|existing| !existing.is_file()) {
            return Err(Error::invalid_params(format!("{} is not a file", path.display())));
        }
        let folder = real.parent().unwrap_or(&self.0);
        std::fs::create_dir_all(folder)
            .and_then(|()| std::fs::write(&real, content))
            .map_err(|error| io_error(path, &error))?;
        Ok(json!({}))
    }
}

/// A required string parameter.
pub(super) fn string<'a>(params: &'a Value, name: &str) -> Result<&'a str, Error> {
    params[name].as_str().ok_or_else(|| Error::invalid_params(format!("{name} is missing: expected a string")))
}

fn absolute(path: &str) -> Result<&Path, Error> {
    let path = Path::new(path);
    if path.is_absolute() {
        return Ok(path);
    }
    Err(Error::invalid_params(format!("{} is not an absolute path", path.display())))
}

fn io_error(path: &Path, error: &io::Error) -> Error {
    let code = if error.kind() == io::ErrorKind::NotFound { code::NOT_FOUND } else { code::INTERNAL };
    Error::new(code, format!("{}: {error}", path.display()))
}

/// `count` lines from `first` on, counted from 1.
fn lines(content: String, first: Option<u64>, count: Option<u64>) -> String {
    if first.is_none() && count.is_none() {
        return content;
    }
    let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let skip = number(first.unwrap_or(1).saturating_sub(1));
    content.split_inclusive('\n').skip(skip).take(count.map_or(usize::MAX, number)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_outside_the_folder_is_read_or_written() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        let inside = base.join("root");
        std::fs::create_dir(&inside).unwrap();
        std::fs::write(base.join("secret"), "s").unwrap();
        std::os::unix::fs::symlink(&base, inside.join("up")).unwrap();
        std::os::unix::fs::symlink(base.join("new"), inside.join("dangling")).unwrap();
        let root = Root::new(&inside).unwrap();
        let at = |path: &str| format!("{}/{path}", inside.display());
        for path in ["../secret", "up/secret", "x/../../secret", "/etc/hostname", "secret"] {
            let path = if path.starts_with('/') || path == "secret" { path.to_owned() } else { at(path) };
            assert!(root.read(&json!({ "path": path })).is_err(), "{path}");
        }
        for path in ["../new", "up/new", "dangling", "none/../../new", "up/none/new"] {
            assert!(root.write(&json!({"path": at(path), "content": "x"})).is_err(), "{path}");
        }
        let mut left: Vec<_> = std::fs::read_dir(&base).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["root", "secret"]);
        assert!(root.working_directory(Some(&at("up"))).is_err() && root.working_directory(Some(&at("none"))).is_err());
        assert_eq!(root.working_directory(None).unwrap(), inside);
    }

    #[test]
    fn writing_creates_folders_and_reading_selects_lines() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path()).unwrap();
        let path = root.path().join("a/b.txt");
        root.write(&json!({"path": path, "content": "1\n2\n3\n"})).unwrap();
        let read = |more: Value| {
            let mut params = json!({ "path": path });
            params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            root.read(&params).unwrap()["content"].as_str().unwrap().to_owned()
        };
        assert_eq!(read(json!({})), "1\n2\n3\n");
        assert_eq!(read(json!({"line": 2})), "2\n3\n");
        assert_eq!(read(json!({"line": 2, "limit": 1})), "2\n");
        assert_eq!(read(json!({"limit": 0})), "");
        assert_eq!(read(json!({"line": 9})), "");
        assert_eq!(root.read(&json!({"path": root.path().join("none")})).unwrap_err().code, code::NOT_FOUND);
        assert!(root.read(&json!({"path": root.path()})).is_err(), "a folder");
        std::fs::write(&path, b"\xff").unwrap();
        assert!(root.read(&json!({ "path": path })).is_err(), "not text");
    }
}
