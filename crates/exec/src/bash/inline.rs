//! Programs given as an argument: which of them start nothing.
//!
//! Each function accepts the few shapes that people write every day, and refuses everything else.

/// Whether a `sed` script does nothing but edit: no `e`, no reading and writing of files.
pub(super) fn sed(script: &str) -> bool {
    let mut rest = script;
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\n', ';', '{', '}']);
        if rest.is_empty() {
            return true;
        }
        let Some(after) = sed_addresses(rest) else { return false };
        let Some(command) = after.chars().next() else { return false };
        rest = &after[command.len_utf8()..];
        let after = match command {
            '{' => Some(rest),
            'p' | 'd' | '=' | 'n' | 'N' | 'h' | 'H' | 'g' | 'G' | 'x' | 'D' | 'P' | 'q' => Some(rest),
            's' => sed_parts(rest)
                .map(|flags| flags.trim_start_matches(|c: char| "gpiI".contains(c) || c.is_ascii_digit())),
            'y' => sed_parts(rest),
            // Text goes to the end of its line.
            'a' | 'i' | 'c' if !rest.contains('\n') && !rest.ends_with('\\') => return true,
            _ => None,
        };
        match after.map(|after| after.trim_start_matches([' ', '\t'])) {
            Some(after) if after.is_empty() || command == '{' || after.starts_with([';', '\n', '}']) => rest = after,
            _ => return false,
        }
    }
}

/// What follows the addresses of a command.
fn sed_addresses(script: &str) -> Option<&str> {
    let mut rest = script;
    for _ in 0..2 {
        rest = match rest.chars().next() {
            Some('/') => {
                let end = pattern_end(&rest[1..], '/')? + 1;
                rest[end + 1..].trim_start_matches('I')
            }
            Some('$') => &rest[1..],
            Some('0'..='9' | '+' | '~') => rest.trim_start_matches(|c: char| c.is_ascii_digit() || "+~".contains(c)),
            _ => rest,
        };
        rest = rest.trim_start_matches(' ');
        match rest.strip_prefix(',') {
            Some(after) => rest = after.trim_start_matches(' '),
            None => break,
        }
    }
    Some(rest.trim_start_matches(['!', ' ']))
}

/// What follows the two parts of `s` and `y`.
fn sed_parts(rest: &str) -> Option<&str> {
    let mark = rest.chars().next().filter(|c| c.is_ascii_punctuation() && *c != '\\')?;
    let first = pattern_end(&rest[1..], mark)? + 1;
    let second = unescaped(&rest[first + 1..], mark)? + first + 1;
    Some(&rest[second + 1..])
}

/// Where a pattern ends. Implementations disagree about a delimiter inside brackets, so it must not occur there.
fn pattern_end(text: &str, mark: char) -> Option<usize> {
    let end = unescaped(text, mark)?;
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            '[' => {
                let inside = &text[at + 1..];
                let begin = inside.len() - inside.trim_start_matches('^').len();
                let begin = begin + usize::from(inside[begin..].starts_with(']'));
                let close = begin + inside[begin..].find(']')?;
                // Character classes have brackets of their own.
                let class =
                    inside[begin..close].contains("[:") || inside[begin..close].contains("[.") || inside.contains("[=");
                let close = if class { close + 1 + inside[close + 1..].find(']')? } else { close };
                if inside[..close].contains(mark) || inside[..close].contains('\\') {
                    return None;
                }
                while chars.next_if(|(next, _)| *next <= at + 1 + close).is_some() {}
            }
            c if c == mark => return (at == end).then_some(end),
            _ => {}
        }
    }
    None
}

fn unescaped(text: &str, mark: char) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == mark => return Some(at),
            _ => {}
        }
    }
    None
}

/// Whether an `awk` program starts nothing and writes no file.
pub(super) fn awk(program: &str) -> bool {
    // In a pattern these are text, but patterns are not recognised here.
    let strange = ["@", "`", "\\\n", "system", "getline"].iter().any(|piece| program.contains(piece));
    if strange || program.replace("||", "").contains('|') {
        return false;
    }
    program.split([';', '}', '\n']).all(|part| match part.find("print") {
        Some(at) => !part[at..].contains('>'),
        None => true,
    })
}

/// Whether Python code consists only of strings, numbers and well-known names.
#[rustfmt::skip]
pub(super) fn python(code: &str) -> bool {
    const NAMES: &[&str] = &[
        "False", "None", "True", "abs", "and", "bool", "cos", "date", "datetime", "dict", "dumps", "e", "else", "enumerate",
        "executable", "float", "for", "format", "get", "hex", "if", "import", "in", "indent", "int", "is", "items", "join",
        "json", "keys", "len", "list", "load", "loads", "log", "lower", "math", "max", "maxsize", "min", "not", "now", "or",
        "ord", "pi", "platform", "pow", "print", "python_version", "randint", "random", "range", "reversed", "round", "set",
        "sin", "sorted", "split", "sqrt", "stdin", "str", "strip", "sum", "sys", "time", "today", "tuple", "type", "upper",
        "values", "version", "version_info", "zip",
    ];
    names_only(code, NAMES, &[])
}

