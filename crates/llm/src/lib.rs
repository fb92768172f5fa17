//! Model wire formats: a [`Prompt`] goes in, a stream of [`LlmEvent`]s comes out, and nothing else.
//!
//! Invariants: this crate never sees a session. Each wire format is a pure request builder and a pure decoder, so that
//! fixtures and fuzzers drive them without a socket; the wire format is code, the vendor is data ([`Endpoint`]). Errors
//! carry a class, and [`retry`] says how long to wait; waiting is up to the caller. Everything that a server can send
//! is bounded by a constant next to the code that reads it.

mod bound;
mod classify;
mod endpoint;
mod error;
mod event;
mod fuzz;
mod http;
mod list;
mod llm;
pub mod openai;
pub mod options;
mod prompt;
pub mod retry;
pub mod script;
mod sse;

pub use bound::MAX_ANSWER;
pub use endpoint::{Endpoint, OpenAiChat, Timeouts};
pub use error::{ErrorClass, LlmError};
pub use event::{BlockKind, FinishReason, LlmEvent, Usage};
pub use fuzz::fuzz_decoder;
pub use list::MAX_LISTED;
pub use llm::Llm;
pub use openai::ChatDialect;
pub use prompt::{
    AssistantContent, CachedMessage, Content, Length, Prompt, PromptMessage, Settings, ToolResult, ToolSpec,
};
pub use script::{Script, ScriptError};
