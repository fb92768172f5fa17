//! What is collected while a command line is read, and the conclusions at its end.

use super::vars::{Piece, Value, Vars};
use super::word::{Target, Word};
use super::{MAX_ARGUMENTS, MAX_OPAQUE, MAX_SNIPPET, Parsed};

/// What is known so far.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) parsed: Parsed,
    pub(super) vars: Vars,
    /// Paths that depend on variables.
    open: Vec<Open>,
    /// The files that the line creates, and those that it runs, each with its command.
    made: Vec<String>,
    run: Vec<(String, String)>,
    /// Whether some program gets arguments that the source does not determine, and may run them.
    unseen_arguments: bool,
}

/// What a path is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// An argument of a command, by the command's index.
    Argument(usize),
    Read,
    Write,
}

#[derive(Debug)]
struct Open {
    purpose: Purpose,
    pieces: Vec<Piece>,
    splits: bool,
    snippet: String,
}

impl State {
    /// Adds a piece of source that was not understood.
    pub(super) fn add_opaque(&mut self, snippet: &str) {
        let cut = &snippet[..snippet.floor_char_boundary(MAX_SNIPPET)];
        let opaque = &mut self.parsed.opaque;
        if opaque.len() < MAX_OPAQUE && !opaque.iter().any(|known| known == cut) {
            opaque.push(cut.to_owned());
        }
    }

    /// Adds a path.
    pub(super) fn add_path(&mut self, purpose: Purpose, target: Target, snippet: &str) {
        match target {
            Target::Path(path) => self.add_known(purpose, path),
            Target::Pieces(pieces, splits) if self.vars.are_set(&pieces) => {
                self.open.push(Open { purpose, pieces, splits, snippet: snippet.to_owned() });
            }
            Target::Pieces(..) | Target::Unknown => self.add_unknown(purpose, snippet),
        }
    }

    fn add_known(&mut self, purpose: Purpose, path: String) {
        match purpose {
            Purpose::Argument(at) => {
                if let Some(command) = self.parsed.commands.get_mut(at) {
                    command.paths.push(path);
                }
            }
            Purpose::Read => self.parsed.reads.push(path),
            Purpose::Write => {
                self.add_made(&path);
                if path.split('/').any(|part| part == ".git") {
                    // Files in there tell git what to run.
                    self.add_opaque(&path);
                }
                self.parsed.writes.push(path);
            }
        }
    }

    fn add_unknown(&mut self, purpose: Purpose, snippet: &str) {
        self.parsed.unknown_read |= purpose == Purpose::Read;
        self.parsed.unknown_write |= purpose == Purpose::Write;
        let cut = &snippet[..snippet.floor_char_boundary(MAX_SNIPPET)];
        let known = &mut self.parsed.unknown_paths;
        if known.len() < MAX_OPAQUE && !known.iter().any(|known| known == cut) {
            known.push(cut.to_owned());
        }
        if matches!(purpose, Purpose::Read | Purpose::Write) {
            self.add_opaque(snippet);
        }
    }

    /// Records that the line creates a file.
    pub(super) fn add_made(&mut self, path: &str) {
        self.made.push(file_name(path).to_owned());
    }

    /// Records that the line runs a file, or any file with this ending if it begins with a star.
    pub(super) fn add_run(&mut self, path: &str, snippet: &str) {
        self.run.push((file_name(path).to_owned(), snippet.to_owned()));
    }

    /// Adds words that may be run.
    pub(super) fn add_arguments(&mut self, words: &[Word], more: bool) {
        let unseen = |word: &Word| (word.is_dynamic() && !word.is_number()) || word.splits;
        self.unseen_arguments |= more || words.iter().any(unseen);
        self.add_texts(words.iter().map(|word| word.text.clone()));
    }

    fn add_texts(&mut self, texts: impl Iterator<Item = String>) {
        let arguments = &mut self.parsed.arguments;
        let room = MAX_ARGUMENTS - arguments.len().min(MAX_ARGUMENTS);
        let mut texts = texts;
        arguments.extend(texts.by_ref().take(room));
        if texts.next().is_some() {
            self.add_opaque("");
        }
    }

    /// Answers the questions that had to wait for the end of the source.
    pub(super) fn finish(mut self) -> Parsed {
        let dangerous: Vec<String> = self.vars.dangerous().map(str::to_owned).collect();
        dangerous.iter().for_each(|snippet| self.add_opaque(snippet));
        for open in std::mem::take(&mut self.open) {
            match self.vars.paths(&open.pieces, open.splits) {
                Some(paths) => paths.into_iter().for_each(|path| match path.strip_prefix('-') {
                    // An option, which may have a path in it.
                    Some(option) => {
                        if let Some(at) = option.find(['/', '~']) {
                            self.add_known(open.purpose, option[at..].to_owned());
                        }
                    }
                    None => self.add_known(open.purpose, path),
                }),
                None => self.add_unknown(open.purpose, &open.snippet),
            }
        }
        for (file, snippet) in std::mem::take(&mut self.run) {
            let runs = |made: &String| match file.strip_prefix('*') {
                Some(ending) => made.ends_with(ending),
                None => *made == file,
            };
            if self.made.iter().any(runs) {
                self.add_opaque(&snippet);
            }
        }
        if self.unseen_arguments {
            // They come from a variable, or from the output of another command.
            let printed: Vec<String> = self.parsed.commands.iter().map(|command| command.text.clone()).collect();
            let values: Vec<String> = self.vars.texts().map(str::to_owned).collect();
            self.add_texts(printed.into_iter().chain(values));
        }
        self.parsed
    }
}

/// The values that a word may have in an assignment.
pub(super) fn value(word: &Word) -> Value {
    if let Some(text) = word.known() {
        return Value::Text(text.to_owned());
    }
    if let Some(path) = word.path() {
        return Value::Pattern(path.to_owned());
    }
    match word.pieces.as_deref() {
        Some([Piece::Here]) => Value::Here,
        Some([Piece::Inside]) => Value::Inside,
        Some(_) if word.is_number() => Value::Number,
        _ => Value::Unknown,
    }
}

fn file_name(path: &str) -> &str {
    path.trim_end_matches('/').rsplit('/').next().unwrap_or_default()
}
