//! Checks a configuration against the schema: unknown keys are reported, values of the wrong type are removed. Only
//! rules are never removed, since they may have been denials: an invalid one is reported and counts as `ask`. Rules
//! under a mistyped key have no effect, so their agent asks instead, or all agents if they belong to none.

use api::{Json, JsonMap};

use crate::problem::{AffectedAgents, Problem, Severity};
use crate::rules::AGENT_SECTIONS;
use crate::schema::suggest::nearest;
use crate::schema::{ACTIONS, CONFIG, Field, OWN_AGENT_KEYS, OWN_KEYS, PERMISSIONS, Shape};

/// Further findings in a file are only counted.
pub(crate) const MAX_FINDINGS: usize = 50;

/// A mismatch with the schema.
pub(crate) struct Finding {
    /// Keys and indexes from the root.
    pub(crate) path: Vec<String>,
    /// What is wrong.
    pub(crate) message: String,
    /// How serious it is.
    pub(crate) severity: Severity,
    /// The agents whose rules have no effect because of it.
    pub(crate) affects: AffectedAgents,
}

impl Finding {
    /// Converts it to a problem without a position.
    pub(crate) fn problem(&self) -> Problem {
        let problem = Problem { severity: self.severity, ..Problem::error(&self.message) };
        problem.about(self.path.join(".")).affecting(self.affects.clone())
    }
}

/// Removes what does not match the schema from a configuration, and reports it.
pub(crate) fn check(config: &mut Json) -> Vec<Finding> {
    let mut checker = Checker { path: Vec::new(), findings: Vec::new(), more: 0, more_affected: AffectedAgents::None };
    if !checker.check(config, &CONFIG) {
        *config = Json::Object(Default::default());
    }
    if checker.more > 0 {
        let message = format!("{} more problems in this file", checker.more);
        let affects = std::mem::take(&mut checker.more_affected);
        checker.findings.push(Finding { path: Vec::new(), message, severity: Severity::Error, affects });
    }
    checker.findings
}

/// Finds Trefoil's own keys in a file that OpenCode reads, too: they have an effect, but OpenCode trips over them.
pub(crate) fn trefoil_only_keys(config: &JsonMap) -> Vec<Finding> {
    let finding = |path: Vec<String>, so: &str| {
        let message = format!("{} is known only to Trefoil, and {so}: move it to trefoil.json", path.join("."));
        Finding { path, message, severity: Severity::Warning, affects: AffectedAgents::None }
    };
    let own = OWN_KEYS.iter().filter(|key| config.contains_key(**key));
    let mut findings: Vec<_> =
        own.map(|key| finding(vec![(*key).to_owned()], "OpenCode refuses a file with it")).collect();
    for section in AGENT_SECTIONS {
        for (name, agent) in config.get(section).and_then(Json::as_object).into_iter().flatten() {
            let own = OWN_AGENT_KEYS.iter().filter(|key| agent.get(**key).is_some());
            findings.extend(own.map(|key| {
                let path = vec![section.to_owned(), name.clone(), (*key).to_owned()];
                finding(path, "OpenCode sends it to the agent's provider")
            }));
        }
    }
    findings.truncate(MAX_FINDINGS);
    findings
}

struct Checker {
    path: Vec<String>,
    findings: Vec<Finding>,
    more: usize,
    /// The agents affected by findings that are only counted.
    more_affected: AffectedAgents,
}

impl Checker {
    /// Checks a value. Parts that do not match are removed and reported. Returns whether the value itself stays.
    fn check(&mut self, value: &mut Json, shape: &Shape) -> bool {
        match (shape, &mut *value) {
            (Shape::Any, _) | (Shape::Text, Json::String(_)) | (Shape::Flag, Json::Bool(_)) => true,
            (Shape::Number, Json::Number(_)) => true,
            (Shape::Amount, Json::Number(number)) if number.as_f64().is_some_and(|n| n > 0.0) => true,
            (Shape::Count(least), Json::Number(number)) => match whole(number) {
                Some(count) if count >= *least => {
                    *value = count.into();
                    true
                }
                _ => self.reject(value, shape),
            },
            (Shape::Word(words), Json::String(word)) if words.contains(&word.as_str()) => true,
            (Shape::List(item), Json::Array(list)) => {
                let mut index = 0;
                list.retain_mut(|value| {
                    let stays = self.step(index.to_string(), |this| this.check(value, item));
                    index += 1;
                    stays
                });
                true
            }
            (Shape::Map(item), Json::Object(map)) => {
                map.retain(|key, value| self.step(key.clone(), |this| this.check(value, item)));
                true
            }
            (Shape::Object(fields), Json::Object(map)) => {
                map.retain(|key, value| self.field(key, value, fields, false));
                true
            }
            (Shape::Open(fields), Json::Object(map)) => {
                map.retain(|key, value| self.field(key, value, fields, true));
                true
            }
            (Shape::Either(shapes), _) => match shapes.iter().find(|shape| same_kind(shape, value)) {
                Some(shape) => self.check(value, shape),
                None => self.reject(value, shape),
            },
            (Shape::Permission, _) => {
                self.permission(value);
                true
            }
            (Shape::Tools, _) => {
                self.tools(value);
                true
            }
            (Shape::Only, Json::Array(_)) => self.check(value, &Shape::List(&Shape::Text)),
            (Shape::Only, _) => {
                self.report_mismatch(value, shape, "so the agent may use no tool");
                *value = Json::Array(Vec::new());
                true
            }
            _ => self.reject(value, shape),
        }
    }

