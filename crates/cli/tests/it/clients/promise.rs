//! An unanswered request of an editor's agent is not decided by another process: neither by a server that continues the turn nor by
//! `run -c`, whatever they may do themselves.

use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use testkit::{TempProject, WAIT, until};

use super::acp::Agent;
use super::harness::TestServer;

/// The call of a subagent.
const CHILD: &str = "a task's child";

/// How the agent ends while it asks.
#[derive(Debug, Clone, Copy)]
enum End {
    Eof,
    Kill,
}

/// A call that asks.
struct Case {
    name: &'static str,
    before: Value,
    steps: fn(&Fixture) -> Value,
    /// How often it took effect before it asks.
    effects: usize,
}

struct Fixture {
    project: TempProject,
    server: Server,
}

/// The address for `webfetch`: closes every connection, and counts them.
struct Server {
    url: String,
    reached: Arc<AtomicUsize>,
}

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let reached = Arc::new(AtomicUsize::new(0));
        let count = reached.clone();
        std::thread::spawn(move || {
            listener.incoming().for_each(|_| {
                count.fetch_add(1, Ordering::SeqCst);
            });
        });
        Self { url, reached }
    }
}

impl Fixture {
    fn effects(&self) -> usize {
        effects(&self.project, &self.server)
    }

    fn configure(&self, config: &Value) {
        self.project.write_home(".config/trefoil/trefoil.json", config.to_string());
    }
}

/// How often a call took effect: lines that it wrote, files elsewhere, connections.
fn effects(project: &TempProject, server: &Server) -> usize {
    let text = std::fs::read_to_string(project.path().join("made.txt")).unwrap_or_default();
    // A closed connection may be retried.
    let reached = usize::from(server.reached.load(Ordering::SeqCst) > 0);
    text.lines().count() + usize::from(project.home().join("made.txt").exists()) + reached
}

fn bash() -> Value {
    json!({"tools": [["bash", {"command": "sh add.sh"}]]})
}

fn cases() -> Vec<Case> {
    let case = |name, before, steps, effects| Case { name, before, steps, effects };
    vec![
        case("bash", json!({}), |_| json!([bash(), {"text": "end"}]), 0),
        case(
            "edit",
            json!({}),
            |_| json!([{"tools": [["write", {"filePath": "made.txt", "content": "x\n"}]]}, {"text": "end"}]),
            0,
        ),
        case(
            "webfetch",
            json!({"permission": {"webfetch": "ask"}}),
            |fixture| json!([{"tools": [["webfetch", {"url": fixture.server.url, "format": "text"}]]}, {"text": "end"}]),
            0,
        ),
        case(
            "external_directory",
            json!({"permission": {"edit": "allow"}}),
            |fixture| {
                let file = fixture.project.home().join("made.txt");
                json!([{"tools": [["write", {"filePath": file, "content": "x\n"}]]}, {"text": "end"}])
            },
            0,
        ),
        case(
            "doom_loop",
            json!({"permission": {"bash": "allow"}}),
            |_| json!([bash(), bash(), bash(), {"text": "end"}]),
            2,
        ),
        case(
            CHILD,
            json!({}),
            |_| {
                let prompt = format!("SCRIPT: {}", json!([bash(), {"text": "."}]));
                let call = json!({"description": "d", "prompt": prompt, "subagent_type": "general"});
                json!([{"tools": [["task", call]]}, {"text": "end"}])
            },
            0,
        ),
    ]
}

/// An agent asks and ends without an answer; after that, everything is allowed.
fn left(case: &Case, end: End) -> (Fixture, String) {
    let fixture = Fixture { project: TempProject::new(), server: Server::start() };
    fixture.project.write("add.sh", "echo x >> made.txt");
    fixture.configure(&case.before);
    let mut agent = Agent::start(&fixture.project, reaching);
    let session = agent.session(&fixture.project.directory());
    agent.prompt(&session, &(case.steps)(&fixture));
    agent.message("a question", |message| message["method"] == "session/request_permission");
    match end {
        End::Eof => {
            drop(agent.stdin.take());
            assert!(agent.ends().success());
        }
        End::Kill => {
            agent.child.kill().unwrap();
            agent.child.wait().unwrap();
        }
    }
    assert_eq!(fixture.effects(), case.effects, "{}", case.name);
    fixture.configure(&json!({"permission": "allow"}));
    (fixture, session)
}

fn reaching(command: &mut Command) {
    command.env("TREFOIL_ALLOW_PRIVATE_FETCH", "1");
}

/// Lets a server continue, gives that answer to the request, and checks that it counts.
fn served(end: End, reply: &str, more: usize) {
    for case in cases() {
        let (fixture, session) = left(&case, end);
        let Fixture { project, server } = fixture;
        let (directory, home) = (project.directory(), project.home());
        let served = TestServer::with(project, |command| {
            reaching(command);
            // Anywhere.
            command.current_dir(home);
        });
        let path = |path: &str| format!("{path}?directory={directory}");
        let mut asked = Value::Null;
        until("the call asks", || {
            asked = served.send("GET", &path("/permission"), None).1;
            asked.as_array().is_some_and(|asked| asked.len() == 1)
        });
        let id = asked[0]["id"].as_str().unwrap();
        let (status, _) =
            served.send("POST", &path(&format!("/permission/{id}/reply")), Some(&json!({ "reply": reply })));
        assert_eq!(status, 200, "{}: {end:?}", case.name);
        until("the turn ends", || {
            let messages = served.send("GET", &path(&format!("/session/{session}/message")), None).1;
            let last = messages.as_array().and_then(|messages| messages.last());
            let last = last.unwrap_or(&Value::Null);
            let over = last["info"]["finish"] != "tool-calls" || reply == "reject";
            let statuses = served.send("GET", &path("/session/status"), None).1;
            last["info"]["time"]["completed"].is_number() && over && statuses == json!({})
        });
        let effects = effects(&served.project, &server);
        assert_eq!(effects, case.effects + more, "{}: {end:?}, {reply}", case.name);
    }
}

