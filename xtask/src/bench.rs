//! `cargo xtask bench`: what our program costs, beside OpenCode doing the same work in the same run.
//!
//! Each row of [`ROWS`] is one measurement of a whole program, from its start to its exit. Wall times are medians; CPU
//! times (user and system, with all children) are means over the runs, because the kernel shows them in steps of 10 ms.

mod model;
mod peer;
mod setup;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::cargo;
use setup::Setup;

/// The number of small texts in the long turn.
const DELTAS: usize = 2_000;
/// How long one run may take.
const LONGEST: Duration = Duration::from_secs(120);

struct Row {
    name: &'static str,
    /// What the design allows, in milliseconds: of wall time, or of CPU time for an [`Row::over`] row.
    budget: f64,
    /// The arguments for our program; nothing leaves the cell empty.
    ours: fn() -> Option<Vec<String>>,
    /// The same work for OpenCode.
    theirs: fn() -> Option<Vec<String>>,
    /// The row whose cost is taken off, so that what is left is the work itself.
    over: Option<&'static str>,
}

const ROWS: &[Row] = &[
    Row { name: "--version", budget: 5.0, ours: version, theirs: version, over: None },
    Row { name: "run, script model", budget: 40.0, ours: run_script, theirs: || None, over: None },
    Row { name: "run, model over HTTP", budget: 40.0, ours: run_http, theirs: run_http, over: None },
    Row {
        name: "2,000 deltas",
        budget: 40.0,
        ours: run_deltas,
        theirs: run_deltas,
        over: Some("run, model over HTTP"),
    },
];

fn words(words: &[&str]) -> Option<Vec<String>> {
    Some(words.iter().map(|&word| word.to_owned()).collect())
}

fn version() -> Option<Vec<String>> {
    words(&["--version"])
}

fn run_script() -> Option<Vec<String>> {
    words(&["run", "--model", "script/demo", r#"SCRIPT: [{"text": "Hello from the script"}]"#])
}

fn run_http() -> Option<Vec<String>> {
    words(&["run", "--model", setup::MODEL, "say hello"])
}

fn run_deltas() -> Option<Vec<String>> {
    words(&["run", "--model", setup::MODEL, &format!("{} {DELTAS}", model::DELTAS)])
}

/// Runs the command.
pub fn run(arguments: &[String]) -> Result<()> {
    if arguments.iter().any(|argument| argument == "--smoke") {
        return smoke();
    }
    let runs = cargo::option(arguments, "--runs")?.unwrap_or("11").parse().context("--runs needs a number")?;
    let peer = match cargo::option(arguments, "--opencode")? {
        Some(path) => Some(PathBuf::from(path).canonicalize().with_context(|| format!("no program at {path}"))?),
        None if arguments.iter().any(|argument| argument == "--peer") => Some(peer::install()?),
        None => None,
    };
    let ours = cargo::release("trefoil")?;
    table(&ours, peer.as_deref(), runs)
}

/// Does each measurement once with the debug build, to see that it works.
pub fn smoke() -> Result<()> {
    let program = cargo::target().join("debug").join(format!("trefoil{}", std::env::consts::EXE_SUFFIX));
    if !program.is_file() {
        bail!("{} is not there: run `cargo build` first", program.display());
    }
    table(&program.canonicalize()?, None, 1)
}

fn table(ours: &Path, peer: Option<&Path>, runs: usize) -> Result<()> {
    let mut columns = vec![("trefoil", ours, Vec::new())];
    columns.extend(peer.map(|peer| ("opencode", peer, Vec::new())));
    // One program after the other, each with a home and a model server of its own.
    for (name, program, cells) in &mut columns {
        let setup = Setup::new()?;
        for row in ROWS {
            let arguments = if *name == "trefoil" { (row.ours)() } else { (row.theirs)() };
            let cost = arguments.map(|arguments| measure(&setup, program, &arguments, runs)).transpose();
            cells.push(cost.with_context(|| format!("{name}: {}", row.name))?);
        }
    }
    println!("{runs} runs each; milliseconds, wall (median) / CPU (mean)\n");
    println!("| what | budget | trefoil | opencode | ratio |\n|---|---|---|---|---|");
    for (index, row) in ROWS.iter().enumerate() {
        let cells: Vec<Option<Cost>> = columns.iter().map(|(_, _, costs)| relative(row, index, costs)).collect();
        let (ours, theirs) = (cells.first().copied().flatten(), cells.get(1).copied().flatten());
        let kind = if row.over.is_some() { " CPU" } else { "" };
        println!(
            "| {} | {}{kind} | {} | {} | {} |",
            row.name,
            row.budget,
            show(ours),
            show(theirs),
            ratio(row, ours, theirs)
        );
    }
    Ok(())
}

/// What a program cost, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Cost {
    wall: f64,
    cpu: f64,
}

fn show(cost: Option<Cost>) -> String {
    cost.map_or_else(|| "–".to_owned(), |cost| format!("{:.1} / {:.1}", cost.wall, cost.cpu))
}

/// How many times more they cost.
fn ratio(row: &Row, ours: Option<Cost>, theirs: Option<Cost>) -> String {
    let of = |cost: Cost| if row.over.is_some() { cost.cpu } else { cost.wall };
    match (ours.map(of), theirs.map(of)) {
        (Some(ours), Some(theirs)) if ours > 0.0 => format!("{:.0}×", theirs / ours),
        _ => "–".to_owned(),
    }
}

/// A row's cost, less the row that it goes over.
fn relative(row: &Row, index: usize, costs: &[Option<Cost>]) -> Option<Cost> {
    let cost = (*costs.get(index)?)?;
    let Some(base) = row.over.and_then(|name| ROWS.iter().position(|row| row.name == name)) else { return Some(cost) };
    let base = (*costs.get(base)?)?;
    Some(Cost { wall: (cost.wall - base.wall).max(0.0), cpu: (cost.cpu - base.cpu).max(0.0) })
}

fn measure(setup: &Setup, program: &Path, arguments: &[String], runs: usize) -> Result<Cost> {
    // The first run makes the database and warms the page cache; it is not what a user feels every day.
    once(setup, program, arguments)?;
    let before = children_cpu()?;
    let mut walls = Vec::with_capacity(runs);
    for _ in 0..runs {
        walls.push(once(setup, program, arguments)?);
    }
    let cpu = (children_cpu()? - before) / runs as f64;
    walls.sort_by(f64::total_cmp);
    Ok(Cost { wall: walls[walls.len() / 2], cpu })
}

/// The wall time of one run.
fn once(setup: &Setup, program: &Path, arguments: &[String]) -> Result<f64> {
    // A file, not a pipe: a helper that a program leaves behind would keep a pipe open.
    let errors = setup.errors();
    let mut command = setup.command(program);
    command.args(arguments).stdout(Stdio::null()).stderr(File::create(&errors)?);
    let start = Instant::now();
    let mut child = command.spawn()?;
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
        let errors = std::fs::read(&errors)?;
        let errors = String::from_utf8_lossy(&errors);
        bail!("`{} {}`: {end}\n{errors}", program.display(), arguments.join(" "));
    }
    Ok(wall)
}

