//! Exit codes, and the error that carries one.

use std::fmt;

use api::HostError;

/// The exit codes; `--help` documents them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The command worked; for `run`, the turn succeeded.
    Success = 0,
    /// Any other failure.
    Failed = 1,
    /// The command line is wrong.
    Usage = 2,
    /// There is no usable model, or it refused, failed or was cut off.
    Model = 3,
    /// A permission or a question was rejected, which ended the turn.
    Denied = 4,
    /// The budget is used up, and nobody can raise it.
    Budget = 5,
    /// SIGHUP: the terminal was closed. The turn can be resumed.
    Hangup = 129,
    /// Ctrl-C.
    Cancelled = 130,
    /// SIGTERM. The turn can be resumed.
    Terminated = 143,
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// The exit codes in the help of `run`.
pub const EXIT_CODES: [(u8, &str); 9] = [
    (0, "The turn succeeded"),
    (1, "Any other error"),
    (2, "The command line is wrong"),
    (3, "There is no usable model, or the model failed"),
    (4, "A permission or question was rejected"),
    (5, "The budget is used up"),
    (129, "SIGHUP: the turn is parked; `trefoil run -c` resumes it"),
    (130, "Cancelled with Ctrl-C"),
    (143, "SIGTERM: the turn is parked; `trefoil run -c` resumes it"),
];

/// The most existing names that an error lists.
const MAX_KNOWN: usize = 12;

/// An error with an exit code and advice.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// What happened, to what.
    pub message: String,
    /// What to do next.
    pub hint: Option<String>,
}

impl Failure {
    /// An error without advice.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), hint: None }
    }

    /// Adds advice.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// An unknown name, with the known ones: the most similar first.
    pub fn unknown(what: &str, id: &str, known: &[String]) -> Self {
        let failure = Self::new(Exit::Failed, format!("unknown {what}: {id}"));
        if known.is_empty() {
            return failure.hint(format!("there is no {what} yet"));
        }
        failure.hint(format!("known: {}", most_similar_first(id, known)))
    }

    /// An agent that only other agents can use, with those that a person can use.
    pub fn subagent(id: &str, primary: &[String]) -> Self {
        let message = format!("agent {id} is a subagent: it works for other agents and takes no messages itself");
        Self::new(Exit::Failed, message).hint(format!("primary agents: {}", most_similar_first(id, primary)))
    }
}

fn most_similar_first(id: &str, known: &[String]) -> String {
    let mut sorted: Vec<&str> = known.iter().map(String::as_str).collect();
    sorted.sort_by_key(|candidate| edit_distance(id, candidate));
    let more = sorted.len().saturating_sub(MAX_KNOWN);
    sorted.truncate(MAX_KNOWN);
    let tail = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{tail}", sorted.join(", "))
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// The exit code of an error, and its text: `error: …`, and a hint if there is one.
pub fn explain(error: anyhow::Error) -> (Exit, String) {
    let (exit, message, hint) = match error.downcast_ref::<HostError>() {
        Some(HostError::NotFound { what, id, known }) => {
            let failure = Failure::unknown(what, id, known);
            (failure.exit, failure.message, failure.hint)
        }
        Some(HostError::NoModel { message, advice }) => (Exit::Model, message.clone(), advice.clone()),
        _ => match error.downcast_ref::<Failure>() {
            Some(failure) => (failure.exit, format!("{error:#}"), failure.hint.clone()),
            None => (Exit::Failed, format!("{error:#}"), None),
        },
    };
    let hint = hint.map_or(String::new(), |hint| format!("  hint: {hint}\n"));
    (exit, api::strip_control(&format!("error: {message}\n{hint}")).into_owned())
}

/// Longer texts are cut before they are compared.
const MAX_COMPARED: usize = 64;

/// The number of letters that must change to turn one text into the other, ignoring case.
fn edit_distance(a: &str, b: &str) -> usize {
    let clip = |text: &str| text.chars().take(MAX_COMPARED).flat_map(char::to_lowercase).collect::<Vec<_>>();
    let (a, b) = (clip(a), clip(b));
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replace = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replace.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_similar_comes_first() {
        let known = ["general".to_string(), "plan".into(), "build".into()];
        let failure = Failure::unknown("agent", "biuld", &known);
        assert_eq!(failure.message, "unknown agent: biuld");
        assert_eq!(failure.hint.as_deref(), Some("known: build, plan, general"));
    }

    #[test]
    fn long_lists_are_cut() {
        let known: Vec<String> = (0..40).map(|n| format!("m{n}")).collect();
        let hint = Failure::unknown("model", "m7", &known).hint.unwrap();
        assert!(hint.starts_with("known: m7, "), "{hint}");
        assert!(hint.ends_with(" and 28 more"), "{hint}");
    }

    #[test]
    fn errors_become_lines() {
        let error = anyhow::Error::new(Failure::new(Exit::Usage, "no\x1b[2Jpe").hint("do this"));
        assert_eq!(explain(error), (Exit::Usage, "error: nope\n  hint: do this\n".to_string()));
        let error = anyhow::anyhow!("inner").context("outer");
        assert_eq!(explain(error), (Exit::Failed, "error: outer: inner\n".to_string()));
        let error = HostError::NotFound { what: "agent", id: "x".into(), known: vec!["y".into()] };
        assert_eq!(explain(error.into()).1, "error: unknown agent: x\n  hint: known: y\n");
        let error = HostError::NoModel { message: "No model".into(), advice: Some("Set it".into()) };
        assert_eq!(explain(error.into()), (Exit::Model, "error: No model\n  hint: Set it\n".to_string()));
    }

    #[test]
    fn edit_distances() {
        for (a, b, want) in [("", "", 0), ("abc", "ABC", 0), ("abc", "", 3), ("kitten", "sitting", 3)] {
            assert_eq!(edit_distance(a, b), want, "{a} {b}");
        }
    }
}
