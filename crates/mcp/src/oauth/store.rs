//! What is kept from signing in: `mcp-auth.json` in the data folder, in OpenCode's format, for the owner's eyes only.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use api::{Json, JsonMap};
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// The largest file that is read.
const FILE_MAX: u64 = 1 << 20;

/// What is known about one server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Entry {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<Tokens>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_info: Option<ClientInfo>,
    /// Whom all of this is for: a name may be given to another server later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_url: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Tokens {
    pub access_token: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh_token: Option<String>,
    /// In seconds.
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
    /// In seconds; 0 is never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret_expires_at: Option<f64>,
}

/// The file. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    folder: PathBuf,
}

impl Store {
    pub(crate) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// What is known about a server at that address.
    pub(crate) fn get(&self, name: &str, url: &str) -> Entry {
        let found = self.read().ok().and_then(|mut all| all.shift_remove(name));
        let entry: Option<Entry> = found.and_then(|entry| serde_json::from_value(entry).ok());
        entry.filter(|entry| entry.server_url.as_deref() == Some(url)).unwrap_or_default()
    }

    /// Changes what is known about a server; `None` forgets it.
    pub(crate) fn put(&self, name: &str, entry: Option<&Entry>) -> Result<(), Error> {
        let failed = |error: io::Error| Error::OAuth(format!("{} cannot be written: {error}", self.path().display()));
        fs::create_dir_all(&self.folder).map_err(failed)?;
        // Two processes that sign in at once must not lose one.
        let lock = fs::File::create(self.folder.join("mcp-auth.lock")).map_err(failed)?;
        lock.lock().map_err(failed)?;
        let mut all = self.read().map_err(failed)?;
        match entry {
            Some(entry) => {
                all.insert(name.to_owned(), serde_json::to_value(entry).map_err(|error| failed(error.into()))?);
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
        file.take(FILE_MAX).read_to_string(&mut text)?;
        match serde_json::from_str(&text) {
            Ok(Json::Object(all)) => Ok(all),
            // Its text may be a token, so it is not quoted.
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "it is not an object in JSON; mend or remove it")),
        }
    }

    /// In one step: others see the old file or the new one.
    fn write(&self, all: &JsonMap) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(all)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn tokens_are_private_and_for_one_address() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(&dir.path().join("data"));
        let known = json!({"tokens": {"accessToken": "a", "expiresAt": 5.5}, "serverUrl": "https://x/"});
        let entry: Entry = serde_json::from_value(known).unwrap();
        store.put("x", Some(&entry)).unwrap();
        assert_eq!(store.get("x", "https://x/"), entry);
        assert_eq!(store.get("x", "https://y/"), Entry::default());
        assert_eq!(fs::metadata(store.path()).unwrap().permissions().mode() & 0o777, 0o600);
        store.put("x", None).unwrap();
        assert_eq!(store.get("x", "https://x/"), Entry::default());
    }

    #[test]
    fn a_damaged_file_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path());
        fs::write(store.path(), "{secret").unwrap();
        let error = store.put("x", Some(&Entry::default())).unwrap_err().to_string();
        assert!(error.contains("mcp-auth.json") && !error.contains("secret"), "{error}");
        assert_eq!(fs::read_to_string(store.path()).unwrap(), "{secret");
    }
}
