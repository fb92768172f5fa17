//! Large amounts of everything: runaway answers, long texts, long sessions.

use crate::common::{Lab, prompt, script, text};
use api::{EventBody, Host, Message, MessageId, MessageWithParts, Part, PartHead, SessionId};
use serde_json::{Value, json};
use store::{Batch, Location, Store};
use testkit::{ModelCall, ModelServer, Reply, eventually, soon};

/// The maximum size of a text part.
const PART_MAX: usize = 256 << 10;

/// Makes the model send this again and again.
async fn send_forever(mut call: ModelCall, delta: Value) {
    let chunk = format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": delta}]}));
    loop {
        call.raw(chunk.clone()).await;
        tokio::task::yield_now().await;
    }
}

fn store(lab: &Lab) -> Store {
    lab.engine.store().clone()
}

/// The size of every event in the log.
fn event_sizes(store: &Store) -> Vec<usize> {
    let (mut sizes, mut at) = (Vec::new(), 0);
    while let Some((frames, next)) = store.history(at).unwrap() {
        sizes.extend(frames.iter().map(|frame| frame.json().len()));
        at = next;
    }
    sizes
}

async fn runaway(delta: Value) -> (ModelServer, Lab, SessionId, MessageWithParts) {
    let mut model = ModelServer::start().await;
    let lab = Lab::with(model.config());
    let session = lab.session().await;
    lab.engine.prompt_async(&session, prompt("go")).await.unwrap();
    let call = model.next_call().await;
    let speaking = tokio::spawn(send_forever(call, delta));
    let idle = async || lab.engine.statuses(&lab.scope).await.unwrap().is_empty();
    eventually("the end of an answer that has none", idle).await;
    speaking.abort();
    let answer = lab.messages(&session).await.pop().unwrap();
    (model, lab, session, answer)
}

