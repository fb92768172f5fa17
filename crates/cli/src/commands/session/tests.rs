use super::*;
use serde_json::json;

fn export() -> serde_json::Value {
    json!({
        "info": {"id": "ses_1", "slug": "s", "projectID": "p", "directory": "/d", "title": "Fix\x1b[2J it", "version": "1",
            "time": {"created": 1, "updated": 2}},
        "messages": [
            {"info": {"id": "msg_1", "sessionID": "ses_1", "role": "user", "time": {"created": 1}, "agent": "build",
                "model": {"providerID": "p", "modelID": "m"}},
             "parts": [{"id": "prt_1", "sessionID": "ses_1", "messageID": "msg_1", "type": "text", "text": "do\nit"},
                       {"id": "prt_2", "sessionID": "ses_1", "messageID": "msg_1", "type": "file", "mime": "text/plain",
                        "filename": "a.txt", "url": "file:///a.txt"}]},
            {"info": {"id": "msg_2", "sessionID": "ses_1", "parentID": "msg_1", "role": "assistant", "mode": "build",
                "agent": "build", "path": {"cwd": "/d", "root": "/d"}, "cost": 0, "modelID": "m", "providerID": "p",
                "tokens": {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}},
                "time": {"created": 1, "completed": 2}, "error": {"name": "UnknownError", "data": {"message": "broken"}}},
             "parts": [{"id": "prt_3", "sessionID": "ses_1", "messageID": "msg_2", "type": "text", "text": "Done.",
                        "time": {"start": 1, "end": 2}}]},
        ],
    })
}

fn parse(value: &serde_json::Value) -> Result<Export, String> {
    Export::parse(&value.to_string()).map_err(|error| format!("{error:#}"))
}

#[test]
fn a_conversation_reads_well() {
    let text = transcript(&parse(&export()).unwrap(), None, Style::plain());
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "Fix it");
    assert!(lines[1].starts_with("ses_1 · 1970-01-01"), "{}", lines[1]);
    let rest = &lines[2..];
    assert_eq!(rest[..6], ["", "> do", "> it", "> [a.txt]", "build · p/m", ""], "{text}");
    assert_eq!(rest[6..8], ["Done.", "UnknownError: broken"], "{text}");
}

#[test]
fn the_wait_for_an_answer_is_not_the_time_of_a_question() {
    for (tool, shown) in [("bash", true), ("question", false)] {
        let mut value = export();
        value["messages"][1]["parts"][0] = json!({
            "id": "prt_3", "sessionID": "ses_1", "messageID": "msg_2", "type": "tool", "callID": "call_1", "tool": tool,
            "state": {"status": "completed", "input": {}, "output": "", "title": "", "metadata": {"exit": 0},
                "time": {"start": 1, "end": 65_001}},
        });
        let text = transcript(&parse(&value).unwrap(), None, Style::plain());
        assert_eq!(text.contains("65.0 s"), shown, "{text}");
    }
}

#[test]
fn exports_round_trip() {
    let first = parse(&export()).unwrap();
    assert_eq!(serde_json::to_value(&first).unwrap(), export());
}

#[test]
fn inconsistent_exports_are_refused() {
    type Change = fn(&mut serde_json::Value);
    let cases: [(Change, &str); 8] = [
        (|value| *value = json!([]), "not an exported session"),
        (|value| value["info"]["id"] = json!("ses_2"), "message msg_1 belongs to another session"),
        (|value| value["messages"][1]["info"]["id"] = json!("msg_1"), "message msg_1 comes twice"),
        (|value| value["messages"][0]["parts"][0]["messageID"] = json!("msg_2"), "does not belong to message msg_1"),
        (|value| value["messages"][0]["parts"][0]["id"] = json!("../x"), "starting with \"prt\""),
        (|value| value["messages"][0]["parts"][1]["id"] = json!("prt_1"), "part prt_1 comes twice"),
        (|value| value["messages"][0]["parts"][0]["type"] = json!("hologram"), "unknown kind"),
        (|value| value["messages"][0]["info"]["role"] = json!("nobody"), "not an exported session"),
    ];
    for (change, want) in cases {
        let mut value = export();
        change(&mut value);
        let error = parse(&value).unwrap_err();
        assert!(error.contains(want), "{error} lacks {want}");
    }
    assert!(Export::parse("{").is_err());
}
