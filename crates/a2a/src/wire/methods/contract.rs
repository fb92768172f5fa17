//! The methods of extensions: what each takes and returns. Requests are checked by `extension`; what is published about them
//! comes from here.

use super::Toggle;
use crate::model::Line;
use crate::wire::Extension;

/// A method of an extension.
pub struct ExtensionMethod {
    /// Its name, the same in both lines.
    pub name: &'static str,
    /// The extension that it belongs to.
    pub extension: Extension,
    /// The setting that can disable it.
    pub toggle: Option<Toggle>,
    /// What it is called among the methods of its extension.
    pub alias: &'static str,
    /// What it does, in a few words.
    pub summary: &'static str,
    /// What it does to sessions.
    pub purpose: Purpose,
    /// How it names the directory or workspace that it works in.
    pub place: Place,
    /// The parameters that must be there.
    pub required: &'static [&'static str],
    /// The parameters that may be there, besides the place.
    pub optional: &'static [&'static str],
    /// The fields of its result.
    pub result: &'static [&'static str],
    /// The type of what its result holds in 1.0; empty if it says no more than that it worked.
    item: &'static str,
    /// Whether its parameters may also stand in `query`, as older clients of 0.3 send them.
    has_query: bool,
    /// Whether OpenCode calls the endpoint behind it experimental.
    pub experimental: bool,
}

/// What a method does to sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// It reads.
    Read,
    /// It changes what is there.
    Change,
    /// It runs something.
    Control,
}

/// How a method names the directory or workspace that it works in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// It does not.
    None,
    /// In its metadata.
    Metadata,
    /// In its metadata, or by the parameter `directory`.
    Any,
}

impl ExtensionMethod {
    const fn named(name: &'static str, extension: Extension, alias: &'static str, summary: &'static str) -> Self {
        Self {
            name,
            extension,
            toggle: None,
            alias,
            summary,
            purpose: Purpose::Read,
            place: Place::None,
            required: &[],
            optional: &[],
            result: &[],
            item: "",
            has_query: false,
            experimental: false,
        }
    }

    /// The type of what its result holds, if it says more than that it worked.
    pub fn item(&self, line: Line) -> Option<&'static str> {
        match (self.item, line) {
            ("", _) => None,
            // 1.0 hides directories.
            ("Worktree[]", Line::V03) => Some("string[]"),
            (item, _) => Some(item),
        }
    }

    /// The path of its parameters in `query`, where a line has them there, too.
    pub fn query_parameters(&self, line: Line) -> impl Iterator<Item = String> {
        let read = self.has_query && line == Line::V03;
        let place = (self.place == Place::Any).then_some("directory");
        self.optional.iter().copied().chain(place).filter(move |_| read).map(|name| format!("query.{name}"))
    }

    const fn toggle(self, toggle: Toggle) -> Self {
        Self { toggle: Some(toggle), ..self }
    }

    const fn purpose(self, purpose: Purpose) -> Self {
        Self { purpose, ..self }
    }

    const fn place(self, place: Place) -> Self {
        Self { place, ..self }
    }

    const fn takes(self, required: &'static [&'static str], optional: &'static [&'static str]) -> Self {
        Self { required, optional, ..self }
    }

    const fn query(self) -> Self {
        Self { has_query: true, ..self }
    }

    const fn returns(self, result: &'static [&'static str], item: &'static str) -> Self {
        Self { result, item, ..self }
    }

    const fn experimental(self) -> Self {
        Self { experimental: true, ..self }
    }
}

const fn session(name: &'static str, alias: &'static str, summary: &'static str) -> ExtensionMethod {
    ExtensionMethod::named(name, Extension::SessionManagement, alias, summary).place(Place::Any).takes(SESSION, &[])
}

/// A method that changes a session and returns its summary.
const fn change(name: &'static str, alias: &'static str, summary: &'static str) -> ExtensionMethod {
    session(name, alias, summary).purpose(Purpose::Change).returns(ITEM, "SessionSummary")
}

