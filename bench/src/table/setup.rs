//! A throw-away home and repository for a benchmarked program.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Result, bail};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::model::FakeModel;

/// The model that the setup configures.
pub const MODEL: &str = "fake/fake-model";

/// Home, repository and model server of one program.
pub struct Setup {
    root: TempDir,
    /// Its model server.
    pub model: FakeModel,
}

impl Setup {
    /// Creates one.
    pub fn new() -> Result<Self> {
        let root = tempfile::Builder::new().prefix("trefoil-bench-").tempdir()?;
        let model = FakeModel::start()?;
        let config = json!({
            "model": MODEL, "small_model": MODEL, "autoupdate": false, "share": "disabled",
            // We have no snapshots of the working tree yet, so OpenCode's are disabled too.
            "enabled_providers": ["fake"], "snapshot": false,
            "provider": {"fake": {
                "npm": "@ai-sdk/openai-compatible",
                "name": "Fake",
                "options": {"baseURL": model.base_url(), "apiKey": "none"},
                "models": {"fake-model": {"name": "Fake", "limit": {"context": 1_000_000, "output": 8_192}}},
            }},
        });
        let folder = root.path().join("home/.config/opencode");
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("opencode.json"), config.to_string())?;
        std::fs::create_dir_all(root.path().join("project/src"))?;
        std::fs::write(root.path().join("project/src/main.rs"), "fn main() {}\n")?;
        let setup = Self { root, model };
        setup.configure_codex()?;
        for arguments in [
            &["init", "--quiet"][..],
            &["add", "--all"],
            &["-c", "user.name=bench", "-c", "user.email=bench@example.org", "commit", "--quiet", "-m", "start"],
        ] {
            if !setup.command("git").args(arguments).status()?.success() {
                bail!("git {} failed", arguments.join(" "));
            }
        }
        Ok(setup)
    }

    /// Adds to the configuration of our program.
    pub fn configure(&self, config: &Value) -> Result<()> {
        let folder = self.root.path().join("home/.config/trefoil");
        std::fs::create_dir_all(&folder)?;
        Ok(std::fs::write(folder.join("trefoil.json"), config.to_string())?)
    }

    /// The same for Codex.
    fn configure_codex(&self) -> Result<()> {
        let folder = self.root.path().join("home/.codex");
        std::fs::create_dir_all(&folder)?;
        let config = format!(
            "model = \"fake-model\"\nmodel_provider = \"fake\"\ncheck_for_update_on_startup = false\n\
             [analytics]\nenabled = false\n[feedback]\nenabled = false\n\
             [model_providers.fake]\nname = \"Fake\"\nbase_url = \"{}\"\nwire_api = \"responses\"\n",
            self.model.base_url()
        );
        Ok(std::fs::write(folder.join("config.toml"), config)?)
    }

    /// The repository.
    pub fn project(&self) -> PathBuf {
        self.root.path().join("project")
    }

    /// Where our program keeps its sessions.
    pub fn database(&self) -> PathBuf {
        self.root.path().join("home/.local/share/trefoil/trefoil.db")
    }

    /// Where a program's error output goes.
    pub fn errors(&self) -> PathBuf {
        self.root.path().join("errors.txt")
    }

    /// A program in the repository, with the home as its only environment.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let home = self.root.path().join("home");
        let mut command = Command::new(program.as_ref());
        command.current_dir(self.project()).stdin(Stdio::null()).env_clear();
        command.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        command
            .env("HOME", &home)
            .env("XDG_CONFIG_HOME", home.join(".config"))
            .env("XDG_CACHE_HOME", home.join(".cache"));
        command.env("XDG_DATA_HOME", home.join(".local/share")).env("XDG_STATE_HOME", home.join(".local/state"));
        for name in ["AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "SHARE"] {
            command.env(format!("OPENCODE_DISABLE_{name}"), "1");
        }
        // Any other request goes to a proxy on a port where nothing listens.
        for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
            command.env(name, "http://127.0.0.1:9");
        }
        command.env("NO_PROXY", "127.0.0.1,localhost");
        command.env("TREFOIL_FALLBACK_MODEL", "script/demo");
        command
    }
}
