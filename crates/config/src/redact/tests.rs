use super::*;
use serde_json::json;

fn shown(value: Json) -> Json {
    let Json::Object(mut map) = value else { panic!("not an object") };
    let env =
        [("MY_TOKEN".to_owned(), "from-the-environment".to_owned()), ("LANG".to_owned(), "de_DE.UTF-8".to_owned())];
    Redactor::new(&env.into(), ["stored-credential".to_owned(), "short".to_owned()]).config(&mut map);
    Json::Object(map)
}

#[test]
fn secrets_are_masked_and_the_rest_stays() {
    let value = shown(json!({
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
    }));
    assert!(!value.to_string().contains("sk-"), "{value}");
    assert_eq!(value["provider"]["p"]["env"], json!(["P_KEY"]));
    assert_eq!(value["provider"]["p"]["options"]["baseURL"], "https://***@h/v1?x=@");
    assert_eq!(value["provider"]["p"]["options"]["setCacheKey"], true);
    assert_eq!(value["provider"]["p"]["models"]["token-model"]["name"], "n");
    assert_eq!(value["provider"]["q"]["options"]["apiKey"], "{env:Q}");
    assert_eq!(value["mcp"]["m"]["command"], json!(["x"]));
    assert_eq!(value["model"], "key/model");
}

