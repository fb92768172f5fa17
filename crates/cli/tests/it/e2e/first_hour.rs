//! What a newcomer meets: no model, no key, a wrong address, a first key, and sessions by a part of their id.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use testkit::{ModelServer, Reply};

use super::harness::{Harness, Reader, RunResult, finish, spawn};
use super::serve::ServeProcess;
use super::terminal::Terminal;

/// The program without the fallback model of the tests.
fn newcomer(harness: &Harness, env: &[(&str, &str)], args: &[&str]) -> Command {
    let mut command = harness.command(args);
    command.env_remove("TREFOIL_FALLBACK_MODEL").envs(env.iter().copied());
    command
}

fn run(harness: &Harness, env: &[(&str, &str)], args: &[&str]) -> RunResult {
    finish(spawn(newcomer(harness, env, args)))
}

/// Runs the program while the test's runtime serves a model.
async fn run_beside(harness: &Harness, env: &[(&str, &str)], args: &[&str]) -> RunResult {
    let command = newcomer(harness, env, args);
    tokio::task::spawn_blocking(move || finish(spawn(command))).await.unwrap()
}

/// The text of `run`, `run --attach`, an editor and `doctor` when a prompt has no model: it is the same for all.
fn said_everywhere(harness: &Harness, env: &[(&str, &str)], model: Option<&str>) -> String {
    let mut args = vec!["run"];
    args.extend(model.iter().flat_map(|model| ["-m", model]));
    let ran = run(harness, env, &[&args[..], &["Fix it"]].concat()).expect(3);
    assert_eq!(ran.stdout, "", "nothing was done");
    let text = ran.stderr.replace("error: ", "").replace("\n  hint: ", ". ").trim().to_owned();
    assert!(harness.sessions().is_empty(), "no empty session stays behind");
    let serving = ServeProcess::of(spawn(newcomer(harness, env, &["serve", "--port", "0"])));
    let ran = run(harness, &[], &[&args[..], &["--attach", &serving.url, "Fix it"]].concat()).expect(3);
    assert_eq!(ran.stderr.replace("error: ", "").trim(), text);
    if let Some(model) = model {
        harness.configure(json!({ "model": model }));
    }
    let mut editor = Editor::start(harness, env);
    let made = editor.ask("session/new", json!({ "cwd": harness.project.directory(), "mcpServers": [] }));
    let models = &made["result"]["models"];
    assert_eq!(models["currentModelId"], "none", "{made:#}");
    assert_eq!(models["availableModels"][0]["description"], text, "{models:#}");
    let option = made["result"]["configOptions"].as_array().unwrap().iter().find(|option| option["id"] == "model");
    assert_eq!(option.unwrap()["currentValue"], "none");
    let prompt = json!([{ "type": "text", "text": "Fix it" }]);
    let answer = editor.ask("session/prompt", json!({ "sessionId": made["result"]["sessionId"], "prompt": prompt }));
    assert_eq!((&answer["error"]["code"], &answer["error"]["message"]), (&json!(-32000), &json!(text)), "{answer:#}");
    let findings = run(harness, env, &["doctor", "--json"]).json();
    let finding = findings.as_array().unwrap().iter().find(|finding| finding["name"] == "model").unwrap().clone();
    let found = format!("{}. {}", finding["found"].as_str().unwrap(), finding["advice"].as_str().unwrap());
    assert_eq!(found, text);
    text
}

/// An editor that talks to the agent.
struct Editor {
    input: std::process::ChildStdin,
    output: Reader,
    number: u32,
    _program: super::harness::Program,
}

impl Editor {
    fn start(harness: &Harness, env: &[(&str, &str)]) -> Self {
        let mut command = newcomer(harness, env, &["acp"]);
        command.stdin(Stdio::piped());
        let mut program = spawn(command);
        let (input, stdout) = (program.stdin.take().unwrap(), program.stdout.take().unwrap());
        let mut editor = Self { input, output: Reader::new(move || stdout), number: 0, _program: program };
        editor.ask("initialize", json!({ "protocolVersion": 1 }));
        editor
    }

