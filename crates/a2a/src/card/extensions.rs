//! The extensions that a card lists, each with what clients need to use it.

use api::{Json, JsonMap};
use serde_json::json;

use super::contract::{self, errors, method_contract};
use super::{CardInput, Detail, identifier, profile};
use crate::Line;
use crate::error::ErrorKind;
use crate::wire::methods::{self, EXTENSIONS, ExtensionMethod, Purpose};
use crate::wire::{Extension, Operation};

/// What the public card lists.
const PUBLIC: [Extension; 4] =
    [Extension::SessionBinding, Extension::ModelSelection, Extension::StreamHints, Extension::InteractiveInterrupt];

/// The private metadata that says where a request works.
const PLACE_METADATA: [&str; 2] = ["opencode.directory", "opencode.workspace.id"];
/// How many sessions or messages a list has by default.
const DEFAULT_PAGE: u32 = 20;

/// The extensions of a card: for each line those with its identifiers, the newest line first.
pub(super) fn entries(input: &CardInput, detail: Detail) -> Vec<Json> {
    let mut entries: Vec<Json> = Vec::new();
    for line in input.lines() {
        for extension in shown(detail) {
            let uri = identifier(extension, line);
            // An extension of ours has one identifier for both lines.
            if !entries.iter().any(|entry| entry["uri"] == uri) {
                let params = params(extension, input, line, detail);
                entries.push(json!({ "uri": uri, "description": description(extension), "params": params }));
            }
        }
    }
    entries
}

fn shown(detail: Detail) -> impl Iterator<Item = Extension> {
    Extension::ALL.into_iter().filter(move |it| detail == Detail::Extended || PUBLIC.contains(it))
}

fn description(extension: Extension) -> &'static str {
    match extension {
        Extension::SessionBinding => {
            "Continues a session of the agent runtime, which metadata.shared.session.id names."
        }
        Extension::ModelSelection => "Chooses the model of one request with metadata.shared.model.",
        Extension::StreamHints => "Tells what each event of a stream is: kind of block, number, progress, usage.",
        Extension::InteractiveInterrupt => "Answers the permissions and questions that a running task asks for.",
        Extension::SessionManagement => "Reads, changes and runs sessions through methods of JSON-RPC.",
        Extension::ProviderDiscovery => "Lists model providers and models.",
        Extension::WorkspaceControl => "Lists and changes projects, workspaces and worktrees.",
        Extension::InterruptRecovery => "Lists the caller's permissions and questions that wait for an answer.",
        Extension::CompatibilityProfile => "Says what the service retains over versions.",
        Extension::WireContract => "Says which methods and paths the service has, and how it refuses others.",
        Extension::SubagentTree => {
            "Lists the sessions of subagents below a task as tasks, with the tree in their metadata."
        }
    }
}

/// The contract of an extension in a line.
pub(super) fn params(extension: Extension, input: &CardInput, line: Line, detail: Detail) -> Json {
    let mut params = match extension {
        Extension::SessionBinding => session_binding(detail),
        Extension::ModelSelection => model_selection(line, detail),
        Extension::StreamHints => stream_hints(line, detail),
        Extension::InteractiveInterrupt => interactive_interrupt(line, detail),
        Extension::SessionManagement => session_management(input, line),
        Extension::ProviderDiscovery => provider_discovery(line),
        Extension::WorkspaceControl => workspace_control(line),
        Extension::InterruptRecovery => interrupt_recovery(line),
        Extension::CompatibilityProfile => return Json::Object(contract::compatibility_profile(input, line)),
        Extension::WireContract => return Json::Object(contract::wire_contract(input, line)),
        Extension::SubagentTree => return subagent_tree(line),
    };
    if detail == Detail::Extended {
        params["profile"] = profile::profile(input, line);
    }
    params
}

/// Fields with their places below a path.
fn fields(path: &str, names: &[&str]) -> Json {
    names.iter().map(|name| ((*name).to_owned(), Json::from(format!("{path}.{name}")))).collect()
}

fn add(params: &mut Json, members: Json) {
    if let (Some(params), Json::Object(members)) = (params.as_object_mut(), members) {
        params.extend(members);
    }
}

