//! What clients see of secrets in a configuration, and what happens to masked secrets that they send back.

use reqwest::Method;
use serde_json::{Value, json};
use testkit::TempProject;

use crate::common::Rig;

/// A configuration in which every secret contains `hush`.
fn config() -> Value {
    let command = ["/bin/false", "--api-key", "hush1", "--token=hush2", "-H", "X-Team: hush3", "A_KEY=hush4"];
    json!({
        "provider": {"p": {"npm": "@ai-sdk/openai-compatible", "models": {"m": {"headers": {"X": "hush5"}}},
            "options": {"apiKey": "hush6", "baseURL": "https://u:hush7@127.0.0.1:1/v1?sig=hush8", "headers": {"Y": "hush9"},
                "extra": {"clientSecret": "hush10"}}}},
        "mcp": {
            "local": {"type": "local", "command": command, "environment": {"E": "hush11"}},
            "remote": {"type": "remote", "url": "http://u:hush12@127.0.0.1:1/mcp?key=hush13", "headers": {"Z": "hush14"}},
        },
        "agent": {
            "other": {"acp": {"command": command, "environment": {"E": "hush15"}}, "description": "x"},
            "mine": {"prompt": "use ghp_hush0123456789abcdef", "options": {"apiToken": "hush16"}, "password": "hush17"},
        },
        "command": {"c": {"template": "see https://u:hush18@h/?token=hush19"}},
        "instructions": ["https://u:hush20@h/rules.md"],
    })
}

async fn get_masked(rig: &Rig, path: &str) -> Value {
    let (status, body) = rig.send(Method::GET, path, None).await;
    assert_eq!(status, 200, "{path}: {body}");
    assert!(!body.to_string().contains("hush"), "{path} shows a secret: {body:#}");
    body
}

#[tokio::test]
async fn no_response_contains_a_secret() {
    let rig = Rig::new(config()).await;
    for path in [
        "/config",
        "/global/config",
        "/agent",
        "/mcp",
        "/provider",
        "/config/providers",
        "/api/agent",
        "/api/provider",
        "/api/model",
        "/api/integration",
    ] {
        let body = get_masked(&rig, path).await;
        assert!(body.to_string().len() > 20, "{path}: {body}");
    }
    let config = get_masked(&rig, "/config").await;
    assert_eq!(config["mcp"]["remote"]["url"], "http://***@127.0.0.1:1/mcp?key=***");
    assert_eq!(config["agent"]["mine"]["prompt"], "use ***");
    assert_eq!(config["mcp"]["local"]["command"][1], "--api-key");
}

#[tokio::test]
async fn masked_secrets_that_are_sent_back_change_nothing() {
    let project = TempProject::new();
    project.write_home(".config/opencode/opencode.json", config().to_string());
    project.write("opencode.json", json!({"username": "u"}).to_string());
    let rig = Rig::on(project).await;
    for (path, more) in [("/global/config", json!({})), ("/config", json!({"username": "other"}))] {
        let mut body = get_masked(&rig, path).await;
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let (status, answer) = rig.send(Method::PATCH, path, Some(body)).await;
        assert_eq!(status, 200, "{path}: {answer}");
        assert!(!answer.to_string().contains("hush"), "{path}: {answer}");
    }
    let file = std::fs::read_to_string(rig.project.home().join(".config/opencode/opencode.json")).unwrap();
    let own: Value = serde_json::from_str(&file).unwrap();
    for (place, secret) in [
        ("/provider/p/options/apiKey", "hush6"),
        ("/mcp/local/command/2", "hush1"),
        ("/mcp/local/command/6", "A_KEY=hush4"),
    ] {
        assert_eq!(own.pointer(place), Some(&json!(secret)), "{place}");
    }
    assert!(!file.contains("***"), "{file}");
    let file = rig.project.read("opencode.json");
    assert!(file.contains("other") && !file.contains("***") && !file.contains("hush"), "{file}");
    // A mask in a new place has no secret to stand for.
    let made = json!({"mcp": {"new": {"type": "remote", "url": "https://***@h/"}}});
    let (status, answer) = rig.send(Method::PATCH, "/config", Some(made)).await;
    assert_eq!(status, 400, "{answer}");
}
