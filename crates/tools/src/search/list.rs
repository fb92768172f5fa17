//! The `list` tool: the files in a folder as a tree. Off unless configured.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use globset::GlobMatcher;
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

/// Shows the files below a folder as a tree, up to 100 of them. Ignored and hidden files are left out.
///
/// If you know what you are looking for, `glob` and `grep` are better.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Input {
    /// The folder; the working directory if left out.
    path: Option<String>,
    /// Globs of files to leave out.
    #[serde(default)]
    ignore: Vec<String>,
}

pub(crate) struct List;

impl TypedTool for List {
    type Input = Input;
    const NAME: &'static str = "list";
    const EFFECT: Effect = Effect::ReadOnly;

    async fn needs(&self, input: &Input, ctx: &Context) -> Result<Vec<Need>, ToolError> {
        Ok(needs(&path::locate_or_here(ctx, input.path.as_deref())?))
    }

    async fn run(&self, input: Input, ctx: Context) -> Result<Output, ToolError> {
        let target = path::locate_or_here(&ctx, input.path.as_deref())?;
        path::confirm(&ctx, &needs(&target))?;
        if !target.real.is_dir() {
            return Err(ToolError::failed(format!("{} is not a folder.", target.shown.display())));
        }
        let ignore = input.ignore.iter().map(|glob| walk::glob(glob)).collect::<Result<Vec<_>, _>>()?;
        let (root, title) = (target.shown.display().to_string(), target.title(&ctx));
        let (files, timed_out) =
            walk::search(&ctx.cancel, move |stop| Ok((search(&target, &ignore, stop)?, stop.timed_out()))).await?;
        let total = files.seen();
        let shown = files.into_sorted();
        let truncated = total > shown.len() || timed_out;
        let mut output = format!("{root}/\n{}", tree(&shown));
        if total > shown.len() {
            output.push_str(&format!("\n({} more files are not shown. List a folder below.)", total - shown.len()));
        }
        if timed_out {
            output.push_str("\n(The search ran out of time, so files may be missing. List a folder below.)");
        }
        let metadata = object(json!({"count": shown.len(), "truncated": truncated}));
        Ok(Output { title, output, metadata, ..Output::default() })
    }
}

fn needs(target: &Target) -> Vec<Need> {
    let list = Need::new("list", target.pattern()).with("path", target.shown.to_string_lossy().into_owned());
    target.outside_folder_need().into_iter().chain([list]).collect()
}

fn search(target: &Target, ignore: &[GlobMatcher], stop: &StopCondition) -> Result<TopN<PathBuf>, ToolError> {
    let root = target.real.as_path();
    let folder = Folder::open(root)
        .map_err(|error| ToolError::failed(format!("{} cannot be listed: {error}.", target.shown.display())))?;
    let found = Mutex::new(TopN::new(MAX_RESULTS));
    walk::files(root, false, stop, || {
        |entry: ignore::DirEntry| {
            let relative = entry.path().strip_prefix(root).unwrap_or(entry.path());
            if ignore.iter().any(|glob| glob.is_match(relative)) {
                return WalkState::Continue;
            }
            found.lock().unwrap_or_else(PoisonError::into_inner).add(relative.to_owned());
            WalkState::Continue
        }
    });
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    // The walk works with names: drop what it found behind a link that appeared.
    found.retain(|path| folder.has(path));
    Ok(found)
}

/// Formats sorted paths as an indented tree.
fn tree(paths: &[PathBuf]) -> String {
    let mut out = String::new();
    let mut open: Vec<String> = Vec::new();
    for path in paths {
        let mut parts: Vec<String> = path.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        let Some(name) = parts.pop() else { continue };
        let shared = open.iter().zip(&parts).take_while(|(a, b)| a == b).count();
        open.truncate(shared);
        for folder in parts.drain(shared..) {
            out.push_str(&format!("{}{folder}/\n", "  ".repeat(open.len() + 1)));
            open.push(folder);
        }
        out.push_str(&format!("{}{name}\n", "  ".repeat(open.len() + 1)));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree() {
        let paths: Vec<PathBuf> = ["a.txt", "src/lib.rs", "src/x/y.rs", "src/x/z.rs"].map(PathBuf::from).into();
        let want = "  a.txt\n  src/\n    lib.rs\n    x/\n      y.rs\n      z.rs\n";
        assert_eq!(tree(&paths), want);
    }
}
