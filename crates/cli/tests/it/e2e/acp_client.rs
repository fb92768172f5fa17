//! `trefoil acp-client`: with our own agent, and with hostile agents.

use std::fs::File;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::harness::{Harness, Program, Reader, RunResult, finish, signal, spawn};
use super::terminal::Terminal;

/// The command line of our own agent with a script.
fn own(harness: &Harness, steps: Value) -> String {
    format!("'{}' acp --script '{}'", env!("CARGO_BIN_EXE_trefoil"), harness.script(steps))
}

fn client(harness: &Harness, agent: &str, args: &[&str]) -> RunResult {
    let mut all = vec!["acp-client", "--agent", agent];
    all.extend(args);
    harness.trefoil(&all)
}

fn make(name: &str) -> Value {
    json!([{ "tools": [["bash", { "command": format!("echo hi > {name}") }]] }, { "text": "Done." }])
}

#[track_caller]
fn of<'a>(lines: &'a [Value], kind: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["type"] == kind).collect()
}

#[test]
fn without_a_message_it_says_who_the_agent_is_and_what_can_be_chosen() {
    let harness = Harness::new();
    let agent = own(&harness, json!([{ "text": "Hello." }]));
    let ran = client(&harness, &agent, &[]).expect(0);
    ran.says("Trefoil ");
    ran.says("protocol 1");
    for text in ["session  ses_", "\nmodels\n", "script/file", "\nmodes\n", "build", "plan"] {
        assert!(ran.stdout.contains(text), "{text:?} is not in:\n{}", ran.stdout);
    }
    let lines = client(&harness, &agent, &["--json", "--mode", "plan"]).expect(0).json_lines();
    assert_eq!(of(&lines, "initialize")[0]["answer"]["agentInfo"]["name"], "trefoil");
    let options = of(&lines, "session")[0]["configOptions"].as_array().unwrap().clone();
    let mode = options.iter().find(|option| option["category"] == "mode").unwrap();
    assert_eq!(mode["currentValue"], "plan", "the choice was made");
    let ran = client(&harness, &agent, &["--model", "nope"]).expect(1);
    ran.says("unknown model: nope");
    ran.says("script/file");
}

#[test]
fn permissions_are_answered_by_policy() {
    let harness = Harness::new();
    let agent = own(&harness, make("made"));
    for args in [&["go"][..], &["--permission", "reject", "go"]] {
        let ran = client(&harness, &agent, args);
        ran.says("permission for");
        assert!(!harness.project.path().join("made").exists(), "{args:?}");
    }
    let ran = client(&harness, &agent, &["--permission", "allow", "go"]).expect(0);
    assert_eq!(ran.stdout, "Done.\n");
    assert_eq!(harness.project.read("made"), "hi\n");
}

#[test]
fn the_user_answers_at_the_terminal() {
    let harness = Harness::new();
    let agent = own(&harness, make("made"));
    let mut terminal = Terminal::new(harness.command(&["acp-client", "--agent", &agent, "go"]));
    terminal.screen.wait_for("a number, y or n > ");
    terminal.say("perhaps");
    terminal.screen.wait_for("a number, y or n > ");
    assert!(!harness.project.path().join("made").exists());
    terminal.say("y");
    // The file is one question, the command another.
    terminal.screen.wait_for("a number, y or n > ");
    terminal.say("1");
    terminal.screen.wait_for("Done.");
    terminal.end(0);
    assert!(harness.project.path().join("made").exists());
}

/// A turn that asks two questions.
fn questions() -> Value {
    let options = json!([{"label": "Red", "description": "Warm"}, {"label": "Green", "description": "Fresh"}]);
    let questions = json!([
        {"question": "Which color?", "header": "Color", "options": options},
        {"question": "Which ones?", "header": "Many", "options": options, "multiple": true},
    ]);
    json!([{ "tools": [["question", { "questions": questions }]] }, { "text": "Done." }])
}

#[test]
fn forms_are_filled_in_by_hand_and_by_policy() {
    let harness = Harness::new();
    let agent = own(&harness, questions());
    let mut terminal = Terminal::new(harness.command(&["acp-client", "--agent", &agent, "go"]));
    for (field, line) in
        [("Which color?", "7"), ("Color", "2"), ("another answer", ""), ("Many", "1, green"), ("another", "Blue")]
    {
        terminal.screen.wait_for(field);
        terminal.screen.wait_for("or nothing > ");
        terminal.say(line);
    }
    terminal.screen.wait_for("accept");
    terminal.screen.wait_for("Done.");
    terminal.end(0);
    let forms = |policy: &str| {
        let lines = client(&harness, &agent, &["--json", "--permission", policy, "go"]).expect(0).json_lines();
        let answers = of(&lines, "form").into_iter().map(|form| (form["action"].clone(), form["content"].clone()));
        answers.collect::<Vec<_>>()
    };
    assert_eq!(forms("allow"), [(json!("accept"), json!({"question_00": "Red"}))]);
    assert_eq!(forms("reject"), [(json!("decline"), Value::Null)]);
}

