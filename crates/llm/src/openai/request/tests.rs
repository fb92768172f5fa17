use super::*;
use crate::{Settings, ToolSpec};
use proptest::prelude::*;

fn user(text: &str) -> PromptMessage {
    PromptMessage::User(vec![Content::Text(text.into())])
}

fn says(text: &str) -> PromptMessage {
    PromptMessage::Assistant(vec![AssistantContent::Text(text.into())])
}

fn calls(ids: &[&str]) -> PromptMessage {
    let call =
        |id: &&str| AssistantContent::ToolCall { id: (*id).to_owned(), name: "read".into(), input: json!({"n": 1}) };
    PromptMessage::Assistant(ids.iter().map(call).collect())
}

fn result(id: &str, output: &str) -> PromptMessage {
    PromptMessage::Tool(ToolResult {
        id: id.into(),
        name: "read".into(),
        output: output.into(),
        ..ToolResult::default()
    })
}

fn messages(messages: Vec<PromptMessage>) -> Vec<Json> {
    let prompt = Prompt { messages: messages.into_iter().map(CachedMessage::from).collect(), ..Prompt::default() };
    let body = json!(request(&prompt, "m"));
    assert_eq!(json!(request(&prompt, "m")), body, "the cached form stays the same");
    body["messages"].as_array().unwrap().clone()
}

#[test]
fn a_whole_request() {
    let prompt = Prompt {
        system: vec!["Be brief.".into(), " ".into(), "Be kind.".into()],
        messages: vec![user("hi").into()],
        tools: vec![ToolSpec {
            name: "read".into(),
            description: "Reads".into(),
            schema: json!({"type": "object"}).into(),
        }],
        settings: Settings {
            temperature: Some(0.5),
            top_p: Some(0.9),
            max_output: Some(64),
            options: [("reasoning_effort".into(), json!("low")), ("stream".into(), json!(false))].into_iter().collect(),
            ..Settings::default()
        },
    };
    assert_eq!(
        json!(request(&prompt, "gpt-x")),
        json!({
            "model": "gpt-x",
            "messages": [{"role": "system", "content": "Be brief.\n\nBe kind."}, {"role": "user", "content": "hi"}],
            "tools": [{"type": "function", "function": {"name": "read", "description": "Reads", "parameters": {"type": "object"}}}],
            "stream": true,
            "stream_options": {"include_usage": true},
            "temperature": 0.5,
            "top_p": 0.9,
            "max_tokens": 64,
            "reasoning_effort": "low",
        })
    );
}

#[test]
fn the_output_limit_has_two_names() {
    let limits = |model: &str, options: JsonMap| {
        let settings = Settings { max_output: Some(9), options, ..Settings::default() };
        let body = json!(request(&Prompt { settings, ..Prompt::default() }, model));
        (body.get("max_tokens").cloned(), body.get("max_completion_tokens").cloned())
    };
    assert_eq!(limits("llama", JsonMap::new()), (Some(json!(9)), None));
    assert_eq!(limits("openai/gpt-5-mini", JsonMap::new()), (None, Some(json!(9))));
    let own = JsonMap::from_iter([("max_completion_tokens".to_owned(), json!(5))]);
    assert_eq!(limits("llama", own), (None, Some(json!(5))));
}

#[test]
fn calls_results_and_thinking() {
    let thinking = AssistantContent::Reasoning { text: "hm".into(), metadata: None };
    let read = AssistantContent::ToolCall { id: "a".into(), name: "read".into(), input: json!({"filePath": "x"}) };
    let out = messages(vec![
        user("one"),
        PromptMessage::Assistant(vec![thinking.clone(), read.clone()]),
        result("a", "old"),
        says("done"),
        user("two"),
        PromptMessage::Assistant(vec![thinking, AssistantContent::Text("look".into()), read]),
        result("a", ""),
    ]);
    let call =
        json!({"id": "a", "type": "function", "function": {"name": "read", "arguments": "{\"filePath\":\"x\"}"}});
    assert_eq!(
        Json::from(out),
        json!([
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": null, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "a", "content": "old"},
            {"role": "assistant", "content": "done"},
            {"role": "user", "content": "two"},
            {"role": "assistant", "content": "look", "reasoning_content": "hm", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "a", "content": "(no output)"},
        ])
    );
}

#[test]
fn each_call_has_exactly_one_result() {
    let out = messages(vec![
        result("stray", "x"),
        user("go"),
        calls(&["a", "b", "b"]),
        result("b", "B"),
        result("b", "again"),
        user("more"),
        calls(&["a"]),
        result("a", "late"),
    ]);
    let tools: Vec<_> = out
        .iter()
        .filter(|message| message["role"] == "tool")
        .map(|message| message["content"].as_str().unwrap())
        .collect();
    assert_eq!(tools, [NO_RESULT, "B", "late"]);
}

