//! Compiles permission rules from their configured forms. An invalid action counts as `ask`, so that a mistake loosens
//! nothing.
//!
//! Files are merged as objects, as in OpenCode, and the result is compiled to rules once: a key keeps its first
//! position, and a later file changes its value. So `"*": "allow"` in a later file does not lift a denial of `bash` in
//! an earlier one.

use std::path::Path;

use api::{Action, Json, JsonMap, Rule, Ruleset};
use indexmap::IndexMap;

use crate::load::merge::merge;

/// The sections whose entries are agents.
pub(crate) const AGENT_SECTIONS: [&str; 2] = ["agent", "mode"];

/// The rules of a `permission` value, in order: `"allow"`, `{"bash": "ask"}` or `{"bash": {"git *": "allow"}}`.
pub(crate) fn ruleset(permission: &Json) -> Ruleset {
    let Json::Object(map) = permission else { return vec![Rule::new("*", "*", action_of(permission))] };
    let mut rules = Ruleset::new();
    for (name, value) in map {
        match value {
            Json::Object(patterns) => {
                for (pattern, action) in patterns {
                    rules.push(Rule::new(name, pattern, action_of(action)));
                }
            }
            action => rules.push(Rule::new(name, "*", action_of(action))),
        }
    }
    rules
}

fn action_of(value: &Json) -> Action {
    match value.as_str() {
        Some("allow") => Action::Allow,
        Some("deny") => Action::Deny,
        _ => Action::Ask,
    }
}

/// Converts the older `tools` value (`{"write": false}`) to a `permission` value.
fn permissions_of_tools(tools: &JsonMap) -> JsonMap {
    let entry = |(tool, on): (&String, &Json)| {
        let action = match on.as_bool() {
            Some(true) => "allow",
            Some(false) => "deny",
            None => "ask",
        };
        (permission_of(tool, action).to_owned(), action.into())
    };
    tools.iter().map(entry).collect()
}

/// The permission that governs a tool. OpenCode has no rule for the last two; disabling them denies edits.
fn permission_of<'a>(tool: &'a str, action: &str) -> &'a str {
    match tool {
        "write" | "edit" | "patch" => "edit",
        "multiedit" | "apply_patch" if action != "allow" => "edit",
        other => other,
    }
}

/// The agents of a configuration, by section and name.
fn agents_of(config: &mut JsonMap) -> impl Iterator<Item = (&String, &mut JsonMap)> {
    let sections = config.iter_mut().filter(|(key, _)| AGENT_SECTIONS.contains(&key.as_str()));
    let agents = sections.filter_map(|(_, agents)| agents.as_object_mut()).flatten();
    agents.filter_map(|(name, agent)| Some((name, agent.as_object_mut()?)))
}

/// Converts the rules of a checked file to the form in which files are merged: `permission` is an object, and an
/// agent's includes its `tools`.
pub(crate) fn canonicalize(config: &mut JsonMap) {
    expand_single_action(config);
    for (_, agent) in agents_of(config) {
        expand_single_action(agent);
        let Some(Json::Object(tools)) = agent.get("tools") else { continue };
        let mut permission = permissions_of_tools(tools);
        if let Some(Json::Object(own)) = agent.shift_remove("permission") {
            permission.extend(own);
        }
        agent.insert("permission".to_owned(), Json::Object(permission));
    }
}

/// Applies a single action to everything.
fn expand_single_action(owner: &mut JsonMap) {
    if let Some(permission) = owner.get_mut("permission").filter(|permission| !permission.is_object()) {
        *permission = serde_json::json!({ "*": permission });
    }
}

/// Puts the `tools` of the merged configuration before its `permission`, which takes precedence.
pub(crate) fn fold_tools(config: &mut JsonMap) {
    let tools = config.get("tools").and_then(Json::as_object);
    if let Some(mut permission) = tools.map(permissions_of_tools).filter(|permission| !permission.is_empty()) {
        if let Some(Json::Object(own)) = config.shift_remove("permission") {
            merge(&mut permission, own);
        }
        config.insert("permission".to_owned(), Json::Object(permission));
    }
}

