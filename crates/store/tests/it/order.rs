//! Messages and parts are listed in the order they were stored, whatever their times and ids.

use crate::common::*;
use api::*;
use proptest::prelude::*;
use serde_json::json;
use trefoil_store::*;

/// The schema before messages had their own order.
const OLD: u32 = 4;

/// An id as made by a clock that shows `time`, in milliseconds.
fn id_at(time: i64, tail: &str) -> MessageId {
    MessageId::parse(&format!("msg_{:012x}{tail}", (time as u64 * 4096) & ((1 << 48) - 1))).unwrap()
}

fn user_message(session: &SessionId, id: MessageId, created: i64) -> Message {
    let Message::User(message) = user(session, created) else { panic!() };
    Message::User(UserMessage { id, ..message })
}

fn ids(messages: &[MessageWithParts]) -> Vec<MessageId> {
    messages.iter().map(|message| message.info.id().clone()).collect()
}

/// Asserts that every query lists the messages in this order.
fn assert_listed(store: &Store, session: &SessionId, wanted: &[MessageId]) {
    assert_eq!(ids(&store.messages(session, None, None).unwrap().messages), wanted);
    assert_eq!(store.message_ids(session, None).unwrap(), wanted);
    let (mut before, mut pages) = (None, Vec::new());
    loop {
        let page = store.messages(session, Some(2), before.as_ref()).unwrap();
        pages.splice(0..0, ids(&page.messages));
        before = page.older;
        if before.is_none() {
            break;
        }
    }
    assert_eq!(pages, wanted);
    for (place, id) in wanted.iter().enumerate() {
        assert_eq!(store.message_ids(session, Some(id)).unwrap(), wanted[place..]);
        let from = store.messages_from(session, id).unwrap().into_iter().map(|(message, _)| message);
        assert_eq!(ids(&from.collect::<Vec<_>>()), wanted[place..]);
    }
    let stamps = wanted.iter().filter_map(|id| IdStamp::of(id.as_str()));
    assert_eq!(store.newest_stamp(session).unwrap(), stamps.max().unwrap_or_default());
}

#[tokio::test]
async fn clocks_do_not_order_messages() {
    const NOW: i64 = 1_794_873_600_000;
    // The time of each message by the clock at that moment; ids have the same time, or are chosen by the client.
    let scenarios: [(&str, &[i64]); 6] = [
        ("as it should be", &[0, 1, 2, 3]),
        ("history of a clock that was ahead", &[300_000, 300_001, 300_002, 3, 4, 5]),
        ("a clock that goes back between prompts", &[50_000, 50_001, -10_000, -9_999, -60_000, -59_999]),
        ("a clock that goes back between steps", &[0, 10, 20, -5_000, -4_990, -4_980, 30]),
        ("all in one millisecond", &[7, 7, 7, 7, 7]),
        ("a clock that was never set", &[0, 1, -NOW, 1 - NOW, 2]),
    ];
    let temp = Temp::new();
    for own in [false, true] {
        for (name, times) in scenarios {
            let session = session(name, 1);
            let mut wanted = Vec::new();
            for (place, time) in times.iter().enumerate() {
                // A new store each time, so that it knows nothing of earlier writes.
                let store = temp.open();
                let tail =
                    if own { format!("~{}", times.len() - place) } else { format!("tail{}", times.len() - place) };
                let id = if own { MessageId::parse(&format!("msg{tail}")).unwrap() } else { id_at(NOW + time, &tail) };
                let message =
                    user_message(&session.id, MessageId::parse(&format!("{id}{}", session.id)).unwrap(), NOW + time);
                let mut batch = batch();
                batch.session(&session);
                batch.insert_message(&message);
                store.commit(batch).await.unwrap();
                wanted.push(message.id().clone());
                // Writing a message again does not move it.
                let mut again = crate::common::batch();
                again.message(&user_message(&session.id, wanted[place / 2].clone(), NOW + 999));
                store.commit(again).await.unwrap();
                assert_listed(&store, &session.id, &wanted);
            }
        }
    }
}

