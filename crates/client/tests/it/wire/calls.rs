//! Requests as they appear on the wire, and how their responses are handled.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::fake::{Fake, Kind, PendingRequest};
use api::{
    Budget, Caller, CatalogHost, CommandInput, CreateSession, Features, Host, HostError, ListMessages, ListSessions,
    MessageId, ModelRef, PermissionId, PermissionReply, PermissionReplyKind, PromptInput, PromptPart, PromptTarget,
    Scope, SessionId, ShellInput, SteerInput, TreeState, UpdateSession, WorkspaceHost,
};
use serde_json::{Value, json};
use trefoil_client::{Client, Options, Timeouts};

pub fn scope() -> Scope {
    Scope::new("/a b/ü%")
}

pub fn session_id() -> SessionId {
    SessionId::parse("ses_a").unwrap()
}

pub fn session() -> Value {
    json!({"id": "ses_a", "slug": "calm-otter", "projectID": "global", "directory": "/a b/ü%", "title": "t",
        "version": "1.18.33", "time": {"created": 1, "updated": 2}, "cost": 0})
}

fn user(id: &str) -> Value {
    json!({"info": {"id": id, "sessionID": "ses_a", "role": "user", "time": {"created": 5}, "agent": "build",
        "model": {"providerID": "test", "modelID": "test-model"}}, "parts": []})
}

fn answer(id: &str, finish: Option<&str>) -> Value {
    let completed = finish.map(|_| 7);
    json!({"info": {"id": id, "sessionID": "ses_a", "role": "assistant", "parentID": "msg_1", "mode": "build",
        "agent": "build", "path": {"cwd": "/p", "root": "/p"}, "cost": 0,
        "tokens": {"input": 1, "output": 1, "reasoning": 0, "cache": {"read": 0, "write": 0}},
        "modelID": "test-model", "providerID": "test", "time": {"created": 6, "completed": completed},
        "finish": finish}, "parts": []})
}

/// An id from a clock that is far ahead.
const NEWEST: &str = "msg_fffffffffff0aaaaaaaaaaaaaa";

/// Answers the request for the newest message, because a new id must sort after it.
async fn named(fake: &mut Fake) {
    let request = fake.next().await;
    assert!(request.line().starts_with("GET /session/ses_a/message?"), "{}", request.line());
    request.json(200, &json!([answer(NEWEST, Some("stop"))]));
}

/// Lets the client see the session, and with it its directory, on a server that does not say what it is.
async fn session_is_known(fake: &mut Fake, client: &Client) {
    let call = spawn(client, |client| async move { client.session(&session_id()).await });
    let request = fake.next().await;
    assert_eq!((request.line().as_str(), request.header("x-opencode-directory")), ("GET /session/ses_a", None));
    request.json_as(Kind::OpenCode, 200, &session());
    call.await.unwrap().unwrap();
}

/// Runs a call while the test plays the server.
pub fn spawn<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    client: &Client,
    call: impl FnOnce(Arc<Client>) -> F + Send + 'static,
) -> tokio::task::JoinHandle<T> {
    tokio::spawn(call(Arc::new(client.clone())))
}

fn text(text: &str) -> PromptInput {
    PromptInput { parts: vec![PromptPart::text(text)], ..PromptInput::default() }
}

#[tokio::test]
async fn a_request_names_directory_user_and_agent() {
    let mut fake = Fake::start(Kind::OpenCode).await;
    let options = Options { password: Some("secret".to_owned()), ..Options::default() };
    let client = Client::new(&fake.url(), options).unwrap();
    let call = spawn(&client, |client| async move {
        let input = CreateSession { title: Some("t".to_owned()), ..CreateSession::default() };
        client.create_session(&scope(), input).await
    });
    let request = fake.next().await;
    assert_eq!(request.line(), "POST /session");
    assert_eq!(request.header("x-opencode-directory"), Some("/a%20b/%C3%BC%25"));
    assert_eq!(request.header("authorization"), Some("Basic b3BlbmNvZGU6c2VjcmV0"));
    assert_eq!(request.header("user-agent"), Some(concat!("trefoil/", env!("CARGO_PKG_VERSION"))));
    // Missing values are absent, not null.
    assert_eq!(request.body, json!({"title": "t"}));
    request.json(200, &session());
    assert_eq!(call.await.unwrap().unwrap().id, session_id());
}

