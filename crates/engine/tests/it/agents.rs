//! An agent's configuration applies to its turns, as a subagent and on its own.

use crate::common::{Lab, open, prompt};
use api::{AgentMode, CatalogHost, Host, PromptInput, ToolState};
use serde_json::{Value, json};
use testkit::{ModelServer, Reply, TempProject};

const EXPERT: &str = "---
description: Knows it all
mode: all
model: test/other
temperature: 0.15
top_p: 0.4
steps: 2
seed: 7
tools:
  bash: false
permission:
  read:
    \"*secret*\": deny
---

You are the EXPERT.
";

/// An agent in markdown with settings of every kind, including its own model.
async fn lab() -> (ModelServer, Lab) {
    let model = ModelServer::start().await;
    let mut config = model.config();
    config["provider"]["test"]["models"]["other"] =
        json!({"temperature": true, "limit": {"context": 9000, "output": 900}});
    let project = TempProject::new();
    project.write_home(".config/opencode/opencode.json", config.to_string());
    project.write_home(".config/trefoil/agent/expert.md", EXPERT);
    let engine = open(&project);
    let scope = api::Scope::new(project.directory());
    (model, Lab { project, engine, scope })
}

fn system(request: &testkit::Request) -> String {
    request.messages().iter().filter(|m| m["role"] == "system").map(|m| m["content"].to_string()).collect()
}

/// Checks the two steps of one of the expert's turns.
fn check_expert_requests(first: &testkit::Request, second: &testkit::Request) {
    for request in [first, second] {
        let body = &request.body;
        let sampling = json!([body["model"], body["temperature"], body["top_p"], body["seed"]]);
        assert_eq!(sampling, json!(["other", 0.15, 0.4, 7]), "{body:#}");
        assert!(system(request).contains("You are the EXPERT."), "{body:#}");
    }
    assert!(first.tools().contains(&"read") && !first.tools().contains(&"bash"), "{:?}", first.tools());
    // The last step must answer.
    assert_eq!(second.tools(), Vec::<&str>::new());
}

#[tokio::test]
async fn a_subagent_has_its_own_model_sampling_steps_tools_and_rules() {
    let (model, lab) = lab().await;
    lab.project.write("secret.txt", "hush\n");
    let session = lab.session().await;
    let call = json!({"description": "Ask", "prompt": "What is in it?", "subagent_type": "expert"});
    model.enqueue(Reply::default().tool("c1", "task", call));
    model.enqueue(Reply::default().tool("c2", "read", json!({"filePath": "secret.txt"})));
    model.enqueue(Reply::text("I may not say"));
    model.enqueue(Reply::text("end"));
    lab.say(&session, "go").await;
    let requests = model.requests();
    assert_eq!(requests.len(), 4);
    check_expert_requests(&requests[1], &requests[2]);
    for request in [&requests[0], &requests[3]] {
        assert_eq!(request.body["model"], "test-model", "the caller has its own");
        assert!(!system(request).contains("EXPERT") && request.tools().contains(&"bash"));
    }
    let child = &lab.engine.children(&session).await.unwrap()[0];
    let tools = lab.tools(&child.id).await;
    let ToolState::Error(error) = &tools[0].state else { panic!("{tools:#?}") };
    assert!(error.error.contains("secret"), "{}", error.error);
    assert!(!Value::from(requests[2].messages().to_vec()).to_string().contains("hush"));
}

#[tokio::test]
async fn the_same_applies_when_a_user_selects_it() {
    let (model, lab) = lab().await;
    lab.project.write("a.txt", "alpha\n");
    let session = lab.session().await;
    model.enqueue(Reply::default().tool("c1", "read", json!({"filePath": "a.txt"})));
    model.enqueue(Reply::text("alpha"));
    let input = PromptInput { agent: Some("expert".to_owned()), ..prompt("look") };
    lab.engine.prompt(&session, input).await.unwrap();
    let requests = model.requests();
    assert_eq!(requests.len(), 2);
    check_expert_requests(&requests[0], &requests[1]);
}

