//! Stored credentials: `mcp-auth.json` in the data folder, in OpenCode's format, readable by the owner only.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use api::{Json, JsonMap};
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// The largest file that is read or written, in bytes.
const FILE_MAX: u64 = 1 << 20;

/// The credentials for one server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StoredCredentials {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<Tokens>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_info: Option<ClientInfo>,
    /// The server they are for: a name may refer to another server later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_url: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Tokens {
    pub access_token: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh_token: Option<String>,
    /// In seconds since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClientInfo {
    pub client_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<String>,
    /// In seconds since the epoch; 0 is never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret_expires_at: Option<f64>,
}

/// The file of credentials. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct CredentialStore {
    folder: PathBuf,
}

impl CredentialStore {
    pub(crate) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// The credentials for a server at this URL.
    pub(crate) fn get(&self, name: &str, url: &str) -> StoredCredentials {
        let read = self.read().inspect_err(|error| {
            tracing::warn!(file = %self.path().display(), %error, "cannot read the credentials of MCP servers");
        });
        let found = read.ok().and_then(|mut all| all.shift_remove(name));
        let credentials: Option<StoredCredentials> =
            found.and_then(|credentials| serde_json::from_value(credentials).ok());
        credentials.filter(|credentials| credentials.server_url.as_deref() == Some(url)).unwrap_or_default()
    }

    /// Stores the credentials of a server; `None` removes them.
    pub(crate) fn put(&self, name: &str, credentials: Option<&StoredCredentials>) -> Result<(), Error> {
        let failed = |error: io::Error| Error::OAuth(format!("{} cannot be written: {error}", self.path().display()));
        fs::create_dir_all(&self.folder).map_err(failed)?;
        // Two processes that sign in concurrently must not overwrite each other.
        let lock = fs::File::create(self.folder.join("mcp-auth.lock")).map_err(failed)?;
        lock.lock().map_err(failed)?;
        let mut all = self.read().map_err(failed)?;
        match credentials {
            Some(credentials) => {
                all.insert(name.to_owned(), serde_json::to_value(credentials).map_err(|error| failed(error.into()))?);
            }
            None if all.shift_remove(name).is_none() => return Ok(()),
            None => {}
        }
        self.write(&all).map_err(failed)
    }

    fn path(&self) -> PathBuf {
        self.folder.join("mcp-auth.json")
    }

    fn read(&self) -> io::Result<JsonMap> {
        let file = match fs::File::open(self.path()) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(JsonMap::new()),
            Err(error) => return Err(error),
        };
        let mut text = String::new();
        file.take(FILE_MAX + 1).read_to_string(&mut text)?;
        check_size(text.len())?;
        match serde_json::from_str(&text) {
            Ok(Json::Object(all)) => Ok(all),
            // The text may contain a token, so it is not quoted.
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "it is not a JSON object; fix or remove it")),
        }
    }

    /// Writes atomically: others see the old file or the new one.
    fn write(&self, all: &JsonMap) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(all)?;
        check_size(text.len())?;
        let temporary = self.folder.join(format!(".mcp-auth.{}.tmp", std::process::id()));
        let write = || {
            let mut file =
                fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&temporary, self.path())
        };
        write().inspect_err(|_| drop(fs::remove_file(&temporary)))
    }
}

/// Refuses a file that would be read only in part.
fn check_size(bytes: usize) -> io::Result<()> {
    if bytes as u64 > FILE_MAX {
        let message = format!("it is larger than {} MB; remove credentials that are not used", FILE_MAX >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn credentials_are_private_and_for_one_url() {
        let dir = tempfile::tempdir().unwrap();
        let store = CredentialStore::new(&dir.path().join("data"));
        let known = json!({"tokens": {"accessToken": "a", "expiresAt": 5.5}, "serverUrl": "https://x/"});
        let credentials: StoredCredentials = serde_json::from_value(known).unwrap();
        store.put("x", Some(&credentials)).unwrap();
        assert_eq!(store.get("x", "https://x/"), credentials);
        assert_eq!(store.get("x", "https://y/"), StoredCredentials::default());
        assert_eq!(fs::metadata(store.path()).unwrap().permissions().mode() & 0o777, 0o600);
        store.put("x", None).unwrap();
        assert_eq!(store.get("x", "https://x/"), StoredCredentials::default());
    }

    #[test]
    fn a_damaged_file_is_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let store = CredentialStore::new(dir.path());
        fs::write(store.path(), "{secret").unwrap();
        let error = store.put("x", Some(&StoredCredentials::default())).unwrap_err().to_string();
        assert!(error.contains("mcp-auth.json") && !error.contains("secret"), "{error}");
        assert_eq!(fs::read_to_string(store.path()).unwrap(), "{secret");
    }

    #[test]
    fn a_file_that_is_too_large_is_neither_cut_nor_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let store = CredentialStore::new(dir.path());
        let server = |bytes: usize| StoredCredentials { server_url: Some("x".repeat(bytes)), ..Default::default() };
        let limit = usize::try_from(FILE_MAX).unwrap();
        store.put("small", Some(&server(1))).unwrap();
        let before = fs::read_to_string(store.path()).unwrap();
        // Nothing is written that could not be read again.
        let error = store.put("large", Some(&server(limit))).unwrap_err().to_string();
        assert!(error.contains("larger than 1 MB"), "{error}");
        assert_eq!(fs::read_to_string(store.path()).unwrap(), before);
        // Blanks at the end: cut off after the limit, it would still be a JSON object.
        let large = before + &" ".repeat(limit);
        fs::write(store.path(), &large).unwrap();
        let error = store.put("x", Some(&server(1))).unwrap_err().to_string();
        assert!(error.contains("larger than 1 MB"), "{error}");
        assert_eq!(fs::read_to_string(store.path()).unwrap(), large);
    }
}
