//! Usage and budgets: totals that survive every failure, and budgets that nobody overshoots.

use crate::common::{Lab, doomed, prompt, script, text};
use api::{
    Bound, Budget, CreateSession, EventBody, Host, HostError, MessageError, MessageWithParts, PermissionReply,
    PermissionReplyKind, SessionId, SessionStatus, TreeNode, TreeState, Usage, Usd, WatchItem, WatchScope,
};
use futures::StreamExt;
use serde_json::{Value, json};
use testkit::{Recorder, TempProject, eventually, soon};
use trefoil_engine::Engine;

/// All tokens the scripted model reports for a step.
const STEP_TOKENS: u64 = 120;
/// More than one call of the scripted model may use, but less than two.
const CALL_TOKENS: u64 = 60_000;

fn task(description: &str, steps: Value) -> Value {
    json!(["task", {"description": description, "prompt": script(steps), "subagent_type": "general"}])
}

fn says(text: &str) -> Value {
    json!([{ "text": text }])
}

fn tokens(tokens: u64) -> Budget {
    Budget { tokens: Some(tokens), ..Budget::default() }
}

fn steps(steps: u64) -> Budget {
    Budget { steps: Some(steps), ..Budget::default() }
}

async fn tree(lab: &Lab, session: &SessionId) -> Vec<TreeNode> {
    lab.engine.tree(session).await.unwrap().sessions
}

async fn node(lab: &Lab, session: &SessionId) -> TreeNode {
    tree(lab, session).await.remove(0)
}

async fn limit(lab: &Lab, session: &SessionId, budget: Budget) -> api::BudgetState {
    lab.engine.budget(session, budget).await.unwrap()
}

async fn start(lab: &Lab, session: &SessionId, steps: Value) {
    lab.engine.prompt_async(session, prompt(&script(steps))).await.unwrap();
}

/// Waits until a session's turn says that it is waiting for its budget.
async fn wait_until_blocked(events: &mut Recorder, session: &SessionId) -> api::Blocked {
    let event = events
        .wait_for(|body| matches!(body, EventBody::SessionTree { session_id, state: TreeState::Blocked, .. } if session_id == session))
        .await;
    let EventBody::SessionTree { blocked, .. } = &event.body else { unreachable!() };
    blocked.clone().unwrap()
}

fn error(message: &MessageWithParts) -> String {
    message.info.as_assistant().unwrap().error.as_ref().map(|error| error.message().to_owned()).unwrap_or_default()
}

/// The totals without estimates.
fn usage_totals(used: &Usage) -> (u64, u64, u64) {
    (used.all_tokens(), used.steps, used.estimated_steps)
}

#[tokio::test]
async fn a_turn_counts_its_steps_calls_and_files() {
    let lab = Lab::new();
    let session = lab.session().await;
    let write = |content: &str| json!(["write", {"filePath": lab.project.path().join("a.txt"), "content": content}]);
    let turn = json!([{ "tools": [write("one")] }, { "tools": [write("two"), ["nonsense", {}]] }, { "text": "done" }]);
    lab.say(&session, &script(turn)).await;
    let node = node(&lab, &session).await;
    assert_eq!(usage_totals(&node.own), (3 * STEP_TOKENS, 3, 0));
    assert_eq!((node.own.tool_calls, node.own.files), (3, 1), "a file that changed twice counts once");
    assert_eq!(node.own, node.total);
    assert_eq!((node.own.tokens.input, node.own.tokens.output, node.own.tokens.cache.read), (270, 60, 30));
    assert_eq!(node.state, TreeState::Idle);
    assert!(node.started.unwrap() <= node.ended.unwrap());
}

#[tokio::test]
async fn children_count_for_ancestors_even_after_deletion_and_forks_start_at_zero() {
    let lab = Lab::new();
    let session = lab.session().await;
    let turn = json!([{ "tools": [task("one", says("1")), task("two", says("2"))] }, { "text": "done" }]);
    lab.say(&session, &script(turn)).await;
    let nodes = tree(&lab, &session).await;
    assert_eq!(nodes.iter().map(|node| node.depth).collect::<Vec<_>>(), [0, 1, 1]);
    assert_eq!(
        (usage_totals(&nodes[0].own), usage_totals(&nodes[0].total)),
        ((2 * STEP_TOKENS, 2, 0), (4 * STEP_TOKENS, 4, 0))
    );
    assert_eq!((nodes[0].own.tool_calls, nodes[1].own.tool_calls), (2, 0));
    assert_eq!(nodes[1].agent.as_deref(), Some("general"));
    lab.engine.delete_session(&nodes[1].session_id).await.unwrap();
    let fork = lab.engine.fork_session(&session, None).await.unwrap();
    let after = tree(&lab, &session).await;
    assert_eq!((after.len(), &after[0].total), (2, &nodes[0].total));
    assert_eq!(node(&lab, &fork.id).await.total, Usage::default());
    assert!(matches!(lab.engine.tree(&nodes[1].session_id).await, Err(HostError::NotFound { .. })));
}

