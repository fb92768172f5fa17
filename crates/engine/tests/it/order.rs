//! Clocks that are wrong or go back: everything happens in order, and the model sees it in that order.

use crate::common::{Lab, prompt, script, text};
use api::{
    EventBody, Host, ListMessages, Message, MessageId, MessageWithParts, Part, PromptInput, SessionId, SessionStatus,
    ToolState, UserMessage,
};
use serde_json::{Value, json};
use store::{Batch, Location};
use testkit::{ModelServer, Reply, soon};

const MINUTE: i64 = 60_000;

/// The last request to the model, one line per message: `user one`, `assistant`, `tool`.
fn last_request(model: &ModelServer) -> Vec<String> {
    let request = model.requests().pop().unwrap();
    let line = |message: &Value| {
        let words = match &message["content"] {
            Value::String(text) => text.clone(),
            parts => parts[0]["text"].as_str().unwrap_or_default().to_owned(),
        };
        let role = message["role"].as_str().unwrap().to_owned();
        if role == "user" { format!("user {words}") } else { role }
    };
    request.messages().iter().filter(|message| message["role"] != "system").map(line).collect()
}

/// The prompts of a session as listed. Checks that messages and parts sort by id in that order.
async fn prompts(lab: &Lab, session: &SessionId, sorted: bool) -> Vec<String> {
    let messages = lab.messages(session).await;
    let (mut before, mut pages) = (None, Vec::new());
    loop {
        let page = ListMessages { limit: Some(2), before };
        let page = lab.engine.messages(session, page).await.unwrap();
        pages.splice(0..0, page.messages);
        before = page.older;
        if before.is_none() {
            break;
        }
    }
    assert_eq!(pages, messages);
    if sorted {
        assert!(messages.is_sorted_by_key(|message| message.info.id().clone()), "{messages:#?}");
    }
    for message in &messages {
        assert!(message.parts.is_sorted_by_key(|part| part.head().unwrap().id.clone()), "{message:#?}");
    }
    messages.iter().filter(|message| message.info.as_user().is_some()).map(text).collect()
}

/// Six prompts with a call each, while the clock is off by these minutes. A restart precedes every other one.
async fn six_prompts(minutes: [i64; 6]) {
    let model = ModelServer::start().await;
    let mut lab = Lab::with(model.config());
    let session = lab.session().await;
    let mut wanted = Vec::new();
    for (place, minutes) in minutes.into_iter().enumerate() {
        api::shift_clock(minutes * MINUTE);
        if place % 2 == 1 {
            lab.restart().await;
        }
        let call = json!({"command": format!("echo {place} >> ran.txt"), "description": "say"});
        model.enqueue(Reply::text("let me see").tool(format!("call{place}"), "bash", call));
        model.enqueue(Reply::text(format!("done {place}")));
        let said = format!("prompt {place}");
        let answer = lab.say(&session, &said).await;
        assert_eq!(text(&answer), format!("done {place}"));
        wanted.push(said);
        // Everything before, then this prompt, its call and its result.
        let turn = |said: &String| [format!("user {said}"), "assistant".into(), "tool".into(), "assistant".into()];
        let mut conversation: Vec<String> = wanted.iter().flat_map(turn).collect();
        conversation.pop();
        assert_eq!(last_request(&model), conversation);
    }
    assert_eq!(lab.project.read("ran.txt"), "0\n1\n2\n3\n4\n5\n");
    assert_eq!(prompts(&lab, &session, true).await, wanted);
}

#[tokio::test]
async fn prompts_work_after_a_history_from_the_future() {
    six_prompts([5, 5, 0, 0, 0, 0]).await;
}

#[tokio::test]
async fn prompts_work_while_the_clock_goes_back_and_forth() {
    six_prompts([0, -10, 10, -20, 5, -5]).await;
}

#[tokio::test]
async fn prompts_work_while_the_clock_goes_back_each_time() {
    six_prompts([0, -1, -2, -3, -4, -5]).await;
}

