//! One session, live on OpenCode, ACP and A2A at the same time: what one says or decides, the others see.

use std::collections::VecDeque;
use std::io::Read as _;
use std::time::Instant;

use serde_json::{Value, json};
use testkit::WAIT;

use super::process::{Answer, TOKEN, begin, new_message, script, send};
use super::{both, events};
use crate::e2e::harness::{Harness, Reader};
use crate::e2e::serve::ServeProcess;

/// The extensions that these tests need: methods that show sessions, numbers of events, and interrupts.
const EXTENSIONS: &str = "urn:opencode-a2a:extension:session-management:v1,urn:opencode-a2a:extension:stream-hints:v1,\
    urn:opencode-a2a:extension:interactive-interrupt:v1,urn:opencode-a2a:extension:session-binding:v1";

/// The messages of an event stream.
struct Messages(Reader);

/// How much of what was passed over is shown when a wait fails.
const SHOWN: usize = 20;

impl Messages {
    /// The next message that is as it should be; others before it are passed over.
    #[track_caller]
    fn wait(&mut self, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        let (began, mut passed) = (Instant::now(), VecDeque::new());
        // Streams also show that they are alive, so that each line comes in time.
        while began.elapsed() < WAIT {
            let line = self.0.wait_for("\n");
            let Some(data) = line.trim().strip_prefix("data:") else { continue };
            let message: Value = serde_json::from_str(data).unwrap_or_else(|error| panic!("{error}: {line}"));
            if is(&message) {
                return message;
            }
            passed.push_back(message);
            passed.truncate(SHOWN);
        }
        panic!("timed out after {WAIT:?} waiting for:  {what}; what came instead: {passed:#?}");
    }
}

/// A session and its clients.
struct Faces {
    harness: Harness,
    serving: ServeProcess,
    session: String,
    opencode: Messages,
    /// The connection of the ACP client, and its streams.
    connection: String,
    acp_connection: Messages,
    acp: Messages,
}

impl Faces {
    /// A session of OpenCode that a client of ACP has loaded.
    fn new(config: Value) -> Self {
        let harness = Harness::new();
        harness.configure(config);
        let serving = both(&harness, &[]);
        let opencode = Messages(events(&serving.url));
        let session = send(&serving.url, "POST", "/session", &[], Some(&json!({}))).expect(200)["id"].take();
        let session = session.as_str().unwrap().to_owned();
        let connection = connect_acp(&serving.url);
        let stream = |headers: &[(&str, &str)]| {
            let stream = begin(&serving.url, "GET", "/acp", headers, None);
            Messages(Reader::new(move || stream))
        };
        let accept = ("accept", "text/event-stream");
        let of_connection = ("acp-connection-id", connection.as_str());
        let acp_connection = stream(&[accept, of_connection]);
        let acp = stream(&[accept, of_connection, ("acp-session-id", &session)]);
        let mut faces = Self { harness, serving, session, opencode, acp_connection, acp, connection };
        let cwd = faces.harness.project.directory();
        let params = json!({ "sessionId": faces.session, "cwd": cwd, "mcpServers": [] });
        faces.post_acp(&json!({ "jsonrpc": "2.0", "id": 1, "method": "session/load", "params": params }));
        let loaded = faces.acp_connection.wait("the session is loaded", |message| message["id"] == 1);
        assert!(loaded.get("error").is_none(), "{loaded:#}");
        faces
    }

    fn post_acp(&self, message: &Value) {
        let headers = [("acp-connection-id", self.connection.as_str()), ("acp-session-id", &self.session)];
        send(&self.serving.url, "POST", "/acp", &headers, Some(message)).expect(202);
    }

    /// Sends a request to OpenCode's API.
    fn opencode(&self, method: &str, path: &str, body: Option<&Value>) -> Answer {
        send(&self.serving.url, method, path, &[], body)
    }

    /// Sends a prompt of OpenCode, and returns when it is answered.
    fn prompt_opencode(&self, steps: &Value) {
        let body = json!({ "parts": [{ "type": "text", "text": script(steps) }] });
        self.opencode("POST", &format!("/session/{}/message", self.session), Some(&body)).expect(200);
    }

