//! What the process was given: its environment, home and current directory, and what follows from them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context as _;
use config::{Dirs, Inputs, Trust, TrustStore};
use engine::{Engine, WatchdogScope};

use super::log::LogLevel;
use super::{SCRIPT_DEMO, SCRIPT_FILE};
use crate::exit::{Exit, Failure};
use crate::terminal::Capabilities;

/// A variable of the environment, for code that runs before there is an [`Invocation`].
pub fn env_var(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The environment in which the program was called.
#[derive(Clone)]
pub struct Invocation {
    /// The variables that are text.
    pub env: BTreeMap<String, String>,
    /// The user's home.
    pub home: PathBuf,
    /// The current directory.
    pub directory: PathBuf,
    /// The folders for configuration, data, state and cache.
    pub dirs: Dirs,
    /// What is logged; `None` before the log was started.
    pub log_level: Option<LogLevel>,
}

impl Invocation {
    /// Reads that of this process.
    pub fn read() -> anyhow::Result<Self> {
        let text = |value: std::ffi::OsString| value.into_string().ok();
        let env: BTreeMap<String, String> =
            std::env::vars_os().filter_map(|(name, value)| Some((text(name)?, text(value)?))).collect();
        let home = std::env::home_dir().filter(|home| home.is_absolute()).ok_or_else(|| {
            Failure::new(Exit::Failed, "there is no home directory").hint("set HOME to an absolute path")
        })?;
        let directory =
            std::env::current_dir().context("the current directory cannot be read; change to another one")?;
        if directory.to_str().is_none() {
            let message = format!("the path of the current directory is not UTF-8: {}", directory.display());
            return Err(Failure::new(Exit::Failed, message).hint("rename it, or change to another one").into());
        }
        let dirs = Dirs::from_env(&env, &home);
        Ok(Self { env, home, directory, dirs, log_level: None })
    }

    /// Whether to print without colours: the user says so (<https://no-color.org>), or the terminal has none.
    pub fn no_color(&self) -> bool {
        self.is_dumb() || self.env.get("NO_COLOR").is_some_and(|value| !value.is_empty())
    }

    /// Whether the terminal takes nothing but text.
    pub fn is_dumb(&self) -> bool {
        self.env.get("TERM").is_some_and(|term| term == "dumb")
    }

    /// What the terminal can show.
    pub fn terminal_capabilities(&self) -> Capabilities {
        Capabilities { no_color: self.no_color(), dumb: self.is_dumb() }
    }

    /// The script that plays instead of a model, if the environment names one.
    pub fn script_file(&self) -> Option<PathBuf> {
        self.env.get("TREFOIL_SCRIPT").filter(|path| !path.is_empty()).map(PathBuf::from)
    }

    /// The ids of the scripted models.
    pub fn script_models(&self) -> Vec<String> {
        let file = self.script_file().map(|_| SCRIPT_FILE);
        file.into_iter().chain([SCRIPT_DEMO]).map(str::to_owned).collect()
    }

    /// `USERNAME` or `PASSWORD` of the server, under our name or OpenCode's.
    pub fn server_secret(&self, name: &str) -> Option<String> {
        let ours = self.env.get(&format!("TREFOIL_SERVER_{name}"));
        ours.or_else(|| self.env.get(&format!("OPENCODE_SERVER_{name}"))).filter(|text| !text.is_empty()).cloned()
    }

    /// Where the database is.
    pub fn database_path(&self) -> PathBuf {
        match self.env.get("TREFOIL_DB").filter(|path| !path.is_empty()) {
            Some(path) => self.directory.join(path),
            None => self.dirs.data.join("trefoil.db"),
        }
    }

    /// The number of commits after which this process kills itself: a hook for the crash tests.
    pub fn crash_after(&self) -> anyhow::Result<Option<u64>> {
        let Some(text) = self.env.get("TREFOIL_CRASH_AFTER") else { return Ok(None) };
        let number = text.parse().ok().filter(|number| *number > 0);
        let refused = || Failure::new(Exit::Usage, format!("TREFOIL_CRASH_AFTER is not a number above 0: {text:?}"));
        Ok(Some(number.ok_or_else(refused)?))
    }

    /// Has an engine watch over sessions, unless a test switches that off to show that nothing relies on it.
    pub fn start_watchdog(&self, engine: &Engine, whose: WatchdogScope) {
        if self.env.get("TREFOIL_WATCHDOG").is_none_or(|value| value != "off") {
            engine.start_watchdog(whose);
        }
    }

    /// Moves the clock of this process by `TREFOIL_CLOCK` milliseconds: a hook for tests with wrong clocks.
    pub fn shift_clock(&self) -> anyhow::Result<()> {
        if let Some(text) = self.env.get("TREFOIL_CLOCK") {
            let refused =
                || Failure::new(Exit::Usage, format!("TREFOIL_CLOCK is not a number of milliseconds: {text:?}"));
            api::shift_clock(text.parse().map_err(|_| refused())?);
        }
        Ok(())
    }

    /// How many agents above this one have started each other.
    pub fn agent_depth(&self) -> u32 {
        self.env.get(acp::Runner::DEPTH).and_then(|depth| depth.parse().ok()).unwrap_or(0)
    }

    /// Whether every repository's configuration is trusted, for automation.
    pub fn trusts_all(&self) -> bool {
        self.env.get("TREFOIL_TRUST").is_some_and(|value| value == "all")
    }

    /// What the configuration is loaded from.
    pub fn config_inputs(&self) -> Inputs {
        let trust = if self.trusts_all() {
            Trust::All
        } else {
            let path = self.dirs.trust_file();
            Trust::Store(TrustStore::load(&path).unwrap_or_else(|error| {
                tracing::warn!(%error, "nothing is trusted");
                TrustStore::empty(&path)
            }))
        };
        Inputs {
            directory: self.directory.clone(),
            home: self.home.clone(),
            dirs: self.dirs.clone(),
            env: self.env.clone(),
            trust,
        }
    }
}
