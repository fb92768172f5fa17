//! `trefoil run` with pipes for streams.

use serde_json::{Value, json};

use super::harness::Harness;

#[test]
fn the_answer_goes_to_stdout_and_the_rest_to_stderr() {
    let harness = Harness::new();
    let ran = harness
        .play(json!([{ "reasoning": "They want a greeting.", "text": "Hello there." }]), &["say", "hello"])
        .expect(0);
    assert_eq!(ran.stdout, "Hello there.\n");
    ran.says("build · script/file\n");
    assert_eq!(harness.sessions().len(), 1);
}

#[test]
fn tools_really_run_and_are_shown() {
    let harness = Harness::new();
    let steps = json!([
        { "text": "Working. ", "tools": [["write", { "filePath": "a.txt", "content": "one\n" }]] },
        { "tools": [["edit", { "filePath": "a.txt", "oldString": "one", "newString": "two" }]] },
        { "tools": [["bash", { "command": "cat a.txt; exit 3" }], ["read", { "filePath": "nope.txt" }]] },
        { "text": "Done." },
    ]);
    let ran = harness.play(steps, &["work"]).expect(0);
    assert_eq!(ran.stdout, "Working. \nDone.\n");
    assert_eq!(harness.project.read("a.txt"), "two\n");
    ran.says("● write  a.txt");
    ran.says("● edit  a.txt  +1 -1\n    -one\n    +two\n");
    ran.says("✗ bash  cat a.txt; exit 3  exit 3\n  │ two\n");
    ran.says("✗ read  ");
}

