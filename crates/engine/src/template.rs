//! Command templates: `$ARGUMENTS`, `$1` … `$9`, `` !`shell` `` and `@file`.

/// A piece of a template after its arguments were put in.
#[derive(Debug, PartialEq)]
pub(crate) enum Piece {
    /// Text as it is.
    Text(String),
    /// A shell command whose output stands here.
    Shell(String),
}

/// The placeholders of a template, in the order in which clients list them.
pub(crate) fn hints(template: &str) -> Vec<String> {
    let mut found: Vec<String> =
        (1..=9).map(|n| format!("${n}")).filter(|hint| template.contains(hint.as_str())).collect();
    if template.contains("$ARGUMENTS") {
        found.push("$ARGUMENTS".to_owned());
    }
    found
}

/// Splits an argument line into words; quotes keep a word together.
pub(crate) fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in line.chars() {
        match quote {
            Some(q) if c == q => quote = None,
            Some(_) => word.get_or_insert_default().push(c),
            None if c == '"' || c == '\'' => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c.is_whitespace() => words.extend(word.take()),
            None => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// Puts the arguments in. The highest numbered placeholder takes all words that are left; a template without any
/// placeholder gets the line behind it.
///
/// Shell pieces are those of the template itself: what a caller passes as an argument is never run.
pub(crate) fn expand(template: &str, line: &str) -> Vec<Piece> {
    let words = words(line);
    let last = (1..=9).rev().find(|n| template.contains(&format!("${n}"))).unwrap_or(0);
    let mut pieces = Vec::new();
    let mut text = String::new();
    let mut rest = template;
    while let Some(at) = rest.find(['$', '!']) {
        text.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix("$ARGUMENTS") {
            text.push_str(line);
            rest = after;
        } else if let Some(n) = rest.strip_prefix('$').and_then(|r| r.chars().next()).and_then(|c| c.to_digit(10))
            && n >= 1
        {
            let index = n as usize - 1;
            if n == last {
                text.push_str(&words.get(index..).unwrap_or_default().join(" "));
            } else {
                text.push_str(words.get(index).map_or("", String::as_str));
            }
            rest = &rest[2..];
        } else if let Some(after) = rest.strip_prefix("!`")
            && let Some(end) = after.find('`')
        {
            pieces.push(Piece::Text(std::mem::take(&mut text)));
            pieces.push(Piece::Shell(after[..end].to_owned()));
            rest = &after[end + 1..];
        } else {
            text.push_str(&rest[..1]);
            rest = &rest[1..];
        }
    }
    text.push_str(rest);
    if last == 0 && !template.contains("$ARGUMENTS") && !line.trim().is_empty() {
        text.push_str("\n\n");
        text.push_str(line);
    }
    pieces.push(Piece::Text(text));
    pieces
}

/// The files that a text mentions as `@path`: each path once, in order.
pub(crate) fn mentions(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for (at, _) in text.match_indices('@') {
        let before = text[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '`' || c == '/') {
            continue;
        }
        let path: String =
            text[at + 1..].chars().take_while(|c| c.is_alphanumeric() || "._-/~+".contains(*c)).collect();
        let path = path.trim_end_matches(['.', '-']).to_owned();
        if !path.is_empty() && !found.contains(&path) {
            found.push(path);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn flat(template: &str, line: &str) -> String {
        expand(template, line)
            .into_iter()
            .map(|piece| match piece {
                Piece::Text(text) => text,
                Piece::Shell(command) => format!("[{command}]"),
            })
            .collect()
    }

    #[test]
    fn placeholders_as_recorded() {
        let template = "greet $ARGUMENTS first=$1 second=$2 shell=!`echo sh`";
        assert_eq!(
            flat(template, "Bob \"Mary Ann\""),
            "greet Bob \"Mary Ann\" first=Bob second=Mary Ann shell=[echo sh]"
        );
        assert_eq!(flat(template, "x"), "greet x first=x second= shell=[echo sh]");
        assert_eq!(flat("$1 and $2", "a b c d"), "a and b c d");
        assert_eq!(flat("Do it.", "now"), "Do it.\n\nnow");
        assert_eq!(flat("Do it.", "  "), "Do it.");
        assert_eq!(flat("costs $5! or `x`", ""), "costs ! or `x`");
    }

    #[test]
    fn arguments_are_never_run() {
        assert_eq!(expand("say $ARGUMENTS", "!`rm -rf /`"), [Piece::Text("say !`rm -rf /`".to_owned())]);
    }

    #[test]
    fn mentioned_files() {
        assert_eq!(mentions("see @src/main.rs, and (@README.md). mail a@b.c `@no`"), ["src/main.rs", "README.md"]);
        assert_eq!(hints("$2 $ARGUMENTS $1"), ["$1", "$2", "$ARGUMENTS"]);
    }

    proptest! {
        #[test]
        fn total_on_any_input(template in any::<String>(), line in any::<String>()) {
            let _ = expand(&template, &line);
            let _ = mentions(&template);
        }
    }
}
