//! The client against real servers: OpenCode and Trefoil must behave the same.

mod proxy;
mod scenario;
mod subagents;

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;

use api::{
    Budget, CreateSession, Cursor, Delivery, EventBody, Features, Host, HostError, ListTurns, Scope, SessionId,
    SteerInput, TreeState, TurnId, TurnState, WatchItem, WatchScope, WorkspaceHost,
};
use futures::StreamExt;
use futures::stream::BoxStream;
use testkit::{ModelServer, OpenCode, TempProject, trefoil_bin};
use trefoil_client::{Client, Options};

use proxy::{Proxy, Upstream};

/// How long a server may take for its first response.
const START: Duration = Duration::from_secs(60);

#[tokio::test]
async fn opencode_does_what_every_host_does() {
    let project = TempProject::new();
    let model = ModelServer::start().await;
    let server = OpenCode::start(&project, &scenario::config(&model));
    let client = Client::new(&server.url(), Options::default()).unwrap();
    client.wait_until_ready(START).await.unwrap();
    scenario::scenario(Arc::new(client.clone()), &project, model).await;
    assert_eq!(client.features(), Features::default());
}

#[tokio::test]
async fn trefoil_does_what_every_host_does() {
    let project = TempProject::new();
    let model = ModelServer::start().await;
    project.write_home(".config/opencode/opencode.json", scenario::config(&model).to_string());
    let (_server, client) = trefoil(&project).await;
    scenario::scenario(Arc::new(client.clone()), &project, model).await;
    assert_eq!(client.features(), Features { cursor: true, steer: true, tree: true, budget: true, turns: true });
    // Not for OpenCode, which would download ripgrep if it is missing.
    let found = client.find_text(&Scope::new(project.directory()), "need.e", 5).await.unwrap();
    assert_eq!(found.iter().map(|line| (line.path.as_str(), line.line_number)).collect::<Vec<_>>(), [("notes.txt", 2)]);
}

#[tokio::test]
async fn subagents_of_opencode_are_followed_through_a_cut() {
    let project = TempProject::new();
    let model = ModelServer::start().await;
    let server = OpenCode::start(&project, &scenario::config(&model));
    // This client hears of no request that it answers, so it must know the directory.
    let options = Options { directory: Some(project.directory()), ..Options::default() };
    let client = Client::new(&server.url(), options).unwrap();
    client.wait_until_ready(START).await.unwrap();
    let proxy = Proxy::start(Upstream::Tcp(server.url().trim_start_matches("http://").to_owned())).await;
    subagents::subagents(Arc::new(client), proxy, &project, model).await;
}

#[tokio::test]
async fn subagents_of_trefoil_are_followed_through_a_cut() {
    let project = TempProject::new();
    let model = ModelServer::start().await;
    project.write_home(".config/opencode/opencode.json", scenario::config(&model).to_string());
    let (_server, client) = trefoil(&project).await;
    let proxy = Proxy::start(Upstream::Unix(socket(&project))).await;
    subagents::subagents(Arc::new(client), proxy, &project, model).await;
}

/// What only Trefoil does, with an idle session. The server's own tests cover trees at work.
#[tokio::test]
async fn trefoil_controls_trees() {
    let project = TempProject::new();
    let scope = Scope::new(project.directory());
    let (_server, client) = trefoil(&project).await;
    let root = client.create_session(&scope, CreateSession::default()).await.unwrap().id;
    let input = CreateSession { parent_id: Some(root.clone()), ..CreateSession::default() };
    let child = client.create_session(&scope, input).await.unwrap().id;
    let tree = client.tree(&root).await.unwrap();
    let nodes: Vec<_> = tree.sessions.iter().map(|node| (&node.session_id, node.depth, node.state)).collect();
    assert_eq!(nodes, [(&root, 0, TreeState::Idle), (&child, 1, TreeState::Idle)]);
    assert!(tree.cursor.unwrap().parse::<Cursor>().is_ok());
    let budget = Budget { steps: Some(3), ..Budget::default() };
    assert_eq!(client.budget(&root, budget).await.unwrap().limit, budget);
    let zero = Budget { steps: Some(0), ..Budget::default() };
    assert!(matches!(client.budget(&root, zero).await, Err(HostError::Invalid(_))));
    for (paused, changed) in [(true, true), (true, false), (false, true), (false, false)] {
        assert_eq!(client.pause(&root, paused).await.unwrap(), changed);
    }
    let message = SteerInput { text: Some("Hello?".to_owned()), ..SteerInput::default() };
    assert!(matches!(client.steer(&child, message).await, Err(HostError::Conflict(_))));
    assert!(client.cancel(&root).await.unwrap().sessions.is_empty());
    for background in [true, false] {
        assert!(!client.background(&root, background).await.unwrap());
    }
    let missing = client.worktree_diff(&child).await.unwrap_err();
    assert!(matches!(&missing, HostError::NotFound { what: "worktree", .. }), "{missing:?}");
    let nobody = client.tree(&SessionId::new()).await.unwrap_err();
    assert!(matches!(&nobody, HostError::NotFound { what: "session", .. }), "{nobody:?}");
}

