use super::*;
use proptest::prelude::*;
use serde_json::json;

/// The events besides begins and ends of blocks without data.
fn decode(payloads: &[serde_json::Value]) -> Result<Vec<LlmEvent>, LlmError> {
    let mut events = decode_all(payloads)?;
    events.retain(|event| !is_frame(event));
    Ok(events)
}

fn is_frame(event: &LlmEvent) -> bool {
    matches!(event, LlmEvent::Begin { metadata, .. } | LlmEvent::End { metadata } if metadata.is_empty())
}

fn decode_all(payloads: &[serde_json::Value]) -> Result<Vec<LlmEvent>, LlmError> {
    let mut decoder = Decoder::new("v");
    let mut events = Vec::new();
    for payload in payloads {
        events.extend(decoder.push(&payload.to_string())?);
    }
    events.extend(decoder.finish()?);
    Ok(events)
}

fn delta(delta: serde_json::Value) -> serde_json::Value {
    json!({"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

fn end(reason: &str) -> serde_json::Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

fn calls(payloads: &[serde_json::Value]) -> Vec<(String, String, String)> {
    let mut starts = Vec::new();
    let mut out = Vec::new();
    for event in decode(payloads).unwrap() {
        match event {
            LlmEvent::ToolStart { index, id, name, provider_executed: false } => {
                assert_eq!(index, starts.len());
                starts.push((id, name, String::new()));
            }
            LlmEvent::ToolInput { index, delta } => starts[index].2.push_str(&delta),
            LlmEvent::ToolEnd { index, input, .. } => {
                assert_eq!(starts[index].2, input, "the pieces make the whole");
                out.push(starts[index].clone());
            }
            _ => {}
        }
    }
    out
}

fn call(id: &str, name: &str, input: &str) -> (String, String, String) {
    (id.to_owned(), name.to_owned(), input.to_owned())
}

#[test]
fn text_reasoning_usage_and_finish() {
    let events = decode(&[
        delta(json!({"role": "assistant", "content": ""})),
        delta(json!({"reasoning_content": "Hm", "reasoning": "Hm"})),
        delta(json!({"reasoning": "m", "content": null})),
        delta(json!({"content": "Hi"})),
        delta(json!({"content": [{"type": "text", "text": " you"}]})),
        end("stop"),
        json!({"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120,
            "prompt_tokens_details": {"cached_tokens": 10}, "completion_tokens_details": {"reasoning_tokens": 5}}}),
    ]);
    let usage = Usage { input: 90, output: 15, reasoning: 5, cache_read: 10, cache_write: 0, total: Some(120) };
    assert_eq!(
        events.unwrap(),
        [
            LlmEvent::Reasoning("Hm".into()),
            LlmEvent::Reasoning("m".into()),
            LlmEvent::Text("Hi".into()),
            LlmEvent::Text(" you".into()),
            LlmEvent::Usage(usage),
            LlmEvent::Finish(FinishReason::Stop),
        ]
    );
}

#[test]
fn parallel_calls_by_index() {
    let payloads = [
        delta(
            json!({"tool_calls": [{"index": 0, "id": "a", "type": "function", "function": {"name": "read", "arguments": ""}}]}),
        ),
        delta(json!({"tool_calls": [{"index": 1, "id": "b", "function": {"name": "bash", "arguments": "{\"x\""}}]})),
        delta(
            json!({"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}, {"index": 1, "function": {"arguments": ":1}"}}]}),
        ),
        end("tool_calls"),
    ];
    assert_eq!(calls(&payloads), [call("a", "read", "{}"), call("b", "bash", "{\"x\":1}")]);
    assert_eq!(decode(&payloads).unwrap().last(), Some(&LlmEvent::Finish(FinishReason::ToolCalls)));
}

#[test]
fn call_deltas_of_many_vendors() {
    let piece = |id: serde_json::Value, name: serde_json::Value, arguments: serde_json::Value| {
        delta(json!({"tool_calls": [{"id": id, "function": {"name": name, "arguments": arguments}}]}))
    };
    let null = || serde_json::Value::Null;
    // No index: distinguished by id.
    let by_id = [
        piece(json!("a"), json!("x"), json!("{")),
        piece(null(), null(), json!("}")),
        piece(json!("b"), json!("y"), json!("{}")),
        end("tool_calls"),
    ];
    assert_eq!(calls(&by_id), [call("a", "x", "{}"), call("b", "y", "{}")]);
    // Neither index nor id: a name starts a call. "stop" does not hide that there are calls.
    let by_name = [piece(null(), json!("x"), json!("{}")), piece(null(), json!("y"), json!({"k": 1})), end("stop")];
    assert_eq!(calls(&by_name), [call("call_0", "x", "{}"), call("call_1", "y", "{\"k\":1}")]);
    assert_eq!(decode(&by_name).unwrap().last(), Some(&LlmEvent::Finish(FinishReason::ToolCalls)));
    // Id and name are repeated with every piece.
    let repeated = [
        piece(json!("a"), json!("x"), json!("{\"k\"")),
        piece(json!("a"), json!("x"), json!(":{}}")),
        piece(json!("a"), json!("x"), json!("")),
    ];
    assert_eq!(calls(&repeated), [call("a", "x", "{\"k\":{}}")]);
    // Two calls with the same id.
    let same = [piece(json!("a"), json!("x"), json!("{\"n\":1}")), piece(json!("a"), json!("x"), json!("{\"n\":2}"))];
    assert_eq!(calls(&same), [call("a", "x", "{\"n\":1}"), call("a_1", "x", "{\"n\":2}")]);
    // Index 0 for every call.
    let zero =
        |id: &str| delta(json!({"tool_calls": [{"index": 0, "id": id, "function": {"name": "x", "arguments": "{}"}}]}));
    assert_eq!(calls(&[zero("a"), zero("b")]), [call("a", "x", "{}"), call("b", "x", "{}")]);
    // The name arrives late, or never.
    let late = [piece(json!("a"), null(), json!("{")), piece(json!("a"), json!("x"), json!("}"))];
    assert_eq!(calls(&late), [call("a", "x", "{}")]);
    assert_eq!(calls(&[piece(json!("a"), null(), json!("{}"))]), [call("a", "", "{}")]);
}

#[test]
fn names_ids_calls_and_arguments_are_bounded() {
    let huge = calls(&[delta(
        json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "n".repeat(10_000), "arguments": "{}"}}]}),
    )]);
    assert!(huge[0].1.len() <= MAX_NAME);
    let id = delta(json!({"tool_calls": [{"index": 0, "id": "i".repeat(MAX_ID + 1), "function": {"name": "x"}}]}));
    assert_eq!(decode(&[id]).unwrap_err().class, crate::ErrorClass::Retryable);
    let many: Vec<_> =
        (0..=MAX_CALLS).map(|n| delta(json!({"tool_calls": [{"index": n, "function": {"name": "x"}}]}))).collect();
    assert!(decode(&many).is_err());
    // No event is emitted for a call without a name, but its arguments are kept.
    let piece =
        delta(json!({"tool_calls": [{"index": 0, "function": {"arguments": "y".repeat(crate::MAX_ANSWER / 4 + 1)}}]}));
    assert_eq!(decode(&vec![piece; 4]).unwrap_err().class, crate::ErrorClass::TooLong);
}