fn session_binding(detail: Detail) -> Json {
    let session: &[&str] = if detail == Detail::Extended { &["id", "title"] } else { &["id"] };
    let mut params = json!({
        "metadata_field": "metadata.shared.session.id",
        "behavior": "prefer_metadata_binding_else_create_session",
        "session_metadata_field": "metadata.shared.session",
        "session_fields": fields("metadata.shared.session", session),
        "supported_metadata": ["shared.session.id", PLACE_METADATA[0], PLACE_METADATA[1]],
        "provider_private_metadata": PLACE_METADATA,
    });
    if detail == Detail::Extended {
        params["notes"] = json!([
            "A request that names a session continues it, if the caller may use it.",
            "Without a name, all requests of a caller in one context continue the same session; the first creates it.",
            "A workspace id wins over a directory.",
        ]);
    }
    params
}

fn model_selection(line: Line, detail: Detail) -> Json {
    let names = ["providerID", "modelID"];
    let mut params = json!({
        "metadata_field": "metadata.shared.model",
        "behavior": "prefer_metadata_model_else_upstream_default",
        "applies_to_methods": [Operation::Send.method(line), Operation::Stream.method(line)],
        "supported_metadata": names.map(|name| format!("shared.model.{name}")),
        "provider_private_metadata": [],
        "fields": fields("metadata.shared.model", &names),
    });
    if detail == Detail::Extended {
        params["notes"] = json!([
            "Both fields together choose the model of this request alone.",
            "If one is missing or empty, the default model answers.",
        ]);
    }
    params
}

fn stream_hints(line: Line, detail: Detail) -> Json {
    let mut params = json!({
        "artifact_metadata_field": "metadata.shared.stream",
        "progress_metadata_field": "metadata.shared.progress",
        "usage_metadata_field": "metadata.shared.usage",
        "block_types": ["text", "reasoning", "tool_call"],
    });
    if line == Line::V03 {
        // In 1.0 these belong to extensions of their own.
        params["interrupt_metadata_field"] = "metadata.shared.interrupt".into();
        params["session_metadata_field"] = "metadata.shared.session".into();
        params["interrupt_fields"] = interrupt_fields(detail);
        params["session_fields"] = fields("metadata.shared.session", &["id", "title"]);
    }
    let (stream, progress, usage): (&[&str], &[&str], &[&str]) = match detail {
        Detail::Public => (
            &["block_type", "message_id", "sequence"],
            &["type", "status"],
            &["input_tokens", "output_tokens", "total_tokens"],
        ),
        Detail::Extended => (
            &["block_type", "source", "message_id", "event_id", "sequence", "role"],
            &["type", "part_id", "reason", "status", "title", "subtitle"],
            &["input_tokens", "output_tokens", "total_tokens", "reasoning_tokens", "cost"],
        ),
    };
    params["stream_fields"] = fields("metadata.shared.stream", stream);
    params["progress_fields"] = fields("metadata.shared.progress", progress);
    params["usage_fields"] = fields("metadata.shared.usage", usage);
    if detail == Detail::Extended {
        params["status_metadata_field"] = "metadata.shared.stream".into();
        params["usage_fields"]["cache_tokens"] =
            fields("metadata.shared.usage.cache_tokens", &["read_tokens", "write_tokens"]);
        let text = json!({ "part_kind": "text", "payload_field": "artifact.parts[].text" });
        let payload = ["call_id", "tool", "status", "title", "subtitle", "input", "output", "error"];
        params["block_contracts"] = json!({
            "text": text,
            "reasoning": text,
            "tool_call": {
                "part_kind": "data",
                "payload_field": "artifact.parts[].data",
                "payload_fields": fields("artifact.parts[].data", &payload),
            },
        });
    }
    params
}

fn interrupt_fields(detail: Detail) -> Json {
    let names: &[&str] = match detail {
        Detail::Public => &["request_id", "type", "phase"],
        Detail::Extended => &["request_id", "type", "phase", "details", "resolution"],
    };
    fields("metadata.shared.interrupt", names)
}

/// The methods of an extension under their short names.
fn named(methods: impl Iterator<Item = &'static ExtensionMethod>) -> Json {
    methods.map(|method| (method.alias.to_owned(), Json::from(method.name))).collect()
}