#[tokio::test]
async fn turns_of_trefoil_are_objects() {
    let project = TempProject::new();
    let mut model = ModelServer::start().await;
    model.answer_titles("A title");
    project.write_home(".config/opencode/opencode.json", scenario::config(&model).to_string());
    let scope = Scope::new(project.directory());
    let (_server, client) = trefoil(&project).await;
    let session = client.create_session(&scope, CreateSession::default()).await.unwrap().id;
    let submit = async |text: &str, delivery| {
        client.submit(&session, scenario::text(text), delivery).await.unwrap().turn_id.unwrap()
    };
    let first = submit("First", Delivery::Join).await;
    let mut call = model.next_call().await;
    let [queued, gone] = [submit("Second", Delivery::Queue).await, submit("Never", Delivery::Queue).await];
    assert_eq!(submit("Also", Delivery::Join).await, first);
    assert_eq!(client.turn(&first).await.unwrap().state, TurnState::Running);
    assert_eq!(client.cancel_turn(&gone).await.unwrap().state, TurnState::Cancelled);
    let open = ListTurns { ended: Some(false), limit: Some(1), ..ListTurns::default() };
    let page = client.turns(&session, open.clone()).await.unwrap();
    assert_eq!(page.turns.iter().map(|turn| &turn.id).collect::<Vec<_>>(), [&queued]);
    let page = client.turns(&session, ListTurns { before: page.older, ..open }).await.unwrap();
    assert_eq!((page.turns.iter().map(|turn| &turn.id).collect::<Vec<_>>(), page.older), (vec![&first], None));
    // The one that runs is found behind those that wait.
    let current = ListTurns { current: true, ..ListTurns::default() };
    let page = client.turns(&session, current).await.unwrap();
    assert_eq!((page.turns.iter().map(|turn| &turn.id).collect::<Vec<_>>(), page.older), (vec![&first], None));
    // The events of a turn are told apart from those of the next one in the same session.
    let mut watched = client.watch(WatchScope::Turn(queued.clone()), None).await.unwrap();
    call.text("One.").await;
    call.finish("stop").await;
    for _ in 0..2 {
        let mut call = model.next_call().await;
        call.text("More.").await;
        call.finish("stop").await;
    }
    let done = testkit::soon("the queued turn ends", client.wait(&queued)).await.unwrap();
    assert_eq!((done.state, done.prompts.len()), (TurnState::Done, 1));
    let answer = done.answer.unwrap();
    let completed = async {
        loop {
            let Some(WatchItem::Frame(frame)) = watched.next().await else { panic!("the stream ended") };
            assert_eq!(frame.turn_id().as_ref(), Some(&queued));
            match &frame.event().unwrap().body {
                EventBody::MessageUpdated { info, .. } if *info.id() == answer => return,
                _ => {}
            }
        }
    };
    testkit::soon("the answer's event", completed).await;
    assert_eq!(client.wait(&first).await.unwrap().prompts.len(), 2);
    let unknown = client.turn(&TurnId::new(&session, 99)).await.unwrap_err();
    assert!(matches!(&unknown, HostError::NotFound { what: "turn", .. }), "{unknown:?}");
}

#[tokio::test]
async fn trefoil_is_followed_through_a_restart() {
    let project = TempProject::new();
    let scope = Scope::new(project.directory());
    let (server, client) = trefoil(&project).await;
    let mut items = client.watch(WatchScope::All, None).await.unwrap();
    let before = client.create_session(&scope, CreateSession::default()).await.unwrap();
    assert_eq!(created(&mut items).await, before.id);
    drop(server);
    let (_server, client) = trefoil(&project).await;
    // Created while nobody is listening: the watch reconnects when it is polled for the next item.
    let missed = client.create_session(&scope, CreateSession::default()).await.unwrap();
    assert_eq!(created(&mut items).await, missed.id);
}

/// The session of the next `session.created` event. A gap before it fails the test.
async fn created(items: &mut BoxStream<'static, WatchItem>) -> SessionId {
    let search = async {
        loop {
            let item = items.next().await;
            let Some(WatchItem::Frame(frame)) = &item else { panic!("no event but {item:?}") };
            if let EventBody::SessionCreated { session_id, .. } = &frame.event().unwrap().body {
                return session_id.clone();
            }
        }
    };
    testkit::soon("a session is created", search).await
}

/// Starts a Trefoil server on a socket in the project's temporary folder.
async fn trefoil(project: &TempProject) -> (Server, Client) {
    let socket = socket(project);
    let mut command = project.command(trefoil_bin());
    let log = project.root().join("serve.log");
    command.args(["serve", "--print-logs", "--log-level", "warn", "--socket"]).arg(&socket).stdout(Stdio::null());
    command.stderr(File::options().create(true).append(true).open(&log).unwrap());
    let server = Server { child: command.spawn().unwrap(), log };
    let client = Client::new(&format!("unix:{}", socket.display()), Options::default()).unwrap();
    client.wait_until_ready(START).await.unwrap();
    (server, client)
}

fn socket(project: &TempProject) -> PathBuf {
    project.root().join("trefoil.sock")
}

/// A server process that ends when dropped.
struct Server {
    child: Child,
    log: PathBuf,
}

impl Drop for Server {
    #[expect(clippy::print_stderr, reason = "the test's output says why it failed")]
    fn drop(&mut self) {
        // It may have ended by itself.
        let found = testkit::autopsy(&mut self.child);
        if std::thread::panicking() {
            eprintln!("the server: {found}\nits log:\n{}", std::fs::read_to_string(&self.log).unwrap_or_default());
        }
    }
}
