//! The parts of a message.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::{api_error, shape, tagged};
use crate::{
    ApiErrorData, Extra, IdStamp, Json, JsonMap, MessageId, ModelRef, PartId, SessionId, Timestamp, Tokens, Usd,
};

/// One part of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "kebab-case")]
#[schemars(!tag, untagged)]
pub enum Part {
    /// Text.
    Text(TextPart),
    /// The model's reasoning.
    Reasoning(ReasoningPart),
    /// A file or an image.
    File(FilePart),
    /// A tool call and its result.
    Tool(ToolPart),
    /// The start of a model step.
    StepStart(StepStartPart),
    /// The end of a model step.
    StepFinish(StepFinishPart),
    /// Files that a step changed.
    Patch(PatchPart),
    /// A snapshot of the files.
    Snapshot(SnapshotPart),
    /// An agent mentioned in the prompt.
    Agent(AgentPart),
    /// A task for a subagent.
    Subtask(SubtaskPart),
    /// A retried model call.
    Retry(RetryPart),
    /// A compaction of the conversation.
    Compaction(CompactionPart),
    /// A kind that this version does not know; preserved as received.
    #[serde(untagged)]
    #[schemars(skip)]
    Other(JsonMap),
}

/// What every part has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct PartHead {
    /// Its id.
    pub id: PartId,
    /// Its session.
    #[serde(rename = "sessionID")]
    pub session_id: SessionId,
    /// Its message.
    #[serde(rename = "messageID")]
    pub message_id: MessageId,
}

impl PartHead {
    /// The head of a new part.
    pub fn new(session_id: &SessionId, message_id: &MessageId) -> Self {
        Self { id: PartId::new(), session_id: session_id.clone(), message_id: message_id.clone() }
    }

    /// The head of a new part whose id sorts after those of the message's existing parts.
    pub fn after(session_id: &SessionId, message_id: &MessageId, parts: &[Part]) -> Self {
        let ids = parts.iter().filter_map(|part| IdStamp::of(part.head()?.id.as_str()));
        let id = PartId::after(ids.max().unwrap_or_default());
        Self { id, session_id: session_id.clone(), message_id: message_id.clone() }
    }
}

impl Part {
    /// The fields that every part has; a part of an unknown kind may lack them.
    pub fn head(&self) -> Option<&PartHead> {
        Some(match self {
            Self::Text(p) => &p.head,
            Self::Reasoning(p) => &p.head,
            Self::File(p) => &p.head,
            Self::Tool(p) => &p.head,
            Self::StepStart(p) => &p.head,
            Self::StepFinish(p) => &p.head,
            Self::Patch(p) => &p.head,
            Self::Snapshot(p) => &p.head,
            Self::Agent(p) => &p.head,
            Self::Subtask(p) => &p.head,
            Self::Retry(p) => &p.head,
            Self::Compaction(p) => &p.head,
            Self::Other(_) => return None,
        })
    }

    /// The same, mutable.
    pub fn head_mut(&mut self) -> Option<&mut PartHead> {
        Some(match self {
            Self::Text(p) => &mut p.head,
            Self::Reasoning(p) => &mut p.head,
            Self::File(p) => &mut p.head,
            Self::Tool(p) => &mut p.head,
            Self::StepStart(p) => &mut p.head,
            Self::StepFinish(p) => &mut p.head,
            Self::Patch(p) => &mut p.head,
            Self::Snapshot(p) => &mut p.head,
            Self::Agent(p) => &mut p.head,
            Self::Subtask(p) => &mut p.head,
            Self::Retry(p) => &mut p.head,
            Self::Compaction(p) => &mut p.head,
            Self::Other(_) => return None,
        })
    }

    /// Parses a part: the same value as `serde_json::from_str`, for half the work. Serde buffers an internally tagged
    /// enum before it parses the variant; this looks up the kind first and parses the part directly.
    pub fn from_json(text: &str) -> serde_json::Result<Self> {
        #[derive(Deserialize)]
        struct Kind<'a> {
            #[serde(rename = "type", borrow)]
            kind: std::borrow::Cow<'a, str>,
        }
        fn read<T: serde::de::DeserializeOwned>(text: &str, wrap: fn(T) -> Part) -> Option<Part> {
            let mut part = wrap(serde_json::from_str(text).ok()?);
            // The kind is not a field of the part itself.
            part.extra_mut()?.remove("type");
            Some(part)
        }
        let kind: Option<Kind<'_>> = serde_json::from_str(text).ok();
        let part = match kind.as_ref().map_or("", |kind| kind.kind.as_ref()) {
            "text" => read(text, Self::Text),
            "reasoning" => read(text, Self::Reasoning),
            "file" => read(text, Self::File),
            "tool" => read(text, Self::Tool),
            "step-start" => read(text, Self::StepStart),
            "step-finish" => read(text, Self::StepFinish),
            _ => None,
        };
        part.map_or_else(|| serde_json::from_str(text), Ok)
    }

    fn extra_mut(&mut self) -> Option<&mut Extra> {
        Some(match self {
            Self::Text(p) => &mut p.extra,
            Self::Reasoning(p) => &mut p.extra,
            Self::File(p) => &mut p.extra,
            Self::Tool(p) => &mut p.extra,
            Self::StepStart(p) => &mut p.extra,
            Self::StepFinish(p) => &mut p.extra,
            _ => return None,
        })
    }

    /// The tool call, if it is one.
    pub fn as_tool(&self) -> Option<&ToolPart> {
        match self {
            Self::Tool(p) => Some(p),
            _ => None,
        }
    }

    /// The task for a subagent, if it is one.
    pub fn as_subtask(&self) -> Option<&SubtaskPart> {
        match self {
            Self::Subtask(p) => Some(p),
            _ => None,
        }
    }

    /// The text part, if it is one.
    pub fn as_text(&self) -> Option<&TextPart> {
        match self {
            Self::Text(p) => Some(p),
            _ => None,
        }
    }
}

