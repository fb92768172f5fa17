//! The contract about sessions, messages, turns, subagents and asks. The engine implements it in this process, the
//! client over HTTP; faces know nothing else.

use std::sync::Arc;

use futures::stream::BoxStream;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::{
    Budget, BudgetState, Caller, CancelResult, CatalogHost, CommandInput, Cursor, Delivery, FileDiff, HostFuture,
    IdStamp, JsonMap, ListTurns, McpConfig, MessageId, MessageWithParts, PartId, PermissionId, PermissionReply,
    PermissionRequest, PromptInput, QuestionId, QuestionRequest, Ruleset, Scope, Session, SessionId, SessionModel,
    SessionStatus, ShellInput, SteerInput, Submitted, SummarizeInput, Timestamp, Todo, Tree, Turn, TurnId, TurnPage,
    WatchItem, WatchScope, WorkspaceHost, Worktree, WorktreeDiff,
};

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
    /// Turns can be named, listed, queued and cancelled one by one.
    pub turns: bool,
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
    /// Its workspace, if not the scope's. The directory stays that of the scope.
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

/// An agent runtime: this process, or a remote server. Calls with an id need no [`Scope`]; calls about a directory do.
///
/// Futures are boxed because faces hold an `Arc<dyn Host>`; no other trait but its siblings [`CatalogHost`] and
/// [`WorkspaceHost`] should do this.
pub trait Host: Send + Sync {
    /// What it can do beyond OpenCode's API.
    fn features(&self) -> Features;
    /// Returns a handle for someone else. It shares everything with this one but the caller.
    fn with_caller(&self, caller: Caller) -> Arc<dyn AgentRuntime>;

    // Sessions.

