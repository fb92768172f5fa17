//! The database file: its permissions, and what happens if it is damaged, foreign, newer, full or read-only.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::common::*;
use api::{Cursor, Event, EventId, MessageId, SessionId, WatchScope};
use rusqlite::Connection;
use trefoil_store::*;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn error_kind(result: Result<impl std::fmt::Debug, StoreError>) -> DatabaseErrorKind {
    match result.unwrap_err() {
        StoreError::Database { kind, path, .. } => {
            assert!(!path.as_os_str().is_empty(), "the error names the file");
            kind
        }
        other => panic!("expected a database error, got {other}"),
    }
}

#[tokio::test]
async fn everything_is_private() {
    let temp = Temp::new();
    let store = temp.open();
    store.commit(toast_batch("x")).await.unwrap();
    let folder = temp.path().parent().unwrap().to_owned();
    assert_eq!(mode(&folder), 0o700);
    assert_eq!(mode(&folder.join("locks")), 0o700);
    let mut files = 0;
    for entry in fs::read_dir(&folder).unwrap().chain(fs::read_dir(folder.join("locks")).unwrap()) {
        let path = entry.unwrap().path();
        if path.is_file() {
            files += 1;
            assert_eq!(mode(&path), 0o600, "{}", path.display());
        }
    }
    assert!(files >= 5, "database, WAL, its index and two locks");
}

#[tokio::test]
async fn permissions_of_a_readable_file_are_restricted() {
    let temp = Temp::new();
    drop(temp.open());
    fs::set_permissions(temp.path(), fs::Permissions::from_mode(0o644)).unwrap();
    drop(temp.open());
    assert_eq!(mode(&temp.path()), 0o600);
}

#[tokio::test]
async fn a_closed_store_leaves_no_lock() {
    let temp = Temp::new();
    let store = temp.open();
    let locks = temp.path().parent().unwrap().join("locks");
    assert_eq!(fs::read_dir(&locks).unwrap().count(), 2);
    drop(store);
    assert_eq!(fs::read_dir(&locks).unwrap().count(), 0);
}

#[tokio::test]
async fn damaged_files_are_refused_and_left_alone() {
    let temp = Temp::new();
    let store = temp.open();
    for i in 0..200 {
        let mut batch = toast_batch("x".repeat(200));
        batch.session(&session("s", i));
        store.commit(batch).await.unwrap();
    }
    drop(store);
    let sound = fs::read(temp.path()).unwrap();
    Store::check(&temp.path()).unwrap();
    let mut schema = sound.clone();
    schema[100..4000].fill(0xee);
    let short = sound[..sound.len() / 2].to_vec();
    for damaged in [b"hello, this is not a database".to_vec(), vec![7; 8192], schema, short] {
        fs::write(temp.path(), &damaged).unwrap();
        assert_eq!(error_kind(Store::open(&temp.path())), DatabaseErrorKind::Damaged);
        assert_eq!(error_kind(Store::check(&temp.path())), DatabaseErrorKind::Damaged);
        assert!(fs::read(temp.path()).unwrap() == damaged, "the file was changed");
    }
    // Damage that only a full check finds.
    let mut leaf = sound.clone();
    let middle = sound.len() / 2 / 4096 * 4096;
    leaf[middle..middle + 4096].fill(0xee);
    fs::write(temp.path(), &leaf).unwrap();
    assert_eq!(error_kind(Store::check(&temp.path())), DatabaseErrorKind::Damaged);
    assert!(fs::read(temp.path()).unwrap() == leaf, "the file was changed");
}

#[test]
fn a_database_of_another_program_is_refused() {
    let temp = Temp::new();
    fs::create_dir_all(temp.path().parent().unwrap()).unwrap();
    Connection::open(temp.path()).unwrap().execute_batch("CREATE TABLE theirs (x)").unwrap();
    let before = fs::read(temp.path()).unwrap();
    assert_eq!(error_kind(Store::open(&temp.path())), DatabaseErrorKind::Foreign);
    assert!(fs::read(temp.path()).unwrap() == before);
}