#[tokio::test]
async fn an_interrupted_attempt_counts_and_a_refused_one_does_not() {
    let lab = Lab::new();
    let session = lab.session().await;
    let broken = json!([{ "text": "0123456789abcdef", "malformed": true, "fail_times": 2, "retry_after_ms": 1 }]);
    assert!(text(&lab.say(&session, &script(broken)).await).ends_with("0123456789abcdef"));
    let used = node(&lab, &session).await.own;
    assert_eq!((used.steps, used.estimated_steps), (3, 2));
    assert_eq!(used.tokens.output, 20 + 2 * 4, "four tokens of each interrupted attempt");
    assert_eq!(used.all_tokens() - used.estimated_tokens, STEP_TOKENS);
    let refused = json!([{ "http_error": 503, "fail_times": 2, "retry_after_ms": 1, "text": "well" }]);
    lab.say(&session, &script(refused)).await;
    let after = node(&lab, &session).await.own;
    assert_eq!((after.steps, after.estimated_steps), (4, 2));
    assert_eq!(after.all_tokens(), used.all_tokens() + STEP_TOKENS);
}

#[tokio::test]
async fn a_call_that_was_aborted_is_estimated() {
    let lab = Lab::new();
    let session = lab.session().await;
    let mut events = lab.recorder().await;
    start(&lab, &session, json!([{ "text": "begun ", "hold": lab.gate("never") }])).await;
    events.wait_for(|body| matches!(body, EventBody::PartDelta { .. })).await;
    assert!(lab.engine.abort(&session).await.unwrap());
    let node = node(&lab, &session).await;
    assert_eq!((node.own.steps, node.own.estimated_steps, node.own.tokens.output), (1, 1, 2));
    assert!(node.own.tokens.input > 100, "the prompt was read");
    assert_eq!(node.own.estimated_tokens, node.own.all_tokens());
    assert_eq!(node.state, TreeState::Cancelled);
    assert!(matches!(node.error, Some(MessageError::MessageAbortedError(_))));
}

/// The session once its last engine is dead: the writer thread, and with it the lock, lives until it notices.
async fn orphaned_session(engine: &Engine, session: &SessionId) -> TreeNode {
    let node = async || engine.tree(session).await.unwrap().sessions.remove(0);
    eventually("the engine's death", async || node().await.state != TreeState::Running).await;
    node().await
}

#[test]
fn an_interrupted_call_is_counted_once() {
    let project = TempProject::new();
    let scope = api::Scope::new(project.directory());
    let session = doomed(&project, async |engine| {
        let input = CreateSession { title: Some("t".to_owned()), ..CreateSession::default() };
        let session = engine.create_session(&scope, input).await.unwrap().id;
        let mut events = Recorder::new(std::sync::Arc::new(engine.clone())).await;
        let stays = json!({ "text": "0123456789abcdef", "hold": project.path().join("never") });
        let turn = json!([{ "tools": [["glob", {"pattern": "*"}]] }, stays]);
        engine.prompt_async(&session, prompt(&script(turn))).await.unwrap();
        events.wait_for(|body| matches!(body, EventBody::PartDelta { .. })).await;
        session
    });
    doomed(&project, async |engine| {
        let node = orphaned_session(&engine, &session).await;
        assert_eq!(
            (usage_totals(&node.own), node.state),
            ((STEP_TOKENS, 1, 0), TreeState::Interrupted),
            "nobody runs it, nothing is guessed yet"
        );
        let mut events = Recorder::new(std::sync::Arc::new(engine.clone())).await;
        engine.recover(Some(&session)).await.unwrap();
        events.wait_for(|body| matches!(body, EventBody::PartDelta { .. })).await;
        let node = engine.tree(&session).await.unwrap().sessions.remove(0);
        assert_eq!((node.own.steps, node.own.estimated_steps), (2, 1));
    });
    // The second crash is the last: the turn is given up, and the call it interrupted is counted as well.
    for recovered in [1, 0] {
        doomed(&project, async |engine| {
            orphaned_session(&engine, &session).await;
            let mut events = Recorder::new(std::sync::Arc::new(engine.clone())).await;
            assert_eq!(engine.recover(None).await.unwrap(), recovered);
            if recovered > 0 {
                events.wait_idle(&session).await;
            }
            let used = engine.tree(&session).await.unwrap().sessions.remove(0).own;
            assert_eq!((used.steps, used.estimated_steps, used.tool_calls), (3, 2, 1));
            assert_eq!(used.all_tokens() - used.estimated_tokens, STEP_TOKENS, "the reported usage is unchanged");
            assert!(used.estimated_tokens > 200, "the prompt was read twice");
        });
    }
}

