//! Time and memory of processes.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::cost::Cost;

/// How long one run of a program may take.
const LONGEST: Duration = Duration::from_secs(120);
/// How long a program is run repeatedly: a short one needs many runs for a reliable figure.
const REPEATED: Duration = Duration::from_secs(1);
/// The kernel shows CPU times in hundredths of a second.
const MILLISECONDS_PER_TICK: f64 = 10.0;

/// Runs a program at least this many times, from start to exit. The first run is not counted: it creates the database
/// and warms the page cache. `errors` is the file for its error output.
pub fn repeat(runs: usize, errors: &Path, command: impl Fn() -> Command) -> Result<Cost> {
    once(command(), errors)?;
    let (before, begin) = (children_cpu()?, Instant::now());
    let mut walls = Vec::new();
    // A single run is a smoke test.
    while walls.len() < runs || (runs > 1 && begin.elapsed() < REPEATED) {
        walls.push(once(command(), errors)?);
    }
    // A mean, because CPU time is counted in ticks.
    let cpu = (children_cpu()? - before) / walls.len() as f64;
    Ok(Cost::Time { wall: median(walls), cpu })
}

/// The wall time of one run.
fn once(mut command: Command, errors: &Path) -> Result<f64> {
    // A file, not a pipe: a helper that a program leaves behind would keep a pipe open.
    command.stdout(Stdio::null()).stderr(File::create(errors)?);
    let start = Instant::now();
    let mut child = command.spawn().with_context(|| format!("cannot run {}", command.get_program().display()))?;
    let ended = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        let elapsed = start.elapsed();
        if elapsed > LONGEST {
            child.kill()?;
            child.wait()?;
            break None;
        }
        // Fine enough for the short programs, cheap for the long ones.
        std::thread::sleep(elapsed.div_f64(100.0).clamp(Duration::from_micros(50), Duration::from_millis(5)));
    };
    let wall = start.elapsed().as_secs_f64() * 1e3;
    if !ended.is_some_and(|status| status.success()) {
        let end = ended.map_or_else(|| format!("did not end within {LONGEST:?}"), |status| status.to_string());
        let errors = std::fs::read(errors)?;
        bail!("{command:?}: {end}\n{}", String::from_utf8_lossy(&errors));
    }
    Ok(wall)
}

/// The median.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// CPU milliseconds of a process and all its descendants; 0 where the system does not report them.
pub fn cpu(process: u32) -> Result<f64> {
    family(process).into_iter().map(|process| times(&format!("/proc/{process}/stat"), 11, 4)).sum()
}

/// A process and its living descendants: one program may consist of several processes.
fn family(process: u32) -> Vec<u32> {
    let mut family = vec![process];
    let mut seen = 0;
    while let Some(parent) = family.get(seen) {
        seen += 1;
        let threads = std::fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
        let children = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
        let children: Vec<u32> =
            children.flat_map(|list| list.split(' ').flat_map(str::parse).collect::<Vec<_>>()).collect();
        family.extend(children);
    }
    family
}

/// CPU milliseconds of all children of this process that ended.
fn children_cpu() -> Result<f64> {
    times("/proc/self/stat", 13, 2)
}

fn times(path: &str, skip: usize, take: usize) -> Result<f64> {
    let Ok(stat) = std::fs::read_to_string(path) else { return Ok(0.0) };
    let ticks = ticks(&stat, skip, take).with_context(|| format!("{path} has an unknown format"))?;
    Ok(ticks * MILLISECONDS_PER_TICK)
}

/// The sum of some fields behind the program's name, which may contain anything but ends with `)`. The 12th to 15th of
/// them are user and system time of the process, then of its children.
fn ticks(stat: &str, skip: usize, take: usize) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().skip(skip).take(take).map(|field| field.parse::<f64>().ok()).sum()
}

/// Megabytes of resident memory of a process and all its descendants; 0 where the system does not report them.
pub fn resident(process: u32) -> Result<f64> {
    family(process).into_iter().map(|process| memory(process, "VmRSS:")).sum()
}

/// The peak resident memory of a process; 0 where the system does not report it.
pub fn peak(process: u32) -> Result<f64> {
    memory(process, "VmHWM:")
}

fn memory(process: u32, field: &str) -> Result<f64> {
    let path = format!("/proc/{process}/status");
    let Ok(status) = std::fs::read_to_string(&path) else { return Ok(0.0) };
    // A process that is ending, or a zombie, has no memory and no such line.
    let Some(value) = status.lines().find_map(|line| line.strip_prefix(field)) else { return Ok(0.0) };
    let kilobytes = value.trim().strip_suffix(" kB").and_then(|number| number.parse::<f64>().ok());
    Ok(kilobytes.with_context(|| format!("{path}: {field} has an unknown format"))? / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found_behind_an_odd_name() {
        let stat = "12 (a b) c) S 1 2 3 4 5 6 7 8 9 10 5 6 30 12 20 0 1 0";
        assert_eq!(ticks(stat, 13, 2), Some(42.0));
        assert_eq!(ticks(stat, 11, 4), Some(53.0));
        assert_eq!(ticks("no name", 11, 4), None);
    }

    #[test]
    fn the_median_is_the_middle_one() {
        assert_eq!(median(vec![3.0, 100.0, 1.0]), 3.0);
        assert_eq!(median(Vec::new()), 0.0);
    }

    #[test]
    fn a_run_that_fails_says_why() {
        let errors = tempfile::NamedTempFile::new().unwrap();
        let command = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        };
        assert!(repeat(1, errors.path(), || command("exit 0")).is_ok());
        let error = repeat(1, errors.path(), || command("echo the reason >&2; exit 3")).unwrap_err().to_string();
        assert!(error.contains("exit status: 3") && error.contains("the reason"), "{error}");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_has_memory() {
        let resident = resident(std::process::id()).unwrap();
        assert!(resident > 1.0 && peak(std::process::id()).unwrap() > 1.0);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_process_has_a_family() {
        let mut child = Command::new("sh").args(["-c", "cat; exit"]).stdin(Stdio::piped()).spawn().unwrap();
        assert!(family(std::process::id()).contains(&child.id()));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(!family(std::process::id()).contains(&child.id()));
    }
}