#[test]
fn files_are_written_and_read_through_the_client_and_a_session_goes_on() {
    let harness = Harness::new();
    let path = harness.project.path().join("new/file.txt");
    let write = json!({ "filePath": path, "content": "one\n" });
    let agent = own(&harness, json!([{ "tools": [["write", write]] }, { "text": "Written." }]));
    let ran = client(&harness, &agent, &["--json", "--permission", "allow", "go"]).expect(0);
    assert_eq!(harness.project.read("new/file.txt"), "one\n");
    let lines = ran.json_lines();
    assert_eq!(of(&lines, "permission").len(), 1);
    assert_eq!(of(&lines, "result")[0]["answer"]["stopReason"], "end_turn");
    let session = of(&lines, "session")[0]["sessionId"].as_str().unwrap();
    let agent = own(&harness, json!([{ "text": "Again." }]));
    let lines = client(&harness, &agent, &["--json", "--session", session, "more"]).expect(0).json_lines();
    let said: String = of(&lines, "update")
        .iter()
        .filter(|line| line["update"]["sessionUpdate"] == "agent_message_chunk")
        .filter_map(|line| line["update"]["content"]["text"].as_str())
        .collect();
    assert_eq!(said, "Written.Again.", "the conversation is shown before it goes on");
    client(&harness, &agent, &["--session", "ses_none", "more"]).expect(1).says("session/load");
}

#[test]
fn subagents_are_followed() {
    let harness = Harness::new();
    let prompt = r#"SCRIPT: [{"tools": [["read", {"filePath": "README.md"}]]}, {"text": "Seen."}]"#;
    let task = json!({ "description": "Look at it", "prompt": prompt, "subagent_type": "general" });
    let agent = own(&harness, json!([{ "tools": [["task", task]] }, { "text": "Done." }]));
    let lines = client(&harness, &agent, &["--json", "--permission", "allow", "go"]).expect(0).json_lines();
    let root = &of(&lines, "session")[0]["sessionId"];
    let subagents = of(&lines, "subagent");
    let last = subagents.last().unwrap();
    assert_eq!((&last["parent"], &last["state"]), (root, &json!("idle")));
    assert!(last["toolCallId"].is_string(), "the call and the child are one: {subagents:?}");
    let children: std::collections::HashSet<_> = subagents.iter().filter_map(|line| line["session"].as_str()).collect();
    assert_eq!(children.len(), 1, "{subagents:?}");
    let child = &last["session"];
    assert!(of(&lines, "update").iter().any(|line| line["sessionId"] == *child), "its own updates come too");
    let ran = client(&harness, &agent, &["--permission", "allow", "go"]).expect(0);
    assert_eq!(ran.stdout, "Done.\n", "what it says is not the answer");
    ran.says("subagent Look at it");
}

/// A turn whose command runs in a terminal of the client until it is killed; the pipe ends when nothing of it is left.
fn running(harness: &Harness) -> (Program, Reader) {
    let pipe = harness.pipe("alive");
    let command = "exec 3>alive; echo started >&3; sleep 300";
    let agent = own(harness, json!([{ "tools": [["bash", { "command": command }]] }, { "text": "Never." }]));
    let child = spawn(harness.command(&["acp-client", "--agent", &agent, "--permission", "allow", "go"]));
    let mut alive = Reader::new(move || File::open(pipe).unwrap());
    alive.wait_for("started\n");
    (child, alive)
}

#[test]
fn ctrl_c_cancels_the_turn() {
    let harness = Harness::new();
    let (child, alive) = running(&harness);
    signal(child.id(), Signal::INT);
    finish(child).expect(130).says("error: cancelled");
    assert_eq!(alive.rest(), "", "nothing of it is left");
}

#[test]
fn everything_dies_with_the_client() {
    let harness = Harness::new();
    let (child, alive) = running(&harness);
    signal(child.id(), Signal::KILL);
    finish(child);
    assert_eq!(alive.rest(), "", "nothing of it is left");
}

/// An agent that is a shell script. Our requests have the ids 0, 1, 2, in order.
fn shell(harness: &Harness, script: &str) -> String {
    let path = harness.project.write_home("agent.sh", script);
    format!("exec sh '{}'", path.display())
}

const HELLO: &str = r#"read line; echo '{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1}}'
read line; echo '{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s"}}'
"#;

