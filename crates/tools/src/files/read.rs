//! The `read` tool: files with line numbers, folders, images; also for files that a prompt mentions.

use std::io::{self, BufReader, Read as _};
use std::path::{Path, PathBuf};

use api::{Content, EnvironmentError, JsonMap};
use rustix::fs::{AtFlags, DirEntry, FileType};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::files::attachment;
use crate::files::disk;
use crate::files::path::{self, Target};
use crate::files::write::object;
use crate::search::top_n::TopN;
use crate::search::walk::{self, StopCondition};
use crate::tool::context::Context;
use crate::tool::{Effect, Need, Output, ToolError, TypedTool};

mod instructions;
mod text;

use text::Page;

/// The maximum number of folder entries to sort: a page must lie within them.
const MAX_ENTRIES: usize = 1_000_000;
/// The maximum number of entries to compare with the name of a missing file.
const MAX_NEIGHBOURS: usize = 10_000;
/// The buffer size for files that are too large for memory.
const BUFFER: usize = 64 << 10;
/// The number of lines in the preview.
const PREVIEW_LINES: usize = 20;
/// The maximum number of names suggested for a missing file.
const MAX_SUGGESTIONS: usize = 3;

/// Reads a file or lists a folder.
///
/// Lines come numbered as `12: text`. At most 2000 lines or 50 KB are given at once: use `offset` and `limit` to read on.
/// Long lines are cut. Images and PDF files are shown as such; other binary files are refused.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Input {
    /// The file or folder, absolute or relative to the working directory.
    file_path: String,
    /// The first line to read, counted from 1.
    offset: Option<u64>,
    /// How many lines to read.
    limit: Option<u64>,
}

pub(crate) struct Read;

impl TypedTool for Read {
    type Input = Input;
    const NAME: &'static str = "read";
    const EFFECT: Effect = Effect::ReadOnly;

    async fn needs(&self, input: &Input, ctx: &Context) -> Result<Vec<Need>, ToolError> {
        Ok(needs(&path::locate(ctx, &input.file_path)?))
    }

    async fn run(&self, input: Input, ctx: Context) -> Result<Output, ToolError> {
        let target = path::locate(&ctx, &input.file_path)?;
        path::confirm(&ctx, &needs(&target))?;
        read(&ctx, &target, window(input.offset, input.limit, &ctx)).await
    }
}

fn needs(target: &Target) -> Vec<Need> {
    let outside = if target.real.is_dir() { target.outside_folder_need() } else { target.outside_file_need() };
    outside.into_iter().chain([Need::new("read", target.pattern())]).collect()
}

/// Reads a file or folder that the human put into a prompt, like `read` but without asking: the human named it.
pub async fn read_for_prompt(
    path: &Path,
    offset: Option<u64>,
    limit: Option<u64>,
    ctx: &Context,
) -> Result<Output, ToolError> {
    let target = path::locate(ctx, &path.to_string_lossy())?;
    read(ctx, &target, window(offset, limit, ctx)).await
}

/// The lines to read.
#[derive(Clone, Copy)]
struct Window {
    offset: usize,
    limit: usize,
    max_bytes: usize,
}

fn window(offset: Option<u64>, limit: Option<u64>, ctx: &Context) -> Window {
    let number = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let limit = limit.filter(|&n| n > 0).map_or(ctx.options.max_lines, number);
    Window { offset: number(offset.unwrap_or(1)).max(1), limit, max_bytes: ctx.options.max_bytes }
}

