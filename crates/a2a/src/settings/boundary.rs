//! What a deployment declares about the limits of its agents. It is published as it stands; nothing is enforced by it.

use serde::Serialize;

/// The declarations about a sandbox, the network, approvals and writing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExecutionBoundary {
    /// `unknown`, `read-only`, `workspace-write`, `danger-full-access` or `custom`.
    pub sandbox_mode: String,
    /// `unknown`, `workspace_only`, `workspace_and_declared_roots`, `unrestricted` or `custom`.
    pub filesystem_scope: String,
    /// Roots outside of the workspace that may be written.
    pub writable_roots: Vec<String>,
    /// `unknown`, `disabled`, `enabled`, `restricted` or `custom`.
    pub network_access: String,
    /// The domains that may be reached.
    pub network_allowed_domains: Vec<String>,
    /// `unknown`, `never`, `on-request`, `on-failure`, `untrusted` or `custom`.
    pub approval_policy: String,
    /// `unknown`, `manual`, `automatic`, `unsupported` or `custom`.
    pub approval_escalation: String,
    /// `unknown`, `none`, `workspace_only`, `workspace_and_declared_roots`, `unrestricted` or `custom`.
    pub write_scope: String,
    /// `unknown`, `allowed`, `disallowed` or `custom`.
    pub write_outside: String,
}

const UNKNOWN: &str = "unknown";

impl Default for ExecutionBoundary {
    fn default() -> Self {
        let unknown = || UNKNOWN.to_owned();
        Self {
            sandbox_mode: unknown(),
            filesystem_scope: unknown(),
            writable_roots: Vec::new(),
            network_access: unknown(),
            network_allowed_domains: Vec::new(),
            approval_policy: unknown(),
            approval_escalation: unknown(),
            write_scope: unknown(),
            write_outside: unknown(),
        }
    }
}

impl ExecutionBoundary {
    /// Whether it says that nothing is written.
    pub fn forbids_writing(&self) -> bool {
        self.sandbox_mode == "read-only" || self.write_scope == "none"
    }

    /// Whether it says anything.
    pub fn is_declared(&self) -> bool {
        *self != Self::default()
    }
}

pub(super) const SANDBOX_MODES: &[&str] = &[UNKNOWN, "read-only", "workspace-write", "danger-full-access", "custom"];
pub(super) const SCOPES: &[&str] =
    &[UNKNOWN, "workspace_only", "workspace_and_declared_roots", "unrestricted", "custom"];
pub(super) const NETWORK: &[&str] = &[UNKNOWN, "disabled", "enabled", "restricted", "custom"];
pub(super) const APPROVAL: &[&str] = &[UNKNOWN, "never", "on-request", "on-failure", "untrusted", "custom"];
pub(super) const ESCALATION: &[&str] = &[UNKNOWN, "manual", "automatic", "unsupported", "custom"];
pub(super) const WRITE_SCOPES: &[&str] =
    &[UNKNOWN, "none", "workspace_only", "workspace_and_declared_roots", "unrestricted", "custom"];
pub(super) const OUTSIDE: &[&str] = &[UNKNOWN, "allowed", "disallowed", "custom"];

pub(super) fn word(text: &str, words: &[&str]) -> Result<String, String> {
    let text = text.to_ascii_lowercase();
    if words.contains(&text.as_str()) { Ok(text) } else { Err(format!("is none of {}: {text:?}", words.join(", "))) }
}
