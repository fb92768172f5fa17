//! What holds up a session, task links and worktrees: conditional changes, queries, deletion, and the records that they
//! were before.

use crate::common::*;
use api::*;
use rusqlite::Connection;
use serde_json::json;
use trefoil_store::*;

fn blocked(by: &SessionId) -> Blocked {
    Blocked { bound: Bound::Steps, session_id: by.clone(), message: "3 of 3 steps".into() }
}

fn task(parent: &SessionId, child: &SessionId) -> LinkedTask {
    let input: PromptInput = PromptInput { parts: vec![PromptPart::text("do it")], ..PromptInput::default() };
    LinkedTask {
        parent: parent.clone(),
        child: child.clone(),
        prompt: MessageId::new(),
        title: "work".into(),
        input: Some(Box::new(input)),
        cancelled: false,
        careful: true,
        background: None,
    }
}

fn worktree(parent: &SessionId) -> WorktreeRow {
    WorktreeRow {
        parent: parent.clone(),
        origin: "/repo".into(),
        target: "/repo/target".into(),
        main: "/repo/main".into(),
        directory: "/data/tree".into(),
        branch: "work".into(),
        base: "abc".into(),
        missing: 2,
        filled: false,
    }
}

fn changed(table: &'static str, id: impl ToString) -> StoreError {
    StoreError::Changed { table, id: id.to_string() }
}

/// Commits what `write` adds to a batch.
async fn commit(store: &Store, write: impl FnOnce(&mut Batch)) -> Result<CommitOutcome, StoreError> {
    let mut batch = batch();
    write(&mut batch);
    store.commit(batch).await
}

/// A session, its child, and its grandchild.
async fn family(store: &Store) -> [Session; 3] {
    let mut line = ["top", "middle", "low"].map(|title| session(title, 1));
    line[1].parent_id = Some(line[0].id.clone());
    line[2].parent_id = Some(line[1].id.clone());
    commit(store, |batch| line.iter().for_each(|session| batch.session(session))).await.unwrap();
    line
}

#[tokio::test]
async fn a_pause_holds_everything_below() {
    let temp = Temp::new();
    let (store, other) = (temp.open(), temp.open());
    let [top, middle, low] = family(&store).await;
    let [stranger, ..] = family(&store).await;
    assert!(!store.is_lineage_paused(&low.id).unwrap());
    commit(&store, |batch| batch.pause(&middle.id, 5)).await.unwrap();
    let again = commit(&other, |batch| {
        batch.pause(&middle.id, 6);
        batch.event(toast("never"));
    });
    assert_eq!(again.await.unwrap_err(), changed("paused", &middle.id), "the second of two loses");
    assert_eq!(store.stats().unwrap().events, 0);
    let paused = |id: &SessionId| (other.is_paused(id).unwrap(), other.is_lineage_paused(id).unwrap());
    assert_eq!([&top, &middle, &low].map(|s| paused(&s.id)), [(false, false), (true, true), (false, true)]);
    assert_eq!(paused(&stranger.id), (false, false));
    assert_eq!(store.paused_within(&top.id).unwrap(), std::slice::from_ref(&middle.id));
    assert_eq!(store.paused_within(&middle.id).unwrap(), std::slice::from_ref(&middle.id));
    assert!(store.paused_within(&low.id).unwrap().is_empty() && store.paused_within(&stranger.id).unwrap().is_empty());

    commit(&other, |batch| batch.resume(&middle.id)).await.unwrap();
    let again = commit(&store, |batch| batch.resume(&middle.id)).await.unwrap_err();
    assert_eq!((again, paused(&low.id)), (changed("paused", &middle.id), (false, false)));
    let gone = SessionId::new();
    let late = commit(&store, |batch| batch.pause(&gone, 5)).await.unwrap_err();
    assert_eq!(late, changed("paused", &gone), "a deleted session cannot be paused");
}

#[tokio::test]
async fn waits_for_a_budget_are_found_below_it() {
    let temp = Temp::new();
    let store = temp.open();
    let [top, middle, low] = family(&store).await;
    commit(&store, |batch| batch.block(&low.id, &blocked(&middle.id))).await.unwrap();
    commit(&store, |batch| batch.block(&low.id, &blocked(&top.id))).await.unwrap();
    assert_eq!(store.blocked(&low.id).unwrap(), Some(blocked(&top.id)));
    assert_eq!(store.blocked(&middle.id).unwrap(), None);
    for above in [&top, &middle, &low] {
        assert_eq!(store.blocked_within(&above.id).unwrap(), std::slice::from_ref(&low.id));
    }
    let tree = store.tree(&top.id).unwrap().unwrap();
    assert_eq!(tree.sessions[2].blocked, Some(blocked(&top.id)));
    commit(&store, |batch| batch.unblock(&low.id)).await.unwrap();
    assert!(store.blocked(&low.id).unwrap().is_none() && store.blocked_within(&top.id).unwrap().is_empty());
    let gone = SessionId::new();
    commit(&store, |batch| batch.block(&gone, &blocked(&gone))).await.unwrap();
    assert_eq!(store.blocked(&gone).unwrap(), None);
}