#[tokio::test]
async fn usage_reported_before_a_tool_call_survives_a_stop() {
    let mut lab = Lab::with(json!({"permission": {"bash": "ask"}}));
    let session = lab.session().await;
    let mut events = lab.recorder().await;
    start(&lab, &session, json!([{ "tools": [["bash", {"command": "true"}]] }, { "text": "done" }])).await;
    let event = events.wait_for(|body| matches!(body, EventBody::PermissionAsked(_))).await;
    let EventBody::PermissionAsked(ask) = event.body.clone() else { unreachable!() };
    drop(events);
    // The usage is written after the call starts, without an event.
    eventually("the report is written", async || node(&lab, &session).await.own.steps > 0).await;
    lab.restart().await;
    let before = node(&lab, &session).await;
    assert_eq!(usage_totals(&before.own), (STEP_TOKENS, 1, 0), "it is written while the call waits");
    assert_eq!(before.state, TreeState::Interrupted, "nobody runs it, and it has not ended");
    let mut events = lab.recorder().await;
    let reply = PermissionReply { reply: PermissionReplyKind::Once, message: None };
    lab.engine.reply_permission(&ask.id, reply).await.unwrap();
    lab.engine.recover(Some(&session)).await.unwrap();
    events.wait_idle(&session).await;
    let after = node(&lab, &session).await;
    assert_eq!((usage_totals(&after.own), after.own.tool_calls), ((2 * STEP_TOKENS, 2, 0), 1));
    let answers = lab.messages(&session).await;
    let answers = answers.iter().filter_map(|message| message.info.as_assistant());
    let told: Vec<u64> =
        answers.map(|answer| Usage { tokens: answer.tokens.clone(), ..Usage::default() }.all_tokens()).collect();
    assert_eq!(told, [STEP_TOKENS, STEP_TOKENS], "its message has what was reported before the stop");
    let shown = lab.engine.session(&session).await.unwrap().tokens.unwrap();
    let shown = shown.input + shown.output + shown.reasoning + shown.cache.read + shown.cache.write;
    assert_eq!(shown, 2 * STEP_TOKENS, "and so do the totals of its session");
}

#[tokio::test]
async fn an_exhausted_budget_blocks_the_turn_until_it_is_raised() {
    let lab = Lab::new();
    let session = lab.session().await;
    let state = limit(&lab, &session, steps(1)).await;
    assert_eq!((state.limit.steps, state.spent.steps, state.reserved.steps), (Some(1), Some(0), Some(0)));
    let mut events = lab.recorder().await;
    start(&lab, &session, json!([{ "tools": [["glob", {"pattern": "*"}]] }, { "text": "at last" }])).await;
    let why = wait_until_blocked(&mut events, &session).await;
    assert_eq!((why.bound, &why.session_id), (Bound::Steps, &session));
    assert!(why.message.contains("1 steps of 1 steps are used"), "{}", why.message);
    let status = lab.engine.statuses(&lab.scope).await.unwrap()[&session].clone();
    assert!(matches!(status, SessionStatus::Retry { attempt: 0, ref message, .. } if *message == why.message));
    let held = node(&lab, &session).await;
    assert_eq!((held.state, held.blocked.as_ref()), (TreeState::Blocked, Some(&why)));
    assert_eq!(held.budget.unwrap().spent.steps, Some(1));
    limit(&lab, &session, steps(2)).await;
    events
        .wait_for(|body| matches!(body, EventBody::SessionTree { state: TreeState::Running, blocked: None, .. }))
        .await;
    events.wait_idle(&session).await;
    let done = node(&lab, &session).await;
    assert_eq!((done.state, done.blocked, usage_totals(&done.own)), (TreeState::Idle, None, (2 * STEP_TOKENS, 2, 0)));
    assert_eq!(text(lab.messages(&session).await.last().unwrap()), "at last");
    // An empty budget removes it.
    let lifted = limit(&lab, &session, Budget::default()).await;
    assert_eq!((lifted.limit, lifted.spent.steps), (Budget::default(), Some(2)));
    assert_eq!(text(&lab.say(&session, &script(says("free"))).await), "free");
    assert_eq!(node(&lab, &session).await.budget, None);
}

