//! The handshake, and sessions: made, opened, listed, changed, closed.

use serde_json::{Value, json};
use testkit::ModelServer;

use trefoil_acp::Brought;

use crate::rig::{Client, Lab, prompt, script};

#[tokio::test(flavor = "multi_thread")]
async fn hello() {
    let lab = Lab::new();
    let client = lab.stranger();
    let early = client.ask("session/new", json!({"cwd": lab.cwd(), "mcpServers": []})).await.unwrap_err();
    assert_eq!(early["code"], -32600);
    for version in [json!(1), json!(0), json!(99), json!(65000)] {
        let answer = client.ask("initialize", json!({"protocolVersion": version})).await.unwrap();
        assert_eq!(answer["protocolVersion"], 1);
        assert_eq!(answer["agentInfo"]["name"], "trefoil");
        assert_eq!(answer["agentCapabilities"]["loadSession"], true);
        assert_eq!(answer["agentCapabilities"]["_meta"]["steering"]["supported"], true);
        let method = &answer["authMethods"][0];
        assert!(method["type"] != "terminal" && method["_meta"].is_null(), "{method}");
    }
    let old = json!({"protocolVersion": 1, "capabilities": {"_meta": {"terminal-auth": true}}});
    let answer = client.ask("initialize", old).await.unwrap();
    assert_eq!(answer["authMethods"][0]["_meta"]["terminal-auth"]["args"], json!(["acp", "--login"]));
    let new = json!({"protocolVersion": 1, "clientCapabilities": {"auth": {"terminal": true}}});
    let method = client.ask("initialize", new).await.unwrap()["authMethods"][0].clone();
    assert_eq!((&method["type"], &method["args"]), (&json!("terminal"), &json!(["--login"])));
    // Nobody has to wait for the answer.
    let eager = lab.stranger();
    let hello = eager.start("initialize", json!({ "protocolVersion": 1 })).await;
    eager.session(&lab).await;
    hello.await.unwrap();
    for wrong in [json!({}), json!({"protocolVersion": "one"}), Value::Null] {
        assert_eq!(client.ask("initialize", wrong).await.unwrap_err()["code"], -32602);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn signing_in_and_out() {
    let lab = Lab::new();
    let client = lab.client(json!({})).await;
    for params in [json!({"methodId": "trefoil-login"}), json!({"authMethodId": "opencode-login"})] {
        assert_eq!(client.ask("authenticate", params).await.unwrap(), json!({}));
    }
    let unknown = client.ask("authenticate", json!({"methodId": "nope"})).await.unwrap_err();
    assert_eq!((&unknown["code"], &unknown["data"]["methodId"]), (&json!(-32602), &json!("nope")));
    assert_eq!(client.ask("authenticate", json!({})).await.unwrap_err()["code"], -32602);
    assert_eq!(client.ask("auth/status", json!({})).await.unwrap()["state"], "not_required");
    client.ask("logout", json!({})).await.unwrap();
    assert_eq!(client.ask("auth/status", json!({})).await.unwrap()["state"], "unauthenticated");
    let refused = client.ask("session/new", json!({"cwd": lab.cwd(), "mcpServers": []})).await.unwrap_err();
    assert_eq!(refused["code"], -32000);
    client.ask("authenticate", json!({"methodId": "trefoil-login"})).await.unwrap();
    client.session(&lab).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_has_modes_models_and_options() {
    let lab = Lab::new();
    let client = lab.client(json!({})).await;
    let made = client.ask("session/new", json!({"cwd": lab.cwd(), "mcpServers": []})).await.unwrap();
    let id = made["sessionId"].as_str().unwrap();
    assert_eq!(made["modes"]["currentModeId"], "build");
    assert_eq!(made["models"]["currentModelId"], "script/demo");
    assert_eq!(made["models"]["availableModels"][0]["modelId"], "script/demo");
    let ids: Vec<&str> = made["configOptions"].as_array().unwrap().iter().map(|o| o["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["model", "mode"]);
    client.until_update(id, "the commands", |update| update["sessionUpdate"] == "available_commands_update").await;
    // The commands come after the answer: before it nobody knows the session.
    let said = client.said();
    let commands = said.iter().position(|message| message["method"] == "session/update").unwrap();
    assert!(said[..commands].iter().any(|message| message["result"]["sessionId"] == *id));

    client.ask("session/set_mode", json!({"sessionId": id, "modeId": "plan"})).await.unwrap();
    assert_eq!(client.kind(id, "current_mode_update").last().unwrap()["currentModeId"], "plan");
    let options = client.kind(id, "config_option_update").last().unwrap()["configOptions"].clone();
    assert_eq!(options.as_array().unwrap().iter().find(|o| o["id"] == "mode").unwrap()["currentValue"], "plan");
    let set = json!({"sessionId": id, "configId": "mode", "value": "build"});
    let answer = client.ask("session/set_config_option", set).await.unwrap();
    assert_eq!(answer["configOptions"].as_array().unwrap().len(), 2);
    assert_eq!(client.kind(id, "current_mode_update").last().unwrap()["currentModeId"], "build");
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
        assert_eq!(client.ask(method, params.clone()).await.unwrap_err()["code"], -32602, "{method} {params}");
    }
    client.ask("unstable_setSessionModel", json!({"sessionId": id, "modelId": "script/demo"})).await.unwrap();
    client.ask("setSessionMode", json!({"sessionId": id, "modeId": "plan"})).await.unwrap();
    // A turn has the chosen mode, and the session keeps it.
    client.prompt(id, &script(json!([{"text": "hi"}]))).await.unwrap();
    let resumed = client.ask("session/resume", json!({"sessionId": id, "cwd": lab.cwd()})).await.unwrap();
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
        let error = client.ask("session/new", params.clone()).await.unwrap_err();
        assert_eq!(error["code"], -32602, "{params}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_uses_the_servers_that_its_client_brings() {
    let lab = Lab::new();
    let client = lab.client(json!({})).await;
    let id = &*client.session_with_server(&lab).await;
    let echo = script(json!([{"tools": [["s_echo", {"text": "hi"}]]}, {"text": "done"}]));
    client.prompt(id, &echo).await.unwrap();
    let outcome = |id: &str| client.kind(id, "tool_call_update").pop().unwrap();
    assert_eq!(
        (&outcome(id)["status"], &outcome(id)["rawOutput"]["output"]),
        (&json!("completed"), &json!("echo: hi"))
    );
    // They are that session's alone, and go when it is closed.
    let other = client.session(&lab).await;
    client.prompt(&other, &echo).await.unwrap();
    assert_ne!(outcome(&other)["rawOutput"]["output"], "echo: hi");
    client.ask("session/close", json!({"sessionId": id})).await.unwrap();
    client.ask("session/resume", json!({"sessionId": id, "cwd": lab.cwd()})).await.unwrap();
    client.prompt(id, &echo).await.unwrap();
    assert_ne!(outcome(id)["rawOutput"]["output"], "echo: hi");
}

#[tokio::test(flavor = "multi_thread")]
async fn further_directories_belong_to_a_session() {
    let lab = Lab::new();
    let client = lab.client(json!({})).await;
    let outside = tempfile::tempdir().unwrap();
    let path = outside.path().canonicalize().unwrap();
    std::fs::write(path.join("a.txt"), "outside\n").unwrap();
    let params = json!({"cwd": lab.cwd(), "mcpServers": [], "additionalDirectories": [path]});
    let made = client.ask("session/new", params).await.unwrap();
    let id = made["sessionId"].as_str().unwrap();
    // No question is asked: the client would fail.
    let read = json!([{"tools": [["read", {"filePath": path.join("a.txt")}]]}, {"text": "read"}]);
    client.prompt(id, &script(read)).await.unwrap();
    let done = client.kind(id, "tool_call_update");
    assert_eq!(done.last().unwrap()["status"], "completed", "{done:?}");
    let list = client.ask("session/list", json!({"cwd": lab.cwd()})).await.unwrap();
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
        let page = client.ask("unstable_listSessions", json!({"cwd": lab.cwd(), "cursor": cursor})).await.unwrap();
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
    assert_eq!(client.ask("session/list", json!({"cwd": "/nonexistent"})).await.unwrap()["sessions"], json!([]));
    assert_eq!(client.ask("session/list", json!({})).await.unwrap()["sessions"].as_array().unwrap().len(), 50);
    assert_eq!(client.ask("session/list", json!({"cursor": "xx"})).await.unwrap_err()["code"], -32602);
    assert_eq!(client.ask("session/list", json!({"cwd": "relative"})).await.unwrap_err()["code"], -32602);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_loaded_with_everything_that_was_shown() {
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
    first.ask("session/prompt", json!({"sessionId": id, "prompt": blocks})).await.unwrap();

    let second = lab.client(json!({})).await;
    let before = second.said().len();
    let loaded =
        second.ask("session/load", json!({"sessionId": id, "cwd": lab.cwd(), "mcpServers": []})).await.unwrap();
    assert_eq!(loaded["modes"]["currentModeId"], "build");
    // Every update of the replay is there before the answer.
    let said = second.said();
    let answer = said.iter().position(|message| message["result"]["modes"].is_object()).unwrap();
    let kinds: Vec<&str> = said[before..answer]
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
    let image = &second.kind(&id, "user_message_chunk")[2]["content"];
    assert_eq!((&image["type"], &image["data"]), (&json!("image"), &json!(picture)));
    assert_eq!(second.kind(&id, "plan")[0]["entries"][0]["content"], "T");
    // The conversation goes on, and nothing is shown twice.
    second.prompt(&id, &script(json!([{"text": "More."}]))).await.unwrap();
    assert_eq!(second.text(&id), format!("{}More.", first.text(&id).trim_end_matches("More.")));

    // Without its history it is only opened.
    let third = lab.client(json!({})).await;
    third.ask("session/resume", json!({"sessionId": id, "cwd": lab.cwd()})).await.unwrap();
    third.prompt(&id, &script(json!([{"text": "Again."}]))).await.unwrap();
    assert_eq!(third.text(&id), "Again.");
    assert!(third.kind(&id, "user_message_chunk").is_empty());
    let unknown = json!({"sessionId": "ses_unknown", "cwd": lab.cwd(), "mcpServers": []});
    for method in ["session/load", "session/resume", "session/fork"] {
        assert_eq!(third.ask(method, unknown.clone()).await.unwrap_err()["code"], -32002, "{method}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_opened_in_the_middle_of_its_text() {
    let mut model = ModelServer::start().await;
    model.answer_titles("A title");
    let lab = Lab::with(model.config());
    let first = lab.client(json!({})).await;
    let id = first.session(&lab).await;
    let answer = first.start("session/prompt", prompt(&id, "count")).await;
    let mut call = model.next_call().await;
    let words = |range: std::ops::Range<u32>| range.map(|n| format!("w{n} ")).collect::<Vec<_>>();
    for word in words(0..50) {
        call.text(word).await;
    }
    first.until_text(&id, "w49 ").await;
    let others = [lab.client(json!({})).await, lab.client(json!({})).await];
    for other in &others {
        other.ask("session/load", json!({"sessionId": id, "cwd": lab.cwd(), "mcpServers": []})).await.unwrap();
    }
    for word in words(50..100) {
        call.text(word).await;
    }
    for other in &others {
        other.until_text(&id, "w99 ").await;
    }
    call.finish("stop").await;
    assert_eq!(answer.await.unwrap()["stopReason"], "end_turn");
    for client in others.iter().chain([&first]) {
        assert_eq!(client.text(&id), words(0..100).concat());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_has_the_conversation_and_goes_its_own_way() {
    let lab = Lab::new();
    let client = lab.client(json!({})).await;
    let id = client.session(&lab).await;
    client.prompt(&id, &script(json!([{"text": "Once."}]))).await.unwrap();
    let params = json!({"sessionId": id, "cwd": lab.cwd(), "mcpServers": []});
    let forked = client.ask("unstable_forkSession", params).await.unwrap();
    let fork = forked["sessionId"].as_str().unwrap();
    assert!(fork != id && forked["modes"].is_object());
    assert_eq!(client.text(fork), "Once.");
    client.prompt(fork, &script(json!([{"text": "Twice."}]))).await.unwrap();
    assert_eq!((client.text(fork).as_str(), client.text(&id).as_str()), ("Once.Twice.", "Once."));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_named_archived_closed_and_deleted() {
    let lab = Lab::new();
    let client = lab.client(json!({})).await;
    let id = client.session(&lab).await;
    let of = |id: &str| json!({ "sessionId": id });
    let named = client.ask("session/set_title", json!({"sessionId": id, "title": "My work"})).await.unwrap();
    assert_eq!(named["title"], "My work");
    client.until_update(&id, "the title", |update| update["title"] == "My work").await;
    assert_eq!(client.ask("session/status", of(&id)).await.unwrap()["status"], "open");
    client.ask("session/archive", of(&id)).await.unwrap();
    let count = async |archived: &str| {
        let list = client.ask("session/list", json!({"cwd": lab.cwd(), "archived": archived})).await.unwrap();
        list["sessions"].as_array().unwrap().len()
    };
    assert_eq!((count("exclude").await, count("include").await, count("only").await), (0, 1, 1));
    client.ask("session/unarchive", of(&id)).await.unwrap();
    assert_eq!((count("exclude").await, count("only").await), (1, 0));
    client.ask("session/close", of(&id)).await.unwrap();
    assert_eq!(client.ask("session/status", of(&id)).await.unwrap()["status"], "saved");
    let closed = client.ask("session/prompt", prompt(&id, "x")).await.unwrap_err();
    assert_eq!((&closed["code"], &closed["data"]["sessionId"]), (&json!(-32002), &json!(id)));
    client.ask("session/close", of("ses_unknown")).await.unwrap();
    client.ask("session/resume", json!({"sessionId": id, "cwd": lab.cwd()})).await.unwrap();
    client.ask("session/delete", of(&id)).await.unwrap();
    client.ask("session/delete", of(&id)).await.unwrap();
    client.ask("session/delete", of("nonsense")).await.unwrap();
    assert_eq!(count("include").await, 0);
    assert_eq!(client.ask("session/prompt", prompt(&id, "x")).await.unwrap_err()["code"], -32002);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_chosen_is_there_after_a_restart_without_a_prompt() {
    let model = |id: &str| json!({"name": id, "variants": {"low": {}, "high": {}}});
    let options = json!({"baseURL": "http://127.0.0.1:9/v1", "apiKey": "k"});
    let provider =
        json!({"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"a": model("a"), "b": model("b")}});
    let mut lab = Lab::with(json!({"provider": {"local": provider}}));
    let id = {
        let client = lab.client(json!({})).await;
        let id = client.session(&lab).await;
        let set = |option: &str, value: &str| json!({"sessionId": id, "configId": option, "value": value});
        client.ask("session/set_mode", json!({"sessionId": id, "modeId": "plan"})).await.unwrap();
        client.ask("session/set_config_option", set("model", "local/b")).await.unwrap();
        let set = client.ask("session/set_config_option", set("effort", "high")).await.unwrap();
        assert_eq!(chosen(&set), ["local/b", "high", "plan"]);
        // Once each: what comes back from the log is known already.
        assert_eq!(client.kind(&id, "current_mode_update").len(), 1);
        assert_eq!(client.kind(&id, "config_option_update").len(), 3);
        // Others see it at once.
        let (scope, session) = (api::Scope::new(lab.cwd()), api::SessionId::parse(&id).unwrap());
        let session = api::Host::session(&lab.engine, &scope, &session).await.unwrap();
        assert_eq!((session.agent.as_deref(), session.model.unwrap().variant.as_deref()), (Some("plan"), Some("high")));
        id
    };
    lab.engine.shutdown().await;
    lab.engine = crate::rig::open(&lab.project);
    let client = lab.client(json!({})).await;
    let load = json!({"sessionId": id, "cwd": lab.cwd(), "mcpServers": []});
    let loaded = client.ask("session/load", load).await.unwrap();
    assert_eq!(chosen(&loaded), ["local/b", "high", "plan"]);
    assert_eq!(
        (&loaded["modes"]["currentModeId"], &loaded["models"]["currentModelId"]),
        (&json!("plan"), &json!("local/b"))
    );
}

/// The values of the options.
fn chosen(answer: &Value) -> Vec<&str> {
    answer["configOptions"].as_array().unwrap().iter().map(|option| option["currentValue"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_a_client_brings_go_with_it_unless_another_brings_some() {
    let lab = Lab::new();
    let program = testkit::mcp_server(lab.project.path());
    let servers = json!([{"name": "s", "command": "python3", "args": [program, "polite"], "env": []}]);
    let clients = Brought::default();
    let mut first = lab.client_of(&clients).await;
    let made = first.ask("session/new", json!({"cwd": lab.cwd(), "mcpServers": servers})).await.unwrap();
    let id = made["sessionId"].as_str().unwrap();
    let pid = async |client: &Client| {
        let steps = json!([{"tools": [["s_pids", {}]]}, {"text": "done"}]);
        client.prompt(id, &script(steps)).await.unwrap();
        let call = client.kind(id, "tool_call_update").pop().unwrap();
        call["rawOutput"]["output"].as_str().and_then(|pids| pids.split(' ').next()?.parse::<u32>().ok())
    };
    let old = pid(&first).await;
    // Another client takes the session over: its servers are the session's, and the first one's end ends nothing.
    let mut second = lab.client_of(&clients).await;
    let load = json!({"sessionId": id, "cwd": lab.cwd(), "mcpServers": servers});
    second.ask("session/load", load).await.unwrap();
    let new = pid(&second).await;
    assert!(old.is_some() && new.is_some() && old != new, "{old:?} {new:?}");
    first.hang_up().await;
    first.ended().await;
    assert_eq!(pid(&second).await, new);
    second.hang_up().await;
    second.ended().await;
    let third = lab.client_of(&clients).await;
    third.ask("session/resume", json!({"sessionId": id, "cwd": lab.cwd()})).await.unwrap();
    assert_eq!(pid(&third).await, None);
}

/// Ids that sort anywhere, of other clients and of clocks that were wrong, hide nothing from the editor.
#[tokio::test(flavor = "multi_thread")]
async fn what_comes_later_is_shown_whatever_its_id() {
    let lab = Lab::new();
    let editor = lab.client(json!({})).await;
    let id = editor.session(&lab).await;
    let session = api::SessionId::parse(&id).unwrap();
    let scope = api::Scope::new(lab.cwd());
    for (place, chosen) in
        ["msg_zzzz", "msg_ffffffffffffzzzzzzzzzzzzzz", "msg_000000000000aaaaaaaaaaaaaa"].iter().enumerate()
    {
        let said = format!("from elsewhere {place}");
        let input = api::PromptInput {
            message_id: Some(api::MessageId::parse(chosen).unwrap()),
            parts: vec![api::PromptPart::text(script(json!([{"text": format!("answered {place}")}])))],
            ..api::PromptInput::default()
        };
        api::Host::prompt(&lab.engine, &scope, &session, input).await.unwrap();
        editor.until_text(&id, &format!("answered {place}")).await;
        api::shift_clock(-600_000 * (place as i64 + 1));
        let answer = editor.prompt(&id, &script(json!([{"text": said}]))).await.unwrap();
        assert_eq!(answer["stopReason"], "end_turn");
        assert!(editor.text(&id).ends_with(&said), "{}", editor.text(&id));
    }
    // Shown again, it comes in the order in which it happened.
    let wanted = "answered 0from elsewhere 0answered 1from elsewhere 1answered 2from elsewhere 2";
    assert_eq!(editor.text(&id), wanted);
    let second = lab.client(json!({})).await;
    second.ask("session/load", json!({"sessionId": id, "cwd": lab.cwd(), "mcpServers": []})).await.unwrap();
    assert_eq!(second.text(&id), wanted);
    // Nor is it shown twice when it is resumed and goes on.
    let third = lab.client(json!({})).await;
    third.ask("session/resume", json!({"sessionId": id, "cwd": lab.cwd()})).await.unwrap();
    third.prompt(&id, &script(json!([{"text": "the end"}]))).await.unwrap();
    assert_eq!(third.text(&id), "the end");
}
