//! The [`Tool`] trait and the built-in tools: processes, files, search, web.
//!
//! Invariants: a tool never asks for permission, it says what it needs ([`Tool::needs`]) and the engine decides; a tool
//! never changes stored state, it reports [`Change`]s; an error is text for the model, never a crash; files are touched
//! only on paths whose symbolic links were resolved and checked, and never through a link that appears afterwards.

mod bash;
mod best;
mod context;
mod diff;
mod disk;
mod edit;
mod find;
mod folder;
mod glob;
mod grep;
mod image;
mod indent;
mod input;
mod invalid;
mod known;
mod list;
mod lock;
mod newlines;
mod patch;
mod path;
#[cfg(test)]
mod peers;
mod question;
#[cfg(test)]
mod races;
mod read;
mod registry;
mod skill;
mod todo;
mod tool;
mod truncate;
mod walk;
mod web;
mod websearch;
mod write;

pub use best::Best;
pub use context::{Answers, Context, Loaded, Options, Progress, ProgressUpdate, Readable};
pub use diff::unified_diff;
pub use disk::{LocalEnvironment, MAX_FILE_BYTES, resolve};
pub use edit::fuzz_edit;
pub use find::{Entries, Ignored, find_paths, find_text};
pub use image::{MAX_ATTACHMENT_BYTES, sniff};
pub use input::invalid_arguments;
pub use known::KnownFiles;
pub use patch::fuzz_patch;
pub use read::read_for_prompt;
pub use registry::{Registry, RegistryOptions};
pub use skill::text as skill_text;
pub use tool::{Attachment, Change, Effect, FileChange, Need, Output, Tool, ToolError, TypedTool, erase};
pub use truncate::{Truncated, truncate};
pub use websearch::{NO_SEARCH_ENGINE, SearchEndpoint, SearchEngine, WEBSEARCH, websearch};
