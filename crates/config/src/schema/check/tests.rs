use super::*;
use serde_json::json;

fn checked(mut value: Json) -> (Json, Vec<String>) {
    let findings = check(&mut value).into_iter().map(|f| format!("{}: {}", f.path.join("/"), f.message)).collect();
    (value, findings)
}

#[test]
fn a_valid_file_is_unchanged() {
    let value = json!({
        "$schema": "x", "model": "a/b", "permission": {"bash": {"*": "ask"}, "edit": "deny"}, "lsp": false,
        "agent": {"a": {"temperature": 0.5, "reasoningEffort": "high"}},
        "provider": {"p": {"options": {"timeout": false, "anything": [1]}, "models": {"m": {"variants": {"v": {"x": 1}}}}}},
        "mcp": {"m": {"enabled": false}}, "plugin": ["a", ["b", {"c": 1}]],
    });
    assert_eq!(checked(value.clone()), (value, Vec::new()));
}

#[test]
fn unknown_keys_and_invalid_values_are_removed() {
    let (value, findings) = checked(json!({
        "modle": "x", "zzz": 1, "model": 5, "username": "u", "autoupdate": "never", "snapshot": null,
        "permission": {"bash": {"git *": "maybe", "ls": "allow"}}, "instructions": ["a", 1, "b"],
        "tool_output": {"max_lines": 1e3, "max_bytes": 0}, "mcp": {"m": {"type": "pipe"}},
    }));
    let want = json!({
        "username": "u", "permission": {"bash": {"git *": "ask", "ls": "allow"}}, "instructions": ["a", "b"],
        "tool_output": {"max_lines": 1000}, "mcp": {"m": {}},
    });
    assert_eq!(value, want);
    let all = findings.join("\n");
    for part in [
        "modle: unknown key \"modle\"; did you mean \"model\"?",
        "zzz: unknown key \"zzz\" is ignored; known are $schema",
        "model: model must be a string, not this number",
        "autoupdate must be true or false or \"notify\"",
        "permission/bash/git *: permission.bash.git * must be \"allow\" or \"ask\" or \"deny\"",
        "instructions/1: instructions.1 must be a string",
        "tool_output.max_bytes must be a whole number of at least 1",
        "mcp.m.type must be \"local\" or \"remote\"",
        "snapshot must be true or false, not null",
    ] {
        assert!(all.contains(part), "{part} in\n{all}");
    }
    assert_eq!(findings.len(), 9);
}

#[test]
fn an_invalid_rule_counts_as_ask_in_its_position() {
    let (value, findings) = checked(json!({
        "permission": {"bash": {"rm *": "dney", "*": "allow", "dd *": 5}, "edit": null, "read": ["deny"]},
        "tools": {"write": "off", "bash": true},
        "agent": {"a": {"permission": ["deny"], "tools": []}, "b": {"permission": "no"}},
    }));
    let want = json!({
        "permission": {"bash": {"rm *": "ask", "*": "allow", "dd *": "ask"}, "edit": "ask", "read": "ask"},
        "tools": {"write": "ask", "bash": true},
        "agent": {"a": {"permission": "ask", "tools": {"*": "ask"}}, "b": {"permission": "ask"}},
    });
    assert_eq!(value.to_string(), want.to_string());
    assert_eq!(findings.len(), 8, "{findings:?}");
    assert!(findings.iter().all(|text| text.contains(" must be ") && text.ends_with("; it counts as ask")));
    assert!(findings[0].starts_with("permission/bash/rm *: permission.bash.rm * must be \"allow\""), "{findings:?}");
}

#[test]
fn an_unknown_permission_is_reported_and_kept() {
    let value = json!({"permission": {
            "bsh": "deny", "zebra": {"x": "ask"}, "doom_loop": "ask", "w*": "ask", "git_push": "deny", "bash": "ask",
        }, "agent": {"a": {"permission": {"edti": "deny"}}}});
    let (after, findings) = checked(value.clone());
    assert_eq!(after, value);
    assert_eq!(findings.len(), 3, "{findings:?}");
    let named = |part: &str| findings.iter().any(|text| text.contains(part));
    assert!(named("permission/bsh: unknown permission \"bsh\", perhaps meant as \"bash\""), "{findings:?}");
    assert!(named("unknown permission \"zebra\"; known are read, edit"), "{findings:?}");
    assert!(named("agent/a/permission/edti: unknown permission \"edti\", perhaps meant as"), "{findings:?}");
}

#[test]
fn rules_below_a_mistyped_key_are_reported_as_lost() {
    let lossy = |mut value: Json| -> Vec<String> {
        let lossy = check(&mut value).into_iter().filter(|f| f.affects != AffectedAgents::None);
        lossy.map(|f| f.path.join(".")).collect()
    };
    for (value, path) in [
        (json!({"permissions": {"bash": "deny"}}), "permissions"),
        (json!({"Permission": "deny"}), "Permission"),
        (json!({"tool": {"write": false}}), "tool"),
        (json!({"agents": {"build": {"permission": {"edit": "deny"}}}}), "agents"),
        (json!({"agent": {"build": {"permisson": {"edit": "deny"}}}}), "agent.build.permisson"),
        (json!({"permission": {"edti": "deny"}}), "permission.edti"),
        (json!({"permission": {"zebra": ["deny"]}}), "permission.zebra"),
    ] {
        assert_eq!(lossy(value.clone()), [path], "{value}");
    }
    for value in [
        json!({"modle": "a/b", "agents": {"build": {"model": "a/b"}}, "zzz": {"permission": "deny"}}),
        json!({"permission": {"zebra": {"x": "deny"}, "git_push": "deny", "bash": ["deny"]}}),
        json!({"agent": {"build": {"reasoningEffort": "high"}}}),
    ] {
        assert_eq!(lossy(value.clone()), [""; 0], "{value}");
    }
}

