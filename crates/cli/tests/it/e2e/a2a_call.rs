//! One Trefoil calls another: by hand, by a tool, and as a subagent.

use rustix::process::Signal;
use serde_json::{Value, json};

use super::a2a::process::{A2aProcess, TOKEN, message, script};
use super::harness::{Harness, Reader, RunResult, finish, signal, spawn};

/// Runs a command with the token of the service.
fn with_token(harness: &Harness, args: &[&str]) -> RunResult {
    let mut command = harness.command(args);
    command.env("A2A_CLIENT_BEARER_TOKEN", TOKEN);
    finish(spawn(command))
}

fn call(harness: &Harness, service: &A2aProcess, args: &[&str]) -> RunResult {
    let mut all = vec!["a2a", "call", service.url.as_str()];
    all.extend(args);
    with_token(harness, &all)
}

#[test]
fn an_answer_comes_as_text_or_as_json() {
    let harness = Harness::new();
    let service = A2aProcess::start(&harness, &[]);
    let told = script(&json!([
        {"reasoning": "hm", "text": "One. ", "tools": [["bash", {"command": "echo x"}]]}, {"text": "One. Two."}
    ]));
    let ran = call(&harness, &service, &[&told]).expect(0);
    assert_eq!(ran.stdout, "One. One. Two.\n", "{}", ran.stderr);
    ran.says("bash");
    let line = ran.stderr.lines().find(|line| line.starts_with("--context ")).unwrap().to_owned();
    let context = line.split(' ').nth(1).unwrap();
    let more = script(&json!([{"text": "Again."}]));
    let ran = call(&harness, &service, &["--json", "--context", context, &more]).expect(0);
    let lines = ran.json_lines();
    let of = |kind: &str| lines.iter().filter(|line| line["type"] == kind).cloned().collect::<Vec<Value>>();
    let texts: String = of("text").iter().map(|line| line["text"].as_str().unwrap().to_owned()).collect();
    let result = lines.last().unwrap();
    assert_eq!((texts.as_str(), result["type"].as_str()), ("Again.", Some("result")));
    assert_eq!(
        (&result["state"], &result["context"], &result["text"]),
        (&json!("completed"), &json!(context), &json!("Again."))
    );
    let task = result["task"].as_str().unwrap();
    let ran = call(&harness, &service, &["--task", task]).expect(0);
    assert_eq!(ran.stdout, "Again.\n", "a task that has ended is read");
}

#[test]
fn credentials_come_from_the_environment_alone() {
    let harness = Harness::new();
    let service = A2aProcess::start(&harness, &[]);
    let told = script(&json!([{"text": "Hi."}]));
    let url = service.url.as_str();
    harness.trefoil(&["a2a", "call", url, &told]).expect(1).says("A2A_CLIENT_BEARER_TOKEN");
    harness.trefoil(&["a2a", "call", url, "--token-env", "NONE", &told]).expect(2).says("no NONE");
    let mut command = harness.command(&["a2a", "call", url, "--token-env", "NONE", "--token-env", "MINE", &told]);
    command.env("MINE", TOKEN).env("A2A_CLIENT_BEARER_TOKEN", "wrong");
    finish(spawn(command)).expect(0);
    for (url, why) in
        [("nowhere", "is not the URL"), ("http://me:secret@127.0.0.1:1", "credentials"), ("ftp://x", "http")]
    {
        let ran = harness.trefoil(&["a2a", "call", url, "hi"]).expect(2);
        ran.says(why);
        assert!(!ran.stderr.contains("secret"), "{}", ran.stderr);
    }
    harness.trefoil(&["a2a", "call", "http://127.0.0.1:9", "hi"]).expect(1).says("cannot reach");
    let mut command = harness.command(&["a2a", "call", url, "hi"]);
    command.env("A2A_CLIENT_TIMEOUT_SECONDS", "soon");
    finish(spawn(command)).expect(2).says("A2A_CLIENT_TIMEOUT_SECONDS");
}

