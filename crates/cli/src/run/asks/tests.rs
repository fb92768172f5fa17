use super::*;
use serde_json::json;

fn permission() -> PermissionRequest {
    serde_json::from_value(
        json!({"id": "per_1", "sessionID": "ses_1", "permission": "bash", "always": ["rm *", "ls *"],
        "patterns": ["rm -rf x", "ls\x1b[2J"], "metadata": {"command": "rm -rf x && ls"}}),
    )
    .unwrap()
}

fn question(id: &str) -> api::QuestionRequest {
    serde_json::from_value(json!({"id": id, "sessionID": "ses_1", "questions": [
        {"question": "Which?", "header": "Colour", "options": [
            {"label": "Red", "description": "warm"}, {"label": "Blue", "description": ""}]},
        {"question": "What else?", "header": "More", "multiple": true, "custom": false, "options": [
            {"label": "A", "description": ""}, {"label": "B", "description": ""}]},
    ]}))
    .unwrap()
}

fn queue(ask: Ask) -> AskQueue {
    let mut queue = AskQueue::new(Style::plain(), 22);
    queue.add(ask);
    queue
}

fn reply(line: Option<&str>) -> Option<PermissionReply> {
    let mut asks = queue(Ask::Permission(Box::new(permission())));
    match asks.apply(line)? {
        LineEffect::Reply(Reply::Permission(id, reply)) => {
            assert_eq!(id.as_str(), "per_1");
            assert!(!asks.is_waiting());
            Some(reply)
        }
        LineEffect::More(_) => {
            assert!(asks.is_waiting());
            None
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn permission_lines() {
    use PermissionReplyKind::{Always, Once, Reject};
    for (line, kind, message) in [
        ("y\n", Once, None),
        (" YES ", Once, None),
        ("a", Always, None),
        ("n", Reject, None),
        ("n: use trash instead", Reject, Some("use trash instead")),
        ("no use trash", Reject, Some("use trash")),
    ] {
        let got = reply(Some(line)).unwrap();
        assert_eq!((got.reply, got.message.as_deref()), (kind, message), "{line}");
    }
    // Only a clear yes is a yes.
    for line in ["", "yy", "yes please", "a lot", "ok?", "\u{1}"] {
        assert_eq!(reply(Some(line)), None, "{line}");
    }
    assert_eq!(reply(None).unwrap().reply, Reject, "the end of input is a no");
}

#[test]
fn a_request_shows_what_it_wants() {
    let text = queue(Ask::Permission(Box::new(permission()))).prompt().unwrap();
    assert_eq!(
        text,
        "? allow bash?\n    rm -rf x\n    ls\\u{1b}[2J\n  $ rm -rf x && ls\n  always would allow: `rm *`, `ls *`\n  \
         [y] once  [a] always  [n] no  [n TEXT] no, and say what to do instead > "
    );
}

/// All pages of a request. On none but the last, anything but a no is an answer.
fn pages(request: PermissionRequest) -> String {
    let mut asks = queue(Ask::Permission(Box::new(request)));
    let mut seen = asks.prompt().unwrap();
    while !seen.ends_with("instead > ") {
        for eager in ["y", "yes", "a", "always"] {
            assert!(matches!(asks.apply(Some(eager)), Some(LineEffect::More(why)) if why.contains("more to read")));
        }
        assert_eq!(asks.apply(Some("\n")), Some(LineEffect::More(String::new())));
        seen += &asks.prompt().unwrap();
    }
    assert!(matches!(asks.apply(Some("y")), Some(LineEffect::Reply(_))));
    seen
}

#[test]
fn nothing_of_a_request_is_cut_or_hidden() {
    let tails = [
        format!("echo {}; rm -rf TAIL", "x".repeat(5000)),
        format!("{}rm -rf TAIL", "echo hello\n".repeat(300)),
        format!("echo{}; rm -rf TAIL", " ".repeat(400)),
        format!("{}rm -rf TAIL", "\n".repeat(400)),
        "echo \u{202e}; rm -rf TAIL \u{2066}".to_owned(),
        "echo a\r; rm -rf TAIL\u{1b}[1A\u{1b}[2K".to_owned(),
    ];
    for command in tails {
        let mut request = permission();
        request.patterns = vec!["echo".to_owned(); 40];
        request.patterns.push("rm -rf TAIL".to_owned());
        request.metadata.insert("command".to_owned(), command.clone().into());
        let seen = pages(request);
        assert!(seen.matches("TAIL").count() >= 2, "{seen}");
        assert!(!seen.contains(['\u{202e}', '\r', '\u{2066}', '\u{1b}']), "{seen:?}");
    }
    let lines: String = (0..200).map(|line| format!("+line {line}.\n")).collect();
    let mut request = permission();
    request.metadata.insert("diff".to_owned(), format!("--- a\n+++ b/name\n@@ -0,0 +1,200 @@\n{lines}").into());
    request.metadata.insert("input".to_owned(), json!({"query": "drop everything", "deep": ["TAIL"]}));
    let seen = pages(request);
    assert!((0..200).all(|line| seen.contains(&format!("+line {line}.\n"))), "{seen}");
    assert!(seen.contains("b/name") && seen.contains("drop everything") && seen.contains("TAIL"), "{seen}");
}

#[test]
fn a_no_is_taken_on_every_page_and_the_end_can_be_looked_at() {
    let mut long = permission();
    long.patterns = (0..100).map(|number| format!("echo {number}")).collect();
    let mut first = queue(Ask::Permission(Box::new(long.clone())));
    assert!(first.prompt().unwrap().contains("lines: [Enter] more  [e] the end  [n] no > "));
    assert!(matches!(first.apply(Some("n not that")), Some(LineEffect::Reply(_))));
    let mut last = queue(Ask::Permission(Box::new(long)));
    assert_eq!(last.apply(Some("e")), Some(LineEffect::More(String::new())));
    assert!(last.prompt().unwrap().contains("echo 99\n") && !last.prompt().unwrap().contains("echo 1\n"));
    // Whatever comes next begins at its beginning.
    last.add(Ask::Permission(Box::new(PermissionRequest { id: "per_2".parse().unwrap(), ..permission() })));
    assert!(matches!(last.apply(Some("y")), Some(LineEffect::Reply(_))));
    assert!(last.prompt().unwrap().starts_with("? allow bash?"));
}

#[test]
fn questions_are_answered_one_by_one() {
    let mut asks = queue(Ask::Question(Box::new(question("que_1"))));
    assert!(asks.prompt().unwrap().contains("1  Red\n       warm\n    2  Blue\n"));
    assert!(matches!(asks.apply(Some("7")), Some(LineEffect::More(why)) if why.contains("1 to 2")));
    assert!(matches!(asks.apply(Some("")), Some(LineEffect::More(why)) if !why.is_empty()));
    assert_eq!(asks.apply(Some("my own")), Some(LineEffect::More(String::new())));
    assert!(asks.prompt().unwrap().contains("What else?"));
    assert!(matches!(asks.apply(Some("words")), Some(LineEffect::More(why)) if why.contains("1 to 2")));
    let Some(LineEffect::Reply(Reply::Question(id, answers))) = asks.apply(Some("2, a")) else { panic!("no reply") };
    assert_eq!(id.as_str(), "que_1");
    assert_eq!(answers, Some(vec![vec!["my own".to_string()], vec!["B".into(), "A".into()]]));
}

#[test]
fn questions_can_be_dismissed() {
    for line in [Some("-\n"), None] {
        let mut asks = queue(Ask::Question(Box::new(question("que_1"))));
        assert!(matches!(asks.apply(line), Some(LineEffect::Reply(Reply::Question(_, None)))));
    }
}

#[test]
fn one_request_at_a_time_and_each_once() {
    let mut asks = queue(Ask::Permission(Box::new(permission())));
    asks.add(Ask::Permission(Box::new(permission())));
    asks.add(Ask::Question(Box::new(question("que_1"))));
    assert!(!asks.remove("que_none"));
    assert!(asks.remove("per_1"), "it was there once, and the first");
    assert!(asks.prompt().unwrap().contains("Which?"));
    assert!(asks.remove("que_1"));
    assert!(!asks.is_waiting());
    assert_eq!(asks.apply(Some("y")), None);
}
