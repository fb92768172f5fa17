use api::PromptPart;
use serde_json::{Value, json};

use super::*;

fn parts(blocks: Value) -> Vec<PromptPart> {
    match parse(&blocks, &["greet"], &["general"]).unwrap() {
        ParsedPrompt::Prompt(parts) => parts,
        ParsedPrompt::Command(name, ..) => panic!("a command: {name}"),
    }
}

fn file(part: &PromptPart) -> (&str, &str, &str) {
    match part {
        PromptPart::File { mime, filename, url, .. } => (mime, filename.as_deref().unwrap_or_default(), url),
        other => panic!("{other:?} is no file"),
    }
}

#[test]
fn texts_and_their_audience() {
    let blocks = json!([
        {"type": "text", "text": "a"},
        {"type": "text", "text": "b", "annotations": {"audience": ["assistant"]}},
        {"type": "text", "text": "c", "annotations": {"audience": ["user"]}},
        {"type": "text", "text": "d", "annotations": {"audience": ["user", "assistant"]}},
    ]);
    let texts: Vec<_> = parts(blocks)
        .into_iter()
        .map(|part| match part {
            PromptPart::Text { text, synthetic, .. } => (text, synthetic),
            other => panic!("{other:?}"),
        })
        .collect();
    let want = [("a", None), ("b", Some(true)), ("c", None), ("d", None)];
    assert_eq!(texts, want.map(|(text, synthetic)| (text.to_owned(), synthetic)));
}

#[test]
fn files_of_all_kinds() {
    let blocks = json!([
        {"type": "image", "mimeType": "image/png", "data": "aGk=", "uri": "file:///p/shot.png"},
        {"type": "resource", "resource": {"uri": "file:///p/a.txt#L3", "text": "hi"}},
        {"type": "resource", "resource": {"uri": "file:///x.bin", "mimeType": "application/pdf", "blob": "aGk="}},
        {"type": "resource_link", "uri": "file:///p/b.txt", "name": "b.txt", "mimeType": "text/x"},
        {"type": "resource_link", "uri": "file:///p/c.rs#L3-L9", "name": "c"},
        {"type": "resource_link", "uri": "file:///p/dir/", "name": "dir"},
        {"type": "resource_link", "uri": "zed:///agent/file?path=/p/d.rs#L7:8", "name": "d"},
        {"type": "resource_link", "uri": "https://example.org/page", "name": "page"},
    ]);
    let parts = parts(blocks);
    assert_eq!(file(&parts[0]), ("image/png", "shot.png", "data:image/png;base64,aGk="));
    assert_eq!(file(&parts[1]), ("text/plain", "/p/a.txt", "data:text/plain;base64,aGk="));
    assert_eq!(file(&parts[2]), ("application/pdf", "x.bin", "data:application/pdf;base64,aGk="));
    assert_eq!(file(&parts[3]), ("text/x", "b.txt", "file:///p/b.txt"));
    assert_eq!(file(&parts[4]), ("text/plain", "c", "file:///p/c.rs?start=3&end=9"));
    assert_eq!(file(&parts[5]).0, "application/x-directory");
    assert_eq!(file(&parts[6]).2, "file:///p/d.rs?start=7&end=8");
    assert_eq!(parts[7], PromptPart::text("[page](https://example.org/page)"));
}

#[test]
fn commands_and_mentions() {
    let text = |text: &str| json!([{"type": "text", "text": text}]);
    let parsed = |text_: &str| parse(&text(text_), &["greet"], &["general"]).unwrap();
    assert_eq!(parsed("/greet  Bob B"), ParsedPrompt::Command("greet".into(), "Bob B".into(), vec![]));
    assert_eq!(parsed("/greet"), ParsedPrompt::Command("greet".into(), String::new(), vec![]));
    for plain in ["/greetings", "/etc/hosts is odd", "/", "x /greet"] {
        assert_eq!(parsed(plain), ParsedPrompt::Prompt(vec![PromptPart::text(plain)]));
    }
    let ParsedPrompt::Prompt(parts) = parsed("ask @general, @nobody and @general.") else { panic!("a command") };
    assert_eq!(parts.len(), 2);
    let PromptPart::Agent { name, source: Some(source), .. } = &parts[1] else { panic!("{parts:?}") };
    assert_eq!((name.as_str(), source.value.as_str(), source.start, source.end), ("general", "@general", 4, 12));
}

#[test]
fn errors_name_the_block() {
    for (blocks, want) in [
        (json!({}), "must be a list"),
        (json!([{"type": "bogus"}]), "prompt[0] has the type"),
        (
            json!([{"type": "text", "text": "a"}, {"type": "audio", "mimeType": "audio/wav", "data": "aGk="}]),
            "prompt[1] is audio",
        ),
        (json!([{"type": "text"}]), "needs \"text\""),
        (json!([{"type": "image", "mimeType": "image/png", "data": "***"}]), "not base64"),
        (json!([{"type": "image", "mimeType": "image/png"}]), "\"data\" or \"uri\""),
        (json!([{"type": "resource"}]), "resource.uri"),
        (json!([5]), "needs a \"type\""),
        (Value::Array(vec![json!({"type": "text", "text": ""}); 501]), "at most 500"),
    ] {
        let error = parse(&blocks, &[], &[]).unwrap_err();
        assert!(error.message.contains(want), "{}", error.message);
    }
}

#[test]
fn directories() {
    let check = |cwd: Value| check_directory(Some(&cwd), true);
    assert_eq!(check(json!("/tmp/")).unwrap().directory, "/tmp");
    assert_eq!(check(json!("/")).unwrap().directory, "/");
    for wrong in [json!("relative/path"), json!(""), json!(5), Value::Null, json!("/does/not/exist")] {
        assert_eq!(check(wrong.clone()).unwrap_err().code, crate::rpc::code::INVALID_PARAMS, "{wrong}");
    }
    assert!(check_directory(None, true).is_err());
    assert!(check_directory(Some(&json!("/does/not/exist")), false).is_ok());
}
