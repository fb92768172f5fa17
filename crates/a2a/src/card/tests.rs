//! Cards against the published schema of 0.3, the official types of 1.0, and what is served.

mod signatures;

use http::{HeaderMap, Method};

use super::*;
use crate::wire::methods::{self, rest_endpoints};
use crate::wire::{Target, route};

fn input(settings: &Settings) -> CardInput {
    let schemes = [Scheme::Bearer, Scheme::Basic];
    CardInput::new(settings, "https://agent.example/a2a/", &schemes, Path::new("/srv/secret-place"), "1.2.3")
}

/// All documents of some settings.
fn documents(settings: &Settings) -> [Json; 4] {
    let input = input(settings);
    [public_card(&input), extended_card(&input), health(&input), openapi(&input)]
}

fn extension<'a>(card: &'a Json, uri: &str) -> &'a Json {
    let extensions = card["capabilities"]["extensions"].as_array().unwrap();
    extensions.iter().find(|one| one["uri"] == uri).unwrap_or_else(|| panic!("no {uri}"))
}

fn names(value: &Json) -> Vec<&str> {
    value.as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect()
}

#[test]
fn cards_are_valid_in_both_lines() {
    let schema: Json = serde_json::from_str(include_str!("../../tests/fixtures/schema-0.3.json")).unwrap();
    let card_schema = json!({ "$ref": "#/definitions/AgentCard", "definitions": schema["definitions"] });
    let validator = jsonschema::validator_for(&card_schema).unwrap();
    for push in [true, false] {
        let settings = Settings { push, project: Some("p".into()), ..Settings::default() };
        for card in &documents(&settings)[..2] {
            let errors: Vec<String> = validator.iter_errors(card).map(|error| error.to_string()).collect();
            assert_eq!(errors, [""; 0]);
            let official: a2a::AgentCard = serde_json::from_value(card.clone()).unwrap();
            assert_eq!(official.capabilities.push_notifications, Some(push));
            assert_eq!(official.capabilities.extended_agent_card, Some(true));
            assert_eq!(official.supported_interfaces.len(), 4);
            assert_eq!(official.supported_interfaces[0].protocol_version, "1.0");
            assert_eq!(official.supported_interfaces[2].protocol_version, "0.3");
            let scheme = &official.security_schemes.unwrap()["bearerAuth"];
            assert!(matches!(scheme, a2a::SecurityScheme::HttpAuth(http) if http.scheme == "bearer"));
            assert_eq!(card["url"], "https://agent.example/a2a");
            assert_eq!(card["preferredTransport"], "HTTP+JSON");
        }
    }
}

#[test]
fn our_own_client_reads_the_cards() {
    let card = wire::parse_card(public_card(&input(&Settings::default())).to_string().as_bytes()).unwrap();
    assert_eq!(card.interfaces.len(), 4);
    assert!(card.streaming && card.extended_card);
}

