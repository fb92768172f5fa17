//! Which variables are set where: assignments, loops, pipelines and lists.

use tree_sitter::Node;

use super::super::state;
use super::super::vars::Value;
use super::super::word::Word;
use super::super::{arith, names, paths};
use super::{Place, Walker};

impl<'t> Walker<'_, 't> {
    /// Visits a node's children, and forgets afterwards which variables they set.
    pub(super) fn scoped(&mut self, node: Node<'t>, children: &[Node<'t>], place: Place<'t>) {
        let certain = self.state.vars.certain();
        self.children(node, children, place);
        self.state.vars.restore(certain);
    }

    /// Records what a variable is set to.
    pub(super) fn assign(&mut self, node: Node<'t>) {
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

    pub(super) fn for_loop(&mut self, node: Node<'t>, children: &[Node<'t>], place: Place<'t>) {
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
        self.children(node, children, place);
        self.state.vars.restore(certain);
    }

    /// The values that a word in a loop's list expands to, one at a time.
    fn loop_value(&self, node: Node<'t>) -> Value {
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

    /// Each stage is a separate process; its input may be a list of files.
    pub(super) fn pipeline(&mut self, node: Node<'t>, children: &[Node<'t>], place: Place<'t>) {
        let outside = self.inside;
        for child in children.iter().copied() {
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

    /// A command after `&&` runs only if all before it succeeded; after the whole list that is unknown.
    pub(super) fn list(&mut self, node: Node<'t>, children: &[Node<'t>], place: Place<'t>) {
        let before = self.state.vars.certain();
        let mut first = None;
        for child in children.iter().copied() {
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
}
