//! Schemas of values that have no Rust type here: passed through as received, held as plain strings, or lists with a
//! name.

#![expect(dead_code, reason = "only their schemas are used")]

use schemars::JsonSchema;

use super::tagged;
use crate::{JsonMap, Rule};

/// An ordered list of rules.
#[derive(JsonSchema)]
pub struct PermissionRuleset(Vec<Rule>);

/// A value that is always present but may be null.
#[derive(JsonSchema)]
#[schemars(inline)]
pub struct Nullable<T>(Option<T>);

/// The chosen labels of one question.
#[derive(JsonSchema)]
pub struct QuestionAnswer(Vec<String>);

/// The version control of a project.
#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
pub(crate) enum ProjectVcs {
    Git,
}

#[derive(JsonSchema)]
#[schemars(inline, rename_all = "lowercase")]
pub(crate) enum NodeKind {
    File,
    Directory,
}

#[derive(JsonSchema)]
#[schemars(inline, rename_all = "lowercase")]
pub(crate) enum Encoding {
    Base64,
}

#[derive(JsonSchema)]
#[schemars(inline, rename_all = "lowercase")]
pub(crate) enum FileChange {
    Add,
    Change,
    Unlink,
}

#[derive(JsonSchema)]
#[schemars(inline, rename_all = "lowercase")]
pub(crate) enum ToastVariant {
    Info,
    Success,
    Warning,
    Error,
}

/// A command of the terminal client: a known one, or any other.
#[derive(JsonSchema)]
#[schemars(inline, untagged)]
pub(crate) enum TuiCommand {
    Known(KnownTuiCommand),
    Any(String),
}

#[derive(JsonSchema)]
#[schemars(inline)]
pub(crate) enum KnownTuiCommand {
    #[schemars(rename = "session.list")]
    SessionList,
    #[schemars(rename = "session.new")]
    SessionNew,
    #[schemars(rename = "session.share")]
    SessionShare,
    #[schemars(rename = "session.interrupt")]
    SessionInterrupt,
    #[schemars(rename = "session.compact")]
    SessionCompact,
    #[schemars(rename = "session.page.up")]
    PageUp,
    #[schemars(rename = "session.page.down")]
    PageDown,
    #[schemars(rename = "session.line.up")]
    LineUp,
    #[schemars(rename = "session.line.down")]
    LineDown,
    #[schemars(rename = "session.half.page.up")]
    HalfPageUp,
    #[schemars(rename = "session.half.page.down")]
    HalfPageDown,
    #[schemars(rename = "session.first")]
    First,
    #[schemars(rename = "session.last")]
    Last,
    #[schemars(rename = "prompt.clear")]
    PromptClear,
    #[schemars(rename = "prompt.submit")]
    PromptSubmit,
    #[schemars(rename = "agent.cycle")]
    AgentCycle,
}

/// An error that has only a message.
#[derive(JsonSchema)]
#[schemars(inline)]
pub(crate) struct Text {
    message: String,
}

/// An error message and the provider's response.
#[derive(JsonSchema)]
#[schemars(inline, rename_all = "camelCase")]
pub(crate) struct Overflow {
    message: String,
    response_body: Option<String>,
}

/// An error message and a reference into the log.
#[derive(JsonSchema)]
#[schemars(inline)]
pub(crate) struct Unknown {
    message: String,
    #[schemars(rename = "ref")]
    reference: Option<String>,
}

/// Any JSON schema.
#[derive(JsonSchema)]
#[schemars(rename = "JSONSchema")]
pub(crate) struct AnySchema(JsonMap);

/// What a human could do about a failing call that is being retried.
#[derive(JsonSchema)]
#[schemars(inline)]
pub(crate) struct RetryAction {
    reason: String,
    provider: String,
    title: String,
    message: String,
    label: String,
    link: Option<String>,
}

/// Whether reasoning is interleaved with text, or the field of the answer that carries it.
#[derive(JsonSchema)]
#[schemars(inline, untagged)]
pub(crate) enum Interleaved {
    Alternates(bool),
    Field { field: ReasoningField },
}

#[derive(JsonSchema)]
#[schemars(inline, untagged)]
pub(crate) enum ReasoningField {
    Known(KnownReasoningField),
    Any(String),
}

#[derive(JsonSchema)]
#[schemars(inline, rename_all = "snake_case")]
pub(crate) enum KnownReasoningField {
    Reasoning,
    ReasoningContent,
    ReasoningText,
}

/// Where a file part comes from.
#[derive(JsonSchema)]
#[schemars(untagged)]
pub(crate) enum FilePartSource {
    File(FileSource),
    Symbol(SymbolSource),
    Resource(ResourceSource),
}

/// A file mentioned in the prompt.
#[derive(JsonSchema)]
#[schemars(transform = tagged("type", "file"))]
pub(crate) struct FileSource {
    text: FilePartSourceText,
    path: String,
}

/// A symbol mentioned in the prompt.
#[derive(JsonSchema)]
#[schemars(transform = tagged("type", "symbol"))]
pub(crate) struct SymbolSource {
    text: FilePartSourceText,
    path: String,
    range: Range,
    name: String,
    kind: u64,
}

/// An MCP resource mentioned in the prompt.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", transform = tagged("type", "resource"))]
pub(crate) struct ResourceSource {
    text: FilePartSourceText,
    client_name: String,
    uri: String,
}

/// The mention and its position in the prompt's text.
#[derive(JsonSchema)]
pub(crate) struct FilePartSourceText {
    value: String,
    start: f64,
    end: f64,
}

/// A range of a file.
#[derive(JsonSchema)]
pub struct Range {
    start: Position,
    end: Position,
}

/// A position in a file.
#[derive(JsonSchema)]
#[schemars(inline)]
pub struct Position {
    line: u64,
    character: u64,
}

/// When a running call started.
#[derive(JsonSchema)]
#[schemars(inline)]
pub(crate) struct Started {
    start: u64,
}

/// When a successful call ran, and when its output was dropped from the context.
#[derive(JsonSchema)]
#[schemars(inline)]
pub(crate) struct Completed {
    start: u64,
    end: u64,
    compacted: Option<u64>,
}

/// When a failed call ran.
#[derive(JsonSchema)]
#[schemars(inline)]
pub(crate) struct Ended {
    start: u64,
    end: u64,
}
