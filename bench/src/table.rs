//! The table: the costs of our program and of others, and our budgets.
//!
//! Each of [`ROWS`] is one measurement. A program is measured from its start to its exit; turns are measured in a process
//! that lives on (our engine in this program, OpenCode's server), with the same model server that answers at once.

pub mod a2a;
mod acp;
pub mod agent;
mod cost;
mod health;
mod history;
mod model;
pub mod process;
mod search;
mod serve;
pub mod server;
pub mod setup;
mod tree;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use agent::{Agent, Probe};
use cost::{Budget, Cost, Line, Peer};
use setup::Setup;

/// A short prompt.
const HELLO: &str = "say hello";

/// The size of each measurement.
struct Size {
    /// Runs of a program, and turns with a long answer.
    runs: usize,
    /// Turns of a session.
    turns: usize,
    /// Further sessions after the first one, to find memory that is not freed.
    sessions: usize,
    /// Pieces of a long answer.
    deltas: usize,
    /// Pieces of an answer that nobody reads.
    unread: usize,
    /// Messages of the session to load.
    messages: usize,
    /// Sessions in the journal, to read a page of.
    stored: usize,
    /// Turns of one session in the journal, to read a page of.
    stored_turns: usize,
    /// Files in the tree that is searched.
    files: usize,
    /// Subscribers of a server.
    subscribers: usize,
    /// Turns of each of many sessions at once.
    rounds: usize,
    /// Trees that are created one after the other.
    trees: usize,
    /// Subagents of one session.
    children: usize,
    /// Subagents of each session of a deep tree, level by level.
    levels: [usize; 3],
    /// Sessions of the tree that is read.
    family: usize,
    /// Tasks of a turn that both programs do.
    tasks: usize,
    /// Streams at once whose first event is waited for.
    streams: usize,
    /// Streams at once that all have to complete.
    many_streams: usize,
    /// Milliseconds for which each of them is held, so that all are open at the same time.
    hold: usize,
    /// Tasks of a short and of a long list.
    tasks_listed: [usize; 2],
}

const FULL: Size = Size {
    runs: 11,
    turns: 100,
    sessions: 10,
    deltas: 2_000,
    unread: 20_000,
    messages: 10_000,
    stored: 100_000,
    stored_turns: 10_000,
    files: 3_000,
    subscribers: 200,
    rounds: 3,
    trees: 5,
    children: 50,
    levels: [8, 4, 5],
    family: 1_000,
    tasks: 10,
    streams: 200,
    many_streams: 1_000,
    hold: 3_000,
    tasks_listed: [100, 100_000],
};
/// For a smoke test of each measurement.
const SMOKE: Size = Size {
    runs: 1,
    turns: 2,
    sessions: 1,
    deltas: 20,
    unread: 200,
    messages: 200,
    stored: 200,
    stored_turns: 200,
    files: 60,
    subscribers: 3,
    rounds: 1,
    trees: 1,
    children: 4,
    levels: [2, 1, 1],
    family: 20,
    tasks: 2,
    streams: 4,
    many_streams: 8,
    hold: 20,
    tasks_listed: [10, 200],
};

struct Row {
    /// The value of `--only`.
    name: &'static str,
    budget: Budget,
    measure: fn(&Bench) -> Result<Measured>,
}

struct Measured {
    what: String,
    ours: Cost,
    peers: Vec<Peer>,
}

impl Measured {
    /// A measurement of our program only.
    fn alone(what: impl Into<String>, ours: Cost) -> Self {
        Self { what: what.into(), ours, peers: Vec::new() }
    }

    /// Adds a peer. If one fails, the others are still measured, and the line says why it has no figure.
    fn beside(mut self, name: &'static str, cost: Result<Cost>) -> Self {
        let cost = cost.map_err(|error| {
            let error = format!("{error:#}");
            self.what.push_str(&format!(" ({name} not measured: {})", error.lines().next().unwrap_or_default()));
        });
        self.peers.push(Peer { name, cost: cost.ok() });
        self
    }
}

