//! A server of OpenCode's API, ours or its own: the same driver for both.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::agent::Agent;
use super::setup::Setup;

/// How long a server may take to answer for the first time.
pub const START: Duration = Duration::from_secs(60);
/// How long one request may take: a turn with a long answer.
pub const REQUEST: Duration = Duration::from_secs(120);
/// OpenCode's server never answers a request that arrives right after its start, so the first ones have a short timeout.
pub const FIRST_REQUEST: Duration = Duration::from_millis(500);

/// The status of an answer without a body.
const NO_CONTENT: u16 = 204;

/// A server. Ends when dropped.
pub struct Server {
    child: Child,
    address: SocketAddr,
    connection: Option<Connection>,
    /// Milliseconds from its start to its first answer.
    pub start: f64,
}

impl Server {
    /// Starts it, and waits until it answers.
    pub fn start(program: &Path, setup: &Setup) -> Result<Self> {
        Self::start_with(program, setup, |_| {})
    }

    /// The same, with a changed command.
    pub fn start_with(program: &Path, setup: &Setup, change: impl FnOnce(&mut Command)) -> Result<Self> {
        let address = SocketAddr::from(([127, 0, 0, 1], peer::free_port()?));
        let mut command = setup.command(program);
        command.args(["serve", "--hostname", "127.0.0.1", "--port", &address.port().to_string()]);
        command.stdout(Stdio::null()).stderr(File::create(setup.errors())?);
        change(&mut command);
        let begin = Instant::now();
        let mut server = Self { child: command.spawn()?, address, connection: None, start: 0.0 };
        while let Err(error) = Connection::open(address, FIRST_REQUEST).and_then(|mut c| c.get("/global/health")) {
            if begin.elapsed() > START {
                return Err(error.context(format!("the server did not answer within {START:?}")));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        server.start = begin.elapsed().as_secs_f64() * 1e3;
        Ok(server)
    }

    /// The same with one subscriber, like a terminal client.
    pub fn watched(program: &Path, setup: &Setup) -> Result<Self> {
        let server = Self::start(program, setup)?;
        server.subscribe(&Arc::default())?;
        Ok(server)
    }

    /// Adds a subscriber, which counts the events that it gets.
    pub fn subscribe(&self, events: &Arc<AtomicU64>) -> Result<()> {
        let mut stream = TcpStream::connect(self.address)?;
        write!(stream, "GET /event HTTP/1.1\r\nhost: {}\r\n\r\n", self.address)?;
        let mut lines = BufReader::with_capacity(1 << 16, stream);
        // After its first event it gets all that follow.
        read_line_with(&mut lines, "server.connected")?;
        let events = events.clone();
        // Ends with the server's connection.
        std::thread::Builder::new().stack_size(64 << 10).spawn(move || {
            let mut line = Vec::new();
            while lines.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
                if line.starts_with(b"data:") {
                    events.fetch_add(1, Ordering::Relaxed);
                }
                line.clear();
            }
        })?;
        Ok(())
    }

    /// A stream of events for the caller to read, from a cursor in the log or from now on.
    pub fn stream(&self, path: &str, after: Option<&str>) -> Result<Stream> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(REQUEST))?;
        let after = after.map(|id| format!("last-event-id: {id}\r\n")).unwrap_or_default();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: {}\r\n{after}\r\n", self.address)?;
        let mut lines = BufReader::with_capacity(1 << 16, stream);
        // After its first event it gets all that follow.
        read_line_with(&mut lines, "server.connected")?;
        Ok(Stream(lines))
    }

    /// Another connection, for concurrent requests.
    pub fn connect(&self) -> Result<Connection> {
        Connection::open(self.address, REQUEST)
    }

    /// The connection that stays open.
    pub fn connection(&mut self) -> Result<&mut Connection> {
        if self.connection.is_none() {
            self.connection = Some(self.connect()?);
        }
        self.connection.as_mut().context("just opened")
    }
}

impl Agent for Server {
    fn session(&mut self) -> Result<String> {
        self.connection()?.session()
    }

    fn turn(&mut self, session: &str, text: &str) -> Result<()> {
        self.connection()?.turn(session, text)
    }

    fn process(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A stream of events.
pub struct Stream(BufReader<TcpStream>);

impl Stream {
    /// The id of the next event that has one.
    pub fn id(&mut self) -> Result<String> {
        let mut line = String::new();
        while self.0.read_line(&mut line)? > 0 {
            if let Some(id) = line.strip_prefix("id:") {
                return Ok(id.trim().to_owned());
            }
            line.clear();
        }
        bail!("the stream ended")
    }
}

/// A connection that is reused, as clients do.
pub struct Connection {
    address: SocketAddr,
    stream: BufReader<TcpStream>,
    /// Further lines of each request's head.
    headers: String,
}

impl Connection {
    /// Connects. `longest` is how long an answer may keep it waiting.
    pub fn open(address: SocketAddr, longest: Duration) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(longest))?;
        Ok(Self { address, stream: BufReader::new(stream), headers: String::new() })
    }

    /// The same connection with these headers, each a line, in every request.
    pub fn with_headers(self, headers: String) -> Self {
        Self { headers, ..self }
    }