#[tokio::test]
async fn a_call_without_directory_uses_the_default() {
    let mut fake = Fake::start(Kind::OpenCode).await;
    let options = Options { directory: Some("/default".to_owned()), ..Options::default() };
    let client = Client::new(&format!("{}/base/", fake.url()), options).unwrap();
    let call = spawn(&client, |client| async move { client.config(&Scope::default()).await });
    let request = fake.next().await;
    assert_eq!(
        (request.line().as_str(), request.header("x-opencode-directory")),
        ("GET /base/config", Some("/default"))
    );
    request.json(200, &json!({}));
    call.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_request_names_the_callers_program() {
    let mut fake = Fake::start(Kind::OpenCode).await;
    for (name, agent) in [
        (Some("an editor"), concat!("trefoil/", env!("CARGO_PKG_VERSION"), " (an editor)")),
        // What a header cannot carry is left out.
        (Some("an\neditor"), concat!("trefoil/", env!("CARGO_PKG_VERSION"))),
        (None, concat!("trefoil/", env!("CARGO_PKG_VERSION"))),
    ] {
        let client = fake.client().with_caller(Caller { client: name.map(str::to_owned), ..Caller::default() });
        let call = spawn(&client, |client| async move { client.config(&scope()).await });
        let request = fake.next().await;
        assert_eq!(request.header("user-agent"), Some(agent));
        request.json(200, &json!({}));
        call.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_unix_socket_is_reached() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("server.sock");
    let mut fake = Fake::start_at(Kind::Trefoil, &path).await;
    let client = Client::new(&format!("unix:{}", path.display()), Options::default()).unwrap();
    let call = spawn(&client, |client| async move { client.health().await });
    let request = fake.next().await;
    assert_eq!(request.line(), "GET /global/health");
    request.json(200, &json!({"healthy": true, "version": "1.18.33"}));
    assert_eq!(call.await.unwrap().unwrap().version, "1.18.33");
    assert!(client.is_trefoil());
}

#[tokio::test]
async fn features_are_detected_from_responses() {
    let all = Features { cursor: true, steer: true, tree: true, budget: true, turns: true };
    for (kind, features) in [(Kind::Trefoil, all), (Kind::OpenCode, Features::default())] {
        let mut fake = Fake::start(kind).await;
        let client = fake.client();
        assert_eq!(client.features(), Features::default());
        let call = spawn(&client, |client| async move { client.session(&session_id()).await });
        fake.next().await.json(404, &json!({"name": "NotFoundError", "data": {"message": "Session not found: ses_a"}}));
        let error = call.await.unwrap().unwrap_err();
        assert!(matches!(&error, HostError::NotFound { what: "session", id, .. } if id == "ses_a"), "{error}");
        assert_eq!(client.features(), features);
    }
}

#[tokio::test]
async fn error_responses_become_host_errors() {
    let mut fake = Fake::start(Kind::OpenCode).await;
    let client = fake.client();
    let call = spawn(&client, |client| async move {
        let reply = PermissionReply { reply: PermissionReplyKind::Once, message: None };
        client.reply_permission(&PermissionId::parse("per_x").unwrap(), reply).await
    });
    let request = fake.next().await;
    assert_eq!((request.line().as_str(), &request.body), ("POST /permission/per_x/reply", &json!({"reply": "once"})));
    let message = "Permission request not found: per_x";
    request.json(404, &json!({"_tag": "PermissionNotFoundError", "requestID": "per_x", "message": message}));
    assert!(matches!(call.await.unwrap(), Err(HostError::NotFound { what: "permission request", .. })));

    session_is_known(&mut fake, &client).await;
    let call = spawn(&client, |client| async move { client.fork_session(&session_id(), None).await });
    let busy = json!({"_tag": "SessionBusyError", "sessionID": "ses_a", "message": "Session is busy: ses_a"});
    fake.next().await.json(409, &busy);
    assert!(matches!(call.await.unwrap(), Err(HostError::Busy(id)) if id == session_id()));

    // OpenCode responds to unknown paths with its web page.
    let call = spawn(&client, |client| async move { client.todo(&session_id()).await });
    fake.next().await.respond(200, "text/html", "<!doctype html>");
    let error = call.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("web page") && error.contains("GET http://"), "{error}");

    let call = spawn(&client, |client| async move { client.agents(&scope()).await });
    fake.next().await.respond(401, "text/plain", "");
    let error = call.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("OPENCODE_SERVER_PASSWORD"), "{error}");

    let call = spawn(&client, |client| async move { client.agents(&scope()).await });
    fake.next().await.json(200, &json!({"an": "object"}));
    let error = call.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("/agent is not understood"), "{error}");
}

