//! A long session, as a file that programs import: questions, and answers of many steps that read files.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};

/// The id of the session.
pub const SESSION: &str = "ses_000000000001AAAAAAAAAAAAAA";
/// Steps of an answer, each a message of its own.
const STEPS: usize = 9;
/// What a step writes before it reads a file.
const SAID: &str = "The parser keeps the line of each token, so the error can name it. I look at the caller next.";
/// A line of a file that a step reads, and the number of lines.
const LINE: &str = "    let token = self.next().ok_or_else(|| self.error(\"a token\"))?;\n";
const LINES: usize = 15;

/// Writes a session with this many messages.
pub fn write(file: &Path, directory: &Path, messages: usize) -> Result<()> {
    let mut file = BufWriter::new(File::create(file)?);
    let info = json!({
        "id": SESSION, "slug": "calm-fox", "projectID": "global", "directory": directory, "path": "",
        "title": "Repair the parser", "version": "0", "time": {"created": 1, "updated": messages},
    });
    write!(file, "{{\"info\":{info},\"messages\":[")?;
    for number in 0..messages {
        let comma = if number > 0 { "," } else { "" };
        write!(file, "{comma}{}", message(number, directory))?;
    }
    write!(file, "]}}")?;
    Ok(file.flush()?)
}

fn message(number: usize, directory: &Path) -> Value {
    let question = number - number % (STEPS + 1);
    let message = id("msg", number);
    let part = |place: usize, content: Value| {
        let mut part = content;
        part["id"] = json!(id("prt", number * 4 + place));
        part["sessionID"] = json!(SESSION);
        part["messageID"] = json!(message);
        part
    };
    if number == question {
        let info = json!({
            "id": message, "sessionID": SESSION, "role": "user", "time": {"created": number}, "agent": "build",
            "model": {"providerID": "fake", "modelID": "fake-model"},
        });
        return json!({"info": info, "parts": [part(0, json!({"type": "text", "text": "Where does the line come from?"}))]});
    }
    let tokens = json!({"input": 100, "output": 20, "reasoning": 0, "cache": {"read": 0, "write": 0}});
    let info = json!({
        "id": message, "sessionID": SESSION, "role": "assistant", "time": {"created": number, "completed": number},
        "parentID": id("msg", question), "modelID": "fake-model", "providerID": "fake", "mode": "build", "agent": "build",
        "path": {"cwd": directory, "root": directory}, "cost": 0, "tokens": tokens, "finish": "tool-calls",
    });
    let time = json!({"start": number, "end": number});
    let path = directory.join("src/main.rs");
    let state = json!({
        "status": "completed", "input": {"filePath": path}, "output": LINE.repeat(LINES), "title": "src/main.rs",
        "metadata": {}, "time": time,
    });
    let parts = [
        json!({"type": "step-start"}),
        json!({"type": "text", "text": SAID, "time": time}),
        json!({"type": "tool", "callID": format!("call_{number}"), "tool": "read", "state": state}),
        json!({"type": "step-finish", "reason": "tool-calls", "cost": 0, "tokens": tokens}),
    ];
    let parts: Vec<Value> = parts.into_iter().enumerate().map(|(place, content)| part(place, content)).collect();
    json!({"info": info, "parts": parts})
}

/// Ids that sort in the order of their creation.
fn id(kind: &str, number: usize) -> String {
    format!("{kind}_{:012x}AAAAAAAAAAAAAA", number + 1)
}
