//! Transient faults (a lock, a full disk, a moved folder), and losses that are permanent.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::*;
use api::*;
use rusqlite::Connection;
use trefoil_store::*;

fn impatient() -> Options {
    Options { busy_timeout: Duration::from_millis(20), ..Options::default() }
}

/// The kind of a transient error.
fn transient_kind<T: std::fmt::Debug>(result: Result<T, StoreError>) -> DatabaseErrorKind {
    match result.unwrap_err() {
        error @ StoreError::Database { kind, .. } if error.is_transient() => kind,
        other => panic!("expected a transient error, got {other}"),
    }
}

/// The files in a folder and its subfolders.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.path().is_dir() { found.extend(files(&entry.path())) } else { found.push(entry.path()) }
    }
    found.sort();
    found
}

#[tokio::test]
async fn a_write_refused_by_a_lock_is_written_once_on_retry() {
    let temp = Temp::new();
    let store = Store::open_with(&temp.path(), impatient()).unwrap();
    let other = Connection::open(temp.path()).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let batch = Arc::new(toast_batch("x").durable());
    for _ in 0..3 {
        assert_eq!(transient_kind(store.commit(batch.clone()).await), DatabaseErrorKind::Busy);
    }
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(store.commit(batch).await.unwrap().last.unwrap().seq, 1);
    assert_eq!(store.stats().unwrap().events, 1);
}

