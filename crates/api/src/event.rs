//! Events: what happened, as every subscriber sees it (`{"id", "type", "properties"}`).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::schema::{QuestionAnswer, events, shape};
use crate::{
    Blocked, EventId, FileDiff, Json, JsonMap, Message, MessageError, MessageId, Part, PartId, PermissionId,
    PermissionReplyKind, PermissionRequest, Project, Pty, PtyId, QuestionId, QuestionRequest, Session, SessionId,
    Timestamp, Todo, TreeState,
};

/// One event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = events)]
pub struct Event {
    /// Its id.
    pub id: EventId,
    /// What happened.
    #[serde(flatten)]
    pub body: EventBody,
}

impl Event {
    /// A new event.
    pub fn new(body: EventBody) -> Self {
        Self { id: EventId::new(), body }
    }

    /// The JSON of an event about a part or a message, around the JSON of that part or message: their rows and their events are
    /// written together, and need not be made twice.
    pub fn json_around(&self, inner: &RawValue) -> serde_json::Result<String> {
        #[derive(Serialize)]
        struct Around<'a, P> {
            id: &'a EventId,
            r#type: &'static str,
            properties: P,
        }
        #[derive(Serialize)]
        struct OfPart<'a> {
            #[serde(rename = "sessionID")]
            session_id: &'a SessionId,
            part: &'a RawValue,
            time: &'a Timestamp,
        }
        #[derive(Serialize)]
        struct OfMessage<'a> {
            #[serde(rename = "sessionID")]
            session_id: &'a SessionId,
            info: &'a RawValue,
        }
        let id = &self.id;
        match &self.body {
            EventBody::PartUpdated { session_id, time, .. } => {
                let properties = OfPart { session_id, part: inner, time };
                serde_json::to_string(&Around { id, r#type: "message.part.updated", properties })
            }
            EventBody::MessageUpdated { session_id, .. } => {
                let properties = OfMessage { session_id, info: inner };
                serde_json::to_string(&Around { id, r#type: "message.updated", properties })
            }
            _ => serde_json::to_string(self),
        }
    }
}

/// What a session does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum SessionStatus {
    /// Nothing.
    Idle,
    /// A turn.
    Busy,
    /// It waits before it calls the model again.
    Retry {
        /// Which try failed, from 1.
        attempt: u32,
        /// Why.
        message: String,
        /// What the human could do.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(with = "Option<shape::RetryAction>")]
        action: Option<Json>,
        /// When it goes on.
        #[schemars(range(min = 0))]
        next: Timestamp,
    },
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "properties")]
#[expect(missing_docs, reason = "each field is what its name says, and the names are the wire's")]
#[schemars(inline)]
pub enum EventBody {
    /// A session was made.
    #[serde(rename = "session.created", rename_all = "camelCase")]
    SessionCreated {
        #[serde(rename = "sessionID")]
        session_id: SessionId,
        info: Box<Session>,
    },
    /// A session changed.
    #[serde(rename = "session.updated")]
    SessionUpdated {
        #[serde(rename = "sessionID")]
        session_id: SessionId,
        info: Box<Session>,
    },
    /// A session is gone.
    #[serde(rename = "session.deleted")]
    SessionDeleted {
        #[serde(rename = "sessionID")]
        session_id: SessionId,
        info: Box<Session>,
    },
    /// What a session does now.
    #[serde(rename = "session.status")]
    SessionStatus {
        #[serde(rename = "sessionID")]
        session_id: SessionId,
        status: SessionStatus,
    },
    /// A session stopped (older clients wait for it).
    #[serde(rename = "session.idle")]
    SessionIdle {
        #[serde(rename = "sessionID")]
        session_id: SessionId,
    },
    /// Something went wrong in a session.
    #[serde(rename = "session.error")]
    SessionError {
        #[serde(rename = "sessionID", skip_serializing_if = "Option::is_none")]
        session_id: Option<SessionId>,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<MessageError>,
    },
    /// A session was paused or let go on, or its turn waits for its budget or no longer does. Trefoil's own.
    #[serde(rename = "session.tree")]
    SessionTree {
        #[serde(rename = "sessionID")]
        session_id: SessionId,
        state: TreeState,
        #[serde(skip_serializing_if = "Option::is_none")]
        blocked: Option<Blocked>,
    },
    /// Something that whoever uses a session should know, and that fails no turn: an MCP server that it brought cannot be used.
    /// Trefoil's own.
    #[serde(rename = "session.notice")]
    SessionNotice {
        #[serde(rename = "sessionID")]
        session_id: SessionId,
        message: String,
    },
    /// What a session changed in the files.
    #[serde(rename = "session.diff")]
    SessionDiff {
        #[serde(rename = "sessionID")]
        session_id: SessionId,
        diff: Vec<FileDiff>,
    },
    /// A conversation was compacted.
    #[serde(rename = "session.compacted")]
    SessionCompacted {
        #[serde(rename = "sessionID")]
        session_id: SessionId,
    },
    /// A message was made or changed.
    #[serde(rename = "message.updated")]
    MessageUpdated {
        #[serde(rename = "sessionID")]
        session_id: SessionId,
        info: Box<Message>,
    },
    /// A message is gone.
    #[serde(rename = "message.removed")]
    MessageRemoved {
        #[serde(rename = "sessionID")]
        session_id: SessionId,
        #[serde(rename = "messageID")]
        message_id: MessageId,
    },
    /// A part was made or changed.
    #[serde(rename = "message.part.updated")]
    PartUpdated {
        #[serde(rename = "sessionID")]
        session_id: SessionId,
        part: Box<Part>,
        #[schemars(with = "f64")]
        time: Timestamp,
    },
    /// A part is gone.
    #[serde(rename = "message.part.removed")]
    PartRemoved {
        #[serde(rename = "sessionID")]
        session_id: SessionId,
        #[serde(rename = "messageID")]
        message_id: MessageId,
        #[serde(rename = "partID")]
        part_id: PartId,
    },
    /// A part's text grew. Never stored.
    #[serde(rename = "message.part.delta")]
    PartDelta {
        #[serde(rename = "sessionID")]
        session_id: SessionId,
        #[serde(rename = "messageID")]
        message_id: MessageId,
        #[serde(rename = "partID")]
        part_id: PartId,
        field: String,
        delta: String,
    },
    /// A permission is wanted.
    #[serde(rename = "permission.asked")]
    PermissionAsked(Box<PermissionRequest>),
    /// A permission was given or refused.
    #[serde(rename = "permission.replied")]
    PermissionReplied {
        #[serde(rename = "sessionID")]
        session_id: SessionId,
        #[serde(rename = "requestID")]
        request_id: PermissionId,
        reply: PermissionReplyKind,
    },
    /// The agent asks.
    #[serde(rename = "question.asked")]
    QuestionAsked(Box<QuestionRequest>),
    /// The human answered: the chosen labels of each question.
    #[serde(rename = "question.replied")]
    QuestionReplied {
        #[serde(rename = "sessionID")]
        session_id: SessionId,
        #[serde(rename = "requestID")]
        request_id: QuestionId,
        #[schemars(with = "Vec<QuestionAnswer>")]
        answers: Vec<Vec<String>>,
    },
    /// The human did not want to answer.
    #[serde(rename = "question.rejected")]
    QuestionRejected {
        #[serde(rename = "sessionID")]
        session_id: SessionId,
        #[serde(rename = "requestID")]
        request_id: QuestionId,
    },
    /// The todo list changed.
    #[serde(rename = "todo.updated")]
    TodoUpdated {
        #[serde(rename = "sessionID")]
        session_id: SessionId,
        todos: Vec<Todo>,
    },
    /// A tool changed a file.
    #[serde(rename = "file.edited")]
    FileEdited { file: String },
    /// A file changed on disk: `add`, `change` or `unlink`.
    #[serde(rename = "file.watcher.updated")]
    FileWatcherUpdated {
        file: String,
        #[schemars(with = "shape::FileChange")]
        event: String,
    },
    /// A command was run.
    #[serde(rename = "command.executed")]
    CommandExecuted {
        name: String,
        #[serde(rename = "sessionID")]
        session_id: SessionId,
        arguments: String,
        #[serde(rename = "messageID")]
        message_id: MessageId,
    },
    /// A project changed.
    #[serde(rename = "project.updated")]
    ProjectUpdated(Box<Project>),
    /// A project has another directory, or one less.
    #[serde(rename = "project.directories.updated")]
    ProjectDirectoriesUpdated {
        #[serde(rename = "projectID")]
        project_id: String,
    },
    /// The branch changed.
    #[serde(rename = "vcs.branch.updated")]
    VcsBranchUpdated {
        #[serde(skip_serializing_if = "Option::is_none")]
        branch: Option<String>,
    },
    /// An MCP server's tools changed.
    #[serde(rename = "mcp.tools.changed")]
    McpToolsChanged { server: String },
    /// The browser in which the human shall sign in at an MCP server could not be opened.
    #[serde(rename = "mcp.browser.open.failed")]
    McpBrowserOpenFailed {
        #[serde(rename = "mcpName")]
        mcp_name: String,
        url: String,
    },
    /// A language server changed.
    #[serde(rename = "lsp.updated")]
    LspUpdated {},
    /// A subscriber is connected.
    #[serde(rename = "server.connected")]
    ServerConnected {},
    /// The connection lives.
    #[serde(rename = "server.heartbeat")]
    ServerHeartbeat {},
    /// What the subscriber knows is out of date: it reads the state anew, events go on from here. Trefoil's own.
    #[serde(rename = "server.resync")]
    ServerResync {
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// A directory's state was dropped.
    #[serde(rename = "server.instance.disposed")]
    InstanceDisposed { directory: String },
    /// Everything was dropped.
    #[serde(rename = "global.disposed")]
    GlobalDisposed {},
    /// A plugin was loaded.
    #[serde(rename = "plugin.added")]
    PluginAdded { id: String },
    /// The list of models changed.
    #[serde(rename = "catalog.updated")]
    CatalogUpdated {},
    /// The list of integrations changed.
    #[serde(rename = "integration.updated")]
    IntegrationUpdated {},
    /// The list of references changed.
    #[serde(rename = "reference.updated")]
    ReferenceUpdated {},
    /// A terminal was opened.
    #[serde(rename = "pty.created")]
    PtyCreated { info: Box<Pty> },
    /// A terminal changed.
    #[serde(rename = "pty.updated")]
    PtyUpdated { info: Box<Pty> },
    /// A terminal's program ended.
    #[serde(rename = "pty.exited")]
    PtyExited {
        id: PtyId,
        #[serde(rename = "exitCode")]
        #[schemars(range(min = 0))]
        exit_code: i64,
    },
    /// A terminal is gone.
    #[serde(rename = "pty.deleted")]
    PtyDeleted { id: PtyId },
    /// Text for the terminal client's prompt.
    #[serde(rename = "tui.prompt.append")]
    TuiPromptAppend { text: String },
    /// A command for the terminal client.
    #[serde(rename = "tui.command.execute")]
    TuiCommandExecute {
        #[schemars(with = "shape::TuiCommand")]
        command: String,
    },
    /// A notice for the terminal client.
    #[serde(rename = "tui.toast.show")]
    TuiToastShow {
        #[serde(skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        message: String,
        #[schemars(with = "shape::ToastVariant")]
        variant: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(extend("exclusiveMinimum" = 0))]
        duration: Option<u64>,
    },
    /// The terminal client shall show a session.
    #[serde(rename = "tui.session.select")]
    TuiSessionSelect {
        #[serde(rename = "sessionID")]
        session_id: SessionId,
    },
    /// A worktree is there.
    #[serde(rename = "worktree.ready")]
    WorktreeReady {
        name: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        branch: Option<String>,
    },
    /// A worktree could not be made.
    #[serde(rename = "worktree.failed")]
    WorktreeFailed { message: String },
    /// An event that this version does not know; kept as it is.
    #[serde(untagged)]
    #[schemars(skip)]
    Other(OtherEvent),
}

