//! A long-lived agent that runs turns: our engine over pipes, or a server over HTTP.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::setup::Setup;
use crate::engine;

/// The timeout of an answer. Writing the journal of many sessions takes longest.
const LONGEST: Duration = Duration::from_secs(300);

/// What both agents can do.
pub trait Agent {
    /// Creates a session. Returns its id.
    fn session(&mut self) -> Result<String>;
    /// Sends a prompt and waits for the end of the turn.
    fn turn(&mut self, session: &str, text: &str) -> Result<()>;
    /// The process to measure.
    fn process(&self) -> u32;
}

/// Our engine: a second process of this program. Ends when dropped.
pub struct Probe {
    child: Child,
    /// Closed first when dropped, which tells the program to exit.
    input: Option<ChildStdin>,
    answers: Receiver<std::io::Result<String>>,
}

impl Probe {
    /// Starts it.
    pub fn start(program: &Path, setup: &Setup) -> Result<Self> {
        let mut command = setup.command(program);
        command.arg(engine::ARGUMENT);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(setup.errors())?);
        let mut child = command.spawn().with_context(|| format!("cannot run {}", program.display()))?;
        let input = child.stdin.take();
        let output = child.stdout.take().context("the output is piped")?;
        // On its own thread, so that waiting for an answer can time out.
        let (sender, answers) = sync_channel(1);
        std::thread::spawn(move || BufReader::new(output).lines().try_for_each(|line| sender.send(line)));
        Ok(Self { child, input, answers })
    }

    /// Sends a request. Returns the answer.
    pub fn ask(&mut self, request: &Value) -> Result<Value> {
        writeln!(self.input.as_ref().context("the input is piped")?, "{request}")?;
        let line = self.answers.recv_timeout(LONGEST).with_context(|| {
            // Kill it, so that the drop does not wait for it.
            let _ = self.child.kill();
            format!("no answer to {request}")
        })?;
        let answer: Value = serde_json::from_str(&line?)?;
        match answer.get("error") {
            Some(error) => bail!("{request}: {error}"),
            None => Ok(answer),
        }
    }
}

impl Agent for Probe {
    fn session(&mut self) -> Result<String> {
        let answer = self.ask(&json!({"do": "session"}))?;
        answer["id"].as_str().map(str::to_owned).context("a session without id")
    }

    fn turn(&mut self, session: &str, text: &str) -> Result<()> {
        self.ask(&json!({"do": "turn", "session": session, "text": text})).map(drop)
    }

    fn process(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.input = None;
        // Its exit code does not matter: every answer was read.
        let _ = self.child.wait();
    }
}
