//! The `apply_patch` tool: changes several files, all or none.

use std::collections::BTreeMap;
use std::path::PathBuf;

use api::{EnvironmentError, Json};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::files::known_files::KnownFiles;
use crate::files::lock::FileLocks;
use crate::files::newlines::{self, NormalisedText};
use crate::files::path::{self, Target};
use crate::files::write::{edit_needs, object, read_bytes, text};
use crate::files::{diff, disk};
use crate::tool::context::Context;
use crate::tool::{Change, Effect, FileChange, Need, Output, ToolError, TypedTool};

mod apply;
mod parse;

use parse::{Hunk, Section};

/// The maximum size of all diffs shown for a patch, since they are stored with the call; diffs of further files are
/// left out.
const MAX_SHOWN: usize = 1 << 20;

/// Changes files with a patch. Either the whole patch is applied, or nothing is changed.
///
/// ```text
/// *** Begin Patch
/// *** Add File: notes/new.md
/// +every line of a new file starts with a plus
/// *** Update File: src/main.rs
/// *** Move to: src/start.rs
/// @@ fn main() {
///      a line that stays, after one space
/// -    a line that goes
/// +    a line that comes
/// *** Delete File: old.txt
/// *** End Patch
/// ```
///
/// `Move to` is optional. `@@` starts each group of changes; the text behind it names a line above, to find the place. Show
/// about three unchanged lines before and after a change. `*** End of File` behind a group says that it is at the end of the
/// file. Paths are relative to the working directory.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Input {
    /// The whole patch, from `*** Begin Patch` to `*** End Patch`.
    patch_text: String,
}

pub(crate) struct ApplyPatch {
    pub locks: FileLocks,
}

impl TypedTool for ApplyPatch {
    type Input = Input;
    const NAME: &'static str = "apply_patch";
    const EFFECT: Effect = Effect::SideEffect;

    async fn needs(&self, input: &Input, ctx: &Context) -> Result<Vec<Need>, ToolError> {
        match plan(input, ctx).await {
            Ok(plan) => Ok(plan.needs()),
            Err(error) => outside_needs(input, ctx).ok_or(error),
        }
    }

    async fn run(&self, input: Input, ctx: Context) -> Result<Output, ToolError> {
        // A first plan shows which files to lock; the final plan is made once they are locked.
        let paths = plan(&input, &ctx).await?.files.into_keys();
        let _guards = self.locks.lock_all(paths).await;
        let plan = plan(&input, &ctx).await?;
        path::confirm(&ctx, &plan.needs())?;
        plan.write(&ctx).await?;
        Ok(plan.output(&ctx.options.known_files))
    }
}

/// A file before and after the patch.
struct FileState {
    target: Target,
    before: Option<Vec<u8>>,
    after: Option<Vec<u8>>,
    /// The link target, if it is a symbolic link that the patch deletes.
    link: Option<PathBuf>,
    /// The file that is moved here, whose metadata it keeps.
    moved_from: Option<PathBuf>,
}

impl FileState {
    async fn write(&self, ctx: &Context) -> Result<(), EnvironmentError> {
        let path = &self.target.real;
        let Some(content) = &self.after else { return disk::delete(path).await };
        ctx.env.write(path, content).await?;
        match &self.moved_from {
            Some(from) if self.before.is_none() => disk::copy_metadata(from, path).await,
            _ => Ok(()),
        }
    }

    async fn undo(&self, ctx: &Context) -> Result<(), EnvironmentError> {
        let path = &self.target.real;
        match (&self.link, &self.before) {
            (Some(link_target), _) => disk::link(path, link_target.clone()).await,
            (None, Some(content)) => ctx.env.write(path, content).await,
            (None, None) => disk::delete(path).await,
        }
    }
}

/// What the patch does to one file, as shown to model and clients.
struct FileSummary {
    letter: char,
    path: String,
    diff: String,
    file: Json,
}

#[derive(Default)]
struct Plan {
    files: BTreeMap<PathBuf, FileState>,
    entries: Vec<FileSummary>,
}

/// The needs of a patch that cannot be applied, if it leaves the workspace: the reason is revealed only after
/// permission.
fn outside_needs(input: &Input, ctx: &Context) -> Option<Vec<Need>> {
    let sections = parse::parse(&input.patch_text).ok()?;
    let paths = sections.into_iter().map(|section| match section {
        Section::Add { path, .. } | Section::Delete { path } | Section::Update { path, .. } => path,
    });
    let targets: Vec<Target> = paths.filter_map(|path| path::locate(ctx, &path).ok()).collect();
    let leaves = targets.iter().any(|target| target.outside_file_need().is_some());
    leaves.then(|| targets.iter().flat_map(|target| edit_needs(target, "")).collect())
}

