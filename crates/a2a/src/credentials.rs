//! The credentials that callers show, and who they are.

use api::sha256_hex;
use base64::Engine as _;
use serde::Deserialize;

use crate::{Capabilities, Principal};

/// The identity of a service that has no credentials.
const ANONYMOUS: &str = "anonymous";
/// The most credentials in a registry.
const MAX_CREDENTIALS: usize = 1000;
/// The longest identity. Keys of records contain it.
const MAX_IDENTITY_BYTES: usize = 200;
/// How many digits of its hash name the identity of a token.
const TOKEN_DIGITS: usize = 12;

/// The credentials that are accepted. They are kept as hashes, so that comparing takes the same time for all.
pub struct Credentials {
    entries: Vec<Entry>,
    anonymous: bool,
}

struct Entry {
    scheme: Scheme,
    /// Of the token, or of `username:password`.
    hash: String,
    principal: Principal,
}

/// How a caller authenticates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheme {
    /// A token.
    Bearer,
    /// A user name and a password.
    Basic,
}

/// Why credentials cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CredentialsError {
    /// The registry is malformed. The text contains no secret.
    #[error("A2A_STATIC_AUTH_CREDENTIALS: {0}")]
    Registry(String),
    /// There is none.
    #[error("there are no credentials")]
    Missing,
}

/// An entry of the registry.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Configured {
    credential_id: Option<String>,
    scheme: Scheme,
    token: Option<String>,
    principal: Option<String>,
    username: Option<String>,
    password: Option<String>,
    #[serde(default)]
    capabilities: Vec<Capability>,
    #[serde(default = "enabled")]
    enabled: bool,
}

#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Capability {
    SessionShell,
    WorkspaceMutation,
}

fn enabled() -> bool {
    true
}

impl Credentials {
    /// The credentials of the settings: one token with all capabilities, and a registry.
    pub fn new(bearer: Option<&str>, registry: Option<&str>) -> Result<Self, CredentialsError> {
        let mut entries = Vec::new();
        if let Some(token) = bearer {
            let hash = sha256_hex(token.as_bytes());
            let identity = format!("bearer:{}", &hash[..TOKEN_DIGITS]);
            let capabilities = Capabilities { session_shell: true, workspace_mutation: true };
            let principal = Principal { identity, credential: None, capabilities };
            entries.push(Entry { scheme: Scheme::Bearer, hash, principal });
        }
        if let Some(registry) = registry {
            entries.extend(parse(registry).map_err(CredentialsError::Registry)?);
        }
        if entries.is_empty() { Err(CredentialsError::Missing) } else { Ok(Self { entries, anonymous: false }) }
    }

    /// No credentials: everybody is the same caller, with all capabilities.
    pub fn none() -> Self {
        Self { entries: Vec::new(), anonymous: true }
    }

    /// The schemes that are configured, the first of which clients prefer.
    pub fn schemes(&self) -> Vec<Scheme> {
        let mut schemes: Vec<Scheme> = self.entries.iter().map(|entry| entry.scheme).collect();
        schemes.sort_unstable();
        schemes.dedup();
        schemes
    }

    /// Who sends this value of the `Authorization` header.
    pub fn authenticate(&self, authorization: Option<&str>) -> Option<Principal> {
        if self.anonymous {
            let capabilities = Capabilities { session_shell: true, workspace_mutation: true };
            return Some(Principal { identity: ANONYMOUS.to_owned(), credential: None, capabilities });
        }
        let (scheme, secret) = authorization?.trim().split_once(' ')?;
        let secret = secret.trim();
        let (scheme, hash) = if scheme.eq_ignore_ascii_case("bearer") {
            (Scheme::Bearer, sha256_hex(secret.as_bytes()))
        } else if scheme.eq_ignore_ascii_case("basic") {
            let decoded = base64::engine::general_purpose::STANDARD.decode(secret).ok()?;
            (Scheme::Basic, sha256_hex(&decoded))
        } else {
            return None;
        };
        self.entries.iter().find(|entry| entry.scheme == scheme && entry.hash == hash).map(|e| e.principal.clone())
    }
}

fn parse(registry: &str) -> Result<Vec<Entry>, String> {
    // The message of the parser may quote the registry, so only the place is shown.
    let place = |error: serde_json::Error| format!("malformed at line {}, column {}", error.line(), error.column());
    let configured: Vec<Configured> = serde_json::from_str(registry).map_err(place)?;
    if configured.len() > MAX_CREDENTIALS {
        return Err(format!("more than {MAX_CREDENTIALS} credentials"));
    }
    let mut entries: Vec<Entry> = Vec::new();
    for (index, one) in configured.into_iter().enumerate() {
        let enabled = one.enabled;
        let entry = entry(one).map_err(|problem| format!("credential {}: {problem}", index + 1))?;
        if entries.iter().any(|other| other.scheme == entry.scheme && other.hash == entry.hash) {
            return Err(format!("credential {}: the same secret is there twice", index + 1));
        }
        if enabled {
            entries.push(entry);
        }
    }
    Ok(entries)
}

