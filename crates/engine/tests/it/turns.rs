//! Turns with the scripted model: joins, retries, errors, aborts, limits.

use std::sync::Arc;

use crate::common::{Lab, prompt, script, text};
use api::{
    EventBody, Host, HostError, MessageError, MessageId, OutputFormat, Part, PromptInput, PromptPart, SessionStatus,
    ToolState,
};
use serde_json::json;
use testkit::{Recorder, soon};

#[tokio::test]
async fn a_text_turn_ends_with_its_answer_and_one_idle() {
    let lab = Lab::new();
    let session = lab.session().await;
    let mut events = lab.recorder().await;
    let answer = lab
        .say(
            &session,
            &script(json!([{"text": "Hello there", "usage": {"prompt_tokens": 17, "completion_tokens": 3}}])),
        )
        .await;
    assert_eq!(text(&answer), "Hello there");
    let info = answer.info.as_assistant().unwrap();
    assert_eq!(info.finish.as_deref(), Some("stop"));
    assert!(info.time.completed.is_some() && info.error.is_none());
    events.wait_idle(&session).await;
    let names = events.names();
    assert_eq!(names.iter().filter(|n| *n == "session.idle").count(), 1);
    let kept = lab.engine.session(&session).await.unwrap();
    assert_eq!(kept.tokens.unwrap().input, 7);
    assert_eq!(kept.agent.as_deref(), Some("build"));
    assert!(lab.engine.statuses(&lab.scope).await.unwrap().is_empty());
}

#[tokio::test]
async fn prompts_sent_while_busy_join_the_turn() {
    let lab = Lab::new();
    let session = lab.session().await;
    let mut events = lab.recorder().await;
    let ask = |steps| {
        let (engine, id) = (lab.engine.clone(), session.clone());
        tokio::spawn(async move { engine.prompt(&id, prompt(&script(steps))).await.unwrap() })
    };
    let first = ask(json!([{"chunks": 10, "hold": lab.gate("go")}]));
    events.wait_for(|b| matches!(b, EventBody::PartDelta { .. })).await;
    let second = ask(json!([{"text": "second answer"}]));
    let says = |part: &Part| part.as_text().is_some_and(|text| text.text.contains("second answer"));
    events.wait_for(|b| matches!(b, EventBody::PartUpdated { part, .. } if says(part))).await;
    lab.project.write("go", "");
    let both = soon("both answers", async { (first.await.unwrap(), second.await.unwrap()) });
    let (first, second) = both.await;
    assert_eq!(first.info.id(), second.info.id());
    assert_eq!(text(&second), "second answer");
    assert_eq!(lab.messages(&session).await.len(), 4);
    events.wait_idle(&session).await;
    assert_eq!(events.names().iter().filter(|n| *n == "session.idle").count(), 1);
}

#[tokio::test]
async fn the_same_message_id_is_one_prompt() {
    let lab = Lab::new();
    let session = lab.session().await;
    let id = MessageId::new();
    let input = PromptInput { message_id: Some(id.clone()), ..prompt("hello") };
    let (first, second) =
        tokio::join!(lab.engine.prompt(&session, input.clone()), lab.engine.prompt(&session, input.clone()));
    assert_eq!(first.unwrap().info.id(), second.unwrap().info.id());
    lab.engine.prompt(&session, input.clone()).await.unwrap();
    let users = lab.messages(&session).await.into_iter().filter(|m| m.info.as_user().is_some()).count();
    assert_eq!(users, 1);
    let other = lab.session().await;
    assert!(matches!(lab.engine.prompt(&other, input).await, Err(HostError::Conflict(_))));
}