#[tokio::test]
async fn a_task_link_changes_only_as_it_was_read() {
    let temp = Temp::new();
    let (store, other) = (temp.open(), temp.open());
    let [top, middle, low] = family(&store).await;
    let (part, next) = (PartId::new(), PartId::new());
    let first = task(&top.id, &middle.id);
    commit(&store, |batch| batch.link_task(&part, &first)).await.unwrap();
    commit(&store, |batch| batch.link_task(&next, &task(&middle.id, &low.id))).await.unwrap();
    let read = other.task_link(&part).unwrap().unwrap();
    assert_eq!((&read.part, &read.task), (&part, &first));
    assert_eq!(store.tasks_of(&top.id).unwrap(), store.tasks_for(&middle.id).unwrap());
    assert_eq!(store.tasks_for(&low.id).unwrap()[0].part, next);
    assert!(store.background_tasks().unwrap().is_empty() && !store.has_background_tasks(&top.id).unwrap());

    let away = LinkedTask {
        input: None,
        background: Some(Background { awaited: false, follower: Some("1-2-3".into()) }),
        ..first.clone()
    };
    commit(&store, |batch| batch.replace_task(&read, &away)).await.unwrap();
    for write in
        [Batch::replace_task as fn(&mut Batch, &TaskLink, &LinkedTask), |batch, link, _| batch.remove_task(link)]
    {
        let late = commit(&other, |batch| {
            batch.event(toast("never"));
            write(batch, &read, &first);
        });
        assert_eq!(late.await.unwrap_err(), changed("task_link", &part));
    }
    assert_eq!(store.stats().unwrap().events, 0);
    let read = other.background_tasks_of(&top.id).unwrap().remove(0);
    assert_eq!((&read.task, other.background_tasks().unwrap().len()), (&away, 1));
    assert!(store.has_background_tasks(&top.id).unwrap() && !store.has_background_tasks(&middle.id).unwrap());
    let tree = store.tree(&top.id).unwrap().unwrap();
    assert_eq!(tree.sessions.iter().map(|s| s.background).collect::<Vec<_>>(), [false, true, false]);

    commit(&other, |batch| batch.remove_task(&read)).await.unwrap();
    assert_eq!(commit(&store, |batch| batch.remove_task(&read)).await.unwrap_err(), changed("task_link", &part));
    commit(&store, |batch| batch.end_task(&part)).await.unwrap();
    assert_eq!(store.task_link(&part).unwrap(), None);
    let gone = SessionId::new();
    commit(&store, |batch| batch.link_task(&part, &task(&gone, &low.id))).await.unwrap();
    assert_eq!(store.task_link(&part).unwrap(), None, "its caller is gone");
}

#[tokio::test]
async fn a_deleted_session_leaves_no_row_in_these_tables() {
    let temp = Temp::new();
    let store = temp.open();
    let [top, middle, low] = family(&store).await;
    let part = PartId::new();
    let row = worktree(&top.id);
    commit(&store, |batch| {
        batch.pause(&middle.id, 5);
        batch.block(&middle.id, &blocked(&top.id));
        batch.link_task(&part, &task(&middle.id, &low.id));
        batch.worktree(&middle.id, Some(&row));
    })
    .await
    .unwrap();
    commit(&store, |batch| batch.delete_session(&middle.id)).await.unwrap();
    store.sweep(&store.unswept_sessions().unwrap()).await.unwrap();
    let raw = Connection::open(temp.path()).unwrap();
    for table in ["paused", "blocked", "task_link"] {
        let rows: i64 = raw.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap();
        assert_eq!(rows, 0, "{table}");
    }
    // The tree is still on the disk: whoever removes it removes its row.
    assert_eq!(store.worktree(&middle.id).unwrap(), Some(row.clone()));
    assert_eq!(store.worktrees().unwrap(), vec![(middle.id.clone(), row)]);
    commit(&store, |batch| batch.worktree(&middle.id, None)).await.unwrap();
    assert!(store.worktrees().unwrap().is_empty());
}

