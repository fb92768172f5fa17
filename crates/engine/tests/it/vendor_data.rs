//! What a vendor gives with its blocks is kept on the parts, and goes back to it and to nobody else.

use crate::common::{Lab, prompt, script, text};
use api::{EventBody, Host, MessageWithParts, ModelRef, Part, PromptInput, ToolState};
use serde_json::{Value, json};
use testkit::{ModelServer, Reply, Request, eventually};

fn shown(message: &MessageWithParts) -> Vec<Value> {
    let keep = |part: &Part| {
        let part = serde_json::to_value(part).unwrap();
        let mut kept = json!({});
        for name in ["type", "text", "metadata", "tool"] {
            if let Some(value) = part.get(name) {
                kept[name] = value.clone();
            }
        }
        kept
    };
    let marks = |part: &&Part| !matches!(part, Part::StepStart(_) | Part::StepFinish(_));
    message.parts.iter().filter(marks).map(keep).collect()
}

#[tokio::test]
async fn every_block_keeps_its_data_also_without_text() {
    let lab = Lab::new();
    let session = lab.session().await;
    let steps = json!([{"blocks": [
        {"type": "reasoning", "metadata": {"v": {"redacted": "x"}}},
        {"type": "reasoning", "text": "A long thought, in several pieces.", "metadata": {"v": {"sig": "r"}}},
        {"type": "reasoning"},
        {"type": "reasoning", "text": "Another"},
        {"type": "text", "text": "So ", "metadata": {"v": {"itemId": "t"}}},
        {"type": "text", "text": "it is"},
    ]}]);
    let answer = lab.say(&session, &script(steps)).await;
    let want = [
        json!({"type": "reasoning", "text": "", "metadata": {"v": {"redacted": "x"}}}),
        json!({"type": "reasoning", "text": "A long thought, in several pieces.", "metadata": {"v": {"sig": "r"}}}),
        json!({"type": "reasoning", "text": "Another"}),
        json!({"type": "text", "text": "So ", "metadata": {"v": {"itemId": "t"}}}),
        json!({"type": "text", "text": "it is"}),
    ];
    assert_eq!(shown(&answer), want);
    assert_eq!(shown(&lab.messages(&session).await[1]), want, "as stored");
    let ended = |part: &Part| serde_json::to_value(part).unwrap()["time"]["end"].is_i64();
    assert!(answer.parts.iter().filter(|part| !matches!(part, Part::StepStart(_) | Part::StepFinish(_))).all(ended));
}

#[tokio::test]
async fn a_call_of_the_vendor_is_shown_and_never_runs_here() {
    let lab = Lab::new();
    let session = lab.session().await;
    let file = lab.gate("ran");
    let call = |outcome: Value| {
        let input = json!({"command": format!("touch {}", file.display())});
        let mut call = json!({"type": "tool", "name": "bash", "input": input, "metadata": {"v": {"raw": {"id": 1}}}});
        call.as_object_mut().unwrap().extend(outcome.as_object().unwrap().clone());
        call
    };
    let blocks = json!([
        call(json!({"output": "found"})),
        call(json!({"error": "no luck"})),
        call(json!({"unfinished": true})),
        {"type": "text", "text": "Done"},
    ]);
    let answer = lab.say(&session, &script(json!([{"blocks": blocks}, {"text": "a step too many"}]))).await;
    assert_eq!(text(&answer), "Done", "there is nothing to give results for");
    let info = answer.info.as_assistant().unwrap();
    assert_eq!((info.finish.as_deref(), info.error.is_none()), (Some("stop"), true));
    let tools = lab.tools(&session).await;
    let states: Vec<&str> = tools.iter().map(|tool| tool.state.status()).collect();
    assert_eq!(states, ["completed", "error", "error"]);
    for tool in &tools {
        assert_eq!(json!(tool.metadata), json!({"providerExecuted": true, "v": {"raw": {"id": 1}}}));
    }
    let ToolState::Completed(done) = &tools[0].state else { panic!("{:?}", tools[0]) };
    assert_eq!((done.output.as_str(), done.input["command"].is_string()), ("found", true));
    let ToolState::Error(cut) = &tools[2].state else { panic!("{:?}", tools[2]) };
    assert!(cut.error.contains("without the result"), "{}", cut.error);
    assert!(!file.exists());
}

