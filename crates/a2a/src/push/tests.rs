//! Notifications to a webhook on this machine.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use api::{Json, JsonMap, MessageId, PromptInput, SessionId};
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use store::Store;
use tokio::sync::mpsc;

use super::*;
use crate::call::{PushAuthentication, PushConfig};
use crate::event::{Lane, NumberedEvent, StreamMark};
use crate::model::{ArtifactId, Line, Part, TaskState, TaskStatus};
use crate::records::{Change, Committed, Inserted, NewTask, OpenWork, PushRow, TaskContent, TaskRow, WorkPrompt};

/// Longer than any of these tests takes.
const WAIT: Duration = Duration::from_secs(60);

/// A request that the webhook got.
struct Got {
    path: String,
    headers: HeaderMap,
    body: Json,
}

#[derive(Clone)]
struct Hook {
    got: mpsc::UnboundedSender<Got>,
    /// The next answers; afterwards it takes everything.
    answers: Arc<Mutex<VecDeque<StatusCode>>>,
}

/// A webhook on this machine.
struct Server {
    address: SocketAddr,
    got: mpsc::UnboundedReceiver<Got>,
}

impl Server {
    async fn start(answers: &[u16]) -> Self {
        let (sender, got) = mpsc::unbounded_channel();
        let answers = answers.iter().map(|status| StatusCode::from_u16(*status).unwrap()).collect();
        let hook = Hook { got: sender, answers: Arc::new(Mutex::new(answers)) };
        let answer = |State(hook): State<Hook>, uri: axum::http::Uri, headers: HeaderMap, body: Bytes| async move {
            let body = serde_json::from_slice(&body).unwrap();
            hook.got.send(Got { path: uri.path().to_owned(), headers, body }).unwrap();
            let status = hook.answers.lock().unwrap().pop_front().unwrap_or(StatusCode::OK);
            let location = [(header::LOCATION, "/redirected")];
            (status, location, vec![b'x'; 200 << 10]).into_response()
        };
        let app = axum::Router::new().fallback(answer).with_state(hook);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { address, got }
    }

    fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    async fn next(&mut self) -> Got {
        tokio::time::timeout(WAIT, self.got.recv()).await.expect("a notification").unwrap()
    }
}

/// Records, and what sends notifications about them.
struct Sender {
    records: Records,
    tracker: TaskTracker,
    closing: CancellationToken,
}

impl Sender {
    fn start(records: Records, webhooks: Webhooks) -> Self {
        let (tracker, closing) = (TaskTracker::new(), CancellationToken::new());
        let retry = Duration::from_millis(1);
        Pusher::with_retry(records.clone(), webhooks, take_in, retry, tracker.clone(), closing.clone()).start();
        Self { records, tracker, closing }
    }

    async fn private() -> Self {
        Self::start(temporary().await, Webhooks::new(true))
    }

    async fn stop(self) -> Records {
        self.closing.cancel();
        self.tracker.close();
        self.tracker.wait().await;
        self.records
    }

