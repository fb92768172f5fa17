//! Generated files, and edits and patches of them.

use fastrand::Rng;
use serde_json::{Value, json};

/// The file of every case.
pub const FILE: &str = "file.txt";

/// A file and a call that changes it.
#[derive(Debug)]
pub struct Case {
    pub kind: &'static str,
    pub content: String,
    pub input: Value,
}

/// Kinds of cases in which the peers deliberately differ from us:
///
/// * Both insert new text as it is, where we indent it as the match shows, or refuse.
/// * Both give all lines of a mixed file the same ending; we keep each.
/// * Codex puts lines that are only added at the end even if an anchor names their place.
pub fn may_differ(kind: &str) -> bool {
    matches!(kind, "indentation" | "mixed line endings" | "added below an anchor")
}

fn lines(random: &mut Rng) -> Vec<String> {
    let words =
        ["alpha", "beta", "gamma", "delta", "}", "if x {", "return 1", "", "let a = 1;", "# note", "\u{e9}t\u{e9}"];
    let indents = ["", "", "    ", "        ", "\t"];
    (0..random.usize(1..12))
        .map(|_| format!("{}{}", indents[random.usize(..indents.len())], words[random.usize(..words.len())]))
        .map(|line| if line.trim().is_empty() { String::new() } else { line })
        .collect()
}

/// Joins lines with one line ending, or with mixed ones.
fn join(random: &mut Rng, lines: &[String]) -> (&'static str, String) {
    let (kind, ends): (_, &[&str]) = match random.u8(..10) {
        0..5 => ("line feeds", &["\n"]),
        5..9 => ("carriage returns", &["\r\n"]),
        _ => ("mixed line endings", &["\n", "\r\n"]),
    };
    let mut text = String::new();
    for (number, line) in lines.iter().enumerate() {
        text.push_str(line);
        if number + 1 < lines.len() || random.bool() {
            text.push_str(ends[random.usize(..ends.len())]);
        }
    }
    (kind, text)
}

pub fn edit(random: &mut Rng) -> Case {
    let lines = lines(random);
    let (mut kind, content) = join(random, &lines);
    let text = content.replace("\r\n", "\n");
    let boundaries: Vec<usize> = (0..=text.len()).filter(|at| text.is_char_boundary(*at)).collect();
    let mut pick = || boundaries[random.usize(..boundaries.len())];
    let (a, b) = (pick(), pick());
    let mut old = text[a.min(b)..a.max(b)].to_owned();
    if random.u8(..3) == 0 {
        // Whole lines with a different indentation or trailing spaces.
        let from = random.usize(..lines.len());
        let some = &lines[from..random.usize(from + 1..=lines.len())];
        let change: fn(&str) -> String = match random.u8(..3) {
            0 => |line| line.trim().to_owned(),
            1 => |line| format!("    {line}"),
            _ => |line| format!("{line}  "),
        };
        old = some.iter().map(|line| change(line)).collect::<Vec<_>>().join("\n");
        kind = "indentation";
    }
    let new: Vec<&str> = (0..random.usize(1..4)).map(|_| ["", "new", "    new", "\tnew"][random.usize(..4)]).collect();
    let mut new = new.join("\n");
    if random.u8(..4) == 0 {
        new = new.replace('\n', "\r\n");
        old = old.replace('\n', "\r\n");
    }
    if old.is_empty() {
        old = "absent".to_owned();
    }
    let all = random.u8(..5) == 0;
    Case { kind, content, input: json!({"filePath": FILE, "oldString": old, "newString": new, "replaceAll": all}) }
}

pub fn patch(random: &mut Rng) -> Case {
    let lines = lines(random);
    let (mut kind, content) = join(random, &lines);
    let mut body = String::new();
    let mut at = 0;
    for _ in 0..random.usize(1..3) {
        let from = random.usize(at..=lines.len());
        let to = random.usize(from..=lines.len()).min(from + 4);
        let anchor =
            (random.u8(..5) == 0 && from > at).then(|| &lines[random.usize(at..from)]).filter(|line| !line.is_empty());
        match anchor {
            Some(line) => body.push_str(&format!("@@ {line}\n")),
            None => body.push_str("@@\n"),
        }
        let mut shown = false;
        for line in &lines[from..to] {
            // Now and then a line differs slightly from the file.
            let slip = random.u8(..8) == 0;
            kind = if slip && line.trim() != line { "indentation" } else { kind };
            let line = if slip { line.trim().to_owned() } else { line.clone() };
            shown = true;
            match random.u8(..4) {
                0 => body.push_str(&format!("-{line}\n")),
                1 => body.push_str(&format!("-{line}\n+new\n")),
                2 => body.push_str(&format!(" {line}\n+new line\n")),
                _ => body.push_str(&format!(" {line}\n")),
            }
        }
        if !shown {
            body.push_str("+added\n");
            kind = if anchor.is_some() { "added below an anchor" } else { kind };
        }
        if random.u8(..8) == 0 {
            body.push_str("*** End of File\n");
        }
        at = to;
    }
    let patch = format!("*** Begin Patch\n*** Update File: {FILE}\n{body}*** End Patch");
    Case { kind, content, input: json!({"patchText": patch}) }
}
