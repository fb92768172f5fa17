//! Compares what two servers report about one configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use api::{Action, Ruleset};
use serde_json::{Map, Value, json};

/// Keys of an agent's configuration; others are options.
const AGENT_KEYS: [&str; 13] = [
    "model",
    "variant",
    "prompt",
    "description",
    "temperature",
    "top_p",
    "mode",
    "hidden",
    "color",
    "steps",
    "options",
    "permission",
    "disable",
];
/// Actions that agents are checked for, beside those that their own rules name.
const PROBES: [(&str, &str); 20] = [
    ("bash", "ls"),
    ("bash", "git status"),
    ("bash", "git push origin main"),
    ("bash", "rm -rf build"),
    ("bash", "npm run test"),
    ("edit", "src/main.rs"),
    ("edit", "docs/guide.md"),
    ("read", "src/main.rs"),
    ("read", ".env"),
    ("read", "config/.env.local"),
    ("read", ".env.example"),
    ("webfetch", "https://example.org/"),
    ("websearch", "x"),
    ("task", "general"),
    ("task", "reviewer"),
    ("skill", "x"),
    ("external_directory", "/etc/*"),
    ("todowrite", "*"),
    ("grep", "x"),
    ("server_tool", "*"),
];
/// Tools that may be withheld from a model.
const TOOLS: [&str; 12] = [
    "bash",
    "read",
    "edit",
    "glob",
    "grep",
    "task",
    "webfetch",
    "todowrite",
    "skill",
    "question",
    "websearch",
    "server_tool",
];

/// The differences, one per line.
pub fn compare(theirs: &Value, ours: &Value, home: &Path, place: &Path) -> Vec<String> {
    if theirs["config"].is_null() {
        return vec!["OpenCode refuses it".to_owned()];
    }
    let normalized = |value: &Value| -> Value {
        // Both see the same paths below the home and the project; paths that each keeps for itself differ.
        let text =
            value.to_string().replace(place.to_str().unwrap(), "PROJECT").replace(home.to_str().unwrap(), "HOME");
        serde_json::from_str(&text).unwrap()
    };
    let (theirs, ours) = (normalized(theirs), normalized(ours));
    let mut lines = Vec::new();
    add_differences("config", &config(&theirs["config"]), &config(&ours["config"]), &mut lines);
    add_differences("command", &commands(&theirs["command"]), &commands(&ours["command"]), &mut lines);
    add_differences("skill", &skills(&theirs["skill"]), &skills(&ours["skill"]), &mut lines);
    let (their_agents, our_agents) = (by_name(&theirs["agent"]), by_name(&ours["agent"]));
    let configured = &theirs["config"]["agent"];
    add_differences("agent", &agents(&their_agents, configured), &agents(&our_agents, configured), &mut lines);
    for (name, agent) in &their_agents {
        if let Some(other) = our_agents.get(name) {
            compare_permissions(name, &rules(agent), &rules(other), &mut lines);
        }
    }
    lines
}

/// Adds a line for each value that differs.
fn add_differences(path: &str, theirs: &Value, ours: &Value, lines: &mut Vec<String>) {
    match (theirs, ours) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                let at = |map: &Map<String, Value>| map.get(key).cloned().unwrap_or_default();
                add_differences(&format!("{path}.{key}"), &at(a), &at(b), lines);
            }
        }
        (a, b) if a == b => {}
        (Value::Number(a), Value::Number(b)) if a.as_f64() == b.as_f64() => {}
        (a, b) => lines.push(format!("{path}: {a} there, {b} here")),
    }
}

fn by_name(list: &Value) -> BTreeMap<String, Value> {
    let entries = list.as_array().into_iter().flatten();
    entries.map(|entry| (entry["name"].as_str().unwrap_or_default().to_owned(), entry.clone())).collect()
}

fn config(config: &Value) -> Value {
    let mut config = config.as_object().cloned().unwrap_or_default();
    // Keys that OpenCode adds by itself, or keeps after it has translated them.
    for key in ["$schema", "mode", "tools", "autoshare", "username"] {
        config.remove(key);
    }
    for agent in
        config.get_mut("agent").and_then(Value::as_object_mut).into_iter().flat_map(|agents| agents.values_mut())
    {
        *agent = agent_config(agent);
    }
    for command in config.get_mut("command").and_then(Value::as_object_mut).into_iter().flat_map(|all| all.values_mut())
    {
        command.as_object_mut().map(|command| command.remove("name"));
    }
    without_empty(Value::Object(config))
}

