//! The versions of files that the agent knows: what it last read or wrote. `write` replaces a whole file, so it must
//! not overwrite what somebody else changed since.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use api::{Content, FileVersion};

use crate::files::diff;
use crate::files::path::Target;
use crate::tool::context::Context;
use crate::tool::{Change, ToolError};

/// The maximum size of content that is stored to show later changes; longer files have only a hash.
const MAX_CONTENT: usize = 64 << 10;
/// The maximum size of the diff that is shown.
const MAX_SHOWN: usize = 4 << 10;

/// The files that a session's agent knows. A handle: clones share the state. What calls report ([`Change::KnownFile`])
/// is stored with their outcome; until then it is held here for calls that run concurrently.
#[derive(Clone)]
pub struct KnownFiles(Arc<Inner>);

type VersionLookup = dyn Fn(&Path) -> Option<FileVersion> + Send + Sync;

struct Inner {
    stored: Box<VersionLookup>,
    reported: Mutex<HashMap<PathBuf, FileVersion>>,
}

impl Default for KnownFiles {
    fn default() -> Self {
        Self::new(|_| None)
    }
}

impl std::fmt::Debug for KnownFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KnownFiles")
    }
}

impl KnownFiles {
    /// Looks up stored versions with `stored`. Paths have no symbolic links.
    pub fn new(stored: impl Fn(&Path) -> Option<FileVersion> + Send + Sync + 'static) -> Self {
        Self(Arc::new(Inner { stored: Box::new(stored), reported: Mutex::default() }))
    }

    /// A reported version is now stored.
    pub fn stored(&self, path: &Path, version: &FileVersion) {
        let mut reported = self.0.reported.lock().unwrap_or_else(PoisonError::into_inner);
        if reported.get(path) == Some(version) {
            reported.remove(path);
        }
    }

    fn get(&self, path: &Path) -> Option<FileVersion> {
        let reported = self.0.reported.lock().unwrap_or_else(PoisonError::into_inner).get(path).cloned();
        reported.or_else(|| (self.0.stored)(path))
    }

    /// Records the content of a file that the agent now knows; `None` if the file does not exist.
    pub(crate) fn learn(&self, path: &Path, content: Option<&[u8]>) -> Change {
        let version = version(content);
        self.0.reported.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned(), version.clone());
        Change::KnownFile { path: path.to_owned(), version }
    }

    /// Records a partial change. If somebody else had changed the file before, the agent has still not seen that.
    pub(crate) fn learn_change(&self, path: &Path, before: Option<&[u8]>, after: Option<&[u8]>) -> Option<Change> {
        let stale = self.get(path).is_some_and(|known| known.hash != hash(before));
        (!stale).then(|| self.learn(path, after))
    }
}

fn version(content: Option<&[u8]>) -> FileVersion {
    let text = content.filter(|content| content.len() <= MAX_CONTENT).map(|content| str::from_utf8(content).ok());
    FileVersion { hash: hash(content), content: text.flatten().map(str::to_owned) }
}

/// Identifies a content; empty if there is no file.
fn hash(content: Option<&[u8]>) -> String {
    content.map(api::sha256_hex).unwrap_or_default()
}

/// Refuses to replace a file that differs from the version the agent knows. An unknown or deleted file may be replaced.
pub(crate) fn refuse_if_changed(ctx: &Context, target: &Target, now: Option<&Content>) -> Result<(), ToolError> {
    let Some((known, now)) = ctx.options.known_files.get(&target.real).zip(now) else { return Ok(()) };
    let now = match now {
        Content::Whole(content) if hash(Some(content)) == known.hash => return Ok(()),
        Content::Whole(content) => Some(content),
        Content::Large { .. } => None,
    };
    let changed = now.and_then(|content| {
        let old = if known.hash.is_empty() { "" } else { known.content.as_deref()? };
        // Content that needs permission to be read is not shown without it.
        let may_read = ctx.readable.without_asking(&target.pattern());
        may_read.then(|| describe_change(target, old, str::from_utf8(content).ok()?)).flatten()
    });
    let shown = target.shown.display();
    let changed = changed.unwrap_or_else(|| "What changed cannot be shown here.\n".to_owned());
    Err(ToolError::failed(format!(
        "{shown} was changed by somebody else, or by a command, since you last read or wrote it, so it was not replaced.\n{changed}\
         Read it again, then write it with both changes, or change a part of it with edit."
    )))
}

fn describe_change(target: &Target, old: &str, new: &str) -> Option<String> {
    let mut text = diff::unified(&target.shown.to_string_lossy(), old, new).text;
    if text.len() > MAX_SHOWN {
        let end = text[..text.floor_char_boundary(MAX_SHOWN)].rfind('\n')?;
        text.truncate(end);
        text.push_str("\n(more is left out)\n");
    }
    Some(text)
}
