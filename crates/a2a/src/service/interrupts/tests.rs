use api::{PermissionReplyKind, SessionId};
use serde_json::from_value;

use super::*;

fn interrupt(asked: Asked<'_>) -> Interrupt {
    let times = Interrupts { ttl: Duration::from_secs(60), tombstone: Duration::from_secs(60) };
    let asker = Asker { task_id: "t", context_id: "c", identity: "alice", credential: Some("c-alice") };
    times.interrupt(&asker, asked)
}

fn permission(permission: &str, patterns: Json, always: Json) -> Interrupt {
    let ask: PermissionRequest = from_value(json!({
        "id": "per_1", "sessionID": SessionId::new(), "permission": permission, "patterns": patterns, "metadata": {},
        "always": always,
    }))
    .unwrap();
    interrupt(Asked::Permission(&ask))
}

fn question(questions: Json) -> Interrupt {
    let ask: QuestionRequest =
        from_value(json!({ "id": "que_1", "sessionID": SessionId::new(), "questions": questions })).unwrap();
    interrupt(Asked::Question(&ask))
}

fn color() -> Json {
    json!({"question": "Pick a color", "header": "Color", "multiple": false, "options": [
        {"label": "Red", "description": "warm"}, {"label": "Blue", "description": "cold"},
    ]})
}

#[test]
fn metadata_as_recorded() {
    let ask = permission("bash", json!(["rm -rf *"]), json!(["rm *"]));
    assert_eq!(
        asked_metadata(&ask),
        json!({"request_id": "per_1", "type": "permission", "phase": "asked",
               "details": {"permission": "bash", "patterns": ["rm -rf *"]}})
    );
    assert_eq!(
        asked_metadata(&question(json!([color()]))),
        json!({"request_id": "que_1", "type": "question", "phase": "asked", "details": {"questions": [
            {"header": "Color", "question": "Pick a color", "options": [
                {"label": "Red", "description": "warm"}, {"label": "Blue", "description": "cold"}]}]}})
    );
    assert_eq!(
        resolved_metadata("que_1", InterruptKind::Question, Resolution::Rejected),
        json!({"request_id": "que_1", "type": "question", "phase": "resolved", "resolution": "rejected"})
    );
    assert_eq!(ask.identity, "alice");
    assert!(ask.expires_at > api::now() && ask.expires_at <= api::now() + 60_000);
}

#[test]
fn permissions_in_plain_words() {
    for (name, patterns, always, want) in [
        (
            "bash",
            json!(["git push"]),
            json!(["git push *"]),
            "The agent asks to run `git push`. Answer `once` to allow it \
          this time, `always` to allow `git push *` from now on, or `reject`.",
        ),
        (
            "edit",
            json!(["a.rs", "b.rs"]),
            json!([]),
            "The agent asks to change `a.rs`, `b.rs`. Answer `once` to allow it \
          this time, `always` to allow it from now on, or `reject`.",
        ),
        (
            "mcp_tool",
            json!([]),
            json!([]),
            "The agent asks to use `mcp_tool`. Answer `once` to allow it this time, \
          `always` to allow it from now on, or `reject`.",
        ),
        (
            "bash",
            json!(["a\u{1b}[31m `x`\n; b"]),
            json!([]),
            "The agent asks to run `a 'x' ; b`. Answer `once` to allow \
          it this time, `always` to allow it from now on, or `reject`.",
        ),
    ] {
        assert_eq!(asked_text(&permission(name, patterns, always)), want);
    }
    let long = asked_text(&permission("bash", json!(["x".repeat(100_000)]), json!([])));
    assert!(long.chars().count() < 1000);
    let many: Vec<String> = (0..1000).map(|number| format!("p{number}")).collect();
    assert!(asked_text(&permission("bash", json!(many), json!([]))).contains("and 980 more"));
}

