//! A model server that answers immediately, so that a benchmarked program waits as little as possible.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

/// A prompt `<this> N` is answered in N small pieces.
pub const DELTAS: &str = "deltas:";
/// A prompt `<this> N` is answered with N calls of the task tool, and their results with a word.
pub const TASKS: &str = "tasks:";
/// The answer to any other prompt.
const HELLO: &str = "Hello from the fake model";
/// The largest request body.
const BODY: u64 = 64 * 1024 * 1024;
/// A longer answer closes its connection, which shows when it was read.
const SHORT: usize = 10;
/// How long a client may take to read an answer.
const LONGEST: Duration = Duration::from_secs(120);

/// Serves on a port of its own until the process ends.
pub struct FakeModel {
    address: SocketAddr,
    work: Arc<Work>,
}

/// The counters so far.
#[derive(Default)]
struct Work {
    /// Nanoseconds between requests and their answers.
    busy: AtomicU64,
    /// Pieces of answers that clients have read to their end.
    taken: AtomicU64,
}

impl FakeModel {
    /// Starts it.
    pub fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let work = Arc::new(Work::default());
        let all = work.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let work = all.clone();
                // A client that hangs up is not a failure of the benchmark; the program's own exit code is.
                std::thread::spawn(move || serve(stream, &work).ok());
            }
        });
        Ok(Self { address, work })
    }

    /// The value for `baseURL`.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Milliseconds that it has spent on answers so far.
    pub fn busy(&self) -> f64 {
        self.work.busy.load(Ordering::Relaxed) as f64 / 1e6
    }

    /// How many pieces of answers were read to their end so far.
    pub fn taken(&self) -> u64 {
        self.work.taken.load(Ordering::Relaxed)
    }
}

fn serve(mut stream: TcpStream, work: &Work) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    // As providers do: the next request may come over the same connection.
    let pieces = loop {
        let Some((path, body)) = read(&mut reader)? else { return Ok(()) };
        let start = Instant::now();
        let request: Value = serde_json::from_slice(&body)?;
        let mut answer = String::new();
        let pieces =
            if path.ends_with("/responses") { respond(&request, &mut answer) } else { chat(&request, &mut answer) };
        let ends = pieces > SHORT;
        let rest = if ends { "connection: close".to_owned() } else { format!("content-length: {}", answer.len()) };
        answer.insert_str(0, &format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{rest}\r\n\r\n"));
        work.busy.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        stream.write_all(answer.as_bytes())?;
        if ends {
            break pieces;
        }
        work.taken.fetch_add(pieces as u64, Ordering::Relaxed);
    };
    // The system buffers megabytes for a client that reads nothing; only a client that hangs up has read everything.
    stream.shutdown(Shutdown::Write)?;
    stream.set_read_timeout(Some(LONGEST))?;
    while stream.read(&mut [0; 64])? > 0 {}
    work.taken.fetch_add(pieces as u64, Ordering::Relaxed);
    Ok(())
}

/// An answer in the format of chat completions. Returns the number of its pieces.
fn chat(request: &Value, answer: &mut String) -> usize {
    let (deltas, reason) = deltas(request);
    let pieces = deltas.len();
    for delta in deltas {
        push(answer, json!([{"index": 0, "delta": delta, "finish_reason": null}]), None);
    }
    push(answer, json!([{"index": 0, "delta": {}, "finish_reason": reason}]), None);
    let usage = json!({"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120});
    push(answer, json!([]), Some(usage));
    answer.push_str("data: [DONE]\n\n");
    pieces
}

/// The same in the format of responses, the only one that Codex supports. Text only.
fn respond(request: &Value, answer: &mut String) -> usize {
    let items = request["input"].as_array().map_or(&[][..], Vec::as_slice);
    let last = items.iter().rev().find(|item| item["role"] == "user").map(|item| item["content"].to_string());
    let pieces = words(last.as_deref()).unwrap_or_else(|| vec![HELLO.to_owned()]);
    let item = |content: Value| json!({"type": "message", "role": "assistant", "id": "msg_1", "content": content});
    let mut event = |kind: &str, mut fields: Value| {
        fields["type"] = json!(kind);
        answer.push_str(&format!("event: {kind}\ndata: {fields}\n\n"));
    };
    event("response.created", json!({"response": {"id": "resp_1"}}));
    event("response.output_item.added", json!({"item": item(json!([]))}));
    for piece in &pieces {
        event("response.output_text.delta", json!({"item_id": "msg_1", "delta": piece}));
    }
    let text = json!([{"type": "output_text", "text": pieces.concat()}]);
    event("response.output_item.done", json!({"item": item(text)}));
    let usage = json!({"input_tokens": 100, "output_tokens": 20, "total_tokens": 120});
    event("response.completed", json!({"response": {"id": "resp_1", "usage": usage}}));
    pieces.len()
}

fn push(answer: &mut String, choices: Value, usage: Option<Value>) {
    let chunk = json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "fake-model",
        "choices": choices, "usage": usage});
    answer.push_str(&format!("data: {chunk}\n\n"));
}

