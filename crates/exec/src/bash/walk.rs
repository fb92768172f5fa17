//! Walks the syntax tree, and takes nothing that it does not know.

use tree_sitter::{Node, Tree};

use super::check::{delimiter, has_bare, is_arithmetic, is_blank, is_expansion, is_keyword, is_plain, is_word};
use super::state::{self, Purpose, State};
use super::vars::{Piece, Value};
use super::word::Word;
use super::wrap::{self, Inner};
use super::{MAX_COMMANDS, MAX_DEPTH, MAX_NESTED, Shell, Simple, arith, names, paths, posix, read};

/// Nodes that do nothing but contain others.
const CONTAINERS: &[&str] = &[
    "binary_expression",
    "brace_expression",
    "case_statement",
    "command_name",
    "concatenation",
    "herestring_redirect",
    "negated_command",
    "parenthesized_expression",
    "postfix_expression",
    "program",
    "simple_expansion",
    "ternary_expression",
    "translated_string",
    "unary_expression",
    "variable_assignments",
];

/// Nodes whose variables are not known to be set behind them.
const SCOPES: &[&str] = &[
    "case_item",
    "do_group",
    "elif_clause",
    "else_clause",
    "if_statement",
    "process_substitution",
    "subshell",
    "while_statement",
];

/// Nodes of `[ … ]` that contain its words.
const EXPRESSIONS: &[&str] = &[
    "binary_expression",
    "parenthesized_expression",
    "postfix_expression",
    "ternary_expression",
    "test_command",
    "unary_expression",
];

/// Nodes in which a line's end would begin another command.
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
    let mut walker = Walker { source, shell, nested, inside: false, state };
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

struct Walker<'a> {
    source: &'a str,
    shell: Shell,
    nested: usize,
    /// Whether names of files below the working directory, and nothing else, come in.
    inside: bool,
    state: &'a mut State,
}

