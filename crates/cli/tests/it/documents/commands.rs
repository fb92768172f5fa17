//! Every `trefoil …` that a document shows is a command that exists, with options that exist.

use std::collections::{BTreeSet, HashMap};

use super::{documents, split};
use crate::e2e::harness::Harness;

/// The command lines that a document shows: in code blocks, and in code spans of its prose.
fn shown(document: &str) -> Vec<String> {
    let (fences, prose) = split(document);
    let mut found = Vec::new();
    for line in
        fences.iter().flat_map(|fence| fence.text.replace("\\\n", " ").lines().map(str::to_owned).collect::<Vec<_>>())
    {
        let line = line.split("  #").next().unwrap_or_default();
        found.extend(line.split(';').flat_map(starts));
    }
    let spans = prose.split('`').skip(1).step_by(2).map(|span| span.split_whitespace().collect::<Vec<_>>().join(" "));
    found.extend(spans.filter_map(|span| Some(span.strip_prefix("trefoil ")?.to_owned())));
    found
}

/// What follows `trefoil` wherever a line calls it.
fn starts(line: &str) -> Vec<String> {
    let calls =
        line.match_indices("trefoil ").filter(|(at, _)| line[..*at].chars().next_back().is_none_or(|c| c == ' '));
    calls.map(|(at, name)| line[at + name.len()..].to_owned()).collect()
}

/// A text without what stands between double quotes.
fn unquoted(line: &str) -> String {
    line.split('"').step_by(2).collect()
}

/// A command line: the alternatives for each of its leading words, and its options.
struct Shown {
    words: Vec<Vec<String>>,
    options: Vec<String>,
}

impl Shown {
    /// Reads `session list | show --json`. A word that is no name, such as `SESSION`, ends the leading ones.
    fn parse(line: &str) -> Self {
        let line = unquoted(line).replace('|', " | ");
        let line = line.split(" -- ").next().unwrap_or_default();
        let tokens: Vec<&str> = line.split_whitespace().collect();
        let is_name = |word: &str| {
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            word.starts_with(|c: char| c.is_ascii_lowercase()) && word.chars().all(plain)
        };
        let mut words: Vec<Vec<String>> = Vec::new();
        let mut is_alternative = false;
        for token in &tokens {
            match words.last_mut() {
                Some(last) if *token == "|" => is_alternative = !last.is_empty(),
                Some(last) if is_alternative && is_name(token) => {
                    last.push((*token).to_owned());
                    is_alternative = false;
                }
                _ if is_name(token) && !is_alternative => words.push(vec![(*token).to_owned()]),
                _ => break,
            }
        }
        let is_option =
            |token: &&&str| token.starts_with('-') && token.trim_matches('-').starts_with(char::is_alphabetic);
        let option = |token: &&str| token.split(['=', ',', ')']).next().unwrap_or_default().to_owned();
        Self { words, options: tokens.iter().filter(is_option).map(option).collect() }
    }
}

/// The help of each command, read once.
struct Help {
    harness: Harness,
    known: HashMap<String, Option<String>>,
}

impl Help {
    /// The help of a command; none if there is no such command.
    fn of(&mut self, path: &str) -> Option<String> {
        let harness = &self.harness;
        let read = || {
            let ran = harness.trefoil(&path.split(' ').chain(["--help"]).collect::<Vec<_>>());
            (ran.code == 0).then_some(ran.stdout)
        };
        self.known.entry(path.to_owned()).or_insert_with(read).clone()
    }

    /// The commands that a line means, each with its help, or what is wrong with it.
    fn meant(&mut self, shown: &Shown) -> Result<Vec<String>, String> {
        let mut found = Vec::new();
        for first in shown.words.first().into_iter().flatten() {
            let help = self.of(first).ok_or_else(|| format!("there is no command {first}"))?;
            match shown.words.get(1).filter(|_| help.contains("\nCommands:\n")) {
                None => found.push(help),
                Some(seconds) => {
                    for second in seconds {
                        let path = format!("{first} {second}");
                        found.push(self.of(&path).ok_or_else(|| format!("there is no command {path}"))?);
                    }
                }
            }
        }
        Ok(found)
    }
}

/// Whether a help text lists an option.
fn lists(help: &str, option: &str) -> bool {
    help.split(|c: char| c.is_whitespace() || ",[]=".contains(c)).any(|word| word == option)
}

#[test]
fn every_command_and_option_that_a_document_shows_exists() {
    let mut help = Help { harness: Harness::new(), known: HashMap::new() };
    let (mut wrong, mut checked) = (Vec::new(), BTreeSet::new());
    for file in documents() {
        for line in shown(&std::fs::read_to_string(&file).unwrap()) {
            let shown = Shown::parse(&line);
            let place = format!("{}: trefoil {line}", file.file_name().unwrap().display());
            match help.meant(&shown) {
                Err(why) => wrong.push(format!("{place}: {why}")),
                Ok(commands) => {
                    for option in &shown.options {
                        if !commands.is_empty() && !commands.iter().any(|help| lists(help, option)) {
                            wrong.push(format!("{place}: there is no option {option}"));
                        }
                    }
                    checked.extend(shown.words.first().into_iter().flatten().cloned());
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    for command in ["run", "serve", "a2a", "session", "tree", "worktree", "mcp", "gc", "acp-client"] {
        assert!(checked.contains(command), "no document shows {command}: {checked:?}");
    }
}
