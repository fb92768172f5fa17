//! Runs programs to their end.

use std::io::Read;
use std::process::{Child, ExitStatus, Output};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The interval between checks whether a program that closed its streams has exited.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// How long reading the output of a killed program may take: others may hold its streams open.
const OUTPUT_WAIT: Duration = Duration::from_secs(2);

/// Waits until a program exits and both its streams end. After `longest`, kills it and fails the test with everything
/// it printed.
#[track_caller]
pub fn finish(what: &str, mut child: Child, longest: Duration) -> Output {
    let limit = Instant::now() + longest;
    let mut printed = ProgramOutput::of(&mut child);
    match printed.end(&mut child, limit) {
        Some(status) => Output { status, stdout: printed.stdout.take(), stderr: printed.stderr.take() },
        None => panic!("{what} did not end within {longest:?}: {}", printed.killed(&mut child)),
    }
}

/// Kills a program, and describes how it ended and what it printed, unless somebody else read that.
pub fn autopsy(child: &mut Child) -> String {
    ProgramOutput::of(child).killed(child)
}

/// The output of a program so far.
struct ProgramOutput {
    stdout: Stream,
    stderr: Stream,
}

impl ProgramOutput {
    fn of(child: &mut Child) -> Self {
        Self { stdout: Stream::read(child.stdout.take()), stderr: Stream::read(child.stderr.take()) }
    }

    /// Its exit status, if it exits before the limit and nobody else holds its streams.
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
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    fn killed(mut self, child: &mut Child) -> String {
        let state = match child.try_wait() {
            Ok(Some(status)) => format!("it had ended with {status}"),
            _ => "it was still running".to_owned(),
        };
        let _ = child.kill();
        let _ = child.wait();
        let limit = Instant::now() + OUTPUT_WAIT;
        let text = |stream: &mut Stream| {
            stream.ends(limit);
            String::from_utf8_lossy(&stream.take()).into_owned()
        };
        format!("{state}\nstdout:\n{}\nstderr:\n{}", text(&mut self.stdout), text(&mut self.stderr))
    }
}

/// A stream that is read on its own thread.
struct Stream {
    bytes: Arc<Mutex<Vec<u8>>>,
    end: Receiver<()>,
}

impl Stream {
    /// A missing stream, or one that somebody else reads, has ended.
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

    /// The message about a program that has no time left.
    fn given_up(child: Child) -> String {
        let failed = catch_unwind(AssertUnwindSafe(|| finish("sh", child, Duration::ZERO))).unwrap_err();
        failed.downcast_ref::<String>().unwrap().clone()
    }

    #[test]
    fn output_has_both_streams_and_the_exit_code() {
        let output = finish("sh", sh("echo out; echo err >&2; exit 3"), WAIT);
        let streams = (&output.stdout[..], &output.stderr[..]);
        assert_eq!((output.status.code(), streams), (Some(3), (&b"out\n"[..], &b"err\n"[..])));
    }

    #[test]
    fn a_program_that_does_not_end_is_killed_and_its_output_is_shown() {
        let folder = tempfile::tempdir().unwrap();
        let begun = folder.path().join("begun");
        let child = sh(&format!("echo begun; touch {}; exec sleep 300", begun.display()));
        until("the program begins", || begun.exists());
        let said = given_up(child);
        assert!(said.starts_with("sh did not end within 0ns: it was still running\nstdout:\nbegun\n"), "{said}");
    }

    #[test]
    fn a_program_whose_streams_are_held_open_is_recognised() {
        let mut child = sh("sleep 300 & echo $!");
        until("the program ends", || child.try_wait().unwrap().is_some());
        let said = given_up(child);
        assert!(said.contains("it had ended with exit status: 0\nstdout:\n"), "{said}");
        let left = said.lines().find(|line| line.parse::<u32>().is_ok()).unwrap();
        assert!(Command::new("kill").arg(left).status().unwrap().success());
    }
}