#[tokio::test]
async fn a_worktree_comes_before_its_session() {
    let temp = Temp::new();
    let store = temp.open();
    let child = session("child", 1);
    let row = worktree(&SessionId::new());
    commit(&store, |batch| batch.worktree(&child.id, Some(&row))).await.unwrap();
    let filled = WorktreeRow { filled: true, base: "def".into(), ..row };
    commit(&store, |batch| {
        batch.session(&child);
        batch.worktree(&child.id, Some(&filled));
    })
    .await
    .unwrap();
    assert_eq!(store.worktree(&child.id).unwrap(), Some(filled));
    let tree = store.tree(&child.id).unwrap().unwrap();
    assert_eq!(tree.sessions[0].worktree.as_deref(), Some("/data/tree"));
}

#[tokio::test]
async fn a_session_changes_as_it_is_now() {
    let temp = Temp::new();
    let store = temp.open();
    let [top, ..] = family(&store).await;
    let change = |cost| SessionChange { is_activity: true, ..SessionChange::usage(Usd(cost), Tokens::default()) };
    let renamed = SessionChange { title: Some("Renamed".into()), ..SessionChange::default() };
    let last = commit(&store, |batch| {
        batch.change_session(&top.id, change(1.0));
        batch.change_session(&top.id, renamed);
        batch.change_session(&top.id, change(0.5));
    });
    assert_eq!(last.await.unwrap().last.unwrap().seq, 3, "each is an event");
    let found = store.session(&top.id).unwrap().unwrap();
    assert_eq!((found.cost, found.title.as_str()), (Some(Usd(1.5)), "Renamed"));
    assert!(found.time.updated > 1);
    let search = SessionQuery { search: Some("renam".into()), ..SessionQuery::default() };
    assert_eq!(store.sessions(&search).unwrap(), [found]);
    let gone = SessionId::new();
    let late = commit(&store, |batch| batch.change_session(&gone, change(1.0))).await.unwrap_err();
    assert_eq!(late, StoreError::NoSession { id: gone });
}

/// The schema before these were tables.
const OLD: u32 = 10;

fn put_session(old: &Connection, session: &Session) {
    let sql = "INSERT INTO session (id, project, directory, parent, updated, title, json, data, owner)
               VALUES (?1, 'project', '/repo', ?2, 1, ?3, ?4, 'data', 'owner')";
    let (id, parent) = (session.id.as_str(), session.parent_id.as_ref().map(SessionId::as_str));
    let values = rusqlite::params![id, parent, session.title, serde_json::to_string(session).unwrap()];
    old.execute(sql, values).unwrap();
}