#[tokio::test]
async fn prompts_work_while_the_clock_jumps_by_years() {
    six_prompts([0, 60 * 24 * 900, 0, -60 * 24 * 900, 0, 0]).await;
}

#[tokio::test]
async fn a_clock_that_moves_inside_a_turn_changes_nothing() {
    let mut model = ModelServer::start().await;
    let lab = Lab::with(model.config());
    let session = lab.session().await;
    let (engine, id) = (lab.engine.clone(), session.clone());
    let turn = tokio::spawn(async move { engine.prompt(&id, prompt("one")).await.unwrap() });
    // Between parts: the text begins, the clock goes back, then more text and a call arrive.
    let mut call = model.next_call().await;
    call.reasoning("hm").await;
    api::shift_clock(-7 * MINUTE);
    call.text("let me see").await;
    api::shift_clock(3 * MINUTE);
    call.tool("c1", "bash", json!({"command": "echo a", "description": "say"})).await;
    call.finish("tool_calls").await;
    // Between steps, and before a prompt that joins.
    let mut call = model.next_call().await;
    api::shift_clock(-90 * MINUTE);
    let joined = lab.engine.prompt_async(&session, prompt("two")).await.unwrap();
    call.tool("c2", "bash", json!({"command": "echo b", "description": "say"})).await;
    call.finish("tool_calls").await;
    let mut call = model.next_call().await;
    let want = ["user one", "assistant", "tool", "assistant", "tool", "user two"];
    assert_eq!(last_request(&model), want);
    api::shift_clock(0);
    call.text("both").await;
    call.finish("stop").await;
    let answer = soon("the end of the turn", turn).await.unwrap();
    assert_eq!(text(&answer), "both");
    assert_eq!(answer.info.as_assistant().unwrap().parent_id, joined);
    assert_eq!(prompts(&lab, &session, true).await, ["one", "two"]);
    let kinds: Vec<&str> = lab.messages(&session).await[1]
        .parts
        .iter()
        .map(|part| match part {
            Part::StepStart(_) => "start",
            Part::Reasoning(_) => "reasoning",
            Part::Text(_) => "text",
            Part::Tool(_) => "tool",
            Part::StepFinish(_) => "finish",
            _ => "other",
        })
        .collect();
    assert_eq!(kinds, ["start", "reasoning", "text", "tool", "finish"]);
}

#[tokio::test]
async fn a_prompt_that_is_sent_again_gets_its_own_answer() {
    let mut lab = Lab::new();
    let session = lab.session().await;
    let mut sent: Vec<(MessageId, String)> = Vec::new();
    for (place, minutes) in [0, -30, 30, -60].into_iter().enumerate() {
        api::shift_clock(minutes * MINUTE);
        let id = MessageId::parse(&format!("msg_own{}", 9 - place)).unwrap();
        let said = script(json!([{"text": format!("answer {place}")}]));
        let input = PromptInput { message_id: Some(id.clone()), ..prompt(&said) };
        lab.engine.prompt(&session, input).await.unwrap();
        sent.push((id, format!("answer {place}")));
    }
    // Two prompts that one turn answers, with the clock going back before the second.
    let gate = lab.gate("go");
    let input = |id: &MessageId, steps| PromptInput { message_id: Some(id.clone()), ..prompt(&script(steps)) };
    let (first, second) = (MessageId::parse("msg_own1").unwrap(), MessageId::parse("msg_own0").unwrap());
    let mut events = lab.recorder().await;
    let held = json!([{"text": "first", "chunks": 2, "hold": gate}]);
    lab.engine.prompt_async(&session, input(&first, held)).await.unwrap();
    events.wait_for(|body| matches!(body, EventBody::PartDelta { .. })).await;
    api::shift_clock(-120 * MINUTE);
    lab.engine.prompt_async(&session, input(&second, json!([{"text": "second"}]))).await.unwrap();
    std::fs::write(&gate, "").unwrap();
    events.wait_idle(&session).await;
    sent.extend([(first, "second".to_owned()), (second, "second".to_owned())]);

    for restarts in [false, true] {
        if restarts {
            api::shift_clock(200 * MINUTE);
            lab.restart().await;
        }
        for (id, wanted) in &sent {
            let input = PromptInput { message_id: Some(id.clone()), ..prompt("the same") };
            let again = soon("the answer", lab.engine.prompt(&session, input)).await.unwrap();
            assert_eq!(text(&again), *wanted, "{id}, restarts: {restarts}");
        }
    }
}