#[tokio::test]
async fn bad_input_changes_nothing_and_says_what_exists() {
    let lab = Lab::new();
    let session = lab.session().await;
    let model = PromptInput { model: Some(api::ModelRef::new("nope", "model")), ..prompt("x") };
    let error = lab.engine.prompt(&session, model).await.unwrap_err().to_string();
    assert!(error.contains("Model not found: nope/model") && error.contains("script/demo"), "{error}");
    let agent = PromptInput { agent: Some("nope".to_owned()), ..prompt("x") };
    let error = lab.engine.prompt_async(&session, agent).await.unwrap_err().to_string();
    assert!(error.contains("Agent not found: nope") && error.contains("build") && error.contains("plan"), "{error}");
    let file = PromptInput {
        parts: vec![PromptPart::File {
            id: None,
            mime: "text/plain".into(),
            filename: None,
            url: "http://x".into(),
            source: None,
        }],
        ..PromptInput::default()
    };
    assert!(matches!(lab.engine.prompt(&session, file).await, Err(HostError::Invalid(_))));
    let missing = api::SessionId::parse("ses_missing").unwrap();
    assert!(matches!(lab.engine.prompt(&missing, prompt("x")).await, Err(HostError::NotFound { .. })));
    assert!(lab.messages(&session).await.is_empty());
}

#[tokio::test]
async fn a_failing_model_is_retried_visibly() {
    let lab = Lab::new();
    let session = lab.session().await;
    let mut events = lab.recorder().await;
    let step = json!([{"http_error": 500, "error_body": {"error": {"message": "boom"}}, "retry_after_ms": 5, "fail_times": 2, "text": "recovered"}]);
    let answer = lab.say(&session, &script(step)).await;
    assert_eq!(text(&answer), "recovered");
    events.wait_idle(&session).await;
    let retries: Vec<u32> = events
        .events()
        .iter()
        .filter_map(|e| match &e.body {
            EventBody::SessionStatus { status: SessionStatus::Retry { attempt, message, .. }, .. } => {
                assert_eq!(message, "boom");
                Some(*attempt)
            }
            _ => None,
        })
        .collect();
    assert_eq!(retries, [1, 2]);
}

#[tokio::test]
async fn a_model_that_keeps_failing_ends_the_turn_with_its_error() {
    let lab = Lab::new();
    let session = lab.session().await;
    let step = json!([{"http_error": 503, "error_body": {"error": {"message": "down"}}, "retry_after_ms": 1}]);
    let answer = lab.say(&session, &script(step)).await;
    let Some(MessageError::ApiError(error)) = &answer.info.as_assistant().unwrap().error else { panic!("{answer:?}") };
    assert_eq!((error.message.as_str(), error.status_code, error.is_retryable), ("down", Some(503), true));
    let again = lab.say(&session, &script(json!([{"text": "fine"}]))).await;
    assert_eq!(text(&again), "fine");
}

#[tokio::test]
async fn text_of_a_failed_attempt_stays_visible_but_is_not_sent_again() {
    let lab = Lab::new();
    let session = lab.session().await;
    let step = json!([{"text": "partial ", "error_chunk": {"error": {"message": "mid stream"}}, "retry_after_ms": 1, "fail_times": 1}]);
    lab.say(&session, &script(step)).await;
    let parts: Vec<Part> = lab.messages(&session).await.into_iter().flat_map(|m| m.parts).collect();
    let partial = parts.iter().filter_map(Part::as_text).find(|t| t.text == "partial ").unwrap();
    assert_eq!(partial.ignored, Some(true));
    assert!(partial.time.as_ref().unwrap().end.is_some());
}

#[tokio::test]
async fn error_classes_become_named_errors() {
    let lab = Lab::new();
    let session = lab.session().await;
    let overflow = json!([{"http_error": 400, "error_body": {"error": {"message": "too long", "code": "context_length_exceeded"}}}]);
    for (steps, name) in [
        (json!([{"http_error": 401, "error_body": {"error": {"message": "bad key"}}}]), "ProviderAuthError APIError"),
        (json!([{"http_error": 400, "error_body": {"error": {"message": "bad request"}}}]), "APIError"),
        (overflow, "ContextOverflowError"),
        (json!([{"text": "cut", "finish": "content_filter"}]), "ContentFilterError"),
    ] {
        let mut events = lab.recorder().await;
        let answer = lab.say(&session, &script(steps)).await;
        let error = answer.info.as_assistant().unwrap().error.clone().unwrap();
        assert!(name.contains(error.name()), "{} is not {name}", error.name());
        events.wait_for(|b| matches!(b, EventBody::SessionError { error: Some(_), .. })).await;
        events.wait_idle(&session).await;
    }
}

