//! The methods of both lines and of the extensions, in one table.

mod contract;

use super::dialect::Settings;
use crate::model::Line;

pub use contract::{EXTENSIONS, ExtensionMethod, Place, Purpose};

/// An operation of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Send a message.
    Send,
    /// Send a message and stream the task's events.
    Stream,
    /// Return a task.
    Get,
    /// List tasks.
    List,
    /// Cancel a task.
    Cancel,
    /// Stream the events of a task.
    Subscribe,
    /// Create or replace a push configuration.
    PutPush,
    /// Return a push configuration.
    GetPush,
    /// List push configurations.
    ListPush,
    /// Delete a push configuration.
    DeletePush,
    /// Return the extended card.
    ExtendedCard,
}

impl Operation {
    /// Whether its reply is an event stream.
    pub fn is_stream(self) -> bool {
        matches!(self, Self::Stream | Self::Subscribe)
    }

    /// The name of its JSON-RPC method in a line.
    pub fn method(self, line: Line) -> Option<&'static str> {
        let core = CORE.iter().find(|core| core.operation == self)?;
        match line {
            Line::V03 => core.v03,
            Line::V10 => Some(core.v10),
        }
    }
}

/// A method of the protocol.
pub struct CoreMethod {
    /// What it does.
    pub operation: Operation,
    /// Its JSON-RPC name in 0.3.
    pub v03: Option<&'static str>,
    /// Its JSON-RPC name in 1.0.
    pub v10: &'static str,
    /// The methods and paths of REST, below the prefix of a line.
    rest: &'static [(&'static str, &'static str)],
}

/// The methods of the protocol.
pub static CORE: [CoreMethod; 11] = [
    core(Operation::Send, Some("message/send"), "SendMessage", &[("POST", "message:send")]),
    core(Operation::Stream, Some("message/stream"), "SendStreamingMessage", &[("POST", "message:stream")]),
    core(Operation::Get, Some("tasks/get"), "GetTask", &[("GET", "tasks/{id}")]),
    core(Operation::List, None, "ListTasks", &[("GET", "tasks")]),
    core(Operation::Cancel, Some("tasks/cancel"), "CancelTask", &[("POST", "tasks/{id}:cancel")]),
    core(
        Operation::PutPush,
        Some("tasks/pushNotificationConfig/set"),
        "CreateTaskPushNotificationConfig",
        &[("POST", "tasks/{id}/pushNotificationConfigs")],
    ),
    core(
        Operation::GetPush,
        Some("tasks/pushNotificationConfig/get"),
        "GetTaskPushNotificationConfig",
        &[("GET", "tasks/{id}/pushNotificationConfigs/{push_id}")],
    ),
    core(
        Operation::ListPush,
        Some("tasks/pushNotificationConfig/list"),
        "ListTaskPushNotificationConfigs",
        &[("GET", "tasks/{id}/pushNotificationConfigs")],
    ),
    core(
        Operation::DeletePush,
        Some("tasks/pushNotificationConfig/delete"),
        "DeleteTaskPushNotificationConfig",
        &[("DELETE", "tasks/{id}/pushNotificationConfigs/{push_id}")],
    ),
    core(
        Operation::Subscribe,
        Some("tasks/resubscribe"),
        "SubscribeToTask",
        &[("GET", "tasks/{id}:subscribe"), ("POST", "tasks/{id}:subscribe")],
    ),
    // Its path is another in each line.
    core(Operation::ExtendedCard, Some("agent/getAuthenticatedExtendedCard"), "GetExtendedAgentCard", &[]),
];

const fn core(
    operation: Operation,
    v03: Option<&'static str>,
    v10: &'static str,
    rest: &'static [(&'static str, &'static str)],
) -> CoreMethod {
    CoreMethod { operation, v03, v10, rest }
}

/// The path of the extended card in REST, below the prefix of a line.
pub(super) const fn card_path(line: Line) -> &'static str {
    match line {
        Line::V03 => "card",
        Line::V10 => "extendedAgentCard",
    }
}

/// A method and a path of REST.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestEndpoint {
    /// What it does.
    pub operation: Operation,
    /// The method of HTTP.
    pub method: &'static str,
    /// The path, with parameters in braces.
    pub path: String,
}

/// The methods and paths of REST in a line.
pub fn rest_endpoints(line: Line) -> impl Iterator<Item = RestEndpoint> {
    let prefix = match line {
        Line::V03 => "/v1/",
        Line::V10 => "/",
    };
    let paths = move |core: &'static CoreMethod| {
        let card = (core.operation == Operation::ExtendedCard).then_some(("GET", card_path(line)));
        core.rest.iter().copied().chain(card).map(move |(method, path)| (core.operation, method, path))
    };
    CORE.iter().flat_map(paths).map(move |(operation, method, path)| RestEndpoint {
        operation,
        method,
        path: format!("{prefix}{path}"),
    })
}

/// A setting that disables methods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Toggle {
    /// Shell commands in sessions.
    SessionShell,
    /// Changes of workspaces and worktrees.
    WorkspaceMutations,
}

impl Toggle {
    /// The environment variable of the setting.
    pub fn variable(self) -> &'static str {
        match self {
            Self::SessionShell => "A2A_ENABLE_SESSION_SHELL",
            Self::WorkspaceMutations => "A2A_ENABLE_WORKSPACE_MUTATIONS",
        }
    }

    /// Whether it is on.
    pub fn is_on(self, settings: &Settings) -> bool {
        match self {
            Self::SessionShell => settings.session_shell,
            Self::WorkspaceMutations => settings.workspace_mutations,
        }
    }
}

/// What a JSON-RPC method is.
pub(super) enum Found {
    /// A method of the protocol, and the line that it belongs to.
    Core(Operation, Line),
    /// A method of an extension.
    Extension(&'static ExtensionMethod),
}

/// Looks up a JSON-RPC method by its name.
pub(super) fn find(name: &str) -> Option<Found> {
    for core in &CORE {
        if core.v03 == Some(name) {
            return Some(Found::Core(core.operation, Line::V03));
        }
        if core.v10 == name {
            return Some(Found::Core(core.operation, Line::V10));
        }
    }
    EXTENSIONS.iter().find(|method| method.name == name).map(Found::Extension)
}

/// The JSON-RPC methods of a line that the settings enable: those of the protocol, then those of extensions.
pub fn supported(line: Line, settings: &Settings) -> Vec<&'static str> {
    let core = CORE.iter().filter_map(|core| core.operation.method(line));
    core.chain(enabled(settings)).collect()
}

/// The methods of extensions that the settings enable.
pub fn enabled(settings: &Settings) -> impl Iterator<Item = &'static str> {
    let is_on = |method: &&ExtensionMethod| method.toggle.is_none_or(|toggle| toggle.is_on(settings));
    EXTENSIONS.iter().filter(is_on).map(|method| method.name).collect::<Vec<_>>().into_iter()
}
