//! Rows: what is written can be read back, and a failing batch writes nothing.

use crate::common::*;
use api::*;
use proptest::prelude::*;
use serde_json::json;
use trefoil_store::*;

#[tokio::test]
async fn sessions_are_paged_filtered_and_kept_whole() {
    let temp = Temp::new();
    let store = temp.open();
    let parent = session("Größe ÄNDERN", 10);
    let mut child = session("child", 20);
    child.parent_id = Some(parent.id.clone());
    let mut other = session("other", 30);
    other.project_id = "elsewhere".into();
    other.directory = "/else".into();
    let mut batch = batch();
    for session in [&parent, &child, &other] {
        batch.session(session);
    }
    store.commit(batch).await.unwrap();

    assert_eq!(store.session(&parent.id).unwrap(), Some(parent.clone()));
    assert_eq!(store.session(&SessionId::new()).unwrap(), None);
    assert_eq!(store.children(&parent.id).unwrap(), vec![child.clone()]);
    let list = |query: SessionQuery| store.sessions(&query).unwrap();
    let all = || SessionQuery::default();
    assert_eq!(list(all()), vec![other.clone(), child.clone(), parent.clone()]);
    assert_eq!(list(SessionQuery { project: Some("project".into()), ..all() }), vec![child.clone(), parent.clone()]);
    assert_eq!(list(SessionQuery { directory: Some("/else".into()), ..all() }), vec![other.clone()]);
    let both = SessionQuery { directory: Some("/else".into()), project: Some("project".into()), ..all() };
    assert_eq!(list(both), vec![]);
    assert_eq!(list(SessionQuery { roots: true, ..all() }), vec![other.clone(), parent.clone()]);
    assert_eq!(list(SessionQuery { search: Some("ändern".into()), ..all() }), vec![parent.clone()]);
    assert_eq!(list(SessionQuery { start: Some(20), before: Some(30), ..all() }), vec![child.clone()]);
    assert_eq!(list(SessionQuery { limit: 1, ..all() }), vec![other.clone()]);
    let json = store.sessions_json(&SessionQuery { limit: 1, ..all() }).unwrap();
    assert_eq!(serde_json::from_str::<Session>(&json[0]).unwrap(), other);
}

#[tokio::test]
async fn messages_are_paged_in_creation_order() {
    let temp = Temp::new();
    let store = temp.open();
    let session = session("s", 1);
    let mut batch = batch();
    batch.session(&session);
    let mut wanted = Vec::new();
    for i in 0..10 {
        // Two messages per millisecond, with ids that sort the other way round.
        let mut message = user(&session.id, i / 2);
        if let Message::User(user) = &mut message {
            user.id = MessageId::parse(&format!("msg_{:02}", 50 - i)).unwrap();
        }
        let parts = vec![text(&message, "one", false), text(&message, "two", false)];
        batch.message(&message);
        parts.iter().for_each(|part| batch.part(part));
        wanted.push(MessageWithParts { info: message, parts });
    }
    store.commit(batch).await.unwrap();

    assert_eq!(store.messages(&session.id, None, None).unwrap().messages, wanted);
    let newest = store.messages(&session.id, Some(4), None).unwrap();
    assert_eq!(newest.messages, wanted[6..]);
    let older = store.messages(&session.id, Some(6), newest.older.as_ref()).unwrap();
    assert_eq!(older.messages, wanted[..6]);
    assert_eq!(older.older, None);
    let from = wanted[7].info.id();
    let read = |from| store.messages_from(&session.id, from).unwrap().into_iter().map(|(message, _)| message);
    assert_eq!(read(from).collect::<Vec<_>>(), wanted[7..]);
    assert_eq!(store.message(from).unwrap().as_ref(), Some(&wanted[7]));
    let part = wanted[7].parts[1].clone();
    let part_id = part.head().unwrap().id.clone();
    assert_eq!(store.part(&part_id).unwrap(), Some(part));
    let unknown = MessageId::new();
    let error = store.messages(&session.id, Some(1), Some(&unknown)).unwrap_err();
    assert_eq!(error, StoreError::NoMessage { id: unknown });

    let mut batch = crate::common::batch();
    batch.delete_part(&part_id);
    batch.delete_message(wanted[8].info.id());
    store.commit(batch).await.unwrap();
    assert_eq!(store.part(&part_id).unwrap(), None);
    assert_eq!(read(from).count(), 2);
    assert_eq!(store.part(&wanted[8].parts[0].head().unwrap().id).unwrap(), None);
}

