//! What counts as delivered, and how long it is waited for.

use std::sync::Arc;

use api::{MessageWithParts, Session};
use serde_json::json;
use tokio::sync::Notify;

use super::*;

/// An answer of a session, complete or not.
fn answer(session: &SessionId, id: &MessageId, completed: bool) -> Message {
    let time = if completed { json!({"created": 1, "completed": 2}) } else { json!({"created": 1}) };
    let info = json!({
        "id": id, "sessionID": session, "parentID": MessageId::new(), "role": "assistant", "mode": "build",
        "agent": "build", "path": {"cwd": "/", "root": "/"}, "cost": 0, "modelID": "m", "providerID": "p",
        "tokens": {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}, "time": time,
    });
    serde_json::from_value(info).unwrap()
}

fn stored(messages: Vec<Message>) -> Stored {
    let messages = messages.into_iter().map(|info| MessageWithParts { info, parts: Vec::new() }).collect();
    Stored { subagents: Vec::<Session>::new(), messages, is_whole: true, asks: Vec::new() }
}

#[test]
fn an_answer_is_delivered_once_the_next_item_is_asked_for() {
    let (session, id) = (SessionId::new(), MessageId::new());
    let mut delivery = Delivery::default();
    for (event, news) in [
        (EventBody::message(answer(&session, &id, false)), false),
        (EventBody::message(answer(&SessionId::new(), &MessageId::new(), true)), false),
        (EventBody::message(answer(&session, &id, true)), true),
    ] {
        delivery.hand_event(&session, &event);
        assert!(delivery.is_busy && !delivery.has(&id));
        assert_eq!(delivery.take(), news, "{event:?}");
    }
    assert!(!delivery.is_busy && delivery.has(&id));
    assert!(!delivery.take());
}

#[test]
fn stored_answers_count_and_old_ones_are_forgotten() {
    let session = SessionId::new();
    let ids: Vec<MessageId> = (0..MAX_ANSWERS + 1).map(|_| MessageId::new()).collect();
    let mut delivery = Delivery::default();
    let all = ids.iter().map(|id| answer(&session, id, true)).collect();
    delivery.hand_stored(Some(&stored(all)));
    assert!(delivery.take());
    assert!(!delivery.has(&ids[0]) && delivery.has(&ids[1]) && delivery.has(ids.last().unwrap()));
    assert_eq!((delivery.answers().len(), delivery.reads), (MAX_ANSWERS, 1));
    // One that failed is over, too.
    delivery.hand_stored(None);
    assert!(delivery.take());
    assert_eq!(delivery.reads, 2);
}

fn feed() -> (watch::Sender<Delivery>, FeedHandle) {
    let sender = watch::Sender::new(Delivery::default());
    let handle = FeedHandle { delivery: sender.subscribe(), read_again: Arc::new(Notify::new()) };
    (sender, handle)
}

/// A limit that passes while a test waits.
const SHORT: Duration = Duration::from_millis(1);

#[tokio::test]
async fn an_answer_without_events_is_read() {
    let (sender, handle) = feed();
    let id = MessageId::new();
    let reader = async {
        handle.read_again.notified().await;
        sender.send_modify(|delivery| delivery.hand_stored(None));
        sender.send_modify(|delivery| assert!(delivery.take()));
    };
    let waiting = async { tokio::join!(handle.delivered_within(&id, SHORT, testkit::WAIT), reader) };
    testkit::soon("the read", waiting).await;
}

#[tokio::test]
async fn the_time_of_a_slow_consumer_does_not_count() {
    let (sender, handle) = feed();
    let (session, id) = (SessionId::new(), MessageId::new());
    let event = EventBody::message(answer(&session, &id, true));
    sender.send_modify(|delivery| delivery.hand_event(&session, &event));
    let mut waiting = std::pin::pin!(handle.wait(SHORT, |delivery| delivery.has(&id)));
    assert!(tokio::time::timeout(SHORT * 20, &mut waiting).await.is_err());
    sender.send_modify(|delivery| assert!(delivery.take()));
    assert!(testkit::soon("the answer", waiting).await);
    // One that waits for events gets none.
    assert!(!handle.wait(SHORT, |delivery| delivery.has(&MessageId::new())).await);
}

#[tokio::test]
async fn the_end_of_a_feed_ends_the_wait() {
    let (sender, handle) = feed();
    drop(sender);
    assert!(handle.wait(testkit::WAIT, |_| false).await);
}
