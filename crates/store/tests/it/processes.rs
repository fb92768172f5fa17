//! Several processes on one database. The children are this test binary, run as real processes that can be killed.

use std::time::{Duration, Instant};

use crate::common::*;
use api::*;
use trefoil_store::*;

fn the_session() -> SessionId {
    SessionId::parse("ses_shared").unwrap()
}

/// Child: acquires the lease and writes until it is killed; reports each commit acknowledged as durable.
#[tokio::test]
async fn child_writes_until_killed() {
    let Some(store) = as_child() else { return };
    let lease = lease(&store, &the_session()).await;
    for i in 0.. {
        let mut batch = toast_batch(i.to_string()).fence(&lease).durable();
        let message = user(&the_session(), i);
        batch.insert_message(&message);
        batch.enqueue(&the_session(), message.id());
        store.commit(batch).await.unwrap();
        tell_parent(&i.to_string());
    }
}

#[tokio::test]
async fn acknowledged_commits_survive_kill_9() {
    let temp = Temp::new();
    let mut child = child("child_writes_until_killed", &temp);
    let mut output = ChildOutput::of(&mut child);
    let mut acknowledged = 0;
    while acknowledged < 50 {
        acknowledged = output.next_word().parse().unwrap();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let store = temp.open();
    let stats = store.stats().unwrap();
    assert!(stats.last_seq > acknowledged as u64);
    assert_eq!(store.inbox(&the_session()).unwrap().len() as u64, stats.last_seq, "rows and events together");
    assert_eq!(store.unfinished_sessions().unwrap(), vec![the_session()]);
    Store::check(&temp.path()).unwrap();
}

/// Child: holds the lease of a busy session and reports the signals it gets.
#[tokio::test]
async fn child_holds_the_lease() {
    let Some(store) = as_child() else { return };
    let mut signals = store.take_signals().unwrap();
    let lease = lease(&store, &the_session()).await;
    let mut busy = batch().fence(&lease);
    busy.event(EventBody::SessionStatus { session_id: the_session(), status: SessionStatus::Busy });
    store.commit(busy).await.unwrap();
    tell_parent(&format!("{} {}", lease.epoch(), store.owner()));
    while let Ok(Some((session, signal))) = tokio::time::timeout(WAIT, signals.recv()).await {
        assert_eq!(session, the_session());
        tell_parent(&serde_json::to_string(&signal).unwrap());
    }
}

#[tokio::test]
async fn leases_are_taken_over_only_from_dead_processes_and_signals_reach_live_ones() {
    let temp = Temp::new();
    let store = temp.open();
    let mut child = child("child_holds_the_lease", &temp);
    let mut output = ChildOutput::of(&mut child);
    let hello = output.next_word();
    let (epoch, owner) = hello.split_once(' ').unwrap();
    assert_eq!(store.acquire(&the_session()).await.unwrap(), AcquireOutcome::HeldElsewhere { owner: owner.into() });
    let holder = store.lease_holder(&the_session()).unwrap().unwrap();
    let epoch: u64 = epoch.parse().unwrap();
    assert_eq!(holder, LeaseHolder { owner: owner.into(), epoch, alive: true, own: false });
    assert_eq!(holder.pid(), i32::try_from(child.id()).ok());
    assert_eq!(store.statuses().unwrap(), vec![(the_session(), SessionStatus::Busy)]);
    assert!(store.unfinished_sessions().unwrap().is_empty());
    let sent = [
        Signal::Abort { epoch },
        Signal::Wake,
        Signal::Reply { ask: "per_1".into() },
        Signal::Steer { message: MessageId::new() },
    ];
    for signal in &sent {
        assert!(store.signal(&the_session(), signal.clone()).await.unwrap());
    }
    for signal in &sent {
        assert_eq!(&serde_json::from_str::<Signal>(&output.next_word()).unwrap(), signal);
    }

    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!store.lease_holder(&the_session()).unwrap().unwrap().alive);
    assert!(store.statuses().unwrap().is_empty(), "a dead process does not make a session busy");
    assert_eq!(store.unfinished_sessions().unwrap(), vec![the_session()]);
    assert!(!store.signal(&the_session(), Signal::Abort { epoch }).await.unwrap());
    let AcquireOutcome::Acquired { lease, took_over, .. } = store.acquire(&the_session()).await.unwrap() else {
        panic!()
    };
    assert!(took_over && lease.epoch() > epoch);
    store.commit(batch().fence(&lease)).await.unwrap();
}

#[tokio::test]
async fn duplicate_signals_to_a_stopped_process_are_stored_once() {
    let temp = Temp::new();
    let store = temp.open();
    let mut child = child("child_holds_the_lease", &temp);
    let mut output = ChildOutput::of(&mut child);
    output.next_word();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    // More than can be stored for one process.
    for _ in 0..2000 {
        assert!(store.signal(&the_session(), Signal::Wake).await.unwrap());
    }
    assert!(store.signal(&the_session(), Signal::Abort { epoch: 7 }).await.unwrap());
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    // One may have been taken before the process was stopped.
    let mut word = output.next_word();
    while word == r#"{"type":"wake"}"# {
        word = output.next_word();
    }
    assert_eq!(serde_json::from_str::<Signal>(&word).unwrap(), Signal::Abort { epoch: 7 });
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Child: streams text into a part, as an engine does.
#[tokio::test]
async fn child_streams() {
    let Some(store) = as_child() else { return };
    let mut session = session("s", 1);
    session.id = the_session();
    let lease = lease(&store, &session.id).await;
    let message = user(&session.id, 1);
    let part = text(&message, "", true);
    let mut first = batch().fence(&lease);
    first.session(&session);
    first.message(&message);
    first.part(&part);
    first.event(EventBody::part(part.clone()).unwrap());
    store.commit(first).await.unwrap();
    for text in ["Hel", "Hello, wörld"] {
        let mut progress = batch().fence(&lease);
        progress.progress(&with_text(&part, text, None));
        store.commit(progress).await.unwrap();
        tell_parent("progress");
        std::io::stdin().read_line(&mut String::new()).unwrap();
    }
    let done = with_text(&part, "Hello, wörld.", Some(2));
    let mut last = batch().fence(&lease);
    last.part(&done);
    last.event(EventBody::part(done).unwrap());
    last.release(&lease);
    store.commit(last).await.unwrap();
    wait_for_parent();
}