#[tokio::test]
async fn incomplete_answers_are_found() {
    let temp = Temp::new();
    let store = temp.open();
    let (one, two) = (session("one", 1), session("two", 1));
    let answer = |session: &Session, created: i64, completed: Option<i64>| -> Message {
        let mut value = json!({
            "role": "assistant", "id": MessageId::new(), "sessionID": session.id, "parentID": MessageId::new(),
            "mode": "build", "agent": "build", "path": {"cwd": "/repo", "root": "/repo"}, "cost": 0,
            "tokens": {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}},
            "modelID": "demo", "providerID": "script", "time": {"created": created},
        });
        if let Some(completed) = completed {
            value["time"]["completed"] = json!(completed);
        }
        serde_json::from_value(value).unwrap()
    };
    let messages = [
        answer(&one, 1, None),
        answer(&one, 2, Some(3)),
        user(&one.id, 4),
        answer(&one, 5, None),
        answer(&two, 6, None),
    ];
    let part = text(&messages[3], "half a", true);
    let mut batch = batch();
    for session in [&one, &two] {
        batch.session(session);
    }
    for message in &messages {
        batch.message(message);
    }
    batch.part(&part);
    store.commit(batch).await.unwrap();

    let wanted = |indexes: &[usize]| indexes.iter().map(|&i| messages[i].clone()).collect::<Vec<_>>();
    let found = store.incomplete_answers(&one.id, 10).unwrap();
    assert_eq!(found.iter().map(|m| m.info.clone()).collect::<Vec<_>>(), wanted(&[0, 3]));
    assert_eq!(found[1].parts, vec![part]);
    let newest: Vec<Message> = store.incomplete_answers(&one.id, 2).unwrap().into_iter().map(|m| m.info).collect();
    assert_eq!(newest, wanted(&[3]));
}

#[tokio::test]
async fn a_part_of_an_unknown_kind_is_kept() {
    let temp = Temp::new();
    let store = temp.open();
    let session = session("s", 1);
    let message = user(&session.id, 1);
    let part: Part = serde_json::from_value(json!({
        "type": "hologram", "id": "prt_1", "sessionID": session.id, "messageID": message.id(), "depth": 3,
    }))
    .unwrap();
    assert!(matches!(part, Part::Other(_)));
    let mut batch = batch();
    batch.message(&message);
    batch.part(&part);
    store.commit(batch).await.unwrap();
    assert_eq!(store.message(message.id()).unwrap().unwrap().parts, vec![part]);

    let mut batch = crate::common::batch();
    batch.part(&Part::Other(JsonMap::new()));
    assert!(matches!(store.commit(batch).await, Err(StoreError::Invalid(_))));
}