#[tokio::test]
async fn abort_ends_text_and_tools_and_frees_the_session() {
    let lab = Lab::new();
    let session = lab.session().await;
    for steps in [
        json!([{"chunks": 10, "hold": lab.gate("never")}]),
        json!([{"tools": [["bash", {"command": "echo begin; sleep 300"}]]}]),
    ] {
        let mut events = Recorder::new(lab.host()).await;
        lab.engine.prompt_async(&session, prompt(&script(steps))).await.unwrap();
        events
            .wait_for(|b| match b {
                EventBody::PartDelta { .. } => true,
                EventBody::PartUpdated { part, .. } => {
                    part.as_tool().is_some_and(|t| matches!(&t.state, ToolState::Running(r) if r.metadata.as_ref().is_some_and(|m| m["output"] == "begin\n")))
                }
                _ => false,
            })
            .await;
        assert!(lab.engine.abort(&session).await.unwrap());
        let last = lab.messages(&session).await.pop().unwrap();
        let info = last.info.as_assistant().unwrap();
        assert_eq!(info.error, Some(MessageError::aborted()));
        assert!(info.time.completed.is_some());
        for tool in last.parts.iter().filter_map(Part::as_tool) {
            assert!(tool.state.is_done(), "{tool:?}");
        }
        events.wait_idle(&session).await;
    }
    assert!(!lab.engine.abort(&session).await.unwrap());
    assert_eq!(text(&lab.say(&session, &script(json!([{"text": "alive"}]))).await), "alive");
}

#[tokio::test]
async fn tools_of_one_step_run_in_parallel() {
    let lab = Lab::new();
    let session = lab.session().await;
    // Each waits for the other's file: run one after the other, they would hang until the timeout.
    let wait = |mine: &str, other: &str| json!(["bash", {"command": format!("touch {mine}; until [ -e {other} ]; do sleep 0.02; done; echo both"), "timeout": 60000}]);
    lab.say(&session, &script(json!([{"tools": [wait("a", "b"), wait("b", "a")]}, {"text": "done"}]))).await;
    for tool in lab.tools(&session).await {
        let ToolState::Completed(done) = &tool.state else { panic!("{tool:?}") };
        assert_eq!(done.output, "both\n");
    }
}

#[tokio::test]
async fn an_agent_with_few_steps_comes_to_an_end() {
    let lab = Lab::with(json!({"agent": {"build": {"steps": 2}}}));
    let session = lab.session().await;
    let read = json!({"tools": [["read", {"filePath": "README.md"}]]});
    let answer = lab.say(&session, &script(json!([read, read, read, read]))).await;
    let steps = lab.messages(&session).await.len() - 1;
    assert!(steps <= 3, "{steps} steps; {answer:?}");
}

#[tokio::test]
async fn equal_calls_in_a_row_need_a_permission() {
    let lab = Lab::new();
    let session = lab.session().await;
    let mut events = lab.recorder().await;
    let read = json!({"tools": [["read", {"filePath": "README.md"}]]});
    lab.engine.prompt_async(&session, prompt(&script(json!([read, read, read, {"text": "x"}])))).await.unwrap();
    let event = events.wait_for(|b| matches!(b, EventBody::PermissionAsked(_))).await;
    let EventBody::PermissionAsked(ask) = &event.body else { unreachable!() };
    assert_eq!((ask.permission.as_str(), ask.patterns.as_slice()), ("doom_loop", ["read".to_owned()].as_slice()));
    let reply = api::PermissionReply { reply: api::PermissionReplyKind::Reject, message: None };
    lab.engine.reply_permission(&ask.id, reply).await.unwrap();
    events.wait_idle(&session).await;
    assert_eq!(lab.tools(&session).await.len(), 3);
}

