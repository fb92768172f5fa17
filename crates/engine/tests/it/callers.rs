//! Callers: what each of them sees and may do.

use std::collections::HashSet;
use std::sync::Arc;

use api::{
    Budget, Caller, CallerCapabilities, CatalogHost, CommandInput, CreateSession, Delivery, EventBody, Host, HostError,
    ListMessages, ListSessions, ListTurns, MessageId, PartId, PermissionReply, PermissionReplyKind, Session, SessionId,
    ShellInput, SteerInput, SummarizeInput, TurnId, UpdateSession, WatchItem, WatchScope,
};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use indexmap::IndexMap;
use serde_json::json;
use testkit::{Recorder, soon};
use trefoil_engine::Engine;

use crate::common::family::{asked, asking, bash, task};
use crate::common::{Lab, open, prompt, script};

fn known_as(lab: &Lab, identity: &str) -> Engine {
    lab.engine.with_caller(Caller { identity: Some(identity.to_owned()), ..Caller::default() })
}

fn titled() -> CreateSession {
    CreateSession { title: Some("test".to_owned()), ..CreateSession::default() }
}

fn is_missing<T>(result: Result<T, HostError>) -> bool {
    matches!(result, Err(HostError::NotFound { .. }))
}

/// The calls with the id of a session for which the session exists.
async fn calls_that_find(engine: &Engine, id: &SessionId) -> Vec<&'static str> {
    let (message, part) = (MessageId::new(), PartId::new());
    let (model, turn) = (api::ModelRef::new("script", "demo"), TurnId::new(id, 1));
    let calls = [
        ("session", is_missing(engine.session(id).await)),
        ("update_session", is_missing(engine.update_session(id, UpdateSession::default()).await)),
        ("children", is_missing(engine.children(id).await)),
        ("fork_session", is_missing(engine.fork_session(id, None).await)),
        ("share", is_missing(engine.share(id).await)),
        ("unshare", is_missing(engine.unshare(id).await)),
        ("revert", is_missing(engine.revert(id, message.clone(), None).await)),
        ("unrevert", is_missing(engine.unrevert(id).await)),
        ("session_diff", is_missing(engine.session_diff(id, None).await)),
        ("session_servers", is_missing(engine.session_servers(id, IndexMap::new()).await)),
        ("restore_servers", is_missing(engine.restore_servers(id, IndexMap::new()).await)),
        ("session_commands", is_missing(engine.session_commands(id).await)),
        ("messages", is_missing(engine.messages(id, ListMessages::default()).await)),
        ("message", is_missing(engine.message(id, &message).await)),
        ("message_id", is_missing(engine.message_id(id).await)),
        ("delete_message", is_missing(engine.delete_message(id, &message).await)),
        ("delete_part", is_missing(engine.delete_part(id, &message, &part).await)),
        ("prompt", is_missing(engine.prompt(id, prompt("Hello")).await)),
        ("prompt_async", is_missing(engine.prompt_async(id, prompt("Hello")).await)),
        ("submit", is_missing(engine.submit(id, prompt("Hello"), Delivery::Queue).await)),
        ("turn", is_missing(engine.turn(&turn).await)),
        ("turns", is_missing(engine.turns(id, ListTurns::default()).await)),
        ("wait", is_missing(engine.wait(&turn).await)),
        ("cancel_turn", is_missing(engine.cancel_turn(&turn).await)),
        ("command", is_missing(engine.command(id, CommandInput::default()).await)),
        ("shell", is_missing(engine.shell(id, ShellInput::default()).await)),
        ("abort", is_missing(engine.abort(id).await)),
        ("summarize", is_missing(engine.summarize(id, SummarizeInput { model, auto: false }).await)),
        ("todo", is_missing(engine.todo(id).await)),
        ("waiting", is_missing(engine.waiting(id).await)),
        ("recover", is_missing(engine.recover(Some(id)).await)),
        ("tree", is_missing(engine.tree(id).await)),
        ("tree_json", is_missing(engine.tree_json(id).await)),
        ("steer", is_missing(engine.steer(id, SteerInput::default()).await)),
        ("pause", is_missing(engine.pause(id, true).await)),
        ("cancel", is_missing(engine.cancel(id).await)),
        ("budget", is_missing(engine.budget(id, Budget::default()).await)),
        ("background", is_missing(engine.background(id, true).await)),
        ("worktree_diff", is_missing(engine.worktree_diff(id).await)),
        ("worktree_merge", is_missing(engine.worktree_merge(id).await)),
        ("worktree_discard", is_missing(engine.worktree_discard(id).await)),
        ("watch", is_missing(engine.watch(WatchScope::Session(id.clone()), None).await)),
        ("watch a subtree", is_missing(engine.watch(WatchScope::Subtree(id.clone()), None).await)),
        ("watch a turn", is_missing(engine.watch(WatchScope::Turn(turn.clone()), None).await)),
        ("delete_session", is_missing(engine.delete_session(id).await)),
    ];
    calls.into_iter().filter(|(_, missing)| !missing).map(|(call, _)| call).collect()
}

