use std::path::PathBuf;

use api::{RunnerChange, Usd};

use super::*;
use crate::client::Subagent;

fn new_translator() -> UpdateTranslator {
    let mut translator = UpdateTranslator::default();
    translator.begin("s", 0.5);
    translator
}

fn translate(translator: &mut UpdateTranslator, update: Value) -> Option<RunnerUpdate> {
    translator.update("s", &update, &|id| (id == "term_1").then(|| "printed\n".to_owned()))
}

#[track_caller]
fn call(report: Option<RunnerUpdate>) -> RunnerCall {
    match report {
        Some(RunnerUpdate::Call(call)) => call,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn usage_of(report: Option<RunnerUpdate>) -> (f64, u64, u64) {
    match report {
        Some(RunnerUpdate::Usage { used, .. }) => (used.cost.0, used.all_tokens(), used.estimated_tokens),
        other => panic!("{other:?}"),
    }
}

#[test]
fn text_thoughts_and_plans() {
    let mut translator = new_translator();
    let chunk = |kind: &str, content: Value| json!({"sessionUpdate": kind, "content": content});
    let text = json!({"type": "text", "text": "hi"});
    assert_eq!(
        translate(&mut translator, chunk("agent_message_chunk", text.clone())),
        Some(RunnerUpdate::Text("hi".to_owned()))
    );
    assert_eq!(
        translate(&mut translator, chunk("agent_thought_chunk", text)),
        Some(RunnerUpdate::Reasoning("hi".to_owned()))
    );
    for nothing in [json!({"type": "text", "text": ""}), json!({"type": "text"}), json!(7)] {
        assert_eq!(translate(&mut translator, chunk("agent_message_chunk", nothing)), None);
    }
    assert_eq!(translate(&mut translator, chunk("user_message_chunk", json!({"type": "text", "text": "x"}))), None);
    let plan =
        json!({"sessionUpdate": "plan", "entries": [{"content": "a", "status": "completed", "priority": "low"}, {}]});
    let Some(RunnerUpdate::Todos(todos)) = translate(&mut translator, plan) else { panic!() };
    assert_eq!((todos[0].content.as_str(), todos[0].status.as_str()), ("a", "completed"));
    assert_eq!((todos[1].status.as_str(), todos[1].priority.as_str()), ("pending", "medium"));
}

#[test]
fn a_call_grows_and_becomes_one_of_our_tools() {
    let mut translator = new_translator();
    let begun = json!({"sessionUpdate": "tool_call", "toolCallId": "1", "title": "bash", "kind": "execute", "status": "pending"});
    let first = call(translate(&mut translator, begun));
    assert_eq!((first.tool.as_str(), first.state), ("bash", RunnerCallState::Pending));
    let runs = json!({"sessionUpdate": "tool_call_update", "toolCallId": "1", "status": "in_progress",
        "title": "Lists files", "rawInput": {"command": "ls", "cwd": "/p"}});
    let running = call(translate(&mut translator, runs));
    assert_eq!((running.tool.as_str(), running.title.as_str()), ("bash", "Lists files"));
    assert_eq!((&running.input["command"], &running.input["workdir"]), (&json!("ls"), &json!("/p")));
    let done = json!({"sessionUpdate": "tool_call_update", "toolCallId": "1", "status": "completed",
        "content": [{"type": "content", "content": {"type": "text", "text": "a\nb"}}], "rawOutput": {"output": "other"}});
    let done = call(translate(&mut translator, done));
    assert_eq!(
        (done.state, done.output.as_str(), done.title.as_str()),
        (RunnerCallState::Completed, "a\nb", "Lists files")
    );
}

#[test]
fn tools_are_known_by_name_kind_or_input() {
    for (update, tool) in [
        (json!({"name": "mcp_search", "kind": "fetch", "title": "Searching"}), "mcp_search"),
        (json!({"kind": "execute", "title": "`npm test`"}), "bash"),
        (json!({"kind": "edit", "title": "Edit src/a.rs"}), "edit"),
        (json!({"kind": "delete", "title": "Delete a file"}), "edit"),
        (json!({"kind": "read", "title": "Read a file"}), "read"),
        (json!({"kind": "search", "title": "Find it"}), "grep"),
        (json!({"kind": "fetch", "title": "Get a page"}), "webfetch"),
        (json!({"title": "external_directory"}), "external_directory"),
        (json!({"kind": "think", "title": "Ask another", "rawInput": {"subagent_type": "general"}}), "task"),
        (json!({"title": "Something else"}), "other"),
        (json!({}), "other"),
    ] {
        let mut update = update;
        update["sessionUpdate"] = json!("tool_call");
        update["toolCallId"] = json!("1");
        let call = call(translate(&mut new_translator(), update.clone()));
        assert_eq!(call.tool, tool, "{update}");
        if tool == "bash" {
            assert_eq!(call.input["command"], "npm test");
        }
    }
}

#[test]
fn changes_and_locations_of_a_call() {
    let mut translator = new_translator();
    let update = json!({"sessionUpdate": "tool_call", "toolCallId": "1", "kind": "edit", "title": "Edit it",
        "content": [{"type": "diff", "path": "/p/a", "oldText": "x", "newText": "y"}, {"type": "diff", "newText": "z"}]});
    let edit = call(translate(&mut translator, update));
    let change = RunnerChange { path: PathBuf::from("/p/a"), old: Some("x".to_owned()), new: "y".to_owned() };
    assert_eq!((edit.changes, &edit.input["filePath"]), (vec![change], &json!("/p/a")));
    let update = json!({"sessionUpdate": "tool_call", "toolCallId": "2", "kind": "read", "title": "Read it",
        "locations": [{"path": "/p/b", "line": 3}]});
    assert_eq!(call(translate(&mut translator, update)).input["filePath"], "/p/b");
}

#[test]
fn the_output_of_a_terminal_is_that_of_its_call() {
    let mut translator = new_translator();
    let shows = json!({"sessionUpdate": "tool_call", "toolCallId": "1", "kind": "execute", "title": "Run it",
        "status": "in_progress", "content": [{"type": "terminal", "terminalId": "term_1"}]});
    assert_eq!(call(translate(&mut translator, shows)).output, "");
    let done = json!({"sessionUpdate": "tool_call_update", "toolCallId": "1", "status": "completed"});
    assert_eq!(call(translate(&mut translator, done)).output, "printed\n");
}

#[test]
fn cost_and_tokens_count_this_job_alone() {
    let mut translator = new_translator();
    let update =
        |used: u64, cost: Value| json!({"sessionUpdate": "usage_update", "used": used, "size": 1000, "cost": cost});
    assert_eq!(
        usage_of(translate(&mut translator, update(100, json!({"amount": 0.75, "currency": "USD"})))),
        (0.25, 100, 100)
    );
    let child = update(10, json!({"amount": 0.5, "currency": "USD"}));
    assert_eq!(usage_of(translator.update("child", &child, &|_| None)), (0.75, 100, 100), "subagents count too");
    assert_eq!(
        usage_of(translate(&mut translator, update(120, json!({"amount": 9.0, "currency": "EUR"})))),
        (0.75, 120, 120)
    );
    assert_eq!(usage_of(translate(&mut translator, update(120, json!({"amount": -1.0, "currency": "USD"})))).0, 0.75);
    let answer = json!({"stopReason": "end_turn", "usage": {"totalTokens": 60, "inputTokens": 40, "outputTokens": 15, "thoughtTokens": 5}});
    assert_eq!(usage_of(translator.finish(&answer)), (0.75, 60, 0), "what is counted is no guess");
    assert_eq!(usage_of(translator.finish(&json!({"stopReason": "end_turn"}))).1, 0, "a context is no sum");
    assert_eq!(UpdateTranslator::default().finish(&json!({})), None);
    let Some(RunnerUpdate::Usage { used, kept }) = translate(&mut translator, update(0, json!({"amount": 0.75})))
    else {
        panic!()
    };
    assert_eq!((used.cost, kept), (Usd(0.75), json!(0.75)), "what is kept is the sum of the session itself");
}

fn subagent(parent: &str, session: &str, call: Option<&str>, state: &str) -> Subagent {
    Subagent {
        parent: parent.to_owned(),
        session: Some(session.to_owned()),
        call: call.map(str::to_owned),
        title: "Look closely (@general subagent)".to_owned(),
        state: state.to_owned(),
        ..Subagent::default()
    }
}

#[test]
fn a_subagent_is_shown_in_the_call_that_waits_for_it() {
    let mut translator = new_translator();
    for (id, description) in [("1", "Something"), ("2", "Look closely")] {
        let task = json!({"sessionUpdate": "tool_call", "toolCallId": id, "title": "task", "status": "in_progress",
            "rawInput": {"subagent_type": "general", "description": description}});
        translate(&mut translator, task);
    }
    assert_eq!(call(translator.subagent(&subagent("s", "c", None, "running"))).id, "2");
    let does = json!({"sessionUpdate": "tool_call", "toolCallId": "9", "name": "bash", "title": "make", "status": "in_progress"});
    let shown = call(translator.update("c", &does, &|_| None));
    assert_eq!(shown.id, "2");
    assert_eq!(
        shown.metadata["summary"],
        json!([{"id": "9", "tool": "bash", "state": {"status": "running", "title": "make"}}])
    );
    let says = json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "so"}});
    assert_eq!(call(translator.update("c", &says, &|_| None)).output, "so");
    translator.subagent(&subagent("c", "d", None, "running"));
    assert_eq!(call(translator.update("d", &says, &|_| None)).id, "2", "one below it works in the same call");
    assert_eq!(translator.update("stranger", &says, &|_| None), None);
}

