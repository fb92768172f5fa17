//! Nobody uses, sees or changes what belongs to somebody else: every call and every method of an extension, by a stranger.

use api::{CreateSession, Host as _, JsonMap, Scope, SessionId};
use serde_json::{Value, json};
use testkit::soon;
use trefoil_a2a::records::InterruptKind;
use trefoil_a2a::service::access::Use;
use trefoil_a2a::service::{Agent, Service};
use trefoil_a2a::wire::methods::EXTENSIONS;
use trefoil_a2a::{
    Call, Capabilities, Error, ErrorKind, Extensions, Line, ListRequest, Principal, PushConfig, Reply, SendOptions,
    SendRequest, TaskState,
};

use crate::common::*;

/// What belongs to Alice: a task that waits for a permission, its session with the session of a subagent, and a webhook.
struct Estate {
    lab: Lab,
    extensions: Extensions,
    task: String,
    context: String,
    session: SessionId,
    child: SessionId,
    request: String,
    message: String,
}

impl Estate {
    async fn new() -> Self {
        let lab = Lab::with(json!({"permission": {"bash": "ask"}}), |settings| {
            settings.session_shell = true;
            settings.workspace_mutations = true;
        })
        .await;
        let steps =
            json!([{"tools": [["bash", {"command": "echo hi > done.txt", "description": "write"}]]}, {"text": "x"}]);
        let task = lab.send(play("m1", steps)).await.unwrap();
        assert_eq!(task.status.state, TaskState::InputRequired, "{task:#?}");
        let shared = &task.metadata["shared"];
        let session = SessionId::parse(shared["session"]["id"].as_str().unwrap()).unwrap();
        let request = shared["interrupt"]["request_id"].as_str().unwrap().to_owned();
        let scope = Scope::new(lab.project.directory());
        let child = CreateSession { parent_id: Some(session.clone()), ..CreateSession::default() };
        let child = lab.engine.create_session(&scope, child).await.unwrap().id;
        let push = PushConfig { url: "https://hooks.example/1".to_owned(), ..push_of(&task.id) };
        lab.service.put_push(&alice(), Line::V10, push).await.unwrap();
        let messages = lab.engine.messages(&session, Default::default()).await.unwrap().messages;
        let message = messages[0].info.id().to_string();
        let extensions = Extensions::new(lab.service.clone());
        Self { extensions, task: task.id, context: task.context_id, session, child, request, message, lab }
    }

    /// Everything of Alice's that somebody could change.
    async fn state(&self) -> Value {
        let Self { lab, session, child, task, .. } = self;
        let tasks = lab.service.list(&alice(), ListRequest::default()).await.unwrap().tasks;
        let pushes = lab.service.list_push(&alice(), task, None, None).await.unwrap().0;
        let mut sessions = Vec::new();
        for id in [session, child] {
            sessions.push(json!({
                "session": lab.engine.session(id).await.unwrap(),
                "messages": lab.engine.messages(id, Default::default()).await.unwrap().messages,
                "children": lab.engine.children(id).await.unwrap(),
                "owner": lab.service.records().session_owner(id).unwrap(),
            }));
        }
        let interrupts = lab.service.access().interrupts(&alice(), InterruptKind::Permission);
        let asks = lab.engine.permissions(&Scope::new(lab.project.directory())).await.unwrap();
        json!({
            "task": lab.get(task).await, "tasks": tasks, "pushes": pushes, "sessions": sessions, "interrupts": interrupts,
            "asks": asks, "files": lab.project.path().join("done.txt").exists(),
        })
    }

    async fn call(&self, who: &Principal, method: &str, params: Value) -> Result<Value, Error> {
        let params: JsonMap = params.as_object().unwrap().clone();
        soon(method, self.extensions.call(who, Line::V03, method, &params)).await
    }
}

fn push_of(task: &str) -> PushConfig {
    PushConfig { task_id: task.to_owned(), url: "https://evil.example/".to_owned(), ..PushConfig::default() }
}

/// Somebody else, who may do whatever a credential can allow.
fn mallory() -> Principal {
    let capabilities = Capabilities { session_shell: true, workspace_mutation: true };
    Principal { identity: "mallory".to_owned(), credential: Some("c-mallory".to_owned()), capabilities }
}

