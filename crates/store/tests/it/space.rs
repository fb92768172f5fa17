//! Nothing stays that is not needed: the log is bounded in bytes, a deleted session leaves nothing, and files shrink.

use std::fs;
use std::path::Path;

use crate::common::*;
use crate::order;
use api::*;
use serde_json::json;
use trefoil_store::*;

const MARK: &str = "swordfish-4711";

/// The bytes of everything sibling the database.
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

/// A session with a message and so many parts of so many bytes, all of which hold the mark.
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
        assert_eq!((stats.last_seq, stats.events), (last, last + 1 - stats.first_seq), "no number is missing");
        if round % 2 == 0 {
            drop(store);
            store = Store::open_with(&temp.path(), options()).unwrap();
        }
    }
    let mut late = store.watch(WatchScope::All, first).unwrap();
    assert!(matches!(next(&mut late).await, WatchItem::Resync(_)));

    // An event larger than the bound is there until the next one comes, and takes nothing else with it.
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
    // The row bound still holds.
    drop(store);
    let store = Store::open_with(&temp.path(), Options { keep_events: 10, ..options() }).unwrap();
    for _ in 0..300 {
        store.commit(toast_batch("few")).await.unwrap();
    }
    assert!(store.stats().unwrap().events <= 10 + 256);
}

#[tokio::test]
async fn a_log_of_an_older_version_is_cut_to_its_bound() {
    // The last one alone is larger than the bound.
    for (rows, size, kept) in [(66_u64, 1 << 20, 63), (2, 65 << 20, 1), (0, 0, 0), (3, 10, 3)] {
        let temp = Temp::new();
        let old = order::old(&temp);
        old.execute_batch("BEGIN").unwrap();
        for seq in 0..rows {
            // Text of so many bytes, which the database makes itself.
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
async fn a_deleted_session_is_nowhere_on_the_disk() {
    let temp = Temp::new();
    let store = temp.open();
    let other = store.commit(toast_batch("of another one")).await.unwrap().last;
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
    for number in 0..200 {
        let version = FileVersion { hash: MARK.into(), content: Some(MARK.repeat(100)) };
        batch.file_version(&session.id, &format!("{MARK}{number}"), version);
    }
    batch.enqueue(&session.id, message.id());
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
        "session",
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
    ];
    for table in tables.into_iter().chain(["reservation", "budget", "signal", "removed"]) {
        let rows: i64 = raw.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap();
        assert_eq!(rows, 0, "{table}");
    }
    assert_eq!(store.record("started", started.as_str()).unwrap(), None);
    assert!(store.record("state", "other").unwrap().is_some());

    // Cursors of others and of itself are good, and nothing is missing behind them but what it said.
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
async fn what_an_older_version_left_of_deleted_sessions_is_found() {
    let temp = Temp::new();
    let store = temp.open();
    let (session, ..) = fill(&store, 3, 1000).await;
    // As the version before did: rows go, the log stays.
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
    assert_eq!(store.unswept_sessions().unwrap(), vec![session.id.clone()], "what is there is no leftover");
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
    let told = log.iter().filter(|frame| frame.session.as_ref() == Some(&session.id)).collect::<Vec<_>>();
    assert_eq!(told.len(), 1, "only that it was deleted");
    assert!(!holds(told[0].json(), MARK));
    assert!(log.iter().any(|frame| frame.session.as_ref() == Some(&stays.id)));
}

#[tokio::test]
async fn others_write_while_a_large_session_goes() {
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
            // It waits for nothing but one piece.
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
async fn a_deletion_that_was_cut_off_is_finished_later() {
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
async fn a_session_that_is_there_again_keeps_what_it_has() {
    let temp = Temp::new();
    let store = temp.open();
    let (session, ..) = fill(&store, 1, 10).await;
    delete(&store, &session).await;
    store.sweep(&store.unswept_sessions().unwrap()).await.unwrap();
    // It comes back while it is still to be swept.
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
    assert_eq!(frames.len(), 1, "what was told since stays");
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len()
}

#[tokio::test]
async fn free_pages_go_back_by_themselves() {
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
    // On request all of them go.
    assert_eq!(store.compact().await.unwrap(), CompactOutcome::Rewritten);
    assert!(size(&temp.path()) < 1_000_000);
    assert_eq!(fs::metadata(temp.path().with_extension("db-wal")).map_or(0, |wal| wal.len()), 0);
}

#[tokio::test]
async fn a_file_of_an_older_version_is_converted_when_nobody_else_has_it() {
    let temp = Temp::new();
    drop(order::old(&temp));
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
    // One that can give pages back does so while others have it.
    let (session, ..) = fill(&store, 100, 50_000).await;
    delete(&store, &session).await;
    store.sweep(&store.unswept_sessions().unwrap()).await.unwrap();
    let _other = temp.open();
    assert!(matches!(store.compact().await.unwrap(), CompactOutcome::PagesFreed(_)));
    assert_eq!(Store::disk_usage(&temp.path()).unwrap().free, 0);
    // The other one may have been at it in that moment.
    let wait = std::time::Instant::now();
    while holds(&on_disk(&temp), MARK) {
        assert!(wait.elapsed() < WAIT, "what was deleted can still be read");
        store.compact().await.unwrap();
    }
}
