//! Questions about single nodes and pieces of text, where the grammar and bash may not agree.

use tree_sitter::{Node, Tree};

/// Nodes in which bash evaluates arithmetic.
const ARITHMETIC: &[&str] = &[
    "arithmetic_expansion",
    "binary_expression",
    "subscript",
    "ternary_expression",
    "unary_expression",
    "variable_assignment",
];

/// Whether all nodes begin and end between characters, so that the source can be cut there. The grammar saw bytes.
pub(super) fn cuts_no_character(tree: &Tree, source: &str) -> bool {
    if source.is_ascii() {
        return true;
    }
    let mut cursor = tree.walk();
    loop {
        let range = cursor.node().byte_range();
        if !source.is_char_boundary(range.start) || !source.is_char_boundary(range.end) {
            return false;
        }
        if cursor.goto_first_child() {
            continue;
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() {
                return true;
            }
        }
    }
}

/// Whether a token is a word that bash recognises only on its own.
pub(super) fn is_keyword(node: Node<'_>, parent: Node<'_>) -> bool {
    match parent.kind() {
        "expansion" | "binary_expression" | "brace_expression" => false,
        "test_command" => matches!(node.kind(), "[" | "]" | "[[" | "]]"),
        _ => matches!(node.kind(), "!" | "{" | "}") || node.kind().starts_with(|c: char| c.is_ascii_alphabetic()),
    }
}

/// Whether a part of a command is, or ends with, a word.
pub(super) fn is_word(node: Node<'_>) -> bool {
    node.kind() == "$" || (node.is_named() && !matches!(node.kind(), "comment" | "file_descriptor"))
}

/// Whether text is blanks between words; a continued line must not join two words that the grammar separates.
pub(super) fn is_blank(gap: &str) -> bool {
    if matches!(gap, "" | " ") {
        return true;
    }
    let joined = gap.replace("\\\n", "");
    joined.chars().all(|c| matches!(c, ' ' | '\t' | '\n')) && (gap.is_empty() || !joined.is_empty())
}

/// Whether a text has one of these characters unescaped.
pub(super) fn has_bare(text: &str, is: impl Fn(char) -> bool) -> bool {
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c == '\\' {
            chars.next();
        } else if is(c) {
            return true;
        }
    }
    false
}

/// Whether a text has no unescaped substitution or expansion in braces.
pub(super) fn is_plain(text: &str) -> bool {
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            '`' => return false,
            // A line continuation here can complete a substitution.
            '$' if matches!(chars.peek(), Some('(' | '{' | '[' | '\\')) => return false,
            _ => {}
        }
    }
    true
}

/// Whether a node is the value of a variable.
pub(super) fn is_expansion(node: Node<'_>) -> bool {
    matches!(node.kind(), "simple_expansion" | "expansion")
}

/// Whether bash evaluates the content of a node of this kind as arithmetic. `outside`: whether it does so around it.
pub(super) fn is_arithmetic(kind: &str, outside: bool) -> bool {
    ARITHMETIC.contains(&kind)
        || (outside && matches!(kind, "concatenation" | "string" | "array" | "parenthesized_expression"))
}

/// The delimiter of a here-document without its quotes, and whether it had any.
pub(super) fn delimiter(source: &str) -> (&str, bool) {
    for quote in ['\'', '"'] {
        if let Some(inside) = source.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote)) {
            return (inside, true);
        }
    }
    match source.strip_prefix('\\') {
        Some(rest) => (rest, true),
        None => (source, false),
    }
}