#[tokio::test]
async fn a_turn_waiting_for_its_budget_can_be_paused() {
    let lab = Lab::new();
    let (session, other) = (lab.session().await, lab.session().await);
    limit(&lab, &session, steps(1)).await;
    let mut events = lab.recorder().await;
    start(&lab, &session, json!([{ "tools": [["glob", {"pattern": "*"}]] }, { "text": "at last" }])).await;
    wait_until_blocked(&mut events, &session).await;
    assert!(lab.engine.pause(&session, true).await.unwrap());
    assert!(lab.engine.pause(&session, false).await.unwrap());
    assert_eq!(
        wait_until_blocked(&mut events, &session).await.bound,
        Bound::Steps,
        "a pause that ends tells what holds it now"
    );
    assert!(lab.engine.pause(&session, true).await.unwrap());
    limit(&lab, &session, steps(2)).await;
    // Meanwhile other calls end, which makes it try again.
    for _ in 0..3 {
        lab.say(&other, &script(says("beside"))).await;
    }
    let held = node(&lab, &session).await;
    assert_eq!((held.state, held.blocked, usage_totals(&held.own)), (TreeState::Paused, None, (STEP_TOKENS, 1, 0)));
    assert!(lab.engine.pause(&session, false).await.unwrap());
    events.wait_idle(&session).await;
    assert_eq!(text(lab.messages(&session).await.last().unwrap()), "at last");
}

#[tokio::test]
async fn another_process_can_raise_a_budget() {
    let lab = Lab::new();
    let session = lab.session().await;
    lab.say(&session, &script(says("one"))).await;
    limit(&lab, &session, steps(1)).await;
    let mut events = lab.recorder().await;
    start(&lab, &session, says("two")).await;
    wait_until_blocked(&mut events, &session).await;
    let other = lab.second();
    assert_eq!(other.tree(&session).await.unwrap().sessions[0].state, TreeState::Blocked);
    other.budget(&session, steps(5)).await.unwrap();
    events.wait_idle(&session).await;
    assert_eq!(text(lab.messages(&session).await.last().unwrap()), "two");
    other.shutdown().await;
}

#[tokio::test]
async fn a_budget_below_the_usage_blocks_at_once_and_an_abort_ends_the_wait() {
    let lab = Lab::new();
    let session = lab.session().await;
    lab.say(&session, &script(says("one"))).await;
    let state = limit(&lab, &session, tokens(STEP_TOKENS / 2)).await;
    assert_eq!((state.limit.tokens, state.spent.tokens), (Some(STEP_TOKENS / 2), Some(STEP_TOKENS)));
    let mut events = lab.recorder().await;
    start(&lab, &session, says("two")).await;
    assert_eq!(wait_until_blocked(&mut events, &session).await.bound, Bound::Tokens);
    assert!(lab.engine.abort(&session).await.unwrap());
    let after = node(&lab, &session).await;
    assert_eq!((after.state, after.blocked), (TreeState::Cancelled, None));
    assert_eq!(usage_totals(&after.own), (STEP_TOKENS, 1, 0), "a call that never happened costs nothing");
    assert_eq!(after.budget.unwrap().reserved.tokens.unwrap_or(0), 0);
}

#[tokio::test]
async fn a_budget_of_zero_is_refused() {
    let lab = Lab::new();
    let session = lab.session().await;
    for budget in [tokens(0), steps(0), Budget { cost: Some(Usd(0.0)), ..Budget::default() }] {
        let refused = lab.engine.budget(&session, budget).await;
        assert!(matches!(&refused, Err(HostError::Invalid(text)) if text.contains("greater than zero")), "{refused:?}");
    }
    let unknown = lab.engine.budget(&SessionId::new(), steps(1)).await;
    assert!(matches!(unknown, Err(HostError::NotFound { .. })));
}