/// A provider is told which requests belong together: those of a session, those of its title, and whose subagent it is.
#[tokio::test]
async fn requests_name_their_session_and_the_one_above_it() {
    let (mut model, lab) = lab().await;
    let session = lab.engine.create_session(&lab.scope, api::CreateSession::default()).await.unwrap().id;
    let work = tokio::spawn({
        let (engine, session) = (lab.engine.clone(), session.clone());
        async move { engine.prompt(&session, prompt("go")).await }
    });
    let task = json!({"description": "Ask", "prompt": "What is in it?", "subagent_type": "expert"});
    let (mut seen, mut titles, mut roots) = (Vec::new(), 0, 0);
    while seen.len() < 4 {
        let mut call = model.next_call().await;
        let header = |name: &str| call.request.header(name).to_owned();
        let parent = header("x-parent-session-id");
        let is_title = call.request.tools().is_empty() && parent.is_empty();
        seen.push((header("x-session-id"), header("x-session-affinity"), parent.clone()));
        titles += usize::from(is_title);
        roots += usize::from(!is_title && parent.is_empty());
        if !is_title && parent.is_empty() && roots == 1 {
            call.tool("c1", "task", task.clone()).await;
            call.finish("tool_calls").await;
        } else {
            call.text("So it is").await;
            call.finish("stop").await;
        }
    }
    work.await.unwrap().unwrap();
    let child = lab.engine.children(&session).await.unwrap()[0].id.to_string();
    let (root, none) = (session.to_string(), String::new());
    assert_eq!((titles, roots), (1, 2));
    for (id, affinity, parent) in seen {
        assert_eq!(affinity, id);
        assert!([(&root, &none), (&child, &root)].contains(&(&id, &parent)), "{id} below {parent:?}");
    }
}

#[tokio::test]
async fn agents_are_listed_as_they_are_configured() {
    let (_model, lab) = lab().await;
    let agents = lab.engine.agents(&lab.scope).await.unwrap();
    let names: Vec<_> = agents.iter().map(|agent| agent.name.as_str()).collect();
    assert_eq!(names, ["build", "compaction", "expert", "explore", "general", "plan", "summary", "title"]);
    let expert = agents.iter().find(|agent| agent.name == "expert").unwrap();
    assert_eq!((expert.mode, expert.steps, expert.temperature), (AgentMode::All, Some(2), Some(0.15)));
    assert_eq!(expert.model.as_ref().unwrap().to_string(), "test/other");
    // Limits that OpenCode does not know are not options for the provider.
    assert_eq!(json!(expert.options), json!({"seed": 7}));
}

#[tokio::test]
async fn the_git_folder_is_changed_only_if_the_user_allows_it() {
    for (rules, works) in [
        (json!({}), false),
        (json!({"edit": "allow"}), false),
        (json!({"git_directory": "allow"}), true),
        (json!({"git_directory": {"*": "deny", ".git/info/*": "allow"}}), true),
        (json!({"git_directory": {"*": "allow", ".git/info/*": "deny"}}), false),
    ] {
        let model = ModelServer::start().await;
        let mut config = model.config();
        config["permission"] = rules.clone();
        let project = TempProject::new();
        project.write_home(".config/opencode/opencode.json", config.to_string());
        let engine = open(&project);
        let scope = api::Scope::new(project.directory());
        let lab = Lab { project, engine, scope };
        let session = lab.session().await;
        model.enqueue(Reply::default().tool("c1", "write", json!({"filePath": ".git/info/exclude", "content": "x\n"})));
        model.enqueue(Reply::text("done"));
        lab.say(&session, "go").await;
        let written = std::fs::read(lab.project.path().join(".git/info/exclude")).is_ok_and(|text| text == b"x\n");
        assert_eq!(written, works, "{rules}");
    }
}
