//! `opencode run --attach`: the real program, with our server behind it.

use serde_json::Value;

use super::harness::{OPENCODE_LONGEST, TestServer, opencode, succeeded};

fn run(served: &TestServer, args: &[&str], prompt: &str) -> String {
    let mut command = opencode(&served.project);
    command.args(["run", "--attach", &served.url]).args(args).arg(prompt);
    succeeded(&served.heard_by(command, OPENCODE_LONGEST))
}

fn lines(output: &str) -> Vec<Value> {
    output.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

#[test]
fn run_prints_the_answer_and_continues_a_session() {
    let served = TestServer::start();
    let answer = run(&served, &[], "greet me");
    assert_eq!(answer.trim(), "Good morning from Trefoil.");

    let events = lines(&run(&served, &["--format", "json"], "multiply"));
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["step_start", "tool_use", "step_finish", "step_start", "text", "step_finish"], "{events:#?}");
    assert_eq!(events[1]["part"]["state"]["output"], "6*7=42\n");
    assert_eq!(events[4]["part"]["text"], "That was easy.");
    let session = events[0]["sessionID"].as_str().unwrap();

    let next = lines(&run(&served, &["--format", "json", "--continue"], "greet me"));
    assert_eq!(next[0]["sessionID"], session, "--continue takes the newest session");
    let named = run(&served, &["--session", session], "think");
    assert_eq!(named.trim(), "Here is what to do.");

    let (status, messages) = served.send("GET", &format!("/session/{session}/message"), None);
    assert_eq!(status, 200);
    let asked = messages.as_array().unwrap().iter().filter(|message| message["info"]["role"] == "user").count();
    assert_eq!(asked, 3, "{messages:#}");
}