#[test]
fn each_line_has_its_identifiers_and_its_methods() {
    let [public, extended, ..] = documents(&Settings::default());
    let uris = |card: &Json| -> Vec<String> {
        let extensions = card["capabilities"]["extensions"].as_array().unwrap();
        extensions.iter().map(|one| one["uri"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(uris(&public).len(), 8);
    assert_eq!(uris(&extended).len(), 21);
    for uri in uris(&extended) {
        assert!(Extension::parse(&uri).is_some());
    }
    for line in Line::ALL {
        let contract = &extension(&extended, &identifier(Extension::WireContract, line))["params"];
        assert_eq!(contract["protocol_version"], line.version());
        let core = names(&contract["core"]["jsonrpc_methods"]);
        assert_eq!(core.contains(&"SendMessage"), line == Line::V10);
        assert_eq!(core.contains(&"message/send"), line == Line::V03);
        assert_eq!(contract["protocol_compatibility"]["versions"]["0.3"]["status"], "supported");
        assert_eq!(contract["protocol_compatibility"]["versions"]["1.0"]["status"], "supported");
    }
}

#[test]
fn what_is_published_is_what_is_served() {
    let settings = Settings { session_shell: true, ..Settings::default() };
    let input = input(&settings);
    let card = extended_card(&input);
    let everything = wire::Settings { workspace_mutations: true, ..input.wire.clone() };
    for line in Line::ALL {
        let wire = &extension(&card, &identifier(Extension::WireContract, line))["params"];
        let profile = &extension(&card, &identifier(Extension::CompatibilityProfile, line))["params"];
        let all = names(&wire["all_jsonrpc_methods"]);
        assert_eq!(all, methods::supported(line, &input.wire));
        let off = wire["extensions"]["conditionally_available_methods"].as_object().unwrap();
        assert_eq!(off["opencode.worktrees.create"]["toggle"], "A2A_ENABLE_WORKSPACE_MUTATIONS");
        assert!(all.contains(&"opencode.sessions.shell") && !off.contains_key("opencode.sessions.shell"));
        let retained = profile["method_retention"].as_object().unwrap();
        for name in methods::supported(line, &everything) {
            assert!(all.contains(&name) != off.contains_key(name), "{name}");
            assert!(retained.contains_key(name), "{name}");
            if let Some(extension_of) = Extension::of_method(name) {
                let params = &extension(&card, &identifier(extension_of, line))["params"];
                assert!(params["method_contracts"][name].is_object(), "{name}");
            }
        }
        for endpoint in names(&wire["core"]["http_endpoints"]) {
            let (method, path) = endpoint.split_once(' ').unwrap();
            let path = path.replace("{id}", "t").replace("{push_id}", "p");
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            let found = route(&method, &path, "", &HeaderMap::new(), &input.wire).unwrap();
            assert!(matches!(found.target, Target::Rest(_)), "{endpoint}");
            assert_eq!(found.dialect().payload, line, "{endpoint}");
        }
    }
}

#[test]
fn a_setting_that_is_off_shows_everywhere() {
    let settings = Settings { push: false, metrics: false, allow_directory_override: false, ..Settings::default() };
    let [public, extended, health, openapi] = documents(&settings);
    assert_eq!(public["capabilities"]["pushNotifications"], false);
    let features = &health["profile"]["runtime_features"];
    assert_eq!(features["directory_binding"]["scope"], "workspace_root_only");
    assert_eq!(features["session_shell"]["availability"], "disabled");
    assert_eq!(features["service_features"]["metrics_endpoint"]["enabled"], false);
    assert!(openapi["paths"].get("/metrics").is_none());
    let urn = identifier(Extension::SessionManagement, Line::V10);
    let sessions = &extension(&extended, &urn)["params"];
    assert!(sessions["methods"].get("shell").is_none());
    assert_eq!(sessions["control_method_flags"]["opencode.sessions.shell"]["config_key"], "A2A_ENABLE_SESSION_SHELL");
    let profile = &extension(&extended, &identifier(Extension::CompatibilityProfile, Line::V03))["params"];
    let push = &profile["method_retention"]["tasks/pushNotificationConfig/set"];
    assert_eq!(push["availability"], "disabled");
    assert_eq!(profile["runtime_features"], *features);
}

#[test]
fn a_declared_boundary_is_published_as_it_stands() {
    let boundary = crate::ExecutionBoundary {
        sandbox_mode: "read-only".into(),
        writable_roots: vec!["/cache".into()],
        network_access: "restricted".into(),
        network_allowed_domains: vec!["crates.io".into()],
        ..Default::default()
    };
    let settings = Settings { boundary, session_shell: true, ..Settings::default() };
    let [_, extended, health, openapi] = documents(&settings);
    let environment = &health["profile"]["runtime_features"]["execution_environment"];
    assert_eq!(environment["sandbox"]["writable_roots"], json!(["/cache"]));
    assert_eq!(environment["network"], json!({ "access": "restricted", "allowed_domains": ["crates.io"] }));
    assert_eq!(environment["approval"]["policy"], "unknown");
    // Nothing is written, so no shell runs.
    assert_eq!(health["profile"]["runtime_features"]["session_shell"]["enabled"], false);
    let contract = &extension(&extended, &identifier(Extension::WireContract, Line::V10))["params"];
    assert_eq!(contract["profile"]["runtime_features"]["execution_environment"], *environment);
    let session = &openapi["paths"]["/"]["post"]["x-a2a-extension-contracts"]["session_binding"];
    assert_eq!(session["profile"]["runtime_features"]["execution_environment"], *environment);
}

#[test]
fn the_workspace_shows_only_where_it_is_allowed_to() {
    let shown = |expose: bool| {
        let settings = Settings { expose_workspace_root: expose, ..Settings::default() };
        documents(&settings).map(|json| json.to_string().contains("secret-place"))
    };
    assert_eq!(shown(false), [false; 4]);
    assert_eq!(shown(true), [false, true, true, true]);
}

#[test]
fn secrets_are_in_no_document() {
    let settings = Settings {
        bearer_token: Some("SECRET".into()),
        static_credentials: Some("SECRET".into()),
        upstream_url: Some("http://SECRET".into()),
        upstream_password: Some("SECRET".into()),
        card_signing_key: Some("SECRET".into()),
        ..Settings::default()
    };
    for document in documents(&settings) {
        assert!(!document.to_string().contains("SECRET"));
    }
    assert!(!format!("{:?}", input(&settings)).contains("SECRET"));
}

#[test]
fn a_service_of_one_line_says_nothing_of_the_other() {
    let new = Settings { lines: vec![Line::V10], default_line: Line::V10, ..Settings::default() };
    let [public, extended, _, openapi] = documents(&new);
    for field in ["url", "protocolVersion", "security", "preferredTransport", "supportsAuthenticatedExtendedCard"] {
        assert!(public.get(field).is_none(), "{field}");
    }
    assert_eq!(public["securitySchemes"]["bearerAuth"].as_object().unwrap().len(), 1);
    assert!(!extended.to_string().contains("github.com"));
    assert!(!openapi.to_string().contains("/v1/"));
    let old = Settings { lines: vec![Line::V03], ..Settings::default() };
    let [public, extended, _, openapi] = documents(&old);
    assert!(public.get("securityRequirements").is_none());
    assert!(!extended.to_string().contains("urn:opencode"));
    assert!(!openapi.to_string().contains("{tenant}"));
}

#[test]
fn a_service_without_credentials_names_no_schemes() {
    let input = CardInput::new(&Settings::default(), "http://a", &[], Path::new("/"), "1");
    let card = public_card(&input);
    assert!(card.get("security").is_none() && card.get("securitySchemes").is_none());
    serde_json::from_value::<a2a::AgentCard>(card).unwrap();
}

#[test]
fn openapi_has_every_path_and_only_schemas_that_exist() {
    let openapi = openapi(&input(&Settings::default()));
    let paths = openapi["paths"].as_object().unwrap();
    let mut ids: Vec<&str> = Vec::new();
    for operation in paths.values().flat_map(|path| path.as_object().unwrap().values()) {
        ids.push(operation["operationId"].as_str().unwrap());
    }
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count);
    for line in Line::ALL {
        for endpoint in rest_endpoints(line) {
            let method = endpoint.method.to_ascii_lowercase();
            assert!(paths[&endpoint.path][&method].is_object());
            let twin = paths.get(&format!("/{{tenant}}{}", endpoint.path));
            assert_eq!(twin.is_some_and(|twin| twin[&method].is_object()), line == Line::V10);
        }
    }
    assert!(paths["/v1/tasks/{id}:subscribe"]["post"].is_object());
    let text = openapi.to_string();
    let mut rest = text.as_str();
    while let Some(at) = rest.find("#/components/") {
        rest = &rest[at + 1..];
        let pointer = &rest[..rest.find('"').unwrap()];
        assert!(openapi.pointer(pointer).is_some(), "{pointer}");
    }
}

#[test]
fn documents_have_a_weak_tag_over_their_content() {
    let first = document(&json!({ "a": 1, "b": [1.0] }));
    assert_eq!(first.etag, document(&json!({ "b": [1], "a": 1 })).etag);
    assert_ne!(first.etag, document(&json!({ "b": [2], "a": 1 })).etag);
    assert!(first.etag.starts_with("W/\"") && first.etag.len() == 64 + 4);
    assert_eq!(serde_json::from_slice::<Json>(&first.body).unwrap(), json!({ "a": 1, "b": [1.0] }));
}

#[test]
fn the_public_card_is_slim() {
    let [public, extended, ..] = documents(&Settings::default());
    assert!(public.to_string().len() < 12_000, "{}", public.to_string().len());
    assert!(extended.to_string().len() < 120_000, "{}", extended.to_string().len());
    assert_eq!(public["skills"].as_array().unwrap().len(), 2);
}
