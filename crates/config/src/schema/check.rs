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
mod tests;
