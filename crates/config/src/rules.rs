//! Permission rules from their configured forms. What is no action counts as `ask`: a mistake loosens nothing.
//!
//! Files are merged as objects, as OpenCode merges them, and the result is compiled to rules once: a key keeps the place at
//! which it first stood, and a later file changes its value. So `"*": "allow"` in a later file does not lift a denial of `bash`
//! in an earlier one.

use std::path::Path;

use api::{Action, Json, JsonMap, Rule, Ruleset};
use indexmap::IndexMap;

use crate::load::merge::merge;

/// The sections whose entries are agents.
pub(crate) const AGENT_SECTIONS: [&str; 2] = ["agent", "mode"];

/// The rules of a `permission` value, in its order: `"allow"`, `{"bash": "ask"}` or `{"bash": {"git *": "allow"}}`.
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

/// The older `tools` value (`{"write": false}`) as a `permission` value.
fn of_tools(tools: &JsonMap) -> JsonMap {
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

/// The permission under which a tool is judged. OpenCode has no rule for the last two; to take them away is to deny edits.
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

/// Brings the rules of one checked file into the form in which files are merged: `permission` is an object, and that of an
/// agent has its `tools`, too.
pub(crate) fn canonical(config: &mut JsonMap) {
    by_name(config);
    for (_, agent) in agents_of(config) {
        by_name(agent);
        let Some(Json::Object(tools)) = agent.get("tools") else { continue };
        let mut permission = of_tools(tools);
        if let Some(Json::Object(own)) = agent.shift_remove("permission") {
            permission.extend(own);
        }
        agent.insert("permission".to_owned(), Json::Object(permission));
    }
}

/// A single word is about everything.
fn by_name(owner: &mut JsonMap) {
    if let Some(permission) = owner.get_mut("permission").filter(|permission| !permission.is_object()) {
        *permission = serde_json::json!({ "*": permission });
    }
}

/// Puts the `tools` of the merged configuration before its `permission`, which has the last word.
pub(crate) fn fold_tools(config: &mut JsonMap) {
    let tools = config.get("tools").and_then(Json::as_object);
    if let Some(mut permission) = tools.map(of_tools).filter(|permission| !permission.is_empty()) {
        if let Some(Json::Object(own)) = config.shift_remove("permission") {
            merge(&mut permission, own);
        }
        config.insert("permission".to_owned(), Json::Object(permission));
    }
}

/// Replaces the `permission` of the merged configuration, and of each agent in it, by its list of rules.
pub(crate) fn compile(config: &mut JsonMap, home: &Path) {
    compile_one(config, home);
    agents_of(config).for_each(|(_, agent)| compile_one(agent, home));
}

fn compile_one(owner: &mut JsonMap, home: &Path) {
    if let Some(Json::Object(tools)) = owner.get_mut("tools") {
        // One that is to be asked for is neither on nor off.
        tools.retain(|_, on| on.is_boolean());
    }
    if let Some(permission) = owner.shift_remove("permission") {
        let rules = expanded(ruleset(&permission), home);
        if !rules.is_empty() {
            owner.insert("permission".to_owned(), rules.into_iter().map(rule_json).collect());
        }
    }
}

/// Rules in whose patterns a leading `~` or `$HOME` is the home directory. What holds a command back does so as it was written,
/// too: that is how it may stand in the command.
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
pub(crate) struct Strict {
    /// What is held back from every agent. What one agent asks for is asked of every agent, which is too much rather than too
    /// little.
    pub(crate) all: Ruleset,
    /// What is denied to an agent.
    pub(crate) denials: IndexMap<String, Ruleset>,
}

/// Takes the rules out of a configuration of an untrusted repository: they must not be merged with others, since an entry may
/// take the place of a stricter one. The configuration is [canonical].
pub(crate) fn take_strict(config: &mut JsonMap, home: &Path) -> Strict {
    let take = |owner: &mut JsonMap, tools: JsonMap| {
        let own = owner.shift_remove("permission").unwrap_or_else(|| JsonMap::new().into());
        let rules: Ruleset = ruleset(&tools.into()).into_iter().chain(ruleset(&own)).collect();
        // Allowing was taken out before; here it would have no effect.
        expanded(rules, home).into_iter().filter(|rule| rule.action != Action::Allow)
    };
    let tools = config.shift_remove("tools");
    let tools = tools.as_ref().and_then(Json::as_object).map(of_tools).unwrap_or_default();
    let mut strict = Strict { all: take(config, tools).collect(), denials: IndexMap::new() };
    for (name, agent) in agents_of(config) {
        // Its permission has them.
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

/// What is asked for while a file cannot be read that may have held denials.
pub(crate) fn unread() -> Ruleset {
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

    /// Files laid over each other in their order, with their rules compiled.
    fn compiled(files: &[Json]) -> Json {
        let mut all = JsonMap::new();
        for file in files {
            let mut file = map(file.clone());
            canonical(&mut file);
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
    fn every_form_in_its_order() {
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
    fn a_wrong_action_counts_as_ask() {
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

    /// What OpenCode 1.18.33 makes of the same files; the corpus of the server's tests holds this against the real program.
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
        // An agent's are one within each file.
        let agent = |value: Json| json!({"agent": {"a": value}});
        let of_agent = |files: &[Json]| shown(&compiled(files)["agent"]["a"]["permission"]);
        let denied = agent(json!({"permission": {"bash": {"*": "deny"}, "edit": "ask"}}));
        let on = agent(json!({"tools": {"bash": true, "patch": false}, "permission": {"edit": "allow"}}));
        assert_eq!(of_agent(&[denied.clone(), on.clone()]), ["bash * allow", "edit * allow"]);
        assert_eq!(of_agent(&[on, denied]), ["bash * deny", "edit * ask"]);
        assert_eq!(of_agent(&[agent(json!({"permission": {}}))]), [""; 0]);
    }

    #[test]
    fn a_tool_that_only_we_know_is_denied_and_not_allowed() {
        let rules = compiled(&[json!({"tools": {"apply_patch": true, "multiedit": false, "list": "ask"}})]);
        assert_eq!(shown(&rules["permission"]), ["apply_patch * allow", "edit * deny", "list * ask"]);
        assert_eq!(rules["tools"], json!({"apply_patch": true, "multiedit": false}));
    }

    #[test]
    fn the_home_directory_is_written_out() {
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
    fn nothing_of_an_untrusted_file_is_left_to_be_merged() {
        let mut config = map(json!({
            "tools": {"write": false, "list": "ask"}, "permission": {"bash": "ask"},
            "agent": {"a": {"permission": {"edit": "ask", "task": "deny"}}, "b": {"tools": {"read": "ask"}}},
            "mode": {"c": {"permission": {"bash": {"*": "deny"}}}},
        }));
        canonical(&mut config);
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
