//! What other shells read differently.
//!
//! A script for `sh` is also read with bash's grammar, so it may contain only what means the same in both shells.

use tree_sitter::Node;

/// Whether a node, apart from its children, means the same in bash and in a plain POSIX shell.
pub(super) fn is_common(node: Node<'_>, text: &str) -> bool {
    match node.kind() {
        "ansi_c_string"
        | "array"
        | "brace_expression"
        | "c_style_for_statement"
        | "extglob_pattern"
        | "herestring_redirect"
        | "process_substitution"
        | "subscript"
        | "translated_string"
        | "|&"
        | ";&"
        | ";;&"
        | "&>"
        | "&>>"
        | "select"
        | "+=" => false,
        "test_command" => !text.starts_with("[["),
        "compound_statement" => !text.starts_with("(("),
        "arithmetic_expansion" => text.starts_with("$(("),
        "declaration_command" => text.starts_with("export") || text.starts_with("readonly"),
        "expansion" => text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}')).is_some_and(is_common_expansion),
        // With a word that is not a number, bash writes to a file.
        "file_redirect" => match text.find(">&").or(text.find("<&")) {
            Some(at) => text[at + 2..].trim().chars().all(|c| c.is_ascii_digit() || c == '-'),
            None => true,
        },
        "word" | "concatenation" => !(text.contains('{') && (text.contains(',') || text.contains(".."))),
        _ => true,
    }
}

fn is_common_expansion(inside: &str) -> bool {
    let name_end = |text: &str| text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    if let Some(counted) = inside.strip_prefix('#') {
        return name_end(counted) == counted.len();
    }
    let end = name_end(inside).max(usize::from(inside.starts_with(['@', '*', '?', '$', '!', '-'])));
    let operator = &inside[end..];
    end > 0
        && (operator.is_empty()
            || ["-", "=", "?", "+", "#", "%", ":-", ":=", ":?", ":+"].iter().any(|known| operator.starts_with(known)))
}