/// Replaces the `permission` of the merged configuration and of each agent by its list of rules.
pub(crate) fn compile(config: &mut JsonMap, home: &Path) {
    compile_one(config, home);
    agents_of(config).for_each(|(_, agent)| compile_one(agent, home));
}

fn compile_one(owner: &mut JsonMap, home: &Path) {
    if let Some(Json::Object(tools)) = owner.get_mut("tools") {
        // A tool that needs asking is neither on nor off.
        tools.retain(|_, on| on.is_boolean());
    }
    if let Some(permission) = owner.shift_remove("permission") {
        let rules = expanded(ruleset(&permission), home);
        if !rules.is_empty() {
            owner.insert("permission".to_owned(), rules.into_iter().map(rule_json).collect());
        }
    }
}

/// Expands a leading `~` or `$HOME` in patterns to the home directory. Rules that restrict commands also stay as
/// written, because a command may contain that form.
pub(crate) fn expanded(rules: Ruleset, home: &Path) -> Ruleset {
    let mut all = Ruleset::with_capacity(rules.len());
    for rule in rules {
        let rest = match rule.pattern.as_str() {
            "~" => Some(""),
            pattern if pattern.starts_with("~/") => Some(&pattern[1..]),
            pattern => pattern.strip_prefix("$HOME"),
        };
        let Some(rest) = rest else {
            all.push(rule);
            continue;
        };
        let expanded = Rule::new(&rule.permission, format!("{}{rest}", home.display()), rule.action);
        if rule.action != Action::Allow && api::wildcard(&rule.permission, "bash") {
            all.push(rule);
        }
        all.push(expanded);
    }
    all
}

/// The rules of an untrusted file.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct StrictRules {
    /// Restrictions for all agents. What one agent has to ask for, all agents have to ask for, which is too strict
    /// rather than too loose.
    pub(crate) all: Ruleset,
    /// Denials for single agents.
    pub(crate) denials: IndexMap<String, Ruleset>,
}

/// Removes the rules from the configuration of an untrusted repository: they must not be merged with others, since an
/// entry could replace a stricter one. The configuration is [canonical](canonicalize).
pub(crate) fn take_strict(config: &mut JsonMap, home: &Path) -> StrictRules {
    let take = |owner: &mut JsonMap, tools: JsonMap| {
        let own = owner.shift_remove("permission").unwrap_or_else(|| JsonMap::new().into());
        let rules: Ruleset = ruleset(&tools.into()).into_iter().chain(ruleset(&own)).collect();
        // Allowing rules were removed before; here they would have no effect.
        expanded(rules, home).into_iter().filter(|rule| rule.action != Action::Allow)
    };
    let tools = config.shift_remove("tools");
    let tools = tools.as_ref().and_then(Json::as_object).map(permissions_of_tools).unwrap_or_default();
    let mut strict = StrictRules { all: take(config, tools).collect(), denials: IndexMap::new() };
    for (name, agent) in agents_of(config) {
        // They are part of its permission.
        agent.shift_remove("tools");
        let (denials, asks): (Ruleset, Ruleset) =
            take(agent, JsonMap::new()).partition(|rule| rule.action == Action::Deny);
        strict.all.extend(asks);
        if !denials.is_empty() {
            strict.denials.entry(name.clone()).or_default().extend(denials);
        }
    }
    strict
}

/// Asks for everything risky while a file that may have had denials cannot be read.
pub(crate) fn fallback_rules() -> Ruleset {
    ["bash", "edit", "webfetch", "task"].map(|name| Rule::new(name, "*", Action::Ask)).to_vec()
}

