//! An engine in this process whose subagent `other` is another program.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use api::{
    CreateSession, EventBody, Host, MessageWithParts, Part, PermissionReply, PermissionReplyKind, PermissionRequest,
    PromptInput, PromptPart, Scope, Session, SessionId, ToolPart, ToolState,
};
use config::{Dirs, Inputs, Trust};
use engine::{Engine, Options};
use serde_json::{Value, json};
use testkit::{Recorder, TempProject, WAIT, finish, on_thread};

pub struct Fixture {
    pub project: TempProject,
    pub engine: Engine,
    pub scope: Scope,
}

/// Our own agent, with a home and a database of its own.
pub fn own(project: &TempProject) -> Value {
    let home = project.root().join("other");
    let config = home.join("config/trefoil");
    std::fs::create_dir_all(&config).unwrap();
    // It does not inherit our own variables.
    std::fs::write(config.join("trefoil.json"), json!({"model": "script/demo"}).to_string()).unwrap();
    let environment = json!({
        "HOME": home, "XDG_CONFIG_HOME": home.join("config"), "XDG_DATA_HOME": home.join("data"),
        "XDG_STATE_HOME": home.join("state"), "XDG_CACHE_HOME": home.join("cache"),
    });
    json!({"command": [env!("CARGO_BIN_EXE_trefoil"), "acp"], "environment": environment})
}

/// A shell script in place of an agent.
pub fn shell(script: &str) -> Value {
    json!({"command": ["/bin/sh", "-c", script]})
}

impl Fixture {
    /// With our own agent as the other program.
    pub fn new(config: Value) -> Self {
        Self::with(config, own)
    }

    /// With an agent elsewhere.
    pub fn remote(mut config: Value, url: &str) -> Self {
        let project = TempProject::new();
        config["agent"]["other"]["a2a"] = json!({ "url": url });
        project.write_home(".config/trefoil/trefoil.json", config.to_string());
        let engine = open(&project);
        let scope = Scope::new(project.directory());
        Self { project, engine, scope }
    }

    /// With that agent as the other program.
    pub fn with(mut config: Value, acp: impl FnOnce(&TempProject) -> Value) -> Self {
        let project = TempProject::new();
        config["agent"]["other"]["acp"] = acp(&project);
        project.write_home(".config/trefoil/trefoil.json", config.to_string());
        let engine = open(&project);
        let scope = Scope::new(project.directory());
        Self { project, engine, scope }
    }

    pub async fn session(&self) -> SessionId {
        let input = CreateSession { title: Some("test".to_owned()), ..CreateSession::default() };
        self.engine.create_session(&self.scope, input).await.unwrap().id
    }

    /// Has our model delegate this to the other agent, and waits for the end.
    pub async fn delegate(&self, session: &SessionId, prompt: &str) -> ToolPart {
        let call = json!({"description": "Do it", "prompt": prompt, "subagent_type": "other"});
        self.task(session, call).await
    }

    pub async fn task(&self, session: &SessionId, call: Value) -> ToolPart {
        match tokio::time::timeout(WAIT, self.engine.prompt(session, handing(call))).await {
            Ok(answer) => drop(answer.unwrap()),
            Err(_) => panic!("no answer within {WAIT:?}; there is {:#?}", self.family(session).await),
        }
        self.tools(session).await.into_iter().rfind(|tool| tool.tool == "task").unwrap()
    }

    /// Has our model delegate this to the other agent, without waiting.
    pub async fn begin(&self, session: &SessionId, prompt: &str) {
        let call = json!({"description": "Do it", "prompt": prompt, "subagent_type": "other"});
        self.engine.prompt_async(session, handing(call)).await.unwrap();
    }

    /// The texts of a session and its child.
    async fn family(&self, session: &SessionId) -> Vec<Vec<MessageWithParts>> {
        let mut all = vec![self.messages(session).await];
        for child in self.engine.children(session).await.unwrap() {
            all.push(self.messages(&child.id).await);
        }
        all
    }

    pub async fn messages(&self, session: &SessionId) -> Vec<MessageWithParts> {
        self.engine.messages(session, api::ListMessages::default()).await.unwrap().messages
    }

    pub async fn tools(&self, session: &SessionId) -> Vec<ToolPart> {
        let parts = self.messages(session).await.into_iter().flat_map(|m| m.parts);
        parts.filter_map(|p| if let Part::Tool(tool) = p { Some(tool) } else { None }).collect()
    }