#[tokio::test]
async fn structured_output_is_validated_and_returned() {
    let lab = Lab::new();
    let session = lab.session().await;
    let schema = json!({"type": "object", "properties": {"answer": {"type": "number"}}, "required": ["answer"]});
    let format = Some(OutputFormat::JsonSchema { schema, retry_count: Some(1) });
    let ask = |steps| PromptInput { format: format.clone(), ..prompt(&script(steps)) };
    let good =
        json!([{"tools": [["StructuredOutput", {"wrong": 1}]]}, {"tools": [["StructuredOutput", {"answer": 42}]]}]);
    let answer = lab.engine.prompt(&session, ask(good)).await.unwrap();
    assert_eq!(answer.info.as_assistant().unwrap().structured, Some(json!({"answer": 42})));
    let never = lab.engine.prompt(&session, ask(json!([{"text": "no"}]))).await.unwrap();
    assert_eq!(never.info.as_assistant().unwrap().error.as_ref().unwrap().name(), "StructuredOutputError");
}

#[tokio::test]
async fn the_small_model_names_a_session() {
    let lab = Lab::new();
    let session = lab.engine.create_session(&lab.scope, api::CreateSession::default()).await.unwrap();
    assert!(session.title.starts_with("New session - "));
    let mut events = lab.recorder().await;
    lab.say(&session.id, "Please fix the parser of dates").await;
    let event = events
        .wait_for(|b| matches!(b, EventBody::SessionUpdated { info, .. } if !info.title.starts_with("New session - ")))
        .await;
    assert!(matches!(event.body, EventBody::SessionUpdated { .. }));
}

#[tokio::test]
async fn files_in_a_prompt_are_read_at_once() {
    let lab = Lab::new();
    lab.project.write("notes.txt", "first\nsecond\nthird\n");
    let session = lab.session().await;
    let part = |name: &str, query: &str| PromptPart::File {
        id: None,
        mime: "text/plain".to_owned(),
        filename: Some(name.to_owned()),
        url: format!("file://{}/{name}{query}", lab.project.directory()),
        source: None,
    };
    let input = PromptInput {
        parts: vec![PromptPart::text("look"), part("notes.txt", "?start=2&end=2"), part("missing.txt", "")],
        no_reply: true,
        ..PromptInput::default()
    };
    let mut events = lab.recorder().await;
    let stored = lab.engine.prompt(&session, input).await.unwrap();
    let texts: Vec<&str> = stored.parts.iter().filter_map(Part::as_text).map(|t| t.text.as_str()).collect();
    assert!(texts[1].starts_with("Called the Read tool") && texts[1].contains("\"offset\":2"), "{texts:?}");
    assert!(texts[2].contains("2: second") && !texts[2].contains("first"), "{texts:?}");
    assert!(texts[4].contains("failed to read"), "{texts:?}");
    events.wait_for(|b| matches!(b, EventBody::SessionError { .. })).await;
    assert_eq!(lab.messages(&session).await.len(), 1);
}