async fn plan(input: &Input, ctx: &Context) -> Result<Plan, ToolError> {
    let sections = parse::parse(&input.patch_text).map_err(ToolError::failed)?;
    let mut plan = Plan::default();
    for section in sections {
        plan.add(section, ctx).await?;
    }
    Ok(plan)
}

impl Plan {
    async fn add(&mut self, section: Section, ctx: &Context) -> Result<(), ToolError> {
        match section {
            Section::Add { path, content } => {
                let (target, before) = self.load(&path, ctx).await?;
                if before.is_some() {
                    return Err(fail(&path, "exists already; use \"*** Update File:\""));
                }
                self.record('A', "add", &target, None, "", &content);
                self.set(&target, Some(content.into_bytes()));
            }
            Section::Delete { path } => {
                let target = path::locate_entry(ctx, &path)?;
                let before =
                    self.load_entry(&target, ctx).await?.ok_or_else(|| crate::files::read::not_found(&target))?;
                self.record('D', "delete", &target, None, &String::from_utf8_lossy(&before), "");
                self.set(&target, None);
            }
            Section::Update { path, to, hunks } => self.update(&path, to, hunks, ctx).await?,
        }
        Ok(())
    }

    async fn update(
        &mut self,
        path: &str,
        to: Option<String>,
        hunks: Vec<Hunk>,
        ctx: &Context,
    ) -> Result<(), ToolError> {
        let (target, before) = self.load(path, ctx).await?;
        let before = before.ok_or_else(|| crate::files::read::not_found(&target))?;
        let before = text(before).map_err(|why| fail(path, &why))?;
        let work = tokio::task::spawn_blocking(move || apply::apply(&before, &hunks).map(|after| (before, after)));
        let (before, after) = match work.await {
            Ok(result) => result.map_err(|message| fail(path, &message))?,
            Err(error) => return Err(fail(path, &error.to_string())),
        };
        let Some(to) = to else {
            self.record('M', "update", &target, None, &before, &after);
            self.set(&target, Some(after.into_bytes()));
            return Ok(());
        };
        let (moved, existing) = self.load(&to, ctx).await?;
        if existing.is_some() && moved.real != target.real {
            return Err(fail(path, &format!("cannot be moved to {to}, which exists already")));
        }
        self.record('M', "move", &target, Some(&moved), &before, &after);
        // Moving a link removes the link; its target stays.
        let entry = path::locate_entry(ctx, path)?;
        self.load_entry(&entry, ctx).await?;
        self.set(&entry, None);
        self.set(&moved, Some(after.into_bytes()));
        if let Some(state) = self.files.get_mut(&moved.real) {
            state.moved_from = Some(target.real);
        }
        Ok(())
    }

    /// A file as the sections so far have left it.
    async fn load(&mut self, path: &str, ctx: &Context) -> Result<(Target, Option<Vec<u8>>), ToolError> {
        let target = path::locate(ctx, path)?;
        let content = self.load_entry(&target, ctx).await?;
        Ok((target, content))
    }

    /// Likewise for an entry that may be a symbolic link, whose content is its target.
    async fn load_entry(&mut self, target: &Target, ctx: &Context) -> Result<Option<Vec<u8>>, ToolError> {
        if let Some(state) = self.files.get(&target.real) {
            return Ok(state.after.clone());
        }
        let link = std::fs::read_link(&target.real).ok();
        let before = match &link {
            Some(link_target) => Some(link_target.as_os_str().as_encoded_bytes().to_vec()),
            None => read_bytes(ctx, target).await?,
        };
        let state =
            FileState { target: target.clone(), before: before.clone(), after: before.clone(), link, moved_from: None };
        self.files.insert(target.real.clone(), state);
        Ok(before)
    }

    fn set(&mut self, target: &Target, content: Option<Vec<u8>>) {
        if let Some(state) = self.files.get_mut(&target.real) {
            state.after = content;
        }
    }

