use super::*;
use proptest::prelude::*;
use serde_json::json;

fn parsed(text: &str) -> FrontMatter<'_> {
    split(text).unwrap_or_else(|broken| panic!("{broken:?} in\n{text}"))
}

fn read(front: &str) -> Json {
    let text = format!("---\n{front}\n---\nbody");
    let read = parsed(&text);
    assert_eq!((read.body, &read.state), ("body", &FrontMatterState::Valid), "{front}");
    Json::Object(read.map)
}

#[test]
fn scalars() {
    let front = "a: text # and a comment\nb: 'it''s'\nc: \"x\\ny\"\nd: true\ne: 0.5\nf: 42\ng: ~\nh:\n\
                 i: 1.2.3\nj: -3\nk: http://x/#y\n# whole line\n\nm: inf\nn: .5\no: +1.5\np: 1e3\nq: 2.5e-1\nr: 0x1F\n\
                 s: 010\nt: 08\nu: yes\nv: No\nw: 1_000\nx: 12:30\ny: 2024-01-02\nz: 0o7\na1: 99999999999999999999";
    let want = json!({
        "a": "text", "b": "it's", "c": "x\ny", "d": true, "e": 0.5, "f": 42, "i": "1.2.3", "j": -3,
        "k": "http://x/#y", "m": "inf", "n": 0.5, "o": 1.5, "p": 1000.0, "q": 0.25, "r": 31, "s": 8, "t": "08", "u": "yes",
        "v": "No", "w": 1000, "x": "12:30", "y": "2024-01-02", "z": "0o7", "a1": "99999999999999999999",
    });
    assert_eq!(read(front), want);
}

