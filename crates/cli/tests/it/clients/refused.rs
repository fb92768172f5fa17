//! Who is refused: pages of other sites, rebound host names, other users of this machine.

use testkit::{TempProject, WAIT};

use super::harness::{TestServer, finish};

fn status(served: &TestServer, headers: &[(&str, &str)]) -> u16 {
    served.raw("GET", "/session", headers, None).0
}

#[test]
fn pages_of_other_sites_cannot_call() {
    let served = TestServer::start();
    for headers in [
        &[("origin", "https://evil.example")][..],
        &[("origin", "null")],
        &[("sec-fetch-site", "cross-site")],
        &[("origin", "http://localhost.evil.example")],
        &[("origin", "http://localhost:3000")],
        &[("origin", "http://127.0.0.1:3000")],
        &[("origin", "https://app.opencode.ai")],
    ] {
        assert_eq!(status(&served, headers), 403, "{headers:?}");
        let (created, _) = served.raw("POST", "/session", headers, None);
        assert_eq!(created, 403, "{headers:?}");
    }
    assert_eq!(served.send("GET", "/session", None).1, serde_json::json!([]), "nothing was made");
    assert_eq!(status(&served, &[("origin", &served.url)]), 200, "its own pages may");
    assert_eq!(status(&served, &[("origin", "tauri://localhost")]), 200, "OpenCode's own program may");
}

#[test]
fn a_rebound_host_name_is_refused() {
    let served = TestServer::start();
    let port = served.address().port();
    for host in [format!("evil.example:{port}"), format!("localhost.evil.example:{port}"), "10.0.0.1".into()] {
        assert_eq!(status(&served, &[("host", &host)]), 403, "{host}");
    }
    assert_eq!(status(&served, &[("host", &format!("localhost:{port}"))]), 200);
}

/// A program that runs as another user, if this process may switch users.
fn as_stranger(program: &str) -> Option<std::process::Command> {
    if !rustix::process::getuid().is_root() {
        return None;
    }
    let mut command = std::process::Command::new("setpriv");
    // Without our folders, which it may not read.
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", program])
        .env("PATH", "/usr/local/bin:/usr/bin:/bin");
    Some(command)
}

/// Connects, sends a request and disconnects at once, from eight threads: by the time that the server checks, the kernel may have
/// forgotten whose connection it was. Ends after that many rounds or seconds.
const GONE_AT_ONCE: &str = r#"
import json, socket, struct, sys, threading, time
host, port, mark = sys.argv[1], int(sys.argv[2]), sys.argv[3]
end = time.monotonic() + 6
body = json.dumps({"command": "/bin/sh", "args": ["-c", "touch " + mark]}).encode()
head = "POST /pty HTTP/1.1\r\nhost: %s:%d\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
request = (head % (host, port, len(body))).encode() + body
sent = [0] * 8
def loop(number):
    for round in range(500):
        if time.monotonic() > end:
            return
        try:
            client = socket.create_connection((host, port), 5)
            if (number + round) % 4 == 1:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.sendall(request)
            if (number + round) % 4 == 2:
                client.shutdown(socket.SHUT_WR)
            client.close()
            sent[number] += 1
        except OSError:
            pass