#[tokio::test]
async fn an_unreachable_server_is_named() {
    let address = format!("127.0.0.1:{}", peer::free_port().unwrap());
    let client = Client::new(&format!("http://{address}"), Options::default()).unwrap();
    let error = client.health().await.unwrap_err().to_string();
    assert!(error.contains(&format!("http://{address} cannot be reached")) && error.contains("running"), "{error}");
    let error = client.wait_until_ready(Duration::ZERO).await.unwrap_err().to_string();
    assert!(error.contains("cannot be reached"), "{error}");
}

#[tokio::test]
async fn an_unanswered_call_times_out() {
    // The request waits for the test to answer, which it never does.
    let fake = Fake::start(Kind::OpenCode).await;
    let client = fake.client_with(Timeouts { call: Duration::from_millis(100), ..Timeouts::default() });
    let call = spawn(&client, |client| async move { client.agents(&scope()).await });
    let error = testkit::soon("the end of the call", call).await.unwrap().unwrap_err().to_string();
    assert!(error.contains("not answered within 100ms"), "{error}");
}

#[tokio::test]
async fn session_queries_use_wire_parameters() {
    let mut fake = Fake::start(Kind::OpenCode).await;
    let client = fake.client();
    let listed = |updated: i64, path: &str, archived: Option<i64>| {
        let mut session = session();
        session["path"] = path.into();
        session["time"] = json!({"created": 1, "updated": updated, "archived": archived});
        session
    };
    let all =
        json!([listed(9, "", None), listed(8, "sub", Some(1)), listed(7, "sub/deep", None), listed(6, "su", None)]);
    let none = ListSessions::default;
    for (query, line, times) in [
        (none(), "GET /session?limit=100", &[9, 8, 7, 6][..]),
        (
            ListSessions { directory_only: true, roots: true, limit: Some(3), ..none() },
            "GET /session?limit=3&directory=%2Fa+b%2F%C3%BC%25&roots=true",
            &[9, 8, 7],
        ),
        (
            ListSessions { before: Some(9), search: Some("x y".to_owned()), start: Some(2), ..none() },
            "GET /session?limit=10000&search=x+y&start=2",
            &[8, 7, 6],
        ),
        (ListSessions { unarchived: true, limit: Some(2), ..none() }, "GET /session?limit=10000", &[9, 7]),
        (ListSessions { path: Some("sub".to_owned()), ..none() }, "GET /session?path=sub&limit=100", &[8, 7]),
        (
            ListSessions { everywhere: true, before: Some(9), limit: Some(1), ..none() },
            "GET /experimental/session?archived=true&cursor=9&limit=1",
            &[8],
        ),
        (
            ListSessions { everywhere: true, unarchived: true, ..none() },
            "GET /experimental/session?archived=false&limit=100",
            &[9, 7, 6],
        ),
    ] {
        let call = spawn(&client, |client| async move { client.sessions(&scope(), query).await });
        let request = fake.next().await;
        assert_eq!(request.line(), line);
        request.json(200, &all);
        let got: Vec<i64> = call.await.unwrap().unwrap().iter().map(|session| session.time.updated).collect();
        assert_eq!(got, times, "{line}");
    }
}