/// What a stranger gets.
#[derive(Debug, PartialEq)]
enum Want {
    /// This error.
    Error(ErrorKind),
    /// A task of the stranger's own, which has failed.
    FailedTask,
    /// A task of the stranger's own, in a session of its own.
    OwnTask,
    /// Nothing of Alice's.
    Empty,
}

fn in_session(session: &SessionId) -> SendRequest {
    let mut request = say("", "steal");
    request.metadata.insert("shared".to_owned(), json!({"session": {"id": session}}));
    request
}

/// A call of each kind about what is Alice's, and what a stranger gets for it. The match has no wildcard: a new kind of
/// call does not compile until it is here.
fn calls(estate: &Estate) -> Vec<(Call, Want)> {
    let id = || estate.task.clone();
    let to_task = |mut request: SendRequest| {
        request.message.task_id = Some(id());
        request
    };
    let list = |context: Option<String>| ListRequest { context_id: context, ..ListRequest::default() };
    let steal = |session: &SessionId| in_session(session);
    let boxed = |request: SendRequest, number: usize| {
        let mut request = request;
        request.message.message_id = format!("evil-{number}");
        Box::new(request)
    };
    let not_found = || Want::Error(ErrorKind::TaskNotFound);
    let mut calls = vec![
        (Call::Send(boxed(to_task(say("", "once")), 1)), not_found()),
        (Call::Send(boxed(to_task(in_context(say("", "once"), &estate.context)), 2)), not_found()),
        (Call::Send(boxed(steal(&estate.session), 3)), Want::FailedTask),
        (Call::Send(boxed(steal(&estate.child), 4)), Want::FailedTask),
        (Call::Send(boxed(in_context(play("", json!([{"text": "mine"}])), &estate.context), 5)), Want::OwnTask),
        (Call::Send(Box::new(say("m1", "SCRIPT: [{\"text\": \"mine\"}]"))), Want::OwnTask),
        (Call::Stream(boxed(to_task(say("", "once")), 6)), not_found()),
        (Call::Stream(boxed(steal(&estate.session), 7)), Want::FailedTask),
        (Call::Get { id: id(), history_length: None }, not_found()),
        (Call::List(list(None)), Want::Empty),
        (Call::List(list(Some(estate.context.clone()))), Want::Empty),
        (Call::Cancel { id: id() }, not_found()),
        (Call::Subscribe { id: id(), after: None }, not_found()),
        (Call::Subscribe { id: id(), after: Some(1) }, not_found()),
        (Call::PutPush(push_of(&estate.task)), not_found()),
        (Call::GetPush { task: id(), id: None }, not_found()),
        (Call::ListPush { task: id(), page_size: None, page_token: None }, not_found()),
        (Call::DeletePush { task: id(), id: None }, not_found()),
        // The card says nothing about anybody.
        (Call::ExtendedCard, Want::Empty),
    ];
    for method in &EXTENSIONS {
        for (params, want) in methods(estate, method.name) {
            let params = params.as_object().unwrap().clone();
            calls.push((Call::Extension { method: method.name.to_owned(), params }, want));
        }
    }
    let kinds: std::collections::HashSet<_> = calls.iter().map(|(call, _)| std::mem::discriminant(call)).collect();
    for (call, _) in &calls {
        match call {
            Call::Send(_)
            | Call::Stream(_)
            | Call::Get { .. }
            | Call::List(_)
            | Call::Cancel { .. }
            | Call::Subscribe { .. }
            | Call::PutPush(_)
            | Call::GetPush { .. }
            | Call::ListPush { .. }
            | Call::DeletePush { .. }
            | Call::ExtendedCard
            | Call::Extension { .. } => {}
        }
    }
    assert_eq!(kinds.len(), 12, "one kind of call is not tried");
    // Tasks of the stranger's own say which sessions were asked for, so they come last.
    calls.sort_by_key(|(call, _)| matches!(call, Call::Send(_) | Call::Stream(_)));
    calls
}