/// An agent's effective configuration, with unknown keys among its options.
fn agent_config(agent: &Value) -> Value {
    let mut known = Map::new();
    let mut options = agent["options"].as_object().cloned().unwrap_or_default();
    for (key, value) in agent.as_object().into_iter().flatten() {
        match key.as_str() {
            "name" | "tools" | "options" => {}
            "maxSteps" => drop(known.entry("steps").or_insert(value.clone())),
            key if AGENT_KEYS.contains(&key) => drop(known.insert(key.to_owned(), value.clone())),
            key => drop(options.insert(key.to_owned(), value.clone())),
        }
    }
    known.insert("options".to_owned(), Value::Object(options));
    Value::Object(known)
}

/// The value without empty objects, lists and texts.
fn without_empty(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let full = map.into_iter().map(|(key, value)| (key, without_empty(value)));
            Value::Object(full.filter(|(_, value)| !is_empty(value)).collect())
        }
        other => other,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

fn commands(list: &Value) -> Value {
    let fields = ["description", "agent", "model", "subtask", "hints", "template", "source"];
    let mut all = Map::new();
    for (name, command) in by_name(list) {
        let built_in = ["init", "review"].contains(&name.as_str()) || name == "customize-opencode";
        let skill = command["source"] == "skill";
        let picked = fields.iter().filter(|field| !skill || **field != "template");
        let entry: Map<String, Value> = picked.map(|field| ((*field).to_owned(), command[field].clone())).collect();
        if !built_in {
            all.insert(name, without_empty(Value::Object(entry)));
        }
    }
    Value::Object(all)
}

fn skills(list: &Value) -> Value {
    let skills = by_name(list).into_iter().filter(|(name, _)| name != "customize-opencode");
    Value::Object(skills.collect())
}

/// The agents without their rules. The texts of built-in agents are each program's own, unless they are configured.
fn agents(list: &BTreeMap<String, Value>, configured: &Value) -> Value {
    let mut all = Map::new();
    for (name, agent) in list {
        let mut agent = agent.as_object().cloned().unwrap_or_default();
        agent.remove("permission");
        for own in ["description", "prompt"] {
            if agent["native"] == true && configured[name].get(own).is_none() {
                agent.remove(own);
            }
        }
        all.insert(name.clone(), without_empty(Value::Object(agent)));
    }
    Value::Object(all)
}

fn rules(agent: &Value) -> Ruleset {
    serde_json::from_value(agent["permission"].clone()).unwrap_or_default()
}

/// Adds a line for each action that the two lists of rules judge differently.
fn compare_permissions(agent: &str, theirs: &Ruleset, ours: &Ruleset, lines: &mut Vec<String>) {
    let mut probes: BTreeSet<(String, String)> = PROBES.map(|(a, b)| (a.to_owned(), b.to_owned())).into();
    for rule in theirs.iter().chain(ours) {
        // Folders that each program keeps for itself.
        let is_private = rule.permission == "external_directory" && rule.pattern.contains("/.local/share/")
            || rule.pattern.contains("/tmp/opencode/");
        let fill = |text: &str, star: &str| text.replace('*', star).replace('?', "y");
        if !is_private {
            let stars = [("x", "x"), ("", ""), ("bash", "x y/z")];
            probes.extend(stars.map(|(name, pattern)| (fill(&rule.permission, name), fill(&rule.pattern, pattern))));
        }
    }
    let action = |rules: &Ruleset, (permission, pattern): &(String, String)| api::evaluate(rules, permission, pattern);
    for probe in &probes {
        let (there, here) = (action(theirs, probe), action(ours, probe));
        if there != here {
            lines.push(format!("may {agent} {} {:?}: {} there, {} here", probe.0, probe.1, json!(there), json!(here)));
        }
    }
    for tool in TOOLS {
        let is_withheld = |rules: &Ruleset| {
            let last = rules.iter().rfind(|rule| api::wildcard(&rule.permission, tool));
            last.is_some_and(|rule| rule.pattern == "*" && rule.action == Action::Deny)
        };
        if is_withheld(theirs) != is_withheld(ours) {
            lines.push(format!(
                "{tool} withheld from {agent}: {} there, {} here",
                is_withheld(theirs),
                is_withheld(ours)
            ));
        }
    }
}