#[test]
fn a_subagent_without_a_call_gets_one() {
    let mut translator = new_translator();
    let begun = call(translator.subagent(&subagent("s", "c", None, "running")));
    assert_eq!((begun.tool.as_str(), begun.state), ("task", RunnerCallState::Running));
    assert_eq!(call(translator.subagent(&subagent("s", "c", None, "idle"))).state, RunnerCallState::Completed);
    // Another one, whose call is named only later.
    let own = call(translator.subagent(&subagent("s", "d", None, "running"))).id;
    translate(
        &mut translator,
        json!({"sessionUpdate": "tool_call", "toolCallId": "1", "title": "t", "status": "in_progress"}),
    );
    let ended = call(translator.subagent(&subagent("s", "d", Some("1"), "running")));
    assert_eq!((ended.id, ended.state), (own, RunnerCallState::Completed), "it is shown once");
}

#[test]
fn permissions_are_asked_for_what_is_known_of_a_call() {
    let mut translator = new_translator();
    translate(
        &mut translator,
        json!({"sessionUpdate": "tool_call", "toolCallId": "1", "title": "bash", "kind": "execute",
        "status": "pending", "rawInput": {"command": "ls"}}),
    );
    let (call, of_child) = translator.permission_call("s", &json!({"toolCallId": "1", "title": "Lists files"}));
    assert_eq!((call.tool.as_str(), &call.input["command"], of_child), ("bash", &json!("ls"), false));
    assert_eq!(call.state, RunnerCallState::Running);
    let (call, of_child) = translator.permission_call("c", &json!({"toolCallId": "1", "kind": "edit", "title": "x y"}));
    assert_eq!((call.id.as_str(), call.tool.as_str(), of_child), ("c:1", "edit", true));
}