/// What to answer or call, from the last user message, and the finish reason.
fn deltas(request: &Value) -> (Vec<Value>, &'static str) {
    let messages = request["messages"].as_array().map_or(&[][..], Vec::as_slice);
    let last =
        messages.iter().rev().find(|message| message["role"] == "user").map(|message| message["content"].to_string());
    // A request for a title has the same text and no tools.
    let has_tools = request["tools"].as_array().is_some_and(|tools| !tools.is_empty());
    let has_results = messages.last().is_some_and(|message| message["role"] == "tool");
    let last = last.as_deref().filter(|_| has_tools && !has_results);
    if let Some(words) = words(last) {
        return (words.into_iter().map(|word| json!({"content": word})).collect(), "stop");
    }
    if let Some(count) = count(last, TASKS) {
        return ((0..count).map(task).collect(), "tool_calls");
    }
    (vec![json!({"content": HELLO})], "stop")
}

/// The pieces that a prompt asks for.
fn words(prompt: Option<&str>) -> Option<Vec<String>> {
    Some((0..count(prompt, DELTAS)?).map(|index| format!("w{index} ")).collect())
}

/// How many of something a prompt asks for.
pub fn count(prompt: Option<&str>, what: &str) -> Option<usize> {
    let (_, rest) = prompt?.split_once(what)?;
    rest.trim_start().split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// A call of the task tool.
fn task(index: usize) -> Value {
    let input = json!({"description": format!("Task {index}"), "prompt": "say hello", "subagent_type": "general"});
    let function = json!({"name": "task", "arguments": input.to_string()});
    json!({"tool_calls": [{"index": index, "id": format!("call_{index}"), "type": "function", "function": function}]})
}

/// Reads a request. Returns its path and body, or `None` if the connection ended.
fn read(reader: &mut impl BufRead) -> Result<Option<(String, Vec<u8>)>> {
    let mut first = String::new();
    if reader.read_line(&mut first)? == 0 {
        return Ok(None);
    }
    let path = first.split(' ').nth(1).context("not a request")?.to_owned();
    let mut length = None;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            bail!("the connection ended before the request");
        }
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = Some(value.trim().parse::<u64>()?);
        }
    }
    let length = length.context("a request without content-length")?;
    let mut body = Vec::new();
    reader.take(length.min(BODY)).read_to_end(&mut body)?;
    Ok(Some((path, body)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_prompt_decides_the_answer() {
        let ask = |text: &str| json!({"messages": [{"role": "user", "content": text}], "tools": [{}]});
        let (pieces, reason) = deltas(&ask("deltas: 3"));
        assert_eq!((pieces[2]["content"].as_str(), pieces.len(), reason), (Some("w2 "), 3, "stop"));
        assert_eq!(deltas(&ask("hello")).0.len(), 1);
        assert_eq!(deltas(&json!({"messages": [{"role": "user", "content": "deltas: 3"}]})).0.len(), 1);
        let mut request = ask("tasks: 2");
        let (calls, reason) = deltas(&request);
        assert_eq!((calls[1]["tool_calls"][0]["function"]["name"].as_str(), calls.len()), (Some("task"), 2));
        assert_eq!(reason, "tool_calls");
        request["messages"].as_array_mut().unwrap().push(json!({"role": "tool"}));
        assert_eq!(deltas(&request).1, "stop");
    }

    #[test]
    fn an_answer_is_a_stream() {
        let model = FakeModel::start().unwrap();
        let mut stream = TcpStream::connect(model.address).unwrap();
        let mut ask = |prompt: &str| {
            let body = json!({"messages": [{"role": "user", "content": prompt}], "tools": [{}]}).to_string();
            let head = format!("POST /v1/chat/completions HTTP/1.1\r\nContent-Length: {}\r\n\r\n", body.len());
            stream.write_all((head + &body).as_bytes()).unwrap();
        };
        // Two requests over one connection, which the long answer ends.
        ask("hello");
        ask("deltas: 50");
        let mut answers = String::new();
        stream.read_to_string(&mut answers).unwrap();
        assert!(answers.starts_with("HTTP/1.1 200") && answers.ends_with("data: [DONE]\n\n"), "{answers}");
        assert_eq!((answers.matches("[DONE]").count(), answers.contains("w49 ")), (2, true), "{answers}");
    }

    #[test]
    fn codex_is_answered_on_its_own_wire() {
        let mut answer = String::new();
        let prompt = json!([{"type": "input_text", "text": "deltas: 2"}]);
        let input = json!([{"role": "user", "content": "context"}, {"role": "user", "content": prompt}]);
        assert_eq!(respond(&json!({"input": input}), &mut answer), 2);
        assert!(answer.contains(r#""delta":"w1 ""#) && answer.contains(r#""text":"w0 w1 ""#), "{answer}");
    }
}
