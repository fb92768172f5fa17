//! What is wrong with a configuration, and where.

use std::fmt;
use std::path::{Path, PathBuf};

/// How bad a problem is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Everything works, but something may not be what the author meant.
    Warning,
    /// A value, or a whole file, is left out.
    Error,
}

/// Whose rules may lack something because of a problem. What may have been denied needs approval until it is fixed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Closes {
    /// Nobody's.
    #[default]
    Nothing,
    /// Those of the agents with these names.
    Agents(Vec<String>),
    /// Everybody's.
    Everything,
}

/// One thing that is wrong; the rest of the configuration works without it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub file: Option<PathBuf>,
    /// The line, from 1.
    pub line: Option<u32>,
    /// The column, from 1.
    pub column: Option<u32>,
    /// The key, with dots between its steps.
    pub key: Option<String>,
    /// What is wrong, and what to do.
    pub message: String,
    /// How bad it is.
    pub severity: Severity,
    /// Whether it keeps something from being read that may have held denials (a whole file, a mistyped key), and whose:
    /// [`Config::tightened`] asks until it is fixed.
    ///
    /// [`Config::tightened`]: crate::Config::tightened
    pub closes: Closes,
}

impl Problem {
    /// Something that is left out.
    pub fn error(message: impl Into<String>) -> Self {
        let (message, severity) = (message.into(), Severity::Error);
        Self { file: None, line: None, column: None, key: None, message, severity, closes: Closes::Nothing }
    }

    /// Something that is doubtful.
    pub fn warning(message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(message) }
    }

    /// About something that may have held denials for everybody and does not count.
    #[must_use]
    pub(crate) fn closing(self) -> Self {
        self.closing_for(Closes::Everything)
    }

    /// About something that may have held denials and does not count.
    #[must_use]
    pub(crate) fn closing_for(mut self, closes: Closes) -> Self {
        self.closes = closes;
        self
    }

    /// In that file.
    #[must_use]
    pub fn in_file(mut self, file: &Path) -> Self {
        self.file = Some(file.to_owned());
        self
    }

    /// At that place, both from 1.
    #[must_use]
    pub fn at(mut self, place: Option<(usize, usize)>) -> Self {
        self.line = place.and_then(|(line, _)| u32::try_from(line).ok());
        self.column = place.and_then(|(_, column)| u32::try_from(column).ok());
        self
    }

    /// About that key.
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
        match &self.closes {
            Closes::Nothing => Ok(()),
            Closes::Agents(names) => {
                let names: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
                let names = names.join(", ");
                write!(f, "; until you fix it, commands, edits and fetches of the agent {names} need approval")
            }
            Closes::Everything => f.write_str("; until you fix it, commands, edits and fetches need approval"),
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