const ROWS: &[Row] = &[
    Row { name: "version", budget: Budget::Wall(5.0), measure: version },
    Row { name: "run", budget: Budget::Wall(40.0), measure: run_script },
    Row { name: "run-http", budget: Budget::Wall(40.0), measure: run_http },
    Row { name: "turn", budget: Budget::Wall(5.0), measure: turn },
    Row { name: "deltas", budget: Budget::Cpu(40.0), measure: deltas },
    Row { name: "memory", budget: Budget::Memory(40.0), measure: memory },
    Row { name: "growth", budget: Budget::Memory(5.0), measure: growth },
    Row { name: "page", budget: Budget::Wall(1.0), measure: page },
    Row { name: "turn-page", budget: Budget::Wall(1.0), measure: turn_page },
    Row { name: "grep", budget: Budget::TimesPeer(1.2), measure: grep },
    Row { name: "judge", budget: Budget::Wall(0.5), measure: judge },
    Row { name: "serve-start", budget: Budget::Wall(30.0), measure: serve::start },
    Row { name: "serve-idle", budget: Budget::Memory(25.0), measure: serve::idle },
    Row { name: "serve-first", budget: Budget::Memory(40.0), measure: serve::first },
    Row { name: "serve-memory", budget: Budget::Memory(60.0), measure: serve::memory },
    Row { name: "serve-list", budget: Budget::Cpu(0.1), measure: serve::list },
    Row { name: "serve-get", budget: Budget::Cpu(0.05), measure: serve::get },
    Row { name: "serve-overhead", budget: Budget::Wall(5.0), measure: serve::turn },
    Row { name: "serve-turn", budget: Budget::Cpu(2.0), measure: serve::turn },
    Row { name: "serve-deltas", budget: Budget::Cpu(60.0), measure: serve::deltas },
    Row { name: "serve-events", budget: Budget::Cpu(0.002), measure: serve::events },
    Row { name: "acp-start", budget: Budget::Wall(20.0), measure: acp::start },
    Row { name: "acp-new", budget: Budget::Wall(5.0), measure: acp::session },
    Row { name: "acp-turn", budget: Budget::Wall(5.0), measure: acp::turn },
    Row { name: "acp-idle", budget: Budget::Memory(25.0), measure: acp::idle },
    Row { name: "acp-stalled", budget: Budget::Memory(5.0), measure: acp::stalled },
    Row { name: "acp-load", budget: Budget::Wall(500.0), measure: acp::load },
    Row { name: "serve-health", budget: Budget::Wall(20.0), measure: health::health },
    Row { name: "serve-many", budget: Budget::TimesFaster(15.0), measure: serve::many },
    Row { name: "tree-50", budget: Budget::Wall(1_000.0), measure: tree::fan },
    Row { name: "tree-memory", budget: Budget::Memory(60.0), measure: tree::fan_memory },
    Row { name: "tree-200", budget: Budget::Wall(4_000.0), measure: tree::deep },
    Row { name: "tree-cancel", budget: Budget::Wall(100.0), measure: tree::cancel },
    Row { name: "tree-get", budget: Budget::Wall(10.0), measure: tree::get },
    Row { name: "tree-peer", budget: Budget::TimesFaster(5.0), measure: tree::beside_peer },
    Row { name: "a2a-start", budget: Budget::Wall(30.0), measure: a2a::start },
    Row { name: "a2a-idle", budget: Budget::Memory(25.0), measure: a2a::idle },
    Row { name: "a2a-send", budget: Budget::Cpu(0.4), measure: a2a::send },
    Row { name: "a2a-rate", budget: Budget::TimesFaster(30.0), measure: a2a::send },
    Row { name: "a2a-get", budget: Budget::Cpu(0.1), measure: a2a::get },
    Row { name: "a2a-first", budget: Budget::Wall(5.0), measure: a2a::first },
    Row { name: "a2a-streams", budget: Budget::Wall(100.0), measure: a2a::at_once },
    Row { name: "a2a-many", budget: Budget::Wall(5_000.0), measure: a2a::many },
    Row { name: "a2a-turn", budget: Budget::Cpu(0.3), measure: a2a::turn },
    Row { name: "a2a-list", budget: Budget::TimesPeer(1.2), measure: a2a::list },
];