#[test]
fn questions_in_plain_words() {
    assert_eq!(
        asked_text(&question(json!([color()]))),
        "The agent asks: Pick a color\n- Red: warm\n- Blue: cold\nAnswer with one of the options, or in your own words."
    );
    let free = json!({"question": "Which name?", "header": "Name", "options": []});
    assert_eq!(asked_text(&question(json!([free]))), "The agent asks: Which name?\nAnswer in your own words.");
    let both = asked_text(&question(json!([color(), free])));
    assert!(both.starts_with("The agent asks 2 questions.\n1. Pick a color\n"), "{both}");
    assert!(both.contains("\n2. Which name?\n") && both.ends_with("with one line for each, in this order."), "{both}");
    assert!(!asked_text(&question(json!([]))).is_empty());
}

#[test]
fn only_three_words_answer_a_permission() {
    let ask = permission("bash", json!(["git push"]), json!([]));
    for (text, want) in [
        ("once", PermissionReplyKind::Once),
        (" Once.\n", PermissionReplyKind::Once),
        ("`always`", PermissionReplyKind::Always),
        ("“ALWAYS!”", PermissionReplyKind::Always),
        ("reject", PermissionReplyKind::Reject),
    ] {
        let answer = parse_answer(&ask, text).unwrap();
        assert_eq!(answer, Answer::Permission(PermissionReply { reply: want, message: None }), "{text}");
        assert_eq!(answer.is_rejection(), want == PermissionReplyKind::Reject);
    }
    for text in [
        "",
        " ",
        ".",
        "yes",
        "ok",
        "y",
        "allow",
        "no",
        "once more",
        "always reject",
        "not once",
        "never once",
        "onc",
        "onces",
        "once always",
        "1",
        "o n c e",
        "do it once",
        "reject?once",
        "ｏｎｃｅ",
        "оnce",
        "{\"reply\":\"once\"}",
    ] {
        let explanation = parse_answer(&ask, text).unwrap_err();
        assert!(explanation.contains("`once`, `always` or `reject`"), "{text}");
    }
}

#[test]
fn one_question_takes_a_label_or_free_text() {
    let ask = question(json!([color()]));
    let answer = |text: &str| parse_answer(&ask, text);
    let labels = |labels: &[&str]| {
        Ok(Answer::Question(Some(vec![labels.iter().map(|label| (*label).to_owned()).collect::<Vec<_>>()])))
    };
    assert_eq!(answer("Red"), labels(&["Red"]));
    assert_eq!(answer(" 'blue'. "), labels(&["Blue"]));
    assert_eq!(answer("Something\nelse, please "), labels(&["Something\nelse, please"]));
    assert_eq!(answer("Red, Blue"), labels(&["Red, Blue"]));
    assert!(answer("  \n").is_err());

    let mut several = color();
    several["multiple"] = true.into();
    let ask = question(json!([several]));
    let answer = |text: &str| parse_answer(&ask, text);
    assert_eq!(answer("red; BLUE"), labels(&["Red", "Blue"]));
    assert_eq!(answer("blue,Blue,"), labels(&["Blue"]));
    assert_eq!(answer("red, green"), labels(&["red, green"]));

    let mut closed = color();
    closed["custom"] = false.into();
    let ask = question(json!([closed]));
    assert_eq!(parse_answer(&ask, "red"), labels(&["Red"]));
    let explanation = parse_answer(&ask, "green").unwrap_err();
    assert!(explanation.contains("Red, Blue") && explanation.contains("one of the options"), "{explanation}");
}

#[test]
fn several_questions_take_a_line_each() {
    let free = json!({"question": "Which name?", "header": "Name", "options": []});
    let ask = question(json!([color(), free]));
    let answers = |one: &str, two: &str| Ok(Answer::Question(Some(vec![vec![one.to_owned()], vec![two.to_owned()]])));
    assert_eq!(parse_answer(&ask, "red\nBob"), answers("Red", "Bob"));
    assert_eq!(parse_answer(&ask, "\n1. Blue\n\n2) 3 cats\n"), answers("Blue", "3 cats"));
    for text in ["red", "red\nBob\nmore", ""] {
        assert!(parse_answer(&ask, text).is_err(), "{text}");
    }
}