    /// Waits until nothing is to be sent about a task any more.
    async fn finished(&self, task: &str) {
        let finished = async {
            while !self.records.deliveries(task).unwrap().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(WAIT, finished).await.expect("everything is sent");
    }
}

/// Counts the pieces of artifacts.
fn take_in(task: &mut Task, event: &TaskEvent) {
    match event {
        TaskEvent::Status { status, .. } => task.status = status.clone(),
        TaskEvent::Artifact { .. } => {
            let count = task.metadata.get("pieces").and_then(Json::as_u64).unwrap_or(0);
            task.metadata.insert("pieces".to_owned(), (count + 1).into());
        }
        TaskEvent::Message(_) => {}
    }
}

async fn temporary() -> Records {
    Records::open_temporary(&std::env::temp_dir()).await.unwrap()
}

fn push(url: String, line: Line) -> PushRow {
    let config = PushConfig { task_id: "t".to_owned(), id: Some("p".to_owned()), url, ..PushConfig::default() };
    PushRow { config, line, identity: "me".to_owned() }
}

async fn begin(records: &Records, push: PushRow) -> TaskRow {
    let status = TaskStatus { state: TaskState::Submitted, message: None, timestamp: 1_000 };
    let prompt = WorkPrompt { id: MessageId::new(), input: PromptInput::default(), traceparent: None };
    let row = TaskRow {
        id: "t".to_owned(),
        context_id: "c".to_owned(),
        identity: "me".to_owned(),
        credential: None,
        session_id: Some(SessionId::new()),
        directory: "/work".to_owned(),
        workspace: None,
        line: push.line,
        streamed: true,
        text_only: false,
        message_id: "m".to_owned(),
        fingerprint: "f".to_owned(),
        turn: None,
        status,
        metadata: JsonMap::new(),
        last_seq: 0,
        created: 1_000,
        changed: 1_000,
        accepted: 0,
        version: 0,
    };
    let work = OpenWork { prompt, wanted_session: None, history: Vec::new(), answering: None };
    match records.insert(NewTask { row, work, push: Some(push), place: None }).await.unwrap() {
        Inserted::New(row) => *row,
        Inserted::Known(known) => panic!("{known:?}"),
    }
}

fn status(state: TaskState, source: &str) -> TaskEvent {
    let mark = StreamMark { source: source.to_owned(), ..StreamMark::default() };
    let status = TaskStatus { state, message: None, timestamp: 1_000 };
    TaskEvent::Status { status, metadata: JsonMap::new(), mark: Some(mark) }
}

fn text(text: &str) -> TaskEvent {
    TaskEvent::Artifact {
        id: ArtifactId::Lane(Lane::Text),
        name: None,
        parts: vec![Part::text(text)],
        append: false,
        append_any: false,
        last_chunk: false,
        metadata: JsonMap::new(),
        mark: None,
    }
}

/// Writes events; one with a terminal state ends the task.
async fn write(records: &Records, row: &mut TaskRow, events: Vec<TaskEvent>) {
    let mut change = Change::of(&row.id);
    for event in events {
        row.last_seq += 1;
        if let TaskEvent::Status { status, .. } = &event {
            row.status = status.clone();
        }
        change.event(Arc::new(NumberedEvent { seq: row.last_seq, event }));
    }
    match row.state().is_terminal() {
        true => change.end(row.clone(), TaskContent::default()),
        false => change.row(row.clone()),
    };
    match records.commit(change).await.unwrap() {
        Committed::Won(Some(written)) => *row = *written,
        other => panic!("{other:?}"),
    }
}

/// What a notification of 1.0 is about.
fn summary(got: &Got) -> String {
    if let Some(update) = got.body.get("statusUpdate") {
        update["status"]["state"].as_str().unwrap().to_owned()
    } else if let Some(update) = got.body.get("artifactUpdate") {
        update["artifact"]["parts"][0]["text"].as_str().unwrap().to_owned()
    } else {
        format!("task {}", got.body["task"]["status"]["state"].as_str().unwrap())
    }
}

#[tokio::test]
async fn events_arrive_in_order_with_token_and_credentials() {
    let mut server = Server::start(&[]).await;
    let sender = Sender::private().await;
    let mut row = push(server.url(), Line::V10);
    row.config.token = Some("secret".to_owned());
    row.config.authentication =
        Some(PushAuthentication { schemes: vec!["bearer".to_owned()], credentials: Some("abc".to_owned()) });
    let mut task = begin(&sender.records, row).await;
    let mut expected = Vec::new();
    for number in 0..100 {
        write(&sender.records, &mut task, vec![text(&format!("{number}"))]).await;
        expected.push(number.to_string());
    }
    write(&sender.records, &mut task, vec![status(TaskState::Completed, "status")]).await;
    expected.push("TASK_STATE_COMPLETED".to_owned());
    for expected in expected {
        let got = server.next().await;
        assert_eq!(summary(&got), expected);
        let header = |name: &str| got.headers.get(name).map(|value| value.to_str().unwrap());
        assert_eq!(header("authorization"), Some("Bearer abc"));
        assert_eq!(header("x-a2a-notification-token"), Some("secret"));
        assert_eq!(header("a2a-version"), Some("1.0"));
        assert_eq!(header("content-type"), Some("application/a2a+json"));
    }
    sender.finished("t").await;
    assert!(sender.records.push_row("t", "p").unwrap().is_some(), "the configuration stays");
    sender.stop().await;
}

#[tokio::test]
async fn in_0_3_the_task_arrives_when_its_status_changes() {
    let mut server = Server::start(&[]).await;
    let sender = Sender::private().await;
    let mut row = push(server.url(), Line::V03);
    row.config.authentication =
        Some(PushAuthentication { schemes: vec!["Custom".to_owned()], credentials: Some("abc".to_owned()) });
    let mut task = begin(&sender.records, row).await;
    let mut working = status(TaskState::Working, "");
    if let TaskEvent::Status { mark, .. } = &mut working {
        *mark = None;
    }
    write(&sender.records, &mut task, vec![working, text("a")]).await;
    let got = server.next().await;
    assert_eq!(got.body["status"]["state"], "working");
    assert_eq!(got.headers["authorization"], "Custom abc");
    assert_eq!(got.headers["content-type"], "application/json");
    assert!(!got.headers.contains_key("a2a-version"));
    write(&sender.records, &mut task, vec![status(TaskState::Working, "progress"), text("b")]).await;
    write(&sender.records, &mut task, vec![status(TaskState::InputRequired, "interrupt")]).await;
    let got = server.next().await;
    assert_eq!((&got.body["kind"], &got.body["id"]), (&"task".into(), &"t".into()));
    assert_eq!(got.body["status"]["state"], "input-required");
    write(&sender.records, &mut task, vec![status(TaskState::Failed, "status")]).await;
    assert_eq!(server.next().await.body["status"]["state"], "failed");
    sender.finished("t").await;
    sender.stop().await;
}

#[tokio::test]
async fn a_failed_notification_is_sent_again_before_the_next_one() {
    let mut server = Server::start(&[500, 429, 503, 200, 500]).await;
    let sender = Sender::private().await;
    let mut task = begin(&sender.records, push(server.url(), Line::V10)).await;
    write(&sender.records, &mut task, vec![text("a"), text("b")]).await;
    write(&sender.records, &mut task, vec![status(TaskState::Completed, "status")]).await;
    let mut got = Vec::new();
    for _ in 0..7 {
        got.push(summary(&server.next().await));
    }
    assert_eq!(got, ["a", "a", "a", "a", "b", "b", "TASK_STATE_COMPLETED"]);
    sender.finished("t").await;
    assert!(server.got.try_recv().is_err());
    sender.stop().await;
}

#[tokio::test]
async fn a_webhook_that_always_fails_is_given_up() {
    let mut server = Server::start(&[500; 10]).await;
    let sender = Sender::private().await;
    let mut task = begin(&sender.records, push(server.url(), Line::V10)).await;
    write(&sender.records, &mut task, vec![text("a")]).await;
    for _ in 0..10 {
        assert_eq!(summary(&server.next().await), "a");
    }
    // The next event is tried afresh.
    write(&sender.records, &mut task, vec![status(TaskState::Completed, "status")]).await;
    assert_eq!(summary(&server.next().await), "TASK_STATE_COMPLETED");
    sender.finished("t").await;
    sender.stop().await;
}

#[tokio::test]
async fn what_was_not_sent_is_sent_after_a_restart() {
    let directory = testkit::TempProject::without_git();
    let path = directory.path().join("test.db");
    let open = async || Records::open(Store::open(&path).unwrap(), &path).await.unwrap();
    let mut server = Server::start(&[200]).await;
    let sender = Sender::start(open().await, Webhooks::new(true));
    let mut task = begin(&sender.records, push(server.url(), Line::V10)).await;
    write(&sender.records, &mut task, vec![text("a")]).await;
    assert_eq!(summary(&server.next().await), "a");
    let sent = async {
        while sender.records.delivery("t", "p").unwrap().unwrap().sent == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(WAIT, sent).await.unwrap();
    // Nobody sends these.
    let records = sender.stop().await;
    write(&records, &mut task, vec![text("b"), text("c")]).await;
    write(&records, &mut task, vec![status(TaskState::Canceled, "status")]).await;
    drop(records);
    let sender = Sender::start(open().await, Webhooks::new(true));
    for expected in ["b", "c", "TASK_STATE_CANCELED"] {
        assert_eq!(summary(&server.next().await), expected);
    }
    sender.finished("t").await;
    drop(sender.stop().await);
    let records = open().await;
    assert_eq!(records.deliveries("t").unwrap(), []);
}

#[tokio::test]
async fn a_webhook_that_is_far_behind_gets_the_task() {
    let mut server = Server::start(&[]).await;
    let records = temporary().await;
    let mut task = begin(&records, push(server.url(), Line::V10)).await;
    write(&records, &mut task, (0..1001).map(|_| text("a")).collect()).await;
    let sender = Sender::start(records, Webhooks::new(true));
    let got = server.next().await;
    assert_eq!(summary(&got), "task TASK_STATE_SUBMITTED");
    write(&sender.records, &mut task, vec![text("b")]).await;
    assert_eq!(summary(&server.next().await), "b");
    // A notification that is too large is the task too.
    write(&sender.records, &mut task, vec![text(&"x".repeat(5 << 20))]).await;
    assert_eq!(summary(&server.next().await), "task TASK_STATE_SUBMITTED");
    sender.stop().await;
}

#[tokio::test]
async fn redirects_are_not_followed_and_refusals_not_repeated() {
    let mut server = Server::start(&[302, 307, 404]).await;
    let sender = Sender::private().await;
    let mut task = begin(&sender.records, push(server.url(), Line::V10)).await;
    write(&sender.records, &mut task, vec![text("a"), text("b"), text("c")]).await;
    write(&sender.records, &mut task, vec![status(TaskState::Completed, "status")]).await;
    for expected in ["a", "b", "c", "TASK_STATE_COMPLETED"] {
        let got = server.next().await;
        assert_eq!((summary(&got).as_str(), got.path.as_str()), (expected, "/hook"));
    }
    sender.finished("t").await;
    assert!(server.got.try_recv().is_err());
    sender.stop().await;
}

/// A name server that answers with a public address first, and then with this machine.
struct Changing(AtomicUsize);

impl Resolve for Changing {
    fn resolve(&self, _: Name) -> Resolving {
        let is_first = self.0.fetch_add(1, Ordering::Relaxed) == 0;
        let found: SocketAddr = if is_first { "8.8.8.8:0" } else { "127.0.0.1:0" }.parse().unwrap();
        Box::pin(async move { Ok(Box::new([found].into_iter()) as Addrs) })
    }
}

#[tokio::test]
async fn a_name_that_changes_to_a_private_address_is_not_called() {
    let mut server = Server::start(&[]).await;
    let names = Arc::new(Changing(AtomicUsize::new(0)));
    let webhooks = Webhooks::new(false).with_names(names.clone());
    let push = push(format!("http://webhook.example:{}/hook", server.address.port()), Line::V10);
    webhooks.check(&push.config).await.unwrap();
    let sender = Sender::start(temporary().await, webhooks);
    let mut task = begin(&sender.records, push).await;
    write(&sender.records, &mut task, vec![status(TaskState::Completed, "status")]).await;
    sender.finished("t").await;
    assert!(server.got.try_recv().is_err());
    assert_eq!(names.0.load(Ordering::Relaxed), 2, "it was resolved again");
    sender.stop().await;
}

#[tokio::test]
async fn a_private_address_is_refused_when_it_is_configured_and_when_it_is_called() {
    let mut server = Server::start(&[]).await;
    let webhooks = Webhooks::new(false);
    let port = server.address.port();
    for host in ["127.0.0.1", "localhost", "[::1]", "10.0.0.1", "169.254.169.254", "2130706433"] {
        let config = push(format!("http://{host}:{port}/"), Line::V10).config;
        let error = webhooks.check(&config).await.unwrap_err();
        assert_eq!((error.kind, &error.fields["field"]), (crate::ErrorKind::InvalidParams, &"url".into()), "{host}");
    }
    // One that was stored while private addresses were allowed.
    let sender = Sender::start(temporary().await, webhooks);
    let mut task = begin(&sender.records, push(server.url(), Line::V10)).await;
    write(&sender.records, &mut task, vec![status(TaskState::Completed, "status")]).await;
    sender.finished("t").await;
    assert!(server.got.try_recv().is_err());
    sender.stop().await;
}

#[tokio::test]
async fn a_configuration_is_checked() {
    let webhooks = Webhooks::new(true);
    let field = async |change: fn(&mut PushConfig)| {
        let mut config = push("http://127.0.0.1/hook".to_owned(), Line::V10).config;
        change(&mut config);
        let checked = webhooks.check(&config).await;
        checked.err().map(|error| error.fields["field"].as_str().unwrap().to_owned())
    };
    let with = |scheme: &str, credentials: &str| {
        Some(PushAuthentication { schemes: vec![scheme.to_owned()], credentials: Some(credentials.to_owned()) })
    };
    assert_eq!(field(|_| ()).await, None);
    assert_eq!(field(|config| config.token = Some("token".to_owned())).await, None);
    assert_eq!(field(|config| config.token = Some("a\nb".to_owned())).await.as_deref(), Some("token"));
    for url in ["", "/hook", "ftp://host/", "file:///etc/passwd", "http://", "http://me:secret@host/"] {
        let mut config = push(url.to_owned(), Line::V10).config;
        let error = webhooks.check(&config).await.unwrap_err();
        assert_eq!(error.fields["field"], "url", "{url}");
        assert!(!error.message.contains("secret"));
        config.url = format!("http://host/{}", "x".repeat(3000));
        assert!(webhooks.check(&config).await.is_err());
    }
    for (scheme, credentials, is_good) in
        [("Bearer", "abc", true), ("", "abc", false), ("two words", "abc", false), ("Bearer", "a\r\nb", false)]
    {
        let mut config = push("http://127.0.0.1/hook".to_owned(), Line::V10).config;
        config.authentication = with(scheme, credentials);
        assert_eq!(webhooks.check(&config).await.is_ok(), is_good, "{scheme} {credentials:?}");
    }
}
