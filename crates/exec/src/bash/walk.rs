//! Walks the syntax tree, and accepts only what it knows.

mod command;
mod evaluate;
mod redirect;
mod scope;

use tree_sitter::{Node, Tree, TreeCursor};

use super::check::{has_bare, is_arithmetic, is_blank, is_expansion, is_keyword, is_plain, is_word};
use super::state::State;
use super::{MAX_DEPTH, Shell, names, posix};

/// Nodes that only contain others; what bash evaluates in them is checked separately.
const CONTAINERS: &[&str] = &[
    "arithmetic_expansion",
    "array",
    "binary_expression",
    "brace_expression",
    "case_statement",
    "command_name",
    "compound_statement",
    "concatenation",
    "expansion",
    "herestring_redirect",
    "negated_command",
    "parenthesized_expression",
    "postfix_expression",
    "program",
    "simple_expansion",
    "subscript",
    "ternary_expression",
    "test_command",
    "translated_string",
    "unary_expression",
    "variable_assignments",
];

/// Nodes whose variables may not be set afterwards.
const SCOPES: &[&str] = &[
    "c_style_for_statement",
    "case_item",
    "command_substitution",
    "do_group",
    "elif_clause",
    "else_clause",
    "if_statement",
    "process_substitution",
    "subshell",
    "while_statement",
];

/// Nodes in which a newline would begin another command.
const ONE_LINE: &[&str] = &[
    "command",
    "declaration_command",
    "file_redirect",
    "herestring_redirect",
    "negated_command",
    "redirected_statement",
    "unset_command",
];

/// Nodes whose parts touch each other.
const SOLID: &[&str] = &["command_name", "concatenation", "simple_expansion", "variable_assignment"];

/// Reports everything in a tree.
pub(super) fn walk(source: &str, tree: &Tree, shell: Shell, nested: usize, state: &mut State) {
    let root = tree.root_node();
    if root.has_error() {
        state.add_opaque(source.trim());
    }
    let mut walker = Walker { source, cursor: root.walk(), shell, nested, inside: false, state };
    let edges = [&source[..root.start_byte()], &source[root.end_byte()..]];
    if edges.iter().any(|edge| !is_blank(edge)) {
        walker.state.add_opaque(source.trim());
    }
    walker.visit(root, Place { parent: root, arithmetic: false, depth: 0 });
}

/// Where in the tree the walker is. Kept on the way down, since a node finds its parent only from the root.
#[derive(Clone, Copy)]
struct Place<'t> {
    parent: Node<'t>,
    /// Whether bash evaluates arithmetic here, which runs substitutions even if they were quoted.
    arithmetic: bool,
    depth: usize,
}

impl<'t> Place<'t> {
    fn inside(self, parent: Node<'t>) -> Place<'t> {
        Place { parent, arithmetic: is_arithmetic(parent.kind(), self.arithmetic), depth: self.depth + 1 }
    }
}

struct Walker<'a, 't> {
    source: &'a str,
    /// For [`children_of`](Self::children_of): a new cursor for each node would cost as much as its children.
    cursor: TreeCursor<'t>,
    shell: Shell,
    nested: usize,
    /// Whether the input consists only of names of files below the working directory.
    inside: bool,
    state: &'a mut State,
}

impl<'a, 't> Walker<'a, 't> {
    fn text(&self, node: Node<'t>) -> &'a str {
        &self.source[node.byte_range()]
    }

    fn opaque(&mut self, node: Node<'t>) {
        self.state.add_opaque(self.text(node).trim());
    }

    fn visit(&mut self, node: Node<'t>, place: Place<'t>) {
        if place.depth > MAX_DEPTH {
            return self.opaque(node);
        }
        let kind = node.kind();
        let children = self.children_of(node);
        self.check_gaps(node, kind, &children);
        let text = self.text(node);
        let opens = self.source[node.end_byte()..].starts_with(['<', '>']);
        // A redirect sets the variable before it.
        let sets = opens && text.starts_with('{') && text.ends_with('}') && kind != "compound_statement";
        // A number before a redirect is not a word.
        let descriptor = opens && place.parent.kind() == "command" && text.bytes().all(|byte| byte.is_ascii_digit());
        if sets || descriptor || (self.shell == Shell::Posix && !posix::is_common(node, text)) {
            self.opaque(node);
        }
        let plain = matches!(kind, "raw_string" | "string_content" | "variable_name" | "word") || !node.is_named();
        if plain && children.is_empty() && !node.is_error() && !node.is_missing() {
            return self.leaf(node, kind, place);
        }
        match kind {
            "command" => self.command(node, &children, &[], place),
            "declaration_command" | "unset_command" => self.declaration(node, &children, &[], place),
            "redirected_statement" => self.redirected(node, children, place),
            "file_redirect" => {
                if !self.redirect(node, place).is_empty() {
                    self.opaque(node);
                }
            }
            "heredoc_redirect" => {
                if !self.heredoc(node, place).is_empty() {
                    self.opaque(node);
                }
            }
            "function_definition" => {
                // From here on its name means something else, with unknown arguments.
                self.opaque(node);
                self.scoped(node, &children, place);
            }
            "variable_assignment" => {
                self.children(node, &children, place);
                self.assign(node);
            }
            "for_statement" => self.for_loop(node, &children, place),
            "pipeline" => self.pipeline(node, &children, place),
            "list" => self.list(node, &children, place),
            "string" => {
                self.check_text(node);
                self.children(node, &children, place);
            }
            kind if SCOPES.contains(&kind) => {
                self.check_evaluated(node, kind);
                self.scoped(node, &children, place);
            }
            kind if CONTAINERS.contains(&kind) => {
                self.check_evaluated(node, kind);
                self.children(node, &children, place);
            }
            _ if node.is_error() || node.is_missing() || (node.is_named() && !children.is_empty()) => {
                // "number" may contain a substitution after its base.
                if kind != "number" {
                    self.opaque(node);
                }
                self.children(node, &children, place);
            }
            _ => self.leaf(node, kind, place),
        }
    }

    fn children_of(&mut self, node: Node<'t>) -> Vec<Node<'t>> {
        if node.child_count() == 0 { Vec::new() } else { node.children(&mut self.cursor).collect() }
    }

    fn children(&mut self, node: Node<'t>, children: &[Node<'t>], place: Place<'t>) {
        let inside = place.inside(node);
        for child in children {
            self.visit(*child, inside);
        }
    }

    /// Between two nodes there may be blanks and nothing else: the grammar also skips what bash would not.
    fn check_gaps(&mut self, node: Node<'t>, kind: &str, children: &[Node<'t>]) {
        if children.is_empty() || matches!(kind, "string" | "heredoc_body" | "heredoc_redirect" | "expansion") {
            return;
        }
        let line = ONE_LINE.contains(&kind);
        let solid = SOLID.contains(&kind);
        let mut before: Option<Node<'t>> = None;
        for child in children.iter().copied() {
            let start = before.map_or(node.start_byte(), |before| before.end_byte());
            let gap = self.source.get(start..child.start_byte()).unwrap_or_default();
            let sound = if gap == " " {
                !solid
            } else if solid {
                gap.is_empty()
            } else if before.is_some_and(|before| gap.is_empty() && is_word(before) && is_word(child)) {
                // Two words in the grammar, one in bash; but a redirect may follow a word directly.
                !line || child.kind().ends_with("_redirect")
            } else if line {
                is_blank(gap) && !gap.replace("\\\n", "").contains('\n')
            } else {
                is_blank(gap) || (gap == "\\\n" && matches!(kind, "list" | "pipeline"))
            };
            if !sound {
                self.opaque(node);
            }
            before = Some(child);
        }
    }