#[test]
fn a_newer_schema_is_refused_and_left_alone() {
    for in_wal in [false, true] {
        let temp = Temp::new();
        drop(temp.open());
        let newer = Connection::open(temp.path()).unwrap();
        newer.execute_batch("PRAGMA user_version = 99; CREATE TABLE future (x)").unwrap();
        // While this connection is open, the change is only in the WAL.
        let newer = in_wal.then_some(newer);
        let before = fs::read(temp.path()).unwrap();
        let error = Store::open(&temp.path()).unwrap_err();
        assert!(matches!(error, StoreError::Newer { found: 99, .. }), "{error}");
        assert!(error.to_string().contains("trefoil.db"), "{error}");
        assert!(matches!(Store::check(&temp.path()), Err(StoreError::Newer { .. })));
        assert!(fs::read(temp.path()).unwrap() == before, "the file was changed");
        drop(newer);
    }
}

#[tokio::test]
async fn a_process_stops_writing_once_a_newer_one_has_migrated() {
    let temp = Temp::new();
    let store = temp.open();
    store.commit(toast_batch("before")).await.unwrap();
    Connection::open(temp.path()).unwrap().execute_batch("PRAGMA user_version = 99").unwrap();
    let error = store.commit(toast_batch("after")).await.unwrap_err();
    assert!(matches!(error, StoreError::Newer { found: 99, .. }), "{error}");
    assert_eq!(store.stats().unwrap().events, 1);
}

#[tokio::test]
async fn a_full_disk_fails_one_batch_and_nothing_else() {
    let temp = Temp::new();
    let store = Store::open_with(&temp.path(), Options { max_pages: Some(80), ..Options::default() }).unwrap();
    store.commit(toast_batch("before")).await.unwrap();
    let mut big = toast_batch("x".repeat(1 << 20));
    big.session(&session("half", 1));
    let (before, failed, after) =
        tokio::join!(store.commit(toast_batch("a")), store.commit(big), store.commit(toast_batch("b").durable()));
    assert_eq!(error_kind(failed), DatabaseErrorKind::Full);
    before.unwrap();
    assert_eq!(after.unwrap().last.unwrap().seq, 3);
    assert!(store.sessions(&SessionQuery::default()).unwrap().is_empty(), "nothing of it was written");
}

