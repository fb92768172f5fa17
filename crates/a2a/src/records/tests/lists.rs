//! Lists, compared with what a plain search through all tasks finds.

use proptest::prelude::*;

use super::*;
use crate::call::ListRequest;
use crate::records::list::READ;

/// All tasks that a request finds, page by page, and the total that every page tells.
async fn pages(records: &Records, identity: &str, request: &ListRequest) -> (Vec<TaskRow>, u64) {
    let mut request = request.clone();
    let (mut rows, mut totals) = (Vec::new(), Vec::new());
    loop {
        let page = records.list(identity, &request).await.unwrap();
        assert!(page.rows.len() <= page.page_size as usize);
        assert!(page.next.is_empty() || page.rows.len() == page.page_size as usize, "a page before the last is full");
        rows.extend(page.rows);
        totals.push(page.total);
        if page.next.is_empty() {
            assert!(totals.iter().all(|total| *total == totals[0]));
            return (rows, totals[0]);
        }
        request.page_token = Some(page.next);
    }
}

#[derive(Debug, Clone)]
enum Step {
    Insert { owner: usize, context: usize },
    Change { task: usize, state: usize, time: Timestamp },
    End { task: usize, state: usize, time: Timestamp },
    Keep(u64),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let (task, time) = (0..64usize, 0..40i64);
    prop_oneof![
        5 => (0..2usize, 0..3usize).prop_map(|(owner, context)| Step::Insert { owner, context }),
        3 => (task.clone(), 0..4usize, time.clone()).prop_map(|(task, state, time)| Step::Change { task, state, time }),
        5 => (task, 0..4usize, time).prop_map(|(task, state, time)| Step::End { task, state, time }),
        1 => (0..12u64).prop_map(Step::Keep),
        1 => Just(Step::Restart),
    ]
}

const OWNERS: [&str; 2] = ["me", "me2"];
const CONTEXTS: [&str; 3] = ["c", "c/c", ""];

fn query() -> impl Strategy<Value = (usize, ListRequest)> {
    let state = proptest::option::of(0..8usize);
    let parts = (0..2usize, proptest::option::of(0..3usize), state, proptest::option::of(-1..45i64), 1..8u32);
    parts.prop_map(|(owner, context, state, changed_since, size)| {
        let request = ListRequest {
            context_id: context.map(|context| CONTEXTS[context].to_owned()),
            state: state.map(|state| TaskState::ALL[state]),
            changed_since,
            page_size: Some(size),
            ..ListRequest::default()
        };
        (owner, request)
    })
}

/// Tasks as a plain list.
#[derive(Default)]
struct Model {
    open: Vec<TaskRow>,
    /// The oldest first.
    ended: Vec<TaskRow>,
}

impl Model {
    async fn apply(&mut self, records: &Records, number: usize, step: Step) {
        match step {
            Step::Insert { owner, context } => {
                let mut task = new_task(OWNERS[owner], &format!("t{number}"), CONTEXTS[context]);
                task.row.status.timestamp = 20;
                self.open.push(insert(records, task).await);
            }
            Step::Change { task, state, time } if !self.open.is_empty() => {
                let task = task % self.open.len();
                let mut row = self.open[task].clone();
                row.status = status(TaskState::ALL[state], time);
                let mut change = Change::of(&row.id);
                change.event(event(row.last_seq + 1, row.state())).row(row);
                self.open[task] = won(records.commit(change).await.unwrap());
            }
            Step::End { task, state, time } if !self.open.is_empty() => {
                let row = self.open.remove(task % self.open.len());
                self.ended.push(end(records, row, TaskState::ALL[4 + state], time).await);
            }
            Step::Keep(max) => {
                while records.upkeep_to(0, max).await.unwrap() {}
                let excess = self.ended.len().saturating_sub(max as usize);
                self.ended.drain(..excess);
            }
            Step::Change { .. } | Step::End { .. } | Step::Restart => {}
        }
    }

    fn find(&self, identity: &str, request: &ListRequest) -> Vec<TaskRow> {
        let found = self.open.iter().chain(&self.ended).filter(|row| {
            row.identity == identity
                && request.context_id.as_ref().is_none_or(|context| *context == row.context_id)
                && request.state.is_none_or(|state| state == row.state())
                && request.changed_since.is_none_or(|since| row.status.timestamp >= since)
        });
        found.cloned().collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn pages_have_what_a_search_finds(
        steps in proptest::collection::vec(step(), 1..60),
        queries in proptest::collection::vec(query(), 1..20),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let database = Database::new();
            let (mut records, mut model) = (database.open().await, Model::default());
            for (number, step) in steps.into_iter().enumerate() {
                if matches!(step, Step::Restart) {
                    drop(records);
                    records = database.open().await;
                }
                model.apply(&records, number, step).await;
            }
            for (owner, request) in queries {
                let (found, total) = pages(&records, OWNERS[owner], &request).await;
                let times: Vec<_> = found.iter().map(|row| row.status.timestamp).collect();
                prop_assert!(times.is_sorted_by(|a, b| a >= b), "{times:?}");
                let mut expected = model.find(OWNERS[owner], &request);
                prop_assert_eq!(total, expected.len() as u64);
                let mut found = found;
                for rows in [&mut found, &mut expected] {
                    rows.sort_by(|a, b| a.id.cmp(&b.id));
                }
                prop_assert_eq!(found, expected);
            }
            Ok(())
        })?;
    }
}

