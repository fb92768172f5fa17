//! What bash evaluates: arithmetic, subscripts, `[[ … ]]` and expansions. Evaluating runs substitutions even if they were quoted.

use tree_sitter::Node;

use super::super::vars::Value;
use super::super::word::Word;
use super::super::{MAX_DEPTH, arith, names, wrap};
use super::Walker;

/// Nodes of `[ … ]` that contain its words.
const EXPRESSIONS: &[&str] = &[
    "binary_expression",
    "parenthesized_expression",
    "postfix_expression",
    "ternary_expression",
    "test_command",
    "unary_expression",
];

/// A placeholder for what cannot be read as arithmetic: no expression contains it.
const NOT_ARITHMETIC: &str = "`";

impl<'t> Walker<'_, 't> {
    /// Checks what bash evaluates in a node, before its children are visited.
    pub(super) fn check_evaluated(&mut self, node: Node<'t>, kind: &str) {
        let text = self.text(node);
        match kind {
            "command_substitution" => {
                // Between backticks bash first removes backslashes, and the next backtick ends the substitution.
                let inside = text.strip_prefix('`').map(|rest| rest.strip_suffix('`').unwrap_or(rest));
                if inside.is_some_and(|inside| inside.contains(['`', '\\'])) {
                    self.opaque(node);
                }
                // Bash tries to read it as arithmetic first.
                if let Some(rest) = text.strip_prefix("$((") {
                    self.check_arithmetic(node, rest.strip_suffix("))").unwrap_or(NOT_ARITHMETIC));
                }
            }
            "arithmetic_expansion" => {
                let inside = text.strip_prefix("$((").and_then(|rest| rest.strip_suffix("))"));
                let inside = inside.or_else(|| text.strip_prefix("$[").and_then(|rest| rest.strip_suffix(']')));
                self.check_arithmetic(node, inside.unwrap_or(NOT_ARITHMETIC));
            }
            // Bash first tries to read two open parentheses as arithmetic.
            "compound_statement" | "subshell" => {
                if let Some(rest) = text.strip_prefix("((") {
                    self.check_arithmetic(node, rest.strip_suffix("))").unwrap_or(NOT_ARITHMETIC));
                }
            }
            "c_style_for_statement" => {
                let head = node
                    .child_by_field_name("body")
                    .map_or("", |body| &self.source[node.start_byte()..body.start_byte()]);
                let head = head.trim_end_matches([' ', '\t', '\n', ';']).strip_suffix("))");
                let head = head.and_then(|head| head.split_once("((")).map_or(NOT_ARITHMETIC, |(_, head)| head);
                head.split(';').for_each(|part| self.check_arithmetic(node, part));
            }
            "subscript" => {
                let index = text.split_once('[').and_then(|(_, rest)| rest.strip_suffix(']'));
                self.check_names(node, arith::subscript(index.unwrap_or(NOT_ARITHMETIC)));
            }
            "array" => {
                let mut cursor = node.walk();
                for element in node.named_children(&mut cursor) {
                    if let Some(rest) = self.text(element).strip_prefix('[') {
                        self.check_names(node, rest.split_once("]=").and_then(|(index, _)| arith::subscript(index)));
                    }
                }
            }
            "test_command" => self.test(node, text),
            "expansion" => self.check_expansion(node),
            _ => {}
        }
    }

    /// Only numbers, and names that hold numbers, may be evaluated as arithmetic.
    fn check_arithmetic(&mut self, node: Node<'t>, text: &str) {
        self.check_names(node, arith::names(text));
    }

    fn check_names(&mut self, node: Node<'t>, names: Option<Vec<&str>>) {
        match names {
            Some(names) if !names.iter().any(|name| names::is_dangerous(name)) => {
                let snippet = self.text(node).trim();
                names.iter().for_each(|name| self.state.vars.evaluate(name, snippet));
            }
            _ => self.opaque(node),
        }
    }

    /// `[[ a -eq b ]]` evaluates its operands, and `-v` the subscript of its operand.
    fn test(&mut self, node: Node<'t>, text: &str) {
        let mut words = Vec::new();
        let mut found = 0;
        self.test_words(node, text.starts_with("[["), 0, &mut words, &mut found);
        let snippet = text.trim();
        if !text.starts_with("[[") {
            // They are words like those of any command.
            if words.windows(2).any(|pair| pair[0].1 == pair[1].0) {
                self.opaque(node);
            }
            let words: Vec<Word> = words.into_iter().map(|(_, _, word)| word).collect();
            let inner = wrap::test(words.get(1..words.len().max(2) - 1).unwrap_or_default());
            return inner.into_iter().for_each(|inner| self.inner("[", inner, snippet));
        }
        let joined = text.replace("\\\n", "");
        let seen = joined.split([' ', '\t', '\n']).filter(|word| evaluates(word)).count();
        if seen != found {
            self.opaque(node);
        }
    }

    /// Collects the words of a test with their positions, and checks what `[[` evaluates.
    fn test_words(
        &mut self,
        node: Node<'t>,
        double: bool,
        depth: usize,
        words: &mut Vec<(usize, usize, Word)>,
        found: &mut usize,
    ) {
        if depth > MAX_DEPTH {
            return self.opaque(node);
        }
        if !EXPRESSIONS.contains(&node.kind()) {
            let word = if node.is_named() { Word::read(node, self.source) } else { Word::literal(self.text(node)) };
            let word = if node.kind() == "test_operator" { Word::literal(self.text(node)) } else { word };
            words.push((node.start_byte(), node.end_byte(), word));
            return;
        }
        let operator = node.child_by_field_name("operator").map(|operator| self.text(operator)).unwrap_or_default();
        if double && evaluates(operator) {
            *found += 1;
            let mut cursor = node.walk();
            let operands: Vec<Node<'t>> =
                node.named_children(&mut cursor).filter(|child| child.kind() != "test_operator").collect();
            for operand in operands {
                if arith::COMPARISONS.contains(&operator) {
                    self.check_arithmetic(node, self.text(operand));
                } else if !names::is_variable(self.text(operand)) {
                    self.opaque(node);
                }
            }
        }
        let mut cursor = node.walk();
        for child in node.children(&mut cursor) {
            self.test_words(child, double, depth + 1, words, found);
        }
    }

    /// `${x@P}` runs what is in `x`, and `${x:=y}` is an assignment.
    fn check_expansion(&mut self, node: Node<'t>) {
        let mut cursor = node.walk();
        let kinds: Vec<&str> = node.children(&mut cursor).map(|child| child.kind()).collect();
        let name = node.named_child(0).map(|child| self.text(child)).unwrap_or_default();
        let assigns = kinds.iter().any(|kind| matches!(*kind, "=" | ":="));
        if kinds.windows(2).any(|pair| pair == ["@", "P"]) || (assigns && names::is_dangerous(name)) {
            self.opaque(node);
        }
        if assigns {
            self.state.vars.set(name, Value::Unknown);
        }
        let inside = self.text(node).strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
        self.check_names(node, inside.and_then(arith::in_expansion));
    }
}

/// Whether an operator of `[[` evaluates its operands.
fn evaluates(operator: &str) -> bool {
    arith::COMPARISONS.contains(&operator) || matches!(operator, "-v" | "-R")
}
