//! Terminals: their operations, and the traffic on their WebSockets.

use crate::common::Rig;
use futures::{SinkExt as _, StreamExt as _};
use reqwest::Method;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::{Value, json};
use testkit::{TempProject, WAIT};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::{self, Message, client::IntoClientRequest as _};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};
use trefoil_server::Password;

struct Client(WebSocketStream<MaybeTlsStream<TcpStream>>);

/// What a client received: text, the position that it was told, and the close code.
#[derive(Debug, Default, PartialEq)]
struct Received {
    text: String,
    cursor: Option<u64>,
    close: Option<u16>,
}

impl Client {
    async fn open(rig: &Rig, path: &str) -> Result<Self, u16> {
        let url = format!("{}{path}", rig.url.replacen("http", "ws", 1));
        match connect_async(url.into_client_request().unwrap()).await {
            Ok((socket, _)) => Ok(Self(socket)),
            Err(tungstenite::Error::Http(response)) => Err(response.status().as_u16()),
            Err(error) => panic!("{error}"),
        }
    }

    async fn send(&mut self, text: &str) {
        self.0.send(Message::text(text)).await.unwrap();
    }

    /// Reads until `enough`, or until the connection is closed.
    async fn read(&mut self, enough: impl Fn(&Received) -> bool) -> Received {
        let mut got = Received::default();
        let limit = tokio::time::Instant::now() + WAIT;
        while !enough(&got) && got.close.is_none() {
            let message = tokio::time::timeout_at(limit, self.0.next()).await;
            match message.unwrap_or_else(|_| panic!("nothing more within {WAIT:?} than {got:?}")).unwrap().unwrap() {
                Message::Text(text) => got.text.push_str(&text),
                Message::Binary(bytes) => {
                    assert_eq!(bytes[0], 0);
                    let place: Value = serde_json::from_slice(&bytes[1..]).unwrap();
                    got.cursor = Some(place["cursor"].as_u64().unwrap());
                }
                Message::Close(frame) => got.close = Some(frame.unwrap().code.into()),
                _ => {}
            }
        }
        got
    }

    async fn read_text(&mut self, wanted: &str) -> Received {
        self.read(|got| got.text.contains(wanted)).await
    }
}

async fn create(rig: &Rig, body: Value) -> Value {
    let (status, pty) = rig.send(Method::POST, "/pty", Some(body)).await;
    assert_eq!(status, 200, "{pty}");
    pty
}

fn path(pty: &Value) -> String {
    format!("/pty/{}", pty["id"].as_str().unwrap())
}