impl<'a> Walker<'a> {
    fn text(&self, node: Node<'_>) -> &'a str {
        &self.source[node.byte_range()]
    }

    fn opaque(&mut self, node: Node<'_>) {
        self.state.add_opaque(self.text(node).trim());
    }

    fn visit(&mut self, node: Node<'_>, place: Place<'_>) {
        if place.depth > MAX_DEPTH {
            return self.opaque(node);
        }
        self.check_gaps(node);
        let text = self.text(node);
        let opens = self.source[node.end_byte()..].starts_with(['<', '>']);
        // A redirect sets the variable before it.
        let sets = opens && text.starts_with('{') && text.ends_with('}') && node.kind() != "compound_statement";
        // A number before a redirect is no word.
        let descriptor = opens && place.parent.kind() == "command" && text.bytes().all(|byte| byte.is_ascii_digit());
        if sets || descriptor || (self.shell == Shell::Posix && !posix::is_common(node, text)) {
            self.opaque(node);
        }
        let kind = node.kind();
        let plain = matches!(kind, "raw_string" | "string_content" | "variable_name" | "word") || !node.is_named();
        if plain && node.child_count() == 0 && !node.is_error() && !node.is_missing() {
            return self.leaf(node, kind, place);
        }
        match kind {
            "command" => self.command(node, &[], place),
            "declaration_command" | "unset_command" => self.declaration(node, &[], place),
            "redirected_statement" => self.redirected(node, place),
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
                // From here on its name means something else, with arguments that we do not see.
                self.opaque(node);
                self.scoped(node, place);
            }
            "command_substitution" => {
                // Between backticks bash takes backslashes away first, and the next backtick is the end.
                let inside = self.text(node).strip_prefix('`').map(|rest| rest.strip_suffix('`').unwrap_or(rest));
                if inside.is_some_and(|inside| inside.contains(['`', '\\'])) {
                    self.opaque(node);
                }
                // Bash takes it for arithmetic first.
                if let Some(rest) = text.strip_prefix("$((") {
                    self.check_arithmetic(node, rest.strip_suffix("))").unwrap_or("`"));
                }
                self.scoped(node, place);
            }
            "arithmetic_expansion" => {
                let inside = text.strip_prefix("$((").and_then(|rest| rest.strip_suffix("))"));
                let inside = inside.or_else(|| text.strip_prefix("$[").and_then(|rest| rest.strip_suffix(']')));
                self.check_arithmetic(node, inside.unwrap_or("`"));
                self.children(node, place);
            }
            "compound_statement" => {
                if let Some(rest) = text.strip_prefix("((") {
                    self.check_arithmetic(node, rest.strip_suffix("))").unwrap_or("`"));
                }
                self.children(node, place);
            }
            "c_style_for_statement" => {
                let head = node
                    .child_by_field_name("body")
                    .map_or("", |body| &self.source[node.start_byte()..body.start_byte()]);
                let head = head.trim_end_matches([' ', '\t', '\n', ';']).strip_suffix("))");
                let head = head.and_then(|head| head.split_once("((")).map_or("`", |(_, head)| head);
                head.split(';').for_each(|part| self.check_arithmetic(node, part));
                self.scoped(node, place);
            }
            "subscript" => {
                let index = text.split_once('[').and_then(|(_, rest)| rest.strip_suffix(']')).unwrap_or("`");
                self.check_names(node, arith::subscript(index));
                self.children(node, place);
            }
            "array" => {
                let mut cursor = node.walk();
                for element in node.named_children(&mut cursor) {
                    if let Some(rest) = self.text(element).strip_prefix('[') {
                        self.check_names(node, rest.split_once("]=").and_then(|(index, _)| arith::subscript(index)));
                    }
                }
                self.children(node, place);
            }
            "test_command" => {
                self.test(node, text);
                self.children(node, place);
            }
            "variable_assignment" => {
                self.children(node, place);
                self.assign(node);
            }
            "for_statement" => self.for_loop(node, place),
            "pipeline" => self.pipeline(node, place),
            "list" => self.list(node, place),
            kind if SCOPES.contains(&kind) => {
                // Bash takes two open parentheses for arithmetic first.
                if let Some(rest) = text.strip_prefix("((").filter(|_| kind == "subshell") {
                    self.check_arithmetic(node, rest.strip_suffix("))").unwrap_or("`"));
                }
                self.scoped(node, place);
            }
            "expansion" => {
                self.check_expansion(node);
                self.children(node, place);
            }
            "string" => {
                self.check_text(node);
                self.children(node, place);
            }
            kind if CONTAINERS.contains(&kind) => self.children(node, place),
            _ if node.is_error() || node.is_missing() || (node.is_named() && node.child_count() > 0) => {
                // "number" may contain a substitution after its base.
                if node.kind() != "number" {
                    self.opaque(node);
                }
                self.children(node, place);
            }
            _ => self.leaf(node, kind, place),
        }
    }

    fn children(&mut self, node: Node<'_>, place: Place<'_>) {
        let mut cursor = node.walk();
        let inside = place.inside(node);
        for child in node.children(&mut cursor) {
            self.visit(child, inside);
        }
    }

    /// Visits what is inside, and forgets which variables are set there.
    fn scoped(&mut self, node: Node<'_>, place: Place<'_>) {
        let certain = self.state.vars.certain();
        self.children(node, place);
        self.state.vars.restore(certain);
    }

    /// What is evaluated as arithmetic must be numbers, and names that hold numbers.
    fn check_arithmetic(&mut self, node: Node<'_>, text: &str) {
        self.check_names(node, arith::names(text));
    }

    fn check_names(&mut self, node: Node<'_>, names: Option<Vec<&str>>) {
        match names {
            Some(names) if !names.iter().any(|name| names::is_dangerous(name)) => {
                let snippet = self.text(node).trim();
                names.iter().for_each(|name| self.state.vars.evaluate(name, snippet));
            }
            _ => self.opaque(node),
        }
    }

    /// Notes what a variable is set to.
    fn assign(&mut self, node: Node<'_>) {
        let Some(target) = node.child_by_field_name("name") else { return self.opaque(node) };
        let name = self.text(target).split('[').next().unwrap_or_default();
        let value = match node.child_by_field_name("value") {
            None => Value::Text(String::new()),
            Some(value) if value.kind() == "array" => {
                let mut cursor = value.walk();
                let numbers = value.named_children(&mut cursor).all(|element| arith::is_integer(self.text(element)));
                if numbers { Value::Number } else { Value::Unknown }
            }
            Some(value) => state::value(&Word::read(value, self.source)),
        };
        let number = match &value {
            Value::Number => true,
            Value::Text(text) => arith::is_integer(text),
            _ => false,
        };
        let head = node.child_by_field_name("value").map_or(node.end_byte(), |value| value.start_byte());
        let appends = self.source[node.start_byte()..head].ends_with("+=");
        if names::is_integer(name) && !number {
            self.opaque(node);
        }
        self.state.vars.set(name, if appends && !number { Value::Unknown } else { value });
    }

