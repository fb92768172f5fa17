//! What every host must do, whichever program runs the turns.

use std::sync::Arc;

use api::{
    AgentRuntime, Command, CreateSession, Event, EventBody, HostError, ListMessages, ListSessions, McpConfig,
    McpStatus, MessageError, MessageId, MessageWithParts, ModelRef, Part, PermissionReply, PermissionReplyKind,
    PromptInput, PromptPart, Scope, Session, SessionId, ToolState, UpdateSession, WatchItem, WatchScope,
};
use futures::StreamExt;
use futures::stream::BoxStream;
use indexmap::IndexMap;
use serde_json::{Value, json};
use testkit::{ModelServer, Reply, TempProject};
use trefoil_client::Events;

/// The configuration that the scenario needs.
pub fn config(model: &ModelServer) -> Value {
    let mut config = model.config();
    config["permission"] = json!({"bash": "ask"});
    config["enabled_providers"] = json!(["test"]);
    config["share"] = json!("disabled");
    config
}

struct Lab {
    host: Arc<dyn AgentRuntime>,
    scope: Scope,
    model: ModelServer,
    events: Events,
}

/// Runs everything on a host with the configuration [`config`].
pub async fn scenario(host: Arc<dyn AgentRuntime>, project: &TempProject, model: ModelServer) {
    model.answer_titles("A title");
    project.write("notes.txt", "first line\nsecond needle line\n");
    let scope = Scope::new(project.directory());
    let watch = host.watch(WatchScope::Directory(scope.directory.clone()), None).await.unwrap();
    let mut lab = Lab { host, scope, model, events: Events::follow(watch) };
    catalogue(&lab).await;
    files(&lab).await;
    let session = sessions(&lab).await;
    subtree(&lab, &session).await;
    turn(&lab, &session).await;
    let asked = permission(&lab, &session).await;
    abort(&mut lab, &session).await;
    later(&lab, &session).await;
    paging(&lab, &session).await;
    fork(&lab, &session, &asked).await;
    servers(&lab, &session, project).await;
    mistakes(&lab, &session).await;
    delete(&lab, &session).await;
}

async fn catalogue(lab: &Lab) {
    let Lab { host, scope, .. } = lab;
    assert!(host.agents(scope).await.unwrap().iter().any(|agent| agent.name == "build"));
    assert_eq!(host.default_model(scope).await.unwrap(), ModelRef::new("test", "test-model"));
    let providers = host.providers(scope).await.unwrap();
    assert!(providers.iter().any(|provider| provider.id == "test" && provider.models.contains_key("test-model")));
    let known = host.provider_catalog(scope).await.unwrap();
    assert!(known.all.iter().any(|provider| provider.id == "test" && provider.models.contains_key("test-model")));
    assert_eq!(known.default.get("test").map(String::as_str), Some("test-model"));
    assert!(known.connected.iter().any(|provider| provider == "test"));
    assert_eq!(host.config(scope).await.unwrap()["model"], "test/test-model");
    assert!(host.commands(scope).await.unwrap().iter().any(|command| command.name == "init"));
    host.skills(scope).await.unwrap();
    let project = host.project(scope).await.unwrap();
    assert_eq!(project.worktree, scope.directory);
    assert!(host.permissions(scope).await.unwrap().is_empty());
    assert!(host.questions(scope).await.unwrap().is_empty());
    assert!(host.statuses(scope).await.unwrap().is_empty());
}

async fn files(lab: &Lab) {
    let Lab { host, scope, .. } = lab;
    assert!(host.files(scope, ".").await.unwrap().iter().any(|file| file.name == "notes.txt" && file.kind == "file"));
    assert!(host.file(scope, "notes.txt").await.unwrap().content.contains("needle"));
    assert_eq!(host.find_files(scope, "notes", 5).await.unwrap(), ["notes.txt"]);
}

