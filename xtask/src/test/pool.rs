//! Runs tests, each in a process of its own and several at once.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::File;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::cargo;

/// The longest that one test may take. Tests give up by themselves long before; this ends those that cannot.
const LONGEST: Duration = Duration::from_secs(1500);
/// How much of a failed test's output is shown: its end.
const SHOWN: usize = 200_000;
/// How often progress is told where there is no terminal.
const TOLD_EVERY: Duration = Duration::from_secs(20);
/// The line with which libtest ends when a process ran the one test that it was started for.
const PROOF: &str = "test result: ok. 1 passed; 0 failed; 0 ignored";

/// Something to run.
pub struct Job {
    /// Its crate and its path in there: `engine::turns::joins`.
    pub name: String,
    pub program: PathBuf,
    pub arguments: Vec<String>,
    /// Where it runs: the folder of its package.
    pub folder: PathBuf,
    /// What its environment has besides.
    pub environment: Vec<(&'static str, OsString)>,
    /// Whether it is a test of libtest, which says so when it has passed. Of other programs the exit code counts.
    pub libtest: bool,
}

impl Job {
    /// A program that passes if it ends well.
    pub fn smoke(name: String, program: PathBuf, arguments: Vec<String>) -> Self {
        let folder = cargo::root().to_owned();
        Self { name, program, arguments, folder, environment: Vec::new(), libtest: false }
    }
}

/// What became of a job.
pub struct Done {
    pub name: String,
    pub took: Duration,
    pub passed: bool,
}

enum News {
    Began(usize),
    Ended(usize, Done, Option<String>),
}

/// Runs all jobs in their order, so many at once, and keeps what failed ones print in a folder. Tells what fails when it fails.
pub fn run(jobs: &[Job], at_once: usize, outputs: &Path) -> Result<Vec<Done>> {
    std::fs::create_dir_all(outputs).with_context(|| outputs.display().to_string())?;
    let waiting: Mutex<VecDeque<usize>> = Mutex::new((0..jobs.len()).collect());
    let (sender, news) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            let (sender, waiting) = (sender.clone(), &waiting);
            scope.spawn(move || {
                while let Some(index) = next(waiting) {
                    let _ = sender.send(News::Began(index));
                    let start = Instant::now();
                    let result = one(&jobs[index], &outputs.join(format!("{index}.log")));
                    let (name, took) = (jobs[index].name.clone(), start.elapsed());
                    let done = Done { name, took, passed: result.is_ok() };
                    let _ = sender.send(News::Ended(index, done, result.err().map(|error| format!("{error:#}"))));
                }
            });
        }
        drop(sender);
        Ok(listen(jobs, &news))
    })
}

fn next(waiting: &Mutex<VecDeque<usize>>) -> Option<usize> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
}

/// Tells how it goes, until all have ended.
fn listen(jobs: &[Job], news: &mpsc::Receiver<News>) -> Vec<Done> {
    let terminal = std::io::stdout().is_terminal();
    let (mut done, mut running) = (Vec::with_capacity(jobs.len()), Vec::new());
    let mut told = Instant::now();
    loop {
        match news.recv_timeout(TOLD_EVERY.saturating_sub(told.elapsed())) {
            Ok(News::Began(index)) => running.push(index),
            Ok(News::Ended(index, outcome, failure)) => {
                running.retain(|other| *other != index);
                if let Some(failure) = failure {
                    let clear = if terminal { "\r\x1b[K" } else { "" };
                    println!("{clear}---- FAILED {} ({:.1} s)\n{failure}", outcome.name, outcome.took.as_secs_f64());
                }
                done.push(outcome);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        let names: Vec<&str> = running.iter().map(|index| jobs[*index].name.as_str()).collect();
        let progress = format!("{} of {} done; now {}", done.len(), jobs.len(), names.join(", "));
        if terminal {
            let short: String = progress.chars().take(110).collect();
            print!("\r\x1b[K{short}");
            let _ = std::io::stdout().flush();
        } else if told.elapsed() >= TOLD_EVERY {
            println!("{progress}");
            told = Instant::now();
        }
    }
    if terminal {
        print!("\r\x1b[K");
    }
    done
}

/// Runs one job; fails with what it printed.
fn one(job: &Job, log: &Path) -> Result<()> {
    let output = File::create(log).with_context(|| log.display().to_string())?;
    let mut command = Command::new(&job.program);
    cargo::forget(&mut command);
    command.args(&job.arguments).current_dir(&job.folder);
    command.envs(job.environment.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
    let mut child = command.spawn().with_context(|| format!("cannot run {}", job.program.display()))?;
    let start = Instant::now();
    let mut pause = Duration::from_millis(1);
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if start.elapsed() > LONGEST {
            child.kill()?;
            child.wait()?;
            break None;
        }
        std::thread::sleep(pause);
        pause = (pause * 3 / 2).min(Duration::from_millis(20));
    };
    let printed = String::from_utf8_lossy(&std::fs::read(log)?).into_owned();
    judge(job, status, &printed)?;
    // Only what failed is kept.
    std::fs::remove_file(log)?;
    Ok(())
}

fn judge(job: &Job, status: Option<ExitStatus>, printed: &str) -> Result<()> {
    let end = printed.len().saturating_sub(SHOWN);
    let end = (end..printed.len()).find(|place| printed.is_char_boundary(*place)).unwrap_or(printed.len());
    let shown = &printed[end..];
    match status {
        None => bail!("{shown}\nit had not ended after {LONGEST:?} and was killed"),
        Some(status) if !status.success() => bail!("{shown}\n{status}"),
        // One that is ignored, or not there, would pass without having run.
        Some(_) if job.libtest && !printed.contains(PROOF) => bail!("{shown}\nit did not run"),
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(name: &str, command: &str, libtest: bool) -> Job {
        let arguments = vec!["-c".to_owned(), command.to_owned()];
        Job { libtest, ..Job::smoke(name.to_owned(), "/bin/sh".into(), arguments) }
    }

    #[test]
    fn only_what_ran_and_passed_has_passed() {
        let ignored = "echo 'test result: ok. 0 passed; 0 failed; 1 ignored'";
        let jobs = [
            shell("good", &format!("echo '{PROOF}; 0 measured'"), true),
            shell("ignored", ignored, true),
            shell("silent", "true", true),
            shell("smoke", "true", false),
            shell("bad", "echo why; exit 3", false),
            shell("killed", "kill -9 $$", false),
        ];
        let outputs = std::env::temp_dir().join(format!("trefoil-pool-{}", std::process::id()));
        let mut done = run(&jobs, 3, &outputs).unwrap();
        assert!(std::fs::read_to_string(outputs.join("4.log")).unwrap().contains("why"));
        std::fs::remove_dir_all(&outputs).unwrap();
        done.sort_by(|a, b| a.name.cmp(&b.name));
        let passed: Vec<&str> = done.iter().filter(|done| done.passed).map(|done| done.name.as_str()).collect();
        assert_eq!((done.len(), passed), (6, vec!["good", "smoke"]));
    }

    #[test]
    fn a_failure_says_what_was_printed() {
        let job = shell("bad", "", false);
        let status = Command::new("/bin/sh").args(["-c", "exit 3"]).status().unwrap();
        let error = judge(&job, Some(status), &format!("{}é the end", "x".repeat(SHOWN))).unwrap_err().to_string();
        assert!(error.contains("the end") && error.contains("exit status: 3"), "{error}");
    }
}