/// A method that runs something in a session.
const fn control(name: &'static str, alias: &'static str, summary: &'static str) -> ExtensionMethod {
    session(name, alias, summary).purpose(Purpose::Control).place(Place::Metadata)
}

const fn catalog(name: &'static str, alias: &'static str, summary: &'static str) -> ExtensionMethod {
    ExtensionMethod::named(name, Extension::ProviderDiscovery, alias, summary).place(Place::Any)
}

const fn workspace(name: &'static str, alias: &'static str, summary: &'static str) -> ExtensionMethod {
    ExtensionMethod::named(name, Extension::WorkspaceControl, alias, summary)
}

/// A method that changes workspaces or worktrees.
const fn mutation(name: &'static str, alias: &'static str, summary: &'static str) -> ExtensionMethod {
    workspace(name, alias, summary).purpose(Purpose::Change).toggle(Toggle::WorkspaceMutations).experimental()
}

const fn recovery(name: &'static str, alias: &'static str, summary: &'static str) -> ExtensionMethod {
    ExtensionMethod::named(name, Extension::InterruptRecovery, alias, summary).returns(ITEMS, "InterruptRequest[]")
}

const fn reply(name: &'static str, alias: &'static str, summary: &'static str) -> ExtensionMethod {
    ExtensionMethod::named(name, Extension::InteractiveInterrupt, alias, summary)
        .purpose(Purpose::Change)
        .returns(&["ok", "request_id"], "")
}

const SESSION: &[&str] = &["session_id"];
const ITEM: &[&str] = &["item"];
const ITEMS: &[&str] = &["items"];
const OK: &[&str] = &["ok"];
const OK_SESSION: &[&str] = &["ok", "session_id"];
const CATALOG: &[&str] = &["items", "default_by_provider", "connected"];

