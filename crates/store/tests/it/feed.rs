//! Watching: replay, live events, growing text, lag and resync.

use std::collections::HashMap;

use crate::common::*;
use api::*;
use futures::StreamExt;
use trefoil_store::*;

#[tokio::test]
async fn a_watcher_sees_commits_from_now_on_and_within_its_scope() {
    let temp = Temp::new();
    let store = temp.open();
    store.commit(toast_batch("before")).await.unwrap();
    let session = SessionId::new();
    let mut all = store.watch(WatchScope::All, None).unwrap();
    let mut here = store.watch(WatchScope::Directory("/repo".into()), None).unwrap();
    let mut one = store.watch(WatchScope::Session(session.clone()), None).unwrap();
    let mut elsewhere = Batch::new(&Location::new("/else", "other"));
    elsewhere.event(toast("elsewhere"));
    store.commit(elsewhere).await.unwrap();
    let mut idle = batch();
    idle.event(EventBody::SessionIdle { session_id: session.clone() });
    let committed = store.commit(idle).await.unwrap();

    assert_eq!(toast_text(&next_frame(&mut all).await).as_deref(), Some("elsewhere"));
    let frames = [next_frame(&mut all).await, next_frame(&mut here).await, next_frame(&mut one).await];
    for frame in &frames {
        assert_eq!(frame.cursor, committed.last);
        assert_eq!((&*frame.directory, &*frame.project), ("/repo", "project"));
        assert_eq!(frame.json().as_ptr(), frames[0].json().as_ptr(), "serialized once and shared");
    }
    let event: Event = serde_json::from_slice(frames[0].json()).unwrap();
    assert_eq!((event.id, event.body), (committed.last.unwrap().id, EventBody::SessionIdle { session_id: session }));
}

#[tokio::test]
async fn a_cursor_replays_what_came_after_it_then_follows() {
    let temp = Temp::new();
    let store = temp.open();
    let first = store.commit(toast_batch("0")).await.unwrap().last;
    for i in 1..1000 {
        store.commit(toast_batch(i.to_string())).await.unwrap();
    }
    drop(store);
    let store = temp.open();
    let mut watch = store.watch(WatchScope::All, first).unwrap();
    store.commit(toast_batch("1000")).await.unwrap();
    for i in 1..=1000 {
        let frame = next_frame(&mut watch).await;
        assert_eq!((toast_text(&frame), frame.cursor.unwrap().seq), (Some(i.to_string()), i + 1));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn attaching_at_any_moment_gives_no_gap_and_no_duplicate() {
    let temp = Temp::new();
    let store = temp.open();
    let start = store.commit(toast_batch("start")).await.unwrap().last.unwrap();
    const WRITERS: usize = 4;
    const EACH: usize = 300;
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            // Half of the writers use another store, which is followed like another process.
            let store = if writer % 2 == 0 { store.clone() } else { temp.open() };
            tokio::spawn(async move {
                for i in 0..EACH {
                    let mut batch = toast_batch(format!("{writer}:{i}"));
                    batch.event(toast(format!("{writer}:{i}b")));
                    store.commit(batch).await.unwrap();
                }
            })
        })
        .collect();
    let last = start.seq + (WRITERS * EACH * 2) as u64;
    let watchers: Vec<_> = (0..6)
        .map(|i| {
            let (store, start) = (store.clone(), start.clone());
            tokio::spawn(async move {
                let mut from = Some(start.clone());
                let mut seen = start.seq;
                // Watches in short runs, so that it attaches at many different moments.
                while seen < last {
                    let mut watch = store.watch(WatchScope::All, from.clone()).unwrap();
                    for _ in 0..(17 + 50 * i) {
                        if seen == last {
                            break;
                        }
                        let cursor = next_frame(&mut watch).await.cursor.unwrap();
                        assert_eq!(cursor.seq, seen + 1);
                        seen = cursor.seq;
                        from = Some(cursor);
                    }
                }
            })
        })
        .collect();
    for task in writers.into_iter().chain(watchers) {
        tokio::time::timeout(WAIT * 3, task).await.expect("writers and watchers end").unwrap();
    }
}