#[tokio::test]
async fn an_accepted_prompt_waits_in_the_inbox_and_its_id_is_accepted_once() {
    let temp = Temp::new();
    let store = temp.open();
    let session = session("s", 1);
    let message = user(&session.id, 1);
    let kept = SharedText::new("kept".to_owned());
    let accept = || {
        let mut batch = batch().durable();
        batch.enqueue_with(&session.id, message.id(), &kept, None);
        batch.event(EventBody::message(message.clone()));
        batch.insert_message(&message);
        batch
    };
    store.commit(accept()).await.unwrap();
    let before = store.stats().unwrap();
    assert_eq!(store.commit(accept()).await.unwrap_err(), StoreError::Exists { id: message.id().clone() });
    assert_eq!(store.stats().unwrap(), before, "a batch that failed left no event");

    let mut batch = batch();
    batch.count_attempt(message.id());
    store.commit(batch).await.unwrap();
    let inbox = store.inbox(&session.id).unwrap();
    assert_eq!((inbox.len(), &inbox[0].message_id, inbox[0].attempts), (1, message.id(), 1));
    assert_eq!(inbox[0].data.as_deref(), Some(kept.hash()));
    assert_eq!(store.shared(kept.hash()).unwrap().as_deref(), Some("kept"));
    assert_eq!(store.shared("another").unwrap(), None);
    assert_eq!(store.unfinished_sessions().unwrap(), vec![session.id.clone()]);
    let mut batch = crate::common::batch();
    batch.dequeue(message.id());
    store.commit(batch).await.unwrap();
    assert!(store.inbox(&session.id).unwrap().is_empty());
    assert!(store.unfinished_sessions().unwrap().is_empty());
}

fn permission(session: &SessionId) -> PermissionRequest {
    serde_json::from_value(json!({
        "id": PermissionId::new(), "sessionID": session, "permission": "edit", "patterns": ["a"], "metadata": {},
        "always": ["*"],
    }))
    .unwrap()
}

#[tokio::test]
async fn asks_are_answered_once_and_survive_a_restart() {
    let temp = Temp::new();
    let store = temp.open();
    let session = SessionId::new();
    let ask = permission(&session);
    let dropped = permission(&session);
    let question: QuestionRequest =
        serde_json::from_value(json!({"id": QuestionId::new(), "sessionID": session, "questions": []})).unwrap();
    let mut batch = batch();
    batch.permission(&ask);
    batch.permission(&dropped);
    batch.question(&question);
    store.commit(batch).await.unwrap();
    drop(store);

    let store = temp.open();
    let all = AskFilter::default();
    assert_eq!(store.permissions(&all).unwrap(), vec![ask.clone(), dropped.clone()]);
    assert_eq!(store.questions(&all).unwrap(), vec![question]);
    let elsewhere = AskFilter { directory: Some("/else".into()), ..all.clone() };
    assert!(store.permissions(&elsewhere).unwrap().is_empty());
    let here = AskFilter { session: Some(session.clone()), project: Some("project".into()), ..all.clone() };
    assert_eq!(store.permissions(&here).unwrap().len(), 2);

    let answer = |id: &str| {
        let mut batch = crate::common::batch().durable();
        batch.event(toast("answered"));
        batch.answer(id, &json!({"reply": "once"}));
        batch
    };
    store.commit(answer(ask.id.as_str())).await.unwrap();
    let row = store.ask(ask.id.as_str()).unwrap().unwrap();
    assert_eq!(
        (row.kind, row.reply, row.session_id),
        (AskKind::Permission, Some(json!({"reply": "once"})), session.clone())
    );
    let again = store.commit(answer(ask.id.as_str())).await.unwrap_err();
    assert_eq!(again, StoreError::NotOpen { id: ask.id.to_string(), answered: true });
    let gone = store.commit(answer("per_gone")).await.unwrap_err();
    assert_eq!(gone, StoreError::NotOpen { id: "per_gone".into(), answered: false });
    for ask in [ask.id.as_str(), dropped.id.as_str(), dropped.id.as_str()] {
        let mut batch = crate::common::batch();
        batch.answer_if_open(ask, &json!({"reply": "reject"}), toast("settled"));
        store.commit(batch).await.unwrap();
    }
    assert_eq!(store.ask(ask.id.as_str()).unwrap().unwrap().reply, Some(json!({"reply": "once"})));
    assert!(store.permissions(&all).unwrap().is_empty());
    assert_eq!(store.stats().unwrap().events, 2, "only the open ask was answered and published");
}

