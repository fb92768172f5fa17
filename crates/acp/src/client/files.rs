//! The files that an agent gets: those below one folder, wherever its paths lead.

use std::io;
use std::path::{Component, Path, PathBuf};

use serde_json::{Value, json};

use crate::rpc::{Error, code};

/// The largest file that is given or written, in bytes: a message is at most three times that.
const MAX_FILE: u64 = 8 << 20;

/// A folder, by its real path. Cheap to clone.
///
/// The agent is a program of this user and can do by itself whatever the user can; this bounds what is done on its behalf.
#[derive(Debug, Clone)]
pub struct Root(PathBuf);

impl Root {
    /// This folder.
    pub fn new(path: &Path) -> io::Result<Self> {
        let real = path.canonicalize()?;
        if real.is_dir() { Ok(Self(real)) } else { Err(io::ErrorKind::NotADirectory.into()) }
    }

    /// Its real path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The real path of something that is there.
    fn existing(&self, path: &Path) -> Result<PathBuf, Error> {
        let real = path.canonicalize().map_err(|error| failed(path, &error))?;
        self.inside(path, real)
    }

    /// The real path of something that need not be there yet: its nearest folder that is there counts.
    fn possible(&self, path: &Path) -> Result<PathBuf, Error> {
        let there = path.ancestors().find(|part| part.symlink_metadata().is_ok()).unwrap_or(path);
        let real = there.canonicalize().map_err(|error| failed(path, &error))?;
        let rest = path.strip_prefix(there).unwrap_or(Path::new(""));
        if !rest.components().all(|part| matches!(part, Component::Normal(_))) {
            return Err(Error::invalid_params(format!("{} leads through a folder that is not there", path.display())));
        }
        let real = if rest.as_os_str().is_empty() { real } else { real.join(rest) };
        self.inside(path, real)
    }

    fn inside(&self, path: &Path, real: PathBuf) -> Result<PathBuf, Error> {
        if real.starts_with(&self.0) {
            return Ok(real);
        }
        let why = format!("{} is outside {}, the folder of this client", path.display(), self.0.display());
        Err(Error::invalid_params(why))
    }

    /// The folder that a command runs in.
    pub(super) fn folder(&self, path: Option<&str>) -> Result<PathBuf, Error> {
        let Some(path) = path else { return Ok(self.0.clone()) };
        let real = self.existing(absolute(path)?)?;
        if real.is_dir() { Ok(real) } else { Err(Error::invalid_params(format!("{path} is not a folder"))) }
    }

    /// The file that a request is about. It need not be on the disk: an editor may have it.
    pub(super) fn file(&self, params: &Value) -> Result<PathBuf, Error> {
        self.possible(absolute(text(params, "path")?)?)
    }

    /// What `fs/read_text_file` is answered.
    pub(super) fn shown(params: &Value, bytes: Vec<u8>) -> Result<Value, Error> {
        let content = String::from_utf8(bytes).map_err(|_| {
            Error::invalid_params(format!("{} is not UTF-8 text", params["path"].as_str().unwrap_or_default()))
        })?;
        Ok(json!({ "content": lines(content, params["line"].as_u64(), params["limit"].as_u64()) }))
    }

    /// Answers `fs/read_text_file`.
    pub(super) fn read(&self, params: &Value) -> Result<Value, Error> {
        let path = absolute(text(params, "path")?)?;
        let real = self.existing(path)?;
        let size = std::fs::metadata(&real).map_err(|error| failed(path, &error))?;
        // A pipe or a device would be read for ever.
        if !size.is_file() {
            return Err(Error::invalid_params(format!("{} is not a file", path.display())));
        }
        if size.len() > MAX_FILE {
            let why = format!("{} has more than {} MB", path.display(), MAX_FILE >> 20);
            return Err(Error::invalid_params(why));
        }
        let bytes = std::fs::read(&real).map_err(|error| failed(path, &error))?;
        Self::shown(params, bytes)
    }

    /// What is in a file that would be written, if it can be shown.
    pub(super) fn before(&self, path: &Path) -> Option<String> {
        std::fs::metadata(path).ok().filter(|there| there.is_file() && there.len() <= MAX_FILE)?;
        String::from_utf8(std::fs::read(path).ok()?).ok()
    }

    /// Answers `fs/write_text_file`.
    pub(super) fn write(&self, params: &Value) -> Result<Value, Error> {
        let path = absolute(text(params, "path")?)?;
        let content = text(params, "content")?;
        let real = self.possible(path)?;
        if std::fs::metadata(&real).is_ok_and(|there| !there.is_file()) {
            return Err(Error::invalid_params(format!("{} is not a file", path.display())));
        }
        let folder = real.parent().unwrap_or(&self.0);
        std::fs::create_dir_all(folder)
            .and_then(|()| std::fs::write(&real, content))
            .map_err(|error| failed(path, &error))?;
        Ok(json!({}))
    }
}

/// A text among parameters.
pub(super) fn text<'a>(params: &'a Value, name: &str) -> Result<&'a str, Error> {
    params[name].as_str().ok_or_else(|| Error::invalid_params(format!("{name} is missing: a text")))
}

fn absolute(path: &str) -> Result<&Path, Error> {
    let path = Path::new(path);
    if path.is_absolute() {
        return Ok(path);
    }
    Err(Error::invalid_params(format!("{} is not an absolute path", path.display())))
}

fn failed(path: &Path, error: &io::Error) -> Error {
    let code = if error.kind() == io::ErrorKind::NotFound { code::NOT_FOUND } else { code::INTERNAL };
    Error::new(code, format!("{}: {error}", path.display()))
}

/// That many lines from that one on, the first being 1.
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
    fn nothing_outside_is_read_or_written() {
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
        assert!(root.folder(Some(&at("up"))).is_err() && root.folder(Some(&at("none"))).is_err());
        assert_eq!(root.folder(None).unwrap(), inside);
    }

    #[test]
    fn files_are_made_with_their_folders_and_read_by_lines() {
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