#[tokio::test]
async fn a_slow_watcher_is_cut_and_can_resume_from_its_cursor() {
    let temp = Temp::new();
    let store = temp.open();
    let mut slow = store.watch(WatchScope::All, None).unwrap();
    store.commit(toast_batch("seen")).await.unwrap();
    let last = next_frame(&mut slow).await.cursor;
    let mut big = batch();
    for i in 0..WATCH_QUEUE + 10 {
        big.event(toast(i.to_string()));
    }
    store.commit(big).await.unwrap();
    assert_eq!(store.unread_bytes(), 0, "nothing is queued for a cut watcher");
    assert!(matches!(next(&mut slow).await, WatchItem::Lagged));
    assert!(slow.next().await.is_none());
    let mut again = store.watch(WatchScope::All, last).unwrap();
    for i in 0..WATCH_QUEUE + 10 {
        assert_eq!(toast_text(&next_frame(&mut again).await), Some(i.to_string()));
    }
}

/// A store with this memory limit for its watchers.
fn bounded(temp: &Temp, watch_bytes: usize) -> Store {
    Store::open_with(&temp.path(), Options { watch_bytes, ..Options::default() }).unwrap()
}

#[tokio::test]
async fn memory_for_slow_watchers_is_bounded() {
    const MOST: usize = 200_000;
    let temp = Temp::new();
    let store = bounded(&temp, MOST);
    let mut stuck: Vec<_> = (0..50).map(|_| store.watch(WatchScope::All, None).unwrap()).collect();
    let mut reads = store.watch(WatchScope::All, None).unwrap();
    let text = "x".repeat(2000);
    let mut most = 0;
    for _ in 0..300 {
        store.commit(toast_batch(&text)).await.unwrap();
        most = most.max(store.unread_bytes());
        assert_eq!(
            toast_text(&next_frame(&mut reads).await).as_ref(),
            Some(&text),
            "an active watcher gets everything"
        );
    }
    assert!(most <= MOST && most > MOST / 2, "{most}");
    for slow in &mut stuck {
        assert!(matches!(next(slow).await, WatchItem::Lagged));
    }
    // New watchers wait for the same frames, which are stored once.
    stuck.extend((0..50).map(|_| store.watch(WatchScope::All, None).unwrap()));
    store.commit(toast_batch(&text)).await.unwrap();
    let one = store.unread_bytes();
    assert!(one > text.len() && one < 10 * text.len(), "{one}");
    drop((stuck, reads));
    assert_eq!(store.unread_bytes(), 0, "the watchers are gone");
}

#[tokio::test]
async fn the_watcher_furthest_behind_is_cut_first() {
    let temp = Temp::new();
    let store = bounded(&temp, 100_000);
    let text = "x".repeat(2000);
    let [mut slowest, mut slow] = [(); 2].map(|()| store.watch(WatchScope::All, None).unwrap());
    let weight = {
        store.commit(toast_batch(&text)).await.unwrap();
        next_frame(&mut slow).await;
        store.unread_bytes()
    };
    // As many as fit, and one more.
    for _ in 0..100_000 / weight {
        store.commit(toast_batch(&text)).await.unwrap();
    }
    assert!(matches!(next(&mut slowest).await, WatchItem::Lagged));
    assert_eq!(
        toast_text(&next_frame(&mut slow).await).as_ref(),
        Some(&text),
        "the other one is behind, but continues"
    );
}

#[tokio::test]
async fn a_frame_larger_than_the_limit_reaches_active_watchers() {
    let temp = Temp::new();
    let store = bounded(&temp, 1000);
    let mut reads = store.watch(WatchScope::All, None).unwrap();
    let text = "x".repeat(100_000);
    for _ in 0..3 {
        store.commit(toast_batch(&text)).await.unwrap();
        assert_eq!(toast_text(&next_frame(&mut reads).await).as_ref(), Some(&text));
    }
}

async fn resync(store: &Store, cursor: Cursor) -> String {
    let mut watch = store.watch(WatchScope::All, Some(cursor)).unwrap();
    let WatchItem::Resync(why) = next(&mut watch).await else { panic!("expected a resync") };
    let live = store.commit(toast_batch("live")).await.unwrap().last;
    assert_eq!(next_frame(&mut watch).await.cursor, live, "then it is live");
    why
}

