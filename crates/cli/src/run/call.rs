//! What a call of a tool is about and how it ended, in a few words. No terminal in here.

use api::{Json, PartId, Timestamp, ToolPart, ToolState};

use super::diff;
use crate::term::{one_line, plural};

/// How many lines of a command are shown while it runs, counted from its end.
const LIVE_LINES: usize = 4;
/// The longest text of a call's arguments.
const MAX_ARGUMENTS: usize = 300;
/// What a call is called that names no tool, or whose arguments cannot be read; its input says which.
pub const INVALID: &str = "invalid";
/// What commands append to their output for the model alone.
const SHELL_NOTE: (&str, &str) = ("\n<shell_metadata>\n", "</shell_metadata>");
/// Tools whose title or input says in a few words what a call is about. Of all others the arguments are shown.
const KNOWN: [&str; 17] = [
    "apply_patch",
    "bash",
    "edit",
    "glob",
    "grep",
    "list",
    "multiedit",
    "patch",
    "question",
    "read",
    "skill",
    "task",
    "todoread",
    "todowrite",
    "webfetch",
    "websearch",
    "write",
];

/// A call that runs.
pub struct Running {
    /// Its part.
    pub part: PartId,
    label: String,
    since: Option<Timestamp>,
    /// The last lines of its output.
    pub tail: Vec<String>,
}

impl Running {
    /// What is known of a call that has no end yet.
    pub fn new(tool: &ToolPart) -> Self {
        let label = format!("{}  {}", tool.tool, label(tool)).trim_end().to_string();
        Self { part: tool.head.id.clone(), label, since: since(tool), tail: tail(tool) }
    }

    /// What it is about and for how long it has run, in so many characters.
    pub fn headline(&self, now: Timestamp, room: usize) -> String {
        let seconds = self.since.map_or(0, |since| (now - since).max(0) / 1000);
        let time = if seconds > 0 { format!("  {seconds} s") } else { String::new() };
        format!("{}{time}", one_line(&self.label, room.saturating_sub(time.len())))
    }
}

fn since(tool: &ToolPart) -> Option<Timestamp> {
    if let ToolState::Running(running) = &tool.state { Some(running.time.start) } else { None }
}

/// The last lines that a running call has printed.
fn tail(tool: &ToolPart) -> Vec<String> {
    let ToolState::Running(running) = &tool.state else { return Vec::new() };
    let output = running.metadata.as_ref().and_then(|told| told.get("output")).and_then(Json::as_str);
    let clean = api::strip_control(output.unwrap_or_default());
    let lines: Vec<&str> = clean.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(LIVE_LINES)..].iter().map(|line| (*line).to_owned()).collect()
}

/// What a command printed, and what was noted about its end.
pub fn without_note(output: &str) -> (&str, Option<&str>) {
    let (begin, end) = SHELL_NOTE;
    match output.trim_end().strip_suffix(end).and_then(|rest| rest.rsplit_once(begin)) {
        Some((text, note)) => (text.trim_end(), Some(note.trim())),
        None => (output, None),
    }
}

/// Whether a title or a well-known argument says what a call of this tool is about.
pub fn is_known(tool: &str) -> bool {
    KNOWN.contains(&tool)
}

/// The arguments of a call, in a line: `query="x" limit=3`.
fn arguments(input: &Json) -> String {
    match input {
        Json::Object(map) => {
            let pairs: Vec<String> = map.iter().map(|(name, value)| format!("{name}={value}")).collect();
            one_line(&pairs.join(" "), MAX_ARGUMENTS)
        }
        Json::Null => String::new(),
        other => one_line(&other.to_string(), MAX_ARGUMENTS),
    }
}

/// What a call is about, in a few words.
pub fn label(tool: &ToolPart) -> String {
    if !is_known(&tool.tool) {
        return arguments(tool.state.input());
    }
    let text = |key: &str| tool.state.input().get(key).and_then(Json::as_str);
    if tool.tool == "task"
        && let (Some(agent), Some(description)) = (text("subagent_type"), text("description"))
    {
        return format!("{agent}: {description}");
    }
    tool.subject().to_string()
}

/// How a call ended, in a word or two.
pub fn detail(tool: &ToolPart) -> String {
    let ToolState::Completed(done) = &tool.state else { return String::new() };
    let number = |key: &str| done.metadata.get(key).and_then(Json::as_u64);
    let mut words = Vec::new();
    match tool.tool.as_str() {
        "bash" => match exit_code(&done.metadata) {
            Some(0) => {}
            Some(code) => words.push(format!("exit {code}")),
            None => words.push("no exit code".into()),
        },
        "grep" => {
            words.extend(number("matches").map(|n| if n == 1 { "1 match".into() } else { format!("{n} matches") }))
        }
        "glob" => words.extend(number("count").map(|n| plural(n as usize, "file"))),
        "write" if done.metadata.get("exists").and_then(Json::as_bool) == Some(false) => words.push("new file".into()),
        _ => {}
    }
    if let Some(patch) = diff::of(&done.metadata) {
        let (added, removed) = diff::count(patch);
        words.push(format!("+{added} -{removed}"));
    }
    let seconds = done.time.end.map_or(0.0, |end| (end - done.time.start) as f64 / 1000.0);
    if seconds >= 1.0 {
        words.push(format!("{seconds:.1} s"));
    }
    words.join(" · ")
}

/// The exit code of a command.
pub fn exit_code(metadata: &api::JsonMap) -> Option<i64> {
    metadata.get("exit").and_then(Json::as_i64)
}
