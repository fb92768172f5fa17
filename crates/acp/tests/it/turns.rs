//! Prompts, and the updates during their turns.

use api::{CreateSession, Host as _, ListTurns, MessageError, Part, PromptInput, PromptPart, Scope};
use serde_json::{Value, json};
use testkit::soon;

use crate::rig::{Lab, UNTIL_GO, open, prompt, script};

/// The last update of each call.
fn ended(updates: &[Value]) -> Vec<&Value> {
    let done = |update: &&Value| matches!(update["status"].as_str(), Some("completed" | "failed"));
    updates.iter().filter(done).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_turn() {
    let lab = Lab::new();
    let client = lab.client(json!({})).await;
    let id = client.session(&lab).await;
    let usage = json!({"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120, "prompt_tokens_details": {"cached_tokens": 10}});
    let steps = json!([{"reasoning": "Let me think. ", "text": "Hello there", "size": 5, "usage": usage}]);
    let answer = client.prompt(&id, &script(steps)).await.unwrap();
    assert_eq!(answer["stopReason"], "end_turn");
    let want =
        json!({"totalTokens": 120, "inputTokens": 90, "outputTokens": 15, "thoughtTokens": 5, "cachedReadTokens": 10});
    assert_eq!(answer["usage"], want);
    assert_eq!(client.text(&id), "Hello there");
    let thoughts = client.updates_of_kind(&id, "agent_thought_chunk");
    let thought: String = thoughts.iter().map(|chunk| chunk["content"]["text"].as_str().unwrap()).collect();
    assert_eq!(thought, "Let me think. ");
    let chunks = client.updates_of_kind(&id, "agent_message_chunk");
    assert!(chunks.iter().all(|chunk| chunk["messageId"] == chunks[0]["messageId"]));
    assert_ne!(chunks[0]["messageId"], thoughts[0]["messageId"]);
    let usage = client.updates_of_kind(&id, "usage_update").pop().unwrap();
    assert_eq!((&usage["used"], &usage["size"]), (&json!(100), &json!(200_000)));
    // The client's prompt is not echoed, and everything but the title, which is independent of the turn, came before
    // the end.
    assert!(client.updates_of_kind(&id, "user_message_chunk").is_empty());
    assert!(client.last_received()["result"]["stopReason"].is_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_gets_a_title() {
    let lab = Lab::new();
    let client = lab.client(json!({})).await;
    let id = client.session(&lab).await;
    client.prompt(&id, "mend the bridge").await.unwrap();
    client.wait_for_update(&id, "the title", |update| update["sessionUpdate"] == "session_info_update").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_are_shown_with_titles_locations_and_diffs() {
    let lab = Lab::new();
    lab.project.write("hello.txt", "hello world\n");
    lab.project.write("edit.txt", "alpha\nbeta\ngamma\n");
    let client = lab.client(json!({})).await;
    let id = client.session(&lab).await;
    let command = format!("echo one; {UNTIL_GO}; echo two");
    let steps = json!([
        {"tools": [["read", {"filePath": "hello.txt", "offset": 1}], ["grep", {"pattern": "hello"}]]},
        {"tools": [["edit", {"filePath": "edit.txt", "oldString": "beta", "newString": "BETA"}]]},
        {"tools": [["write", {"filePath": "new/file.txt", "content": "n\n"}]]},
        {"tools": [["write", {"filePath": "hello.txt", "content": "bye\n"}]]},
        {"tools": [["bash", {"command": command}]]},
        {"tools": [["read", {"filePath": "nope.txt"}]]},
        {"tools": [["frobnicate", {}]]},
        {"text": "done"},
    ]);
    let answer = client.start_request("session/prompt", prompt(&id, &script(steps))).await;
    // A command's output is shown while it runs.
    let live = |update: &Value| update["status"] == "in_progress" && update["content"][0]["content"]["text"] == "one\n";
    client.wait_for_update(&id, "what the command prints", live).await;
    lab.project.write("go", "");
    answer.await.unwrap();
    let updates = client.updates(&id);
    let first: Vec<(&str, &str)> = updates
        .iter()
        .filter(|update| update["sessionUpdate"] == "tool_call")
        .map(|call| (call["name"].as_str().unwrap(), call["kind"].as_str().unwrap_or("other")))
        .collect();
    let want = [
        ("read", "read"),
        ("grep", "search"),
        ("edit", "edit"),
        ("write", "edit"),
        ("write", "edit"),
        ("bash", "execute"),
        ("read", "read"),
        ("frobnicate", "other"),
    ];
    assert_eq!(first, want);
    let done = ended(&updates);
    let find = |title: &str| done.iter().find(|update| update["title"] == title).unwrap_or_else(|| panic!("{done:#?}"));
    let path = |name: &str| lab.project.path().join(name);
    assert_eq!(find("hello.txt")["locations"], json!([{"path": path("hello.txt"), "line": 1}]));
    assert_eq!(find("hello.txt")["content"][0]["content"]["text"], "hello world");
    assert_eq!(find("hello.txt")["rawOutput"]["metadata"]["preview"], "hello world");
    let diff = json!({"type": "diff", "path": path("edit.txt"), "oldText": "alpha\nbeta\ngamma\n", "newText": "alpha\nBETA\ngamma\n"});
    assert_eq!(find("edit.txt")["content"][1], diff);
    let new = &find("new/file.txt")["content"][1];
    assert_eq!((&new["newText"], new["oldText"].is_null()), (&json!("n\n"), true));
    let whole: Vec<&Value> =
        done.iter().filter(|update| update["title"] == "hello.txt").map(|u| &u["content"][1]).collect();
    assert_eq!((&whole[1]["oldText"], &whole[1]["newText"]), (&json!("hello world\n"), &json!("bye\n")));
    let bash = find(&command);
    assert_eq!(bash["content"][0]["content"]["text"], "one\ntwo\n");
    assert_eq!((&bash["rawInput"]["cwd"], &bash["rawOutput"]["metadata"]["exit"]), (&json!(lab.cwd()), &json!(0)));
    assert_eq!(updates.iter().filter(|update| live(update)).count(), 1);
    let failed: Vec<&&Value> = done.iter().filter(|update| update["status"] == "failed").collect();
    assert!(failed[0]["rawOutput"]["error"].as_str().unwrap().starts_with("File not found"));
    assert_eq!(lab.project.read("hello.txt"), "bye\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn images_of_a_call_are_shown() {
    let lab = Lab::new();
    let data = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    use base64::Engine as _;
    lab.project.write("dot.png", base64::engine::general_purpose::STANDARD.decode(data).unwrap());
    let client = lab.client(json!({})).await;
    let id = client.session(&lab).await;
    client
        .prompt(&id, &script(json!([{"tools": [["read", {"filePath": "dot.png"}]]}, {"text": "seen"}])))
        .await
        .unwrap();
    let updates = client.updates(&id);
    let content = &ended(&updates)[0]["content"];
    assert_eq!(content[1]["content"], json!({"type": "image", "mimeType": "image/png", "data": data}));
}

#[tokio::test(flavor = "multi_thread")]
async fn todos_become_the_plan() {
    let lab = Lab::new();
    let client = lab.client(json!({})).await;
    let id = client.session(&lab).await;
    let todos = json!([
        {"content": "First", "status": "in_progress", "priority": "high"},
        {"content": "Second", "status": "cancelled", "priority": "low"},
    ]);
    client.prompt(&id, &script(json!([{"tools": [["todowrite", {"todos": todos}]]}, {"text": "ok"}]))).await.unwrap();
    let want = json!([
        {"content": "First", "priority": "high", "status": "in_progress"},
        {"content": "Second (cancelled)", "priority": "low", "status": "completed"},
    ]);
    assert_eq!(client.updates_of_kind(&id, "plan")[0]["entries"], want);
}

#[tokio::test(flavor = "multi_thread")]
async fn how_turns_end() {
    let lab = Lab::new();
    let client = lab.client(json!({})).await;
    let id = client.session(&lab).await;
    for (finish, want) in [("stop", "end_turn"), ("length", "max_tokens"), ("content_filter", "refusal")] {
        let answer = client.prompt(&id, &script(json!([{"text": "cut", "finish": finish}]))).await.unwrap();
        assert_eq!(answer["stopReason"], want, "{finish}");
    }
    let error = |status: u16| json!([{"http_error": status, "error_body": {"error": {"message": "no good"}}}]);
    let bad = client.prompt(&id, &script(error(400))).await.unwrap_err();
    assert_eq!((&bad["code"], &bad["data"]["errorName"]), (&json!(-32603), &json!("APIError")));
    assert!(bad["message"].as_str().unwrap().contains("no good"));
    assert_eq!(client.prompt(&id, &script(error(401))).await.unwrap_err()["code"], -32000);
    // The session still works.
    assert_eq!(client.prompt(&id, &script(json!([{"text": "fine"}]))).await.unwrap()["stopReason"], "end_turn");
    assert_eq!(client.prompt(&id, &script(json!([{"tools": [["nope"]]}]))).await.unwrap_err()["code"], -32603);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_turn_ends_as_cancelled_after_all_its_updates() {
    let lab = Lab::new();
    let client = lab.client(json!({})).await;
    let id = client.session(&lab).await;
    // Before anything started: the cancel follows the prompt immediately.
    let answer = client.start_request("session/prompt", prompt(&id, &lab.hanging_prompt("One. "))).await;
    client.notify("session/cancel", json!({"sessionId": id})).await;
    assert_eq!(answer.await.unwrap()["stopReason"], "cancelled");
    // While text streams.
    let answer = client.start_request("session/prompt", prompt(&id, &lab.hanging_prompt("Two. "))).await;
    client.wait_for_text(&id, "Two. ").await;
    client.notify("session/cancel", json!({"sessionId": id})).await;
    assert_eq!(answer.await.unwrap()["stopReason"], "cancelled");
    assert_eq!(client.last_received()["result"]["stopReason"], "cancelled");
    // While a command runs.
    let sleeps = |command: &str| script(json!([{"tools": [["bash", { "command": command }]]}, {"text": "x"}]));
    let runs =
        |command: &'static str| move |update: &Value| update["status"] == "in_progress" && update["title"] == command;
    let answer = client.start_request("session/prompt", prompt(&id, &sleeps("sleep 301"))).await;
    client.wait_for_update(&id, "the command", runs("sleep 301")).await;
    client.notify("session/cancel", json!({"sessionId": id})).await;
    assert_eq!(answer.await.unwrap()["stopReason"], "cancelled");
    let updates = client.updates(&id);
    assert_eq!(ended(&updates).len(), 1);
    // By cancelling the request itself.
    let answer = client.start_request_as(json!("mine"), "session/prompt", prompt(&id, &sleeps("sleep 302"))).await;
    client.wait_for_update(&id, "the command", runs("sleep 302")).await;
    client.notify("$/cancel_request", json!({"requestId": "mine"})).await;
    assert_eq!(answer.await.unwrap()["stopReason"], "cancelled");
    // Cancels without a turn do not affect the next one.
    client.notify("session/cancel", json!({"sessionId": id})).await;
    client.notify("session/cancel", json!({"sessionId": "ses_unknown"})).await;
    client.notify("session/cancel", json!({})).await;
    client.request("session/status", json!({"sessionId": id})).await.unwrap();
    assert_eq!(client.prompt(&id, &script(json!([{"text": "after"}]))).await.unwrap()["stopReason"], "end_turn");
}

#[tokio::test(flavor = "multi_thread")]
async fn prompts_queue_within_a_session_but_not_across_sessions() {
    let lab = Lab::new();
    let client = lab.client(json!({})).await;
    let (one, two) = (client.session(&lab).await, client.session(&lab).await);
    let slow = script(json!([{"text": "slow", "tools": [["bash", {"command": UNTIL_GO}]]}, {"text": " end"}]));
    let first = client.start_request("session/prompt", prompt(&one, &slow)).await;
    client.wait_for_update(&one, "the first turn", |update| update["sessionUpdate"] == "agent_message_chunk").await;
    let queued = client
        .start_request("session/prompt", prompt(&one, &script(json!([{"text": "queued"}, {"text": "queued"}]))))
        .await;
    let other = client.prompt(&two, &script(json!([{"text": "other"}]))).await.unwrap();
    assert_eq!(other["stopReason"], "end_turn");
    lab.project.write("go", "");
    assert_eq!(first.await.unwrap()["stopReason"], "end_turn");
    assert_eq!(queued.await.unwrap()["stopReason"], "end_turn");
    assert!(client.text(&one).contains("queued") && client.text(&two) == "other");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_steered_into_a_running_turn() {
    let lab = Lab::new();
    let client = lab.client(json!({})).await;
    let id = client.session(&lab).await;
    let steer = |text: &str| json!({"sessionId": id, "prompt": [{"type": "text", "text": text}]});
    assert_eq!(client.request("_session/steering", steer("x")).await.unwrap_err()["code"], -32600);
    let slow = script(json!([{"text": "slow ", "tools": [["bash", {"command": UNTIL_GO}]]}, {"text": "end"}]));
    let answer = client.start_request("session/prompt", prompt(&id, &slow)).await;
    client.wait_for_update(&id, "the turn", |update| update["sessionUpdate"] == "agent_message_chunk").await;
    let steered = script(json!([{"text": "steered"}, {"text": "steered"}]));
    assert!(client.request("_session/steering", steer(&steered)).await.unwrap()["messageId"].is_string());
    lab.project.write("go", "");
    assert_eq!(answer.await.unwrap()["stopReason"], "end_turn");
    assert_eq!(client.text(&id), "slow steered");
}

/// As with `trefoil run` in a terminal: another process on the same database, or the same one before the editor came.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_steered_into_a_turn_that_somebody_else_began() {
    let lab = Lab::new();
    let elsewhere = open(&lab.project);
    for host in [&elsewhere, &lab.engine] {
        let _ = std::fs::remove_file(lab.project.path().join("go"));
        let session = host.create_session(&Scope::new(lab.cwd()), CreateSession::default()).await.unwrap().id;
        let slow = script(json!([{"text": "slow ", "tools": [["bash", {"command": UNTIL_GO}]]}, {"text": "end"}]));
        let input = PromptInput { parts: vec![PromptPart::text(slow)], ..PromptInput::default() };
        let answer = tokio::spawn({
            let (host, session) = (host.clone(), session.clone());
            async move { host.prompt(&session, input).await }
        });
        let client = lab.client(json!({})).await;
        let id = session.to_string();
        let opening = json!({"sessionId": id, "cwd": lab.cwd(), "mcpServers": []});
        client.request("session/load", opening).await.unwrap();
        client.wait_for_text(&id, "slow ").await;
        let steered = script(json!([{"text": "steered"}, {"text": "steered"}]));
        let steer = json!({"sessionId": id, "prompt": [{"type": "text", "text": steered}]});
        assert!(client.request("_session/steering", steer.clone()).await.unwrap()["messageId"].is_string());
        lab.project.write("go", "");
        let answer = soon("the answer", answer).await.unwrap().unwrap();
        assert!(
            answer.parts.iter().any(|part| matches!(part, Part::Text(text) if text.text == "steered")),
            "{answer:?}"
        );
        client.wait_for_text(&id, "slow steered").await;
        // One turn took in both messages, and no other began.
        let turns = host.turns(&session, ListTurns::default()).await.unwrap().turns;
        assert_eq!(turns.iter().map(|turn| turn.prompts.len()).collect::<Vec<_>>(), [2]);
        assert_eq!(client.request("_session/steering", steer).await.unwrap_err()["code"], -32600);
    }
}

/// As with `trefoil run` in a terminal, whose turn an editor cancels.
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_somebody_else_began_is_cancelled() {
    let lab = Lab::new();
    let elsewhere = open(&lab.project);
    let session = elsewhere.create_session(&Scope::new(lab.cwd()), CreateSession::default()).await.unwrap().id;
    let hangs = script(json!([{"text": "Hm. ", "tools": [["bash", {"command": UNTIL_GO}]]}, {"text": "end"}]));
    let parts = vec![PromptPart::text(hangs)];
    let input = PromptInput { parts, ..PromptInput::default() };
    let answer = tokio::spawn({
        let session = session.clone();
        async move { elsewhere.prompt(&session, input).await }
    });
    let client = lab.client(json!({})).await;
    let id = session.to_string();
    client.request("session/load", json!({"sessionId": id, "cwd": lab.cwd(), "mcpServers": []})).await.unwrap();
    client.wait_for_text(&id, "Hm. ").await;
    client.notify("session/cancel", json!({"sessionId": id})).await;
    let answer = soon("the answer", answer).await.unwrap().unwrap();
    let error = answer.info.as_assistant().unwrap().error.clone();
    assert!(matches!(error, Some(MessageError::MessageAbortedError(_))), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_run_by_name() {
    let lab = Lab::new();
    lab.project.write(
        ".opencode/command/greet.md",
        "---\ndescription: Greet someone\n---\nSCRIPT: [{\"text\": \"Hello $1\"}]\n",
    );
    let client = lab.client(json!({})).await;
    let id = client.session(&lab).await;
    client.wait_for_update(&id, "the commands", |update| update["sessionUpdate"] == "available_commands_update").await;
    let commands = client.updates_of_kind(&id, "available_commands_update")[0]["availableCommands"].clone();
    let greet = commands.as_array().unwrap().iter().find(|command| command["name"] == "greet").unwrap();
    assert_eq!((&greet["description"], &greet["input"]["hint"]), (&json!("Greet someone"), &json!("$1")));
    assert_eq!(client.prompt(&id, "/greet Bob").await.unwrap()["stopReason"], "end_turn");
    assert_eq!(client.text(&id), "Hello Bob");
    // A text that is not a command is an ordinary prompt.
    assert_eq!(client.prompt(&id, "/etc/hosts is broken").await.unwrap()["stopReason"], "end_turn");
    assert_eq!(client.prompt(&id, "/compact").await.unwrap_err()["code"], -32601);
}

/// Whether an update lists a command.
fn offers(update: &Value, name: &str) -> bool {
    let commands = update["availableCommands"].as_array();
    commands.is_some_and(|commands| commands.iter().any(|command| command["name"] == name))
}

#[tokio::test(flavor = "multi_thread")]
async fn edited_commands_are_announced_and_run() {
    let lab = Lab::new();
    let client = lab.client(json!({"session": {"notices": {}}})).await;
    let id = client.session(&lab).await;
    let says = |text: &str| script(json!([{ "text": text }]));
    // Without any request, the client hears of the new command.
    lab.project.write(".opencode/command/greet.md", says("Hello. "));
    client.wait_for_update(&id, "the new command", |update| offers(update, "greet")).await;
    client.prompt(&id, "/greet").await.unwrap();
    // A file that was just written counts, whether the client has heard of it or not.
    lab.project.write(".opencode/command/greet.md", says("Good morning. "));
    client.prompt(&id, "/greet").await.unwrap();
    lab.project.write(".opencode/command/part.md", says("Bye. "));
    client.prompt(&id, "/part").await.unwrap();
    assert_eq!(client.text(&id), "Hello. Good morning. Bye. ");
    // A broken edit causes a notice, and the old command stays.
    lab.project.write(".opencode/command/greet.md", "---\nagent: [\n---\n");
    let notice = |update: &Value| update["sessionUpdate"] == "notice";
    client.wait_for_update(&id, "what is wrong", notice).await;
    let notices = client.updates_of_kind(&id, "notice");
    assert!(notices[0]["title"].as_str().unwrap().contains("greet.md"), "{notices:?}");
    client.prompt(&id, "/greet").await.unwrap();
    assert!(client.text(&id).ends_with("Bye. Good morning. "), "{}", client.text(&id));
    std::fs::remove_file(lab.project.path().join(".opencode/command/greet.md")).unwrap();
    let gone = |received: &[Value]| {
        let updates = received.iter().rev().map(|message| &message["params"]["update"]);
        updates.filter(|update| update["availableCommands"].is_array()).take(1).all(|last| !offers(last, "greet"))
    };
    client.wait_until("the list without it", gone).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_blocks_are_refused() {
    let lab = Lab::new();
    let client = lab.client(json!({})).await;
    let id = client.session(&lab).await;
    for blocks in [
        json!([{"type": "bogus"}]),
        json!([{"type": "audio", "mimeType": "audio/wav", "data": "aGk="}]),
        json!("text"),
        Value::Null,
    ] {
        let error = client.request("session/prompt", json!({"sessionId": id, "prompt": blocks})).await.unwrap_err();
        assert_eq!(error["code"], -32602, "{blocks}");
    }
    let error = client.request("session/prompt", json!({"prompt": []})).await.unwrap_err();
    assert_eq!(error["code"], -32602);
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_concurrent_sessions_and_one_that_fails() {
    let lab = Lab::new();
    let client = lab.client(json!({})).await;
    let mut running = Vec::new();
    for n in 0..20 {
        let id = client.session(&lab).await;
        let steps = match n {
            7 => json!([{"http_error": 400, "error_body": {}}]),
            _ => json!([{"text": format!("one {n} "), "size": 3}, {"text": "never"}]),
        };
        running.push((n, id.clone(), client.start_request("session/prompt", prompt(&id, &script(steps))).await));
    }
    for (n, id, answer) in running {
        let answer = answer.await;
        match n {
            7 => assert_eq!(answer.unwrap_err()["code"], -32603),
            _ => {
                assert_eq!(answer.unwrap()["stopReason"], "end_turn");
                assert_eq!(client.text(&id), format!("one {n} "));
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn prompts_of_other_clients_are_shown() {
    use api::Host as _;
    let lab = Lab::new();
    let client = lab.client(json!({})).await;
    let id = client.session(&lab).await;
    let session = api::SessionId::parse(&id).unwrap();
    let parts = vec![api::PromptPart::text(script(json!([{"text": "from elsewhere"}])))];
    let input = api::PromptInput { parts, ..api::PromptInput::default() };
    lab.engine.prompt(&session, input).await.unwrap();
    client.wait_for_text(&id, "from elsewhere").await;
    assert_eq!(client.text(&id), "from elsewhere");
    let asked = client.updates_of_kind(&id, "user_message_chunk");
    assert!(asked[0]["content"]["text"].as_str().unwrap().starts_with("SCRIPT:"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_used_up_its_steps_says_so() {
    use api::Host as _;
    let agents = json!({"short": {"description": "Gives up early", "mode": "primary", "steps": 2}});
    let lab = Lab::with(json!({"agent": agents, "subagents": {"wait": 0}, "permission": {"bash": "allow"}}));
    let client = lab.client(json!({})).await;
    let id = client.session(&lab).await;
    let call = json!({"tools": [["bash", {"command": "true"}]]});
    let stops = async |steps: &Value| client.prompt(&id, &script(steps.clone())).await.unwrap()["stopReason"].clone();
    let three = json!([call, call, {"text": "done"}]);
    assert_eq!(stops(&three).await, "end_turn");
    client.request("session/set_mode", json!({"sessionId": id, "modeId": "short"})).await.unwrap();
    // The first turn leaves a step unused; otherwise the second step is the last, whether it wants more or not.
    assert_eq!(stops(&json!([{"text": "At once."}])).await, "end_turn");
    assert_eq!(stops(&json!([call, {"text": "What is left."}])).await, "max_turn_requests");
    assert_eq!(stops(&three).await, "max_turn_requests");
    // The same holds for a budget of steps that nobody raises.
    client.request("session/set_mode", json!({"sessionId": id, "modeId": "build"})).await.unwrap();
    let session = api::SessionId::parse(&id).unwrap();
    let used = lab.engine.tree(&session).await.unwrap().sessions[0].total.steps;
    let budget = api::Budget { steps: Some(used + 1), ..api::Budget::default() };
    lab.engine.budget(&session, budget).await.unwrap();
    assert_eq!(stops(&three).await, "max_turn_requests");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_without_a_key_asks_for_a_login() {
    let lab = Lab::with(json!({"model": "anthropic/claude-sonnet-4-5"}));
    let client = lab.client(json!({})).await;
    let id = client.session(&lab).await;
    let refused = client.prompt(&id, "hello").await.unwrap_err();
    assert_eq!(refused["code"], -32000, "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn notices_go_to_clients_that_show_them() {
    let lab = Lab::new();
    let fails = script(json!([{"http_error": 400, "error_body": {"error": {"message": "no good"}}}]));
    for (capabilities, count) in [(json!({"session": {"notices": {}}}), 1), (json!({}), 0)] {
        let client = lab.client(capabilities).await;
        let id = client.session(&lab).await;
        client.prompt(&id, &fails).await.unwrap_err();
        let notices = client.updates_of_kind(&id, "notice");
        assert_eq!(notices.len(), count);
        assert!(
            notices.iter().all(|notice| notice["severity"] == "error" && notice["title"].is_string()),
            "{notices:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_of_a_sessions_servers_belong_to_it_alone() {
    let lab = Lab::new();
    let client = lab.client(json!({})).await;
    let id = &*client.session_with_server(&lab).await;
    let has = |update: &Value| offers(update, "s:greet");
    client.wait_for_update(id, "the server's command", has).await;
    let other = client.session(&lab).await;
    client
        .wait_for_update(&other, "the commands", |update| update["sessionUpdate"] == "available_commands_update")
        .await;
    assert!(!client.updates(&other).iter().any(has));
    assert_eq!(client.prompt(id, "/s:greet Bob kindly").await.unwrap()["stopReason"], "end_turn");
}
