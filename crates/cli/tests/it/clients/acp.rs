//! `trefoil acp` with the official SDKs, and as a process: its output, its end, and what survives it.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use store::Store;
use testkit::{TempProject, WAIT, until};

use super::harness::{Proxy, TestServer, finish, scripts, succeeded};
use crate::schema;

/// How long a script may take; a working one takes a few seconds. Its own waits are shorter.
const LONGEST: Duration = Duration::from_secs(300);

fn sdk(program: &Path, script: &Path) {
    let project = TempProject::new();
    let mut command = project.command(program);
    command.arg(script).env("TREFOIL_BIN", env!("CARGO_BIN_EXE_trefoil"));
    command.env("TREFOIL_DIRECTORY", project.directory());
    succeeded(&finish(command, LONGEST));
}

#[test]
fn the_current_typescript_sdk() {
    sdk(Path::new("node"), &scripts().join("acp-sdk.mjs"));
}

#[test]
fn an_older_typescript_sdk() {
    sdk(Path::new("node"), &scripts().join("acp-sdk-029.mjs"));
}

/// Runs a script against the agent of a server that asks for edits and commands.
fn remote(change: impl FnOnce(&mut Command), program: &Path) {
    let project = TempProject::new();
    project.write_home(".config/trefoil/trefoil.json", r#"{"permission": {"edit": "ask", "bash": "ask"}}"#);
    let served = TestServer::with(project, |_| {});
    let mut command = served.project.command(program);
    change(&mut command);
    command.env("TREFOIL_URL", &served.url).env("TREFOIL_DIRECTORY", served.project.directory());
    succeeded(&finish(command, LONGEST));
}

#[test]
fn the_current_typescript_sdk_over_http_and_a_websocket() {
    let script = scripts().join("acp-remote.mjs");
    for way in ["http", "ws"] {
        // Older versions of Node.js have WebSockets only behind a flag.
        let change = |node: &mut Command| {
            node.arg("--experimental-websocket").arg(&script).arg(way);
        };
        remote(change, Path::new("node"));
    }
}

#[test]
fn the_current_typescript_sdk_over_a_stream_that_breaks() {
    let change = |node: &mut Command| {
        node.arg(scripts().join("acp-broken.mjs"));
    };
    remote(change, Path::new("node"));
}

#[test]
fn the_python_sdk_over_http() {
    let python = peer::acp_python(&testkit::target_folder()).unwrap();
    let change = |command: &mut Command| {
        command.arg(peer::sources().join("acp_remote.py"));
    };
    remote(change, &python);
}

#[test]
fn the_python_sdk() {
    let python = peer::acp_python(&testkit::target_folder()).unwrap();
    sdk(&python, &peer::sources().join("acp_life.py"));
}

/// Drives an agent in its own process, in front of a server, or in that server.
fn commands(way: &str) {
    let served = TestServer::start();
    let python = peer::acp_python(&testkit::target_folder()).unwrap();
    let mut command = served.project.command(python);
    command.arg(peer::sources().join("acp_commands.py")).arg(way).env("TREFOIL_BIN", env!("CARGO_BIN_EXE_trefoil"));
    command.env("TREFOIL_URL", &served.url).env("TREFOIL_DIRECTORY", served.project.directory());
    command.env("MCP_SERVER", testkit::mcp_server(served.project.path()));
    succeeded(&finish(command, LONGEST));
}

#[test]
fn the_python_sdk_is_told_of_new_commands() {
    commands("own");
}

#[test]
fn the_python_sdk_is_told_of_a_servers_commands() {
    for way in ["attach", "http"] {
        commands(way);
    }
}

/// The methods of the sent requests, by their ids.
type Asked = Arc<Mutex<HashMap<u64, String>>>;

/// Whether the schema allows the agent's messages. The editor announced nothing unstable.
fn check(message: &Value, asked: &Asked) -> Result<(), String> {
    let (id, params) = (&message["id"], &message["params"]);
    match message["method"].as_str() {
        Some(method) if id.is_null() => schema::notification(method, params, false),
        Some(method) => schema::request(method, params),
        None if message["error"].is_object() => schema::check("Error", &message["error"]),
        None => {
            let method = id.as_u64().and_then(|id| asked.lock().unwrap().remove(&id));
            schema::response(&method.unwrap_or_default(), &message["result"])
        }
    }
}

/// An agent that runs, and its editor.
pub struct Agent {
    pub child: Child,
    pub stdin: Option<ChildStdin>,
    lines: Receiver<Value>,
    asked: Asked,
    /// Checks the agent's messages against the schema.
    reader: Option<JoinHandle<()>>,
    next: u64,
    /// Its messages that are not answers.
    updates: Vec<Value>,
    /// What it wrote to standard error.
    errors: PathBuf,
}

impl Agent {
    pub fn start(project: &TempProject, change: impl FnOnce(&mut Command)) -> Self {
        let mut command = project.command(env!("CARGO_BIN_EXE_trefoil"));
        let errors = project.root().join("acp.log");
        command.arg("acp").stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(File::options().create(true).append(true).open(&errors).unwrap());
        change(&mut command);
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        let asked = Asked::default();
        let known = asked.clone();
        let reader = std::thread::spawn(move || {
            let mut line = String::new();
            // A line that a kill cut off does not count.
            while stdout.read_line(&mut line).is_ok() && line.ends_with('\n') {
                // Only the protocol is printed there.
                let message = serde_json::from_str(&line).unwrap_or_else(|_| panic!("printed: {line}"));
                check(&message, &known).unwrap_or_else(|error| panic!("{error}"));
                if sender.send(message).is_err() {
                    break;
                }
                line.clear();
            }
        });
        let mut agent = Self { child, stdin, lines, asked, reader: Some(reader), next: 0, updates: Vec::new(), errors };
        agent.ask("initialize", json!({"protocolVersion": 1}));
        agent
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.stdin.as_mut().unwrap(), "{message}").unwrap();
    }

    fn begin(&mut self, method: &str, params: Value) -> u64 {
        self.next += 1;
        let id = self.next;
        self.asked.lock().unwrap().insert(id, method.to_owned());
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    /// The next matching message; those before it are kept.
    #[track_caller]
    pub fn message(&mut self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let limit = Instant::now() + WAIT;
        loop {
            let message = self.lines.recv_timeout(limit.saturating_duration_since(Instant::now()));
            let message = message.unwrap_or_else(|error| panic!("{what} did not come ({error}): {:#?}", self.updates));
            if fits(&message) {
                return message;
            }
            self.updates.push(message);
        }
    }

    /// The answer to a request.
    #[track_caller]
    fn answer(&mut self, id: u64) -> Value {
        self.message(&format!("the answer to {id}"), |message| message["id"] == id && message["method"].is_null())
    }

    #[track_caller]
    fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.begin(method, params);
        let answer = self.answer(id);
        assert!(answer["error"].is_null(), "{method}: {answer}");
        answer["result"].clone()
    }

    #[track_caller]
    fn until(&mut self, fits: impl Fn(&Value) -> bool) {
        let found = self.message("an update", |message| fits(&message["params"]["update"]));
        self.updates.push(found);
    }

    pub fn session(&mut self, directory: &str) -> String {
        let made = self.ask("session/new", json!({"cwd": directory, "mcpServers": []}));
        made["sessionId"].as_str().unwrap().to_owned()
    }

    /// A session with the test server as `s`.
    fn session_with_server(&mut self, project: &TempProject) -> String {
        let program = testkit::mcp_server(project.path());
        let servers = json!([{"name": "s", "command": "python3", "args": [program, "polite"], "env": []}]);
        let made = self.ask("session/new", json!({"cwd": project.directory(), "mcpServers": servers}));
        made["sessionId"].as_str().unwrap().to_owned()
    }

    /// The process of that server.
    fn server(&mut self, session: &str) -> String {
        let id = self.prompt(session, &json!([{"tools": [["s_pids", {}]]}, {"text": "done"}]));
        self.until(|update| update["status"] == "completed");
        let output = &self.updates.last().unwrap()["params"]["update"]["rawOutput"]["output"];
        let pid = output.as_str().unwrap().split(' ').next().unwrap().to_owned();
        self.answer(id);
        pid
    }

    pub fn prompt(&mut self, session: &str, steps: &Value) -> u64 {
        let prompt = json!([{"type": "text", "text": format!("SCRIPT: {steps}")}]);
        self.begin("session/prompt", json!({"sessionId": session, "prompt": prompt}))
    }

    fn text(&self) -> String {
        let chunks = self.updates.iter().map(|message| &message["params"]["update"]);
        let chunks = chunks.filter(|update| update["sessionUpdate"] == "agent_message_chunk");
        chunks.filter_map(|update| update["content"]["text"].as_str()).collect()
    }

    #[track_caller]
    pub fn ends(mut self) -> std::process::ExitStatus {
        let mut status = None;
        until("the agent's end", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }
}

impl Drop for Agent {
    #[expect(clippy::print_stderr, reason = "the test's output says why it failed")]
    fn drop(&mut self) {
        let found = testkit::autopsy(&mut self.child);
        let read = self.reader.take().map(JoinHandle::join);
        if std::thread::panicking() {
            eprintln!("the agent: {found}\nit wrote:\n{}", std::fs::read_to_string(&self.errors).unwrap_or_default());
            return;
        }
        assert!(read.is_none_or(|read| read.is_ok()), "the agent said something that the schema does not allow");
    }
}

fn allowed(project: &TempProject) {
    project.write_home(".config/trefoil/trefoil.json", r#"{"permission": {"bash": "allow", "edit": "allow"}}"#);
}

/// Whether a process runs this command.
fn runs(command: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap();
    let lines = processes.filter_map(|entry| std::fs::read(entry.ok()?.path().join("cmdline")).ok());
    lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " ")).any(|line| line.contains(command))
}