#[tokio::test]
async fn a_page_before_a_message_needs_its_time() {
    let mut fake = Fake::start(Kind::OpenCode).await;
    let client = fake.client();
    session_is_known(&mut fake, &client).await;
    let call = spawn(&client, |client| async move {
        let before = Some(MessageId::parse("msg_5").unwrap());
        client.messages(&session_id(), ListMessages { limit: Some(2), before }).await
    });
    let request = fake.next().await;
    assert_eq!(request.line(), "GET /session/ses_a/message/msg_5");
    request.json(200, &user("msg_5"));
    let request = fake.next().await;
    // {"id":"msg_5","time":5} in base64
    assert_eq!(request.line(), "GET /session/ses_a/message?before=eyJpZCI6Im1zZ181IiwidGltZSI6NX0&limit=2");
    let body = json!([user("msg_3"), user("msg_4")]).to_string();
    let mut response = axum::response::Response::new(axum::body::Body::from(body));
    response.headers_mut().insert("x-next-cursor", "abc".parse().unwrap());
    request.send(response);
    let page = call.await.unwrap().unwrap();
    assert_eq!(page.older.unwrap().as_str(), "msg_3");
    assert_eq!(page.messages.len(), 2);
}

#[tokio::test]
async fn bodies_have_the_wire_format() {
    let mut fake = Fake::start(Kind::OpenCode).await;
    let client = fake.client();
    session_is_known(&mut fake, &client).await;
    let model = ModelRef { variant: Some("high".to_owned()), ..ModelRef::new("test", "test-model") };
    let target = PromptTarget { model: Some(model.clone()), ..PromptTarget::default() };

    let input = PromptInput { model: Some(model), ..text("hi") };
    let call = spawn(&client, |client| async move { client.prompt_async(&session_id(), input).await });
    named(&mut fake).await;
    let request = fake.next().await;
    let id = request.body["messageID"].as_str().unwrap().to_owned();
    assert!(id.as_str() > NEWEST, "it sorts after what is there: {id}");
    assert_eq!(
        request.body,
        json!({"parts": [{"type": "text", "text": "hi"}], "messageID": id, "noReply": false, "variant": "high",
            "model": {"providerID": "test", "modelID": "test-model"}})
    );
    request.respond(204, "text/plain", "");
    assert_eq!(call.await.unwrap().unwrap().as_str(), id);

    let input = CommandInput { command: "init".to_owned(), target: target.clone(), ..CommandInput::default() };
    let call = spawn(&client, |client| async move { client.command(&session_id(), input).await });
    let request = fake.next().await;
    let wanted = json!({"command": "init", "arguments": "", "model": "test/test-model", "variant": "high"});
    assert_eq!((request.line().as_str(), &request.body), ("POST /session/ses_a/command", &wanted));
    request.json(200, &answer("msg_2", Some("stop")));
    call.await.unwrap().unwrap();

    let input = ShellInput { command: "ls".to_owned(), target };
    let call = spawn(&client, |client| async move { client.shell(&session_id(), input).await });
    fake.next().await.json(200, &session());
    let request = fake.next().await;
    let model = json!({"providerID": "test", "modelID": "test-model"});
    assert_eq!(request.body, json!({"command": "ls", "agent": "build", "model": model}));
    request.json(200, &answer("msg_2", Some("stop")));
    call.await.unwrap().unwrap();

    let change = UpdateSession { archived: Some(Some(7)), ..UpdateSession::default() };
    let call = spawn(&client, |client| async move { client.update_session(&session_id(), change).await });
    let request = fake.next().await;
    assert_eq!((request.line().as_str(), &request.body), ("PATCH /session/ses_a", &json!({"time": {"archived": 7}})));
    request.json(200, &session());
    call.await.unwrap().unwrap();

    let call = spawn(&client, |client| async move { client.find_text(&scope(), "x.", 1).await });
    let request = fake.next().await;
    assert_eq!(request.line(), "GET /find?pattern=x.");
    let line = json!({"path": {"text": "a.txt"}, "lines": {"text": "xy\n"}, "line_number": 3, "absolute_offset": 40,
        "submatches": [{"match": {"text": "xy"}, "start": 0, "end": 2}]});
    request.json(200, &json!([line, line]));
    let found = call.await.unwrap().unwrap();
    assert_eq!((found.len(), found[0].line_number, &found[0].matches[..]), (1, 3, &[(0, 2)][..]));
}

