//! Model servers on this machine: a quick look at the usual ports.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::{Finding, Level};
use crate::term::{one_line, plural};

/// How long a server may take to answer, in all.
const WAIT: Duration = Duration::from_millis(150);
/// The most that is read of an answer.
const MAX_ANSWER: usize = 256 << 10;
/// How many models are named.
const MAX_MODELS: usize = 5;

const SERVERS: [(&str, u16); 3] = [("Ollama", 11434), ("llama-server", 8080), ("LM Studio", 1234)];

/// Looks at all of them at once.
pub fn probe() -> Vec<Finding> {
    let threads = SERVERS.map(|(name, port)| std::thread::spawn(move || look(name, port)));
    let found: Vec<Finding> = threads.into_iter().filter_map(|thread| thread.join().ok().flatten()).collect();
    if !found.is_empty() {
        return found;
    }
    let looked: Vec<String> = SERVERS.iter().map(|(name, port)| format!("{name} (port {port})")).collect();
    vec![Finding::new("local server", Level::Note, format!("none answers: {}", looked.join(", ")))]
}

fn look(name: &str, port: u16) -> Option<Finding> {
    let models = models(&ask(port)?)?;
    let base = format!("http://127.0.0.1:{port}/v1");
    let shown = models.iter().take(MAX_MODELS).map(|id| one_line(id, 60)).collect::<Vec<_>>().join(", ");
    let more = if models.len() > MAX_MODELS { " …" } else { "" };
    let finding = Finding::new(
        "local server",
        Level::Ok,
        format!("{name} at {base}: {}: {shown}{more}", plural(models.len(), "model")),
    );
    Some(match models.first() {
        Some(first) => {
            finding.advice(format!("use it with OPENAI_BASE_URL={base} OPENAI_MODEL={}", one_line(first, 60)))
        }
        None => finding.advice("load a model there first"),
    })
}

fn ask(port: u16) -> Option<Vec<u8>> {
    let deadline = Instant::now() + WAIT;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, WAIT).ok()?;
    stream.set_write_timeout(Some(WAIT)).ok()?;
    let request = format!("GET /v1/models HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\nAccept: application/json\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = Vec::new();
    let mut buffer = [0; 8192];
    while answer.len() < MAX_ANSWER {
        let left = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
        stream.set_read_timeout(Some(left)).ok()?;
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => answer.extend_from_slice(&buffer[..read]),
            Err(_) => return None,
        }
    }
    Some(answer)
}

/// The models of an answer; nothing if it is not one of a model server.
fn models(answer: &[u8]) -> Option<Vec<String>> {
    let text = String::from_utf8_lossy(answer);
    let (head, body) = text.split_once("\r\n\r\n")?;
    if head.split_whitespace().nth(1) != Some("200") {
        return None;
    }
    // A chunked body has lengths around the JSON: take what is between the outer braces.
    let json = body.get(body.find('{')?..=body.rfind('}')?)?;
    let value: serde_json::Value = serde_json::from_str(json).ok()?;
    let list = value.get("data")?.as_array()?;
    Some(list.iter().filter_map(|model| Some(model.get("id")?.as_str()?.to_string())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn answers_are_understood() {
        let answer = b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n{\"data\":[{\"id\":\"llama\"},{\"id\":\"qwen\"}]}";
        assert_eq!(models(answer).unwrap(), ["llama", "qwen"]);
        for other in ["", "HTTP/1.1 404 No\r\n\r\n{\"data\":[]}", "HTTP/1.1 200 OK\r\n\r\n<html>", "SSH-2.0-x\r\n\r\n"]
        {
            assert_eq!(models(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn a_server_is_found_and_a_silent_one_does_not_hold_us_up() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = server.local_addr().unwrap().port();
        let began = Instant::now();
        assert_eq!(look("X", port), None, "it accepts, and says nothing");
        assert!(began.elapsed() < 100 * WAIT, "{:?}", began.elapsed());
        std::thread::spawn(move || {
            let answer = b"HTTP/1.0 200 OK\r\n\r\n{\"data\":[{\"id\":\"m\"}]}";
            // The first connection is the one that was given up above.
            for mut stream in server.incoming().flatten() {
                let _ = stream.read(&mut [0; 4096]).and_then(|_| stream.write_all(answer));
            }
        });
        // On a busy machine the first answers may be too late.
        let found = (0..100).find_map(|_| look("X", port)).unwrap();
        assert!(found.found.contains("1 model: m"), "{}", found.found);
        assert!(found.advice.unwrap().contains("OPENAI_MODEL=m"));
    }
}
