//! The environment of everything that we start: ours, without our own secrets and without what the user hides.

use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use tokio::process::Command;

/// Variables that programs we start never get: the credentials of our own faces, and our own settings. `*` matches
/// anything.
const OWN: [&str; 5] =
    ["OPENCODE_AUTH_*", "OPENCODE_SERVER_PASSWORD", "OPENCODE_SERVER_USERNAME", "A2A_*", "TREFOIL_*"];

/// Environment variables that a program does not get. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct HiddenVariables(Arc<[String]>);

impl HiddenVariables {
    /// Adds patterns, in which `*` matches anything.
    pub(crate) fn and(&self, patterns: &[String]) -> Self {
        if patterns.is_empty() {
            return self.clone();
        }
        Self(self.0.iter().chain(patterns).cloned().collect())
    }

    fn covers(&self, name: &OsStr) -> bool {
        OWN.iter().copied().chain(self.0.iter().map(String::as_str)).any(|pattern| matches(pattern, name))
    }

    /// Removes the hidden variables from a command's environment.
    ///
    /// Invariant: below `cli` nothing reads the environment. This only removes names.
    pub(crate) fn remove_from(&self, command: &mut Command) {
        for (name, _) in std::env::vars_os().filter(|(name, _)| self.covers(name)) {
            command.env_remove(name);
        }
    }
}

/// Whether a variable set for a command is one of ours, which it would mistake for its parent's.
pub(crate) fn is_ours(name: &OsString) -> bool {
    matches("TREFOIL_*", name)
}

/// Whether a name matches a pattern, in which `*` matches anything.
fn matches(pattern: &str, name: &OsStr) -> bool {
    let (mut name, mut pieces) = (name.as_encoded_bytes(), pattern.split('*'));
    let first = pieces.next().unwrap_or_default();
    let Some(rest) = name.strip_prefix(first.as_bytes()) else { return false };
    let Some(last) = pieces.next_back() else { return rest.is_empty() };
    name = rest;
    for piece in pieces {
        let found = |at: &usize| name[*at..].starts_with(piece.as_bytes());
        let Some(at) = (0..=name.len()).find(found) else { return false };
        name = &name[at + piece.len()..];
    }
    name.ends_with(last.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_patterns_are_hidden() {
        let hidden = HiddenVariables::default().and(&["SECRET".into(), "AWS_*".into()]).and(&[
            "X*".into(),
            "*_TOKEN".into(),
            "A*B*C".into(),
        ]);
        for (name, gone) in [
            ("OPENCODE_AUTH_PASSWORD", true),
            ("OPENCODE_SERVER_PASSWORD", true),
            ("OPENCODE_SERVER_USERNAME", true),
            ("TREFOIL_SERVER_PASSWORD", true),
            ("TREFOIL_DATA_DIR", true),
            ("A2A_TOKEN", true),
            ("SECRET", true),
            ("AWS_KEY", true),
            ("AWS_", true),
            ("XDG", true),
            ("GITHUB_TOKEN", true),
            ("AxBxC", true),
            ("ABC", true),
            ("ACB", false),
            ("ABCD", false),
            ("TOKEN", false),
            ("SECRETS", false),
            ("secret", false),
            ("AWS", false),
            ("OPENCODE_CONFIG", false),
            ("OPENAI_API_KEY", false),
            ("PATH", false),
        ] {
            assert_eq!(hidden.covers(OsStr::new(name)), gone, "{name}");
        }
        assert!(!HiddenVariables::default().covers(OsStr::new("SECRET")));
    }
}
