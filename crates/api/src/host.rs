//! The contract about sessions, turns and asks. The engine implements it in this process, the client over HTTP; faces
//! know nothing else.

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::shape;
use crate::{
    Agent, Budget, BudgetState, CancelResult, Command, Cursor, FileDiff, FileSource, IdStamp, Json, JsonMap,
    McpAuthorization, McpConfig, McpResource, McpStatus, MessageId, MessageWithParts, ModelRef, OutputFormat, Part,
    PartId, PermissionId, PermissionReply, PermissionRequest, Project, Provider, QuestionId, QuestionRequest, Ruleset,
    Session, SessionId, SessionModel, SessionStatus, Skill, SteerInput, Timestamp, Todo, Tree, WatchItem, WatchScope,
    Worktree, WorktreeDiff,
    part::{AgentSource, PartTime},
};

/// The return type of [`Host`] methods.
pub type HostFuture<'a, T> = BoxFuture<'a, Result<T, HostError>>;

/// The directory and workspace that a call is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Scope {
    /// The directory, absolute.
    pub directory: String,
    /// The workspace, if workspaces are in use.
    pub workspace: Option<String>,
}

impl Scope {
    /// A scope for a directory.
    pub fn new(directory: impl Into<String>) -> Self {
        Self { directory: directory.into(), workspace: None }
    }
}

/// Why a call was refused or failed. Faces map it to their own codes; the text is for people.
#[derive(Debug, Clone, thiserror::Error)]
pub enum HostError {
    /// It does not exist.
    #[error("{}{} not found: {id}{}", what.get(..1).unwrap_or_default().to_uppercase(), what.get(1..).unwrap_or_default(), hint(.known))]
    NotFound {
        /// What kind of thing, for example `session`.
        what: &'static str,
        /// The id that was given.
        id: String,
        /// What exists instead, where that helps.
        known: Vec<String>,
    },
    /// No model can be used, or not the one that was named.
    #[error("{message}{}", advice.as_deref().map(|advice| format!(". {advice}")).unwrap_or_default())]
    NoModel {
        /// What is missing.
        message: String,
        /// What to do about it.
        advice: Option<String>,
    },
    /// The input is invalid.
    #[error("{0}")]
    Invalid(String),
    /// A turn is running.
    #[error("Session is busy: {0}")]
    Busy(SessionId),
    /// It was already answered, or contradicts the current state.
    #[error("{0}")]
    Conflict(String),
    /// This host does not support it.
    #[error("{0} is not supported here")]
    Unsupported(&'static str),
    /// It cannot be done right now: another program has locked the database, or the server is stopping. The same call
    /// may succeed later.
    #[error("{0}")]
    Unavailable(String),
    /// The disk or the database is full.
    #[error("{0}")]
    Full(String),
    /// The database, the disk or the network failed.
    #[error("{0}")]
    Failed(String),
}

impl HostError {
    /// The reason that servers put into a bad request for [`NoModel`](Self::NoModel).
    pub const NO_MODEL: &'static str = "NoModel";

    /// A [`NotFound`](Self::NotFound) that suggests nothing.
    pub fn not_found(what: &'static str, id: impl Into<String>) -> Self {
        Self::NotFound { what, id: id.into(), known: Vec::new() }
    }
}

/// The default of methods that a host need not support.
fn unsupported<T>(what: &'static str) -> HostFuture<'static, T> {
    Box::pin(async move { Err(HostError::Unsupported(what)) })
}

fn hint(known: &[String]) -> String {
    if known.is_empty() { String::new() } else { format!(". Known: {}", known.join(", ")) }
}

/// What a host can do beyond OpenCode's API.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Features {
    /// `watch` can resume from a cursor.
    pub cursor: bool,
    /// Messages reach a running turn at its next step.
    pub steer: bool,
    /// The tree of subagents.
    pub tree: bool,
    /// Budgets.
    pub budget: bool,
}

/// The properties of a new session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CreateSession {
    /// The session that spawns it.
    #[serde(rename = "parentID")]
    pub parent_id: Option<SessionId>,
    /// Its title; without one it gets a placeholder until a model generates one.
    pub title: Option<String>,
    /// Its agent.
    pub agent: Option<String>,
    /// Its model.
    pub model: Option<SessionModel>,
    /// Data that the client wants to store with it.
    pub metadata: Option<JsonMap>,
    /// Its own permission rules.
    pub permission: Option<Ruleset>,
    /// Its workspace.
    #[serde(rename = "workspaceID")]
    pub workspace_id: Option<String>,
}

