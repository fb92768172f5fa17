//! Turns: which prompt belongs to which, and how they begin, end and are listed.

use api::*;
use rusqlite::Connection;
use serde_json::json;
use trefoil_store::*;

use crate::common::*;

/// Accepts a prompt that joins the turn that runs or is about to. Returns its turn.
async fn join(store: &Store, session: &SessionId) -> (MessageId, u64) {
    let message = user(session, 1);
    let mut batch = batch();
    batch.enqueue(session, message.id());
    batch.publish_new_message(message.clone());
    let turn = store.commit(batch).await.unwrap().turn.unwrap();
    assert_eq!(store.turn_of_message(message.id()).unwrap(), Some(turn));
    (message.id().clone(), turn)
}

/// Queues a prompt as a turn of its own.
async fn queue(store: &Store, session: &SessionId) -> (MessageId, u64) {
    let (key, rules) = (MessageId::new(), SharedText::new("rules".to_owned()));
    let mut batch = batch();
    batch.queue(session, &key, &json!({"parts": []}), &rules, Some("someone"));
    (key, store.commit(batch).await.unwrap().turn.unwrap())
}

async fn begin(store: &Store, session: &SessionId, number: Option<u64>) -> u64 {
    let mut batch = batch();
    batch.begin_turn(session, number);
    store.commit(batch).await.unwrap().turn.unwrap()
}

async fn end(store: &Store, session: &SessionId, number: u64, done: &[MessageId]) -> CommitOutcome {
    let mut batch = batch();
    done.iter().for_each(|message| batch.dequeue(message));
    batch.end_turn(TurnEnd { session: session.clone(), number, is_cancelled: false, answer: None, error: None });
    batch.event(EventBody::SessionStatus { session_id: session.clone(), status: SessionStatus::Idle });
    store.commit(batch).await.unwrap()
}

fn state(store: &Store, session: &SessionId, number: u64) -> TurnState {
    store.turn(&TurnId::new(session, number)).unwrap().unwrap().state
}

#[tokio::test]
async fn prompts_find_their_turn() {
    let temp = Temp::new();
    let store = temp.open();
    let session = SessionId::new();
    let (first, one) = join(&store, &session).await;
    let (_, queued) = queue(&store, &session).await;
    let (second, also_one) = join(&store, &session).await;
    assert_eq!((one, queued, also_one), (1, 2, 1));
    let current = |number, is_queued| Some(NextTurn { number, is_queued });
    assert_eq!(store.current_turn(&session).unwrap(), current(1, false));
    assert_eq!(begin(&store, &session, Some(1)).await, 1);
    // Both have left the inbox, and the turn still runs: what comes now joins it.
    let mut batch = batch();
    batch.dequeue(&first);
    batch.dequeue(&second);
    store.commit(batch).await.unwrap();
    let (third, joined) = join(&store, &session).await;
    assert_eq!(joined, 1);
    let refused = end(&store, &session, 1, &[]).await;
    assert!(refused.turn_continues && !refused.more_turns);
    assert_eq!((state(&store, &session, 1), store.statuses().unwrap().len()), (TurnState::Running, 0));
    let done = end(&store, &session, 1, std::slice::from_ref(&third)).await;
    assert!(!done.turn_continues && done.more_turns);
    let row = store.turn(&TurnId::new(&session, 1)).unwrap().unwrap();
    assert_eq!((row.state, row.prompts), (TurnState::Done, vec![first, second, third]));
    // What joins now comes before what is queued.
    assert_eq!(store.current_turn(&session).unwrap(), current(2, true));
    let (fourth, new) = join(&store, &session).await;
    assert_eq!((new, store.current_turn(&session).unwrap()), (3, current(3, false)));
    begin(&store, &session, Some(3)).await;
    assert!(end(&store, &session, 3, &[fourth]).await.more_turns);
    assert_eq!(store.current_turn(&session).unwrap(), current(2, true));
}

