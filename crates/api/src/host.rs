//! The one contract about sessions, turns and asks. The engine implements it in this process, the client over HTTP;
//! the faces know nothing else.

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::shape;
use crate::{
    Agent, Budget, BudgetState, Cancelled, Command, Cursor, FileDiff, FileSource, Json, JsonMap, McpAuthorization,
    McpConfig, McpResource, McpStatus, MessageId, MessageWithParts, ModelRef, OutputFormat, Part, PartId, PermissionId,
    PermissionReply, PermissionRequest, Project, Provider, QuestionId, QuestionRequest, Ruleset, Session, SessionId,
    SessionModel, SessionStatus, Skill, Stamp, SteerInput, Timestamp, Todo, Tree, WatchItem, WatchScope, Worktree,
    WorktreeDiff,
    part::{AgentSource, PartTime},
};

/// What a [`Host`] method gives back.
pub type HostFuture<'a, T> = BoxFuture<'a, Result<T, HostError>>;

/// Where a call happens.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Scope {
    /// The directory, absolute.
    pub directory: String,
    /// The workspace, where workspaces are used.
    pub workspace: Option<String>,
}

impl Scope {
    /// A directory.
    pub fn new(directory: impl Into<String>) -> Self {
        Self { directory: directory.into(), workspace: None }
    }
}

/// Why a call was refused or failed. Faces map it to their own codes; the text is for humans.
#[derive(Debug, Clone, thiserror::Error)]
pub enum HostError {
    /// There is no such thing.
    #[error("{}{} not found: {id}{}", what.get(..1).unwrap_or_default().to_uppercase(), what.get(1..).unwrap_or_default(), hint(.known))]
    NotFound {
        /// What kind of thing, for example `session`.
        what: &'static str,
        /// What was asked for.
        id: String,
        /// What exists instead, as far as that helps.
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
    /// The input makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// A turn runs.
    #[error("Session is busy: {0}")]
    Busy(SessionId),
    /// It was answered already, or contradicts what is there.
    #[error("{0}")]
    Conflict(String),
    /// This host cannot do that.
    #[error("{0} is not supported here")]
    Unsupported(&'static str),
    /// It cannot be done at the moment: the database is locked by another program, or the server is stopping. The same call
    /// may succeed later.
    #[error("{0}")]
    Unavailable(String),
    /// No space is left to store it.
    #[error("{0}")]
    Full(String),
    /// The database, the disk or the network failed.
    #[error("{0}")]
    Failed(String),
}

impl HostError {
    /// How servers mark [`NoModel`](Self::NoModel) on the wire, as the reason of a bad request.
    pub const NO_MODEL: &'static str = "NoModel";

    /// There is no such thing.
    pub fn not_found(what: &'static str, id: impl Into<String>) -> Self {
        Self::NotFound { what, id: id.into(), known: Vec::new() }
    }
}

/// The answer of a host that cannot do something.
fn unsupported<T>(what: &'static str) -> HostFuture<'static, T> {
    Box::pin(async move { Err(HostError::Unsupported(what)) })
}

fn hint(known: &[String]) -> String {
    if known.is_empty() { String::new() } else { format!(". Known: {}", known.join(", ")) }
}

/// What a host can do beyond OpenCode's API.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Features {
    /// `watch` resumes from a cursor.
    pub cursor: bool,
    /// Messages reach a running turn at its next step.
    pub steer: bool,
    /// The tree of subagents.
    pub tree: bool,
    /// Budgets.
    pub budget: bool,
}

/// A new session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CreateSession {
    /// The session that spawns it.
    #[serde(rename = "parentID")]
    pub parent_id: Option<SessionId>,
    /// Its title; without one it is made up, then generated.
    pub title: Option<String>,
    /// Its agent.
    pub agent: Option<String>,
    /// Its model.
    pub model: Option<SessionModel>,
    /// Whatever the client wants to remember.
    pub metadata: Option<JsonMap>,
    /// Its own rules.
    pub permission: Option<Ruleset>,
    /// Its workspace.
    #[serde(rename = "workspaceID")]
    pub workspace_id: Option<String>,
}

/// Which sessions to list: newest change first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ListSessions {
    /// Only those of the scope's very directory, not of its whole project.
    pub directory_only: bool,
    /// Those of every project.
    pub everywhere: bool,
    /// Only those without a parent.
    pub roots: bool,
    /// Only those whose title contains it, whatever the case.
    pub search: Option<String>,
    /// Only those that changed at or after.
    pub start: Option<Timestamp>,
    /// Only those that changed before: a page's cursor.
    pub before: Option<Timestamp>,
    /// Only those at or below this path of their project.
    pub path: Option<String>,
    /// Only those that are not archived.
    pub unarchived: bool,
    /// The most; 100 without it.
    pub limit: Option<usize>,
}

