//! Configuration, providers, credentials, agents, commands, skills, and their newer forms.

use std::os::unix::fs::PermissionsExt as _;

use crate::common::Rig;
use reqwest::Method;
use serde_json::{Value, json};

fn recorded() -> Value {
    serde_json::from_str(include_str!("../fixtures/catalog.json")).unwrap()
}

/// The recorded configuration, and a skill in the project.
async fn rig() -> Rig {
    let rig = Rig::new(recorded()["config"].clone()).await;
    rig.project.write(".opencode/skill/demo/SKILL.md", "---\nname: demo\ndescription: Demo\n---\nBODY\n");
    rig
}

/// Turns lists of named things into objects, so that each is compared with its namesake.
fn by_name(value: &Value) -> Value {
    let name = |item: &Value| Some(item.get("id").or(item.get("name"))?.as_str()?.to_owned());
    match value {
        Value::Array(list) => match list.iter().map(|item| Some((name(item)?, by_name(item)))).collect() {
            Some(map) if !list.is_empty() => Value::Object(map),
            _ => Value::Array(list.iter().map(by_name).collect()),
        },
        Value::Object(map) => map.iter().map(|(key, value)| (key.clone(), by_name(value))).collect(),
        other => other.clone(),
    }
}

/// Adds a line for each place where keys or types differ; of lists, the first items are compared.
fn differences(place: &str, theirs: &Value, ours: &Value, found: &mut Vec<String>) {
    match (theirs, ours) {
        (Value::Object(left), Value::Object(right)) => {
            for (key, left) in left {
                match right.get(key) {
                    Some(right) => differences(&format!("{place}/{key}"), left, right, found),
                    None => found.push(format!("{place}/{key}: theirs only")),
                }
            }
            let more = right.keys().filter(|key| !left.contains_key(*key));
            found.extend(more.map(|key| format!("{place}/{key}: ours only")));
        }
        (Value::Array(left), Value::Array(right)) => {
            if let (Some(left), Some(right)) = (left.first(), right.first()) {
                differences(&format!("{place}[]"), left, right, found);
            }
        }
        _ if std::mem::discriminant(theirs) == std::mem::discriminant(ours) => {}
        _ => found.push(format!("{place}: theirs {theirs}, ours {ours}")),
    }
}

/// What may differ, and why.
const ACCEPTED: &[&str] = &[
    // OpenCode repeats unknown keys of an agent and fills in empty rules; we return the file's text.
    "*/agent/zed/options: theirs only",
    "*/agent/zed/permission: theirs only",
    // Secrets do not leave the server.
    "*/options/apiKey: theirs only",
    "*/api/settings: theirs only",
    // The offline scripts are always listed.
    "*/script: ours only",
    "/api/model/data/demo: ours only",
    // A key can be stored for every provider; one that is not enabled is not offered.
    "/provider/auth/fake: ours only",
    "/api/integration/data/fake: ours only",
    "/api/integration/fake/data: theirs null*",
    "/api/integration/data/openai: theirs only",
    // Models report what is known of them.
    "*/fake-small/family: theirs only",
    "*/fake-small/variants: theirs only",
    // Options are returned as written; the provider's own option names are not translated.
    "/api/model/data/fake-model/variants/*/body/*",
    // Only agents with a prompt of their own have one, and only those with a temperature report it.
    "/api/agent/data/build/system: theirs only",
    "/api/agent/data/title/request/body/temperature: ours only",
];

#[tokio::test]
async fn responses_have_the_recorded_shapes() {
    let rig = rig().await;
    let mut found = Vec::new();
    for (path, theirs) in recorded()["bodies"].as_object().unwrap() {
        let ours = rig.get(path).await;
        differences(path, &by_name(theirs), &by_name(&ours), &mut found);
    }
    let matches = |pattern: &str| found.iter().any(|line| api::wildcard(pattern, line));
    let stale: Vec<_> = ACCEPTED.iter().filter(|pattern| !matches(pattern)).collect();
    assert!(stale.is_empty(), "these match no difference any more: {stale:?}");
    found.retain(|line| !ACCEPTED.iter().any(|pattern| api::wildcard(pattern, line)));
    assert!(found.is_empty(), "{} differences:\n{}", found.len(), found.join("\n"));
}

