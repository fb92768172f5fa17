use super::*;

mod recorded;

use crate::{Settings, ToolSpec};
use proptest::prelude::*;

fn user(text: &str) -> PromptMessage {
    PromptMessage::User(vec![Content::Text(text.into())])
}

fn says(text: &str) -> PromptMessage {
    PromptMessage::Assistant(vec![AssistantContent::text(text)])
}

fn calls(ids: &[&str]) -> PromptMessage {
    let call = |id: &&str| AssistantContent::ToolCall {
        id: (*id).to_owned(),
        name: "read".into(),
        input: json!({"n": 1}),
        metadata: JsonMap::new(),
    };
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

/// A server that takes reasoning back in a field of this name.
fn with_field(name: &str, is_required: bool) -> Arc<ChatDialect> {
    let reasoning = Some(ReasoningField { name: name.to_owned(), is_required });
    Arc::new(ChatDialect { vendor: "v".to_owned(), reasoning, ..ChatDialect::default() })
}

fn messages(messages: Vec<PromptMessage>) -> Vec<Json> {
    messages_for(&with_field("reasoning_content", false), messages)
}

fn messages_for(dialect: &Arc<ChatDialect>, messages: Vec<PromptMessage>) -> Vec<Json> {
    let prompt = Prompt { messages: messages.into_iter().map(CachedMessage::from).collect(), ..Prompt::default() };
    let body = json!(request(&prompt, "m", dialect));
    assert_eq!(json!(request(&prompt, "m", dialect)), body, "the cached form stays the same");
    body["messages"].as_array().unwrap().clone()
}

fn metadata(value: Json) -> JsonMap {
    value.as_object().unwrap().clone()
}

fn thought(text: &str, data: Json) -> AssistantContent {
    AssistantContent::Reasoning { text: text.into(), metadata: metadata(data) }
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
            options: [("reasoningEffort".into(), json!("low")), ("stream".into(), json!(false))].into_iter().collect(),
            ..Settings::default()
        },
    };
    assert_eq!(
        json!(request(&prompt, "gpt-x", &Arc::default())),
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
        let body = json!(request(&Prompt { settings, ..Prompt::default() }, model, &Arc::default()));
        (body.get("max_tokens").cloned(), body.get("max_completion_tokens").cloned())
    };
    assert_eq!(limits("llama", JsonMap::new()), (Some(json!(9)), None));
    assert_eq!(limits("openai/gpt-5-mini", JsonMap::new()), (None, Some(json!(9))));
    let own = JsonMap::from_iter([("max_completion_tokens".to_owned(), json!(5))]);
    assert_eq!(limits("llama", own), (None, Some(json!(5))));
}