    /// Sends a prompt of ACP, and returns when it is answered.
    fn prompt_acp(&mut self, id: u64, steps: &Value) {
        let prompt = json!([{ "type": "text", "text": script(steps) }]);
        let params = json!({ "sessionId": self.session, "prompt": prompt });
        self.post_acp(&json!({ "jsonrpc": "2.0", "id": id, "method": "session/prompt", "params": params }));
        let end = self.acp.wait("the end of the prompt", |message| message["id"] == id && message["method"].is_null());
        assert_eq!(end["result"]["stopReason"], "end_turn", "{end:#}");
    }

    /// A path of the A2A service, with its credentials.
    fn a2a(&self) -> (String, String) {
        (format!("{}/a2a", self.serving.url), format!("Bearer {TOKEN}"))
    }

    /// Begins a task of A2A in the session; its stream.
    fn stream_a2a(&self, id: &str, steps: &Value) -> Messages {
        let (url, bearer) = self.a2a();
        let body = json!({ "message": new_message(id, &script(steps)),
            "metadata": { "shared": { "session": { "id": self.session } } } });
        let headers = [("authorization", bearer.as_str()), ("a2a-extensions", EXTENSIONS)];
        let stream = begin(&url, "POST", "/message:stream", &headers, Some(&body));
        Messages(Reader::new(move || stream))
    }

    /// Calls a method of A2A.
    #[track_caller]
    fn call_a2a(&self, method: &str, params: &Value) -> Value {
        let (url, bearer) = self.a2a();
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let headers = [("authorization", bearer.as_str()), ("a2a-extensions", EXTENSIONS)];
        let mut answer = send(&url, "POST", "", &headers, Some(&body)).expect(200);
        assert!(answer.get("error").is_none(), "{method}: {answer:#}");
        answer["result"].take()
    }

    /// OpenCode and ACP see this text of the agent.
    fn both_see(&mut self, text: &str) {
        self.opencode.wait(text, |event| says(event, text));
        self.acp.wait(text, |message| {
            let update = &message["params"]["update"];
            let chunk = update["content"]["text"].as_str().unwrap_or_default();
            update["sessionUpdate"] == "agent_message_chunk" && chunk.contains(text)
        });
    }
}

/// The id of a new connection of ACP.
fn connect_acp(url: &str) -> String {
    let params = json!({ "protocolVersion": 1, "clientCapabilities": {} });
    let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
    let mut answer = String::new();
    begin(url, "POST", "/acp", &[], Some(&hello)).read_to_string(&mut answer).unwrap();
    let mut headers = answer.lines().filter_map(|line| line.split_once(": "));
    let id = headers.find(|(name, _)| name.eq_ignore_ascii_case("acp-connection-id"));
    id.unwrap_or_else(|| panic!("no connection: {answer}")).1.to_owned()
}

/// Whether an event of OpenCode shows this text of the agent.
fn says(event: &Value, text: &str) -> bool {
    let payload = &event["payload"];
    payload["type"] == "message.part.updated" && payload["properties"]["part"]["text"] == text
}

/// Whether an event of A2A adds this text.
fn adds(event: &Value, text: &str) -> bool {
    let parts = event["artifactUpdate"]["artifact"]["parts"].as_array().cloned().unwrap_or_default();
    parts.iter().any(|part| part["text"].as_str().is_some_and(|added| added.contains(text)))
}

/// The interrupt of an event of A2A, if it has this phase.
fn interrupt(event: &Value, phase: &str) -> Option<String> {
    let interrupt = &event["statusUpdate"]["metadata"]["shared"]["interrupt"];
    (interrupt["phase"] == phase).then(|| interrupt["request_id"].as_str().unwrap().to_owned())
}