fn of(extension: Extension) -> impl Iterator<Item = &'static ExtensionMethod> {
    EXTENSIONS.iter().filter(move |method| method.extension == extension)
}

fn contracts(methods: impl Iterator<Item = &'static ExtensionMethod>, line: Line) -> Json {
    methods.map(|method| (method.name.to_owned(), method_contract(method, line))).collect()
}

/// The settings that enable methods.
fn flags(extension: Extension) -> Json {
    let toggled = of(extension).filter_map(|method| Some((method.name, method.toggle?)));
    let flag = |toggle: methods::Toggle| json!({ "enabled_by_default": false, "config_key": toggle.variable() });
    toggled.map(|(name, toggle)| (name.to_owned(), flag(toggle))).collect()
}

/// Where clients say in which directory or workspace a method works.
fn place() -> Json {
    json!({
        "supported_metadata": PLACE_METADATA,
        "provider_private_metadata": PLACE_METADATA,
        "context_fields": { "directory": "metadata.opencode.directory", "workspace_id": "metadata.opencode.workspace.id" },
    })
}

fn interactive_interrupt(line: Line, detail: Detail) -> Json {
    let mut params = json!({
        "methods": named(of(Extension::InteractiveInterrupt)),
        "supported_interrupt_events": ["permission.asked", "question.asked"],
        "request_id_field": "metadata.shared.interrupt.request_id",
        "interrupt_metadata_field": "metadata.shared.interrupt",
        "interrupt_fields": interrupt_fields(detail),
    });
    if detail == Detail::Extended {
        add(&mut params, place());
        add(
            &mut params,
            json!({
                "method_contracts": contracts(of(Extension::InteractiveInterrupt), line),
                "permission_reply_values": ["once", "always", "reject"],
                "question_reply_contract": { "answers": "a list of answers for each question, in the order of the questions" },
                "success_result_fields": ["ok", "request_id"],
                "plain_text_replies": "a message to the task that says once, always or reject, or answers the question",
                "errors": errors(
                    &[
                        ErrorKind::InterruptNotFound,
                        ErrorKind::InterruptExpired,
                        ErrorKind::InterruptTypeMismatch,
                        ErrorKind::UpstreamUnreachable,
                        ErrorKind::UpstreamHttp,
                    ],
                    &["type", "request_id", "expected_interrupt_type", "actual_interrupt_type", "upstream_status", "detail"],
                    &["type", "field", "fields", "request_id"],
                ),
            }),
        );
    }
    params
}

fn session_management(input: &CardInput, line: Line) -> Json {
    let enabled: Vec<&str> = methods::enabled(&input.wire).collect();
    let on = || of(Extension::SessionManagement).filter(|method| enabled.contains(&method.name));
    let purpose = |purpose: Purpose| named(on().filter(|method| method.purpose == purpose));
    let paged: Vec<&str> = on().filter(|method| method.optional.contains(&"limit")).map(|method| method.name).collect();
    let with_cursor: Vec<&str> =
        on().filter(|method| method.optional.contains(&"before")).map(|method| method.name).collect();
    let mut method_contracts = contracts(on(), line);
    if let Some(prompt) = method_contracts.get_mut("opencode.sessions.prompt_async") {
        prompt["request_parts"] = prompt_parts();
    }
    for name in &paged {
        method_contracts[*name]["params"]["unsupported"] = json!(["cursor", "page", "size"]);
    }
    json!({
        "methods": named(on()),
        "read_methods": purpose(Purpose::Read),
        "mutation_methods": purpose(Purpose::Change),
        "control_methods": purpose(Purpose::Control),
        "control_method_flags": flags(Extension::SessionManagement),
        "context_semantics": {
            "a2a_context_id_field": "contextId",
            "a2a_context_id_prefix": "ctx:opencode-session:",
            "upstream_session_id_field": "metadata.shared.session.id",
        },
        "pagination": {
            "mode": "limit_and_optional_cursor",
            "default_limit": DEFAULT_PAGE,
            "max_limit": contract::MAX_PAGE,
            "behavior": "passthrough",
            "params": ["limit", "before"],
            "cursor_param": "before",
            "result_cursor_field": "next_cursor",
            "applies_to": paged,
            "cursor_applies_to": with_cursor,
        },
        "method_contracts": method_contracts,
        "errors": errors(
            &[
                ErrorKind::SessionNotFound,
                ErrorKind::SessionForbidden,
                ErrorKind::AuthorizationForbidden,
                ErrorKind::UpstreamUnreachable,
                ErrorKind::UpstreamHttp,
                ErrorKind::UpstreamPayload,
            ],
            &["type", "method", "session_id", "capability", "credential_id", "upstream_status", "detail"],
            &["type", "field", "fields", "supported", "unsupported"],
        ),
    })
}