#[test]
fn it_ends_with_its_editor_and_leaves_no_process() {
    let project = TempProject::new();
    allowed(&project);
    for signal in [None, Some(rustix::process::Signal::TERM)] {
        let mut agent = Agent::start(&project, |_| {});
        let session = agent.session(&project.directory());
        let marker = format!("sleep 61.{}", agent.child.id());
        let prompt = agent.prompt(&session, &json!([{"tools": [["bash", {"command": marker}]]}, {"text": "x"}]));
        agent.until(|update| update["status"] == "in_progress" && update["content"].is_null());
        match signal {
            None => drop(agent.stdin.take()),
            Some(signal) => {
                let pid = rustix::process::Pid::from_raw(agent.child.id().try_into().unwrap()).unwrap();
                rustix::process::kill_process(pid, signal).unwrap();
                // A client listens.
                let error = agent.answer(prompt)["error"]["message"].as_str().unwrap().to_owned();
                assert!(error.contains("stopping") && error.contains("opened again"), "{error}");
            }
        }
        assert!(agent.ends().success());
        assert!(!runs(&marker));
    }
}

#[test]
fn a_session_survives_kill_9() {
    let project = TempProject::new();
    allowed(&project);
    let mut agent = Agent::start(&project, |_| {});
    let session = agent.session(&project.directory());
    agent.prompt(
        &session,
        &json!([{"text": "Before. ", "tools": [["bash", {"command": "echo now; sleep 300"}]]}, {"text": "After."}]),
    );
    agent.until(|update| update["content"][0]["content"]["text"] == "now\n");
    let shown = agent.text();
    // The last quarter of a second of a text may be lost; this is older.
    let store = Store::open(&project.home().join(".local/share/trefoil/trefoil.db")).unwrap();
    let id = api::SessionId::parse(&session).unwrap();
    until("the text is stored", || {
        let messages = store.messages(&id, None, None).unwrap().messages;
        let mut texts = messages.iter().flat_map(|message| message.parts.iter().filter_map(api::Part::as_text));
        texts.any(|text| text.text == shown)
    });
    drop(store);
    agent.child.kill().unwrap();
    agent.child.wait().unwrap();
    let mut other = Agent::start(&project, |_| {});
    other.ask("session/load", json!({"sessionId": session, "cwd": project.directory(), "mcpServers": []}));
    assert!(other.text().starts_with(&shown), "{} is not {shown}", other.text());
    // The interrupted turn continues, and its command is marked as interrupted.
    other.until(|update| update["status"] == "failed");
    while !other.text().ends_with("After.") {
        other.until(|update| update["sessionUpdate"] == "agent_message_chunk");
    }
}

