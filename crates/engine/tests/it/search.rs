//! `websearch`: through a configured address, through an MCP tool, and without either.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use crate::common::{Lab, script};
use api::{EventBody, Host, PermissionReply, PermissionReplyKind, PromptInput, SessionId, ToolState};
use serde_json::{Value, json};

/// A loopback search service that finds one page for every query.
fn service() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/search", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            let mut head = [0; 4096];
            let read = client.read(&mut head).unwrap_or_default();
            let asked = String::from_utf8_lossy(&head[..read]).split(' ').nth(1).unwrap_or_default().to_owned();
            let body =
                json!({"results": [{"title": "A page", "url": "https://a.example", "content": asked}]}).to_string();
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
            let _ = client.write_all(format!("{head}{body}").as_bytes());
        }
    });
    url
}

/// A lab with this in the user's own Trefoil-only file, and an MCP server that searches if `server`.
fn lab(mut config: Value, server: bool) -> Lab {
    if server {
        config["mcp"]["s"] = json!({ "type": "local", "command": ["python3", "mcp_test_server.py", "searches"] });
    }
    let lab = Lab::with(config);
    testkit::mcp_server(lab.project.path());
    lab
}

fn searches(query: &str) -> String {
    script(json!([{"tools": [["websearch", {"query": query, "numResults": 3}]]}, {"text": "done"}]))
}

async fn outcome(lab: &Lab, session: &SessionId) -> (String, String) {
    let tool = lab.tools(session).await.pop().unwrap();
    let text = match tool.state {
        ToolState::Completed(done) => done.output,
        ToolState::Error(error) => error.error,
        other => panic!("no outcome: {other:?}"),
    };
    (tool.tool, text)
}

#[tokio::test(flavor = "multi_thread")]
async fn any_available_search_is_used() {
    let url = service();
    for (config, server, wanted) in [
        (json!({"websearch": {"url": url}}), false, "/search?q=rust+news"),
        (json!({}), true, "found rust news, 3 times"),
        (json!({"websearch": {"tool": "s_search_notes"}}), true, "notes about rust news"),
        // A configured service wins over a discovered one.
        (json!({"websearch": {"url": url}}), true, "/search?q=rust+news"),
    ] {
        let lab = lab(config.clone(), server);
        let session = lab.session().await;
        lab.say(&session, &searches("rust news")).await;
        let (tool, text) = outcome(&lab, &session).await;
        assert_eq!(tool, "websearch", "{config}: {text}");
        assert!(text.contains(wanted) && text.contains("not instructions"), "{config}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_search_engine_the_model_is_told_what_is_missing() {
    for config in [
        json!({}),
        json!({"websearch": {}}),
        json!({"websearch": {"url": "no address"}}),
        json!({"websearch": {"tool": "s_nowhere"}}),
    ] {
        let lab = lab(config.clone(), false);
        let session = lab.session().await;
        lab.say(&session, &searches("x")).await;
        let (tool, text) = outcome(&lab, &session).await;
        assert_eq!(tool, "invalid", "{config}");
        assert!(text.contains("unavailable tool 'websearch'") && text.contains(tools::NO_SEARCH_ENGINE), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_apply_to_the_search_and_to_the_tool_behind_it() {
    for rules in [
        json!({"websearch": "deny"}),
        json!({"s_*": "deny"}),
        json!({"s_web_search": "deny"}),
        json!({"*": "deny", "websearch": "allow"}),
        json!({"websearch": {"*": "allow", "*secret*": "deny"}}),
    ] {
        let lab = lab(json!({ "permission": rules }), true);
        let session = lab.session().await;
        lab.say(&session, &searches("a secret")).await;
        let (_, text) = outcome(&lab, &session).await;
        assert!(!text.contains("found a secret"), "{rules}: {text}");
        assert!(!text.contains(tools::NO_SEARCH_ENGINE), "{rules}: {text}");
    }
    let lab = lab(json!({ "permission": {"websearch": "ask"} }), true);
    let session = lab.session().await;
    let mut events = lab.recorder().await;
    lab.engine.prompt_async(&session, crate::common::prompt(&searches("q"))).await.unwrap();
    let event = events.wait_for(|body| matches!(body, EventBody::PermissionAsked(_))).await;
    let EventBody::PermissionAsked(ask) = &event.body else { unreachable!() };
    assert_eq!((ask.permission.as_str(), &ask.patterns[..]), ("websearch", &["q".to_owned()][..]));
    let reply = PermissionReply { reply: PermissionReplyKind::Once, message: None };
    lab.engine.reply_permission(&ask.id, reply).await.unwrap();
    events.wait_idle(&session).await;
    assert!(outcome(&lab, &session).await.1.contains("found q"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_researcher_searches_and_changes_nothing() {
    let agent = config::OPTIONAL_AGENTS.iter().find(|agent| agent.name == "web-search-researcher").unwrap();
    let lab = lab(json!({"websearch": {"url": service()}}), false);
    lab.project.write_home(".config/trefoil/agent/web-search-researcher.md", agent.text);
    let session = lab.session().await;
    let work = json!([
        {"tools": [["websearch", {"query": "rust"}], ["bash", {"command": "touch made"}]]},
        {"text": "It is a language."},
    ]);
    let call = json!({"description": "Look", "prompt": script(work), "subagent_type": agent.name});
    let prompt =
        PromptInput { ..crate::common::prompt(&script(json!([{"tools": [["task", call]]}, {"text": "done"}]))) };
    lab.engine.prompt(&session, prompt).await.unwrap();
    let child = lab.engine.children(&session).await.unwrap()[0].id.clone();
    let tools = lab.tools(&child).await;
    assert!(
        matches!(&tools[0].state, ToolState::Completed(done) if done.output.contains("https://a.example")),
        "{tools:?}"
    );
    assert!(!lab.project.path().join("made").exists());
}
