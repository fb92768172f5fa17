//! The `edit` tool: replaces text in a file.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::files::diff;
use crate::files::lock::FileLocks;
use crate::files::newlines::{self, NormalisedText};
use crate::files::path::{self, Target};
use crate::files::write::{edit_needs, object, read_bytes, text, unless_outside};
use crate::tool::context::{Context, ProgressUpdate};
use crate::tool::{Change, Effect, FileChange, Need, Output, ToolError, TypedTool};

mod matching;

use matching::MatchError;

/// Changes a file by replacing one text in it with another.
///
/// `oldString` must name one place only: give enough lines around the change, with their indentation, and leave out the
/// line numbers that `read` puts in front. Set `replaceAll` to change every place, for instance to rename something.
/// An empty `oldString` makes a new file with `newString` as its content.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Input {
    /// The file, absolute or relative to the working directory.
    file_path: String,
    /// The text to replace.
    old_string: String,
    /// The text that takes its place; it must differ.
    new_string: String,
    /// Replace every place where the text is found (default false).
    replace_all: Option<bool>,
}

pub(crate) struct Edit {
    pub locks: FileLocks,
}

/// An edit that can be applied.
struct Plan {
    target: Target,
    /// `None` if the file is new.
    before: Option<String>,
    content: String,
    diff: diff::Diff,
}

impl TypedTool for Edit {
    type Input = Input;
    const NAME: &'static str = "edit";
    const EFFECT: Effect = Effect::SideEffect;

    async fn needs(&self, input: &Input, ctx: &Context) -> Result<Vec<Need>, ToolError> {
        let target = path::locate(ctx, &input.file_path)?;
        let diff = plan(input, ctx).await.map(|plan| plan.diff.text);
        unless_outside(&target, diff)
    }

    async fn run(&self, input: Input, ctx: Context) -> Result<Output, ToolError> {
        let target = path::locate(&ctx, &input.file_path)?;
        let _guard = self.locks.lock(&target.real).await;
        let plan = plan(&input, &ctx).await?;
        path::confirm(&ctx, &edit_needs(&plan.target, &plan.diff.text))?;
        ctx.env.write(&plan.target.real, plan.content.as_bytes()).await.map_err(|e| path::explain("write", e))?;
        let before = plan.before.as_deref().map(str::as_bytes);
        let known = ctx.options.known_files.learn_change(&plan.target.real, before, Some(plan.content.as_bytes()));
        let kind = if plan.before.is_some() { FileChange::Change } else { FileChange::Add };
        let changed = Change::File { path: plan.target.shown.clone(), kind };
        let shown = plan.target.shown.to_string_lossy();
        let diff = plan.diff;
        let filediff =
            json!({"file": shown, "patch": diff.text, "additions": diff.additions, "deletions": diff.deletions});
        let running = object(json!({"diff": diff.text, "filediff": filediff, "diagnostics": {}}));
        ctx.progress.send(ProgressUpdate { title: None, metadata: Some(running) });
        let metadata = json!({"diagnostics": {}, "diff": diff.text, "filediff": filediff, "truncated": false});
        Ok(Output {
            title: plan.target.title(&ctx),
            output: "Edit applied successfully.".into(),
            metadata: object(metadata),
            changes: std::iter::once(changed).chain(known).collect(),
            ..Output::default()
        })
    }
}