#[tokio::test]
async fn commands_shell_and_forks() {
    let lab = Lab::with(
        json!({"command": {"greet": {"template": "SCRIPT: [{\"text\": \"hi $1 !`printf sh; echo error >&2`\"}]"}}}),
    );
    let session = lab.session().await;
    let input = api::CommandInput { command: "greet".into(), arguments: "Bob".into(), ..api::CommandInput::default() };
    assert_eq!(text(&lab.engine.command(&session, input).await.unwrap()), "hi Bob sh");
    let unknown = api::CommandInput { command: "nope".into(), ..api::CommandInput::default() };
    let error = lab.engine.command(&session, unknown).await.unwrap_err().to_string();
    assert!(error.contains("init") && error.contains("review") && error.contains("greet"), "{error}");
    let shell = api::ShellInput { command: "echo out; exit 2".into(), ..api::ShellInput::default() };
    let ran = lab.engine.shell(&session, shell).await.unwrap();
    let ToolState::Completed(done) = &ran.parts[0].as_tool().unwrap().state else { panic!("{ran:?}") };
    assert_eq!(done.output, "out\n");
    let whole = lab.engine.fork_session(&session, None).await.unwrap();
    assert_eq!(whole.title, "test (fork #1)");
    assert!(whole.parent_id.is_none());
    let (ours, theirs) = (lab.messages(&session).await, lab.messages(&whole.id).await);
    assert_eq!((ours.len(), theirs.len()), (4, 4));
    assert_ne!(ours[0].info.id(), theirs[0].info.id());
    let part = lab.engine.fork_session(&session, Some(ours[2].info.id().clone())).await.unwrap();
    assert_eq!(lab.messages(&part.id).await.len(), 2);
    assert_eq!(text(&lab.say(&whole.id, &script(json!([{"text": "goes on"}]))).await), "goes on");
}

#[tokio::test]
async fn a_command_adds_the_files_and_agents_that_it_mentions() {
    let template = "SCRIPT: [{\"text\": \"@general and (@README.md), @$1 and @nobody\"}]";
    let lab = Lab::with(json!({"command": {"look": {"template": template}}}));
    let session = lab.session().await;
    let input = api::CommandInput { command: "look".into(), arguments: "explore".into(), ..Default::default() };
    lab.engine.command(&session, input).await.unwrap();
    let prompt = &lab.messages(&session).await[0];
    let names = |part: &Part| match part {
        Part::Agent(agent) => Some(agent.name.clone()),
        Part::File(file) => file.filename.clone(),
        _ => None,
    };
    assert_eq!(prompt.parts.iter().filter_map(names).collect::<Vec<_>>(), ["general", "README.md", "explore"]);
}

#[tokio::test]
async fn an_argument_in_a_shell_piece_executes_nothing() {
    let template = "SCRIPT: [{\"text\": \"!`printf %s $1`|!`$1`\"}]";
    let lab = Lab::with(json!({"command": {"say": {"template": template}}}));
    let (session, made) = (lab.session().await, lab.gate("made"));
    for (argument, shown) in [("a;b", "a;b"), (&*format!("\"$(touch {})\"", made.display()), "$(touch ")] {
        let input = api::CommandInput { command: "say".into(), arguments: argument.into(), ..Default::default() };
        let said = text(&lab.engine.command(&session, input).await.unwrap());
        assert!(said.starts_with(shown) && said.contains("was not run"), "{said}");
    }
    assert!(!made.exists());
}

#[tokio::test]
async fn deleting_a_session_stops_it_and_its_children() {
    let lab = Lab::new();
    let parent = lab.session().await;
    let child = api::CreateSession { parent_id: Some(parent.clone()), ..api::CreateSession::default() };
    let child = lab.engine.create_session(&lab.scope, child).await.unwrap();
    assert_eq!(lab.engine.children(&parent).await.unwrap().len(), 1);
    let mut events = lab.recorder().await;
    lab.engine
        .prompt_async(&child.id, prompt(&script(json!([{"chunks": 10, "hold": lab.gate("never")}]))))
        .await
        .unwrap();
    events.wait_for(|b| matches!(b, EventBody::PartDelta { .. })).await;
    lab.engine.delete_session(&parent).await.unwrap();
    for id in [&parent, &child.id] {
        assert!(matches!(lab.engine.session(id).await, Err(HostError::NotFound { .. })));
    }
    assert!(matches!(lab.engine.delete_session(&parent).await, Err(HostError::NotFound { .. })));
}