/// When a part was written.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct PartTime {
    /// When it started.
    #[schemars(range(min = 0))]
    pub start: Timestamp,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub end: Option<Timestamp>,
}

/// Text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = tagged("type", "text"))]
pub struct TextPart {
    /// What every part has.
    #[serde(flatten)]
    pub head: PartHead,
    /// The text.
    pub text: String,
    /// Added for the model, not written by the human.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub synthetic: Option<bool>,
    /// Shown to the human, not sent to the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ignored: Option<bool>,
    /// When it was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<PartTime>,
    /// Data that a provider or client wants back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<JsonMap>,
    /// Unknown fields.
    #[serde(flatten)]
    pub extra: Extra,
}

/// The model's reasoning.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = tagged("type", "reasoning"))]
pub struct ReasoningPart {
    /// What every part has.
    #[serde(flatten)]
    pub head: PartHead,
    /// The text.
    pub text: String,
    /// Data that the provider wants back, for example a signature.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<JsonMap>,
    /// When it was written.
    pub time: PartTime,
    /// Unknown fields.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A file or an image.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = tagged("type", "file"))]
pub struct FilePart {
    /// What every part has.
    #[serde(flatten)]
    pub head: PartHead,
    /// Its media type; `application/x-directory` for a directory.
    pub mime: String,
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filename: Option<String>,
    /// `file:`, `data:` or `http(s):`.
    pub url: String,
    /// Where in the prompt's text it was mentioned.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<shape::FilePartSource>")]
    pub source: Option<FileSource>,
    /// Unknown fields.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Where a file part comes from, as the client sent it (`file`, `symbol` or `resource`, with the position of the
/// mention).
pub type FileSource = Json;

/// A tool call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = tagged("type", "tool"))]
pub struct ToolPart {
    /// What every part has.
    #[serde(flatten)]
    pub head: PartHead,
    /// The model's id for the call.
    #[serde(rename = "callID")]
    pub call_id: String,
    /// The tool.
    pub tool: String,
    /// Its state.
    pub state: ToolState,
    /// Data that the provider wants back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<JsonMap>,
    /// Unknown fields.
    #[serde(flatten)]
    pub extra: Extra,
}

/// The state of a tool call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "status", rename_all = "lowercase")]
#[schemars(!tag, untagged)]
pub enum ToolState {
    /// The model is still writing it.
    Pending(ToolPending),
    /// It is running, or waiting for permission.
    Running(ToolRunning),
    /// It succeeded.
    Completed(ToolCompleted),
    /// It failed.
    Error(ToolError),
}

/// Arguments that best describe a call, in order of preference.
const SUBJECTS: [&str; 8] = ["command", "filePath", "pattern", "path", "url", "name", "description", "prompt"];

impl ToolPart {
    /// A short description of the call: its title, or else one of its arguments. Empty if there is neither.
    pub fn subject(&self) -> &str {
        let title = match &self.state {
            ToolState::Completed(done) => done.title.as_str(),
            ToolState::Running(running) => running.title.as_deref().unwrap_or_default(),
            ToolState::Pending(_) | ToolState::Error(_) => "",
        };
        if !title.is_empty() {
            return title;
        }
        let input = self.state.input();
        SUBJECTS.iter().find_map(|key| input.get(key).and_then(Json::as_str)).unwrap_or_default()
    }
}

impl ToolState {
    /// Its name on the wire.
    pub fn status(&self) -> &'static str {
        match self {
            Self::Pending(_) => "pending",
            Self::Running(_) => "running",
            Self::Completed(_) => "completed",
            Self::Error(_) => "error",
        }
    }

    /// Whether the call has ended.
    pub fn is_done(&self) -> bool {
        matches!(self, Self::Completed(_) | Self::Error(_))
    }

