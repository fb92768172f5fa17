//! Unified diffs, short enough to read between two tool calls, or whole for a person who decides about them.

use api::{Json, JsonMap};

use super::pages::hard_wrap;
use super::{Style, one_line};

/// The most lines of a short diff.
const MAX_LINES: usize = 24;

/// The diff in a tool's metadata, if it changes anything.
pub fn of(metadata: &JsonMap) -> Option<&str> {
    metadata.get("diff").and_then(Json::as_str).filter(|diff| changes(diff).next().is_some())
}

/// The numbers of added and removed lines.
pub fn count(patch: &str) -> (usize, usize) {
    let added = changes(patch).filter(|line| line.starts_with('+')).count();
    (added, changes(patch).count() - added)
}

/// The first changed lines, coloured, with a mark between hunks.
pub fn compact(patch: &str, style: Style) -> String {
    let clean = api::strip_control(patch);
    let total = changes(&clean).count();
    let mut out = String::new();
    let mut shown = 0;
    for line in hunk_lines(&clean) {
        if shown == MAX_LINES {
            break;
        }
        let text = one_line(line, style.width.saturating_sub(4));
        let painted = match line.as_bytes().first() {
            Some(b'+') => style.green(&text),
            Some(b'-') => style.red(&text),
            Some(b'@') if shown > 0 => style.dim("⋯"),
            _ => continue,
        };
        shown += usize::from(!line.starts_with('@'));
        out += &format!("    {painted}\n");
    }
    if total > shown {
        out += &format!("    {}\n", style.dim(&format!("… {} more changed lines", total - shown)));
    }
    out
}

/// All changed lines, uncut, below the names of their files.
pub fn whole(patch: &str, style: Style) -> Vec<String> {
    let mut out = Vec::new();
    let width = style.width.saturating_sub(5);
    let mut inside = false;
    for line in patch.split('\n') {
        inside = is_in_hunk(inside, line);
        let paint = match line.as_bytes().first() {
            Some(b'+') if inside => Style::green,
            Some(b'-') if inside => Style::red,
            Some(b'@') if inside && !out.is_empty() => {
                out.push(format!("    {}", style.dim("⋯")));
                continue;
            }
            _ if !inside && (line.starts_with("+++ ") || line.starts_with("rename to ")) => Style::dim,
            _ => continue,
        };
        out.extend(hard_wrap(line, width).iter().map(|row| format!("    {}", paint(style, row))));
    }
    out
}

/// The lines of the hunks, without file headers (`---` and `+++` before a hunk).
fn hunk_lines(patch: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    patch.lines().filter(move |line| {
        inside = is_in_hunk(inside, line);
        inside
    })
}

/// Whether a line belongs to a hunk, given whether the line before it does.
fn is_in_hunk(inside: bool, line: &str) -> bool {
    match line.as_bytes().first() {
        Some(b'@') => line.starts_with("@@"),
        Some(b'+' | b'-' | b' ' | b'\\') | None => inside,
        Some(_) => false,
    }
}

fn changes(patch: &str) -> impl Iterator<Item = &str> {
    hunk_lines(patch).filter(|line| line.starts_with(['+', '-']))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str = "Index: a.txt\n===\n--- a.txt\n+++ a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three\n@@ -9 +9,2 @@\n nine\n+--- ten\n";

    #[test]
    fn headers_and_context_are_left_out() {
        assert_eq!(count(PATCH), (2, 1));
        assert_eq!(compact(PATCH, Style::plain()), "    -two\n    +TWO\n    ⋯\n    +--- ten\n");
    }

    #[test]
    fn long_diffs_are_cut() {
        let patch = format!("@@ -0,0 +1,99 @@\n{}", "+x\n".repeat(99));
        let text = compact(&patch, Style::plain());
        assert_eq!(text.lines().count(), MAX_LINES + 1);
        assert!(text.ends_with("    … 75 more changed lines\n"), "{text}");
    }

    #[test]
    fn control_sequences_are_removed() {
        let text = compact("@@ @@\n+\x1b[2Jx\x1b]0;t\x07\n", Style::plain());
        assert_eq!(text, "    +x\n");
    }

    #[test]
    fn nothing_is_no_diff() {
        let mut metadata = JsonMap::new();
        assert_eq!(of(&metadata), None);
        metadata.insert("diff".into(), "--- a\n+++ a\n".into());
        assert_eq!(of(&metadata), None);
    }
}
