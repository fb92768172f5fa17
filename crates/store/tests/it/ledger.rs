//! The ledger: sums that are always right, budgets that cannot be exceeded, and the tree that shows them.

use std::collections::{BTreeSet, HashMap};

use crate::common::*;
use api::*;
use proptest::prelude::*;
use serde_json::json;
use trefoil_store::*;

fn below(parent: Option<&SessionId>) -> Session {
    Session { parent_id: parent.cloned(), ..session("s", 1) }
}

async fn put(store: &Store, parent: Option<&SessionId>) -> SessionId {
    let session = below(parent);
    let mut batch = batch();
    batch.session(&session);
    store.commit(batch).await.unwrap();
    session.id
}

fn used(tokens: u64) -> Usage {
    let mut used = Usage { cost: Usd(tokens as f64 / 1e9), steps: 1, ..Usage::default() };
    used.tokens.input = tokens;
    used
}

fn call(id: &str, session: &SessionId, most: u64) -> Reservation {
    Reservation {
        id: id.to_owned(),
        session: session.clone(),
        steps: 1,
        prompt: 7,
        prompt_cost: Usd(7e-9),
        output_price: Usd(0.002),
        max_tokens: most,
        max_cost: Usd(most as f64 / 1e9),
    }
}

/// Reserves a call, or returns the budget it exceeds.
async fn reserve(store: &Store, call: &Reservation) -> Result<(), Box<BudgetExceeded>> {
    let mut batch = batch();
    batch.reserve(call);
    store.commit(batch).await.unwrap().budget_exceeded.map_or(Ok(()), Err)
}

async fn budget(store: &Store, session: &SessionId, budget: Budget) {
    let mut batch = batch();
    batch.budget(session, Some(&budget));
    store.commit(batch).await.unwrap();
}

fn expect_exceeded(result: Result<(), Box<BudgetExceeded>>) -> BudgetExceeded {
    *result.unwrap_err()
}

#[derive(Debug, Clone)]
enum Operation {
    /// Creates a child of an existing session, or a new root.
    Create(Option<usize>),
    Use(usize, u64),
    /// A model call: what it reports (`None` if interrupted), and how many times its end is reported.
    Call(usize, Option<u64>, u8),
    Touch(usize, u8),
    /// Deletes a session and its descendants.
    Delete(usize),
}

