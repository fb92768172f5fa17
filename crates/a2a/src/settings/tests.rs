use serde_json::json;

use super::*;

fn read(env: &[(&str, &str)], config: Json) -> Result<Settings, SettingError> {
    let Json::Object(config) = config else { panic!("{config}") };
    Settings::read(|name| env.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()), &config)
}

fn problem(env: &[(&str, &str)], config: Json) -> String {
    read(env, config).err().unwrap().to_string()
}

#[test]
fn nothing_set_is_the_default() {
    let settings = read(&[("A2A_HOST", " "), ("A2A_PORT", "")], json!({})).unwrap();
    assert!(settings == Settings::default());
    assert_eq!((settings.default_line, settings.lines), (Line::V03, Line::ALL.to_vec()));
}

#[test]
fn a_variable_wins_over_the_configuration() {
    let config = json!({
        "host": "0.0.0.0", "port": 9, "enable_session_shell": true, "allowed_hosts": ["a", "b"],
        "static_auth_credentials": [{"scheme": "bearer", "token": "t", "principal": "p"}],
    });
    let settings = read(&[("A2A_PORT", "10")], config).unwrap();
    assert_eq!((settings.host.as_str(), settings.port, settings.session_shell), ("0.0.0.0", 10, true));
    assert_eq!(settings.allowed_hosts, ["a", "b"]);
    assert!(settings.static_credentials.unwrap().starts_with('['));
}

#[test]
fn every_setting_can_be_set_both_ways_and_is_listed_once() {
    let value = |setting: &Setting| match setting.key {
        key if key.ends_with("url") && key.starts_with("task_store") => "sqlite+aiosqlite:///./x.db".to_owned(),
        key if key.ends_with("url") => "https://example.org/a/".to_owned(),
        "protocol_version" | "supported_protocol_versions" => "1.0".to_owned(),
        "task_store_backend" => "memory".to_owned(),
        "sandbox_mode"
        | "sandbox_filesystem_scope"
        | "network_access"
        | "approval_policy"
        | "write_access_scope"
        | "approval_escalation_behavior"
        | "write_access_outside_workspace" => "custom".to_owned(),
        _ => "1".to_owned(),
    };
    for setting in SETTINGS {
        let value = value(setting);
        let by_variable = read(&[(setting.variable, &value)], json!({})).unwrap_or_else(|error| panic!("{error}"));
        let by_key = read(&[], json!({ setting.key: value })).unwrap_or_else(|error| panic!("{error}"));
        assert!(by_variable == by_key, "{}", setting.variable);
        for field in [setting.variable, setting.key] {
            let same = SETTINGS.iter().filter(|other| other.variable == field || other.key == field);
            assert_eq!(same.count(), 1, "{field}");
        }
    }
}

#[test]
fn what_cannot_be_used_is_named_with_what_is_wrong() {
    for (env, config, want) in [
        (&[("A2A_PORT", "70000")][..], json!({}), "A2A_PORT is not a whole number in range: \"70000\""),
        (&[("A2A_MAX_REQUEST_BODY_BYTES", "0")], json!({}), "A2A_MAX_REQUEST_BODY_BYTES must be above 0"),
        (&[("A2A_PUBLIC_URL", "ftp://x")], json!({}), "A2A_PUBLIC_URL is not an http or https URL: \"ftp://x\""),
        (&[("A2A_PROTOCOL_VERSION", "2.0")], json!({}), "A2A_PROTOCOL_VERSION is neither 0.3 nor 1.0: \"2.0\""),
        (
            &[("A2A_SUPPORTED_PROTOCOL_VERSIONS", "1.0"), ("A2A_PROTOCOL_VERSION", "0.3")],
            json!({}),
            "A2A_PROTOCOL_VERSION is not among A2A_SUPPORTED_PROTOCOL_VERSIONS",
        ),
        (&[], json!({"prot": 1}), "a2a.prot is no setting of the A2A service"),
        (&[], json!({"port": null}), "a2a.port is not a text, a number, a switch or a list"),
        (&[("A2A_METRICS_ENABLED", "maybe")], json!({}), "A2A_METRICS_ENABLED is neither true nor false: \"maybe\""),
        (&[("OPENCODE_TIMEOUT", "-1")], json!({}), "OPENCODE_TIMEOUT is not a number of seconds in range: \"-1\""),
        (&[("OPENCODE_TIMEOUT", "NaN")], json!({}), "OPENCODE_TIMEOUT is not a number of seconds in range: \"NaN\""),
    ] {
        assert_eq!(problem(env, config), want);
    }
    let secret = problem(&[("A2A_TASK_STORE_DATABASE_URL", "postgres://u:secret@h/d")], json!({}));
    assert!(!secret.contains("secret"), "{secret}");
}