fn written(answer: &MessageWithParts) -> Vec<&str> {
    let texts = answer.parts.iter().filter_map(|part| match part {
        Part::Text(text) => Some(text.text.as_str()),
        Part::Reasoning(text) => Some(text.text.as_str()),
        _ => None,
    });
    texts.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runaway_answer_is_ended_with_an_error() {
    let (model, lab, session, answer) = runaway(json!({"content": "x".repeat(20_000)})).await;
    let info = answer.info.as_assistant().unwrap();
    let error = info.error.as_ref().unwrap();
    assert_eq!((error.name(), info.finish.as_deref()), ("MessageOutputLengthError", Some("length")));
    assert!(error.message().contains("4 MB") && error.message().contains("is kept"), "{error:?}");
    let texts = written(&answer);
    let bytes: usize = texts.iter().map(|text| text.len()).sum();
    assert!(bytes <= llm::MAX_ANSWER && bytes > llm::MAX_ANSWER - 40_000, "the text written so far stays: {bytes}");
    assert!(texts.iter().all(|text| text.len() <= PART_MAX), "no part exceeds the limit");
    let sizes = event_sizes(&store(&lab));
    assert!(sizes.iter().all(|size| *size < PART_MAX + 1000), "nor is an event: {:?}", sizes.iter().max());
    assert!(sizes.iter().sum::<usize>() < 2 * llm::MAX_ANSWER, "the text is not sent repeatedly");
    // The session stays usable: the model gets only the beginning of the answer.
    model.enqueue(Reply::text("better"));
    assert_eq!(text(&lab.say(&session, "shorter, please").await), "better");
    let asked = model.requests().pop().unwrap();
    assert!(asked.body.to_string().len() < 200_000, "{}", asked.body.to_string().len());
    assert!(asked.messages().iter().any(|m| m["content"].as_str().is_some_and(|text| text.contains("without end"))));
}

#[tokio::test(flavor = "multi_thread")]
async fn runaway_reasoning_and_arguments_are_ended_too() {
    let (_, _, _, answer) = runaway(json!({"reasoning_content": "x".repeat(100_000)})).await;
    let name = |answer: &MessageWithParts| answer.info.as_assistant().unwrap().error.as_ref().unwrap().name();
    assert_eq!(name(&answer), "MessageOutputLengthError");
    assert!(written(&answer).iter().all(|text| text.len() <= PART_MAX));
    let call = json!({"index": 0, "id": "c", "function": {"name": "bash", "arguments": "x".repeat(100_000)}});
    let (_, _, _, answer) = runaway(json!({"tool_calls": [call]})).await;
    assert_eq!(name(&answer), "MessageOutputLengthError");
    let tool = answer.parts.iter().find_map(Part::as_tool).unwrap();
    assert_eq!(tool.state.status(), "error", "it did not run");
}

#[tokio::test]
async fn a_long_text_is_one_text_for_the_model() {
    let model = ModelServer::start().await;
    let lab = Lab::with(model.config());
    let session = lab.session().await;
    let long: String = (0..100_000).map(|n| format!("é{n} ")).collect();
    assert!(long.len() > 2 * PART_MAX);
    let pieces = long.as_bytes().chunks(70_001).count();
    let reply = split(&long, pieces).into_iter().fold(Reply::default(), Reply::and_text);
    model.enqueue(reply);
    let answer = lab.say(&session, "tell me all").await;
    assert!(written(&answer).len() >= 3 && text(&answer) == long);
    let parts = answer.parts.iter().filter_map(Part::head).map(|head| &head.id);
    assert!(parts.clone().is_sorted(), "clients sort them by id");
    model.enqueue(Reply::text("ok"));
    lab.say(&session, "and now").await;
    let asked = model.requests().pop().unwrap();
    let told = asked.messages().iter().find(|message| message["role"] == "assistant").unwrap();
    assert!(told["content"] == long.as_str(), "without anything between the parts");
    assert_eq!(lab.messages(&session).await[1], answer, "the rows say the same");
}

/// A text in this many pieces.
fn split(text: &str, pieces: usize) -> Vec<String> {
    let letters: Vec<char> = text.chars().collect();
    letters.chunks(letters.len().div_ceil(pieces)).map(|piece| piece.iter().collect()).collect()
}

#[tokio::test]
async fn a_runaway_title_is_cut_off() {
    let mut model = ModelServer::start().await;
    let lab = Lab::with(model.config());
    let session = lab.engine.create_session(&lab.scope, api::CreateSession::default()).await.unwrap().id;
    lab.engine.prompt_async(&session, prompt("go")).await.unwrap();
    let mut calls = [model.next_call().await, model.next_call().await];
    calls.sort_by_key(|call| call.request.tools().len());
    let [mut title, answer] = calls;
    // Much less than the client would get if it read to the end.
    for _ in 0..80 {
        title.text("A title ".repeat(128)).await;
    }
    title.closed().await;
    answer.finish("stop").await;
    let titled = async || lab.engine.session(&session).await.unwrap().title.starts_with("A title A title");
    eventually("a title, as far as it was heard", titled).await;
}

/// A stored session with this many turns.
async fn long_session(lab: &Lab, turns: usize) -> SessionId {
    let session = lab.session().await;
    let proto = lab.say(&session, &script(json!([{"text": "an answer"}]))).await;
    let rows = lab.messages(&session).await;
    let (user, answer) = (&rows[0], &rows[1]);
    assert_eq!(*answer, proto);
    let store = store(lab);
    let mut batch = Batch::new(&Location::new(lab.scope.directory.as_str(), "p"));
    for turn in 0..turns {
        let (prompt, created) = (MessageId::new(), answer.info.created() + 1 + turn as i64);
        for row in [user, answer] {
            let mut info = row.info.clone();
            match &mut info {
                Message::User(info) => (info.id, info.time.created) = (prompt.clone(), created),
                Message::Assistant(info) => {
                    (info.id, info.time.created) = (MessageId::new(), created);
                    info.parent_id = prompt.clone();
                }
            }
            let id = info.id().clone();
            batch.insert_message(&info);
            for mut part in row.parts.clone() {
                *part.head_mut().unwrap() = PartHead::new(&session, &id);
                batch.insert_part(&part);
            }
        }
    }
    store.commit(batch).await.unwrap();
    session
}

/// The content of messages, without ids and times.
fn contents(messages: &[MessageWithParts]) -> Vec<(bool, String, usize)> {
    let one = |m: &MessageWithParts| (m.info.as_user().is_some(), text(m), m.parts.len());
    messages.iter().map(one).collect()
}

#[tokio::test]
async fn a_long_session_is_forked_in_pages_with_one_event() {
    let lab = Lab::new();
    let session = long_session(&lab, 300).await;
    let before = event_sizes(&store(&lab)).len();
    let fork = lab.engine.fork_session(&session, None).await.unwrap();
    let (ours, theirs) = (lab.messages(&session).await, lab.messages(&fork.id).await);
    assert_eq!(contents(&ours), contents(&theirs));
    assert_eq!(event_sizes(&store(&lab)).len(), before + 1, "subscribers are told of the session, and read the rest");
    let ids: Vec<&MessageId> = theirs.iter().map(|m| m.info.id()).collect();
    assert!(ids.is_sorted(), "clients sort by id");
    for message in &theirs {
        assert_eq!(*message.info.session_id(), fork.id);
        let heads = message.parts.iter().filter_map(Part::head);
        assert!(heads.clone().all(|head| head.session_id == fork.id && head.message_id == *message.info.id()));
        if let Some(answer) = message.info.as_assistant() {
            assert!(ids.contains(&&answer.parent_id), "it answers a prompt of the copy");
        }
    }
    assert_eq!(store(&lab).lease_holder(&fork.id).unwrap(), None);
    // A long session can be forked up to a message, too.
    let half = lab.engine.fork_session(&session, Some(ours[400].info.id().clone())).await.unwrap();
    assert_eq!(contents(&lab.messages(&half.id).await), contents(&ours[..400]));
    let unknown = lab.engine.fork_session(&session, Some(MessageId::new())).await;
    assert!(matches!(unknown, Err(api::HostError::NotFound { .. })), "{unknown:?}");
    // The fork is an ordinary session.
    assert_eq!(text(&lab.say(&fork.id, &script(json!([{"text": "goes on"}]))).await), "goes on");
}

#[tokio::test]
async fn a_caller_that_hangs_up_leaves_no_half_copy() {
    let lab = Lab::new();
    let session = long_session(&lab, 300).await;
    let mut events = lab.recorder().await;
    let copying = lab.engine.fork_session(&session, None);
    // It has started, and nobody waits for it any more.
    assert!(futures::FutureExt::now_or_never(copying).is_none());
    let created = events.wait_for(|body| matches!(body, EventBody::SessionCreated { .. })).await;
    let fork = created.body.session_id().unwrap().clone();
    assert_eq!(lab.messages(&fork).await.len(), 602, "it was finished");
}

#[tokio::test]
async fn an_unfinished_copy_is_removed_at_the_next_start() {
    let lab = Lab::new();
    let id = SessionId::new();
    {
        // Another process that dies in the middle of it.
        let other = lab.second();
        let place = Location::new(lab.scope.directory.as_str(), "p");
        let mut draft = store::SessionDraft::new(other.store(), &place, &id);
        let mut piece = draft.new_batch();
        let info = json!({"role": "user", "id": MessageId::new(), "sessionID": id, "time": {"created": 1},
            "agent": "build", "model": {"providerID": "script", "modelID": "demo"}});
        piece.insert_message(&serde_json::from_value(info).unwrap());
        draft.add(piece).await.unwrap();
        soon("the end of the other engine", other.shutdown()).await;
    }
    eventually("the other process is gone", async || !store(&lab).abandoned_drafts().unwrap().is_empty()).await;
    assert!(lab.engine.session(&id).await.is_err());
    assert_eq!(store(&lab).messages(&id, None, None).unwrap().messages.len(), 1);
    lab.engine.recover(None).await.unwrap();
    assert!(store(&lab).messages(&id, None, None).unwrap().messages.is_empty());
}
