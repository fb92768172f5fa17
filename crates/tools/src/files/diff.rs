//! Unified diffs in the format that OpenCode's clients read.

use std::fmt::Write;
use std::time::Duration;

use similar::{ChangeTag, TextDiff};

/// The number of unchanged lines around a change.
const CONTEXT: usize = 4;
/// Longer diffs are cut off: they are for people, and stored with the call.
const MAX_DIFF_BYTES: usize = 256 * 1024;
/// After this time the diff may be longer than necessary, but it is still correct.
const DIFF_TIMEOUT: Duration = Duration::from_millis(500);

/// A diff and its size.
pub(crate) struct Diff {
    pub text: String,
    pub additions: usize,
    pub deletions: usize,
}

/// The diff of a file, as the tools that change files show it.
pub fn unified_diff(path: &str, old: &str, new: &str) -> String {
    unified(path, old, new).text
}

/// The diff of a file.
pub(crate) fn unified(path: &str, old: &str, new: &str) -> Diff {
    let mut text = format!("Index: {path}\n{}\n--- {path}\n+++ {path}\n", "=".repeat(67));
    let (mut additions, mut deletions) = (0, 0);
    let diff = TextDiff::configure().timeout(DIFF_TIMEOUT).diff_lines(old, new);
    let mut cut = false;
    for group in diff.grouped_ops(CONTEXT) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let old_range = first.old_range().start..last.old_range().end;
        let new_range = first.new_range().start..last.new_range().end;
        if !cut {
            let _ = writeln!(text, "@@ -{} +{} @@", span(old_range), span(new_range));
        }
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let sign = match change.tag() {
                ChangeTag::Delete => '-',
                ChangeTag::Insert => '+',
                ChangeTag::Equal => ' ',
            };
            additions += usize::from(sign == '+');
            deletions += usize::from(sign == '-');
            if cut {
                continue;
            }
            if text.len() + change.value().len() > MAX_DIFF_BYTES {
                text.push_str("\\ The diff is cut here\n");
                cut = true;
                continue;
            }
            text.push(sign);
            text.push_str(change.value());
            if change.missing_newline() {
                text.push_str("\n\\ No newline at end of file\n");
            }
        }
    }
    Diff { text, additions, deletions }
}

/// The diff for a file of the given size that is replaced without comparing lines.
pub(crate) fn replaced(path: &str, size: u64, new: &str) -> String {
    let note = format!("\\ The old content, {size} bytes, is too large to be compared; all of it is replaced\n");
    let mut diff = unified(path, "", new).text;
    let head = diff.find("@@ ").unwrap_or(diff.len());
    diff.insert_str(head, &note);
    diff
}

fn span(range: std::ops::Range<usize>) -> String {
    let start = if range.is_empty() { range.start } else { range.start + 1 };
    format!("{start},{}", range.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_matches_the_recording() {
        let diff = unified("/p/a.txt", "line one\nline two\nline three\n", "line one\nLINE 2\nline three\n");
        let want = "Index: /p/a.txt\n===================================================================\n\
                    --- /p/a.txt\n+++ /p/a.txt\n@@ -1,3 +1,3 @@\n line one\n-line two\n+LINE 2\n line three\n";
        assert_eq!((diff.text.as_str(), diff.additions, diff.deletions), (want, 1, 1));
        assert!(unified("f", "", "bbb\n").text.ends_with("@@ -0,0 +1,1 @@\n+bbb\n"));
        assert!(unified("f", "one\ntwo\n", "").text.ends_with("@@ -1,2 +0,0 @@\n-one\n-two\n"));
        assert!(
            unified("f", "a", "b")
                .text
                .ends_with("-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file\n")
        );
    }

    #[test]
    fn a_huge_diff_is_cut_but_counted() {
        let diff = unified("f", "", &"0123456789\n".repeat(100_000));
        assert_eq!(diff.additions, 100_000);
        assert!(diff.text.len() < MAX_DIFF_BYTES + 1000);
    }
}