#[tokio::test]
async fn recovery_does_not_run_a_call_of_the_vendor_either() {
    let mut lab = Lab::new();
    let session = lab.session().await;
    let file = lab.gate("ran");
    let mut events = lab.recorder().await;
    // A call that reads could run again, if it were ours.
    let call =
        json!({"type": "tool", "name": "glob", "input": {"pattern": "*"}, "unfinished": true, "metadata": {"v": {}}});
    let says = json!({"type": "text", "text": "I look."});
    let steps = json!([{"blocks": [says, call], "hold": file}, {"text": "went on"}]);
    lab.engine.prompt_async(&session, prompt(&script(steps))).await.unwrap();
    let is_running = |part: &Part| part.as_tool().is_some_and(|tool| tool.state.status() == "running");
    events.wait_for(|body| matches!(body, EventBody::PartUpdated { part, .. } if is_running(part))).await;
    drop(events);
    lab.restart().await;
    lab.engine.recover(None).await.unwrap();
    let is_over = async || text(lab.messages(&session).await.last().unwrap()) == "went on";
    eventually("the end of the turn", is_over).await;
    let tools = lab.tools(&session).await;
    assert_eq!(tools.len(), 1);
    let ToolState::Error(error) = &tools[0].state else { panic!("{tools:#?}") };
    assert!(error.error.contains("interrupted"), "{}", error.error);
}

#[tokio::test]
async fn a_failed_attempt_leaves_nothing_for_the_vendor() {
    let lab = Lab::new();
    let session = lab.session().await;
    let call = json!({"type": "tool", "name": "search", "output": "x", "metadata": {"v": {}}});
    let blocks = json!([{"type": "reasoning", "metadata": {"v": {"sig": 1}}}, call]);
    let step = json!({"blocks": blocks, "malformed": true, "retry_after_ms": 1, "fail_times": 1});
    let answer = lab.say(&session, &script(json!([step]))).await;
    assert!(answer.info.as_assistant().unwrap().error.is_none());
    let ignored: Vec<bool> = shown(&answer).iter().map(|part| part["metadata"]["ignored"] == true).collect();
    assert_eq!(ignored, [true, true, false, false]);
}

/// A server with two models of one family and one of another.
async fn families() -> (ModelServer, Lab) {
    let model = ModelServer::start().await;
    let mut config = model.config();
    let models = &mut config["provider"]["test"]["models"];
    models["test-model"]["family"] = json!("one");
    models["sibling"] = json!({"family": "one"});
    models["stranger"] = json!({"family": "two"});
    let lab = Lab::with(config);
    (model, lab)
}

async fn say_to(lab: &Lab, session: &api::SessionId, model: &str) {
    let model = Some(ModelRef::new("test", model));
    lab.engine.prompt(session, PromptInput { model, ..prompt("go on") }).await.unwrap();
}

fn details(request: &Request) -> Vec<Value> {
    request
        .messages()
        .iter()
        .filter(|message| message["role"] == "assistant")
        .map(|m| m["reasoning_details"].clone())
        .collect()
}

#[tokio::test]
async fn data_goes_back_to_its_family_and_to_no_other() {
    let (model, mut lab) = families().await;
    let session = lab.session().await;
    let list = json!([{"type": "reasoning.encrypted", "data": "ENCRYPTED-17", "b": 1, "a": 2}]);
    let chunk = json!({"choices": [{"index": 0, "delta": {"reasoning_details": list}}]});
    let glob = || Reply::default().raw(format!("data: {chunk}\n\n"));
    model.enqueue(glob().tool("c1", "glob", json!({"pattern": "*"})));
    for _ in 0..5 {
        model.enqueue(Reply::text("ok"));
    }
    lab.say(&session, "look").await;
    let parts = shown(&lab.messages(&session).await[1]);
    assert_eq!(parts[0], json!({"type": "reasoning", "text": "", "metadata": {"test": {"reasoning_details": list}}}));
    say_to(&lab, &session, "stranger").await;
    say_to(&lab, &session, "sibling").await;
    say_to(&lab, &session, "test-model").await;
    lab.restart().await;
    say_to(&lab, &session, "test-model").await;
    let requests = model.requests();
    let first = |at: usize| details(&requests[at])[0].clone();
    assert_eq!(first(1).to_string(), list.to_string(), "within the turn, byte for byte");
    assert_eq!(first(2), Value::Null, "another family");
    assert_eq!(first(3), list, "the same family");
    assert_eq!(first(4), list, "the same model");
    assert_eq!(first(5), list, "also after a restart");
    assert!(!requests[2].body.to_string().contains("ENCRYPTED-17"));
    let before = requests[4].messages();
    assert_eq!(json!(requests[5].messages()[..before.len()]).to_string(), json!(before).to_string());
}

