//! The user's directories.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The directories of this user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dirs {
    /// Global configuration; later directories take precedence.
    pub config: Vec<PathBuf>,
    /// Data that must not be lost: the database, trust.
    pub data: PathBuf,
    /// Caches of facts about this machine.
    pub state: PathBuf,
    /// Data that can be fetched again.
    pub cache: PathBuf,
    /// Configuration by the administrator of this machine.
    pub managed: PathBuf,
}

impl Dirs {
    /// Follows the XDG rules; `TREFOIL_DATA_DIR` moves only the data, and OpenCode's test variable the managed
    /// configuration.
    pub fn from_env(env: &BTreeMap<String, String>, home: &Path) -> Self {
        // The XDG rules say that relative paths are to be ignored.
        let folder = |name: &str| env.get(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let base = |name: &str, below_home: &str| folder(name).unwrap_or_else(|| home.join(below_home));
        let config = base("XDG_CONFIG_HOME", ".config");
        Self {
            config: vec![config.join("opencode"), config.join("trefoil")],
            data: folder("TREFOIL_DATA_DIR").unwrap_or_else(|| base("XDG_DATA_HOME", ".local/share").join("trefoil")),
            state: base("XDG_STATE_HOME", ".local/state").join("trefoil"),
            cache: base("XDG_CACHE_HOME", ".cache").join("trefoil"),
            managed: folder("OPENCODE_TEST_MANAGED_CONFIG_DIR").unwrap_or_else(|| PathBuf::from("/etc/opencode")),
        }
    }

    /// The file of the [`crate::TrustStore`].
    pub fn trust_file(&self) -> PathBuf {
        self.data.join("trust.json")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xdg_rules() {
        let home = Path::new("/home/u");
        let plain = Dirs::from_env(&BTreeMap::new(), home);
        assert_eq!(plain.config, [home.join(".config/opencode"), home.join(".config/trefoil")]);
        assert_eq!(plain.trust_file(), home.join(".local/share/trefoil/trust.json"));
        let env =
            [("XDG_CONFIG_HOME", "/c"), ("XDG_STATE_HOME", "rel"), ("XDG_DATA_HOME", "/d"), ("XDG_CACHE_HOME", "")];
        let mut env: BTreeMap<_, _> = env.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        let dirs = Dirs::from_env(&env, home);
        assert_eq!(dirs.config[1], Path::new("/c/trefoil"));
        assert_eq!(dirs.state, home.join(".local/state/trefoil"));
        assert_eq!((dirs.data, dirs.cache), ("/d/trefoil".into(), home.join(".cache/trefoil")));
        env.insert("TREFOIL_DATA_DIR".to_owned(), "/x".to_owned());
        assert_eq!(Dirs::from_env(&env, home).data, Path::new("/x"));
        assert_eq!(plain.managed, Path::new("/etc/opencode"));
    }
}
