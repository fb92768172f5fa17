//! Which methods the service has, what each takes, how long it stays, and what is refused how. All of it comes from the tables
//! of methods, so that it cannot say anything else than what is served.

use api::{Json, JsonMap};
use serde_json::json;

use super::profile::{self, PUSH_VARIABLE, availability};
use super::{CardInput, PREFERRED_TRANSPORT, identifier};
use crate::error::ErrorKind;
use crate::wire::methods::{self, CORE, CoreMethod, EXTENSIONS, ExtensionMethod, Place, rest_endpoints};
use crate::wire::{Extension, Operation, type_and_code};
use crate::{Line, wire};

/// What the refusal of a method carries.
const REFUSAL_FIELDS: [&str; 4] = ["type", "method", "supported_methods", "protocol_version"];

/// The contract of a method of an extension in a line.
pub(super) fn method_contract(method: &ExtensionMethod, line: Line) -> Json {
    let directory = (method.place == Place::Any).then_some("directory");
    let routed = (method.place != Place::None)
        .then_some(["metadata.opencode.directory", "metadata.opencode.workspace.id"])
        .into_iter()
        .flatten();
    let optional = method.optional.iter().copied().chain(directory).chain(routed).map(str::to_owned);
    let optional: Vec<String> = optional.chain(method.query_parameters(line)).collect();
    let mut params = JsonMap::new();
    if !method.required.is_empty() {
        params.insert("required".to_owned(), method.required.into());
    }
    if !optional.is_empty() {
        params.insert("optional".to_owned(), optional.into());
    }
    let mut result = json!({ "fields": method.result });
    if let Some(item) = method.item(line) {
        result["items_type"] = item.into();
    }
    let mut contract =
        json!({ "summary": method.summary, "params": params, "result": result, "notification_response_status": 204 });
    if let Some(toggle) = method.toggle {
        contract["toggle"] = toggle.variable().into();
    }
    contract
}

fn core_methods(line: Line) -> Vec<&'static str> {
    CORE.iter().filter_map(|core| core.operation.method(line)).collect()
}

/// The methods and paths of the protocol in a line.
fn core(line: Line) -> Json {
    let endpoints: Vec<String> =
        rest_endpoints(line).map(|endpoint| format!("{} {}", endpoint.method, endpoint.path)).collect();
    json!({ "jsonrpc_methods": core_methods(line), "http_endpoints": endpoints })
}

/// Members that all contracts of a line begin with.
fn versions(input: &CardInput, line: Line) -> JsonMap {
    let mut members = JsonMap::new();
    members.insert("protocol_version".to_owned(), line.version().into());
    members.insert("default_protocol_version".to_owned(), input.wire.default_line.version().into());
    members.insert("supported_protocol_versions".to_owned(), supported(input));
    members.insert("protocol_compatibility".to_owned(), compatibility(input));
    members
}

fn supported(input: &CardInput) -> Json {
    input.wire.supported.iter().map(|line| line.version()).collect()
}

/// What is there of each line.
fn compatibility(input: &CardInput) -> Json {
    let version = |line: Line| {
        let facts = json!({
            "enabled": input.serves(line),
            "default": line == input.wire.default_line,
            "status": if input.serves(line) { "supported" } else { "disabled" },
            "supported_features": features(line),
            "known_gaps": [],
        });
        (line.version().to_owned(), facts)
    };
    json!({
        "default_protocol_version": input.wire.default_line.version(),
        "supported_protocol_versions": supported(input),
        "versions": Line::ALL.into_iter().map(version).collect::<JsonMap>(),
    })
}

fn features(line: Line) -> &'static [&'static str] {
    match line {
        Line::V03 => &[
            "All methods of JSON-RPC and the REST paths below /v1.",
            "Payloads with a kind in JSON-RPC, JSON of protocol buffers in REST.",
            "Errors with a data object in JSON-RPC, flat errors in REST.",
            "Version 1.0 with methods or paths of 0.3 gives payloads of 0.3 and errors of 1.0.",
        ],
        Line::V10 => &[
            "All methods of JSON-RPC and the REST paths at the root, also below a tenant.",
            "JSON of protocol buffers for payloads and enums in both transports.",
            "Errors with google.rpc.ErrorInfo in JSON-RPC and as AIP-193 in REST.",
            "Extensions by negotiation in the header A2A-Extensions.",
        ],
    }
}

