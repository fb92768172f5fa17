//! Nothing unneeded stays: the log is bounded in bytes, a deleted session leaves nothing, and files shrink.

use std::fs;
use std::path::Path;

use crate::common::*;
use api::*;
use serde_json::json;
use trefoil_store::*;

const MARK: &str = "swordfish-4711";

/// The bytes of the database and all files next to it.
fn on_disk(temp: &Temp) -> Vec<u8> {
    let files = fs::read_dir(temp.path().parent().unwrap()).unwrap();
    let files = files.map(|file| file.unwrap().path()).filter(|path| path.is_file());
    files.flat_map(|path| fs::read(path).unwrap()).collect()
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

fn part_event(part: &Part) -> EventBody {
    EventBody::part(part.clone()).unwrap()
}

fn deleted(session: &Session) -> EventBody {
    EventBody::SessionDeleted { session_id: session.id.clone(), info: Box::new(session.tombstone()) }
}

/// A session with a message and this many parts of this many bytes, all of which contain the marker.
async fn fill(store: &Store, parts: usize, bytes: usize) -> (Session, Message, Vec<Part>) {
    let session = session(MARK, 1);
    let message = user(&session.id, 1);
    let mut all = Vec::new();
    let mut batch = batch();
    batch.session(&session);
    batch.message(&message);
    batch.event(EventBody::SessionCreated { session_id: session.id.clone(), info: Box::new(session.clone()) });
    for _ in 0..parts {
        let part = text(&message, &MARK.repeat(bytes.div_ceil(MARK.len())), false);
        batch.part(&part);
        batch.event(part_event(&part));
        all.push(part);
    }
    store.commit(batch).await.unwrap();
    (session, message, all)
}

async fn delete(store: &Store, session: &Session) {
    let mut batch = batch();
    batch.delete_session(&session.id);
    batch.event(deleted(session));
    store.commit(batch).await.unwrap();
}

#[tokio::test]
async fn a_deletion_that_was_logged_with_content_keeps_none() {
    let temp = Temp::new();
    let store = temp.open();
    let (session, ..) = fill(&store, 2, 100).await;
    // As a version did that logged the event before the deletion, with all of the session.
    let mut batch = batch();
    batch.event(EventBody::SessionDeleted { session_id: session.id.clone(), info: Box::new(session.clone()) });
    batch.delete_session(&session.id);
    let last = store.commit(batch).await.unwrap().last.unwrap();
    store.sweep(std::slice::from_ref(&session.id)).await.unwrap();
    let raw = rusqlite::Connection::open(temp.path()).unwrap();
    let mut statement = raw.prepare("SELECT seq, json FROM event WHERE json IS NOT NULL").unwrap();
    let left = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    let left: Vec<(i64, String)> = left.map(Result::unwrap).collect();
    assert_eq!(left.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(), [last.seq as i64]);
    let event: Event = serde_json::from_str(&left[0].1).unwrap();
    let info = Box::new(session.tombstone());
    assert_eq!((event.id, event.body), (last.id, EventBody::SessionDeleted { session_id: session.id, info }));
    assert!(!left[0].1.contains(MARK));
}

#[tokio::test]
async fn the_log_is_bounded_in_bytes() {
    const BOUND: u64 = 1 << 20;
    let temp = Temp::new();
    let options = || Options { keep_event_bytes: BOUND, ..Options::default() };
    let mut store = Store::open_with(&temp.path(), options()).unwrap();
    let first = store.commit(toast_batch("first")).await.unwrap().last;
    let mut last = 1;
    for round in 0..6 {
        for size in [100, 300_000, 10, 50_000, 50_000] {
            for _ in 0..5 {
                last = store.commit(toast_batch("x".repeat(size))).await.unwrap().last.unwrap().seq;
            }
        }
        let sizes = Store::disk_usage(&temp.path()).unwrap();
        assert!(sizes.event_bytes <= BOUND + (1 << 20) + 300_000, "{sizes:?}");
        let stats = store.stats().unwrap();
        assert_eq!((stats.last_seq, stats.events), (last, last + 1 - stats.first_seq), "no sequence number is missing");
        if round % 2 == 0 {
            drop(store);
            store = Store::open_with(&temp.path(), options()).unwrap();
        }
    }
    let mut late = store.watch(WatchScope::All, first).unwrap();
    assert!(matches!(next(&mut late).await, WatchItem::Resync(_)));

    // An event larger than the limit stays until the next one, and no other event is pruned because of it.
    let huge = store.commit(toast_batch("h".repeat(3 << 20))).await.unwrap().last.unwrap();
    let stats = store.stats().unwrap();
    assert_eq!((stats.events, stats.first_seq, stats.last_seq), (1, huge.seq, huge.seq));
    let mut watch = store.watch(WatchScope::All, Some(huge.clone())).unwrap();
    let next = store.commit(toast_batch("next")).await.unwrap().last.unwrap();
    assert_eq!(next.seq, huge.seq + 1);
    assert_eq!(toast_text(&next_frame(&mut watch).await).as_deref(), Some("next"));
    for _ in 0..300 {
        store.commit(toast_batch("small")).await.unwrap();
    }
    assert!(Store::disk_usage(&temp.path()).unwrap().event_bytes < 300 * 500);
    // The row limit still holds.
    drop(store);
    let store = Store::open_with(&temp.path(), Options { keep_events: 10, ..options() }).unwrap();
    for _ in 0..300 {
        store.commit(toast_batch("few")).await.unwrap();
    }
    assert!(store.stats().unwrap().events <= 10 + 256);
}

#[tokio::test]
async fn the_log_of_an_older_version_is_pruned_to_its_limit() {
    // The last event alone is larger than the limit.
    for (rows, size, kept) in [(66_u64, 1 << 20, 63), (2, 65 << 20, 1), (0, 0, 0), (3, 10, 3)] {
        let temp = Temp::new();
        let old = temp.create_old(4);
        old.execute_batch("BEGIN").unwrap();
        for seq in 0..rows {
            // Text of this size, generated by the database itself.
            let sql = "INSERT INTO event (seq, id, directory, project, json)
                       VALUES (?1, ?2, '/repo', 'project', '\"' || hex(zeroblob(?3)) || '\"')";
            old.execute(sql, rusqlite::params![(seq + 7) as i64, EventId::new().as_str(), size / 2]).unwrap();
        }
        old.execute_batch("COMMIT").unwrap();
        drop(old);
        let store = temp.open();
        let stats = store.stats().unwrap();
        assert_eq!(stats.events, kept);
        let next = if rows == 0 { 1 } else { rows + 7 };
        assert_eq!(store.commit(toast_batch("next")).await.unwrap().last.unwrap().seq, next);
    }
}

#[tokio::test]
async fn a_deleted_session_leaves_nothing_on_disk() {
    let temp = Temp::new();
    let store = temp.open();
    let other = store.commit(toast_batch("of another session")).await.unwrap().last;
    let kept = crate::common::session("kept", 1);
    let (session, message, parts) = fill(&store, 20, 10_000).await;
    let ask: PermissionRequest = serde_json::from_value(json!({
        "id": PermissionId::new(), "sessionID": session.id, "permission": "edit", "patterns": [MARK], "metadata": {},
        "always": [], "tool": {"messageID": message.id(), "callID": "call"},
    }))
    .unwrap();
    let todo = Todo { content: MARK.into(), status: "pending".into(), priority: "low".into() };
    let started = parts[3].head().unwrap().id.clone();
    let mut batch = batch();
    batch.permission(&ask);
    batch.event(EventBody::PermissionAsked(Box::new(ask.clone())));
    batch.todos(&session.id, std::slice::from_ref(&todo));
    batch.event(EventBody::TodoUpdated { session_id: session.id.clone(), todos: vec![todo] });
    batch.record("started", started.as_str(), Some(&json!(MARK)), None);
    batch.record("state", "other", Some(&json!("stays")), None);
    batch.count_changed_file(&session.id, MARK);
    batch.pause(&session.id, 1);
    batch.block(&session.id, &Blocked { bound: Bound::Steps, session_id: session.id.clone(), message: MARK.into() });
    let prompt = PromptInput { parts: vec![PromptPart::text(MARK)], ..PromptInput::default() };
    let task = LinkedTask {
        parent: session.id.clone(),
        child: kept.id.clone(),
        prompt: MessageId::new(),
        title: MARK.into(),
        input: Some(Box::new(prompt)),
        cancelled: false,
        careful: false,
        background: Some(Background { awaited: true, follower: None }),
    };
    batch.link_task(&started, &task);
    for number in 0..200 {
        let version = FileVersion { hash: MARK.into(), content: Some(MARK.repeat(100)) };
        batch.file_version(&session.id, &format!("{MARK}{number}"), version);
    }
    let shared = |text: &str| SharedText::new(text.repeat(100));
    batch.enqueue_with(&session.id, message.id(), &shared(MARK), None);
    batch.session_data(&session.id, &shared(&format!("{MARK} of the session")));
    batch.session(&kept);
    batch.session_data(&kept.id, &shared("stays"));
    batch.event(EventBody::SessionStatus { session_id: session.id.clone(), status: SessionStatus::Busy });
    batch.budget(&session.id, Some(&Budget { steps: Some(3), ..Budget::default() }));
    let within = store.commit(batch).await.unwrap().last;
    let mut answer = crate::common::batch();
    answer.answer(ask.id.as_str(), &json!({"message": MARK}));
    store.commit(answer).await.unwrap();
    let after = store.commit(toast_batch("after")).await.unwrap().last;
    assert!(holds(&on_disk(&temp), MARK));

    delete(&store, &session).await;
    store.sweep(&store.unswept_sessions().unwrap()).await.unwrap();
    assert_eq!(store.compact().await.unwrap(), CompactOutcome::Rewritten);
    assert!(!holds(&on_disk(&temp), MARK), "it can still be read");
    let raw = rusqlite::Connection::open(temp.path()).unwrap();
    let tables = [
        "message",
        "part",
        "ask",
        "inbox",
        "todo",
        "status",
        "lease",
        "turn",
        "ledger",
        "touched",
        "file_version",
        "paused",
        "blocked",
        "task_link",
    ];
    let raw_sessions: i64 = raw.query_row("SELECT count(*) FROM session", [], |row| row.get(0)).unwrap();
    assert_eq!(raw_sessions, 1, "the one that was kept");
    for table in tables.into_iter().chain(["reservation", "budget", "signal", "removed"]) {
        let rows: i64 = raw.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap();
        assert_eq!(rows, 0, "{table}");
    }
    assert_eq!(store.record("started", started.as_str()).unwrap(), None);
    assert!(store.record("state", "other").unwrap().is_some());
    let data = store.session_data(&kept.id).unwrap().unwrap();
    assert_eq!(store.shared(&data).unwrap(), Some("stays".repeat(100)));

    // Its own cursors and those of others stay valid, and nothing after them is missing but its content.
    for cursor in [other, within] {
        let mut watch = store.watch(WatchScope::All, cursor).unwrap();
        assert_eq!(toast_text(&next_frame(&mut watch).await).as_deref(), Some("after"));
        let gone = next_frame(&mut watch).await;
        let event = gone.event().unwrap();
        let EventBody::SessionDeleted { info, .. } = &event.body else { panic!("{event:?}") };
        assert_eq!((&info.id, info.title.as_str()), (&session.id, ""));
    }
    let stats = store.stats().unwrap();
    assert_eq!(stats.events, stats.last_seq, "every number is still there");
    let mut rest = store.watch(WatchScope::All, after).unwrap();
    assert_eq!(next_frame(&mut rest).await.session, Some(session.id));
}

#[tokio::test]
async fn orphans_of_an_older_version_are_found() {
    let temp = Temp::new();
    let store = temp.open();
    let (session, ..) = fill(&store, 3, 1000).await;
    // As the old version did it: the rows are deleted, the log stays.
    let mut gone = batch();
    gone.event(EventBody::SessionDeleted { session_id: session.id.clone(), info: Box::new(session.clone()) });
    store.commit(gone).await.unwrap();
    let raw = rusqlite::Connection::open(temp.path()).unwrap();
    raw.execute_batch("DELETE FROM part; DELETE FROM message; DELETE FROM session").unwrap();
    let (stays, ..) = fill(&store, 1, 10).await;
    let sizes = Store::disk_usage(&temp.path()).unwrap();
    assert_eq!(sizes.orphans, 1);
    assert!(sizes.orphan_bytes > 3000, "{sizes:?}");
    assert_eq!(store.orphaned_sessions().unwrap(), vec![session.id.clone()]);
    let mut batch = batch();
    batch.mark_orphaned(&session.id);
    batch.mark_orphaned(&stays.id);
    store.commit(batch).await.unwrap();
    assert_eq!(store.unswept_sessions().unwrap(), vec![session.id.clone()], "an existing session is not an orphan");
    store.sweep(&store.unswept_sessions().unwrap()).await.unwrap();
    assert!(store.orphaned_sessions().unwrap().is_empty());
    let sizes = Store::disk_usage(&temp.path()).unwrap();
    assert_eq!((sizes.orphans, sizes.orphan_bytes), (0, 0));
    let mut log = Vec::new();
    let mut at = 0;
    while let Some((frames, next)) = store.history(at).unwrap() {
        log.extend(frames);
        at = next;
    }
    let events = log.iter().filter(|frame| frame.session.as_ref() == Some(&session.id)).collect::<Vec<_>>();
    assert_eq!(events.len(), 1, "only that it was deleted");
    assert!(!holds(events[0].json(), MARK));
    assert!(log.iter().any(|frame| frame.session.as_ref() == Some(&stays.id)));
}

#[tokio::test]
async fn others_can_write_while_a_large_session_is_swept() {
    let temp = Temp::new();
    let store = temp.open();
    let (session, ..) = fill(&store, 1500, 5_000).await;
    delete(&store, &session).await;
    let removed = store.unswept_sessions().unwrap();
    let mut sweep = std::pin::pin!(store.sweep(&removed));
    let mut between = 0;
    loop {
        tokio::select! {
            biased;
            done = &mut sweep => break done.unwrap(),
            // It waits for one step at most.
            written = async { store.commit(toast_batch("meanwhile").durable()).await } => {
                written.unwrap();
                between += 1;
            }
        }
    }
    assert!(between >= 4, "{between}");
    assert!(store.unswept_sessions().unwrap().is_empty());
    assert_eq!(Store::disk_usage(&temp.path()).unwrap().orphan_bytes, 0);
}

#[tokio::test]
async fn an_interrupted_deletion_is_finished_later() {
    let temp = Temp::new();
    let (one, two);
    {
        let store = temp.open();
        (one, ..) = fill(&store, 1500, 5_000).await;
        (two, ..) = fill(&store, 10, 1_000).await;
        delete(&store, &one).await;
        delete(&store, &two).await;
        let removed = store.unswept_sessions().unwrap();
        let mut sweep = std::pin::pin!(store.sweep(&removed));
        assert!(futures::poll!(sweep.as_mut()).is_pending(), "it begins");
    }
    let store = temp.open();
    assert_eq!(store.session(&one.id).unwrap(), None);
    assert_eq!(store.unswept_sessions().unwrap().len(), 2);
    store.sweep(&store.unswept_sessions().unwrap()).await.unwrap();
    assert!(store.unswept_sessions().unwrap().is_empty() && store.orphaned_sessions().unwrap().is_empty());
}

#[tokio::test]
async fn a_recreated_session_keeps_its_rows() {
    let temp = Temp::new();
    let store = temp.open();
    let (session, ..) = fill(&store, 1, 10).await;
    delete(&store, &session).await;
    store.sweep(&store.unswept_sessions().unwrap()).await.unwrap();
    // The session is created again before it is swept.
    delete(&store, &session).await;
    let message = user(&session.id, 1);
    let mut batch = batch();
    batch.session(&session);
    batch.message(&message);
    batch.event(EventBody::message(message.clone()));
    let last = store.commit(batch).await.unwrap().last.unwrap();
    store.sweep(&store.unswept_sessions().unwrap()).await.unwrap();
    assert!(store.message(message.id()).unwrap().is_some());
    let (frames, _) = store.history(last.seq - 1).unwrap().unwrap();
    assert_eq!(frames.len(), 1, "later events stay");
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len()
}

#[tokio::test]
async fn free_pages_are_released_automatically() {
    let temp = Temp::new();
    let store = temp.open();
    let (session, ..) = fill(&store, 200, 50_000).await;
    let before = Store::disk_usage(&temp.path()).unwrap();
    assert!(before.can_shrink && before.database > 20_000_000, "{before:?}");
    delete(&store, &session).await;
    store.sweep(&store.unswept_sessions().unwrap()).await.unwrap();
    let wait = std::time::Instant::now();
    while size(&temp.path()) > 6_000_000 {
        assert!(wait.elapsed() < WAIT, "the file has still {} bytes", size(&temp.path()));
        tokio::task::yield_now().await;
        std::thread::yield_now();
    }
    Store::check(&temp.path()).unwrap();
    // Compacting releases all of them.
    assert_eq!(store.compact().await.unwrap(), CompactOutcome::Rewritten);
    assert!(size(&temp.path()) < 1_000_000);
    assert_eq!(fs::metadata(temp.path().with_extension("db-wal")).map_or(0, |wal| wal.len()), 0);
}

#[tokio::test]
async fn a_file_of_an_older_version_is_converted_when_nobody_else_has_it_open() {
    let temp = Temp::new();
    drop(temp.create_old(4));
    let store = temp.open();
    let (session, ..) = fill(&store, 100, 50_000).await;
    delete(&store, &session).await;
    store.sweep(&store.unswept_sessions().unwrap()).await.unwrap();
    assert!(!Store::disk_usage(&temp.path()).unwrap().can_shrink);
    let other = temp.open();
    let CompactOutcome::Unchanged(why) = store.compact().await.unwrap() else { panic!() };
    assert!(why.contains("other process"), "{why}");
    drop(other);
    assert_eq!(store.compact().await.unwrap(), CompactOutcome::Rewritten);
    let sizes = Store::disk_usage(&temp.path()).unwrap();
    assert!(sizes.can_shrink && sizes.free == 0 && sizes.database < 1_000_000, "{sizes:?}");
    Store::check(&temp.path()).unwrap();
    // A file that can release pages does so while others have it open.
    let (session, ..) = fill(&store, 100, 50_000).await;
    delete(&store, &session).await;
    store.sweep(&store.unswept_sessions().unwrap()).await.unwrap();
    let _other = temp.open();
    assert!(matches!(store.compact().await.unwrap(), CompactOutcome::PagesFreed(_)));
    assert_eq!(Store::disk_usage(&temp.path()).unwrap().free, 0);
    // The other store may have been doing it at that moment.
    let wait = std::time::Instant::now();
    while holds(&on_disk(&temp), MARK) {
        assert!(wait.elapsed() < WAIT, "what was deleted can still be read");
        store.compact().await.unwrap();
    }
}