async fn sessions(lab: &Lab) -> Session {
    let Lab { host, scope, .. } = lab;
    let created = lab.events.once("session.created");
    let input = CreateSession { title: Some("A first title".to_owned()), ..CreateSession::default() };
    let session = host.create_session(scope, input).await.unwrap();
    assert_eq!((session.title.as_str(), session.directory.as_str()), ("A first title", scope.directory.as_str()));
    assert_eq!(soon(created).await.unwrap().body.session_id(), Some(&session.id));
    let change = UpdateSession { title: Some("Needle in a title".to_owned()), ..UpdateSession::default() };
    assert_eq!(host.update_session(&session.id, change).await.unwrap().title, "Needle in a title");
    assert_eq!(host.session(&session.id).await.unwrap().title, "Needle in a title");
    for query in [
        ListSessions::default(),
        ListSessions { directory_only: true, roots: true, limit: Some(1), ..ListSessions::default() },
        ListSessions { everywhere: true, search: Some("needle".to_owned()), ..ListSessions::default() },
        ListSessions { before: Some(i64::MAX >> 12), ..ListSessions::default() },
    ] {
        let found = host.sessions(scope, query.clone()).await.unwrap();
        assert!(found.len() == 1 && found[0].id == session.id, "{query:?}: {found:?}");
    }
    for query in [
        ListSessions { search: Some("haystack".to_owned()), ..ListSessions::default() },
        ListSessions { before: Some(session.time.created), ..ListSessions::default() },
        ListSessions { everywhere: true, before: Some(session.time.created), ..ListSessions::default() },
    ] {
        assert!(host.sessions(scope, query.clone()).await.unwrap().is_empty(), "{query:?}");
    }
    assert!(host.children(&session.id).await.unwrap().is_empty());
    assert!(host.todo(&session.id).await.unwrap().is_empty());
    session
}

/// The events of a session and its descendants, those that are created later included, and of no other.
async fn subtree(lab: &Lab, stranger: &Session) {
    let Lab { host, scope, .. } = lab;
    let create = async |parent: Option<&Session>| {
        let parent_id = parent.map(|parent| parent.id.clone());
        host.create_session(scope, CreateSession { parent_id, ..CreateSession::default() }).await.unwrap()
    };
    let root = create(None).await;
    let child = create(Some(&root)).await;
    let mut events = host.watch(WatchScope::Subtree(root.id.clone()), None).await.unwrap();
    let late = create(Some(&child)).await;
    for session in [stranger, &late, &child, &root] {
        let change = UpdateSession { title: Some(session.title.clone()), ..UpdateSession::default() };
        host.update_session(&session.id, change).await.unwrap();
    }
    let mut seen = Vec::new();
    while seen.last() != Some(&root.id) {
        seen.push(next(&mut events).await.body.session_id().unwrap().clone());
    }
    seen.dedup();
    assert_eq!(seen, [late.id, child.id, root.id.clone()]);
    host.delete_session(&root.id).await.unwrap();
}

/// A turn, as seen by its caller and by three kinds of listeners.
async fn turn(lab: &Lab, session: &Session) {
    let (all, mut deltas, idle) =
        (lab.events.all(), lab.events.on("message.part.delta"), lab.events.once("session.idle"));
    lab.model.enqueue(Reply::text("Hello ").and_text("there"));
    let answer = soon(lab.host.prompt(&session.id, text("Say hello"))).await.unwrap();
    assert_eq!(message_text(&answer), "Hello there");
    assert_eq!(soon(idle).await.unwrap().body.session_id(), Some(&session.id));
    let mut received = String::new();
    while received != "Hello there" {
        match &next(&mut deltas).await.body {
            EventBody::PartDelta { delta, .. } => received.push_str(delta),
            other => panic!("{other:?}"),
        }
    }
    let mut all = all;
    let mut busy = false;
    loop {
        match &next(&mut all).await.body {
            EventBody::SessionStatus { status: api::SessionStatus::Busy, .. } => busy = true,
            EventBody::SessionIdle { .. } => break,
            _ => {}
        }
    }
    assert!(busy);
}