#[test]
fn all_problems_of_the_section_are_found_at_once() {
    let problems = |config: Json| {
        let found = Settings::problems(config.as_object().unwrap());
        found.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(problems(json!({})), [""; 0]);
    let good = json!({"port": 9000, "protocol_version": "1.0", "supported_protocol_versions": ["1.0"], "metrics_enabled": false,
        "static_auth_credentials": [{"scheme": "bearer", "token": "secret", "principal": "a"}]});
    assert_eq!(problems(good), [""; 0]);
    assert_eq!(problems(json!({"protocol_version": "1.0"})), [""; 0]);
    let found = problems(json!({"prot": 1, "port": "many", "metrics_enabled": 7, "host": "::1"}));
    assert_eq!(
        found,
        [
            "a2a.prot is no setting of the A2A service",
            "a2a.port is not a whole number in range: \"many\"",
            "a2a.metrics_enabled is neither true nor false: \"7\"",
        ]
    );
    let found = problems(json!({"protocol_version": "0.3", "supported_protocol_versions": ["1.0"]}));
    assert!(found.len() == 1 && found[0].contains("SUPPORTED_PROTOCOL_VERSIONS"), "{found:?}");
    let found = problems(json!({"static_auth_credentials": [{"scheme": "bearer", "token": "secret"}]}));
    assert!(found.len() == 1 && found[0].starts_with("a2a.static_auth_credentials"), "{found:?}");
    assert!(!found[0].contains("secret"), "{found:?}");
}

#[test]
fn the_only_line_is_the_default() {
    let settings = read(&[("A2A_SUPPORTED_PROTOCOL_VERSIONS", "1.0")], json!({})).unwrap();
    assert_eq!((settings.default_line, settings.lines), (Line::V10, vec![Line::V10]));
}

#[test]
fn a_database_is_a_file_or_memory() {
    for (backend, url, want) in [
        ("", "sqlite+aiosqlite:///./a.db", Backend::File("./a.db".to_owned())),
        ("", "sqlite+aiosqlite:////var/a.db?timeout=5", Backend::File("/var/a.db".to_owned())),
        ("", "sqlite+aiosqlite:///:memory:", Backend::Memory),
        ("", "sqlite+aiosqlite:///", Backend::Memory),
        ("memory", "sqlite+aiosqlite:///./a.db", Backend::Memory),
        ("database", "", Backend::Default),
    ] {
        let env = [("A2A_TASK_STORE_BACKEND", backend), ("A2A_TASK_STORE_DATABASE_URL", url)];
        assert_eq!(read(&env, json!({})).unwrap().backend, want, "{backend} {url}");
    }
}

#[test]
fn a_boundary_without_writing_switches_mutations_off() {
    for boundary in [("A2A_SANDBOX_MODE", "read-only"), ("A2A_WRITE_ACCESS_SCOPE", "none")] {
        let env = [("A2A_ENABLE_SESSION_SHELL", "true"), ("A2A_ENABLE_WORKSPACE_MUTATIONS", "1"), boundary];
        let settings = read(&env, json!({})).unwrap();
        assert!(!settings.session_shell_enabled() && !settings.workspace_mutations_enabled());
    }
}
