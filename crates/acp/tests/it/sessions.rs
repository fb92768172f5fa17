//! The handshake, and session methods: create, open, list, change, close.

use serde_json::{Value, json};
use testkit::ModelServer;

use trefoil_acp::McpOwners;

use crate::rig::{Client, Lab, prompt, script};

#[tokio::test(flavor = "multi_thread")]
async fn initialize() {
    let lab = Lab::new();
    let client = lab.uninitialized_client();
    let early = client.request("session/new", json!({"cwd": lab.cwd(), "mcpServers": []})).await.unwrap_err();
    assert_eq!(early["code"], -32600);
    for version in [json!(1), json!(0), json!(99), json!(65000)] {
        let answer = client.request("initialize", json!({"protocolVersion": version})).await.unwrap();
        assert_eq!(answer["protocolVersion"], 1);
        assert_eq!(answer["agentInfo"]["name"], "trefoil");
        assert_eq!(answer["agentCapabilities"]["loadSession"], true);
        assert_eq!(answer["agentCapabilities"]["_meta"]["steering"]["supported"], true);
        let method = &answer["authMethods"][0];
        assert!(method["type"] != "terminal" && method["_meta"].is_null(), "{method}");
    }
    let old = json!({"protocolVersion": 1, "capabilities": {"_meta": {"terminal-auth": true}}});
    let answer = client.request("initialize", old).await.unwrap();
    assert_eq!(answer["authMethods"][0]["_meta"]["terminal-auth"]["args"], json!(["acp", "--login"]));
    let new = json!({"protocolVersion": 1, "clientCapabilities": {"auth": {"terminal": true}}});
    let method = client.request("initialize", new).await.unwrap()["authMethods"][0].clone();
    assert_eq!((&method["type"], &method["args"]), (&json!("terminal"), &json!(["--login"])));
    // Clients need not wait for the response.
    let eager = lab.uninitialized_client();
    let hello = eager.start_request("initialize", json!({ "protocolVersion": 1 })).await;
    eager.session(&lab).await;
    hello.await.unwrap();
    for wrong in [json!({}), json!({"protocolVersion": "one"}), Value::Null] {
        assert_eq!(client.request("initialize", wrong).await.unwrap_err()["code"], -32602);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn signing_in_and_out() {
    let lab = Lab::new();
    let client = lab.client(json!({})).await;
    for params in [json!({"methodId": "trefoil-login"}), json!({"authMethodId": "opencode-login"})] {
        assert_eq!(client.request("authenticate", params).await.unwrap(), json!({}));
    }
    let unknown = client.request("authenticate", json!({"methodId": "nope"})).await.unwrap_err();
    assert_eq!((&unknown["code"], &unknown["data"]["methodId"]), (&json!(-32602), &json!("nope")));
    assert_eq!(client.request("authenticate", json!({})).await.unwrap_err()["code"], -32602);
    assert_eq!(client.request("auth/status", json!({})).await.unwrap()["state"], "not_required");
    client.request("logout", json!({})).await.unwrap();
    assert_eq!(client.request("auth/status", json!({})).await.unwrap()["state"], "unauthenticated");
    let refused = client.request("session/new", json!({"cwd": lab.cwd(), "mcpServers": []})).await.unwrap_err();
    assert_eq!(refused["code"], -32000);
    client.request("authenticate", json!({"methodId": "trefoil-login"})).await.unwrap();
    client.session(&lab).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_has_modes_models_and_options() {
    let lab = Lab::new();
    let client = lab.client(json!({})).await;
    let made = client.request("session/new", json!({"cwd": lab.cwd(), "mcpServers": []})).await.unwrap();
    let id = made["sessionId"].as_str().unwrap();
    assert_eq!(made["modes"]["currentModeId"], "build");
    assert_eq!(made["models"]["currentModelId"], "script/demo");
    assert_eq!(made["models"]["availableModels"][0]["modelId"], "script/demo");
    let ids: Vec<&str> = made["configOptions"].as_array().unwrap().iter().map(|o| o["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["model", "mode"]);
    client.wait_for_update(id, "the commands", |update| update["sessionUpdate"] == "available_commands_update").await;
    // The commands follow the response: before it, the client does not know the session.
    let received = client.received();
    let commands = received.iter().position(|message| message["method"] == "session/update").unwrap();
    assert!(received[..commands].iter().any(|message| message["result"]["sessionId"] == *id));

    client.request("session/set_mode", json!({"sessionId": id, "modeId": "plan"})).await.unwrap();
    assert_eq!(client.updates_of_kind(id, "current_mode_update").last().unwrap()["currentModeId"], "plan");
    let options = client.updates_of_kind(id, "config_option_update").last().unwrap()["configOptions"].clone();
    assert_eq!(options.as_array().unwrap().iter().find(|o| o["id"] == "mode").unwrap()["currentValue"], "plan");
    let set = json!({"sessionId": id, "configId": "mode", "value": "build"});
    let answer = client.request("session/set_config_option", set).await.unwrap();
    assert_eq!(answer["configOptions"].as_array().unwrap().len(), 2);
    assert_eq!(client.updates_of_kind(id, "current_mode_update").last().unwrap()["currentModeId"], "build");
    for (method, params) in [
        ("session/set_mode", json!({"modeId": "nope"})),
        ("session/set_mode", json!({"modeId": "general"})),
        ("session/set_mode", json!({})),
        ("session/set_model", json!({"modelId": "nope/nope"})),
        ("session/set_config_option", json!({"configId": "zzz", "value": "x"})),
        ("session/set_config_option", json!({"configId": "model", "type": "boolean", "value": true})),
        ("session/set_config_option", json!({"configId": "approve", "type": "boolean", "value": true})),
        ("session/set_config_option", json!({"configId": "effort", "value": "ultra"})),
    ] {
        let mut params = params;
        params["sessionId"] = json!(id);
        assert_eq!(client.request(method, params.clone()).await.unwrap_err()["code"], -32602, "{method} {params}");
    }
    client.request("unstable_setSessionModel", json!({"sessionId": id, "modelId": "script/demo"})).await.unwrap();
    client.request("setSessionMode", json!({"sessionId": id, "modeId": "plan"})).await.unwrap();
    // A turn runs in the selected mode, and the session keeps it.
    client.prompt(id, &script(json!([{"text": "hi"}]))).await.unwrap();
    let resumed = client.request("session/resume", json!({"sessionId": id, "cwd": lab.cwd()})).await.unwrap();
    assert_eq!(resumed["modes"]["currentModeId"], "plan");
}

#[tokio::test(flavor = "multi_thread")]
async fn directories_and_servers_are_checked() {
    let lab = Lab::new();
    let client = lab.client(json!({})).await;
    for params in [
        json!({"mcpServers": []}),
        json!({"cwd": "relative/path", "mcpServers": []}),
        json!({"cwd": "/does/not/exist", "mcpServers": []}),
        json!({"cwd": 5}),
        json!({"cwd": lab.cwd(), "mcpServers": [{"name": "x"}]}),
        json!({"cwd": lab.cwd(), "additionalDirectories": ["relative"]}),
        Value::Null,
        json!([1]),
    ] {
        let error = client.request("session/new", params.clone()).await.unwrap_err();
        assert_eq!(error["code"], -32602, "{params}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_uses_the_servers_that_its_client_supplies() {
    let lab = Lab::new();
    let client = lab.client(json!({})).await;
    let id = &*client.session_with_server(&lab).await;
    let echo = script(json!([{"tools": [["s_echo", {"text": "hi"}]]}, {"text": "done"}]));
    client.prompt(id, &echo).await.unwrap();
    let outcome = |id: &str| client.updates_of_kind(id, "tool_call_update").pop().unwrap();
    assert_eq!(
        (&outcome(id)["status"], &outcome(id)["rawOutput"]["output"]),
        (&json!("completed"), &json!("echo: hi"))
    );
    // They belong to that session alone, and end when it is closed.
    let other = client.session(&lab).await;
    client.prompt(&other, &echo).await.unwrap();
    assert_ne!(outcome(&other)["rawOutput"]["output"], "echo: hi");
    client.request("session/close", json!({"sessionId": id})).await.unwrap();
    client.request("session/resume", json!({"sessionId": id, "cwd": lab.cwd()})).await.unwrap();
    client.prompt(id, &echo).await.unwrap();
    assert_ne!(outcome(id)["rawOutput"]["output"], "echo: hi");
}

#[tokio::test(flavor = "multi_thread")]
async fn additional_directories_belong_to_a_session() {
    let lab = Lab::new();
    let client = lab.client(json!({})).await;
    let outside = tempfile::tempdir().unwrap();
    let path = outside.path().canonicalize().unwrap();
    std::fs::write(path.join("a.txt"), "outside\n").unwrap();
    let params = json!({"cwd": lab.cwd(), "mcpServers": [], "additionalDirectories": [path]});
    let made = client.request("session/new", params).await.unwrap();
    let id = made["sessionId"].as_str().unwrap();
    // No permission is requested: the client would fail the test.
    let read = json!([{"tools": [["read", {"filePath": path.join("a.txt")}]]}, {"text": "read"}]);
    client.prompt(id, &script(read)).await.unwrap();
    let done = client.updates_of_kind(id, "tool_call_update");
    assert_eq!(done.last().unwrap()["status"], "completed", "{done:?}");
    let list = client.request("session/list", json!({"cwd": lab.cwd()})).await.unwrap();
    assert_eq!(list["sessions"][0]["additionalDirectories"], json!([path]));
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_listed_page_by_page() {
    let lab = Lab::new();
    let client = lab.client(json!({})).await;
    let mut made = Vec::new();
    for _ in 0..120 {
        made.push(client.session(&lab).await);
    }
    let mut listed: Vec<String> = Vec::new();
    let mut cursor = Value::Null;
    loop {
        let page = client.request("unstable_listSessions", json!({"cwd": lab.cwd(), "cursor": cursor})).await.unwrap();
        let sessions = page["sessions"].as_array().unwrap();
        assert!(sessions.len() <= 50);
        listed.extend(sessions.iter().map(|session| session["sessionId"].as_str().unwrap().to_owned()));
        assert!(sessions[0]["updatedAt"].as_str().unwrap().ends_with('Z'));
        cursor = page["nextCursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    listed.sort();
    made.sort();
    assert_eq!(listed, made);
    assert_eq!(client.request("session/list", json!({"cwd": "/nonexistent"})).await.unwrap()["sessions"], json!([]));
    assert_eq!(client.request("session/list", json!({})).await.unwrap()["sessions"].as_array().unwrap().len(), 50);
    assert_eq!(client.request("session/list", json!({"cursor": "xx"})).await.unwrap_err()["code"], -32602);
    assert_eq!(client.request("session/list", json!({"cwd": "relative"})).await.unwrap_err()["code"], -32602);
}

#[tokio::test(flavor = "multi_thread")]
async fn loading_a_session_replays_everything() {
    let lab = Lab::new();
    lab.project.write("hello.txt", "hello world\n");
    let first = lab.client(json!({})).await;
    let id = first.session(&lab).await;
    let todos = json!([{"content": "T", "status": "pending", "priority": "low"}]);
    let steps = json!([
        {"reasoning": "thinking hard ", "text": "I will read. ",
         "tools": [["read", {"filePath": "hello.txt"}], ["todowrite", {"todos": todos}]]},
        {"text": "All done"},
    ]);
    first.prompt(&id, &script(steps)).await.unwrap();
    let picture = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    let blocks = json!([
        {"type": "text", "text": "SCRIPT: [{\"text\": \"Nice.\"}]"},
        {"type": "image", "mimeType": "image/png", "data": picture},
        {"type": "resource_link", "uri": format!("file://{}/hello.txt", lab.cwd()), "name": "hello.txt"},
    ]);
    first.request("session/prompt", json!({"sessionId": id, "prompt": blocks})).await.unwrap();

    let second = lab.client(json!({})).await;
    let before = second.received().len();
    let loaded =
        second.request("session/load", json!({"sessionId": id, "cwd": lab.cwd(), "mcpServers": []})).await.unwrap();
    assert_eq!(loaded["modes"]["currentModeId"], "build");
    // Every update of the replay precedes the response.
    let received = second.received();
    let answer = received.iter().position(|message| message["result"]["modes"].is_object()).unwrap();
    let kinds: Vec<&str> = received[before..answer]
        .iter()
        .map(|message| message["params"]["update"]["sessionUpdate"].as_str().unwrap())
        .collect();
    let want = [
        "user_message_chunk",
        "agent_thought_chunk",
        "agent_message_chunk",
        "tool_call",
        "tool_call_update",
        "tool_call",
        "tool_call_update",
        "agent_message_chunk",
        "user_message_chunk",
        "user_message_chunk",
        "user_message_chunk",
        "user_message_chunk",
        "user_message_chunk",
        "agent_message_chunk",
        "plan",
    ];
    assert_eq!(kinds, want);
    assert_eq!(second.text(&id), first.text(&id));
    let image = &second.updates_of_kind(&id, "user_message_chunk")[2]["content"];
    assert_eq!((&image["type"], &image["data"]), (&json!("image"), &json!(picture)));
    assert_eq!(second.updates_of_kind(&id, "plan")[0]["entries"][0]["content"], "T");
    // The conversation continues, and nothing is shown twice.
    second.prompt(&id, &script(json!([{"text": "More."}]))).await.unwrap();
    assert_eq!(second.text(&id), format!("{}More.", first.text(&id).trim_end_matches("More.")));

    // Resuming opens the session without its history.
    let third = lab.client(json!({})).await;
    third.request("session/resume", json!({"sessionId": id, "cwd": lab.cwd()})).await.unwrap();
    third.prompt(&id, &script(json!([{"text": "Again."}]))).await.unwrap();
    assert_eq!(third.text(&id), "Again.");
    assert!(third.updates_of_kind(&id, "user_message_chunk").is_empty());
    let unknown = json!({"sessionId": "ses_unknown", "cwd": lab.cwd(), "mcpServers": []});
    for method in ["session/load", "session/resume", "session/fork"] {
        assert_eq!(third.request(method, unknown.clone()).await.unwrap_err()["code"], -32002, "{method}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_can_be_opened_while_text_streams() {
    let mut model = ModelServer::start().await;
    model.answer_titles("A title");
    let lab = Lab::with(model.config());
    let first = lab.client(json!({})).await;
    let id = first.session(&lab).await;
    let answer = first.start_request("session/prompt", prompt(&id, "count")).await;
    let mut call = model.next_call().await;
    let words = |range: std::ops::Range<u32>| range.map(|n| format!("w{n} ")).collect::<Vec<_>>();
    for word in words(0..50) {
        call.text(word).await;
    }
    first.wait_for_text(&id, "w49 ").await;
    let others = [lab.client(json!({})).await, lab.client(json!({})).await];
    for other in &others {
        other.request("session/load", json!({"sessionId": id, "cwd": lab.cwd(), "mcpServers": []})).await.unwrap();
    }
    for word in words(50..100) {
        call.text(word).await;
    }
    for other in &others {
        other.wait_for_text(&id, "w99 ").await;
    }
    call.finish("stop").await;
    assert_eq!(answer.await.unwrap()["stopReason"], "end_turn");
    for client in others.iter().chain([&first]) {
        assert_eq!(client.text(&id), words(0..100).concat());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_copies_the_conversation_and_diverges() {
    let lab = Lab::new();
    let client = lab.client(json!({})).await;
    let id = client.session(&lab).await;
    client.prompt(&id, &script(json!([{"text": "Once."}]))).await.unwrap();
    let params = json!({"sessionId": id, "cwd": lab.cwd(), "mcpServers": []});
    let forked = client.request("unstable_forkSession", params).await.unwrap();
    let fork = forked["sessionId"].as_str().unwrap();
    assert!(fork != id && forked["modes"].is_object());
    assert_eq!(client.text(fork), "Once.");
    client.prompt(fork, &script(json!([{"text": "Twice."}]))).await.unwrap();
    assert_eq!((client.text(fork).as_str(), client.text(&id).as_str()), ("Once.Twice.", "Once."));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_renamed_archived_closed_and_deleted() {
    let lab = Lab::new();
    let client = lab.client(json!({})).await;
    let id = client.session(&lab).await;
    let of = |id: &str| json!({ "sessionId": id });
    let named = client.request("session/set_title", json!({"sessionId": id, "title": "My work"})).await.unwrap();
    assert_eq!(named["title"], "My work");
    client.wait_for_update(&id, "the title", |update| update["title"] == "My work").await;
    assert_eq!(client.request("session/status", of(&id)).await.unwrap()["status"], "open");
    client.request("session/archive", of(&id)).await.unwrap();
    let count = async |archived: &str| {
        let list = client.request("session/list", json!({"cwd": lab.cwd(), "archived": archived})).await.unwrap();
        list["sessions"].as_array().unwrap().len()
    };
    assert_eq!((count("exclude").await, count("include").await, count("only").await), (0, 1, 1));
    client.request("session/unarchive", of(&id)).await.unwrap();
    assert_eq!((count("exclude").await, count("only").await), (1, 0));
    client.request("session/close", of(&id)).await.unwrap();
    assert_eq!(client.request("session/status", of(&id)).await.unwrap()["status"], "saved");
    let closed = client.request("session/prompt", prompt(&id, "x")).await.unwrap_err();
    assert_eq!((&closed["code"], &closed["data"]["sessionId"]), (&json!(-32002), &json!(id)));
    client.request("session/close", of("ses_unknown")).await.unwrap();
    client.request("session/resume", json!({"sessionId": id, "cwd": lab.cwd()})).await.unwrap();
    client.request("session/delete", of(&id)).await.unwrap();
    client.request("session/delete", of(&id)).await.unwrap();
    client.request("session/delete", of("nonsense")).await.unwrap();
    assert_eq!(count("include").await, 0);
    assert_eq!(client.request("session/prompt", prompt(&id, "x")).await.unwrap_err()["code"], -32002);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_selection_survives_a_restart_without_a_prompt() {
    let model = |id: &str| json!({"name": id, "variants": {"low": {}, "high": {}}});
    let options = json!({"baseURL": "http://127.0.0.1:9/v1", "apiKey": "k"});
    let provider =
        json!({"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"a": model("a"), "b": model("b")}});
    let mut lab = Lab::with(json!({"provider": {"local": provider}}));
    let id = {
        let client = lab.client(json!({})).await;
        let id = client.session(&lab).await;
        let set = |option: &str, value: &str| json!({"sessionId": id, "configId": option, "value": value});
        client.request("session/set_mode", json!({"sessionId": id, "modeId": "plan"})).await.unwrap();
        client.request("session/set_config_option", set("model", "local/b")).await.unwrap();
        let set = client.request("session/set_config_option", set("effort", "high")).await.unwrap();
        assert_eq!(chosen(&set), ["local/b", "high", "plan"]);
        // Sent once each: the client's own changes are not echoed.
        assert_eq!(client.updates_of_kind(&id, "current_mode_update").len(), 1);
        assert_eq!(client.updates_of_kind(&id, "config_option_update").len(), 3);
        // Other clients see it immediately.
        let session = api::SessionId::parse(&id).unwrap();
        let session = api::Host::session(&lab.engine, &session).await.unwrap();
        assert_eq!((session.agent.as_deref(), session.model.unwrap().variant.as_deref()), (Some("plan"), Some("high")));
        id
    };
    lab.engine.shutdown().await;
    lab.engine = crate::rig::open(&lab.project);
    let client = lab.client(json!({})).await;
    let load = json!({"sessionId": id, "cwd": lab.cwd(), "mcpServers": []});
    let loaded = client.request("session/load", load).await.unwrap();
    assert_eq!(chosen(&loaded), ["local/b", "high", "plan"]);
    assert_eq!(
        (&loaded["modes"]["currentModeId"], &loaded["models"]["currentModelId"]),
        (&json!("plan"), &json!("local/b"))
    );
}

/// The current values of the options.
fn chosen(answer: &Value) -> Vec<&str> {
    answer["configOptions"].as_array().unwrap().iter().map(|option| option["currentValue"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_end_with_the_client_that_supplied_them_unless_another_replaced_them() {
    let lab = Lab::new();
    let program = testkit::mcp_server(lab.project.path());
    let servers = json!([{"name": "s", "command": "python3", "args": [program, "polite"], "env": []}]);
    let clients = McpOwners::default();
    let mut first = lab.client_sharing(&clients).await;
    let made = first.request("session/new", json!({"cwd": lab.cwd(), "mcpServers": servers})).await.unwrap();
    let id = made["sessionId"].as_str().unwrap();
    let pid = async |client: &Client| {
        let steps = json!([{"tools": [["s_pids", {}]]}, {"text": "done"}]);
        client.prompt(id, &script(steps)).await.unwrap();
        let call = client.updates_of_kind(id, "tool_call_update").pop().unwrap();
        call["rawOutput"]["output"].as_str().and_then(|pids| pids.split(' ').next()?.parse::<u32>().ok())
    };
    let old = pid(&first).await;
    // Another client takes over the session: its servers replace the first client's, which then ends nothing when it
    // disconnects.
    let mut second = lab.client_sharing(&clients).await;
    let load = json!({"sessionId": id, "cwd": lab.cwd(), "mcpServers": servers});
    second.request("session/load", load).await.unwrap();
    let new = pid(&second).await;
    assert!(old.is_some() && new.is_some() && old != new, "{old:?} {new:?}");
    first.disconnect().await;
    first.wait_for_end().await;
    assert_eq!(pid(&second).await, new);
    second.disconnect().await;
    second.wait_for_end().await;
    let third = lab.client_sharing(&clients).await;
    third.request("session/resume", json!({"sessionId": id, "cwd": lab.cwd()})).await.unwrap();
    assert_eq!(pid(&third).await, None);
}

/// Message ids that sort anywhere, from other clients or wrong clocks, hide nothing from the editor.
#[tokio::test(flavor = "multi_thread")]
async fn later_messages_are_shown_whatever_their_ids() {
    let lab = Lab::new();
    let editor = lab.client(json!({})).await;
    let id = editor.session(&lab).await;
    let session = api::SessionId::parse(&id).unwrap();
    for (place, chosen) in
        ["msg_zzzz", "msg_ffffffffffffzzzzzzzzzzzzzz", "msg_000000000000aaaaaaaaaaaaaa"].iter().enumerate()
    {
        let text = format!("from elsewhere {place}");
        let input = api::PromptInput {
            message_id: Some(api::MessageId::parse(chosen).unwrap()),
            parts: vec![api::PromptPart::text(script(json!([{"text": format!("answered {place}")}])))],
            ..api::PromptInput::default()
        };
        api::Host::prompt(&lab.engine, &session, input).await.unwrap();
        editor.wait_for_text(&id, &format!("answered {place}")).await;
        api::shift_clock(-600_000 * (place as i64 + 1));
        let answer = editor.prompt(&id, &script(json!([{"text": text}]))).await.unwrap();
        assert_eq!(answer["stopReason"], "end_turn");
        assert!(editor.text(&id).ends_with(&text), "{}", editor.text(&id));
    }
    // A replay keeps the order in which it happened.
    let wanted = "answered 0from elsewhere 0answered 1from elsewhere 1answered 2from elsewhere 2";
    assert_eq!(editor.text(&id), wanted);
    let second = lab.client(json!({})).await;
    second.request("session/load", json!({"sessionId": id, "cwd": lab.cwd(), "mcpServers": []})).await.unwrap();
    assert_eq!(second.text(&id), wanted);
    // Nothing is shown twice after a resume.
    let third = lab.client(json!({})).await;
    third.request("session/resume", json!({"sessionId": id, "cwd": lab.cwd()})).await.unwrap();
    third.prompt(&id, &script(json!([{"text": "the end"}]))).await.unwrap();
    assert_eq!(third.text(&id), "the end");
}
