//! A turn continues from the cached conversation, which always matches the rows.

use crate::common::{Lab, prompt, text};
use api::{Host, Part, PromptInput, SessionId, ShellInput};
use serde_json::{Value, json};
use testkit::{ModelServer, Reply};

/// The last request to the model, without the system prompt.
fn last_request(model: &ModelServer) -> Vec<Value> {
    let request = model.requests().pop().unwrap();
    request.messages().iter().filter(|message| message["role"] != "system").cloned().collect()
}

/// A lab after one turn: "one" was answered with "first".
async fn lab_after_one_turn() -> (ModelServer, Lab, SessionId, api::MessageWithParts) {
    let model = ModelServer::start().await;
    let lab = Lab::with(model.config());
    let session = lab.session().await;
    model.enqueue(Reply::text("first"));
    let answer = lab.say(&session, "one").await;
    (model, lab, session, answer)
}

/// Sends another prompt. Returns the request to the model, as text.
async fn prompt_again(model: &ModelServer, lab: &Lab, session: &SessionId) -> String {
    model.enqueue(Reply::text("more"));
    lab.say(session, "two").await;
    Value::from(last_request(model)).to_string()
}

#[tokio::test]
async fn a_cached_conversation_equals_what_a_restart_reads() {
    let (model, mut lab, session, _) = lab_after_one_turn().await;
    lab.project.write("a.txt", "alpha\n");
    model.enqueue(Reply::error(503, json!({"error": {"message": "busy"}})));
    model.enqueue(
        Reply::default().reasoning("hm").and_text("let me see").tool("c1", "read", json!({"filePath": "a.txt"})).tool(
            "c2",
            "read",
            json!({"filePath": "missing.txt"}),
        ),
    );
    model.enqueue(Reply::text("alpha"));
    lab.say(&session, "what is in a.txt").await;
    model.enqueue(Reply::text("kept"));
    lab.say(&session, "go on").await;
    let kept = last_request(&model);
    assert!(kept.len() > 6, "{kept:?}");

    lab.restart().await;
    model.enqueue(Reply::text("read"));
    lab.say(&session, "and on").await;
    let read = last_request(&model);
    assert_eq!(read[..kept.len()], kept[..]);
    assert_eq!(read.len(), kept.len() + 2);
}

#[tokio::test]
async fn a_part_that_a_client_changed_is_seen() {
    let (model, lab, session, answer) = lab_after_one_turn().await;
    let mut part = answer.parts.iter().find(|part| part.as_text().is_some()).cloned().unwrap();
    let Part::Text(inner) = &mut part else { unreachable!() };
    inner.text = "corrected".to_owned();
    lab.engine.update_part(part).await.unwrap();
    let asked = prompt_again(&model, &lab, &session).await;
    assert!(asked.contains("corrected") && !asked.contains("first"), "{asked}");
}

#[tokio::test]
async fn a_message_that_a_client_removed_is_gone() {
    let (model, lab, session, answer) = lab_after_one_turn().await;
    lab.engine.delete_message(&session, answer.info.id()).await.unwrap();
    let asked = prompt_again(&model, &lab, &session).await;
    assert!(asked.contains("one") && !asked.contains("first"), "{asked}");
}

#[tokio::test]
async fn a_note_without_a_reply_is_seen() {
    let (model, lab, session, _) = lab_after_one_turn().await;
    let note = PromptInput { no_reply: true, ..prompt("by the way") };
    lab.engine.prompt(&session, note).await.unwrap();
    let asked = prompt_again(&model, &lab, &session).await;
    assert!(asked.contains("first") && asked.contains("by the way"), "{asked}");
}

#[tokio::test]
async fn a_shell_command_of_the_user_is_seen() {
    let (model, lab, session, _) = lab_after_one_turn().await;
    let input = ShellInput { command: "echo from-the-shell".to_owned(), ..ShellInput::default() };
    lab.engine.shell(&session, input).await.unwrap();
    let asked = prompt_again(&model, &lab, &session).await;
    assert!(asked.contains("first") && asked.contains("from-the-shell"), "{asked}");
}

#[tokio::test]
async fn a_turn_of_another_process_is_seen() {
    let (model, lab, session, _) = lab_after_one_turn().await;
    let other = lab.second();
    model.enqueue(Reply::text("from elsewhere"));
    let answer = other.prompt(&session, prompt("meanwhile")).await.unwrap();
    assert_eq!(text(&answer), "from elsewhere");
    let asked = prompt_again(&model, &lab, &session).await;
    assert!(asked.contains("meanwhile") && asked.contains("from elsewhere"), "{asked}");
    other.shutdown().await;
}