#[tokio::test]
async fn records_are_compared_and_set() {
    let temp = Temp::new();
    let store = temp.open();
    let write = async |value: Option<Json>, expect: Option<u64>| {
        let mut batch = batch();
        batch.record("a2a", "task", value.as_ref(), expect);
        store.commit(batch).await
    };
    let first = write(Some(json!(1)), Some(0)).await.unwrap().versions[0];
    let error = write(Some(json!(2)), Some(0)).await.unwrap_err();
    assert!(matches!(error, StoreError::Conflict { found, expected: 0, .. } if found == first));
    let second = write(Some(json!(2)), Some(first)).await.unwrap().versions[0];
    assert_eq!(store.record("a2a", "task").unwrap(), Some(Record { value: json!(2), version: second }));
    write(None, Some(second)).await.unwrap();
    assert_eq!(store.record("a2a", "task").unwrap(), None);
    let third = write(Some(json!(3)), Some(0)).await.unwrap().versions[0];
    assert!(third > second, "a version is never reused");
    assert_eq!(store.records("a2a").unwrap(), vec![("task".into(), Record { value: json!(3), version: third })]);
}

#[tokio::test]
async fn approvals_todos_and_projects() {
    let temp = Temp::new();
    let store = temp.open();
    let session = SessionId::new();
    let todo = Todo { content: "x".into(), status: "pending".into(), priority: "low".into() };
    let project: Project = serde_json::from_value(
        json!({"id": "p", "worktree": "/repo", "time": {"created": 1, "updated": 1}, "sandboxes": []}),
    )
    .unwrap();
    let mut batch = batch();
    batch.approve("/repo", "bash", "git *");
    batch.approve("/repo", "bash", "git *");
    batch.approve("/repo", "bash", "a");
    batch.approve("/other", "edit", "*");
    batch.todos(&session, std::slice::from_ref(&todo));
    batch.project(&project);
    store.commit(batch).await.unwrap();
    let rules = store.approved_rules("/repo").unwrap();
    assert_eq!(rules, vec![Rule::new("bash", "git *", Action::Allow), Rule::new("bash", "a", Action::Allow)]);
    for elsewhere in ["/", "/rep", "/repo/", "/repo/sub", "p"] {
        assert!(store.approved_rules(elsewhere).unwrap().is_empty(), "{elsewhere}");
    }
    assert_eq!(store.todos(&session).unwrap(), vec![todo]);
    assert_eq!(store.project("p").unwrap(), Some(project.clone()));
    assert_eq!(store.projects().unwrap(), vec![project]);
}

#[tokio::test]
async fn approvals_are_listed_and_revoked() {
    let temp = Temp::new();
    let store = temp.open();
    for (project, directory, pattern) in [("p", "/one", "a"), ("global", "/two", "b"), ("p", "/one", "c")] {
        let mut batch = Batch::new(&Location::new(directory, project));
        batch.approve(directory, "bash", pattern);
        store.commit(batch).await.unwrap();
    }
    let all = store.approvals(None).unwrap();
    let listed: Vec<_> =
        all.iter().map(|a| (a.project_id.as_str(), a.directory.as_str(), a.pattern.as_str())).collect();
    assert_eq!(listed, [("p", "/one", "a"), ("global", "/two", "b"), ("p", "/one", "c")]);
    assert!(all.iter().all(|approval| approval.id.as_str().starts_with("psv_") && approval.created > 0));
    assert_eq!(store.approvals(Some("p")).unwrap(), [all[0].clone(), all[2].clone()]);
    assert!(store.approvals(Some("nope")).unwrap().is_empty());
    // Another process revokes one, twice; this one sees it immediately.
    let other = temp.open();
    for _ in 0..2 {
        let mut batch = batch();
        batch.revoke(Some(&all[0].id));
        other.commit(batch).await.unwrap();
        assert_eq!(store.approvals(None).unwrap(), all[1..]);
        assert_eq!(store.approved_rules("/one").unwrap(), vec![Rule::new("bash", "c", Action::Allow)]);
    }
    let mut batch = batch();
    batch.revoke(None);
    other.commit(batch).await.unwrap();
    assert!(store.approvals(None).unwrap().is_empty() && store.approved_rules("/two").unwrap().is_empty());
}