/// Which sessions to list, most recently changed first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ListSessions {
    /// Only those of exactly this directory, not of its whole project.
    pub directory_only: bool,
    /// Those of every project.
    pub everywhere: bool,
    /// Only those without a parent.
    pub roots: bool,
    /// Only those whose title contains this, ignoring case.
    pub search: Option<String>,
    /// Only those that changed at or after this time.
    pub start: Option<Timestamp>,
    /// Only those that changed before this time; the cursor of a page.
    pub before: Option<Timestamp>,
    /// Only those at or below this path in their project.
    pub path: Option<String>,
    /// Only those that are not archived.
    pub unarchived: bool,
    /// The maximum number of sessions; 100 by default.
    pub limit: Option<usize>,
}

/// A change to a session; absent fields stay as they are.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct UpdateSession {
    /// A new title.
    pub title: Option<String>,
    /// New metadata.
    pub metadata: Option<JsonMap>,
    /// Rules to append to its own.
    pub permission: Option<Ruleset>,
    /// When it was archived, or `None` to unarchive it.
    pub archived: Option<Option<Timestamp>>,
    /// The agent for the next prompt that names none. Like the model, a Trefoil extension.
    pub agent: Option<String>,
    /// Its model.
    pub model: Option<SessionModel>,
}

/// Which messages to list.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ListMessages {
    /// The maximum number of messages; all by default.
    pub limit: Option<usize>,
    /// Only those before this message; the cursor of a page.
    pub before: Option<MessageId>,
}

/// A page of messages, oldest first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MessagePage {
    /// The messages.
    pub messages: Vec<MessageWithParts>,
    /// The cursor for the next, older page.
    pub older: Option<MessageId>,
}

/// A part of a prompt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
#[schemars(inline)]
pub enum PromptPart {
    /// Text.
    #[schemars(title = "TextPartInput")]
    Text {
        /// Its id, if the client chose one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<PartId>,
        /// The text.
        text: String,
        /// Added for the model, not written by the human.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        synthetic: Option<bool>,
        /// Shown to the human, not sent to the model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ignored: Option<bool>,
        /// When it was written.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        time: Option<PartTime>,
        /// Data that the client wants back.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        metadata: Option<JsonMap>,
    },
    /// A file, a directory or an image.
    #[schemars(title = "FilePartInput")]
    File {
        /// Its id, if the client chose one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<PartId>,
        /// Its media type.
        mime: String,
        /// Its name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        filename: Option<String>,
        /// `file:` or `data:`.
        url: String,
        /// Where it was mentioned.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(with = "Option<shape::FilePartSource>")]
        source: Option<FileSource>,
    },
    /// An agent mentioned in the prompt.
    #[schemars(title = "AgentPartInput")]
    Agent {
        /// Its id, if the client chose one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<PartId>,
        /// The agent.
        name: String,
        /// Where it was mentioned.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        source: Option<AgentSource>,
    },
    /// A task for a subagent.
    #[schemars(title = "SubtaskPartInput")]
    Subtask {
        /// Its id, if the client chose one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<PartId>,
        /// What it should do.
        prompt: String,
        /// A short description of the task.
        description: String,
        /// The agent that should do it.
        agent: String,
        /// The model to use.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<ModelRef>,
        /// The command it comes from.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command: Option<String>,
    },
}

impl PromptPart {
    /// Plain text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { id: None, text: text.into(), synthetic: None, ignored: None, time: None, metadata: None }
    }
}

/// A prompt.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PromptInput {
    /// Its content.
    pub parts: Vec<PromptPart>,
    /// The message's id, if the client chose one; the same id sent twice is accepted once.
    #[serde(rename = "messageID")]
    pub message_id: Option<MessageId>,
    /// The model, if not the session's.
    pub model: Option<ModelRef>,
    /// The agent, if not the session's.
    pub agent: Option<String>,
    /// Store the prompt without running a turn.
    #[serde(rename = "noReply")]
    pub no_reply: bool,
    /// Tools switched on or off for this turn.
    pub tools: Option<IndexMap<String, bool>>,
    /// An addition to the system prompt.
    pub system: Option<String>,
    /// The model variant, for example its reasoning effort.
    pub variant: Option<String>,
    /// The required format of the answer.
    pub format: Option<OutputFormat>,
    /// The caller's W3C trace context, propagated to the model calls.
    #[serde(skip)]
    pub traceparent: Option<String>,
}

