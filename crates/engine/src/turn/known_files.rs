//! The file versions that a session's agent knows: the content it last read or wrote, as stored.

use api::{FileVersion, SessionId};
use store::Batch;
use tools::{Change, KnownFiles};

use crate::Inner;

impl Inner {
    /// Looks up the file versions a session's agent knows.
    pub(crate) fn known_files(&self, session: &SessionId) -> KnownFiles {
        let (store, session) = (self.store.clone(), session.clone());
        KnownFiles::new(move |path| {
            let found = store.file_version(&session, &path.to_string_lossy());
            found.unwrap_or_else(|error| {
                tracing::warn!(%session, path = %path.display(), %error, "cannot read the known version of a file");
                // No content has this hash, so the file counts as changed.
                Some(FileVersion { hash: "unknown".to_owned(), content: None })
            })
        })
    }
}

/// Stores a file version that a call or a prompt has learned.
pub(crate) fn store_version(batch: &mut Batch, session: &SessionId, change: &Change) {
    if let Change::KnownFile { path, version } = change {
        batch.file_version(session, &path.to_string_lossy(), version.clone());
    }
}
