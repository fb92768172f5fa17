use super::*;
use proptest::prelude::*;
use serde_json::json;

fn read(front: &str) -> Json {
    let text = format!("---\n{front}\n---\nbody");
    let (map, body) = split(&text).unwrap_or_else(|broken| panic!("{broken:?} in\n{front}"));
    assert_eq!(body, "body");
    Json::Object(map)
}

fn broken(front: &str) -> Broken {
    split(&format!("---\n{front}\n---\nbody")).expect_err(front)
}

#[test]
fn scalars() {
    let front = "a: text with: a colon # and a comment\nb: 'it''s'\nc: \"x\\ny\"\nd: true\ne: 0.5\nf: 42\ng: ~\nh:\n\
                 i: 007\nj: -3\nk: http://x/#y\nl: 1.2.3\n# whole line\n\nm: inf";
    let want = json!({
        "a": "text with: a colon", "b": "it's", "c": "x\ny", "d": true, "e": 0.5, "f": 42, "i": "007", "j": -3,
        "k": "http://x/#y", "l": "1.2.3", "m": "inf",
    });
    assert_eq!(read(front), want);
}

#[test]
fn nested_maps_and_lists() {
    let front = "permission:\n  edit: deny\n  bash:\n    \"*\": ask\n    git status*: allow\n  webfetch: ask\n\
                 tools: {write: false, \"a b\": true}\nlist:\n  - one\n  - 'two'\nsame:\n- 1\n- [x, {y: z}]\nempty: []\nlast: x";
    let want = json!({
        "permission": {"edit": "deny", "bash": {"*": "ask", "git status*": "allow"}, "webfetch": "ask"},
        "tools": {"write": false, "a b": true},
        "list": ["one", "two"], "same": [1, ["x", {"y": "z"}]], "empty": [], "last": "x",
    });
    assert_eq!(read(front), want);
}

#[test]
fn blocks_of_text() {
    let front = "a: |\n  one\n    two\n\n  three\nb: >-\n  one\n  two\n\n  three\nc: |+\n  x\n\nd: plain\n  goes on\n  and on\ne: |-\n  y";
    let want = json!({
        "a": "one\n  two\n\nthree\n", "b": "one two\nthree", "c": "x\n\n", "d": "plain goes on and on", "e": "y",
    });
    assert_eq!(read(front), want);
}

#[test]
fn text_without_front_matter_is_body() {
    for text in ["", "hello", "# title\n---\nrule", "----\nx", " ---\nx\n---"] {
        assert_eq!(split(text).unwrap(), (JsonMap::new(), text));
    }
    assert_eq!(split("---\n---\nx").unwrap(), (JsonMap::new(), "x"));
    let (map, body) = split("\u{feff}---\r\na: b\r\n---\r\nx\r\n").unwrap();
    assert_eq!((Json::Object(map), body), (json!({"a": "b"}), "x\r\n"));
}

#[test]
fn errors_name_the_line() {
    for (front, line, message) in [
        ("a: b\njust text", 3, "key: value"),
        ("a:\n  b: 1\n    c: 2", 4, "more"),
        ("  a: 1\nb: 2", 3, "less"),
        ("a: \"x", 2, "closing"),
        ("a: \"x\" y", 2, "more text"),
        ("a: \"\\q\"", 2, "escape"),
        ("a: [1, 2", 2, "closing ]"),
        ("a: {b}", 2, "key: value"),
        ("a: 1\na: 2", 3, "twice"),
        ("a: |2\n  x", 2, "block"),
        ("a:\n\t b: 1", 3, "spaces"),
        ("- a", 2, "key: value"),
        (": x", 2, "key: value"),
    ] {
        let found = broken(front);
        assert!(found.message.contains(message), "{front:?}: {found:?}");
        // A repeated key is noticed once its value was read.
        assert!(found.line == line || (message == "twice" && found.line == line + 1), "{front:?}: {found:?}");
    }
    assert_eq!(split("---\na: b\n").unwrap_err().line, 1);
    assert_eq!(split("---\n").unwrap_err().line, 1);
}

#[test]
fn nesting_is_bounded() {
    let deep: String = (0..100).map(|n| format!("{}a:\n", " ".repeat(n))).collect();
    assert!(broken(&format!("{deep}{}b: 1", " ".repeat(100))).message.contains("deeper"));
    assert!(broken(&format!("a: {}", "[".repeat(100_000))).message.contains("deeper"));
    assert!(broken(&format!("a: {}", "{a: ".repeat(100_000))).message.contains("deeper"));
}

#[test]
fn keys_have_a_place() {
    let text = "---\na: 1\n\"b c\": 2\n---\nd: 3";
    assert_eq!(locate(text, "a"), Some((2, 1)));
    assert_eq!(locate(text, "b c"), Some((3, 1)));
    assert_eq!(locate(text, "d"), None);
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in any::<String>()) {
        let _ = split(&text);
        let _ = split(&format!("---\n{text}\n---\n"));
    }

    #[test]
    fn yaml_like_text_is_read_or_refused(text in "([ ]{0,4}[-a-c:#|>\\[\\]{}\"',~ \t]{0,12}\n){0,12}") {
        let _ = split(&format!("---\n{text}---\n"));
    }

    #[test]
    fn what_is_quoted_is_read(values in prop::collection::btree_map("[a-z]{1,6}", "[^\\p{C}\u{2028}\u{2029}]{0,20}", 0..6)) {
        let front: String = values.iter().map(|(k, v)| format!("{k}: {}\n", Json::from(v.as_str()))).collect();
        let (map, _) = split(&format!("---\n{front}---\n")).unwrap();
        let want: JsonMap = values.into_iter().map(|(k, v)| (k, v.into())).collect();
        prop_assert_eq!(map, want);
    }

    #[test]
    fn a_body_is_never_changed(body in any::<String>()) {
        let text = format!("---\na: b\n---\n{body}");
        prop_assert_eq!(split(&text).unwrap().1, body.as_str());
    }
}