#[test]
fn a_card_is_summed_up_or_shown_whole() {
    let harness = Harness::new();
    let service = A2aProcess::start(&harness, &[]);
    let ran = harness.trefoil(&["a2a", "card", &service.url]).expect(0);
    for line in ["JSONRPC", "HTTP+JSON", "0.3", "1.0", &service.url, "streams", "interactive-interrupt"] {
        assert!(ran.stdout.contains(line), "{line}: {}", ran.stdout);
    }
    let card = format!("{}/.well-known/agent-card.json", service.url);
    let whole = harness.trefoil(&["a2a", "card", &card, "--json"]).expect(0).json();
    assert_eq!(whole["protocolVersion"], "0.3");
    harness.trefoil(&["a2a", "card", "http://127.0.0.1:9"]).expect(1).says("cannot reach");
}

#[test]
fn what_the_agent_asks_is_answered_by_a_further_message() {
    for (reply, made) in [("once", true), ("reject", false)] {
        let harness = Harness::new();
        harness.configure(json!({"permission": {"bash": {"*": "ask"}}}));
        let service = A2aProcess::start(&harness, &[]);
        let told = script(&json!([{"tools": [["bash", {"command": "touch made.txt"}]]}, {"text": "Done."}]));
        let ran = call(&harness, &service, &[&told]).expect(4);
        ran.says("the agent asks: ");
        let hint = ran.stderr.lines().find_map(|line| line.split_once("--task ")).unwrap().1;
        let task = hint.split(' ').next().unwrap();
        let ran = call(&harness, &service, &["--task", task, reply]);
        assert_eq!(harness.project.path().join("made.txt").exists(), made, "{}\n{}", ran.stdout, ran.stderr);
        if made {
            assert_eq!(ran.expect(0).stdout, "Done.\n");
        }
    }
}

#[test]
fn control_c_cancels_the_task() {
    let harness = Harness::new();
    let service = A2aProcess::start(&harness, &[]);
    let never = harness.project.path().join("never");
    let told = script(&json!([{"text": "Hm ", "hold": never}]));
    let mut command = harness.command(&["a2a", "call", &service.url, "--json", &told]);
    command.env("A2A_CLIENT_BEARER_TOKEN", TOKEN);
    let mut program = spawn(command);
    let stdout = program.stdout.take().unwrap();
    let mut lines = Reader::new(move || stdout);
    lines.wait_for("Hm ");
    signal(program.id(), Signal::INT);
    let ran = finish(program).expect(130);
    ran.says("cancelled");
    let tasks = service.call("ListTasks", json!({}));
    assert_eq!(tasks["tasks"][0]["status"]["state"], "TASK_STATE_CANCELED", "{tasks:#}");
}

#[test]
fn a_subagent_may_be_another_trefoil() {
    let other = Harness::new();
    other.configure(json!({"permission": {"bash": {"*": "ask"}}}));
    let service = A2aProcess::start(&other, &[]);
    let harness = Harness::new();
    let remote = json!({"url": service.url, "token_env": "OTHER_TOKEN"});
    let told = script(
        &json!([{"text": "Working. ", "tools": [["bash", {"command": "touch made.txt"}]]}, {"text": "It is done."}]),
    );
    let task = json!({"description": "Do it", "prompt": told, "subagent_type": "other"});
    let play = |action: &str| {
        harness.configure(json!({"agent": {"other": {"a2a": remote}}, "permission": {"bash": {"*": action}}}));
        let steps = harness.script(json!([{"tools": [["task", task]]}, {"text": "told"}]));
        let mut command = harness.command(&["run", "--script", &steps, "--format", "json", "go"]);
        command.env("OTHER_TOKEN", TOKEN);
        finish(spawn(command))
    };
    let ran = play("allow").expect(0);
    assert!(ran.stdout.contains("It is done."), "{}\n{}", ran.stdout, ran.stderr);
    assert!(other.project.path().join("made.txt").exists(), "our rules allowed what it asked");
    std::fs::remove_file(other.project.path().join("made.txt")).unwrap();
    play("deny");
    assert!(!other.project.path().join("made.txt").exists(), "our rules denied what it asked");
}

