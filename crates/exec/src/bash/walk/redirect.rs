//! Redirects and here-documents.

use tree_sitter::Node;

use super::super::MAX_DEPTH;
use super::super::check::delimiter;
use super::super::state::Purpose;
use super::super::word::Word;
use super::{Place, Walker};

impl<'t> Walker<'_, 't> {
    /// A statement with redirects. The grammar gives words after a redirect to it: they belong to the command.
    pub(super) fn redirected(&mut self, node: Node<'t>, children: Vec<Node<'t>>, place: Place<'t>) {
        let is_redirect = |child: &Node<'t>| child.kind().ends_with("_redirect");
        let (redirects, rest): (Vec<_>, Vec<_>) = children.into_iter().partition(is_redirect);
        let mut extra = Vec::new();
        for child in redirects {
            let parts = self.children_of(child);
            self.check_gaps(child, child.kind(), &parts);
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
                    let parts = self.children_of(child);
                    self.check_gaps(child, child.kind(), &parts);
                    placed = true;
                    if child.kind() == "command" {
                        self.command(child, &parts, &extra, place.inside(node));
                    } else {
                        self.declaration(child, &parts, &extra, place.inside(node));
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
    pub(super) fn redirect(&mut self, node: Node<'t>, place: Place<'t>) -> Vec<Node<'t>> {
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
        match (operator, target.path()) {
            (Some("<&" | ">&"), _) if descriptor => {}
            (_, Some("/dev/null" | "/dev/stdin" | "/dev/stdout" | "/dev/stderr")) => {}
            // A process substitution is not a file, and was visited already.
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
    pub(super) fn heredoc(&mut self, node: Node<'t>, place: Place<'t>) -> Vec<Node<'t>> {
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

    fn ends_right(&self, start: Node<'t>, body: Node<'t>, end: Node<'t>, delimiter: &str, dash: bool) -> bool {
        let plain = !delimiter.is_empty() && delimiter.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
        // Bash begins with the line after the one that names the delimiter.
        let Some(line_end) = self.source[start.end_byte()..].find('\n').map(|at| start.end_byte() + at) else {
            return false;
        };
        // Nothing else on that line may move its start: another here-document, an open quote, a comment.
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
}

fn child_index(parent: Node<'_>, child: Node<'_>) -> u32 {
    let mut cursor = parent.walk();
    let at = parent.named_children(&mut cursor).position(|other| other == child);
    at.and_then(|at| u32::try_from(at).ok()).unwrap_or(u32::MAX)
}
