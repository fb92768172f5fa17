//! Replays the recorded scenarios that need no later feature: each session has the same order of parts, states, deltas,
//! asks and errors as in OpenCode.

use crate::common::Lab;
use api::{Host, PermissionReply, PermissionReplyKind, PromptInput, PromptPart, QuestionId};
use serde_json::{Value, json};

/// The prompts of a scenario, in order.
fn prompts(events: &[Value]) -> Vec<String> {
    let of_user = |event: &&Value| {
        let part = &event["properties"]["part"];
        event["type"] == "message.part.updated"
            && part["type"] == "text"
            && part["time"].is_null()
            && part["synthetic"].is_null()
    };
    events.iter().filter(of_user).map(|e| e["properties"]["part"]["text"].as_str().unwrap().to_owned()).collect()
}

/// Replays a scenario and compares the outlines.
async fn replay(scenario: &str, config: Value, feedback: Option<&str>) {
    let recorded = testkit::recorded_events(scenario);
    let lab = Lab::with(config);
    lab.project.write("hello.txt", "hello world\n");
    lab.project.write("a.txt", "alpha\n");
    lab.project.write("edit_noread.txt", "aaa\n");
    lab.project.write("edit_me.txt", "line one\nline two\nline three\n");
    lab.project.write("src/main.rs", "fn main() {\n    println!(\"hi\");\n}\n");
    let session = lab.session().await;
    let mut events = lab.recorder().await;
    let replies: Vec<&Value> = recorded.iter().filter(|e| e["type"] == "permission.replied").collect();
    let answers: Vec<&Value> = recorded.iter().filter(|e| e["type"] == "question.replied").collect();
    let (mut replies, mut answers) = (replies.into_iter(), answers.into_iter());
    for prompt in prompts(&recorded) {
        let prompt = prompt
            .replace("/home/user/proj-ask", "/home/user/proj")
            .replace("/home/user/proj", &lab.project.directory());
        let input = PromptInput { parts: vec![PromptPart::text(prompt)], ..PromptInput::default() };
        lab.engine.prompt_async(&session, input).await.unwrap();
        loop {
            let event = events
                .wait_for(|body| {
                    use api::EventBody::{PermissionAsked, QuestionAsked, SessionIdle};
                    matches!(body, PermissionAsked(_) | QuestionAsked(_) | SessionIdle { .. })
                })
                .await;
            match &event.body {
                api::EventBody::PermissionAsked(ask) => {
                    let open = lab.engine.permissions(&lab.scope).await.unwrap();
                    if !open.iter().any(|other| other.id == ask.id) {
                        continue;
                    }
                    let kind = replies.next().map_or("reject", |e| e["properties"]["reply"].as_str().unwrap());
                    let reply: PermissionReplyKind = serde_json::from_value(json!(kind)).unwrap();
                    let reply = PermissionReply { reply, message: feedback.map(str::to_owned) };
                    lab.engine.reply_permission(&ask.id, reply).await.unwrap();
                }
                api::EventBody::QuestionAsked(ask) => {
                    let id: QuestionId = ask.id.clone();
                    let given =
                        answers.next().map(|e| serde_json::from_value(e["properties"]["answers"].clone()).unwrap());
                    lab.engine.reply_question(&id, given).await.unwrap();
                }
                _ => break,
            }
        }
    }
    let ours: Vec<Value> = events.events().iter().map(|e| serde_json::to_value(&**e).unwrap()).collect();
    // Connection events belong to the server.
    let of_turns = |events: &[Value]| {
        let lines = testkit::outline(events);
        lines.into_iter().filter(|line| !line.starts_with("server.")).collect::<Vec<_>>()
    };
    assert_eq!(of_turns(&ours), of_turns(&recorded), "{scenario}: the left side is ours, the right side is recorded");
    lab.engine.shutdown().await;
}

fn asking() -> Value {
    json!({"permission": {"bash": "ask", "edit": "ask", "webfetch": "deny"}})
}

macro_rules! scenario {
    ($($name:ident: $scenario:literal, $config:expr, $feedback:expr;)*) => {$(
        #[tokio::test]
        async fn $name() {
            replay($scenario, $config, $feedback).await;
        }
    )*};
}

scenario! {
    bash: "05_tool_bash", json!({}), None;
    write: "05_tool_write", json!({}), None;
    edit: "05_tool_edit", json!({}), None;
    edit_without_read: "05_tool_edit_without_read", json!({}), None;
    glob: "05_tool_glob", json!({}), None;
    grep: "05_tool_grep", json!({}), None;
    todowrite: "05_tool_todowrite", json!({}), None;
    unknown_tool: "05_tool_unknown", json!({}), None;
    bad_arguments: "05_tool_bad_args", json!({}), None;
    bad_json: "05_tool_bad_json_args", json!({}), None;
    bash_once: "15_permission_bash_once", asking(), None;
    bash_always: "15_permission_bash_always", asking(), None;
    edit_once: "15_permission_edit_once", asking(), None;
    write_once: "15_permission_write_once", asking(), None;
    rejected: "15_permission_reject", asking(), None;
    rejected_with_feedback: "15_permission_reject_message", asking(), Some("use trash instead");
    denied: "15_permission_denied_by_rule", asking(), None;
    question_answered: "16_question_reply", json!({}), None;
    question_dismissed: "16_question_reject", json!({}), None;
    empty_answer: "17_llm_empty", json!({}), None;
    cut_by_length: "17_llm_finish_length", json!({}), None;
    dropped_stream: "17_llm_drop_stream", json!({}), None;
    side_by_side: "05_tool_parallel", json!({}), None;
    reads_side_by_side: "05_tool_read", json!({}), None;
}