#[tokio::test]
async fn a_row_written_twice_in_a_batch_keeps_its_first_position() {
    let temp = Temp::new();
    let store = temp.open();
    let session = session("s", 1);
    let (one, two) = (user(&session.id, 2), user(&session.id, 1));
    let (first, second) = (text(&one, "", true), text(&one, "b", false));
    let gone = text(&one, "c", false);
    let mut batch = batch();
    batch.session(&session);
    batch.message(&one);
    batch.part(&first);
    batch.part(&gone);
    batch.part(&second);
    batch.message(&two);
    batch.part(&with_text(&first, "a", Some(2)));
    batch.message(&one);
    batch.delete_part(&gone.head().unwrap().id);
    batch.part(&gone);
    store.commit(batch).await.unwrap();
    let read = store.messages(&session.id, None, None).unwrap().messages;
    assert_eq!(ids(&read), [one.id().clone(), two.id().clone()]);
    assert_eq!(read[0].parts.iter().map(part_text).collect::<Vec<_>>(), ["a", "b", "c"], "deleted, and written again");
}

#[tokio::test]
async fn messages_know_the_turn_that_wrote_them() {
    let temp = Temp::new();
    let session = session("s", 1);
    let mut wanted = Vec::new();
    let mut first = None;
    // A turn interrupted by a restart continues as the same turn; outside of turns nobody knows.
    for (turn, begins, ends) in
        [(1, true, true), (2, true, false), (2, false, true), (0, false, false), (3, true, true)]
    {
        let store = temp.open();
        let lease = lease(&store, &session.id).await;
        let message = user(&session.id, 1);
        let number = Some(turn).filter(|turn| *turn > 0);
        let mut batch = Batch::new(&location().in_turn(number.filter(|_| !begins))).fence(&lease);
        batch.session(&session);
        if begins {
            batch.begin_turn(&session.id, None);
        }
        batch.message(&message);
        if ends {
            let (session, number) = (session.id.clone(), turn);
            batch.end_turn(TurnEnd { session, number, is_cancelled: false, answer: None, error: None });
        }
        batch.release(&lease);
        store.commit(batch).await.unwrap();
        wanted.push(turn);
        let first = first.get_or_insert(message.id().clone());
        let turns = store.messages_from(&session.id, first).unwrap().into_iter().map(|(_, turn)| turn);
        assert_eq!(turns.collect::<Vec<_>>(), wanted);
    }
}

#[tokio::test]
async fn children_asks_and_running_calls_are_listed_in_creation_order() {
    let temp = Temp::new();
    let root = session("root", 1);
    let (mut children, mut asks, mut calls) = (Vec::new(), Vec::new(), Vec::new());
    for (place, number) in [5, 3, 9, 1].into_iter().enumerate() {
        let store = temp.open();
        let id = SessionId::parse(&format!("ses_{number}")).unwrap();
        let child = Session { id, parent_id: Some(root.id.clone()), ..session(&place.to_string(), 1) };
        let message = user(&child.id, 1);
        let ask: PermissionRequest = serde_json::from_value(json!({
            "id": format!("per_{number}"), "sessionID": child.id, "permission": "edit", "patterns": [], "metadata": {},
            "always": [], "tool": {"messageID": message.id(), "callID": "call"},
        }))
        .unwrap();
        let call: Part = serde_json::from_value(json!({
            "type": "tool", "id": format!("prt_{number}"), "sessionID": child.id, "messageID": message.id(),
            "callID": "call", "tool": "bash", "state": {"status": "running", "input": {}, "time": {"start": 9 - place}},
        }))
        .unwrap();
        let mut batch = batch();
        batch.session(&root);
        batch.session(&child);
        batch.message(&message);
        batch.part(&call);
        batch.permission(&ask);
        store.commit(batch).await.unwrap();
        children.push(child.id);
        asks.push(ask.id);
        calls.push(call.as_tool().unwrap().head.id.clone());
    }
    let store = temp.open();
    let found = |sessions: Vec<Session>| sessions.into_iter().map(|session| session.id).collect::<Vec<_>>();
    assert_eq!(found(store.children(&root.id).unwrap()), children);
    assert_eq!(found(store.subtree(&root.id).unwrap())[1..], children);
    let tree = store.tree(&root.id).unwrap().unwrap();
    assert_eq!(tree.sessions[1..].iter().map(|branch| branch.id.clone()).collect::<Vec<_>>(), children);
    assert_eq!(tree.tools.iter().map(|tool| tool.head.id.clone()).collect::<Vec<_>>(), calls);
    let waiting = store.permissions(&AskFilter::default()).unwrap();
    assert_eq!(waiting.into_iter().map(|ask| ask.id).collect::<Vec<_>>(), asks);
}