    /// Sends a GET request and parses the answer.
    pub fn get(&mut self, path: &str) -> Result<Value> {
        Ok(serde_json::from_slice(&self.load(path)?)?)
    }

    /// The same without parsing, which for a long answer takes longer than receiving it.
    pub fn load(&mut self, path: &str) -> Result<Vec<u8>> {
        self.send("GET", path, None)
    }

    /// Sends a POST request.
    pub fn post(&mut self, path: &str, body: &Value) -> Result<Value> {
        Ok(serde_json::from_slice(&self.send("POST", path, Some(body))?)?)
    }

    /// Creates a session. Returns its id.
    pub fn session(&mut self) -> Result<String> {
        // With a title, so that the model is not asked for one.
        self.create(&json!({"title": "bench"}))
    }

    /// Creates a child session. Returns its id.
    pub fn child(&mut self, parent: &str) -> Result<String> {
        self.create(&json!({"title": "bench", "parentID": parent}))
    }

    fn create(&mut self, body: &Value) -> Result<String> {
        let session = self.post("/session", body)?;
        session["id"].as_str().map(str::to_owned).with_context(|| format!("a session without id: {session}"))
    }

    /// Sends a prompt, and does not wait for the turn.
    pub fn begin(&mut self, session: &str, text: &str) -> Result<()> {
        self.send("POST", &format!("/session/{session}/prompt_async"), Some(&prompt(text))).map(drop)
    }

    /// Sends a prompt and waits for the end of the turn.
    pub fn turn(&mut self, session: &str, text: &str) -> Result<()> {
        let answer = self.post(&format!("/session/{session}/message"), &prompt(text))?;
        let parts = answer["parts"].as_array().into_iter().flatten();
        if !parts.into_iter().any(|part| part["type"] == "text") {
            bail!("the turn had no answer: {answer}");
        }
        Ok(())
    }

    /// Sends a request. Returns the answer, whatever its status.
    pub fn request(&mut self, method: &str, path: &str, body: Option<&Value>) -> Result<(u16, Vec<u8>)> {
        self.write(method, path, body)?;
        answer(&mut self.stream, Instant::now() + REQUEST)
    }

    /// Sends a request, and does not wait for the answer.
    pub fn write(&mut self, method: &str, path: &str, body: Option<&Value>) -> Result<()> {
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let head = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\n{}", self.address, self.headers);
        let content = format!("content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        Ok(self.stream.get_mut().write_all((head + &content).as_bytes())?)
    }

    fn send(&mut self, method: &str, path: &str, body: Option<&Value>) -> Result<Vec<u8>> {
        let (status, body) = self.request(method, path, body)?;
        if !(200..300).contains(&status) {
            bail!("{method} {path}: {status} {}", String::from_utf8_lossy(&body));
        }
        Ok(body)
    }
}

fn prompt(text: &str) -> Value {
    json!({"parts": [{"type": "text", "text": text}]})
}

fn read_line_with(reader: &mut impl BufRead, wanted: &str) -> Result<()> {
    let mut line = String::new();
    while reader.read_line(&mut line)? > 0 {
        if line.contains(wanted) {
            return Ok(());
        }
        line.clear();
    }
    bail!("the stream ended before {wanted:?}")
}

/// Reads one answer: its status and its body, with a content length or in chunks. A server without an answer yet sends
/// blanks, so the timeout covers the whole answer.
fn answer(reader: &mut impl BufRead, until: Instant) -> Result<(u16, Vec<u8>)> {
    let mut line = String::new();
    let mut next = |reader: &mut dyn BufRead| -> Result<String> {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            bail!("the connection ended");
        }
        Ok(line.trim_end().to_ascii_lowercase())
    };
    let status = next(reader)?.split(' ').nth(1).and_then(|code| code.parse().ok()).context("not HTTP")?;
    let mut length = None;
    loop {
        let header = next(reader)?;
        if header.is_empty() {
            break;
        }
        if let Some(value) = header.strip_prefix("content-length:") {
            length = Some(value.trim().parse::<usize>()?);
        }
    }
    let mut body = Vec::new();
    if status == NO_CONTENT {
        return Ok((status, body));
    }
    if let Some(length) = length {
        body.resize(length, 0);
        reader.read_exact(&mut body)?;
        return Ok((status, body));
    }
    loop {
        if Instant::now() > until {
            bail!("the answer began but had not ended after {REQUEST:?}");
        }
        let size = usize::from_str_radix(next(reader)?.split(';').next().unwrap_or_default(), 16)?;
        let begin = body.len();
        body.resize(begin + size, 0);
        reader.read_exact(&mut body[begin..])?;
        next(reader)?;
        if size == 0 {
            return Ok((status, body));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_by_length_and_by_chunk() {
        let mut both =
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 404 No\r\ntransfer-encoding: chunked\r\n\r\n\
                        3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n"
                .as_bytes();
        let later = Instant::now() + REQUEST;
        assert_eq!(answer(&mut both, later).unwrap(), (200, b"ok".to_vec()));
        assert_eq!(answer(&mut both, later).unwrap(), (404, b"abcd".to_vec()));
        assert!(answer(&mut both, later).is_err());
        let mut slow = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\n \r\n".as_bytes();
        assert!(answer(&mut slow, Instant::now()).unwrap_err().to_string().contains("had not ended"));
    }
}
