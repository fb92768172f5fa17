//! Walks the syntax tree, and takes nothing that it does not know.

use tree_sitter::{Node, Tree};

use super::check::{delimiter, has_bare, is_arithmetic, is_blank, is_expansion, is_keyword, is_plain, is_word};
use super::word::Word;
use super::wrap::{self, Inner};
use super::{MAX_COMMANDS, MAX_DEPTH, Parsed, Simple, names, read};

/// Nodes that do nothing but contain others.
const CONTAINERS: &[&str] = &[
    "arithmetic_expansion",
    "array",
    "binary_expression",
    "brace_expression",
    "c_style_for_statement",
    "case_item",
    "case_statement",
    "command_name",
    "compound_statement",
    "concatenation",
    "do_group",
    "elif_clause",
    "else_clause",
    "for_statement",
    "herestring_redirect",
    "if_statement",
    "list",
    "negated_command",
    "parenthesized_expression",
    "pipeline",
    "postfix_expression",
    "process_substitution",
    "program",
    "simple_expansion",
    "subscript",
    "subshell",
    "ternary_expression",
    "test_command",
    "translated_string",
    "unary_expression",
    "variable_assignment",
    "variable_assignments",
    "while_statement",
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
pub(super) fn walk(source: &str, tree: &Tree, nested: usize, out: &mut Parsed) {
    let root = tree.root_node();
    if root.has_error() {
        out.add_opaque(source.trim());
    }
    let mut walker = Walker { source, nested, out };
    let edges = [&source[..root.start_byte()], &source[root.end_byte()..]];
    if edges.iter().any(|edge| !is_blank(edge)) {
        walker.out.add_opaque(source.trim());
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
        Place { parent, arithmetic: is_arithmetic(parent, self.arithmetic), depth: self.depth + 1 }
    }
}

struct Walker<'a> {
    source: &'a str,
    nested: usize,
    out: &'a mut Parsed,
}