#[test]
fn a_mistyped_key_in_an_agent_affects_that_agent() {
    let affects = |mut value: Json| check(&mut value).into_iter().map(|f| f.affects).max().unwrap_or_default();
    for section in AGENT_SECTIONS {
        for wrong in [
            json!({"permissions": {"bash": "deny"}}),
            json!({"permisson": "deny"}),
            json!({"tool": {"bash": false}}),
            json!({"permission": {"bahs": "deny"}}),
            json!({"permission": {"zebra": ["deny"]}}),
        ] {
            let file = json!({section: {"a": wrong, "b": {"permission": {"bash": "deny"}}}});
            assert_eq!(affects(file.clone()), AffectedAgents::Named(vec!["a".to_owned()]), "{file}");
            assert_eq!(affects(json!({"agents": {"a": {"permission": wrong}}})), AffectedAgents::All);
        }
    }
    for wrong in [json!({"permissions": "deny"}), json!({"permission": {"bahs": "deny"}})] {
        assert_eq!(affects(wrong.clone()), AffectedAgents::All, "{wrong}");
    }
}

#[test]
fn a_mistyped_key_counts_even_among_findings_that_are_only_counted() {
    let mut many: api::JsonMap = (0..MAX_FINDINGS).map(|n| (format!("key{n}"), json!(1))).collect();
    many.insert("permissions".to_owned(), json!({"bash": "deny"}));
    let findings = check(&mut Json::Object(many));
    assert_eq!(
        findings.into_iter().map(|f| f.affects).collect::<Vec<_>>(),
        [vec![AffectedAgents::None; MAX_FINDINGS], vec![AffectedAgents::All]].concat()
    );
}

#[test]
fn limits_are_checked_and_reported_in_opencode_files() {
    let (value, findings) = checked(json!({
        "subagents": {"max_concurrent": 0, "descendants": 0, "budget": {"cost": -1, "tokens": 5, "minutes": 1}},
        "ask": {"timeout": 60, "then": "maybe"}, "session": {"max_age_days": 0},
        "agent": {"a": {"isolation": "container", "budget": {"seconds": 1.5}}, "b": {"isolation": "worktree"},
            "c": {"acp": {"command": ["x"], "silence": 0}}, "d": {"a2a": {"url": "https://a", "version": "2.0"}}},
    }));
    let left = json!({
        "subagents": {"descendants": 0, "budget": {"tokens": 5}}, "ask": {"timeout": 60}, "session": {},
        "agent": {"a": {"budget": {}}, "b": {"isolation": "worktree"}, "c": {"acp": {"command": ["x"]}},
            "d": {"a2a": {"url": "https://a"}}},
    });
    assert_eq!((value.clone(), findings.len()), (left, 9), "{findings:?}");
    assert!(findings[1].contains("subagents.budget.cost must be a number above 0"), "{findings:?}");
    let keys: Vec<_> = trefoil_only_keys(value.as_object().unwrap()).into_iter().map(|f| f.path.join(".")).collect();
    assert_eq!(
        keys,
        ["ask", "session", "subagents", "agent.a.budget", "agent.b.isolation", "agent.c.acp", "agent.d.a2a"]
    );
}

#[test]
fn an_invalid_list_of_tools_is_empty() {
    for (only, left, findings) in [
        (json!(["read"]), json!(["read"]), 0),
        (json!(["read", 1]), json!(["read"]), 1),
        (json!("read"), json!([]), 1),
        (json!({"read": true}), json!([]), 1),
        (json!(null), json!([]), 1),
    ] {
        let (value, found) = checked(json!({"agent": {"a": {"only": only}}}));
        assert_eq!((&value["agent"]["a"]["only"], found.len()), (&left, findings), "{only}: {found:?}");
    }
}

#[test]
fn a_file_that_is_not_an_object_is_empty() {
    for value in [json!([]), json!("x"), json!(1)] {
        let (value, findings) = checked(value);
        assert_eq!((value, findings.len()), (json!({}), 1));
    }
}

#[test]
fn findings_are_bounded() {
    let many: api::JsonMap = (0..10_000).map(|n| (format!("key{n}"), json!(1))).collect();
    let (value, findings) = checked(Json::Object(many));
    assert_eq!(value, json!({}));
    assert_eq!(findings.len(), MAX_FINDINGS + 1);
    assert!(findings[MAX_FINDINGS].contains("9950 more"));
}

#[test]
fn secrets_are_not_repeated() {
    let (_, findings) = checked(json!({"provider": {"p": "sk-secret", "q": {"options": "sk-secret"}}}));
    assert!(findings.iter().all(|text| !text.contains("secret")), "{findings:?}");
}