#[tokio::test]
async fn a_queued_prompt_becomes_a_message_or_is_cancelled() {
    let temp = Temp::new();
    let store = temp.open();
    let session = SessionId::new();
    let ((key, promoted), (gone, cancelled)) = (queue(&store, &session).await, queue(&store, &session).await);
    assert_eq!(store.inbox(&session).unwrap(), []);
    assert_eq!(store.unfinished_sessions().unwrap(), std::slice::from_ref(&session));
    let id = TurnId::new(&session, promoted);
    assert_eq!(store.queued_prompt(&id).unwrap(), Some((key.clone(), r#"{"parts":[]}"#.to_owned())));
    assert_eq!(store.queued_turn(&key).unwrap(), Some(id.clone()));
    assert_eq!(store.queued_turns(&session).unwrap(), [id.clone(), TurnId::new(&session, cancelled)]);
    let message = user(&session, 1);
    let mut batch = batch();
    batch.promote(&key, message.id());
    batch.publish_new_message(message.clone());
    let mut events = store.watch(WatchScope::Turn(id.clone()), None).unwrap();
    assert_eq!(store.commit(batch).await.unwrap().turn, Some(promoted));
    assert_eq!(next_frame(&mut events).await.turn_id(), Some(id.clone()));
    assert_eq!(store.queued_prompt(&id).unwrap(), None);
    let inbox = store.inbox(&session).unwrap();
    assert_eq!((&inbox[0].message_id, inbox[0].turn, inbox[0].data.is_some()), (message.id(), promoted, true));
    assert_eq!(store.turn(&id).unwrap().unwrap().caller.as_deref(), Some("someone"));
    let cancel = |turn: &TurnId| {
        let mut batch = crate::common::batch();
        batch.cancel_queued(turn);
        batch.turn_event(&turn.session, TurnState::Cancelled);
        store.commit(batch)
    };
    let begun = cancel(&id).await;
    assert_eq!(begun.unwrap_err(), StoreError::NotQueued { turn: id });
    let other = TurnId::new(&session, cancelled);
    let told = cancel(&other).await.unwrap();
    assert!(told.last.is_some());
    assert_eq!(state(&store, &session, cancelled), TurnState::Cancelled);
    assert_eq!(store.queued_turn(&gone).unwrap(), None);
    assert!(cancel(&other).await.is_err());
}

#[tokio::test]
async fn a_turn_that_takes_in_nothing_leaves_prompts_to_the_next() {
    let temp = Temp::new();
    let store = temp.open();
    let session = SessionId::new();
    let mut batch = batch();
    batch.begin_closed_turn(&session);
    assert_eq!(store.commit(batch).await.unwrap().turn, Some(1));
    assert_eq!(join(&store, &session).await.1, 2);
    assert!(end(&store, &session, 1, &[]).await.more_turns);
    // If its process dies instead, whoever takes the session over ends it.
    let session = SessionId::new();
    let dead = temp.open();
    lease(&dead, &session).await;
    let mut batch = crate::common::batch();
    batch.begin_closed_turn(&session);
    dead.commit(batch).await.unwrap();
    drop(dead);
    lease(&store, &session).await;
    assert_eq!(state(&store, &session, 1), TurnState::Failed);
}

#[tokio::test]
async fn a_turn_costs_what_is_used_while_it_runs() {
    let temp = Temp::new();
    let store = temp.open();
    let (root, child) = (session("root", 1), session("child", 1));
    let child = Session { parent_id: Some(root.id.clone()), ..child };
    let spend = |session: &SessionId, cost: f64| {
        let mut batch = batch();
        batch.usage(session, &Usage { cost: Usd(cost), ..Usage::default() });
        store.commit(batch)
    };
    let mut batch = batch();
    batch.session(&root);
    batch.session(&child);
    store.commit(batch).await.unwrap();
    spend(&root.id, 1.0).await.unwrap();
    let (prompt, number) = join(&store, &root.id).await;
    let cost = || store.turn(&TurnId::new(&root.id, number)).unwrap().unwrap().cost;
    assert_eq!(cost(), Usd(0.0));
    spend(&root.id, 2.0).await.unwrap();
    begin(&store, &root.id, Some(number)).await;
    spend(&root.id, 4.0).await.unwrap();
    spend(&child.id, 8.0).await.unwrap();
    assert_eq!(cost(), Usd(12.0), "with its subagents");
    end(&store, &root.id, number, &[prompt]).await;
    spend(&root.id, 16.0).await.unwrap();
    assert_eq!(cost(), Usd(12.0));
}

#[tokio::test]
async fn a_turn_that_stopped_right_after_its_beginning_still_has_its_prompt() {
    let temp = Temp::new();
    let store = temp.open();
    let session = SessionId::new();
    let (key, number) = queue(&store, &session).await;
    begin(&store, &session, Some(number)).await;
    assert_eq!(store.current_turn(&session).unwrap(), Some(NextTurn { number, is_queued: true }));
    let mut batch = batch();
    batch.suspend_turn(&session, number);
    store.commit(batch).await.unwrap();
    assert_eq!(store.current_turn(&session).unwrap(), Some(NextTurn { number, is_queued: true }));
    let mut promotion = self::batch();
    let message = user(&session, 1);
    promotion.promote(&key, message.id());
    promotion.publish_new_message(message);
    store.commit(promotion).await.unwrap();
    assert_eq!(store.current_turn(&session).unwrap(), Some(NextTurn { number, is_queued: false }));
}

#[tokio::test]
async fn the_queue_is_bounded() {
    let temp = Temp::new();
    let store = temp.open();
    let session = SessionId::new();
    for _ in 0..MAX_QUEUED_TURNS {
        queue(&store, &session).await;
    }
    let mut batch = batch();
    batch.queue(&session, &MessageId::new(), &json!({}), &SharedText::new(String::new()), None);
    assert!(matches!(store.commit(batch).await, Err(StoreError::Overloaded(_))));
    assert_eq!(store.queued_turns(&session).unwrap().len() as u64, MAX_QUEUED_TURNS);
}

#[tokio::test]
async fn the_current_turn_is_found_behind_any_number_of_queued_ones() {
    let temp = Temp::new();
    let store = temp.open();
    let session = SessionId::new();
    let current = |ended| {
        let query = ListTurns { current: true, ended, limit: Some(1), ..ListTurns::default() };
        let (turns, has_older) = store.turns(&session, &query).unwrap();
        assert!(!has_older);
        turns.first().map(|turn| turn.id.number)
    };
    assert_eq!(current(None), None);
    let (prompt, first) = join(&store, &session).await;
    assert_eq!(current(None), Some(first), "it comes next");
    begin(&store, &session, Some(first)).await;
    for _ in 0..150 {
        queue(&store, &session).await;
    }
    assert_eq!((current(None), current(Some(false)), current(Some(true))), (Some(first), Some(first), None));
    end(&store, &session, first, &[prompt]).await;
    assert_eq!(current(None), Some(first + 1), "the first of those that wait");
    // One that takes in no prompts, and that runs before them all the same.
    let mut batch = batch();
    batch.begin_closed_turn(&session);
    let closed = store.commit(batch).await.unwrap().turn.unwrap();
    queue(&store, &session).await;
    assert_eq!((closed, current(None)), (first + 151, Some(closed)));
}

#[tokio::test]
async fn turns_are_listed_from_the_newest() {
    let temp = Temp::new();
    let store = temp.open();
    let session = SessionId::new();
    for _ in 0..5 {
        let number = begin(&store, &session, None).await;
        end(&store, &session, number, &[]).await;
    }
    begin(&store, &session, None).await;
    let list = |query: &ListTurns| {
        let (turns, has_older) = store.turns(&session, query).unwrap();
        (turns.iter().map(|turn| turn.id.number).collect::<Vec<_>>(), has_older)
    };
    let page = |before: Option<u64>, limit, ended| {
        list(&ListTurns {
            before: before.map(|number| TurnId::new(&session, number)),
            limit,
            ended,
            ..ListTurns::default()
        })
    };
    assert_eq!(page(None, Some(4), None), (vec![6, 5, 4, 3], true));
    assert_eq!(page(Some(3), Some(4), None), (vec![2, 1], false));
    assert_eq!(page(None, None, Some(false)), (vec![6], false));
    assert_eq!(page(None, Some(2), Some(true)), (vec![5, 4], true));
    assert_eq!(page(None, Some(0), None).0.len(), 1, "a page has at least one");
    assert_eq!(list(&ListTurns { current: true, ..ListTurns::default() }), (vec![6], false));
    // A page comes from the key, whatever the number of turns.
    let raw = Connection::open(temp.path()).unwrap();
    let sql =
        "EXPLAIN QUERY PLAN SELECT number FROM turn WHERE session = 'a' AND number < 5 ORDER BY number DESC LIMIT 3";
    let plan: String = raw.query_row(sql, [], |row| row.get(3)).unwrap();
    assert!(plan.contains("USING PRIMARY KEY (session=? AND number<?)"), "{plan}");
}

#[tokio::test]
async fn what_an_older_version_left_is_kept() {
    let temp = Temp::new();
    // Before turns were rows.
    let old = temp.create_old(8);
    let sessions: Vec<Session> =
        ["done", "failed", "running", "waiting", "new"].map(|title| session(title, 1)).to_vec();
    let id = |at: usize| sessions[at].id.as_str();
    let put = |sql: &str, values: &[&dyn rusqlite::ToSql]| old.execute(sql, values).unwrap();
    for session in &sessions {
        let json = serde_json::to_string(session).unwrap();
        let sql = "INSERT INTO session (id, project, directory, updated, title, json) VALUES (?1, 'project', '/repo', 1, 't', ?2)";
        put(sql, &[&session.id.as_str(), &json]);
    }
    let error = serde_json::to_string(&MessageError::unknown("boom".to_owned())).unwrap();
    let turn = "INSERT INTO turn (session, started, ended, error, number) VALUES (?1, 5, ?2, ?3, ?4)";
    put(turn, &[&id(0), &Some(6), &None::<String>, &3]);
    put(turn, &[&id(1), &Some(6), &Some(error), &4]);
    put(turn, &[&id(2), &None::<i64>, &None::<String>, &7]);
    put(turn, &[&id(3), &Some(6), &None::<String>, &2]);
    let prompts: Vec<Message> = [2, 2, 3, 4].iter().map(|at: &usize| user(&sessions[*at].id, 1)).collect();
    for (position, prompt) in prompts.iter().enumerate() {
        let (message, session) = (prompt.id().as_str(), prompt.session_id().as_str());
        let json = serde_json::to_string(prompt).unwrap();
        put(
            "INSERT INTO message (id, session, position, stamp, turn, json) VALUES (?1, ?2, ?3, '', 1, ?4)",
            &[&message, &session, &(position as i64), &json],
        );
        put(
            "INSERT INTO inbox (message, session, attempts, accepted, position) VALUES (?1, ?2, 1, 9, ?3)",
            &[&message, &session, &(position as i64)],
        );
    }
    put("INSERT INTO status (session, json) VALUES (?1, '{\"type\":\"busy\"}')", &[&id(2)]);
    put("INSERT INTO record (namespace, key, version, json) VALUES ('rules', ?1, 1, '\"0123\"')", &[&id(0)]);
    put("INSERT INTO record (namespace, key, version, json) VALUES ('rules', ?1, 1, '{\"careful\":true}')", &[&id(1)]);
    drop(old);

    let store = temp.open();
    let row = |at: usize, number| store.turn(&TurnId::new(&sessions[at].id, number)).unwrap().unwrap();
    assert_eq!((row(0, 3).state, row(0, 3).ended), (TurnState::Done, Some(6)));
    assert_eq!(
        (row(1, 4).state, row(1, 4).error.unwrap().message().to_owned()),
        (TurnState::Failed, "boom".to_owned())
    );
    let ids =
        |range: std::ops::Range<usize>| prompts[range].iter().map(|prompt| prompt.id().clone()).collect::<Vec<_>>();
    for (at, number, waiting) in [(2, 8, ids(0..2)), (3, 3, ids(2..3)), (4, 1, ids(3..4))] {
        let session = &sessions[at].id;
        let row = row(at, number);
        assert_eq!((row.state, &row.prompts), (TurnState::Queued, &waiting));
        assert_eq!(store.current_turn(session).unwrap(), Some(NextTurn { number, is_queued: false }));
        let inbox = store.inbox(session).unwrap();
        assert!(inbox.iter().all(|row| row.turn == number && row.attempts == 1), "{inbox:?}");
        assert_eq!(store.turn_of_message(&waiting[0]).unwrap(), Some(number));
        assert_eq!(join(&store, session).await.1, number, "what comes now joins them");
    }
    assert_eq!(store.session_data(&sessions[0].id).unwrap().as_deref(), Some("0123"));
    assert_eq!(store.session_data(&sessions[1].id).unwrap().as_deref(), Some(r#"{"careful":true}"#));
    assert_eq!(store.session_data(&sessions[2].id).unwrap(), None);
    assert_eq!(store.records("rules").unwrap(), []);
}