#[test]
fn it_works_in_front_of_a_server_and_both_show_the_same() {
    let served = TestServer::start();
    let mut agent = Agent::start(&served.project, |command| {
        command.args(["--attach", &served.url]);
    });
    let session = agent.session(&served.project.directory());
    let prompt = json!({"sessionId": session, "prompt": [{"type": "text", "text": "multiply"}]});
    let answer = agent.ask("session/prompt", prompt);
    assert_eq!(answer["stopReason"], "end_turn");
    assert_eq!(agent.text(), "That was easy.");
    let (status, messages) = served.send("GET", &format!("/session/{session}/message"), None);
    assert_eq!((status, messages.as_array().unwrap().len()), (200, 3));
    // And the other way round.
    let said = json!({"parts": [{"type": "text", "text": "greet"}]});
    assert_eq!(served.send("POST", &format!("/session/{session}/message"), Some(&said)).0, 200);
    while !agent.text().ends_with("Good morning from Trefoil.") {
        agent.until(|update| update["sessionUpdate"] == "agent_message_chunk");
    }
}

#[test]
fn an_editor_and_a_server_have_one_log() {
    let project = TempProject::new();
    project.write_home(".config/trefoil/trefoil.json", r#"{"permission": {"bash": "ask"}}"#);
    let served = TestServer::with(project, |_| {});
    let directory = served.project.directory();
    let mut agent = Agent::start(&served.project, |_| {});
    assert!(!listens(agent.child.id()), "an agent opens no port");
    // Made in the editor, seen over HTTP, and the reverse.
    let session = agent.session(&directory);
    assert_eq!(served.send("GET", &format!("/session/{session}"), None).1["id"], json!(session));
    let made = served.send("POST", "/session", Some(&json!({}))).1;
    let other = made["id"].as_str().unwrap().to_owned();
    let listed = agent.ask("session/list", json!({ "cwd": directory }));
    assert!(listed["sessions"].as_array().unwrap().iter().any(|session| session["sessionId"] == *other));
    agent.ask("session/load", json!({"sessionId": other, "cwd": directory, "mcpServers": []}));
    let asks =
        |agent: &mut Agent| agent.message("a question", |message| message["method"] == "session/request_permission");
    // The editor's turn asks; the answer is given over HTTP.
    let bash = json!([{"tools": [["bash", {"command": "echo hi"}]]}, {"text": "Done."}]);
    let id = agent.prompt(&session, &bash);
    asks(&mut agent);
    let waiting = served.send("GET", "/permission", None).1;
    let reply = format!("/permission/{}/reply", waiting[0]["id"].as_str().unwrap());
    assert_eq!(served.send("POST", &reply, Some(&json!({ "reply": "once" }))).0, 200);
    assert_eq!(agent.answer(id)["result"]["stopReason"], "end_turn");
    assert_eq!(agent.text(), "Done.");
    // The server's turn asks; the editor answers.
    let parts = json!([{"type": "text", "text": format!("SCRIPT: {bash}")}]);
    let path = format!("/session/{other}/prompt_async");
    assert_eq!(served.send("POST", &path, Some(&json!({ "parts": parts }))).0, 204);
    let asked = asks(&mut agent);
    assert_eq!(asked["params"]["sessionId"], *other);
    let allow = json!({"outcome": {"outcome": "selected", "optionId": "once"}});
    agent.send(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": allow}));
    while !agent.text().ends_with("Done.Done.") {
        agent.until(|update| update["sessionUpdate"] == "agent_message_chunk");
    }
}

/// Whether a process listens on a port.
fn listens(pid: u32) -> bool {
    let links = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let links = links.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    let sockets: Vec<String> =
        links.filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())).collect();
    let tables = ["tcp", "tcp6"].map(|name| std::fs::read_to_string(format!("/proc/net/{name}")).unwrap_or_default());
    let listening = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        fields.get(3) == Some(&"0A") && fields.get(9).is_some_and(|inode| sockets.iter().any(|socket| socket == inode))
    };
    tables.iter().any(|table| table.lines().any(listening))
}