/// Parameters for a method that are about what is Alice's. A method that is not known here fails the test.
fn methods(estate: &Estate, method: &str) -> Vec<(Value, Want)> {
    let of_sessions = |extra: Value| {
        let with = |session: &SessionId| {
            let mut params = json!({"session_id": session});
            params.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            (params, Want::Error(ErrorKind::SessionForbidden))
        };
        vec![with(&estate.session), with(&estate.child)]
    };
    let missing = |params: Value| vec![(params, Want::Error(ErrorKind::InterruptNotFound))];
    let empty = |params: Value| vec![(params, Want::Empty)];
    let parts = json!([{"type": "text", "text": "SCRIPT: [{\"text\": \"stolen\"}]"}]);
    match method {
        "opencode.sessions.status" | "opencode.permissions.list" | "opencode.questions.list" => empty(json!({})),
        "opencode.sessions.list" => vec![(json!({}), Want::Empty), (json!({"limit": 1}), Want::Empty)],
        "opencode.sessions.get"
        | "opencode.sessions.children"
        | "opencode.sessions.todo"
        | "opencode.sessions.diff"
        | "opencode.sessions.messages.list"
        | "opencode.sessions.share"
        | "opencode.sessions.unshare"
        | "opencode.sessions.unrevert"
        | "opencode.sessions.fork"
        | "opencode.sessions.summarize" => of_sessions(json!({})),
        "opencode.sessions.messages.get" => of_sessions(json!({"message_id": estate.message})),
        "opencode.sessions.prompt_async" => of_sessions(json!({"request": {"parts": parts}})),
        "opencode.sessions.command" => of_sessions(json!({"request": {"command": "init", "arguments": "x"}})),
        "opencode.sessions.revert" => of_sessions(json!({"request": {"messageID": estate.message}})),
        "opencode.sessions.shell" => {
            of_sessions(json!({"request": {"agent": "build", "command": "echo stolen > done.txt"}}))
        }
        "a2a.interrupt.permission.reply" => missing(json!({"request_id": estate.request, "reply": "once"})),
        // Even the kind of a foreign request is not told.
        "a2a.interrupt.question.reply" => missing(json!({"request_id": estate.request, "answers": [["x"]]})),
        "a2a.interrupt.question.reject" => missing(json!({"request_id": estate.request})),
        "trefoil.tasks.tree" => vec![(json!({"task_id": estate.task}), Want::Error(ErrorKind::TaskNotFound))],
        // These are about the project, which everybody shares.
        "opencode.providers.list"
        | "opencode.models.list"
        | "opencode.projects.list"
        | "opencode.projects.current"
        | "opencode.workspaces.list"
        | "opencode.workspaces.create"
        | "opencode.workspaces.remove"
        | "opencode.worktrees.list"
        | "opencode.worktrees.create"
        | "opencode.worktrees.remove"
        | "opencode.worktrees.reset" => Vec::new(),
        _ => panic!("the method {method} is not tried by a stranger"),
    }
}