#[tokio::test]
async fn an_older_database_keeps_its_order() {
    let temp = Temp::new();
    let session = session("s", 1);
    {
        let old = temp.create_old(OLD);
        // As the old version listed them: by time, then in the order they were stored.
        for (id, created) in [("msg_b", 5), ("msg_000000000009x", 3), ("msg_a", 5), ("msg_000000000002x", 4)] {
            let message = user_message(&session.id, MessageId::parse(id).unwrap(), created);
            let row = rusqlite::params![id, session.id.as_str(), created, serde_json::to_string(&message).unwrap()];
            old.execute("INSERT INTO message (id, session, created, json) VALUES (?1, ?2, ?3, ?4)", row).unwrap();
        }
        for (id, words) in [("prt_2", "two"), ("prt_1", "one")] {
            let mut part = text(&user_message(&session.id, MessageId::parse("msg_a").unwrap(), 5), words, false);
            part.head_mut().unwrap().id = PartId::parse(id).unwrap();
            let row = [id, session.id.as_str(), "msg_a", &serde_json::to_string(&part).unwrap()];
            old.execute("INSERT INTO part (id, session, message, open, json) VALUES (?1, ?2, ?3, 0, ?4)", row).unwrap();
        }
    }
    let store = temp.open();
    let mut wanted: Vec<MessageId> = ["msg_000000000009x", "msg_000000000002x", "msg_b", "msg_a"]
        .into_iter()
        .map(|id| MessageId::parse(id).unwrap())
        .collect();
    assert_listed(&store, &session.id, &wanted);
    let next = user_message(&session.id, MessageId::parse("msg_000000000001x").unwrap(), 1);
    let mut part = text(&user_message(&session.id, wanted[3].clone(), 5), "three", false);
    part.head_mut().unwrap().id = PartId::parse("prt_0").unwrap();
    let mut batch = batch();
    batch.message(&next);
    batch.part(&part);
    store.commit(batch).await.unwrap();
    wanted.push(next.id().clone());
    assert_listed(&store, &session.id, &wanted);
    let read = store.message(&wanted[3]).unwrap().unwrap();
    assert_eq!(read.parts.iter().map(part_text).collect::<Vec<_>>(), ["one", "two", "three"]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// Whatever clocks and clients do to times and ids, and however writes are split into batches and processes.
    #[test]
    fn messages_and_parts_keep_their_stored_order(
        made in prop::collection::vec(
            (-3..3i64, prop::option::of("[a-z]{1,3}"), 0..4usize, any::<bool>(), any::<bool>(), 0..8usize),
            1..20,
        ),
    ) {
        let temp = Temp::new();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let session = session("s", 1);
        let mut store = temp.open();
        let mut batch = batch();
        batch.session(&session);
        let mut wanted: Vec<(Message, Vec<Part>)> = Vec::new();
        for (number, (time, own, parts, commit, restart, again)) in made.into_iter().enumerate() {
            let time = 1_794_873_600_000 + time * 60_000;
            let id = own.map_or_else(|| id_at(time, &format!("n{number}")), |own| {
                MessageId::parse(&format!("msg_{own}{number}")).unwrap()
            });
            let message = user_message(&session.id, id, time);
            batch.message(&message);
            // Their ids sort backwards.
            let mut made: Vec<Part> = (0..parts).map(|part| text(&message, &part.to_string(), true)).collect();
            made.reverse();
            made.iter().for_each(|part| batch.part(part));
            wanted.push((message, made));
            let at = again % wanted.len();
            let (message, parts) = &mut wanted[at];
            batch.message(message);
            if let Some(part) = parts.first_mut() {
                *part = with_text(part, "again", Some(1));
                batch.part(part);
            }
            if commit {
                let full = std::mem::replace(&mut batch, crate::common::batch());
                runtime.block_on(store.commit(full)).unwrap();
            }
            if restart {
                drop(store);
                store = temp.open();
            }
        }
        runtime.block_on(store.commit(batch)).unwrap();
        let listed: Vec<MessageId> = wanted.iter().map(|(message, _)| message.id().clone()).collect();
        assert_listed(&store, &session.id, &listed);
        let read = store.messages(&session.id, None, None).unwrap().messages;
        for (read, (message, parts)) in read.into_iter().zip(wanted) {
            prop_assert_eq!((read.info, read.parts), (message, parts));
        }
    }
}