#[tokio::test]
async fn ids_chosen_by_clients_are_accepted_wherever_they_sort() {
    let model = ModelServer::start().await;
    let mut lab = Lab::with(model.config());
    let session = lab.session().await;
    let mut wanted = Vec::new();
    for (place, id) in
        ["msg_zzzz", "msg_000000000000aaaa", "msg", "msg_ffffffffffffzzzz", "msg_!", "msg_000000000001aaaa"]
            .into_iter()
            .enumerate()
    {
        model.enqueue(Reply::text("ok"));
        let message_id = Some(MessageId::parse(id).unwrap());
        let said = format!("prompt {place}");
        let input = PromptInput { message_id, ..prompt(&said) };
        let answer = soon("the answer", lab.engine.prompt(&session, input)).await.unwrap();
        assert_eq!(answer.info.as_assistant().unwrap().parent_id.as_str(), id);
        wanted.push(said);
        let turn = |said: &String| [format!("user {said}"), "assistant".into()];
        let mut conversation: Vec<String> = wanted.iter().flat_map(turn).collect();
        conversation.pop();
        assert_eq!(last_request(&model), conversation);
        if place % 2 == 0 {
            lab.restart().await;
        }
    }
    assert_eq!(prompts(&lab, &session, false).await, wanted);
}

/// Stores a conversation from another machine whose clock is ahead by this much.
async fn import_session(lab: &Lab, ahead: i64) -> SessionId {
    api::shift_clock(ahead);
    let session = lab.session().await;
    let info = lab.engine.session(&session).await.unwrap();
    let mut batch = Batch::new(&Location::new(info.directory.as_str(), info.project_id.as_str()));
    for place in 0..2 {
        let user: UserMessage = serde_json::from_value(json!({
            "id": MessageId::new(), "sessionID": session, "time": {"created": api::now()}, "agent": "build",
            "model": {"providerID": "test", "modelID": "test-model"},
        }))
        .unwrap();
        let part: Part = serde_json::from_value(json!({
            "type": "text", "id": api::PartId::new(), "sessionID": session, "messageID": user.id,
            "text": format!("imported {place}"),
        }))
        .unwrap();
        let answer: Message = serde_json::from_value(json!({
            "role": "assistant", "id": MessageId::new(), "sessionID": session, "parentID": user.id, "mode": "build",
            "agent": "build", "path": {"cwd": "/", "root": "/"}, "cost": 0, "finish": "stop",
            "tokens": {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}},
            "modelID": "test-model", "providerID": "test", "time": {"created": api::now(), "completed": api::now()},
        }))
        .unwrap();
        let said: Part = serde_json::from_value(json!({
            "type": "text", "id": api::PartId::new(), "sessionID": session, "messageID": answer.id(),
            "text": format!("answered {place}"), "time": {"start": api::now(), "end": api::now()},
        }))
        .unwrap();
        batch.insert_message(&Message::User(user));
        batch.part(&part);
        batch.insert_message(&answer);
        batch.part(&said);
    }
    lab.engine.store().commit(batch).await.unwrap();
    api::shift_clock(0);
    session
}

