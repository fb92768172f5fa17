//! Contexts, sessions, interrupts and push configurations.

use std::time::Duration;

use super::*;
use crate::call::PushConfig;

const TTL: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_context_has_a_session_in_each_place() {
    let database = Database::new();
    let records = database.open().await;
    let row = insert(&records, new_task("me", "t", "c")).await;
    let other = SessionId::new();
    records.bind_context("me", "c", Some("/other"), &other).await.unwrap();
    drop(records);
    let records = database.open().await;
    assert_eq!(records.context_session("me", "c", None).unwrap(), row.session_id);
    assert_eq!(records.context_session("me", "c", Some("/other")).unwrap(), Some(other.clone()));
    assert_eq!(records.context_session("me", "c", Some("/third")).unwrap(), None);
    assert_eq!(records.context_session("you", "c", None).unwrap(), None);
    records.bind_context("me", "c", None, &other).await.unwrap();
    assert_eq!(records.context_session("me", "c", None).unwrap(), Some(other));
}

#[tokio::test]
async fn a_session_has_one_owner() {
    let records = temporary().await;
    let (owned, free) = (SessionId::new(), SessionId::new());
    records.own_session("me", &owned).await.unwrap();
    records.own_session("me", &owned).await.unwrap();
    let error = records.own_session("you", &owned).await.unwrap_err();
    assert_eq!((error.kind, &error.fields["session_id"]), (crate::ErrorKind::SessionForbidden, &owned.as_str().into()));
    assert_eq!(records.claim_session("me", &owned, TTL).await.unwrap(), Claim::Owned);
    assert_eq!(records.claim_session("you", &owned, TTL).await.unwrap(), Claim::Taken);

    assert_eq!(records.claim_session("me", &free, TTL).await.unwrap(), Claim::Pending);
    assert_eq!(records.claim_session("me", &free, TTL).await.unwrap(), Claim::Pending);
    assert_eq!(records.claim_session("you", &free, TTL).await.unwrap(), Claim::Taken);
    assert!(records.own_session("you", &free).await.is_err(), "it is reserved");
    records.release_session("you", &free).await.unwrap();
    assert_eq!(records.claim_session("you", &free, TTL).await.unwrap(), Claim::Taken);
    records.release_session("me", &free).await.unwrap();
    assert_eq!(records.claim_session("you", &free, Duration::ZERO).await.unwrap(), Claim::Pending);
    assert_eq!(records.claim_session("me", &free, TTL).await.unwrap(), Claim::Pending, "the other one is over");
    records.own_session("me", &free).await.unwrap();
    let owners = records.session_owners(vec![owned.clone(), SessionId::new(), free.clone()]).await.unwrap();
    assert_eq!(owners, [Some("me".to_owned()), None, Some("me".to_owned())]);
    records.forget_session(&free).await.unwrap();
    assert_eq!(records.session_owner(&free).unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_who_claim_a_session_one_gets_it() {
    let records = temporary().await;
    for _ in 0..50 {
        let session = SessionId::new();
        let race = |identity: &'static str| {
            let (records, session) = (records.clone(), session.clone());
            tokio::spawn(async move {
                match records.claim_session(identity, &session, TTL).await.unwrap() {
                    Claim::Pending => records.own_session(identity, &session).await.is_ok(),
                    Claim::Owned | Claim::Taken => false,
                }
            })
        };
        let (a, b) = tokio::join!(race("me"), race("you"));
        assert!(a.unwrap() != b.unwrap());
    }
}

fn interrupt(id: &str, task: &str, kind: InterruptKind, expires_at: Timestamp) -> Interrupt {
    Interrupt {
        request_id: id.to_owned(),
        session_id: SessionId::new(),
        kind,
        identity: "me".to_owned(),
        credential: None,
        task_id: task.to_owned(),
        context_id: "c".to_owned(),
        details: serde_json::json!({ "permission": "read" }),
        expires_at,
    }
}

#[tokio::test]
async fn interrupts_are_there_after_a_restart() {
    let database = Database::new();
    let records = database.open().await;
    let row = insert(&records, new_task("me", "t", "c")).await;
    let now = api::now();
    let open = interrupt("open", "t", InterruptKind::Permission, now + 60_000);
    let expired = interrupt("expired", "t", InterruptKind::Permission, now - 1_000);
    let forgotten = interrupt("forgotten", "t", InterruptKind::Permission, now - 100_000);
    let answered = interrupt("answered", "t", InterruptKind::Question, now + 60_000);
    let mut change = Change::of("t");
    change.event(event(1, TaskState::InputRequired)).row(row);
    for interrupt in [&open, &expired, &forgotten, &answered] {
        change.interrupt(interrupt.clone(), TTL);
    }
    won(records.commit(change).await.unwrap());
    assert_eq!(records.interrupts("me", InterruptKind::Question, now), [answered]);
    let mut change = Change::of("t");
    change.event(event(2, TaskState::Working)).resolve("answered");
    records.commit(change).await.unwrap();
    assert_eq!(records.interrupt("answered", now), None);
    drop(records);
    let records = database.open().await;
    assert_eq!(records.interrupt("open", now), Some(open.clone()));
    assert_eq!(records.interrupt("expired", now), Some(expired.clone()), "its answer is told that it comes too late");
    assert_eq!(records.interrupt("forgotten", now), None);
    assert_eq!(records.interrupt("answered", now), None);
    assert_eq!(records.interrupts("me", InterruptKind::Permission, now), std::slice::from_ref(&open));
    assert_eq!(records.interrupts("you", InterruptKind::Permission, now), []);
    assert_eq!(records.interrupts("me", InterruptKind::Question, now), []);
    assert_eq!(records.task_interrupts("t", now), [expired, open.clone()], "plain text answers both");
    assert_eq!(records.task_interrupts("t", now + 60_000), [open]);
    assert_eq!(records.task_interrupts("t", now + 1_000_000), []);
}

fn push(task: &str, id: &str) -> PushRow {
    let url = "https://example.org/hook".to_owned();
    let config = PushConfig { task_id: task.to_owned(), id: Some(id.to_owned()), url, ..PushConfig::default() };
    PushRow { config, line: Line::V10, identity: "me".to_owned() }
}

#[tokio::test]
async fn notifications_are_followed_from_the_next_event_to_the_end() {
    let database = Database::new();
    let records = database.open().await;
    let mut task = new_task("me", "t", "c");
    task.push = Some(push("t", "first"));
    let row = insert(&records, task).await;
    let mut change = Change::of("t");
    change.event(event(1, TaskState::Working)).row(row);
    let row = won(records.commit(change).await.unwrap());
    assert_eq!(records.put_push(push("t", "later")).await.unwrap(), PutPush::Stored);
    let sent = |records: &Records| {
        let deliveries = records.deliveries("t").unwrap();
        deliveries.into_iter().map(|delivery| (delivery.config, delivery.sent)).collect::<Vec<_>>()
    };
    assert_eq!(sent(&records), [("first".to_owned(), 0), ("later".to_owned(), 1)]);
    assert_eq!(records.woken_tasks().await, ["t"]);
    let mut delivery = records.delivery("t", "first").unwrap().unwrap();
    (delivery.sent, delivery.attempts) = (1, 3);
    assert!(records.set_delivery(&mut delivery).await.unwrap());
    assert!(records.set_delivery(&mut delivery.clone()).await.unwrap());
    assert!(!records.set_delivery(&mut delivery).await.unwrap(), "somebody else was faster");
    drop(records);

    let records = database.open().await;
    assert_eq!(records.woken_tasks().await, ["t"], "what was not sent is sent now");
    // A configuration that is replaced goes on where it was.
    records.put_push(push("t", "first")).await.unwrap();
    assert_eq!(sent(&records)[0].1, 1);
    assert!(records.delete_push("t", "later").await.unwrap());
    assert!(!records.delete_push("t", "later").await.unwrap());
    records.woken_tasks().await;
    end(&records, row, TaskState::Completed, 2_000).await;
    assert_eq!(records.woken_tasks().await, ["t"]);
    records.put_push(push("t", "too-late")).await.unwrap();
    assert_eq!(sent(&records).len(), 1, "nothing follows the end");
    records.end_delivery(&records.delivery("t", "first").unwrap().unwrap()).await.unwrap();
    assert_eq!(sent(&records), []);
    let ids = |rows: Vec<PushRow>| rows.into_iter().filter_map(|row| row.config.id).collect::<Vec<_>>();
    let (rows, has_more) = records.push_rows("t", None, 1).unwrap();
    assert_eq!((ids(rows), has_more), (vec!["first".to_owned()], true));
    let (rows, has_more) = records.push_rows("t", Some("first"), 10).unwrap();
    assert_eq!((ids(rows), has_more), (vec!["too-late".to_owned()], false));
}

#[tokio::test]
async fn a_task_has_a_bounded_number_of_configurations() {
    let records = temporary().await;
    insert(&records, new_task("me", "t", "c")).await;
    for number in 0..MAX_PUSH_CONFIGS {
        assert_eq!(records.put_push(push("t", &number.to_string())).await.unwrap(), PutPush::Stored);
    }
    assert_eq!(records.put_push(push("t", "another")).await.unwrap(), PutPush::TooMany);
    assert_eq!(records.put_push(push("t", "3")).await.unwrap(), PutPush::Stored, "one that is there can be replaced");
}