/// A change of a session; what is absent stays.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct UpdateSession {
    /// A new title.
    pub title: Option<String>,
    /// New metadata.
    pub metadata: Option<JsonMap>,
    /// Further rules of its own, after those that it has.
    pub permission: Option<Ruleset>,
    /// Archived at, or no longer.
    pub archived: Option<Option<Timestamp>>,
    /// The agent of the next prompt that names none. Trefoil's own, as the model is.
    pub agent: Option<String>,
    /// Its model.
    pub model: Option<SessionModel>,
}

/// Which messages to list.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ListMessages {
    /// The most; all without it.
    pub limit: Option<usize>,
    /// Only those before this one: a page's cursor.
    pub before: Option<MessageId>,
}

/// Some messages, oldest first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MessagePage {
    /// The messages.
    pub messages: Vec<MessageWithParts>,
    /// The cursor of the next, older page.
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
        /// For the model, not from the human.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        synthetic: Option<bool>,
        /// For the human, not for the model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ignored: Option<bool>,
        /// When.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        time: Option<PartTime>,
        /// What the client wants back.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        metadata: Option<JsonMap>,
    },
    /// A file, a directory, an image.
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
    /// A mentioned agent.
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
    /// Work for a subagent.
    #[schemars(title = "SubtaskPartInput")]
    Subtask {
        /// Its id, if the client chose one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<PartId>,
        /// What it shall do.
        prompt: String,
        /// In a few words.
        description: String,
        /// Who.
        agent: String,
        /// With which model.
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
    /// What the human said.
    pub parts: Vec<PromptPart>,
    /// The message's id, if the client chose one; the same id sent twice is accepted once.
    #[serde(rename = "messageID")]
    pub message_id: Option<MessageId>,
    /// The model, if not the session's.
    pub model: Option<ModelRef>,
    /// The agent, if not the session's.
    pub agent: Option<String>,
    /// Only store it.
    #[serde(rename = "noReply")]
    pub no_reply: bool,
    /// Tools switched on or off for this turn.
    pub tools: Option<IndexMap<String, bool>>,
    /// An addition to the system prompt.
    pub system: Option<String>,
    /// Reasoning effort or the like.
    pub variant: Option<String>,
    /// The shape the answer must have.
    pub format: Option<OutputFormat>,
    /// The W3C trace context of the caller, which goes on in the model calls.
    #[serde(skip)]
    pub traceparent: Option<String>,
}

/// Agent and model of a call that is not a prompt.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PromptTarget {
    /// The agent.
    pub agent: Option<String>,
    /// The model.
    pub model: Option<ModelRef>,
    /// Reasoning effort or the like.
    pub variant: Option<String>,
    /// The message's id, if the client chose one.
    pub message_id: Option<MessageId>,
}

/// A command to run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CommandInput {
    /// Its name, without the slash.
    pub command: String,
    /// What follows the name.
    pub arguments: String,
    /// Agent and model, if not the command's.
    pub target: PromptTarget,
    /// Files beside it.
    pub parts: Vec<PromptPart>,
}

/// A shell command that the human runs in the session.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ShellInput {
    /// The command line.
    pub command: String,
    /// Agent and model of the message it becomes.
    pub target: PromptTarget,
}

/// A point to go back to.
#[derive(Debug, Clone, PartialEq)]
pub struct RevertInput {
    /// The first message to take back.
    pub message_id: MessageId,
    /// The first part to take back.
    pub part_id: Option<PartId>,
}

/// Who summarises.
#[derive(Debug, Clone, PartialEq)]
pub struct SummarizeInput {
    /// The model.
    pub model: ModelRef,
    /// Whether the turn goes on afterwards.
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
    /// What changed since the last commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    /// `base64`, if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<shape::Encoding>")]
    pub encoding: Option<String>,
    /// Its media type.
    #[serde(rename = "mimeType", skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
}

