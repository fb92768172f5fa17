//! An engine on a temporary project, driven by the scripted model.

pub mod family;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use api::{CreateSession, Host, MessageWithParts, Part, PromptInput, PromptPart, Scope, SessionId, ToolPart};
use config::{Dirs, Inputs, Trust};
use testkit::{Recorder, TempProject, WAIT, soon};
use trefoil_engine::{Engine, Options};

pub struct Lab {
    pub project: TempProject,
    pub engine: Engine,
    pub scope: Scope,
}

impl Lab {
    /// A lab without configuration.
    pub fn new() -> Self {
        Self::with(serde_json::json!({}))
    }

    /// A lab with a global configuration.
    pub fn with(config: serde_json::Value) -> Self {
        Self::on_store(config, store::Options::default())
    }

    /// The same, with other store options.
    pub fn on_store(config: serde_json::Value, options: store::Options) -> Self {
        let project = TempProject::new();
        project.write_home(".config/opencode/opencode.json", config.to_string());
        let engine = open_on(&project, options, HashMap::new());
        let scope = Scope::new(project.directory());
        Self { project, engine, scope }
    }

    /// Another engine on the same database, as if in another process.
    pub fn second(&self) -> Engine {
        open(&self.project)
    }

    /// Stops the engine and starts it again.
    pub async fn restart(&mut self) {
        soon("the engine's end", self.engine.shutdown()).await;
        self.engine = open(&self.project);
    }

    pub async fn session(&self) -> SessionId {
        let input = CreateSession { title: Some("test".to_owned()), ..CreateSession::default() };
        self.engine.create_session(&self.scope, input).await.unwrap().id
    }

    pub async fn say(&self, session: &SessionId, text: &str) -> MessageWithParts {
        match tokio::time::timeout(WAIT, self.engine.prompt(session, prompt(text))).await {
            Ok(answer) => answer.unwrap(),
            Err(_) => panic!("no answer within {WAIT:?} to {text}; there is {:#?}", self.messages(session).await),
        }
    }

    /// A file that a script can wait for (`after`, `hold`); it continues when the test writes the file.
    pub fn gate(&self, name: &str) -> PathBuf {
        self.project.path().join(name)
    }

    pub async fn recorder(&self) -> Recorder {
        Recorder::new(self.host()).await
    }

    pub fn host(&self) -> Arc<dyn Host> {
        Arc::new(self.engine.clone())
    }

    pub async fn messages(&self, session: &SessionId) -> Vec<MessageWithParts> {
        self.engine.messages(session, api::ListMessages::default()).await.unwrap().messages
    }

    /// All tool parts of a session, in order.
    pub async fn tools(&self, session: &SessionId) -> Vec<ToolPart> {
        let parts = self.messages(session).await.into_iter().flat_map(|m| m.parts);
        parts.filter_map(|p| if let Part::Tool(tool) = p { Some(tool) } else { None }).collect()
    }
}

pub fn open(project: &TempProject) -> Engine {
    open_with(project, HashMap::new())
}

/// An engine with runners for some agents.
pub fn open_with(project: &TempProject, runners: HashMap<String, Arc<dyn api::Runner>>) -> Engine {
    open_on(project, store::Options::default(), runners)
}

/// An engine with other store options.
pub fn open_on(
    project: &TempProject,
    options: store::Options,
    runners: HashMap<String, Arc<dyn api::Runner>>,
) -> Engine {
    let dirs = Dirs::from_env(&project.env().into_iter().collect(), &project.home());
    open_store(project, store::Store::open_with(&dirs.data.join("trefoil.db"), options).unwrap(), runners)
}

/// An engine on a store that a test has opened.
pub fn open_store(
    project: &TempProject,
    store: store::Store,
    runners: HashMap<String, Arc<dyn api::Runner>>,
) -> Engine {
    open_as(project, store, runners, false)
}

/// An engine as an editor starts it, which asks before edits and commands.
pub fn open_careful(project: &TempProject) -> Engine {
    open_careful_with(project, HashMap::new())
}

/// The same, with runners for some agents.
pub fn open_careful_with(project: &TempProject, runners: HashMap<String, Arc<dyn api::Runner>>) -> Engine {
    open_as(project, store(project), runners, true)
}

/// The journal of a project.
pub fn store(project: &TempProject) -> store::Store {
    let dirs = Dirs::from_env(&project.env().into_iter().collect(), &project.home());
    store::Store::open(&dirs.data.join("trefoil.db")).unwrap()
}

/// Replaces the constraints stored with a session.
pub fn set_constraints(project: &TempProject, session: &SessionId, constraints: Option<&str>) {
    let dirs = Dirs::from_env(&project.env().into_iter().collect(), &project.home());
    let database = rusqlite::Connection::open(dirs.data.join("trefoil.db")).unwrap();
    database.busy_timeout(WAIT).unwrap();
    let changed = database
        .execute("UPDATE session SET data = ?2 WHERE id = ?1", rusqlite::params![session.as_str(), constraints])
        .unwrap();
    assert_eq!(changed, 1);
}

fn open_as(
    project: &TempProject,
    store: store::Store,
    runners: HashMap<String, Arc<dyn api::Runner>>,
    careful: bool,
) -> Engine {
    let env: BTreeMap<String, String> = project.env().into_iter().collect();
    let dirs = Dirs::from_env(&env, &project.home());
    let inputs = Inputs { directory: project.path().to_owned(), home: project.home(), dirs, env, trust: Trust::All };
    // Prompts that are not scripts, such as reports of tasks, get a short answer; the report of one task leads to a
    // command.
    let script = serde_json::json!({
        "rules": [{
            "when": {"text": "Background task completed: touch caller.txt"},
            "steps": [{"tools": [["bash", {"command": "touch caller.txt"}]]}, {"text": "touched"}]
        }],
        "default": [{"text": "noted"}]
    });
    let script = llm::Script::parse(&script.to_string()).unwrap();
    let scripts = [("demo".to_owned(), Arc::new(script))].into_iter().collect();
    let llm = llm::Llm::new("trefoil/test");
    let (exec, version) = (exec::Exec::direct(), "0.0.0".to_owned());
    let question_tool = true;
    let tools = Vec::new();
    Engine::open(Options { store, llm, exec, inputs, scripts, question_tool, careful, runners, tools, version })
        .unwrap()
}

/// An engine that dies like a process: nothing of it keeps running, and nothing is cleaned up.
pub fn doomed<T: Send>(project: &TempProject, life: impl AsyncFnOnce(Engine) -> T + Send) -> T {
    std::thread::scope(|scope| {
        let run = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            let outcome = runtime.block_on(async { life(open(project)).await });
            runtime.shutdown_timeout(WAIT);
            outcome
        });
        run.join().unwrap()
    })
}

pub fn prompt(text: &str) -> PromptInput {
    PromptInput { parts: vec![PromptPart::text(text)], ..PromptInput::default() }
}

/// A prompt that makes the scripted model play these steps.
pub fn script(steps: serde_json::Value) -> String {
    format!("SCRIPT: {steps}")
}

/// The text of an answer.
pub fn text(message: &MessageWithParts) -> String {
    message.parts.iter().filter_map(Part::as_text).map(|t| t.text.as_str()).collect()
}