fn operation() -> impl Strategy<Value = Operation> {
    let at = 0..30usize;
    prop_oneof![
        4 => prop::option::of(at.clone()).prop_map(Operation::Create),
        4 => (at.clone(), 1..1000u64).prop_map(|(at, tokens)| Operation::Use(at, tokens)),
        4 => (at.clone(), prop::option::of(1..1000u64), 1..3u8).prop_map(|(at, used, ends)| Operation::Call(at, used, ends)),
        2 => (at.clone(), 0..4u8).prop_map(|(at, file)| Operation::Touch(at, file)),
        1 => at.prop_map(Operation::Delete),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// However sessions are created, used, interrupted and deleted, their sums match a plain list of all uses.
    #[test]
    fn sums_match_all_uses(operations in prop::collection::vec(operation(), 1..60)) {
        tokio::runtime::Runtime::new().unwrap().block_on(async {
            let temp = Temp::new();
            let store = temp.open();
            let mut path: HashMap<SessionId, Vec<SessionId>> = HashMap::new();
            let mut living: Vec<SessionId> = Vec::new();
            let mut uses: Vec<(Vec<SessionId>, Usage)> = Vec::new();
            let mut files: BTreeSet<(SessionId, u8)> = BTreeSet::new();
            for (number, operation) in operations.into_iter().enumerate() {
                let find = |at: usize| (!living.is_empty()).then(|| living[at % living.len()].clone());
                match operation {
                    Operation::Create(parent) => {
                        let parent = parent.and_then(find);
                        let id = put(&store, parent.as_ref()).await;
                        let above = parent.map(|parent| path[&parent].clone()).unwrap_or_default();
                        path.insert(id.clone(), std::iter::once(id.clone()).chain(above).collect());
                        living.push(id);
                    }
                    Operation::Use(at, tokens) => {
                        let Some(id) = find(at) else { continue };
                        let mut batch = batch();
                        batch.usage(&id, &used(tokens));
                        store.commit(batch).await.unwrap();
                        uses.push((path[&id].clone(), used(tokens)));
                    }
                    Operation::Call(at, reported, ends) => {
                        let Some(id) = find(at) else { continue };
                        let call = call(&number.to_string(), &id, 5000);
                        reserve(&store, &call).await.unwrap();
                        let used = reported.map_or_else(|| call.estimate(3), used);
                        for _ in 0..ends {
                            let mut batch = batch();
                            batch.spend(&call.id, &used);
                            store.commit(batch).await.unwrap();
                        }
                        uses.push((path[&id].clone(), used));
                    }
                    Operation::Touch(at, file) => {
                        let Some(id) = find(at) else { continue };
                        let mut batch = batch();
                        batch.count_changed_file(&id, &format!("/repo/{file}"));
                        store.commit(batch).await.unwrap();
                        files.extend(path[&id].iter().map(|id| (id.clone(), file)));
                    }
                    Operation::Delete(at) => {
                        let Some(id) = find(at) else { continue };
                        let gone: Vec<SessionId> =
                            living.iter().filter(|session| path[*session].contains(&id)).cloned().collect();
                        for session in gone.iter().rev() {
                            let mut batch = batch();
                            batch.delete_session(session);
                            store.commit(batch).await.unwrap();
                        }
                        living.retain(|session| !gone.contains(session));
                    }
                }
            }
            let nanos = |money: Usd| (money.0 * 1e9).round() as i64;
            for id in &living {
                let (own, total) = store.usage(id).unwrap();
                let sum = |wanted: &dyn Fn(&[SessionId]) -> bool| {
                    let mut sum = Usage::default();
                    uses.iter().filter(|(path, _)| wanted(path)).for_each(|(_, used)| sum += used);
                    sum
                };
                let (all, mine) = (sum(&|path| path.contains(id)), sum(&|path| path[0] == *id));
                for (found, wanted) in [(&own, &mine), (&total, &all)] {
                    assert_eq!(found.tokens, wanted.tokens);
                    assert_eq!((found.steps, found.estimated_steps), (wanted.steps, wanted.estimated_steps));
                    assert_eq!(found.estimated_tokens, wanted.estimated_tokens);
                    assert_eq!(nanos(found.cost), nanos(wanted.cost));
                    assert_eq!(nanos(found.estimated_cost), nanos(wanted.estimated_cost));
                }
                assert_eq!(total.files as usize, files.iter().filter(|(session, _)| session == id).count());
            }
        });
    }
}

#[tokio::test]
async fn a_budget_must_cover_the_most_that_calls_may_use() {
    let temp = Temp::new();
    let store = temp.open();
    let root = put(&store, None).await;
    let (one, other) = (put(&store, Some(&root)).await, put(&store, Some(&root)).await);
    let stranger = put(&store, None).await;
    budget(&store, &root, Budget { tokens: Some(100), ..Budget::default() }).await;
    reserve(&store, &call("a", &one, 60)).await.unwrap();
    let exceeded = expect_exceeded(reserve(&store, &call("b", &other, 60)).await);
    assert_eq!((exceeded.bound, &exceeded.session), (Bound::Tokens, &root));
    assert_eq!((exceeded.limit, exceeded.spent, exceeded.reserved, exceeded.needed), (100, 0, 60, 60));
    reserve(&store, &call("c", &stranger, 6000)).await.unwrap();
    // Reserving the same call again replaces its reservation.
    reserve(&store, &call("a", &one, 100)).await.unwrap();
    let state = store.budget(&root).unwrap().unwrap();
    assert_eq!((state.spent.tokens, state.reserved.tokens), (Some(0), Some(100)));
    // The actual usage replaces the reservation.
    let mut batch = batch();
    batch.spend("a", &used(30));
    store.commit(batch).await.unwrap();
    reserve(&store, &call("b", &other, 70)).await.unwrap();
    let exceeded = expect_exceeded(reserve(&store, &call("d", &root, 1)).await);
    assert_eq!((exceeded.spent, exceeded.reserved), (30, 70));
    let text = "30 tokens of 100 tokens are used, calls that run may take 70 tokens, the next call may take 1 tokens";
    assert_eq!(exceeded.to_string(), format!("The budget of {root} does not suffice: {text}"));
}

#[tokio::test]
async fn when_a_budget_is_exceeded_only_changes_before_the_reservation_are_written() {
    let temp = Temp::new();
    let store = temp.open();
    let root = put(&store, None).await;
    budget(&store, &root, Budget { tokens: Some(5), ..Budget::default() }).await;
    let mut watch = store.watch(WatchScope::All, None).unwrap();
    let mut batch = batch();
    batch.event(toast("before"));
    batch.reserve(&call("a", &root, 6));
    batch.event(toast("after"));
    batch.usage(&root, &used(1));
    let committed = store.commit(batch).await.unwrap();
    assert_eq!(committed.budget_exceeded.unwrap().needed, 6);
    store.commit(toast_batch("next")).await.unwrap();
    let toasts = [next_frame(&mut watch).await, next_frame(&mut watch).await].map(|frame| toast_text(&frame).unwrap());
    assert_eq!(toasts, ["before", "next"]);
    assert_eq!(store.usage(&root).unwrap().0, Usage::default());
}

#[tokio::test]
async fn every_limit_holds_and_the_nearest_budget_is_named() {
    let temp = Temp::new();
    let store = temp.open();
    let root = put(&store, None).await;
    let child = put(&store, Some(&root)).await;
    let bounds = [
        (Budget { cost: Some(Usd(50e-9)), ..Budget::default() }, Bound::Cost),
        (Budget { tokens: Some(50), ..Budget::default() }, Bound::Tokens),
        (Budget { steps: Some(1), ..Budget::default() }, Bound::Steps),
    ];
    let mut batch = batch();
    batch.usage(&child, &used(1));
    store.commit(batch).await.unwrap();
    for (limit, bound) in bounds {
        budget(&store, &root, limit).await;
        assert_eq!(expect_exceeded(reserve(&store, &call("x", &child, 60)).await).bound, bound);
    }
    budget(&store, &root, Budget { seconds: Some(3600), ..Budget::default() }).await;
    reserve(&store, &call("x", &child, 60)).await.unwrap();
    budget(&store, &child, Budget { tokens: Some(1), ..Budget::default() }).await;
    let exceeded = expect_exceeded(reserve(&store, &call("y", &child, 0)).await);
    assert_eq!(
        (exceeded.session, exceeded.spent, exceeded.limit),
        (child.clone(), 1, 1),
        "an exhausted budget allows nothing"
    );
    // Remove the budget.
    let mut lift = crate::common::batch();
    lift.budget(&child, None);
    store.commit(lift).await.unwrap();
    reserve(&store, &call("y", &child, 0)).await.unwrap();
    assert_eq!(store.budget(&child).unwrap(), None);
    // Grant a new budget on top of what was used.
    let mut grant = crate::common::batch();
    grant.grant(&child, &Budget { tokens: Some(10), steps: Some(2), ..Budget::default() });
    store.commit(grant).await.unwrap();
    let state = store.budget(&child).unwrap().unwrap();
    assert_eq!((state.limit.tokens, state.limit.steps), (Some(11), Some(3)));
    let mut unknown = crate::common::batch();
    unknown.budget(&SessionId::new(), Some(&Budget::default()));
    assert!(matches!(store.commit(unknown).await, Err(StoreError::NoSession { .. })));
}

/// Two stores operation as two processes: the check and the reservation are one transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_calls_never_exceed_a_budget() {
    let temp = Temp::new();
    let stores = [temp.open(), temp.open()];
    let root = put(&stores[0], None).await;
    budget(&stores[0], &root, Budget { tokens: Some(1000), ..Budget::default() }).await;
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..40 {
        let (store, root) = (stores[number % 2].clone(), root.clone());
        tasks.spawn(async move {
            let child = put(&store, Some(&root)).await;
            let call = call(&number.to_string(), &child, 100);
            let mut admitted = 0;
            for _ in 0..3 {
                if reserve(&store, &call).await.is_ok() {
                    admitted += 1;
                    let mut batch = batch();
                    batch.spend(&call.id, &used(90));
                    store.commit(batch).await.unwrap();
                }
                let state = store.budget(&root).unwrap().unwrap();
                assert!(state.spent.tokens.unwrap() + state.reserved.tokens.unwrap() <= 1000, "{state:?}");
            }
            admitted
        });
    }
    let admitted: u64 = tasks.join_all().await.into_iter().sum();
    let total = stores[0].usage(&root).unwrap().1;
    assert_eq!(total.tokens.input, admitted * 90);
    assert!(total.tokens.input <= 1000);
    assert!(admitted > 0);
}