#[tokio::test]
async fn each_request_of_ten_turns_repeats_the_one_before() {
    let model = ModelServer::start().await;
    let mut lab = Lab::with(model.config());
    lab.project.write("a.txt", "alpha\n");
    let session = lab.session().await;
    for turn in 0..10 {
        let detail = json!([{"type": "reasoning.text", "text": "t", "signature": turn}]);
        let chunk = json!({"choices": [{"index": 0, "delta": {"reasoning_details": detail}}]});
        let thinks = Reply::default().reasoning(format!("thought {turn}")).raw(format!("data: {chunk}\n\n"));
        let calls = thinks.and_text("I look.").tool(format!("a{turn}"), "read", json!({"filePath": "a.txt"}));
        model.enqueue(calls.tool(format!("b{turn}"), "glob", json!({"pattern": "*"})));
        model.enqueue(Reply::default().reasoning("so").and_text(format!("answer {turn}")));
        lab.say(&session, &format!("question {turn}")).await;
        if turn == 5 {
            lab.restart().await;
        }
    }
    let requests = model.requests();
    assert_eq!(requests.len(), 20);
    for (at, pair) in requests.windows(2).enumerate() {
        let body = |request: &Request| {
            let text = request.body.to_string();
            let messages = json!(request.messages()).to_string();
            let (before, after) = text.split_once(&messages).unwrap();
            (messages, before.to_owned(), after.to_owned())
        };
        let ((earlier, head, tail), (later, head2, tail2)) = (body(&pair[0]), body(&pair[1]));
        let earlier = earlier.strip_suffix(']').unwrap();
        assert!(later.starts_with(earlier), "request {}:\n{earlier}\n{later}", at + 1);
        assert_eq!((head, tail), (head2, tail2));
    }
}

#[tokio::test]
async fn options_have_the_names_of_the_wire_and_answers_a_limit() {
    let model = ModelServer::start().await;
    let mut config = model.config();
    config["provider"]["test"]["options"]["setCacheKey"] = json!(true);
    let models = &mut config["provider"]["test"]["models"];
    models["test-model"] = json!({
        "limit": {"context": 200_000, "output": 64_000}, "options": {"textVerbosity": "low", "reasoning_effort": "low", "own": 1},
        "variants": {"high": {"reasoningEffort": "high", "thinking": {"type": "enabled", "budgetTokens": 16_000}}},
    });
    models["small"] = json!({"limit": {"context": 9000, "output": 900}});
    models["unknown"] = json!({});
    let lab = Lab::with(config);
    let session = lab.session().await;
    for (name, variant) in [("test-model", Some("high")), ("test-model", None), ("small", None), ("unknown", None)] {
        model.enqueue(Reply::text("ok"));
        let input = PromptInput {
            model: Some(ModelRef::new("test", name)),
            variant: variant.map(str::to_owned),
            ..prompt("hi")
        };
        lab.engine.prompt(&session, input).await.unwrap();
    }
    let requests = model.requests();
    let body = |at: usize, name: &str| requests[at].body[name].clone();
    assert_eq!(body(0, "reasoning_effort"), "high");
    assert_eq!(body(0, "verbosity"), "low");
    assert_eq!(body(0, "thinking"), json!({"type": "enabled", "budget_tokens": 16_000}));
    assert_eq!((body(0, "own"), body(0, "prompt_cache_key")), (json!(1), json!(session.as_str())));
    assert!(!requests[0].body.to_string().contains("reasoningEffort"));
    assert_eq!(body(1, "reasoning_effort"), "low");
    let limits: Vec<Value> = (0..4).map(|at| body(at, "max_tokens")).collect();
    assert_eq!(limits, [json!(48_000), json!(32_000), json!(900), Value::Null]);
}
