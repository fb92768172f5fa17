//! How far back a read goes.

use api::UserMessage;
use serde_json::json;

use super::*;

fn message(id: &MessageId) -> MessageWithParts {
    let info: UserMessage = serde_json::from_value(json!({
        "id": id, "sessionID": "ses_a", "role": "user", "agent": "build", "time": {"created": 1},
        "model": {"providerID": "p", "modelID": "m"},
    }))
    .unwrap();
    MessageWithParts { info: api::Message::User(info), parts: Vec::new() }
}

/// The pages of a session, as a host serves them.
fn read_all(all: &[MessageId], reach: &Reach) -> (Vec<MessageId>, usize, bool) {
    let mut pages = Pages::default();
    let (mut next, mut count) = (Some(ListMessages { limit: Some(PAGE), before: None }), 0);
    while let Some(query) = next {
        count += 1;
        let end = query.before.map_or(all.len(), |before| all.iter().position(|id| *id == before).unwrap());
        let from = end.saturating_sub(query.limit.unwrap());
        let older = all[from..end].first().filter(|_| from > 0).cloned();
        next = pages.add(MessagePage { messages: all[from..end].iter().map(message).collect(), older }, reach);
    }
    let whole = pages.is_whole;
    let read = pages.into_messages(reach.since.as_ref());
    (read.iter().map(|message| message.info.id().clone()).collect(), count, whole)
}

fn ids(count: usize) -> Vec<MessageId> {
    (0..count).map(|_| MessageId::new()).collect()
}

#[test]
fn a_read_is_bounded_and_in_order() {
    for (count, pages) in [(0, 1), (1, 1), (PAGE, 1), (PAGE + 1, 2), (MAX_MESSAGES, 4), (MAX_MESSAGES + 1, 4)] {
        let all = ids(count);
        let (read, requests, whole) = read_all(&all, &Reach::default());
        assert_eq!(read, all[count.saturating_sub(MAX_MESSAGES)..], "{count}");
        assert_eq!((requests, whole), (pages, count <= MAX_MESSAGES), "{count}");
    }
}

#[test]
fn nothing_is_read_before_what_was_delivered() {
    let all = ids(180);
    let reach = Reach { delivered: HashSet::from([all[110].clone()]), since: None };
    let (read, requests, whole) = read_all(&all, &reach);
    assert_eq!((read, requests, whole), (all[80..].to_vec(), 2, false));
}

#[test]
fn nothing_is_shown_before_the_prompt() {
    let all = ids(180);
    let reach = Reach { since: Some(all[150].clone()), ..Reach::default() };
    assert_eq!(read_all(&all, &reach), (all[150..].to_vec(), 1, false));
    // A prompt that is not stored yet sorts after everything that is.
    let reach = Reach { since: Some(MessageId::new()), ..Reach::default() };
    assert_eq!(read_all(&all, &reach).0, []);
}