#[tokio::test]
async fn a_locked_database_can_be_opened_and_read() {
    let temp = Temp::new();
    let store = temp.open();
    store.commit(toast_batch("x")).await.unwrap();
    let other = Connection::open(temp.path()).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    assert_eq!(temp.open().stats().unwrap().events, 1);
    let mut watch = store.watch(WatchScope::All, None).unwrap();
    assert!(futures::poll!(futures::StreamExt::next(&mut watch)).is_pending());
    drop(store);
    assert_eq!(temp.open().stats().unwrap().events, 1, "also if nobody else has it open");
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_for_a_lock_longer_than_the_busy_timeout_in_total() {
    let temp = Temp::new();
    let busy = Duration::from_secs(2);
    let store = Store::open_with(&temp.path(), Options { busy_timeout: busy, ..Options::default() }).unwrap();
    let other = Connection::open(temp.path()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let commit = |name: &'static str| {
        let store = store.clone();
        tokio::spawn(async move {
            let began = Instant::now();
            assert_eq!(transient_kind(store.commit(toast_batch(name).durable()).await), DatabaseErrorKind::Busy);
            began.elapsed()
        })
    };
    let first = commit("first");
    // While the first write waits for a transaction that cannot begin, more are queued.
    while store.queued_writes() == 0 {
        tokio::task::yield_now().await;
    }
    let rest: Vec<_> = (0..5).map(|_| commit("later")).collect();
    for waited in futures::future::join_all(std::iter::once(first).chain(rest)).await {
        let waited = waited.unwrap();
        assert!(waited >= busy, "{waited:?}: it may wait for {busy:?}");
        // Twice the timeout would be too long; a busy machine adds something.
        assert!(waited < busy + busy * 3 / 4, "{waited:?}");
    }
}

#[tokio::test]
async fn writes_succeed_once_a_full_disk_has_space_again() {
    let temp = Temp::new();
    let store = Store::open_with(&temp.path(), Options { max_pages: Some(150), ..Options::default() }).unwrap();
    let other = Connection::open(temp.path()).unwrap();
    other.execute_batch("CREATE TABLE filler (x); INSERT INTO filler VALUES (zeroblob(1000000))").unwrap();
    let batch = Arc::new(toast_batch("x".repeat(50_000)).durable());
    for _ in 0..3 {
        assert_eq!(transient_kind(store.commit(batch.clone()).await), DatabaseErrorKind::Full);
    }
    // Frees its pages, which are reused before the file grows.
    other.execute_batch("DROP TABLE filler").unwrap();
    assert_eq!(store.commit(batch).await.unwrap().last.unwrap().seq, 1);
    assert_eq!(store.stats().unwrap().events, 1);
}

#[tokio::test]
async fn a_folder_can_be_moved_away_and_back() {
    let temp = Temp::new();
    let store = temp.open();
    store.commit(toast_batch("before").durable()).await.unwrap();
    store.stats().unwrap();
    let (folder, away) = (temp.path().parent().unwrap().to_owned(), temp.folder.path().join("away"));
    store.health().unwrap();
    for _ in 0..2 {
        fs::rename(&folder, &away).unwrap();
        let error = store.commit(toast_batch("x").durable()).await.unwrap_err();
        assert!(error.to_string().contains("moved, deleted or replaced"), "{error}");
        assert_eq!(transient_kind(Err::<(), _>(error)), DatabaseErrorKind::Moved);
        assert_eq!(transient_kind(store.acquire(&SessionId::new()).await), DatabaseErrorKind::Moved);
        assert_eq!(transient_kind(store.health()), DatabaseErrorKind::Moved);
        assert_eq!(store.stats().unwrap().events, 1, "existing rows can be read");
        assert!(!folder.exists(), "nothing was created in its place");
        fs::rename(&away, &folder).unwrap();
        store.health().unwrap();
    }
    assert_eq!(store.commit(toast_batch("after").durable()).await.unwrap().last.unwrap().seq, 2);
}

#[tokio::test]
async fn inline_commits_soon_notice_a_missing_folder() {
    let temp = Temp::new();
    let store = temp.open();
    fs::remove_dir_all(temp.path().parent().unwrap()).unwrap();
    let noticed = async {
        while store.commit(toast_batch("x")).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(WAIT, noticed).await.expect("a commit is refused");
    assert_eq!(transient_kind(store.commit(toast_batch("x")).await), DatabaseErrorKind::Moved);
}

#[tokio::test]
async fn a_deleted_folder_is_not_created_again() {
    let temp = Temp::new();
    let store = temp.open();
    let folder = temp.path().parent().unwrap().to_owned();
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(transient_kind(store.commit(toast_batch("x").durable()).await), DatabaseErrorKind::Moved);
    // Two simultaneous reads: the second one needs another connection.
    let read = store.snapshot(|_| store.stats());
    assert_eq!(transient_kind(read), DatabaseErrorKind::Moved);
    drop(store);
    assert!(!folder.exists());
}

#[tokio::test]
async fn a_file_that_replaces_the_database_is_left_alone() {
    let temp = Temp::new();
    let store = temp.open();
    store.commit(toast_batch("mine")).await.unwrap();
    store.stats().unwrap();
    let folder = temp.path().parent().unwrap().to_owned();
    let theirs = Temp::new();
    let other = theirs.open();
    for word in ["theirs", "too"] {
        other.commit(toast_batch(word)).await.unwrap();
    }
    drop(other);
    fs::rename(&folder, temp.folder.path().join("away")).unwrap();
    fs::rename(theirs.path().parent().unwrap(), &folder).unwrap();
    let before: Vec<_> = files(&folder).into_iter().map(|file| (fs::read(&file).unwrap(), file)).collect();
    assert_eq!(transient_kind(store.commit(toast_batch("x").durable()).await), DatabaseErrorKind::Moved);
    assert_eq!(store.stats().unwrap().events, 1, "ours is read, not theirs");
    assert_eq!(transient_kind(store.snapshot(|_| store.stats())), DatabaseErrorKind::Moved);
    drop(store);
    let after: Vec<_> = files(&folder).into_iter().map(|file| (fs::read(&file).unwrap(), file)).collect();
    assert!(before == after, "their files were touched: {:?}", files(&folder));
    assert_eq!(Store::open(&temp.path()).unwrap().stats().unwrap().events, 2);
}

#[tokio::test]
async fn removing_the_wal_or_its_index_in_use_stops_writes() {
    for suffix in ["db-wal", "db-shm"] {
        let temp = Temp::new();
        let store = temp.open();
        store.commit(toast_batch("x")).await.unwrap();
        fs::remove_file(temp.path().with_extension(suffix)).unwrap();
        let error = store.commit(toast_batch("y").durable()).await.unwrap_err();
        assert!(error.to_string().contains(suffix), "{error}");
        assert_eq!(transient_kind(Err::<(), _>(error)), DatabaseErrorKind::Moved);
        // Closing the store saves what was written before.
        drop(store);
        assert_eq!(temp.open().stats().unwrap().events, 1, "{suffix}");
    }
}

#[tokio::test]
async fn a_status_that_cannot_be_stored_is_published_until_the_next_commit() {
    let temp = Temp::new();
    let store = Store::open_with(&temp.path(), impatient()).unwrap();
    let session = session("s", 1);
    let lease = lease(&store, &session.id).await;
    let status = |status: SessionStatus| EventBody::SessionStatus { session_id: session.id.clone(), status };
    let retry = SessionStatus::Retry { attempt: 1, message: "locked".into(), action: None, next: 7 };
    let mut first = batch().fence(&lease);
    first.session(&session);
    first.event(status(SessionStatus::Busy));
    store.commit(first).await.unwrap();
    let mut watch = store.watch(WatchScope::All, None).unwrap();

    let other = Connection::open(temp.path()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut last = toast_batch("at last").fence(&lease);
    last.event(status(SessionStatus::Idle));
    last.release(&lease);
    let last = Arc::new(last);
    assert_eq!(transient_kind(store.commit(last.clone()).await), DatabaseErrorKind::Busy);
    store.publish_transient(&location(), status(retry.clone()));
    assert_eq!(store.statuses().unwrap(), [(session.id.clone(), retry.clone())]);
    assert_eq!(store.transient_status(&session.id), Some(retry.clone()));
    assert_eq!(store.tree(&session.id).unwrap().unwrap().sessions[0].status, Some(retry.clone()));
    other.execute_batch("ROLLBACK").unwrap();
    store.commit(last).await.unwrap();

    let mut seen = Vec::new();
    for _ in 0..4 {
        let frame = next_frame(&mut watch).await;
        seen.push((frame.cursor.is_some(), frame.event().unwrap().body.clone()));
    }
    let want = [
        (false, status(retry)),
        (false, status(SessionStatus::Busy)),
        (true, toast("at last")),
        (true, status(SessionStatus::Idle)),
    ];
    assert_eq!(seen, want);
    assert_eq!((store.statuses().unwrap(), store.transient_status(&session.id)), (Vec::new(), None));
}

/// A database whose last process was killed while it was writing, with some rows only in the WAL.
fn database_of_killed_process() -> Temp {
    let temp = Temp::new();
    let mut child = child("child_writes_until_killed", &temp);
    let mut output = ChildOutput::of(&mut child);
    while output.next_word().parse::<u64>().unwrap() < 40 {}
    child.kill().unwrap();
    child.wait().unwrap();
    temp
}

/// Copies a database to its own folder.
fn copy(of: &Temp) -> Temp {
    let temp = Temp::new();
    let folder = temp.path().parent().unwrap().to_owned();
    fs::create_dir(&folder).unwrap();
    for entry in fs::read_dir(of.path().parent().unwrap()).unwrap().flatten() {
        if entry.path().is_file() {
            fs::copy(entry.path(), folder.join(entry.file_name())).unwrap();
        }
    }
    temp
}

fn wal_of(temp: &Temp) -> PathBuf {
    temp.path().with_extension("db-wal")
}

#[test]
fn a_kill_alone_loses_nothing() {
    let whole = database_of_killed_process();
    for tail in [0, 10, 5_000] {
        let temp = copy(&whole);
        // What an interrupted commit leaves: no complete frame, or no complete last frame.
        let wal = fs::read(wal_of(&temp)).unwrap();
        let mut longer = wal.clone();
        longer.extend_from_slice(&wal[32..32 + tail]);
        fs::write(wal_of(&temp), longer).unwrap();
        assert_eq!(Store::detect_data_loss(&temp.path()).unwrap(), None, "{tail}");
        let store = temp.open();
        assert_eq!(store.data_loss(), None, "{tail}");
        assert!(store.stats().unwrap().events > 40);
        drop(store);
        // A clean close leaves no WAL.
        assert!(!wal_of(&temp).exists());
        assert_eq!(temp.open().data_loss(), None);
        assert!(Store::past_data_losses(&temp.path()).is_empty());
    }
}

#[test]
fn a_removed_or_torn_wal_is_reported_and_preserved() {
    let whole = database_of_killed_process();
    let frame = 4096 + 24;
    type Tear = fn(Vec<u8>) -> Option<Vec<u8>>;
    let tears: [(&str, Tear); 5] = [
        ("missing", |_| None),
        ("cut off or damaged", |wal| Some(wal[..wal.len() / 2 / 4120 * 4120 + 700].to_vec())),
        ("cut off", |wal| Some(wal[..32 + wal.len() / 2 / 4120 * 4120].to_vec())),
        ("commits follow the damage", |mut wal| {
            let middle = wal.len() / 2;
            wal[middle..middle + 100].fill(0xee);
            Some(wal)
        }),
        ("cut off or damaged", |mut wal| {
            wal[..32].fill(0);
            Some(wal)
        }),
    ];
    for (what, tear) in tears {
        let temp = copy(&whole);
        let sound = fs::read(wal_of(&temp)).unwrap();
        assert!(sound.len() > 20 * frame, "there is something to tear");
        let torn = tear(sound);
        match &torn {
            Some(torn) => fs::write(wal_of(&temp), torn).unwrap(),
            None => fs::remove_file(wal_of(&temp)).unwrap(),
        }
        let seen =
            Store::detect_data_loss(&temp.path()).unwrap().unwrap_or_else(|| panic!("{what}: nothing is missing"));
        let store = temp.open();
        let loss = store.data_loss().unwrap_or_else(|| panic!("{what}: nothing is missing")).clone();
        assert_eq!((seen.events, seen.synced, seen.since), (loss.events, loss.synced, loss.since));
        let left = store.stats().unwrap().last_seq;
        let all = Store::open(&copy(&whole).path()).unwrap().stats().unwrap().last_seq;
        // The process may have been killed before it recorded its last commit.
        assert!((all - 1..=all).contains(&(left + loss.events)), "{what}: {left} of {all} are left; {loss}");
        assert!(loss.synced > 0 && loss.until > api::now() - 600_000, "{loss:?}");
        assert_eq!(loss.since.is_some(), left > 0, "{loss:?}");
        let text = loss.to_string();
        assert!(text.contains(what) && text.contains("trefoil.db"), "{what}: {text}");
        assert_eq!(loss.kept.as_ref().map(|kept| fs::read(kept).unwrap()), torn, "{what}: the WAL as it was");
        if let Some(kept) = &loss.kept {
            assert!(kept.starts_with(fs::canonicalize(temp.path()).unwrap().parent().unwrap()), "{kept:?}");
            assert!(text.contains(kept.to_str().unwrap()), "{text}");
        }
        drop(store);
        let again = temp.open();
        assert_eq!(again.data_loss(), None, "{what}: it is reported once");
        assert_eq!(Store::past_data_losses(&temp.path()), [format!("{text}\n")], "{what}: and remembered");
    }
}

#[tokio::test]
async fn only_a_few_torn_wals_are_preserved() {
    let temp = Temp::new();
    for round in 0..7 {
        let store = temp.open();
        assert_eq!(store.data_loss().is_some(), round > 0);
        store.commit(toast_batch(round.to_string())).await.unwrap();
        // As after a kill: the WAL is not moved into the file.
        let dead = copy(&temp);
        drop(store);
        fs::write(wal_of(&dead), b"torn").unwrap();
        for suffix in ["db", "db-wal", "db.tip"] {
            fs::copy(dead.path().with_extension(suffix), temp.path().with_extension(suffix)).unwrap();
        }
    }
    let names: Vec<_> = files(temp.path().parent().unwrap());
    let kept = names.iter().filter(|name| name.to_str().unwrap().contains("torn-")).count();
    assert_eq!(kept, 8, "four, with their reports: {names:#?}");
}

#[tokio::test]
async fn a_database_that_replaces_another_has_lost_nothing() {
    let temp = Temp::new();
    let store = temp.open();
    store.commit(toast_batch("x")).await.unwrap();
    drop(store);
    fs::remove_file(temp.path()).unwrap();
    let store = temp.open();
    assert_eq!((store.data_loss(), store.stats().unwrap().events), (None, 0));
}