async fn listed(lab: &Lab, engine: &Engine) -> HashSet<SessionId> {
    let sessions = engine.sessions(&lab.scope, ListSessions::default()).await.unwrap();
    let json = engine.sessions_json(&lab.scope, ListSessions::default()).await.unwrap();
    let json: Vec<Session> = serde_json::from_str(&json).unwrap();
    assert_eq!(sessions, json);
    sessions.into_iter().map(|session| session.id).collect()
}

#[tokio::test]
async fn sessions_of_others_do_not_exist() {
    let lab = Lab::new();
    let (alice, bob) = (known_as(&lab, "alice"), known_as(&lab, "bob"));
    let made = alice.create_session(&lab.scope, titled()).await.unwrap().id;
    let copied = alice.fork_session(&made, None).await.unwrap().id;
    let unowned = lab.session().await;
    let none: [&str; 0] = [];
    for id in [&made, &copied] {
        assert_eq!(calls_that_find(&bob, id).await, none);
        assert_eq!(alice.session(id).await.unwrap().id, *id);
        assert_eq!(lab.engine.session(id).await.unwrap().id, *id);
    }
    assert_eq!(calls_that_find(&alice, &unowned).await, none);
    let below = CreateSession { parent_id: Some(made.clone()), ..titled() };
    assert!(is_missing(bob.create_session(&lab.scope, below).await));
    assert!(matches!(bob.recover(None).await, Err(HostError::Forbidden(_))));
    assert_eq!(listed(&lab, &alice).await, HashSet::from([made.clone(), copied.clone()]));
    assert_eq!(listed(&lab, &bob).await, HashSet::new());
    assert_eq!(listed(&lab, &lab.engine).await, HashSet::from([made, copied, unowned]));
}

#[tokio::test]
async fn a_page_is_full_however_many_sessions_belong_to_others() {
    let lab = Lab::new();
    let (alice, bob) = (known_as(&lab, "alice"), known_as(&lab, "bob"));
    let mut own = Vec::new();
    for _ in 0..3 {
        own.push(alice.create_session(&lab.scope, titled()).await.unwrap().id);
    }
    for _ in 0..5 {
        bob.create_session(&lab.scope, titled()).await.unwrap();
    }
    for everywhere in [false, true] {
        let query = ListSessions { limit: Some(3), everywhere, ..ListSessions::default() };
        let page = alice.sessions(&lab.scope, query).await.unwrap();
        assert_eq!(page.iter().map(|session| &session.id).collect::<HashSet<_>>(), own.iter().collect());
    }
}

