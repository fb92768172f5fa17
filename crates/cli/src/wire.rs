//! The wiring: what the process was given, and the engine made from it. The only place that reads the environment and
//! the current directory.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use api::Scope;
use config::{Dirs, Inputs, Trust, TrustStore};
use engine::{Engine, WatchdogScope};
use llm::{Llm, Script};
use store::{DatabaseErrorKind, Store, StoreError};

use crate::args::Remote;
use crate::exit::{Exit, Failure};
use crate::term;

/// The largest script that is read.
const MAX_SCRIPT: u64 = 16 << 20;

/// The program and its version, as model servers see it.
pub const USER_AGENT: &str = concat!("trefoil/", env!("CARGO_PKG_VERSION"));

/// The ids of scripted models: the one that a user names, and the one that is always there.
const SCRIPT_FILE: &str = "file";
const SCRIPT_DEMO: &str = "demo";

/// A variable of the environment, for what happens before there is a [`World`].
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// What the process was given.
pub struct World {
    /// The environment, as far as it is text.
    pub env: BTreeMap<String, String>,
    /// The user's home.
    pub home: PathBuf,
    /// The current directory.
    pub directory: PathBuf,
    /// Where things are kept.
    pub dirs: Dirs,
}

impl World {
    /// This process's.
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
        Ok(Self { env, home, directory, dirs })
    }

    /// Whether colours are unwanted (<https://no-color.org>), or the terminal has none.
    pub fn no_color(&self) -> bool {
        self.is_dumb() || self.env.get("NO_COLOR").is_some_and(|value| !value.is_empty())
    }

    /// Whether the terminal takes nothing but text.
    pub fn is_dumb(&self) -> bool {
        self.env.get("TERM").is_some_and(|term| term == "dumb")
    }

    /// What the terminal can show.
    pub fn look(&self) -> term::Look {
        term::Look { no_color: self.no_color(), dumb: self.is_dumb() }
    }

    /// The script that plays instead of a model, if the environment names one.
    pub fn script(&self) -> Option<PathBuf> {
        self.env.get("TREFOIL_SCRIPT").filter(|path| !path.is_empty()).map(PathBuf::from)
    }

    /// The ids of the scripted models that there are.
    pub fn scripts(&self) -> Vec<String> {
        let file = self.script().map(|_| SCRIPT_FILE);
        file.into_iter().chain([SCRIPT_DEMO]).map(str::to_owned).collect()
    }

    /// `USERNAME` or `PASSWORD` of the server, under our name or OpenCode's.
    pub fn server_secret(&self, name: &str) -> Option<String> {
        let ours = self.env.get(&format!("TREFOIL_SERVER_{name}"));
        ours.or_else(|| self.env.get(&format!("OPENCODE_SERVER_{name}"))).filter(|text| !text.is_empty()).cloned()
    }

    /// Where the database is.
    pub fn database(&self) -> PathBuf {
        match self.env.get("TREFOIL_DB").filter(|path| !path.is_empty()) {
            Some(path) => self.directory.join(path),
            None => self.dirs.data.join("trefoil.db"),
        }
    }

    /// After how many commits this process kills itself: the hook of the crash tests.
    fn crash_after(&self) -> anyhow::Result<Option<u64>> {
        let Some(text) = self.env.get("TREFOIL_CRASH_AFTER") else { return Ok(None) };
        let number = text.parse().ok().filter(|number| *number > 0);
        let refused = || Failure::new(Exit::Usage, format!("TREFOIL_CRASH_AFTER is no number above 0: {text:?}"));
        Ok(Some(number.ok_or_else(refused)?))
    }

    /// Has an engine look after sessions, unless a test has switched that off to show that nothing relies on it.
    pub fn watch_over(&self, engine: &Engine, whose: WatchdogScope) {
        if self.env.get("TREFOIL_WATCHDOG").is_none_or(|value| value != "off") {
            engine.start_watchdog(whose);
        }
    }

    /// Moves the clock of this process by `TREFOIL_CLOCK` milliseconds: the hook of tests with clocks that are wrong.
    pub fn set_clock(&self) -> anyhow::Result<()> {
        if let Some(text) = self.env.get("TREFOIL_CLOCK") {
            let refused = || Failure::new(Exit::Usage, format!("TREFOIL_CLOCK is no number of milliseconds: {text:?}"));
            api::shift_clock(text.parse().map_err(|_| refused())?);
        }
        Ok(())
    }

    /// How many agents have started each other above this one.
    fn depth(&self) -> u32 {
        self.env.get(acp::Runner::DEPTH).and_then(|depth| depth.parse().ok()).unwrap_or(0)
    }

    /// Whether every repository's configuration is trusted, for automation.
    pub fn trusts_all(&self) -> bool {
        self.env.get("TREFOIL_TRUST").is_some_and(|value| value == "all")
    }

    /// What configuration is made from.
    pub fn inputs(&self) -> Inputs {
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

/// The engine of this process and the journal below it.
pub struct Local {
    /// The engine.
    pub engine: Engine,
    /// The journal, for what no host can do (`session import`).
    pub store: Store,
}

/// Opens the journal and starts the engine; needs a runtime. `script` plays instead of a model.
pub fn open(world: &World, script: Option<&Path>, question_tool: bool) -> anyhow::Result<Local> {
    open_with(world, script, question_tool, false, Store::open_with)
}

/// The same for commands that only look: a journal that cannot be written will do.
pub fn open_to_read(world: &World) -> anyhow::Result<Local> {
    let local = open_with(world, world.script().as_deref(), false, false, Store::open_or_read_only)?;
    if let Some(why) = local.store.read_only_reason() {
        term::eprint(&format!("the database is only read: {}\n", term::one_line(&why.to_string(), 500)));
    }
    Ok(local)
}

/// The same for an editor: edits and commands are asked for, unless the configuration says otherwise.
pub fn open_careful(world: &World, script: Option<&Path>) -> anyhow::Result<Local> {
    open_with(world, script, true, true, Store::open_with)
}

fn open_with(
    world: &World,
    script: Option<&Path>,
    question_tool: bool,
    careful: bool,
    open: fn(&Path, store::Options) -> Result<Store, StoreError>,
) -> anyhow::Result<Local> {
    let mut scripts = indexmap::IndexMap::new();
    if let Some(path) = script {
        scripts.insert(SCRIPT_FILE.to_string(), Arc::new(read_script(&world.directory.join(path))?));
    }
    scripts.insert(SCRIPT_DEMO.to_string(), Arc::new(Script::demo()));
    let path = world.database();
    let options = store::Options { crash_after: world.crash_after()?, ..store::Options::default() };
    let store = open(&path, options).map_err(|error| cannot_write(&error, "cannot open the database"))?;
    if let Some(loss) = store.data_loss() {
        term::eprint(&format!("warning: {loss}\n"));
    }
    let program = std::env::current_exe().context("the path of this program cannot be read")?;
    let lock = store.lock_fd().map(|lock| lock.try_clone_to_owned()).transpose();
    let inputs = world.inputs();
    let trust = inputs.trust.clone();
    let exec = exec::Exec::supervised(program, lock.context("cannot share the lock of this process")?)
        .trusting(move |file, programs| trust.reloaded().covers(file, &config::content_hash(programs.as_bytes())));
    let version = env!("CARGO_PKG_VERSION");
    let acp: Arc<dyn api::Runner> = Arc::new(acp::Runner::new(exec.clone(), version, world.depth()));
    let engine = Engine::open(engine::Options {
        store: store.clone(),
        llm: Llm::new(USER_AGENT),
        exec,
        inputs,
        scripts,
        question_tool,
        careful,
        runners: HashMap::from([("acp".to_owned(), acp)]),
        version: version.to_owned(),
    })?;
    Ok(Local { engine, store })
}

/// What a database that cannot be opened or written means for a command.
pub fn cannot_write(error: &StoreError, what: &str) -> Failure {
    let hint = match error {
        StoreError::Database { kind: DatabaseErrorKind::Full, .. } => {
            "free some space. Until then sessions can be listed, shown and exported, and TREFOIL_DATA_DIR can name a \
             directory on another disk"
        }
        _ => "TREFOIL_DATA_DIR names another directory for it; `trefoil doctor` looks at it closely",
    };
    Failure::new(Exit::Failed, format!("{what}: {error}")).hint(hint)
}

/// The server that a command line names, and the directory there. Nothing is sent yet.
pub fn client(world: &World, remote: &Remote) -> anyhow::Result<Option<(client::Client, Scope)>> {
    let Some(url) = &remote.attach else { return Ok(None) };
    let options = client::Options {
        username: world.server_secret("USERNAME"),
        password: world.server_secret("PASSWORD"),
        ..client::Options::default()
    };
    let refused = |error: api::HostError| Failure::new(Exit::Usage, error.to_string());
    let host = client::Client::new(url, options).map_err(refused)?;
    let directory = remote.dir.clone().unwrap_or_else(|| world.directory.to_string_lossy().into_owned());
    Ok(Some((host, Scope::new(directory))))
}

fn read_script(path: &Path) -> anyhow::Result<Script> {
    let refused = |why: String| Failure::new(Exit::Usage, format!("cannot play the script {}: {why}", path.display()));
    let size = std::fs::metadata(path).map_err(|error| refused(error.to_string()))?.len();
    if size > MAX_SCRIPT {
        return Err(refused(format!("it has more than {} MB", MAX_SCRIPT >> 20)).into());
    }
    let text = std::fs::read_to_string(path).map_err(|error| refused(error.to_string()))?;
    Ok(Script::parse(&text).map_err(|error| refused(error.to_string()))?)
}