    pub async fn recorder(&self) -> Recorder {
        Recorder::new(Arc::new(self.engine.clone())).await
    }

    pub async fn child(&self, session: &SessionId) -> Session {
        let mut children = self.engine.children(session).await.unwrap();
        assert_eq!(children.len(), 1, "{children:#?}");
        children.remove(0)
    }

    pub async fn answer(&self, ask: &PermissionRequest, reply: PermissionReplyKind) {
        self.engine.reply_permission(&ask.id, PermissionReply { reply, message: None }).await.unwrap();
    }
}

/// A named pipe in the project.
pub fn pipe(fixture: &Fixture, name: &str) {
    assert!(fixture.project.command("mkfifo").arg(name).status().unwrap().success());
}

/// Reads from the pipe what the process at its other end writes.
pub fn told(fixture: &Fixture, name: &str) -> String {
    let path = fixture.project.path().join(name);
    let text = on_thread("somebody writes into the pipe", || std::fs::read_to_string(path).unwrap());
    text.trim().to_owned()
}

/// Writes something into the pipe for the process at its other end.
pub fn tell(fixture: &Fixture, name: &str, text: &'static str) {
    let path = fixture.project.path().join(name);
    on_thread("somebody reads from the pipe", move || std::fs::write(path, text).unwrap());
}

/// Runs a program to its end.
pub async fn run(mut command: Command) -> Output {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    tokio::task::spawn_blocking(move || finish("the program", child, WAIT)).await.unwrap()
}

pub fn open(project: &TempProject) -> Engine {
    let env: BTreeMap<String, String> = project.env().into_iter().collect();
    let dirs = Dirs::from_env(&env, &project.home());
    let store = store::Store::open(&dirs.data.join("trefoil.db")).unwrap();
    let inputs = Inputs { directory: project.path().to_owned(), home: project.home(), dirs, env, trust: Trust::All };
    let scripts = [("demo".to_owned(), Arc::new(llm::Script::demo()))].into_iter().collect();
    let exec = exec::Exec::supervised(PathBuf::from(env!("CARGO_BIN_EXE_trefoil")), None);
    let runner: Arc<dyn api::Runner> = Arc::new(acp::Runner::new(exec.clone(), "0.0.0", 0));
    let remote: Arc<dyn api::Runner> = Arc::new(a2a::Runner::new(Ok(a2a::client::ClientOptions::default()), |_| None));
    let options = Options {
        store,
        llm: llm::Llm::new("trefoil/test"),
        exec,
        inputs,
        scripts,
        question_tool: true,
        careful: false,
        runners: HashMap::from([("acp".to_owned(), runner), ("a2a".to_owned(), remote)]),
        tools: Vec::new(),
        version: "0.0.0".to_owned(),
    };
    Engine::open(options).unwrap()
}

fn handing(call: Value) -> PromptInput {
    let steps = json!([{"tools": [["task", call]]}, {"text": "told"}]);
    PromptInput { parts: vec![PromptPart::text(format!("SCRIPT: {steps}"))], ..PromptInput::default() }
}

/// A prompt that has the scripted model play these steps.
pub fn script(steps: Value) -> String {
    format!("SCRIPT: {steps}")
}

pub fn bash(command: &str) -> Value {
    json!(["bash", { "command": command }])
}

#[track_caller]
pub fn output(tool: &ToolPart) -> &str {
    match &tool.state {
        ToolState::Completed(done) => &done.output,
        other => panic!("{other:#?}"),
    }
}

#[track_caller]
pub fn error(tool: &ToolPart) -> &str {
    match &tool.state {
        ToolState::Error(error) => &error.error,
        other => panic!("{other:#?}"),
    }
}

pub async fn asked(events: &mut Recorder) -> PermissionRequest {
    let event = events.wait_for(|b| matches!(b, EventBody::PermissionAsked(_))).await;
    let EventBody::PermissionAsked(ask) = &event.body else { unreachable!() };
    (**ask).clone()
}

pub fn text(messages: &[MessageWithParts]) -> String {
    let parts = messages.iter().filter(|m| m.info.as_assistant().is_some()).flat_map(|m| &m.parts);
    parts.filter_map(Part::as_text).map(|t| t.text.as_str()).collect()
}
