//! The rows about `acp`: the same conversation with our agent and with OpenCode's.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::cost::Cost;
use super::setup::Setup;
use super::{Bench, HELLO, Measured, model, process, timed};

/// Pieces of the text that nobody reads.
const UNREAD: usize = 20_000;
/// Turns of the session that is loaded, for each turn of the other rows: each is two messages.
const LOADED: usize = 50;
/// How long a model may take for a text that nobody reads.
const LONGEST: Duration = Duration::from_secs(120);

/// An editor and its agent, which ends when this is dropped.
struct Editor {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    directory: String,
    next: u64,
}

impl Editor {
    /// Starts an agent and says hello.
    fn start(program: &Path, setup: &Setup) -> Result<Self> {
        let mut command = setup.command(program);
        command.arg("acp").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(setup.errors())?);
        let directory = command.get_current_dir().map(|path| path.to_string_lossy().into_owned()).unwrap_or_default();
        let mut child = command.spawn()?;
        let stdin = child.stdin.take().context("the input is piped")?;
        let stdout = BufReader::new(child.stdout.take().context("the output is piped")?);
        let mut editor = Self { child, stdin, stdout, directory, next: 0 };
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
            // Only answers are read to their end; there may be thousands of updates.
            if line.contains("\"method\":\"session/update\"") {
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
    /// Measures both agents, each with a home and a model server of its own.
    fn editors(&self, what: String, measure: impl Fn(&mut Editor, &Setup) -> Result<Cost>) -> Result<Measured> {
        let one = |program| {
            let setup = Setup::new()?;
            measure(&mut Editor::start(program, &setup)?, &setup)
        };
        let peer = self.opencode.as_deref().map(one).transpose()?;
        Ok(Measured { what, ours: one(&self.program)?, peer })
    }
}

pub fn start(bench: &Bench) -> Result<Measured> {
    let one = |program| {
        let setup = Setup::new()?;
        Editor::start(program, &setup)?;
        let (mut walls, mut cpu) = (Vec::new(), 0.0);
        for _ in 0..bench.size.runs {
            let begin = Instant::now();
            let editor = Editor::start(program, &setup)?;
            walls.push(begin.elapsed().as_secs_f64() * 1e3);
            cpu += process::cpu(editor.process())?;
        }
        anyhow::Ok(Cost::Time { wall: process::median(walls), cpu: cpu / bench.size.runs as f64 })
    };
    let peer = bench.opencode.as_deref().map(one).transpose()?;
    Ok(Measured { what: "`acp`, start to `initialize` answered".to_owned(), ours: one(&bench.program)?, peer })
}

pub fn session(bench: &Bench) -> Result<Measured> {
    let runs = bench.size.runs;
    bench.editors("`session/new`".to_owned(), |editor, _| {
        editor.session()?;
        let cpu = process::cpu(editor.process())?;
        let walls = (0..runs).map(|_| timed(|| editor.session().map(drop))).collect::<Result<_>>()?;
        let cpu = (process::cpu(editor.process())? - cpu) / runs as f64;
        Ok(Cost::Time { wall: process::median(walls), cpu })
    })
}

/// The time of a turn in which the model has no part. The CPU time is all of it.
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
    bench.editors("memory of an idle agent with a session".to_owned(), |editor, _| {
        editor.session()?;
        Ok(Cost::Memory(process::resident(editor.process())?))
    })
}

/// What an agent keeps of a text that its client does not read.
pub fn stalled(bench: &Bench) -> Result<Measured> {
    let deltas = bench.size.deltas.min(UNREAD / 10) * 10;
    bench.editors(format!("memory for {deltas} chunks that nobody reads"), |editor, setup| {
        let session = editor.session()?;
        editor.turn(&session, HELLO)?;
        let (before, busy) = (process::resident(editor.process())?, setup.model.busy());
        let prompt = editor.prompt(&session, &format!("{} {deltas}", model::DELTAS))?;
        let begin = Instant::now();
        let mut most: f64 = 0.0;
        // The model is done when the agent has taken all of its text.
        while setup.model.busy() <= busy {
            most = most.max(process::resident(editor.process())?);
            if begin.elapsed() > LONGEST {
                bail!("the text was not taken within {LONGEST:?}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        most = most.max(process::resident(editor.process())?);
        editor.answer(prompt)?;
        Ok(Cost::Memory((most - before).max(0.0)))
    })
}

/// OpenCode would need many minutes to make the session, so only our agent is measured.
pub fn load(bench: &Bench) -> Result<Measured> {
    let turns = bench.size.turns * LOADED;
    let setup = Setup::new()?;
    let mut editor = Editor::start(&bench.program, &setup)?;
    let session = editor.session()?;
    for _ in 0..turns {
        editor.turn(&session, HELLO)?;
    }
    let params = json!({"sessionId": session, "cwd": editor.directory, "mcpServers": []});
    let cpu = process::cpu(editor.process())?;
    let walls = (0..bench.size.runs).map(|_| timed(|| editor.ask("session/load", &params).map(drop)));
    let walls = walls.collect::<Result<Vec<_>>>()?;
    let cpu = (process::cpu(editor.process())? - cpu) / bench.size.runs as f64;
    let what = format!("`session/load` of {} messages", turns * 2);
    Ok(Measured { what, ours: Cost::Time { wall: process::median(walls), cpu }, peer: None })
}