async fn read(ctx: &Context, target: &Target, window: Window) -> Result<Output, ToolError> {
    let content = match ctx.env.open(&target.real).await {
        Ok(content) => content,
        Err(EnvironmentError::Io { source, .. }) if source.kind() == io::ErrorKind::IsADirectory => {
            return read_folder(ctx, target, window).await;
        }
        Err(EnvironmentError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Err(not_found(target));
        }
        Err(error) => return Err(path::explain("read", error)),
    };
    let mut changes = Vec::new();
    let page = match content {
        Content::Whole(content) => {
            changes.push(ctx.options.known_files.learn(&target.real, Some(&content)));
            if let Some(mime) = attachment::sniff(&content) {
                return Ok(Output { changes, ..read_image(ctx, target, mime, &content)? });
            }
            is_text(target, &content, content.len() as u64)?;
            text::page(&content[..], window, true, &|| false)
        }
        Content::Large { size, reader } => {
            let (target, window) = (target.clone(), window);
            walk::search(&ctx.cancel, move |stop| read_large(&target, window, size, reader, stop)).await?
        }
    };
    let page = page.map_err(|message| ToolError::failed(format!("{} {message}", target.shown.display())))?;
    let shown = target.shown.to_string_lossy();
    let mut output =
        format!("<path>{shown}</path>\n<type>file</type>\n<content>\n{}\n\n{}\n</content>", page.numbered, page.note);
    let (reminder, loaded) = instructions::nested(ctx, target).await;
    output.push_str(&reminder);
    let mut display = json!({
        "type": "file", "path": shown, "text": page.text, "lineStart": page.first, "lineEnd": page.last,
        "truncated": page.truncated,
    });
    if let Some(total) = page.total {
        display["totalLines"] = total.into();
    }
    let metadata = metadata(&preview(&page.text), page.truncated, &loaded, Some(display));
    Ok(Output { title: target.title(ctx), output, metadata, changes, ..Output::default() })
}

/// Reads a page of a file that is too large for memory: only up to its end, without counting all lines.
fn read_large(
    target: &Target,
    window: Window,
    size: u64,
    mut reader: Box<dyn io::Read + Send>,
    stop: &StopCondition,
) -> Result<Result<Page, String>, ToolError> {
    let mut head = Vec::new();
    let failed = |error| ToolError::failed(format!("Could not read {}: {error}", target.shown.display()));
    (&mut reader).take(BUFFER as u64).read_to_end(&mut head).map_err(failed)?;
    if attachment::sniff(&head).is_some() {
        return Err(too_large_image(target, size));
    }
    is_text(target, &head, size)?;
    let source = BufReader::with_capacity(BUFFER, io::Cursor::new(head).chain(reader));
    Ok(text::page(source, window, false, &|| stop.reached()))
}

fn is_text(target: &Target, head: &[u8], size: u64) -> Result<(), ToolError> {
    if !attachment::is_binary(head) {
        return Ok(());
    }
    let shown = target.shown.display();
    Err(ToolError::failed(format!("{shown} is a binary file ({size} bytes) and cannot be shown as text.")))
}

fn too_large_image(target: &Target, size: u64) -> ToolError {
    ToolError::failed(format!(
        "{} has {size} bytes; images and PDF files of up to {} MB can be shown. Make a smaller one first.",
        target.shown.display(),
        attachment::MAX_ATTACHMENT_BYTES / 1024 / 1024
    ))
}

fn read_image(ctx: &Context, target: &Target, mime: &str, content: &[u8]) -> Result<Output, ToolError> {
    if content.len() > attachment::MAX_ATTACHMENT_BYTES {
        return Err(too_large_image(target, content.len() as u64));
    }
    let filename = target.shown.file_name().map(|name| name.to_string_lossy().into_owned());
    let what = if mime == "application/pdf" { "PDF" } else { "Image" };
    let output = format!("{what} read successfully");
    let metadata = metadata(&output, false, &[], None);
    let attachments = vec![attachment::attach(mime, filename, content)];
    Ok(Output { title: target.title(ctx), output, metadata, attachments, ..Output::default() })
}

async fn read_folder(ctx: &Context, target: &Target, window: Window) -> Result<Output, ToolError> {
    let (folder, most) = (target.real.clone(), (window.offset - 1).saturating_add(window.limit).min(MAX_ENTRIES));
    let names = tokio::task::spawn_blocking(move || entries(&folder, most)).await;
    let names = names
        .unwrap_or_else(|error| Err(io::Error::other(error)))
        .map_err(|error| ToolError::failed(format!("Could not list {}: {error}", target.shown.display())))?;
    let total = names.seen();
    let from = window.offset.min(total + 1);
    if from > MAX_ENTRIES {
        let shown = target.shown.display();
        return Err(ToolError::failed(format!(
            "{shown} has {total} entries; the first {MAX_ENTRIES} can be listed. Find the others with glob."
        )));
    }
    let names = names.into_sorted();
    let mut bytes = 0;
    let fits = |name: &&String| {
        bytes += name.len() + 1;
        bytes <= window.max_bytes
    };
    let shown: Vec<&String> = names.iter().skip(from - 1).take(window.limit).take_while(fits).collect();
    let next = from + shown.len();
    let truncated = next <= total;
    let note = if truncated {
        format!("(Showing {} of {total} entries. Use offset={next} to continue.)", shown.len())
    } else {
        format!("({total} entries)")
    };
    let list = shown.iter().map(|name| name.as_str()).collect::<Vec<_>>().join("\n");
    let path = target.shown.to_string_lossy();
    let output = format!("<path>{path}</path>\n<type>directory</type>\n<entries>\n{list}\n\n{note}\n</entries>");
    let display = json!({
        "type": "directory", "path": path, "entries": shown, "offset": from, "totalEntries": total,
        "truncated": truncated,
    });
    let metadata = metadata(&preview(&list), truncated, &[], Some(display));
    Ok(Output { title: target.title(ctx), output, metadata, ..Output::default() })
}

