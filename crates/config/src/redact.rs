//! Masks secrets in a configuration that is to be shown. Placeholders stay: they say where a secret is, not what it is.

use api::{Json, JsonMap};

use crate::substitute::has_placeholder;

/// What is shown instead of a secret.
pub(crate) const MASK: &str = "***";
/// Sections in which secrets occur.
const SECTIONS: &[&str] = &["provider", "mcp", "formatter", "lsp", "plugin", "server", "enterprise"];
/// Objects whose values are secret as a whole.
const SECRET_OBJECTS: &[&str] = &["headers", "environment", "env"];
/// Parts of the names of secret values.
const SECRET_NAMES: &[&str] = &["key", "secret", "token", "password", "authorization", "credential"];

/// Masks the secrets of a merged configuration.
pub(crate) fn redact(config: &mut JsonMap) {
    for (_, section) in config.iter_mut().filter(|(key, _)| SECTIONS.contains(&key.as_str())) {
        mask(section, false);
    }
    for agent in config.get_mut("agent").and_then(Json::as_object_mut).into_iter().flat_map(JsonMap::values_mut) {
        if let Some(settings) = agent.get_mut("acp") {
            mask(settings, false);
        }
    }
}

/// Masks the secrets among options.
pub(crate) fn redact_options(options: &mut JsonMap) {
    for (key, value) in options {
        mask_entry(key, value, false);
    }
}

fn mask(value: &mut Json, secret: bool) {
    match value {
        Json::String(text) if secret && !has_placeholder(text) => *text = MASK.to_owned(),
        Json::String(text) => mask_user(text),
        Json::Array(list) => list.iter_mut().for_each(|value| mask(value, secret)),
        Json::Object(map) => {
            for (key, value) in map {
                mask_entry(key, value, secret);
            }
        }
        _ => {}
    }
}

fn mask_entry(key: &str, value: &mut Json, secret: bool) {
    let name = key.to_lowercase();
    let named = SECRET_NAMES.iter().any(|part| name.contains(part)) && value.is_string();
    // A provider's `env` is a list of names, a server's is an object of values.
    let holds = SECRET_OBJECTS.contains(&name.as_str()) && value.is_object();
    mask(value, secret || named || holds);
}

/// Masks `user:password@` in an address.
pub(crate) fn mask_user(text: &mut String) {
    if let Some(start) = text.find("://").map(|at| at + 3)
        && let Some(end) = text[start..].split(['/', '?', '#']).next().and_then(|host| host.rfind('@'))
        && !has_placeholder(text)
    {
        text.replace_range(start..start + end, MASK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn secrets_go_and_the_rest_stays() {
        let mut value = json!({
            "model": "key/model",
            "provider": {"p": {
                "env": ["P_KEY"], "models": {"token-model": {"name": "n", "headers": {"a": "sk-1"}}},
                "options": {
                    "apiKey": "sk-2", "baseURL": "https://u:sk-3@h/v1?x=@", "headers": {"Authorization": "sk-4"},
                    "secretAccessKey": "sk-5", "setCacheKey": true, "other": "{env:X}",
                },
            }, "q": {"options": {"apiKey": "{env:Q}"}}},
            "mcp": {"m": {"command": ["x"], "environment": {"A": "sk-6"}, "oauth": {"clientSecret": "sk-7"}}},
            "lsp": {"l": {"env": {"B": "sk-8"}}},
            "agent": {"a": {"prompt": "p", "acp": {"command": ["x"], "environment": {"C": "sk-9"}}}, "b": {}},
        });
        redact(value.as_object_mut().unwrap());
        assert!(!value.to_string().contains("sk-"), "{value}");
        assert_eq!(value["provider"]["p"]["env"], json!(["P_KEY"]));
        assert_eq!(value["provider"]["p"]["options"]["baseURL"], "https://***@h/v1?x=@");
        assert_eq!(value["provider"]["p"]["options"]["setCacheKey"], true);
        assert_eq!(value["provider"]["p"]["models"]["token-model"]["name"], "n");
        assert_eq!(value["provider"]["q"]["options"]["apiKey"], "{env:Q}");
        assert_eq!(value["mcp"]["m"]["command"], json!(["x"]));
        assert_eq!(value["model"], "key/model");
    }
}