/// Sends a prompt whose response breaks off, to a server that is already known, as is the session.
async fn broken_prompt(
    fake: &mut Fake,
    client: &Client,
) -> (tokio::task::JoinHandle<Result<api::MessageWithParts, HostError>>, Value) {
    session_is_known(fake, client).await;
    let call = spawn(client, |client| async move { client.config(&scope()).await });
    fake.next().await.json(200, &json!({}));
    call.await.unwrap().unwrap();
    let call = spawn(client, |client| async move { client.prompt(&session_id(), text("hi")).await });
    named(fake).await;
    let request = fake.next().await;
    let id = request.body["messageID"].clone();
    let writer = request.begin("application/json");
    writer.write(" ").await;
    writer.cut().await;
    (call, id)
}

#[tokio::test]
async fn a_prompt_is_sent_to_trefoil_again_with_its_id() {
    let mut fake = Fake::start(Kind::Trefoil).await;
    let client = fake.client();
    let (call, id) = broken_prompt(&mut fake, &client).await;
    let again = fake.next().await;
    assert!(id.as_str().unwrap().starts_with("msg_"));
    assert_eq!((again.line().as_str(), &again.body["messageID"]), ("POST /session/ses_a/message", &id));
    let writer = again.begin("application/json");
    writer.write(" \n ").await;
    writer.write(answer("msg_2", Some("stop")).to_string()).await;
    drop(writer);
    assert_eq!(call.await.unwrap().unwrap().info.id().as_str(), "msg_2");
    assert!(fake.is_quiet());
}

#[tokio::test]
async fn opencode_never_gets_a_prompt_twice() {
    let mut fake = Fake::start(Kind::OpenCode).await;
    let client = fake.client();
    let (call, _) = broken_prompt(&mut fake, &client).await;
    let error = call.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("broke"), "{error}");
    assert!(fake.is_quiet());
}

#[tokio::test]
async fn opencode_turns_may_be_silent_and_trefoil_turns_may_not() {
    // Any silence at all is too long.
    let timeouts = Timeouts { turn_silence: Duration::ZERO, ..Timeouts::default() };
    for kind in [Kind::OpenCode, Kind::Trefoil] {
        let mut fake = Fake::start(kind).await;
        let client = fake.client_with(timeouts);
        session_is_known(&mut fake, &client).await;
        let command = CommandInput { command: "init".to_owned(), ..CommandInput::default() };
        let call = spawn(&client, |client| async move { client.command(&session_id(), command).await });
        let writer = fake.next().await.begin("application/json");
        if kind == Kind::Trefoil {
            let error = call.await.unwrap().unwrap_err().to_string();
            assert!(error.contains("went silent"), "{error}");
            writer.closed().await;
        } else {
            writer.write(" ").await;
            writer.write(answer("msg_2", Some("stop")).to_string()).await;
            drop(writer);
            call.await.unwrap().unwrap();
        }
    }
}

/// A node of a tree with only the required fields.
fn node() -> Value {
    let usage = json!({"cost": 0.5, "tokens": {"input": 1, "output": 2, "reasoning": 0, "cache": {"read": 0, "write": 0}},
        "steps": 1, "toolCalls": 2, "files": 0, "estimatedCost": 0.0, "estimatedTokens": 0, "estimatedSteps": 0});
    json!({"sessionID": "ses_a", "depth": 0, "title": "t", "state": "blocked", "background": false, "asks": [],
        "own": usage, "total": usage, "created": 1})
}

