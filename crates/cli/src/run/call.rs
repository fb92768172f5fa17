//! What a tool call is about and how it ended, in a few words. Pure text: it touches no terminal.

use api::{Json, PartId, Timestamp, ToolPart, ToolState};

use super::waits::CallKey;
use crate::terminal::{diff, one_line, plural};

/// The last lines of a command's output that are shown while it runs.
const LIVE_LINES: usize = 4;
/// The longest text of a call's arguments.
const MAX_ARGUMENTS: usize = 300;
/// The tool of a call that names no tool, or whose arguments cannot be read; its input says which.
pub const INVALID: &str = "invalid";
/// Encloses what commands append to their output for the model only.
const SHELL_NOTE: (&str, &str) = ("\n<shell_metadata>\n", "</shell_metadata>");
/// Tools whose title or input says in a few words what a call is about. For all others, the arguments are shown.
const KNOWN_TOOLS: [&str; 17] = [
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

/// A running call.
pub struct RunningCall {
    /// Its part.
    pub part: PartId,
    /// Which call of the session it is.
    pub key: CallKey,
    label: String,
    since: Option<Timestamp>,
    /// The last lines of its output.
    pub tail: Vec<String>,
}

impl RunningCall {
    /// A call that has not ended.
    pub fn new(tool: &ToolPart) -> Self {
        let label = format!("{}  {}", tool.tool, label(tool)).trim_end().to_string();
        Self { part: tool.head.id.clone(), key: CallKey::of(tool), label, since: since(tool), tail: last_lines(tool) }
    }

    /// What it is about and how long it has run, in at most that many characters.
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
fn last_lines(tool: &ToolPart) -> Vec<String> {
    let ToolState::Running(running) = &tool.state else { return Vec::new() };
    let output = running.metadata.as_ref().and_then(|metadata| metadata.get("output")).and_then(Json::as_str);
    let clean = api::strip_control(output.unwrap_or_default());
    let lines: Vec<&str> = clean.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(LIVE_LINES)..].iter().map(|line| (*line).to_owned()).collect()
}

/// Splits the output of a command from the note about its end.
pub fn split_note(output: &str) -> (&str, Option<&str>) {
    let (begin, end) = SHELL_NOTE;
    match output.trim_end().strip_suffix(end).and_then(|rest| rest.rsplit_once(begin)) {
        Some((text, note)) => (text.trim_end(), Some(note.trim())),
        None => (output, None),
    }
}

/// Whether a title or a well-known argument says what a call of this tool is about.
pub fn is_known(tool: &str) -> bool {
    KNOWN_TOOLS.contains(&tool)
}

/// The arguments of a call in one line: `query="x" limit=3`.
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

/// How a call ended, in a word or two, and how long it ran without the milliseconds that it `waited` for answers.
pub fn detail(tool: &ToolPart, waited: Timestamp) -> String {
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
    let seconds = done.time.end.map_or(0.0, |end| (end - done.time.start - waited) as f64 / 1000.0);
    // A question does nothing but wait. A transcript of the past cannot tell waits from work.
    if seconds >= 1.0 && tool.tool != "question" {
        words.push(format!("{seconds:.1} s"));
    }
    words.join(" · ")
}

/// The exit code of a command.
pub fn exit_code(metadata: &api::JsonMap) -> Option<i64> {
    metadata.get("exit").and_then(Json::as_i64)
}