#[tokio::test]
async fn a_session_from_the_future_continues_after_its_history_and_so_does_its_fork() {
    let model = ModelServer::start().await;
    let mut lab = Lab::with(model.config());
    let session = import_session(&lab, 5 * MINUTE).await;
    let fork = lab.engine.fork_session(&session, None).await.unwrap().id;
    for session in [&session, &fork] {
        for said in ["next", "and then"] {
            model.enqueue(Reply::text("ok"));
            lab.say(session, said).await;
        }
        let want = ["user imported 0", "assistant", "user imported 1", "assistant", "user next", "assistant"];
        assert_eq!(last_request(&model)[..6], want);
        assert_eq!(last_request(&model)[6..], ["user and then"]);
        assert_eq!(prompts(&lab, session, true).await, ["imported 0", "imported 1", "next", "and then"]);
    }
    // Other ways to get an id keep the same order.
    let chosen = lab.engine.message_id(&session).await.unwrap();
    assert!(lab.messages(&session).await.iter().all(|message| *message.info.id() < chosen));
    lab.restart().await;
    let shell = api::ShellInput { command: "echo hi".to_owned(), ..api::ShellInput::default() };
    lab.engine.shell(&session, shell).await.unwrap();
    assert_eq!(prompts(&lab, &session, true).await.len(), 5);
    // An imported prompt that is sent again gets its own answer.
    let first = lab.messages(&session).await.swap_remove(0);
    let input = PromptInput { message_id: Some(first.info.id().clone()), ..prompt("again") };
    let answer = soon("the answer", lab.engine.prompt(&session, input)).await.unwrap();
    assert_eq!(text(&answer), "answered 0");
}

#[tokio::test]
async fn repaired_parts_come_after_existing_ones() {
    let mut lab = Lab::new();
    let session = lab.session().await;
    api::shift_clock(5 * MINUTE);
    let mut events = lab.recorder().await;
    let steps = json!([
        {"text": "reading", "tools": [["bash", {"command": "touch began; sleep 1000", "description": "wait"}]]},
        {"text": "after"},
    ]);
    lab.engine.prompt_async(&session, prompt(&script(steps))).await.unwrap();
    events
        .wait_for(|body| {
            matches!(body, EventBody::PartUpdated { part, .. } if part.as_tool().is_some_and(|tool| {
                matches!(tool.state, ToolState::Running(_))
            }))
        })
        .await;
    lab.restart().await;
    api::shift_clock(0);
    let mut events = lab.recorder().await;
    lab.engine.recover(None).await.unwrap();
    events.wait_idle(&session).await;
    let messages: Vec<MessageWithParts> = lab.messages(&session).await;
    assert!(matches!(messages[1].parts.last(), Some(Part::StepFinish(_))), "{messages:#?}");
    assert_eq!(text(messages.last().unwrap()), "after");
    prompts(&lab, &session, true).await;
    let statuses = lab.engine.statuses(&lab.scope).await.unwrap();
    assert!(statuses.values().all(|status| *status == SessionStatus::Idle), "{statuses:?}");
}

#[tokio::test]
async fn an_ask_expires_on_time_when_the_clock_goes_back() {
    let config = json!({"permission": {"bash": "ask"}, "ask": {"timeout": 1}});
    for restarts in [false, true] {
        let mut lab = Lab::with(config.clone());
        let session = lab.session().await;
        let mut events = lab.recorder().await;
        api::shift_clock(600 * MINUTE);
        let steps = json!([{"tools": [["bash", {"command": "echo x", "description": "say"}]]}, {"text": "after"}]);
        lab.engine.prompt_async(&session, prompt(&script(steps))).await.unwrap();
        events.wait_for(|body| matches!(body, EventBody::PermissionAsked(_))).await;
        api::shift_clock(0);
        if restarts {
            lab.restart().await;
            events = lab.recorder().await;
            lab.engine.recover(None).await.unwrap();
        }
        events.wait_idle(&session).await;
        let tools = lab.tools(&session).await;
        let ToolState::Error(error) = &tools[0].state else { panic!("{tools:?}") };
        assert!(error.error.contains("Nobody answered"), "{error:?}");
    }
}