#[tokio::test]
async fn a_cursor_of_another_log_means_resync() {
    let temp = Temp::new();
    let store = Store::open_with(&temp.path(), Options { keep_events: 100, ..Options::default() }).unwrap();
    let first = store.commit(toast_batch("first")).await.unwrap().last.unwrap();
    let other = Cursor { seq: first.seq, id: EventId::new() };
    assert!(resync(&store, other).await.contains("another log"));
    let future = Cursor { seq: u64::MAX, id: EventId::new() };
    assert!(resync(&store, future).await.contains("unknown"));
    for i in 0..1000 {
        store.commit(toast_batch(i.to_string())).await.unwrap();
    }
    let stats = store.stats().unwrap();
    assert!(stats.events >= 100 && stats.events < 100 + 256, "{stats:?}");
    assert_eq!(stats.last_seq, 1003, "pruning reuses no number");
    assert_eq!(stats.first_seq + stats.events, stats.last_seq + 1);
    assert!(resync(&store, first).await.contains("no longer"));
}

#[tokio::test]
async fn sequence_numbers_are_not_reused_after_everything_was_pruned_and_reopened() {
    let temp = Temp::new();
    let options = || Options { keep_events: 1, ..Options::default() };
    let store = Store::open_with(&temp.path(), options()).unwrap();
    let mut many = batch();
    (0..300).for_each(|i| many.event(toast(i.to_string())));
    store.commit(many).await.unwrap();
    assert_eq!(store.stats().unwrap().events, 1);
    drop(store);
    let store = Store::open_with(&temp.path(), options()).unwrap();
    assert_eq!(store.commit(toast_batch("x")).await.unwrap().last.unwrap().seq, 301);
}

/// Creates a session with a user message and an empty part that is about to grow.
async fn growing(store: &Store) -> (Message, Part) {
    let session = session("s", 1);
    let message = user(&session.id, 1);
    let part = text(&message, "", true);
    let mut batch = batch();
    batch.session(&session);
    batch.message(&message);
    batch.part(&part);
    batch.event(EventBody::part(part.clone()).unwrap());
    store.commit(batch).await.unwrap();
    (message, part)
}

fn delta(frame: &Frame) -> Option<String> {
    match &frame.event()?.body {
        EventBody::PartDelta { delta, field, .. } => {
            assert_eq!((field.as_str(), frame.cursor.as_ref()), ("text", None));
            Some(delta.clone())
        }
        _ => None,
    }
}

fn updated(frame: &Frame) -> Option<String> {
    match &frame.event()?.body {
        EventBody::PartUpdated { part, .. } => Some(part_text(part)),
        _ => None,
    }
}

#[tokio::test]
async fn attaching_to_growing_text_is_atomic() {
    let temp = Temp::new();
    let store = temp.open();
    let mut early = store.watch(WatchScope::All, None).unwrap();
    let (message, part) = growing(&store).await;
    let id = part.head().unwrap().id.clone();
    let opened = next_frame(&mut early).await;
    assert_eq!(updated(&opened).as_deref(), Some(""));
    store.send_delta(&location(), &with_text(&part, "Grüß", None), "Grüß");
    store.send_delta(&location(), &with_text(&part, "Grüß dich", None), " dich");
    let mut late = store.watch(WatchScope::All, None).unwrap();
    let mut replayed = store.watch(WatchScope::All, opened.cursor.clone()).unwrap();
    store.send_delta(&location(), &with_text(&part, "Grüß dich!", None), "!");

    for want in ["Grüß", " dich", "!"] {
        assert_eq!(delta(&next_frame(&mut early).await).as_deref(), Some(want));
    }
    for watch in [&mut late, &mut replayed] {
        let frame = next_frame(watch).await;
        assert_eq!((updated(&frame).as_deref(), frame.cursor), (Some("Grüß dich"), None));
        assert_eq!(delta(&next_frame(watch).await).as_deref(), Some("!"));
    }
    // A reader in this process never sees less than a watcher.
    assert_eq!(part_text(&store.part(&id).unwrap().unwrap()), "Grüß dich!");
    assert_eq!(part_text(&store.message(message.id()).unwrap().unwrap().parts[0]), "Grüß dich!");
    assert_eq!(
        part_text(&store.messages(message.session_id(), None, None).unwrap().messages[0].parts[0]),
        "Grüß dich!"
    );

    let events = store.stats().unwrap().events;
    let mut progress = batch();
    progress.progress(&with_text(&part, "Grüß dich!", None));
    assert_eq!(store.commit(progress).await.unwrap().last, None, "the log gets no event with the text");
    assert_eq!(store.stats().unwrap().events, events + 1);
    let done = with_text(&part, "Grüß dich", Some(9));
    let mut end = batch();
    end.part(&done);
    end.event(EventBody::part(done.clone()).unwrap());
    store.commit(end).await.unwrap();
    for watch in [&mut early, &mut late, &mut replayed] {
        assert_eq!(updated(&next_frame(watch).await).as_deref(), Some("Grüß dich"));
    }
    assert_eq!(store.part(&id).unwrap(), Some(done), "the ended row wins over the live text");
    let mut after = store.watch(WatchScope::All, None).unwrap();
    store.commit(toast_batch("next")).await.unwrap();
    assert_eq!(toast_text(&next_frame(&mut after).await).as_deref(), Some("next"), "an ended part is not sent again");
}

