//! What a tool is: a typed one that authors write ([`TypedTool`]) and the erased one that the engine holds ([`Tool`]).

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;

use api::{FileVersion, Json, JsonMap, Question, Todo, Written};
use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use context::Context;

pub(crate) mod context;
pub(crate) mod input;
pub(crate) mod invalid;
pub(crate) mod registry;
pub(crate) mod truncate;

/// What a call wants to be allowed; the engine decides.
#[derive(Debug, Clone, PartialEq)]
pub struct Need {
    /// The permission, for example `edit`.
    pub permission: String,
    /// What for: commands, paths. All of them must be allowed.
    pub patterns: Vec<String>,
    /// What an answer `always` allows from then on.
    pub always: Vec<String>,
    /// What a client shows: a diff, a command.
    pub metadata: JsonMap,
    /// Something in it was not understood, so only a rule for everything may allow it.
    pub opaque: bool,
    /// Texts that may name a command which is run: a rule about that command may be about this need.
    pub arguments: Vec<String>,
}

impl Need {
    /// A need for one pattern; `always` allows everything of its kind.
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

    /// Adds a fact for whoever is asked.
    pub fn with(mut self, key: &str, value: impl Into<Json>) -> Self {
        self.metadata.insert(key.into(), value.into());
        self
    }
}

/// Whether a call may run again when a crash hid its outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Running it again changes nothing.
    ReadOnly,
    /// It is never repeated silently.
    SideEffect,
    /// Its work is durable by itself: the same call goes on with what it began, and begins nothing twice.
    Resumes,
}

/// What happened to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileChange {
    /// It is new.
    Add,
    /// Its content is new.
    Change,
    /// It is gone.
    Unlink,
}

/// Something a call changed or learned; the engine turns it into rows and events in the commit of the call's outcome.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// A file.
    File {
        /// Which.
        path: PathBuf,
        /// How.
        kind: FileChange,
    },
    /// What the agent has seen of a file: the content that it read or wrote.
    Known {
        /// Which, without symbolic links.
        path: PathBuf,
        /// The content.
        version: FileVersion,
    },
    /// The session's todo list, whole.
    Todos(Vec<Todo>),
}

/// A file that goes to the model beside the text.
#[derive(Debug, Clone, PartialEq)]
pub struct Attachment {
    /// Its media type.
    pub mime: String,
    /// Its name.
    pub filename: Option<String>,
    /// Its content as a `data:` address.
    pub url: String,
}

/// The outcome of a call that worked.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Output {
    /// What a client shows as its name.
    pub title: String,
    /// What the model reads.
    pub output: String,
    /// What a client shows.
    pub metadata: JsonMap,
    /// Images and the like.
    pub attachments: Vec<Attachment>,
    /// What it changed.
    pub changes: Vec<Change>,
}

/// The outcome of a call that did not work; the text is for the model.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ToolError {
    /// The arguments do not fit the schema.
    #[error("{message}")]
    Invalid {
        /// Which and why.
        message: String,
    },
    /// It was tried and failed.
    #[error("{message}")]
    Failed {
        /// What happened and what to do next.
        message: String,
        /// What a client shows.
        metadata: Option<JsonMap>,
    },
    /// The call was cancelled.
    #[error("The call was aborted")]
    Aborted,
}

impl ToolError {
    /// A failure with a text.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::Failed { message: message.into(), metadata: None }
    }
}

/// A tool as the engine sees it.
pub trait Tool: Send + Sync {
    /// Its name.
    fn name(&self) -> &str;
    /// What the model reads about it.
    fn description(&self) -> Arc<str>;
    /// The JSON schema of its arguments.
    fn schema(&self) -> Written;
    /// Whether it may run again after a crash.
    fn effect(&self) -> Effect;
    /// Another tool that does its work: rules that refuse that one refuse this one.
    fn behind(&self) -> Option<&str> {
        None
    }
    /// Questions that must be answered before it runs.
    fn questions(&self, _input: &Json) -> Option<Vec<Question>> {
        None
    }
    /// What it wants to be allowed. Changes nothing.
    fn needs<'a>(&'a self, input: &'a Json, ctx: &'a Context) -> BoxFuture<'a, Result<Vec<Need>, ToolError>>;
    /// Does it. `ctx.granted` holds what [`Tool::needs`] answered and the engine allowed.
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
    /// Another tool that does its work: rules that refuse that one refuse this one.
    fn behind(&self) -> Option<&str> {
        None
    }
    /// Questions that must be answered before it runs.
    fn questions(&self, _input: &Self::Input) -> Option<Vec<Question>> {
        None
    }
    /// What it wants to be allowed. Changes nothing.
    fn needs(&self, input: &Self::Input, ctx: &Context) -> impl Future<Output = Result<Vec<Need>, ToolError>> + Send;
    /// Does it.
    fn run(&self, input: Self::Input, ctx: Context) -> impl Future<Output = Result<Output, ToolError>> + Send;
}

/// Hides the argument type of a tool, so that tools of all kinds fit into one registry.
pub fn erase<T: TypedTool>(tool: T) -> Arc<dyn Tool> {
    let (schema, description) = input::schema_of::<T::Input>();
    Arc::new(Erased { tool, schema: schema.into(), description: description.into() })
}

struct Erased<T> {
    tool: T,
    schema: Written,
    description: Arc<str>,
}

impl<T: TypedTool> Erased<T> {
    fn parse(&self, input: Json) -> Result<T::Input, ToolError> {
        input::parse(T::NAME, &self.schema, input)
    }
}

impl<T: TypedTool> Tool for Erased<T> {
    fn name(&self) -> &str {
        T::NAME
    }

    fn description(&self) -> Arc<str> {
        self.description.clone()
    }

    fn schema(&self) -> Written {
        self.schema.clone()
    }

    fn effect(&self) -> Effect {
        T::EFFECT
    }

    fn behind(&self) -> Option<&str> {
        self.tool.behind()
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