#[tokio::test]
async fn ancestors_pay_for_the_interrupted_call_of_a_deleted_session() {
    let temp = Temp::new();
    let store = temp.open();
    let root = put(&store, None).await;
    let child = put(&store, Some(&root)).await;
    reserve(&store, &call("a", &child, 100)).await.unwrap();
    let mut delete = batch();
    delete.delete_session(&child);
    store.commit(delete).await.unwrap();
    let (own, total) = store.usage(&root).unwrap();
    assert_eq!((own, total.estimated_steps, total.estimated_tokens), (Usage::default(), 1, 7));
    assert_eq!(store.usage(&child).unwrap(), (Usage::default(), Usage::default()));
    assert_eq!(store.reservations(&child).unwrap(), vec![]);
    // A late report for a session that is gone.
    let mut late = batch();
    late.usage(&child, &used(5));
    late.spend("a", &used(5));
    store.commit(late).await.unwrap();
    assert_eq!(store.usage(&root).unwrap().1, total);
}

#[tokio::test]
async fn usage_from_before_the_ledger_is_migrated() {
    let temp = Temp::new();
    let old = temp.create_old(1);
    let root = below(None);
    let mut child = below(Some(&root.id));
    child.cost = Some(Usd(0.25));
    child.tokens = Some(
        serde_json::from_value(json!({"input": 5, "output": 6, "reasoning": 0,
        "cache": {"read": 1, "write": 0}}))
        .unwrap(),
    );
    for session in [&root, &child] {
        let json = serde_json::to_string(session).unwrap();
        old.execute(
            "INSERT INTO session (id, project, directory, parent, updated, title, json)
             VALUES (?1, 'p', '/repo', ?2, 1, 's', ?3)",
            rusqlite::params![session.id.as_str(), session.parent_id.as_ref().map(SessionId::as_str), json],
        )
        .unwrap();
    }
    drop(old);
    let store = temp.open();
    let (own, total) = store.usage(&root.id).unwrap();
    assert_eq!(own, Usage::default());
    assert_eq!((total.cost, total.all_tokens()), (Usd(0.25), 12));
    assert_eq!(store.usage(&child.id).unwrap().0, total);
}