#[test]
fn a_cut_connection_loses_nothing_and_repeats_nothing() {
    let project = TempProject::new();
    project.write_home(".config/trefoil/trefoil.json", r#"{"permission": {"bash": {"*": "allow", "date*": "ask"}}}"#);
    let served = TestServer::with(project, |_| {});
    let proxy = Proxy::start(served.address());
    let mut agent = Agent::start(&served.project, |command| {
        command.args(["--attach", &proxy.url()]);
    });
    let session = agent.session(&served.project.directory());
    let words = |range: std::ops::Range<u32>| range.map(|n| format!("w{n} ")).collect::<String>();
    let marker = served.project.path().join("ran");
    let append = format!("echo ran >> {}", marker.display());
    // Slowly, so that it is cut in the middle; whichever side is faster, everything comes once.
    let speaks =
        |command: &str| json!({"chunks": 150, "chunk_delay_ms": 10, "tools": [["bash", {"command": command}]]});
    let asks = json!({"tools": [["bash", {"command": "date -u > stamp"}]]});
    let steps = json!([speaks("echo between"), speaks(&append), asks, {"text": "The end."}]);
    let id = agent.prompt(&session, &steps);
    let reaches = |agent: &mut Agent, word: &str| {
        while !agent.text().contains(word) {
            agent.until(|update| update["sessionUpdate"] == "agent_message_chunk");
        }
    };
    // Cut and restored at once, twice.
    for word in ["w20 ", "w60 "] {
        reaches(&mut agent, word);
        proxy.cut();
        proxy.mend();
    }
    // Cut until the server is far ahead: the first step is over, and its command has run.
    reaches(&mut agent, "w100 ");
    proxy.cut();
    let stored = || served.send("GET", &format!("/session/{session}/message"), None).1;
    until("the server's second step", || stored().as_array().unwrap().len() >= 3);
    proxy.mend();
    // Cut while a permission is requested: the answer is given while the server cannot be reached.
    let asked = agent.message("a question", |message| message["method"] == "session/request_permission");
    proxy.cut();
    let allow = json!({"outcome": {"outcome": "selected", "optionId": "once"}});
    agent.send(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": allow}));
    proxy.refused();
    proxy.mend();
    let end = agent.answer(id);
    assert_eq!(end["result"]["stopReason"], "end_turn", "{end}");
    assert_eq!(agent.text(), format!("{}{}The end.", words(0..150), words(0..150)));
    // Every call starts once and ends once, in order, and ran once.
    let calls = agent.updates.iter().map(|message| &message["params"]["update"]);
    let calls = calls.filter(|update| {
        update["sessionUpdate"] == "tool_call" || matches!(update["status"].as_str(), Some("completed" | "failed"))
    });
    let seen: Vec<(String, bool)> = calls
        .map(|update| (update["toolCallId"].as_str().unwrap().to_owned(), update["sessionUpdate"] == "tool_call"))
        .collect();
    assert_eq!(seen.len(), 6, "{seen:?}");
    for pair in seen.chunks(2) {
        assert!(pair[0].1 && !pair[1].1 && pair[0].0 == pair[1].0, "{seen:?}");
    }
    assert_eq!(std::fs::read_to_string(marker).unwrap(), "ran\n");
    let users = stored().as_array().unwrap().iter().filter(|message| message["info"]["role"] == "user").count();
    assert_eq!(users, 1);
    // A cancel that is sent while the server cannot be reached takes effect.
    let id = agent.prompt(&session, &json!([{"text": "Stays.", "hold": served.project.path().join("never")}]));
    reaches(&mut agent, "Stays.");
    proxy.cut();
    agent.send(&json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}}));
    proxy.refused();
    proxy.mend();
    let end = agent.answer(id);
    assert_eq!(end["result"]["stopReason"], "cancelled", "{end}");
}