#[test]
fn an_agent_that_prints_noise_is_understood() {
    let harness = Harness::new();
    let noise = r#"echo 'Welcome!'; printf '\377\376\n'; echo '[]'; echo '{"method":"odd/thing"}'; echo
head -c 3000000 /dev/zero | tr '\0' x; echo
"#;
    let end = r#"read line
echo '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"Fine.\u001b[2J"}}}}'
echo '{"jsonrpc":"2.0","id":2,"result":{"stopReason":"end_turn"}}'
cat > /dev/null
"#;
    // The script reads our replies to the noise, so that it counts our requests only.
    let loud = format!("exec 3>&1\n{noise}{HELLO}{noise}{end}").replace("read line", QUESTION);
    let ran = client(&harness, &shell(&harness, &loud), &["go"]).expect(0);
    assert_eq!(ran.stdout, "Fine.\n");
}

/// Reads lines until one is a request.
const QUESTION: &str = r#"while read -r line; do case "$line" in *'"method"'*) break;; esac; done"#;

#[test]
fn an_agent_that_dies_is_an_error_that_says_why() {
    let harness = Harness::new();
    client(&harness, "trefoil-is-not-an-agent-at-all", &["go"]).expect(1).says("not found");
    let agent = shell(&harness, "echo 'no licence' >&2; exit 3");
    let ran = client(&harness, &agent, &["go"]).expect(1);
    ran.says("error: initialize: The other side hung up");
    ran.says("the agent wrote: no licence");
    let agent = shell(&harness, &format!("{HELLO}read line; exit 1"));
    client(&harness, &agent, &["go"]).expect(1).says("error: session/prompt: The other side hung up");
}

#[test]
fn an_agent_that_never_answers_is_given_up() {
    let harness = Harness::new();
    let agent = shell(&harness, "trap '' TERM; while :; do sleep 1; done");
    client(&harness, &agent, &["--timeout", "1", "go"]).expect(1).says("initialize was not answered within 1 s");
    let agent = shell(&harness, &format!("{HELLO}while :; do sleep 1; done"));
    let ran = client(&harness, &agent, &["--timeout", "1", "go"]).expect(1);
    ran.says("the agent said nothing for 1 s");
}

#[test]
fn an_agent_gets_nothing_from_outside_the_folder() {
    let harness = Harness::new();
    harness.project.write_home("secret", "s3cret");
    let secret = harness.project.home().join("secret");
    let ask = |id: u32, method: &str, params: Value| {
        let line = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        format!("echo '{line}'; read -r answer; echo \"$answer\" >> answers\n")
    };
    let script = [
        HELLO.to_owned(),
        "read line\n".to_owned(),
        ask(70, "fs/read_text_file", json!({ "sessionId": "s", "path": secret })),
        ask(71, "fs/write_text_file", json!({ "sessionId": "s", "path": secret, "content": "x" })),
        ask(72, "terminal/create", json!({ "sessionId": "s", "command": "true", "cwd": "/" })),
        ask(73, "elicitation/create", json!({ "sessionId": "s", "mode": "url", "url": "http://127.0.0.1:9/" })),
        ask(74, "nobody/knows", json!({})),
        "exit 1\n".to_owned(),
    ];
    client(&harness, &shell(&harness, &script.concat()), &["--permission", "allow", "go"]).expect(1);
    let answers = harness.project.read("answers");
    assert_eq!(answers.matches("is outside").count(), 3, "{answers}");
    assert!(answers.contains("Only forms") && answers.contains("-32601") && !answers.contains("s3cret"), "{answers}");
    assert_eq!(std::fs::read_to_string(secret).unwrap(), "s3cret");
}

/// An agent that never asks: it runs a command, writes files, and ends.
fn unasked(harness: &Harness) -> String {
    let ask = |id: u32, method: &str, params: Value| {
        let line = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        format!("echo '{line}'; read -r answer; echo \"$answer\" >> answers\n")
    };
    let file = harness.project.path().join("written");
    let script = [
        HELLO.to_owned(),
        "read line\n".to_owned(),
        ask(70, "terminal/create", json!({ "sessionId": "s", "command": "touch ran" })),
        ask(71, "terminal/create", json!({ "sessionId": "s", "command": "touch", "args": ["ran"] })),
        ask(72, "fs/write_text_file", json!({ "sessionId": "s", "path": file, "content": "x" })),
        ask(73, "terminal/wait_for_exit", json!({ "sessionId": "s", "terminalId": "term_1" })),
        ask(74, "terminal/wait_for_exit", json!({ "sessionId": "s", "terminalId": "term_2" })),
        "echo '{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"stopReason\":\"end_turn\"}}'; cat > /dev/null\n".to_owned(),
    ];
    shell(harness, &script.concat())
}