    /// Sends a request, and waits for its answer.
    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.number += 1;
        let request = json!({ "jsonrpc": "2.0", "id": self.number, "method": method, "params": params });
        writeln!(self.input, "{request}").unwrap();
        loop {
            let line = self.output.wait_for("\n");
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["id"] == self.number && message.get("method").is_none() {
                return message;
            }
        }
    }
}

#[test]
fn without_a_model_nothing_runs_and_every_client_is_told_what_to_do() {
    for (env, part) in [
        (&[][..], "OPENAI_API_KEY"),
        (&[("OPENAI_MODEL", "gpt-5")], "OPENAI_API_KEY"),
        (&[("ANTHROPIC_API_KEY", "sk-ant-1")], "Anthropic Messages"),
    ] {
        let text = said_everywhere(&Harness::new(), env, None);
        for part in [part, "OPENAI_BASE_URL", "trefoil auth login", "trefoil demo"] {
            assert!(text.contains(part), "{env:?}: {part:?} is not in: {text}");
        }
        assert!(!text.contains("sk-ant"), "{text}");
    }
}

#[test]
fn a_named_model_without_a_key_says_which_variable_to_set() {
    for (model, variable) in [
        ("openai/gpt-5", "OPENAI_API_KEY"),
        ("openrouter/a/b", "OPENROUTER_API_KEY"),
        ("groq/llama", "GROQ_API_KEY"),
        ("anthropic/claude", "Anthropic Messages"),
    ] {
        let text = said_everywhere(&Harness::new(), &[], Some(model));
        assert!(text.contains(variable) && text.contains(model), "{text}");
    }
}

