//! The rows about `acp`: the same conversation with our agent, with OpenCode's and with Codex.

use std::cell::Cell;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::cost::Cost;
use super::setup::Setup;
use super::{Bench, HELLO, Measured, Size, history, model, process, timed};

/// The timeout of the model for a text that nobody reads.
const LONGEST: Duration = Duration::from_secs(120);
/// The pause between two checks of an agent's memory.
const LOOK: Duration = Duration::from_millis(1);

/// How an agent is started.
#[derive(Clone, Copy)]
struct Program<'a> {
    path: &'a Path,
    arguments: &'static [&'static str],
}

impl<'a> Program<'a> {
    /// The agent in our program or in OpenCode.
    fn acp(path: &'a Path) -> Self {
        Self { path, arguments: &["acp"] }
    }

    fn command(self, setup: &Setup) -> Command {
        let mut command = setup.command(self.path);
        command.args(self.arguments);
        command
    }
}

/// An editor and its agent, which ends when this is dropped.
struct Editor {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    directory: String,
    next: u64,
    /// The number of updates received.
    told: usize,
}

impl Editor {
    /// Starts an agent and initializes the connection.
    fn start(program: Program<'_>, setup: &Setup) -> Result<Self> {
        let mut command = program.command(setup);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(setup.errors())?);
        let directory = setup.project().to_string_lossy().into_owned();
        let mut child = command.spawn()?;
        let stdin = child.stdin.take().context("the input is piped")?;
        let stdout = BufReader::new(child.stdout.take().context("the output is piped")?);
        let mut editor = Self { child, stdin, stdout, directory, next: 0, told: 0 };
        editor.ask("initialize", &json!({"protocolVersion": 1, "clientCapabilities": {}}))?;
        Ok(editor)
    }

    fn send(&mut self, method: &str, params: &Value) -> Result<u64> {
        self.next += 1;
        writeln!(self.stdin, "{}", json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params}))?;
        Ok(self.next)
    }

    fn answer(&mut self, id: u64) -> Result<Value> {
        let mut line = String::new();
        loop {
            line.clear();
            if self.stdout.read_line(&mut line)? == 0 {
                bail!("the agent hung up");
            }
            // Only answers are parsed completely; there may be thousands of updates.
            if line.contains("\"method\":\"session/update\"") {
                self.told += 1;
                continue;
            }
            let message: Value = serde_json::from_str(&line)?;
            if message["id"] == id && message["method"].is_null() {
                if !message["error"].is_null() {
                    bail!("the agent refused: {}", message["error"]);
                }
                return Ok(message["result"].clone());
            }
        }
    }

    fn ask(&mut self, method: &str, params: &Value) -> Result<Value> {
        let id = self.send(method, params)?;
        self.answer(id)
    }

    fn session(&mut self) -> Result<String> {
        let made = self.ask("session/new", &json!({"cwd": self.directory, "mcpServers": []}))?;
        Ok(made["sessionId"].as_str().context("a session has an id")?.to_owned())
    }

    fn prompt(&mut self, session: &str, text: &str) -> Result<u64> {
        let prompt = json!([{"type": "text", "text": text}]);
        self.send("session/prompt", &json!({"sessionId": session, "prompt": prompt}))
    }

    fn turn(&mut self, session: &str, text: &str) -> Result<()> {
        let id = self.prompt(session, text)?;
        self.answer(id).map(drop)
    }

    fn process(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Editor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Bench {
    /// Measures all agents, each with a home and a model server of its own.
    fn editors(
        &self,
        what: impl Into<String>,
        measure: impl Fn(&mut Editor, &Setup) -> Result<Cost>,
    ) -> Result<Measured> {
        self.programs(what, |program, setup| measure(&mut Editor::start(program, setup)?, setup))
    }

    /// The same for measurements that start the agents themselves.
    fn programs(
        &self,
        what: impl Into<String>,
        measure: impl Fn(Program<'_>, &Setup) -> Result<Cost>,
    ) -> Result<Measured> {
        let measured = self.both(what, |program| measure(Program::acp(program), &Setup::new()?))?;
        Ok(match &self.codex {
            Some(path) => {
                let program = Program { path, arguments: &[] };
                measured.beside("codex-acp", Setup::new().and_then(|setup| measure(program, &setup)))
            }
            None => measured,
        })
    }
}

pub fn start(bench: &Bench) -> Result<Measured> {
    bench.programs("`acp`, start to `initialize` answered", |program, setup| {
        Editor::start(program, setup)?;
        let (mut walls, mut cpu) = (Vec::new(), 0.0);
        for _ in 0..bench.size.runs {
            let begin = Instant::now();
            let editor = Editor::start(program, setup)?;
            walls.push(begin.elapsed().as_secs_f64() * 1e3);
            cpu += process::cpu(editor.process())?;
        }
        Ok(Cost::Time { wall: process::median(walls), cpu: cpu / bench.size.runs as f64 })
    })
}

pub fn session(bench: &Bench) -> Result<Measured> {
    let runs = bench.size.runs;
    bench.editors("`session/new`", |editor, _| {
        editor.session()?;
        let cpu = process::cpu(editor.process())?;
        let walls = (0..runs).map(|_| timed(|| editor.session().map(drop))).collect::<Result<_>>()?;
        let cpu = (process::cpu(editor.process())? - cpu) / runs as f64;
        Ok(Cost::Time { wall: process::median(walls), cpu })
    })
}

/// The time of a turn without the model's. The CPU time is that of the whole turn.
pub fn turn(bench: &Bench) -> Result<Measured> {
    let turns = bench.size.turns;
    bench.editors(format!("overhead of a prompt ({turns} in one session)"), |editor, setup| {
        let session = editor.session()?;
        editor.turn(&session, HELLO)?;
        let (busy, cpu) = (setup.model.busy(), process::cpu(editor.process())?);
        let walls = (0..turns).map(|_| timed(|| editor.turn(&session, HELLO))).collect::<Result<_>>()?;
        let each = |total: f64| total / turns as f64;
        let wall = (process::median(walls) - each(setup.model.busy() - busy)).max(0.0);
        Ok(Cost::Time { wall, cpu: each(process::cpu(editor.process())? - cpu) })
    })
}

pub fn idle(bench: &Bench) -> Result<Measured> {
    bench.editors("memory of an idle agent with a session", |editor, _| {
        editor.session()?;
        Ok(Cost::Memory(process::resident(editor.process())?))
    })
}

/// How much memory an agent uses for a text that its client does not read. The model writes as fast as it can.
pub fn stalled(bench: &Bench) -> Result<Measured> {
    let pieces = bench.size.unread;
    let rate = Cell::new(None);
    let measured = bench.editors(format!("memory for {pieces} chunks that nobody reads"), |editor, setup| {
        let session = editor.session()?;
        editor.turn(&session, HELLO)?;
        let (before, taken) = (process::resident(editor.process())?, setup.model.taken());
        let prompt = editor.prompt(&session, &format!("{} {pieces}", model::DELTAS))?;
        let begin = Instant::now();
        let mut most: f64 = 0.0;
        while setup.model.taken() < taken + pieces as u64 {
            most = most.max(process::resident(editor.process())?);
            if begin.elapsed() > LONGEST {
                bail!("the text was not taken within {LONGEST:?}");
            }
            std::thread::sleep(LOOK);
        }
        let spent = begin.elapsed();
        // Text that the agent has read may still be on its way to the client.
        while begin.elapsed() < 2 * spent {
            most = most.max(process::resident(editor.process())?);
            std::thread::sleep(LOOK);
        }
        editor.answer(prompt)?;
        // Ours is measured first.
        rate.set(rate.get().or(Some(pieces as f64 / spent.as_secs_f64())));
        Ok(Cost::Memory((most - before).max(0.0)))
    })?;
    let rate = rate.get().unwrap_or_default();
    Ok(Measured { what: format!("{}; ours takes {rate:.0}/s", measured.what), ..measured })
}

/// OpenCode would take many minutes for the whole session, so it gets a tenth of it. Codex imports no sessions.
pub fn load(bench: &Bench) -> Result<Measured> {
    let Size { messages, runs, .. } = bench.size;
    let tenth = messages / 10;
    let ours = replay(&bench.program, &["session", "import"], messages, runs)?;
    let what = format!("`session/load` of {messages} messages (opencode: of {tenth}, once)");
    let measured = Measured::alone(what, ours);
    Ok(bench.beside_opencode(measured, |program| replay(program, &["import"], tenth, 1)))
}

/// Imports a long session, and loads it repeatedly.
fn replay(program: &Path, import: &[&str], messages: usize, runs: usize) -> Result<Cost> {
    let setup = Setup::new()?;
    let file = setup.project().join("session.json");
    history::write(&file, &setup.project(), messages)?;
    let imported = setup.command(program).args(import).arg(&file).output()?;
    if !imported.status.success() {
        bail!("the session was not imported: {}", String::from_utf8_lossy(&imported.stderr));
    }
    let mut editor = Editor::start(Program::acp(program), &setup)?;
    let params = json!({"sessionId": history::SESSION, "cwd": editor.directory, "mcpServers": []});
    let mut load = || {
        let told = editor.told;
        editor.ask("session/load", &params)?;
        let told = editor.told - told;
        if told < messages {
            bail!("only {told} updates told of {messages} messages");
        }
        process::cpu(editor.process())
    };
    let cpu = load()?;
    let walls = (0..runs).map(|_| timed(|| load().map(drop))).collect::<Result<Vec<_>>>()?;
    let cpu = (process::cpu(editor.process())? - cpu) / runs as f64;
    Ok(Cost::Time { wall: process::median(walls), cpu })
}
