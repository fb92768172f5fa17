//! An A2A service whose process is killed, a client that does not give up, and a webhook that outlives both.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::ChildStdout;
use std::sync::{Arc, Mutex};

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::{TempProject, WAIT, on_thread};

use crate::e2e::a2a::process::{TOKEN, new_message};
use crate::e2e::harness::{Harness, Program, RunResult, finish, signal, spawn};

/// What a command of the agent leaves behind each time that it runs.
const EFFECTS: &str = "effects";

/// A project, and what survives the service.
pub struct Lab {
    pub harness: Harness,
}

/// A running service.
pub struct Service {
    program: Program,
    url: String,
    /// Stays open: the service may print more.
    _stdout: BufReader<ChildStdout>,
}

/// The service was killed before it had answered.
pub struct Killed;

/// What a client gets from a service that may be killed at any moment.
pub type Told<T = Value> = Result<T, Killed>;

impl Lab {
    /// A project whose service has a configuration.
    pub fn new(config: Value) -> Self {
        let harness = Harness { project: TempProject::without_git() };
        harness.configure(config);
        Self { harness }
    }

    /// A tool call that leaves a trace.
    pub fn effect(&self) -> Value {
        json!(["bash", { "command": format!("echo ran >> {EFFECTS}"), "description": "leaves a trace" }])
    }

    /// How often that call ran.
    pub fn effects(&self) -> usize {
        let traces = std::fs::read_to_string(self.harness.project.path().join(EFFECTS));
        traces.map_or(0, |text| text.lines().count())
    }

    /// A file that a script can wait for.
    pub fn gate(&self) -> PathBuf {
        self.harness.project.path().join("gate")
    }

    /// Lets scripts go on.
    pub fn open_gate(&self) {
        self.harness.project.write("gate", "");
    }

    /// Where the service keeps everything.
    pub fn data(&self) -> PathBuf {
        self.harness.project.home().join(".local/share/trefoil")
    }

    /// Starts the service; it kills itself right after its n-th commit.
    pub fn start(&self, crash_after: Option<u64>) -> Told<Service> {
        let mut command = self.harness.command(&["a2a", "--port", "0"]);
        command.env("A2A_BEARER_TOKEN", TOKEN).env("A2A_PUSH_ALLOW_PRIVATE_HOSTS", "true");
        command.envs(crash_after.map(|number| ("TREFOIL_CRASH_AFTER", number.to_string())));
        let mut program = spawn(command);
        let mut stdout = BufReader::new(program.stdout.take().unwrap());
        let (line, stdout) = on_thread("the service listens, or is killed", move || {
            let mut line = String::new();
            let _ = stdout.read_line(&mut line).unwrap();
            (line, stdout)
        });
        let url = line.trim().strip_prefix("a2a service listening on http://");
        let Some(url) = url.map(str::to_owned) else {
            let ran = finish(program);
            assert!(ran.code == -1 && crash_after.is_some(), "it does not start: {} {}", ran.stdout, ran.stderr);
            return Err(Killed);
        };
        Ok(Service { program, url, _stdout: stdout })
    }

    /// Starts the service and leaves it alone.
    pub fn start_undisturbed(&self) -> Service {
        self.start(None).unwrap_or_else(|Killed| panic!("nobody kills it"))
    }
}

impl Service {
    /// Kills it.
    pub fn kill(self) {
        signal(self.program.id(), Signal::KILL);
        finish(self.program);
    }

    /// Stops it, unless it is dead already. Returns whether it was killed.
    pub fn stop(self) -> bool {
        signal(self.program.id(), Signal::TERM);
        self.was_killed()
    }

    /// Waits for its end: it was killed, or has stopped as it should.
    pub fn was_killed(self) -> bool {
        let RunResult { code, stderr, .. } = finish(self.program);
        assert!(code == 0 || code == -1, "it ended with {code}: {stderr}");
        code == -1
    }

    /// Calls a method of JSON-RPC; the result, or the error.
    pub fn try_call(&self, method: &str, params: &Value) -> Told<Result<Value, Value>> {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
        let head = format!(
            "POST / HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {TOKEN}\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n",
            self.url,
            body.len()
        );
        let exchange = || {
            let mut stream = TcpStream::connect(&self.url)?;
            stream.set_read_timeout(Some(WAIT))?;
            stream.write_all(format!("{head}{body}").as_bytes())?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok::<_, std::io::Error>(answer)
        };
        let answer = match exchange() {
            Ok(answer) => answer,
            Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("{method} is not answered: {params:#}"),
            Err(_) => return Err(Killed),
        };
        let Some((_, body)) = answer.split_once("\r\n\r\n") else { return Err(Killed) };
        let Ok(mut body) = serde_json::from_str::<Value>(body) else { return Err(Killed) };
        Ok(match body.get_mut("error") {
            Some(error) => Err(error.take()),
            None => Ok(body["result"].take()),
        })
    }

