//! A server with as much of OpenCode's API as an A2A service in front of it uses. It answers at once, or as slowly as a
//! prompt asks for, and tells each turn on its event streams as OpenCode does.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::broadcast;
use tokio::time::sleep;

use super::super::model::count;

/// A prompt `<this> N` is answered in N pieces, with a pause before each.
pub const PIECES: &str = "pieces:";
/// A prompt with `<this> N` is answered N milliseconds later.
pub const HOLD: &str = "hold:";
/// The time until a turn with pieces begins to tell, as a model needs it.
const BEGIN: Duration = Duration::from_millis(40);
/// The pause before each piece.
const PAUSE: Duration = Duration::from_millis(5);
/// How many events may wait for the slowest subscriber; it is cut after that.
const BACKLOG: usize = 1 << 16;
/// How many bytes of events are written together.
const WRITE_BYTES: usize = 1 << 16;
/// The largest body of a request.
const BODY: usize = 1 << 20;

/// Serves on a port of its own until it is dropped.
pub struct FakeOpenCode {
    address: SocketAddr,
    /// `None` once it was dropped.
    runtime: Option<Runtime>,
}

struct Shared {
    /// Where all sessions work.
    directory: String,
    last_number: AtomicU64,
    events: broadcast::Sender<Arc<Event>>,
}

/// An event as the stream of one directory has it, and that of all.
struct Event {
    of_directory: String,
    of_all: String,
}

