//! The `glob` tool: finds files by name.

use std::cmp::Reverse;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use ignore::WalkState;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::files::path::{self, Target};
use crate::files::write::object;
use crate::search::folder::Folder;
use crate::search::top_n::TopN;
use crate::search::walk::{self, MAX_RESULTS, StopCondition};
use crate::tool::context::Context;
use crate::tool::{Effect, Need, Output, ToolError, TypedTool};

/// Finds files whose path fits a glob such as `**/*.rs` or `src/**/*.{ts,tsx}`.
///
/// A pattern without a slash fits at any depth. Hidden files are included, git's data (`.git`) is not. Ignored files
/// (`.gitignore`) are left out unless the pattern begins with their folder. Returns up to 100 absolute paths, the most recently
/// changed first.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Input {
    /// The glob.
    pattern: String,
    /// The folder to search; the working directory if left out.
    path: Option<String>,
}

pub(crate) struct Glob;

impl TypedTool for Glob {
    type Input = Input;
    const NAME: &'static str = "glob";
    const EFFECT: Effect = Effect::ReadOnly;

    async fn needs(&self, input: &Input, ctx: &Context) -> Result<Vec<Need>, ToolError> {
        Ok(needs(&start(input, ctx)?.0, input))
    }

    async fn run(&self, input: Input, ctx: Context) -> Result<Output, ToolError> {
        let (target, pattern) = start(&input, &ctx)?;
        path::confirm(&ctx, &needs(&target, &input))?;
        if !target.real.is_dir() {
            return Err(ToolError::failed(format!("{} is not a folder that can be searched.", target.shown.display())));
        }
        Ok(render(walk::search(&ctx.cancel, move |stop| search(&target, &pattern, stop)).await?))
    }
}

/// The folder to search from, and the rest of the pattern to match below it.
fn start(input: &Input, ctx: &Context) -> Result<(Target, String), ToolError> {
    let base = path::locate_or_here(ctx, input.path.as_deref())?;
    // The folder's own name may contain glob characters.
    let below = input.pattern.strip_prefix(&*base.shown.to_string_lossy()).filter(|rest| rest.starts_with('/'));
    let pattern = below.map_or_else(|| input.pattern.clone(), |rest| format!(".{rest}"));
    let (folder, rest) = walk::split_folder(&pattern);
    Ok((path::locate_from(ctx, &base.shown, folder)?, rest.to_owned()))
}

fn needs(target: &Target, input: &Input) -> Vec<Need> {
    let mut glob = Need::new("glob", input.pattern.clone()).with("pattern", input.pattern.clone());
    if let Some(path) = &input.path {
        glob = glob.with("path", path.clone());
    }
    target.outside_folder_need().into_iter().chain([glob]).collect()
}

struct GlobResults {
    paths: Vec<PathBuf>,
    more: bool,
    timed_out: bool,
}

fn search(target: &Target, pattern: &str, stop: &StopCondition) -> Result<GlobResults, ToolError> {
    let matcher = walk::glob(pattern)?;
    let folder = Folder::open(&target.real)
        .map_err(|error| ToolError::failed(format!("{} cannot be searched: {error}.", target.shown.display())))?;
    let found = Mutex::new(TopN::new(MAX_RESULTS));
    walk::files(&target.real, true, stop, || {
        |entry: ignore::DirEntry| {
            let relative = entry.path().strip_prefix(&target.real).unwrap_or(entry.path());
            if !matcher.is_match(relative) {
                return WalkState::Continue;
            }
            let hit = (Reverse(walk::modified(&entry)), relative.to_owned());
            found.lock().unwrap_or_else(PoisonError::into_inner).add(hit);
            WalkState::Continue
        }
    });
    let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    let more = found.seen() > MAX_RESULTS;
    // The walk works with names: drop what it found behind a link that appeared.
    let paths = found.into_sorted().into_iter().map(|(_, path)| path).filter(|path| folder.has(path));
    Ok(GlobResults { paths: paths.map(|path| target.shown.join(path)).collect(), more, timed_out: stop.timed_out() })
}

fn render(found: GlobResults) -> Output {
    let mut lines: Vec<String> = found.paths.iter().map(|path| path.to_string_lossy().into_owned()).collect();
    if lines.is_empty() {
        lines.push("No files found".into());
    }
    if found.more {
        lines.push(format!(
            "\n(More than {MAX_RESULTS} files fit; these changed last. Use a narrower pattern or path.)"
        ));
    }
    if found.timed_out {
        lines.push("\n(The search ran out of time, so files may be missing. Use a narrower path.)".into());
    }
    let truncated = found.more || found.timed_out;
    Output {
        output: lines.join("\n"),
        metadata: object(json!({"count": found.paths.len(), "truncated": truncated})),
        ..Output::default()
    }
}