#[tokio::test]
async fn values_come_from_the_configuration() {
    let rig = rig().await;
    let (recorded, named) = (recorded(), |value: &Value, name: &str| by_name(value)[name].clone());
    let agent = named(&rig.get("/agent").await, "zed");
    let theirs = named(&recorded["bodies"]["/agent"], "zed");
    for key in
        ["name", "mode", "native", "topP", "temperature", "color", "model", "variant", "prompt", "options", "steps"]
    {
        assert_eq!(agent[key], theirs[key], "{key}");
    }
    let mut ours = named(&rig.get("/api/agent").await["data"], "zed");
    let mut theirs = named(&recorded["bodies"]["/api/agent"]["data"], "zed");
    for agent in [&mut ours, &mut theirs] {
        agent["permissions"].take();
    }
    assert_eq!(ours, theirs);
    for path in ["/command", "/skill"] {
        let name = if path == "/skill" { "demo" } else { "zc" };
        let (mut ours, mut theirs) = (named(&rig.get(path).await, name), named(&recorded["bodies"][path], name));
        for item in [&mut ours, &mut theirs] {
            item["location"].take();
        }
        assert_eq!(ours, theirs, "{path}");
    }
    let model = named(&rig.get("/api/model").await["data"], "fake-model");
    let theirs = named(&recorded["bodies"]["/api/model"]["data"], "fake-model");
    for key in ["providerID", "family", "name", "capabilities", "cost", "status", "enabled", "limit"] {
        assert_eq!(model[key], theirs[key], "{key}");
    }
    assert_eq!(model["time"]["released"], 1_735_776_000_000_u64);
    assert_eq!(rig.get("/config/providers").await["default"]["fake"], "fake-model");
    assert_eq!(rig.get("/provider").await["connected"], json!(["fake", "script"]));
}

#[tokio::test]
async fn no_response_contains_a_secret() {
    let mut config = recorded()["config"].clone();
    config["provider"]["fake"]["options"]["headers"] = json!({"Authorization": "sk-header"});
    config["provider"]["fake"]["models"]["fake-model"]["headers"] = json!({"x-key": "sk-model-header"});
    let rig = Rig::new(config).await;
    let (status, _) = rig.send(Method::PUT, "/auth/fake", Some(json!({"type": "api", "key": "sk-stored"}))).await;
    assert_eq!(status, 200);
    for path in recorded()["bodies"].as_object().unwrap().keys() {
        let body = rig.get(path).await.to_string();
        assert!(!body.contains("sk-"), "GET {path}: {body}");
    }
    let (_, body) = rig.send(Method::PATCH, "/global/config", Some(json!({"username": "u"}))).await;
    assert!(!body.to_string().contains("sk-"), "{body}");
}

#[tokio::test]
async fn changing_the_user_configuration_keeps_comments_and_reaches_all_clients() {
    let rig = rig().await;
    let file = ".config/opencode/opencode.jsonc";
    let path = rig.project.write_home(file, "{\n  // mine\n  \"username\": \"before\"\n}\n");
    assert_eq!(rig.get("/config").await["username"], "before");
    let (mut everywhere, mut here) = (rig.events("/global/event").await, rig.events("/event").await);
    let change = json!({"username": "after", "agent": {"new": {"prompt": "p"}}, "nonsense": 1});
    let (status, body) = rig.send(Method::PATCH, "/global/config", Some(change)).await;
    assert_eq!((status, &body["username"]), (200, &json!("after")));
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("// mine") && !text.contains("nonsense"), "{text}");
    assert_eq!(rig.get("/config").await["username"], "after");
    assert!(rig.get("/agent").await.to_string().contains("\"new\""));
    let disposed = everywhere.wait_for("server.instance.disposed").await;
    assert_eq!(disposed["payload"]["properties"]["directory"], rig.project.directory());
    assert_eq!(everywhere.wait_for("global.disposed").await["directory"], "global");
    here.wait_for("server.instance.disposed").await;
    assert_eq!(here.next().await, None, "the directory's stream ends");
    // null removes a key.
    let (_, body) = rig.send(Method::PATCH, "/global/config", Some(json!({"username": null}))).await;
    assert_eq!(body.get("username"), None);
}

#[tokio::test]
async fn changing_a_project_configuration_takes_effect_there() {
    let rig = rig().await;
    rig.get("/config").await;
    let mut events = rig.events("/global/event").await;
    let change = json!({"permission": {"bash": "ask"}, "model": "fake/fake-small"});
    let (status, body) = rig.send(Method::PATCH, "/config", Some(change)).await;
    assert_eq!((status, &body["model"]), (200, &json!("fake/fake-small")));
    assert!(rig.project.read("opencode.json").contains("fake/fake-small"));
    assert_eq!(rig.get("/config").await["permission"], json!({"bash": "ask"}));
    assert_eq!(rig.get("/global/config").await["model"], "fake/fake-model");
    events.wait_for("server.instance.disposed").await;
}

#[tokio::test]
async fn an_invalid_change_is_refused_and_changes_nothing() {
    let rig = rig().await;
    rig.project.write("opencode.json", "{\"username\": \"u\"}");
    for (body, part) in [
        (json!({"model": 5}), "at [\"model\"]"),
        (json!({"permission": {"bash": "dney"}}), "at [\"permission\"][\"bash\"]"),
        (json!({"command": {"c": {"description": "d"}}}), "command.c has no template"),
        (json!({"nonsense": 1, "watcher": {"also": 2}}), "Nothing was changed: unknown key \"nonsense\""),
        (json!([]), "Expected an object"),
        (json!(null), "map"),
    ] {
        for path in ["/config", "/global/config"] {
            let (status, answer) = rig.send(Method::PATCH, path, Some(body.clone())).await;
            assert_eq!((status, &answer["name"]), (400, &json!("BadRequest")), "{path} {body}");
            assert!(answer["data"]["message"].as_str().unwrap().contains(part), "{answer}");
        }
    }
    assert_eq!(rig.project.read("opencode.json"), "{\"username\": \"u\"}");
    rig.project.write("opencode.json", "{broken");
    let (status, answer) = rig.send(Method::PATCH, "/config", Some(json!({"username": "v"}))).await;
    assert_eq!(status, 400);
    assert!(answer["data"]["message"].as_str().unwrap().contains("opencode.json: this is not JSON"), "{answer}");
    assert_eq!(rig.project.read("opencode.json"), "{broken");
    let (status, _) = rig.send(Method::PATCH, "/config?directory=/absent/x", Some(json!({"username": "v"}))).await;
    assert_eq!(status, 400);
}