/// Methods that only a setting enables, and that it does not enable now.
fn disabled(input: &CardInput) -> JsonMap {
    let off = EXTENSIONS.iter().filter_map(|method| {
        let toggle = method.toggle.filter(|toggle| !toggle.is_on(&input.wire))?;
        let why = json!({ "reason": "disabled_by_configuration", "toggle": toggle.variable() });
        Some((method.name.to_owned(), why))
    });
    off.collect()
}

/// The extensions that a contract lists: all but those that describe the others.
fn listed(line: Line) -> Vec<Extension> {
    let describes = |extension: &Extension| {
        matches!(extension, Extension::CompatibilityProfile | Extension::WireContract)
            || (line == Line::V03 && extension.older_identifier().is_none())
    };
    Extension::ALL.into_iter().filter(|extension| !describes(extension)).collect()
}

/// The contract of the wire.
pub(super) fn wire_contract(input: &CardInput, line: Line) -> JsonMap {
    let mut contract = versions(input, line);
    let mut put = |name: &str, value: Json| contract.insert(name.to_owned(), value);
    let (unsupported, code) = type_and_code(ErrorKind::MethodNotFound);
    let (disabled_type, disabled_code) = type_and_code(ErrorKind::MethodDisabled);
    put("profile", profile::profile(input, line));
    put("preferred_transport", PREFERRED_TRANSPORT.into());
    put("additional_transports", json!(["JSON-RPC"]));
    put("core", core(line));
    put(
        "extensions",
        json!({
            "jsonrpc_methods": methods::enabled(&input.wire).collect::<Vec<_>>(),
            "conditionally_available_methods": disabled(input),
            "extension_uris": listed(line).into_iter().map(|it| identifier(it, line)).collect::<Vec<_>>(),
        }),
    );
    put("all_jsonrpc_methods", methods::supported(line, &input.wire).into());
    put("service_behaviors", behaviors(line));
    put("unsupported_method_error", json!({ "code": code, "type": unsupported, "data_fields": REFUSAL_FIELDS }));
    put(
        "disabled_method_error",
        json!({ "code": disabled_code, "type": disabled_type, "data_fields": REFUSAL_FIELDS }),
    );
    contract
}

/// What the service does beyond the protocol.
fn behaviors(line: Line) -> Json {
    let name = |operation: Operation| operation.method(line).unwrap_or_default().to_owned();
    let same_message = json!({
        "baseline": "core",
        "retention": "stable",
        "idempotency": {
            "same_message_id": { "behavior": "return_existing_task", "other_content": "error" },
        },
    });
    let cancel = json!({
        "baseline": "core",
        "retention": "stable",
        "idempotency": {
            "already_canceled": {
                "behavior": "return_current_terminal_task", "returns_current_state": "canceled", "error": null,
            },
        },
    });
    let mut subscribe = json!({
        "baseline": "core",
        "retention": "stable",
        "resume": {
            "header": "Last-Event-ID",
            "query_parameter": "after",
            "metadata_field": "metadata.shared.stream.sequence",
            "fallback": "task_snapshot_first",
        },
    });
    if line == Line::V03 {
        subscribe["terminal_state_behavior"] = json!({
            "behavior": "replay_terminal_task_once_then_close", "delivery": "single_task_snapshot", "closes_stream": true,
        });
    }
    let methods: JsonMap = [
        (name(Operation::Send), same_message.clone()),
        (name(Operation::Stream), same_message),
        (name(Operation::Cancel), cancel),
        (name(Operation::Subscribe), subscribe),
    ]
    .into_iter()
    .collect();
    json!({ "classification": "service-level-semantic-enhancement", "methods": methods })
}

/// What stays over versions.
pub(super) fn compatibility_profile(input: &CardInput, line: Line) -> JsonMap {
    let mut contract = versions(input, line);
    if let Json::Object(profile) = profile::profile(input, line) {
        contract.extend(profile);
    }
    let mut put = |name: &str, value: Json| contract.insert(name.to_owned(), value);
    put("core", core(line));
    let extensions = listed(line).into_iter().map(|it| (identifier(it, line), extension_retention(it, input)));
    put("extension_retention", Json::Object(extensions.collect()));
    put("method_retention", method_retention(input, line));
    put("service_behaviors", behaviors(line));
    put("consumer_guidance", guidance(input).into());
    contract
}

