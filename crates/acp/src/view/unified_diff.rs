//! Parses unified diffs: editors want the text before and after instead.

/// A group of changed lines.
struct Hunk {
    /// The first line in the old text, from 0.
    at: usize,
    old: String,
    new: String,
    old_lines: usize,
}

/// The changed parts before and after, without the text between them; `None` if this is not a diff.
pub fn changed_parts(diff: &str) -> Option<(String, String)> {
    let hunks = parse(diff)?;
    let join = |side: fn(&Hunk) -> &str| hunks.iter().map(side).collect::<String>();
    Some((join(|hunk| &hunk.old), join(|hunk| &hunk.new)))
}

/// Applies a diff; `None` if it does not match the text exactly.
pub fn apply(diff: &str, before: &str) -> Option<String> {
    let lines: Vec<&str> = before.split_inclusive('\n').collect();
    let mut after = String::with_capacity(before.len());
    let mut next = 0;
    for hunk in parse(diff)? {
        let end = hunk.at.checked_add(hunk.old_lines)?;
        if hunk.at < next || lines.get(hunk.at..end)?.concat() != hunk.old {
            return None;
        }
        after.push_str(&lines[next..hunk.at].concat());
        after.push_str(&hunk.new);
        next = end;
    }
    after.push_str(&lines[next..].concat());
    Some(after)
}

fn parse(diff: &str) -> Option<Vec<Hunk>> {
    let mut hunks: Vec<Hunk> = Vec::new();
    let mut last = ' ';
    for line in diff.split_inclusive('\n') {
        if let Some(head) = line.strip_prefix("@@ -") {
            let (start, count) = head.split_once(' ')?.0.split_once(',').unwrap_or((head.split_once(' ')?.0, "1"));
            let (start, count): (usize, usize) = (start.parse().ok()?, count.parse().ok()?);
            // An empty side is numbered by the line before it.
            let at = if count == 0 { start } else { start.checked_sub(1)? };
            hunks.push(Hunk { at, old: String::new(), new: String::new(), old_lines: 0 });
            continue;
        }
        let Some(hunk) = hunks.last_mut() else { continue };
        let mut chars = line.chars();
        let sign = chars.next()?;
        let text = chars.as_str();
        match sign {
            ' ' | '-' => {
                hunk.old.push_str(text);
                hunk.old_lines += 1;
                if sign == ' ' {
                    hunk.new.push_str(text);
                }
            }
            '+' => hunk.new.push_str(text),
            '\\' if line.starts_with("\\ No newline") => {
                if last != '+' {
                    hunk.old.pop();
                }
                if last != '-' {
                    hunk.new.pop();
                }
            }
            // Truncated, or not a diff.
            _ => return None,
        }
        last = sign;
    }
    (!hunks.is_empty()).then_some(hunks)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diff(old: &str, new: &str) -> String {
        similar::TextDiff::from_lines(old, new).unified_diff().context_radius(1).to_string()
    }

    #[test]
    fn a_diff_restores_the_text_it_was_made_from() {
        let numbers: String = (0..40).map(|n| format!("{n}\n")).collect();
        let changed = numbers.replace("7\n", "seven\n").replace("30\n", "");
        for (old, new) in [
            ("a\nb\n", "a\nB\n"),
            ("", "x\ny\n"),
            ("x\ny\n", ""),
            ("a", "b"),
            ("a\n", "a"),
            ("a", "a\nb"),
            (numbers.as_str(), changed.as_str()),
        ] {
            let diff = diff(old, new);
            assert_eq!(apply(&diff, old).as_deref(), Some(new), "{diff}");
        }
        assert_eq!(
            changed_parts(&diff("a\nb\nc\nd\n", "a\nb\nX\nd\n")),
            Some(("b\nc\nd\n".into(), "b\nX\nd\n".into()))
        );
    }

    #[test]
    fn a_diff_that_does_not_match_is_refused() {
        let diff = diff("a\nb\n", "a\nB\n");
        assert_eq!(apply(&diff, "a\nother\n"), None);
        assert_eq!(apply(&diff, ""), None);
        assert_eq!(changed_parts("nothing of the kind"), None);
        assert_eq!(changed_parts("@@ -1,1 +1,1 @@\n-a\n\\ The diff is cut here\n"), None);
        assert_eq!(changed_parts("@@ -x +1 @@\n"), None);
    }
}