#[tokio::test]
async fn a_tree_is_complete_and_in_order() {
    let temp = Temp::new();
    let store = temp.open();
    let root = put(&store, None).await;
    let first = put(&store, Some(&root)).await;
    let second = put(&store, Some(&root)).await;
    let grandchild = put(&store, Some(&first)).await;
    let below_second = put(&store, Some(&second)).await;
    put(&store, None).await;
    assert_eq!(store.tree(&SessionId::new()).unwrap(), None);
    let family: Vec<SessionId> = store.subtree(&root).unwrap().into_iter().map(|session| session.id).collect();
    assert_eq!(family, [&root, &first, &second, &grandchild, &below_second].map(Clone::clone), "level by level");
    assert_eq!((store.count_descendants(&root, 100).unwrap(), store.count_descendants(&root, 3).unwrap()), (4, 3));
    assert_eq!(
        (store.count_descendants(&grandchild, 100).unwrap(), store.count_descendants(&SessionId::new(), 9).unwrap()),
        (0, 0)
    );

    let lease = lease(&store, &first).await;
    let message = user(&first, 1);
    let part: Part = serde_json::from_value(json!({
        "type": "tool", "id": PartId::new(), "sessionID": first, "messageID": message.id(), "callID": "c",
        "tool": "bash", "state": {"status": "running", "input": {}, "time": {"start": 5}},
    }))
    .unwrap();
    let mut batch = batch().fence(&lease);
    batch.begin_turn(&first, None);
    batch.event(EventBody::SessionStatus { session_id: first.clone(), status: SessionStatus::Busy });
    batch.message(&message);
    batch.part(&part);
    batch.usage(&grandchild, &used(3));
    batch.reserve(&call("r", &grandchild, 9));
    let last = store.commit(batch).await.unwrap().last;
    let tree = store.tree(&root).unwrap().unwrap();
    let order: Vec<(&SessionId, u32)> = tree.sessions.iter().map(|session| (&session.id, session.depth)).collect();
    assert_eq!(order, [(&root, 0), (&first, 1), (&grandchild, 2), (&second, 1), (&below_second, 2)]);
    let totals: Vec<u64> = tree.sessions.iter().map(|session| session.total.tokens.input).collect();
    assert_eq!(totals, [3, 3, 3, 0, 0]);
    assert_eq!(tree.sessions[1].status, Some(SessionStatus::Busy));
    assert!(tree.sessions[1].started.is_some() && tree.sessions[1].ended.is_none());
    assert_eq!(tree.sessions[0].status, None);
    assert_eq!(tree.tools.iter().map(|tool| tool.tool.as_str()).collect::<Vec<_>>(), ["bash"]);
    assert_eq!(tree.reservations.len(), 1);
    assert_eq!(tree.cursor, last);

    // A turn has the error of its last answer, and the next turn starts without it.
    let answer = |error: Option<MessageError>| {
        let mut json = json!({"role": "assistant", "id": MessageId::new(), "sessionID": first, "parentID": message.id(),
            "mode": "build", "agent": "build", "path": {"cwd": "/repo", "root": "/repo"}, "cost": 0,
            "tokens": {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}, "modelID": "m",
            "providerID": "p", "time": {"created": 2, "completed": 3}});
        if let Some(error) = error {
            json["error"] = serde_json::to_value(error).unwrap();
        }
        serde_json::from_value::<Message>(json).unwrap()
    };
    let status = |status| EventBody::SessionStatus { session_id: first.clone(), status };
    let mut batch = Batch::new(&location().in_turn(Some(1))).fence(&lease);
    batch.message(&answer(Some(MessageError::aborted())));
    let session = first.clone();
    batch.end_turn(TurnEnd { session, number: 1, is_cancelled: false, answer: None, error: None });
    batch.event(status(SessionStatus::Idle));
    store.commit(batch).await.unwrap();
    let tree = store.tree(&first).unwrap().unwrap();
    assert_eq!(tree.sessions[0].error, Some(MessageError::aborted()));
    assert!(tree.sessions[0].ended.is_some() && tree.sessions[0].status.is_none());
    let mut batch = crate::common::batch().fence(&lease);
    batch.begin_turn(&first, None);
    batch.event(status(SessionStatus::Busy));
    batch.message(&answer(None));
    store.commit(batch).await.unwrap();
    let tree = store.tree(&first).unwrap().unwrap();
    assert_eq!((tree.sessions[0].error.clone(), tree.sessions[0].ended), (None, None));
}