#[test]
fn old_approvals_move_to_the_main_worktree_or_are_dropped() {
    let temp = Temp::new();
    let old = temp.create_old(5);
    for (id, worktree) in [("abc", "/repo"), ("global", "/"), ("odd", "/")] {
        let json = json!({"id": id, "worktree": worktree, "time": {"created": 1, "updated": 1}, "sandboxes": []});
        old.execute("INSERT INTO project (id, json) VALUES (?1, ?2)", [id, &json.to_string()]).unwrap();
    }
    for (project, pattern) in [("abc", "git *"), ("global", "*"), ("odd", "x"), ("unknown", "y"), ("abc", "ls *")] {
        let row = [project, "bash", pattern];
        old.execute("INSERT INTO approval (project, permission, pattern) VALUES (?1, ?2, ?3)", row).unwrap();
    }
    drop(old);
    let left = temp.open().approvals(None).unwrap();
    let listed: Vec<_> =
        left.iter().map(|a| (a.project_id.as_str(), a.directory.as_str(), a.pattern.as_str())).collect();
    assert_eq!(listed, [("abc", "/repo", "git *"), ("abc", "/repo", "ls *")]);
    assert_ne!(left[0].id, left[1].id);
}

#[tokio::test]
async fn a_deleted_session_leaves_nothing() {
    let temp = Temp::new();
    let store = temp.open();
    let session = session("s", 1);
    let message = user(&session.id, 1);
    let part = text(&message, "x", false);
    let ask = permission(&session.id);
    let lease = lease(&store, &session.id).await;
    let mut batch = batch().fence(&lease);
    batch.session(&session);
    batch.message(&message);
    batch.part(&part);
    batch.permission(&ask);
    batch.enqueue(&session.id, message.id());
    batch.event(EventBody::SessionStatus { session_id: session.id.clone(), status: SessionStatus::Busy });
    store.commit(batch).await.unwrap();
    assert_eq!(store.statuses().unwrap(), vec![(session.id.clone(), SessionStatus::Busy)]);
    let mut batch = crate::common::batch();
    batch.delete_session(&session.id);
    store.commit(batch).await.unwrap();
    assert_eq!(store.session(&session.id).unwrap(), None);
    assert!(store.permissions(&AskFilter::default()).unwrap().is_empty());
    assert_eq!(store.unswept_sessions().unwrap(), vec![session.id.clone()]);
    store.sweep(&store.unswept_sessions().unwrap()).await.unwrap();
    assert!(store.unswept_sessions().unwrap().is_empty());
    assert_eq!(store.message(message.id()).unwrap(), None);
    assert_eq!(store.part(&part.head().unwrap().id).unwrap(), None);
    assert_eq!(store.ask(ask.id.as_str()).unwrap(), None);
    assert!(store.statuses().unwrap().is_empty() && store.unfinished_sessions().unwrap().is_empty());
    assert_eq!(store.lease_holder(&session.id).unwrap(), None);
    let late = store.commit(crate::common::batch().fence(&lease)).await.unwrap_err();
    assert_eq!(late, StoreError::Stale { session: session.id });
}

