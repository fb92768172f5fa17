use super::*;
use proptest::prelude::*;
use serde_json::json;
use std::os::unix::fs::PermissionsExt;

fn map(value: Json) -> JsonMap {
    match value {
        Json::Object(map) => map,
        other => panic!("not an object: {other}"),
    }
}

fn changed(text: &str, change: Json) -> Result<String, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("opencode.jsonc");
    fs::write(&path, text).unwrap();
    let mut shown = map(jsonc::parse(text.trim_start_matches('\u{feff}'))
        .unwrap_or_default()
        .as_object()
        .cloned()
        .unwrap_or_default()
        .into());
    Redactor::default().config(&mut shown);
    let result = edit(&path, map(change), NewFileAccess::Private, &[shown.into()]);
    let after = fs::read_to_string(&path).unwrap();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left behind");
    match result {
        Ok(hash) => {
            assert_eq!(hash, Some(content_hash(after.as_bytes())));
            Ok(after)
        }
        Err(error) => {
            assert_eq!(after, text, "a refused change changes nothing");
            Err(error.to_string().replace(&path.display().to_string(), "FILE"))
        }
    }
}

#[test]
fn trefoil_keys_are_not_written_to_opencode_files() {
    for change in [json!({"subagents": {"max_concurrent": 2}}), json!({"agent": {"a": {"isolation": "worktree"}}})] {
        let refused = changed("{}", change).unwrap_err();
        assert!(refused.contains("move it to trefoil.json"), "{refused}");
    }
    assert!(changed(r#"{"subagents": {}}"#, json!({"subagents": null})).is_ok(), "it can be taken away");
}

/// A file, what a client sends after reading it, and what the file then contains; `None` if it is refused.
#[test]
fn a_mask_is_never_written() {
    let file = json!({
        "mcp": {"m": {"type": "local", "command": ["npx", "srv", "--api-key", "sk-1", "--url", "https://u:p@h/?token=t"]},
            "r": {"type": "remote", "url": "https://u:p@h/mcp?apiKey=k", "headers": {"X": "v"}}},
        "agent": {"a": {"prompt": "rule\n***\nline", "options": {"token": "t"}}},
    });
    let args = |list: &[&str]| json!({"mcp": {"m": {"command": list}}});
    let shown_args = ["npx", "srv", "--api-key", "***", "--url", "https://***@h/?token=***"];
    let cases = [
        // Sent back as shown: nothing changes.
        (args(&shown_args), Some(json!({}))),
        (json!({"mcp": {"r": {"url": "https://***@h/mcp?apiKey=***", "headers": {"X": "***"}}}}), Some(json!({}))),
        (json!({"agent": {"a": {"options": {"token": "***"}, "prompt": "rule\n***\nline"}}}), Some(json!({}))),
        // Something else changed: the secrets stay.
        (
            args(&["npx", "other", "--api-key", "***", "--more", "--url", "https://***@h/?token=***"]),
            Some(args(&["npx", "other", "--api-key", "sk-1", "--more", "--url", "https://u:p@h/?token=t"])),
        ),
        (
            json!({"mcp": {"r": {"headers": {"X": "***", "Y": "y"}}}}),
            Some(json!({"mcp": {"r": {"headers": {"Y": "y"}}}})),
        ),
        // New secrets are written, and no new place gets a mask.
        (
            json!({"mcp": {"r": {"url": "https://h/?apiKey=new"}}}),
            Some(json!({"mcp": {"r": {"url": "https://h/?apiKey=new"}}})),
        ),
        (json!({"mcp": {"r": {"url": "https://***@other/mcp"}}}), None),
        (args(&["npx", "--token", "***"]), None),
        (json!({"mcp": {"n": {"type": "remote", "url": "https://h/?key=***"}}}), None),
        // Three asterisks in a text are just that.
        (
            json!({"agent": {"a": {"prompt": "other\n***\nline"}}}),
            Some(json!({"agent": {"a": {"prompt": "other\n***\nline"}}})),
        ),
        (json!({"agent": {"b": {"prompt": "a *** b"}}}), Some(json!({"agent": {"b": {"prompt": "a *** b"}}}))),
    ];
    for (change, becomes) in cases {
        let after = changed(&file.to_string(), change.clone());
        let want = becomes.map(|becomes| {
            let mut want = map(file.clone());
            overlay(&mut want, &map(becomes));
            Json::Object(want)
        });
        assert_eq!(after.ok().map(|text| jsonc::parse(&text).unwrap()), want, "{change}");
    }
}

#[test]
fn comments_and_layout_stay() {
    let text = "{\n  // mine\n  \"model\": \"a/b\", // why\n  \"agent\": { \"x\": { \"prompt\": \"p\" } },\n}\n";
    let change = json!({"model": "c/d", "username": "u", "agent": {"x": {"color": "#112233", "prompt": null}}});
    let after = changed(text, change).unwrap();
    for part in ["// mine", "\"model\": \"c/d\", // why", "\"username\": \"u\"", "\"color\": \"#112233\""] {
        assert!(after.contains(part), "{part} in {after}");
    }
    assert!(!after.contains("prompt"), "{after}");
}

#[test]
fn an_empty_or_missing_file_is_created() {
    for text in ["", "// nothing yet\n", "\u{feff}{}"] {
        let after = changed(text, json!({"model": "a/b"})).unwrap();
        let value = jsonc::parse(after.trim_start_matches('\u{feff}')).unwrap();
        assert_eq!(value, json!({"model": "a/b"}), "{after}");
        assert_eq!(after.starts_with('\u{feff}'), text.starts_with('\u{feff}'));
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new/trefoil.json");
    edit(&path, map(json!({"model": "a/b"})), NewFileAccess::Private, &[]).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn an_invalid_change_is_refused_and_explained() {
    for (text, change, part) in [
        ("{}", json!({"model": 5}), "model must be a string, not this number\n  at [\"model\"]"),
        ("{}", json!({"permission": {"bash": "dney"}}), "at [\"permission\"][\"bash\"]"),
        ("{}", json!({"permissions": {"bash": "deny"}}), "permission"),
        ("{}", json!({"command": {"c": {"description": "d"}}}), "command.c has no template"),
        ("{bad", json!({"model": "a/b"}), "FILE: this is not JSON"),
        ("[]", json!({"model": "a/b"}), "FILE: this is not an object"),
        ("{\"model\": \"a/b\", \"model\": \"c/d\"}", json!({"model": "e/f"}), "FILE: a key is defined twice here"),
    ] {
        let message = changed(text, change.clone()).unwrap_err();
        assert!(message.contains(part), "{change}: {message}");
    }
}

#[test]
fn existing_errors_do_not_prevent_a_change() {
    let after = changed("{\"snapshot\": \"no\", \"command\": {\"c\": {}}}", json!({"model": "a/b"})).unwrap();
    assert!(after.contains("a/b"), "{after}");
}

#[test]
fn a_returned_mask_keeps_the_secret() {
    let text = r#"{"provider": {"p": {"options": {"apiKey": "sk-1", "baseURL": "http://a"}}}}"#;
    let change = json!({"provider": {"p": {"options": {"apiKey": MASK, "baseURL": "http://b"}}}});
    let after = changed(text, change).unwrap();
    assert!(after.contains("sk-1") && after.contains("http://b"), "{after}");
}

#[test]
fn a_change_with_only_unknown_keys_is_refused() {
    for (change, key) in [
        (json!({"nonsense": 1}), "nonsense"),
        (json!({"nonsense": {"deep": {"er": []}}}), "nonsense"),
        (json!({"modle": "a/b"}), "did you mean \"model\""),
        (json!({"watcher": {"nonsense": 1}}), "[\"watcher\"][\"nonsense\"]"),
        (json!({"tool_output": {"max_line": 1}, "other": true}), "max_line"),
        (json!({"command": {"c": {"nonsense": "x"}}}), "nonsense"),
    ] {
        for text in ["{}", "{\"model\": \"a/b\"}", "", "// nothing yet\n"] {
            let refused = changed(text, change.clone()).unwrap_err();
            assert!(refused.contains("Nothing was changed") && refused.contains(key), "{change}: {refused}");
        }
    }
    // What is known is taken, and nothing is left of the rest.
    let after = changed("{}", json!({"nonsense": 1, "model": "a/b", "watcher": {"nonsense": 1}})).unwrap();
    assert_eq!(jsonc::parse(&after).unwrap(), json!({"model": "a/b"}));
}

#[test]
fn a_change_without_anything_in_it_makes_no_file() {
    for change in [json!({}), json!({"model": null}), json!({"provider": {"p": {"options": {"apiKey": null}}}})] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("opencode.json");
        assert_eq!(edit(&path, map(change.clone()), NewFileAccess::Shared, &[]).unwrap(), None, "{change}");
        assert!(!path.exists(), "{change}");
    }
    for text in ["", "// nothing yet\n", "{bad"] {
        assert_eq!(changed(text, json!({})).unwrap(), text);
    }
}

#[test]
fn a_linked_file_is_changed_in_its_place_and_keeps_its_mode() {
    let dir = tempfile::tempdir().unwrap();
    let (real, link) = (dir.path().join("dotfiles.json"), dir.path().join("opencode.json"));
    fs::write(&real, "{}").unwrap();
    fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink(&real, &link).unwrap();
    edit(&link, map(json!({"model": "a/b"})), NewFileAccess::Private, &[]).unwrap();
    assert!(fs::read_to_string(&real).unwrap().contains("a/b"));
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o640);
}

proptest! {
    /// Whatever the names and texts are, the file afterwards contains what was asked for, or is unchanged.
    #[test]
    fn any_text_is_written_literally(name in any::<String>(), text in any::<String>(), pretty in any::<bool>()) {
        let old = json!({"agent": {"a": {"prompt": "p"}}, "username": "u"});
        let old = if pretty { serde_json::to_string_pretty(&old).unwrap() } else { old.to_string() };
        let change = json!({"agent": {name.clone(): {"prompt": text.clone()}}, "username": null});
        let after = ConfigChange::new(map(change), &[]).unwrap().apply(&old);
        if text != MASK {
            let Ok(after) = after else { panic!("refused") };
            let value = jsonc::parse(&after).unwrap();
            prop_assert_eq!(&value["agent"][&name]["prompt"], &json!(text));
            prop_assert!(value.get("username").is_none());
        }
    }
}
