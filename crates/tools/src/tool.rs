//! The tool traits: [`TypedTool`], which authors implement, and the type-erased [`Tool`], which the engine holds.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;

use api::{FileVersion, Json, JsonMap, Question, SerializedJson, Todo};
use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use context::Context;

pub(crate) mod context;
pub(crate) mod input;
pub(crate) mod invalid;
pub(crate) mod registry;
pub(crate) mod truncate;

/// A permission that a call needs; the engine decides.
#[derive(Debug, Clone, PartialEq)]
pub struct Need {
    /// The permission, for example `edit`.
    pub permission: String,
    /// What it is needed for: commands, paths. All of them must be allowed.
    pub patterns: Vec<String>,
    /// The patterns that a reply of `always` allows from then on.
    pub always: Vec<String>,
    /// What clients show: a diff, a command.
    pub metadata: JsonMap,
    /// Part of the call was not understood, so only a rule for everything may allow it.
    pub opaque: bool,
    /// Arguments that may name a command to run: a rule about that command may apply to this need.
    pub arguments: Vec<String>,
}

impl Need {
    /// A need for one pattern; a reply of `always` allows everything of its kind.
    pub fn new(permission: &str, pattern: impl Into<String>) -> Self {
        Self {
            permission: permission.into(),
            patterns: vec![pattern.into()],
            always: vec!["*".into()],
            metadata: JsonMap::new(),
            opaque: false,
            arguments: Vec::new(),
        }
    }

    /// Adds metadata for the human who is asked.
    pub fn with(mut self, key: &str, value: impl Into<Json>) -> Self {
        self.metadata.insert(key.into(), value.into());
        self
    }
}

/// Whether a call may run again if a crash hid its outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Running it again changes nothing.
    ReadOnly,
    /// It must never be repeated silently.
    SideEffect,
    /// Its work is durable by itself: repeating the call continues what it started, and starts nothing twice.
    Resumes,
}

/// What happened to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileChange {
    /// It was created.
    Add,
    /// Its content changed.
    Change,
    /// It was deleted.
    Unlink,
}

/// What a call changed or learned; the engine turns it into rows and events in the commit of the call's outcome.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// A file.
    File {
        /// Its path.
        path: PathBuf,
        /// What happened to it.
        kind: FileChange,
    },
    /// The content of a file that the agent read or wrote.
    KnownFile {
        /// Its path, with symbolic links resolved.
        path: PathBuf,
        /// The content.
        version: FileVersion,
    },
    /// The complete todo list of the session.
    Todos(Vec<Todo>),
}

/// A file that the model gets beside the text.
#[derive(Debug, Clone, PartialEq)]
pub struct Attachment {
    /// Its media type.
    pub mime: String,
    /// Its name.
    pub filename: Option<String>,
    /// Its content as a `data:` URL.
    pub url: String,
}

/// The result of a successful call.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Output {
    /// The title that clients show.
    pub title: String,
    /// What the model reads.
    pub output: String,
    /// What clients show.
    pub metadata: JsonMap,
    /// Images and other files.
    pub attachments: Vec<Attachment>,
    /// What it changed.
    pub changes: Vec<Change>,
}

/// Why a call failed; the text is for the model.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ToolError {
    /// The arguments do not match the schema.
    #[error("{message}")]
    Invalid {
        /// Which argument, and why.
        message: String,
    },
    /// It ran and failed.
    #[error("{message}")]
    Failed {
        /// What happened and what to do next.
        message: String,
        /// What clients show.
        metadata: Option<JsonMap>,
    },
    /// The call was cancelled.
    #[error("The call was aborted")]
    Aborted,
}

impl ToolError {
    /// A failure with a message.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::Failed { message: message.into(), metadata: None }
    }
}

/// A tool as the engine sees it.
pub trait Tool: Send + Sync {
    /// Its name.
    fn name(&self) -> &str;
    /// The description for the model.
    fn description(&self) -> Arc<str>;
    /// The JSON schema of its arguments.
    fn schema(&self) -> SerializedJson;
    /// Whether it may run again after a crash.
    fn effect(&self) -> Effect;
    /// The tool that does the actual work: rules that deny that one deny this one too.
    fn backing_tool(&self) -> Option<&str> {
        None
    }
    /// Questions that must be answered before it runs.
    fn questions(&self, _input: &Json) -> Option<Vec<Question>> {
        None
    }
    /// The permissions it needs. Changes nothing.
    fn needs<'a>(&'a self, input: &'a Json, ctx: &'a Context) -> BoxFuture<'a, Result<Vec<Need>, ToolError>>;
    /// Runs the call. `ctx.granted` holds the needs that [`Tool::needs`] returned and the engine allowed.
    fn run<'a>(&'a self, input: Json, ctx: Context) -> BoxFuture<'a, Result<Output, ToolError>>;
}

/// A tool as its author writes it. The doc comments of `Input` and of its fields are what the model reads.
pub trait TypedTool: Send + Sync + 'static {
    /// The arguments.
    type Input: DeserializeOwned + JsonSchema + Send + Sync;
    /// Its name.
    const NAME: &'static str;
    /// Whether it may run again after a crash.
    const EFFECT: Effect;
    /// The tool that does the actual work: rules that deny that one deny this one too.
    fn backing_tool(&self) -> Option<&str> {
        None
    }
    /// Questions that must be answered before it runs.
    fn questions(&self, _input: &Self::Input) -> Option<Vec<Question>> {
        None
    }
    /// The permissions it needs. Changes nothing.
    fn needs(&self, input: &Self::Input, ctx: &Context) -> impl Future<Output = Result<Vec<Need>, ToolError>> + Send;
    /// Runs the call.
    fn run(&self, input: Self::Input, ctx: Context) -> impl Future<Output = Result<Output, ToolError>> + Send;
}

/// Erases the argument type of a tool, so that all tools fit into one registry.
pub fn erase<T: TypedTool>(tool: T) -> Arc<dyn Tool> {
    let (schema, description) = input::schema_of::<T::Input>();
    Arc::new(ErasedTool { tool, schema: schema.into(), description: description.into() })
}

struct ErasedTool<T> {
    tool: T,
    schema: SerializedJson,
    description: Arc<str>,
}

impl<T: TypedTool> ErasedTool<T> {
    fn parse(&self, input: Json) -> Result<T::Input, ToolError> {
        input::parse(T::NAME, &self.schema, input)
    }
}

impl<T: TypedTool> Tool for ErasedTool<T> {
    fn name(&self) -> &str {
        T::NAME
    }

    fn description(&self) -> Arc<str> {
        self.description.clone()
    }

    fn schema(&self) -> SerializedJson {
        self.schema.clone()
    }

    fn effect(&self) -> Effect {
        T::EFFECT
    }

    fn backing_tool(&self) -> Option<&str> {
        self.tool.backing_tool()
    }

    fn questions(&self, input: &Json) -> Option<Vec<Question>> {
        self.tool.questions(&self.parse(input.clone()).ok()?)
    }

    fn needs<'a>(&'a self, input: &'a Json, ctx: &'a Context) -> BoxFuture<'a, Result<Vec<Need>, ToolError>> {
        Box::pin(async move {
            let input = self.parse(input.clone())?;
            self.tool.needs(&input, ctx).await
        })
    }

    fn run<'a>(&'a self, input: Json, ctx: Context) -> BoxFuture<'a, Result<Output, ToolError>> {
        Box::pin(async move { self.tool.run(self.parse(input)?, ctx).await })
    }
}
