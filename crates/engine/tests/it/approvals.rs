//! `always` replies: where they apply, what they settle, how to revoke them; and the rules that searches obey.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::{Lab, prompt, script};
use api::{
    CreateSession, EventBody, Host, PermissionReply, PermissionReplyKind, PermissionRequest, Scope, SessionId,
    ToolState,
};
use serde_json::{Value, json};
use testkit::Recorder;
use trefoil_engine::Engine;

/// Edits and commands need approval; one subagent has worktrees.
fn lab() -> Lab {
    Lab::with(json!({
        "permission": {"edit": "ask", "bash": "ask"},
        "agent": {"smith": {"mode": "subagent", "description": "s", "isolation": "worktree"}},
    }))
}

fn scope(directory: &Path) -> Scope {
    Scope::new(directory.to_str().unwrap())
}

async fn session(engine: &Engine, directory: &Path) -> SessionId {
    let input = CreateSession { title: Some("test".to_owned()), ..CreateSession::default() };
    engine.create_session(&scope(directory), input).await.unwrap().id
}

/// An empty folder beside the project that is not a repository.
fn beside(lab: &Lab, name: &str) -> PathBuf {
    let folder = lab.project.path().with_file_name(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn write(name: &str) -> Value {
    json!(["write", {"filePath": name, "content": "x\n"}])
}

fn bash(command: &str) -> Value {
    json!(["bash", {"command": command}])
}

async fn answer(engine: &Engine, ask: &PermissionRequest, reply: PermissionReplyKind) {
    let reply = PermissionReply { reply, message: None };
    engine.reply_permission(&ask.id, reply).await.unwrap();
}

/// Makes a call in a new session of that directory and replies to its requests. Returns the requests.
async fn call(engine: &Engine, directory: &Path, call: Value, reply: PermissionReplyKind) -> Vec<PermissionRequest> {
    let id = session(engine, directory).await;
    let mut events = Recorder::new(Arc::new(engine.clone())).await;
    let steps = json!([{ "tools": [call] }, {"text": "done"}]);
    engine.prompt_async(&id, prompt(&script(steps))).await.unwrap();
    let mut asked = Vec::new();
    loop {
        let next = |body: &EventBody| match body {
            EventBody::PermissionAsked(_) => true,
            EventBody::SessionIdle { session_id } => *session_id == id,
            _ => false,
        };
        let event = events.wait_for(next).await;
        let EventBody::PermissionAsked(ask) = &event.body else { return asked };
        answer(engine, ask, reply).await;
        asked.push((**ask).clone());
    }
}

use PermissionReplyKind::{Always, Reject};

async fn asks(engine: &Engine, directory: &Path, wanted: Value) -> bool {
    !call(engine, directory, wanted, Reject).await.is_empty()
}

#[tokio::test]
async fn an_approval_applies_only_to_its_directory_until_it_is_revoked() {
    let lab = lab();
    let (one, two) = (beside(&lab, "one"), beside(&lab, "two"));
    std::fs::create_dir(one.join("sub")).unwrap();
    let asked = call(&lab.engine, &one, write("a.txt"), Always).await;
    assert_eq!((asked.len(), asked[0].always.as_slice()), (1, &["*".to_owned()][..]));
    assert_eq!(asked[0].directory(), one.to_str());
    assert_eq!(asked[0].always_text(), Some(format!("every `edit` in {}", one.display())));
    assert!(one.join("a.txt").exists());
    // Every edit here, and nothing else: not elsewhere, not below or above, no command, not in a repository.
    assert!(!asks(&lab.engine, &one, write("b.txt")).await);
    for elsewhere in [two.as_path(), &one.join("sub"), one.parent().unwrap(), lab.project.path()] {
        assert!(asks(&lab.engine, elsewhere, write("c.txt")).await, "{}", elsewhere.display());
    }
    assert!(asks(&lab.engine, &one, bash("true")).await);
    let saved = lab.engine.approvals(None).unwrap();
    let told: Vec<_> =
        saved.iter().map(|a| (a.directory.as_str(), a.permission.as_str(), a.pattern.as_str())).collect();
    assert_eq!(told, [(one.to_str().unwrap(), "edit", "*")]);
    // Another process revokes it; here it no longer applies at the next request.
    let second = lab.second();
    second.revoke(Some(&saved[0].id)).await.unwrap();
    assert!(asks(&lab.engine, &one, write("d.txt")).await);
    assert!(second.approvals(None).unwrap().is_empty());
    // An approval given in one process applies in the other.
    call(&second, &two, write("e.txt"), Always).await;
    assert!(!asks(&lab.engine, &two, write("f.txt")).await);
    lab.engine.revoke(None).await.unwrap();
    assert!(asks(&second, &two, write("g.txt")).await);
    second.shutdown().await;
}

#[tokio::test]
async fn in_git_an_approval_applies_to_the_worktree_and_its_subagents() {
    let lab = lab();
    let main = lab.project.path().to_owned();
    let linked = main.with_file_name("linked");
    lab.project.git(&["worktree", "add", "--quiet", linked.to_str().unwrap()]);
    for folder in [main.join("sub"), linked.join("sub")] {
        std::fs::create_dir(folder).unwrap();
    }
    let asked = call(&lab.engine, &main.join("sub"), bash("touch made"), Always).await;
    assert_eq!(asked[0].always_text(), Some(format!("`touch *` in {}", main.display())));
    assert!(!asks(&lab.engine, &main, bash("touch here")).await);
    assert!(asks(&lab.engine, &linked, bash("touch there")).await);
    assert!(asks(&lab.engine, &linked.join("sub"), bash("touch there")).await);
    // A worktree made for a subagent belongs to the directory it was made from.
    let smith = |command: &str| {
        let steps = json!([{"tools": [bash(command)]}, {"text": "done"}]);
        json!(["task", {"description": "Forge", "prompt": script(steps), "subagent_type": "smith"}])
    };
    assert!(!asks(&lab.engine, &main, smith("touch mine")).await);
    let asked = call(&lab.engine, &main, smith("mkdir mine"), Always).await;
    assert_eq!(asked[0].directory(), main.to_str());
    assert!(!asks(&lab.engine, &main, bash("mkdir ours")).await);
    // From the linked worktree it asks, and the reply applies there.
    let asked = call(&lab.engine, &linked, smith("touch mine"), Always).await;
    assert_eq!(asked[0].directory(), linked.to_str());
    assert!(!asks(&lab.engine, &linked, bash("touch there")).await);
}

#[tokio::test]
async fn a_redirected_link_does_not_inherit_an_approval() {
    let lab = lab();
    let (one, two) = (beside(&lab, "one"), beside(&lab, "two"));
    let link = one.with_file_name("link");
    std::os::unix::fs::symlink(&one, &link).unwrap();
    let asked = call(&lab.engine, &link, write("a.txt"), Always).await;
    assert_eq!(asked[0].directory(), one.to_str());
    assert!(!asks(&lab.engine, &one, write("b.txt")).await && !asks(&lab.engine, &link, write("c.txt")).await);
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(&two, &link).unwrap();
    assert!(asks(&lab.engine, &link, write("d.txt")).await);
}

#[tokio::test]
async fn a_request_in_another_directory_keeps_waiting() {
    let lab = lab();
    let (one, two) = (beside(&lab, "one"), beside(&lab, "two"));
    let mut events = lab.recorder().await;
    let mut waiting = Vec::new();
    for folder in [&one, &two, &one] {
        let id = session(&lab.engine, folder).await;
        let steps = json!([{"tools": [write("x.txt")]}, {"text": "done"}]);
        lab.engine.prompt_async(&id, prompt(&script(steps))).await.unwrap();
        let event = events.wait_for(|body| matches!(body, EventBody::PermissionAsked(_))).await;
        let EventBody::PermissionAsked(ask) = &event.body else { unreachable!() };
        waiting.push((**ask).clone());
    }
    answer(&lab.engine, &waiting[0], Always).await;
    events.wait_idle(&waiting[2].session_id).await;
    let left = lab.engine.permissions(&scope(&two)).await.unwrap();
    assert_eq!(left.iter().map(|ask| &ask.id).collect::<Vec<_>>(), [&waiting[1].id]);
    answer(&lab.engine, &waiting[1], Reject).await;
    events.wait_idle(&waiting[1].session_id).await;
}

#[tokio::test]
async fn an_opaque_command_is_not_settled_by_a_part_of_it() {
    let lab = lab();
    let here = lab.project.path();
    call(&lab.engine, here, bash("echo hello"), Always).await;
    assert!(!asks(&lab.engine, here, bash("echo again")).await);
    for command in ["echo hi; $X", "X=echo; $X hi", "echo hi | $SHELL"] {
        assert!(asks(&lab.engine, here, bash(command)).await, "{command}");
        // Even after an `always` reply: it may hide something else next time.
        call(&lab.engine, here, bash(command), Always).await;
        assert!(asks(&lab.engine, here, bash(command)).await, "{command}");
    }
}

/// The outcome of the last call.
async fn last(lab: &Lab, id: &SessionId) -> String {
    match lab.tools(id).await.pop().unwrap().state {
        ToolState::Completed(done) => done.output,
        ToolState::Error(error) => error.error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn search_obeys_the_rules_of_read() {
    let lab = Lab::with(json!({"permission": {"read": {"secret/*": "deny"}}}));
    for name in ["open.txt", "keys.env", "secret/plan.txt", "sub/.env"] {
        lab.project.write(name, format!("needle in {name}\n"));
    }
    // Instructions that are a secret in disguise.
    lab.project.write("sub/code.rs", "fn main() {}\n");
    std::os::unix::fs::symlink("../keys.env", lab.project.path().join("sub/AGENTS.md")).unwrap();
    let id = lab.session().await;
    let play = async |tool: &str, input: Value| {
        lab.say(&id, &script(json!([{ "tools": [[tool, input]] }, {"text": "done"}]))).await;
        last(&lab, &id).await
    };
    let found = play("grep", json!({"pattern": "needle"})).await;
    assert!(found.contains("needle in open.txt") && found.contains("(3 files were not searched"), "{found}");
    let found = play("grep", json!({"pattern": "needle", "include": "{*.env,.env,*.txt}"})).await;
    assert!(found.contains("needle in open.txt") && found.contains("(3 files were not searched"), "{found}");
    let denied = play("grep", json!({"pattern": "needle", "path": "secret/plan.txt"})).await;
    assert!(denied.contains("denies"), "{denied}");
    for text in [found, denied, play("read", json!({"filePath": "sub/code.rs"})).await] {
        assert!(!["in keys", "in secret/plan", "in sub/.env"].iter().any(|secret| text.contains(secret)), "{text}");
    }
    // An `always` reply opens files to searches; a denial still closes them.
    let here = lab.project.path();
    call(&lab.engine, here, json!(["read", {"filePath": "keys.env"}]), Always).await;
    let found = play("grep", json!({"pattern": "needle"})).await;
    assert!(found.contains("needle in keys.env") && found.contains("(1 files were not searched"), "{found}");
    assert!(!found.contains("in secret/plan"), "{found}");
    lab.engine.revoke(None).await.unwrap();
    let found = play("grep", json!({"pattern": "needle"})).await;
    assert!(!found.contains("needle in keys.env"), "{found}");
}

/// What a file part of a prompt gives the model.
#[tokio::test]
async fn a_file_named_by_the_user_does_not_bring_in_another() {
    let lab = Lab::new();
    lab.project.write("keys.env", "needle in keys\n");
    let code = lab.project.write("sub/code.rs", "fn main() {}\n");
    std::os::unix::fs::symlink("../keys.env", lab.project.path().join("sub/AGENTS.md")).unwrap();
    let id = lab.session().await;
    let mut input = prompt(&script(json!([{"text": "seen"}])));
    input.parts.push(api::PromptPart::File {
        id: None,
        mime: "text/plain".to_owned(),
        filename: None,
        url: format!("file://{}", code.display()),
        source: None,
    });
    lab.engine.prompt(&id, input).await.unwrap();
    let told = format!("{:?}", lab.messages(&id).await);
    assert!(told.contains("fn main") && !told.contains("needle in keys"), "{told}");
}

/// The tools listed when a model calls an unknown one.
async fn offered(lab: &Lab, agent: &str) -> Vec<String> {
    let id = lab.session().await;
    let mut input = prompt(&script(json!([{"tools": [["nothing", {}]]}, {"text": "done"}])));
    input.agent = Some(agent.to_owned());
    lab.engine.prompt(&id, input).await.unwrap();
    let told = last(lab, &id).await;
    let list = told.split("Available tools: ").nth(1).unwrap_or_else(|| panic!("{told}"));
    let names = list.trim_end().trim_end_matches('.').split(", ").map(str::to_owned);
    names.filter(|name| name != "invalid").collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_restricted_to_some_tools_can_call_nothing_else() {
    let server = json!({"type": "local", "command": ["python3", "mcp_test_server.py", "polite"]});
    let lab = Lab::with(json!({
        "mcp": {"s": server}, "permission": {"bash": {"*": "allow", "rm *": "deny"}},
        "agent": {
            "reader": {"mode": "all", "description": "r", "only": ["read", "grep"]},
            "runner": {"mode": "all", "description": "r", "only": ["bash"]},
            "lister": {"mode": "all", "description": "r", "only": ["read_mcp_resource"]},
            "server": {"mode": "all", "description": "r", "only": ["s_echo"]},
            "nobody": {"mode": "all", "description": "n", "only": []},
            "typo": {"mode": "all", "description": "n", "only": "read"},
        },
    }));
    testkit::mcp_server(lab.project.path());
    lab.project.write(".opencode/skill/demo/SKILL.md", "---\nname: demo\ndescription: Demo\n---\nSKILLTEXT\n");
    lab.project.write("a.txt", "needle\n");
    lab.project.write("keys.env", "needle\n");
    let all = offered(&lab, "build").await;
    for name in ["s_echo", "skill", "read_mcp_resource", "list_mcp_resources", "task", "todowrite", "webfetch", "bash"]
    {
        assert!(all.contains(&name.to_owned()), "{name} is not among {all:?}");
    }
    let resources = ["list_mcp_resource_templates", "list_mcp_resources", "read_mcp_resource"];
    for (agent, want) in [
        ("reader", &["grep", "read"][..]),
        ("runner", &["bash"]),
        ("lister", &resources),
        ("server", &["s_echo"]),
        ("nobody", &[]),
        ("typo", &[]),
    ] {
        let mut names = offered(&lab, agent).await;
        names.retain(|name| !name.is_empty());
        names.sort();
        assert_eq!(names, want, "{agent}");
    }
    // A tool that is not offered cannot be called either.
    let calls = json!([
        ["s_echo", {"text": "hi"}], ["skill", {"name": "demo"}], ["list_mcp_resources", {}],
        ["read_mcp_resource", {"server": "s", "uri": "memo://1"}], ["bash", {"command": "echo hi > harm"}],
        ["write", {"filePath": "harm", "content": "x"}], ["glob", {"pattern": "*"}],
        ["task", {"description": "x", "prompt": "x", "subagent_type": "general"}], ["todowrite", {"todos": []}],
        ["webfetch", {"url": "http://127.0.0.1:9/"}], ["read", {"filePath": "a.txt"}],
        ["grep", {"pattern": "needle"}],
    ]);
    let id = lab.session().await;
    let mut input = prompt(&script(json!([{ "tools": calls }, {"text": "done"}])));
    input.agent = Some("reader".to_owned());
    lab.engine.prompt(&id, input).await.unwrap();
    let done = lab.tools(&id).await;
    let names: Vec<&str> = done.iter().map(|tool| tool.tool.as_str()).collect();
    assert_eq!(names[..10], ["invalid"; 10], "{done:?}");
    assert_eq!(names[10..], ["read", "grep"], "{done:?}");
    assert!(!lab.project.path().join("harm").exists());
    // The tools keep their rules: `.env` is not read without asking.
    let ToolState::Completed(grep) = &done[11].state else { panic!("{:?}", done[11]) };
    assert!(grep.output.contains("1 files were not searched"), "{}", grep.output);
    let id = lab.session().await;
    let mut input = prompt(&script(json!([{"tools": [["bash", {"command": "rm a.txt"}]]}, {"text": "done"}])));
    input.agent = Some("runner".to_owned());
    lab.engine.prompt(&id, input).await.unwrap();
    assert!(last(&lab, &id).await.contains("denies"));
}