#[test]
fn calls_results_and_thinking() {
    let thinking = thought("hm", json!({}));
    let read = AssistantContent::ToolCall {
        id: "a".into(),
        name: "read".into(),
        input: json!({"filePath": "x"}),
        metadata: JsonMap::new(),
    };
    let out = messages(vec![
        user("one"),
        PromptMessage::Assistant(vec![thinking.clone(), read.clone()]),
        result("a", "old"),
        says("done"),
        user("two"),
        PromptMessage::Assistant(vec![thinking, AssistantContent::text("look"), read]),
        result("a", ""),
    ]);
    let call =
        json!({"id": "a", "type": "function", "function": {"name": "read", "arguments": "{\"filePath\":\"x\"}"}});
    assert_eq!(
        Json::from(out),
        json!([
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": [call]},
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
        PromptMessage::Assistant(vec![thought("only thoughts", json!({}))]),
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
    let dialect = Arc::default();
    let (first, second) = (texts(&request(&prompt, "m", &dialect)), texts(&request(&prompt, "m", &dialect)));
    assert_eq!((first.len(), &first), (201, &second), "each text is at the same address");
    // Another form is another text, and is kept in its turn.
    let other = with_field("reasoning", true);
    let (third, fourth) = (texts(&request(&prompt, "m", &other)), texts(&request(&prompt, "m", &other)));
    assert_eq!(third, fourth);
}

#[test]
fn broken_calls_become_legal_ones() {
    let call = |name: &str, input: Json| call("i", name, &input)["function"].clone();
    assert_eq!(call("a b/é", json!("{broken")), json!({"name": "a_b__", "arguments": "{\"input\":\"{broken\"}"}));
    assert_eq!(call("", Json::Null), json!({"name": "unnamed", "arguments": "{}"}));
    assert_eq!(call(&"n".repeat(10_000), json!({}))["name"].as_str().unwrap().len(), MAX_NAME);
}

#[test]
fn reasoning_goes_back_in_the_field_of_the_server() {
    let answer =
        || vec![user("q"), PromptMessage::Assistant(vec![thought("hm", json!({})), AssistantContent::text("a")])];
    let plain = || vec![user("q"), says("a")];
    let line = |dialect: Arc<ChatDialect>, messages| messages_for(&dialect, messages).pop().unwrap();
    for (dialect, with, without) in [
        (
            with_field("thoughts", false),
            json!({"role": "assistant", "content": "a", "thoughts": "hm"}),
            json!({"role": "assistant", "content": "a"}),
        ),
        (
            with_field("r", true),
            json!({"role": "assistant", "content": "a", "r": "hm"}),
            json!({"role": "assistant", "content": "a", "r": ""}),
        ),
        (Arc::default(), json!({"role": "assistant", "content": "a"}), json!({"role": "assistant", "content": "a"})),
    ] {
        assert_eq!(line(dialect.clone(), answer()), with);
        assert_eq!(line(dialect, plain()), without);
    }
    let joined = messages(vec![answer().remove(1), answer().remove(1), says("b")]);
    assert_eq!(joined, [json!({"role": "assistant", "content": "a\n\na\n\nb", "reasoning_content": "hm\n\nhm"})]);
}

#[test]
fn details_go_back_verbatim_and_only_to_their_vendor() {
    let detail = |n: u8| json!({"type": "reasoning.encrypted", "data": "x", "z": 1, "index": n});
    let data = |vendor: &str, n: u8| json!({vendor: {"reasoning_details": [detail(n)]}});
    let call = AssistantContent::ToolCall {
        id: "a".into(),
        name: "read".into(),
        input: json!({}),
        metadata: metadata(
            json!({"v": {"extra_content": {"google": {"thought_signature": "s"}}}, "w": {"extra_content": 1}}),
        ),
    };
    let vendors = AssistantContent::VendorCall {
        id: "b".into(),
        name: "web_search".into(),
        input: json!({}),
        output: "found".into(),
        is_error: false,
        metadata: metadata(json!({"v": {}})),
    };
    let pieces = vec![thought("", data("v", 0)), thought("t", data("w", 9)), thought("", data("v", 1)), vendors, call];
    let out = messages(vec![user("q"), PromptMessage::Assistant(pieces), result("a", "r")]);
    assert_eq!(
        out[1],
        json!({
            "role": "assistant", "content": null, "reasoning_content": "t",
            "reasoning_details": [detail(0), detail(1)],
            "tool_calls": [{"id": "a", "type": "function", "function": {"name": "read", "arguments": "{}"},
                "extra_content": {"google": {"thought_signature": "s"}}}],
        })
    );
    assert_eq!(out.len(), 3, "what the vendor ran has no result of ours");
    let say = |n| PromptMessage::Assistant(vec![thought("", data("v", n)), AssistantContent::text("x")]);
    let joined = messages(vec![say(0), say(1)]);
    assert_eq!(joined[0]["reasoning_details"], json!([detail(0), detail(1)]));
}

#[test]
fn mistral_gets_ids_of_nine_characters() {
    let dialect = Arc::new(ChatDialect { nine_character_ids: true, ..ChatDialect::default() });
    let ids = ["call_AvggvKehg_5cgEGo", "call_AvggvKehg_5cgEGp", "a", "abcDEF123", ""];
    let mut conversation = vec![user("q"), calls(&ids)];
    conversation.extend(ids.iter().map(|id| result(id, id)));
    let out = messages_for(&dialect, conversation);
    let sent: Vec<&str> =
        out[1]["tool_calls"].as_array().unwrap().iter().map(|call| call["id"].as_str().unwrap()).collect();
    assert!(sent.iter().all(|id| id.len() == 9 && id.bytes().all(|b| b.is_ascii_alphanumeric())), "{sent:?}");
    assert_eq!(sent.iter().collect::<HashSet<_>>().len(), ids.len());
    assert_eq!(sent[3], "abcDEF123", "its own stay");
    for (at, id) in sent.iter().enumerate() {
        assert_eq!(out[2 + at]["tool_call_id"], **id, "a result has the id of its call");
    }
    let many: HashSet<String> = (0..20_000).map(|n| short_id(&format!("call_{n}"))).collect();
    assert_eq!(many.len(), 20_000);
    assert_eq!(messages(vec![user("q"), calls(&["a"]), result("a", "")])[2]["tool_call_id"], "a", "others keep theirs");
}

#[test]
fn vendors_have_fields_of_their_own() {
    let settings = Settings { session: Some("ses_1".into()), ..Settings::default() };
    let mut prompt = Prompt { settings, ..Prompt::default() };
    let body = |prompt: &Prompt, provider: &str| {
        let dialect = Arc::new(ChatDialect::of(provider, "", "m", &json!(false)));
        json!(request(prompt, "m", &dialect))
    };
    assert_eq!(body(&prompt, "openai")["prompt_cache_key"], "ses_1");
    assert!(body(&prompt, "mine").get("prompt_cache_key").is_none());
    let openrouter = body(&prompt, "openrouter");
    assert_eq!(openrouter["usage"], json!({"include": true}));
    assert!(openrouter.get("stream_options").is_none());
    prompt.settings.options = metadata(json!({"setCacheKey": true, "prompt_cache_retention": "24h"}));
    let mine = body(&prompt, "mine");
    assert_eq!((&mine["prompt_cache_key"], &mine["prompt_cache_retention"]), (&json!("ses_1"), &json!("24h")));
    assert!(mine.get("setCacheKey").is_none());
    prompt.settings.options = metadata(json!({"setCacheKey": false}));
    assert!(body(&prompt, "openai").get("prompt_cache_key").is_none());
    prompt.settings.options = metadata(json!({"promptCacheKey": "own"}));
    assert_eq!(body(&prompt, "openai")["prompt_cache_key"], "own");
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

    /// A vendor's cache finds what repeats the request before: its messages come again byte for byte, and the rest of
    /// the body is the same.
    #[test]
    fn each_request_repeats_the_one_before(
        turns in prop::collection::vec((turn(), "[a-z]{1,5}"), 10),
        kind in 0usize..5,
    ) {
        let dialects = [
            with_field("reasoning_content", false),
            with_field("reasoning", true),
            Arc::default(),
            Arc::new(ChatDialect::of("openrouter", "", "m", &json!(false))),
            Arc::new(ChatDialect::of("mistral", "", "m", &json!(false))),
        ];
        let dialect = &dialects[kind];
        let mut prompt = Prompt { system: vec!["Be brief.".into()], ..Prompt::default() };
        let mut before: Option<(String, String)> = None;
        for (number, (steps, text)) in turns.into_iter().enumerate() {
            prompt.messages.push(user(&text).into());
            for (step, content) in steps.into_iter().enumerate() {
                let (messages, rest) = written(&prompt, dialect);
                if let Some((earlier, same)) = &before {
                    prop_assert!(messages.starts_with(earlier.as_str()), "{earlier} is not the beginning of {messages}");
                    prop_assert_eq!(&rest, same);
                }
                before = Some((messages, rest));
                // As in the engine, whose messages are parsed anew after a restart.
                let (content, results) = answer(content, &format!("{number}-{step}"));
                prompt.messages.push(PromptMessage::Assistant(content).into());
                prompt.messages.extend(results.into_iter().map(CachedMessage::from));
                if step % 2 == 1 {
                    prompt.messages = prompt.messages.iter().map(|message| (**message).clone().into()).collect();
                }
            }
            prompt.messages.push(PromptMessage::Assistant(vec![thought("so", json!({})), AssistantContent::text("done")]).into());
        }
    }
}

/// The steps of a turn: reasoning, text, the number of calls, whether there is a picture in the results.
fn turn() -> impl Strategy<Value = Vec<(String, String, usize, bool)>> {
    prop::collection::vec(("[a-zé🦀]{0,4}", "[ a-z]{0,4}", 1usize..4, any::<bool>()), 1..3)
}

fn answer(
    (thinks, text, count, shows): (String, String, usize, bool),
    prefix: &str,
) -> (Vec<AssistantContent>, Vec<PromptMessage>) {
    let details = json!([{"type": "reasoning.text", "text": thinks, "signature": "s"}]);
    let mut content = vec![
        thought(&thinks, json!({"v": {"reasoning_details": details}, "openrouter": {"reasoning_details": details}})),
        AssistantContent::text(text),
    ];
    let ids: Vec<String> = (0..count).map(|call| format!("call_{prefix}_{call}")).collect();
    let PromptMessage::Assistant(calls) = calls(&ids.iter().map(String::as_str).collect::<Vec<_>>()) else {
        unreachable!()
    };
    content.extend(calls);
    let image =
        Content::Image { mime: "image/png".into(), filename: None, data_url: "data:image/png;base64,AA".into() };
    let results = ids.iter().map(|id| {
        let attachments = if shows { vec![image.clone()] } else { Vec::new() };
        PromptMessage::Tool(ToolResult {
            id: id.clone(),
            name: "read".into(),
            output: "out".into(),
            attachments,
            ..ToolResult::default()
        })
    });
    (content, results.collect())
}

/// The messages of a request without the end of their list, and the rest of the body.
fn written(prompt: &Prompt, dialect: &Arc<ChatDialect>) -> (String, String) {
    let body = request(prompt, "m", dialect);
    let messages = serde_json::to_string(&body.messages).unwrap();
    let rest = serde_json::to_string(&(&body.rest, body.model)).unwrap();
    (messages.strip_suffix(']').unwrap().to_owned(), rest)
}