#[test]
fn long_values_are_truncated() {
    let mut translator = new_translator();
    let long = "x".repeat(1 << 20);
    let update = json!({"sessionUpdate": "tool_call", "toolCallId": "1", "title": long, "rawInput": {"command": long},
        "content": [{"type": "content", "content": {"type": "text", "text": long}},
            {"type": "diff", "path": "/a", "newText": long}]});
    let call = call(translate(&mut translator, update));
    assert!(call.title.len() <= 1000 && call.output.len() <= 50 << 10 && call.changes.is_empty());
    assert!(Value::Object(call.input).to_string().len() <= 64 << 10);
}

#[test]
fn prompts_become_content_blocks() {
    let file = |mime: &str, url: &str| PromptPart::File {
        id: None,
        mime: mime.to_owned(),
        filename: Some("f".to_owned()),
        url: url.to_owned(),
        source: None,
    };
    let parts = [PromptPart::text("hi"), file("image/png", "data:image/png;base64,AAAA"), file("text/x", "file:///a")];
    let sees = json!({"agentCapabilities": {"promptCapabilities": {"image": true}}});
    let kinds = |agent: &Value| {
        content_blocks(&parts, agent)
            .iter()
            .map(|block| block["type"].as_str().unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(kinds(&sees), ["text", "image", "resource_link"]);
    assert_eq!(kinds(&json!({})), ["text", "text", "resource_link"]);
}

#[test]
fn a_failure_quotes_the_end_of_stderr() {
    assert_eq!(failure_text("p", "it hung up", ""), "The agent p failed: it hung up");
    let long = format!("{}end", "é".repeat(2000));
    let text = failure_text("p", "why", &long);
    assert!(text.ends_with("end") && text.len() < 1100, "{text}");
}