/// A tool that asks for permission. Returns the id of the prompt.
async fn permission(lab: &Lab, session: &Session) -> MessageId {
    let Lab { host, scope, model, events } = lab;
    let (asked, replied) = (events.once("permission.asked"), events.once("permission.replied"));
    model.enqueue(Reply::default().tool("call_1", "bash", json!({"command": "echo permitted"})));
    model.enqueue(Reply::text("Done"));
    let id = MessageId::new();
    let prompt = {
        let (host, session) = (host.clone(), session.id.clone());
        let input = PromptInput { message_id: Some(id.clone()), ..text("Run it") };
        tokio::spawn(async move { host.prompt(&session, input).await })
    };
    let asked = soon(asked).await.unwrap();
    let EventBody::PermissionAsked(ask) = &asked.body else { panic!("{asked:?}") };
    assert_eq!((ask.permission.as_str(), &ask.patterns[..]), ("bash", &["echo permitted".to_owned()][..]));
    assert_eq!(host.permissions(scope).await.unwrap()[0].id, ask.id);
    assert!(host.statuses(scope).await.unwrap().contains_key(&session.id));
    let once = || PermissionReply { reply: PermissionReplyKind::Once, message: None };
    host.reply_permission(&ask.id, once()).await.unwrap();
    soon(replied).await.unwrap();
    assert_eq!(message_text(&soon(prompt).await.unwrap().unwrap()), "Done");
    let again = host.reply_permission(&ask.id, once()).await;
    assert!(matches!(again, Err(HostError::NotFound { .. } | HostError::Conflict(_))), "{again:?}");
    assert_eq!(host.message(&session.id, &id).await.unwrap().info.id(), &id);
    let page = host.messages(&session.id, ListMessages::default()).await.unwrap();
    let outputs: Vec<&str> = page
        .messages
        .iter()
        .flat_map(|message| &message.parts)
        .filter_map(|part| match part {
            Part::Tool(part) => match &part.state {
                ToolState::Completed(done) => Some(done.output.trim()),
                other => panic!("{other:?}"),
            },
            _ => None,
        })
        .collect();
    assert_eq!(outputs, ["permitted"]);
    id
}

async fn abort(lab: &mut Lab, session: &Session) {
    let mut deltas = lab.events.on("message.part.delta");
    let prompt = {
        let (host, session) = (lab.host.clone(), session.id.clone());
        tokio::spawn(async move { host.prompt(&session, text("Talk for ever")).await })
    };
    let mut call = lab.model.next_call().await;
    call.text("And so").await;
    next(&mut deltas).await;
    let idle = lab.events.once("session.idle");
    assert!(lab.host.abort(&session.id).await.unwrap());
    let answer = soon(prompt).await.unwrap().unwrap();
    let error = answer.info.as_assistant().unwrap().error.as_ref();
    assert!(matches!(error, Some(MessageError::MessageAbortedError(_))), "{answer:?}");
    assert_eq!(message_text(&answer), "And so");
    call.closed().await;
    soon(idle).await.unwrap();
}

/// A prompt that nobody waits for.
async fn later(lab: &Lab, session: &Session) {
    let mut messages = lab.events.on("message.updated");
    lab.model.enqueue(Reply::text("Later"));
    let id = lab.host.prompt_async(&session.id, text("Whenever")).await.unwrap();
    let answered = |event: &Event| match &event.body {
        EventBody::MessageUpdated { info, .. } => {
            info.as_assistant().is_some_and(|answer| answer.parent_id == id && answer.time.completed.is_some())
        }
        _ => false,
    };
    while !answered(&*next(&mut messages).await) {}
    let note = PromptInput { no_reply: true, ..text("Just a note") };
    let stored = lab.host.prompt(&session.id, note).await.unwrap();
    assert!(stored.info.as_user().is_some());
}