    /// Likewise, where an error is a fault.
    #[track_caller]
    pub fn call(&self, method: &str, params: Value) -> Told {
        Ok(self.try_call(method, &params)?.unwrap_or_else(|error| panic!("{method} {params:#}: {error:#}")))
    }

    /// Sends a message; the task as it is right then.
    #[track_caller]
    pub fn begin(&self, message: &Value) -> Told {
        self.send_with(message, json!({ "returnImmediately": true }))
    }

    /// Sends a message with a configuration.
    #[track_caller]
    pub fn send_with(&self, message: &Value, configuration: Value) -> Told {
        Ok(self.call("SendMessage", json!({ "message": message, "configuration": configuration }))?["task"].take())
    }

    /// A task.
    #[track_caller]
    pub fn get(&self, id: &Value) -> Told {
        self.call("GetTask", json!({ "id": id }))
    }

    /// All tasks.
    pub fn list(&self) -> Told<Vec<Value>> {
        let mut page = self.call("ListTasks", json!({ "pageSize": 100 }))?;
        match page["tasks"].take() {
            Value::Array(tasks) => Ok(tasks),
            other => panic!("no tasks: {other}"),
        }
    }

    /// Looks at a task until it is as it should be.
    #[track_caller]
    pub fn wait(&self, id: &Value, what: &str, is: impl Fn(&Value) -> bool) -> Told {
        let mut last = Err(Killed);
        testkit::until(what, || {
            last = self.get(id);
            last.as_ref().map_or(true, &is)
        });
        last
    }
}

/// A message to a task.
pub fn reply(id: &str, text: &str, task: &Value) -> Value {
    let mut message = new_message(id, text);
    message["taskId"] = task["id"].clone();
    message
}

/// The state of a task.
pub fn state(task: &Value) -> &str {
    task["status"]["state"].as_str().unwrap_or_else(|| panic!("no state: {task:#}"))
}

/// Whether a task has ended.
pub fn is_over(task: &Value) -> bool {
    ["TASK_STATE_COMPLETED", "TASK_STATE_CANCELED", "TASK_STATE_FAILED", "TASK_STATE_REJECTED"].contains(&state(task))
}

/// What a webhook has got, in order.
#[derive(Clone, Default)]
pub struct Webhook {
    got: Arc<Mutex<Vec<Value>>>,
    url: String,
}

impl Webhook {
    /// A webhook on this machine. It lives as long as the test.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let webhook = Self { got: Arc::default(), url };
        let got = webhook.got.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                // Whoever was killed while it sent has sent nothing.
                if let Some(body) = take(stream) {
                    got.lock().unwrap().push(body);
                }
            }
        });
        webhook
    }

    /// It as a configuration.
    pub fn config(&self) -> Value {
        json!({ "taskPushNotificationConfig": { "url": self.url, "id": "hook" } })
    }

    /// The numbers of the events that it got. Only the first event of a task may lack its number.
    pub fn numbers(&self) -> Vec<u64> {
        let number = |body: &Value| {
            let (_, update) = body.as_object().unwrap().iter().next().unwrap();
            let place = update.get("artifact").unwrap_or(update);
            place["metadata"]["shared"]["stream"]["sequence"].as_u64().unwrap_or(1)
        };
        self.got.lock().unwrap().iter().map(number).collect()
    }

    /// Whether it was told that the task has ended.
    pub fn is_over(&self) -> bool {
        let is_end = |body: &Value| body.get("statusUpdate").is_some_and(is_over);
        self.got.lock().unwrap().last().is_some_and(is_end)
    }

    /// What it got, to be shown.
    pub fn bodies(&self) -> Vec<Value> {
        self.got.lock().unwrap().clone()
    }
}

/// Takes a notification, whole or not at all.
fn take(mut stream: TcpStream) -> Option<Value> {
    stream.set_read_timeout(Some(WAIT)).ok()?;
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).ok()?.to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok())?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    let body = serde_json::from_slice(&body).ok()?;
    // Noted even if the sender is gone by now.
    let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
    Some(body)
}
