//! The `grep` tool: ripgrep's engine in this process.

use std::cmp::Reverse;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkMatch};
use ignore::WalkState;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::files::disk;
use crate::files::path::{self, Target};
use crate::files::write::object;
use crate::search::folder::{self, Folder};
use crate::search::top_n::TopN;
use crate::search::walk::{self, MAX_RESULTS, StopCondition};
use crate::tool::context::Context;
use crate::tool::{Effect, Need, Output, ToolError, TypedTool};

/// Longer lines are cut in the results.
const MAX_LINE_BYTES: usize = 2000;
/// Memory for one line; a file with a longer one is skipped.
const MAX_HEAP: usize = 64 * 1024 * 1024;

/// The maximum number of skipped files to name.
const MAX_WITHHELD: usize = 5;

/// Searches the contents of files with a regular expression (Rust syntax, as in ripgrep).
///
/// Hidden files are searched. Ignored files (`.gitignore`), git's data (`.git`) and binary files are left out. Returns
/// up to 100 lines with their numbers, files that changed last first. Escape `(`, `{` and the like to find them as they are.
/// Files that need a permission to be read are left out, and counted: use `read` for those.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Input {
    /// The regular expression.
    pattern: String,
    /// The file or folder to search; the working directory if left out.
    path: Option<String>,
    /// Search only files whose path fits this glob, for example `*.rs` or `*.{ts,tsx}`.
    include: Option<String>,
}

pub(crate) struct Grep;

impl TypedTool for Grep {
    type Input = Input;
    const NAME: &'static str = "grep";
    const EFFECT: Effect = Effect::ReadOnly;

    async fn needs(&self, input: &Input, ctx: &Context) -> Result<Vec<Need>, ToolError> {
        Ok(needs(&path::locate_or_here(ctx, input.path.as_deref())?, input))
    }

    async fn run(&self, input: Input, ctx: Context) -> Result<Output, ToolError> {
        let target = path::locate_or_here(&ctx, input.path.as_deref())?;
        path::confirm(&ctx, &needs(&target, &input))?;
        if !target.real.exists() {
            return Err(crate::files::read::not_found(&target));
        }
        let (title, cancel) = (input.pattern.clone(), ctx.cancel.clone());
        Ok(render(title, walk::search(&cancel, move |stop| search(&ctx, &target, &input, stop)).await?))
    }
}

fn needs(target: &Target, input: &Input) -> Vec<Need> {
    let mut grep = Need::new("grep", input.pattern.clone()).with("pattern", input.pattern.clone());
    for (key, value) in [("path", &input.path), ("include", &input.include)] {
        if let Some(value) = value {
            grep = grep.with(key, value.clone());
        }
    }
    let outside = if target.real.is_dir() { target.outside_folder_need() } else { target.outside_file_need() };
    // Searching a named file is reading it.
    let named = input.include.as_deref().filter(|include| !include.contains(['*', '?', '[', '{']));
    let named = named.map(|include| target.pattern_below(Path::new(include.strip_prefix("./").unwrap_or(include))));
    let named = if target.real.is_dir() { named } else { Some(target.pattern()) };
    outside.into_iter().chain([grep]).chain(named.map(read)).collect()
}

fn read(pattern: String) -> Need {
    Need::new("read", pattern)
}

/// Whether a file may be searched: reading it needs no permission, or permission was given.
fn may_read(ctx: &Context, pattern: String) -> bool {
    ctx.readable.without_asking(&pattern) || ctx.grants(&read(pattern))
}

/// The matching lines of a file. Files that changed last sort first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct FileMatches {
    modified: Reverse<SystemTime>,
    path: PathBuf,
    /// At most as many as can be shown.
    lines: Vec<(u64, String)>,
}

struct GrepResults {
    /// At most as many as can be shown.
    files: Vec<FileMatches>,
    /// The number of matching lines in all files.
    total: usize,
    /// Files that must not be read without asking; their contents were not searched.
    withheld: TopN<PathBuf>,
    timed_out: bool,
}

