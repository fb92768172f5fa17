//! Stored credentials: `auth.json` in the data directory, in OpenCode's format. A variable may take its place, for
//! machines without a home.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use api::{Credential, Json, JsonMap};

use crate::files::{self, Access, Durability};
use crate::problem::Problem;

/// The maximum size of the file.
pub const MAX_CREDENTIALS_BYTES: u64 = 1 << 20;

/// The variable whose JSON is used instead of the file.
pub const AUTH_CONTENT: &str = "OPENCODE_AUTH_CONTENT";

/// Why a credential was not stored.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// The provider's id is missing.
    #[error("a credential needs the id of a provider")]
    NoProvider,
    /// The file would be too large.
    #[error("the credentials would be larger than {MAX_CREDENTIALS_BYTES} bytes")]
    TooLarge,
    /// It is not a file that we wrote.
    #[error("{}: {message}; fix or remove the file", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// The file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

/// Stores or deletes the credential of a provider.
pub fn set_credential(data: &Path, provider: &str, credential: Option<&Credential>) -> Result<(), CredentialError> {
    // An organisation's server is named by its URL, with or without a trailing slash.
    let provider = provider.trim_end_matches('/');
    if provider.is_empty() {
        return Err(CredentialError::NoProvider);
    }
    let path = path(data);
    let failed = |source| CredentialError::Write { path: path.clone(), source };
    fs::create_dir_all(data).map_err(failed)?;
    // Two processes that store credentials must not lose one.
    let lock = fs::File::create(data.join("auth.lock")).map_err(failed)?;
    lock.lock().map_err(failed)?;
    let mut stored = read(data).map_err(|message| CredentialError::Damaged { path: path.clone(), message })?;
    match credential {
        Some(credential) => {
            let value = serde_json::to_value(credential).map_err(|error| failed(error.into()))?;
            stored.insert(provider.to_owned(), value);
        }
        None if stored.shift_remove(provider).is_none() => return Ok(()),
        None => {}
    }
    let text = serde_json::to_vec_pretty(&stored).map_err(|error| failed(error.into()))?;
    if text.len() as u64 > MAX_CREDENTIALS_BYTES {
        return Err(CredentialError::TooLarge);
    }
    files::replace(&path, &text, Access::Owner, Durability::Synced).map_err(failed)
}