/// Whether JavaScript code consists only of strings, numbers and well-known names.
#[rustfmt::skip]
pub(super) fn javascript(code: &str) -> bool {
    const NAMES: &[&str] = &[
        "Date", "JSON", "Math", "Object", "arch", "console", "const", "dependencies", "devDependencies", "error", "false",
        "floor", "keys", "length", "let", "log", "max", "min", "new", "node", "now", "null", "parse", "platform", "process",
        "round", "scripts", "sqrt", "stringify", "true", "undefined", "v8", "version", "versions",
    ];
    // With brackets, a name can be built from strings.
    !code.contains(['[', '`', '\\']) && names_only(code, NAMES, &["require"])
}

/// Whether code outside strings has only these names, and names of one letter. `readers` take a string that names data.
fn names_only(code: &str, names: &[&str], readers: &[&str]) -> bool {
    let mut rest = code;
    let mut reads = false;
    while let Some(c) = rest.chars().next() {
        match c {
            '\'' | '"' => {
                let inside = &rest[1..];
                let Some(end) = unescaped(inside, c) else { return false };
                let data = inside[..end].starts_with("./") && inside[..end].ends_with(".json");
                if std::mem::take(&mut reads) && !data {
                    return false;
                }
                // Three quotes begin another kind of string.
                if inside[end + 1..].starts_with(c) {
                    return false;
                }
                rest = &inside[end + 1..];
            }
            c if c.is_ascii_alphabetic() || c == '_' => {
                let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
                let (name, after) = rest.split_at(end);
                // A letter before a string can turn it into code.
                if after.starts_with(['\'', '"']) || reads {
                    return false;
                }
                reads = readers.contains(&name) && after.starts_with("('") | after.starts_with("(\"");
                if name.len() > 1 && !names.contains(&name) && !reads {
                    return false;
                }
                rest = after;
            }
            c if c.is_ascii() && c != '`' && c != '\\' => rest = &rest[1..],
            _ => return false,
        }
    }
    !reads
}

/// Whether Perl code is a substitution of plain text.
pub(super) fn perl(code: &str) -> bool {
    let Some(body) = code.trim_end_matches(';').strip_prefix("s/") else { return false };
    let parts: Vec<&str> = body.split('/').collect();
    let [from, to, flags] = parts[..] else { return false };
    let plain = |text: &str| !text.contains(['@', '`', '\\', '{', '$', '(']);
    plain(from) && plain(to) && flags.chars().all(|c| "gim".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_editing_sed_scripts_are_taken() {
        for script in [
            "s/a/b/",
            "s/a/b/g; s|x|y|",
            "1,5p",
            "/x/d",
            "$p",
            "/a/,/b/{p;d}",
            "10q",
            "s/[a-z]*/x/2p",
            "s/[[:space:]]*$//",
            "a text",
            "2!d",
        ] {
            assert!(sed(script), "{script}");
        }
        for script in [
            "e",
            "1e rm x",
            "s/a/b/e",
            "s/a/b/ge",
            "s/a/b/w f",
            "w f",
            "r f",
            "s/a/b/;e rm",
            "/x/e",
            "p;1e",
            "s,a,b,e",
            "y/a/b/;e",
            "a\\\nx\ne rm",
            "s/a/b/\ne",
            "{e}",
            "/a/s//b/e",
            "s/[/]/;p;/e",
            "s/[[:alpha:]/]/;p;/e;/p",
            "s/[^]/]/;p;/e;/p",
        ] {
            assert!(!sed(script), "{script}");
        }
    }

    #[test]
    fn only_printing_awk_programs_are_taken() {
        for program in [
            "{print $1}",
            "NR==5",
            "$3 > 100 {print $1}",
            "BEGIN{FS=\":\"} {n+=$2} END{print n}",
            "a || b",
            "{print $1 \"\\t\" $2}",
        ] {
            assert!(awk(program), "{program}");
        }
        for program in [
            "BEGIN{system(\"rm x\")}",
            "{print | \"sh\"}",
            "{\"rm x\" | getline}",
            "{print > \"/etc/x\"}",
            "@load \"x\"",
            "BEGIN{f=\"sys\" \"tem\"; @f(\"rm\")}",
        ] {
            assert!(!awk(program), "{program}");
        }
    }

    #[test]
    fn only_plain_code_is_taken() {
        for code in
            ["print(1+1)", "import sys; print(sys.version)", "import json,sys; print(json.load(sys.stdin)['a'])"]
        {
            assert!(python(code), "{code}");
        }
        for code in
            ["import os", "__import__('os')", "exec('x')", "f'{x}'", "sys.modules['os'].system('x')", "open('x')"]
        {
            assert!(!python(code), "{code}");
        }
        assert!(javascript("console.log(require('./package.json').version)"));
        for code in ["require('child_process')", "console.log.constructor('x')()", "console['log']", "import('x')"] {
            assert!(!javascript(code), "{code}");
        }
        assert!(perl("s/a/b/g") && !perl("s/a/b/e") && !perl("s/a/@{[x]}/") && !perl("system 'x'"));
    }
}