threads = [threading.Thread(target=loop, args=(number,)) for number in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(sum(sent))
"#;

#[test]
fn another_user_who_disconnects_at_once_starts_nothing() {
    let Some(mut command) = as_stranger("python3") else { return };
    let served = TestServer::start();
    let (address, mark) = (served.address(), served.project.root().join("ran"));
    command.args(["-c", GONE_AT_ONCE, &address.ip().to_string(), &address.port().to_string()]).arg(&mark);
    let sent: u32 = String::from_utf8(finish(command, WAIT).stdout).unwrap().trim().parse().unwrap();
    assert!(sent > 100, "{sent} requests were sent");
    assert_eq!(served.send("GET", "/pty", None).1, serde_json::json!([]));
    assert!(!mark.exists(), "a stranger ran a command");
    // The same request works for those who may send it.
    let args = ["-c".to_owned(), format!("touch {}", mark.display())];
    served.send("POST", "/pty", Some(&serde_json::json!({"command": "/bin/sh", "args": args})));
    testkit::until("the command runs", || mark.exists());
}

#[test]
fn our_own_clients_are_never_taken_for_strangers() {
    use std::io::{Read as _, Write as _};
    let served = TestServer::start();
    let address = served.address();
    let request = |more: &str| format!("GET /global/health HTTP/1.1\r\nhost: {address}\r\n{more}\r\n");
    let loops: Vec<_> = (0..8)
        .map(|number| {
            let (once, again) = (request("connection: close\r\n"), request(""));
            std::thread::spawn(move || {
                for round in 0..100 {
                    let mut client = std::net::TcpStream::connect(address).unwrap();
                    client.set_read_timeout(Some(WAIT)).unwrap();
                    // Some reuse a connection.
                    for _ in 0..(number + round) % 3 {
                        client.write_all(again.as_bytes()).unwrap();
                        let mut beginning = [0; 15];
                        client.read_exact(&mut beginning).unwrap();
                        assert_eq!(&beginning, b"HTTP/1.1 200 OK");
                        let mut rest = Vec::new();
                        let mut byte = [0];
                        while !rest.ends_with(b"}") {
                            client.read_exact(&mut byte).unwrap();
                            rest.push(byte[0]);
                        }
                    }
                    client.write_all(once.as_bytes()).unwrap();
                    let mut answer = String::new();
                    client.read_to_string(&mut answer).unwrap();
                    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
                }
            })
        })
        .collect();
    loops.into_iter().for_each(|one| one.join().unwrap());
}

#[test]
fn a_client_that_has_sent_everything_is_answered() {
    use std::io::{Read as _, Write as _};
    let served = TestServer::start();
    let address = served.address();
    let half_closed = |path: &str| {
        let mut client = std::net::TcpStream::connect(address).unwrap();
        client.set_read_timeout(Some(WAIT)).unwrap();
        client.write_all(format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n\r\n").as_bytes()).unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        client
    };
    for _ in 0..20 {
        for path in ["/global/health", "/session", "/vcs/status", "/config"] {
            let mut answer = String::new();
            half_closed(path).read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 200 OK"), "{path}: {answer}");
        }
    }
    // A stream continues for it, and ends when it disconnects.
    let mut client = half_closed("/event");
    let mut head = [0; 15];
    client.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 200 OK");
    testkit::until("it listens", || served.gauge("trefoil_subscribers") == 1);
    drop(client);
    testkit::until("it is gone", || served.gauge("trefoil_subscribers") == 0);
}

/// Opens more connections than one stranger may have, prints how many were refused, and holds them until its input ends.
const HOLDS_MANY: &str = r#"
import resource, socket, sys
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
held = [socket.create_connection((sys.argv[1], int(sys.argv[2])), 5) for _ in range(1500)]
# They are taken in their order: once the last one is answered, all are that will be.
held[-1].settimeout(60)
refused = int(b"503" in held[-1].recv(12))
for client in held[-2::-1]:
    client.settimeout(0.05)
    try:
        refused += b"503" in client.recv(12)
    except OSError:
        break
print(refused, flush=True)
sys.stdin.read()
"#;

#[test]
fn a_stranger_does_not_use_up_the_connections() {
    let Some(mut command) = as_stranger("python3") else { return };
    let shut = TestServer::with(TempProject::new(), |command| {
        command.env("OPENCODE_SERVER_PASSWORD", "secret");
    });
    let address = shut.address();
    command.args(["-c", HOLDS_MANY, &address.ip().to_string(), &address.port().to_string()]);
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut stranger = command.spawn().unwrap();
    let mut line = String::new();
    let mut output = std::io::BufReader::new(stranger.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut output, &mut line).unwrap();
    let refused: u32 = line.trim().parse().unwrap();
    // While it holds all that it may have, there is room for others.
    assert!(refused > 300, "{refused} of 1500 were refused");
    assert_eq!(status(&shut, &[]), 401);
    drop(stranger.stdin.take());
    stranger.wait().unwrap();
}

#[test]
fn other_users_of_this_machine_need_the_password() {
    if as_stranger("curl").is_none() {
        // Only root can switch users.
        return;
    }
    let curl = |served: &TestServer, credentials: Option<&str>| {
        let mut command = as_stranger("curl").unwrap();
        command.args(["--silent", "--max-time", "50"]);
        command.args(["--output", "/dev/null", "--write-out", "%{http_code}", &format!("{}/session", served.url)]);
        if let Some(credentials) = credentials {
            command.args(["--user", credentials]);
        }
        String::from_utf8(finish(command, WAIT).stdout).unwrap()
    };
    let served = TestServer::start();
    assert_eq!(curl(&served, None), "403");
    assert_eq!(status(&served, &[]), 200);
    let shut = TestServer::with(TempProject::new(), |command| {
        command.env("OPENCODE_SERVER_PASSWORD", "secret");
    });
    assert_eq!(curl(&shut, None), "401");
    assert_eq!(curl(&shut, Some("opencode:wrong")), "401");
    assert_eq!(curl(&shut, Some("opencode:secret")), "200");
    assert_eq!(status(&shut, &[]), 401, "the password counts for us too");
}
