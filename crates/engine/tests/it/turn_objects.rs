//! Turns as objects: named, listed, queued, waited for and cancelled one by one.

use api::{
    Delivery, EventBody, Host, HostError, ListTurns, MessageId, PermissionReply, PermissionReplyKind, PromptInput,
    SessionId, Submitted, Turn, TurnId, TurnState, WatchItem, WatchScope,
};
use futures::StreamExt as _;
use serde_json::{Value, json};
use testkit::soon;
use trefoil_engine::Engine;

use crate::common::{Lab, open, prompt, script, text};

/// Submits a prompt, with what happens while another turn runs.
async fn submit(engine: &Engine, session: &SessionId, steps: Value, delivery: Delivery) -> Submitted {
    engine.submit(session, prompt(&script(steps)), delivery).await.unwrap()
}

async fn queue(lab: &Lab, session: &SessionId, answer: &str) -> TurnId {
    submit(&lab.engine, session, json!([{ "text": answer }]), Delivery::Queue).await.turn_id.unwrap()
}

async fn turn(lab: &Lab, id: &TurnId) -> Turn {
    lab.engine.turn(id).await.unwrap()
}

async fn ended(engine: &Engine, id: &TurnId) -> Turn {
    soon(&format!("the end of {id}"), engine.wait(id)).await.unwrap()
}

/// The answer of a turn that has ended.
async fn answer(lab: &Lab, id: &TurnId) -> String {
    let turn = ended(&lab.engine, id).await;
    assert_eq!(turn.state, TurnState::Done, "{turn:#?}");
    text(&lab.engine.message(&turn.session_id, &turn.answer.unwrap()).await.unwrap())
}

/// Begins a turn that answers once the gate is open, and waits until it runs.
async fn held(lab: &Lab, session: &SessionId, gate: &str, answer: &str) -> TurnId {
    let mut events = lab.recorder().await;
    let steps = json!([{"chunks": 3, "text": answer, "hold": lab.gate(gate)}]);
    let id = submit(&lab.engine, session, steps, Delivery::Join).await.turn_id.unwrap();
    events.wait_for(|body| matches!(body, EventBody::PartDelta { .. })).await;
    id
}