#[tokio::test]
async fn a_held_lock_gives_a_clear_error_and_the_store_recovers() {
    let temp = Temp::new();
    let options = Options { busy_timeout: std::time::Duration::from_millis(20), ..Options::default() };
    let store = Store::open_with(&temp.path(), options).unwrap();
    let other = Connection::open(temp.path()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert_eq!(error_kind(store.commit(toast_batch("x")).await), DatabaseErrorKind::Busy);
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(store.commit(toast_batch("y")).await.unwrap().last.unwrap().seq, 1);
}

#[tokio::test]
async fn a_caller_is_not_blocked_by_another_process() {
    let temp = Temp::new();
    let store = temp.open();
    let other = Connection::open(temp.path()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut commit = std::pin::pin!(store.commit(toast_batch("x")));
    assert!(futures::poll!(commit.as_mut()).is_pending(), "it waits elsewhere");
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(commit.await.unwrap().last.unwrap().seq, 1);
    // Inline as soon as the writer thread is done and nobody else is writing.
    let inline = async {
        loop {
            let mut commit = std::pin::pin!(store.commit(toast_batch("y")));
            if futures::poll!(commit.as_mut()).is_ready() {
                break;
            }
            commit.await.unwrap();
            std::thread::yield_now();
        }
    };
    tokio::time::timeout(WAIT, inline).await.expect("a commit by its caller");
}

#[tokio::test]
async fn the_wal_does_not_grow_forever() {
    let temp = Temp::new();
    let store = temp.open();
    let wal = temp.path().with_extension("db-wal");
    // Small writes that nobody watches: at least 10,000 pages.
    for _ in 0..2_500 {
        store.commit(toast_batch("x".repeat(12 << 10))).await.unwrap();
        let size = fs::metadata(&wal).unwrap().len();
        assert!(size <= 17 << 20, "{size} bytes");
    }
}

#[tokio::test]
async fn an_older_log_and_its_inbox_are_kept() {
    let temp = Temp::new();
    let old = temp.create_old(3);
    let ids = [EventId::new(), EventId::new()];
    for (seq, id) in [41, 42].into_iter().zip(&ids) {
        let json = serde_json::to_string(&Event { id: id.clone(), ..Event::new(toast(seq.to_string())) }).unwrap();
        old.execute(
            "INSERT INTO event (seq, id, directory, project, json) VALUES (?1, ?2, '/repo', 'project', ?3)",
            rusqlite::params![seq, id.as_str(), json],
        )
        .unwrap();
    }
    let session = SessionId::new();
    let mut waiting = [MessageId::new(), MessageId::new(), MessageId::new()];
    waiting.reverse();
    for message in &waiting[..2] {
        let row = [message.as_str(), session.as_str()];
        old.execute("INSERT INTO inbox (message, session, attempts, accepted) VALUES (?1, ?2, 1, 7)", row).unwrap();
    }
    drop(old);

    let store = temp.open();
    let mut watch = store.watch(WatchScope::All, Some(Cursor { seq: 41, id: ids[0].clone() })).unwrap();
    assert_eq!(toast_text(&next_frame(&mut watch).await).as_deref(), Some("42"));
    let mut batch = toast_batch("next");
    batch.enqueue(&session, &waiting[2]);
    assert_eq!(store.commit(batch).await.unwrap().last.unwrap().seq, 43);
    let inbox = store.inbox(&session).unwrap();
    assert_eq!(inbox.iter().map(|row| row.message_id.clone()).collect::<Vec<_>>(), waiting, "in their order");
    assert_eq!((inbox[0].attempts, inbox[2].attempts), (1, 0));
    assert!(inbox.iter().all(|row| row.data.is_none()));
}

#[test]
fn an_unwritable_path_is_named() {
    let temp = Temp::new();
    fs::write(temp.folder.path().join("data"), "a file where the folder should be").unwrap();
    let error = Store::open(&temp.path()).unwrap_err();
    assert!(error.to_string().contains("trefoil.db"), "{error}");
    let missing = temp.folder.path().join("missing.db");
    assert!(Store::check(&missing).unwrap_err().to_string().contains("missing.db"));
    assert!(!missing.exists(), "reading creates nothing");

    let folder = temp.folder.path().join("closed");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o500)).unwrap();
    // The superuser can write everywhere, so there is nothing to test then.
    if fs::write(folder.join("probe"), "").is_err() {
        assert_eq!(error_kind(Store::open(&folder.join("trefoil.db"))), DatabaseErrorKind::ReadOnly);
    }
}

#[tokio::test]
async fn an_unreadable_row_is_named() {
    let temp = Temp::new();
    let store = temp.open();
    let session = session("s", 1);
    let mut batch = batch();
    batch.session(&session);
    store.commit(batch).await.unwrap();
    Connection::open(temp.path()).unwrap().execute_batch("UPDATE session SET json = '{'").unwrap();
    let error = store.session(&session.id).unwrap_err();
    assert!(matches!(&error, StoreError::Row { table: "session", id, .. } if id == session.id.as_str()), "{error}");
}

#[test]
fn many_threads_can_open_a_new_file_at_once() {
    let temp = Temp::new();
    std::thread::scope(|scope| {
        // Dropped right away, so that opening, migrating and closing overlap.
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| Store::open(&temp.path()).map(drop))).collect();
        for thread in threads {
            thread.join().unwrap().unwrap();
        }
    });
}
