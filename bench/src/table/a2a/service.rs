//! A program that speaks A2A in front of OpenCode: ours or opencode-a2a, with the same driver, which speaks version 1.0 of
//! the protocol and its HTTP binding.

use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::super::server::{Connection, FIRST_REQUEST, REQUEST, START};
use super::super::setup::Setup;

/// The only client, and its token.
pub const IDENTITY: &str = "bench";
const TOKEN: &str = "token-of-the-bench";
/// What clients ask for first, without credentials.
const CARD: &str = "/.well-known/agent-card.json";
/// The state of a task that has done what it was asked for.
pub const COMPLETED: &str = "TASK_STATE_COMPLETED";

/// A program.
#[derive(Clone, Copy)]
pub enum Program<'a> {
    /// Ours.
    Trefoil(&'a Path),
    /// opencode-a2a.
    OpencodeA2a(&'a Path),
}

/// A service that runs. Ends when dropped.
pub struct Service {
    child: Child,
    address: SocketAddr,
    /// Milliseconds from its start to its first answer.
    pub start: f64,
}

impl Service {
    /// Starts a program in front of an OpenCode server, or ours on its own engine, and waits until it answers.
    pub fn start(program: Program<'_>, setup: &Setup, upstream: Option<&str>) -> Result<Self> {
        let address = SocketAddr::from(([127, 0, 0, 1], peer::free_port()?));
        let port = address.port().to_string();
        let mut command = match program {
            Program::Trefoil(path) => {
                let mut command = setup.command(path);
                command.args(["a2a", "--port", &port]);
                command
            }
            Program::OpencodeA2a(path) => {
                let mut command = setup.command(path);
                command.arg("serve").env("A2A_PORT", &port).env("A2A_PUBLIC_URL", format!("http://{address}"));
                command.env("A2A_RATE_LIMIT_ENABLED", "false").env("OPENCODE_WORKSPACE_ROOT", setup.project());
                let database = format!("sqlite+aiosqlite:///{}", setup.project().join("tasks.db").display());
                command.env("A2A_TASK_STORE_DATABASE_URL", database);
                command
            }
        };
        accept_bench(&mut command);
        if let Some(url) = upstream {
            command.env("OPENCODE_BASE_URL", url);
        }
        command.stdout(Stdio::null()).stderr(File::create(setup.errors())?);
        let begin = Instant::now();
        let mut service = Self { child: command.spawn()?, address, start: 0.0 };
        let first = || Connection::open(address, FIRST_REQUEST).and_then(|mut connection| connection.load(CARD));
        while let Err(error) = first() {
            if begin.elapsed() > START {
                let errors = std::fs::read_to_string(setup.errors()).unwrap_or_default();
                return Err(error.context(format!("the service did not answer within {START:?}: {errors}")));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        service.start = begin.elapsed().as_secs_f64() * 1e3;
        Ok(service)
    }

    /// A connection.
    pub fn connect(&self) -> Result<Client> {
        Ok(Client::new(Connection::open(self.address, REQUEST)?, ""))
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The process to measure.
    pub fn process(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Makes a service accept the token of [`headers`].
pub fn accept_bench(command: &mut Command) {
    let credentials = json!([{"scheme": "bearer", "token": TOKEN, "principal": IDENTITY}]);
    command.env("A2A_STATIC_AUTH_CREDENTIALS", credentials.to_string());
}

/// The headers of every request.
pub fn headers() -> String {
    format!("authorization: Bearer {TOKEN}\r\na2a-version: 1.0\r\n")
}

/// The body of a message with an id of its own.
pub fn message(text: &str, context: Option<&str>) -> Value {
    static SENT: AtomicU64 = AtomicU64::new(0);
    let id = format!("message-{}-{}", std::process::id(), SENT.fetch_add(1, Ordering::Relaxed));
    let mut message = json!({"messageId": id, "role": "ROLE_USER", "parts": [{"text": text}]});
    if let Some(context) = context {
        message["contextId"] = json!(context);
    }
    json!({"message": message})
}

/// A client with a connection.
pub struct Client {
    connection: Connection,
    /// Where the service is below the address.
    base: &'static str,
}

impl Client {
    /// A client of a service at this path.
    pub fn new(connection: Connection, base: &'static str) -> Self {
        Self { connection: connection.with_headers(headers()), base }
    }

    /// Sends a message and waits for the end of its task. Returns the task.
    pub fn send(&mut self, text: &str, context: Option<&str>) -> Result<Value> {
        let mut sent = self.connection.post(&format!("{}/message:send", self.base), &message(text, context))?;
        let task = sent["task"].take();
        if task["status"]["state"] != COMPLETED {
            bail!("the task should have been completed: {task}");
        }
        Ok(task)
    }

    /// Sends a message. Returns the id of its task.
    pub fn task(&mut self, text: &str) -> Result<String> {
        let task = self.send(text, None)?;
        task["id"].as_str().map(str::to_owned).context("a task has an id")
    }

    /// Reads something.
    pub fn load(&mut self, path: &str) -> Result<Vec<u8>> {
        self.connection.load(&format!("{}{path}", self.base))
    }
}