#[test]
fn json_has_opencodes_shapes() {
    let harness = Harness::new();
    let steps = json!([
        { "text": "Running. ", "tools": [["bash", { "command": "echo hi" }]] },
        { "text": "Done." },
    ]);
    let ran = harness.play(steps, &["--format", "json", "go"]).expect(0);
    let lines = ran.json_lines();
    let kinds: Vec<&str> = lines.iter().map(|line| line["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["step_start", "text", "tool_use", "step_finish", "step_start", "text", "step_finish"]);
    let session = &harness.sessions()[0]["id"];
    for line in &lines {
        assert!(
            line["timestamp"].is_u64() && line["sessionID"] == *session && line["part"]["sessionID"] == *session,
            "{line}"
        );
    }
    assert_eq!(lines[1]["part"]["text"], "Running. ");
    let state = &lines[2]["part"]["state"];
    assert_eq!(
        (&state["status"], &state["output"], &state["title"]),
        (&json!("completed"), &json!("hi\n"), &json!("echo hi"))
    );
    assert_eq!(lines[3]["part"]["reason"], "tool-calls");
    assert_eq!(lines[6]["part"]["reason"], "stop");
    assert!(lines[6]["part"]["tokens"]["input"].is_u64());
}

#[test]
fn a_model_error_has_its_own_code() {
    let harness = Harness::new();
    let steps = json!([{ "http_error": 401, "error_body": { "error": { "message": "bad key" } } }]);
    let ran = harness.play(steps.clone(), &["go"]).expect(3);
    ran.says("error: script/file: ");
    ran.says("hint: check the provider's key");
    let ran = harness.play(steps, &["--format", "json", "go"]).expect(3);
    let lines = ran.json_lines();
    let error = lines.iter().find(|line| line["type"] == "error").unwrap();
    assert!(error["error"]["name"].is_string() && error["error"]["data"]["message"].is_string(), "{error}");
}

#[test]
fn a_cut_off_answer_is_a_failure() {
    let harness = Harness::new();
    let ran = harness.play(json!([{ "text": "Half of", "finish": "length" }]), &["go"]).expect(3);
    assert_eq!(ran.stdout, "Half of\n");
    ran.says("output limit");
}

#[test]
fn an_empty_answer_is_reported() {
    let harness = Harness::new();
    for steps in [json!([{}]), json!([{ "text": " \n" }]), json!([{ "reasoning": "Hm." }])] {
        let ran = harness.play(steps, &["x"]).expect(0);
        assert_eq!(ran.stdout.trim(), "");
        assert_eq!(ran.stderr.matches("the model gave an empty answer").count(), 1, "{}", ran.stderr);
    }
    for steps in [json!([{ "text": "Hi." }]), json!([{ "tools": [["bash", { "command": "true" }]] }, {}])] {
        let ran = harness.play(steps, &["x"]).expect(0);
        assert!(!ran.stderr.contains("empty answer"), "{}", ran.stderr);
    }
}

#[test]
fn retries_are_shown() {
    let harness = Harness::new();
    let steps = json!([{ "http_error": 503, "retry_after_ms": 1, "fail_times": 1, "text": "Back." }]);
    let ran = harness.play(steps, &["go"]).expect(0);
    assert_eq!(ran.stdout, "Back.\n");
    ran.says("↻ attempt 1 failed");
}

#[test]
fn what_would_be_asked_is_denied_without_a_terminal() {
    let harness = Harness::new();
    harness.configure(json!({ "permission": { "bash": "ask" } }));
    let steps =
        json!([{ "text": "Now. ", "tools": [["bash", { "command": "touch made" }]] }, { "text": "Never said." }]);
    let ran = harness.play(steps.clone(), &["go"]).expect(4);
    assert_eq!(ran.stdout, "Now. \n");
    ran.says(
        "denied: bash touch made needs permission, and there is no terminal to ask on\n  hint: run it again with --yes",
    );
    ran.says("error: the turn stopped because a permission or a question was rejected");
    assert!(!harness.project.path().join("made").exists());

    let ran = harness.play(steps, &["--yes", "go"]).expect(0);
    assert_eq!(ran.stdout, "Now. \nNever said.\n");
    ran.says("allowed by --yes: bash touch made");
    assert!(harness.project.path().join("made").exists());
}

#[test]
fn what_a_subagent_asks_is_answered_as_the_sessions_own() {
    let harness = Harness::new();
    harness.configure(json!({ "permission": { "bash": "ask" } }));
    let child = json!([{ "tools": [["bash", { "command": "touch made" }]] }, { "text": "I made it." }]);
    let input = json!({ "description": "Make it", "prompt": format!("SCRIPT: {child}"), "subagent_type": "general" });
    let steps = json!([{ "tools": [["task", input]] }, { "text": "Well." }]);
    let prompt = format!("SCRIPT: {steps}");
    let ran = harness.trefoil(&["run", "--model", "script/demo", &prompt]).expect(0);
    assert_eq!(ran.stdout, "Well.\n");
    ran.says("denied: bash touch made needs permission, and there is no terminal to ask on");
    assert!(!harness.project.path().join("made").exists());

    let ran = harness.trefoil(&["run", "--model", "script/demo", "--yes", &prompt]).expect(0);
    ran.says("▸ general  Make it\n");
    ran.says("\n✓ general  Make it  1 call · ");
    assert!(harness.project.path().join("made").exists());
}

#[test]
fn yes_does_not_overrule_a_rule_that_denies() {
    let harness = Harness::new();
    harness.configure(json!({ "permission": { "bash": { "*": "allow", "touch *": "deny" } } }));
    let steps = json!([{ "tools": [["bash", { "command": "touch made" }]] }, { "text": "As you like." }]);
    let ran = harness.play(steps, &["--yes", "go"]).expect(0);
    ran.says("✗ bash  touch made");
    assert!(!harness.project.path().join("made").exists());
}

#[test]
fn sessions_are_continued() {
    let harness = Harness::new();
    let steps = json!([{ "text": "Yes." }]);
    harness.play(steps.clone(), &["--title", "First", "one"]).expect(0);
    harness.play(steps.clone(), &["-c", "two"]).expect(0);
    let sessions = harness.sessions();
    assert_eq!(sessions.len(), 1);
    assert_eq!(sessions[0]["title"], "First");
    let id = sessions[0]["id"].as_str().unwrap();
    harness.play(steps.clone(), &["--session", id, "--title", "Third", "three"]).expect(0);
    let export = harness.export(id);
    assert_eq!(export["info"]["title"], "Third");
    assert_eq!(export["messages"].as_array().unwrap().len(), 6);

    let other = Harness::new();
    other.play(steps, &["--continue", "x"]).expect(1).says("there is no session in this directory");
}

#[test]
fn standard_input_is_added_to_the_message() {
    let harness = Harness::new();
    let script = harness.rules(json!({
        "rules": [{ "when": { "text": "explain\nfrom the pipe" }, "steps": [{ "text": "Both came." }] }],
        "default": [{ "text": "Something is missing." }],
    }));
    let ran = harness.piped(&["run", "--script", &script, "explain"], b"from the pipe\n").expect(0);
    assert_eq!(ran.stdout, "Both came.\n");
    let ran = harness.piped(&["run", "--script", &script], b"explain\nfrom the pipe").expect(0);
    assert_eq!(ran.stdout, "Both came.\n");
    harness.piped(&["run", "--script", &script], b"\xff\xfe").expect(2).says("not UTF-8");
    harness.piped(&["run", "--script", &script], b"").expect(2).says("there is no message");
}

#[test]
fn files_are_attached() {
    let harness = Harness::new();
    harness.project.write("notes with space.txt", "remember the milk\n");
    harness.play(json!([{ "text": "Read." }]), &["-f", "notes with space.txt", "-f", ".", "read"]).expect(0);
    let id = harness.sessions()[0]["id"].as_str().unwrap().to_owned();
    let export = harness.export(&id);
    let parts = export["messages"][0]["parts"].as_array().unwrap();
    let files: Vec<&Value> = parts.iter().filter(|part| part["type"] == "file").collect();
    assert_eq!(files.len(), 2, "{parts:#?}");
    let text = parts.iter().map(|part| part["text"].as_str().unwrap_or_default()).collect::<String>();
    assert!(text.contains("remember the milk"), "{text}");
    harness.play(json!([]), &["-f", "missing.txt", "read"]).expect(2).says("cannot attach");
    assert_eq!(harness.sessions().len(), 1, "a typing error leaves no session");
}

#[test]
fn commands_take_the_message_as_arguments() {
    let harness = Harness::new();
    harness.configure(json!({ "command": { "greet": { "template": "Say hello to $ARGUMENTS now" } } }));
    let script = harness.rules(json!({
        "rules": [{ "when": { "text": "Say hello to big world now" }, "steps": [{ "text": "Hello, world." }] }],
        "default": [{ "text": "What?" }],
    }));
    let ran = harness.trefoil(&["run", "--script", &script, "--command", "greet", "big", "world"]).expect(0);
    assert_eq!(ran.stdout, "Hello, world.\n");
    harness.trefoil(&["run", "--script", &script, "--command", "gret"]).expect(1).says("hint: known: greet,");
}

#[test]
fn nothing_that_moves_a_terminal_is_printed() {
    let harness = Harness::new();
    let steps = json!([
        { "size": 99, "text": "a\u{1b}[2Jb\u{1b}]0;title\u{7}c ", "tools": [["bash", { "command": "printf '\\033[31mred\\033[0m\\n'" }]] },
        { "size": 99, "text": "\u{9b}2Jd\u{202e}" },
    ]);
    let ran = harness.play(steps.clone(), &["go"]).expect(0);
    for text in [&ran.stdout, &ran.stderr] {
        assert!(!text.contains(['\u{1b}', '\u{9b}', '\u{7}', '\u{202e}']), "{text:?}");
    }
    assert_eq!(ran.stdout, "abc \nd\n");
    let ran = harness.play(steps, &["--format", "json", "go"]).expect(0);
    assert!(!ran.stdout.contains(['\u{1b}', '\u{9b}', '\u{7}', '\u{202e}']), "{:?}", ran.stdout);
    assert!(ran.json_lines().iter().any(|line| line["part"]["text"] == "\u{9b}2Jd\u{202e}"), "JSON keeps the value");
}

#[test]
fn a_script_can_come_from_the_environment() {
    let harness = Harness::new();
    let script = harness.script(json!([{ "text": "From the script." }]));
    for (value, model) in [(script.as_str(), "script/file"), ("", "script/demo")] {
        let mut command = harness.command(&["run", "go"]);
        command.env("TREFOIL_SCRIPT", value);
        let ran = super::harness::finish(super::harness::spawn(command)).expect(0);
        ran.says(&format!("build · {model}\n"));
    }
}

#[test]
fn without_a_model_the_demo_says_what_it_is() {
    let harness = Harness::new();
    let ran = harness.trefoil(&["run", "look around"]).expect(0);
    ran.says("offline demo, not a language model");
    ran.says("OPENAI_API_KEY");
    assert!(!ran.stdout.is_empty());
}

#[test]
fn a_closed_pipe_stops_the_turn() {
    let harness = Harness::new();
    let script = harness.script(json!([
        { "text": "First. ", "tools": [["bash", { "command": "true" }]] },
        { "chunks": 50, "hold": harness.project.path().join("never"), "tools": [["bash", { "command": "touch made" }]] },
        { "text": "Never." },
    ]));
    let mut command = harness.command(&["run", "--script", &script, "go"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    command.stdout(writer).stderr(std::process::Stdio::piped());
    let ran = super::harness::finish(command.spawn().unwrap().into());
    assert_ne!(ran.code, 0);
    assert!(!harness.project.path().join("made").exists());
}