/// One query per session would take far longer.
#[tokio::test]
async fn a_thousand_sessions_are_read_in_one_query() {
    let temp = Temp::new();
    let store = temp.open();
    let root = below(None);
    let mut batch = batch();
    batch.session(&root);
    let mut parent = root.id.clone();
    for number in 0..1000 {
        let child = below(Some(&parent));
        batch.session(&child);
        batch.usage(&child.id, &used(1));
        batch.budget(&child.id, Some(&Budget { tokens: Some(9), ..Budget::default() }));
        if number % 100 == 0 {
            parent = child.id.clone();
        }
    }
    store.commit(batch).await.unwrap();
    let tree = store.tree(&root.id).unwrap().unwrap();
    assert_eq!(tree.sessions.len(), 1001);
    assert_eq!(tree.sessions[0].total.tokens.input, 1000);
    // Measures CPU time, not wall time: the machine may be busy.
    let spent = || -> u64 {
        let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        schedstat.split(' ').next().unwrap().parse().unwrap()
    };
    let quickest = |read: &dyn Fn()| {
        let cost = |_| {
            let before = spent();
            read();
            spent() - before
        };
        (0..5).map(cost).min().unwrap()
    };
    let at_once = quickest(&|| drop(store.tree(&root.id).unwrap()));
    let below = &tree.sessions[1..];
    let one_by_one = quickest(&|| below.iter().for_each(|node| drop(store.tree(&node.id).unwrap())));
    assert!(at_once * 3 < one_by_one, "{at_once} ns at once, {one_by_one} ns one by one");
}