#[test]
fn records_of_an_older_version_become_rows() {
    let temp = Temp::new();
    let old = temp.create_old(OLD);
    let [top, mut child, gone] = ["top", "child", "gone"].map(|title| session(title, 1));
    child.parent_id = Some(top.id.clone());
    put_session(&old, &top);
    put_session(&old, &child);
    let record = |namespace: &str, key: &str, value: &str| {
        let sql = "INSERT INTO record (namespace, key, version, json) VALUES (?1, ?2, 7, ?3)";
        old.execute(sql, [namespace, key, value]).unwrap();
    };
    let (waiting, away, broken, lost) = (PartId::new(), PartId::new(), PartId::new(), PartId::new());
    let prompt = MessageId::new();
    let known = task(&top.id, &child.id);
    let linked = |parent: &Session| json!({"session": parent.id, "child": child.id, "prompt": prompt});
    let mut whole = linked(&top);
    whole["title"] = json!("work");
    whole["input"] = json!(known.input);
    whole["careful"] = json!(true);
    whole["cancelled"] = json!(false);
    let mut followed = linked(&top);
    followed["background"] = json!({"awaited": true, "follower": "1-2-3"});
    followed["cancelled"] = json!(true);
    record("task", waiting.as_str(), &whole.to_string());
    record("background", away.as_str(), &followed.to_string());
    record("task", broken.as_str(), "{");
    record("task", lost.as_str(), &linked(&gone).to_string());
    record("paused", child.id.as_str(), r#"{"since":9}"#);
    record("paused", gone.id.as_str(), r#"{"since":9}"#);
    record("blocked", child.id.as_str(), &json!(blocked(&top.id)).to_string());
    record("blocked", top.id.as_str(), "[]");
    let tree = json!({"parent": top.id, "origin": "/repo", "target": "/repo/target", "main": "/repo/main",
        "directory": "/data/tree", "branch": "work", "base": "abc", "missing": 2, "filled": true});
    record("worktree", gone.id.as_str(), &tree.to_string());
    record("worktree", top.id.as_str(), "{}");
    record("started", waiting.as_str(), "true");
    drop(old);

    let store = temp.open();
    let first = store.task_link(&waiting).unwrap().unwrap();
    assert_eq!(first.task, LinkedTask { prompt: prompt.clone(), ..known });
    let second = store.background_tasks().unwrap().remove(0);
    let background = Some(Background { awaited: true, follower: Some("1-2-3".into()) });
    let wanted = LinkedTask {
        prompt,
        title: String::new(),
        input: None,
        cancelled: true,
        careful: false,
        background,
        ..first.task
    };
    assert_eq!((&second.part, second.task), (&away, wanted));
    assert_eq!((store.task_link(&broken).unwrap(), store.task_link(&lost).unwrap()), (None, None));
    assert!(store.is_paused(&child.id).unwrap() && !store.is_paused(&gone.id).unwrap());
    assert_eq!(store.blocked(&child.id).unwrap(), Some(blocked(&top.id)));
    assert_eq!(store.blocked(&top.id).unwrap(), None);
    let row = WorktreeRow { filled: true, ..worktree(&top.id) };
    assert_eq!(store.worktrees().unwrap(), vec![(gone.id, row)]);
    for namespace in ["task", "background", "paused", "blocked", "worktree"] {
        assert_eq!(store.records(namespace).unwrap(), [], "{namespace}");
    }
    assert!(store.record("started", waiting.as_str()).unwrap().is_some());
}

#[test]
fn rows_of_an_older_version_get_their_columns() {
    let temp = Temp::new();
    let old = temp.create_old(OLD);
    // Ids that do not sort as the sessions were created.
    let mut all = ["one", "two", "three"].map(|title| session(title, 1));
    all.reverse();
    all[0].path = Some("a/b".into());
    all[1].time.archived = Some(5);
    all[2].workspace_id = Some("wrk_1".into());
    all.iter().for_each(|session| put_session(&old, session));
    let ask = json!({"id": PermissionId::new(), "sessionID": all[0].id, "permission": "edit", "patterns": ["x"],
        "metadata": {}, "always": [], "tool": {"messageID": MessageId::new(), "callID": "call"}});
    let sql =
        "INSERT INTO ask (id, session, project, directory, kind, json) VALUES (?1, ?2, 'p', '/', 'permission', ?3)";
    old.execute(sql, [ask["id"].as_str().unwrap(), all[0].id.as_str(), &ask.to_string()]).unwrap();
    let open = json!({"id": MessageId::new(), "sessionID": all[0].id, "role": "assistant", "time": {"created": 1},
        "parentID": MessageId::new(), "modelID": "m", "providerID": "p", "mode": "build", "agent": "build",
        "path": {"cwd": "/", "root": "/"}, "cost": 0,
        "tokens": {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}});
    let mut done = open.clone();
    done["id"] = json!(MessageId::new());
    done["time"]["completed"] = json!(2);
    for (position, message) in [&open, &done].into_iter().enumerate() {
        let sql = "INSERT INTO message (id, session, position, stamp, turn, json) VALUES (?1, ?2, ?3, '', 0, ?4)";
        let values =
            rusqlite::params![message["id"].as_str(), all[0].id.as_str(), position as i64, message.to_string()];
        old.execute(sql, values).unwrap();
    }
    drop(old);

    let store = temp.open();
    let list =
        |query: SessionQuery| store.sessions(&query).unwrap().into_iter().map(|session| session.id).collect::<Vec<_>>();
    let created = |ascending| Some(CreationOrder { ascending, after: None });
    let ids = all.clone().map(|session| session.id);
    assert_eq!(list(SessionQuery { creation_order: created(true), ..SessionQuery::default() }), ids);
    assert_eq!(
        list(SessionQuery { creation_order: created(false), limit: 1, ..SessionQuery::default() }),
        [ids[2].clone()]
    );
    for (path, found) in [("a", 1), ("a/b/", 1), ("a/b/c", 0), ("a/", 1), ("b", 0)] {
        assert_eq!(list(SessionQuery { path: Some(path.into()), ..SessionQuery::default() }).len(), found, "{path}");
    }
    let unarchived = list(SessionQuery { unarchived: true, creation_order: created(true), ..SessionQuery::default() });
    assert_eq!(unarchived, [ids[0].clone(), ids[2].clone()]);
    assert_eq!(list(SessionQuery { workspace: Some("wrk_1".into()), ..SessionQuery::default() }), [ids[2].clone()]);
    assert_eq!(store.session_data(&ids[1]).unwrap().as_deref(), Some("data"));
    assert_eq!(store.session_owner(&ids[1]).unwrap().as_deref(), Some("owner"));
    assert_eq!(store.asks_of_call(&ids[0], "call").unwrap().len(), 1);
    let incomplete = store.incomplete_answers(&ids[0], 10).unwrap();
    assert_eq!(incomplete.iter().map(|m| m.info.id().as_str()).collect::<Vec<_>>(), [open["id"].as_str().unwrap()]);
}