impl FakeOpenCode {
    /// Starts it.
    pub fn start(directory: &str) -> Result<Self> {
        // A second thread would take the processor from what is measured.
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let address = listener.local_addr()?;
        let (events, _) = broadcast::channel(BACKLOG);
        let shared = Arc::new(Shared { directory: directory.to_owned(), last_number: AtomicU64::new(0), events });
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = shared.clone();
                // Who hangs up has what it wanted; what is missing is seen by who measures.
                tokio::spawn(async move { shared.serve(stream).await.ok() });
            }
        });
        Ok(Self { address, runtime: Some(runtime) })
    }

    /// Its base URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for FakeOpenCode {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Shared {
    async fn serve(&self, stream: TcpStream) -> Result<()> {
        stream.set_nodelay(true)?;
        let (reader, mut writer) = stream.into_split();
        let mut reader = BufReader::new(reader);
        while let Some((method, path, body)) = read(&mut reader).await? {
            let path = path.split('?').next().unwrap_or_default();
            let steps: Vec<&str> = path.split('/').filter(|step| !step.is_empty()).collect();
            let answer = match (method.as_str(), &steps[..]) {
                ("GET", ["event"]) => return self.feed(writer, |event| &event.of_directory).await,
                ("GET", ["global", "event"]) => return self.feed(writer, |event| &event.of_all).await,
                ("GET", ["global", "health"]) => json!({"healthy": true, "version": "1.18.19"}),
                ("POST", ["session"]) => self.session(&self.id("ses")),
                ("GET", ["session", "status"]) => json!({}),
                ("GET", ["session", id]) => self.session(id),
                ("POST", ["session", id, "message"]) => self.turn(id, &serde_json::from_slice(&body)?).await,
                ("GET", ["session", _, "message" | "children"] | ["permission"] | ["question"]) => json!([]),
                ("POST", ["session", _, "abort"]) => json!(true),
                _ => Value::Null,
            };
            let (status, text) = match answer {
                Value::Null => ("404 Not Found", json!({"name": "NotFoundError", "data": {"message": path}})),
                answer => ("200 OK", answer),
            };
            let text = text.to_string();
            let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}", text.len());
            writer.write_all(format!("{head}\r\n\r\n{text}").as_bytes()).await?;
        }
        Ok(())
    }

    /// Writes the events from now on.
    async fn feed(&self, mut writer: OwnedWriteHalf, form: impl Fn(&Event) -> &str) -> Result<()> {
        let mut events = self.events.subscribe();
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
        let first = self.event("server.connected", json!({}));
        writer.write_all(format!("{head}{}", form(&first)).as_bytes()).await?;
        loop {
            let mut text = form(&*events.recv().await?).to_owned();
            while text.len() < WRITE_BYTES
                && let Ok(event) = events.try_recv()
            {
                text.push_str(form(&event));
            }
            writer.write_all(text.as_bytes()).await?;
        }
    }

    fn id(&self, kind: &str) -> String {
        format!("{kind}_{:026}", self.last_number.fetch_add(1, Ordering::Relaxed))
    }

    fn event(&self, kind: &str, properties: Value) -> Event {
        let event = json!({"id": self.id("evt"), "type": kind, "properties": properties});
        let of_all = json!({"directory": self.directory, "project": "bench", "payload": event});
        Event { of_directory: format!("data: {event}\n\n"), of_all: format!("data: {of_all}\n\n") }
    }

    fn tell(&self, kind: &str, properties: Value) {
        // Without a subscriber nobody misses it.
        let _ = self.events.send(Arc::new(self.event(kind, properties)));
    }

    fn session(&self, id: &str) -> Value {
        json!({
            "id": id, "slug": "calm-fox", "version": "1.18.19", "projectID": "bench", "directory": self.directory,
            "title": "Bench", "time": {"created": now(), "updated": now()},
        })
    }

    /// Plays a turn. Returns its answer.
    async fn turn(&self, session: &str, body: &Value) -> Value {
        let texts = body["parts"].as_array().into_iter().flatten().filter_map(|part| part["text"].as_str());
        let text: String = texts.collect();
        let user_id = body["messageID"].as_str().map_or_else(|| self.id("msg"), str::to_owned);
        let id = self.id("msg");
        let user = json!({
            "id": user_id, "sessionID": session, "role": "user", "time": {"created": now()}, "agent": "build",
            "model": {"providerID": "fake", "modelID": "fake-model"},
        });
        let mut answer = json!({
            "id": id, "sessionID": session, "role": "assistant", "time": {"created": now()}, "parentID": user_id,
            "modelID": "fake-model", "providerID": "fake", "mode": "build", "agent": "build", "cost": 0.001,
            "path": {"cwd": self.directory, "root": self.directory},
            "tokens": {"total": 42, "input": 30, "output": 12, "reasoning": 0, "cache": {"read": 0, "write": 0}},
        });
        let part = |id: &str, message: &str, mut fields: Value| {
            (fields["id"], fields["sessionID"], fields["messageID"]) = (json!(id), json!(session), json!(message));
            fields
        };
        let tell_part = |part: &Value| {
            self.tell("message.part.updated", json!({"sessionID": session, "part": part, "time": now()}))
        };
        let status = |kind: &str| self.tell("session.status", json!({"sessionID": session, "status": {"type": kind}}));
        status("busy");
        let pieces = count(Some(&text), PIECES);
        if pieces.is_some() {
            sleep(BEGIN).await;
        }
        self.tell("message.updated", json!({"sessionID": session, "info": user}));
        tell_part(&part(&self.id("prt"), &user_id, json!({"type": "text", "text": text})));
        self.tell("message.updated", json!({"sessionID": session, "info": answer}));
        let begin = part(&self.id("prt"), &id, json!({"type": "step-start"}));
        tell_part(&begin);
        if let Some(hold) = count(Some(&text), HOLD) {
            sleep(Duration::from_millis(hold as u64)).await;
        }
        let text_id = self.id("prt");
        tell_part(&part(&text_id, &id, json!({"type": "text", "text": "", "time": {"start": now()}})));
        let mut written = String::new();
        for index in 0..pieces.unwrap_or(1) {
            if pieces.is_some() {
                sleep(PAUSE).await;
            }
            let delta = format!("Piece {index}. ");
            written.push_str(&delta);
            let delta =
                json!({"sessionID": session, "messageID": id, "partID": text_id, "field": "text", "delta": delta});
            self.tell("message.part.delta", delta);
        }
        let time = json!({"start": now(), "end": now()});
        let words = part(&text_id, &id, json!({"type": "text", "text": written, "time": time}));
        tell_part(&words);
        let tokens = answer["tokens"].clone();
        let end = json!({"type": "step-finish", "reason": "stop", "cost": 0.001, "tokens": tokens});
        let end = part(&self.id("prt"), &id, end);
        tell_part(&end);
        answer["time"]["completed"] = json!(now());
        answer["finish"] = json!("stop");
        self.tell("message.updated", json!({"sessionID": session, "info": answer}));
        status("idle");
        self.tell("session.idle", json!({"sessionID": session}));
        json!({"info": answer, "parts": [begin, words, end]})
    }
}

/// Milliseconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64)
}

/// Reads a request: its method, its path and its body. `None` if the connection ended.
async fn read(reader: &mut BufReader<OwnedReadHalf>) -> Result<Option<(String, String, Vec<u8>)>> {
    let mut line = String::new();
    if reader.read_line(&mut line).await? == 0 {
        return Ok(None);
    }
    let mut words = line.split(' ').map(str::to_owned);
    let (method, path) = words.next().zip(words.next()).context("not a request")?;
    let mut length = 0;
    loop {
        line.clear();
        if reader.read_line(&mut line).await? == 0 {
            bail!("the connection ended before the request");
        }
        let header = line.trim_end().to_ascii_lowercase();
        if header.is_empty() {
            break;
        }
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse::<usize>()?;
        }
    }
    let mut body = vec![0; length.min(BODY)];
    reader.read_exact(&mut body).await?;
    Ok(Some((method, path, body)))
}