#[test]
fn empty_and_repeated_roles() {
    let out = messages(vec![
        user("a"),
        PromptMessage::Assistant(vec![AssistantContent::Reasoning { text: "only thoughts".into(), metadata: None }]),
        PromptMessage::User(vec![Content::Text("b".into()), Content::Text(String::new())]),
        says("x"),
        says("y"),
        PromptMessage::User(Vec::new()),
    ]);
    assert_eq!(
        Json::from(out),
        json!([
            {"role": "user", "content": "a\n\nb"},
            {"role": "assistant", "content": "x\n\ny"},
            {"role": "user", "content": "(no text)"},
        ])
    );
}

#[test]
fn pictures_documents_and_attachments() {
    let image =
        Content::Image { mime: "image/png".into(), filename: None, data_url: "data:image/png;base64,AA".into() };
    let file = Content::File {
        mime: "application/pdf".into(),
        filename: "a.pdf".into(),
        data_url: "data:application/pdf;base64,AA".into(),
    };
    let mut shot = ToolResult { id: "a".into(), name: "read".into(), output: "ok".into(), ..ToolResult::default() };
    shot.attachments = vec![image.clone()];
    let out = messages(vec![
        PromptMessage::User(vec![Content::Text("see".into()), image, file]),
        calls(&["a"]),
        PromptMessage::Tool(shot),
    ]);
    assert_eq!(
        out[0]["content"],
        json!([
            {"type": "text", "text": "see"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}},
            {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AA"}},
        ])
    );
    assert_eq!(out[2], json!({"role": "tool", "tool_call_id": "a", "content": "ok"}));
    assert_eq!(out[3]["role"], "user");
    assert_eq!(out[3]["content"][1]["type"], "image_url");
}

#[test]
fn earlier_messages_are_serialised_once() {
    let turn = |n: usize| [user(&format!("question {n}")), calls(&["a"]), result("a", "out"), says("answer")];
    let mut messages: Vec<CachedMessage> = (0..50).flat_map(turn).map(CachedMessage::from).collect();
    messages.push(user("now").into());
    let prompt = Prompt { messages, ..Prompt::default() };
    let texts = |body: &Body<'_>| -> Vec<*const u8> {
        let written = body.messages.iter().map(|line| match line {
            WireMessage::Cached(_, text) => text.get().as_ptr(),
            WireMessage::Built(message) => panic!("it is made anew for each request: {message:?}"),
        });
        written.collect()
    };
    let (first, second) = (texts(&request(&prompt, "m")), texts(&request(&prompt, "m")));
    assert_eq!((first.len(), &first), (201, &second), "each text is at the same address");
}

#[test]
fn broken_calls_become_legal_ones() {
    let call = |name: &str, input: Json| call("i", name, &input)["function"].clone();
    assert_eq!(call("a b/é", json!("{broken")), json!({"name": "a_b__", "arguments": "{\"input\":\"{broken\"}"}));
    assert_eq!(call("", Json::Null), json!({"name": "unnamed", "arguments": "{}"}));
    assert_eq!(call(&"n".repeat(10_000), json!({}))["name"].as_str().unwrap().len(), MAX_NAME);
}

fn message() -> impl Strategy<Value = PromptMessage> {
    let id = "[abc]";
    prop_oneof![
        "[a-z]{0,3}".prop_map(|text| user(&text)),
        "[a-z]{0,3}".prop_map(|text| says(&text)),
        prop::collection::vec(id, 0..4).prop_map(|ids| calls(&ids.iter().map(String::as_str).collect::<Vec<_>>())),
        (id, "[a-z]{0,3}").prop_map(|(id, text)| result(&id, &text)),
    ]
}

proptest! {
    /// What strict servers check.
    #[test]
    fn every_conversation_is_legal(history in prop::collection::vec(message(), 0..20)) {
        let out = messages(history);
        let mut open: Vec<String> = Vec::new();
        let mut before = String::new();
        for message in &out {
            let role = message["role"].as_str().unwrap();
            if role == "tool" {
                prop_assert_eq!(Some(message["tool_call_id"].as_str().unwrap()), open.first().map(String::as_str));
                open.remove(0);
            } else {
                prop_assert!(open.is_empty(), "a call without a result");
                prop_assert_ne!(role, before);
                prop_assert!(message["content"].as_str().is_some_and(|text| !text.is_empty()) || message.get("tool_calls").is_some());
            }
            let calls = message.get("tool_calls").and_then(Json::as_array).into_iter().flatten();
            open.extend(calls.map(|call| call["id"].as_str().unwrap().to_owned()));
            before = role.to_owned();
        }
        prop_assert!(open.is_empty());
    }
}
