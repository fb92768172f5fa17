//! `trefoil-bench soak`: many clients do everything at once to the same sessions of one server for a given time. At the
//! end every accepted prompt must have been answered.
//!
//! The server runs without its watchdog, because nothing here may need one. Temporary faults are part of the test: clients
//! that hang up, a database that another program locks for a while, a server that is stopped and continued.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fastrand::Rng;
use rusqlite::Connection as Database;
use serde_json::{Value, json};

use crate::table::agent::Agent as _;
use crate::table::process;
use crate::table::server::{Connection, Server};
use crate::table::setup::Setup;

/// The number of concurrent clients.
const CLIENTS: usize = 48;
/// Half of the operations go to this many of the sessions, so that clients collide there.
const CROWDED: usize = 20;
/// How long the last turns may take after everybody has stopped.
const SETTLE: Duration = Duration::from_secs(120);
/// The longest time another program locks the database: well below the timeout of a write.
const LOCKED: Duration = Duration::from_millis(1500);
/// The longest time the server is stopped.
const STOPPED: Duration = Duration::from_millis(500);
/// The pause between two faults.
const FAULT_EVERY: Duration = Duration::from_millis(1500);
/// The maximum number of findings shown per kind.
const SHOWN: usize = 5;

/// The options on the command line.
struct Wanted {
    time: Duration,
    sessions: usize,
    seed: u64,
}

impl Wanted {
    fn parse(arguments: &[String]) -> Result<Self> {
        let mut wanted = Self { time: Duration::from_secs(120), sessions: 200, seed: fastrand::u64(..) };
        let mut arguments = arguments.iter();
        while let Some(name) = arguments.next() {
            let value = arguments.next().and_then(|value| value.parse::<u64>().ok());
            let value = value.with_context(|| format!("{name} needs a number"))?;
            match name.as_str() {
                "--minutes" => wanted.time = Duration::from_secs(60 * value),
                "--seconds" => wanted.time = Duration::from_secs(value),
                "--sessions" => wanted.sessions = usize::try_from(value)?.max(1),
                "--seed" => wanted.seed = value,
                other => {
                    bail!("{other:?} is not understood: soak [--minutes N | --seconds N] [--sessions N] [--seed N]")
                }
            }
        }
        Ok(wanted)
    }
}

/// What one client does to a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Deed {
    Ask,
    AskAndHangUp,
    Send,
    /// Sends a prompt, and another client sends one a moment later.
    Meet,
    Delegate,
    Command,
    Steer,
    Abort,
    Cancel,
    Pause,
    Read,
}

/// The relative frequency of each.
const DEEDS: [(Deed, u32); 11] = [
    (Deed::Ask, 20),
    (Deed::AskAndHangUp, 4),
    (Deed::Send, 20),
    (Deed::Meet, 20),
    (Deed::Delegate, 4),
    (Deed::Command, 2),
    (Deed::Steer, 8),
    (Deed::Abort, 3),
    (Deed::Cancel, 2),
    (Deed::Pause, 3),
    (Deed::Read, 6),
];

fn choose(rng: &mut Rng) -> Deed {
    let mut left = rng.u32(0..DEEDS.iter().map(|(_, weight)| weight).sum());
    for (deed, weight) in DEEDS {
        match left.checked_sub(weight) {
            Some(rest) => left = rest,
            None => return deed,
        }
    }
    Deed::Read
}

/// The counters shared by all clients.
#[derive(Default)]
struct Counts {
    prompts: AtomicU64,
    answers: AtomicU64,
    requests: AtomicU64,
    hung_up: AtomicU64,
    locked: AtomicU64,
    stopped: AtomicU64,
    /// Prompts that were certainly accepted, by session.
    accepted: Mutex<HashMap<String, Vec<String>>>,
    /// What must not happen, by kind.
    findings: Mutex<BTreeMap<&'static str, Vec<String>>>,
}

impl Counts {
    fn find(&self, kind: &'static str, what: String) {
        lock(&self.findings).entry(kind).or_default().push(what);
    }