#[test]
fn calls_without_a_request_are_decided_too() {
    let harness = Harness::new();
    let (ran, written) = (harness.project.path().join("ran"), harness.project.path().join("written"));
    // Nobody can be asked: that is a no as well.
    for args in [&["--permission", "reject", "go"][..], &["go"], &["--json", "go"]] {
        client(&harness, &unasked(&harness), args).expect(0);
        assert!(!ran.exists() && !written.exists(), "{args:?}");
        assert_eq!(harness.project.read("answers").matches("Permission denied").count(), 3, "{args:?}");
        std::fs::remove_file(harness.project.path().join("answers")).unwrap();
    }
    let lines =
        client(&harness, &unasked(&harness), &["--json", "--permission", "reject", "go"]).expect(0).json_lines();
    let told: Vec<_> = of(&lines, "permission").iter().map(|line| line["toolCall"]["title"].clone()).collect();
    assert_eq!(told, [json!("touch ran"), json!("touch ran"), json!(format!("write {}", written.display()))]);
    client(&harness, &unasked(&harness), &["--permission", "allow", "go"]).expect(0);
    assert!(ran.exists() && written.exists());
}

#[test]
fn the_user_decides_about_calls_without_a_request() {
    let harness = Harness::new();
    let mut terminal = Terminal::new(harness.command(&["acp-client", "--agent", &unasked(&harness), "go"]));
    for (shown, answer) in [("touch ran", "n"), ("touch ran", "y"), ("+x", "2")] {
        terminal.screen.wait_for(shown);
        terminal.screen.wait_for("a number, y or n > ");
        terminal.say(answer);
    }
    terminal.end(0);
    assert!(harness.project.path().join("ran").exists() && !harness.project.path().join("written").exists());
}

/// The texts of an agent before and after its calls are separate messages, for every reader.
#[test]
fn messages_are_kept_apart() {
    let harness = Harness::new();
    let call = |text: &str| json!({ "text": text, "tools": [["bash", { "command": "true" }]] });
    for (steps, wanted) in [
        (json!([call("First."), { "text": "Second." }]), "First.\nSecond.\n"),
        (json!([call("First.\n"), { "text": "Second.\n" }]), "First.\nSecond.\n"),
        (json!([call("One."), call("Two."), { "text": "Three." }]), "One.\nTwo.\nThree.\n"),
        (json!([{ "text": "Only one." }]), "Only one.\n"),
    ] {
        let ran = client(&harness, &own(&harness, steps), &["--permission", "allow", "go"]).expect(0);
        assert_eq!(ran.stdout, wanted);
    }
}

/// The same for other agents: some name their messages, some do not.
#[test]
fn messages_of_every_kind_of_agent_are_kept_apart() {
    let harness = Harness::new();
    let update = |update: Value| {
        let params = json!({ "sessionId": "s", "update": update });
        // Not `echo`: some shells interpret its escapes.
        format!("printf '%s\\n' '{}'\n", json!({ "jsonrpc": "2.0", "method": "session/update", "params": params }))
    };
    let said = |id: Option<&str>, text: &str| {
        let content = json!({ "type": "text", "text": text });
        update(json!({ "sessionUpdate": "agent_message_chunk", "messageId": id, "content": content }))
    };
    let call = update(json!({ "sessionUpdate": "tool_call", "toolCallId": "c", "title": "t", "status": "pending" }));
    let done = update(json!({ "sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed" }));
    let (a, b) = (Some("a"), Some("b"));
    for (told, wanted) in [
        (vec![said(a, "One"), said(a, " two."), said(b, "Three.")], "One two.\nThree.\n"),
        (vec![said(a, "One."), said(a, "\n"), said(b, "Two.")], "One.\nTwo.\n"),
        (vec![said(None, "One"), said(None, " two.")], "One two.\n"),
        (vec![said(None, "One."), call.clone(), said(None, "Two.")], "One.\nTwo.\n"),
        (vec![said(a, "One."), call.clone(), done.clone(), said(a, "Two.")], "One.\nTwo.\n"),
        (vec![said(a, "One."), call, done, said(b, "Two.")], "One.\nTwo.\n"),
    ] {
        let end = r#"echo '{"jsonrpc":"2.0","id":2,"result":{"stopReason":"end_turn"}}'; cat > /dev/null"#;
        let script = format!("{HELLO}read line\n{}{end}\n", told.concat());
        let ran = client(&harness, &shell(&harness, &script), &["go"]).expect(0);
        assert_eq!(ran.stdout, wanted, "{told:?}");
    }
}
