//! The vocabulary that all crates share: OpenCode v1's data model as plain serde types, its id format and event
//! names, and the traits at the seams ([`Host`], [`CatalogHost`], [`WorkspaceHost`], [`Environment`], [`Runner`]).
//!
//! Invariants: no I/O and no async runtime in here; a stored row never fails to parse (unknown fields are preserved in
//! [`Extra`], an unknown part type becomes [`Part::Other`], an unknown event [`EventBody::Other`]).

mod agent;
mod ask;
mod caller;
mod catalog;
mod catalog_host;
mod credential;
mod environment;
mod error;
mod event;
mod feed;
mod hash;
mod host;
mod host_error;
mod id;
mod json;
mod message;
mod order;
mod part;
mod prompt;
mod pty;
mod rule;
mod runner;
pub mod schema;
mod scope;
mod session;
mod status;
mod subtree;
mod text;
mod tracker;
mod tree;
mod turn;
mod workspace;
mod workspace_host;

pub use agent::{Agent, AgentMode, Command, CommandSource, Skill};
pub use ask::{
    Approval, PermissionReply, PermissionReplyKind, PermissionRequest, Question, QuestionOption, QuestionRequest,
    ToolRef,
};
pub use caller::{Caller, CallerCapabilities};
pub use catalog::{
    Capabilities, Cost, CostTier, Limit, Modalities, Model, ModelApi, ModelStatus, Project, ProjectCommands,
    ProjectIcon, ProjectTime, Provider, ProviderCatalog, ProviderSource,
};
pub use catalog_host::CatalogHost;
pub use credential::{ApiCredential, Credential, OAuthCredential, WellKnownCredential};
pub use environment::{
    Content, Environment, EnvironmentError, FileVersion, Terminal, TerminalCommand, TerminalExit, TerminalOutput,
};
pub use error::{ApiErrorData, MessageError, NoData, ProviderAuthData, StructuredOutputData, TextData};
pub use event::{Event, EventBody, OtherEvent, SessionStatus};
pub use feed::{Cursor, Frame, SHARED_BYTES, WatchItem, WatchScope};
pub use hash::sha256_hex;
pub use host::{AgentRuntime, CreateSession, Features, Host, ListMessages, ListSessions, MessagePage, UpdateSession};
pub use host_error::{HostError, HostFuture};
pub use id::{
    ApprovalId, EventId, IdStamp, MessageId, PartId, PermissionId, PtyId, QuestionId, SessionId, Timestamp, made_at,
    now, shift_clock, slug, tool_call_id,
};
pub use json::{Extra, Json, JsonMap, SerializedJson, Usd, json_size};
pub use message::{
    AssistantMessage, AssistantPath, AssistantTime, FileDiff, FileDiffStatus, Message, MessageWithParts, ModelRef,
    OutputFormat, Tokens, TokensCache, UserMessage, UserSummary, UserTime,
};
pub use order::MessageOrder;
pub use part::{
    AgentPart, AgentSource, CompactionPart, FilePart, FileSource, Part, PartHead, PartTime, PatchPart, ReasoningPart,
    RetryPart, RetryTime, SnapshotPart, StepFinishPart, StepStartPart, SubtaskPart, TextPart, ToolCompleted, ToolError,
    ToolPart, ToolPending, ToolRunning, ToolState, ToolTime,
};
pub use prompt::{CommandInput, PromptInput, PromptPart, PromptTarget, ShellInput, SummarizeInput};
pub use pty::{Pty, PtyStatus};
pub use rule::{Action, Rule, Ruleset, evaluate, wildcard};
pub use runner::{
    Runner, RunnerAnswers, RunnerCall, RunnerCallState, RunnerChange, RunnerChild, RunnerChildHandle, RunnerContext,
    RunnerDecision, RunnerEnd, RunnerError, RunnerJob, RunnerMessage, RunnerUpdate,
};
pub use schema::GlobalEvent;
pub use scope::Scope;
pub use session::{
    Session, SessionModel, SessionRevert, SessionShare, SessionSummary, SessionTime, SessionTokens, Todo,
};
pub use status::{
    FormatterStatus, LspState, LspStatus, McpAuthorization, McpConfig, McpOAuth, McpOAuthConfig, McpResource, McpStatus,
};
pub use subtree::Subtree;
pub use text::strip_control;
pub use tracker::{
    Ask, FileChanges, Progress, SessionSnapshot, SessionUsage, Subagent, SubagentState, SubagentTree, ToolUse,
    TreeChange, TreeSnapshot, TreeTracker, TurnOutcome, task_session,
};
pub use tree::{
    Blocked, Bound, Budget, BudgetState, CancelResult, CurrentTool, SteerInput, TitleUsage, Tree, TreeAsk, TreeNode,
    TreeState, Usage, Worktree, WorktreeDiff,
};
pub use turn::{Delivery, ListTurns, Submitted, Turn, TurnId, TurnPage, TurnState, TurnTime};
pub use workspace::{
    Branches, CreateLinkedWorktree, CreateWorkspace, DiffBase, FilePatch, LinkedWorktree, PartialList, Workspace,
    WorktreeRemoval,
};
pub use workspace_host::{ContentKind, FileContent, FileNode, FileStatus, FindTextMatch, WorkspaceHost};
