//! Throws random input at our parsers, on stable Rust: `trefoil-fuzz TARGET [--seconds N] [--seed N] [--save FOLDER]
//! [--trace]`, or `trefoil-fuzz TARGET --replay FILE`, or `trefoil-fuzz --list`.
//!
//! A panic, and an input that takes more CPU time than [`SLOW`], is a find: the input is saved and the exit code is 1.
//! The same seed gives the same inputs. A find that kills the process (a stack overflow) is repeated with `--trace`,
//! which saves every input before it is used.

#![expect(clippy::print_stdout, reason = "the output is what the program is for")]

mod mutate;
mod targets;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use mutate::Mutator;
use targets::{TARGETS, Target};

/// How much CPU time one input may take.
const SLOW: Duration = Duration::from_secs(2);
/// When an input that does not end is given up, with the process.
const STUCK: Duration = Duration::from_secs(15);

struct Options {
    target: &'static Target,
    seconds: u64,
    seed: u64,
    save: PathBuf,
    trace: bool,
    replay: Option<PathBuf>,
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        TARGETS.iter().for_each(|target| println!("{}", target.name));
        return Ok(());
    }
    let options = parse(&arguments)?;
    match &options.replay {
        Some(file) => replay(options.target, file),
        None => fuzz(&options),
    }
}

fn parse(arguments: &[String]) -> Result<Options> {
    let names = || TARGETS.iter().map(|target| target.name).collect::<Vec<_>>().join(", ");
    let mut target = None;
    let mut options = Options {
        target: &TARGETS[0],
        seconds: 10,
        seed: fastrand::u64(1..1_000_000),
        save: PathBuf::from("target/fuzz"),
        trace: false,
        replay: None,
    };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut value = || rest.next().with_context(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--seconds" => options.seconds = value()?.parse().context("--seconds needs a number")?,
            "--seed" => options.seed = value()?.parse().context("--seed needs a number")?,
            "--save" => options.save = value()?.into(),
            "--replay" => options.replay = Some(value()?.into()),
            "--trace" => options.trace = true,
            name => {
                let found = TARGETS.iter().find(|target| target.name == name);
                target = Some(found.with_context(|| format!("no target {name:?}; there are: {}", names()))?);
            }
        }
    }
    options.target = target.with_context(|| format!("name a target: {}", names()))?;
    Ok(options)
}

fn replay(target: &Target, file: &Path) -> Result<()> {
    let input = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    (target.run)(&input);
    println!("{}: {} passes", target.name, file.display());
    Ok(())
}

/// What runs now, for the watchdog.
type Current = Arc<Mutex<(Instant, Vec<u8>)>>;

fn fuzz(options: &Options) -> Result<()> {
    let target = options.target;
    std::fs::create_dir_all(&options.save).with_context(|| format!("cannot make {}", options.save.display()))?;
    println!("{}: seed {}, {} s", target.name, options.seed, options.seconds);
    let file = |kind: &str| options.save.join(format!("{}-{kind}-{}", target.name, options.seed));
    let mut mutator = Mutator::new(options.seed, target.seeds, target.tokens);
    let current: Current = Arc::new(Mutex::new((Instant::now(), Vec::new())));
    watchdog(current.clone(), file("stuck"));

    let start = Instant::now();
    let mut inputs: u64 = 0;
    let mut bytes: u64 = 0;
    while start.elapsed() < Duration::from_secs(options.seconds) {
        let input = mutator.next(inputs);
        if options.trace {
            std::fs::write(file("trace"), &input)?;
        }
        let began = Instant::now();
        if let Ok(mut current) = current.lock() {
            *current = (began, input.clone());
        }
        let panicked = std::panic::catch_unwind(|| (target.run)(&input)).is_err();
        if panicked || (began.elapsed() > SLOW && is_slow(target, &input)) {
            let kind = if panicked { "panic" } else { "slow" };
            std::fs::write(file(kind), &input)?;
            bail!("{}: {kind} after {inputs} inputs, saved as {}", target.name, file(kind).display());
        }
        inputs += 1;
        bytes += input.len() as u64;
    }
    let seconds = start.elapsed().as_secs_f64();
    let (rate, volume) = (inputs as f64 / seconds, bytes as f64 / seconds / 1e6);
    println!("{}: {inputs} inputs, {rate:.0} per second, {volume:.1} MB/s, no finds", target.name);
    Ok(())
}

/// Whether an input takes long by itself, not because the machine is busy: runs it again and looks at the CPU time.
fn is_slow(target: &Target, input: &[u8]) -> bool {
    let (began, before) = (Instant::now(), thread_cpu());
    (target.run)(input);
    match (before, thread_cpu()) {
        (Some(before), Some(after)) => after.saturating_sub(before) > SLOW,
        _ => began.elapsed() > SLOW,
    }
}

/// The CPU time of this thread, where the system tells (Linux).
fn thread_cpu() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

/// Ends the process when an input does not end.
fn watchdog(current: Current, file: PathBuf) {
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let Ok(current) = current.lock() else { return };
            if current.0.elapsed() > STUCK {
                let saved = std::fs::write(&file, &current.1).is_ok();
                println!(
                    "stuck for {STUCK:?}{}",
                    if saved { format!(", saved as {}", file.display()) } else { String::new() }
                );
                std::process::exit(1);
            }
        }
    });
}