    fn permission(&mut self, value: &mut Json) {
        let Json::Object(names) = value else { return self.action(value) };
        for (name, value) in names {
            self.step(name.clone(), |this| {
                this.permission_name(name, value);
                let Json::Object(patterns) = value else { return this.action(value) };
                for (pattern, action) in patterns {
                    this.step(pattern.clone(), |this| this.action(action));
                }
            });
        }
    }

    fn action(&mut self, value: &mut Json) {
        if !value.as_str().is_some_and(|word| ACTIONS.contains(&word)) {
            self.treat_as_ask(value, &Shape::Word(ACTIONS));
            *value = "ask".into();
        }
    }

    /// A mistyped name guards nothing. A name with `_` may be an MCP tool, which is not known here; any other unknown
    /// name may be a tool too, as long as its value is a rule.
    fn permission_name(&mut self, name: &str, value: &Json) {
        if PERMISSIONS.contains(&name) || name.contains(['*', '?', '_']) {
            return;
        }
        if let Some(known) = nearest(name, PERMISSIONS.iter().copied()) {
            return self.mistyped("permission", name, known);
        }
        let message = format!("unknown permission \"{name}\"; known are {}", PERMISSIONS.join(", "));
        match value.is_string() || value.is_object() {
            true => self.report(message, Severity::Warning),
            false => self.report_lost_rules(message),
        }
    }

    /// Reports that the rules below this name have no effect.
    fn mistyped(&mut self, what: &str, name: &str, known: &str) {
        self.report_lost_rules(format!(
            "unknown {what} \"{name}\", perhaps meant as \"{known}\": its rules do not count"
        ));
    }

    fn tools(&mut self, value: &mut Json) {
        let Json::Object(tools) = value else {
            self.treat_as_ask(value, &Shape::Tools);
            *value = serde_json::json!({"*": "ask"});
            return;
        };
        for (tool, on) in tools.iter_mut().filter(|(_, on)| !on.is_boolean()) {
            self.step(tool.clone(), |this| this.treat_as_ask(on, &Shape::Flag));
            *on = "ask".into();
        }
    }

    fn field(&mut self, key: &str, value: &mut Json, fields: &[Field], open: bool) -> bool {
        self.step(key.to_owned(), |this| {
            if let Some((_, shape)) = fields.iter().find(|(name, _)| *name == key) {
                return this.check(value, shape);
            }
            let near = nearest(key, fields.iter().map(|(name, _)| *name));
            match near.and_then(|near| fields.iter().find(|(name, _)| *name == near)) {
                Some((name, shape)) if holds_rules(value, shape) => {
                    this.mistyped("key", key, name);
                    return false;
                }
                Some((name, _)) => {
                    this.report(format!("unknown key \"{key}\"; did you mean \"{name}\"?"), Severity::Warning)
                }
                None if open => {}
                None => {
                    let known: Vec<_> = fields.iter().map(|(name, _)| *name).collect();
                    let message = format!("unknown key \"{key}\" is ignored; known are {}", known.join(", "));
                    this.report(message, Severity::Warning);
                }
            }
            open
        })
    }

    fn step<T>(&mut self, step: String, inner: impl FnOnce(&mut Self) -> T) -> T {
        self.path.push(step);
        let result = inner(self);
        self.path.pop();
        result
    }

    fn reject(&mut self, value: &Json, shape: &Shape) -> bool {
        self.report_mismatch(value, shape, "it is ignored");
        false
    }

    fn treat_as_ask(&mut self, value: &Json, shape: &Shape) {
        self.report_mismatch(value, shape, "it counts as ask");
    }

    fn report_mismatch(&mut self, value: &Json, shape: &Shape, so: &str) {
        let key = if self.path.is_empty() { "the configuration".to_owned() } else { self.path.join(".") };
        let message = format!("{key} must be {}, not {}; {so}", expected(shape), type_name(value));
        self.report(message, Severity::Error);
    }

    fn report(&mut self, message: String, severity: Severity) {
        self.add(Finding { path: self.path.clone(), message, severity, affects: AffectedAgents::None });
    }