#[test]
fn odd_usage_is_tolerated() {
    let usage = |usage: serde_json::Value| {
        let events = decode(&[json!({"choices": null, "usage": usage})]).unwrap();
        match events[0] {
            LlmEvent::Usage(usage) => usage,
            _ => panic!("{events:?}"),
        }
    };
    assert_eq!(
        usage(json!({"prompt_tokens": -1, "completion_tokens": 7.9, "total_tokens": null})),
        Usage { output: 7, ..Usage::default() }
    );
    assert_eq!(usage(json!({"prompt_tokens": "12", "completion_tokens": {}, "prompt_tokens_details": null})).input, 12);
    assert_eq!(usage(json!({"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 9}})).input, 0);
    assert_eq!(
        usage(json!({"prompt_tokens": 9, "prompt_cache_hit_tokens": 4})),
        Usage { input: 5, cache_read: 4, ..Usage::default() }
    );
    assert!(usage(json!({"prompt_tokens": 1e300})).input < u64::MAX);
}

#[test]
fn ends() {
    let last = |payloads: &[serde_json::Value]| decode(payloads).unwrap().pop().unwrap();
    assert_eq!(last(&[delta(json!({"content": "cut"}))]), LlmEvent::Finish(FinishReason::Unknown));
    for (word, reason) in [
        ("length", FinishReason::Length),
        ("content_filter", FinishReason::ContentFilter),
        ("odd", FinishReason::Unknown),
    ] {
        assert_eq!(last(&[end(word)]), LlmEvent::Finish(reason));
    }
    let cut = [delta(
        json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "bash", "arguments": "{\"command\": \"rm"}}]}),
    )];
    assert!(decode(&cut).unwrap_err().message.contains("middle of a tool call"));
    let mut decoder = Decoder::default();
    assert!(decoder.push("[DONE]").unwrap().is_empty() && decoder.is_done());
    assert!(decoder.push("garbage").unwrap().is_empty(), "nothing follows the end");
}