    /// Creates a session.
    fn create_session<'a>(&'a self, scope: &'a Scope, input: CreateSession) -> HostFuture<'a, Session>;
    /// Returns a session.
    fn session<'a>(&'a self, id: &'a SessionId) -> HostFuture<'a, Session>;
    /// The identity that owns a session, where the host stores owners: that of the caller that created it. `None` for
    /// sessions of the person who owns the machine, and on other hosts.
    fn session_owner<'a>(&'a self, id: &'a SessionId) -> HostFuture<'a, Option<String>>;
    /// Lists sessions, most recently changed first.
    fn sessions<'a>(&'a self, scope: &'a Scope, query: ListSessions) -> HostFuture<'a, Vec<Session>>;
    /// Changes a session.
    fn update_session<'a>(&'a self, id: &'a SessionId, change: UpdateSession) -> HostFuture<'a, Session>;
    /// Stops and deletes a session and its children.
    fn delete_session<'a>(&'a self, id: &'a SessionId) -> HostFuture<'a, ()>;
    /// Returns the sessions that a session spawned.
    fn children<'a>(&'a self, id: &'a SessionId) -> HostFuture<'a, Vec<Session>>;
    /// Copies a session, whole or up to (not including) a message.
    fn fork_session<'a>(&'a self, id: &'a SessionId, before: Option<MessageId>) -> HostFuture<'a, Session>;
    /// Publishes a session; its `share` then has the address.
    fn share<'a>(&'a self, id: &'a SessionId) -> HostFuture<'a, Session>;
    /// Stops publishing a session. One that is not published stays as it is.
    fn unshare<'a>(&'a self, id: &'a SessionId) -> HostFuture<'a, Session>;
    /// Takes a session and its files back to before a message, or a part of it. The next prompt makes that final.
    fn revert<'a>(&'a self, id: &'a SessionId, message: MessageId, part: Option<PartId>) -> HostFuture<'a, Session>;
    /// Undoes a revert that is not final yet.
    fn unrevert<'a>(&'a self, id: &'a SessionId) -> HostFuture<'a, Session>;
    /// Returns the files that a session changed, or of these the ones that changed in answer to a user message.
    fn session_diff<'a>(&'a self, id: &'a SessionId, message: Option<&'a MessageId>) -> HostFuture<'a, Vec<FileDiff>>;
    /// Returns the status of every session that is not idle.
    fn statuses<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, IndexMap<SessionId, SessionStatus>>;
    /// Sets the MCP servers that a session brings in addition to those of its directory; its subagents use them too.
    /// They stop when the session sets none, or is deleted.
    fn session_servers<'a>(
        &'a self,
        session: &'a SessionId,
        servers: IndexMap<String, McpConfig>,
    ) -> HostFuture<'a, ()>;
    /// Like `session_servers`, for a host that may have restarted: servers that it already has for the session stay.
    fn restore_servers<'a>(
        &'a self,
        session: &'a SessionId,
        servers: IndexMap<String, McpConfig>,
    ) -> HostFuture<'a, ()>;

    // Messages.

    /// Lists messages with their parts.
    fn messages<'a>(&'a self, id: &'a SessionId, query: ListMessages) -> HostFuture<'a, MessagePage>;
    /// Returns a message with its parts.
    fn message<'a>(&'a self, id: &'a SessionId, message: &'a MessageId) -> HostFuture<'a, MessageWithParts>;
    /// Returns a new message id for callers that must know it before they send the message. It sorts after the newest
    /// message, even if this machine's clock is behind.
    fn message_id<'a>(&'a self, id: &'a SessionId) -> HostFuture<'a, MessageId> {
        Box::pin(async move {
            let newest = self.messages(id, ListMessages { limit: Some(1), before: None }).await?;
            let newest = newest.messages.last().and_then(|message| IdStamp::of(message.info.id().as_str()));
            Ok(MessageId::after(newest.unwrap_or_default()))
        })
    }

    // Turns.

    /// Sends a prompt and waits for the turn to end. Returns the last answer, or with `no_reply` the stored message.
    fn prompt<'a>(&'a self, id: &'a SessionId, input: PromptInput) -> HostFuture<'a, MessageWithParts>;
    /// Sends a prompt; returns once it is durable. OpenCode itself stores a prompt a moment later, and reports one that it
    /// refuses as `session.error` alone.
    fn prompt_async<'a>(&'a self, id: &'a SessionId, input: PromptInput) -> HostFuture<'a, MessageId>;
    /// Sends a prompt; returns once it is durable, with the turn that answers it. Like everything about turns as such,
    /// only if [`Features`] says so.
    fn submit<'a>(&'a self, id: &'a SessionId, input: PromptInput, delivery: Delivery) -> HostFuture<'a, Submitted>;
    /// Returns a turn.
    fn turn<'a>(&'a self, id: &'a TurnId) -> HostFuture<'a, Turn>;
    /// Lists the turns of a session, newest first.
    fn turns<'a>(&'a self, session: &'a SessionId, query: ListTurns) -> HostFuture<'a, TurnPage>;
    /// Waits for a turn to end.
    fn wait<'a>(&'a self, id: &'a TurnId) -> HostFuture<'a, Turn>;
    /// Cancels a turn and returns once it has ended. One that is queued is cancelled alone; the one that runs stops with
    /// its subagents. A turn that has ended stays as it is.
    fn cancel_turn<'a>(&'a self, id: &'a TurnId) -> HostFuture<'a, Turn>;
    /// Runs a command and waits for the turn to end.
    fn command<'a>(&'a self, id: &'a SessionId, input: CommandInput) -> HostFuture<'a, MessageWithParts>;
    /// Runs a shell command for the human; calls no model.
    fn shell<'a>(&'a self, id: &'a SessionId, input: ShellInput) -> HostFuture<'a, MessageWithParts>;
    /// Stops the turn and returns once it has stopped. Returns false if none was running.
    fn abort<'a>(&'a self, id: &'a SessionId) -> HostFuture<'a, bool>;
    /// Compacts the conversation.
    fn summarize<'a>(&'a self, id: &'a SessionId, input: SummarizeInput) -> HostFuture<'a, ()>;
    /// Returns the todo list.
    fn todo<'a>(&'a self, id: &'a SessionId) -> HostFuture<'a, Vec<Todo>>;
    /// Returns the prompts that were accepted and have no final answer yet, in order. Sending one again by its id waits
    /// for that answer, and runs its turn if nobody else does.
    fn waiting<'a>(&'a self, id: &'a SessionId) -> HostFuture<'a, Vec<MessageId>>;
    /// Repairs turns that a crash interrupted, of one session or of all, and resumes or fails them.
    fn recover<'a>(&'a self, session: Option<&'a SessionId>) -> HostFuture<'a, usize>;

    // Subagents. Hosts without them answer `Unsupported`; see [`Features`].

    /// Returns a session and all its descendants.
    fn tree<'a>(&'a self, id: &'a SessionId) -> HostFuture<'a, Tree>;
    /// Sends a message to a running turn, which sees it at its next step. Returns once it is durable.
    fn steer<'a>(&'a self, id: &'a SessionId, input: SteerInput) -> HostFuture<'a, MessageId>;
    /// Pauses a session and its descendants before their next step, or resumes them. Returns false if nothing changed.
    fn pause<'a>(&'a self, id: &'a SessionId, paused: bool) -> HostFuture<'a, bool>;
    /// Stops a session and its descendants, and no other; returns once they have stopped.
    fn cancel<'a>(&'a self, id: &'a SessionId) -> HostFuture<'a, CancelResult>;
    /// Sets what a session and its descendants may use together; an empty budget removes the limit.
    fn budget<'a>(&'a self, id: &'a SessionId, budget: Budget) -> HostFuture<'a, BudgetState>;
    /// Moves the subagents that a session is waiting for to the background, or has it wait for those in the background.
    /// Returns false if there are none.
    fn background<'a>(&'a self, id: &'a SessionId, background: bool) -> HostFuture<'a, bool>;
    /// Returns the unmerged changes in a session's worktree.
    fn worktree_diff<'a>(&'a self, id: &'a SessionId) -> HostFuture<'a, WorktreeDiff>;
    /// Merges the changes of a session's worktree into the working tree it was created from, all or nothing. Returns
    /// what was merged.
    fn worktree_merge<'a>(&'a self, id: &'a SessionId) -> HostFuture<'a, Worktree>;
    /// Removes a session's worktree and its branch. Returns what was discarded.
    fn worktree_discard<'a>(&'a self, id: &'a SessionId) -> HostFuture<'a, Worktree>;

    // Asks.

    /// Returns the pending permission requests.
    fn permissions<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<PermissionRequest>>;
    /// Answers a permission request.
    fn reply_permission<'a>(&'a self, id: &'a PermissionId, reply: PermissionReply) -> HostFuture<'a, ()>;
    /// Returns the pending questions.
    fn questions<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<QuestionRequest>>;
    /// Answers a question; `None` means that the human declines.
    fn reply_question<'a>(&'a self, id: &'a QuestionId, answers: Option<Vec<Vec<String>>>) -> HostFuture<'a, ()>;

    // Events.

    /// Streams events after a cursor, or from now on. After a reconnect without a gap it yields `server.connected`. Over
    /// HTTP each call is one connection to the server, whatever its scope, until the stream is dropped.
    fn watch<'a>(&'a self, scope: WatchScope, after: Option<Cursor>) -> HostFuture<'a, BoxStream<'static, WatchItem>>;
}

/// The whole contract, for the few places that need all of it. Implemented by whatever implements the three traits.
pub trait AgentRuntime: Host + CatalogHost + WorkspaceHost {}

impl<T: Host + CatalogHost + WorkspaceHost> AgentRuntime for T {}
