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

fn asks(ask: Ask) -> Asks {
    let mut asks = Asks::new(Style::plain());
    asks.add(ask);
    asks
}

fn reply(line: Option<&str>) -> Option<PermissionReply> {
    let mut asks = asks(Ask::Permission(Box::new(permission())));
    match asks.take(line)? {
        Outcome::Reply(Reply::Permission(id, reply)) => {
            assert_eq!(id.as_str(), "per_1");
            assert!(!asks.waiting());
            Some(reply)
        }
        Outcome::More(_) => {
            assert!(asks.waiting());
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
    let text = asks(Ask::Permission(Box::new(permission()))).prompt().unwrap();
    assert_eq!(
        text,
        "? allow bash?\n    rm -rf x\n    ls\n  $ rm -rf x && ls\n  [y] once  [a] always (`rm *`, `ls *`)  [n] no  [n TEXT] no, and say what to do instead > "
    );
}

#[test]
fn questions_are_answered_one_by_one() {
    let mut asks = asks(Ask::Question(Box::new(question("que_1"))));
    assert!(asks.prompt().unwrap().contains("1  Red\n       warm\n    2  Blue\n"));
    assert!(matches!(asks.take(Some("7")), Some(Outcome::More(why)) if why.contains("1 to 2")));
    assert!(matches!(asks.take(Some("")), Some(Outcome::More(why)) if !why.is_empty()));
    assert_eq!(asks.take(Some("my own")), Some(Outcome::More(String::new())));
    assert!(asks.prompt().unwrap().contains("What else?"));
    assert!(matches!(asks.take(Some("words")), Some(Outcome::More(why)) if why.contains("1 to 2")));
    let Some(Outcome::Reply(Reply::Question(id, answers))) = asks.take(Some("2, a")) else { panic!("no reply") };
    assert_eq!(id.as_str(), "que_1");
    assert_eq!(answers, Some(vec![vec!["my own".to_string()], vec!["B".into(), "A".into()]]));
}

#[test]
fn questions_can_be_dismissed() {
    for line in [Some("-\n"), None] {
        let mut asks = asks(Ask::Question(Box::new(question("que_1"))));
        assert!(matches!(asks.take(line), Some(Outcome::Reply(Reply::Question(_, None)))));
    }
}

#[test]
fn one_at_a_time_and_each_once() {
    let mut asks = asks(Ask::Permission(Box::new(permission())));
    asks.add(Ask::Permission(Box::new(permission())));
    asks.add(Ask::Question(Box::new(question("que_1"))));
    assert!(!asks.settle("que_none"));
    assert!(asks.settle("per_1"), "it was there once, and the first");
    assert!(asks.prompt().unwrap().contains("Which?"));
    assert!(asks.settle("que_1"));
    assert!(!asks.waiting());
    assert_eq!(asks.take(Some("y")), None);
}
