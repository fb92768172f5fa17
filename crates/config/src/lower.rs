//! Forms of OpenCode's next configuration that its present one reads, too: they become the present ones.

use api::{Json, JsonMap};

/// Fields of a server's `oauth`, by both names.
const OAUTH: [(&str, &str); 4] = [
    ("client_id", "clientId"),
    ("client_secret", "clientSecret"),
    ("callback_port", "callbackPort"),
    ("redirect_uri", "redirectUri"),
];

/// Brings a file into its present form. Returns the MCP servers that stood one level deeper.
pub(crate) fn lower(config: &mut JsonMap) -> Vec<String> {
    if let Some(Json::Array(skills)) = config.get("skills") {
        let web = |item: &&Json| item.as_str().is_some_and(|text| text.contains("://"));
        let (urls, paths): (Vec<&Json>, Vec<&Json>) = skills.iter().partition(web);
        let skills = serde_json::json!({ "paths": paths, "urls": urls });
        config.insert("skills".to_owned(), skills);
    }
    let Some(Json::Object(servers)) = config.get_mut("mcp") else { return Vec::new() };
    let nested = servers.get("servers").and_then(Json::as_object).filter(|nested| !is_server(nested)).cloned();
    let mut names = Vec::new();
    if let Some(nested) = nested {
        servers.shift_remove("servers");
        for (name, mut server) in nested.into_iter().filter(|(name, _)| !servers.contains_key(name)).collect::<Vec<_>>()
        {
            if let Some(server) = server.as_object_mut() {
                let enabled = server_disabled(server) != Some(true);
                server.entry("enabled").or_insert(enabled.into());
            }
            names.push(name.clone());
            servers.insert(name, server);
        }
    }
    servers.values_mut().filter_map(Json::as_object_mut).for_each(lower_server);
    names
}

/// Whether an object is a server itself, one that bears the name of the level.
fn is_server(value: &JsonMap) -> bool {
    ["type", "enabled"].iter().any(|key| value.get(*key).is_some_and(|value| !value.is_object()))
}

fn server_disabled(server: &JsonMap) -> Option<bool> {
    server.get("disabled").and_then(Json::as_bool)
}

fn lower_server(server: &mut JsonMap) {
    if let Some(disabled) = server_disabled(server) {
        server.shift_remove("disabled");
        server.entry("enabled").or_insert_with(|| (!disabled).into());
    }
    server.shift_remove("codemode");
    if let Some(Json::Object(timeout)) = server.get("timeout") {
        // One time is all that there is room for.
        let one = timeout.get("catalog").filter(|catalog| timeout.get("execution") == Some(catalog)).cloned();
        match one.filter(|_| !timeout.contains_key("startup")) {
            Some(one) => server.insert("timeout".to_owned(), one),
            None => server.shift_remove("timeout"),
        };
    }
    if let Some(Json::Object(oauth)) = server.get_mut("oauth") {
        for (new, present) in OAUTH {
            if let Some(value) = oauth.shift_remove(new) {
                oauth.entry(present).or_insert(value);
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
            assert_eq!(lower(&mut map), names, "{file}");
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
        ] {
            let mut map = file.as_object().cloned().unwrap();
            lower(&mut map);
            assert_eq!(Json::Object(map), want, "{file}");
        }
    }
}