#[tokio::test]
async fn subagents_are_inspected_and_controlled() {
    let mut fake = Fake::start(Kind::Trefoil).await;
    let client = fake.client();
    session_is_known(&mut fake, &client).await;
    client_is_known(&mut fake, &client).await;

    let call = spawn(&client, |client| async move { client.tree(&session_id()).await });
    let request = fake.next().await;
    assert_eq!(request.line(), "GET /session/ses_a/tree");
    assert_eq!(request.header("x-opencode-directory"), Some("/a%20b/%C3%BC%25"));
    request.json(200, &json!({"sessions": [node()], "cursor": "7-evt_1"}));
    let tree = call.await.unwrap().unwrap();
    assert_eq!((tree.sessions[0].state, tree.sessions[0].total.tool_calls), (TreeState::Blocked, 2));

    let call = spawn(&client, |client| async move {
        let input = SteerInput { text: Some("Faster".to_owned()), ..SteerInput::default() };
        client.steer(&session_id(), input).await
    });
    let request = fake.next().await;
    assert_eq!(request.line(), "POST /session/ses_a/steer");
    assert_eq!(request.body, json!({"text": "Faster", "parts": []}));
    request.json(200, &json!({"messageID": "msg_9"}));
    assert_eq!(call.await.unwrap().unwrap().as_str(), "msg_9");

    for (paused, verb) in [(true, "pause"), (false, "resume")] {
        let call = spawn(&client, move |client| async move { client.pause(&session_id(), paused).await });
        let request = fake.next().await;
        assert_eq!((request.line(), &request.body), (format!("POST /session/ses_a/{verb}"), &Value::Null));
        request.json(200, &json!(true));
        assert!(call.await.unwrap().unwrap());
    }

    let call = spawn(&client, |client| async move { client.cancel(&session_id()).await });
    let request = fake.next().await;
    assert_eq!(request.line(), "POST /session/ses_a/cancel");
    request.json(200, &json!({"sessions": ["ses_a", "ses_b"]}));
    assert_eq!(call.await.unwrap().unwrap().sessions.len(), 2);

    let call = spawn(&client, |client| async move {
        let budget = Budget { steps: Some(5), ..Budget::default() };
        client.budget(&session_id(), budget).await
    });
    let request = fake.next().await;
    assert_eq!((request.line().as_str(), &request.body), ("POST /session/ses_a/budget", &json!({"steps": 5})));
    request.json(200, &json!({"limit": {"steps": 5}, "spent": {"steps": 2}, "reserved": {}}));
    assert_eq!(call.await.unwrap().unwrap().spent.steps, Some(2));

    let worktree =
        json!({"sessionID": "ses_a", "directory": "/w", "branch": "b", "base": "c", "target": "/p", "files": []});
    let call = spawn(&client, |client| async move { client.worktree_diff(&session_id()).await });
    let request = fake.next().await;
    assert_eq!(request.line(), "GET /session/ses_a/worktree");
    let mut diff = worktree.clone();
    diff["patch"] = json!("+x");
    request.json(200, &diff);
    assert_eq!(call.await.unwrap().unwrap().patch, "+x");
    let call = spawn(&client, |client| async move { client.worktree_merge(&session_id()).await });
    let request = fake.next().await;
    assert_eq!(request.line(), "POST /session/ses_a/worktree");
    request.json(200, &worktree);
    assert_eq!(call.await.unwrap().unwrap().branch, "b");
    let call = spawn(&client, |client| async move { client.worktree_discard(&session_id()).await });
    let request = fake.next().await;
    assert_eq!(request.line(), "DELETE /session/ses_a/worktree");
    request.json(404, &json!({"name": "NotFoundError", "data": {"message": "Worktree not found: ses_a"}}));
    let error = call.await.unwrap().unwrap_err();
    assert!(matches!(&error, HostError::NotFound { what: "worktree", .. }), "{error:?}");

    for (background, verb) in [(true, "background"), (false, "foreground")] {
        let call = spawn(&client, move |client| async move { client.background(&session_id(), background).await });
        let request = fake.next().await;
        assert_eq!(request.line(), format!("POST /experimental/session/ses_a/{verb}"));
        request.json(200, &json!(false));
        assert!(!call.await.unwrap().unwrap());
    }
}

