//! Known file versions: no change by others is overwritten, whatever happened between reading and writing.

use api::{Host, SessionId, ToolState};
use serde_json::{Value, json};

use crate::common::{Lab, prompt, script};

/// Makes the model call one tool, and returns the outcome.
async fn call(lab: &Lab, session: &SessionId, tool: &str, input: Value) -> Result<String, String> {
    lab.say(session, &script(json!([{"tools": [[tool, input]]}, {"text": "done"}]))).await;
    match lab.tools(session).await.pop().unwrap().state {
        ToolState::Completed(done) => Ok(done.output),
        ToolState::Error(failed) => Err(failed.error),
        other => panic!("{other:?}"),
    }
}

fn whole(text: &str) -> Value {
    json!({"filePath": "a.txt", "content": text})
}

#[tokio::test]
async fn a_file_changed_since_it_was_read_is_refused_even_after_a_restart_and_in_a_fork() {
    let mut lab = Lab::new();
    lab.project.write("a.txt", "one\n");
    let session = lab.session().await;
    call(&lab, &session, "read", json!({"filePath": "a.txt"})).await.unwrap();
    lab.restart().await;
    lab.project.write("a.txt", "theirs\n");
    let error = call(&lab, &session, "write", whole("mine\n")).await.unwrap_err();
    assert!(error.contains("changed by somebody else") && error.contains("-one\n+theirs\n"), "{error}");
    let fork = lab.engine.fork_session(&session, None).await.unwrap().id;
    let error = call(&lab, &fork, "write", whole("mine\n")).await.unwrap_err();
    assert!(error.contains("changed by somebody else"), "{error}");
    assert_eq!(lab.project.read("a.txt"), "theirs\n");
    // An edit works on the current content, and a file that was read again may be written.
    call(&lab, &session, "edit", json!({"filePath": "a.txt", "oldString": "theirs", "newString": "ours"}))
        .await
        .unwrap();
    call(&lab, &session, "write", whole("mine\n")).await.unwrap_err();
    call(&lab, &session, "read", json!({"filePath": "a.txt"})).await.unwrap();
    call(&lab, &session, "write", whole("mine\n")).await.unwrap();
    assert_eq!(lab.project.read("a.txt"), "mine\n");
    // Another session does not know the file.
    let other = lab.session().await;
    call(&lab, &other, "write", whole("other\n")).await.unwrap();
    let error = call(&lab, &session, "write", whole("mine\n")).await.unwrap_err();
    assert!(error.contains("-mine\n+other\n"), "{error}");
}

#[tokio::test]
async fn a_file_in_a_prompt_counts_as_read() {
    let lab = Lab::new();
    lab.project.write("a.txt", "one\n");
    let session = lab.session().await;
    let mut input = prompt(&script(json!([{"text": "seen"}])));
    let url = format!("file://{}", lab.project.path().join("a.txt").display());
    let part = json!({"type": "file", "mime": "text/plain", "filename": "a.txt", "url": url});
    input.parts.push(serde_json::from_value(part).unwrap());
    testkit::soon("the answer", lab.engine.prompt(&session, input)).await.unwrap();
    lab.project.write("a.txt", "theirs\n");
    let error = call(&lab, &session, "write", whole("mine\n")).await.unwrap_err();
    assert!(error.contains("-one\n+theirs\n"), "{error}");
}

#[tokio::test]
async fn calls_of_one_step_know_of_each_other() {
    let lab = Lab::new();
    lab.project.write("a.txt", "one\n");
    let session = lab.session().await;
    let calls = json!([["write", whole("1\n")], ["write", whole("2\n")], ["write", whole("3\n")]]);
    lab.say(
        &session,
        &script(json!([{"tools": [["read", {"filePath": "a.txt"}]]}, {"tools": calls}, {"text": "done"}])),
    )
    .await;
    let tools = lab.tools(&session).await;
    assert!(tools.iter().all(|tool| matches!(tool.state, ToolState::Completed(_))), "{tools:#?}");
}