    fn accept(&self, session: &str, prompt: &str) {
        lock(&self.accepted).entry(session.to_owned()).or_default().push(prompt.to_owned());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Runs the command.
pub fn run(arguments: &[String]) -> Result<()> {
    let wanted = Wanted::parse(arguments)?;
    let program = std::env::current_exe()?.with_file_name(format!("trefoil{}", std::env::consts::EXE_SUFFIX));
    let setup = Setup::new()?;
    let script = setup.project().with_file_name("script.json");
    std::fs::write(&script, json!({"default": [{"text": "Hello from the script"}]}).to_string())?;
    setup.configure(&json!({
        "model": "script/file", "small_model": "script/file", "enabled_providers": ["script"],
        // Prompts that join a turn may repeat a call three times, and nobody would answer the question about it.
        "permission": {"doom_loop": "allow"},
    }))?;
    let server = Server::start_with(&program, &setup, |command| {
        command.env("TREFOIL_SCRIPT", &script).env("TREFOIL_WATCHDOG", "off");
    })?;
    let mut first = server.connect()?;
    let sessions = (0..wanted.sessions).map(|_| first.session()).collect::<Result<Vec<_>>>()?;
    let counts = Counts::default();
    let before = Size::of(&server, &setup)?;
    println!(
        "{} sessions, {CLIENTS} clients, {:.0} s, seed {}; no watchdog",
        wanted.sessions,
        wanted.time.as_secs_f64(),
        wanted.seed
    );
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS as u64)
            .map(|number| {
                let mut client = Client {
                    server: &server,
                    connection: None,
                    sessions: &sessions,
                    rng: Rng::with_seed(wanted.seed.wrapping_add(number)),
                    counts: &counts,
                };
                let stop = &stop;
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        client.act();
                    }
                })
            })
            .collect();
        let faults = scope.spawn(|| inject(&server, &setup, &counts, &stop, Rng::with_seed(wanted.seed ^ 1)));
        watch(&counts, wanted.time);
        stop.store(true, Ordering::Relaxed);
        let ended = clients.into_iter().all(|client| client.join().is_ok());
        if let Err(error) = faults.join().unwrap_or_else(|_| bail!("it panicked")) {
            counts.find("faults that could not be injected", format!("{error:#}"));
        }
        if !ended {
            counts.find("clients that panicked", String::new());
        }
    });
    // The server closes connections that were silent for this long.
    settle(&mut server.connect()?, &sessions, &counts)?;
    let after = Size::of(&server, &setup)?;
    report(&counts, &before, &after)
}

/// Prints the progress until the time is over.
fn watch(counts: &Counts, time: Duration) {
    let begin = Instant::now();
    let mut told = 0;
    while begin.elapsed() < time {
        std::thread::sleep((time - begin.elapsed().min(time)).min(Duration::from_millis(500)));
        if begin.elapsed().as_secs() / 10 > told {
            told = begin.elapsed().as_secs() / 10;
            let (prompts, answers) = (counts.prompts.load(Ordering::Relaxed), counts.answers.load(Ordering::Relaxed));
            println!("{:4} s: {prompts} prompts, {answers} answers", begin.elapsed().as_secs());
        }
    }
}

struct Client<'a> {
    server: &'a Server,
    connection: Option<Connection>,
    sessions: &'a [String],
    rng: Rng,
    counts: &'a Counts,
}