    /// The call's arguments.
    pub fn input(&self) -> &Json {
        match self {
            Self::Pending(s) => &s.input,
            Self::Running(s) => &s.input,
            Self::Completed(s) => &s.input,
            Self::Error(s) => &s.input,
        }
    }
}

/// The model is still writing the call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ToolStatePending", transform = tagged("status", "pending"))]
pub struct ToolPending {
    /// Empty until the arguments are complete.
    #[schemars(with = "JsonMap")]
    pub input: Json,
    /// The text of the arguments so far.
    pub raw: String,
}

/// The call is running.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ToolStateRunning", transform = tagged("status", "running"))]
pub struct ToolRunning {
    /// The arguments.
    #[schemars(with = "JsonMap")]
    pub input: Json,
    /// A headline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What the tool reported so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<JsonMap>,
    /// When it started.
    #[schemars(with = "shape::Started")]
    pub time: ToolTime,
}

/// The call succeeded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ToolStateCompleted", transform = tagged("status", "completed"))]
pub struct ToolCompleted {
    /// The arguments.
    #[schemars(with = "JsonMap")]
    pub input: Json,
    /// What the model reads.
    pub output: String,
    /// A headline.
    pub title: String,
    /// What clients show.
    pub metadata: JsonMap,
    /// When it ran.
    #[schemars(with = "shape::Completed")]
    pub time: ToolTime,
    /// Images and files that come with the text.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<FilePart>>")]
    pub attachments: Option<Vec<Part>>,
}

/// The call failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ToolStateError", transform = tagged("status", "error"))]
pub struct ToolError {
    /// The arguments.
    #[schemars(with = "JsonMap")]
    pub input: Json,
    /// What the model reads.
    pub error: String,
    /// What clients show.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<JsonMap>,
    /// When it ran.
    #[schemars(with = "shape::Ended")]
    pub time: ToolTime,
}

/// When a call ran.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolTime {
    /// When it started.
    pub start: Timestamp,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<Timestamp>,
    /// When its output was dropped from the context.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compacted: Option<Timestamp>,
}

/// The start of a model step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = tagged("type", "step-start"))]
pub struct StepStartPart {
    /// What every part has.
    #[serde(flatten)]
    pub head: PartHead,
    /// The snapshot of the files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// Unknown fields.
    #[serde(flatten)]
    pub extra: Extra,
}

/// The end of a model step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = tagged("type", "step-finish"))]
pub struct StepFinishPart {
    /// What every part has.
    #[serde(flatten)]
    pub head: PartHead,
    /// Why the model stopped.
    pub reason: String,
    /// The snapshot of the files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// What the step cost.
    pub cost: Usd,
    /// What the step used.
    pub tokens: Tokens,
    /// Unknown fields.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Files that a step changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = tagged("type", "patch"))]
pub struct PatchPart {
    /// What every part has.
    #[serde(flatten)]
    pub head: PartHead,
    /// The snapshot before the step.
    pub hash: String,
    /// Absolute paths.
    pub files: Vec<String>,
    /// Unknown fields.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A snapshot of the files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = tagged("type", "snapshot"))]
pub struct SnapshotPart {
    /// What every part has.
    #[serde(flatten)]
    pub head: PartHead,
    /// The snapshot's id.
    pub snapshot: String,
    /// Unknown fields.
    #[serde(flatten)]
    pub extra: Extra,
}

/// An agent mentioned in the prompt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = tagged("type", "agent"))]
pub struct AgentPart {
    /// What every part has.
    #[serde(flatten)]
    pub head: PartHead,
    /// The agent.
    pub name: String,
    /// Where in the prompt's text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<AgentSource>,
    /// Unknown fields.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Where in a prompt's text something was mentioned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct AgentSource {
    /// The text of the mention.
    pub value: String,
    /// The offset of its first character.
    pub start: u64,
    /// The offset after its last character.
    pub end: u64,
}

/// A task for a subagent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = tagged("type", "subtask"))]
pub struct SubtaskPart {
    /// What every part has.
    #[serde(flatten)]
    pub head: PartHead,
    /// What it should do.
    pub prompt: String,
    /// A short description of the task.
    pub description: String,
    /// The agent that should do it.
    pub agent: String,
    /// The model to use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelRef>,
    /// The command it comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Unknown fields.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A retried model call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = tagged("type", "retry"))]
pub struct RetryPart {
    /// What every part has.
    #[serde(flatten)]
    pub head: PartHead,
    /// The number of the failed attempt, from 1.
    pub attempt: u32,
    /// Why it failed.
    #[schemars(schema_with = "api_error")]
    pub error: crate::MessageError,
    /// When it failed.
    pub time: RetryTime,
    /// Unknown fields.
    #[serde(flatten)]
    pub extra: Extra,
}

impl RetryPart {
    /// The error, if it came from a model's API.
    pub fn api_error(&self) -> Option<&ApiErrorData> {
        match &self.error {
            crate::MessageError::ApiError(data) => Some(data),
            _ => None,
        }
    }
}

/// The time of a failed attempt.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct RetryTime {
    /// When it failed.
    #[schemars(range(min = 0))]
    pub created: Timestamp,
}

/// A compaction of the conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = tagged("type", "compaction"))]
pub struct CompactionPart {
    /// What every part has.
    #[serde(flatten)]
    pub head: PartHead,
    /// Whether it was automatic, not requested by the human.
    pub auto: bool,
    /// Whether the context had overflowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overflow: Option<bool>,
    /// The first message that is kept unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tail_start_id: Option<MessageId>,
    /// Unknown fields.
    #[serde(flatten)]
    pub extra: Extra,
}
