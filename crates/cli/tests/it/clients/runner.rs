//! The real `opencode acp` as a subagent, with a scripted model.

use serde_json::{Value, json};
use testkit::{ModelServer, Reply, TempProject};

use super::harness::{OPENCODE_LONGEST, finish, opencode, succeeded};

async fn trefoil(project: &TempProject, args: Vec<String>) -> String {
    let mut command = project.command(env!("CARGO_BIN_EXE_trefoil"));
    command.args(args);
    let output = tokio::task::spawn_blocking(move || finish(command, OPENCODE_LONGEST)).await.unwrap();
    succeeded(&output)
}

fn parts<'a>(messages: &'a [Value], kind: &str) -> Vec<&'a Value> {
    let all = messages.iter().filter(|message| message["info"]["role"] == "assistant");
    all.flat_map(|message| message["parts"].as_array().unwrap()).filter(|part| part["type"] == kind).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn opencode_works_for_a_session_of_ours() {
    let project = TempProject::new();
    let model = ModelServer::start().await;
    model.answer_titles("A title");
    let agent = opencode(&project);
    let mut environment = json!({"HTTPS_PROXY": "http://127.0.0.1:9", "HOME": project.root().join("other")});
    for (name, value) in agent.get_envs().filter_map(|(name, value)| Some((name.to_str()?, value?.to_str()?))) {
        if name.starts_with("OPENCODE_") {
            environment[name] = json!(value);
        }
    }
    for (name, folder) in [("CONFIG", "config"), ("DATA", "data"), ("STATE", "state"), ("CACHE", "cache")] {
        environment[format!("XDG_{name}_HOME")] = json!(project.root().join("other").join(folder));
    }
    let mut config = model.config();
    config["permission"] = json!({ "edit": "ask", "bash": "ask" });
    environment["OPENCODE_CONFIG_CONTENT"] = json!(config.to_string());
    let acp = json!({"command": [agent.get_program().to_str().unwrap(), "acp"], "environment": environment,
        "model": "test/test-model"});
    project.write_home(".config/trefoil/trefoil.json", json!({"agent": {"opencode": {"acp": acp}}}).to_string());

    let path = project.path().join("made.txt");
    let write = json!({"filePath": path, "content": "from opencode\n"});
    model.enqueue(Reply::text("Writing. ").tool("c1", "write", write));
    let task = json!({"description": "Look at it", "prompt": "look", "subagent_type": "general"});
    model.enqueue(Reply::text("Delegating. ").tool("c2", "task", task));
    model.enqueue(Reply::text("Seen."));
    model.enqueue(Reply::text("All done."));
    let call = json!({"description": "Make it", "prompt": "go", "subagent_type": "opencode"});
    let steps = json!({"default": [{"tools": [["task", call]]}, {"text": "Told."}]});
    let script = project.write_home("script.json", steps.to_string()).to_str().unwrap().to_owned();
    trefoil(&project, vec!["run".to_owned(), "--script".to_owned(), script, "begin".to_owned()]).await;
    assert_eq!(project.read("made.txt"), "from opencode\n");

    let listed = trefoil(&project, ["session", "list", "--json"].map(str::to_owned).to_vec()).await;
    let root = serde_json::from_str::<Value>(&listed).unwrap()[0]["id"].as_str().unwrap().to_owned();
    let tree = trefoil(&project, ["tree", "--json", &root].map(str::to_owned).to_vec()).await;
    let tree: Value = serde_json::from_str(&tree).unwrap();
    let child = &tree["sessions"][1];
    assert_eq!((&child["agent"], &child["state"]), (&json!("opencode"), &json!("idle")), "{tree}");
    assert!(child["own"]["tokens"]["output"].as_u64().unwrap() > 0, "{child}");
    // Its own subagent, which only its call reports.
    let below = &tree["sessions"][2];
    assert_eq!((&below["parentID"], &below["state"]), (&child["sessionID"], &json!("idle")), "{tree}");
    assert!(below["title"].as_str().unwrap().starts_with("Look at it"), "{below}");
    let seen = ["session", "export", below["sessionID"].as_str().unwrap()].map(str::to_owned).to_vec();
    let seen: Value = serde_json::from_str(&trefoil(&project, seen).await).unwrap();
    assert_eq!(parts(seen["messages"].as_array().unwrap(), "text")[0]["text"], "Seen.", "{seen}");
    let id = child["sessionID"].as_str().unwrap().to_owned();
    let exported = trefoil(&project, ["session", "export", &id].map(str::to_owned).to_vec()).await;
    let exported: Value = serde_json::from_str(&exported).unwrap();
    let messages = exported["messages"].as_array().unwrap();
    let said: String = parts(messages, "text").iter().filter_map(|part| part["text"].as_str()).collect();
    assert!(said.starts_with("Writing. ") && said.ends_with("All done."), "{said}");
    let tools = parts(messages, "tool");
    let states: Vec<_> =
        tools.iter().map(|part| (part["tool"].as_str().unwrap(), part["state"]["status"].as_str().unwrap())).collect();
    assert_eq!(states, [("write", "completed"), ("task", "completed")], "{tools:#?}");
    assert!(tools[1]["state"]["output"].as_str().unwrap().contains("Seen."), "{tools:#?}");

    model.enqueue(Reply::text("Went on."));
    let call = json!({"description": "More", "prompt": "more", "subagent_type": "opencode", "task_id": id});
    let steps = json!({"default": [{"tools": [["task", call]]}, {"text": "Told."}]});
    let script = project.write_home("script.json", steps.to_string()).to_str().unwrap().to_owned();
    trefoil(&project, ["run", "--script", &script, "-s", &root, "again"].map(str::to_owned).to_vec()).await;
    let exported = trefoil(&project, ["session", "export", &id].map(str::to_owned).to_vec()).await;
    let exported: Value = serde_json::from_str(&exported).unwrap();
    let more: String = parts(exported["messages"].as_array().unwrap(), "text")
        .iter()
        .filter_map(|part| part["text"].as_str())
        .collect();
    assert_eq!(more, format!("{said}Went on."), "it goes on in the same session, and shows nothing twice");
    let asked = model.requests().pop().unwrap();
    assert!(asked.body.to_string().contains("All done."), "OpenCode remembers the first task");
}
