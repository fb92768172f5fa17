//! Programs that a test runs to their end.

use std::io::Read;
use std::process::{Child, ExitStatus, Output};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How often is looked whether a program that has closed its streams has ended.
const LOOK: Duration = Duration::from_millis(1);
/// How long what a killed program has printed may take to be read: others may hold its streams.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Waits until a program and both its streams have come to their end. If that takes longer than `longest`, kills it and
/// fails the test with everything that it printed.
#[track_caller]
pub fn finish(what: &str, mut child: Child, longest: Duration) -> Output {
    let limit = Instant::now() + longest;
    let mut printed = Printed::of(&mut child);
    match printed.end(&mut child, limit) {
        Some(status) => Output { status, stdout: printed.stdout.take(), stderr: printed.stderr.take() },
        None => panic!("{what} did not end within {longest:?}: {}", printed.killed(&mut child)),
    }
}

/// Kills a program, and says how it ended and what it had printed, as far as nobody else has read that.
pub fn autopsy(child: &mut Child) -> String {
    Printed::of(child).killed(child)
}

/// What a program has printed so far.
struct Printed {
    stdout: Stream,
    stderr: Stream,
}

impl Printed {
    fn of(child: &mut Child) -> Self {
        Self { stdout: Stream::read(child.stdout.take()), stderr: Stream::read(child.stderr.take()) }
    }

    /// How it ended, if it did before the limit and nobody else holds its streams.
    fn end(&mut self, child: &mut Child, limit: Instant) -> Option<ExitStatus> {
        if !self.stdout.ends(limit) || !self.stderr.ends(limit) {
            return None;
        }
        loop {
            if let Some(status) = child.try_wait().expect("a child can be waited for") {
                return Some(status);
            }
            if Instant::now() >= limit {
                return None;
            }
            std::thread::sleep(LOOK);
        }
    }

    fn killed(mut self, child: &mut Child) -> String {
        let state = match child.try_wait() {
            Ok(Some(status)) => format!("it had ended with {status}"),
            _ => "it was still running".to_owned(),
        };
        let _ = child.kill();
        let _ = child.wait();
        let limit = Instant::now() + LAST_WORDS;
        let text = |stream: &mut Stream| {
            stream.ends(limit);
            String::from_utf8_lossy(&stream.take()).into_owned()
        };
        format!("{state}\nstdout:\n{}\nstderr:\n{}", text(&mut self.stdout), text(&mut self.stderr))
    }
}

/// A stream that is read on a thread of its own.
struct Stream {
    bytes: Arc<Mutex<Vec<u8>>>,
    end: Receiver<()>,
}

impl Stream {
    /// One that is not there, or that somebody else reads, is at its end.
    fn read(source: Option<impl Read + Send + 'static>) -> Self {
        let (sender, end) = mpsc::channel();
        let bytes = Arc::<Mutex<Vec<u8>>>::default();
        if let Some(mut source) = source {
            let bytes = bytes.clone();
            std::thread::spawn(move || {
                let mut buffer = [0; 16 << 10];
                while let Ok(read @ 1..) = source.read(&mut buffer) {
                    bytes.lock().unwrap().extend_from_slice(&buffer[..read]);
                }
                drop(sender);
            });
        }
        Self { bytes, end }
    }

    /// Whether it ends before the limit.
    fn ends(&self, limit: Instant) -> bool {
        let left = limit.saturating_duration_since(Instant::now());
        matches!(self.end.recv_timeout(left), Err(mpsc::RecvTimeoutError::Disconnected))
    }

    fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes.lock().unwrap())
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::process::{Command, Stdio};

    use super::*;
    use crate::{WAIT, until};

    fn sh(script: &str) -> Child {
        Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// What is said of a program that has no time left.
    fn given_up(child: Child) -> String {
        let failed = catch_unwind(AssertUnwindSafe(|| finish("sh", child, Duration::ZERO))).unwrap_err();
        failed.downcast_ref::<String>().unwrap().clone()
    }

    #[test]
    fn both_streams_and_the_end() {
        let output = finish("sh", sh("echo out; echo err >&2; exit 3"), WAIT);
        let streams = (&output.stdout[..], &output.stderr[..]);
        assert_eq!((output.status.code(), streams), (Some(3), (&b"out\n"[..], &b"err\n"[..])));
    }

    #[test]
    fn one_that_does_not_end_is_killed_and_its_words_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let begun = folder.path().join("begun");
        let child = sh(&format!("echo begun; touch {}; exec sleep 300", begun.display()));
        until("the program begins", || begun.exists());
        let said = given_up(child);
        assert!(said.starts_with("sh did not end within 0ns: it was still running\nstdout:\nbegun\n"), "{said}");
    }

    #[test]
    fn one_whose_streams_somebody_holds_is_told_apart() {
        let mut child = sh("sleep 300 & echo $!");
        until("the program ends", || child.try_wait().unwrap().is_some());
        let said = given_up(child);
        assert!(said.contains("it had ended with exit status: 0\nstdout:\n"), "{said}");
        let left = said.lines().find(|line| line.parse::<u32>().is_ok()).unwrap();
        assert!(Command::new("kill").arg(left).status().unwrap().success());
    }
}
