use std::time::Duration;

use api::{Json, JsonMap};
use serde_json::json;

use super::*;
use crate::{AssistantContent, FinishReason, Settings, ToolResult, ToolSpec, Usage};
use play::Action;

const ALL_TOOLS: [&str; 4] = ["glob", "read", "edit", "bash"];

fn prompt(text: &str, tools: &[&str]) -> Prompt {
    let spec = |name: &&str| ToolSpec { name: (*name).to_owned(), description: "".into(), schema: json!({}).into() };
    Prompt {
        messages: vec![PromptMessage::User(vec![Content::Text(text.into())]).into()],
        tools: tools.iter().map(spec).collect(),
        settings: Settings { message_id: Some("msg_1".into()), model: Some("fast-1".into()), ..Settings::default() },
        ..Prompt::default()
    }
}

/// The actions that a script takes for a prompt.
fn actions(script: &Script, prompt: &Prompt) -> Vec<Action> {
    let turn = Turn::of(prompt);
    let step = script.choose(prompt, &turn).unwrap();
    let failing = step.fails() && script.still_failing(&step, &turn);
    let mut plan = play::plan(&step, failing, &turn.call_prefix());
    plan.retain(|action| !matches!(action, Action::Event(event) if is_frame(event)));
    plan
}

/// Whether it only says where a block without data begins or ends.
fn is_frame(event: &LlmEvent) -> bool {
    matches!(event, LlmEvent::Begin { metadata, .. } | LlmEvent::End { metadata } if metadata.is_empty())
}

/// What a script says besides these.
fn spoken(
    stream: impl futures::Stream<Item = Result<LlmEvent, LlmError>> + Send + 'static,
) -> futures::stream::BoxStream<'static, Result<LlmEvent, LlmError>> {
    use futures::StreamExt;
    stream.filter(|event| std::future::ready(!event.as_ref().is_ok_and(is_frame))).boxed()
}

fn said(actions: &[Action]) -> String {
    let text = |action: &Action| match action {
        Action::Event(LlmEvent::Text(text)) => Some(text.clone()),
        _ => None,
    };
    actions.iter().filter_map(text).collect()
}

fn error(actions: &[Action]) -> &LlmError {
    match actions.last() {
        Some(Action::Fail(error)) => error,
        other => panic!("{other:?}"),
    }
}

fn inline(steps: &Json) -> Vec<Action> {
    actions(&Script::demo(), &prompt(&format!("SCRIPT: {steps}"), &["bash"]))
}

fn answer(prompt: &mut Prompt, text: &str) {
    prompt.messages.push(PromptMessage::Assistant(vec![AssistantContent::text(text)]).into());
}

#[test]
fn rules_match_in_order() {
    let script = Script::parse(
        &json!({
            "rules": [
                {"when": {"text": "BUG", "model": "slow-*"}, "steps": [{"text": "slow"}]},
                {"when": {"text": "bug", "model": "FAST-*"}, "steps": [{"text": "one"}, {"text": "two"}]},
                {"when": {"message": "msg_1", "glob": "exact*"}, "steps": [{"text": "by id"}]},
                {"when": {"step": 1}, "steps": [{"text": "second step"}]},
                {"when": {"system": "title"}, "steps": [{"text": "my title"}]},
                {"when": {"tools": false}, "steps": [{"text": "no tools"}]},
            ],
            "default": [{"text": "default"}],
        })
        .to_string(),
    )
    .unwrap();
    let say = |prompt: &Prompt| said(&actions(&script, prompt));
    let mut bug = prompt("fix the Bug", &["bash"]);
    assert_eq!(say(&bug), "one");
    answer(&mut bug, "one");
    assert_eq!(say(&bug), "two");
    answer(&mut bug, "two");
    assert_eq!(say(&bug), "done");
    assert_eq!(say(&prompt("exactly", &["bash"])), "by id");
    let mut other = prompt("hi", &["bash"]);
    assert_eq!(say(&other), "default");
    answer(&mut other, "x");
    assert_eq!(say(&other), "second step");
    assert_eq!(say(&prompt("hi", &[])), "no tools");
    let mut title = prompt("hi", &[]);
    title.system = vec!["Write a title.".into()];
    assert_eq!(say(&title), "my title");
}

