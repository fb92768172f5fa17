//! A proxy that records every request and its status.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// The longest head of a request or an answer.
const MAX_HEAD: usize = 64 << 10;

/// A request and the status of its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchange {
    pub method: String,
    pub path: String,
    pub status: u16,
}

/// A proxy between a client and a server. Each connection carries one request: the server is told to close it.
pub struct Recorder {
    address: SocketAddr,
    exchanges: Arc<Mutex<Vec<Exchange>>>,
}

impl Recorder {
    pub fn start(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let exchanges = Arc::new(Mutex::default());
        let noted = exchanges.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let noted = noted.clone();
                std::thread::spawn(move || exchange(client, upstream, &noted));
            }
        });
        Self { address, exchanges }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// All answered requests so far, in the order of their answers.
    pub fn exchanges(&self) -> Vec<Exchange> {
        self.exchanges.lock().unwrap().clone()
    }
}

/// Passes one request on, and its answer back. Ends when either side disconnects.
fn exchange(mut client: TcpStream, upstream: SocketAddr, noted: &Mutex<Vec<Exchange>>) -> Option<()> {
    let (head, rest) = head(&mut client)?;
    let mut words = head.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let lines = head.split("\r\n").filter(|line| !line.to_ascii_lowercase().starts_with("connection:"));
    let lines: Vec<&str> = lines.collect();
    let mut server = TcpStream::connect(upstream).ok()?;
    server.write_all(format!("{}\r\nconnection: close\r\n\r\n", lines.join("\r\n")).as_bytes()).ok()?;
    server.write_all(&rest).ok()?;
    let (mut from, mut to) = (client.try_clone().ok()?, server.try_clone().ok()?);
    // The rest of the body. When the client disconnects, so does the proxy.
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
    let (head, rest) = self::head(&mut server)?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    noted.lock().unwrap().push(Exchange { method, path, status });
    client.write_all(format!("{head}\r\n\r\n").as_bytes()).ok()?;
    client.write_all(&rest).ok()?;
    let _ = std::io::copy(&mut server, &mut client);
    let _ = client.shutdown(Shutdown::Both);
    Some(())
}

/// Reads the head of a message; returns it without its last empty line, and what follows it.
fn head(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let rest = bytes.split_off(end + 4);
            bytes.truncate(end);
            return Some((String::from_utf8(bytes).ok()?, rest));
        }
        let read = stream.read(&mut buffer).ok()?;
        if read == 0 || bytes.len() > MAX_HEAD {
            return None;
        }
        bytes.extend_from_slice(&buffer[..read]);
    }
}