/// An event that this version does not know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OtherEvent {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its properties.
    #[serde(default)]
    pub properties: JsonMap,
}

impl EventBody {
    /// The session it is about.
    pub fn session_id(&self) -> Option<&SessionId> {
        match self {
            Self::SessionCreated { session_id, .. }
            | Self::SessionUpdated { session_id, .. }
            | Self::SessionDeleted { session_id, .. }
            | Self::SessionStatus { session_id, .. }
            | Self::SessionIdle { session_id }
            | Self::SessionTree { session_id, .. }
            | Self::SessionNotice { session_id, .. }
            | Self::SessionDiff { session_id, .. }
            | Self::SessionCompacted { session_id }
            | Self::MessageUpdated { session_id, .. }
            | Self::MessageRemoved { session_id, .. }
            | Self::PartUpdated { session_id, .. }
            | Self::PartRemoved { session_id, .. }
            | Self::PartDelta { session_id, .. }
            | Self::PermissionReplied { session_id, .. }
            | Self::QuestionReplied { session_id, .. }
            | Self::QuestionRejected { session_id, .. }
            | Self::TodoUpdated { session_id, .. }
            | Self::CommandExecuted { session_id, .. }
            | Self::TuiSessionSelect { session_id } => Some(session_id),
            Self::SessionError { session_id, .. } => session_id.as_ref(),
            Self::PermissionAsked(ask) => Some(&ask.session_id),
            Self::QuestionAsked(ask) => Some(&ask.session_id),
            _ => None,
        }
    }

    /// A part was made or changed, now.
    pub fn part(part: Part) -> Option<Self> {
        let session_id = part.head()?.session_id.clone();
        Some(Self::PartUpdated { session_id, part: Box::new(part), time: crate::now() })
    }

    /// A message was made or changed.
    pub fn message(info: Message) -> Self {
        Self::MessageUpdated { session_id: info.session_id().clone(), info: Box::new(info) }
    }

    /// A session was changed.
    pub fn session(info: Session) -> Self {
        Self::SessionUpdated { session_id: info.id.clone(), info: Box::new(info) }
    }
}
