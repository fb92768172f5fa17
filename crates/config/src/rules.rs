//! Permission rules from their configured forms. What is no action counts as `ask`: a mistake loosens nothing.

use api::{Action, Json, JsonMap, Rule, Ruleset};

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

/// The rules of the older `tools` value (`{"write": false}`).
fn of_tools(tools: &JsonMap) -> Ruleset {
    let rule = |(tool, on): (&String, &Json)| {
        let action = match on.as_bool() {
            Some(true) => Action::Allow,
            Some(false) => Action::Deny,
            None => Action::Ask,
        };
        Rule::new(permission_of(tool), "*", action)
    };
    tools.iter().map(rule).collect()
}

/// The permission under which a tool is judged: everything that changes files is `edit`.
fn permission_of(tool: &str) -> &str {
    match tool {
        "write" | "edit" | "patch" | "multiedit" | "apply_patch" => "edit",
        other => other,
    }
}

/// Replaces the `permission` of a checked configuration, and of each agent in it, by its list of rules (those of
/// `tools` first), so that merging appends and the later file wins.
pub(crate) fn compile(config: &mut JsonMap) {
    compile_one(config);
    if let Some(Json::Object(agents)) = config.get_mut("agent") {
        agents.values_mut().filter_map(Json::as_object_mut).for_each(compile_one);
    }
}

fn compile_one(owner: &mut JsonMap) {
    let mut rules = Ruleset::new();
    if let Some(Json::Object(tools)) = owner.get_mut("tools") {
        rules.extend(of_tools(tools));
        // One that is to be asked for is neither on nor off.
        tools.retain(|_, on| on.is_boolean());
    }
    if let Some(permission) = owner.shift_remove("permission") {
        rules.extend(ruleset(&permission));
    }
    if !rules.is_empty() {
        owner.insert("permission".to_owned(), rules.into_iter().map(rule_json).collect());
    }
}

/// Takes out of a compiled configuration of an untrusted repository the rules that must not stand among the ordinary
/// ones, where the last match wins: all rules for every agent, and what an agent asks for. An agent's denials stay with
/// it, since nothing is stricter. What an agent asks for is asked of every agent, which is too much rather than too little.
pub(crate) fn take_strict(config: &mut JsonMap) -> Ruleset {
    let read = |rules: Json| -> Ruleset { serde_json::from_value(rules).unwrap_or_default() };
    let mut strict = config.shift_remove("permission").map(read).unwrap_or_default();
    let agents = config.get_mut("agent").and_then(Json::as_object_mut);
    for agent in agents.into_iter().flat_map(|agents| agents.values_mut()).filter_map(Json::as_object_mut) {
        let rules = agent.shift_remove("permission").map(read).unwrap_or_default();
        let (denials, asks): (Ruleset, Ruleset) = rules.into_iter().partition(|rule| rule.action == Action::Deny);
        strict.extend(asks);
        if !denials.is_empty() {
            agent.insert("permission".to_owned(), denials.into_iter().map(rule_json).collect());
        }
    }
    // Allowing was taken out before; here it would have no effect.
    strict.retain(|rule| rule.action != Action::Allow);
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

    #[test]
    fn strict_rules_leave_only_denials_of_agents_behind() {
        let mut config = json!({
            "tools": {"write": false, "list": "ask"}, "permission": {"bash": "ask"},
            "agent": {"a": {"permission": {"edit": "ask", "task": "deny"}}, "b": {"tools": {"read": "ask"}}},
        });
        let map = config.as_object_mut().unwrap();
        compile(map);
        let want = [
            Rule::new("edit", "*", Action::Deny),
            Rule::new("list", "*", Action::Ask),
            Rule::new("bash", "*", Action::Ask),
            Rule::new("edit", "*", Action::Ask),
            Rule::new("read", "*", Action::Ask),
        ];
        assert_eq!(take_strict(map), want);
        let task = json!({"permission": "task", "pattern": "*", "action": "deny"});
        let left = json!({"tools": {"write": false}, "agent": {"a": {"permission": [task]}, "b": {"tools": {}}}});
        assert_eq!(config, left);
    }

    #[test]
    fn tools_become_rules_before_permission() {
        let mut config = json!({
            "tools": {"write": false, "list": true},
            "permission": {"edit": "ask"},
            "agent": {"a": {"permission": "deny"}, "b": {"permission": {}}}
        });
        compile(config.as_object_mut().unwrap());
        let rules: Ruleset = serde_json::from_value(config["permission"].take()).unwrap();
        let want = [
            Rule::new("edit", "*", Action::Deny),
            Rule::new("list", "*", Action::Allow),
            Rule::new("edit", "*", Action::Ask),
        ];
        assert_eq!(rules, want);
        assert_eq!(config["agent"]["a"]["permission"][0]["action"], "deny");
        assert_eq!(config["agent"]["b"], json!({}));
    }
}