#[tokio::test]
async fn a_lost_lease_fences_every_write() {
    let temp = Temp::new();
    let store = temp.open();
    let session = SessionId::new();
    let first = lease(&store, &session).await;
    // A store may acquire its own lease again if it could not release it; the earlier lease becomes stale.
    let stuck = first;
    let first = lease(&store, &session).await;
    let error = store.commit(crate::common::batch().fence(&stuck)).await.unwrap_err();
    assert_eq!(error, StoreError::Stale { session: session.clone() });
    let mut batch = batch().fence(&first);
    batch.event(EventBody::SessionStatus { session_id: session.clone(), status: SessionStatus::Idle });
    batch.release(&first);
    store.commit(batch).await.unwrap();
    assert_eq!(store.lease_holder(&session).unwrap(), None);
    let second = lease(&store, &session).await;
    assert!(second.epoch() > first.epoch());
    let mut stale = crate::common::batch().fence(&first);
    stale.event(toast("never"));
    assert_eq!(store.commit(stale).await.unwrap_err(), StoreError::Stale { session: session.clone() });
    let mut late = crate::common::batch();
    late.release(&first);
    store.commit(late).await.unwrap();
    let holder = store.lease_holder(&session).unwrap().unwrap();
    assert_eq!((holder.owner.as_str(), holder.alive, holder.own), (store.owner(), true, true));
    assert_eq!(store.stats().unwrap().events, 1);
}

#[tokio::test]
async fn a_batch_claims_a_free_lease() {
    let temp = Temp::new();
    let (store, id) = (temp.open(), session("s", 1).id);
    let claim = || {
        let mut batch = batch();
        batch.claim(&id);
        store.commit(batch)
    };
    let Some(AcquireOutcome::Acquired { lease, took_over: false, .. }) = claim().await.unwrap().claimed else {
        panic!()
    };
    assert!(store.lease_holder(&id).unwrap().unwrap().own);
    assert_eq!(claim().await.unwrap().claimed, None, "a held lease is not claimed");
    let mut end = batch().fence(&lease);
    end.release(&lease);
    store.commit(end).await.unwrap();
    let Some(AcquireOutcome::Acquired { lease: next, .. }) = claim().await.unwrap().claimed else { panic!() };
    assert!(next.epoch() > lease.epoch());
    let mut stale = batch().fence(&lease);
    stale.event(toast("late"));
    assert!(matches!(store.commit(stale).await, Err(StoreError::Stale { .. })));
}

#[test]
fn reads_in_a_snapshot_see_one_moment() {
    let temp = Temp::new();
    let store = temp.open();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let put = |title: &str| {
        let mut batch = batch();
        batch.session(&Session { id: SessionId::parse("ses_one").unwrap(), ..session(title, 1) });
        runtime.block_on(store.commit(batch)).unwrap();
    };
    put("before");
    let title = |store: &Store| -> Result<String, StoreError> {
        Ok(store.session(&SessionId::parse("ses_one").unwrap())?.unwrap().title)
    };
    let seen = store.snapshot(|snapshot| {
        let first = title(snapshot)?;
        put("after");
        // Outside a snapshot, this query opens its own transaction.
        snapshot.stats()?;
        Ok((first, title(snapshot)?, title(&store)?))
    });
    assert_eq!(seen.unwrap(), ("before".into(), "before".into(), "after".into()));
    assert_eq!(title(&store).unwrap(), "after");
}

#[tokio::test]
async fn an_unchanged_record_is_not_written_again() {
    let temp = Temp::new();
    let store = temp.open();
    let mut versions = Vec::new();
    for value in ["one", "one", "two", "two", "one"] {
        let mut batch = batch();
        batch.record_if_changed("state", "last", &json!(value));
        versions.extend(store.commit(batch).await.unwrap().versions);
        assert_eq!(store.record("state", "last").unwrap().unwrap().value, json!(value));
    }
    assert_eq!(versions.len(), 3);
}