    /// A leaf must not contain what bash would not read as part of it.
    fn leaf(&mut self, node: Node<'t>, kind: &str, place: Place<'t>) {
        let text = self.text(node);
        let sound = match kind {
            // A process substitution where the grammar sees a comparison.
            "<" | ">" => !self.source[node.end_byte()..].starts_with('('),
            _ if !node.is_named() => !is_keyword(node, place.parent) || self.stands_alone(node),
            "word" => !has_bare(text, |c| ";|&()<>'\"`\n \t".contains(c)) && is_plain(text),
            "comment" => self.begins_word(node),
            // The names of positional parameters are digits.
            "variable_name" if is_expansion(place.parent) => {
                text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            }
            "variable_name" => names::is_variable(text) && !names::is_dangerous(text),
            "regex" | "extglob_pattern" => {
                !has_bare(text, |c| "`\"'".contains(c)) && is_plain(text) && !text.contains("<(")
            }
            "raw_string" | "ansi_c_string" => true,
            "file_descriptor" => text.bytes().all(|byte| byte.is_ascii_digit()) && self.begins_word(node),
            "special_variable_name" | "test_operator" | "number" | "string_content" => true,
            _ => false,
        };
        let evaluated = place.arithmetic
            && matches!(kind, "word" | "raw_string" | "ansi_c_string" | "string_content")
            && (text.contains('`') || text.replace('\\', "").contains("$("));
        if !sound || evaluated {
            self.opaque(place.parent);
        }
    }

    /// A keyword that touches other text is not a keyword.
    fn stands_alone(&self, node: Node<'t>) -> bool {
        let delimits = |c: char| c.is_ascii_whitespace() || ";&|()<>`".contains(c);
        let before = self.source[..node.start_byte()].chars().next_back();
        let after = self.source[node.end_byte()..].chars().next();
        before.is_none_or(delimits) && after.is_none_or(delimits)
    }

    /// A `#` inside a word does not begin a comment, and a number in it is not a descriptor.
    fn begins_word(&self, node: Node<'t>) -> bool {
        let before = &self.source[..node.start_byte()];
        !before.ends_with("\\\n")
            && (before.is_empty() || before.ends_with(['\n', ' ', '\t', ';', '&', '|', '(', ')', '`']))
    }

    /// The text of a string or here-document must not contain a substitution that the grammar read as text.
    fn check_text(&mut self, node: Node<'t>) {
        let mut cursor = node.walk();
        let mut at = node.start_byte();
        let mut sound = true;
        let expansions = ["arithmetic_expansion", "command_substitution", "expansion", "simple_expansion"];
        for child in node.named_children(&mut cursor).filter(|child| expansions.contains(&child.kind())) {
            sound &= is_plain(self.source.get(at..child.start_byte()).unwrap_or_default());
            at = child.end_byte();
        }
        sound &= is_plain(self.source.get(at..node.end_byte()).unwrap_or_default());
        if !sound {
            self.opaque(node);
        }
    }
}