impl<'a> Walker<'a> {
    fn text(&self, node: Node<'_>) -> &'a str {
        &self.source[node.byte_range()]
    }

    fn opaque(&mut self, node: Node<'_>) {
        self.out.add_opaque(self.text(node).trim());
    }

    fn visit(&mut self, node: Node<'_>, place: Place<'_>) {
        if place.depth > MAX_DEPTH {
            return self.opaque(node);
        }
        self.check_gaps(node);
        match node.kind() {
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
                self.children(node, place);
            }
            "command_substitution" => {
                // Between backticks bash takes backslashes away first, and the next backtick is the end.
                let inside = self.text(node).strip_prefix('`').map(|rest| rest.strip_suffix('`').unwrap_or(rest));
                if inside.is_some_and(|inside| inside.contains(['`', '\\'])) {
                    self.opaque(node);
                }
                self.children(node, place);
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
            _ => self.leaf(node, place),
        }
    }

    fn children(&mut self, node: Node<'_>, place: Place<'_>) {
        let mut cursor = node.walk();
        for child in node.children(&mut cursor) {
            self.visit(child, place.inside(node));
        }
    }

    /// Between two nodes there may be blanks and nothing else: the grammar also skips what bash would not.
    fn check_gaps(&mut self, node: Node<'_>) {
        if matches!(node.kind(), "string" | "heredoc_body" | "heredoc_redirect" | "expansion") {
            return;
        }
        let line = ONE_LINE.contains(&node.kind());
        let mut cursor = node.walk();
        let mut before: Option<Node<'_>> = None;
        for child in node.children(&mut cursor) {
            let start = before.map_or(node.start_byte(), |before| before.end_byte());
            let gap = self.source.get(start..child.start_byte()).unwrap_or_default();
            let sound = if SOLID.contains(&node.kind()) {
                gap.is_empty()
            } else if before.is_some_and(|before| gap.is_empty() && is_word(before) && is_word(child)) {
                // Two words for the grammar, one for bash; but a redirect may follow a word at once.
                !line || child.kind().ends_with("_redirect")
            } else if line {
                is_blank(gap) && !gap.replace("\\\n", "").contains('\n')
            } else {
                is_blank(gap) || (gap == "\\\n" && matches!(node.kind(), "list" | "pipeline"))
            };
            if !sound {
                self.opaque(node);
            }
            before = Some(child);
        }
    }

    /// A leaf must not contain what bash would not take as part of it.
    fn leaf(&mut self, node: Node<'_>, place: Place<'_>) {
        let text = self.text(node);
        let sound = match node.kind() {
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
        let evaluated = matches!(node.kind(), "word" | "raw_string" | "ansi_c_string" | "string_content")
            && (text.contains('`') || text.replace('\\', "").contains("$("))
            && place.arithmetic;
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
        match (operator, target.path) {
            (Some("<&" | ">&"), _) if descriptor => {}
            (_, Some(path)) if matches!(path.as_str(), "/dev/null" | "/dev/stdin" | "/dev/stdout" | "/dev/stderr") => {}
            (Some("<" | "<&"), Some(path)) => self.out.reads.push(path),
            (Some(">" | ">>" | ">|" | ">&" | "&>" | "&>>"), Some(path)) => self.out.writes.push(path),
            // A process substitution is no file, and was visited.
            _ if target.text.starts_with("<(") || target.text.starts_with(">(") => {}
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
        let (delimiter, quoted) = delimiter(self.text(start));
        if !self.ends_right(start, body, end, delimiter, dash) {
            self.out.add_opaque(self.source.trim());
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
        for child in node.children(&mut cursor) {
            match child.kind() {
                "variable_assignment" | "herestring_redirect" | "comment" => self.visit(child, place.inside(node)),
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
            None => Word::dynamic(source),
        }
    }

    /// Reports a command and what it runs. `more` says that it gets arguments which we do not see.
    fn simple(&mut self, words: Vec<Word>, more: bool, snippet: &str) {
        let Some(first) = words.first() else { return };
        let snippet = snippet.trim();
        let Some(name) = first.known().filter(|name| !name.is_empty() && !name.contains([' ', '\t', '\n'])) else {
            return self.out.add_opaque(snippet);
        };
        if names::is_reserved(name) {
            // Where bash has a keyword, the grammar should have had one.
            self.out.add_opaque(snippet);
        }
        if self.out.commands.len() >= MAX_COMMANDS {
            return self.out.add_opaque(snippet);
        }
        let (directory, base) = name.rsplit_once('/').unwrap_or(("", name));
        let simple = describe(base, &words, more);
        // A rule for `rm` is not dodged by `/bin/rm` or `../../bin/rm`: both names are judged.
        let mut plain = None;
        if directory.ends_with("/bin") || directory.ends_with("/sbin") {
            let mut words = words.clone();
            words[0] = Word::literal(base);
            plain = Some(describe(base, &words, more));
        }
        if is_vague(&words, more) {
            self.out.add_opaque(snippet);
        }
        self.out.commands.push(simple);
        self.out.commands.extend(plain);
        for inner in wrap::inner(base, &words) {
            match inner {
                Inner::Command { words, more } => {
                    // Wrappers in wrappers are bounded as scripts in scripts are.
                    let mut inside = Walker { source: self.source, nested: self.nested + 1, out: self.out };
                    if inside.nested > super::MAX_NESTED {
                        inside.out.add_opaque(snippet);
                    } else {
                        inside.simple(words, more, snippet);
                    }
                }
                Inner::Script(script) => read(&script, self.nested + 1, self.out),
                Inner::Write(path) => self.out.writes.push(path),
                Inner::Unknown => self.out.add_opaque(snippet),
            }
        }
    }
}

fn describe(base: &str, words: &[Word], more: bool) -> Simple {
    let join = |words: &[Word]| words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ");
    let text = join(words);
    let head = &words[..names::arity(words).min(words.len())];
    // An option before the subcommand: what the subcommand is depends on it, so nothing shorter says what is allowed.
    let optioned = head[1..].iter().any(|word| word.text.starts_with('-'));
    let prefix = if optioned { text.clone() } else { join(head) };
    let literal = !more && words.iter().all(|word| word.literal);
    let argv = if literal { words.iter().map(|word| word.text.clone()).collect() } else { Vec::new() };
    Simple { text, prefix, argv, paths: names::paths(base, words) }
}

/// Whether the words that say what a command does are not known.
fn is_vague(words: &[Word], more: bool) -> bool {
    let arity = names::arity(words);
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