#[test]
fn the_demo_runs_only_on_request() {
    let harness = Harness::new();
    let ran = run(&harness, &[], &["run", "-m", "script/demo", "Fix it"]).expect(0);
    ran.says("offline demo");
    let ran = run(&harness, &[], &["demo", "sample"]).expect(0);
    assert!(ran.stdout.contains("PASS"), "{}", ran.stdout);
    // The next task does not get the demo's model.
    run(&harness, &[], &["run", "Fix it"]).expect(3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_model_does_the_work_of_the_demo_if_it_is_named() {
    let harness = Harness::new();
    let server = ModelServer::start().await;
    server.answer_titles("A title");
    harness.configure(server.config());
    let command = json!({ "command": "sed -i s/Helo/Hello/ greeter.sh && sh test.sh", "description": "fix" });
    server.enqueue(Reply::text("I fix it. ").tool("call_1", "bash", command));
    server.enqueue(Reply::text("Fixed."));
    let ran = run_beside(&harness, &[], &["demo", "sample", "-m", "test/test-model"]).await.expect(0);
    assert_eq!(ran.stdout, "I fix it. \nFixed.\n");
    assert!(!ran.stderr.contains("offline demo"), "{}", ran.stderr);
    assert!(harness.project.read("sample/greeter.sh").contains("Hello, "));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_only_model_of_a_server_is_used_and_several_are_named() {
    let server = ModelServer::start().await;
    server.answer_titles("A title");
    let base = server.base_url();
    let env = [("OPENAI_BASE_URL", base.as_str())];
    let configured = json!({ "provider": { "mine": { "options": { "baseURL": base } } } });
    for (provider, config) in [("openai", json!({})), ("mine", configured)] {
        let harness = Harness::new();
        harness.configure(config.clone());
        let env = if provider == "openai" { &env[..] } else { &[] };
        server.list_models(&["only-one"]);
        server.enqueue(Reply::text("Fixed."));
        let ran = run_beside(&harness, env, &["run", "Fix it"]).await.expect(0);
        assert_eq!(ran.stdout, "Fixed.\n");
        ran.says(&format!("build · {provider}/only-one\n"));
        assert_eq!(server.requests().last().unwrap().body["model"], "only-one");

        let harness = Harness::new();
        harness.configure(config);
        server.list_models(&["a", "b", "c/d"]);
        let ran = run_beside(&harness, env, &["run", "Fix it"]).await.expect(3);
        for name in ["a", "b", "c/d"] {
            ran.says(&format!("{provider}/{name}"));
        }
        ran.says("--model");
        // One of them can be chosen; an unknown one cannot.
        server.enqueue(Reply::text("Chosen."));
        let chosen = format!("{provider}/c/d");
        assert_eq!(run_beside(&harness, env, &["run", "-m", &chosen, "x"]).await.expect(0).stdout, "Chosen.\n");
        let unknown = format!("{provider}/e");
        run_beside(&harness, env, &["run", "-m", &unknown, "x"]).await.expect(1).says("unknown model");
        // From then on, the last used model is the default.
        server.enqueue(Reply::text("Again."));
        run_beside(&harness, env, &["run", "x"]).await.expect(0).says(&chosen);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_server_that_lists_nothing_is_an_error_that_says_what_it_did() {
    let server = ModelServer::start().await;
    let base = server.base_url();
    for (status, body, part) in [
        (200, json!({ "data": [] }), "lists no models"),
        (200, json!({ "hello": 1 }), "not with a list of models"),
        (404, json!({ "error": { "message": "no such page" } }), "no such page"),
        (401, json!({ "error": { "message": "bad key" } }), "bad key"),
    ] {
        server.answer_models(status, body);
        let harness = Harness::new();
        let ran = run_beside(&harness, &[("OPENAI_BASE_URL", &base)], &["run", "Fix it"]).await.expect(3);
        ran.says(part);
        ran.says("OPENAI_MODEL");
        assert!(harness.sessions().is_empty());
    }
    // Nobody listens there.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let base = format!("http://user:sk-secret@{free}/v1?key=sk-secret");
    let ran = run(&Harness::new(), &[("OPENAI_BASE_URL", &base)], &["run", "Fix it"]).expect(3);
    ran.says("cannot be reached");
    assert!(!ran.stderr.contains("sk-secret"), "{}", ran.stderr);
    // A server without a list accepts a model that is named.
    server.answer_models(404, json!({}));
    server.answer_titles("A title");
    server.enqueue(Reply::text("Fixed."));
    let base = server.base_url();
    let ran = run_beside(&Harness::new(), &[("OPENAI_BASE_URL", &base)], &["run", "-m", "openai/x", "Fix it"]).await;
    assert_eq!(ran.expect(0).stdout, "Fixed.\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn doctor_asks_the_configured_servers_and_says_what_answered() {
    let server = ModelServer::start().await;
    let base = server.base_url();
    let env = [("OPENAI_BASE_URL", base.as_str()), ("OPENAI_API_KEY", "sk-very-secret"), ("OPENAI_MODEL", "tiny")];
    for (status, body, level, part) in [
        (200, json!({ "data": [{ "id": "tiny" }, { "id": "big" }] }), "ok", "the key is accepted, it lists 2 models"),
        (200, json!({ "data": [{ "id": "big" }] }), "note", "it lists 1 model"),
        (401, json!({ "error": { "message": "Incorrect API key" } }), "error", "refuses the key: Incorrect API key"),
        (404, json!({}), "note", "the key was not checked"),
        (500, json!({ "error": { "message": "on fire" } }), "warning", "on fire"),
        (200, json!("<html>"), "warning", "not with a list of models"),
    ] {
        server.answer_models(status, body);
        let ran = run_beside(&Harness::new(), &env, &["doctor", "--json"]).await;
        assert_eq!(ran.code, i32::from(level == "error"), "{}", ran.stdout);
        let findings = ran.json();
        let finding = findings.as_array().unwrap().iter().find(|finding| finding["name"] == "provider").unwrap();
        assert_eq!(finding["level"], level, "{finding:#}");
        let found = finding["found"].as_str().unwrap();
        assert!(found.contains(part) && found.contains(&base), "{found}");
        assert!(!ran.stdout.contains("sk-very-secret"), "{}", ran.stdout);
    }
    assert!(server.requests().is_empty(), "no model was asked anything");
    // A server that accepts the connection and stays silent is given up.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}/v1", silent.local_addr().unwrap());
    let ran = run(&Harness::new(), &[("OPENAI_BASE_URL", &base), ("OPENAI_MODEL", "m")], &["doctor"]).expect(0);
    assert!(ran.stdout.contains("did not answer within 2s"), "{}", ran.stdout);
}

/// The address of a model server that lists its models for everybody, and checks keys elsewhere.
fn open_list(key_status: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            let mut head = [0; 4096];
            let read = client.read(&mut head).unwrap_or(0);
            let is_list = head[..read].starts_with(b"GET /v1/models");
            let (status, body) = if is_list { ("200 OK", r#"{"data":[{"id":"m"}]}"#) } else { (key_status, "{}") };
            let answer =
                format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n{body}");
            let _ = client.write_all(answer.as_bytes());
        }
    });
    url
}

#[test]
fn doctor_checks_a_key_where_the_list_of_models_is_open_to_everybody() {
    for (status, level, part) in [
        ("401 Unauthorized", "error", "refuses the key"),
        ("200 OK", "ok", "the key is accepted"),
        ("404 Not Found", "ok", "lists 1 model"),
    ] {
        let harness = Harness::new();
        harness.configure(json!({ "provider": { "openrouter": { "options": { "baseURL": open_list(status) } } } }));
        let ran = run(&harness, &[("OPENROUTER_API_KEY", "sk-or")], &["doctor", "--json"]);
        let findings = ran.json();
        let finding = findings.as_array().unwrap().iter().find(|finding| finding["name"] == "provider").unwrap();
        assert_eq!(finding["level"], level, "{status}: {finding:#}");
        assert!(finding["found"].as_str().unwrap().contains(part), "{status}: {finding:#}");
    }
}

#[test]
fn a_refused_password_names_its_variable() {
    let harness = Harness::new();
    let mut command = harness.command(&["serve", "--port", "0"]);
    command.env("OPENCODE_SERVER_PASSWORD", "hunter2");
    let serving = ServeProcess::of(spawn(command));
    for args in [&["run", "hi"][..], &["session", "list"], &["models"], &["tree", "last"]] {
        for password in [None, Some("wrong")] {
            let env: Vec<_> = password.map(|password| ("OPENCODE_SERVER_PASSWORD", password)).into_iter().collect();
            let ran = run(&harness, &env, &[args, &["--attach", &serving.url]].concat()).expect(1);
            ran.says("OPENCODE_SERVER_PASSWORD");
            assert!(!ran.stderr.contains("hunter2"));
        }
    }
    run(&harness, &[("OPENCODE_SERVER_PASSWORD", "hunter2")], &["session", "list", "--attach", &serving.url]).expect(0);
}

/// The address of something that answers every connection with these bytes.
fn stranger(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            let _ = client.read(&mut [0; 4096]).and_then(|_| client.write_all(answer));
        }
    });
    url
}

#[test]
fn attaching_to_something_else_says_what_was_found() {
    let harness = Harness::new();
    for (answer, parts) in [
        (
            &b"HTTP/1.1 200 OK\r\nserver: nginx/1.2\r\ncontent-type: text/html\r\nconnection: close\r\n\r\n\
              <html><TITLE>Welcome\n to nginx!</title>"[..],
            &["is not a server of Trefoil or OpenCode", "200 OK", "a web page \"Welcome to nginx!\"", "nginx/1.2"][..],
        ),
        (
            b"HTTP/1.1 404 Not Found\r\ncontent-type: text/plain\r\nconnection: close\r\n\r\n404 page not found",
            &["is not a server", "404 Not Found", "\"404 page not found\""],
        ),
        (
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n{\"version\": \"9\"}",
            &["is not a server", "application/json", "version"],
        ),
        (
            b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\nconnection: close\r\n\r\n",
            &["is not a server", "302 Found"],
        ),
        (b"SSH-2.0-OpenSSH_9.6\r\n", &["does not answer as a web server does"]),
        (b"", &["does not answer as a web server does"]),
    ] {
        let url = stranger(answer);
        for args in [&["run", "hi"][..], &["session", "list"]] {
            let ran = run(&harness, &[], &[args, &["--attach", &url]].concat()).expect(1);
            ran.says(&url);
            parts.iter().for_each(|part| ran.says(part));
        }
    }
}

#[test]
fn keys_are_stored_listed_and_removed_but_never_shown() {
    let harness = Harness::new();
    harness.trefoil(&["auth", "list"]).expect(0).says("There are no keys");
    harness.piped(&["auth", "login", "openai"], b"sk-very-secret\n").expect(0).says("trefoil models openai");
    harness.piped(&["auth", "login"], b"mine\nsk-other-secret\n").expect(0).says("provider.mine");
    let file = harness.project.home().join(".local/share/trefoil/auth.json");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let stored: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(stored["openai"], json!({ "type": "api", "key": "sk-very-secret" }));
    let mut command = harness.command(&["auth", "list", "--json"]);
    command.env("GROQ_API_KEY", "sk-groq-secret");
    let ran = finish(spawn(command)).expect(0);
    let shown: Vec<Value> =
        ran.json().as_array().unwrap().iter().map(|entry| json!([entry["provider"], entry["kind"]])).collect();
    assert_eq!(json!(shown), json!([["openai", "api"], ["mine", "api"], ["groq", "env"]]));
    assert!(!ran.stdout.contains("secret"), "{}", ran.stdout);
    assert!(!harness.trefoil(&["auth", "list"]).expect(0).stdout.contains("secret"));
    // The configuration uses the key.
    assert!(harness.trefoil(&["models", "openai"]).expect(0).stdout.contains("openai/gpt-5"));
    harness.trefoil(&["auth", "logout", "openai"]).expect(0);
    harness.trefoil(&["auth", "logout", "openai"]).expect(1).says("known: mine");
    harness.trefoil(&["models", "openai"]).expect(1);
    // The command line takes no key, and an empty one is an error.
    harness.trefoil(&["auth", "login", "openai", "sk-argument"]).expect(2);
    harness.piped(&["auth", "login", "openai"], b"\n").expect(2).says("nothing was typed");
    assert!(!std::fs::read_to_string(&file).unwrap().contains("openai"));
}

#[test]
fn a_typed_key_is_not_echoed() {
    let harness = Harness::new();
    let mut terminal = Terminal::new(harness.command(&["auth", "login"]));
    terminal.screen.wait_for("Provider (openai, ");
    terminal.say("groq");
    terminal.screen.wait_for("Key for groq: ");
    terminal.say("sk-typed");
    let rest = terminal.end(0);
    assert!(rest.contains("stored in") && !rest.contains("sk-typed"), "{rest}");
    let file = harness.project.home().join(".local/share/trefoil/auth.json");
    assert!(std::fs::read_to_string(file).unwrap().contains("sk-typed"));
}

#[test]
fn an_mcp_server_that_was_added_can_be_removed() {
    let harness = Harness::new();
    let add = |name: &str, more: &[&str]| {
        harness.trefoil(&[&["mcp", "add", name][..], more, &["--", "false"]].concat()).expect(0);
    };
    let listed = || {
        let all = harness.trefoil(&["mcp", "list", "--json"]).expect(0).json();
        all.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ")
    };
    add("one", &[]);
    add("two", &["--project"]);
    assert_eq!(listed(), "one two");
    harness.trefoil(&["mcp", "remove", "tow"]).expect(1).says("known: two, one");
    harness.trefoil(&["mcp", "remove", "two"]).expect(1).says("--project");
    harness.trefoil(&["mcp", "remove", "two", "--project"]).expect(0);
    assert_eq!(listed(), "one");
    harness.trefoil(&["mcp", "rm", "one"]).expect(0);
    assert_eq!(listed(), "");
}

#[test]
fn sessions_are_found_by_a_part_of_their_id_everywhere() {
    let harness = Harness::new();
    let steps = json!([{ "text": "Hi." }]);
    harness.trefoil(&["session", "show", "last"]).expect(1).says("there is no session in this directory");
    for title in ["first", "second"] {
        harness.play(steps.clone(), &["--title", title, "x"]).expect(0);
    }
    let ids: Vec<String> =
        harness.sessions().iter().map(|session| session["id"].as_str().unwrap().to_owned()).collect();
    let (newest, older) = (ids[0].as_str(), ids[1].as_str());
    let common = newest.chars().zip(older.chars()).take_while(|(a, b)| a == b).count();
    let short = &older[..common + 1];
    let serving = ServeProcess::start(&harness, &[]);
    for attach in [&[][..], &["--attach", &serving.url]] {
        let title = |wanted: &str| {
            let ran = harness.trefoil(&[&["session", "show", wanted, "--json"][..], attach].concat()).expect(0);
            ran.json()["info"]["title"].as_str().unwrap().to_owned()
        };
        for wanted in [older, short, &short["ses_".len()..], &older[older.len() - 8..]] {
            assert_eq!(title(wanted), "first", "{wanted}");
        }
        assert_eq!(title("last"), "second");
        let ran = harness.trefoil(&[&["session", "show", &older[..common]][..], attach].concat()).expect(2);
        ran.says("can be any of 2 sessions");
        ran.says(&format!("{newest} (second)"));
        ran.says(&format!("{older} (first)"));
        // Every command that takes a session.
        for args in [
            &["tree", short][..],
            &["tree", "last", "--json"],
            &["pause", short],
            &["resume", short],
            &["cancel", "last"],
            &["budget", short, "--steps", "9"],
            &["session", "export", "last"],
        ] {
            harness.trefoil(&[args, attach].concat()).expect(0);
        }
        for args in [&["worktree", "diff", short][..], &["worktree", "merge", "last"], &["worktree", "discard", short]]
        {
            let ran = harness.trefoil(&[args, attach].concat()).expect(1);
            assert!(!ran.stderr.contains("unknown session"), "{}", ran.stderr);
        }
    }
    let script = harness.script(steps);
    harness.trefoil(&["run", "--script", &script, "-s", short, "more"]).expect(0);
    assert_eq!(harness.export(older)["messages"].as_array().unwrap().len(), 4);
    harness.trefoil(&["session", "delete", short]).expect(0);
    assert_eq!(harness.sessions().len(), 1);
}

#[test]
fn the_name_alone_says_what_it_is_and_what_to_try() {
    let harness = Harness::new();
    let ran = harness.trefoil(&[]).expect(0);
    assert!(ran.stdout.lines().count() <= 10 && ran.stdout.contains("coding agent"), "{}", ran.stdout);
    for next in ["trefoil demo", "trefoil auth login", "trefoil run"] {
        assert!(ran.stdout.contains(next), "{}", ran.stdout);
    }
    assert_eq!(ran.stderr, "");
    assert!(std::fs::read_dir(harness.project.home()).unwrap().next().is_none(), "it writes nothing");
}

#[test]
fn help_fits_the_terminal_and_can_be_asked_for_in_every_way() {
    let harness = Harness::new();
    let help = |args: &[&str], columns: &str| {
        let mut command = harness.command(args);
        command.env("COLUMNS", columns);
        finish(spawn(command)).expect(0).stdout
    };
    for columns in ["60", "80", "120"] {
        for args in [&["--help"][..], &["run", "--help"], &["help", "agent", "create"], &["session", "-h"]] {
            let text = help(args, columns);
            let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= columns.parse().unwrap(), "{args:?} at {columns}:\n{text}");
            assert!(text.contains("Examples:"), "{text}");
        }
    }
    assert_eq!(help(&["help"], "80"), help(&["--help"], "80"));
    assert_eq!(help(&["help", "run"], "80"), help(&["run", "--help"], "80"));
    assert!(help(&["run", "--help"], "80").contains("Exit codes:\n    0  The turn succeeded\n"));
}