/// Runs the command.
pub fn run(arguments: &[String]) -> Result<()> {
    let flag = |name: &str| arguments.iter().any(|argument| argument == name);
    let only = option(arguments, "--only")?;
    // A name that ends in a dash selects all names that begin with it.
    let wanted = |row: &&Row, name: &str| row.name == name || (name.ends_with('-') && row.name.starts_with(name));
    let rows: Vec<&Row> = ROWS.iter().filter(|row| only.is_none_or(|name| wanted(row, name))).collect();
    if rows.is_empty() {
        let names: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
        bail!("no measurement {:?}; there are {}", only.unwrap_or_default(), names.join(", "));
    }
    let built = Built::find()?;
    // Only what the rows need is installed.
    let is_of = |part: &str| rows.iter().any(|row| row.name.starts_with(part));
    let opencode = match option(arguments, "--opencode")? {
        Some(path) => Some(PathBuf::from(path).canonicalize().with_context(|| format!("no program at {path}"))?),
        None if flag("--peer") && rows.iter().any(|row| !row.name.starts_with("a2a-")) => {
            Some(::peer::install(&built.target)?)
        }
        None => None,
    };
    let codex = (flag("--peer") && is_of("acp-")).then(|| ::peer::codex_acp(&built.target)).transpose()?;
    let opencode_a2a = (flag("--peer") && is_of("a2a-")).then(|| ::peer::opencode_a2a(&built.target)).transpose()?;
    let size = if flag("--smoke") { SMOKE } else { FULL };
    let Built { program, probe, .. } = built;
    let bench = Bench { size, program, probe, opencode, codex, opencode_a2a };
    if flag("--json") {
        let lines = rows.into_iter().map(|row| bench.line(row)).collect::<Result<Vec<_>>>()?;
        println!("{}", cost::json(&lines));
        return Ok(());
    }
    println!("times are milliseconds: wall (median) / CPU (mean); a ratio is a peer's cost by ours\n\n{}", cost::HEAD);
    for row in rows {
        println!("{}", bench.line(row)?.row());
    }
    Ok(())
}

/// The value of a `--name value` pair.
fn option<'a>(arguments: &'a [String], name: &str) -> Result<Option<&'a str>> {
    let Some(place) = arguments.iter().position(|argument| argument == name) else { return Ok(None) };
    arguments.get(place + 1).map(|value| Some(value.as_str())).with_context(|| format!("{name} needs a value"))
}

/// The programs that cargo built.
struct Built {
    program: PathBuf,
    /// This program, to start it again as the engine.
    probe: PathBuf,
    /// Where peers are installed.
    target: PathBuf,
}

impl Built {
    /// Looks in this program's folder.
    fn find() -> Result<Self> {
        let probe = std::env::current_exe()?.canonicalize()?;
        let folder = probe.parent().context("a program is in a folder")?;
        let target = folder.parent().context("a build is below the target folder")?.to_owned();
        let program = folder.join(format!("trefoil{}", std::env::consts::EXE_SUFFIX));
        if !program.is_file() {
            bail!("{} is not there: build it first, or use `cargo xtask bench`", program.display());
        }
        Ok(Self { program, probe, target })
    }
}

/// What is measured, and how much of it.
struct Bench {
    size: Size,
    program: PathBuf,
    probe: PathBuf,
    opencode: Option<PathBuf>,
    /// Codex as an agent for editors.
    codex: Option<PathBuf>,
    /// A2A in front of OpenCode.
    opencode_a2a: Option<PathBuf>,
}

impl Bench {
    fn line(&self, row: &Row) -> Result<Line> {
        let Measured { what, ours, peers } = (row.measure)(self).with_context(|| row.name)?;
        Ok(Line { name: row.name, what, budget: row.budget, ours, peers })
    }

    /// Measures our program, and OpenCode if it is installed.
    fn both(&self, what: impl Into<String>, measure: impl Fn(&Path) -> Result<Cost>) -> Result<Measured> {
        let ours = Measured::alone(what, measure(&self.program)?);
        Ok(self.beside_opencode(ours, measure))
    }