impl Client<'_> {
    fn act(&mut self) {
        let deed = choose(&mut self.rng);
        let most = if self.rng.bool() { CROWDED.min(self.sessions.len()) } else { self.sessions.len() };
        let session = self.sessions[self.rng.usize(0..most)].clone();
        if let Err(error) = self.perform(deed, &session) {
            self.connection = None;
            self.counts.find("requests that broke", format!("{deed:?} {session}: {error:#}"));
        }
    }

    fn perform(&mut self, deed: Deed, session: &str) -> Result<()> {
        match deed {
            Deed::Ask => self.ask(session, "Hello"),
            Deed::Command => {
                self.ask(session, r#"SCRIPT: [{"tools": [["bash", {"command": "echo soaked"}]]}, {"text": "ran"}]"#)
            }
            Deed::Delegate => {
                let call =
                    json!({"description": "soak", "prompt": "Hello", "subagent_type": "general", "background": true});
                let steps = json!([{"tools": [["task", call]]}, {"text": "delegated"}]);
                self.ask(session, &format!("SCRIPT: {steps}"))
            }
            Deed::Send => self.send(session),
            Deed::Meet => {
                let pause = Duration::from_micros(self.rng.u64(0..20_000));
                let mut other = Client {
                    server: self.server,
                    connection: None,
                    sessions: self.sessions,
                    rng: self.rng.fork(),
                    counts: self.counts,
                };
                std::thread::scope(|scope| {
                    let later = scope.spawn(move || {
                        std::thread::sleep(pause);
                        other.send(session)
                    });
                    self.ask(session, "Hello")?;
                    later.join().unwrap_or_else(|_| bail!("the second client panicked"))
                })
            }
            Deed::AskAndHangUp => {
                add(&self.counts.hung_up);
                let mut connection = self.server.connect()?;
                let id = message_id(&mut self.rng);
                connection.write("POST", &format!("/session/{session}/message"), Some(&prompt(&id, "Hello")))?;
                std::thread::sleep(Duration::from_micros(self.rng.u64(0..5_000)));
                Ok(())
            }
            Deed::Steer => {
                let (status, body) =
                    self.request("POST", &format!("/session/{session}/steer"), Some(&json!({"text": "And this"})))?;
                // Nothing runs there, which the client cannot know.
                if status != 409 {
                    let answer = self.fine("steer", session, status, &body)?;
                    add(&self.counts.prompts);
                    if let Some(id) = answer["messageID"].as_str().or(answer.as_str()) {
                        self.counts.accept(session, id);
                    }
                }
                Ok(())
            }
            Deed::Abort => self.order("abort", session),
            Deed::Cancel => self.order("cancel", session),
            Deed::Pause => {
                self.order("pause", session)?;
                std::thread::sleep(Duration::from_millis(self.rng.u64(0..50)));
                self.order("resume", session)
            }
            Deed::Read => {
                let (status, body) = self.request("GET", &format!("/session/{session}/message?limit=5"), None)?;
                self.fine("read", session, status, &body).map(drop)
            }
        }
    }

    /// Prompts and waits for the answer, which must be complete.
    fn ask(&mut self, session: &str, text: &str) -> Result<()> {
        add(&self.counts.prompts);
        let id = message_id(&mut self.rng);
        let (status, body) = self.request("POST", &format!("/session/{session}/message"), Some(&prompt(&id, text)))?;
        let answer = self.fine("message", session, status, &body)?;
        self.counts.accept(session, &id);
        let info = &answer["info"];
        if info["role"] != "assistant" || info["time"]["completed"].is_null() || !is_ended(info) {
            self.counts.find("answers that are not complete", format!("{session} {id}: {answer}"));
        } else {
            add(&self.counts.answers);
        }
        Ok(())
    }

    fn send(&mut self, session: &str) -> Result<()> {
        add(&self.counts.prompts);
        let id = message_id(&mut self.rng);
        let (status, body) =
            self.request("POST", &format!("/session/{session}/prompt_async"), Some(&prompt(&id, "Hello")))?;
        self.fine("prompt_async", session, status, &body)?;
        self.counts.accept(session, &id);
        Ok(())
    }

    fn order(&mut self, what: &str, session: &str) -> Result<()> {
        let (status, body) = self.request("POST", &format!("/session/{session}/{what}"), Some(&json!({})))?;
        self.fine(what, session, status, &body).map(drop)
    }

    fn request(&mut self, method: &str, path: &str, body: Option<&Value>) -> Result<(u16, Vec<u8>)> {
        add(&self.counts.requests);
        if self.connection.is_none() {
            self.connection = Some(self.server.connect()?);
        }
        self.connection.as_mut().context("just opened")?.request(method, path, body)
    }

    /// Any refusal here is a finding.
    fn fine(&self, what: &str, session: &str, status: u16, body: &[u8]) -> Result<Value> {
        let text = String::from_utf8_lossy(body);
        if !(200..300).contains(&status) {
            let kind = if status >= 500 { "answers of 500 and above" } else { "refusals" };
            self.counts.find(kind, format!("{what} {session}: {status} {text}"));
            return Ok(Value::Null);
        }
        if text.trim().is_empty() { Ok(Value::Null) } else { Ok(serde_json::from_str(&text)?) }
    }
}

fn prompt(id: &str, text: &str) -> Value {
    json!({"messageID": id, "parts": [{"type": "text", "text": text}]})
}

/// An id that sorts anywhere.
fn message_id(rng: &mut Rng) -> String {
    format!("msg_{}", std::iter::repeat_with(|| rng.alphanumeric()).take(26).collect::<String>())
}

/// Whether an answer ended its turn, well or badly.
fn is_ended(info: &Value) -> bool {
    !info["error"].is_null() || !info["finish"].is_null()
}

/// Causes temporary faults until the clients stop.
fn inject(server: &Server, setup: &Setup, counts: &Counts, stop: &AtomicBool, mut rng: Rng) -> Result<()> {
    let database = Database::open(setup.database())?;
    database.busy_timeout(Duration::from_secs(10))?;
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(FAULT_EVERY);
        if rng.bool() {
            database.execute_batch("BEGIN IMMEDIATE")?;
            std::thread::sleep(rng_time(&mut rng, LOCKED));
            database.execute_batch("ROLLBACK")?;
            add(&counts.locked);
        } else {
            signal(server.process(), "STOP")?;
            std::thread::sleep(rng_time(&mut rng, STOPPED));
            signal(server.process(), "CONT")?;
            add(&counts.stopped);
        }
    }
    Ok(())
}

fn rng_time(rng: &mut Rng, most: Duration) -> Duration {
    most.mul_f64(rng.f64())
}