#[test]
fn errors_in_the_stream() {
    let error = |payload: serde_json::Value| decode(&[payload]).unwrap_err();
    assert_eq!(
        error(json!({"error": {"message": "mid stream failure", "type": "server_error"}})).message,
        "mid stream failure"
    );
    assert_eq!(error(json!({"error": "plain"})).message, "plain");
    assert_eq!(error(json!({"object": "error", "message": "vllm", "code": 400})).class, crate::ErrorClass::Invalid);
    assert!(decode(&[json!({"error": null, "choices": []})]).is_ok());
    let broken = Decoder::default().push(r#"{"choices":[{"delta":{"content":"oops"#).unwrap_err();
    assert_eq!(broken.class, crate::ErrorClass::Retryable);
    for odd in ["5", "\"x\"", "null", "{\"choices\":5}", "{}{}"] {
        assert_eq!(Decoder::default().push(odd).unwrap_err().class, crate::ErrorClass::Retryable, "{odd}");
    }
}

fn begin(kind: BlockKind) -> LlmEvent {
    LlmEvent::begin(kind)
}

fn data(details: serde_json::Value) -> LlmEvent {
    let metadata = json!({"v": {"reasoning_details": details}});
    LlmEvent::End { metadata: metadata.as_object().unwrap().clone() }
}

#[test]
fn each_block_begins_and_ends() {
    let call = |arguments: &str| json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "read", "arguments": arguments}}]});
    let events = decode_all(&[
        delta(json!({"reasoning": "r1"})),
        delta(json!({"reasoning_content": "r2"})),
        delta(json!({"content": "t1"})),
        delta(call("{}")),
        delta(json!({"content": "t2"})),
        delta(json!({"reasoning": "r3", "content": "t3"})),
        end("tool_calls"),
    ]);
    let text = |text: &str| LlmEvent::Text(text.into());
    let thought = |text: &str| LlmEvent::Reasoning(text.into());
    assert_eq!(
        events.unwrap(),
        [
            begin(BlockKind::Reasoning),
            thought("r1"),
            thought("r2"),
            LlmEvent::end(),
            begin(BlockKind::Text),
            text("t1"),
            start(0, "a", "read".into()),
            LlmEvent::ToolInput { index: 0, delta: "{}".into() },
            LlmEvent::ToolEnd { index: 0, input: "{}".into(), metadata: JsonMap::new() },
            text("t2"),
            LlmEvent::end(),
            begin(BlockKind::Reasoning),
            thought("r3"),
            LlmEvent::end(),
            begin(BlockKind::Text),
            text("t3"),
            LlmEvent::end(),
            LlmEvent::Finish(FinishReason::ToolCalls),
        ]
    );
}