#[tokio::test]
async fn tasks_that_do_not_change_are_found_once_while_others_do() {
    let records = temporary().await;
    let mut rows = Vec::new();
    for number in 0..30 {
        rows.push(insert(&records, new_task("me", &format!("t{number:02}"), "c")).await);
    }
    for row in &rows[..20] {
        end(&records, row.clone(), TaskState::Completed, 2_000).await;
    }
    let mut request = ListRequest { page_size: Some(4), ..ListRequest::default() };
    let mut found = Vec::new();
    for round in 0.. {
        let page = records.list("me", &request).await.unwrap();
        found.extend(page.rows.into_iter().map(|row| row.id));
        if page.next.is_empty() {
            break;
        }
        request.page_token = Some(page.next);
        // One that was not reached yet ends, and a new one begins.
        if let Some(row) = rows.get(29 - round).filter(|_| round < 5) {
            end(&records, row.clone(), TaskState::Failed, 3_000).await;
            insert(&records, new_task("me", &format!("new{round}"), "c")).await;
        }
    }
    let mut once = found.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), found.len(), "none twice: {found:?}");
    for row in &rows[..25] {
        assert!(found.contains(&row.id), "{} was listed", row.id);
    }
}

#[tokio::test]
async fn a_bad_cursor_is_an_error() {
    let records = temporary().await;
    for token in ["x", "!!", "MTIz", &"A".repeat(5000)] {
        let request = ListRequest { page_token: Some(token.to_owned()), ..ListRequest::default() };
        let error = records.list("me", &request).await.unwrap_err();
        assert_eq!((error.kind, &error.fields["field"]), (crate::ErrorKind::InvalidParams, &"pageToken".into()));
    }
}

/// Ended tasks of four states and ten contexts, written at once.
async fn fill(records: &Records, tasks: u64) {
    let mut batch = records.batch(false);
    let mut numbers = std::collections::HashMap::<String, u64>::new();
    for number in 1..=tasks {
        let state = TaskState::ALL[4 + (number % 4) as usize];
        let task = new_task("me", &format!("t{number}"), &format!("c{}", number % 10));
        let stamp = keys::Stamp::of(1_000 + number as Timestamp);
        let row = TaskRow { status: status(state, stamp.time()), ..task.row };
        batch.record(keys::TASK, &row.id, Some(&to_json(&row).unwrap()), None);
        for lane in write::lanes("me", &row.context_id, state) {
            let number = numbers.entry(lane.name().to_owned()).or_default();
            *number += 1;
            batch.record(keys::INDEX, &lane.key(stamp, &row.id), Some(&(*number).into()), None);
        }
    }
    records.inner.store.commit(batch).await.unwrap();
}

#[tokio::test]
async fn a_page_costs_the_same_with_more_tasks() {
    let mut costs = Vec::new();
    for tasks in [1_000, 20_000] {
        let records = temporary().await;
        fill(&records, tasks).await;
        let mut cost = Vec::new();
        for (context, state) in [(None, None), (Some("c4"), None), (None, Some(4)), (Some("c4"), Some(4))] {
            let mut request = ListRequest {
                context_id: context.map(str::to_owned),
                state: state.map(|state| TaskState::ALL[state]),
                page_size: Some(10),
                ..ListRequest::default()
            };
            let read_before = READ.get();
            let page = records.list("me", &request).await.unwrap();
            let is_found = |number: u64| {
                context.is_none_or(|context| context == format!("c{}", number % 10))
                    && state.is_none_or(|state| state == 4 + (number % 4) as usize)
            };
            let count = |first: u64| (first..=tasks).filter(|number| is_found(*number)).count() as u64;
            assert_eq!((page.rows.len(), page.total), (10, count(1)));
            request.page_token = Some(page.next);
            request.changed_since = Some(1_500);
            assert_eq!(records.list("me", &request).await.unwrap().total, count(500));
            cost.push(READ.get() - read_before);
        }
        costs.push(cost);
    }
    assert_eq!(costs[0], costs[1]);
}
