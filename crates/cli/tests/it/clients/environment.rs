//! What programs started by the server see of its environment.

use std::io::BufRead as _;
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};
use testkit::{TempProject, WAIT, until};

use super::harness::{TestServer, finish, succeeded};

/// No program gets these: the server's own variables, and those that the configuration hides.
const SECRETS: [(&str, &str); 7] = [
    ("OPENCODE_SERVER_PASSWORD", "pw-of-opencode"),
    ("TREFOIL_SERVER_PASSWORD", "pw-of-trefoil"),
    ("TREFOIL_SERVER_USERNAME", "somebody"),
    ("A2A_TOKEN", "token-of-a2a"),
    ("CLOUD_ACCOUNT", "hidden-by-the-user"),
    ("VENDOR_ONE", "hidden-by-the-repository"),
    ("THEIRS", "hidden-by-a-star"),
];

/// `somebody:pw-of-trefoil`.
const BASIC: (&str, &str) = ("authorization", "Basic c29tZWJvZHk6cHctb2YtdHJlZm9pbA==");

fn send(served: &TestServer, method: &str, path: &str, body: Option<Value>) -> Value {
    let (status, text) = served.raw(method, path, &[BASIC, ("content-type", "application/json")], body.as_ref());
    assert!(status < 500, "{method} {path}: {status} {text}");
    serde_json::from_str(&text).unwrap_or_default()
}

#[test]
fn no_program_sees_the_secrets_of_the_server() {
    let project = TempProject::new();
    let folder = project.root().join("seen");
    std::fs::create_dir(&folder).unwrap();
    // Its own environment, and that of its parent: a supervisor, or git.
    let dump = |name: &str| {
        let file = folder.join(name).display().to_string();
        format!("(env; tr '\\0' '\\n' < /proc/$PPID/environ) > {file}.part; mv {file}.part {file}")
    };
    let shell = |name: &str| json!(["/bin/sh", "-c", dump(name)]);
    project.write_home(
        ".config/trefoil/trefoil.json",
        json!({
            "env": {"hide": ["CLOUD_ACCOUNT", "TH*S"]},
            "mcp": {"m": {"type": "local", "command": shell("mcp")}},
            "agent": {"other": {"description": "x", "acp": {"command": shell("acp")}}},
            "command": {"look": {"template": format!("SCRIPT: [{{\"text\": \"!`{}`\"}}]", dump("template"))}},
            "permission": "allow",
        })
        .to_string(),
    );
    // A hidden variable stays hidden, and an untrusted repository may hide more.
    project.write("trefoil.json", json!({"env": {"hide": ["VENDOR_*"]}}).to_string());
    project.write(".trefoil/trefoil.json", json!({"env": {"hide": []}}).to_string());
    project.write_home(
        ".gitconfig",
        format!("[filter \"mine\"]\n\tclean = \"{}; cat\"\n", dump("git").replace('\\', "\\\\")),
    );
    project.write(".gitattributes", "*.txt filter=mine\n");
    project.write("a.txt", "one\n");
    project.commit("files");
    let _ = std::fs::remove_file(folder.join("git"));
    project.write("a.txt", "two\n");

    let served = TestServer::with(project, |command| {
        command.envs(SECRETS).env("OPENAI_API_KEY", "kept-as-it-is");
    });
    let session = send(&served, "POST", "/session", Some(json!({})));
    let session = format!("/session/{}", session["id"].as_str().unwrap());
    let model = json!({"providerID": "script", "modelID": "demo"});
    let prompt =
        |steps: Value| json!({"model": model, "parts": [{"type": "text", "text": format!("SCRIPT: {steps}")}]});
    let bash = json!([{"tools": [["bash", {"command": dump("bash"), "description": "x"}]]}, {"text": "done"}]);
    send(&served, "POST", &format!("{session}/message"), Some(prompt(bash)));
    let task = json!({"subagent_type": "other", "description": "x", "prompt": "x"});
    let task = json!([{"tools": [["task", task]]}, {"text": "done"}]);
    send(&served, "POST", &format!("{session}/message"), Some(prompt(task)));
    let command = json!({"command": "look", "arguments": "", "model": "script/demo"});
    send(&served, "POST", &format!("{session}/command"), Some(command));
    send(&served, "POST", &format!("{session}/shell"), Some(json!({"agent": "build", "command": dump("shell")})));
    send(&served, "POST", "/pty", Some(json!({"command": "/bin/sh", "args": ["-c", dump("pty")]})));
    send(&served, "GET", "/mcp", None);
    send(&served, "GET", "/vcs/status", None);
    send(&served, "POST", "/experimental/worktree", Some(json!({"startCommand": dump("worktree")})));

    for name in ["bash", "acp", "template", "shell", "pty", "mcp", "git", "worktree"] {
        let file = folder.join(name);
        until(&format!("{name} has started"), || file.exists());
        let seen = std::fs::read_to_string(&file).unwrap();
        for (variable, secret) in SECRETS {
            assert!(!seen.contains(secret), "{name} sees {variable}:\n{seen}");
        }
        assert!(seen.matches("OPENAI_API_KEY=kept-as-it-is").count() >= 2, "{name}:\n{seen}");
    }
}

/// A command is a process of the same user, so it could read the server's initial environment.
#[test]
fn a_command_cannot_read_the_environment_of_the_server_itself() {
    // Root may read everything, so the server runs as another user.
    let project = TempProject::without_git();
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    std::fs::copy(env!("CARGO_BIN_EXE_trefoil"), &program).unwrap();
    let mut command = project.command("setpriv");
    if rustix::process::getuid().is_root() {
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        std::os::unix::fs::chown(folder.path(), Some(65534), Some(65534)).unwrap();
    }
    command.arg(&program).args(["serve", "--port", "0"]).current_dir(folder.path());
    for (name, _) in project.env().iter().filter(|(_, value)| Path::new(value).starts_with(project.root())) {
        command.env(name, folder.path());
    }
    command.env("OPENCODE_SERVER_PASSWORD", "pw-of-opencode").stdout(Stdio::piped());
    let mut server = command.spawn().unwrap();
    let mut line = String::new();
    std::io::BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let url = line.strip_prefix("opencode server listening on ").unwrap_or_else(|| panic!("{line}")).trim().to_owned();
    let read = |file: &str| format!("cat /proc/{}/{file} > {file}.part; mv {file}.part {file}", server.id());
    let body = json!({"command": "/bin/sh", "args": ["-c", format!("{}; {}", read("stat"), read("environ"))]});
    let mut curl = project.command("curl");
    curl.args([
        "--silent",
        "--fail",
        "--user",
        "opencode:pw-of-opencode",
        "--json",
        &body.to_string(),
        &format!("{url}/pty"),
    ]);
    succeeded(&finish(curl, WAIT));
    let seen = folder.path().join("environ");
    until("the command has looked", || seen.exists());
    let found = std::fs::read_to_string(&seen).unwrap();
    assert!(!found.contains("pw-of-opencode"), "{found}");
    assert!(!std::fs::read_to_string(folder.path().join("stat")).unwrap().is_empty(), "it is there");
    server.kill().unwrap();
    server.wait().unwrap();
}