impl FileContent {
    /// A file of text.
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

/// A line that matches.
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
    /// What matched: byte ranges in the line.
    pub matches: Vec<(u64, u64)>,
}

/// One agent runtime: this process, or a server far away.
///
/// Boxed futures, because faces hold an `Arc<dyn Host>`; this is the one place for them.
pub trait Host: Send + Sync {
    /// What it can do beyond OpenCode's API.
    fn features(&self) -> Features;

    // Sessions.

    /// Makes a session.
    fn create_session<'a>(&'a self, scope: &'a Scope, input: CreateSession) -> HostFuture<'a, Session>;
    /// A session.
    fn session<'a>(&'a self, scope: &'a Scope, id: &'a SessionId) -> HostFuture<'a, Session>;
    /// Sessions, newest change first.
    fn sessions<'a>(&'a self, scope: &'a Scope, query: ListSessions) -> HostFuture<'a, Vec<Session>>;
    /// Changes a session.
    fn update_session<'a>(
        &'a self,
        scope: &'a Scope,
        id: &'a SessionId,
        change: UpdateSession,
    ) -> HostFuture<'a, Session>;
    /// Deletes a session and its children, after stopping them.
    fn delete_session<'a>(&'a self, scope: &'a Scope, id: &'a SessionId) -> HostFuture<'a, ()>;
    /// The sessions that a session spawned.
    fn children<'a>(&'a self, scope: &'a Scope, id: &'a SessionId) -> HostFuture<'a, Vec<Session>>;
    /// Copies a session, up to a message (which is left out) or whole.
    fn fork_session<'a>(
        &'a self,
        scope: &'a Scope,
        id: &'a SessionId,
        before: Option<MessageId>,
    ) -> HostFuture<'a, Session>;
    /// What every session that is not idle does.
    fn statuses<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, IndexMap<SessionId, SessionStatus>>;

    // Messages.

    /// Messages with their parts.
    fn messages<'a>(&'a self, scope: &'a Scope, id: &'a SessionId, query: ListMessages) -> HostFuture<'a, MessagePage>;
    /// A message with its parts.
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

    /// Sends a prompt and waits for the turn's end: the last answer, or the stored message with `no_reply`.
    fn prompt<'a>(
        &'a self,
        scope: &'a Scope,
        id: &'a SessionId,
        input: PromptInput,
    ) -> HostFuture<'a, MessageWithParts>;
    /// A new id for a message of a session, for callers that must know it before they send the message. It sorts after the
    /// newest message, also when this machine's clock is behind the ids that are there.
    fn message_id<'a>(&'a self, scope: &'a Scope, id: &'a SessionId) -> HostFuture<'a, MessageId> {
        Box::pin(async move {
            let newest = self.messages(scope, id, ListMessages { limit: Some(1), before: None }).await?;
            let newest = newest.messages.last().and_then(|message| Stamp::of(message.info.id().as_str()));
            Ok(MessageId::after(newest.unwrap_or_default()))
        })
    }
    /// Sends a prompt; returns once it is durable.
    fn prompt_async<'a>(&'a self, scope: &'a Scope, id: &'a SessionId, input: PromptInput)
    -> HostFuture<'a, MessageId>;
    /// Runs a command and waits for the turn's end.
    fn command<'a>(
        &'a self,
        scope: &'a Scope,
        id: &'a SessionId,
        input: CommandInput,
    ) -> HostFuture<'a, MessageWithParts>;
    /// Runs a shell command as the human; no model is called.
    fn shell<'a>(&'a self, scope: &'a Scope, id: &'a SessionId, input: ShellInput) -> HostFuture<'a, MessageWithParts>;
    /// Stops the turn; returns when it has stopped. False if none ran.
    fn abort<'a>(&'a self, scope: &'a Scope, id: &'a SessionId) -> HostFuture<'a, bool>;
    /// Compacts the conversation.
    fn summarize<'a>(&'a self, scope: &'a Scope, id: &'a SessionId, input: SummarizeInput) -> HostFuture<'a, ()>;
    /// Takes back what came from a point on.
    fn revert<'a>(&'a self, scope: &'a Scope, id: &'a SessionId, input: RevertInput) -> HostFuture<'a, Session>;
    /// Takes the taking back back.
    fn unrevert<'a>(&'a self, scope: &'a Scope, id: &'a SessionId) -> HostFuture<'a, Session>;
    /// The todo list.
    fn todo<'a>(&'a self, scope: &'a Scope, id: &'a SessionId) -> HostFuture<'a, Vec<Todo>>;
    /// What a session, or a turn of it, changed.
    fn diff<'a>(
        &'a self,
        scope: &'a Scope,
        id: &'a SessionId,
        message: Option<MessageId>,
    ) -> HostFuture<'a, Vec<FileDiff>>;
    /// Prompts of a session that were accepted and have no final answer yet, in their order. Sending one again by its id
    /// waits for that answer, and runs its turn if nobody does.
    fn waiting<'a>(&'a self, scope: &'a Scope, id: &'a SessionId) -> HostFuture<'a, Vec<MessageId>>;
    /// Brings turns that a crash cut off to a truthful end or on their way again: of one session, or of all.
    fn recover<'a>(&'a self, session: Option<&'a SessionId>) -> HostFuture<'a, usize>;

    // Subagents.

    /// A session and all below it. Limited to what [`Features`] names, as is all of this section.
    fn tree<'a>(&'a self, scope: &'a Scope, id: &'a SessionId) -> HostFuture<'a, Tree> {
        let _ = (scope, id);
        unsupported("The tree of subagents")
    }
    /// Sends a message to a turn that runs; it is taken in at its next step. Returns once it is durable.
    fn steer<'a>(&'a self, scope: &'a Scope, id: &'a SessionId, input: SteerInput) -> HostFuture<'a, MessageId> {
        let _ = (scope, id, input);
        unsupported("Steering")
    }
    /// Holds a session and all below it before their next step, or lets them go on. False if that was so already.
    fn pause<'a>(&'a self, scope: &'a Scope, id: &'a SessionId, paused: bool) -> HostFuture<'a, bool> {
        let _ = (scope, id, paused);
        unsupported("Pausing")
    }
    /// Stops a session and all below it, and nobody else; returns when they have stopped.
    fn cancel<'a>(&'a self, scope: &'a Scope, id: &'a SessionId) -> HostFuture<'a, Cancelled> {
        let _ = (scope, id);
        unsupported("Cancelling a subtree")
    }
    /// Sets what a session and all below it may use; an empty budget lifts it.
    fn budget<'a>(&'a self, scope: &'a Scope, id: &'a SessionId, budget: Budget) -> HostFuture<'a, BudgetState> {
        let _ = (scope, id, budget);
        unsupported("Budgets")
    }
    /// Lets a session go on without waiting for the subagents that it waits for now, or has it wait for those that it
    /// does not wait for. False if there were none.
    fn background<'a>(&'a self, scope: &'a Scope, id: &'a SessionId, background: bool) -> HostFuture<'a, bool> {
        let _ = (scope, id, background);
        unsupported("Background tasks")
    }

    /// What was changed in the worktree of a session and is not merged.
    fn worktree_diff<'a>(&'a self, scope: &'a Scope, id: &'a SessionId) -> HostFuture<'a, WorktreeDiff> {
        let _ = (scope, id);
        unsupported("The worktree of a subagent")
    }
    /// Brings the changes of a session's worktree into the working tree that it was made from, all or none of them; gives
    /// what was merged.
    fn worktree_merge<'a>(&'a self, scope: &'a Scope, id: &'a SessionId) -> HostFuture<'a, Worktree> {
        let _ = (scope, id);
        unsupported("The worktree of a subagent")
    }
    /// Removes the worktree of a session with its branch; gives what was thrown away.
    fn worktree_discard<'a>(&'a self, scope: &'a Scope, id: &'a SessionId) -> HostFuture<'a, Worktree> {
        let _ = (scope, id);
        unsupported("The worktree of a subagent")
    }

    // Asks.

    /// Permission requests that wait.
    fn permissions<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<PermissionRequest>>;
    /// Answers one.
    fn reply_permission<'a>(
        &'a self,
        scope: &'a Scope,
        id: &'a PermissionId,
        reply: PermissionReply,
    ) -> HostFuture<'a, ()>;
    /// Questions that wait.
    fn questions<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<QuestionRequest>>;
    /// Answers one; nothing means that the human does not want to.
    fn reply_question<'a>(
        &'a self,
        scope: &'a Scope,
        id: &'a QuestionId,
        answers: Option<Vec<Vec<String>>>,
    ) -> HostFuture<'a, ()>;

    // What there is.

    /// The agents.
    fn agents<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<Agent>>;
    /// The commands.
    fn commands<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<Command>>;
    /// Those and what the MCP servers of one session add, where the host tells them apart.
    fn session_commands<'a>(&'a self, scope: &'a Scope, _: &'a SessionId) -> HostFuture<'a, Vec<Command>> {
        self.commands(scope)
    }
    /// The skills.
    fn skills<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<Skill>>;
    /// The providers that can be used, each with its models.
    fn providers<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<Provider>>;
    /// The model that a prompt without one gets.
    fn default_model<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, ModelRef>;
    /// The configuration in effect, as JSON.
    fn config<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Json>;
    /// The projects that were worked on.
    fn projects<'a>(&'a self) -> HostFuture<'a, Vec<Project>>;
    /// The project of the scope.
    fn project<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Project>;
    /// The entries of a directory.
    fn files<'a>(&'a self, scope: &'a Scope, path: &'a str) -> HostFuture<'a, Vec<FileNode>>;
    /// A file.
    fn file<'a>(&'a self, scope: &'a Scope, path: &'a str) -> HostFuture<'a, FileContent>;
    /// Files whose name fits, best first.
    fn find_files<'a>(&'a self, scope: &'a Scope, query: &'a str, limit: usize) -> HostFuture<'a, Vec<String>>;
    /// Lines that match a regular expression.
    fn find_text<'a>(&'a self, scope: &'a Scope, pattern: &'a str, limit: usize) -> HostFuture<'a, Vec<FindTextMatch>>;

    // MCP servers.

    /// How it is with each; they are started if that was not done yet.
    fn mcp<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, IndexMap<String, McpStatus>>;
    /// Adds one for as long as the host lives, or replaces the one of that name, and connects to it.
    fn mcp_add<'a>(
        &'a self,
        scope: &'a Scope,
        name: &'a str,
        config: McpConfig,
    ) -> HostFuture<'a, IndexMap<String, McpStatus>>;
    /// Connects to one.
    fn mcp_connect<'a>(&'a self, scope: &'a Scope, name: &'a str) -> HostFuture<'a, ()>;
    /// Disconnects from one.
    fn mcp_disconnect<'a>(&'a self, scope: &'a Scope, name: &'a str) -> HostFuture<'a, ()>;
    /// What all have to read.
    fn mcp_resources<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, IndexMap<String, McpResource>>;
    /// Begins to sign in at one: whoever opens the address in a browser gets a code.
    fn mcp_auth_start<'a>(&'a self, scope: &'a Scope, name: &'a str) -> HostFuture<'a, McpAuthorization>;
    /// Finishes with that code.
    fn mcp_auth_callback<'a>(&'a self, scope: &'a Scope, name: &'a str, code: &'a str) -> HostFuture<'a, McpStatus>;
    /// Signs in with a browser on the host's machine; returns when the human has.
    fn mcp_authenticate<'a>(&'a self, scope: &'a Scope, name: &'a str) -> HostFuture<'a, McpStatus>;
    /// Forgets how to sign in at one.
    fn mcp_auth_remove<'a>(&'a self, scope: &'a Scope, name: &'a str) -> HostFuture<'a, ()>;
    /// The servers that a session brings, beside those of its directory; its subagents use them too. They end when it is
    /// told none any more, or deleted.
    fn session_servers<'a>(
        &'a self,
        scope: &'a Scope,
        session: &'a SessionId,
        servers: IndexMap<String, McpConfig>,
    ) -> HostFuture<'a, ()>;
    /// The same once more for a host that may have been started anew meanwhile: servers that it has for the session stay.
    fn restore_servers<'a>(
        &'a self,
        scope: &'a Scope,
        session: &'a SessionId,
        servers: IndexMap<String, McpConfig>,
    ) -> HostFuture<'a, ()>;

    // Events.

    /// Events: after a cursor, or from now on. A connection that broke and goes on without a gap says `server.connected`.
    fn watch<'a>(&'a self, scope: WatchScope, after: Option<Cursor>) -> HostFuture<'a, BoxStream<'static, WatchItem>>;
}