fn search(ctx: &Context, target: &Target, input: &Input, stop: &StopCondition) -> Result<GrepResults, ToolError> {
    let matcher = matcher(&input.pattern)?;
    let include = input.include.as_deref().map(walk::glob).transpose()?;
    // A single file has no folder.
    let folder = Folder::open(&target.real).ok();
    let open = |relative: &Path| match &folder {
        Some(folder) => folder.file(relative),
        None => disk::open_file(&target.real),
    };
    // Each file has at least one line, so no more files than lines are ever shown.
    let (found, total) = (Mutex::new(TopN::new(MAX_RESULTS)), AtomicUsize::new(0));
    let withheld = Mutex::new(TopN::new(MAX_WITHHELD));
    walk::files(&target.real, true, stop, || {
        let mut searcher = searcher();
        let (open, withheld) = (&open, &withheld);
        let (include, found, total, matcher) = (&include, &found, &total, matcher.clone());
        move |entry: ignore::DirEntry| {
            let relative = entry.path().strip_prefix(&target.real).unwrap_or(entry.path());
            if include.as_ref().is_some_and(|glob| entry.depth() > 0 && !glob.is_match(relative)) {
                return WalkState::Continue;
            }
            let path = if relative == Path::new("") { target.shown.clone() } else { target.shown.join(relative) };
            if !may_read(ctx, target.pattern_below(relative)) {
                withheld.lock().unwrap_or_else(PoisonError::into_inner).add(path);
                return WalkState::Continue;
            }
            // The opened file is the one that was checked: its path contains no link at this moment.
            let Ok(file) = open(relative) else { return WalkState::Continue };
            let mut lines = Lines { lines: Vec::new(), count: 0, stop };
            // Skip a file that cannot be read, or has a line beyond the limit.
            if searcher.search_file(&matcher, &file, &mut lines).is_err() || lines.count == 0 {
                return WalkState::Continue;
            }
            let hits = FileMatches { modified: Reverse(folder::modified(&file)), path, lines: lines.lines };
            total.fetch_add(lines.count, Ordering::Relaxed);
            found.lock().unwrap_or_else(PoisonError::into_inner).add(hits);
            WalkState::Continue
        }
    });
    let files = found.into_inner().unwrap_or_else(PoisonError::into_inner).into_sorted();
    let mut withheld = withheld.into_inner().unwrap_or_else(PoisonError::into_inner);
    // Drop names that appeared through a link: they are not in this folder.
    if let Some(folder) = &folder {
        withheld.retain(|path| folder.has(path.strip_prefix(&target.shown).unwrap_or(path)));
    }
    Ok(GrepResults { files, total: total.into_inner(), withheld, timed_out: stop.timed_out() })
}

pub(crate) fn matcher(pattern: &str) -> Result<RegexMatcher, ToolError> {
    let mut builder = RegexMatcherBuilder::new();
    builder.line_terminator(Some(b'\n')).multi_line(true);
    builder.build(pattern).map_err(|error| {
        ToolError::failed(format!(
            "{pattern:?} is not a regular expression that can be searched: {error}. \
             Escape special characters with a backslash to find them as they are; a match cannot span lines."
        ))
    })
}

pub(crate) fn searcher() -> Searcher {
    SearcherBuilder::new()
        .binary_detection(BinaryDetection::quit(0))
        .line_number(true)
        .heap_limit(Some(MAX_HEAP))
        .build()
}

/// Collects the matching lines of a file.
struct Lines<'a> {
    lines: Vec<(u64, String)>,
    count: usize,
    stop: &'a StopCondition,
}

impl Sink for Lines<'_> {
    type Error = std::io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, Self::Error> {
        self.count += 1;
        if self.lines.len() < MAX_RESULTS {
            let bytes = found.bytes();
            let text = String::from_utf8_lossy(&bytes[..bytes.len().min(2 * MAX_LINE_BYTES)]);
            let text = text.trim_end_matches(['\n', '\r']);
            let end = text.floor_char_boundary(MAX_LINE_BYTES);
            let mark = if end < text.len() || bytes.len() > 2 * MAX_LINE_BYTES { "..." } else { "" };
            self.lines.push((found.line_number().unwrap_or(0), format!("{}{mark}", &text[..end])));
        }
        // Checking the clock for each line would cost more than the search.
        Ok(!self.count.is_multiple_of(1024) || !self.stop.reached())
    }
}

fn render(title: String, found: GrepResults) -> Output {
    let total = found.total;
    let withheld = withheld_note(found.withheld);
    if total == 0 && !found.timed_out {
        let metadata = object(json!({"matches": 0, "truncated": false}));
        return Output { title, output: format!("No files found{withheld}"), metadata, ..Output::default() };
    }
    let mut left = MAX_RESULTS;
    let mut body = String::new();
    for file in &found.files {
        if left == 0 {
            break;
        }
        if !body.is_empty() {
            body.push('\n');
        }
        body.push_str(&format!("{}:\n", file.path.display()));
        for (number, line) in file.lines.iter().take(left) {
            body.push_str(&format!("  Line {number}: {line}\n"));
        }
        left -= file.lines.len().min(left);
    }
    let cut = total > MAX_RESULTS;
    let shown = if cut { format!(" (showing first {MAX_RESULTS})") } else { String::new() };
    let mut output = format!("Found {total} matches{shown}\n{body}");
    if cut {
        output.push_str(&format!(
            "\n({} matches are not shown. Use a narrower pattern, path or include.)",
            total - MAX_RESULTS
        ));
    }
    if found.timed_out {
        output.push_str("\n(The search ran out of time, so matches may be missing. Use a narrower path.)");
    }
    output.push_str(&withheld);
    let metadata = object(json!({"matches": total, "truncated": cut || found.timed_out}));
    Output { title, output, metadata, ..Output::default() }
}

/// What the model is told about skipped files.
fn withheld_note(files: TopN<PathBuf>) -> String {
    let total = files.seen();
    let names: Vec<String> = files.into_sorted().iter().map(|path| path.display().to_string()).collect();
    if names.is_empty() {
        return String::new();
    }
    let more = if total > names.len() { ", …" } else { "" };
    format!(
        "\n({total} files were not searched, because the rules do not let you read them without asking: {}{more}. \
         Use read for one that you need.)",
        names.join(", ")
    )
}

#[cfg(test)]
mod tests;