/// The parts of a prompt.
fn prompt_parts() -> Json {
    json!({
        "items_type": "PromptAsyncPart[]",
        "type_field": "type",
        "accepted_types": ["text", "file", "agent", "subtask"],
        "part_contracts": {
            "text": { "required": ["type", "text"] },
            "file": { "required": ["type", "mime", "url"] },
            "agent": { "required": ["type", "name"] },
            "subtask": { "required": ["type", "prompt", "description", "agent"], "optional": ["model", "command"] },
        },
    })
}

fn provider_discovery(line: Line) -> Json {
    let mut params = json!({
        "methods": named(of(Extension::ProviderDiscovery)),
        "method_contracts": contracts(of(Extension::ProviderDiscovery), line),
        "provider_item_fields":
            fields("items[]", &["provider_id", "name", "source", "connected", "default_model_id", "model_count"]),
        "model_item_fields": fields(
            "items[]",
            &[
                "provider_id",
                "model_id",
                "name",
                "status",
                "context_window",
                "max_output_tokens",
                "supports_reasoning",
                "supports_tool_call",
                "supports_attachments",
                "default",
                "connected",
            ],
        ),
        "errors": errors(
            &[ErrorKind::UpstreamUnreachable, ErrorKind::UpstreamHttp, ErrorKind::UpstreamPayload],
            &["type", "method", "upstream_status", "detail"],
            &["type", "field", "fields"],
        ),
    });
    add(&mut params, place());
    params
}

fn workspace_control(line: Line) -> Json {
    let stability = of(Extension::WorkspaceControl).map(|method| {
        let stability = if method.experimental { "experimental" } else { "stable" };
        (method.name.to_owned(), Json::from(stability))
    });
    json!({
        "methods": named(of(Extension::WorkspaceControl)),
        "control_method_flags": flags(Extension::WorkspaceControl),
        "method_contracts": contracts(of(Extension::WorkspaceControl), line),
        "upstream_stability": stability.collect::<JsonMap>(),
        "notes": [
            "All methods work on the project of the service.",
            "Methods that change something need a setting of the deployment and a capability of the caller.",
        ],
        "errors": errors(
            &[
                ErrorKind::AuthorizationForbidden,
                ErrorKind::UpstreamUnreachable,
                ErrorKind::UpstreamHttp,
                ErrorKind::UpstreamPayload,
            ],
            &["type", "method", "capability", "credential_id", "upstream_status", "detail"],
            &["type", "field", "fields"],
        ),
    })
}

fn interrupt_recovery(line: Line) -> Json {
    json!({
        "methods": named(of(Extension::InterruptRecovery)),
        "method_contracts": contracts(of(Extension::InterruptRecovery), line),
        "recovery_scope": {
            "data_source": "local_interrupt_binding_registry",
            "identity_scope": "current_authenticated_caller",
        },
        "item_fields": fields(
            "items[]",
            &["request_id", "session_id", "interrupt_type", "task_id", "context_id", "details", "expires_at"],
        ),
        "notes": ["These methods list. The methods a2a.interrupt answer."],
        "errors": { "invalid_params_data_fields": ["type", "field", "fields"] },
    })
}

fn subagent_tree(line: Line) -> Json {
    json!({
        "methods": named(of(Extension::SubagentTree)),
        "method_contracts": contracts(of(Extension::SubagentTree), line),
        "metadata_field": "metadata.trefoil.subagent",
        "item_fields": fields(
            "items[].metadata.trefoil.subagent",
            &["task_id", "session_id", "parent_id", "depth", "state", "background", "agent", "model", "tool"],
        ),
        "notes": ["What subagents say is not shown. An item's parent_id is the id of another item, or of the task."],
        "errors": { "invalid_params_data_fields": ["type", "field", "fields"] },
    })
}
