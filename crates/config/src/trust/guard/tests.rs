use std::path::Path;

use super::*;
use proptest::prelude::*;
use serde_json::json;

use crate::rules;

fn guarded(value: Json) -> (Json, Vec<String>) {
    let Json::Object(mut map) = value else { panic!("not an object") };
    let reasons = guard(&mut map);
    (Json::Object(map), reasons)
}

#[test]
fn harmless_values_stay() {
    let value = json!({
        "$schema": "s", "model": "a/b", "small_model": "a/c", "username": "u", "share": "disabled", "lsp": false,
        "disabled_providers": ["x"], "instructions": ["docs/*.md", "./a..b.md"], "mcp": {"m": {"enabled": false}},
        "permission": {"bash": {"rm *": "deny", "curl *": "ask"}, "edit": {"*": "deny"}},
        "tools": {"write": false}, "env": {"hide": ["AWS_*"]}, "skills": {"paths": ["team/skills"]},
        "agent": {"a": {"prompt": "p", "mode": "subagent", "steps": 3, "isolation": "worktree", "permission": {"*": {"*": "deny"}}}},
        "command": {"c": {"template": "look at @src/a.rs, mail me@x.org, $ARGUMENTS!"}},
        "provider": {"p": {"name": "P", "models": {"m": {"limit": {"context": 1}}}, "options": {"timeout": 5}}},
    });
    assert_eq!(guarded(value.clone()), (value, Vec::new()));
}

#[test]
fn risky_values_are_removed() {
    for (value, left, reason) in [
        (json!({"mcp": {"m": {"command": ["x"]}}}), json!({"mcp": {}}), "mcp.m starts a program"),
        (json!({"mcp": {"m": {"url": "http://x"}}}), json!({"mcp": {}}), "mcp.m connects"),
        (json!({"mcp": {"m": {"enabled": true}}}), json!({"mcp": {}}), "mcp.m starts"),
        (json!({"plugin": ["x"]}), json!({}), "plugin runs code"),
        (json!({"formatter": true}), json!({}), "formatter starts"),
        (json!({"lsp": {"x": {"command": ["y"]}}}), json!({}), "lsp starts"),
        (json!({"shell": "/tmp/x"}), json!({}), "shell"),
        (json!({"server": {"hostname": "0.0.0.0"}}), json!({}), "server"),
        (json!({"share": "auto"}), json!({}), "share"),
        (json!({"snapshot": false}), json!({}), "snapshot"),
        (json!({"default_agent": "x"}), json!({}), "default_agent"),
        (json!({"experimental": {"continue_loop_on_deny": true}}), json!({}), "experimental"),
        (json!({"references": {"x": "/etc"}}), json!({}), "references"),
        (json!({"brand_new": 1}), json!({}), "brand_new"),
        (json!({"subagents": {"max_concurrent": 99, "budget": {"cost": 99}}}), json!({}), "subagents raises a limit"),
        (json!({"ask": {"timeout": 1, "then": "allow"}}), json!({}), "ask decides"),
        (json!({"session": {"max_age_days": 1}}), json!({}), "session deletes"),
        (
            json!({"agent": {"a": {"acp": {"command": ["x"]}, "mode": "all"}}}),
            json!({"agent": {}}),
            "agent.a.acp starts a program",
        ),
        (
            json!({"agent": {"a": {"acp": {"command": ["x"]}, "permission": {"edit": "deny"}}}}),
            json!({"agent": {"a": {"permission": {"edit": {"*": "deny"}}}}}),
            "agent.a.acp starts a program",
        ),
        (
            json!({"agent": {"a": {"a2a": {"url": "https://a"}, "prompt": "x", "permission": {"edit": "deny"}}}}),
            json!({"agent": {"a": {"permission": {"edit": {"*": "deny"}}}}}),
            "agent.a.a2a sends what it is told",
        ),
        (
            json!({"agent": {"a": {"budget": {"cost": 9}}}}),
            json!({"agent": {"a": {}}}),
            "agent.a.budget raises a limit",
        ),
        (
            json!({"provider": {"p": {"options": {"baseURL": "http://x", "headers": {"a": "b"}}, "api": "http://x", "env": ["AWS"], "npm": "y"}}}),
            json!({"provider": {"p": {"options": {}}}}),
            "provider.p.options.baseURL redirects model traffic",
        ),
        (
            json!({"provider": {"p": {"models": {"m": {"provider": {"api": "http://x"}, "headers": {"a": "b"}, "options": {}}}}}}),
            json!({"provider": {"p": {"models": {"m": {}}}}}),
            "provider.p.models.m.provider redirects",
        ),
        (json!({"model": "{env:HOME}/x"}), json!({}), "model reveals"),
        (
            json!({"agent": {"a": {"prompt": "see {file:~/.ssh/id}", "mode": "all"}}}),
            json!({"agent": {"a": {"mode": "all"}}}),
            "agent.a.prompt reveals",
        ),
        (json!({"agent": {"a": {"disable": true}}}), json!({"agent": {"a": {}}}), "agent.a.disable"),
        (
            json!({"agent": {"a": {"permission": {"edit": {"*": "ask"}}}}}),
            json!({"agent": {"a": {"permission": {"edit": {"*": "ask"}}}}}),
            "agent.a.permission.edit.* is asked of every agent",
        ),
        (
            json!({"mode": {"a": {"disable": true, "prompt": "p"}}}),
            json!({"mode": {"a": {"prompt": "p"}}}),
            "mode.a.disable",
        ),
        (json!({"mode": {"a": {"tools": {"bash": true}}}}), json!({"mode": {"a": {"tools": {}}}}), "mode.a.tools.bash"),
        (json!({"agent": {"a": {"store": true}}}), json!({"agent": {"a": {}}}), "agent.a.store"),
        (json!({"tools": {"bash": true, "edit": false}}), json!({"tools": {"edit": false}}), "tools.bash"),
        (json!({"command": {"c": {"template": "x !`id` y"}}}), json!({"command": {}}), "command.c runs shell"),
        (json!({"command": {"c": {"template": "x @/etc/passwd"}}}), json!({"command": {}}), "command.c reads"),
        (json!({"command": {"c": {"template": "x (@../y)"}}}), json!({"command": {}}), "command.c reads"),
        (json!({"command": {"c": {"template": "@~/y"}}}), json!({"command": {}}), "command.c reads"),
        (
            json!({"instructions": ["ok.md", "/etc/x", "../x", "~/x", "https://x/y", "a/../../x"]}),
            json!({"instructions": ["ok.md"]}),
            "instructions reads /etc/x",
        ),
        (json!({"skills": {"urls": ["x"], "paths": ["/x"]}}), json!({"skills": {"paths": []}}), "skills.urls"),
    ] {
        let (after, reasons) = guarded(value.clone());
        assert_eq!(after, left, "{value}");
        assert!(reasons.iter().any(|text| text.starts_with(reason)), "{value}: {reasons:?}");
    }
}