/// The agent and model for a call that is not a prompt.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PromptTarget {
    /// The agent.
    pub agent: Option<String>,
    /// The model.
    pub model: Option<ModelRef>,
    /// The model variant, for example its reasoning effort.
    pub variant: Option<String>,
    /// The message's id, if the client chose one.
    pub message_id: Option<MessageId>,
}

/// A command to run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CommandInput {
    /// Its name, without the slash.
    pub command: String,
    /// The text after the name.
    pub arguments: String,
    /// Agent and model, if not the command's own.
    pub target: PromptTarget,
    /// Files sent along.
    pub parts: Vec<PromptPart>,
}

/// A shell command that the human runs in the session.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ShellInput {
    /// The command line.
    pub command: String,
    /// Agent and model of the resulting message.
    pub target: PromptTarget,
}

/// The point to revert to.
#[derive(Debug, Clone, PartialEq)]
pub struct RevertInput {
    /// The first message to undo.
    pub message_id: MessageId,
    /// The first part to undo.
    pub part_id: Option<PartId>,
}

/// The input of `summarize`.
#[derive(Debug, Clone, PartialEq)]
pub struct SummarizeInput {
    /// The model.
    pub model: ModelRef,
    /// Whether the turn continues afterwards.
    pub auto: bool,
}

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FileNode {
    /// Its name.
    pub name: String,
    /// Relative to the scope's directory.
    pub path: String,
    /// Absolute.
    pub absolute: String,
    /// `file` or `directory`.
    #[serde(rename = "type")]
    #[schemars(with = "shape::NodeKind")]
    pub kind: String,
    /// Whether git ignores it.
    pub ignored: bool,
}

/// Whether a file is text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum ContentKind {
    /// UTF-8.
    Text,
    /// Anything else.
    Binary,
}

/// A file's content.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FileContent {
    /// Whether it is text.
    #[serde(rename = "type")]
    pub kind: ContentKind,
    /// Text, or base64.
    pub content: String,
    /// The diff against the last commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    /// `base64`, if the content is encoded.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<shape::Encoding>")]
    pub encoding: Option<String>,
    /// Its media type.
    #[serde(rename = "mimeType", skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
}

impl FileContent {
    /// A text file.
    pub fn text(content: String) -> Self {
        Self { kind: ContentKind::Text, content, diff: None, encoding: None, mime_type: None }
    }
}

/// A file that differs from the last commit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "File")]
pub struct FileStatus {
    /// Relative path.
    pub path: String,
    /// Lines added.
    pub added: u64,
    /// Lines removed.
    pub removed: u64,
    /// What happened to it.
    pub status: crate::FileDiffStatus,
}

/// A matching line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FindTextMatch {
    /// Relative path.
    pub path: String,
    /// The line.
    pub line: String,
    /// Its number, from 1.
    pub line_number: u64,
    /// Its offset in the file.
    pub offset: u64,
    /// The byte ranges in the line that matched.
    pub matches: Vec<(u64, u64)>,
}

/// An agent runtime: this process, or a remote server.
///
/// Futures are boxed because faces hold an `Arc<dyn Host>`; no other trait should do this.
pub trait Host: Send + Sync {
    /// What it can do beyond OpenCode's API.
    fn features(&self) -> Features;

    // Sessions.