#[tokio::test]
async fn a_subagent_belongs_to_the_owner_of_its_caller() {
    let lab = Lab::new();
    let (alice, bob) = (known_as(&lab, "alice"), known_as(&lab, "bob"));
    let session = alice.create_session(&lab.scope, titled()).await.unwrap().id;
    let steps = json!([{"tools": [task("Help", "general", json!([{"text": "helped"}]))]}, {"text": "done"}]);
    // Even if somebody else sends the prompt.
    lab.engine.prompt(&session, prompt(&script(steps))).await.unwrap();
    let children = alice.children(&session).await.unwrap();
    assert_eq!(children.len(), 1);
    alice.session(&children[0].id).await.unwrap();
    assert!(is_missing(bob.session(&children[0].id).await));
}

#[tokio::test]
async fn requests_of_others_do_not_exist() {
    let lab = asking();
    let (alice, bob) = (known_as(&lab, "alice"), known_as(&lab, "bob"));
    let session = alice.create_session(&lab.scope, titled()).await.unwrap().id;
    let mut events = lab.recorder().await;
    alice.prompt_async(&session, prompt(&script(json!([{"tools": [bash("true")]}, {"text": "done"}])))).await.unwrap();
    let ask = asked(&mut events).await;
    assert!(bob.permissions(&lab.scope).await.unwrap().is_empty());
    assert!(bob.statuses(&lab.scope).await.unwrap().is_empty());
    assert_eq!(alice.permissions(&lab.scope).await.unwrap().len(), 1);
    assert_eq!(alice.statuses(&lab.scope).await.unwrap().len(), 1);
    let once = || PermissionReply { reply: PermissionReplyKind::Once, message: None };
    let refused = bob.reply_permission(&ask.id, once()).await;
    assert!(matches!(&refused, Err(HostError::NotFound { what: "permission request", .. })), "{refused:?}");
    alice.reply_permission(&ask.id, once()).await.unwrap();
    events.wait_idle(&session).await;
}

#[tokio::test]
async fn a_watch_shows_only_what_its_caller_sees() {
    let lab = Lab::new();
    let (alice, bob) = (known_as(&lab, "alice"), known_as(&lab, "bob"));
    let mut seen = Recorder::new(Arc::new(bob.clone())).await;
    let others = alice.create_session(&lab.scope, titled()).await.unwrap().id;
    let own = bob.create_session(&lab.scope, titled()).await.unwrap().id;
    bob.delete_session(&own).await.unwrap();
    seen.wait_for(|body| matches!(body, EventBody::SessionDeleted { session_id, .. } if *session_id == own)).await;
    let sessions: HashSet<SessionId> =
        seen.events().iter().filter_map(|event| event.body.session_id().cloned()).collect();
    assert_eq!(sessions, HashSet::from([own]), "no event of {others}");
}

/// In this process, in another one, and from the log.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_reader_still_sees_which_of_its_sessions_were_deleted() {
    let lab = Lab::new();
    let (alice, bob) = (known_as(&lab, "alice"), known_as(&lab, "bob"));
    let caller = Caller { identity: Some("bob".to_owned()), ..Caller::default() };
    let bob_elsewhere = open(&lab.project).with_caller(caller);
    let first = bob.create_session(&lab.scope, titled()).await.unwrap().id;
    let mut begin = bob.watch(WatchScope::All, None).await.unwrap();
    bob.delete_session(&first).await.unwrap();
    let cursor = match soon("an event", begin.next()).await {
        Some(WatchItem::Frame(frame)) => frame.cursor,
        other => panic!("{other:?}"),
    };
    let watches =
        [bob.watch(WatchScope::All, None).await.unwrap(), bob_elsewhere.watch(WatchScope::All, None).await.unwrap()];
    let others = alice.create_session(&lab.scope, titled()).await.unwrap().id;
    alice.delete_session(&others).await.unwrap();
    let own = bob.create_session(&lab.scope, titled()).await.unwrap().id;
    bob.delete_session(&own).await.unwrap();
    let resumed = bob.watch(WatchScope::All, cursor).await.unwrap();
    for mut watch in watches.into_iter().chain([resumed]) {
        loop {
            let Some(WatchItem::Frame(frame)) = soon("the deletion", watch.next()).await else { continue };
            let event = frame.event().unwrap();
            assert!(event.body.session_id().is_none_or(|id| *id == own), "{event:?}");
            if matches!(event.body, EventBody::SessionDeleted { .. }) {
                break;
            }
        }
    }
}