/// CPU milliseconds of all children that ended so far, from `/proc/self/stat`; 0 where there is no such file.
fn children_cpu() -> Result<f64> {
    const MILLISECONDS_PER_TICK: f64 = 10.0;
    let Ok(stat) = std::fs::read_to_string("/proc/self/stat") else { return Ok(0.0) };
    children_ticks(&stat).map(|ticks| ticks * MILLISECONDS_PER_TICK).context("/proc/self/stat has an unknown format")
}

/// `cutime + cstime`: the 14th and 15th field behind the program's name, which may contain anything but ends with `)`.
fn children_ticks(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let times = fields.split_whitespace().skip(13).take(2).map(|field| field.parse::<f64>().ok());
    times.sum::<Option<f64>>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn child_times_are_found_behind_an_odd_name() {
        let stat = "12 (a b) c) S 1 2 3 4 5 6 7 8 9 10 11 12 30 12 20 0 1 0";
        assert_eq!(children_ticks(stat), Some(42.0));
        assert_eq!(children_ticks("12 (x) S 1"), Some(0.0));
    }

    #[test]
    fn a_relative_row_shows_the_difference() {
        let cost = |wall, cpu| Some(Cost { wall, cpu });
        let costs = [cost(1.0, 1.0), None, cost(30.0, 20.0), cost(100.0, 55.0)];
        assert_eq!(relative(&ROWS[3], 3, &costs), cost(70.0, 35.0));
        assert_eq!(relative(&ROWS[0], 0, &costs), cost(1.0, 1.0));
        assert_eq!(relative(&ROWS[1], 1, &costs), None);
        assert_eq!(ratio(&ROWS[0], cost(2.0, 1.0), cost(300.0, 9.0)), "150×");
    }

    #[test]
    fn every_base_row_exists() {
        assert!(ROWS.iter().filter_map(|row| row.over).all(|name| ROWS.iter().any(|row| row.name == name)));
    }
}
