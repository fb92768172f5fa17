//! A model server that answers at once: the least that a benchmarked program has to wait for.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

/// A prompt `<this> N` is answered in N small pieces.
pub const DELTAS: &str = "deltas:";
/// A prompt `<this> N` is answered with N calls of the task tool, and their results with a word.
pub const TASKS: &str = "tasks:";
/// The largest request body.
const BODY: u64 = 64 * 1024 * 1024;

/// Serves on a port of its own until the process ends.
pub struct FakeModel {
    address: SocketAddr,
    /// Nanoseconds between requests and their answers.
    busy: Arc<AtomicU64>,
}

impl FakeModel {
    /// Starts it.
    pub fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let busy = Arc::new(AtomicU64::new(0));
        let total = busy.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let total = total.clone();
                // A client that hangs up is not a failure of the benchmark; the program's own exit code is.
                std::thread::spawn(move || serve(stream, &total).ok());
            }
        });
        Ok(Self { address, busy })
    }

    /// What goes into `baseURL`.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Milliseconds that it has spent on answers so far.
    pub fn busy(&self) -> f64 {
        self.busy.load(Ordering::Relaxed) as f64 / 1e6
    }
}

fn serve(mut stream: TcpStream, busy: &AtomicU64) -> Result<()> {
    stream.set_nodelay(true)?;
    let body = read(&mut BufReader::new(stream.try_clone()?))?;
    let start = Instant::now();
    let request: Value = serde_json::from_slice(&body)?;
    let mut answer = String::from("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n");
    let (deltas, reason) = deltas(&request);
    for delta in deltas {
        push(&mut answer, json!([{"index": 0, "delta": delta, "finish_reason": null}]), None);
    }
    push(&mut answer, json!([{"index": 0, "delta": {}, "finish_reason": reason}]), None);
    let usage = json!({"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120});
    push(&mut answer, json!([]), Some(usage));
    answer.push_str("data: [DONE]\n\n");
    busy.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
    stream.write_all(answer.as_bytes())?;
    Ok(())
}

fn push(answer: &mut String, choices: Value, usage: Option<Value>) {
    let chunk = json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "fake-model",
        "choices": choices, "usage": usage});
    answer.push_str(&format!("data: {chunk}\n\n"));
}

/// What to say or to call, from the last user message, and why the answer ends.
fn deltas(request: &Value) -> (Vec<Value>, &'static str) {
    let messages = request["messages"].as_array().map_or(&[][..], Vec::as_slice);
    let last =
        messages.iter().rev().find(|message| message["role"] == "user").map(|message| message["content"].to_string());
    // Titles are asked for without tools, with the same text.
    let has_tools = request["tools"].as_array().is_some_and(|tools| !tools.is_empty());
    let has_results = messages.last().is_some_and(|message| message["role"] == "tool");
    let wanted = |what: &str| {
        let (_, rest) = last.as_deref()?.split_once(what)?;
        let count = rest.trim_start().split(|c: char| !c.is_ascii_digit()).next()?.parse::<usize>().ok();
        count.filter(|_| has_tools && !has_results)
    };
    if let Some(count) = wanted(DELTAS) {
        return ((0..count).map(|index| json!({"content": format!("w{index} ")})).collect(), "stop");
    }
    if let Some(count) = wanted(TASKS) {
        return ((0..count).map(task).collect(), "tool_calls");
    }
    (vec![json!({"content": "Hello from the fake model"})], "stop")
}

/// A call of the task tool.
fn task(index: usize) -> Value {
    let input = json!({"description": format!("Task {index}"), "prompt": "say hello", "subagent_type": "general"});
    let function = json!({"name": "task", "arguments": input.to_string()});
    json!({"tool_calls": [{"index": index, "id": format!("call_{index}"), "type": "function", "function": function}]})
}

/// Reads a request; gives its body.
fn read(reader: &mut impl BufRead) -> Result<Vec<u8>> {
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
    Ok(body)
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
        let body = r#"{"messages": []}"#;
        write!(stream, "POST /v1/chat/completions HTTP/1.1\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("data: [DONE]\n\n"), "{answer}");
    }
}