fn extension_retention(extension: Extension, input: &CardInput) -> Json {
    let retained = |surface: &str, retention: &str| json!({ "surface": surface, "availability": "always", "retention": retention });
    match extension {
        Extension::SessionBinding | Extension::StreamHints => retained("core-runtime-metadata", "required"),
        Extension::ModelSelection => retained("core-runtime-metadata", "stable"),
        Extension::SubagentTree => retained("jsonrpc-extension", "experimental"),
        Extension::WorkspaceControl => {
            let mut retained = retained("jsonrpc-extension", "mixed");
            if input.upstream {
                retained["upstream_stability"] = "mixed".into();
            }
            retained
        }
        Extension::InterruptRecovery => {
            let mut retained = retained("jsonrpc-extension", "stable");
            add_scope(&mut retained);
            retained
        }
        _ => retained("jsonrpc-extension", "stable"),
    }
}

/// Lists of open requests are our own, and of the caller alone.
fn add_scope(retained: &mut Json) {
    retained["implementation_scope"] = "adapter-local".into();
    retained["identity_scope"] = "current_authenticated_caller".into();
}

fn method_retention(input: &CardInput, line: Line) -> Json {
    let core =
        CORE.iter().filter_map(|core| Some((core.operation.method(line)?.to_owned(), core_retention(core, input))));
    let extension = EXTENSIONS.iter().map(|method| (method.name.to_owned(), retention(method, input, line)));
    Json::Object(core.chain(extension).collect())
}

fn core_retention(core: &CoreMethod, input: &CardInput) -> Json {
    let is_push =
        matches!(core.operation, Operation::PutPush | Operation::GetPush | Operation::ListPush | Operation::DeletePush);
    if is_push {
        json!({
            "surface": "core", "availability": availability(input.push), "retention": "required", "toggle": PUSH_VARIABLE,
        })
    } else {
        json!({ "surface": "core", "availability": "always", "retention": "required" })
    }
}

fn retention(method: &ExtensionMethod, input: &CardInput, line: Line) -> Json {
    let experimental = method.experimental && input.upstream;
    let (available, kept) = match method.toggle {
        Some(toggle) => (availability(toggle.is_on(&input.wire)), "deployment-conditional"),
        None if experimental => ("always", "experimental-upstream"),
        None => ("always", "stable"),
    };
    let mut retention = json!({
        "surface": "extension",
        "availability": available,
        "retention": kept,
        "extension_uri": identifier(method.extension, line),
    });
    if let Some(toggle) = method.toggle {
        retention["toggle"] = toggle.variable().into();
    }
    if experimental {
        retention["upstream_stability"] = "experimental".into();
    }
    if method.extension == Extension::InterruptRecovery {
        add_scope(&mut retention);
    }
    retention
}

fn guidance(input: &CardInput) -> Vec<&'static str> {
    let mut guidance = vec![
        "Rely on the methods of the protocol itself; any client of A2A can use them.",
        "All callers share one workspace: expect that others change the same files.",
        "Tasks, sessions, interrupts and push configurations belong to the caller that created them.",
        "Models that a request names hold for that request alone.",
        "Methods that begin with opencode. are private to this provider; those that begin with a2a.interrupt. are shared.",
        "Read conditionally_available_methods before calling a method that a setting can disable.",
        "Answer permissions and questions with a2a.interrupt methods, or with a plain text message to the task.",
    ];
    if input.upstream {
        guidance.push(
            "Workspaces and worktrees come from experimental endpoints of the OpenCode server behind this service.",
        );
    }
    guidance
}

/// The types and codes of errors that an extension adds.
pub(super) fn errors(kinds: &[ErrorKind], data_fields: &[&str], invalid_fields: &[&str]) -> Json {
    let codes: JsonMap =
        kinds.iter().map(|kind| type_and_code(*kind)).map(|(name, code)| (name.to_owned(), code.into())).collect();
    json!({
        "error_types": codes.keys().collect::<Vec<_>>(),
        "business_codes": codes,
        "error_data_fields": data_fields,
        "invalid_params_data_fields": invalid_fields,
    })
}

/// The largest page of sessions and messages; tasks have the same.
pub(super) const MAX_PAGE: u32 = wire::MAX_PAGE;
