//! The profile of the deployment: what is switched on, and where the agent's limits are.

use api::Json;
use serde_json::json;

use super::CardInput;
use crate::Line;
use crate::wire::methods::Toggle;

/// What clients of this extension's first service know a deployment like ours by.
const PROFILE_ID: &str = "opencode-a2a-single-tenant-coding-v1";
/// The setting of metrics.
const METRICS_VARIABLE: &str = "A2A_METRICS_ENABLED";
/// The setting of push notifications.
pub(super) const PUSH_VARIABLE: &str = "A2A_PUSH_ENABLED";

/// The profile, for clients of a line.
pub(super) fn profile(input: &CardInput, line: Line) -> Json {
    let mut profile = json!({
        "profile_id": PROFILE_ID,
        "deployment": {
            "id": "single_tenant_shared_workspace",
            "single_tenant": true,
            "shared_workspace_across_consumers": true,
            "tenant_isolation": "none",
        },
        "runtime_features": runtime_features(input),
    });
    if let Some(root) = &input.workspace_root {
        profile["runtime_context"] = json!({ "workspace_root": root });
    }
    profile["protocol_version"] = line.version().into();
    profile
}

/// What is switched on.
pub(super) fn runtime_features(input: &CardInput) -> Json {
    let scope = if input.allow_directory_override { "workspace_root_or_descendant" } else { "workspace_root_only" };
    json!({
        "directory_binding": {
            "allow_override": input.allow_directory_override,
            "scope": scope,
            "metadata_field": "metadata.opencode.directory",
        },
        "workspace_binding": {
            "enabled": true,
            "metadata_field": "metadata.opencode.workspace.id",
            "upstream_query_param": "workspace",
            "precedence": "prefer_workspace_else_directory",
        },
        "session_shell": toggled(input, Toggle::SessionShell),
        "workspace_mutations": toggled(input, Toggle::WorkspaceMutations),
        "execution_environment": boundary(input),
        "service_features": {
            "streaming": { "enabled": true, "availability": "always" },
            "health_endpoint": { "enabled": true, "availability": "always" },
            "metrics_endpoint": {
                "enabled": input.metrics,
                "availability": availability(input.metrics),
                "path": "/metrics",
                "authentication": "required",
                "toggle": METRICS_VARIABLE,
            },
            "push_notifications": {
                "enabled": input.push,
                "availability": availability(input.push),
                "toggle": PUSH_VARIABLE,
            },
        },
    })
}

fn toggled(input: &CardInput, toggle: Toggle) -> Json {
    let is_on = toggle.is_on(&input.wire);
    json!({ "enabled": is_on, "availability": availability(is_on), "toggle": toggle.variable() })
}

/// Whether something that can be switched off is on.
pub(super) fn availability(is_on: bool) -> &'static str {
    if is_on { "enabled" } else { "disabled" }
}

/// What the deployment declares about the limits of its agents. Lists are there only if they say something.
fn boundary(input: &CardInput) -> Json {
    let declared = &input.boundary;
    let mut sandbox = json!({ "mode": declared.sandbox_mode, "filesystem_scope": declared.filesystem_scope });
    if !declared.writable_roots.is_empty() {
        sandbox["writable_roots"] = declared.writable_roots.as_slice().into();
    }
    let mut network = json!({ "access": declared.network_access });
    if !declared.network_allowed_domains.is_empty() {
        network["allowed_domains"] = declared.network_allowed_domains.as_slice().into();
    }
    json!({
        "sandbox": sandbox,
        "network": network,
        "approval": { "policy": declared.approval_policy, "escalation_behavior": declared.approval_escalation },
        "write_access": { "scope": declared.write_scope, "outside_workspace": declared.write_outside },
    })
}