fn signal(process: u32, name: &str) -> Result<()> {
    let status = Command::new("kill").args([&format!("-{name}"), &process.to_string()]).status()?;
    if !status.success() {
        bail!("kill -{name} {process}: {status}");
    }
    Ok(())
}

/// Waits until every session is idle, and checks that every prompt was answered.
fn settle(connection: &mut Connection, sessions: &[String], counts: &Counts) -> Result<()> {
    for session in sessions {
        connection.request("POST", &format!("/session/{session}/resume"), Some(&json!({})))?;
    }
    let begin = Instant::now();
    let mut pause = Duration::from_millis(10);
    loop {
        let busy = connection.get("/session/status")?;
        let unanswered = unanswered(connection, sessions, counts)?;
        let idle = busy.as_object().is_none_or(|busy| busy.is_empty());
        if idle && unanswered.is_empty() {
            break;
        }
        if begin.elapsed() > SETTLE {
            if !idle {
                counts.find("sessions that stay busy", busy.to_string());
            }
            unanswered.into_iter().for_each(|what| counts.find("prompts that nobody answers", what));
            break;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_secs(1));
    }
    Ok(())
}

/// What is wrong with the conversations: prompts that are missing or unanswered, and open answers.
fn unanswered(connection: &mut Connection, sessions: &[String], counts: &Counts) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let accepted = lock(&counts.accepted);
    for session in sessions {
        let messages = connection.get(&format!("/session/{session}/message"))?;
        let messages: Vec<&Value> = messages.as_array().into_iter().flatten().map(|message| &message["info"]).collect();
        let place: HashMap<&str, usize> =
            messages.iter().enumerate().filter_map(|(place, info)| Some((info["id"].as_str()?, place))).collect();
        let last = messages.iter().rposition(|info| info["role"] == "assistant" && is_ended(info));
        for info in messages.iter().filter(|info| info["role"] == "assistant" && info["time"]["completed"].is_null()) {
            wrong.push(format!("{session}: an open answer: {info}"));
        }
        for prompt in accepted.get(session).into_iter().flatten() {
            match place.get(prompt.as_str()) {
                None => wrong.push(format!("{session}: the prompt {prompt} is gone")),
                Some(place) if last.is_none_or(|last| last < *place) => {
                    wrong.push(format!("{session}: no answer follows {prompt}"));
                }
                Some(_) => {}
            }
        }
    }
    Ok(wrong)
}

/// The resources that the server uses.
struct Size {
    resident: f64,
    descriptors: usize,
    database: u64,
}

impl Size {
    fn of(server: &Server, setup: &Setup) -> Result<Self> {
        let process = server.process();
        let descriptors = std::fs::read_dir(format!("/proc/{process}/fd"))?.count();
        let bytes = |path: &Path| std::fs::metadata(path).map_or(0, |file| file.len());
        let database = setup.database();
        let wal = database.with_extension("db-wal");
        let database = bytes(&database) + bytes(&wal);
        Ok(Self { resident: process::resident(process)?, descriptors, database })
    }
}

fn report(counts: &Counts, before: &Size, after: &Size) -> Result<()> {
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    println!("requests      {}", count(&counts.requests));
    println!("prompts       {}", count(&counts.prompts));
    println!("answers       {} waited for, all prompts answered at the end", count(&counts.answers));
    println!(
        "faults        {} callers hung up, {} times locked, {} times stopped",
        count(&counts.hung_up),
        count(&counts.locked),
        count(&counts.stopped)
    );
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    println!("RSS           {:.1} MB → {:.1} MB", before.resident, after.resident);
    println!("descriptors   {} → {}", before.descriptors, after.descriptors);
    println!("database      {:.1} MB → {:.1} MB", megabytes(before.database), megabytes(after.database));
    let findings = lock(&counts.findings);
    for (kind, found) in &*findings {
        println!("FOUND {} {kind}", found.len());
        for what in found.iter().take(SHOWN) {
            println!("  {what}");
        }
    }
    if !findings.is_empty() {
        bail!("not every promise was kept");
    }
    println!("nothing was lost, stuck or half-answered");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_deed_is_chosen() {
        let mut rng = Rng::with_seed(7);
        let chosen: std::collections::HashSet<Deed> = (0..10_000).map(|_| choose(&mut rng)).collect();
        assert_eq!(chosen.len(), DEEDS.len());
    }

    #[test]
    fn arguments_are_read() {
        let parse = |line: &str| Wanted::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        let wanted = parse("--minutes 2 --sessions 3 --seed 4").unwrap();
        assert_eq!((wanted.time.as_secs(), wanted.sessions, wanted.seed), (120, 3, 4));
        for wrong in ["--minutes", "--minutes x", "--hours 3"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
