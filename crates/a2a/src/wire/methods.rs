//! The methods of both lines and of the extensions, in one table.

use super::dialect::Settings;
use super::extension::Extension;
use crate::model::Line;

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
}

/// The methods of the protocol.
pub const CORE: [CoreMethod; 11] = [
    core(Operation::Send, Some("message/send"), "SendMessage"),
    core(Operation::Stream, Some("message/stream"), "SendStreamingMessage"),
    core(Operation::Get, Some("tasks/get"), "GetTask"),
    core(Operation::List, None, "ListTasks"),
    core(Operation::Cancel, Some("tasks/cancel"), "CancelTask"),
    core(Operation::PutPush, Some("tasks/pushNotificationConfig/set"), "CreateTaskPushNotificationConfig"),
    core(Operation::GetPush, Some("tasks/pushNotificationConfig/get"), "GetTaskPushNotificationConfig"),
    core(Operation::ListPush, Some("tasks/pushNotificationConfig/list"), "ListTaskPushNotificationConfigs"),
    core(Operation::DeletePush, Some("tasks/pushNotificationConfig/delete"), "DeleteTaskPushNotificationConfig"),
    core(Operation::Subscribe, Some("tasks/resubscribe"), "SubscribeToTask"),
    core(Operation::ExtendedCard, Some("agent/getAuthenticatedExtendedCard"), "GetExtendedAgentCard"),
];

const fn core(operation: Operation, v03: Option<&'static str>, v10: &'static str) -> CoreMethod {
    CoreMethod { operation, v03, v10 }
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

/// A method of an extension.
pub struct ExtensionMethod {
    /// Its name, the same in both lines.
    pub name: &'static str,
    /// The extension that it belongs to.
    pub extension: Extension,
    /// The setting that can disable it.
    pub toggle: Option<Toggle>,
}

const fn method(name: &'static str, extension: Extension) -> ExtensionMethod {
    ExtensionMethod { name, extension, toggle: None }
}

const fn toggled(name: &'static str, extension: Extension, toggle: Toggle) -> ExtensionMethod {
    ExtensionMethod { name, extension, toggle: Some(toggle) }
}

/// The methods of the extensions.
pub const EXTENSIONS: [ExtensionMethod; 33] = {
    use Extension::{InteractiveInterrupt, InterruptRecovery, ProviderDiscovery, SessionManagement, WorkspaceControl};
    use Toggle::{SessionShell, WorkspaceMutations};
    [
        method("opencode.sessions.status", SessionManagement),
        method("opencode.sessions.list", SessionManagement),
        method("opencode.sessions.messages.list", SessionManagement),
        method("opencode.sessions.get", SessionManagement),
        method("opencode.sessions.children", SessionManagement),
        method("opencode.sessions.todo", SessionManagement),
        method("opencode.sessions.diff", SessionManagement),
        method("opencode.sessions.messages.get", SessionManagement),
        method("opencode.sessions.prompt_async", SessionManagement),
        method("opencode.sessions.command", SessionManagement),
        method("opencode.sessions.fork", SessionManagement),
        method("opencode.sessions.share", SessionManagement),
        method("opencode.sessions.unshare", SessionManagement),
        method("opencode.sessions.summarize", SessionManagement),
        method("opencode.sessions.revert", SessionManagement),
        method("opencode.sessions.unrevert", SessionManagement),
        toggled("opencode.sessions.shell", SessionManagement, SessionShell),
        method("opencode.providers.list", ProviderDiscovery),
        method("opencode.models.list", ProviderDiscovery),
        method("opencode.projects.list", WorkspaceControl),
        method("opencode.projects.current", WorkspaceControl),
        method("opencode.workspaces.list", WorkspaceControl),
        method("opencode.worktrees.list", WorkspaceControl),
        toggled("opencode.workspaces.create", WorkspaceControl, WorkspaceMutations),
        toggled("opencode.workspaces.remove", WorkspaceControl, WorkspaceMutations),
        toggled("opencode.worktrees.create", WorkspaceControl, WorkspaceMutations),
        toggled("opencode.worktrees.remove", WorkspaceControl, WorkspaceMutations),
        toggled("opencode.worktrees.reset", WorkspaceControl, WorkspaceMutations),
        method("opencode.permissions.list", InterruptRecovery),
        method("opencode.questions.list", InterruptRecovery),
        method("a2a.interrupt.permission.reply", InteractiveInterrupt),
        method("a2a.interrupt.question.reply", InteractiveInterrupt),
        method("a2a.interrupt.question.reject", InteractiveInterrupt),
    ]
};

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
