//! Where requests work: the workspace or directory that their metadata names, inside of the service's root.

use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};

use api::{AgentRuntime, Json, JsonMap, Scope};
use tokio::task::spawn_blocking;

use super::Service;
use crate::Error;

/// How many symbolic links a path may lead through.
const MAX_LINKS: usize = 40;
/// The longest path or workspace id that is looked at.
const MAX_NAME_BYTES: usize = 4096;

/// The directory and workspace that metadata names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) directory: Option<String>,
    pub(super) workspace: Option<String>,
}

impl Named {
    /// Reads `metadata.opencode`. A value of another type is an error.
    pub(super) fn read(metadata: &JsonMap) -> Result<Self, Error> {
        let wrong = |field: &str, what: &str| Err(Error::invalid(field, format!("{field} must be {what}")));
        let private = match metadata.get("opencode") {
            None | Some(Json::Null) => return Ok(Self::default()),
            Some(Json::Object(private)) => private,
            Some(_) => return wrong("metadata.opencode", "an object"),
        };
        let directory = match private.get("directory") {
            None | Some(Json::Null) => None,
            Some(Json::String(directory)) => Some(directory.clone()),
            Some(_) => return wrong("metadata.opencode.directory", "a string"),
        };
        let workspace = match private.get("workspace") {
            None | Some(Json::Null) => None,
            Some(Json::Object(workspace)) => match workspace.get("id") {
                None | Some(Json::Null) => None,
                Some(Json::String(id)) => Some(id.clone()),
                Some(_) => return wrong("metadata.opencode.workspace.id", "a string"),
            },
            Some(_) => return wrong("metadata.opencode.workspace", "an object"),
        };
        Ok(Self { directory, workspace }.without_blanks())
    }

    /// Reads what is there and has the right type, as the recorded releases do for messages.
    pub(super) fn read_leniently(metadata: &JsonMap) -> Self {
        let private = metadata.get("opencode");
        let text = |value: Option<&Json>| value.and_then(Json::as_str).map(str::to_owned);
        let directory = text(private.and_then(|private| private.get("directory")));
        let workspace = text(private.and_then(|private| private.get("workspace")).and_then(|it| it.get("id")));
        Self { directory, workspace }.without_blanks()
    }

    fn without_blanks(self) -> Self {
        let filled = |text: &String| !text.trim().is_empty();
        Self { directory: self.directory.filter(filled), workspace: self.workspace.filter(filled) }
    }
}

/// A directory that may not be used. The text is for the client, and names no path that it did not name itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct NotAllowed(pub(super) String);

/// The places that requests may work in.
pub(super) struct Places {
    /// The root as it was configured, which is the directory of requests that name none.
    configured: PathBuf,
    /// The root with its symbolic links resolved.
    root: PathBuf,
    allow_override: bool,
}

impl Places {
    /// The places below a root; with `allow_override` false, the root alone.
    pub(super) fn new(root: &Path, allow_override: bool) -> Self {
        let configured = root.to_owned();
        let root = resolve(&configured).unwrap_or_else(|| configured.clone());
        Self { configured, root, allow_override }
    }

    /// Where requests work that name no place.
    pub(super) fn default_scope(&self) -> Scope {
        Scope::new(self.configured.to_string_lossy())
    }

    /// The place that a request names, else the service's. A workspace wins, and the directory is not used then.
    pub(super) async fn scope(&self, named: &Named) -> Result<Scope, NotAllowed> {
        if let Some(id) = &named.workspace {
            if id.len() > MAX_NAME_BYTES || id.contains(char::is_control) {
                return Err(NotAllowed("The id of the workspace is malformed".to_owned()));
            }
            return Ok(Scope { workspace: Some(id.clone()), ..self.default_scope() });
        }
        match &named.directory {
            None => Ok(self.default_scope()),
            Some(directory) => self.directory(directory).await,
        }
    }

    async fn directory(&self, directory: &str) -> Result<Scope, NotAllowed> {
        let outside = || {
            let shown: String = directory.chars().filter(|c| !c.is_control()).take(MAX_NAME_BYTES).collect();
            NotAllowed(format!("Directory {shown} is outside of the workspace; name one inside of it"))
        };
        if directory.len() > MAX_NAME_BYTES || directory.contains('\0') {
            return Err(NotAllowed("The directory is no valid path".to_owned()));
        }
        let path = self.configured.join(directory);
        let resolved = spawn_blocking(move || resolve(&path)).await.ok().flatten().ok_or_else(outside)?;
        if resolved == self.root || resolved == self.configured {
            return Ok(self.default_scope());
        }
        if !resolved.starts_with(&self.root) {
            return Err(outside());
        }
        if !self.allow_override {
            return Err(NotAllowed("This service works in its default directory alone; name no other".to_owned()));
        }
        // The resolved path is handed on: a link that changes later leads nowhere else.
        resolved.to_str().map(Scope::new).ok_or_else(outside)
    }

    /// The directories whose files messages in a scope may name, with symbolic links resolved.
    pub(super) async fn file_roots(&self, host: &dyn AgentRuntime, scope: &Scope) -> Vec<PathBuf> {
        let mut roots = vec![self.root.clone()];
        if let Some(id) = &scope.workspace
            && let Ok(directory) = host.workspace_directory(&self.default_scope(), id).await
            && let Ok(Some(directory)) = spawn_blocking(move || resolve(Path::new(&directory))).await
        {
            roots.push(directory);
        }
        roots
    }
}

/// An absolute path with its symbolic links resolved. What does not exist is taken as it is written, since the files may
/// be on another machine. `None` if links lead in a circle, or if the path is relative.
pub(super) fn resolve(path: &Path) -> Option<PathBuf> {
    if !path.is_absolute() {
        return None;
    }
    let mut resolved = PathBuf::from("/");
    let mut rest = reversed(path);
    let mut links = 0;
    while let Some(name) = rest.pop() {
        if name == ".." {
            resolved.pop();
            continue;
        }
        let next = resolved.join(&name);
        let Ok(target) = fs::read_link(&next) else {
            resolved = next;
            continue;
        };
        links += 1;
        if links > MAX_LINKS {
            return None;
        }
        if target.is_absolute() {
            resolved = PathBuf::from("/");
        }
        rest.extend(reversed(&target));
    }
    Some(resolved)
}

/// The names of a path, last first.
fn reversed(path: &Path) -> Vec<OsString> {
    let name = |component: Component<'_>| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().rev().filter_map(name).collect()
}

impl Service {
    /// The place that the metadata of a request names, else the service's.
    pub async fn scope(&self, metadata: &JsonMap) -> Result<Scope, Error> {
        let named = Named::read(metadata)?;
        let scope = self.inner.places.scope(&named).await;
        scope.map_err(|error| Error::invalid("metadata.opencode.directory", error.to_string()))
    }
}

#[cfg(test)]
mod tests;