#[test]
fn arguments_of_programs_are_shown_without_their_secrets() {
    let cases: &[(&[&str], &[&str])] = &[
        (&["srv", "--api-key", "S"], &["srv", "--api-key", "***"]),
        (&["srv", "--apiKey", "S"], &["srv", "--apiKey", "***"]),
        (&["srv", "--token=S", "--port=1"], &["srv", "--token=***", "--port=1"]),
        (&["srv", "--token", "--verbose"], &["srv", "--token", "--verbose"]),
        (&["srv", "-token", "S"], &["srv", "-token", "***"]),
        (&["srv", "--auth", "S"], &["srv", "--auth", "***"]),
        (&["srv", "--db-password", "S", "x"], &["srv", "--db-password", "***", "x"]),
        (&["curl", "-H", "Authorization: Bearer S"], &["curl", "-H", "Authorization: ***"]),
        (&["curl", "-H", "X-Team:S", "-u", "me:S"], &["curl", "-H", "X-Team:***", "-u", "***"]),
        (&["curl", "--header", "Cookie: S"], &["curl", "--header", "Cookie: ***"]),
        (&["env", "API_KEY=S", "PORT=80", "srv"], &["env", "API_KEY=***", "PORT=80", "srv"]),
        (&["srv", "X-Api-Key:S"], &["srv", "X-Api-Key:***"]),
        (&["sh", "-c", "TOKEN=S srv --secret S --port 1"], &["sh", "-c", "TOKEN=*** srv --secret *** --port 1"]),
        (&["sh", "-c", "curl -H 'Authorization: Bearer S' h"], &["sh", "-c", "curl -H 'Authorization: Bearer *** h"]),
        (&["sh", "-c", "curl -H \"X-Auth: S\" h"], &["sh", "-c", "curl -H \"X-Auth: *** h"]),
        (&["srv", "postgres://u:S@h/db"], &["srv", "postgres://***@h/db"]),
        (&["srv", "--dsn=postgres://u:S@h/db?sslmode=off"], &["srv", "--dsn=postgres://***@h/db?sslmode=off"]),
        (&["srv", "https://h/mcp?api_key=S&page=2"], &["srv", "https://h/mcp?api_key=***&page=2"]),
        (&["srv", "https://h/#access_token=S"], &["srv", "https://h/#access_token=***"]),
        (&["srv", "https://h/?code=Zx81Kq0Lm55Tt2Ab"], &["srv", "https://h/?code=***"]),
        (&["srv", "https://h/s/NGQ1ZmE2YzctODkwYS1iY2Rl1/mcp"], &["srv", "https://h/s/***/mcp"]),
        (&["srv", "https://h/7f0c2f4e-90ab-4c1d-8e2f-001122334455"], &["srv", "https://h/***"]),
        (&["srv", "ghp_0123456789abcdefABCD"], &["srv", "***"]),
        (&["srv", "a,sk-ant-api03-Abc123Def456,b"], &["srv", "a,***,b"]),
        (&["srv", "xoxb-123456789012-abc"], &["srv", "***"]),
        (&["srv", "AKIAIOSFODNN7EXAMPLE"], &["srv", "***"]),
        (&["srv", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.x"], &["srv", "***"]),
        (&["srv", "x=from-the-environment"], &["srv", "x=***"]),
        (&["srv", "my-stored-credential-2"], &["srv", "my-***-2"]),
        (&["srv", "--token", "{env:T}"], &["srv", "--token", "{env:T}"]),
        (&["srv", "-H", "Authorization: Bearer {env:T}"], &["srv", "-H", "Authorization: Bearer {env:T}"]),
        // Not secrets.
        (
            &["npx", "-y", "@modelcontextprotocol/server-filesystem", "/srv"],
            &["npx", "-y", "@modelcontextprotocol/server-filesystem", "/srv"],
        ),
        (
            &["srv", "--port", "8080", "https://h:8080/v1/chat?api-version=2024-02-01"],
            &["srv", "--port", "8080", "https://h:8080/v1/chat?api-version=2024-02-01"],
        ),
        (
            &["srv", "https://h/openai/deployments/gpt-4o-mini-2024-07-18", "short", "de_DE.UTF-8"],
            &["srv", "https://h/openai/deployments/gpt-4o-mini-2024-07-18", "short", "de_DE.UTF-8"],
        ),
    ];
    for (args, want) in cases {
        let value = shown(json!({
            "mcp": {"m": {"command": args}}, "lsp": {"l": {"command": args}}, "plugin": [["p", {"args": args}]],
            "agent": {"a": {"acp": {"command": args}, "options": {"args": args}}},
        }));
        for place in
            ["/mcp/m/command", "/lsp/l/command", "/plugin/0/1/args", "/agent/a/acp/command", "/agent/a/options/args"]
        {
            assert_eq!(value.pointer(place), Some(&json!(want)), "{place}");
        }
    }
}

#[test]
fn values_under_names_of_secrets_are_masked() {
    for name in [
        "apiKey",
        "api_key",
        "APIKEY",
        "token",
        "accessToken",
        "client-secret",
        "password",
        "dbPasswd",
        "passphrase",
        "Authorization",
        "auth",
        "authHeader",
        "cookie",
        "privatePem",
        "credentials",
        "x-signature",
        "pwd",
        "jwt",
    ] {
        let value = shown(json!({"provider": {"p": {"options": {name: "S", "list": [1], "deep": {name: ["S"]}}}},
            "agent": {"a": {name: "S", "options": {name: "S"}}}, "mcp": {"m": {"url": format!("https://h/?{name}=S")}}}));
        assert!(!value.to_string().contains('S'), "{name}: {value}");
    }
    for name in ["author", "passing", "url", "path", "pattern", "header", "name", "baseURL", "region"] {
        let value = shown(json!({"provider": {"p": {"options": {name: "S"}}}}));
        assert_eq!(value["provider"]["p"]["options"][name], "S", "{name}");
    }
}

#[test]
fn prose_and_rules_are_unchanged() {
    let value = json!({
        "permission": {"get_token": "deny", "bash": {"curl -H Authorization:*": "ask"}}, "tools": {"read_key": false},
        "command": {"c": {"template": "Rotate the --token option, password: none", "description": "key: x"}},
        "agent": {"a": {"prompt": "Never print a password: ask. *** sk-learn", "permission": {"x_token": "ask"}}},
        "instructions": ["https://h/rules.md"], "env": {"hide": ["AWS_*", "MY_TOKEN"]}, "username": "u",
        "model": "monkey/key-model:free", "small_model": "token/x:y",
        "provider": {"p": {"name": "Key: value", "models": {"a": {"id": "vendor/key-model:free", "name": "Token=x"}}}},
    });
    assert_eq!(shown(value.clone()), value);
    let value = shown(json!({"command": {"c": {"template": "use ghp_0123456789abcdef and from-the-environment"}},
        "instructions": ["https://u:p@h/rules.md?token=x"]}));
    assert_eq!(value["command"]["c"]["template"], "use *** and ***");
    assert_eq!(value["instructions"], json!(["https://***@h/rules.md?token=***"]));
}

#[test]
fn masking_is_idempotent() {
    let value = json!({"mcp": {"m": {"command": ["srv", "--token", "S", "A_KEY=S", "https://u:p@h/?key=S"],
        "headers": {"A": "S"}}}});
    let once = shown(value);
    assert_eq!(shown(once.clone()), once);
}
