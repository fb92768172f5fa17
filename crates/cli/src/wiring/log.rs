//! The log: a file that is created with its first line and rotated when it is full.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use config::Redactor;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Registry, reload};

use crate::exit::{Exit, Failure};

/// A log of this many bytes is rotated; one old log is kept.
const MAX_BYTES: u64 = 5 << 20;

/// Where the log is.
pub fn path(state: &Path) -> PathBuf {
    state.join("trefoil.log")
}

/// What is logged, while the program runs. Cheap to clone.
#[derive(Debug, Clone)]
pub struct LogLevel {
    /// `None` if the user chose the level, which then stays.
    filter: Option<reload::Handle<Targets, Registry>>,
}

/// Starts logging: to standard error, or to the file in the state directory.
pub fn start(level: Option<&str>, print: bool, state: &Path, redactor: Redactor) -> anyhow::Result<LogLevel> {
    let level = level.filter(|level| !level.is_empty());
    let (filter, handle) = reload::Layer::new(targets(level)?);
    let target = if print { LogTarget::Stderr } else { LogTarget::File(LogFile::new(path(state))) };
    let layer = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(RedactedWriter { target, redactor });
    tracing_subscriber::registry().with(filter).with(layer).init();
    Ok(LogLevel { filter: level.is_none().then_some(handle) })
}

impl LogLevel {
    /// Uses the level of a configuration, unless the user chose one for this run. Takes the names of Python's levels, too.
    pub fn configure(&self, level: &str) -> anyhow::Result<()> {
        let Some(filter) = &self.filter else { return Ok(()) };
        // An error means that nothing is logged any more.
        let _ = filter.reload(targets(Some(&own_name(level)))?);
        Ok(())
    }
}

/// Where lines go.
#[derive(Clone)]
enum LogTarget {
    Stderr,
    File(LogFile),
}

/// Writes lines without the secrets that an error or an address may repeat. Cheap to clone.
#[derive(Clone)]
struct RedactedWriter {
    target: LogTarget,
    redactor: Redactor,
}

impl Write for RedactedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let line = self.redactor.text(&String::from_utf8_lossy(bytes));
        match &mut self.target {
            LogTarget::Stderr => io::stderr().write_all(line.as_bytes())?,
            LogTarget::File(file) => file.write_all(line.as_bytes())?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for RedactedWriter {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// Our name of a level, which may be one of Python's.
fn own_name(level: &str) -> String {
    match level.to_ascii_lowercase().as_str() {
        "warning" => "warn".to_owned(),
        "critical" | "fatal" => "error".to_owned(),
        "notset" => "trace".to_owned(),
        level => level.to_owned(),
    }
}

fn targets(level: Option<&str>) -> anyhow::Result<Targets> {
    let Some(level) = level else {
        return Ok(Targets::new().with_default(LevelFilter::WARN));
    };
    // The parser takes a single word for a target of which everything is logged.
    let known = |pair: &str| pair.rsplit('=').next().is_some_and(|level| level.parse::<LevelFilter>().is_ok());
    level.parse().ok().filter(|_| level.split(',').all(known)).ok_or_else(|| {
        Failure::new(Exit::Usage, format!("unknown log level: {level}"))
            .hint("use error, warn, info, debug or trace, or target=level pairs with commas between them")
            .into()
    })
}

/// The log file. Cheap to clone.
#[derive(Clone)]
struct LogFile(Arc<Mutex<LogFileState>>);

struct LogFileState {
    path: PathBuf,
    /// The open file and its size.
    file: Option<(File, u64)>,
}

impl LogFile {
    fn new(path: PathBuf) -> Self {
        Self(Arc::new(Mutex::new(LogFileState { path, file: None })))
    }
}

impl LogFileState {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.file.as_ref().is_some_and(|(_, size)| *size >= MAX_BYTES) {
            self.file = None;
        }
        if self.file.is_none() {
            self.file = Some(self.open()?);
        }
        let Some((file, size)) = &mut self.file else { return Ok(()) };
        *size += bytes.len() as u64;
        file.write_all(bytes)
    }

    fn open(&self) -> io::Result<(File, u64)> {
        if let Some(folder) = self.path.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        if fs::metadata(&self.path).is_ok_and(|metadata| metadata.len() >= MAX_BYTES) {
            fs::rename(&self.path, self.path.with_extension("log.old"))?;
        }
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&self.path)?;
        let size = file.metadata()?.len();
        Ok((file, size))
    }
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        // Callers can do nothing about a log that cannot be written, and would report it on the terminal.
        let _ = self.0.lock().unwrap_or_else(PoisonError::into_inner).write(api::strip_control(&text).as_bytes());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn the_file_is_created_with_the_first_line_and_rotated_when_full() {
        let dir = tempfile::tempdir().unwrap();
        let path = path(&dir.path().join("state"));
        let mut log = LogFile::new(path.clone());
        assert!(!path.exists());
        log.write_all(b"one\x1b[2J\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "one\n");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        log.write_all(&vec![b'x'; MAX_BYTES as usize]).unwrap();
        log.write_all(b"two\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two\n");
        let old = path.with_extension("log.old");
        assert!(fs::metadata(old).unwrap().len() > MAX_BYTES);
    }

    #[test]
    fn levels_of_python_are_understood() {
        for (given, want) in [("WARNING", "warn"), ("CRITICAL", "error"), ("NOTSET", "trace"), ("Info", "info")] {
            let level = want.parse::<LevelFilter>().unwrap();
            assert_eq!(targets(Some(&own_name(given))).unwrap().default_level(), Some(level), "{given}");
        }
        assert!(targets(Some(&own_name("loud"))).is_err());
    }

    #[test]
    fn secrets_do_not_reach_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = path(dir.path());
        let env = [("MY_TOKEN".to_owned(), "from-the-environment".to_owned())];
        let redactor = Redactor::read(&env.into(), dir.path());
        let mut log = RedactedWriter { target: LogTarget::File(LogFile::new(path.clone())), redactor };
        log.write_all(b"WARN error sending request for url (https://u:p@h/mcp?token=x) from-the-environment\n")
            .unwrap();
        let line = "WARN error sending request for url (https://***@h/mcp?token=*** ***\n";
        assert_eq!(fs::read_to_string(&path).unwrap(), line);
    }

    #[test]
    fn levels() {
        assert!(targets(None).unwrap().would_enable("x", &tracing::Level::WARN));
        assert!(!targets(None).unwrap().would_enable("x", &tracing::Level::INFO));
        assert!(targets(Some("trefoil_engine=debug")).unwrap().would_enable("trefoil_engine", &tracing::Level::DEBUG));
        for wrong in ["loud", "trefoil=loud", "warn,x"] {
            assert!(targets(Some(wrong)).is_err(), "{wrong}");
        }
    }
}