    fn for_loop(&mut self, node: Node<'_>, place: Place<'_>) {
        let certain = self.state.vars.certain();
        let mut cursor = node.walk();
        let values: Vec<Value> =
            node.children_by_field_name("value", &mut cursor).map(|value| self.loop_value(value)).collect();
        if let Some(name) = node.child_by_field_name("variable").map(|name| self.text(name)) {
            if values.is_empty() || self.text(node).starts_with("select") {
                self.state.vars.set(name, Value::Unknown);
            }
            values.into_iter().for_each(|value| self.state.vars.set(name, value));
        }
        self.children(node, place);
        self.state.vars.restore(certain);
    }

    /// What a word in the list of a loop stands for, one at a time.
    fn loop_value(&self, node: Node<'_>) -> Value {
        let text = self.text(node);
        let range = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
        if range.is_some_and(|range| range.split(['.', ',']).all(|part| part.is_empty() || arith::is_integer(part))) {
            return Value::Number;
        }
        let word = Word::read(node, self.source);
        match text.strip_prefix("$(seq ").and_then(|rest| rest.strip_suffix(')')) {
            Some(range) if range.split(' ').all(|part| arith::is_integer(part) || names::is_plain_variable(part)) => {
                Value::Number
            }
            _ => state::value(&word),
        }
    }

    /// Each stage is a process of its own; what comes in may be a list of files.
    fn pipeline(&mut self, node: Node<'_>, place: Place<'_>) {
        let outside = self.inside;
        let mut cursor = node.walk();
        for child in node.children(&mut cursor) {
            if child.is_named() && child.start_byte() > node.start_byte() {
                let before =
                    self.source[node.start_byte()..child.start_byte()].trim_end().trim_end_matches('|').trim_end();
                let redirected = child.kind() == "redirected_statement" && self.text(child).contains('<');
                self.inside = !redirected && paths::lists_files_inside(before);
            }
            let certain = self.state.vars.certain();
            self.visit(child, place.inside(node));
            self.state.vars.restore(certain);
        }
        self.inside = outside;
    }

    /// What is behind `&&` runs only if all before it did; what is behind the list cannot tell.
    fn list(&mut self, node: Node<'_>, place: Place<'_>) {
        let before = self.state.vars.certain();
        let mut first = None;
        let mut cursor = node.walk();
        for child in node.children(&mut cursor) {
            if child.kind() == "||" {
                self.state.vars.restore(first.clone().unwrap_or_else(|| before.clone()));
            }
            self.visit(child, place.inside(node));
            let leads = matches!(child.kind(), "variable_assignment" | "variable_assignments");
            if first.is_none() {
                first = Some(if leads { self.state.vars.certain() } else { before.clone() });
            }
        }
        if place.parent.kind() != "list" {
            self.state.vars.restore(first.unwrap_or(before));
        }
    }