fn completes(event: &Value) -> bool {
    event["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
}

#[test]
fn a_prompt_of_each_face_is_seen_by_the_others() {
    let mut faces = Faces::new(json!({}));
    let mut task = faces.stream_a2a("m-1", &json!([{ "text": "by a2a" }]));
    task.wait("by a2a", |event| adds(event, "by a2a"));
    task.wait("the end of the task", completes);
    faces.both_see("by a2a");
    faces.prompt_opencode(&json!([{ "text": "by opencode" }]));
    faces.both_see("by opencode");
    faces.prompt_acp(2, &json!([{ "text": "by acp" }]));
    faces.opencode.wait("by acp", |event| says(event, "by acp"));
    // The service of A2A has no stream of what is not its task, and shows the session.
    let listed = faces.call_a2a("opencode.sessions.messages.list", &json!({ "session_id": faces.session }));
    for text in ["by a2a", "by opencode", "by acp"] {
        assert!(listed.to_string().contains(&format!("\"{text}\"")), "{text}: {listed:#}");
    }
    // And the other way round, the session has all prompts in their order.
    let messages = faces.opencode("GET", &format!("/session/{}/message", faces.session), None).expect(200);
    let texts = messages.as_array().unwrap().iter().flat_map(|message| message["parts"].as_array().unwrap());
    let texts: Vec<&str> = texts.filter_map(|part| part["text"].as_str()).filter(|it| it.starts_with("by ")).collect();
    assert_eq!(texts, ["by a2a", "by opencode", "by acp"]);
}

#[test]
fn a_prompt_of_another_face_joins_the_task_that_runs() {
    let mut faces = Faces::new(json!({}));
    let gate = faces.harness.project.path().join("gate");
    let mut task = faces.stream_a2a("m-1", &json!([{ "text": "by a2a", "hold": gate }]));
    task.wait("by a2a", |event| adds(event, "by a2a"));
    let body = json!({ "parts": [{ "type": "text", "text": script(&json!([{ "text": "by opencode" }])) }] });
    faces.opencode("POST", &format!("/session/{}/prompt_async", faces.session), Some(&body)).expect(204);
    faces.harness.project.write("gate", "");
    task.wait("by opencode", |event| adds(event, "by opencode"));
    task.wait("the end of the task", completes);
    faces.both_see("by opencode");
}

#[test]
fn what_a_task_asks_is_answered_on_any_face() {
    let mut faces = Faces::new(json!({ "permission": { "bash": "ask" } }));
    for (number, face) in ["opencode", "acp", "a2a"].into_iter().enumerate() {
        let file = format!("made-by-{face}");
        let call = json!(["bash", { "command": format!("touch {file}"), "description": "makes a file" }]);
        let steps = json!([{ "tools": [call] }, { "text": format!("after {face}") }]);
        let mut task = faces.stream_a2a(&format!("m-{number}"), &steps);
        let first = task.wait("the task", |event| !event["task"].is_null());
        let asked = task.wait("the request", |event| interrupt(event, "asked").is_some());
        assert_eq!(asked["statusUpdate"]["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{asked:#}");
        let request = interrupt(&asked, "asked").unwrap();
        let is_it = |event: &Value, kind: &str| {
            event["payload"]["type"] == kind && event["payload"]["properties"].to_string().contains(&request)
        };
        faces.opencode.wait("the request", |event| is_it(event, "permission.asked"));
        let editor = faces.acp.wait("the request", |message| message["method"] == "session/request_permission");
        assert!(!faces.harness.project.path().join(&file).exists(), "it was not allowed yet");
        match face {
            "opencode" => {
                let path = format!("/permission/{request}/reply");
                faces.opencode("POST", &path, Some(&json!({ "reply": "once" }))).expect(200);
            }
            "acp" => {
                let outcome = json!({ "outcome": { "outcome": "selected", "optionId": "once" } });
                faces.post_acp(&json!({ "jsonrpc": "2.0", "id": editor["id"], "result": outcome }));
            }
            _ => {
                let mut message = new_message("m-answer", "once");
                message["taskId"] = first["task"]["id"].clone();
                let sent = faces.call_a2a("SendMessage", &json!({ "message": message }));
                assert_eq!(sent["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{sent:#}");
            }
        }
        // Each face learns it, whoever has answered.
        faces.opencode.wait("the reply", |event| is_it(event, "permission.replied"));
        let resolved = task.wait("the reply", |event| interrupt(event, "resolved").is_some());
        assert_eq!(interrupt(&resolved, "resolved").unwrap(), request);
        if face != "acp" {
            // It names no session, and so comes in the stream of the connection.
            faces.acp_connection.wait("the withdrawal", |message| message["method"] == "$/cancel_request");
        }
        task.wait("the text after the call", |event| adds(event, &format!("after {face}")));
        task.wait("the end of the task", completes);
        faces.both_see(&format!("after {face}"));
        assert!(faces.harness.project.path().join(&file).exists(), "{face} has allowed it");
        assert_eq!(faces.opencode("GET", "/permission", None).expect(200), json!([]));
    }
}
