//! What bash evaluates as arithmetic, read as text.
//!
//! Evaluation looks up names, evaluates their values in turn, and runs the substitutions in a subscript, even if they
//! were quoted. So only numbers, operators and names are accepted; [`super::vars`] checks the values of the names.

/// Operators that compare numbers inside `[[ … ]]`.
pub(super) const COMPARISONS: &[&str] = &["-eq", "-ne", "-lt", "-le", "-gt", "-ge"];

/// The names that an expression looks up, if it consists only of numbers, operators and names.
pub(super) fn names(text: &str) -> Option<Vec<&str>> {
    let mut names = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if c.is_ascii_digit() {
            rest = rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || matches!(c, '#' | '_'));
        } else if is_name_start(c) {
            let (name, after) = split_name(rest);
            names.push(name);
            rest = after;
        } else if let Some(after) = rest.strip_prefix('$') {
            rest = dollar(after, &mut names)?;
        } else if " \t\n+-*/%<>=!&|^~?:,()[]\"".contains(c) {
            rest = &rest[1..];
        } else {
            return None;
        }
    }
    Some(names)
}

/// What follows an expansion that yields a number, or a name's value.
fn dollar<'a>(after: &'a str, names: &mut Vec<&'a str>) -> Option<&'a str> {
    let first = after.chars().next()?;
    if is_name_start(first) {
        let (name, rest) = split_name(after);
        names.push(name);
        return Some(rest);
    }
    if let Some(rest) = after.strip_prefix(['#', '?', '$', '!']) {
        return Some(rest);
    }
    if after.starts_with("((") || after.starts_with('[') {
        return Some(after);
    }
    if let Some(command) = after.strip_prefix('(') {
        let (command, rest) = command.split_once(')')?;
        return prints_number(command).then_some(rest);
    }
    let (inside, rest) = after.strip_prefix('{')?.split_once('}')?;
    if let Some(counted) = inside.strip_prefix('#') {
        let (_, after) = split_name(counted);
        return matches!(after, "" | "[@]" | "[*]").then_some(rest);
    }
    let (name, after) = split_name(inside);
    names.push(name);
    (!name.is_empty() && is_name_start(name.chars().next()?) && after.is_empty()).then_some(rest)
}

/// The names that are evaluated inside `${…}`; `None` if it does more than look up a value.
pub(super) fn in_expansion(inside: &str) -> Option<Vec<&str>> {
    if let Some(indirect) = inside.strip_prefix('!').filter(|rest| !rest.is_empty()) {
        // `${!x}` uses the value of `x` as a name, which may have a subscript. Lists of names and of keys are harmless.
        let (name, rest) = split_name(indirect);
        return (!name.is_empty() && matches!(rest, "*" | "@" | "[@]" | "[*]")).then(Vec::new);
    }
    let counted =
        inside.strip_prefix('#').filter(|rest| rest.starts_with(|c: char| is_name_char(c) || "@*".contains(c)));
    let parameter = counted.unwrap_or(inside);
    let (name, mut rest) = split_name(parameter);
    if name.is_empty() {
        rest = rest.strip_prefix(['@', '*', '#', '?', '$', '!', '-'])?;
    }
    let mut names = Vec::new();
    if let Some(after) = rest.strip_prefix('[') {
        let end = closing(after)?;
        names.extend(subscript(&after[..end])?);
        rest = &after[end + 1..];
    }
    match rest.strip_prefix(':') {
        Some(range) if !range.starts_with(['-', '=', '?', '+']) => names.extend(self::names(range)?),
        Some(_) => {}
        None if rest == "@P" => return None,
        None if rest.is_empty() || rest.starts_with(['-', '=', '?', '+', '#', '%', '/', '^', ',', '@']) => {}
        None => return None,
    }
    Some(names)
}

/// The names that are evaluated in a subscript.
pub(super) fn subscript(index: &str) -> Option<Vec<&str>> {
    if matches!(index, "@" | "*") { Some(Vec::new()) } else { names(index) }
}

/// Where a bracket that was opened before a text is closed.
fn closing(text: &str) -> Option<usize> {
    let mut open = 1;
    for (at, c) in text.char_indices() {
        match c {
            '[' => open += 1,
            ']' => open -= 1,
            _ => {}
        }
        if open == 0 {
            return Some(at);
        }
    }
    None
}

/// Whether a command always prints a number and nothing else.
pub(super) fn prints_number(command: &str) -> bool {
    if command.contains([';', '&', '`', '(', ')', '{', '}', '\n', '\\', '>', '\'']) || command.contains("||") {
        return false;
    }
    let mut stages = command.split('|').rev();
    let last: Vec<&str> = stages.next().unwrap_or_default().split_whitespace().collect();
    let piped = stages.next().is_some();
    match last[..] {
        ["wc", "-l" | "-w" | "-c" | "-m"] => piped,
        ["wc", "-l" | "-w" | "-c" | "-m", "<", _] | ["nproc"] | ["id", "-u" | "-g"] => !piped,
        ["wc", "-l" | "-w" | "-c" | "-m", file] => file.starts_with('<') && !piped,
        ["grep", "-c", pattern] => piped && !pattern.starts_with('-'),
        ["date", format] => {
            format.strip_prefix("+%").is_some_and(|rest| rest.chars().all(|c| "sN3YmdHMSjuV%".contains(c)))
        }
        ["git", "rev-list", "--count", _] | ["tput", "cols" | "lines"] => !piped,
        _ => false,
    }
}

/// Whether a text is an integer.
pub(super) fn is_integer(text: &str) -> bool {
    let digits = text.trim().strip_prefix('-').unwrap_or(text.trim());
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_name_start(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_'
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn split_name(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c| !is_name_char(c)).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_operators_and_names_are_arithmetic() {
        for (text, want) in [
            ("1 + 0x1f * 16#ff", Some(&[][..])),
            ("i++ < n && (j += $k)", Some(&["i", "n", "j", "k"])),
            ("a[i] + ${b} + ${#c[@]} + $# + $?", Some(&["a", "i", "b"])),
            ("$(date +%s) - $(ls | wc -l)", Some(&[])),
            ("$((x)) + $[y]", Some(&["x", "y"])),
            ("$(cat f)", None),
            ("`x`", None),
            ("a['x']", None),
            ("$1", None),
            ("${x:-1}", None),
            ("${!x}", None),
        ] {
            assert_eq!(names(text).as_deref(), want, "{text}");
        }
    }

    #[test]
    fn expansions() {
        for (inside, want) in [
            ("x", Some(&[][..])),
            ("#x", Some(&[])),
            ("#", Some(&[])),
            ("x:-a[$(b)]", Some(&[])),
            ("x:1:n", Some(&["n"])),
            ("x: -1", Some(&[])),
            ("a[i]", Some(&["i"])),
            ("a[@]", Some(&[])),
            ("!a[@]", Some(&[])),
            ("!x*", Some(&[])),
            ("x##*/", Some(&[])),
            ("@:2", Some(&[])),
            ("!x", None),
            ("!x:-1", None),
            ("a[$(b)]", None),
            ("x:$(b)", None),
            ("x@P", None),
            (" x;", None),
            ("|x;", None),
        ] {
            assert_eq!(in_expansion(inside).as_deref(), want, "{inside}");
        }
    }
}
