//! Recordings of the real OpenCode, for comparison.

use std::path::{Path, PathBuf};

use serde_json::Value;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../api/tests/fixtures")
}

/// The names of all recorded scenarios, sorted.
pub fn recordings() -> Vec<String> {
    let entries = std::fs::read_dir(folder()).expect("the recordings are in the repository");
    let paths =
        entries.map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|e| e == "jsonl"));
    let mut names: Vec<String> = paths.map(|path| path.file_stem().unwrap().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// The lines of a recorded scenario: events as a subscriber received them, interleaved with requests and responses.
pub fn recorded_lines(scenario: &str) -> Vec<Value> {
    let path = folder().join(format!("{scenario}.jsonl"));
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("no recording {scenario:?} ({error}); there are: {}", recordings().join(", ")));
    text.lines().map(|line| serde_json::from_str(line).expect("a recording is JSONL")).collect()
}

/// The events of a recorded scenario, in the order in which a subscriber received them.
pub fn recorded_events(scenario: &str) -> Vec<Value> {
    recorded_lines(scenario).iter_mut().filter_map(|line| line.get_mut("event").map(Value::take)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_starts_with_the_connection() {
        let events = recorded_events("03_prompt_text");
        assert_eq!(events[0]["type"], "server.connected");
        assert!(events.len() > 20);
        assert!(recordings().contains(&"05_tool_bash".to_owned()));
        assert_eq!(recorded_lines("03_prompt_text")[0]["request"]["path"], "/event");
    }
}