#[test]
fn a_model_calls_the_agents_that_the_user_allows() {
    let other = Harness::new();
    let service = A2aProcess::start(&other, &[]);
    let harness = Harness::new();
    let told = script(&json!([{"text": "ping from peer\n"}]));
    let steps = harness.script(json!([
        {"tools": [["a2a_call", {"url": service.url, "message": told}]]}, {"text": "told"}
    ]));
    let play = |env: &[(&str, &str)]| {
        let mut command = harness.command(&["run", "--script", &steps, "go"]);
        command.env("A2A_CLIENT_BEARER_TOKEN", TOKEN).envs(env.iter().copied());
        finish(spawn(command)).expect(0);
        let sessions = harness.sessions();
        harness.export(sessions[0]["id"].as_str().unwrap()).to_string()
    };
    let (hosts, private) = ("A2A_CLIENT_ALLOWED_HOSTS", "A2A_CLIENT_ALLOW_PRIVATE_HOSTS");
    let without = play(&[]);
    assert!(!without.contains("ping from peer\\n\\n(task") && without.contains("a2a_call"), "{without}");
    let elsewhere = play(&[(hosts, "agents.example")]);
    assert!(elsewhere.contains("not on the list of allowed hosts"), "{elsewhere}");
    let closed = play(&[(hosts, "127.0.0.1")]);
    assert!(closed.contains("is a private address"), "{closed}");
    let allowed = play(&[(hosts, "127.0.0.1"), (private, "true")]);
    assert!(allowed.contains("ping from peer\\n\\n(task"), "{allowed}");
    assert_eq!(service.call("ListTasks", json!({}))["totalSize"], 1, "only the last one reached it");
}

#[test]
fn agents_that_call_each_other_in_a_circle_come_to_an_end() {
    let client =
        [("A2A_CLIENT_BEARER_TOKEN", TOKEN), ("A2A_CLIENT_ALLOWED_HOSTS", "127.0.0.1"), ("A2A_BEARER_TOKEN", TOKEN)];
    let env: Vec<_> = client.into_iter().chain([("A2A_CLIENT_ALLOW_PRIVATE_HOSTS", "true")]).collect();
    let (one, other) = (Harness::new(), Harness::new());
    let calls = json!({"a2a_call": "allow"});
    other.configure(json!({"permission": calls}));
    let other = (A2aProcess::with(&other, &[], &env), other);
    one.configure(json!({"agent": {"other": {"a2a": {"url": other.0.url}}}, "permission": calls}));
    let one = (A2aProcess::with(&one, &[], &env), one);
    // The one has a subagent that is the other, which calls the one with its tool, and so on.
    let mut told = script(&json!([{"text": "The end."}]));
    for _ in 0..5 {
        let back = json!([{"tools": [["a2a_call", {"url": one.0.url, "message": told}]]}, {"text": "Called back."}]);
        let task = json!({"description": "Go on", "prompt": script(&back), "subagent_type": "other"});
        told = script(&json!([{"tools": [["task", task]]}, {"text": "Delegated."}]));
    }
    let task = one.0.call("message/send", json!({"message": message("m-1", &told)}));
    assert_eq!(task["status"]["state"], "completed", "{task:#}");
    // Five and four: the ninth call is refused, and whoever made it goes on without.
    let count = |service: &A2aProcess| service.call("ListTasks", json!({}))["totalSize"].as_u64();
    assert_eq!((count(&one.0), count(&other.0)), (Some(5), Some(4)));
    let sessions = one.1.sessions();
    let said = |id: &Value| one.1.export(id.as_str().unwrap()).to_string();
    let told_why = |session: &Value| said(&session["id"]).contains("9 agents have called each other");
    assert!(sessions.iter().any(told_why), "nobody heard why");
}