#[tokio::test]
async fn text_that_begins_in_a_batch_grows_in_it() {
    let temp = Temp::new();
    let store = temp.open();
    let mut watch = store.watch(WatchScope::All, None).unwrap();
    let message = user(&SessionId::new(), 1);
    let opened_part = text(&message, "", true);
    let mut combined = batch();
    combined.message(&message);
    combined.part(&opened_part);
    combined.event(EventBody::part(opened_part.clone()).unwrap());
    combined.delta(&with_text(&opened_part, "Grüß", None), "Grüß");
    combined.delta(&with_text(&opened_part, "Grüß dich", None), " dich");
    let mut whole = batch();
    let done = with_text(&opened_part, "Grüß dich", Some(9));
    whole.part(&done);
    whole.event(EventBody::part(done.clone()).unwrap());
    let mut open = batch();
    let second = text(&message, "", true);
    open.part(&second);
    open.event(EventBody::part(second.clone()).unwrap());
    open.delta(&with_text(&second, "so", None), "so");
    combined.append(whole);
    combined.append(open);
    let last = store.commit(combined).await.unwrap().last.unwrap();
    assert_eq!((last.seq, store.stats().unwrap().events), (3, 3), "deltas are not stored");

    assert_eq!(updated(&next_frame(&mut watch).await).as_deref(), Some(""));
    assert_eq!(delta(&next_frame(&mut watch).await).as_deref(), Some("Grüß"));
    assert_eq!(delta(&next_frame(&mut watch).await).as_deref(), Some(" dich"));
    assert_eq!(updated(&next_frame(&mut watch).await).as_deref(), Some("Grüß dich"));
    assert_eq!(updated(&next_frame(&mut watch).await).as_deref(), Some(""));
    assert_eq!(delta(&next_frame(&mut watch).await).as_deref(), Some("so"));
    assert_eq!(store.part(&done.head().unwrap().id).unwrap(), Some(done));
    // A watcher that attaches now gets the open part, and its text continues.
    let mut late = store.watch(WatchScope::All, None).unwrap();
    store.send_delta(&location(), &with_text(&second, "so what", None), " what");
    assert_eq!(updated(&next_frame(&mut late).await).as_deref(), Some("so"));
    for watch in [&mut watch, &mut late] {
        assert_eq!(delta(&next_frame(watch).await).as_deref(), Some(" what"));
    }
}

#[tokio::test]
async fn an_idle_session_has_no_growing_text() {
    let temp = Temp::new();
    let store = temp.open();
    let (message, part) = growing(&store).await;
    store.send_delta(&location(), &with_text(&part, "x", None), "x");
    let mut idle = batch();
    idle.event(EventBody::SessionStatus { session_id: message.session_id().clone(), status: SessionStatus::Idle });
    store.commit(idle).await.unwrap();
    let mut watch = store.watch(WatchScope::All, None).unwrap();
    store.commit(toast_batch("next")).await.unwrap();
    assert_eq!(toast_text(&next_frame(&mut watch).await).as_deref(), Some("next"));
}