fn release(lab: &Lab, gate: &str) {
    lab.project.write(gate, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_tells_its_story() {
    let lab = Lab::new();
    let session = lab.session().await;
    let submitted = submit(&lab.engine, &session, json!([{"text": "one"}]), Delivery::Join).await;
    let (id, message) = (submitted.turn_id.clone().unwrap(), submitted.message_id.clone().unwrap());
    assert_eq!((&id.session, id.number), (&session, 1));
    let done = ended(&lab.engine, &id).await;
    assert_eq!((done.state, &done.prompts, &done.error), (TurnState::Done, &vec![message.clone()], &None));
    assert!(done.time.started >= Some(done.time.created) && done.time.ended >= done.time.started, "{done:#?}");
    assert_eq!(text(&lab.engine.message(&session, &done.answer.unwrap()).await.unwrap()), "one");
    // The position at which it was accepted lies before everything that it did.
    let mut events = lab.engine.watch(WatchScope::Turn(id.clone()), submitted.cursor()).await.unwrap();
    let mut seen = Vec::new();
    while let Some(WatchItem::Frame(frame)) = soon("its events", events.next()).await {
        assert_eq!(frame.turn_id(), Some(id.clone()));
        let body = frame.event().unwrap().body.clone();
        let is_over = matches!(body, EventBody::SessionIdle { .. });
        seen.push(body);
        if is_over {
            break;
        }
    }
    assert!(seen.iter().any(|body| matches!(body, EventBody::PartUpdated { part, .. } if part.as_text().is_some_and(|part| part.text == "one"))));
    // Unknown ones are refused by name.
    for unknown in [TurnId::new(&session, 2), TurnId::new(&SessionId::new(), 1)] {
        for refused in
            [lab.engine.turn(&unknown).await, lab.engine.wait(&unknown).await, lab.engine.cancel_turn(&unknown).await]
        {
            assert!(matches!(&refused, Err(HostError::NotFound { what: "turn", .. })), "{refused:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_joins_the_running_turn_or_waits_for_one_of_its_own() {
    let lab = Lab::new();
    let session = lab.session().await;
    let first = held(&lab, &session, "go", "first").await;
    let queued = [queue(&lab, &session, "second").await, queue(&lab, &session, "third").await];
    let joined = submit(&lab.engine, &session, json!([{"text": "joined"}]), Delivery::Join).await;
    assert_eq!(joined.turn_id, Some(first.clone()));
    assert_eq!(queued.each_ref().map(|turn| turn.number), [2, 3]);
    assert_eq!(
        (turn(&lab, &first).await.state, turn(&lab, &queued[0]).await.state),
        (TurnState::Running, TurnState::Queued)
    );
    let current = ListTurns { current: true, ..ListTurns::default() };
    let current = lab.engine.turns(&session, current).await.unwrap().turns;
    assert_eq!(current.iter().map(|turn| (&turn.id, turn.state)).collect::<Vec<_>>(), [(&first, TurnState::Running)]);
    let users = |messages: &[api::MessageWithParts]| messages.iter().filter(|m| m.info.as_user().is_some()).count();
    assert_eq!(users(&lab.messages(&session).await), 2, "a queued prompt is no message yet");
    release(&lab, "go");
    assert_eq!(answer(&lab, &first).await, "joined");
    assert_eq!(turn(&lab, &first).await.prompts.len(), 2);
    assert_eq!((answer(&lab, &queued[0]).await, answer(&lab, &queued[1]).await), ("second".into(), "third".into()));
    // Every answer stands behind its prompt, by position and by id.
    let messages = lab.messages(&session).await;
    let texts: Vec<String> = messages.iter().filter(|m| m.info.as_assistant().is_some()).map(text).collect();
    assert_eq!(texts, ["w0 w1 w2 first", "joined", "second", "third"]);
    assert!(messages.is_sorted_by_key(|message| message.info.id().clone()), "clients sort by id");
    // Newest first, in pages.
    let mut listed = Vec::new();
    let mut before = None;
    loop {
        let query = ListTurns { before, limit: Some(2), ended: Some(true), ..ListTurns::default() };
        let page = lab.engine.turns(&session, query).await.unwrap();
        listed.extend(page.turns.into_iter().map(|turn| turn.id.number));
        before = page.older;
        if before.is_none() {
            break;
        }
    }
    assert_eq!(listed, [3, 2, 1]);
    let open = lab.engine.turns(&session, ListTurns { ended: Some(false), ..ListTurns::default() }).await.unwrap();
    assert_eq!(open.turns, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queued_turn_is_cancelled_alone() {
    let lab = Lab::new();
    let session = lab.session().await;
    let running = held(&lab, &session, "go", "first").await;
    let (gone, kept) = (queue(&lab, &session, "gone").await, queue(&lab, &session, "kept").await);
    let mut events = lab.recorder().await;
    let cancelled = lab.engine.cancel_turn(&gone).await.unwrap();
    assert_eq!((cancelled.state, cancelled.answer, cancelled.prompts.len()), (TurnState::Cancelled, None, 0));
    let told = |body: &EventBody| matches!(body, EventBody::SessionTurn { turn_id, state: TurnState::Cancelled, .. } if *turn_id == gone);
    events.wait_for(told).await;
    assert_eq!(turn(&lab, &running).await.state, TurnState::Running);
    assert_eq!(
        lab.engine.cancel_turn(&gone).await.unwrap().state,
        TurnState::Cancelled,
        "a second call changes nothing"
    );
    // The running one stops alone too: what is queued follows.
    let stopped = soon("its end", lab.engine.cancel_turn(&running)).await.unwrap();
    assert_eq!(stopped.state, TurnState::Cancelled, "{stopped:#?}");
    assert_eq!(answer(&lab, &kept).await, "kept");
    assert_eq!(lab.engine.cancel_turn(&kept).await.unwrap().state, TurnState::Done, "it has ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abort_of_the_session_ends_all_its_turns() {
    let lab = Lab::new();
    let session = lab.session().await;
    let running = held(&lab, &session, "go", "first").await;
    let queued = queue(&lab, &session, "queued").await;
    assert!(soon("the abort", lab.engine.abort(&session)).await.unwrap());
    for id in [&running, &queued] {
        assert_eq!(ended(&lab.engine, id).await.state, TurnState::Cancelled);
    }
    assert!(!lab.engine.abort(&session).await.unwrap(), "nothing is left");
    assert_eq!(lab.messages(&session).await.len(), 2, "the queued prompt never became a message");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_waits_says_for_what() {
    let lab = Lab::with(json!({"permission": {"bash": "ask"}}));
    let session = lab.session().await;
    let mut events = lab.recorder().await;
    let steps = json!([{"tools": [["bash", {"command": "true"}]]}, {"text": "done"}]);
    let id = submit(&lab.engine, &session, steps, Delivery::Join).await.turn_id.unwrap();
    let asked = events.wait_for(|body| matches!(body, EventBody::PermissionAsked(_))).await;
    let EventBody::PermissionAsked(ask) = asked.body.clone() else { panic!() };
    let waiting = turn(&lab, &id).await;
    assert_eq!(waiting.state, TurnState::Waiting);
    assert_eq!(waiting.asks.iter().map(|ask| ask.id.as_str()).collect::<Vec<_>>(), [ask.id.as_str()]);
    let reply = PermissionReply { reply: PermissionReplyKind::Once, message: None };
    lab.engine.reply_permission(&ask.id, reply).await.unwrap();
    assert_eq!(answer(&lab, &id).await, "done");
    assert_eq!(turn(&lab, &id).await.asks, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_fails_with_its_reason() {
    let lab = Lab::new();
    let session = lab.session().await;
    let steps = json!([{"http_error": 400, "error_body": {"error": {"message": "boom"}}}]);
    let id = submit(&lab.engine, &session, steps, Delivery::Queue).await.turn_id.unwrap();
    let failed = ended(&lab.engine, &id).await;
    assert_eq!(failed.state, TurnState::Failed);
    assert!(failed.error.unwrap().message().contains("boom"));
    assert!(failed.answer.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_id_is_queued_once() {
    let lab = Lab::new();
    let session = lab.session().await;
    let running = held(&lab, &session, "go", "first").await;
    let id = MessageId::new();
    let input = || PromptInput { message_id: Some(id.clone()), ..prompt(&script(json!([{"text": "queued"}]))) };
    let first = lab.engine.submit(&session, input(), Delivery::Queue).await.unwrap();
    let again = lab.engine.submit(&session, input(), Delivery::Queue).await.unwrap();
    assert_eq!((&first.turn_id, &first.message_id), (&again.turn_id, &Some(id.clone())));
    let other = lab.session().await;
    let taken = lab.engine.submit(&other, input(), Delivery::Queue).await;
    assert!(matches!(taken, Err(HostError::Conflict(_))), "{taken:?}");
    release(&lab, "go");
    ended(&lab.engine, &running).await;
    assert_eq!(answer(&lab, &first.turn_id.clone().unwrap()).await, "queued");
    let late = lab.engine.submit(&session, input(), Delivery::Join).await.unwrap();
    assert_eq!((late.turn_id, late.message_id), (first.turn_id, Some(id)));
}

#[tokio::test(flavor = "multi_thread")]
async fn queued_turns_survive_a_restart_and_run_in_order() {
    let mut lab = Lab::new();
    let session = lab.session().await;
    let running = held(&lab, &session, "go", "first").await;
    let queued = [queue(&lab, &session, "second").await, queue(&lab, &session, "third").await];
    lab.restart().await;
    assert_eq!(turn(&lab, &running).await.state, TurnState::Queued, "nobody runs it");
    release(&lab, "go");
    lab.engine.recover(None).await.unwrap();
    assert_eq!(answer(&lab, &running).await, "w0 w1 w2 first");
    assert_eq!((answer(&lab, &queued[0]).await, answer(&lab, &queued[1]).await), ("second".into(), "third".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_process_waits_for_a_turn_and_cancels_it() {
    let lab = Lab::new();
    let session = lab.session().await;
    let running = held(&lab, &session, "go", "first").await;
    let other = open(&lab.project);
    let queued = submit(&other, &session, json!([{"text": "queued"}]), Delivery::Queue).await.turn_id.unwrap();
    let gone = submit(&other, &session, json!([{"text": "gone"}]), Delivery::Queue).await.turn_id.unwrap();
    assert_eq!(other.turn(&running).await.unwrap().state, TurnState::Running);
    assert_eq!(other.cancel_turn(&gone).await.unwrap().state, TurnState::Cancelled);
    let stopped = soon("the end of another process's turn", other.cancel_turn(&running)).await.unwrap();
    assert_eq!(stopped.state, TurnState::Cancelled);
    assert_eq!(ended(&other, &queued).await.state, TurnState::Done);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queued_prompt_that_cannot_run_any_more_fails_visibly() {
    let lab = Lab::with(json!({"agent": {"soon-gone": {"mode": "primary"}}}));
    let session = lab.session().await;
    let running = held(&lab, &session, "go", "first").await;
    let input = PromptInput { agent: Some("soon-gone".to_owned()), ..prompt("Hello") };
    let bad = PromptInput { agent: Some("unknown".to_owned()), ..prompt("Hello") };
    assert!(matches!(lab.engine.submit(&session, bad, Delivery::Queue).await, Err(HostError::NotFound { .. })));
    let doomed = lab.engine.submit(&session, input, Delivery::Queue).await.unwrap().turn_id.unwrap();
    let kept = queue(&lab, &session, "kept").await;
    lab.project.write_home(".config/opencode/opencode.json", "{}");
    release(&lab, "go");
    ended(&lab.engine, &running).await;
    let failed = ended(&lab.engine, &doomed).await;
    assert_eq!(failed.state, TurnState::Failed, "{failed:#?}");
    assert!(failed.error.unwrap().message().contains("soon-gone"));
    assert_eq!(answer(&lab, &kept).await, "kept");
}
