//! Converts forms of OpenCode's next configuration format that its current version already reads.

use api::{Json, JsonMap};

/// Keys of a server's `oauth` in the next and the current format.
const OAUTH: [(&str, &str); 4] = [
    ("client_id", "clientId"),
    ("client_secret", "clientSecret"),
    ("callback_port", "callbackPort"),
    ("redirect_uri", "redirectUri"),
];

/// Keys of an agent that are the same in both formats.
const AGENT: [&str; 7] = ["model", "variant", "description", "mode", "hidden", "color", "steps"];
/// Keys for an agent's rules. OpenCode ignores them there, so they must have no effect, but must be reported.
const RULES: [&str; 3] = ["permission", "permissions", "tools"];
/// A key under which rules are reported as mistyped.
const MISTYPED: &str = "permissions";

/// Pairs of a path in the current format and the original path in the file.
pub(crate) type MovedPaths = Vec<(Vec<String>, Vec<String>)>;

/// Converts a file to the current format.
pub(crate) fn to_current_format(config: &mut JsonMap) -> MovedPaths {
    let mut moved = MovedPaths::new();
    if let Some(skills) = config.get("skills").and_then(Json::as_array) {
        let web = |item: &&Json| item.as_str().is_some_and(|text| text.contains("://"));
        let (urls, paths): (Vec<&Json>, Vec<&Json>) = skills.iter().partition(web);
        let skills = serde_json::json!({ "paths": paths, "urls": urls });
        config.insert("skills".to_owned(), skills);
    }
    if let Some((model, _)) = config.get("model").and_then(model) {
        config.insert("model".to_owned(), model);
    }
    rename(config, "snapshots", "snapshot");
    if let Some(depth) =
        config.get_mut("experimental").and_then(|map| map.as_object_mut()?.shift_remove("subagent_depth"))
    {
        config.entry("subagent_depth").or_insert(depth);
    }
    convert_section(config, "agents", "agent", &mut moved, convert_agent);
    convert_section(config, "commands", "command", &mut moved, convert_model);
    if let Some(Json::Object(servers)) = config.get_mut("mcp") {
        convert_servers(servers, &mut moved);
    }
    moved
}

fn rename(map: &mut JsonMap, new: &str, current: &str) {
    if let Some(value) = map.shift_remove(new) {
        map.entry(current).or_insert(value);
    }
}

/// Splits a model with a variant, written as `model#variant` or as an object.
fn model(value: &Json) -> Option<(Json, Option<Json>)> {
    match value {
        Json::String(text) => text.split_once('#').map(|(model, variant)| (model.into(), Some(variant.into()))),
        Json::Object(map) => {
            let (provider, model) = (map.get("providerID")?.as_str()?, map.get("model")?.as_str()?);
            Some((format!("{provider}/{model}").into(), map.get("variant").cloned()))
        }
        _ => None,
    }
}

/// Moves entries that the current section lacks from the new section into it.
fn convert_section(config: &mut JsonMap, new: &str, current: &str, moved: &mut MovedPaths, one: fn(&mut JsonMap)) {
    if !config.get(new).is_some_and(Json::is_object) || config.get(current).is_some_and(|current| !current.is_object())
    {
        return;
    }
    let entries = config.shift_remove(new).and_then(|entries| entries.as_object().cloned()).unwrap_or_default();
    let Some(section) = config.entry(current).or_insert_with(|| JsonMap::new().into()).as_object_mut() else { return };
    for (name, mut entry) in entries {
        if section.contains_key(&name) {
            continue;
        }
        if let Some(entry) = entry.as_object_mut() {
            if let Some(rules) = RULES.iter().find(|key| entry.contains_key(**key)) {
                let path = |section: &str, key: &str| [section, &name, key].map(str::to_owned).to_vec();
                moved.push((path(current, MISTYPED), path(new, rules)));
            }
            one(entry);
        }
        moved.push((vec![current.to_owned(), name.clone()], vec![new.to_owned(), name.clone()]));
        section.insert(name, entry);
    }
}

