//! Long sessions: read in pages, and written in several commits.

use crate::common::*;
use api::*;
use trefoil_store::*;

/// A session with this many messages, each with two parts of this many bytes.
async fn filled(store: &Store, messages: usize, bytes: usize) -> Session {
    let session = session("long", 1);
    let mut all = batch();
    all.session(&session);
    for number in 0..messages {
        // Some of them have the same time.
        put(&mut all, &session.id, number as i64 / 3, bytes);
    }
    store.commit(all).await.unwrap();
    session
}

fn put(batch: &mut Batch, session: &SessionId, created: i64, bytes: usize) -> Message {
    let message = user(session, created);
    batch.insert_message(&message);
    for letter in ["a", "b"] {
        batch.insert_part(&text(&message, &letter.repeat(bytes), false));
    }
    message
}

fn all_of(mut pages: MessagePages) -> (Vec<MessageWithParts>, Vec<usize>) {
    let (mut all, mut sizes) = (Vec::new(), Vec::new());
    while !pages.is_done() {
        let page = pages.next_page().unwrap();
        sizes.push(json_size(&page));
        all.extend(page);
    }
    assert!(pages.next_page().unwrap().is_empty());
    (all, sizes)
}

#[tokio::test]
async fn pages_match_a_full_read_and_stay_small() {
    let temp = Temp::new();
    let store = temp.open();
    let session = filled(&store, 150, 8 << 10).await;
    let whole = store.messages(&session.id, None, None).unwrap().messages;
    let (read, sizes) = all_of(store.message_pages(&session.id, None, None).unwrap());
    assert_eq!(read, whole);
    assert!(sizes.len() >= 4 && sizes.iter().all(|size| *size < 600 << 10), "{sizes:?}");
    for (limit, before) in [(1, None), (40, None), (40, Some(100)), (150, None), (151, None), (0, None)] {
        let before = before.map(|at: usize| whole[at].info.id());
        let page = store.messages(&session.id, Some(limit), before).unwrap();
        let pages = store.message_pages(&session.id, Some(limit), before).unwrap();
        assert_eq!(pages.has_older(), page.messages.len() < before.map_or(150, |_| 100), "{limit}");
        assert_eq!(all_of(pages).0, page.messages, "{limit}");
    }
    let unknown = MessageId::new();
    assert!(matches!(store.message_pages(&session.id, None, Some(&unknown)), Err(StoreError::NoMessage { .. })));
    assert!(all_of(store.message_pages(&SessionId::new(), None, None).unwrap()).0.is_empty());
}

#[tokio::test]
async fn a_list_is_the_same_however_it_is_read() {
    let temp = Temp::new();
    let store = temp.open();
    // What fits into a short read, and what takes several pages.
    for (messages, bytes) in [(7, 100), (300, 10), (150, 8 << 10)] {
        let session = filled(&store, messages, bytes).await;
        let whole = store.messages(&session.id, None, None).unwrap().messages;
        for before in [None, Some(whole[messages / 2].info.id()), Some(whole[0].info.id())] {
            for limit in [None, Some(0), Some(1), Some(messages / 2), Some(messages), Some(usize::MAX)] {
                let listed = store.list_messages(&session.id, limit, before).await.unwrap();
                assert_eq!(listed, store.messages(&session.id, limit, before).unwrap(), "{messages}: {limit:?}");
            }
        }
    }
    let unknown = store.list_messages(&SessionId::new(), None, Some(&MessageId::new())).await;
    assert!(matches!(unknown, Err(StoreError::NoMessage { .. })));
}

#[tokio::test]
async fn concurrent_changes_do_not_disturb_a_reader() {
    let temp = Temp::new();
    let store = temp.open();
    let session = filled(&store, 300, 10).await;
    let whole = store.messages(&session.id, None, None).unwrap().messages;
    let mut pages = store.message_pages(&session.id, None, None).unwrap();
    let first = pages.next_page().unwrap();
    let mut change = batch();
    put(&mut change, &session.id, i64::MAX - 1, 10);
    change.delete_message(first.last().unwrap().info.id());
    change.delete_message(whole[first.len()].info.id());
    store.commit(change).await.unwrap();
    let (rest, _) = all_of(pages);
    assert_eq!(rest, whole[first.len() + 1..], "without what is gone, and without what is new");
}

#[tokio::test]
async fn nobody_sees_a_draft_before_it_is_published() {
    let temp = Temp::new();
    let (store, other) = (temp.open(), temp.open());
    let mut events = store.watch(WatchScope::All, None).unwrap();
    let session = session("draft", 1);
    let mut draft = SessionDraft::new(&store, &location(), &session.id);
    for piece in 0..3 {
        let mut batch = draft.new_batch();
        put(&mut batch, &session.id, piece, 10);
        draft.add(batch).await.unwrap();
        for store in [&store, &other] {
            assert_eq!(store.session(&session.id).unwrap(), None);
            assert!(store.sessions(&SessionQuery::default()).unwrap().is_empty());
            assert!(store.abandoned_drafts().unwrap().is_empty(), "its process is alive");
            assert!(store.orphaned_sessions().unwrap().is_empty(), "so it is not swept away");
        }
    }
    let mut last = draft.final_batch(&session);
    put(&mut last, &session.id, 3, 10);
    draft.publish(last).await.unwrap();
    assert_eq!(store.messages(&session.id, None, None).unwrap().messages.len(), 4);
    assert_eq!(store.lease_holder(&session.id).unwrap(), None, "its lease is given back");
    let first = next_frame(&mut events).await;
    assert!(matches!(&first.event().unwrap().body, EventBody::SessionCreated { .. }), "{first:?}");
}

#[tokio::test]
async fn an_unpublished_draft_is_removed() {
    let temp = Temp::new();
    let store = temp.open();
    let ids = [SessionId::new(), SessionId::new()];
    let begin = async |store: &Store, id: &SessionId| {
        let mut draft = SessionDraft::new(store, &location(), id);
        let mut batch = draft.new_batch();
        put(&mut batch, id, 1, 10);
        draft.add(batch).await.unwrap();
        draft
    };
    let left = |id: &SessionId| store.messages(id, None, None).unwrap().messages.len();
    begin(&store, &ids[0]).await.discard().await;
    assert_eq!((left(&ids[0]), store.lease_holder(&ids[0]).unwrap()), (0, None), "it failed");
    let other = temp.open();
    let draft = begin(&other, &ids[1]).await;
    assert_eq!(left(&ids[1]), 1);
    assert!(store.abandoned_drafts().unwrap().is_empty());
    drop((draft, other));
    assert_eq!(store.abandoned_drafts().unwrap(), [ids[1].clone()], "its process is gone");
    store.discard_draft(&ids[1]).await.unwrap();
    assert_eq!((left(&ids[1]), store.abandoned_drafts().unwrap().len()), (0, 0));
}
