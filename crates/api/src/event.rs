//! Events: what happened, as every subscriber sees it (`{"id", "type", "properties"}`).

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::schema::{QuestionAnswer, events, shape};
use crate::{
    Blocked, EventId, FileDiff, Json, JsonMap, Message, MessageError, MessageId, Part, PartId, PermissionId,
    PermissionReplyKind, PermissionRequest, Project, Pty, PtyId, QuestionId, QuestionRequest, Session, SessionId,
    Timestamp, Todo, TreeState, TurnId, TurnState,
};

/// One event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = events)]
pub struct Event {
    /// Its id.
    pub id: EventId,
    /// The type and its properties.
    #[serde(flatten)]
    pub body: EventBody,
}

impl Event {
    /// A new event.
    pub fn new(body: EventBody) -> Self {
        Self { id: EventId::new(), body }
    }

    /// The type of a serialised event, without parsing the rest of it.
    pub fn type_of(json: &[u8]) -> Option<Cow<'_, str>> {
        #[derive(Deserialize)]
        struct Type<'a> {
            #[serde(rename = "type", borrow)]
            name: Cow<'a, str>,
        }
        serde_json::from_slice::<Type<'_>>(json).ok().map(|event| event.name)
    }

    /// Serialises an event about a part or a message around the given JSON of that part or message. Row and event are
    /// written together, so the JSON is made only once.
    pub fn json_with_payload(&self, payload: &RawValue) -> serde_json::Result<String> {
        #[derive(Serialize)]
        struct EventEnvelope<'a, P> {
            id: &'a EventId,
            r#type: &'static str,
            properties: P,
        }
        #[derive(Serialize)]
        struct PartUpdatedProperties<'a> {
            #[serde(rename = "sessionID")]
            session_id: &'a SessionId,
            part: &'a RawValue,
            time: &'a Timestamp,
        }
        #[derive(Serialize)]
        struct MessageUpdatedProperties<'a> {
            #[serde(rename = "sessionID")]
            session_id: &'a SessionId,
            info: &'a RawValue,
        }
        let id = &self.id;
        match &self.body {
            EventBody::PartUpdated { session_id, time, .. } => {
                let properties = PartUpdatedProperties { session_id, part: payload, time };
                serde_json::to_string(&EventEnvelope { id, r#type: "message.part.updated", properties })
            }
            EventBody::MessageUpdated { session_id, .. } => {
                let properties = MessageUpdatedProperties { session_id, info: payload };
                serde_json::to_string(&EventEnvelope { id, r#type: "message.updated", properties })
            }
            _ => serde_json::to_string(self),
        }
    }
}

/// What a session is doing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum SessionStatus {
    /// Nothing.
    Idle,
    /// Running a turn.
    Busy,
    /// Waiting before it calls the model again.
    Retry {
        /// The number of the failed attempt, from 1.
        attempt: u32,
        /// Why it failed.
        message: String,
        /// What the human could do about it.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(with = "Option<shape::RetryAction>")]
        action: Option<Json>,
        /// When the next attempt starts.
        #[schemars(range(min = 0))]
        next: Timestamp,
    },
}

/// The type and properties of an event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "properties")]
#[expect(missing_docs, reason = "each field is what its name says, and the names are the wire's")]
#[schemars(inline)]
pub enum EventBody {
    /// A session was created.
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
    /// A session was deleted.
    #[serde(rename = "session.deleted")]
    SessionDeleted {
        #[serde(rename = "sessionID")]
        session_id: SessionId,
        info: Box<Session>,
    },
    /// A session's status changed.
    #[serde(rename = "session.status")]
    SessionStatus {
        #[serde(rename = "sessionID")]
        session_id: SessionId,
        status: SessionStatus,
    },
    /// A session became idle. Older clients wait for this.
    #[serde(rename = "session.idle")]
    SessionIdle {
        #[serde(rename = "sessionID")]
        session_id: SessionId,
    },
    /// Something failed in a session.
    #[serde(rename = "session.error")]
    SessionError {
        #[serde(rename = "sessionID", skip_serializing_if = "Option::is_none")]
        session_id: Option<SessionId>,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<MessageError>,
    },
    /// A session was paused or resumed, or its turn started or stopped waiting for its budget. A Trefoil extension.
    #[serde(rename = "session.tree")]
    SessionTree {
        #[serde(rename = "sessionID")]
        session_id: SessionId,
        state: TreeState,
        #[serde(skip_serializing_if = "Option::is_none")]
        blocked: Option<Blocked>,
    },
    /// A prompt was queued as a turn of its own, or such a turn was cancelled before it began. What else happens to a
    /// turn shows in the session's status. A Trefoil extension.
    #[serde(rename = "session.turn")]
    SessionTurn {
        #[serde(rename = "sessionID")]
        session_id: SessionId,
        #[serde(rename = "turnID")]
        turn_id: TurnId,
        state: TurnState,
    },
    /// A notice for the users of a session that fails no turn, for example that one of its MCP servers cannot be used.
    /// A Trefoil extension.
    #[serde(rename = "session.notice")]
    SessionNotice {
        #[serde(rename = "sessionID")]
        session_id: SessionId,
        message: String,
    },
    /// The file changes of a session.
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
    /// A message was created or changed.
    #[serde(rename = "message.updated")]
    MessageUpdated {
        #[serde(rename = "sessionID")]
        session_id: SessionId,
        info: Box<Message>,
    },
    /// A message was deleted.
    #[serde(rename = "message.removed")]
    MessageRemoved {
        #[serde(rename = "sessionID")]
        session_id: SessionId,
        #[serde(rename = "messageID")]
        message_id: MessageId,
    },
    /// A part was created or changed.
    #[serde(rename = "message.part.updated")]
    PartUpdated {
        #[serde(rename = "sessionID")]
        session_id: SessionId,
        part: Box<Part>,
        #[schemars(with = "f64")]
        time: Timestamp,
    },
    /// A part was deleted.
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
    /// A permission was requested.
    #[serde(rename = "permission.asked")]
    PermissionAsked(Box<PermissionRequest>),
    /// A permission request was answered.
    #[serde(rename = "permission.replied")]
    PermissionReplied {
        #[serde(rename = "sessionID")]
        session_id: SessionId,
        #[serde(rename = "requestID")]
        request_id: PermissionId,
        reply: PermissionReplyKind,
    },
    /// The agent asked a question.
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
    /// The human declined to answer.
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
    /// A directory was added to or removed from a project.
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
    /// The browser for signing in to an MCP server could not be opened.
    #[serde(rename = "mcp.browser.open.failed")]
    McpBrowserOpenFailed {
        #[serde(rename = "mcpName")]
        mcp_name: String,
        url: String,
    },
    /// A language server changed.
    #[serde(rename = "lsp.updated")]
    LspUpdated {},
    /// The subscriber is connected.
    #[serde(rename = "server.connected")]
    ServerConnected {},
    /// The connection is alive.
    #[serde(rename = "server.heartbeat")]
    ServerHeartbeat {},
    /// The subscriber's state is out of date: it must read it again; events continue from here. A Trefoil extension.
    #[serde(rename = "server.resync")]
    ServerResync {
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// A directory's state was unloaded.
    #[serde(rename = "server.instance.disposed")]
    InstanceDisposed { directory: String },
    /// Everything was unloaded.
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
    /// A terminal's program exited.
    #[serde(rename = "pty.exited")]
    PtyExited {
        id: PtyId,
        #[serde(rename = "exitCode")]
        #[schemars(range(min = 0))]
        exit_code: i64,
    },
    /// A terminal was closed.
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
    /// The terminal client should show this session.
    #[serde(rename = "tui.session.select")]
    TuiSessionSelect {
        #[serde(rename = "sessionID")]
        session_id: SessionId,
    },
    /// A worktree is ready.
    #[serde(rename = "worktree.ready")]
    WorktreeReady {
        name: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        branch: Option<String>,
    },
    /// A worktree could not be created.
    #[serde(rename = "worktree.failed")]
    WorktreeFailed { message: String },
    /// An event that this version does not know; preserved as received.
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
            | Self::SessionTurn { session_id, .. }
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

    /// A part was created or changed, now.
    pub fn part(part: Part) -> Option<Self> {
        let session_id = part.head()?.session_id.clone();
        Some(Self::PartUpdated { session_id, part: Box::new(part), time: crate::now() })
    }

    /// A message was created or changed.
    pub fn message(info: Message) -> Self {
        Self::MessageUpdated { session_id: info.session_id().clone(), info: Box::new(info) }
    }

    /// A session was changed.
    pub fn session(info: Session) -> Self {
        Self::SessionUpdated { session_id: info.id.clone(), info: Box::new(info) }
    }
}