#[test]
fn a_server_does_not_run_what_was_asked_by_an_agent_that_was_killed() {
    served(End::Kill, "reject", 0);
}

#[test]
fn a_server_does_not_run_what_was_asked_by_an_agent_that_ended() {
    served(End::Eof, "reject", 0);
}

#[test]
fn a_server_runs_it_once_when_somebody_says_yes() {
    served(End::Kill, "once", 1);
}

/// Without a terminal nobody can be asked: the request is denied, and the output says so.
fn run(end: End) {
    for case in cases() {
        let (fixture, session) = left(&case, end);
        let mut command = fixture.project.command(env!("CARGO_BIN_EXE_trefoil"));
        command.args(["run", "-c"]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        reaching(&mut command);
        let output = testkit::finish("run", command.spawn().unwrap(), WAIT);
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(printed.contains("denied: "), "{}: {end:?}\n{printed}", case.name);
        assert_eq!(fixture.effects(), case.effects, "{}: {end:?}\n{printed}", case.name);
        let mut command = fixture.project.command(env!("CARGO_BIN_EXE_trefoil"));
        command.args(["session", "export", &session]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let export = testkit::finish("export", command.spawn().unwrap(), WAIT);
        let export: Value = serde_json::from_slice(&export.stdout).unwrap();
        // The caller of a subagent is told, and continues.
        let code = if case.name == CHILD { 0 } else { 4 };
        assert_eq!(output.status.code(), Some(code), "{}: {end:?}\n{printed}", case.name);
        let says = export.to_string();
        assert!(says.contains("The user rejected permission"), "{}: {says}", case.name);
    }
}

#[test]
fn a_run_without_a_terminal_denies_what_was_asked_by_an_agent_that_was_killed() {
    run(End::Kill);
}

#[test]
fn a_run_without_a_terminal_denies_what_was_asked_by_an_agent_that_ended() {
    run(End::Eof);
}

/// Rules that clients send over HTTP lift no denial, and no session may do more than the one above it.
#[test]
fn no_rule_over_http_lifts_a_denial() {
    let project = TempProject::new();
    let free = json!({"mode": "primary", "permission": {"bash": "allow"}});
    let bound = json!({"mode": "primary", "permission": {"bash": "deny"}});
    let config = json!({"agent": {"free": free, "bound": bound, "worker": {"mode": "all"}}});
    project.write_home(".config/trefoil/trefoil.json", config.to_string());
    let served = TestServer::with(project, |_| {});
    let post = |path: &str, body: Value| {
        let (status, answer) = served.send("POST", path, Some(&body));
        assert_eq!(status, 200, "{path}: {answer}");
        answer
    };
    let allow = json!([{"permission": "bash", "pattern": "*", "action": "allow"}]);
    let touch = |agent: &str, tools: Value| {
        let text = format!("SCRIPT: {}", json!([{"tools": [["bash", {"command": "touch made"}]]}, {"text": "end"}]));
        json!({"agent": agent, "tools": tools, "parts": [{"type": "text", "text": text}]})
    };
    let made = served.project.path().join("made");
    let session = |body: Value| post("/session", body)["id"].as_str().unwrap().to_owned();
    let say = |session: &str, body: Value| post(&format!("/session/{session}/message"), body);
    let lifted = session(json!({ "permission": allow }));
    say(&lifted, touch("bound", json!({"bash": true})));
    let (status, _) = served.send("PATCH", &format!("/session/{lifted}"), Some(&json!({ "permission": allow })));
    assert_eq!(status, 200);
    say(&lifted, touch("bound", json!({})));
    // A subagent that a client talks to afterwards, a session below it, and copies of both.
    let call = json!({"description": "d", "prompt": "SCRIPT: []", "subagent_type": "worker"});
    let text = format!("SCRIPT: {}", json!([{"tools": [["task", call]]}, {"text": "end"}]));
    say(&lifted, json!({"agent": "bound", "parts": [{"type": "text", "text": text}]}));
    let children = served.send("GET", &format!("/session/{lifted}/children"), None).1;
    let child = children[0]["id"].as_str().unwrap().to_owned();
    let below = session(json!({ "parentID": child, "permission": allow }));
    let beside = session(json!({ "parentID": lifted, "permission": allow }));
    for id in [&child, &below, &beside] {
        say(id, touch("free", json!({"bash": true})));
        let copy = post(&format!("/session/{id}/fork"), json!({}))["id"].as_str().unwrap().to_owned();
        say(&copy, touch("free", json!({"bash": true})));
        assert!(!made.exists(), "{id}");
    }
    assert!(!made.exists());
    // It works where nothing denies it.
    say(&session(json!({})), touch("free", json!({})));
    assert!(made.exists());
}
