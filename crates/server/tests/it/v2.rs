//! The part of the newer API that OpenCode's terminal client and web page read, the page at `/`, and toasts for what is
//! not offered.

use std::collections::{BTreeMap, BTreeSet};

use reqwest::Method;
use serde_json::{Value, json};
use trefoil_server::{Support, operations};

use crate::common::Rig;

async fn create(rig: &Rig, place: &str, body: Value) -> String {
    let (status, session) = rig.send(Method::POST, &format!("/session{place}"), Some(body)).await;
    assert_eq!(status, 200, "{session}");
    session["id"].as_str().unwrap().to_owned()
}

/// The values of a key in a list of objects.
fn column(list: &Value, key: &str) -> Vec<String> {
    list.as_array().unwrap().iter().map(|one| one[key].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_are_found_and_listed() {
    let rig = Rig::new(json!({})).await;
    for file in ["src/main.rs", "src/deep/other.rs", "README.md", ".github/main.yml", "dir with space/a b.txt"] {
        rig.project.write(file, "x\n");
    }
    let directory = rig.project.directory();
    for (query, first) in [
        ("query=main", json!({"path": "src/main.rs", "type": "file"})),
        ("query=main&limit=1", json!({"path": "src/main.rs", "type": "file"})),
        ("query=src&type=directory", json!({"path": "src/", "type": "directory"})),
        ("query=a%20b", json!({"path": "dir with space/a b.txt", "type": "file"})),
        ("query=github&type=file", json!({"path": ".github/main.yml", "type": "file"})),
    ] {
        let found = rig.get(&format!("/api/fs/find?{query}&location[directory]={directory}")).await;
        assert_eq!(found["data"][0], first, "{query}: {found}");
        assert_eq!(found["location"]["directory"], directory.as_str());
    }
    let all = rig.get("/api/fs/find?query=&limit=200").await;
    assert!(column(&all["data"], "path").contains(&"src/deep/".to_owned()), "{all}");
    for (query, paths) in [
        ("", vec![".github/", "dir with space/", "src/", "README.md"]),
        ("?path=src", vec!["src/deep/", "src/main.rs"]),
        ("?path=.", vec![".github/", "dir with space/", "src/", "README.md"]),
    ] {
        let listed = rig.get(&format!("/api/fs/list{query}")).await;
        let listed: Vec<_> = column(&listed["data"], "path").into_iter().filter(|path| path != ".git/").collect();
        assert_eq!(listed, paths, "{query}");
    }
    for bad in [
        "find",
        "find?query=a&limit=0",
        "find?query=a&limit=x",
        "find?query=a&type=x",
        "list?path=..",
        "list?path=nope",
    ] {
        let (status, error) = rig.send(Method::GET, &format!("/api/fs/{bad}"), None).await;
        assert_eq!((status, &error["_tag"]), (400, &json!("InvalidRequestError")), "{bad}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_root_directory_can_be_listed() {
    let rig = Rig::new(json!({})).await;
    for path in ["/file?path=&directory=/", "/file?path=.&directory=/"] {
        let entries = rig.get(path).await;
        assert!(column(&entries, "name").contains(&"etc".to_owned()), "{path}: {entries}");
    }
    let entries = rig.get("/api/fs/list?location[directory]=/").await;
    assert!(column(&entries["data"], "path").contains(&"etc/".to_owned()), "{entries}");
    // The root is not a project, so nothing below it is shown through it.
    for path in ["/file?path=etc&directory=/", "/file/content?path=etc/passwd&directory=/"] {
        assert_eq!(rig.send(Method::GET, path, None).await.0, 400, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_paged_both_ways_in_creation_order() {
    let rig = Rig::new(json!({})).await;
    let other = rig.project.root().join("elsewhere");
    std::fs::create_dir(&other).unwrap();
    let mut ids = Vec::new();
    for index in 0..5 {
        let place = if index == 2 { format!("?directory={}", other.display()) } else { String::new() };
        ids.push(create(&rig, &place, json!({ "title": format!("Number {index}") })).await);
    }
    // A change does not move a session.
    rig.send(Method::PATCH, &format!("/session/{}", ids[0]), Some(json!({ "title": "Number nil" }))).await;
    let youngest: Vec<String> = ids.iter().rev().cloned().collect();
    for (query, wanted) in [
        ("", youngest.clone()),
        ("?order=asc", ids.clone()),
        ("?limit=2", youngest[..2].to_vec()),
        ("?search=nil", vec![ids[0].clone()]),
        (&format!("?directory={}", other.display()), vec![ids[2].clone()]),
        ("?workspace=wrk_none", Vec::new()),
    ] {
        let list = rig.get(&format!("/api/session{query}")).await;
        assert_eq!(column(&list["data"], "id"), wanted, "{query}");
    }
    for order in ["asc", "desc"] {
        let whole = if order == "asc" { &ids } else { &youngest };
        let mut page = rig.get(&format!("/api/session?limit=2&order={order}")).await;
        let mut there = Vec::new();
        while let Some(next) = page["cursor"]["next"].as_str() {
            there.extend(column(&page["data"], "id"));
            let (next, previous) = (next.to_owned(), page["cursor"]["previous"].as_str().unwrap().to_owned());
            let before = rig.get(&format!("/api/session?limit=2&cursor={previous}")).await;
            let seen = there.len() - column(&page["data"], "id").len();
            assert_eq!(column(&before["data"], "id"), whole[seen.saturating_sub(2)..seen], "{order}");
            page = rig.get(&format!("/api/session?limit=2&cursor={next}")).await;
        }
        assert_eq!((&there, &page["data"]), (whole, &json!([])), "{order}");
    }
    for (bad, tag) in [
        ("?cursor=nonsense", "InvalidCursorError"),
        ("?cursor=e30", "InvalidCursorError"),
        ("?limit=0", "InvalidRequestError"),
        ("?order=up", "InvalidRequestError"),
    ] {
        let (status, error) = rig.send(Method::GET, &format!("/api/session{bad}"), None).await;
        assert_eq!((status, &error["_tag"]), (400, &json!(tag)), "{bad}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_its_turn_and_its_open_requests_are_reported() {
    let rig = Rig::new(json!({ "permission": { "bash": "ask" } })).await;
    let id = create(&rig, "", json!({ "title": "Asks" })).await;
    let info = rig.get(&format!("/api/session/{id}")).await["data"].clone();
    assert_eq!((&info["title"], &info["location"]["directory"]), (&json!("Asks"), &json!(rig.project.directory())));
    assert_eq!(rig.get("/api/session/active").await, json!({ "data": {} }));

    let mut events = rig.events("/event").await;
    let question = json!({ "questions": [{ "question": "Which?", "header": "Which", "options": [
        { "label": "a", "description": "the first" }, { "label": "b", "description": "the second" }] }] });
    let tools = json!([["bash", { "command": "echo hi" }], ["question", question]]);
    let text = format!("SCRIPT: {}", json!([{ "tools": tools }, { "text": "end" }]));
    let prompt =
        json!({ "parts": [{ "type": "text", "text": text }], "model": { "providerID": "script", "modelID": "demo" } });
    let (status, _) = rig.send(Method::POST, &format!("/session/{id}/prompt_async"), Some(prompt)).await;
    assert_eq!(status, 204);
    let mut open = BTreeSet::from(["permission.asked", "question.asked"]);
    while !open.is_empty() {
        let event = events.next().await.unwrap();
        open.retain(|kind| event["type"] != *kind);
    }
    assert_eq!(rig.get("/api/session/active").await, json!({ "data": { &id: { "type": "running" } } }));
    for path in [format!("/api/session/{id}/permission"), "/api/permission/request".to_owned()] {
        let asked = rig.get(&path).await["data"][0].clone();
        assert_eq!((&asked["sessionID"], &asked["action"]), (&json!(id), &json!("bash")), "{path}: {asked}");
        assert_eq!((&asked["resources"], &asked["source"]["type"]), (&json!(["echo hi"]), &json!("tool")), "{path}");
    }
    for path in [format!("/api/session/{id}/question"), "/api/question/request".to_owned()] {
        let asked = rig.get(&path).await["data"][0].clone();
        assert_eq!((&asked["sessionID"], &asked["questions"][0]["header"]), (&json!(id), &json!("Which")), "{path}");
    }
    let idle = create(&rig, "", json!({})).await;
    assert_eq!(rig.get(&format!("/api/session/{idle}/permission")).await, json!({ "data": [] }));
    for path in ["", "/permission", "/question"] {
        let (status, error) = rig.send(Method::GET, &format!("/api/session/ses_none{path}"), None).await;
        assert_eq!((status, &error["_tag"]), (404, &json!("SessionNotFoundError")), "{path}: {error}");
    }
}

/// A valid body for each operation that is not offered, so that it is refused for that reason alone.
fn bodies() -> BTreeMap<&'static str, Value> {
    let event = json!({ "id": "evt_1", "aggregateID": "ses_1", "seq": 1, "type": "x", "data": {} });
    BTreeMap::from([
        ("experimental.console.switchOrg", json!({ "accountID": "a", "orgID": "o" })),
        ("global.upgrade", json!({})),
        ("provider.oauth.authorize", json!({ "method": 0 })),
        ("provider.oauth.callback", json!({ "method": 0 })),
        ("session.revert", json!({ "messageID": "msg_1" })),
        ("session.share", Value::Null),
        ("session.summarize", json!({ "providerID": "script", "modelID": "demo" })),
        ("session.unrevert", Value::Null),
        ("sync.replay", json!({ "directory": "/", "events": [event] })),
        ("sync.start", Value::Null),
        ("sync.steal", json!({ "sessionID": "ses_1" })),
    ])
}

/// The terminal client does not show most errors itself.
#[tokio::test(flavor = "multi_thread")]
async fn everything_that_is_not_offered_shows_a_toast() {
    let rig = Rig::new(json!({})).await;
    let session = create(&rig, "", json!({})).await;
    let (mut events, mut elsewhere) = (rig.events("/event").await, rig.events("/event?directory=/tmp").await);
    let mut bodies = bodies();
    let operations = operations();
    let missing: Vec<_> = operations.iter().filter(|one| matches!(one.support, Support::NotOffered(_))).collect();
    assert!(!missing.is_empty());
    for operation in missing {
        let body = bodies.remove(operation.id).unwrap_or_else(|| panic!("{} has no body here", operation.id));
        let path = operation.path.replace("{sessionID}", &session).replace("{providerID}", "openai");
        let (status, error) = rig.send(operation.method.clone(), &path, Some(body)).await;
        assert_eq!(status, 400, "{}: {error}", operation.id);
        let said = [&error["data"]["message"], &error["message"], &error["error"]];
        let said = said.into_iter().find(|text| text.is_string()).unwrap();
        let toast = events.next().await.unwrap();
        assert_eq!(toast["type"], "tui.toast.show", "{}: {toast}", operation.id);
        assert_eq!((&toast["properties"]["message"], &toast["properties"]["variant"]), (said, &json!("warning")));
    }
    assert!(bodies.is_empty(), "these are offered now: {bodies:?}");
    // A request that is wrong in another way shows no toast, and neither do other directories.
    rig.send(Method::POST, "/session/ses_none/revert", Some(json!({ "messageID": "msg_1" }))).await;
    rig.send(Method::POST, &format!("/session/{session}/revert"), Some(json!({}))).await;
    rig.send(Method::POST, "/tui/open-help", None).await;
    rig.send(Method::POST, "/tui/open-help?directory=/tmp", None).await;
    for stream in [&mut events, &mut elsewhere] {
        assert_eq!(stream.next().await.unwrap()["type"], "tui.command.execute");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_home_page_says_what_this_is() {
    let rig = Rig::new(json!({})).await;
    let response = rig.http.get(format!("{}/", rig.url)).send().await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/html; charset=utf-8");
    let page = response.text().await.unwrap();
    for word in ["Trefoil", "0.0.0", "opencode attach", "trefoil run --attach", "trefoil acp", "/doc"] {
        assert!(page.contains(word), "{word}: {page}");
    }
    // Every link works.
    for link in
        page.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()).filter(|link| link.starts_with('/'))
    {
        assert_eq!(rig.send(Method::GET, link, None).await.0, 200, "{link}");
    }
    assert_eq!(rig.http.head(format!("{}/", rig.url)).send().await.unwrap().status(), 200);
    assert_eq!(rig.send(Method::POST, "/", None).await.0, 405);
}

/// Requests that OpenCode's terminal client and web page make, or have code for. None of them is unknown.
#[tokio::test(flavor = "multi_thread")]
async fn no_request_of_the_real_clients_is_unknown() {
    let rig = Rig::new(json!({})).await;
    let id = create(&rig, "", json!({})).await;
    let project = rig.get("/project/current").await["id"].as_str().unwrap().to_owned();
    let directory = rig.project.directory();
    let place = format!("location[directory]={directory}");
    let plain = "/path /project /project/current /experimental/capabilities /experimental/console /config /global/config \
        /global/health /agent /session /config/providers /provider /provider/auth /command /lsp /mcp /formatter \
        /session/status /vcs /vcs/status /skill /permission /question /pty /pty/shells /experimental/workspace \
        /experimental/workspace/status /experimental/workspace/adapter /experimental/resource /experimental/session \
        /experimental/worktree /experimental/console/orgs /file/status /api/health /api/location /api/agent \
        /api/integration /api/model /api/provider /api/reference /api/command /api/skill /api/session \
        /api/session/active /api/permission/saved /api/permission/request /api/question/request /api/fs/list /";
    let mut paths: Vec<String> = plain.split_whitespace().map(str::to_owned).collect();
    for name in ["model", "provider", "reference", "integration", "agent", "command", "skill", "fs/list"] {
        paths.push(format!("/api/{name}?{place}&"));
    }
    for rest in ["", "/message?limit=100", "/todo", "/diff", "/children"] {
        paths.push(format!("/session/{id}{rest}"));
    }
    for rest in ["", "/permission", "/question"] {
        paths.push(format!("/api/session/{id}{rest}"));
    }
    paths.extend([
        format!("/api/fs/find?query=&limit=20&{place}"),
        format!("/project/{project}/directories"),
        "/session?roots=true&limit=100&path=".to_owned(),
        "/session?start=0&path=".to_owned(),
        "/file?path=&directory=/".to_owned(),
        format!("/file?path=&directory={directory}"),
        "/find/file?query=&limit=20".to_owned(),
        "/find?pattern=x".to_owned(),
        "/vcs/diff?mode=git".to_owned(),
        format!("/api/permission/saved?projectID={project}"),
        "/api/session?limit=50&order=desc".to_owned(),
    ]);
    for path in paths {
        let (status, body) = rig.send(Method::GET, &path, None).await;
        assert_eq!(status, 200, "{path}: {body}");
    }
}