/// The methods of the extensions.
pub static EXTENSIONS: [ExtensionMethod; 34] = [
    session("opencode.sessions.status", "status", "Returns which sessions are busy.")
        .takes(&[], &[])
        .returns(ITEMS, "SessionStatusSummary[]"),
    session("opencode.sessions.list", "list_sessions", "Lists sessions, the newest first.")
        .takes(&[], &["limit", "roots", "start", "search"])
        .query()
        .returns(ITEMS, "Task[]"),
    session("opencode.sessions.messages.list", "get_session_messages", "Lists the messages of a session, by page.")
        .takes(SESSION, &["limit", "before"])
        .query()
        .returns(&["items", "next_cursor"], "Message[]"),
    session("opencode.sessions.get", "get_session", "Returns a session.").returns(ITEM, "Task"),
    session("opencode.sessions.children", "get_session_children", "Lists the sessions that a session started.")
        .returns(ITEMS, "Task[]"),
    session("opencode.sessions.todo", "get_session_todo", "Returns the to-do list of a session.")
        .returns(ITEMS, "Todo[]"),
    session("opencode.sessions.diff", "get_session_diff", "Returns the files that a session changed.")
        .takes(SESSION, &["message_id"])
        .returns(ITEMS, "FileDiff[]"),
    session("opencode.sessions.messages.get", "get_session_message", "Returns a message of a session.")
        .takes(&["session_id", "message_id"], &[])
        .returns(ITEM, "Message"),
    control("opencode.sessions.prompt_async", "prompt_async", "Prompts a session and returns at once.")
        .takes(
            &["session_id", "request.parts"],
            &[
                "request.messageID",
                "request.model",
                "request.agent",
                "request.noReply",
                "request.tools",
                "request.format",
                "request.system",
                "request.variant",
            ],
        )
        .returns(OK_SESSION, ""),
    control("opencode.sessions.command", "command", "Runs a command of the agent, and returns its answer.")
        .takes(
            &["session_id", "request.command", "request.arguments"],
            &["request.messageID", "request.agent", "request.model", "request.variant", "request.parts"],
        )
        .returns(ITEM, "Message"),
    change("opencode.sessions.fork", "fork", "Copies a session up to a message.")
        .takes(SESSION, &["request.messageID"]),
    change("opencode.sessions.share", "share", "Publishes a session."),
    change("opencode.sessions.unshare", "unshare", "Takes a published session back."),
    change("opencode.sessions.summarize", "summarize", "Compacts the history of a session.")
        .takes(SESSION, &["request.providerID", "request.modelID", "request.auto"])
        .returns(OK_SESSION, ""),
    change("opencode.sessions.revert", "revert", "Takes a session and its files back to a message.")
        .takes(&["session_id", "request.messageID"], &["request.partID"]),
    change("opencode.sessions.unrevert", "unrevert", "Undoes a revert."),
    control("opencode.sessions.shell", "shell", "Runs a shell command in a session.")
        .takes(&["session_id", "request.agent", "request.command"], &["request.model"])
        .returns(ITEM, "Message")
        .toggle(Toggle::SessionShell),
    catalog("opencode.providers.list", "list_providers", "Lists the providers of models.")
        .returns(CATALOG, "ProviderSummary[]"),
    catalog("opencode.models.list", "list_models", "Lists models.")
        .takes(&[], &["provider_id"])
        .returns(CATALOG, "ModelSummary[]"),
    workspace("opencode.projects.list", "list_projects", "Lists projects.").returns(ITEMS, "Project[]"),
    workspace("opencode.projects.current", "get_current_project", "Returns the current project.")
        .returns(ITEM, "Project"),
    workspace("opencode.workspaces.list", "list_workspaces", "Lists the workspaces of the project.")
        .returns(ITEMS, "Workspace[]")
        .experimental(),
    workspace("opencode.worktrees.list", "list_worktrees", "Lists the worktrees of the project.")
        .returns(ITEMS, "Worktree[]")
        .experimental(),
    mutation("opencode.workspaces.create", "create_workspace", "Creates a workspace.")
        .takes(&["request.type"], &["request.id", "request.branch", "request.extra"])
        .returns(ITEM, "Workspace"),
    mutation("opencode.workspaces.remove", "remove_workspace", "Removes a workspace.")
        .takes(&["workspace_id"], &[])
        .returns(ITEM, "Workspace|null"),
    mutation("opencode.worktrees.create", "create_worktree", "Creates a worktree.")
        .takes(&[], &["request.name", "request.startCommand"])
        .returns(ITEM, "Worktree"),
    mutation("opencode.worktrees.remove", "remove_worktree", "Removes a worktree.")
        .takes(&["request.directory"], &[])
        .returns(OK, "boolean"),
    mutation("opencode.worktrees.reset", "reset_worktree", "Discards the changes of a worktree.")
        .takes(&["request.directory"], &[])
        .returns(OK, "boolean"),
    recovery(
        "opencode.permissions.list",
        "list_permissions",
        "Lists the caller's permissions that wait for an answer.",
    ),
    recovery("opencode.questions.list", "list_questions", "Lists the caller's questions that wait for an answer."),
    reply("a2a.interrupt.permission.reply", "reply_permission", "Allows or refuses what the agent asks for.")
        .takes(&["request_id", "reply"], &["message", "metadata"]),
    reply("a2a.interrupt.question.reply", "reply_question", "Answers a question.")
        .takes(&["request_id", "answers"], &["metadata"]),
    reply("a2a.interrupt.question.reject", "reject_question", "Declines to answer a question.")
        .takes(&["request_id"], &["metadata"]),
    ExtensionMethod::named(
        "trefoil.tasks.tree",
        Extension::SubagentTree,
        "get_task_tree",
        "Lists the sessions of subagents below a task, as tasks.",
    )
    .takes(&["task_id"], &["metadata"])
    .returns(&["items", "total"], "Task[]"),
];