fn rule_json(rule: Rule) -> Json {
    serde_json::json!({ "permission": rule.permission, "pattern": rule.pattern, "action": rule.action })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const HOME: &str = "/home/u";

    fn map(value: Json) -> JsonMap {
        let Json::Object(map) = value else { panic!("not an object: {value}") };
        map
    }

    /// Merges files in order and compiles their rules.
    fn compiled(files: &[Json]) -> Json {
        let mut all = JsonMap::new();
        for file in files {
            let mut file = map(file.clone());
            canonicalize(&mut file);
            merge(&mut all, file);
        }
        fold_tools(&mut all);
        compile(&mut all, Path::new(HOME));
        Json::Object(all)
    }

    fn shown(rules: &Json) -> Vec<String> {
        let rules: Ruleset = serde_json::from_value(rules.clone()).unwrap_or_default();
        rules.iter().map(|r| format!("{} {} {:?}", r.permission, r.pattern, r.action).to_lowercase()).collect()
    }

    #[test]
    fn all_forms_keep_their_order() {
        let all = ruleset(&json!("ask"));
        assert_eq!(all, [Rule::new("*", "*", Action::Ask)]);
        let value = json!({"edit": "deny", "bash": {"*": "ask", "git *": "allow"}, "a*": "allow"});
        let want = [
            Rule::new("edit", "*", Action::Deny),
            Rule::new("bash", "*", Action::Ask),
            Rule::new("bash", "git *", Action::Allow),
            Rule::new("a*", "*", Action::Allow),
        ];
        assert_eq!(ruleset(&value), want);
    }

    #[test]
    fn an_invalid_action_counts_as_ask() {
        for (value, permission, pattern) in [
            (json!(1), "*", "*"),
            (json!(null), "*", "*"),
            (json!(["deny"]), "*", "*"),
            (json!({"bash": "dney"}), "bash", "*"),
            (json!({"bash": {"x": true}}), "bash", "x"),
        ] {
            assert_eq!(ruleset(&value), [Rule::new(permission, pattern, Action::Ask)], "{value}");
        }
    }

    /// What OpenCode 1.18.33 makes of the same files; a corpus in the server's tests checks this against the real
    /// program.
    #[test]
    fn files_are_merged_before_they_are_compiled() {
        for (files, want) in [
            (vec![json!({"*": "ask", "bash": "deny"}), json!({"*": "allow"})], vec!["* * allow", "bash * deny"]),
            (vec![json!({"bash": "deny", "*": "ask"}), json!("allow")], vec!["bash * deny", "* * allow"]),
            (vec![json!("deny"), json!({"bash": "allow"})], vec!["* * deny", "bash * allow"]),
            (
                vec![json!({"bash": {"*": "ask", "rm *": "deny"}}), json!({"bash": {"*": "allow", "ls *": "ask"}})],
                vec!["bash * allow", "bash rm * deny", "bash ls * ask"],
            ),
            (
                vec![json!({"bash": {"rm *": "deny"}, "edit": "ask"}), json!({"bash": "allow"})],
                vec!["bash * allow", "edit * ask"],
            ),
            (vec![json!({"bash": "deny"}), json!({"bash": {"ls": "allow"}})], vec!["bash ls allow"]),
            (
                vec![json!({"bash": "ask"}), json!({"edit": "deny"}), json!({"bash": "deny", "edit": "ask"})],
                vec!["bash * deny", "edit * ask"],
            ),
        ] {
            let top: Vec<Json> = files.iter().map(|rules| json!({ "permission": rules })).collect();
            assert_eq!(shown(&compiled(&top)["permission"]), want, "{files:?}");
            let agent: Vec<Json> = files.iter().map(|rules| json!({"agent": {"a": {"permission": rules}}})).collect();
            assert_eq!(shown(&compiled(&agent)["agent"]["a"]["permission"]), want, "{files:?}");
        }
    }

    #[test]
    fn tools_come_before_permission_whichever_file_has_them() {
        let of_top = |files: &[Json]| shown(&compiled(files)["permission"]);
        let tools = json!({"tools": {"bash": true, "write": false}});
        assert_eq!(of_top(&[json!({"permission": {"bash": "deny"}}), tools.clone()]), ["bash * deny", "edit * deny"]);
        assert_eq!(
            of_top(&[tools.clone(), json!({"permission": {"*": "ask"}})]),
            ["bash * allow", "edit * deny", "* * ask"]
        );
        assert_eq!(of_top(&[tools, json!({"tools": {"bash": false}})]), ["bash * deny", "edit * deny"]);
        // An agent's `tools` are merged within each file.
        let agent = |value: Json| json!({"agent": {"a": value}});
        let of_agent = |files: &[Json]| shown(&compiled(files)["agent"]["a"]["permission"]);
        let denied = agent(json!({"permission": {"bash": {"*": "deny"}, "edit": "ask"}}));
        let on = agent(json!({"tools": {"bash": true, "patch": false}, "permission": {"edit": "allow"}}));
        assert_eq!(of_agent(&[denied.clone(), on.clone()]), ["bash * allow", "edit * allow"]);
        assert_eq!(of_agent(&[on, denied]), ["bash * deny", "edit * ask"]);
        assert_eq!(of_agent(&[agent(json!({"permission": {}}))]), [""; 0]);
    }

    #[test]
    fn disabling_a_tool_that_only_we_know_denies_edits() {
        let rules = compiled(&[json!({"tools": {"apply_patch": true, "multiedit": false, "list": "ask"}})]);
        assert_eq!(shown(&rules["permission"]), ["apply_patch * allow", "edit * deny", "list * ask"]);
        assert_eq!(rules["tools"], json!({"apply_patch": true, "multiedit": false}));
    }

    #[test]
    fn the_home_directory_is_expanded() {
        for (pattern, want) in [
            ("~", Some("/home/u")),
            ("~/", Some("/home/u/")),
            ("~/x/*", Some("/home/u/x/*")),
            ("$HOME", Some("/home/u")),
            ("$HOME/x/*", Some("/home/u/x/*")),
            ("$HOME*", Some("/home/u*")),
            ("~x/*", None),
            ("/a/~/b", None),
            ("a$HOME/b", None),
            ("*", None),
        ] {
            for (action, word) in [(Action::Allow, "allow"), (Action::Ask, "ask"), (Action::Deny, "deny")] {
                for name in ["external_directory", "bash", "*"] {
                    let rule = |pattern: &str| Rule::new(name, pattern, action);
                    let held_back = action != Action::Allow && name != "external_directory";
                    let written = (held_back || want.is_none()).then(|| rule(pattern));
                    let all: Ruleset = written.into_iter().chain(want.map(rule)).collect();
                    let file = json!({name: {pattern: word}});
                    let value = compiled(&[json!({"permission": file, "agent": {"a": {"permission": file}}})]);
                    let read = |value: &Json| -> Ruleset { serde_json::from_value(value.clone()).unwrap() };
                    assert_eq!(read(&value["permission"]), all, "{pattern}");
                    assert_eq!(read(&value["agent"]["a"]["permission"]), all, "{pattern}");
                    let strict = take_strict(&mut map(json!({"permission": file})), Path::new(HOME)).all;
                    assert_eq!(strict, if action == Action::Allow { Ruleset::new() } else { all }, "{pattern}");
                }
            }
        }
    }

    #[test]
    fn no_rule_of_an_untrusted_file_is_left_to_merge() {
        let mut config = map(json!({
            "tools": {"write": false, "list": "ask"}, "permission": {"bash": "ask"},
            "agent": {"a": {"permission": {"edit": "ask", "task": "deny"}}, "b": {"tools": {"read": "ask"}}},
            "mode": {"c": {"permission": {"bash": {"*": "deny"}}}},
        }));
        canonicalize(&mut config);
        let all = [
            Rule::new("edit", "*", Action::Deny),
            Rule::new("list", "*", Action::Ask),
            Rule::new("bash", "*", Action::Ask),
            Rule::new("edit", "*", Action::Ask),
            Rule::new("read", "*", Action::Ask),
        ];
        let strict = take_strict(&mut config, Path::new(HOME));
        assert_eq!(strict.all, all);
        let denials = [("a", Rule::new("task", "*", Action::Deny)), ("c", Rule::new("bash", "*", Action::Deny))];
        assert_eq!(strict.denials, denials.map(|(name, rule)| (name.to_owned(), vec![rule])).into());
        assert_eq!(Json::Object(config), json!({"agent": {"a": {}, "b": {}}, "mode": {"c": {}}}));
    }
}
