//! Which line and transport a request speaks.

use crate::error::{Error, ErrorKind};
use crate::model::Line;

/// How a request travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    /// JSON-RPC 2.0 over `POST /`.
    JsonRpc,
    /// A method and a path for each operation.
    Rest,
}

/// How a request is read and its reply is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Dialect {
    /// The line of parameters and results. The name of a method or a path decides it.
    pub payload: Line,
    /// The line of errors. The requested version decides it.
    pub errors: Line,
    /// How it travels.
    pub transport: Transport,
}

impl Dialect {
    /// One line for payloads and errors.
    pub fn of(line: Line, transport: Transport) -> Self {
        Self { payload: line, errors: line, transport }
    }

    /// The version that the response names.
    pub fn version(self) -> &'static str {
        self.errors.version()
    }

    /// How payloads are spelled.
    pub(super) fn syntax(self) -> Syntax {
        match (self.payload, self.transport) {
            (Line::V03, Transport::JsonRpc) => Syntax::Kinds,
            (Line::V03, Transport::Rest) => Syntax::Proto03,
            (Line::V10, _) => Syntax::Proto10,
        }
    }
}

/// How payloads are spelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Syntax {
    /// Objects with a `kind`: JSON-RPC of 0.3.
    Kinds,
    /// The JSON form of the protocol buffers of 0.3: REST.
    Proto03,
    /// The JSON form of the protocol buffers of 1.0: both transports.
    Proto10,
}

/// What the wire needs to know of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The line of a request that neither names a version nor uses a name of one line only.
    pub default_line: Line,
    /// The lines that are served.
    pub supported: Vec<Line>,
    /// Whether `opencode.sessions.shell` is enabled.
    pub session_shell: bool,
    /// Whether workspaces and worktrees may be changed.
    pub workspace_mutations: bool,
}

/// The version that a request asks for, in the header or the query `A2A-Version`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AskedVersion {
    /// None, so that the method or path decides, or else the configuration.
    Default,
    /// A line of the protocol.
    Line(Line),
    /// Something else: an unknown version, or no version at all.
    Unknown(String),
}

/// The most characters of an unknown version that an error repeats.
const MAX_SHOWN_VERSION: usize = 64;

impl AskedVersion {
    /// Reads a version, `Major.Minor` or `Major.Minor.Patch`.
    pub fn parse(text: &str) -> Self {
        let text = text.trim();
        if text.is_empty() {
            return Self::Default;
        }
        match normalise(text) {
            Some((0, 3)) => Self::Line(Line::V03),
            Some((1, 0)) => Self::Line(Line::V10),
            Some((major, minor)) => Self::Unknown(format!("{major}.{minor}")),
            None => Self::Unknown(text.chars().take(MAX_SHOWN_VERSION).collect()),
        }
    }

    /// The line of a request whose method or path belongs to `named`, or to both lines.
    ///
    /// # Errors
    /// The version is unknown or not served, or lacks what is named. The error comes with the line that shapes it.
    pub(super) fn negotiate(&self, named: Option<Line>, settings: &Settings) -> Result<(Line, Line), (Line, Error)> {
        let default = named.unwrap_or(settings.default_line);
        let (payload, errors) = match (self, named) {
            (Self::Unknown(version), _) => {
                return Err((default, not_supported(version, &settings.supported, settings)));
            }
            // 1.0 has names of its own, which 0.3 lacks. The other way round, clients of 0.3 that ask for the errors of 1.0
            // exist, and get them.
            (Self::Line(Line::V03), Some(Line::V10)) => {
                return Err((Line::V03, not_supported(Line::V03.version(), &[Line::V10], settings)));
            }
            (Self::Line(asked), named) => (named.unwrap_or(*asked), *asked),
            (Self::Default, _) => (default, default),
        };
        for line in [payload, errors] {
            if !settings.supported.contains(&line) {
                return Err((errors, not_supported(line.version(), &settings.supported, settings)));
            }
        }
        Ok((payload, errors))
    }
}

fn normalise(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split('.').map(|part| {
        let digits = !part.is_empty() && part.len() <= 9 && part.bytes().all(|byte| byte.is_ascii_digit());
        if digits { part.parse::<u32>().ok() } else { None }
    });
    let (major, minor) = (numbers.next()??, numbers.next()??);
    if let Some(patch) = numbers.next() {
        patch?;
    }
    if numbers.next().is_some() {
        return None;
    }
    Some((major, minor))
}

fn not_supported(requested: &str, supported: &[Line], settings: &Settings) -> Error {
    let versions: Vec<&str> = supported.iter().map(|line| line.version()).collect();
    Error::new(ErrorKind::VersionNotSupported, format!("Unsupported A2A version: {requested}"))
        .with("requested_version", requested)
        .with("supported_protocol_versions", versions)
        .with("default_protocol_version", settings.default_line.version())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings {
            default_line: Line::V03,
            supported: Line::ALL.to_vec(),
            session_shell: false,
            workspace_mutations: false,
        }
    }

    #[test]
    fn versions_normalise_to_major_and_minor() {
        for (text, expected) in [
            ("", AskedVersion::Default),
            ("  ", AskedVersion::Default),
            ("0.3", AskedVersion::Line(Line::V03)),
            ("0.3.0", AskedVersion::Line(Line::V03)),
            (" 1.0.3 ", AskedVersion::Line(Line::V10)),
            ("0.2", AskedVersion::Unknown("0.2".into())),
            ("2.0.1", AskedVersion::Unknown("2.0".into())),
            ("1", AskedVersion::Unknown("1".into())),
            ("1.0.0.0", AskedVersion::Unknown("1.0.0.0".into())),
            ("1.0-rc", AskedVersion::Unknown("1.0-rc".into())),
            ("+1.0", AskedVersion::Unknown("+1.0".into())),
            ("abc", AskedVersion::Unknown("abc".into())),
            ("99999999999.0", AskedVersion::Unknown("99999999999.0".into())),
        ] {
            assert_eq!(AskedVersion::parse(text), expected, "{text:?}");
        }
        let AskedVersion::Unknown(shown) = AskedVersion::parse(&"x".repeat(5000)) else { panic!("a version") };
        assert_eq!(shown.len(), MAX_SHOWN_VERSION);
    }

    #[test]
    fn the_name_decides_the_payload_and_the_version_the_errors() {
        let lines =
            |asked: &str, named| AskedVersion::parse(asked).negotiate(named, &settings()).map_err(|(line, _)| line);
        assert_eq!(lines("", None), Ok((Line::V03, Line::V03)));
        assert_eq!(lines("", Some(Line::V10)), Ok((Line::V10, Line::V10)));
        assert_eq!(lines("1.0", None), Ok((Line::V10, Line::V10)));
        assert_eq!(lines("1.0", Some(Line::V03)), Ok((Line::V03, Line::V10)));
        assert_eq!(lines("0.3", Some(Line::V10)), Err(Line::V03));
        assert_eq!(lines("2.0", None), Err(Line::V03));
        assert_eq!(lines("2.0", Some(Line::V10)), Err(Line::V10));
    }

    #[test]
    fn a_line_that_is_not_served_is_refused() {
        let only_new = Settings { default_line: Line::V10, supported: vec![Line::V10], ..settings() };
        let (line, error) = AskedVersion::Default.negotiate(Some(Line::V03), &only_new).unwrap_err();
        assert_eq!(line, Line::V03);
        assert_eq!(error.fields["supported_protocol_versions"], serde_json::json!(["1.0"]));
        assert!(AskedVersion::Line(Line::V03).negotiate(None, &only_new).is_err());
    }
}