fn entry(one: Configured) -> Result<Entry, String> {
    let given = |value: Option<String>, name: &str| {
        value.filter(|text| !text.is_empty()).ok_or_else(|| format!("{name} is missing"))
    };
    let (hash, identity) = match one.scheme {
        Scheme::Bearer => {
            if one.username.is_some() || one.password.is_some() {
                return Err("a bearer credential has a token, no user name and no password".to_owned());
            }
            (sha256_hex(given(one.token, "token")?.as_bytes()), given(one.principal, "principal")?)
        }
        Scheme::Basic => {
            let (username, password) = (given(one.username, "username")?, given(one.password, "password")?);
            if one.token.is_some() || one.principal.as_ref().is_some_and(|principal| *principal != username) {
                return Err("a basic credential has a user name and a password; the user name is the principal".into());
            }
            (sha256_hex(format!("{username}:{password}").as_bytes()), username)
        }
    };
    if identity.len() > MAX_IDENTITY_BYTES || identity.contains(|c: char| c == '/' || c.is_control()) {
        return Err(format!(
            "the principal is longer than {MAX_IDENTITY_BYTES} bytes, or contains / or control characters"
        ));
    }
    let has = |capability| one.capabilities.contains(&capability);
    let capabilities = Capabilities {
        session_shell: has(Capability::SessionShell),
        workspace_mutation: has(Capability::WorkspaceMutation),
    };
    Ok(Entry {
        scheme: one.scheme,
        hash,
        principal: Principal { identity, credential: one.credential_id, capabilities },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGISTRY: &str = r#"[
        {"credential_id": "a", "scheme": "bearer", "token": "alice-token", "principal": "alice",
         "capabilities": ["session_shell"]},
        {"scheme": "basic", "username": "ops", "password": "p:w", "capabilities": ["workspace_mutation"]},
        {"scheme": "bearer", "token": "old", "principal": "gone", "enabled": false}
    ]"#;

    fn basic(text: &str) -> String {
        format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(text))
    }

    #[test]
    fn callers_are_who_their_credentials_say() {
        let credentials = Credentials::new(Some("one"), Some(REGISTRY)).unwrap();
        assert_eq!(credentials.schemes(), [Scheme::Bearer, Scheme::Basic]);
        let who = |value: &str| credentials.authenticate(Some(value)).map(|principal| principal.identity);
        assert_eq!(who("Bearer one").unwrap(), format!("bearer:{}", &sha256_hex(b"one")[..12]));
        assert_eq!(who("bearer  alice-token ").as_deref(), Some("alice"));
        assert_eq!(who(&basic("ops:p:w")).as_deref(), Some("ops"));
        for wrong in
            ["Bearer old", "Bearer", "Bearer alice", "alice-token", "Basic x", "Digest one", "", "Bearer ops:p:w"]
        {
            assert_eq!(who(wrong), None, "{wrong}");
        }
        assert_eq!(who(&basic("ops:p")), None);
        assert_eq!(credentials.authenticate(None), None);
        let alice = credentials.authenticate(Some("Bearer alice-token")).unwrap();
        assert!(alice.capabilities.session_shell && !alice.capabilities.workspace_mutation);
        assert_eq!(alice.credential.as_deref(), Some("a"));
    }

    #[test]
    fn a_malformed_registry_is_refused_without_showing_secrets() {
        for (registry, want) in [
            ("", "malformed"),
            ("{}", "malformed"),
            (r#"[{"scheme": "bearer", "token": "SECRET", "principal": 1}]"#, "malformed"),
            (r#"[{"scheme": "digest", "token": "SECRET"}]"#, "malformed"),
            (r#"[{"scheme": "bearer", "token": "SECRET", "extra": 1}]"#, "malformed"),
            (r#"[{"scheme": "bearer", "token": "SECRET", "capabilities": ["root"]}]"#, "malformed"),
            (r#"[{"scheme": "bearer", "principal": "p"}]"#, "token is missing"),
            (r#"[{"scheme": "bearer", "token": "SECRET"}]"#, "principal is missing"),
            (r#"[{"scheme": "basic", "username": "SECRET"}]"#, "password is missing"),
            (r#"[{"scheme": "bearer", "token": "SECRET", "principal": "a/b"}]"#, "contains /"),
            (r#"[{"scheme": "bearer", "token": "SECRET", "principal": "a", "password": "x"}]"#, "no password"),
            (
                r#"[{"scheme": "bearer", "token": "S", "principal": "a"}, {"scheme": "bearer", "token": "S", "principal": "b"}]"#,
                "credential 2: the same secret",
            ),
        ] {
            let error = Credentials::new(None, Some(registry)).err().unwrap().to_string();
            assert!(error.contains(want) && !error.contains("SECRET"), "{registry}: {error}");
        }
    }

    #[test]
    fn without_credentials_nobody_or_everybody_may_call() {
        assert_eq!(Credentials::new(None, None).err(), Some(CredentialsError::Missing));
        assert_eq!(Credentials::new(None, Some("[]")).err(), Some(CredentialsError::Missing));
        assert_eq!(Credentials::none().authenticate(None).unwrap().identity, ANONYMOUS);
    }
}