    fn report_lost_rules(&mut self, message: String) {
        let affects = match self.path.as_slice() {
            [section, name, ..] if AGENT_SECTIONS.contains(&section.as_str()) => {
                AffectedAgents::Named(vec![name.clone()])
            }
            _ => AffectedAgents::All,
        };
        self.add(Finding { path: self.path.clone(), message, severity: Severity::Error, affects });
    }

    fn add(&mut self, finding: Finding) {
        if self.findings.len() < MAX_FINDINGS {
            self.findings.push(finding);
        } else {
            self.more += 1;
            if finding.affects != AffectedAgents::None {
                self.more_affected = AffectedAgents::All;
            }
        }
    }
}

/// Whether a value, interpreted as that shape, contains permission rules.
fn holds_rules(value: &Json, shape: &Shape) -> bool {
    match (shape, value) {
        (Shape::Permission | Shape::Tools | Shape::Only, _) => true,
        (Shape::Map(item), Json::Object(map)) => map.values().any(|value| holds_rules(value, item)),
        (Shape::Object(fields) | Shape::Open(fields), Json::Object(map)) => {
            fields.iter().any(|(name, shape)| map.get(*name).is_some_and(|value| holds_rules(value, shape)))
        }
        _ => false,
    }
}

/// A non-negative whole number, even if written as `1e5`.
fn whole(number: &serde_json::Number) -> Option<u64> {
    let float = || number.as_f64().filter(|n| n.fract() == 0.0 && (0.0..9e15).contains(n)).map(|n| n as u64);
    number.as_u64().or_else(float)
}

/// Whether the value has the shape's JSON type (for words: is one of them), so that its findings are useful.
fn same_kind(shape: &Shape, value: &Json) -> bool {
    match shape {
        Shape::Any => true,
        Shape::Text => value.is_string(),
        Shape::Word(words) => value.as_str().is_some_and(|word| words.contains(&word)),
        Shape::Flag => value.is_boolean(),
        Shape::Number | Shape::Amount | Shape::Count(_) => value.is_number(),
        Shape::List(_) | Shape::Only => value.is_array(),
        Shape::Map(_) | Shape::Object(_) | Shape::Open(_) | Shape::Permission | Shape::Tools => value.is_object(),
        Shape::Either(shapes) => shapes.iter().any(|shape| same_kind(shape, value)),
    }
}

fn expected(shape: &Shape) -> String {
    match shape {
        Shape::Any => "anything".to_owned(),
        Shape::Text => "a string".to_owned(),
        Shape::Flag => "true or false".to_owned(),
        Shape::Number => "a number".to_owned(),
        Shape::Amount => "a number above 0".to_owned(),
        Shape::Count(least) => format!("a whole number of at least {least}"),
        Shape::Word(words) => words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(" or "),
        Shape::List(_) | Shape::Only => "a list".to_owned(),
        Shape::Map(_) | Shape::Object(_) | Shape::Open(_) | Shape::Permission | Shape::Tools => "an object".to_owned(),
        Shape::Either(shapes) => shapes.iter().map(expected).collect::<Vec<_>>().join(" or "),
    }
}

/// The type of a value. Its text is not repeated, since it may be a misplaced secret.
fn type_name(value: &Json) -> &'static str {
    match value {
        Json::Null => "null",
        Json::Bool(_) => "a boolean",
        Json::Number(_) => "this number",
        Json::String(_) => "this string",
        Json::Array(_) => "a list",
        Json::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
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
        assert!(
            findings[0].starts_with("permission/bash/rm *: permission.bash.rm * must be \"allow\""),
            "{findings:?}"
        );
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
            "subagents": {"at_once": 0, "descendants": 0, "budget": {"cost": -1, "tokens": 5, "minutes": 1}},
            "ask": {"timeout": 60, "then": "maybe"}, "session": {"max_age_days": 0},
            "agent": {"a": {"isolation": "container", "budget": {"seconds": 1.5}}, "b": {"isolation": "worktree"},
                "c": {"acp": {"command": ["x"], "silence": 0}}},
        }));
        let left = json!({
            "subagents": {"descendants": 0, "budget": {"tokens": 5}}, "ask": {"timeout": 60}, "session": {},
            "agent": {"a": {"budget": {}}, "b": {"isolation": "worktree"}, "c": {"acp": {"command": ["x"]}}},
        });
        assert_eq!((value.clone(), findings.len()), (left, 8), "{findings:?}");
        assert!(findings[1].contains("subagents.budget.cost must be a number above 0"), "{findings:?}");
        let keys: Vec<_> =
            trefoil_only_keys(value.as_object().unwrap()).into_iter().map(|f| f.path.join(".")).collect();
        assert_eq!(keys, ["ask", "session", "subagents", "agent.a.budget", "agent.b.isolation", "agent.c.acp"]);
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
}
