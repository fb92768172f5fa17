//! Owners: what belongs to one caller is found without looking at what belongs to others.

use crate::common::*;
use api::*;
use futures::stream::BoxStream;
use rusqlite::Connection;
use serde_json::json;
use trefoil_store::*;

/// Creates a session, and its event.
async fn create(store: &Store, owner: Option<&str>, updated: i64) -> Session {
    let session = session("owned", updated);
    let mut batch = batch();
    batch.session(&session);
    if let Some(owner) = owner {
        batch.session_owner(&session.id, owner);
    }
    batch.event(EventBody::SessionCreated { session_id: session.id.clone(), info: Box::new(session.clone()) });
    store.commit(batch).await.unwrap();
    session
}

fn of(owner: &str) -> SessionQuery {
    SessionQuery { owner: Some(owner.to_owned()), ..SessionQuery::default() }
}

#[tokio::test]
async fn a_page_is_full_however_many_sessions_belong_to_others() {
    let temp = Temp::new();
    let store = temp.open();
    let mut own = Vec::new();
    for updated in 0..60 {
        own.push(create(&store, Some("alice"), updated).await.id);
        create(&store, Some("bob"), updated).await;
        create(&store, None, updated).await;
    }
    own.reverse();
    let ids = |query: SessionQuery| -> Vec<SessionId> {
        store.sessions(&query).unwrap().into_iter().map(|session| session.id).collect()
    };
    assert_eq!(ids(SessionQuery { limit: 20, ..of("alice") }), own[..20]);
    assert_eq!(ids(SessionQuery { limit: 20, before: Some(40), ..of("alice") }), own[20..40]);
    let here = SessionQuery { project: Some("project".into()), directory: Some("/repo".into()), ..of("alice") };
    assert_eq!(ids(here), own);
    assert_eq!(ids(SessionQuery { project: Some("elsewhere".into()), ..of("alice") }), []);
    let created = Some(CreationOrder { ascending: false, after: None });
    assert_eq!(ids(SessionQuery { creation_order: created, limit: 5, ..of("alice") }), own[..5]);
    assert_eq!(ids(of("carol")), []);
    assert_eq!(ids(SessionQuery { limit: 1000, ..SessionQuery::default() }).len(), 180);
    assert!(!of("alice").is_short(), "it may go through all sessions of its owner");
    // In whichever order, only the rows of the owner are looked at.
    let raw = Connection::open(temp.path()).unwrap();
    for order in ["updated DESC, id", "number", "number DESC"] {
        let sql = format!("EXPLAIN QUERY PLAN SELECT json FROM session WHERE owner = ?1 ORDER BY {order} LIMIT 5");
        let plan: String = raw.query_row(&sql, ["alice"], |row| row.get(3)).unwrap();
        assert!(plan.contains("session_owner (owner=?)"), "{order}: {plan}");
    }
}

#[tokio::test]
async fn asks_and_statuses_are_those_of_one_owner() {
    let temp = Temp::new();
    let store = temp.open();
    let mut sessions = Vec::new();
    for owner in [Some("alice"), Some("bob"), None] {
        let session = create(&store, owner, 1).await.id;
        lease(&store, &session).await;
        let ask: PermissionRequest = serde_json::from_value(json!({"id": PermissionId::new(), "sessionID": session,
            "permission": "edit", "patterns": ["x"], "metadata": {}, "always": []}))
        .unwrap();
        let question: QuestionRequest =
            serde_json::from_value(json!({"id": QuestionId::new(), "sessionID": session, "questions": []})).unwrap();
        let mut batch = batch();
        batch.permission(&ask);
        batch.question(&question);
        batch.event(EventBody::SessionStatus { session_id: session.clone(), status: SessionStatus::Busy });
        store.commit(batch).await.unwrap();
        sessions.push(session);
    }
    for (owner, session) in ["alice", "bob"].into_iter().zip(&sessions) {
        let filter = AskFilter { owner: Some(owner.into()), project: Some("project".into()), ..AskFilter::default() };
        let (permissions, questions) = (store.permissions(&filter).unwrap(), store.questions(&filter).unwrap());
        assert_eq!((permissions.len(), questions.len()), (1, 1));
        assert_eq!((&permissions[0].session_id, &questions[0].session_id), (session, session));
        assert_eq!(store.statuses_of(owner).unwrap(), [(session.clone(), SessionStatus::Busy)]);
    }
    assert_eq!(store.permissions(&AskFilter::default()).unwrap().len(), 3);
    assert_eq!(store.statuses().unwrap().len(), 3);
    // Also a status that cannot be stored at the moment.
    let retry = SessionStatus::Retry { attempt: 1, message: "full".into(), next: 2, action: None };
    for session in &sessions {
        let body = EventBody::SessionStatus { session_id: session.clone(), status: retry.clone() };
        store.publish_transient(&location(), body);
    }
    assert_eq!(store.statuses_of("bob").unwrap(), [(sessions[1].clone(), retry)]);
}