async fn paging(lab: &Lab, session: &Session) {
    let host = &lab.host;
    let all = host.messages(&session.id, ListMessages::default()).await.unwrap();
    assert!(all.older.is_none());
    let all: Vec<MessageId> = all.messages.iter().map(|message| message.info.id().clone()).collect();
    assert!(all.len() > 6);
    let mut pages: Vec<Vec<MessageId>> = Vec::new();
    let mut before = None;
    loop {
        let page = host.messages(&session.id, ListMessages { limit: Some(2), before }).await.unwrap();
        pages.push(page.messages.iter().map(|message| message.info.id().clone()).collect());
        before = page.older;
        if before.is_none() {
            break;
        }
    }
    pages.reverse();
    assert!(pages.iter().all(|page| (1..=2).contains(&page.len())));
    assert_eq!(pages.concat(), all);
    let query = ListMessages { limit: None, before: Some(all[3].clone()) };
    let rest = host.messages(&session.id, query).await.unwrap();
    assert_eq!(rest.messages.iter().map(|message| message.info.id().clone()).collect::<Vec<_>>(), all[..3]);
}

async fn fork(lab: &Lab, session: &Session, before: &MessageId) {
    let host = &lab.host;
    let all = host.messages(&session.id, ListMessages::default()).await.unwrap().messages;
    for (before, want) in [(Some(before.clone()), 2), (None, all.len())] {
        let fork = host.fork_session(&session.id, before).await.unwrap();
        let copied = host.messages(&fork.id, ListMessages::default()).await.unwrap().messages;
        assert_eq!(copied.len(), want);
        assert_eq!(message_text(&copied[1]), "Hello there");
        assert_ne!(copied[0].info.id(), all[0].info.id());
        host.delete_session(&fork.id).await.unwrap();
    }
}

async fn servers(lab: &Lab, session: &Session, project: &TempProject) {
    let Lab { host, scope, model, .. } = lab;
    let command = json!({ "type": "local", "command": ["python3", testkit::mcp_server(&project.home())] });
    let config: McpConfig = serde_json::from_value(command).unwrap();
    let added = soon(host.mcp_add(scope, "my tools", config)).await.unwrap();
    assert_eq!(added["my tools"], McpStatus::Connected);
    let resources = host.mcp_resources(scope).await.unwrap();
    assert_eq!(resources["my tools:memo://1"].client, "my tools");
    model.enqueue(Reply::default().tool("call_mcp", "my_tools_echo", json!({"text": "hi"})));
    model.enqueue(Reply::text("It echoes."));
    let answer = soon(host.prompt(&session.id, text("Use it."))).await.unwrap();
    assert_eq!(message_text(&answer), "It echoes.");
    let requests = model.requests();
    let offered = requests.last().unwrap().tools();
    for tool in ["my_tools_echo", "list_mcp_resources", "list_mcp_resource_templates", "read_mcp_resource"] {
        assert!(offered.contains(&tool), "{tool} is not among {offered:?}");
    }
    let messages = host.messages(&session.id, ListMessages::default()).await.unwrap().messages;
    let mut tools = messages.iter().flat_map(|message| message.parts.iter().filter_map(Part::as_tool));
    let tool = tools.find(|tool| tool.tool == "my_tools_echo").unwrap();
    let ToolState::Completed(done) = &tool.state else { panic!("{tool:?}") };
    assert_eq!((done.output.as_str(), done.title.as_str()), ("echo: hi", ""));
    host.mcp_disconnect(scope, "my tools").await.unwrap();
    assert_eq!(host.mcp(scope).await.unwrap()["my tools"], McpStatus::Disabled);
    soon(host.mcp_connect(scope, "my tools")).await.unwrap();
    assert_eq!(host.mcp(scope).await.unwrap()["my tools"], McpStatus::Connected);
    let error = host.mcp_connect(scope, "nobody").await.unwrap_err();
    assert!(matches!(&error, HostError::NotFound { what: "MCP server", id, .. } if id == "nobody"), "{error:?}");
    let error = host.mcp_auth_start(scope, "my tools").await.unwrap_err();
    assert!(matches!(&error, HostError::Invalid(text) if text.contains("does not support OAuth")), "{error:?}");
    host.mcp_auth_remove(scope, "my tools").await.unwrap();
    // The servers of a session do not belong to its directory.
    let command = json!({ "type": "local", "command": ["python3", testkit::mcp_server(&project.home())] });
    let own = || IndexMap::from([("own".to_owned(), serde_json::from_value(command.clone()).unwrap())]);
    let brought = host.session_servers(&session.id, own()).await;
    if !host.features().tree {
        assert!(matches!(&brought, Err(HostError::Unsupported(_))), "{brought:?}");
        return;
    }
    brought.unwrap();
    let greets = |commands: Vec<Command>| commands.iter().any(|command| command.name == "own:greet");
    assert!(greets(soon(host.session_commands(&session.id)).await.unwrap()));
    assert!(!greets(host.commands(scope).await.unwrap()));
    host.restore_servers(&session.id, own()).await.unwrap();
    model.enqueue(Reply::default().tool("call_own", "own_echo", json!({"text": "hi"})));
    model.enqueue(Reply::text("Mine."));
    assert_eq!(message_text(&soon(host.prompt(&session.id, text("Use yours."))).await.unwrap()), "Mine.");
    assert!(model.requests().last().unwrap().tools().contains(&"own_echo"));
    assert!(!host.mcp(scope).await.unwrap().contains_key("own"));
    host.session_servers(&session.id, IndexMap::new()).await.unwrap();
    let error = host.session_servers(&SessionId::new(), own()).await.unwrap_err();
    assert!(matches!(&error, HostError::NotFound { what: "session", .. }), "{error:?}");
}

