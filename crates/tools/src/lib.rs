//! The [`Tool`] trait and the built-in tools: commands, files, search, web.
//!
//! Invariants: a tool never asks for permission, it declares what it needs ([`Tool::needs`]) and the engine decides; a tool
//! never changes stored state, it reports [`Change`]s; an error is text for the model, never a crash; files are accessed
//! only by paths whose symbolic links were resolved and checked, and never through a link that appears afterwards.

mod bash;
mod files;
mod search;
mod session;
mod tool;
mod web;

pub use self::web::a2a_call::{A2A_CALL, AgentAnswer, AgentClient, AgentRequest, AgentState, a2a_call};
pub use self::web::websearch::{NO_SEARCH_ENGINE, SearchEndpoint, SearchEngine, WEBSEARCH, websearch};
pub use files::attachment::{MAX_ATTACHMENT_BYTES, sniff};
pub use files::diff::unified_diff;
pub use files::disk::{LocalEnvironment, MAX_FILE_BYTES, resolve};
pub use files::edit::fuzz_edit;
pub use files::known_files::KnownFiles;
pub use files::patch::fuzz_patch;
pub use files::read::read_for_prompt;
pub use search::find::{Entries, IgnoreRules, find_paths, find_text};
pub use search::top_n::TopN;
pub use session::skill::text as skill_text;
pub use tool::context::{Answers, Context, LoadedInstructions, Options, Progress, ProgressUpdate, ReadPolicy};
pub use tool::input::invalid_arguments;
pub use tool::registry::{Registry, RegistryOptions};
pub use tool::truncate::{TruncatedText, truncate};
pub use tool::{Attachment, Change, Effect, FileChange, Need, Output, Tool, ToolError, TypedTool, erase};