#[test]
fn details_of_reasoning_are_kept_as_they_came() {
    let pieces = |list: serde_json::Value| delta(json!({"reasoning_details": list}));
    let text =
        |index: u8, text: &str| json!({"type": "reasoning.text", "text": text, "signature": null, "index": index});
    // Signed text in pieces; the same text also stands in the plain field, or only in the details.
    let events = decode_all(&[
        delta(json!({"reasoning": "He", "reasoning_details": [text(0, "He")]})),
        pieces(json!([text(0, "llo")])),
        pieces(json!([{"type": "reasoning.text", "signature": "sig", "format": "f", "index": 0}])),
        pieces(json!([text(0, "Next")])),
        delta(json!({"content": "Hi"})),
        end("stop"),
    ]);
    let whole = json!([
        {"type": "reasoning.text", "text": "Hello", "signature": "sig", "index": 0, "format": "f"},
        {"type": "reasoning.text", "text": "Next", "signature": null, "index": 0},
    ]);
    assert_eq!(
        events.unwrap()[..6],
        [
            begin(BlockKind::Reasoning),
            LlmEvent::Reasoning("He".into()),
            LlmEvent::Reasoning("llo".into()),
            LlmEvent::Reasoning("Next".into()),
            data(whole),
            begin(BlockKind::Text),
        ]
    );
    // Encrypted ones have no text, and may come last.
    let encrypted = json!([{"type": "reasoning.encrypted", "data": "x", "index": 1}, {"type": "reasoning.encrypted", "data": "y", "index": 1}]);
    let events = decode_all(&[delta(json!({"content": "Hi"})), pieces(encrypted.clone()), end("stop")]).unwrap();
    assert_eq!(
        events[2..],
        [LlmEvent::end(), begin(BlockKind::Reasoning), data(encrypted.clone()), LlmEvent::Finish(FinishReason::Stop)]
    );
    // Before a call they end with the block that they belong to.
    let call = delta(json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "x", "arguments": "{}"}}]}));
    let events = decode_all(&[pieces(encrypted.clone()), call, end("tool_calls")]).unwrap();
    assert_eq!(events[..2], [begin(BlockKind::Reasoning), data(encrypted)]);
}

#[test]
fn odd_details_are_harmless() {
    for odd in [json!("x"), json!(5), json!({}), json!(null), json!([1, "x", null])] {
        let events = decode(&[delta(json!({"content": "Hi", "reasoning_details": odd}))]).unwrap();
        assert_eq!(events, [LlmEvent::Text("Hi".into()), LlmEvent::Finish(FinishReason::Unknown)]);
    }
    let detail = json!({"type": "reasoning.encrypted", "data": "y".repeat(MAX_ANSWER / 4 + 1)});
    let long = delta(json!({"reasoning_details": [detail]}));
    assert_eq!(decode(&vec![long; 4]).unwrap_err().class, crate::ErrorClass::TooLong);
    let many = delta(json!({"reasoning_details": vec![json!({"type": "t"}); 5000]}));
    assert_eq!(decode(&[many]).unwrap_err().class, crate::ErrorClass::TooLong);
}

#[test]
fn what_a_gateway_wants_back_with_a_call_is_kept() {
    let extra = json!({"google": {"thought_signature": "sig"}});
    let call = json!({"index": 0, "id": "a", "function": {"name": "x", "arguments": "{}"}, "extra_content": extra});
    let events = decode(&[delta(json!({"tool_calls": [call]})), end("tool_calls")]).unwrap();
    let metadata = json!({"v": {"extra_content": extra}}).as_object().unwrap().clone();
    assert_eq!(events[2], LlmEvent::ToolEnd { index: 0, input: "{}".into(), metadata });
}

/// Pieces like those that servers send, in any order.
fn fragment() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("data: [DONE]\n\n".to_owned()),
        Just(": ping\n".to_owned()),
        "[a-z{}\\[\\]\":,0-9 é🦀]{0,30}\n?",
        ("[a-z🦀]{0,9}", 0u8..4, "[{}a-z]{0,6}").prop_map(|(text, index, arguments)| {
            let chunk = delta(json!({"content": text, "tool_calls": [{"index": index, "function": {"name": text, "arguments": arguments}}]}));
            format!("data: {chunk}\r\n\r\n")
        }),
    ]
}

proptest! {
    #[test]
    fn any_stream_is_survived(size in any::<u8>(), fragments in prop::collection::vec(fragment(), 0..12)) {
        let mut bytes = vec![size];
        bytes.extend(fragments.concat().into_bytes());
        crate::fuzz_decoder(&bytes);
    }

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        crate::fuzz_decoder(&bytes);
    }

    #[test]
    fn text_comes_through_unchanged(texts in prop::collection::vec(".{1,20}", 0..10)) {
        let payloads: Vec<_> = texts.iter().map(|text| delta(json!({"content": text}))).collect();
        let mut events = decode(&payloads).unwrap();
        prop_assert_eq!(events.pop(), Some(LlmEvent::Finish(FinishReason::Unknown)));
        prop_assert_eq!(events, texts.into_iter().map(LlmEvent::Text).collect::<Vec<_>>());
    }
}