#[tokio::test]
async fn growing_text_of_another_process_is_forgotten_when_it_is_gone() {
    for number in 0..3 {
        let temp = Temp::new();
        let (store, other) = (temp.open(), temp.open());
        let mut early = store.watch(WatchScope::All, None).unwrap();
        let (message, part) = growing(&other).await;
        assert_eq!(updated(&next_frame(&mut early).await).as_deref(), Some(""));
        let (session_id, message_id) = (message.session_id().clone(), message.id().clone());
        let part_id = part.head().unwrap().id.clone();
        let mut gone = batch();
        match number {
            0 => {
                gone.delete_message(&message_id);
                gone.event(EventBody::MessageRemoved { session_id, message_id });
            }
            1 => {
                gone.delete_part(&part_id);
                gone.event(EventBody::PartRemoved { session_id, message_id, part_id });
            }
            _ => gone.event(EventBody::SessionIdle { session_id }),
        }
        let last = other.commit(gone).await.unwrap().last;
        assert_eq!(next_frame(&mut early).await.cursor, last);
        let mut late = store.watch(WatchScope::All, None).unwrap();
        store.commit(toast_batch("next")).await.unwrap();
        assert_eq!(toast_text(&next_frame(&mut late).await).as_deref(), Some("next"), "{number}");
    }
}

/// Builds the text of each part from the frames, as a client does.
fn show(shown: &mut HashMap<PartId, String>, frame: &Frame) {
    match &frame.event().unwrap().body {
        EventBody::PartUpdated { part, .. } => {
            shown.insert(part.head().unwrap().id.clone(), part_text(part));
        }
        EventBody::PartDelta { part_id, delta, .. } => {
            shown.get_mut(part_id).expect("a delta comes after its part").push_str(delta);
        }
        _ => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_watchers_end_with_the_same_text_in_any_process() {
    const STEPS: usize = 20;
    let temp = Temp::new();
    let (store, other) = (temp.open(), temp.open());
    let (message, part) = growing(&store).await;
    let id = part.head().unwrap().id.clone();
    let lease = lease(&store, message.session_id()).await;
    let (step, steps) = tokio::sync::watch::channel(0);
    let watchers: Vec<_> = (0..STEPS)
        .map(|i| {
            let store = if i % 2 == 0 { store.clone() } else { other.clone() };
            let (id, mut steps) = (id.clone(), steps.clone());
            tokio::spawn(async move {
                steps.wait_for(|step| *step >= i).await.unwrap();
                let mut watch = store.watch(WatchScope::All, None).unwrap();
                let mut shown = HashMap::new();
                loop {
                    let frame = next_frame(&mut watch).await;
                    if toast_text(&frame).is_some() {
                        return shown.remove(&id).unwrap();
                    }
                    show(&mut shown, &frame);
                }
            })
        })
        .collect();
    let mut pace = other.watch(WatchScope::All, None).unwrap();
    let mut paced = HashMap::new();
    show(&mut paced, &next_frame(&mut pace).await);
    let mut text = String::new();
    for i in 0..STEPS {
        for j in 0..20 {
            let piece = format!("ä{i}.{j} ");
            text.push_str(&piece);
            store.send_delta(&location(), &with_text(&part, &text, None), &piece);
        }
        let mut progress = batch().fence(&lease);
        progress.progress(&with_text(&part, &text, None));
        store.commit(progress).await.unwrap();
        step.send(i).unwrap();
        // Now and then waits for the other store to catch up, so that it follows in chunks of different sizes.
        while i % 3 != 0 && paced[&id].len() < text.len() {
            show(&mut paced, &next_frame(&mut pace).await);
        }
    }
    // The last text reaches the other store only through the row, followed by a marker event: the closing event would
    // hide a wrong text.
    let mut end = batch().fence(&lease);
    end.progress(&with_text(&part, &text, None));
    store.commit(end).await.unwrap();
    while paced[&id].len() < text.len() {
        show(&mut paced, &next_frame(&mut pace).await);
    }
    store.commit(toast_batch("end")).await.unwrap();
    for watcher in watchers {
        let shown = tokio::time::timeout(WAIT, watcher).await.expect("the watcher sees the end").unwrap();
        assert_eq!(shown, text);
    }
}