#[test]
fn mcp_servers_of_a_session_stay_private_on_a_server_too() {
    let served = TestServer::start();
    let mut agent = Agent::start(&served.project, |command| {
        command.args(["--attach", &served.url]);
    });
    let session = agent.session_with_server(&served.project);
    let pid = agent.server(&session);
    assert_eq!(served.send("GET", "/mcp", None).1, json!({}), "the directory has none");
    drop(agent.stdin.take());
    assert!(agent.ends().success());
    // They were the server's processes, and ended with the client.
    until("the end of the servers", || !Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn mcp_servers_of_a_session_return_after_a_restart_of_the_server() {
    let mut served = TestServer::start();
    let mut agent = Agent::start(&served.project, |command| {
        command.args(["--attach", &served.url]);
    });
    let session = agent.session_with_server(&served.project);
    let before = agent.server(&session);
    served.restart();
    // Used at once, whether or not the agent has noticed.
    let after = agent.server(&session);
    assert_ne!(before, after);
    assert_eq!(agent.server(&session), after, "they are started once");
    // Not used: the agent notices, for turns that continue and for other clients.
    served.restart();
    let commands = format!("/session/{session}/command");
    until("the server's commands", || {
        let (status, commands) = served.send("GET", &commands, None);
        assert_eq!(status, 200, "{commands}");
        commands.as_array().unwrap().iter().any(|command| command["name"] == "s:greet")
    });
    assert_eq!(served.send("GET", "/session/ses_0000000000000000000000000000/command", None).0, 404);
}

#[test]
fn a_login_stores_a_key_that_is_used() {
    let project = TempProject::new();
    let mut command = project.command(env!("CARGO_BIN_EXE_trefoil"));
    command.args(["acp", "--login"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"openai\nsk-test\n").unwrap();
    let output = testkit::finish("the login", child, WAIT);
    assert!(output.status.success() && !String::from_utf8_lossy(&output.stderr).contains("sk-test"));
    let mut models = project.command(env!("CARGO_BIN_EXE_trefoil"));
    models.arg("models");
    let models = finish(models, WAIT);
    assert!(String::from_utf8_lossy(&models.stdout).contains("openai/"), "{models:?}");
}