/// The first names in a folder; folders end in a slash.
fn entries(folder: &Path, most: usize) -> io::Result<TopN<String>> {
    let mut names = TopN::new(most);
    let mut entries = disk::open_entries(folder)?;
    while let Some(entry) = entries.read() {
        let entry = entry?;
        let Some(mut name) = name_of(&entry) else { continue };
        // Only for links, and where the listing does not say, the system is asked for the type.
        let stat = |flags| rustix::fs::statat(entries.fd()?, entry.file_name(), flags);
        let kind = match entry.file_type() {
            FileType::Symlink => stat(AtFlags::empty()).map(|stat| FileType::from_raw_mode(stat.st_mode)),
            FileType::Unknown => stat(AtFlags::SYMLINK_NOFOLLOW).map(|stat| FileType::from_raw_mode(stat.st_mode)),
            kind => Ok(kind),
        };
        if kind.is_ok_and(|kind| kind == FileType::Directory) {
            name.push('/');
        }
        names.add(name);
    }
    Ok(names)
}

/// The name of an entry, except for `.` and `..`.
fn name_of(entry: &DirEntry) -> Option<String> {
    let name = entry.file_name().to_string_lossy();
    (name != "." && name != "..").then(|| name.into_owned())
}

/// The error for a missing file, with similar names.
pub(crate) fn not_found(target: &Target) -> ToolError {
    let mut message = format!("File not found: {}", target.shown.display());
    let near = near_names(target);
    if !near.is_empty() {
        message.push_str("\n\nDid you mean one of these?");
        for path in near {
            message.push_str(&format!("\n{}", path.display()));
        }
    }
    ToolError::failed(message)
}

fn near_names(target: &Target) -> Vec<PathBuf> {
    let (Some(folder), Some(name)) = (target.shown.parent(), target.shown.file_name()) else { return Vec::new() };
    let (Some(real), name) = (target.real.parent(), name.to_string_lossy().to_lowercase()) else { return Vec::new() };
    // Names outside the workspace are not revealed before the human agrees.
    if target.external {
        return Vec::new();
    }
    let Ok(list) = disk::open_entries(real) else { return Vec::new() };
    let stem = |name: &str| name.rsplit_once('.').map_or(name, |(stem, _)| stem).to_owned();
    let mut near: Vec<(u32, PathBuf)> = list
        .take(MAX_NEIGHBOURS)
        .filter_map(|entry| {
            let other = name_of(&entry.ok()?)?;
            let lower = other.to_lowercase();
            let alike = similar::TextDiff::from_chars(name.as_str(), lower.as_str()).ratio();
            let related = alike > 0.7 || stem(&lower) == stem(&name) || lower == name;
            related.then(|| ((alike * 1000.0) as u32, folder.join(other)))
        })
        .collect();
    near.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    near.into_iter().take(MAX_SUGGESTIONS).map(|(_, path)| path).collect()
}

fn preview(text: &str) -> String {
    text.lines().take(PREVIEW_LINES).collect::<Vec<_>>().join("\n")
}

fn metadata(preview: &str, truncated: bool, loaded: &[PathBuf], display: Option<api::Json>) -> JsonMap {
    let mut map = object(json!({"preview": preview, "truncated": truncated, "loaded": loaded}));
    if let Some(display) = display {
        map.insert("display".into(), display);
    }
    map
}

#[cfg(test)]
mod tests;