/// The text of everything that a stranger gets for a call.
async fn run(estate: &Estate, who: &Principal, call: Call) -> Result<(Want, String), Error> {
    let service = &estate.lab.service;
    let task = |reply: Reply| match reply {
        Reply::Sent(task) if task.status.state == TaskState::Failed => (Want::FailedTask, format!("{task:?}")),
        Reply::Sent(task) => {
            assert_ne!(task.metadata["shared"]["session"]["id"], json!(estate.session));
            assert_eq!(text_of(&task), "mine");
            // It names the context that was asked for, which is the stranger's own one of that name.
            (Want::OwnTask, format!("{:?}", task.artifacts))
        }
        other => panic!("{other:?}"),
    };
    Ok(match call {
        Call::Send(request) => task(service.send(who, Line::V10, *request).await?),
        Call::Stream(request) => {
            let items = collect(service.stream(who, Line::V10, *request).await?).await;
            let failed = format!("{items:?}").contains("Failed");
            (if failed { Want::FailedTask } else { Want::OwnTask }, format!("{items:?}"))
        }
        Call::Get { id, history_length } => {
            (Want::Empty, format!("{:?}", service.get(who, &id, history_length).await?))
        }
        Call::List(list) => (Want::Empty, format!("{:?}", service.list(who, list).await?.tasks)),
        Call::Cancel { id } => (Want::Empty, format!("{:?}", service.cancel(who, &id).await?)),
        Call::Subscribe { id, after } => {
            (Want::Empty, format!("{:?}", collect(service.subscribe(who, &id, after).await?).await))
        }
        Call::PutPush(config) => (Want::Empty, format!("{:?}", service.put_push(who, Line::V10, config).await?)),
        Call::GetPush { task, id } => {
            (Want::Empty, format!("{:?}", service.get_push(who, &task, id.as_deref()).await?))
        }
        Call::ListPush { task, page_size, page_token } => {
            (Want::Empty, format!("{:?}", service.list_push(who, &task, page_size, page_token.as_deref()).await?))
        }
        Call::DeletePush { task, id } => {
            (Want::Empty, format!("{:?}", service.delete_push(who, &task, id.as_deref()).await?))
        }
        Call::ExtendedCard => (Want::Empty, String::new()),
        Call::Extension { method, params } => {
            (Want::Empty, estate.extensions.call(who, Line::V03, &method, &params).await?.to_string())
        }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_gets_nothing_and_changes_nothing() {
    let estate = Estate::new().await;
    let before = estate.state().await;
    for (call, want) in calls(&estate) {
        let name = format!("{call:?}");
        match (soon(&name, run(&estate, &mallory(), call)).await, want) {
            (Err(error), Want::Error(kind)) => {
                assert_eq!(error.kind, kind, "{name}: {error:?}");
                // It says no more than the caller did.
                let said = format!("{error:?}");
                for secret in [&estate.task, &estate.context, &estate.request] {
                    assert!(!said.contains(secret.as_str()) || name.contains(secret.as_str()), "{name}: {said}");
                }
            }
            (Ok((got, shown)), want) => {
                assert_eq!(got, want, "{name}: {shown}");
                for secret in [&estate.task, estate.session.as_str(), estate.child.as_str(), &estate.request] {
                    let is_asked = name.contains(secret);
                    assert!(!shown.contains(secret) || (is_asked && want == Want::FailedTask), "{name}: {shown}");
                }
            }
            (Err(error), want) => panic!("{name}: {error:?} instead of {want:?}"),
        }
        assert_eq!(estate.state().await, before, "{name} changed something");
    }
    // To Alice, all of it is still there.
    let listed = estate.call(&alice(), "opencode.permissions.list", json!({})).await.unwrap();
    assert_eq!(listed["items"][0]["request_id"], json!(estate.request));
    let answered = json!({"request_id": estate.request, "reply": "once"});
    estate.call(&alice(), "a2a.interrupt.permission.reply", answered.clone()).await.unwrap();
    let again = estate.call(&alice(), "a2a.interrupt.permission.reply", answered).await.unwrap_err();
    assert_eq!(again.kind, ErrorKind::InterruptNotFound);
    let task = estate.lab.until(&estate.task, "the end", |task| task.status.state.is_terminal()).await;
    assert_eq!(task.status.state, TaskState::Completed, "{task:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_owner_may_use_the_sessions_of_subagents() {
    let estate = Estate::new().await;
    for session in [&estate.session, &estate.child] {
        let params = json!({"session_id": session});
        let found = estate.call(&alice(), "opencode.sessions.get", params.clone()).await.unwrap();
        assert_eq!(found["item"]["id"], json!(session));
    }
    let children = estate.call(&alice(), "opencode.sessions.children", json!({"session_id": estate.session})).await;
    assert_eq!(children.unwrap()["items"][0]["id"], json!(estate.child));
    let listed = estate.call(&alice(), "opencode.sessions.list", json!({})).await.unwrap();
    let ids: Vec<&Value> = listed["items"].as_array().unwrap().iter().map(|item| &item["id"]).collect();
    assert!(ids.contains(&&json!(estate.session)) && ids.contains(&&json!(estate.child)), "{listed}");

    let tree = estate.call(&alice(), "trefoil.tasks.tree", json!({"task_id": estate.task})).await.unwrap();
    assert_eq!(tree["total"], 1);
    let child = &tree["items"][0];
    assert_eq!(child["id"], json!(estate.child));
    assert_eq!(child["metadata"]["trefoil"]["subagent"]["parent_id"], json!(estate.task));

    // A fork belongs to who forked, and is nobody else's.
    let fork = estate.call(&alice(), "opencode.sessions.fork", json!({"session_id": estate.session})).await.unwrap();
    let params = json!({"session_id": fork["item"]["id"]});
    estate.call(&alice(), "opencode.sessions.get", params.clone()).await.unwrap();
    let error = estate.call(&mallory(), "opencode.sessions.get", params).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::SessionForbidden);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_changes_an_unowned_session_first_owns_it() {
    let lab = Lab::new().await;
    let scope = Scope::new(lab.project.directory());
    let create = async || lab.engine.create_session(&scope, CreateSession::default()).await.unwrap();
    let (session, other) = (create().await, create().await);
    let child = CreateSession { parent_id: Some(session.id.clone()), ..CreateSession::default() };
    let child = lab.engine.create_session(&scope, child).await.unwrap();
    let access = lab.service.access().clone();
    let may = async |who: &Principal, id: &SessionId| access.session(who, id, Use::Read).await.is_ok();
    let listed = async |who: &Principal| {
        let all = vec![session.clone(), other.clone(), child.clone()];
        access.sessions(who, all).await.unwrap().len()
    };

    // Everybody may read it, and reading claims nothing.
    assert!(may(&alice(), &session.id).await && may(&bob(), &child.id).await);
    assert_eq!((listed(&alice()).await, listed(&bob()).await), (3, 3));

    // While a change is on its way, nobody else gets it.
    let claim = access.session(&alice(), &child.id, Use::Change).await.unwrap();
    let second = access.session(&alice(), &session.id, Use::Change).await.unwrap();
    for id in [&session.id, &child.id] {
        for purpose in [Use::Read, Use::Change] {
            let error = access.session(&bob(), id, purpose).await.err().unwrap();
            assert_eq!((error.kind, &error.fields["session_id"]), (ErrorKind::SessionForbidden, &json!(id)));
        }
    }
    assert_eq!((listed(&alice()).await, listed(&bob()).await), (3, 1));

    // A failure gives it up, but not while another change of the same owner is on its way.
    claim.release().await.unwrap();
    assert!(!may(&bob(), &session.id).await);
    second.release().await.unwrap();
    assert!(may(&bob(), &session.id).await);

    // A success makes the caller the owner, of subagents too.
    access.session(&bob(), &child.id, Use::Change).await.unwrap().confirm().await.unwrap();
    assert_eq!(lab.service.records().session_owner(&session.id).unwrap().as_deref(), Some("bob"));
    for id in [&session.id, &child.id] {
        assert!(may(&bob(), id).await && !may(&alice(), id).await);
    }
    assert_eq!((listed(&alice()).await, listed(&bob()).await), (1, 3));

    let nothing = SessionId::new();
    let error = access.session(&bob(), &nothing, Use::Read).await.err().unwrap();
    assert_eq!(error.kind, ErrorKind::SessionNotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_ends_after_its_time() {
    let lab = Lab::with(json!({}), |settings| settings.claim_ttl = std::time::Duration::ZERO).await;
    let scope = Scope::new(lab.project.directory());
    let session = lab.engine.create_session(&scope, CreateSession::default()).await.unwrap().id;
    let access = lab.service.access();
    let claim = access.session(&alice(), &session, Use::Change).await.unwrap();
    access.session(&bob(), &session, Use::Change).await.unwrap().confirm().await.unwrap();
    assert_eq!(claim.confirm().await.err().unwrap().kind, ErrorKind::SessionForbidden);
}

#[tokio::test(flavor = "multi_thread")]
async fn capabilities_are_checked_before_anything_else() {
    let estate = Estate::new().await;
    for method in &EXTENSIONS {
        if method.toggle.is_none() {
            continue;
        }
        let error = estate.call(&alice(), method.name, json!({})).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::AuthorizationForbidden, "{}", method.name);
        assert_eq!(error.fields["method"], method.name);
        assert!(error.fields.contains_key("capability") && error.fields.contains_key("credential_id"));
        // With the capability, the parameters are looked at.
        let error = estate.call(&mallory(), method.name, json!({"nonsense": 1})).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::InvalidParams, "{}", method.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn methods_take_exactly_what_is_published() {
    let estate = Estate::new().await;
    for method in &EXTENSIONS {
        let error = estate.call(&mallory(), method.name, json!({"zzz": 1})).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::InvalidParams, "{}: {error:?}", method.name);
        for name in method.required.iter().chain(method.optional) {
            // A wrong type is refused, but never as an unknown field.
            let (object, field) = name.split_once('.').unwrap_or(("", name));
            let params = match object {
                "" => json!({field: [[[]]]}),
                object if method.required.contains(&"session_id") => {
                    json!({"session_id": estate.session, object: {field: [[[]]]}})
                }
                object => json!({object: {field: [[[]]]}}),
            };
            let text = match estate.call(&mallory(), method.name, params).await {
                Ok(_) => continue,
                Err(error) => error.message,
            };
            assert!(!text.starts_with("Unsupported fields"), "{} refuses {name}: {text}", method.name);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_prompts_and_commands_stay_inside_of_the_workspace() {
    let estate = Estate::new().await;
    std::fs::write(estate.lab.project.root().join("secret.txt"), "secret").unwrap();
    std::os::unix::fs::symlink("../secret.txt", estate.lab.project.path().join("link.txt")).unwrap();
    let before = estate.state().await;
    let inside = |name: &str| format!("file://{}/{name}", estate.lab.project.directory());
    for url in [
        "file:///etc/passwd".to_owned(),
        inside("../secret.txt"),
        inside("link.txt"),
        "http://127.0.0.1:1/".to_owned(),
        "http://169.254.169.254/".to_owned(),
        "gopher://x".to_owned(),
    ] {
        let parts = json!([{"type": "text", "text": "x"}, {"type": "file", "mime": "text/plain", "url": url}]);
        for (method, mut request) in [
            ("opencode.sessions.prompt_async", json!({})),
            ("opencode.sessions.command", json!({"command": "init", "arguments": "x"})),
        ] {
            request["parts"] = parts.clone();
            let params = json!({"session_id": estate.session, "request": request});
            let error = estate.call(&alice(), method, params).await.unwrap_err();
            assert_eq!(error.kind, ErrorKind::InvalidParams, "{url}: {error:?}");
            assert_eq!(error.fields["field"], "request.parts[1].url");
        }
    }
    // A resource of an MCP server, behind an address that says nothing.
    let part = json!({"type": "file", "mime": "text/plain", "url": "data:,x",
        "source": {"type": "resource", "clientName": "files", "uri": "file:///etc/passwd"}});
    let params = json!({"session_id": estate.session, "request": {"parts": [part]}});
    let error = estate.call(&alice(), "opencode.sessions.prompt_async", params).await.unwrap_err();
    assert_eq!(error.fields["field"], "request.parts[0].source");
    assert_eq!(estate.state().await, before);

    // In a message, it fails the task before anything runs.
    let mut request = say("f1", "read this");
    request.message.parts.push(trefoil_a2a::Part::new(trefoil_a2a::Content::Url(inside("link.txt"))));
    request.options = SendOptions::default();
    let task = estate.lab.send(request).await.unwrap();
    assert_eq!(task.status.state, TaskState::Failed);
    assert!(status_text(&task).contains("outside"), "{}", status_text(&task));
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupts_are_checked_in_order() {
    let reply = "a2a.interrupt.permission.reply";
    let estate = Estate::new().await;
    let answer = json!({"request_id": estate.request, "reply": "once"});
    // To a stranger it is missing, whatever its kind; its owner hears of the wrong kind.
    let wrong = json!({"request_id": estate.request, "answers": [["x"]]});
    let error = estate.call(&mallory(), "a2a.interrupt.question.reply", wrong.clone()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::InterruptNotFound);
    let error = estate.call(&alice(), "a2a.interrupt.question.reply", wrong).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::InterruptTypeMismatch);
    assert_eq!(error.fields["expected_interrupt_type"], "question");
    assert_eq!(error.fields["actual_interrupt_type"], "permission");
    let error = estate.call(&alice(), reply, json!({"request_id": "per_nope", "reply": "once"})).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::InterruptNotFound);

    // What another face answers is gone here too.
    let ask = api::PermissionId::parse(&estate.request).unwrap();
    let reject = api::PermissionReply { reply: api::PermissionReplyKind::Reject, message: None };
    estate.lab.engine.reply_permission(&ask, reject).await.unwrap();
    estate.lab.until(&estate.task, "the end", |task| task.status.state.is_terminal()).await;
    let error = estate.call(&alice(), reply, answer).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::InterruptNotFound);
    let listed = estate.call(&alice(), "opencode.permissions.list", json!({})).await.unwrap();
    assert_eq!(listed, json!({"items": []}));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_interrupt_is_remembered_for_a_while() {
    for (tombstone, kind) in [(600, ErrorKind::InterruptExpired), (0, ErrorKind::InterruptNotFound)] {
        let lab = Lab::with(json!({"permission": {"bash": "ask"}}), |settings| {
            settings.interrupt_ttl = std::time::Duration::ZERO;
            settings.interrupt_tombstone_ttl = std::time::Duration::from_secs(tombstone);
        })
        .await;
        let steps = json!([{"tools": [["bash", {"command": "echo hi", "description": "write"}]]}, {"text": "x"}]);
        let task = lab.send(play("m1", steps)).await.unwrap();
        let request = task.metadata["shared"]["interrupt"]["request_id"].clone();
        let extensions = Extensions::new(lab.service.clone());
        let call = async |who: &Principal, method: &str, params: Value| {
            extensions.call(who, Line::V03, method, params.as_object().unwrap()).await
        };
        let answer = json!({"request_id": request, "reply": "once"});
        let error = call(&alice(), "a2a.interrupt.permission.reply", answer.clone()).await.unwrap_err();
        assert_eq!(error.kind, kind);
        let error = call(&mallory(), "a2a.interrupt.permission.reply", answer).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::InterruptNotFound);
        let listed = call(&alice(), "opencode.permissions.list", json!({})).await.unwrap();
        assert_eq!(listed, json!({"items": []}));
        lab.service.cancel(&alice(), &task.id).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_credential_of_the_owner_answers_nothing() {
    let lab = Lab::with(json!({"permission": {"bash": "ask"}}), |_| {}).await;
    let with = |credential: &str| Principal { credential: Some(credential.to_owned()), ..alice() };
    let steps = json!([{"tools": [["bash", {"command": "echo hi", "description": "write"}]]}, {"text": "x"}]);
    let sent = lab.service.send(&with("c-1"), Line::V10, play("m1", steps)).await.unwrap();
    let Reply::Sent(task) = sent else { panic!("{sent:?}") };
    let access = lab.service.access();
    assert_eq!(access.interrupts(&with("c-1"), InterruptKind::Permission).len(), 1);
    assert!(access.interrupts(&with("c-2"), InterruptKind::Permission).is_empty());
    assert!(access.interrupts(&with("c-1"), InterruptKind::Question).is_empty());
    let reject = api::PermissionReply { reply: api::PermissionReplyKind::Reject, message: None };
    let id = task.metadata["shared"]["interrupt"]["request_id"].as_str().unwrap().to_owned();
    let error = lab.service.reply_permission(&with("c-2"), &id, reject.clone()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::InterruptNotFound);
    lab.service.reply_permission(&with("c-1"), &id, reject).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn owners_outlive_the_records() {
    let lab = Lab::new().await;
    let open = async || temporary_service(&lab.project, std::sync::Arc::new(lab.engine.clone()), Agent::Host).await;
    let service = open().await;
    let sent = service.send(&alice(), Line::V10, play("m1", json!([{"text": "mine"}]))).await.unwrap();
    let Reply::Sent(task) = sent else { panic!("{sent:?}") };
    let session = SessionId::parse(task.metadata["shared"]["session"]["id"].as_str().unwrap()).unwrap();
    let call = async |service: &Service, who: &Principal, method: &str| {
        let params = json!({"session_id": session}).as_object().unwrap().clone();
        Extensions::new(service.clone()).call(who, Line::V03, method, &params).await
    };
    let forked = call(&service, &alice(), "opencode.sessions.fork").await.unwrap()["item"]["id"].take();
    let fork = SessionId::parse(forked.as_str().unwrap()).unwrap();
    service.shutdown().await;

    let service = open().await;
    let access = service.access();
    for id in [&session, &fork] {
        assert_eq!(service.records().session_owner(id).unwrap(), None, "the records know nothing");
        for purpose in [Use::Read, Use::Change] {
            let denied = access.session(&bob(), id, purpose).await.err().unwrap();
            assert_eq!(denied.kind, ErrorKind::SessionForbidden);
            access.session(&alice(), id, purpose).await.unwrap().confirm().await.unwrap();
        }
    }
    // Not even an owner needs a claim, and a stranger is in no list.
    let listed = async |who: &Principal| {
        let sessions = lab.engine.sessions(&Scope::new(lab.project.directory()), Default::default()).await.unwrap();
        access.sessions(who, sessions).await.unwrap().len()
    };
    assert_eq!((listed(&alice()).await, listed(&bob()).await), (2, 0));
    let error = call(&service, &bob(), "opencode.sessions.get").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::SessionForbidden);
    // The child of a session belongs to its root's owner.
    let child = CreateSession { parent_id: Some(session.clone()), ..CreateSession::default() };
    let child = lab.engine.create_session(&Scope::new(lab.project.directory()), child).await.unwrap().id;
    assert_eq!(access.session(&bob(), &child, Use::Change).await.err().unwrap().kind, ErrorKind::SessionForbidden);
    service.shutdown().await;
}