#[tokio::test]
async fn rules_and_switches_limit_the_tool_list() {
    let lab = Lab::new();
    let session = lab.session().await;
    let tools = Some([("bash".to_owned(), false)].into_iter().collect());
    let input =
        PromptInput { tools, ..prompt(&script(json!([{"tools": [["bash", {"command": "echo x"}]]}, {"text": "x"}]))) };
    lab.engine.prompt(&session, input).await.unwrap();
    let tools = lab.tools(&session).await;
    assert_eq!(tools[0].tool, "invalid");
    assert!(matches!(&tools[0].state, ToolState::Completed(done) if done.output.contains("unavailable tool 'bash'")));
}

#[tokio::test]
async fn two_engines_on_one_database_share_a_session() {
    let lab = Lab::new();
    let session = lab.session().await;
    let second = lab.second();
    let mut here = lab.recorder().await;
    let mut there = Recorder::new(Arc::new(second.clone())).await;
    // Text reaches another process through its row, which is written while the text grows. Then the turn waits.
    let slow = json!([{"chunks": 100, "chunk_delay_ms": 20, "hold": lab.gate("never")}]);
    lab.engine.prompt_async(&session, prompt(&script(slow))).await.unwrap();
    here.wait_for(|b| matches!(b, EventBody::PartDelta { .. })).await;
    there.wait_for(|b| matches!(b, EventBody::PartDelta { .. })).await;
    assert_eq!(second.statuses(&lab.scope).await.unwrap().len(), 1);
    // A prompt through the other engine joins the turn; an abort through it stops the turn.
    let joined = {
        let (second, id) = (second.clone(), session.clone());
        tokio::spawn(async move { second.prompt(&id, prompt("joined")).await.unwrap() })
    };
    here.wait_for(|b| matches!(b, EventBody::MessageUpdated { info, .. } if info.as_user().is_some())).await;
    assert!(second.abort(&session).await.unwrap());
    let answer = soon("the answer to who joined", joined).await.unwrap();
    assert!(answer.info.as_assistant().is_some());
    there.wait_idle(&session).await;
    assert_eq!(
        text(&second.prompt(&session, prompt(&script(json!([{"text": "mine now"}])))).await.unwrap()),
        "mine now"
    );
    second.shutdown().await;
}

#[tokio::test]
async fn an_abort_visibly_aborts_queued_prompts() {
    let lab = Lab::new();
    let session = lab.session().await;
    let mut events = lab.recorder().await;
    lab.engine
        .prompt_async(&session, prompt(&script(json!([{"chunks": 10, "hold": lab.gate("never")}]))))
        .await
        .unwrap();
    events.wait_for(|b| matches!(b, EventBody::PartDelta { .. })).await;
    let queued = script(json!([{"tools": [["bash", {"command": "touch never.txt"}]]}]));
    lab.engine.prompt_async(&session, prompt(&queued)).await.unwrap();
    lab.engine.abort(&session).await.unwrap();
    events.wait_idle(&session).await;
    assert!(lab.engine.waiting(&session).await.unwrap().is_empty());
    let answers: Vec<_> =
        lab.messages(&session).await.into_iter().filter_map(|m| m.info.as_assistant().cloned()).collect();
    assert_eq!(answers.len(), 2);
    assert!(answers.iter().all(|a| a.error == Some(MessageError::aborted())));
    assert!(!lab.project.path().join("never.txt").exists());
}

#[tokio::test]
async fn a_configured_model_that_does_not_exist_is_an_error() {
    let lab = Lab::with(json!({"model": "nope/model"}));
    let session = lab.session().await;
    let error = lab.engine.prompt(&session, prompt("x")).await.unwrap_err().to_string();
    assert!(error.contains("nope/model") && error.contains("script/demo"), "{error}");
    assert!(lab.messages(&session).await.is_empty());
}