/// In this process and in another one, whose sweep may have removed some events for everybody.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_reader_misses_nothing_of_a_session_that_is_deleted_meanwhile() {
    let lab = Lab::new();
    let (alice, bob) = (known_as(&lab, "alice"), known_as(&lab, "bob"));
    let own = bob.create_session(&lab.scope, titled()).await.unwrap().id;
    // Nothing is read from these before the session is gone.
    let mut watches = Vec::new();
    for engine in [lab.engine.clone(), open(&lab.project)] {
        let caller = Caller { identity: Some("bob".to_owned()), ..Caller::default() };
        let bobs = engine.with_caller(caller).watch(WatchScope::All, None).await.unwrap();
        watches.push((engine.watch(WatchScope::Session(own.clone()), None).await.unwrap(), bobs));
    }
    let others = alice.create_session(&lab.scope, titled()).await.unwrap().id;
    bob.prompt(&own, prompt(&script(json!([{"text": "done"}])))).await.unwrap();
    alice.delete_session(&others).await.unwrap();
    bob.delete_session(&own).await.unwrap();
    let mut counts = Vec::new();
    for (owners, bobs) in watches {
        let (owners, bobs) = (until_deleted(owners, &own).await, until_deleted(bobs, &own).await);
        assert_eq!(owners, bobs);
        counts.push(bobs.len());
    }
    assert!(counts[0] > 5, "{counts:?}");
}

/// The types of the events of a session until its deletion. No other session may have any.
async fn until_deleted(mut watch: BoxStream<'static, WatchItem>, session: &SessionId) -> Vec<String> {
    let mut names = Vec::new();
    loop {
        let Some(WatchItem::Frame(frame)) = soon("the deletion", watch.next()).await else { continue };
        let event = frame.event().unwrap();
        let Some(of) = event.body.session_id() else { continue };
        assert_eq!(of, session, "{event:?}");
        names.push(api::Event::type_of(frame.json()).unwrap().into_owned());
        if matches!(event.body, EventBody::SessionDeleted { .. }) {
            return names;
        }
    }
}

#[tokio::test]
async fn a_caller_needs_the_capability_for_what_it_does() {
    let lab = Lab::new();
    let session = lab.session().await;
    let capabilities = CallerCapabilities { work: false, answer: false, configure: false };
    let reader = lab.engine.with_caller(Caller { capabilities, ..Caller::default() });
    reader.session(&session).await.unwrap();
    assert_eq!(reader.sessions(&lab.scope, ListSessions::default()).await.unwrap().len(), 1);
    let is_forbidden = |result: Result<(), HostError>| matches!(result, Err(HostError::Forbidden(_)));
    let reply = PermissionReply { reply: PermissionReplyKind::Once, message: None };
    let id = api::PermissionId::new();
    for (call, forbidden) in [
        ("create", is_forbidden(reader.create_session(&lab.scope, titled()).await.map(drop))),
        ("prompt", is_forbidden(reader.prompt_async(&session, prompt("Hello")).await.map(drop))),
        ("delete", is_forbidden(reader.delete_session(&session).await)),
        ("reply", is_forbidden(reader.reply_permission(&id, reply).await)),
        ("connect", is_forbidden(reader.mcp_connect(&lab.scope, "s").await)),
        ("servers", is_forbidden(reader.session_servers(&session, IndexMap::new()).await)),
    ] {
        assert!(forbidden, "{call}");
    }
}