async fn plan(input: &Input, ctx: &Context) -> Result<Plan, ToolError> {
    if input.old_string == input.new_string {
        return Err(ToolError::failed("oldString and newString are the same, so there is nothing to change."));
    }
    let target = path::locate(ctx, &input.file_path)?;
    let shown = target.shown.display().to_string();
    let before = read_bytes(ctx, &target).await?.map(text).transpose();
    let before = before.map_err(|why| ToolError::failed(format!("{shown} {why}.")))?;
    let (before, content) = match before {
        None if input.old_string.is_empty() => (None, input.new_string.clone()),
        None => return Err(crate::files::read::not_found(&target)),
        Some(_) if input.old_string.is_empty() => {
            return Err(ToolError::failed(format!(
                "{shown} exists already, so an empty oldString cannot create it. \
                 Give the text to replace, or use write to replace the whole file."
            )));
        }
        Some(before) => {
            let all = input.replace_all.unwrap_or(false);
            // Approximate matching can take a while on a large file.
            let (old, new) = (input.old_string.clone(), input.new_string.clone());
            let work = tokio::task::spawn_blocking(move || replace(&before, &old, &new, all).map(|new| (new, before)));
            match work.await {
                Ok(Ok((content, before))) => (Some(before), content),
                Ok(Err(error)) => return Err(explain(&shown, error)),
                Err(error) => return Err(ToolError::failed(format!("The edit of {shown} failed: {error}"))),
            }
        }
    };
    let diff = diff::unified(&shown, before.as_deref().unwrap_or_default(), &content);
    Ok(Plan { target, before, content, diff })
}

/// The content of a file after an edit. Line endings and byte order mark stay those of the file, whatever the arguments
/// contain.
fn replace(content: &str, old: &str, new: &str, all: bool) -> Result<String, MatchError> {
    let file = NormalisedText::new(content);
    let given = |text: &str| newlines::normalise(text.strip_prefix(newlines::BOM).unwrap_or(text)).into_owned();
    let (mut old, new) = (given(old), given(new));
    // Half a line ending at the end: the other half follows in the file.
    if old.ends_with('\r') && !file.text().contains(&old) {
        old.pop();
    }
    if old.is_empty() {
        return Err(MatchError::NotFound(None));
    }
    Ok(file.splice(&matching::find(file.text(), &old, &new, all)?))
}

fn explain(shown: &str, error: MatchError) -> ToolError {
    ToolError::failed(match error {
        MatchError::Ambiguous => format!(
            "oldString fits more than one place in {shown}. Add lines around the change so that it fits only one, \
             or set replaceAll to change every place."
        ),
        MatchError::NotFound(Some(line)) => format!(
            "oldString was not found in {shown}: its first line is at line {line}, but what follows there differs. \
             Read that part of the file again and copy the text exactly, without the line numbers."
        ),
        MatchError::Indentation(line) => format!(
            "oldString fits {shown} from line {line} on, but only with another indentation, and it cannot be told how \
             newString should be indented. Read that part of the file again and give both texts with its indentation."
        ),
        MatchError::NotFound(None) => format!(
            "oldString was not found in {shown}. \
             Read the file again and copy the text exactly, with its indentation and without the line numbers."
        ),
    })
}

/// For the fuzzer: splits the bytes into three texts, edits one with the others, and checks that nothing outside the
/// match changes. Panics only if that is violated.
pub fn fuzz_edit(data: &[u8]) {
    let Some((&flags, rest)) = data.split_first() else { return };
    let text = String::from_utf8_lossy(rest);
    let mut parts = text.splitn(3, '\u{1}');
    let (Some(content), Some(old), Some(new)) = (parts.next(), parts.next(), parts.next()) else { return };
    if !old.is_empty() {
        check_edit(content, old, new, flags & 1 == 1);
    }
}

fn check_edit(content: &str, old: &str, new: &str, all: bool) {
    let file = NormalisedText::new(content);
    let old = newlines::normalise(old);
    let new = newlines::normalise(new);
    let Ok(splices) = matching::find(file.text(), &old, &new, all) else { return };
    assert!(!splices.is_empty() && (all || splices.len() == 1), "one place, or all were wanted");
    let mut end = 0;
    for (range, _) in &splices {
        assert!(end <= range.start && range.end <= file.text().len(), "places are in order and inside");
        end = range.end;
    }
    newlines::check_splice(content, &splices);
    let once = file.text().match_indices(&*old).take(2).count() == 1;
    if once && !content.contains('\r') && !new.ends_with('\r') {
        let mark = if content.starts_with(newlines::BOM) { "\u{feff}" } else { "" };
        let plain = format!("{mark}{}", file.text().replacen(&*old, &new, 1));
        assert_eq!(file.splice(&splices), plain, "an exact match is replaced as it is");
    }
}

#[cfg(test)]
mod tests;