#[tokio::test]
async fn a_signal_reaches_this_process_only_while_it_holds_the_lease() {
    let temp = Temp::new();
    let store = temp.open();
    let session = SessionId::new();
    let mut signals = store.take_signals().unwrap();
    assert!(store.take_signals().is_none());
    assert!(!store.signal(&session, Signal::Abort { epoch: 0 }).await.unwrap());
    lease(&store, &session).await;
    assert!(store.signal(&session, Signal::Reply { ask: "per_1".into() }).await.unwrap());
    assert_eq!(signals.try_recv().unwrap(), (session, Signal::Reply { ask: "per_1".into() }));
}

#[tokio::test]
async fn a_failing_batch_does_not_hurt_its_neighbours() {
    let temp = Temp::new();
    let store = temp.open();
    let taken = user(&SessionId::new(), 1);
    let mut first = batch();
    first.message(&taken);
    store.commit(first).await.unwrap();
    let jobs = (0..200).map(|i| {
        let mut batch = toast_batch(i.to_string());
        if i % 3 == 0 {
            batch.insert_message(&taken);
        }
        store.commit(batch)
    });
    let outcomes = futures::future::join_all(jobs).await;
    let mut seqs = Vec::new();
    for (i, outcome) in outcomes.into_iter().enumerate() {
        match outcome {
            Ok(committed) => {
                assert_ne!(i % 3, 0);
                seqs.push(committed.last.unwrap().seq);
            }
            Err(error) => {
                assert_eq!(i % 3, 0);
                assert_eq!(error, StoreError::Exists { id: taken.id().clone() });
            }
        }
    }
    seqs.sort_unstable();
    assert_eq!(seqs, (1..=133).collect::<Vec<_>>(), "sequence numbers have no holes");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Every page matches filtering and sorting all sessions by hand.
    #[test]
    fn session_pages_match_a_plain_filter(
        made in prop::collection::vec((0..3u8, 0..3u8, any::<bool>(), 0..6i64, "[aAbÄä]{0,3}"), 0..20),
        queries in prop::collection::vec(
            (
                prop::option::of(0..3u8), prop::option::of(0..3u8), any::<bool>(), prop::option::of("[abä]{0,2}"),
                prop::option::of(0..6i64), prop::option::of(0..6i64), 0..8usize,
            ),
            1..12,
        ),
    ) {
        let temp = Temp::new();
        let store = temp.open();
        let mut batch = batch();
        let mut sessions: Vec<Session> = made
            .into_iter()
            .map(|(project, directory, child, updated, title)| Session {
                project_id: project.to_string(),
                directory: directory.to_string(),
                parent_id: child.then(SessionId::new),
                ..session(&title, updated)
            })
            .collect();
        sessions.iter().for_each(|session| batch.session(session));
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(store.commit(batch)).unwrap();
        sessions.sort_by_key(|session| (-session.time.updated, session.id.clone()));
        for (project, directory, roots, search, start, before, limit) in queries {
            let query = SessionQuery {
                project: project.map(|p| p.to_string()),
                directory: directory.map(|d| d.to_string()),
                roots, search, start, before, limit, ..SessionQuery::default()
            };
            let wanted: Vec<Session> = sessions
                .iter()
                .filter(|s| query.project.as_ref().is_none_or(|p| *p == s.project_id))
                .filter(|s| query.directory.as_ref().is_none_or(|d| *d == s.directory))
                .filter(|s| !roots || s.parent_id.is_none())
                .filter(|s| query.search.as_ref().is_none_or(|t| s.title.to_lowercase().contains(t)))
                .filter(|s| start.is_none_or(|t| s.time.updated >= t) && before.is_none_or(|t| s.time.updated < t))
                .take(limit)
                .cloned()
                .collect();
            prop_assert_eq!(store.sessions(&query).unwrap(), wanted, "{:?}", query);
        }
    }
}

/// The revision that a turn gets when it acquires the lease; releases the lease again.
async fn revision(store: &Store, session: &SessionId) -> u64 {
    let AcquireOutcome::Acquired { lease, revision, .. } = store.acquire(session).await.unwrap() else { panic!() };
    let mut end = batch().fence(&lease);
    end.release(&lease);
    store.commit(end).await.unwrap();
    revision
}