#[tokio::test]
async fn a_wait_for_a_budget_times_out_with_advice() {
    let lab = Lab::with(json!({"subagents": {"wait": 0}}));
    let session = lab.session().await;
    lab.say(&session, &script(says("one"))).await;
    limit(&lab, &session, steps(1)).await;
    let failed = lab.say(&session, &script(says("two"))).await;
    let why = error(&failed);
    assert!(why.contains("1 steps of 1 steps are used") && why.contains("Raise the budget of ses_"), "{why}");
    let after = node(&lab, &session).await;
    assert_eq!((after.state, after.own.steps), (TreeState::Failed, 1));
    limit(&lab, &session, steps(2)).await;
    assert_eq!(text(&lab.say(&session, &script(says("two"))).await), "two");
}

#[tokio::test]
async fn a_child_whose_wait_expires_fails_its_task_and_the_parent_continues() {
    let lab = Lab::with(json!({"subagents": {"wait": 0}}));
    let session = lab.session().await;
    let child = json!([{ "tools": [["glob", {"pattern": "*"}]] }, { "text": "never" }]);
    let mut call = task("much", child);
    call[1]["budget"] = json!({"steps": 1});
    let answer = lab.say(&session, &script(json!([{ "tools": [call] }, { "text": "without it" }]))).await;
    assert_eq!(text(&answer), "without it");
    let tools = lab.tools(&session).await;
    let api::ToolState::Error(failed) = &tools[0].state else { panic!("{tools:#?}") };
    assert!(failed.error.contains("does not suffice"), "{}", failed.error);
    let nodes = tree(&lab, &session).await;
    assert_eq!((nodes[1].state, nodes[1].own.steps), (TreeState::Failed, 1));
    assert_eq!(nodes[1].budget.as_ref().unwrap().limit, steps(1));
}

#[tokio::test]
async fn a_budget_can_limit_time() {
    let lab = Lab::new();
    let session = lab.session().await;
    limit(&lab, &session, Budget { seconds: Some(1), ..Budget::default() }).await;
    let mut events = lab.recorder().await;
    let first = json!({ "text": "begun", "hold": lab.gate("go"), "tools": [["glob", {"pattern": "*"}]] });
    start(&lab, &session, json!([first, { "text": "late" }])).await;
    let spent = async || node(&lab, &session).await.budget.unwrap().spent.seconds;
    eventually("a second is spent", async || spent().await >= Some(1)).await;
    lab.project.write("go", "");
    let why = wait_until_blocked(&mut events, &session).await;
    assert_eq!(why.bound, Bound::Seconds);
    // Raising the budget does not restart the clock.
    let state = limit(&lab, &session, Budget { seconds: Some(3600), ..Budget::default() }).await;
    assert!(state.spent.seconds >= Some(1));
    events.wait_idle(&session).await;
    assert_eq!(text(lab.messages(&session).await.last().unwrap()), "late");
}

/// The budget fits one call at a time, and eight children want to make theirs at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parallel_children_do_not_overshoot_together() {
    let lab = Lab::new();
    let session = lab.session().await;
    limit(&lab, &session, tokens(CALL_TOKENS)).await;
    let child = json!([{ "tools": [["glob", {"pattern": "*"}]] }, { "text": "done" }]);
    let calls: Vec<Value> = (0..8).map(|number| task(&number.to_string(), child.clone())).collect();
    let mut events = lab.engine.watch(WatchScope::All, None).await.unwrap();
    start(&lab, &session, json!([{ "tools": calls }, { "text": "all done" }])).await;
    let mut most = 0;
    loop {
        let item = soon("the next event", events.next()).await;
        let Some(WatchItem::Frame(frame)) = item else { panic!("the watch ended") };
        let Some(event) = frame.event() else { continue };
        let state = node(&lab, &session).await.budget.unwrap();
        let taken = state.spent.tokens.unwrap() + state.reserved.tokens.unwrap_or(0);
        assert!(taken <= CALL_TOKENS, "{state:?}");
        most = most.max(state.reserved.steps.unwrap_or(0));
        if matches!(&event.body, EventBody::SessionIdle { session_id } if *session_id == session) {
            break;
        }
    }
    assert_eq!(most, 1, "they took turns");
    let nodes = tree(&lab, &session).await;
    assert_eq!(nodes.len(), 9);
    assert!(nodes.iter().all(|node| node.state == TreeState::Idle));
    assert_eq!(usage_totals(&nodes[0].total), (18 * STEP_TOKENS, 18, 0));
}