fn convert_agent(agent: &mut JsonMap) {
    convert_model(agent);
    let mut current = JsonMap::new();
    for (key, mut value) in std::mem::take(agent) {
        let key = match key.as_str() {
            "system" => "prompt",
            "disabled" => "disable",
            "request" => {
                current.extend(value.get_mut("body").map(|body| ("options".to_owned(), body.take())));
                continue;
            }
            key if RULES.contains(&key) => MISTYPED,
            key if AGENT.contains(&key) => key,
            _ => continue,
        };
        current.entry(key).or_insert(value);
    }
    *agent = current;
}

fn convert_model(owner: &mut JsonMap) {
    if let Some((model, variant)) = owner.get("model").and_then(model) {
        owner.insert("model".to_owned(), model);
        owner.extend(variant.map(|variant| ("variant".to_owned(), variant)));
    }
}

/// Servers may be nested one level deeper, below `servers`.
fn convert_servers(servers: &mut JsonMap, moved: &mut MovedPaths) {
    if servers.get("servers").and_then(Json::as_object).is_some_and(|nested| !is_server(nested)) {
        let nested = servers.shift_remove("servers").and_then(|nested| nested.as_object().cloned()).unwrap_or_default();
        for (name, mut server) in nested {
            if servers.contains_key(&name) {
                continue;
            }
            if let Some(server) = server.as_object_mut() {
                let enabled = server_disabled(server) != Some(true);
                server.entry("enabled").or_insert(enabled.into());
            }
            let written = ["mcp", "servers", &name].map(str::to_owned).to_vec();
            moved.push((["mcp", &name].map(str::to_owned).to_vec(), written));
            servers.insert(name, server);
        }
    }
    servers.values_mut().filter_map(Json::as_object_mut).for_each(convert_server);
}

/// Whether an object is itself a server that happens to have this name.
fn is_server(value: &JsonMap) -> bool {
    ["type", "enabled"].iter().any(|key| value.get(*key).is_some_and(|value| !value.is_object()))
}

fn server_disabled(server: &JsonMap) -> Option<bool> {
    server.get("disabled").and_then(Json::as_bool)
}

