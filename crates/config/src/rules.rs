//! Permission rules from their configured forms.

use api::{Action, Json, JsonMap, Rule, Ruleset};

/// The rules of a `permission` value, in its order: `"allow"`, `{"bash": "ask"}` or `{"bash": {"git *": "allow"}}`.
pub fn ruleset(permission: &Json) -> Result<Ruleset, String> {
    let map = match permission {
        Json::Object(map) => map,
        action => return Ok(vec![Rule::new("*", "*", action_of(action, "permission")?)]),
    };
    let mut rules = Ruleset::new();
    for (name, value) in map {
        match value {
            Json::Object(patterns) => {
                for (pattern, action) in patterns {
                    rules.push(Rule::new(name, pattern, action_of(action, &format!("permission.{name}.{pattern}"))?));
                }
            }
            action => rules.push(Rule::new(name, "*", action_of(action, &format!("permission.{name}"))?)),
        }
    }
    Ok(rules)
}

fn action_of(value: &Json, key: &str) -> Result<Action, String> {
    match value.as_str() {
        Some("allow") => Ok(Action::Allow),
        Some("ask") => Ok(Action::Ask),
        Some("deny") => Ok(Action::Deny),
        _ => Err(format!("{key} must be \"allow\", \"ask\" or \"deny\"")),
    }
}

/// The rules of the older `tools` value (`{"write": false}`).
fn of_tools(tools: &JsonMap) -> Ruleset {
    tools
        .iter()
        .filter_map(|(tool, on)| {
            let action = if on.as_bool()? { Action::Allow } else { Action::Deny };
            Some(Rule::new(permission_of(tool), "*", action))
        })
        .collect()
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
    let mut rules = owner.get("tools").and_then(Json::as_object).map(of_tools).unwrap_or_default();
    if let Some(permission) = owner.shift_remove("permission") {
        rules.extend(ruleset(&permission).unwrap_or_default());
    }
    if !rules.is_empty() {
        owner.insert("permission".to_owned(), rules.into_iter().map(rule_json).collect());
    }
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
        let all = ruleset(&json!("ask")).unwrap();
        assert_eq!(all, [Rule::new("*", "*", Action::Ask)]);
        let value = json!({"edit": "deny", "bash": {"*": "ask", "git *": "allow"}, "a*": "allow"});
        let want = [
            Rule::new("edit", "*", Action::Deny),
            Rule::new("bash", "*", Action::Ask),
            Rule::new("bash", "git *", Action::Allow),
            Rule::new("a*", "*", Action::Allow),
        ];
        assert_eq!(ruleset(&value).unwrap(), want);
    }

    #[test]
    fn a_wrong_action_is_named() {
        for value in [json!(1), json!(null), json!({"bash": "yes"}), json!({"bash": {"x": true}}), json!(["ask"])] {
            assert!(ruleset(&value).unwrap_err().contains("permission"), "{value}");
        }
        assert!(ruleset(&json!({"bash": {"x": true}})).unwrap_err().contains("permission.bash.x"));
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