    fn beside_opencode(&self, ours: Measured, measure: impl FnOnce(&Path) -> Result<Cost>) -> Measured {
        match &self.opencode {
            Some(program) => ours.beside("opencode", measure(program)),
            None => ours,
        }
    }

    /// Measures a program from its start to its exit. Each program has a home and a model server of its own.
    fn program(&self, what: &str, ours: &[&str], theirs: Option<&[&str]>) -> Result<Measured> {
        let cost = |program: &Path, arguments: &[&str]| {
            let setup = Setup::new()?;
            process::repeat(self.size.runs, &setup.errors(), || {
                let mut command = setup.command(program);
                command.args(arguments);
                command
            })
        };
        let ours = Measured::alone(what, cost(&self.program, ours)?);
        Ok(match theirs {
            Some(arguments) => self.beside_opencode(ours, |program| cost(program, arguments)),
            None => ours,
        })
    }

    /// Measures both agents, each with a home and a model server of its own.
    fn agents(&self, what: String, measure: impl Fn(&mut dyn Agent, &Setup) -> Result<Cost>) -> Result<Measured> {
        let setup = Setup::new()?;
        let ours = measure(&mut Probe::start(&self.probe, &setup)?, &setup)?;
        Ok(self.beside_opencode(Measured::alone(what, ours), |program| {
            let setup = Setup::new()?;
            measure(&mut server::Server::watched(program, &setup)?, &setup)
        }))
    }
}

fn version(bench: &Bench) -> Result<Measured> {
    let mut measured = bench.program("`--version`", &["--version"], Some(&["--version"]))?;
    // The cost of any process on this machine.
    let setup = Setup::new()?;
    if let Cost::Time { wall, .. } = process::repeat(bench.size.runs, &setup.errors(), || setup.command("true"))? {
        measured.what.push_str(&format!(" (`true`: {wall:.1})"));
    }
    Ok(measured)
}

fn run_script(bench: &Bench) -> Result<Measured> {
    let script = r#"SCRIPT: [{"text": "Hello from the script"}]"#;
    bench.program("`run`, script model, start to exit", &["run", "--model", "script/demo", script], None)
}

fn run_http(bench: &Bench) -> Result<Measured> {
    let arguments = &["run", "--model", setup::MODEL, HELLO];
    bench.program("`run`, model over HTTP, start to exit", arguments, Some(arguments))
}

/// The time of a turn without the model's. The CPU time is that of the whole turn.
fn turn(bench: &Bench) -> Result<Measured> {
    let turns = bench.size.turns;
    let what = format!("overhead of a turn ({turns} in one session)");
    bench.agents(what, |agent, setup| {
        let session = agent.session()?;
        agent.turn(&session, HELLO)?;
        let (busy, cpu) = (setup.model.busy(), process::cpu(agent.process())?);
        let walls = (0..turns).map(|_| timed(|| agent.turn(&session, HELLO))).collect::<Result<_>>()?;
        let each = |total: f64| total / turns as f64;
        let model = each(setup.model.busy() - busy);
        let wall = (process::median(walls) - model).max(0.0);
        Ok(Cost::Time { wall, cpu: each(process::cpu(agent.process())? - cpu) })
    })
}

fn deltas(bench: &Bench) -> Result<Measured> {
    let Size { runs, deltas, .. } = bench.size;
    let text = format!("{} {deltas}", model::DELTAS);
    bench.agents(format!("a turn of {deltas} deltas, one subscriber"), |agent, _| {
        let session = agent.session()?;
        agent.turn(&session, &text)?;
        let cpu = process::cpu(agent.process())?;
        // Each turn has its own session, so that no answer becomes history of another.
        let mut walls = Vec::new();
        for _ in 0..runs {
            let session = agent.session()?;
            walls.push(timed(|| agent.turn(&session, &text))?);
        }
        let cpu = (process::cpu(agent.process())? - cpu) / runs as f64;
        Ok(Cost::Time { wall: process::median(walls), cpu })
    })
}

fn memory(bench: &Bench) -> Result<Measured> {
    let turns = bench.size.turns;
    bench.agents(format!("memory after {turns} turns of one session"), |agent, _| {
        converse(agent, turns)?;
        Ok(Cost::Memory(process::resident(agent.process())?))
    })
}