#[tokio::test]
async fn budgets_come_from_the_call_the_agent_or_the_configuration() {
    let lab = Lab::with(json!({
        "subagents": {"budget": {"tokens": 100_000}},
        "agent": {"frugal": {"mode": "subagent", "budget": {"steps": 7}}},
    }));
    let session = lab.session().await;
    let mut agents = task("agent's", says("1"));
    agents[1]["subagent_type"] = json!("frugal");
    let mut own = task("own", says("2"));
    own[1]["budget"] = json!({"cost": 2.5});
    let turn = json!([{ "tools": [agents, own, task("configured", says("3"))] }, { "text": "done" }]);
    lab.say(&session, &script(turn)).await;
    let nodes = tree(&lab, &session).await;
    assert_eq!(nodes[0].budget, None);
    let of = |title: &str| nodes.iter().find(|node| node.title.starts_with(title)).unwrap();
    assert_eq!(of("agent's").budget.as_ref().unwrap().limit, steps(7));
    assert_eq!(of("own").budget.as_ref().unwrap().limit, Budget { cost: Some(Usd(2.5)), ..Budget::default() });
    assert_eq!(of("configured").budget.as_ref().unwrap().limit, tokens(100_000));
    // The same amount again for another task of the same child.
    let child = of("agent's").session_id.clone();
    let mut again = task("again", says("4"));
    again[1]["subagent_type"] = json!("frugal");
    again[1]["task_id"] = json!(child);
    lab.say(&session, &script(json!([{ "tools": [again] }, { "text": "done" }]))).await;
    assert_eq!(node(&lab, &child).await.budget.unwrap().limit, steps(8));
    // A budget that allows nothing is refused with a reason.
    let mut nothing = task("nothing", says("5"));
    nothing[1]["budget"] = json!({"steps": 0});
    lab.say(&session, &script(json!([{ "tools": [nothing] }, { "text": "done" }]))).await;
    let last = lab.tools(&session).await.pop().unwrap();
    assert!(
        matches!(&last.state, api::ToolState::Error(error) if error.error.contains("greater than zero")),
        "{last:#?}"
    );
}

#[tokio::test]
async fn a_tree_shows_who_asks_and_what_runs() {
    let lab = Lab::with(json!({"permission": {"bash": "ask"}}));
    let session = lab.session().await;
    let mut events = lab.recorder().await;
    let child = json!([{ "tools": [["bash", {"command": "true"}]] }, { "text": "done" }]);
    start(&lab, &session, json!([{ "tools": [task("asks", child)] }, { "text": "done" }])).await;
    let event = events.wait_for(|body| matches!(body, EventBody::PermissionAsked(_))).await;
    let EventBody::PermissionAsked(ask) = event.body.clone() else { unreachable!() };
    let shown = lab.engine.tree(&session).await.unwrap();
    let [root, child] = &shown.sessions[..] else { panic!("{shown:#?}") };
    assert_eq!((root.state, child.state), (TreeState::Running, TreeState::Asking));
    let tool = root.tool.as_ref().unwrap();
    assert_eq!((tool.tool.as_str(), tool.title.as_deref()), ("task", Some("asks")));
    assert_eq!(child.tool.as_ref().unwrap().tool, "bash");
    assert_eq!((root.asks.len(), child.asks.len()), (1, 1));
    assert_eq!((root.asks[0].id.as_str(), &root.asks[0].session_id), (ask.id.as_str(), &child.session_id));
    assert_eq!(
        (&root.asks[0].path[..], &child.asks[0].path[..]),
        (&["build", "general"].map(String::from)[..], &["general".to_owned()][..])
    );
    assert_eq!(root.asks[0].text, "bash: true");
    assert!(root.ended.is_none() && root.started.is_some());
    // Everything after the cursor is new.
    let cursor = shown.cursor.as_ref().unwrap().parse().unwrap();
    let mut news = Recorder::follow(lab.engine.watch(WatchScope::All, Some(cursor)).await.unwrap());
    let reply = PermissionReply { reply: PermissionReplyKind::Once, message: None };
    lab.engine.reply_permission(&ask.id, reply).await.unwrap();
    news.wait_idle(&session).await;
    assert!(news.events().iter().all(|event| !matches!(&event.body, EventBody::PermissionAsked(_))));
    assert!(news.events().iter().any(|event| matches!(&event.body, EventBody::PermissionReplied { .. })));
    let nodes = tree(&lab, &session).await;
    assert!(nodes.iter().all(|node| node.state == TreeState::Idle && node.asks.is_empty() && node.tool.is_none()));
}