#[tokio::test]
async fn text_of_another_process_arrives_as_deltas() {
    use std::io::Write;
    let temp = Temp::new();
    let store = temp.open();
    let mut early = store.watch(WatchScope::All, None).unwrap();
    let mut child = child("child_streams", &temp);
    let mut output = ChildOutput::of(&mut child);
    let mut input = child.stdin.take().unwrap();
    let mut go = || input.write_all(b"\n").unwrap();
    let body = |frame: Frame| frame.event().unwrap().body.clone();

    assert_eq!(output.next_word(), "progress");
    let opened = next_frame(&mut early).await;
    assert_eq!(opened.cursor.as_ref().unwrap().seq, 1);
    assert!(matches!(body(opened), EventBody::PartUpdated { part, .. } if part_text(&part).is_empty()));
    let frame = next_frame(&mut early).await;
    assert_eq!(frame.cursor, None);
    assert!(matches!(body(frame), EventBody::PartDelta { delta, .. } if delta == "Hel"));
    let mut late = store.watch(WatchScope::All, None).unwrap();
    let fresh = temp.open();
    let mut other = fresh.watch(WatchScope::All, None).unwrap();
    for watch in [&mut late, &mut other] {
        let frame = next_frame(watch).await;
        assert!(matches!(body(frame), EventBody::PartUpdated { part, .. } if part_text(&part) == "Hel"));
    }

    go();
    assert_eq!(output.next_word(), "progress");
    for watch in [&mut early, &mut late, &mut other] {
        let frame = next_frame(watch).await;
        assert!(matches!(body(frame), EventBody::PartDelta { delta, .. } if delta == "lo, wörld"));
    }
    go();
    for watch in [&mut early, &mut late, &mut other] {
        let frame = next_frame(watch).await;
        assert!(frame.cursor.is_some());
        assert!(matches!(body(frame), EventBody::PartUpdated { part, .. } if part_text(&part) == "Hello, wörld."));
    }
    drop(input);
    output.wait_for_end();
    child.wait().unwrap();
}

#[tokio::test]
async fn commits_of_other_processes_are_seen_soon_and_in_order() {
    let temp = Temp::new();
    let (here, there) = (temp.open(), temp.open());
    let mut watch = here.watch(WatchScope::All, None).unwrap();
    let mut times = Vec::new();
    for i in 0..20 {
        let began = Instant::now();
        there.commit(toast_batch(format!("there {i}"))).await.unwrap();
        if i % 2 == 0 {
            // This process's commit must not overtake the other's.
            here.commit(toast_batch(format!("here {i}"))).await.unwrap();
        }
        assert_eq!(toast_text(&next_frame(&mut watch).await), Some(format!("there {i}")));
        times.push(began.elapsed());
        if i % 2 == 0 {
            assert_eq!(toast_text(&next_frame(&mut watch).await), Some(format!("here {i}")));
        }
    }
    // The limit is 50 ms. A loaded machine exceeds it now and then, but not half of the time.
    times.sort();
    assert!(times[10] < Duration::from_secs(1) && times[19] < Duration::from_secs(20), "{times:?}");
}

/// Child: hits a file size limit in the middle of a commit, then has the limit lifted.
#[tokio::test]
async fn child_cannot_write_for_a_while() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Some(store) = as_child() else { return };
    store.commit(toast_batch("before")).await.unwrap();
    let limit = |current| setrlimit(Resource::Fsize, Rlimit { current, ..getrlimit(Resource::Fsize) }).unwrap();
    // The WAL already has some pages, so this ends in the middle of one.
    limit(Some(30_000));
    for (number, durable) in [false, true].into_iter().enumerate() {
        let mut batch = toast_batch("x".repeat(100_000));
        batch.session(&session("s", 1));
        let batch = std::sync::Arc::new(if durable { batch.durable() } else { batch });
        let error = store.commit(batch.clone()).await.unwrap_err();
        assert!(matches!(error, StoreError::Database { kind: DatabaseErrorKind::Io, .. }), "{error}");
        assert!(error.is_transient(), "{error}");
        assert_eq!(store.stats().unwrap().sessions as usize, number, "nothing of it was written");
        limit(None);
        store.commit(batch).await.unwrap();
        let stats = store.stats().unwrap();
        assert_eq!((stats.sessions as usize, stats.events as usize), (number + 1, number + 2), "it was written once");
        limit(Some(30_000));
    }
    tell_parent("done");
}

#[test]
fn an_interrupted_commit_leaves_the_store_usable() {
    let temp = Temp::new();
    let mut child = child("child_cannot_write_for_a_while", &temp);
    assert_eq!(ChildOutput::of(&mut child).next_word(), "done");
    child.wait().unwrap();
    Store::check(&temp.path()).unwrap();
}