#[test]
fn invalid_scripts_are_explained() {
    let message = |text: &str| Script::parse(text).unwrap_err().to_string();
    assert!(message("{\n \"rulez\": []}").contains("rulez"));
    assert!(message(r#"{"default": [{"txt": ""}]}"#).contains("txt"));
    assert!(message(r#"{"default": [{"tools": [["only"]]}]}"#).contains("[name, input]"));
    assert!(message(r#"{"default": [{"delay_ms": 99999999}]}"#).contains("longer"));
    assert!(message(r#"{"rules": [{"steps": [{"chunks": 4000000000}]}]}"#).contains("chunks"));
    assert!(
        message(r#"{"default": [{"after": "go"}]}"#)
            .contains("`after` waits for \"go\", which is not an absolute path")
    );
    assert!(message(r#"{"default": [{"hold": "./go"}]}"#).contains("`hold` waits for \"./go\""));
    assert!(Script::parse("").is_err());
    let bad = prompt("SCRIPT: [{]", &["bash"]);
    assert!(Script::demo().choose(&bad, &Turn::of(&bad)).is_err());
}

#[test]
fn an_inline_script_plays_text_reasoning_and_calls() {
    let step = json!([{"reasoning": "think", "text": "héllo", "size": 4, "tools": [["bash", {"command": "ls"}], {"name": "x", "raw": "{no"}]}]);
    let events: Vec<LlmEvent> = inline(&step)
        .into_iter()
        .map(|action| match action {
            Action::Event(event) => event,
            other => panic!("{other:?}"),
        })
        .collect();
    let start = |index, name: &str| LlmEvent::ToolStart {
        index,
        id: format!("call_msg_1_0_{index}"),
        name: name.into(),
        provider_executed: false,
    };
    let input = |index, delta: &str| LlmEvent::ToolInput { index, delta: delta.into() };
    assert_eq!(
        events,
        [
            LlmEvent::Reasoning("thin".into()),
            LlmEvent::Reasoning("k".into()),
            LlmEvent::Text("héll".into()),
            LlmEvent::Text("o".into()),
            start(0, "bash"),
            input(0, "{\"comm"),
            input(0, "and\":\""),
            input(0, "ls\"}"),
            LlmEvent::ToolEnd { index: 0, input: "{\"command\":\"ls\"}".into(), metadata: JsonMap::new() },
            start(1, "x"),
            input(1, "{"),
            input(1, "n"),
            input(1, "o"),
            LlmEvent::ToolEnd { index: 1, input: "{no".into(), metadata: JsonMap::new() },
            LlmEvent::Usage(Usage {
                input: 90,
                output: 15,
                reasoning: 5,
                cache_read: 10,
                cache_write: 0,
                total: Some(120)
            }),
            LlmEvent::Finish(FinishReason::ToolCalls),
        ]
    );
}

#[test]
fn blocks_have_data_of_their_vendor() {
    let data = |name: &str| json!({"v": {"sig": name}}).as_object().unwrap().clone();
    let plan = play::plan(
        &serde_json::from_value(json!({"text": "hi", "blocks": [
            {"type": "reasoning", "metadata": {"v": {"sig": "r"}}},
            {"type": "tool", "name": "web_search", "input": {"q": 1}, "output": "found", "metadata": {"v": {"sig": "c"}}},
            {"type": "text", "text": "so", "metadata": {"v": {"sig": "t"}}},
        ], "tools": [["bash", {}]]}))
        .unwrap(),
        false,
        "p",
    );
    let mut events: Vec<LlmEvent> = plan
        .into_iter()
        .map(|action| if let Action::Event(event) = action { event } else { panic!("{action:?}") })
        .filter(|event| !matches!(event, LlmEvent::ToolInput { .. } | LlmEvent::Usage(_)))
        .collect();
    assert_eq!(events.pop(), Some(LlmEvent::Finish(FinishReason::ToolCalls)));
    let begin = LlmEvent::begin;
    let start = |index: usize, name: &str, provider_executed| LlmEvent::ToolStart {
        index,
        id: format!("p_{index}"),
        name: name.into(),
        provider_executed,
    };
    assert_eq!(
        events,
        [
            begin(crate::BlockKind::Text),
            LlmEvent::Text("hi".into()),
            begin(crate::BlockKind::Reasoning),
            LlmEvent::End { metadata: data("r") },
            start(0, "web_search", true),
            LlmEvent::ToolEnd { index: 0, input: "{\"q\":1}".into(), metadata: data("c") },
            LlmEvent::ToolResult { index: 0, output: "found".into(), is_error: false, metadata: JsonMap::new() },
            begin(crate::BlockKind::Text),
            LlmEvent::Text("so".into()),
            LlmEvent::End { metadata: data("t") },
            start(1, "bash", false),
            LlmEvent::ToolEnd { index: 1, input: "{}".into(), metadata: JsonMap::new() },
        ]
    );
    assert!(serde_json::from_value::<Step>(json!({"blocks": [{"type": "odd"}]})).is_err());
}

#[test]
fn text_after_an_inline_script_is_not_part_of_it() {
    let prompt = prompt("SCRIPT: [{\"text\": \"a\"}]\n<reminder>]", &["bash"]);
    assert_eq!(said(&actions(&Script::demo(), &prompt)), "a");
}

#[test]
fn waits_and_chunks() {
    let plan = inline(
        &json!([{"delay_ms": 7, "chunks": 2, "chunk_delay_ms": 3, "finish": "length", "usage": {"prompt_tokens": 11}}]),
    );
    let wait = |ms| Action::Wait(Duration::from_millis(ms));
    let text = |text: &str| Action::Event(LlmEvent::Text(text.into()));
    assert_eq!(plan[..5], [wait(7), wait(3), text("w0 "), wait(3), text("w1 ")]);
    assert!(matches!(plan[5], Action::Event(LlmEvent::Usage(Usage { input: 1, .. }))));
    assert_eq!(plan[6], Action::Event(LlmEvent::Finish(FinishReason::Length)));
}

#[test]
fn files_are_awaited_before_the_first_and_after_the_last_word() {
    let plan = inline(&json!([{"delay_ms": 7, "after": "/a", "text": "hi", "hold": "/b", "malformed": true}]));
    let until = |file: &str| Action::Until(file.into());
    let text = Action::Event(LlmEvent::Text("hi".into()));
    assert_eq!(plan[..4], [Action::Wait(Duration::from_millis(7)), until("/a"), text, until("/b")]);
    assert_eq!(error(&plan).class, ErrorClass::Retryable);
    let plan = inline(&json!([{"after": "/a", "http_error": 500}]));
    assert_eq!((&plan[0], error(&plan).status), (&until("/a"), Some(500)));
    let plan = inline(&json!([{"hold": "/b", "tools": [["bash", {"command": "ls"}]]}]));
    assert!(matches!(&plan[..2], [Action::Until(_), Action::Event(LlmEvent::ToolStart { .. })]), "{plan:?}");
}

#[test]
fn errors_of_every_class() {
    let class = |step: Json| error(&inline(&json!([step]))).class;
    assert_eq!(class(json!({"http_error": 500})), ErrorClass::Retryable);
    assert_eq!(class(json!({"http_error": 401})), ErrorClass::Auth);
    assert_eq!(class(json!({"http_error": 400})), ErrorClass::Invalid);
    let long = json!({"error": {"message": "m", "code": "context_length_exceeded"}});
    assert_eq!(class(json!({"http_error": 400, "error_body": long})), ErrorClass::ContextOverflow);
    let filtered = json!({"error": {"message": "m", "code": "content_filter"}});
    assert_eq!(class(json!({"http_error": 400, "error_body": filtered})), ErrorClass::ContentFilter);
    assert_eq!(class(json!({"network_error": "refused"})), ErrorClass::Retryable);
    assert_eq!(class(json!({"text": "a", "malformed": 1})), ErrorClass::Retryable);
    let plan = inline(&json!([{"text": "part ", "error_chunk": {"error": {"message": "late"}}}]));
    assert_eq!((said(&plan).as_str(), error(&plan).message.as_str()), ("part ", "late"));
    let plan = inline(&json!([{"text": "part ", "silence_ms": 5}]));
    assert_eq!(plan[1], Action::Wait(Duration::from_millis(5)));
    assert_eq!(error(&plan).class, ErrorClass::Retryable);
    let plan = inline(&json!([{"text": "part ", "drop": true}]));
    assert_eq!(plan[1..], [Action::Event(LlmEvent::Finish(FinishReason::Unknown))]);
}

#[test]
fn fail_times_limits_the_failures() {
    let script = Script::demo();
    let steps =
        json!([{"http_error": 429, "retry_after_ms": 5, "headers": {"X-Id": "7"}, "fail_times": 2, "text": "ok"}]);
    let mut first = prompt(&format!("SCRIPT: {steps}"), &["bash"]);
    for _ in 0..2 {
        let plan = actions(&script, &first);
        let error = error(&plan);
        assert_eq!(error.retry_after, Some(Duration::from_millis(5)));
        assert_eq!(error.headers["x-id"], "7");
    }
    assert_eq!(said(&actions(&script, &first)), "ok");
    first.settings.message_id = Some("msg_2".into());
    assert_eq!(error(&actions(&script, &first)).status, Some(429), "another message has its own counter");
}

#[test]
fn titles_and_summaries() {
    let script = Script::demo();
    let side_request = |system: &str, text: &str| {
        let mut prompt = prompt(text, &[]);
        prompt.system = vec![system.to_owned()];
        said(&actions(&script, &prompt))
    };
    assert_eq!(side_request("You write a title", "Name this:\nfix the failing\ntest"), "fix the failing test");
    assert_eq!(side_request("a Title", "SCRIPT: [{}]"), "Scripted session");
    assert_eq!(side_request("title", " "), "Empty prompt");
    assert!(side_request("title", &"word ".repeat(100)).chars().count() <= 50);
    assert_eq!(side_request("title", &"é".repeat(100)).chars().count(), 50);
    assert!(side_request("Summarise it", "x").contains("1 messages"));
}

/// Plays a whole turn of the demo with tools that answer from a table.
fn demo(tools: &[&str], tool: impl Fn(&str, &Json) -> (String, bool)) -> (Vec<(String, Json)>, String) {
    let script = Script::demo();
    let mut prompt = prompt("do something", tools);
    let (mut used, mut text) = (Vec::new(), String::new());
    for _ in 0..10 {
        let plan = actions(&script, &prompt);
        text.push_str(&said(&plan));
        let (mut calls, mut results) = (Vec::new(), Vec::new());
        let mut names = Vec::new();
        for action in plan {
            match action {
                Action::Event(LlmEvent::ToolStart { id, name, .. }) => names.push((id, name)),
                Action::Event(LlmEvent::ToolEnd { index, input, .. }) => {
                    let (id, name) = names[index].clone();
                    let input: Json = serde_json::from_str(&input).unwrap();
                    let (output, is_error) = tool(&name, &input);
                    used.push((name.clone(), input.clone()));
                    calls.push(AssistantContent::ToolCall {
                        id: id.clone(),
                        name: name.clone(),
                        input,
                        metadata: JsonMap::new(),
                    });
                    results.push(PromptMessage::Tool(ToolResult {
                        id,
                        name,
                        output,
                        is_error,
                        attachments: Vec::new(),
                    }));
                }
                Action::Event(LlmEvent::Finish(FinishReason::Stop)) => return (used, text),
                _ => {}
            }
        }
        prompt.messages.push(PromptMessage::Assistant(calls).into());
        prompt.messages.extend(results.into_iter().map(CachedMessage::from));
    }
    panic!("the demo does not end: {used:?}");
}

fn names(used: &[(String, Json)]) -> Vec<&str> {
    used.iter().map(|(name, _)| name.as_str()).collect()
}

fn sample(name: &str, input: &Json) -> (String, bool) {
    let output = match (name, input["filePath"].as_str()) {
        ("glob", _) => "/s/test.sh\n/s/greeter.sh\n/s/README.md",
        ("read", Some("/s/greeter.sh")) => "<content>\n1: #!/bin/sh\n3: echo \"Helo, $1\"\n</content>",
        ("read", _) => "<content>\n1: expected=\"Hello, Ada\"\n</content>",
        ("edit", _) => "Edit applied successfully.",
        _ => "PASS: greeter.sh says \"Hello, Ada\"",
    };
    (output.to_owned(), false)
}

#[test]
fn the_demo_repairs_the_sample() {
    let (used, text) = demo(&ALL_TOOLS, sample);
    assert_eq!(names(&used), ["glob", "read", "read", "edit", "bash"]);
    assert_eq!(used[3].1, json!({"filePath": "/s/greeter.sh", "oldString": "Helo, ", "newString": "Hello, "}));
    assert!(text.contains("offline demo") && text.contains("not a language model"), "{text}");
    assert!(text.contains("> PASS: greeter.sh"), "{text}");
}

#[test]
fn the_demo_tells_the_truth_about_failures() {
    let (_, text) = demo(&ALL_TOOLS, |name, input| match name {
        "edit" => ("not allowed".to_owned(), true),
        "bash" => ("FAIL: still wrong".to_owned(), false),
        _ => sample(name, input),
    });
    assert!(
        text.contains("not repaired") && text.contains("> not allowed") && text.contains("> FAIL: still wrong"),
        "{text}"
    );
    let (used, text) = demo(&ALL_TOOLS, |_, _| ("denied".to_owned(), true));
    assert_eq!(names(&used), ["glob"]);
    assert!(text.contains("> denied"));
    let (used, text) = demo(&["glob", "read"], sample);
    assert_eq!(names(&used), ["glob", "read", "read"]);
    assert!(text.contains("not repaired"));
    assert!(demo(&["todowrite"], sample).1.contains("no tool"));
}

#[test]
fn the_demo_looks_around_elsewhere() {
    let (used, text) = demo(&ALL_TOOLS, |name, _| {
        let output = match name {
            "glob" => {
                "/p/.env\n/p/a/logo.png\n/p/a/main.rs\n/p/sub/README.md\n/p/examples/greeter.sh\n/p/examples/test.sh\n(truncated)"
            }
            "read" => "<path>x</path>\n<content>\n1: # Project\n2: \n3: Text\n\n(End of file)\n</content>",
            _ => "## main\n M a/main.rs",
        };
        (output.to_owned(), false)
    });
    assert_eq!(names(&used), ["glob", "read", "bash"], "the sample below the directory is left alone");
    assert_eq!(used[1].1["filePath"], "/p/sub/README.md");
    assert!(
        text.contains("I saw 6 files") && text.contains("> # Project\n> Text") && text.contains("> ## main"),
        "{text}"
    );
}

#[test]
fn the_demo_works_in_an_empty_directory() {
    let (used, text) = demo(&ALL_TOOLS, |_, _| (String::new(), false));
    assert_eq!(used[1], ("bash".to_owned(), json!({"command": "ls -A"})));
    assert!(text.contains("no files") && text.contains("> (nothing)"), "{text}");
    assert_eq!(names(&demo(&ALL_TOOLS, |_, _| ("No files found".to_owned(), false)).0), ["glob", "bash"]);
}

#[test]
fn the_sample_in_the_repository_is_the_one_that_the_demo_knows() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/greeter/");
    let read = |name: &str| std::fs::read_to_string(format!("{folder}{name}")).unwrap();
    assert_eq!(read("greeter.sh").matches("Helo, ").count(), 1, "the edit must be unambiguous");
    assert!(read("test.sh").contains("PASS"));
}

#[tokio::test]
async fn a_stream_performs_the_plan() {
    use futures::StreamExt;
    let llm = crate::Llm::new("test");
    let endpoint = crate::Endpoint::Script(std::sync::Arc::new(Script::demo()));
    let prompt =
        prompt("SCRIPT: [{\"delay_ms\": 1, \"text\": \"hi\", \"http_error\": 500, \"fail_times\": 1}]", &["bash"]);
    let first: Vec<_> = spoken(llm.stream(&endpoint, &prompt)).collect().await;
    assert!(matches!(first.as_slice(), [Err(LlmError { status: Some(500), .. })]), "{first:?}");
    let second: Vec<_> = spoken(llm.stream(&endpoint, &prompt)).collect().await;
    assert_eq!(second[0], Ok(LlmEvent::Text("hi".into())));
    assert_eq!(second.last(), Some(&Ok(LlmEvent::Finish(FinishReason::Stop))));
}

#[tokio::test]
async fn a_stream_waits_for_files() {
    use futures::{FutureExt, StreamExt};
    let folder = tempfile::tempdir().unwrap();
    let (after, hold) = (folder.path().join("after"), folder.path().join("hold"));
    let step = json!([{"after": after, "text": "hi", "hold": hold, "usage": {}}]);
    let mut stream = spoken(Script::demo().stream(&prompt(&format!("SCRIPT: {step}"), &["bash"])));
    assert_eq!(stream.next().now_or_never(), None, "it waits for the first file");
    std::fs::write(&after, "").unwrap();
    assert_eq!(stream.next().await, Some(Ok(LlmEvent::Text("hi".into()))));
    assert_eq!(stream.next().now_or_never(), None, "it waits for the second file");
    std::fs::write(&hold, "").unwrap();
    let rest: Vec<_> = stream.collect().await;
    assert!(matches!(rest[..], [Ok(LlmEvent::Usage(_)), Ok(LlmEvent::Finish(FinishReason::Stop))]), "{rest:?}");
}

#[tokio::test]
async fn a_stream_that_waits_for_a_file_can_be_dropped() {
    use futures::StreamExt;
    let folder = tempfile::tempdir().unwrap();
    let step = json!([{"text": "hi", "hold": folder.path().join("never")}]);
    let mut stream = spoken(Script::demo().stream(&prompt(&format!("SCRIPT: {step}"), &["bash"])));
    assert_eq!(stream.next().await, Some(Ok(LlmEvent::Text("hi".into()))));
    let (told, dropped) = tokio::sync::oneshot::channel::<()>();
    let waits = tokio::spawn(async move {
        let _told = told;
        stream.next().await
    });
    tokio::task::yield_now().await;
    waits.abort();
    assert!(waits.await.unwrap_err().is_cancelled());
    assert!(dropped.await.is_err(), "the waiting task is gone");
}

#[tokio::test]
async fn a_file_that_never_comes_fails_the_step() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("never");
    let error = play::until(&file, Duration::from_millis(20)).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Invalid);
    assert!(error.message.contains(file.to_str().unwrap()), "{error}");
    std::fs::write(&file, "").unwrap();
    play::until(&file, Duration::ZERO).await.unwrap();
}