    fn record(&mut self, letter: char, kind: &str, target: &Target, moved: Option<&Target>, before: &str, after: &str) {
        let shown = target.shown.to_string_lossy();
        let mut diff = diff::unified(&shown, before, after);
        if self.entries.iter().map(|entry| entry.diff.len()).sum::<usize>() + diff.text.len() > MAX_SHOWN {
            diff.text = format!("Index: {shown}\n\\ The diff is left out: the patch changes too much to be shown\n");
        }
        let path = moved.unwrap_or(target).pattern();
        let mut file = json!({
            "filePath": shown, "relativePath": path, "type": kind, "patch": diff.text,
            "additions": diff.additions, "deletions": diff.deletions,
        });
        if let Some(moved) = moved {
            file["movePath"] = moved.shown.to_string_lossy().into();
        }
        self.entries.push(FileSummary { letter, path, diff: diff.text, file });
    }

    fn diff(&self) -> String {
        self.entries.iter().map(|entry| format!("{}\n", entry.diff)).collect()
    }

    fn file_list(&self) -> Vec<Json> {
        self.entries.iter().map(|entry| entry.file.clone()).collect()
    }

    fn needs(&self) -> Vec<Need> {
        let mut needs: Vec<Need> = Vec::new();
        let extra = |state: &FileState| [state.target.outside_file_need(), state.target.git_directory_need()];
        for need in self.files.values().flat_map(extra).flatten() {
            if needs.iter().all(|other| other.patterns != need.patterns) {
                needs.push(need);
            }
        }
        let paths: Vec<String> = self.files.values().map(|state| state.target.pattern()).collect();
        let edit = Need::new("edit", "")
            .with("filepath", paths.join(", "))
            .with("diff", self.diff())
            .with("files", self.file_list());
        needs.push(Need { patterns: paths, ..edit });
        needs
    }

    /// Writes everything; undoes what was written if something fails.
    async fn write(&self, ctx: &Context) -> Result<(), ToolError> {
        let changed: Vec<&FileState> = self.files.values().filter(|state| state.before != state.after).collect();
        // New content first, so that a failing disk never loses a moved file.
        let (writes, deletes): (Vec<&FileState>, Vec<&FileState>) =
            changed.into_iter().partition(|s| s.after.is_some());
        let mut done: Vec<&FileState> = Vec::new();
        for state in writes.into_iter().chain(deletes) {
            if let Err(error) = state.write(ctx).await {
                let mut message = format!("The patch was not applied: {error}");
                for state in done.into_iter().rev() {
                    if let Err(error) = state.undo(ctx).await {
                        message.push_str(&format!("\nThis could not be undone: {error}"));
                    }
                }
                return Err(ToolError::failed(message));
            }
            done.push(state);
        }
        Ok(())
    }

    fn output(&self, known: &KnownFiles) -> Output {
        let mut text = String::from("Success. Updated the following files:");
        for entry in &self.entries {
            text.push_str(&format!("\n{} {}", entry.letter, entry.path));
        }
        let metadata = json!({"diff": self.diff(), "files": self.file_list(), "diagnostics": {}, "truncated": false});
        let changes = self.files.values().flat_map(|state| {
            let kind = match (&state.before, &state.after) {
                (None, Some(_)) => FileChange::Add,
                (Some(_), None) => FileChange::Unlink,
                (before, after) if before != after => FileChange::Change,
                _ => return Vec::new(),
            };
            let changed = Change::File { path: state.target.shown.clone(), kind };
            let known = known.learn_change(&state.target.real, state.before.as_deref(), state.after.as_deref());
            std::iter::once(changed).chain(known).collect()
        });
        Output {
            title: text.clone(),
            output: text,
            metadata: object(metadata),
            changes: changes.collect(),
            ..Output::default()
        }
    }
}

fn fail(path: &str, message: &str) -> ToolError {
    ToolError::failed(format!("The patch was not applied: {path} {message}."))
}

/// For the fuzzer: splits the bytes into a text and a patch, applies the patch, and checks that text outside the
/// changed lines stays. Panics only if that is violated.
pub fn fuzz_patch(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (content, patch) = text.split_once('\u{1}').unwrap_or(("", &text));
    let Ok(sections) = parse::parse(patch) else { return };
    for section in sections {
        if let Section::Update { hunks, .. } = section {
            check_hunks(content, &hunks);
        }
    }
}

fn check_hunks(content: &str, hunks: &[Hunk]) {
    let closed = apply::end_last_line(content);
    let Ok(splices) = apply::splices(NormalisedText::new(&closed).text(), hunks) else { return };
    let mut end = 0;
    for (range, _) in &splices {
        assert!(end <= range.start && range.start <= range.end, "splices are in order and apart");
        end = range.end;
    }
    newlines::check_splice(&closed, &splices);
    assert!(closed.starts_with(content) && closed.len() <= content.len() + 2, "a line ending is added at most");
}

#[cfg(test)]
mod tests;
