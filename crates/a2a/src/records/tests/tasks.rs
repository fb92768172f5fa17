//! Tasks from their first row to their deletion.

use super::*;
use crate::event::Lane;
use crate::model::{Artifact, ArtifactId};

#[tokio::test]
async fn a_message_begins_one_task() {
    let records = temporary().await;
    let row = insert(&records, new_task("me", "t1", "c")).await;
    assert_eq!(records.row("t1").unwrap(), Some(row));
    let mut again = new_task("me", "t2", "c");
    again.row.message_id = "m-t1".to_owned();
    again.row.fingerprint = "another".to_owned();
    let known = KnownMessage { task: "t1".to_owned(), fingerprint: "print".to_owned() };
    assert_eq!(records.insert(again.clone()).await.unwrap(), Inserted::Known(known.clone()));
    assert_eq!(records.row("t2").unwrap(), None, "nothing of it is stored");
    assert_eq!(records.message("me", "m-t1").unwrap(), Some(known));
    // The same id of somebody else is another message.
    again.row.identity = "you".to_owned();
    insert(&records, again).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_messages_that_come_at_the_same_time_one_begins_a_task() {
    let records = temporary().await;
    for round in 0..20 {
        let insert = |number: usize| {
            let mut task = new_task("me", &format!("t-{round}-{number}"), "c");
            task.row.message_id = format!("m-{round}");
            let records = records.clone();
            tokio::spawn(async move { records.insert(task).await.unwrap() })
        };
        let inserted = futures::future::join_all((0..4).map(insert)).await;
        let begun: Vec<TaskRow> = inserted
            .iter()
            .filter_map(|inserted| match inserted.as_ref().unwrap() {
                Inserted::New(row) => Some((**row).clone()),
                Inserted::Known(_) => None,
            })
            .collect();
        assert_eq!(begun.len(), 1);
        for inserted in inserted {
            if let Inserted::Known(known) = inserted.unwrap() {
                assert_eq!(known.task, begun[0].id);
            }
        }
    }
    assert_eq!(records.unfinished().len(), 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_end_wins() {
    let records = temporary().await;
    for round in 0..200 {
        let row = insert(&records, new_task("me", &format!("t{round}"), "c")).await;
        let race = |state| {
            let (records, mut row) = (records.clone(), row.clone());
            row.status = status(state, 2_000);
            let mut change = Change::of(&row.id);
            change.event(event(1, state)).end(row, TaskContent::default());
            tokio::spawn(async move { records.commit(change).await.unwrap() })
        };
        let (completed, canceled) = tokio::join!(race(TaskState::Completed), race(TaskState::Canceled));
        let (winner, loser) = match (completed.unwrap(), canceled.unwrap()) {
            (Committed::Won(Some(won)), Committed::Lost(Some(found)))
            | (Committed::Lost(Some(found)), Committed::Won(Some(won))) => (won, found),
            other => panic!("{other:?}"),
        };
        assert_eq!(winner, loser, "the loser gets the row of the winner");
        assert_eq!(records.row(&row.id).unwrap(), Some(*winner.clone()));
        let events = records.events(&row.id, 0, 10).await.unwrap();
        assert_eq!(events.iter().map(|event| event.event.state()).collect::<Vec<_>>(), [Some(winner.state())]);
    }
}

#[tokio::test]
async fn an_ended_task_never_changes() {
    let records = temporary().await;
    let mut row = insert(&records, new_task("me", "t", "c")).await;
    let ended = end(&records, row.clone(), TaskState::Completed, 5_000).await;
    row.status.state = TaskState::Working;
    row.version = ended.version;
    let mut late = Change::of("t");
    late.event(event(2, TaskState::Working)).row(row);
    assert_eq!(records.commit(late).await.unwrap(), Committed::Lost(Some(Box::new(ended.clone()))));
    let mut late = Change::of("t");
    late.event(event(2, TaskState::Working)).follow_up("me", "m2", "print");
    assert_eq!(records.commit(late).await.unwrap(), Committed::Lost(Some(Box::new(ended))));
    assert_eq!(records.events("t", 0, 10).await.unwrap().len(), 1);
    assert_eq!(records.message("me", "m2").unwrap(), None);
    assert_eq!(records.commit(Change::of("missing")).await.unwrap(), Committed::Lost(None));
}

#[tokio::test]
async fn a_stale_row_changes_nothing() {
    let records = temporary().await;
    let row = insert(&records, new_task("me", "t", "c")).await;
    let mut change = Change::of("t");
    change.event(event(1, TaskState::Working)).row(row.clone());
    let newer = won(records.commit(change).await.unwrap());
    let mut stale = Change::of("t");
    stale.event(event(2, TaskState::Working)).row(row);
    assert_eq!(records.commit(stale).await.unwrap(), Committed::Lost(Some(Box::new(newer))));
    let mut twice = Change::of("t");
    twice.event(event(1, TaskState::Working));
    assert!(matches!(records.commit(twice).await.unwrap(), Committed::Lost(Some(_))), "a number is written once");
    assert_eq!(records.events("t", 0, 10).await.unwrap().len(), 1);
}

#[tokio::test]
async fn everything_is_there_after_a_restart() {
    let database = Database::new();
    let records = database.open().await;
    let mut one = new_task("me", "b-one", "c");
    one.row.turn = None;
    let prompt = one.work.prompt.clone();
    let row = insert(&records, one).await;
    insert(&records, new_task("me", "a-two", "c")).await;
    let done = insert(&records, new_task("me", "done", "c")).await;
    let mut change = Change::of("b-one");
    change.row(row.clone()).follow_up("me", "more", "print-2");
    let history = vec![message("m-b-one"), message("more")];
    change.work(OpenWork { prompt: prompt.clone(), wanted_session: None, history, answering: None });
    let row = won(records.commit(change).await.unwrap());
    // Events alone, in chunks and more than a page.
    for first in (1..=3000).step_by(100) {
        let mut change = Change::of("b-one");
        for seq in first..first + 100 {
            change.event(event(seq, TaskState::Working));
        }
        assert_eq!(records.commit(change).await.unwrap(), Committed::Won(None));
    }
    records.mark_canceled("a-two").await.unwrap();
    records.mark_canceled("missing").await.unwrap();
    let artifact = Artifact {
        id: ArtifactId::Lane(Lane::Text),
        name: None,
        description: None,
        parts: vec![Part::text("answer")],
        extensions: Vec::new(),
        metadata: JsonMap::new(),
    };
    let content = TaskContent { history: vec![message("m-done")], artifacts: vec![artifact] };
    let mut ended = done.clone();
    ended.status = status(TaskState::Completed, 9_000);
    let mut change = Change::of("done");
    change.event(event(1, TaskState::Completed)).end(ended, content.clone());
    let ended = won(records.commit(change).await.unwrap());
    drop(records);

    let records = database.open().await;
    assert_eq!(records.unfinished(), ["b-one", "a-two"], "in the order of their acceptance");
    let found = records.load_unfinished("b-one").await.unwrap().unwrap();
    assert_eq!(found.row, TaskRow { last_seq: 3000, ..row });
    assert_eq!((found.work.prompt, found.work.history.len(), found.cancel_requested), (prompt, 2, false));
    assert!(records.load_unfinished("a-two").await.unwrap().unwrap().cancel_requested);
    assert_eq!(records.load_unfinished("done").await.unwrap(), None);
    assert_eq!(records.row("done").unwrap(), Some(ended));
    assert_eq!(records.content("done").await.unwrap(), content);
    assert_eq!(records.message("me", "more").unwrap().unwrap().task, "b-one");
    let numbers = |events: Vec<NumberedEvent>| events.iter().map(|event| event.seq).collect::<Vec<_>>();
    assert_eq!(numbers(records.events("b-one", 130, 5).await.unwrap()), [131, 132, 133, 134, 135]);
    assert_eq!(numbers(records.events("b-one", 0, 5000).await.unwrap()), (1..=3000).collect::<Vec<_>>());
    assert_eq!(numbers(records.events("b-one", 2999, 5).await.unwrap()), [3000]);
    assert_eq!(numbers(records.events("b-one", 3000, 5).await.unwrap()), [0; 0]);
    // Tasks that come now come after.
    insert(&records, new_task("me", "0-three", "c")).await;
    assert_eq!(records.unfinished(), ["b-one", "a-two", "0-three"]);
}

#[tokio::test]
async fn the_end_removes_the_mark_of_a_cancellation() {
    let records = temporary().await;
    let row = insert(&records, new_task("me", "t", "c")).await;
    records.mark_canceled("t").await.unwrap();
    assert!(records.is_cancel_requested("t"));
    end(&records, row, TaskState::Canceled, 2_000).await;
    assert_eq!(records.inner.store.record(keys::CANCELED, "t").unwrap(), None);
    records.mark_canceled("t").await.unwrap();
    assert_eq!(records.inner.store.record(keys::CANCELED, "t").unwrap(), None, "an ended task is not marked");
}

#[tokio::test]
async fn a_second_service_is_refused() {
    let database = Database::new();
    let records = database.open().await;
    let second = Records::open(Store::open(&database.path).unwrap(), &database.path).await;
    assert!(matches!(second, Err(OpenError::InUse { .. })));
    let copy = records.clone();
    drop(records);
    let second = Records::open(Store::open(&database.path).unwrap(), &database.path).await;
    assert!(matches!(second, Err(OpenError::InUse { .. })), "as long as anybody uses the rows");
    drop(copy);
    database.open().await;
}

#[tokio::test]
async fn a_temporary_database_is_deleted() {
    let parent = TemporaryDirectory::create(&std::env::temp_dir()).unwrap();
    let parent_path = parent.database().with_file_name("parent");
    std::fs::create_dir(&parent_path).unwrap();
    let entries = || std::fs::read_dir(&parent_path).unwrap().count();
    let records = Records::open_temporary(&parent_path).await.unwrap();
    let other = Records::open_temporary(&parent_path).await.unwrap();
    assert_eq!(entries(), 2, "one that is in use stays");
    drop((records, other));
    assert_eq!(entries(), 0);
    // What a killed process left behind: its lock is free.
    let left = parent_path.join("trefoil-a2a-0");
    std::fs::create_dir(&left).unwrap();
    std::fs::write(left.join("tasks.db.a2a.lock"), "").unwrap();
    drop(Records::open_temporary(&parent_path).await.unwrap());
    assert_eq!(entries(), 0);
}

#[tokio::test]
async fn what_is_old_goes_step_by_step() {
    const HOUR: Timestamp = 3_600_000;
    let records = temporary().await;
    let mut ended = Vec::new();
    for number in 0..4 {
        let row = insert(&records, new_task("me", &format!("t{number}"), "c")).await;
        ended.push(end(&records, row, TaskState::Completed, HOUR * (number + 1)).await);
    }
    let open = insert(&records, new_task("me", "open", "c")).await;
    let mut change = Change::of("open");
    change.event(event(1, TaskState::Working)).row(open);
    won(records.commit(change).await.unwrap());
    let all = async |now, max| while records.upkeep_to(now, max).await.unwrap() {};
    all(HOUR * 3 + 1, 10).await;
    let mut left = Vec::new();
    for task in ["t0", "t1", "t2", "t3", "open"] {
        left.push(records.events(task, 0, 10).await.unwrap().len());
    }
    assert_eq!(left, [0, 0, 1, 1, 1], "events stay for an hour after the end");
    all(HOUR * 4, 2).await;
    let rows: Vec<bool> = (0..4).map(|number| records.row(&format!("t{number}")).unwrap().is_some()).collect();
    assert_eq!(rows, [false, false, true, true], "the newest stay");
    assert_eq!(records.message("me", "m-t0").unwrap(), None);
    assert_eq!(records.inner.store.record(keys::MESSAGE, &keys::message("me", "m-t0")).unwrap(), None);
    let month = HOUR * 24 * 30;
    all(month + HOUR * 4, 2).await;
    assert_eq!(records.row("t2").unwrap(), None, "too old");
    assert!(records.row("t3").unwrap().is_some());
    all(month * 2, 2).await;
    for namespace in [keys::INDEX, keys::ENDED, keys::DELETED, keys::CONTENT] {
        assert_eq!(records.inner.store.records(namespace).unwrap(), [], "{namespace}");
    }
    assert!(records.row("open").unwrap().is_some(), "a task that has not ended stays");
    let again = insert(&records, new_task("me", "t0", "c")).await;
    end(&records, again, TaskState::Completed, month * 2).await;
    let page = records.list("me", &crate::ListRequest::default()).await.unwrap();
    assert_eq!((page.rows.len(), page.total), (2, 2));
}

#[test]
fn a_prompt_survives_its_row() {
    let json = serde_json::json!({
        "parts": [
            { "type": "text", "text": "hi", "synthetic": true },
            { "type": "file", "mime": "image/png", "url": "data:image/png;base64,AA==", "filename": "a.png" },
            { "type": "agent", "name": "explore" },
            { "type": "subtask", "prompt": "p", "description": "d", "agent": "a" },
        ],
        "model": { "providerID": "p", "modelID": "m" }, "agent": "build", "noReply": false,
        "tools": { "b": true, "a": false }, "system": "s", "variant": "high",
    });
    let input: PromptInput = serde_json::from_value(json).unwrap();
    let prompt = WorkPrompt { id: MessageId::new(), input, traceparent: None };
    let stored = to_json(&prompt).unwrap();
    assert_eq!(from_json::<WorkPrompt>("test", "prompt", stored).unwrap(), prompt);
}
