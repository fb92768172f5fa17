//! The `write` tool, and helpers for all tools that change files.

use std::io;

use api::{Content, EnvironmentError, Json, JsonMap};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::files::known_files;
use crate::files::lock::FileLocks;
use crate::files::newlines::BOM;
use crate::files::path::{self, Target};
use crate::files::{diff, disk};
use crate::tool::context::Context;
use crate::tool::{Change, Effect, FileChange, Need, Output, ToolError, TypedTool};

/// Writes a whole file, with the folders above it. What the file held before is replaced.
///
/// A file that somebody else changed since you last read or wrote it is not replaced: read it again first. To change a part of
/// a file, `edit` is safer and shorter.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Input {
    /// The whole new content.
    content: String,
    /// The file, absolute or relative to the working directory.
    file_path: String,
}

pub(crate) struct Write {
    pub locks: FileLocks,
}

impl TypedTool for Write {
    type Input = Input;
    const NAME: &'static str = "write";
    const EFFECT: Effect = Effect::SideEffect;

    async fn needs(&self, input: &Input, ctx: &Context) -> Result<Vec<Need>, ToolError> {
        let target = path::locate(ctx, &input.file_path)?;
        let shown = target.shown.to_string_lossy();
        // A concurrent call may have written the file and not reported it yet.
        let _guard = self.locks.lock(&target.real).await;
        let diff = plan(input, ctx, &target).await.map(|(before, content)| match before {
            None => diff::unified(&shown, "", &content).text,
            Some(Content::Whole(before)) => diff::unified(&shown, &String::from_utf8_lossy(&before), &content).text,
            Some(Content::Large { size, .. }) => diff::replaced(&shown, size, &content),
        });
        unless_outside(&target, diff)
    }

    async fn run(&self, input: Input, ctx: Context) -> Result<Output, ToolError> {
        let target = path::locate(&ctx, &input.file_path)?;
        path::confirm(&ctx, &edit_needs(&target, ""))?;
        let _guard = self.locks.lock(&target.real).await;
        let (before, content) = plan(&input, &ctx, &target).await?;
        ctx.env.write(&target.real, content.as_bytes()).await.map_err(|e| path::explain("write", e))?;
        let known = ctx.options.known_files.learn(&target.real, Some(content.as_bytes()));
        let exists = before.is_some();
        let kind = if exists { FileChange::Change } else { FileChange::Add };
        let filepath = target.shown.to_string_lossy();
        Ok(Output {
            title: target.title(&ctx),
            output: "Wrote file successfully.".into(),
            metadata: object(json!({"diagnostics": {}, "filepath": filepath, "exists": exists, "truncated": false})),
            changes: vec![Change::File { path: target.shown.clone(), kind }, known],
            ..Output::default()
        })
    }
}

/// The current content, unless it must not be replaced, and the new one. A byte order mark stays.
async fn plan(input: &Input, ctx: &Context, target: &Target) -> Result<(Option<Content>, String), ToolError> {
    let mut before = open(ctx, target).await?;
    known_files::refuse_if_changed(ctx, target, before.as_ref())?;
    let mut content = input.content.clone();
    if !content.starts_with(BOM) && starts_with_bom(before.as_mut()) {
        content.insert(0, BOM);
    }
    Ok((before, content))
}

fn starts_with_bom(content: Option<&mut Content>) -> bool {
    let mut mark = [0; BOM.len_utf8()];
    BOM.encode_utf8(&mut mark);
    match content {
        None => false,
        Some(Content::Whole(content)) => content.starts_with(&mark),
        Some(Content::Large { reader, .. }) => {
            let mut head = mark.map(|_| 0);
            reader.read_exact(&mut head).is_ok() && head == mark
        }
    }
}

/// The needs of a change, with its diff. The reason why a change is impossible reveals something about the file:
/// outside the workspace it is given only after permission.
pub(crate) fn unless_outside(target: &Target, diff: Result<String, ToolError>) -> Result<Vec<Need>, ToolError> {
    match diff {
        Err(error) if target.outside_file_need().is_none() => Err(error),
        diff => Ok(edit_needs(target, &diff.unwrap_or_default())),
    }
}

/// The needs of changing a file: leaving the workspace or changing a git directory where that applies, and editing.
pub(crate) fn edit_needs(target: &Target, diff: &str) -> Vec<Need> {
    let edit = Need::new("edit", target.pattern())
        .with("filepath", target.shown.to_string_lossy().into_owned())
        .with("diff", diff);
    target.outside_file_need().into_iter().chain(target.git_directory_need()).chain([edit]).collect()
}

/// The content of a file that is to be changed in part; `None` if it does not exist.
pub(crate) async fn read_bytes(ctx: &Context, target: &Target) -> Result<Option<Vec<u8>>, ToolError> {
    match open(ctx, target).await? {
        None => Ok(None),
        Some(Content::Whole(content)) => Ok(Some(content)),
        Some(Content::Large { size, .. }) => Err(ToolError::failed(format!(
            "{} has {size} bytes; a part of a file is changed up to {} MB. Change it with a command in bash, or replace it \
             with write.",
            target.shown.display(),
            disk::MAX_FILE_BYTES / 1024 / 1024
        ))),
    }
}

async fn open(ctx: &Context, target: &Target) -> Result<Option<Content>, ToolError> {
    match ctx.env.open(&target.real).await {
        Ok(content) => Ok(Some(content)),
        Err(EnvironmentError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(EnvironmentError::Io { source, .. }) if source.kind() == io::ErrorKind::IsADirectory => {
            Err(ToolError::failed(format!("{} is a directory, not a file.", target.shown.display())))
        }
        Err(error) => Err(path::explain("read", error)),
    }
}

/// The content of a file as text, or why it is not text. An edit would damage what is not UTF-8; in binary data a match
/// is not what was meant.
pub(crate) fn text(content: Vec<u8>) -> Result<String, String> {
    let refused = |what: &str, byte: usize| {
        format!("is {what} (byte {byte}), so it is left as it is; change it with a command in bash")
    };
    if let Some(at) = content.iter().position(|byte| *byte == 0) {
        return Err(refused("a binary file with NUL bytes", at));
    }
    String::from_utf8(content).map_err(|error| refused("not UTF-8 text", error.utf8_error().valid_up_to()))
}

/// The object in a `json!` value.
pub(crate) fn object(value: Json) -> JsonMap {
    match value {
        Json::Object(map) => map,
        _ => JsonMap::new(),
    }
}

#[cfg(test)]
mod tests;
