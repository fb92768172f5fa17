//! What a bash command line would do, so that rules can judge each part of it.
//!
//! Only known shapes are accepted. Everything else is reported as opaque: what the grammar does not understand, and
//! what our own checks of its result reject. Understanding is best effort, reporting is not: a command is either among
//! `commands` or inside an `opaque` piece.

mod arith;
mod check;
mod inline;
mod names;
mod paths;
mod posix;
mod programs;
mod state;
mod vars;
mod walk;
mod word;
mod wrap;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::cell::RefCell;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use tree_sitter::{ParseOptions, Parser, Tree};

use state::State;

/// The longest source that is read, in bytes: the system accepts no longer argument.
pub const MAX_BYTES: usize = 128 << 10;

/// The maximum number of simple commands that are listed; the rest is opaque.
pub const MAX_COMMANDS: usize = 512;

/// How many opaque pieces are kept. One is enough for the user to be asked.
pub const MAX_OPAQUE: usize = 64;

/// The maximum nesting depth of the source.
const MAX_DEPTH: usize = 128;

/// The maximum nesting depth of scripts, as in `sh -c "sh -c …"`.
const MAX_NESTED: usize = 8;

/// The timeout of the parser: some sources take it time quadratic in their length.
const MAX_TIME: Duration = Duration::from_millis(500);

/// The maximum number of pipes: with two syntax errors in a pipeline, the parser's time doubles with every few pipes,
/// in one step that cannot be interrupted.
const MAX_PIPES: usize = 48;

/// The maximum number of arguments that may name commands; a line with more of them is opaque.
const MAX_ARGUMENTS: usize = 4096;

/// The longest opaque piece that is kept, in bytes.
const MAX_SNIPPET: usize = 4 << 10;

/// What a command line would do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parsed {
    /// Every simple command in it, including those inside substitutions, wrappers and scripts of `sh -c`.
    pub commands: Vec<Simple>,
    /// The targets of redirects that write; `~` is the home directory.
    pub writes: Vec<String>,
    /// The targets of redirects that read.
    pub reads: Vec<String>,
    /// Pieces of the source that were not understood, or whose effect the source does not determine.
    pub opaque: Vec<String>,
    /// Arguments of programs that are not known to treat them as data: a word in them may be a command that is run.
    pub arguments: Vec<String>,
    /// Pieces of the source with a path that the source does not determine.
    pub unknown_paths: Vec<String>,
    /// Whether a redirect writes a file that the source does not determine.
    pub unknown_write: bool,
    /// Whether a redirect reads a file that the source does not determine.
    pub unknown_read: bool,
}

/// A simple command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Simple {
    /// The command as rules see it: its words without quotes, assignments and redirects.
    pub text: String,
    /// What an `always` answer allows, with ` *` after it.
    pub prefix: String,
    /// Its words, if all of them are literal; else empty.
    pub argv: Vec<String>,
    /// Arguments that are paths, if they are known; `~` stands for the home directory, and `*` may be among them.
    pub paths: Vec<String>,
}

/// The shell that reads a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shell {
    Bash,
    /// `sh`, which may be any shell: a script for it must mean the same in all of them.
    Posix,
}

/// Reads a command line for bash. It accepts any input.
pub fn parse(command: &str) -> Parsed {
    let mut state = State::default();
    read(command, Shell::Bash, 0, &mut state);
    state.finish()
}

/// Reads bytes as a command line, and checks what always holds. For the fuzz runner.
pub fn fuzz_bash(data: &[u8]) {
    let source = String::from_utf8_lossy(data);
    let parsed = parse(&source);
    assert!(parsed.commands.len() <= MAX_COMMANDS + 1 && parsed.opaque.len() <= MAX_OPAQUE);
    for command in &parsed.commands {
        assert!(command.text.starts_with(&command.prefix) && !command.prefix.is_empty());
    }
}

/// Reads a source that is nested in `nested` other scripts.
fn read(source: &str, shell: Shell, nested: usize, state: &mut State) {
    // Bash drops NUL and treats carriage returns as text, unlike the grammar.
    let pipes = source.matches('|').count();
    let many_pipes = pipes > MAX_PIPES && pipes - 2 * source.matches("||").count() > MAX_PIPES;
    let strange = source.contains('\0') || source.contains('\r') || many_pipes;
    if source.len() > MAX_BYTES || nested > MAX_NESTED || strange {
        state.add_opaque(source);
        return;
    }
    match tree(source).filter(|tree| check::cuts_no_character(tree, source)) {
        Some(tree) => walk::walk(source, &tree, shell, nested, state),
        None => state.add_opaque(source),
    }
}

/// Parses a source. Returns `None` if that takes too long.
fn tree(source: &str) -> Option<Tree> {
    thread_local! {
        // Creating a parser costs as much as reading a short line; the memory that it keeps is bounded.
        static PARSER: RefCell<Option<Parser>> = RefCell::new(new_parser());
    }
    let start = Instant::now();
    let mut watch = |_: &_| if start.elapsed() > MAX_TIME { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
    let options = ParseOptions::new().progress_callback(&mut watch);
    // Bash treats every byte beyond ASCII as a letter. The grammar treats some as blanks, and others make its scanner
    // read outside its tables, which would crash this process. So it gets letters; all offsets stay the same.
    let bytes: Cow<'_, [u8]> = if source.is_ascii() {
        source.as_bytes().into()
    } else {
        source.bytes().map(|byte| if byte.is_ascii() { byte } else { b'x' }).collect()
    };
    PARSER.with_borrow_mut(|parser| {
        let parser = parser.as_mut()?;
        // Otherwise the next parse would continue the one that was interrupted.
        parser.reset();
        parser.parse_with_options(&mut |at, _| bytes.get(at..).unwrap_or_default(), None, Some(options))
    })
}

fn new_parser() -> Option<Parser> {
    let mut parser = Parser::new();
    parser.set_language(&tree_sitter_bash::LANGUAGE.into()).ok()?;
    Some(parser)
}
