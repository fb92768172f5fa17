//! Instruction files in the folders above a file that is read: the model gets each once.

use std::path::{Path, PathBuf};

use crate::files::path::{self, Target};
use crate::tool::context::Context;

/// The maximum number of folders to check above a file.
const MAX_FOLDERS: usize = 32;
/// The maximum number of bytes taken from an instruction file.
const MAX_BYTES: usize = 64 * 1024;

/// The text to append to the output, and the files it comes from, outermost first. Those of the working directory are
/// already in the system prompt.
pub(super) async fn nested(ctx: &Context, target: &Target) -> (String, Vec<PathBuf>) {
    let mut text = String::new();
    let mut loaded = Vec::new();
    for folder in folders(ctx, &target.shown).into_iter().rev() {
        let Some((file, content)) = find(ctx, folder, &target.shown).await else { continue };
        text.push_str(&format!("Instructions from: {}\n{content}\n", file.display()));
        loaded.push(file);
    }
    if !text.is_empty() {
        text = format!("\n\n<system-reminder>\n{text}\n</system-reminder>");
    }
    (text, loaded)
}

fn folders<'a>(ctx: &Context, file: &'a Path) -> Vec<&'a Path> {
    let inside = |folder: &Path| {
        let below = |root: &Path| folder != root && folder.starts_with(root);
        below(&ctx.directory)
            || (ctx.worktree.parent().is_some() && below(&ctx.worktree) && !ctx.directory.starts_with(folder))
    };
    file.ancestors().skip(1).take(MAX_FOLDERS).take_while(|folder| inside(folder)).collect()
}

async fn find(ctx: &Context, folder: &Path, reading: &Path) -> Option<(PathBuf, String)> {
    for name in &ctx.options.instruction_files {
        let target = path::locate(ctx, &folder.join(name).to_string_lossy()).ok()?;
        // A link out of the workspace, or to a file that needs permission, would reveal what nobody allowed.
        if target.external || !ctx.readable.without_asking(&target.pattern()) {
            continue;
        }
        if target.shown == reading {
            ctx.options.loaded_instructions.claim(reading);
            return None;
        }
        let Ok(content) = ctx.env.read(&target.real).await else { continue };
        if !ctx.options.loaded_instructions.claim(&target.shown) {
            return None;
        }
        let content = String::from_utf8_lossy(&content);
        let content = &content[..content.floor_char_boundary(MAX_BYTES)];
        return Some((target.shown, content.to_owned()));
    }
    None
}