/// Waits until a process is gone.
async fn wait_for_exit(pty: &Value) {
    let pid = Pid::from_raw(i32::try_from(pty["pid"].as_u64().unwrap()).unwrap()).unwrap();
    let ended = tokio::task::spawn_blocking(move || {
        let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return true };
        let limit = rustix::event::Timespec { tv_sec: WAIT.as_secs().cast_signed(), tv_nsec: 0 };
        let mut fds = [rustix::event::PollFd::new(&handle, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut fds, Some(&limit)).unwrap() == 1
    });
    assert!(ended.await.unwrap(), "the process {pid} is still there");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_lives_from_open_to_exit() {
    let rig = Rig::new(json!({})).await;
    let mut events = rig.events("/event").await;
    let body = json!({ "command": "/bin/sh", "args": ["-c", "read line; exit 3"], "title": "t" });
    let pty = create(&rig, body).await;
    assert!(pty["id"].as_str().unwrap().starts_with("pty_") && pty["pid"].as_u64().unwrap() > 0, "{pty}");
    let expected = json!({
        "id": pty["id"], "title": "t", "command": "/bin/sh", "args": ["-c", "read line; exit 3", "-l"],
        "cwd": rig.project.directory(), "status": "running", "pid": pty["pid"],
    });
    assert_eq!(pty, expected);
    assert_eq!(events.wait_for("pty.created").await["properties"]["info"], pty);
    assert_eq!(rig.get("/pty").await, json!([pty]));
    assert_eq!(rig.get("/pty?directory=/tmp").await, json!([]), "a terminal belongs to its directory");

    let size = json!({ "title": "t2", "size": { "rows": 10, "cols": 40 } });
    let (status, updated) = rig.send(Method::PUT, &path(&pty), Some(size)).await;
    assert_eq!((status, &updated["title"]), (200, &json!("t2")));
    assert_eq!(events.wait_for("pty.updated").await["properties"]["info"], updated);
    assert_eq!(rig.get(&path(&pty)).await, updated);

    let mut client = Client::open(&rig, &format!("{}/connect", path(&pty))).await.unwrap();
    assert_eq!(client.read(|got| got.cursor.is_some()).await, Received { cursor: Some(0), ..Received::default() });
    client.send("\r").await;
    assert_eq!(client.read(|_| false).await.close, Some(1000));
    let exited = events.wait_for("pty.exited").await;
    assert_eq!(exited["properties"], json!({ "id": pty["id"], "exitCode": 3 }));
    for method in [Method::GET, Method::DELETE] {
        let (status, error) = rig.send(method, &path(&pty), None).await;
        assert_eq!((status, &error["_tag"], &error["ptyID"]), (404, &json!("PtyNotFoundError"), &pty["id"]));
    }
    assert_eq!(rig.get("/pty").await, json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_get_missed_output_and_then_new_output() {
    let rig = Rig::new(json!({})).await;
    let script = "stty -echo; printf 'é😀ready'; while read -r line; do echo \"<$line>\"; done";
    let pty = create(&rig, json!({ "command": "/bin/sh", "args": ["-c", script] })).await;
    let connect = format!("{}/connect", path(&pty));
    let mut first = Client::open(&rig, &connect).await.unwrap();
    assert_eq!(first.read_text("ready").await.text, "é😀ready");
    first.send("one\r").await;
    first.read_text("<one>\r\n").await;

    // Three UTF-16 units and five letters precede the line.
    let mut second = Client::open(&rig, &format!("{connect}?cursor=8")).await.unwrap();
    let missed = second.read(|got| got.cursor.is_some()).await;
    assert_eq!(missed, Received { text: "<one>\r\n".into(), cursor: Some(15), close: None });
    let mut third = Client::open(&rig, &format!("{connect}?cursor=-1")).await.unwrap();
    let nothing = third.read(|got| got.cursor.is_some()).await;
    assert_eq!(nothing, Received { text: String::new(), cursor: Some(15), close: None });
    second.send("two\r").await;
    for client in [&mut first, &mut second, &mut third] {
        assert_eq!(client.read_text("<two>\r\n").await.text, "<two>\r\n");
    }

    let mut events = rig.events("/event").await;
    assert_eq!(rig.send(Method::DELETE, &path(&pty), None).await, (200, json!(true)));
    assert_eq!(events.wait_for("pty.deleted").await["properties"], json!({ "id": pty["id"] }));
    assert_eq!(first.read(|_| false).await.close, Some(1000));
    wait_for_exit(&pty).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reads_too_slowly_is_disconnected() {
    let rig = Rig::new(json!({})).await;
    let mut events = rig.events("/event").await;
    let bytes: usize = 30_000_000;
    let script = format!("read line; head -c {bytes} /dev/zero | tr '\\0' x");
    let pty = create(&rig, json!({ "command": "/bin/sh", "args": ["-c", script] })).await;
    let mut client = Client::open(&rig, &format!("{}/connect", path(&pty))).await.unwrap();
    client.send("\r").await;
    events.wait_for("pty.exited").await;
    let got = client.read(|_| false).await;
    assert_eq!(got.close, Some(1013));
    assert!(got.text.len() < bytes, "{}", got.text.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_opens_one_connection_without_the_password() {
    let password = Password { username: "opencode".into(), password: "secret".into() };
    let rig = Rig::guarded(TempProject::new(), Some(password)).await;
    let call = async |method: Method, path: &str, ticket: bool, body: Value| {
        let request = rig.http.request(method, format!("{}{path}", rig.url)).basic_auth("opencode", Some("secret"));
        let request = if ticket { request.header("x-opencode-ticket", "1") } else { request };
        let response = request.json(&body).send().await.unwrap();
        (response.status().as_u16(), response.json::<Value>().await.unwrap())
    };
    let open = async || call(Method::POST, "/pty", false, json!({ "command": "cat" })).await.1;
    let (pty, other) = (open().await, open().await);
    let token = format!("{}/connect-token", path(&pty));
    let (status, error) = call(Method::POST, &token, false, Value::Null).await;
    assert_eq!((status, &error["_tag"]), (403, &json!("PtyForbiddenError")));
    let (status, ticket) = call(Method::POST, &token, true, Value::Null).await;
    assert_eq!((status, &ticket["expires_in"]), (200, &json!(60)));
    let ticket = ticket["ticket"].as_str().unwrap();

    let connect = |pty: &Value, query: &str| format!("{}/connect{query}", path(pty));
    assert_eq!(Client::open(&rig, &connect(&pty, "")).await.err(), Some(401));
    assert_eq!(Client::open(&rig, &connect(&pty, "?ticket=guess")).await.err(), Some(403));
    assert_eq!(Client::open(&rig, &connect(&pty, "?ticket=&ticket=guess")).await.err(), Some(400));
    assert_eq!(Client::open(&rig, &connect(&other, &format!("?ticket={ticket}"))).await.err(), Some(403));
    let used = connect(&pty, &format!("?ticket={ticket}"));
    let mut client = Client::open(&rig, &used).await.unwrap();
    client.send("hello\r").await;
    client.read_text("hello").await;
    assert_eq!(Client::open(&rig, &used).await.err(), Some(403), "it is used up");
    assert_eq!(rig.send(Method::GET, "/pty?ticket=x", None).await.0, 401, "a ticket opens nothing else");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_server_ends_its_terminals() {
    let rig = Rig::new(json!({})).await;
    let pty =
        create(&rig, json!({ "command": "/bin/sh", "args": ["-c", "trap '' TERM HUP; echo on; sleep 1000"] })).await;
    let mut client = Client::open(&rig, &format!("{}/connect", path(&pty))).await.unwrap();
    client.read_text("on").await;
    drop(rig);
    let close = client.read(|_| false).await.close;
    assert!(close == Some(1001) || close == Some(1000), "{close:?}");
    wait_for_exit(&pty).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn disposing_a_directory_ends_its_terminals() {
    let rig = Rig::new(json!({})).await;
    let other = rig.project.root().join("other");
    std::fs::create_dir(&other).unwrap();
    let list = format!("/pty?directory={}", other.display());
    let sleep = json!({ "command": "sleep", "args": ["1000"] });
    let here = create(&rig, sleep.clone()).await;
    let (status, there) = rig.send(Method::POST, &list, Some(sleep)).await;
    assert_eq!(status, 200, "{there}");

    let mut events = rig.events("/event").await;
    assert_eq!(rig.send(Method::POST, "/instance/dispose", None).await, (200, json!(true)));
    wait_for_exit(&here).await;
    assert_eq!(events.wait_for("pty.deleted").await["properties"]["id"], here["id"]);
    events.wait_for("server.instance.disposed").await;
    assert_eq!(rig.get("/pty").await, json!([]));
    assert_eq!(rig.get(&list).await, json!([there]), "it belongs to another directory");

    assert_eq!(rig.send(Method::POST, "/global/dispose", None).await, (200, json!(true)));
    wait_for_exit(&there).await;
    assert_eq!(rig.get(&list).await, json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_requests_are_refused() {
    let rig = Rig::new(json!({})).await;
    for (body, place) in [
        (json!({ "command": "/no/such/program" }), "/no/such/program"),
        (json!({ "cwd": "no-such-directory" }), "no-such-directory"),
        (json!({ "command": "a\0b" }), "command"),
        (json!({ "args": ["a\0b"] }), "args"),
        (json!({ "cwd": "a\0b" }), "cwd"),
        (json!({ "env": { "A=B": "c" } }), "env"),
        (json!({ "args": ["x".repeat(1 << 20)] }), "too long"),
        (json!({ "title": 1 }), "title"),
    ] {
        let (status, error) = rig.send(Method::POST, "/pty", Some(body.clone())).await;
        let message = error["data"]["message"].as_str().unwrap_or_default();
        assert!(status == 400 && message.contains(place), "{body}: {status} {error}");
    }
    assert_eq!(rig.get("/pty").await, json!([]));
    let (status, error) = rig.send(Method::GET, "/pty/pty_nobody/connect", None).await;
    assert_eq!((status, &error["name"]), (404, &json!("NotFoundError")));
    assert_eq!(rig.send(Method::GET, "/pty/nobody", None).await.0, 400);

    let pty = create(&rig, json!({ "command": "cat" })).await;
    assert_eq!(rig.send(Method::GET, &format!("{}/connect", path(&pty)), None).await.0, 400, "not a WebSocket");
    for size in
        [json!({ "rows": 0, "cols": 1 }), json!({ "rows": 1, "cols": 70_000 }), json!({ "rows": -1, "cols": 1 })]
    {
        let (status, error) = rig.send(Method::PUT, &path(&pty), Some(json!({ "size": size }))).await;
        assert_eq!(status, 400, "{size}: {error}");
    }
    for _ in 1..64 {
        create(&rig, json!({ "command": "cat" })).await;
    }
    let (status, error) = rig.send(Method::POST, "/pty", Some(json!({ "command": "cat" }))).await;
    assert_eq!((status, &error["name"]), (429, &json!("TooManyRequests")));
}

#[tokio::test(flavor = "multi_thread")]
async fn shells_are_listed_and_used() {
    let rig = Rig::new(json!({ "shell": "/bin/sh" })).await;
    let shells = rig.get("/pty/shells").await;
    let sh = shells.as_array().unwrap().iter().find(|shell| shell["path"] == "/bin/sh");
    assert_eq!(sh, Some(&json!({ "path": "/bin/sh", "name": "sh", "acceptable": true })));
    let pty = create(&rig, json!({})).await;
    assert_eq!((&pty["command"], &pty["args"]), (&json!("/bin/sh"), &json!(["-l"])), "the configured one");
    let id = pty["id"].as_str().unwrap();
    assert_eq!(pty["title"], format!("Terminal {}", &id[id.len() - 4..]));
}
