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

/// One thing that is wrong; the rest of the configuration works without it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub file: Option<PathBuf>,
    /// The line, from 1.
    pub line: Option<usize>,
    /// The column, from 1.
    pub column: Option<usize>,
    /// The key, with dots between its steps.
    pub key: Option<String>,
    /// What is wrong, and what to do.
    pub message: String,
    /// How bad it is.
    pub severity: Severity,
    /// Whether it keeps something from being read that may have held denials (a whole file, a mistyped key): until it is
    /// mended, [`Config::tighten`] asks.
    ///
    /// [`Config::tighten`]: crate::Config::tighten
    pub closes: bool,
}

impl Problem {
    /// Something that is left out.
    pub fn error(message: impl Into<String>) -> Self {
        let (message, severity) = (message.into(), Severity::Error);
        Self { file: None, line: None, column: None, key: None, message, severity, closes: false }
    }

    /// Something that is doubtful.
    pub fn warning(message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(message) }
    }

    /// About something that may have held denials and does not count.
    #[must_use]
    pub(crate) fn closing(mut self) -> Self {
        self.closes = true;
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
        self.line = place.map(|(line, _)| line);
        self.column = place.map(|(_, column)| column);
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
        if self.closes {
            f.write_str("; until it is mended, commands, edits and fetches are asked for")?;
        }
        Ok(())
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