#[tokio::test]
async fn errors_of_subagent_calls_keep_their_meaning() {
    let mut fake = Fake::start(Kind::Trefoil).await;
    let client = fake.client();
    session_is_known(&mut fake, &client).await;
    client_is_known(&mut fake, &client).await;
    let call = spawn(&client, |client| async move { client.steer(&session_id(), SteerInput::default()).await });
    fake.next().await.json(409, &json!({"_tag": "ConflictError", "message": "no turn runs"}));
    let error = call.await.unwrap().unwrap_err();
    assert!(matches!(&error, HostError::Conflict(text) if text == "no turn runs"), "{error:?}");
}

/// A server that does not know an operation may proxy it elsewhere, so what only Trefoil supports is not sent to
/// others.
#[tokio::test]
async fn opencode_gets_no_request_that_only_trefoil_supports() {
    let mut fake = Fake::start(Kind::OpenCode).await;
    let client = fake.client();
    let call = spawn(&client, |client| async move {
        let id = session_id();
        let secret = SteerInput { text: Some("a secret".to_owned()), ..SteerInput::default() };
        [
            client.tree(&id).await.err(),
            client.steer(&id, secret).await.err(),
            client.pause(&id, true).await.err(),
            client.cancel(&id).await.err(),
            client.budget(&id, Budget::default()).await.err(),
            client.background(&id, false).await.err(),
            client.worktree_diff(&id).await.err(),
            client.worktree_merge(&id).await.err(),
            client.worktree_discard(&id).await.err(),
        ]
    });
    for _ in 0..9 {
        let request = fake.next().await;
        assert_eq!(request.line(), "GET /global/health");
        request.json(200, &json!({"healthy": true, "version": "1.18.33"}));
    }
    for error in call.await.unwrap() {
        assert!(matches!(&error, Some(HostError::Unsupported(_))), "{error:?}");
    }
    // OpenCode knows this one.
    session_is_known(&mut fake, &client).await;
    let call = spawn(&client, |client| async move { client.background(&session_id(), true).await });
    let request = fake.next().await;
    assert_eq!(request.line(), "POST /experimental/session/ses_a/background");
    request.json(200, &json!(true));
    assert!(call.await.unwrap().unwrap());
    assert_eq!(client.features(), Features::default());
}

/// Any response shows which server it is.
async fn client_is_known(fake: &mut Fake, client: &Client) {
    let call = spawn(client, |client| async move { client.health().await });
    fake.next().await.json(200, &json!({"healthy": true, "version": "1.18.33"}));
    call.await.unwrap().unwrap();
}

#[tokio::test]
async fn waiting_prompts_are_those_after_the_last_answer() {
    let mut fake = Fake::start(Kind::Trefoil).await;
    let client = fake.client();
    session_is_known(&mut fake, &client).await;
    let play = async |fake: &mut Fake, statuses: Value| {
        let call = spawn(&client, |client| async move { client.waiting(&session_id()).await });
        let request: PendingRequest = fake.next().await;
        assert_eq!(request.line(), "GET /session/status");
        request.json(200, &statuses);
        let messages = [
            user("msg_1"),
            answer("msg_2", Some("stop")),
            user("msg_3"),
            answer("msg_4", Some("tool-calls")),
            user("msg_5"),
            answer("msg_6", None),
        ];
        fake.next().await.json(200, &json!(messages));
        let ids = call.await.unwrap().unwrap();
        ids.iter().map(|id| id.as_str().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(play(&mut fake, json!({"ses_a": {"type": "busy"}})).await, ["msg_3", "msg_5"]);
    assert!(play(&mut fake, json!({})).await.is_empty());
}
