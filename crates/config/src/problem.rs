//! Problems in a configuration and their positions.

use std::fmt;
use std::path::{Path, PathBuf};

/// How serious a problem is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Everything works, but something may not be what the author meant.
    Warning,
    /// A value or a whole file is ignored.
    Error,
}

/// Which agents may lack rules because of a problem. What may have been denied needs approval until it is fixed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum AffectedAgents {
    /// None.
    #[default]
    None,
    /// The agents with these names.
    Named(Vec<String>),
    /// All agents.
    All,
}

/// A problem; the rest of the configuration works without the affected part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub file: Option<PathBuf>,
    /// The line, from 1.
    pub line: Option<u32>,
    /// The column, from 1.
    pub column: Option<u32>,
    /// The key, with dots between its parts.
    pub key: Option<String>,
    /// What is wrong and how to fix it.
    pub message: String,
    /// How serious it is.
    pub severity: Severity,
    /// Which agents may lack denials because something could not be read (a whole file, a mistyped key):
    /// [`Config::tightened`] asks until it is fixed.
    ///
    /// [`Config::tightened`]: crate::Config::tightened
    pub affects: AffectedAgents,
}

impl Problem {
    /// A problem because of which something is ignored.
    pub fn error(message: impl Into<String>) -> Self {
        let (message, severity) = (message.into(), Severity::Error);
        Self { file: None, line: None, column: None, key: None, message, severity, affects: AffectedAgents::None }
    }

    /// A problem with something doubtful.
    pub fn warning(message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(message) }
    }

    /// Marks that denials for all agents may be missing.
    #[must_use]
    pub(crate) fn affecting_all(self) -> Self {
        self.affecting(AffectedAgents::All)
    }

    /// Marks that denials may be missing.
    #[must_use]
    pub(crate) fn affecting(mut self, affects: AffectedAgents) -> Self {
        self.affects = affects;
        self
    }

    /// Sets the file.
    #[must_use]
    pub fn in_file(mut self, file: &Path) -> Self {
        self.file = Some(file.to_owned());
        self
    }

    /// Sets line and column, both from 1.
    #[must_use]
    pub fn at(mut self, place: Option<(usize, usize)>) -> Self {
        self.line = place.and_then(|(line, _)| u32::try_from(line).ok());
        self.column = place.and_then(|(_, column)| u32::try_from(column).ok());
        self
    }

    /// Sets the key.
    #[must_use]
    pub fn about(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}:", file.display())?;
            for number in [self.line, self.column].into_iter().flatten() {
                write!(f, "{number}:")?;
            }
            f.write_str(" ")?;
        }
        f.write_str(&self.message)?;
        match &self.affects {
            AffectedAgents::None => Ok(()),
            AffectedAgents::Named(names) => {
                let names: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
                let names = names.join(", ");
                write!(f, "; until you fix it, commands, edits and fetches of the agent {names} need approval")
            }
            AffectedAgents::All => f.write_str("; until you fix it, commands, edits and fetches need approval"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_place_then_message() {
        let problem = Problem::error("bad").in_file(Path::new("/a/b.json")).at(Some((3, 7)));
        assert_eq!(problem.to_string(), "/a/b.json:3:7: bad");
        assert_eq!(Problem::warning("odd").in_file(Path::new("b")).to_string(), "b: odd");
        assert_eq!(Problem::warning("odd").to_string(), "odd");
    }
}