#[test]
fn asking_and_denying_rules_stay_and_allowing_ones_are_removed() {
    let value = json!({"permission": {"bash": {"*": "ask", "git *": "allow"}, "edit": "ask", "read": "deny"}});
    let (left, reasons) = guarded(value);
    assert_eq!(left, json!({"permission": {"bash": {"*": "ask"}, "edit": {"*": "ask"}, "read": {"*": "deny"}}}));
    assert_eq!(reasons, ["permission.bash.git * allows what may be asked or denied"]);
    assert_eq!(guarded(json!({"permission": "allow"})).0, json!({"permission": {}}));
    assert_eq!(guarded(json!({"permission": "deny"})).0, json!({"permission": {"*": {"*": "deny"}}}));
    let tools = json!({"tools": {"write": false, "list": "ask"}});
    assert_eq!(guarded(tools.clone()), (tools, Vec::new()));
}

#[test]
fn markdown_text_is_literal() {
    let Json::Object(mut map) = json!({"agent": {"a": {"prompt": "write {env:X}"}}}) else { panic!() };
    assert_eq!(guard_markdown(&mut map), Vec::<String>::new());
    assert_eq!(map["agent"]["a"]["prompt"], "write {env:X}");
}

#[test]
fn reasons_are_bounded_and_counted() {
    let many: JsonMap = (0..MAX_FINDINGS + 7).map(|n| (format!("key{n}"), json!(1))).collect();
    let (left, reasons) = guarded(Json::Object(many));
    assert_eq!((left, reasons.len()), (json!({}), MAX_FINDINGS + 1));
    assert_eq!(reasons.last().map(String::as_str), Some("and 7 more"));
}

fn any_permission() -> impl Strategy<Value = Json> {
    let action = prop::sample::select(vec!["allow", "ask", "deny"]);
    let names = prop::sample::select(vec!["bash", "edit", "*", "read", "task", "b*"]);
    let patterns = prop::collection::vec((prop::sample::select(vec!["*", "git *", "rm *"]), action.clone()), 0..3);
    let value = prop_oneof![
        action.prop_map(Json::from),
        patterns.prop_map(|p| Json::Object(p.into_iter().map(|(k, v)| (k.to_owned(), v.into())).collect())),
    ];
    prop::collection::vec((names, value), 0..4)
        .prop_map(|p| Json::Object(p.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()))
}

proptest! {
    /// Whatever an untrusted repository says, none of it is merged with the rules of others, and nothing that it asks
    /// for or denies is lost.
    #[test]
    fn nothing_gets_looser(theirs in any_permission()) {
        let (mut left, _) = guarded(json!({"permission": theirs, "agent": {"a": {"permission": theirs}}}));
        let map = left.as_object_mut().unwrap();
        rules::canonicalize(map);
        let strict = rules::take_strict(map, Path::new("/home/u"));
        prop_assert_eq!(&left, &json!({"agent": {"a": {}}}));
        let denials = strict.denials.get("a").cloned().unwrap_or_default();
        prop_assert!(denials.iter().all(|rule| rule.action == Action::Deny));
        for rule in ruleset(&theirs) {
            prop_assert_eq!(strict.all.contains(&rule), rule.action != Action::Allow);
            prop_assert_eq!(denials.contains(&rule), rule.action == Action::Deny);
        }
    }
}