/// OpenCode would need many minutes for it, so only our engine is measured.
fn growth(bench: &Bench) -> Result<Measured> {
    let Size { turns, sessions, .. } = bench.size;
    let setup = Setup::new()?;
    let mut probe = Probe::start(&bench.probe, &setup)?;
    converse(&mut probe, turns)?;
    let before = process::resident(probe.process())?;
    for _ in 0..sessions {
        converse(&mut probe, turns)?;
    }
    let grown = process::resident(probe.process())? - before;
    let what = format!("growth by {} more turns ({sessions} sessions of {turns})", turns * sessions);
    Ok(Measured::alone(what, Cost::Memory(grown)))
}

/// A session with this many turns.
fn converse(agent: &mut dyn Agent, turns: usize) -> Result<()> {
    let session = agent.session()?;
    (0..turns).try_for_each(|_| agent.turn(&session, HELLO))
}

fn page(bench: &Bench) -> Result<Measured> {
    const TIMES: usize = 500;
    let setup = Setup::new()?;
    let mut probe = Probe::start(&bench.probe, &setup)?;
    probe.ask(&json!({"do": "fill", "sessions": bench.size.stored}))?;
    let what = format!("first page (100) of {} sessions, in the store", bench.size.stored);
    let (ours, _) = inside(&mut probe, &json!({"do": "page", "times": TIMES}))?;
    Ok(Measured::alone(what, ours))
}

fn turn_page(bench: &Bench) -> Result<Measured> {
    const TIMES: usize = 500;
    let setup = Setup::new()?;
    let mut probe = Probe::start(&bench.probe, &setup)?;
    let filled = probe.ask(&json!({"do": "turns", "turns": bench.size.stored_turns}))?;
    let what = format!("first page (100) of a session's {} turns", bench.size.stored_turns);
    let (ours, _) = inside(&mut probe, &json!({"do": "turnpage", "session": filled["id"], "times": TIMES}))?;
    Ok(Measured::alone(what, ours))
}

/// Our tool in a long-lived process, compared with the program `rg`.
fn grep(bench: &Bench) -> Result<Measured> {
    let setup = Setup::new()?;
    let root = tempfile::Builder::new().prefix("trefoil-bench-").tempdir()?;
    let planted = search::plant(root.path(), bench.size.files)?;
    let mut probe = Probe::start(&bench.probe, &setup)?;
    let request =
        |times: usize| json!({"do": "grep", "folder": root.path(), "pattern": search::PATTERN, "times": times});
    probe.ask(&request(1))?;
    let (ours, answer) = inside(&mut probe, &request(bench.size.runs))?;
    if answer["matches"] != planted {
        bail!("{planted} lines match, and {} were found", answer["matches"]);
    }
    let peer = search::ripgrep(root.path()).context("it is not installed");
    let peer = peer.and_then(|command| process::repeat(bench.size.runs, &setup.errors(), command));
    Ok(Measured::alone(format!("grep in {} files", bench.size.files), ours).beside("rg", peer))
}

fn judge(bench: &Bench) -> Result<Measured> {
    const TIMES: usize = 200;
    let setup = Setup::new()?;
    let mut probe = Probe::start(&bench.probe, &setup)?;
    let (ours, _) = inside(&mut probe, &json!({"do": "judge", "times": TIMES}))?;
    Ok(Measured::alone("what a command line would do, for the rules", ours))
}

/// The times that the engine itself measured.
fn inside(probe: &mut Probe, request: &Value) -> Result<(Cost, Value)> {
    let cpu = process::cpu(probe.process())?;
    let answer = probe.ask(request)?;
    let cpu = process::cpu(probe.process())? - cpu;
    let times: Vec<f64> = answer["ms"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
    let count = times.len().max(1) as f64;
    Ok((Cost::Time { wall: process::median(times), cpu: cpu / count }, answer))
}

/// A duration in milliseconds.
fn timed(work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_name_of_its_own() {
        let mut names: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ROWS.len());
    }

    #[test]
    fn an_unknown_name_is_told_what_there_is() {
        let error = run(&["--only".to_owned(), "speed".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("speed") && error.contains("version, run"), "{error}");
    }
}
