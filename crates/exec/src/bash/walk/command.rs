//! Simple commands: their words, and what they do besides running a program.

use tree_sitter::Node;

use super::super::state::Purpose;
use super::super::vars::Piece;
use super::super::word::Word;
use super::super::wrap::{self, Inner};
use super::super::{MAX_COMMANDS, MAX_NESTED, Simple, names, paths, programs, read};
use super::{Place, Walker};

impl<'t> Walker<'_, 't> {
    pub(super) fn command(&mut self, node: Node<'t>, children: &[Node<'t>], extra: &[Node<'t>], place: Place<'t>) {
        let mut words = Vec::new();
        // They are set for this command only, and its own words do not see them.
        let certain = self.state.vars.certain();
        let reads = matches!(
            node.child_by_field_name("name").map(|name| self.text(name)),
            Some("mapfile" | "read" | "readarray")
        );
        for child in children.iter().copied() {
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
                    let parts = self.children_of(child);
                    self.check_gaps(child, child.kind(), &parts);
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

    /// `export`, `declare`, `unset` and the like, which have node types of their own in the grammar.
    pub(super) fn declaration(&mut self, node: Node<'t>, children: &[Node<'t>], extra: &[Node<'t>], place: Place<'t>) {
        let mut words = Vec::new();
        for child in children.iter().copied() {
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

    /// An assignment as a word, as a declaration sees it.
    fn assignment(&self, node: Node<'t>) -> Word {
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

    /// Reports a command and what it runs. `more`: it gets further arguments, which are unknown.
    fn simple(&mut self, words: Vec<Word>, more: bool, snippet: &str) {
        let Some(first) = words.first() else { return };
        let snippet = snippet.trim();
        let Some(name) = first.known().filter(|name| !name.is_empty() && !name.contains([' ', '\t', '\n'])) else {
            return self.state.add_opaque(snippet);
        };
        if names::is_reserved(name) {
            // A keyword here means that the grammar and bash disagree.
            self.state.add_opaque(snippet);
        }
        if self.state.parsed.commands.len() >= MAX_COMMANDS {
            return self.state.add_opaque(snippet);
        }
        let (directory, base) = name.rsplit_once('/').unwrap_or(("", name));
        let place = self.state.parsed.commands.len();
        let arity = names::arity(&words);
        let simple = describe(&words, arity, more);
        // `/bin/rm` and `../../bin//rm` must not evade a rule for `rm`: both names are judged.
        let mut plain = None;
        if name.contains('/') {
            if names::holds_programs(directory) {
                let mut words = words.clone();
                words[0] = Word::literal(base);
                plain = Some(describe(&words, names::arity(&words), more));
            }
            self.state.add_arguments(&[Word::literal(base)], false);
            self.state.add_run(name, snippet);
            if programs::is_special_file(name) {
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
        let makes = makes_files(base);
        for word in words[1..].iter().filter(|_| makes) {
            self.state.add_made(word.text.strip_prefix("of=").unwrap_or(&word.text));
        }
        let certain = self.state.vars.certain();
        for inner in wrap::inner(base, &words, more, self.inside) {
            match inner {
                Inner::Run(_) if makes => {}
                Inner::Arguments => self.state.add_arguments(&words[1..], more),
                inner => self.inner(base, inner, snippet),
            }
        }
        if !sets_variables(base) {
            self.state.vars.restore(certain);
        }
    }

    /// Reports what a command does besides running its program.
    pub(super) fn inner(&mut self, base: &str, inner: Inner, snippet: &str) {
        match inner {
            Inner::Command { words, more, inside } => {
                // Nested wrappers have the same limit as nested scripts.
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
                    // Another shell, which does not see these variables.
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
            // The caller that has the words reports them.
            Inner::Arguments => {}
        }
    }
}

/// Programs that write files which their arguments name.
fn makes_files(program: &str) -> bool {
    const NAMES: &[&str] =
        &["cp", "curl", "dd", "install", "ln", "mv", "patch", "rsync", "sed", "sort", "tar", "tee", "wget"];
    NAMES.contains(&program)
}

/// Builtins whose variables stay set afterwards.
#[rustfmt::skip]
fn sets_variables(builtin: &str) -> bool {
    const NAMES: &[&str] = &[
        "declare", "export", "getopts", "local", "mapfile", "printf", "read", "readarray", "readonly", "typeset", "unset",
    ];
    NAMES.contains(&builtin)
}

fn describe(words: &[Word], arity: usize, more: bool) -> Simple {
    let join = |words: &[Word]| words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ");
    let text = join(words);
    let head = &words[..arity.min(words.len())];
    // An option before the subcommand: it decides which word is the subcommand, so no shorter prefix is safe.
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

/// Braces can expand to several words, and a path among them would be missed.
fn has_braced_path(word: &Word) -> bool {
    let braced = word.path().is_none() && word.text.contains('{') && word.text.contains(',');
    braced && word.text.contains('/') && !word.text.contains('$')
}