fn convert_server(server: &mut JsonMap) {
    if let Some(disabled) = server_disabled(server) {
        server.shift_remove("disabled");
        server.entry("enabled").or_insert_with(|| (!disabled).into());
    }
    server.shift_remove("codemode");
    if let Some(Json::Object(timeout)) = server.get("timeout") {
        // The current format has room for only one timeout.
        let one = timeout.get("catalog").filter(|catalog| timeout.get("execution") == Some(catalog)).cloned();
        match one.filter(|_| !timeout.contains_key("startup")) {
            Some(one) => server.insert("timeout".to_owned(), one),
            None => server.shift_remove("timeout"),
        };
    }
    if let Some(Json::Object(oauth)) = server.get_mut("oauth") {
        for (new, current) in OAUTH {
            if let Some(value) = oauth.shift_remove(new) {
                oauth.entry(current).or_insert(value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn servers_one_level_deeper_are_servers() {
        for (file, want, names) in [
            (
                json!({"mcp": {"servers": {"a": {"type": "local", "command": ["x"]}}}}),
                json!({"mcp": {"a": {"type": "local", "command": ["x"], "enabled": true}}}),
                vec!["a"],
            ),
            (
                json!({"mcp": {"b": {"type": "remote", "url": "u"}, "servers": {
                    "a": {"type": "local", "command": ["x"], "disabled": true, "codemode": true}, "b": {"enabled": false},
                }}}),
                json!({"mcp": {"b": {"type": "remote", "url": "u"}, "a": {
                    "type": "local", "command": ["x"], "enabled": false,
                }}}),
                vec!["a"],
            ),
            (
                json!({"mcp": {"servers": {"a": {"enabled": false}}}}),
                json!({"mcp": {"a": {"enabled": false}}}),
                vec!["a"],
            ),
            // A server with that name.
            (
                json!({"mcp": {"servers": {"type": "local", "command": ["x"]}}}),
                json!({"mcp": {"servers": {"type": "local", "command": ["x"]}}}),
                vec![],
            ),
            (json!({"mcp": {"servers": 1}}), json!({"mcp": {"servers": 1}}), vec![]),
            (json!({"mcp": []}), json!({"mcp": []}), vec![]),
        ] {
            let mut map = file.as_object().cloned().unwrap();
            let moved: Vec<String> = to_current_format(&mut map).into_iter().map(|(now, _)| now[1].clone()).collect();
            assert_eq!(moved, names, "{file}");
            assert_eq!(Json::Object(map), want, "{file}");
        }
    }

    #[test]
    fn other_names_and_forms() {
        let server = |value: Json| json!({"mcp": {"a": value}});
        for (file, want) in [
            (server(json!({"disabled": true})), server(json!({"enabled": false}))),
            (server(json!({"disabled": false, "enabled": false})), server(json!({"enabled": false}))),
            (server(json!({"timeout": {"catalog": 5, "execution": 5}})), server(json!({"timeout": 5}))),
            (server(json!({"timeout": {"catalog": 5, "execution": 6}})), server(json!({}))),
            (server(json!({"timeout": {"startup": 5}})), server(json!({}))),
            (server(json!({"timeout": 7})), server(json!({"timeout": 7}))),
            (
                server(json!({"oauth": {"client_id": "x", "redirect_uri": "y", "scope": "z"}})),
                server(json!({"oauth": {"scope": "z", "clientId": "x", "redirectUri": "y"}})),
            ),
            (
                json!({"skills": ["a", "https://x/y", "~/b"]}),
                json!({"skills": {"paths": ["a", "~/b"], "urls": ["https://x/y"]}}),
            ),
            (json!({"skills": {"paths": ["a"]}}), json!({"skills": {"paths": ["a"]}})),
            (json!({"snapshots": false, "model": "a/b#high"}), json!({"model": "a/b", "snapshot": false})),
            (json!({"model": {"providerID": "a", "model": "b/c"}}), json!({"model": "a/b/c"})),
            (
                json!({"experimental": {"subagent_depth": 2, "batch_tool": true}}),
                json!({"experimental": {"batch_tool": true}, "subagent_depth": 2}),
            ),
            (
                json!({"agents": {
                    "a": {"system": "S", "prompt": "P", "model": "x/y#v", "mode": "all", "request": {"body": {"k": 1}}, "z": 1},
                    "b": {"description": "new"}, "c": {"disabled": true},
                }, "agent": {"b": {"description": "current"}}}),
                json!({"agent": {
                    "b": {"description": "current"},
                    "a": {"model": "x/y", "mode": "all", "variant": "v", "prompt": "S", "options": {"k": 1}}, "c": {"disable": true},
                }}),
            ),
            (
                json!({"commands": {"c": {"template": "T", "model": "x/y#v"}}}),
                json!({"command": {"c": {"template": "T", "model": "x/y", "variant": "v"}}}),
            ),
            (json!({"agents": [], "commands": 1}), json!({"agents": [], "commands": 1})),
            (json!({"agents": {"a": {}}, "agent": 5}), json!({"agents": {"a": {}}, "agent": 5})),
        ] {
            let mut map = file.as_object().cloned().unwrap();
            to_current_format(&mut map);
            assert_eq!(Json::Object(map), want, "{file}");
        }
    }

    #[test]
    fn rules_of_new_agents_are_reported() {
        for key in RULES {
            let mut map = json!({"agents": {"a": {key: {"bash": "allow"}}}}).as_object().cloned().unwrap();
            let moved = to_current_format(&mut map);
            assert_eq!(map["agent"]["a"], json!({MISTYPED: {"bash": "allow"}}));
            let path = |steps: [&str; 3]| steps.map(str::to_owned).to_vec();
            assert_eq!(moved[0], (path(["agent", "a", MISTYPED]), path(["agents", "a", key])));
        }
    }
}