/// The owners of the next frames, with their events' names.
async fn owners(watch: &mut BoxStream<'static, WatchItem>, count: usize) -> Vec<(String, Option<String>)> {
    let mut seen = Vec::new();
    for _ in 0..count {
        let frame = next_frame(watch).await;
        let name = Event::type_of(frame.json()).unwrap().into_owned();
        seen.push((name, frame.owner.map(|owner| owner.to_string())));
    }
    seen
}

/// In this process, in another one, and from the log.
#[tokio::test(flavor = "multi_thread")]
async fn every_stored_event_says_who_owns_its_session() {
    let temp = Temp::new();
    let (store, other) = (temp.open(), temp.open());
    let start = store.commit(toast_batch("start")).await.unwrap().last;
    let mut live = [&store, &other].map(|store| store.watch(WatchScope::All, None).unwrap());
    let own = create(&store, Some("alice"), 1).await;
    let mut child = session("child", 2);
    child.parent_id = Some(own.id.clone());
    let message = user(&child.id, 1);
    let mut batch = batch();
    batch.event(EventBody::SessionIdle { session_id: child.id.clone() });
    batch.session(&child);
    batch.publish_message(message.clone());
    batch.publish_part(&text(&message, "hello", false));
    store.commit(batch).await.unwrap();
    create(&other, None, 3).await;
    for session in [&child, &own] {
        let mut batch = crate::common::batch();
        batch.delete_session(&session.id);
        batch.event(EventBody::SessionDeleted { session_id: session.id.clone(), info: Box::new(session.tombstone()) });
        store.commit(batch).await.unwrap();
    }
    let late = store.watch(WatchScope::All, start).unwrap();
    let expected: Vec<(String, Option<String>)> = [
        ("session.created", Some("alice")),
        // It did not exist when this was written.
        ("session.idle", None),
        ("message.updated", Some("alice")),
        ("message.part.updated", Some("alice")),
        ("session.created", None),
        ("session.deleted", Some("alice")),
        ("session.deleted", Some("alice")),
    ]
    .map(|(name, owner)| (name.to_owned(), owner.map(str::to_owned)))
    .to_vec();
    for watch in live.iter_mut().chain([&mut { late }]) {
        assert_eq!(owners(watch, expected.len()).await, expected);
    }
}

#[tokio::test]
async fn a_failed_write_leaves_no_owner_behind() {
    let temp = Temp::new();
    let store = temp.open();
    let session = session("owned", 1);
    let write = async |owner: Option<&str>, fails: bool| {
        let mut batch = batch();
        batch.session(&session);
        if let Some(owner) = owner {
            batch.session_owner(&session.id, owner);
        }
        batch.event(EventBody::SessionIdle { session_id: session.id.clone() });
        if fails {
            batch.require_session(&SessionId::new());
        }
        store.commit(batch).await
    };
    assert!(write(Some("alice"), true).await.is_err());
    let mut watch = store.watch(WatchScope::All, None).unwrap();
    write(None, false).await.unwrap();
    write(Some("bob"), false).await.unwrap();
    let idle = |owner: Option<&str>| ("session.idle".to_owned(), owner.map(str::to_owned));
    assert_eq!(owners(&mut watch, 2).await, [idle(None), idle(Some("bob"))]);
}