async fn mistakes(lab: &Lab, session: &Session) {
    let host = &lab.host;
    let nobody = SessionId::new();
    let error = host.session(&nobody).await.unwrap_err();
    assert!(matches!(&error, HostError::NotFound { what: "session", id, .. } if *id == nobody.as_str()), "{error:?}");
    let error = host.prompt(&nobody, text("Hello?")).await.unwrap_err();
    assert!(matches!(&error, HostError::NotFound { what: "session", .. }), "{error:?}");
    let error = host.message(&session.id, &MessageId::new()).await.unwrap_err();
    assert!(matches!(&error, HostError::NotFound { what: "message", .. }), "{error:?}");
}

async fn delete(lab: &Lab, session: &Session) {
    let Lab { host, scope, events, .. } = lab;
    let deleted = events.once("session.deleted");
    host.delete_session(&session.id).await.unwrap();
    assert_eq!(soon(deleted).await.unwrap().body.session_id(), Some(&session.id));
    assert!(matches!(host.session(&session.id).await, Err(HostError::NotFound { .. })));
    assert!(host.sessions(scope, ListSessions::default()).await.unwrap().is_empty());
}

pub fn text(text: &str) -> PromptInput {
    PromptInput { parts: vec![PromptPart::text(text)], ..PromptInput::default() }
}

/// The text of a message.
fn message_text(message: &MessageWithParts) -> String {
    let texts = message.parts.iter().filter_map(|part| match part {
        Part::Text(part) => Some(part.text.as_str()),
        _ => None,
    });
    texts.collect()
}

async fn next(items: &mut BoxStream<'static, WatchItem>) -> Arc<Event> {
    match soon(items.next()).await {
        Some(WatchItem::Frame(frame)) => frame.event().expect("a frame is an event"),
        other => panic!("no event but {other:?}"),
    }
}

#[track_caller]
fn soon<T>(future: impl Future<Output = T>) -> impl Future<Output = T> {
    testkit::soon("what this line waits for", future)
}
