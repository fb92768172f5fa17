//! Clients that open connections and abandon them must leave nothing behind.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};

use serde_json::json;
use testkit::{WAIT, until};

use super::harness::TestServer;

const CONNECTIONS: usize = 1000;
/// The number of connections that are open at a time.
const AT_A_TIME: usize = 100;
/// How much memory may stay in use afterwards: the allocator keeps its pages.
const MEMORY_MARGIN: u64 = 24 << 20;

/// What a client sends before it disconnects.
fn cut(served: &TestServer, at: usize) -> (&'static str, String) {
    let host = served.address();
    match at % 5 {
        0 => ("nothing", String::new()),
        1 => ("half a head", format!("POST /session HTTP/1.1\r\nhost: {host}\r\nx-rest: ")),
        2 => (
            "half a body",
            format!("POST /session HTTP/1.1\r\nhost: {host}\r\ncontent-length: 1000\r\n\r\n{{\"title\":"),
        ),
        3 => ("a stream", format!("GET /event HTTP/1.1\r\nhost: {host}\r\n\r\n")),
        _ => ("a global stream", format!("GET /global/event HTTP/1.1\r\nhost: {host}\r\n\r\n")),
    }
}

fn abandon(served: &TestServer) {
    for first in (0..CONNECTIONS).step_by(AT_A_TIME) {
        let open: Vec<TcpStream> = (first..first + AT_A_TIME)
            .map(|at| {
                let mut stream = TcpStream::connect(served.address()).unwrap();
                let (what, bytes) = cut(served, at);
                stream.write_all(bytes.as_bytes()).unwrap();
                if what.ends_with("stream") {
                    // In the middle: the first event has arrived.
                    stream.set_read_timeout(Some(WAIT)).unwrap();
                    let read = stream.read(&mut [0; 1024]).unwrap();
                    assert!(read > 0, "{what} was closed");
                }
                stream
            })
            .collect();
        for (at, stream) in open.iter().enumerate() {
            // Half of them close the connection, the others vanish.
            if at % 2 == 0 {
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
    }
}

/// The memory of a process, in bytes.
fn memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

fn open_files(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

#[test]
fn abandoned_connections_leave_nothing_behind() {
    let served = TestServer::start();
    // A first round, so that one-time allocations do not look like a leak.
    abandon(&served);
    until("no connection is open", || idle(&served));
    let (files, before) = (open_files(served.pid()), memory(served.pid()));
    abandon(&served);
    until("no connection is open", || idle(&served));
    until("no more files are open than before", || open_files(served.pid()) <= files);
    let after = memory(served.pid());
    assert!(after <= before + MEMORY_MARGIN, "{before} bytes before, {after} after");
    let (status, _) = served.send("POST", "/session", None);
    assert_eq!(status, 200);
}

/// Subscribers that read nothing while a lot happens in a session, which is then deleted.
fn stall(served: &TestServer, readers: usize) -> Vec<TcpStream> {
    let subscribe = |_| {
        let mut stream = TcpStream::connect(served.address()).unwrap();
        write!(stream, "GET /event HTTP/1.1\r\nhost: {}\r\n\r\n", served.address()).unwrap();
        stream
    };
    let stalled: Vec<TcpStream> = (0..readers).map(subscribe).collect();
    until("all are subscribed", || served.gauge("trefoil_subscribers") >= i64::try_from(readers).unwrap());
    let (_, session) = served.send("POST", "/session", None);
    let path = format!("/session/{}", session["id"].as_str().unwrap());
    let prompt = json!({
        "model": {"providerID": "script", "modelID": "demo"},
        "parts": [{"type": "text", "text": r#"SCRIPT: [{"chunks": 20000}]"#}],
    });
    for _ in 0..10 {
        assert_eq!(served.send("POST", &format!("{path}/message"), Some(&prompt)).0, 200);
    }
    assert_eq!(served.send("DELETE", &path, None).0, 200);
    stalled
}

#[test]
fn what_slow_readers_take_is_bounded() {
    let served = TestServer::start();
    let before = memory(served.pid());
    let stalled = stall(&served, 300);
    let most = memory(served.pid());
    assert!(most <= before + (64 << 20), "{before} bytes before, {most} with slow readers");
    drop(stalled);
    until("no connection is open", || idle(&served));
}

/// Whether the only connection is the one that asks.
fn idle(served: &TestServer) -> bool {
    served.gauge("trefoil_connections") == 1 && served.gauge("trefoil_subscribers") == 0
}