#[tokio::test]
async fn an_empty_change_creates_no_file() {
    let rig = Rig::on(testkit::TempProject::new()).await;
    for (change, status) in [(json!({}), 200), (json!({"model": null}), 200), (json!({"nonsense": 1}), 400)] {
        for path in ["/config", "/global/config"] {
            let (answered, body) = rig.send(Method::PATCH, path, Some(change.clone())).await;
            assert_eq!(answered, status, "{path} {change}: {body}");
        }
    }
    assert!(!rig.project.path().join("opencode.json").exists());
    assert!(!rig.project.home().join(".config/trefoil/trefoil.json").exists());
}

#[tokio::test]
async fn a_stored_key_connects_a_provider_until_it_is_removed() {
    let rig = Rig::new(json!({})).await;
    assert_eq!(rig.get("/provider").await["connected"], json!(["script"]));
    assert!(rig.get("/provider").await["all"].to_string().contains("\"openai\""));
    assert_eq!(rig.get("/provider/auth").await["openai"], json!([{"type": "api", "label": "API key"}]));
    let key = json!({"type": "api", "key": "sk-1"});
    assert_eq!(rig.send(Method::PUT, "/auth/openai", Some(key)).await, (200, json!(true)));
    assert_eq!(rig.get("/provider").await["connected"], json!(["openai", "script"]));
    let integration = rig.get("/api/integration/openai").await;
    assert_eq!(integration["data"]["connections"][0]["type"], "credential");
    let file = rig.project.home().join(".local/share/trefoil/auth.json");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let stored: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(stored, json!({"openai": {"type": "api", "key": "sk-1"}}));
    for path in ["/auth/openai", "/auth/absent"] {
        assert_eq!(rig.send(Method::DELETE, path, None).await, (200, json!(true)));
    }
    assert_eq!(rig.get("/provider").await["connected"], json!(["script"]));
    for body in [json!({"type": "bad"}), json!({"type": "api"}), json!({}), json!([])] {
        let (status, answer) = rig.send(Method::PUT, "/auth/openai", Some(body.clone())).await;
        assert_eq!((status, &answer["name"]), (400, &json!("BadRequest")), "{body}");
    }
    let (status, answer) = rig.send(Method::PUT, "/auth/%2F", Some(json!({"type": "api", "key": "k"}))).await;
    assert_eq!(status, 400, "{answer}");
}

#[tokio::test]
async fn logins_are_refused_with_an_error_that_clients_know() {
    let rig = rig().await;
    for end in ["authorize", "callback"] {
        let path = format!("/provider/fake/oauth/{end}");
        let (status, answer) = rig.send(Method::POST, &path, Some(json!({"method": 0}))).await;
        assert_eq!((status, &answer["name"]), (400, &json!("ProviderAuthOauthMissing")));
        assert_eq!(answer["data"]["providerID"], "fake");
        let (status, answer) = rig.send(Method::POST, &path, Some(json!({}))).await;
        assert_eq!((status, &answer["name"]), (400, &json!("BadRequest")));
    }
}

#[tokio::test]
async fn the_newer_api_has_its_own_errors() {
    let rig = rig().await;
    let (status, body) = rig.send(Method::GET, "/api/provider/absent", None).await;
    let want =
        json!({"_tag": "ProviderNotFoundError", "providerID": "absent", "message": "Provider not found: absent"});
    assert_eq!((status, body), (404, want));
    let (status, body) = rig.send(Method::GET, "/api/location?location[workspace]=x", None).await;
    assert_eq!((status, &body["_tag"], &body["kind"]), (400, &json!("InvalidRequestError"), &json!("Query")));
    let (status, body) = rig.send(Method::GET, "/api/agent?location[directory]=%00", None).await;
    assert_eq!((status, &body["_tag"]), (400, &json!("InvalidRequestError")));
    for (method, path) in [(Method::GET, "/api/absent"), (Method::POST, "/api/agent")] {
        let (status, body) = rig.send(method, path, None).await;
        assert!(status == 404 || status == 405, "{status}");
        assert!(body["_tag"].is_string() && body["message"].is_string(), "{body}");
    }
    let other = rig.project.home();
    let elsewhere = rig.get(&format!("/api/location?location[directory]={}", other.display())).await;
    assert_eq!(elsewhere["directory"], other.to_str().unwrap());
    assert_eq!(elsewhere["project"]["id"], "global");
}