    /// Creates a session.
    fn create_session<'a>(&'a self, scope: &'a Scope, input: CreateSession) -> HostFuture<'a, Session>;
    /// Returns a session.
    fn session<'a>(&'a self, scope: &'a Scope, id: &'a SessionId) -> HostFuture<'a, Session>;
    /// Lists sessions, most recently changed first.
    fn sessions<'a>(&'a self, scope: &'a Scope, query: ListSessions) -> HostFuture<'a, Vec<Session>>;
    /// Changes a session.
    fn update_session<'a>(
        &'a self,
        scope: &'a Scope,
        id: &'a SessionId,
        change: UpdateSession,
    ) -> HostFuture<'a, Session>;
    /// Stops and deletes a session and its children.
    fn delete_session<'a>(&'a self, scope: &'a Scope, id: &'a SessionId) -> HostFuture<'a, ()>;
    /// Returns the sessions that a session spawned.
    fn children<'a>(&'a self, scope: &'a Scope, id: &'a SessionId) -> HostFuture<'a, Vec<Session>>;
    /// Copies a session, whole or up to (not including) a message.
    fn fork_session<'a>(
        &'a self,
        scope: &'a Scope,
        id: &'a SessionId,
        before: Option<MessageId>,
    ) -> HostFuture<'a, Session>;
    /// Returns the status of every session that is not idle.
    fn statuses<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, IndexMap<SessionId, SessionStatus>>;

    // Messages.

    /// Lists messages with their parts.
    fn messages<'a>(&'a self, scope: &'a Scope, id: &'a SessionId, query: ListMessages) -> HostFuture<'a, MessagePage>;
    /// Returns a message with its parts.
    fn message<'a>(
        &'a self,
        scope: &'a Scope,
        id: &'a SessionId,
        message: &'a MessageId,
    ) -> HostFuture<'a, MessageWithParts>;
    /// Deletes a message.
    fn delete_message<'a>(&'a self, scope: &'a Scope, id: &'a SessionId, message: &'a MessageId) -> HostFuture<'a, ()>;
    /// Replaces a part.
    fn update_part<'a>(&'a self, scope: &'a Scope, part: Part) -> HostFuture<'a, Part>;
    /// Deletes a part.
    fn delete_part<'a>(
        &'a self,
        scope: &'a Scope,
        id: &'a SessionId,
        message: &'a MessageId,
        part: &'a PartId,
    ) -> HostFuture<'a, ()>;

    // Turns.

    /// Sends a prompt and waits for the turn to end. Returns the last answer, or with `no_reply` the stored message.
    fn prompt<'a>(
        &'a self,
        scope: &'a Scope,
        id: &'a SessionId,
        input: PromptInput,
    ) -> HostFuture<'a, MessageWithParts>;
    /// Returns a new message id for callers that must know it before they send the message. It sorts after the newest
    /// message, even if this machine's clock is behind.
    fn message_id<'a>(&'a self, scope: &'a Scope, id: &'a SessionId) -> HostFuture<'a, MessageId> {
        Box::pin(async move {
            let newest = self.messages(scope, id, ListMessages { limit: Some(1), before: None }).await?;
            let newest = newest.messages.last().and_then(|message| IdStamp::of(message.info.id().as_str()));
            Ok(MessageId::after(newest.unwrap_or_default()))
        })
    }
    /// Sends a prompt; returns once it is durable.
    fn prompt_async<'a>(&'a self, scope: &'a Scope, id: &'a SessionId, input: PromptInput)
    -> HostFuture<'a, MessageId>;
    /// Runs a command and waits for the turn to end.
    fn command<'a>(
        &'a self,
        scope: &'a Scope,
        id: &'a SessionId,
        input: CommandInput,
    ) -> HostFuture<'a, MessageWithParts>;
    /// Runs a shell command for the human; calls no model.
    fn shell<'a>(&'a self, scope: &'a Scope, id: &'a SessionId, input: ShellInput) -> HostFuture<'a, MessageWithParts>;
    /// Stops the turn and returns once it has stopped. Returns false if none was running.
    fn abort<'a>(&'a self, scope: &'a Scope, id: &'a SessionId) -> HostFuture<'a, bool>;
    /// Compacts the conversation.
    fn summarize<'a>(&'a self, scope: &'a Scope, id: &'a SessionId, input: SummarizeInput) -> HostFuture<'a, ()>;
    /// Reverts a session to an earlier point.
    fn revert<'a>(&'a self, scope: &'a Scope, id: &'a SessionId, input: RevertInput) -> HostFuture<'a, Session>;
    /// Undoes a revert.
    fn unrevert<'a>(&'a self, scope: &'a Scope, id: &'a SessionId) -> HostFuture<'a, Session>;
    /// Returns the todo list.
    fn todo<'a>(&'a self, scope: &'a Scope, id: &'a SessionId) -> HostFuture<'a, Vec<Todo>>;
    /// Returns what a session, or one of its turns, changed.
    fn diff<'a>(
        &'a self,
        scope: &'a Scope,
        id: &'a SessionId,
        message: Option<MessageId>,
    ) -> HostFuture<'a, Vec<FileDiff>>;
    /// Returns the prompts that were accepted and have no final answer yet, in order. Sending one again by its id waits
    /// for that answer, and runs its turn if nobody else does.
    fn waiting<'a>(&'a self, scope: &'a Scope, id: &'a SessionId) -> HostFuture<'a, Vec<MessageId>>;
    /// Repairs turns that a crash interrupted, of one session or of all, and resumes or fails them.
    fn recover<'a>(&'a self, session: Option<&'a SessionId>) -> HostFuture<'a, usize>;

    // Subagents.

    /// Returns a session and all its descendants. Like everything in this section, only if [`Features`] says so.
    fn tree<'a>(&'a self, scope: &'a Scope, id: &'a SessionId) -> HostFuture<'a, Tree> {
        let _ = (scope, id);
        unsupported("The tree of subagents")
    }
    /// Sends a message to a running turn, which sees it at its next step. Returns once it is durable.
    fn steer<'a>(&'a self, scope: &'a Scope, id: &'a SessionId, input: SteerInput) -> HostFuture<'a, MessageId> {
        let _ = (scope, id, input);
        unsupported("Steering")
    }
    /// Pauses a session and its descendants before their next step, or resumes them. Returns false if nothing changed.
    fn pause<'a>(&'a self, scope: &'a Scope, id: &'a SessionId, paused: bool) -> HostFuture<'a, bool> {
        let _ = (scope, id, paused);
        unsupported("Pausing")
    }
    /// Stops a session and its descendants, and no other; returns once they have stopped.
    fn cancel<'a>(&'a self, scope: &'a Scope, id: &'a SessionId) -> HostFuture<'a, CancelResult> {
        let _ = (scope, id);
        unsupported("Cancelling a subtree")
    }
    /// Sets what a session and its descendants may use together; an empty budget removes the limit.
    fn budget<'a>(&'a self, scope: &'a Scope, id: &'a SessionId, budget: Budget) -> HostFuture<'a, BudgetState> {
        let _ = (scope, id, budget);
        unsupported("Budgets")
    }
    /// Moves the subagents that a session is waiting for to the background, or has it wait for those in the background.
    /// Returns false if there are none.
    fn background<'a>(&'a self, scope: &'a Scope, id: &'a SessionId, background: bool) -> HostFuture<'a, bool> {
        let _ = (scope, id, background);
        unsupported("Background tasks")
    }

    /// Returns the unmerged changes in a session's worktree.
    fn worktree_diff<'a>(&'a self, scope: &'a Scope, id: &'a SessionId) -> HostFuture<'a, WorktreeDiff> {
        let _ = (scope, id);
        unsupported("The worktree of a subagent")
    }
    /// Merges the changes of a session's worktree into the working tree it was created from, all or nothing. Returns
    /// what was merged.
    fn worktree_merge<'a>(&'a self, scope: &'a Scope, id: &'a SessionId) -> HostFuture<'a, Worktree> {
        let _ = (scope, id);
        unsupported("The worktree of a subagent")
    }
    /// Removes a session's worktree and its branch. Returns what was discarded.
    fn worktree_discard<'a>(&'a self, scope: &'a Scope, id: &'a SessionId) -> HostFuture<'a, Worktree> {
        let _ = (scope, id);
        unsupported("The worktree of a subagent")
    }

    // Asks.

    /// Returns the pending permission requests.
    fn permissions<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<PermissionRequest>>;
    /// Answers a permission request.
    fn reply_permission<'a>(
        &'a self,
        scope: &'a Scope,
        id: &'a PermissionId,
        reply: PermissionReply,
    ) -> HostFuture<'a, ()>;
    /// Returns the pending questions.
    fn questions<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<QuestionRequest>>;
    /// Answers a question; `None` means that the human declines.
    fn reply_question<'a>(
        &'a self,
        scope: &'a Scope,
        id: &'a QuestionId,
        answers: Option<Vec<Vec<String>>>,
    ) -> HostFuture<'a, ()>;

    // Catalogue.

    /// Returns the agents.
    fn agents<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<Agent>>;
    /// Returns the commands.
    fn commands<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<Command>>;
    /// Returns the commands, and those from the MCP servers of one session where the host tells them apart.
    fn session_commands<'a>(&'a self, scope: &'a Scope, _: &'a SessionId) -> HostFuture<'a, Vec<Command>> {
        self.commands(scope)
    }
    /// Returns the skills.
    fn skills<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<Skill>>;
    /// Returns the usable providers, each with its models.
    fn providers<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<Provider>>;
    /// Returns the model for prompts that name none.
    fn default_model<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, ModelRef>;
    /// Returns the configuration in effect, as JSON.
    fn config<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Json>;
    /// Returns the known projects.
    fn projects<'a>(&'a self) -> HostFuture<'a, Vec<Project>>;
    /// Returns the project of the scope.
    fn project<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Project>;
    /// Lists a directory.
    fn files<'a>(&'a self, scope: &'a Scope, path: &'a str) -> HostFuture<'a, Vec<FileNode>>;
    /// Reads a file.
    fn file<'a>(&'a self, scope: &'a Scope, path: &'a str) -> HostFuture<'a, FileContent>;
    /// Finds files by name, best match first.
    fn find_files<'a>(&'a self, scope: &'a Scope, query: &'a str, limit: usize) -> HostFuture<'a, Vec<String>>;
    /// Finds lines that match a regular expression.
    fn find_text<'a>(&'a self, scope: &'a Scope, pattern: &'a str, limit: usize) -> HostFuture<'a, Vec<FindTextMatch>>;

    // MCP servers.

    /// Returns the status of each server, starting them first if necessary.
    fn mcp<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, IndexMap<String, McpStatus>>;
    /// Adds or replaces a server for the lifetime of the host, and connects to it.
    fn mcp_add<'a>(
        &'a self,
        scope: &'a Scope,
        name: &'a str,
        config: McpConfig,
    ) -> HostFuture<'a, IndexMap<String, McpStatus>>;
    /// Connects to a server.
    fn mcp_connect<'a>(&'a self, scope: &'a Scope, name: &'a str) -> HostFuture<'a, ()>;
    /// Disconnects from a server.
    fn mcp_disconnect<'a>(&'a self, scope: &'a Scope, name: &'a str) -> HostFuture<'a, ()>;
    /// Returns the resources of all servers.
    fn mcp_resources<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, IndexMap<String, McpResource>>;
    /// Starts signing in to a server: the URL leads the user to a code.
    fn mcp_auth_start<'a>(&'a self, scope: &'a Scope, name: &'a str) -> HostFuture<'a, McpAuthorization>;
    /// Completes the sign-in with that code.
    fn mcp_auth_callback<'a>(&'a self, scope: &'a Scope, name: &'a str, code: &'a str) -> HostFuture<'a, McpStatus>;
    /// Signs in with a browser on the host's machine; returns once the user has done so.
    fn mcp_authenticate<'a>(&'a self, scope: &'a Scope, name: &'a str) -> HostFuture<'a, McpStatus>;
    /// Deletes the stored sign-in for a server.
    fn mcp_auth_remove<'a>(&'a self, scope: &'a Scope, name: &'a str) -> HostFuture<'a, ()>;
    /// Sets the servers that a session brings in addition to those of its directory; its subagents use them too. They
    /// stop when the session sets none, or is deleted.
    fn session_servers<'a>(
        &'a self,
        scope: &'a Scope,
        session: &'a SessionId,
        servers: IndexMap<String, McpConfig>,
    ) -> HostFuture<'a, ()>;
    /// Like `session_servers`, for a host that may have restarted: servers that it already has for the session stay.
    fn restore_servers<'a>(
        &'a self,
        scope: &'a Scope,
        session: &'a SessionId,
        servers: IndexMap<String, McpConfig>,
    ) -> HostFuture<'a, ()>;

    // Events.

    /// Streams events after a cursor, or from now on. After a reconnect without a gap it yields `server.connected`.
    fn watch<'a>(&'a self, scope: WatchScope, after: Option<Cursor>) -> HostFuture<'a, BoxStream<'static, WatchItem>>;
}