/// Front matter of real agents, commands and skills.
#[test]
fn yaml_is_yaml() {
    for (front, want) in [
        ("a: \"one\n  two\n\n  three\"", json!({"a": "one two\nthree"})),
        ("a: 'one\n  two'\nb: x", json!({"a": "one two", "b": "x"})),
        ("a:\n  text on the next line\n  and the one after", json!({"a": "text on the next line and the one after"})),
        ("a: text\n  goes on\n  and on", json!({"a": "text goes on and on"})),
        ("a:\n  - name: x\n    on: true\n  - name: y\n", json!({"a": [{"name": "x", "on": true}, {"name": "y"}]})),
        ("a:\n- b: 1\n  c: [2, 3]\n- - d\n  - e", json!({"a": [{"b": 1, "c": [2, 3]}, ["d", "e"]]})),
        ("a: [one, \"two, three\",\n    four,\n   ]", json!({"a": ["one", "two, three", "four"]})),
        ("a: {b: deny, \"c *\": ask,\n  d: [e]}", json!({"a": {"b": "deny", "c *": "ask", "d": ["e"]}})),
        (
            "a:\n  \"*\": ask\n  git status*: allow\n  ? x\n  : deny",
            json!({"a": {"*": "ask", "git status*": "allow", "x": "deny"}}),
        ),
        ("a: |2\n    one\n  two\n", json!({"a": "  one\ntwo\n"})),
        (
            "a: |\n  one\n    two\n\n  three\nb: >-\n  one\n  two\n\n  three\nc: |+\n  x\n\nd: |-\n  y",
            json!({
                "a": "one\n  two\n\nthree\n", "b": "one two\nthree", "c": "x\n\n", "d": "y",
            }),
        ),
        (
            "base: &base {bash: deny, edit: ask}\na: *base\nb:\n  <<: *base\n  edit: allow\n  x: deny",
            json!({
                "base": {"bash": "deny", "edit": "ask"}, "a": {"bash": "deny", "edit": "ask"},
                "b": {"bash": "deny", "edit": "allow", "x": "deny"},
            }),
        ),
        ("a: !!str 5\n1: x\ntrue: y", json!({"a": "5", "1": "x", "true": "y"})),
        ("a:\n    b:   1\n    c:\n     - x\n# d\n", json!({"a": {"b": 1, "c": ["x"]}})),
        ("tools:\n  write: false\n  bash:\n", json!({"tools": {"write": false, "bash": null}})),
    ] {
        assert_eq!(read(front), want, "{front}");
        let crlf = format!("---\n{front}\n---\nbody").replace('\n', "\r\n");
        assert_eq!(Json::Object(parsed(&crlf).map), want, "{front} with CRLF");
    }
    let text = "---\nb:\n  <<: {a: 1, z: 2}\n  z: 3\n  y: 4\n---\n";
    let order: Vec<_> = parsed(text).map["b"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(order, ["a", "z", "y"], "rules are judged in this order");
}

#[test]
fn fences_are_recognised_as_in_opencode() {
    for text in ["", "hello", "# title\n---\nrule", "----\nx", " ---\nx\n---"] {
        let read = parsed(text);
        assert_eq!((read.map.len(), read.body, read.state), (0, text, FrontMatterState::Valid));
    }
    for (text, front, body) in [
        ("---\n---\nx", json!({}), "x"),
        ("---\n# only\n---\nx", json!({}), "x"),
        ("---  \na: b\n---\nx", json!({"a": "b"}), "x"),
        ("---yaml\na: b\n---\nx", json!({"a": "b"}), "x"),
        ("\u{feff}---\r\na: b\r\n---\r\nx\r\n", json!({"a": "b"}), "x\r\n"),
        ("---\na: b\n---", json!({"a": "b"}), ""),
        ("---\na: b\n", json!({"a": "b"}), ""),
        ("---\na: b\n----\nx", json!({"a": "b"}), "-\nx"),
        ("---\na: b\n---\n\n---\nx", json!({"a": "b"}), "\n---\nx"),
    ] {
        let read = parsed(text);
        assert_eq!((Json::Object(read.map), read.body, read.state), (front, body, FrontMatterState::Valid), "{text:?}");
    }
}

#[test]
fn a_value_with_a_colon_is_treated_as_text() {
    for (front, want, line) in [
        ("a: Use this: it helps\nb: x", json!({"a": "Use this: it helps", "b": "x"}), 2),
        (
            "x: y\ndescription: Steps: 1. \"a\" 2: b # c",
            json!({"x": "y", "description": "Steps: 1. \"a\" 2: b # c"}),
            3,
        ),
        ("a: b: c\npermission:\n  bash: deny", json!({"a": "b: c", "permission": {"bash": "deny"}}), 2),
        ("a : [x]: y\nb: 'q: r'", json!({"a": "[x]: y", "b": "q: r"}), 2),
    ] {
        let text = format!("---\n{front}\n---\nbody");
        let read = parsed(&text);
        assert_eq!((Json::Object(read.map), read.body), (want, "body"), "{front}");
        assert!(
            matches!(&read.state, FrontMatterState::Repaired(broken) if broken.line == line),
            "{front}: {:?}",
            read.state
        );
    }
    // Positions are those in the file, not in the repaired text.
    let text = "---\na: b: c\npermission:\n  bash: deny\n---\n";
    let path = ["permission".to_owned(), "bash".to_owned()];
    assert_eq!(locate(&parsed(text).positions, &path), Some((4, 3)));
}

#[test]
fn unreadable_front_matter_is_the_body_or_ignored() {
    for (front, line) in [
        ("a: [x] [y]\nb: c", 2),
        ("a: @x", 2),
        ("a:\n\t- b", 3),
        ("a: 1\na: 2", 3),
        ("a: \"\\q\"", 2),
        ("a: *x", 2),
        ("a: !custom x", 2),
        ("a: !custom [b]", 2),
        ("a:\n  b: 1\n c: 2", 4),
    ] {
        let text = format!("---\n{front}\n---\nbody");
        let read = parsed(&text);
        assert_eq!((read.map.len(), read.body), (0, text.as_str()), "{front}");
        assert!(
            matches!(&read.state, FrontMatterState::Ignored(broken) if broken.line == line),
            "{front}: {:?}",
            read.state
        );
    }
    for (front, line) in [("a: b: c\nd: [", 2), ("- x\na: b: c", 3)] {
        assert_eq!(split(&format!("---\n{front}\n---\nbody")).unwrap_err().line, line, "{front}");
    }
    for text in ["---\njust text\n---\nbody", "---\n- a\n---\nbody"] {
        let read = parsed(text);
        assert!(matches!(read.state, FrontMatterState::Ignored(_)) && read.body == "body", "{text}");
    }
    let text = "---toml\na = 1\n---\nx";
    assert_eq!(parsed(text).body, text);
}

#[test]
fn names_in_unreadable_front_matter_are_found() {
    for (text, want) in [
        ("---\nname: build\nx: [", vec!["build"]),
        ("---\n{\"name\": \"a b\", x", vec!["a b"]),
        ("---\nname : 'x' # y\nfilename:z", vec!["x", "z"]),
        ("---\nname:\n  build\n", vec!["build"]),
        ("nothing here: name", vec![]),
        ("name: a, name: a", vec!["a"]),
        ("---\nname: a\n---\nname: b", vec!["a"]),
    ] {
        assert_eq!(possible_names(text).unwrap(), want, "{text}");
    }
}

#[test]
fn too_many_names_are_not_returned() {
    let many: String = (0..=MAX_NAMES).map(|n| format!("name: {n}\n")).collect();
    assert_eq!(possible_names(&many), None);
    assert_eq!(possible_names(&format!("name: {}", "x".repeat(1 << 20))).unwrap()[0].len(), MAX_NAME + 1);
}

#[test]
fn nesting_and_aliases_are_bounded() {
    let message = |front: &str| match split(&format!("---\n{front}\n---\nbody")) {
        Ok(FrontMatter { state: FrontMatterState::Ignored(broken) | FrontMatterState::Repaired(broken), .. })
        | Err(broken) => broken.message,
        Ok(read) => panic!("{read:?}"),
    };
    let deep: String = (0..100).map(|n| format!("{}a:\n", " ".repeat(n))).collect();
    assert!(message(&format!("{deep}{}b: 1", " ".repeat(100))).contains("deeper"));
    for (front, bound) in [
        (format!("a: {}", "[".repeat(100)), "deeper"),
        (format!("a: {}", "{a: ".repeat(100)), "deeper"),
        ("- ".repeat(100), "deeper"),
        (format!("a: {}", "[".repeat(100_000)), "limit"),
        (format!("a: {}", "{a: ".repeat(60_000)), "deeper"),
        ("- ".repeat(100_000), "deeper"),
    ] {
        assert!(message(&front).contains(bound), "{}: {}", &front[..20], message(&front));
    }
    let bomb: String = (1..30).map(|n| format!("a{n}: &a{n} [*a{0}, *a{0}]\n", n - 1)).collect();
    assert!(message(&format!("a0: &a0 x\n{bomb}")).contains("more than"));
    assert!(message("a: &a [*a]").contains("alias") || message("a: &a [*a]").contains("anchor"));
}

#[test]
fn keys_have_a_position() {
    let text = "---\na: 1\n\"b c\":\n  d:\n    - x: 2\n---\nd: 3";
    let positions = parsed(text).positions;
    let at = |path: &[&str]| locate(&positions, &path.iter().map(|step| (*step).to_owned()).collect::<Vec<_>>());
    assert_eq!(at(&["a"]), Some((2, 1)));
    assert_eq!(at(&["b c"]), Some((3, 1)));
    assert_eq!(at(&["b c", "d"]), Some((4, 3)));
    assert_eq!(at(&["b c", "d", "0", "x"]), Some((5, 7)));
    assert_eq!(at(&["b c", "d", "0", "y"]), Some((4, 3)));
    assert_eq!(at(&["d"]), None);
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in any::<String>()) {
        let _ = split(&text);
        let _ = split(&format!("---\n{text}\n---\n"));
        let _ = possible_names(&text);
    }

    #[test]
    fn yaml_like_text_is_read_or_refused(text in "([ ]{0,4}[-a-c:#|>\\[\\]{}\"',~ \t&*!?%@]{0,12}\r?\n){0,12}") {
        let _ = split(&format!("---\n{text}---\n"));
    }

    #[test]
    fn what_is_quoted_is_read(values in prop::collection::btree_map("[a-z]{1,6}", "[^\\p{C}\u{2028}\u{2029}]{0,20}", 0..6)) {
        // Bare words such as `true` have another type only as values.
        let front: String = values.iter().map(|(k, v)| format!("\"{k}\": {}\n", Json::from(v.as_str()))).collect();
        let text = format!("---\n{front}---\n");
        let want: JsonMap = values.into_iter().map(|(k, v)| (k, v.into())).collect();
        prop_assert_eq!(split(&text).unwrap().map, want);
    }

    #[test]
    fn a_body_is_never_changed(body in any::<String>()) {
        let text = format!("---\na: b\n---\n{body}");
        prop_assert_eq!(split(&text).unwrap().body, body.as_str());
    }
}