    /// `[[ a -eq b ]]` evaluates its operands, and `-v` the subscript of its operand.
    fn test(&mut self, node: Node<'_>, text: &str) {
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

    /// Gathers the words of a test with their places, and checks what `[[` evaluates.
    fn test_words(
        &mut self,
        node: Node<'_>,
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
            let operands: Vec<Node<'_>> =
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

    /// Between two nodes there may be blanks and nothing else: the grammar also skips what bash would not.
    fn check_gaps(&mut self, node: Node<'_>) {
        let kind = node.kind();
        if node.child_count() == 0 || matches!(kind, "string" | "heredoc_body" | "heredoc_redirect" | "expansion") {
            return;
        }
        let line = ONE_LINE.contains(&kind);
        let solid = SOLID.contains(&kind);
        let mut cursor = node.walk();
        let mut before: Option<Node<'_>> = None;
        for child in node.children(&mut cursor) {
            let start = before.map_or(node.start_byte(), |before| before.end_byte());
            let gap = self.source.get(start..child.start_byte()).unwrap_or_default();
            let sound = if gap == " " {
                !solid
            } else if solid {
                gap.is_empty()
            } else if before.is_some_and(|before| gap.is_empty() && is_word(before) && is_word(child)) {
                // Two words for the grammar, one for bash; but a redirect may follow a word at once.
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

    /// A leaf must not contain what bash would not take as part of it.
    fn leaf(&mut self, node: Node<'_>, kind: &str, place: Place<'_>) {
        let text = self.text(node);
        let sound = match kind {
            // A process substitution where the grammar sees a comparison.
            "<" | ">" => !self.source[node.end_byte()..].starts_with('('),
            _ if !node.is_named() => !is_keyword(node, place.parent) || self.stands_alone(node),
            "word" => !has_bare(text, |c| ";|&()<>'\"`\n \t".contains(c)) && is_plain(text),
            "comment" => self.begins_word(node),
            // Positional parameters have digits for names.
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

    /// A keyword that touches other text is none.
    fn stands_alone(&self, node: Node<'_>) -> bool {
        let delimits = |c: char| c.is_ascii_whitespace() || ";&|()<>`".contains(c);
        let before = self.source[..node.start_byte()].chars().next_back();
        let after = self.source[node.end_byte()..].chars().next();
        before.is_none_or(delimits) && after.is_none_or(delimits)
    }

    /// A `#` inside of a word is no comment, and a number no descriptor.
    fn begins_word(&self, node: Node<'_>) -> bool {
        let before = &self.source[..node.start_byte()];
        !before.ends_with("\\\n")
            && (before.is_empty() || before.ends_with(['\n', ' ', '\t', ';', '&', '|', '(', ')', '`']))
    }

    /// The text of a string or here-document must not contain a substitution that the grammar took for text.
    fn check_text(&mut self, node: Node<'_>) {
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

    /// `${x@P}` runs what is in `x`, and `${x:=y}` is an assignment.
    fn check_expansion(&mut self, node: Node<'_>) {
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

    /// A statement with redirects. The grammar gives words after a redirect to it: they belong to the command.
    fn redirected(&mut self, node: Node<'_>, place: Place<'_>) {
        let mut cursor = node.walk();
        let is_redirect = |child: &Node<'_>| child.kind().ends_with("_redirect");
        let (redirects, rest): (Vec<_>, Vec<_>) = node.children(&mut cursor).partition(is_redirect);
        let mut extra = Vec::new();
        for child in redirects {
            self.check_gaps(child);
            match child.kind() {
                "file_redirect" => extra.extend(self.redirect(child, place.inside(node))),
                "heredoc_redirect" => extra.extend(self.heredoc(child, place.inside(node))),
                _ => self.visit(child, place.inside(node)),
            }
        }
        let mut placed = extra.is_empty();
        for child in rest {
            match child.kind() {
                "command" | "declaration_command" | "unset_command" if place.depth < MAX_DEPTH => {
                    self.check_gaps(child);
                    placed = true;
                    if child.kind() == "command" {
                        self.command(child, &extra, place.inside(node));
                    } else {
                        self.declaration(child, &extra, place.inside(node));
                    }
                }
                _ => self.visit(child, place.inside(node)),
            }
        }
        if !placed {
            self.opaque(node);
        }
    }

    /// Reports what a redirect opens, and returns the words after its target.
    fn redirect<'t>(&mut self, node: Node<'t>, place: Place<'_>) -> Vec<Node<'t>> {
        let mut cursor = node.walk();
        let operator = node.children(&mut cursor).find(|child| !child.is_named()).map(|child| child.kind());
        let mut cursor = node.walk();
        let mut targets = node.children_by_field_name("destination", &mut cursor).collect::<Vec<_>>();
        for child in targets.iter().copied().chain(node.child_by_field_name("descriptor")) {
            self.visit(child, place.inside(node));
        }
        if matches!(operator, Some("<&-" | ">&-")) || targets.is_empty() {
            return targets;
        }
        let target = Word::read(targets.remove(0), self.source);
        let descriptor = target.text.trim_end_matches('-').chars().all(|c| c.is_ascii_digit());
        let purpose = match operator {
            Some("<" | "<&") => Purpose::Read,
            _ => Purpose::Write,
        };
        match (operator, target.path.as_deref()) {
            (Some("<&" | ">&"), _) if descriptor => {}
            (_, Some("/dev/null" | "/dev/stdin" | "/dev/stdout" | "/dev/stderr")) => {}
            // A process substitution is no file, and was visited.
            _ if target.text.starts_with("<(") || target.text.starts_with(">(") => {}
            (Some("<" | "<&" | ">" | ">>" | ">|" | ">&" | "&>" | "&>>"), _) => {
                self.inside &= purpose == Purpose::Write;
                self.state.add_path(purpose, target.target(0), self.text(node).trim());
            }
            _ => self.opaque(node),
        }
        targets
    }

    /// Checks that a here-document ends where bash ends it, and returns the words after its beginning.
    fn heredoc<'t>(&mut self, node: Node<'t>, place: Place<'_>) -> Vec<Node<'t>> {
        let mut extra = Vec::new();
        let mut start = None;
        let mut body = None;
        let mut end = None;
        let mut dash = false;
        let mut cursor = node.walk();
        for child in node.children(&mut cursor) {
            match child.kind() {
                "heredoc_start" => start = Some(child),
                "heredoc_body" => body = Some(child),
                "heredoc_end" => end = Some(child),
                "<<-" => dash = true,
                "file_redirect" => extra.extend(self.redirect(child, place.inside(node))),
                _ if node.field_name_for_named_child(child_index(node, child)) == Some("argument") => {
                    self.visit(child, place.inside(node));
                    extra.push(child);
                }
                _ => self.visit(child, place.inside(node)),
            }
        }
        let (Some(start), Some(body), Some(end)) = (start, body, end) else {
            self.opaque(node);
            return extra;
        };
        self.inside = false;
        let (delimiter, quoted) = delimiter(self.text(start));
        if !self.ends_right(start, body, end, delimiter, dash) {
            self.state.add_opaque(self.source.trim());
        }
        if !quoted {
            self.check_text(body);
            let mut cursor = body.walk();
            for child in body.named_children(&mut cursor).filter(|child| child.kind() != "heredoc_content") {
                self.visit(child, place.inside(node));
            }
        }
        extra
    }

    fn ends_right(&self, start: Node<'_>, body: Node<'_>, end: Node<'_>, delimiter: &str, dash: bool) -> bool {
        let plain = !delimiter.is_empty() && delimiter.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
        // Bash begins with the line after the one that names the delimiter.
        let Some(line_end) = self.source[start.end_byte()..].find('\n').map(|at| start.end_byte() + at) else {
            return false;
        };
        // What else is on that line must not move the beginning: another here-document, an open quote, a comment.
        let line = &self.source[start.end_byte()..line_end];
        let closed = ['\'', '"'].iter().all(|quote| line.matches(*quote).count() % 2 == 0);
        let simple_line = closed && !line.contains("<<") && !line.contains(['\\', '`', '#']);
        let mut at = line_end + 1;
        for line in self.source[line_end + 1..].split_inclusive('\n') {
            let content = line.strip_suffix('\n').unwrap_or(line);
            let content = if dash { content.trim_start_matches('\t') } else { content };
            if content == delimiter {
                let found = at..at + line.len();
                return plain && simple_line && found.contains(&end.start_byte()) && body.start_byte() >= line_end;
            }
            at += line.len();
        }
        false
    }

    fn command(&mut self, node: Node<'_>, extra: &[Node<'_>], place: Place<'_>) {
        let mut words = Vec::new();
        let mut cursor = node.walk();
        // They are set for this command alone, and not for its own words.
        let certain = self.state.vars.certain();
        let reads = matches!(
            node.child_by_field_name("name").map(|name| self.text(name)),
            Some("mapfile" | "read" | "readarray")
        );
        for child in node.children(&mut cursor) {
            match child.kind() {
                "variable_assignment" => {
                    let name = child.child_by_field_name("name").map(|name| self.text(name)).unwrap_or_default();
                    if reads && name == "IFS" {
                        if let Some(value) = child.child_by_field_name("value") {
                            self.visit(value, place.inside(child));
                        }
                        continue;
                    }
                    if names::configures(name) {
                        self.opaque(node);
                    }
                    self.visit(child, place.inside(node));
                    self.state.vars.restore(certain.clone());
                }
                "herestring_redirect" => {
                    self.inside = false;
                    self.visit(child, place.inside(node));
                }
                "comment" => self.visit(child, place.inside(node)),
                "file_redirect" => {
                    self.check_gaps(child);
                    let more = self.redirect(child, place.inside(node));
                    words.extend(more.iter().map(|word| Word::read(*word, self.source)));
                }
                "subshell" => {
                    self.opaque(node);
                    self.visit(child, place.inside(node));
                }
                _ => {
                    self.visit(child, place.inside(node));
                    words.push(Word::read(child, self.source));
                }
            }
        }
        words.extend(extra.iter().map(|word| Word::read(*word, self.source)));
        self.simple(words, false, self.text(node));
    }

    /// `export`, `declare`, `unset` and the like, which the grammar has as nodes of their own.
    fn declaration(&mut self, node: Node<'_>, extra: &[Node<'_>], place: Place<'_>) {
        let mut words = Vec::new();
        let mut cursor = node.walk();
        for child in node.children(&mut cursor) {
            self.visit(child, place.inside(node));
            words.push(match child.kind() {
                "comment" => continue,
                "variable_assignment" => self.assignment(child),
                "variable_name" => Word::literal(self.text(child)),
                _ if !child.is_named() => Word::literal(self.text(child)),
                _ => Word::read(child, self.source),
            });
        }
        words.extend(extra.iter().map(|word| Word::read(*word, self.source)));
        self.simple(words, false, self.text(node));
    }

    /// An assignment as the word that it is to a declaration.
    fn assignment(&self, node: Node<'_>) -> Word {
        let source = self.text(node);
        let Some(value) = node.child_by_field_name("value") else { return Word::literal(source) };
        let head = &self.source[node.start_byte()..value.start_byte()];
        match Word::read(value, self.source).known() {
            Some(value) => Word::literal(format!("{head}{value}")),
            None => {
                let pieces = Some(vec![Piece::Text(head.to_owned()), Piece::Noted]);
                Word { pieces, splits: false, ..Word::dynamic(source) }
            }
        }
    }

    /// Reports a command and what it runs. `more` says that it gets arguments which we do not see.
    fn simple(&mut self, words: Vec<Word>, more: bool, snippet: &str) {
        let Some(first) = words.first() else { return };
        let snippet = snippet.trim();
        let Some(name) = first.known().filter(|name| !name.is_empty() && !name.contains([' ', '\t', '\n'])) else {
            return self.state.add_opaque(snippet);
        };
        if names::is_reserved(name) {
            // Where bash has a keyword, the grammar should have had one.
            self.state.add_opaque(snippet);
        }
        if self.state.parsed.commands.len() >= MAX_COMMANDS {
            return self.state.add_opaque(snippet);
        }
        let (directory, base) = name.rsplit_once('/').unwrap_or(("", name));
        let place = self.state.parsed.commands.len();
        let arity = names::arity(&words);
        let simple = describe(&words, arity, more);
        // A rule for `rm` is not dodged by `/bin/rm` or `../../bin//rm`: both names are judged.
        let mut plain = None;
        if name.contains('/') {
            if names::holds_programs(directory) {
                let mut words = words.clone();
                words[0] = Word::literal(base);
                plain = Some(describe(&words, names::arity(&words), more));
            }
            self.state.add_arguments(&[Word::literal(base)], false);
            self.state.add_run(name, snippet);
            if super::programs::is_special_file(name) {
                self.state.add_opaque(snippet);
            }
        }
        if is_vague(&words, arity, more) {
            self.state.add_opaque(snippet);
        }
        self.state.parsed.commands.push(simple);
        self.state.parsed.commands.extend(plain);
        for target in paths::paths(base, &words, more && !self.inside) {
            self.state.add_path(Purpose::Argument(place), target, snippet);
        }
        let makes = matches!(
            base,
            "cp" | "curl"
                | "dd"
                | "install"
                | "ln"
                | "mv"
                | "patch"
                | "rsync"
                | "sed"
                | "sort"
                | "tar"
                | "tee"
                | "wget"
        );
        for word in words[1..].iter().filter(|_| makes) {
            self.state.add_made(word.text.strip_prefix("of=").unwrap_or(&word.text));
        }
        let certain = self.state.vars.certain();
        let wraps = !matches!(
            base,
            "declare"
                | "export"
                | "getopts"
                | "local"
                | "mapfile"
                | "printf"
                | "read"
                | "readarray"
                | "readonly"
                | "typeset"
                | "unset"
        );
        for inner in wrap::inner(base, &words, more, self.inside) {
            match inner {
                Inner::Run(_) if makes => {}
                Inner::Arguments => self.state.add_arguments(&words[1..], more),
                inner => self.inner(base, inner, snippet),
            }
        }
        if wraps {
            self.state.vars.restore(certain);
        }
    }

    /// Takes what a command does besides running its program.
    fn inner(&mut self, base: &str, inner: Inner, snippet: &str) {
        match inner {
            Inner::Command { words, more, inside } => {
                // Wrappers in wrappers are bounded as scripts in scripts are.
                if self.nested + 1 > MAX_NESTED {
                    return self.state.add_opaque(snippet);
                }
                let outside = std::mem::replace(&mut self.inside, inside);
                self.nested += 1;
                self.simple(words, more, snippet);
                self.nested -= 1;
                self.inside = outside;
            }
            Inner::Script(script, shell) => {
                let certain = self.state.vars.certain();
                if !matches!(base, "eval" | "trap") {
                    // Another shell, which has none of our variables.
                    self.state.vars.restore(Default::default());
                }
                let shell = if matches!(base, "eval" | "trap") { self.shell } else { shell };
                read(&script, shell, self.nested + 1, self.state);
                self.state.vars.restore(certain);
            }
            Inner::Write(target) => self.state.add_path(Purpose::Write, target, snippet),
            Inner::Run(file) => self.state.add_run(&file, snippet),
            Inner::Set(name, value) => self.state.vars.set(&name, value),
            Inner::Unset(name) => self.state.vars.unset(&name),
            Inner::Evaluate(name) => self.state.vars.evaluate(&name, snippet),
            Inner::Test(name) => self.state.vars.test(&name, snippet),
            Inner::Unknown => self.state.add_opaque(snippet),
            // Whoever has the words takes them.
            Inner::Arguments => {}
        }
    }
}

/// Whether an operator of `[[` evaluates what it is given.
fn evaluates(operator: &str) -> bool {
    arith::COMPARISONS.contains(&operator) || matches!(operator, "-v" | "-R")
}

fn describe(words: &[Word], arity: usize, more: bool) -> Simple {
    let join = |words: &[Word]| words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ");
    let text = join(words);
    let head = &words[..arity.min(words.len())];
    // An option before the subcommand: what the subcommand is depends on it, so nothing shorter says what is allowed.
    let optioned = head[1..].iter().any(|word| word.text.starts_with('-'));
    let prefix = if optioned { text.clone() } else { join(head) };
    let literal = !more && words.iter().all(|word| word.literal);
    let argv = if literal { words.iter().map(|word| word.text.clone()).collect() } else { Vec::new() };
    Simple { text, prefix, argv, paths: Vec::new() }
}

/// Whether the words that say what a command does are not known.
fn is_vague(words: &[Word], arity: usize, more: bool) -> bool {
    let head = &words[..arity.min(words.len())];
    let unclear = head.iter().any(|word| !word.literal || word.text.contains([' ', '\t', '\n']));
    let braces = words.iter().any(has_braced_path);
    unclear || braces || (more && words.len() < arity)
}

/// Braces can become several words, and a path among them would not be seen.
fn has_braced_path(word: &Word) -> bool {
    let braced = word.path.is_none() && !word.literal && word.text.contains('{') && word.text.contains(',');
    braced && word.text.contains('/') && !word.text.contains('$')
}

fn child_index(parent: Node<'_>, child: Node<'_>) -> u32 {
    let mut cursor = parent.walk();
    let at = parent.named_children(&mut cursor).position(|other| other == child);
    at.and_then(|at| u32::try_from(at).ok()).unwrap_or(u32::MAX)
}