#[tokio::test]
async fn the_revision_changes_for_everything_but_turns_and_prompts() {
    let temp = Temp::new();
    let store = temp.open();
    let session = session("s", 1);
    let message = user(&session.id, 1);
    let part = text(&message, "a", false);
    let mut first = batch();
    first.session(&session);
    store.commit(first).await.unwrap();
    let before = revision(&store, &session.id).await;

    let lease = lease(&store, &session.id).await;
    let mut turn = batch().fence(&lease);
    turn.message(&message);
    turn.part(&part);
    turn.dequeue(message.id());
    turn.release(&lease);
    store.commit(turn).await.unwrap();
    let prompt = user(&session.id, 2);
    let mut accepted = batch();
    accepted.insert_message(&prompt);
    accepted.part(&text(&prompt, "b", false));
    accepted.enqueue(&session.id, prompt.id());
    store.commit(accepted).await.unwrap();
    assert_eq!(revision(&store, &session.id).await, before);

    let of_another_turn = |lease: &Lease| {
        let mut batch = batch().fence(lease);
        batch.message(&message);
        batch
    };
    let unfenced = |fill: &dyn Fn(&mut Batch)| {
        let mut batch = batch();
        fill(&mut batch);
        batch
    };
    let disturbing = [
        unfenced(&|batch| batch.part(&with_text(&part, "changed", Some(2)))),
        unfenced(&|batch| batch.message(&message)),
        unfenced(&|batch| batch.insert_message(&user(&session.id, 3))),
        unfenced(&|batch| {
            batch.part(&part);
            batch.enqueue(&session.id, message.id());
        }),
        unfenced(&|batch| batch.dequeue(prompt.id())),
        unfenced(&|batch| batch.delete_part(part.head().map(|head| &head.id).unwrap())),
        unfenced(&|batch| batch.delete_message(message.id())),
        unfenced(&|batch| batch.delete_session(&SessionId::new())),
        of_another_turn(&crate::common::lease(&store, &SessionId::new()).await),
    ];
    let mut last = before;
    for batch in disturbing {
        let what = format!("{batch:?}");
        store.commit(batch).await.unwrap();
        let now = revision(&store, &session.id).await;
        assert_ne!(now, last, "{what}");
        last = now;
    }

    // Another store acts as another process, which may have committed anything.
    temp.open().commit(toast_batch("hello")).await.unwrap();
    let now = revision(&store, &session.id).await;
    assert_ne!(now, last);
    assert_eq!(revision(&store, &session.id).await, now);
}

#[tokio::test]
async fn each_message_of_a_page_has_its_own_parts() {
    let temp = Temp::new();
    let store = temp.open();
    let session = session("s", 1);
    let mut all = batch();
    all.session(&session);
    let mut expected = Vec::new();
    // Two messages per moment, every third without parts, and parts whose ids sort the other way round.
    for index in 0..12 {
        let message = user(&session.id, index / 2);
        all.message(&message);
        let parts = (0..index % 3).map(|part| text(&message, &format!("{index}.{part}"), false));
        let parts: Vec<Part> = parts.collect::<Vec<_>>().into_iter().rev().collect();
        parts.iter().for_each(|part| all.part(part));
        expected.push(MessageWithParts { info: message, parts });
    }
    store.commit(all).await.unwrap();
    assert_eq!(store.messages(&session.id, None, None).unwrap().messages, expected);
    for limit in 1..12 {
        let (mut before, mut pages) = (None, Vec::new());
        loop {
            let page = store.messages(&session.id, Some(limit), before.as_ref()).unwrap();
            pages.splice(0..0, page.messages);
            before = page.older;
            if before.is_none() {
                break;
            }
        }
        assert_eq!(pages, expected, "pages of {limit}");
    }
}