/// All stored strings, whichever credentials they belong to; also those of the variable.
pub(crate) fn secrets(env: &BTreeMap<String, String>, data: &Path) -> Vec<String> {
    fn texts(value: &Json, found: &mut Vec<String>) {
        match value {
            Json::String(text) => found.push(text.clone()),
            Json::Array(list) => list.iter().for_each(|value| texts(value, found)),
            Json::Object(map) => map.values().for_each(|value| texts(value, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    read(data).unwrap_or_default().values().for_each(|value| texts(value, &mut found));
    let content = content(env).and_then(Result::ok).unwrap_or_default();
    content.values().for_each(|value| texts(value, &mut found));
    found
}

/// The stored keys by provider. Other credentials cannot be used yet. Like OpenCode, a variable that cannot be read
/// leaves the file in charge.
pub(crate) fn keys(
    env: &BTreeMap<String, String>,
    data: &Path,
    problems: &mut Vec<Problem>,
) -> BTreeMap<String, String> {
    let from_file = |problems: &mut Vec<Problem>| {
        read(data).unwrap_or_else(|message| {
            problems.push(Problem::error(format!("{message}; no stored credential is used")).in_file(&path(data)));
            JsonMap::new()
        })
    };
    let stored = match content(env) {
        Some(Ok(content)) => content,
        Some(Err(message)) => {
            problems.push(Problem::error(format!("{AUTH_CONTENT}: {message}; it is ignored")));
            from_file(problems)
        }
        None => from_file(problems),
    };
    let key = |value: Json| match serde_json::from_value(value) {
        Ok(Credential::Api(api)) if !api.key.is_empty() => Some(api.key),
        _ => None,
    };
    let id = |provider: String| provider.trim_end_matches('/').to_owned();
    stored.into_iter().filter_map(|(provider, value)| Some((id(provider), key(value)?))).collect()
}

/// Which credentials there are.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct StoredCredentials {
    /// The providers, each with its kind of credential (`api`, `oauth`, …).
    pub kinds: Vec<(String, String)>,
    /// The variable, if it takes the place of the file.
    pub variable: Option<&'static str>,
}

/// The providers that have a credential. The error says what is wrong with the file.
pub fn credentials(env: &BTreeMap<String, String>, data: &Path) -> Result<StoredCredentials, String> {
    let kind = |value: &Json| value.get("type").and_then(Json::as_str).unwrap_or("unknown").to_owned();
    let (stored, variable) = match content(env) {
        Some(Ok(content)) => (content, Some(AUTH_CONTENT)),
        _ => (read(data)?, None),
    };
    let kinds = stored.into_iter().map(|(provider, value)| (provider, kind(&value))).collect();
    Ok(StoredCredentials { kinds, variable })
}

/// The credentials in the variable, if it is set.
fn content(env: &BTreeMap<String, String>) -> Option<Result<JsonMap, String>> {
    let text = env.get(AUTH_CONTENT).filter(|text| !text.trim().is_empty())?;
    if text.len() as u64 > MAX_CREDENTIALS_BYTES {
        return Some(Err(format!("it is larger than {MAX_CREDENTIALS_BYTES} bytes")));
    }
    Some(parse(text))
}

/// The path of the credentials file.
pub fn path(data: &Path) -> PathBuf {
    data.join("auth.json")
}

fn read(data: &Path) -> Result<JsonMap, String> {
    match files::read(&path(data), MAX_CREDENTIALS_BYTES).map_err(|problem| problem.message)? {
        None => Ok(JsonMap::new()),
        Some(text) => parse(&text),
    }
}

/// Credentials as JSON. The error omits the text, which may contain a key.
fn parse(text: &str) -> Result<JsonMap, String> {
    serde_json::from_str(text)
        .map_err(|error| format!("this is not an object in JSON (line {}, column {})", error.line(), error.column()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::os::unix::fs::PermissionsExt;

    fn api(key: &str) -> Credential {
        serde_json::from_value(json!({"type": "api", "key": key})).unwrap()
    }

    fn stored(data: &Path) -> Json {
        serde_json::from_slice(&fs::read(path(data)).unwrap()).unwrap()
    }

    #[test]
    fn credentials_are_stored_privately_in_opencode_format() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let oauth = json!({"type": "oauth", "refresh": "r", "access": "a", "expires": 5, "accountId": "x"});
        set_credential(&data, "openai", Some(&api("sk-1"))).unwrap();
        set_credential(&data, "other", Some(&serde_json::from_value(oauth.clone()).unwrap())).unwrap();
        set_credential(&data, "https://x.y/", Some(&api("sk-2"))).unwrap();
        let want = json!({
            "openai": {"type": "api", "key": "sk-1"}, "other": oauth, "https://x.y": {"type": "api", "key": "sk-2"},
        });
        assert_eq!(stored(&data), want);
        assert_eq!(fs::metadata(path(&data)).unwrap().permissions().mode() & 0o777, 0o600);
        set_credential(&data, "openai", None).unwrap();
        set_credential(&data, "absent", None).unwrap();
        assert!(stored(&data).get("openai").is_none());
        let keys = keys(&BTreeMap::new(), &data, &mut Vec::new());
        assert_eq!(keys, BTreeMap::from([("https://x.y".to_owned(), "sk-2".to_owned())]));
    }

    #[test]
    fn a_damaged_file_is_named_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(path(dir.path()), "{sk-secret").unwrap();
        let error = set_credential(dir.path(), "openai", Some(&api("sk-1"))).unwrap_err().to_string();
        assert!(error.contains("auth.json") && !error.contains("secret"), "{error}");
        assert_eq!(fs::read_to_string(path(dir.path())).unwrap(), "{sk-secret");
        let mut problems = Vec::new();
        assert!(keys(&BTreeMap::new(), dir.path(), &mut problems).is_empty());
        assert_eq!(problems.len(), 1);
    }

    #[test]
    fn a_variable_takes_the_place_of_the_file() {
        let dir = tempfile::tempdir().unwrap();
        set_credential(dir.path(), "openai", Some(&api("sk-file"))).unwrap();
        let with = |content: &str| BTreeMap::from([(AUTH_CONTENT.to_owned(), content.to_owned())]);
        let read = |content: &str| {
            let mut problems = Vec::new();
            (keys(&with(content), dir.path(), &mut problems), problems)
        };
        let file = BTreeMap::from([("openai".to_owned(), "sk-file".to_owned())]);
        let content = r#"{"groq": {"type": "api", "key": "sk-groq"}, "x": {"type": "oauth", "refresh": "secret-r", "access": "secret-a", "expires": 1}}"#;
        let groq = BTreeMap::from([("groq".to_owned(), "sk-groq".to_owned())]);
        assert_eq!(read(content), (groq, Vec::new()));
        assert_eq!(read(" "), (file.clone(), Vec::new()));
        for broken in ["{sk-secret", "[]"] {
            let (keys, problems) = read(broken);
            assert_eq!(keys, file, "the file is used");
            assert!(problems[0].message.contains(AUTH_CONTENT) && !problems[0].message.contains("sk-"), "{problems:?}");
        }
        let known = secrets(&with(content), dir.path());
        assert!(["sk-file", "sk-groq", "secret-r", "secret-a"].iter().all(|secret| known.iter().any(|k| k == secret)));
        let listed = |env| credentials(&env, dir.path()).unwrap();
        assert_eq!(listed(BTreeMap::new()).kinds, [("openai".to_owned(), "api".to_owned())]);
        assert_eq!((listed(BTreeMap::new()).variable, listed(with(content)).variable), (None, Some(AUTH_CONTENT)));
        let large = read(&format!("{{{}}}", " ".repeat(2 << 20)));
        assert!(large.1[0].message.contains("larger"), "{:?}", large.1);
    }

    #[test]
    fn names_and_sizes_are_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let none = set_credential(dir.path(), "//", Some(&api("k")));
        assert!(matches!(none, Err(CredentialError::NoProvider)));
        let large = set_credential(dir.path(), "p", Some(&api(&"k".repeat(2 << 20))));
        assert!(matches!(large, Err(CredentialError::TooLarge)));
        assert!(!path(dir.path()).exists());
    }

    #[test]
    fn entries_of_unknown_kinds_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(path(dir.path()), r#"{"new": {"type": "later", "x": 1}}"#).unwrap();
        set_credential(dir.path(), "p", Some(&api("k"))).unwrap();
        assert_eq!(stored(dir.path())["new"], json!({"type": "later", "x": 1}));
    }

    #[test]
    fn concurrent_writes_all_survive() {
        let dir = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for n in 0..8 {
                let data = dir.path();
                scope.spawn(move || set_credential(data, &format!("p{n}"), Some(&api("k"))).unwrap());
            }
        });
        assert_eq!(stored(dir.path()).as_object().unwrap().len(), 8);
    }
}
