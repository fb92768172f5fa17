//! The rows about A2A: our service and opencode-a2a in front of the same fake OpenCode, and our service on our engine.

mod service;
mod streams;
mod upstream;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::json;

use super::agent::{Agent as _, Probe};
use super::cost::Cost;
use super::server::Server;
use super::setup::Setup;
use super::{Bench, HELLO, Measured, Size, process, timed};
pub use service::IDENTITY;
use service::{Client, Program, Service, accept_bench};
use upstream::{FakeOpenCode, HOLD, PIECES};

/// The number of concurrent clients.
const CONNECTIONS: usize = 16;
/// The pieces of an answer that is streamed alone, and of each one among many.
const FEW_PIECES: usize = 4;
const MANY_PIECES: usize = 20;
/// The part of many streams that has to complete, where the first event is what is measured.
const MOST: f64 = 0.95;
/// How many turns follow each other on one protocol before the other has its turn.
const ROUND: usize = 20;
/// The path of A2A on a server with several protocols.
const MOUNT: &str = "/a2a";

impl Bench {
    /// Measures both services, each with a home and an OpenCode of its own.
    fn bridges(&self, what: impl Into<String>, measure: impl Fn(&Service) -> Result<Cost>) -> Result<Measured> {
        self.each_bridge(what, |program| {
            let setup = Setup::new()?;
            let upstream = upstream(&setup)?;
            measure(&Service::start(program, &setup, Some(&upstream.url()))?)
        })
    }

    /// The same for measurements that start the services themselves.
    fn each_bridge(&self, what: impl Into<String>, measure: impl Fn(Program<'_>) -> Result<Cost>) -> Result<Measured> {
        let measured = Measured::alone(what, measure(Program::Trefoil(&self.program))?);
        Ok(match &self.opencode_a2a {
            Some(path) => measured.beside("opencode-a2a", measure(Program::OpencodeA2a(path))),
            None => measured,
        })
    }
}

fn upstream(setup: &Setup) -> Result<FakeOpenCode> {
    FakeOpenCode::start(&setup.project().to_string_lossy())
}

/// Many requests over several connections at once; `work` makes one. The wall time is that of all by their number, so
/// that its inverse is the rate.
fn together(service: &Service, times: usize, work: impl Fn(&mut Client) -> Result<()> + Sync) -> Result<Cost> {
    let (left, work) = (AtomicUsize::new(times), &work);
    let (cpu, begin) = (process::cpu(service.process())?, Instant::now());
    std::thread::scope(|scope| {
        let client = || {
            let mut client = service.connect()?;
            while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
                work(&mut client)?;
            }
            anyhow::Ok(())
        };
        let clients: Vec<_> = (0..CONNECTIONS.min(times)).map(|_| scope.spawn(client)).collect();
        clients.into_iter().try_for_each(|client| client.join().unwrap_or_else(|_| bail!("a client panicked")))
    })?;
    let each = |total: f64| total / times as f64;
    let wall = each(begin.elapsed().as_secs_f64() * 1e3);
    Ok(Cost::Time { wall, cpu: each(process::cpu(service.process())? - cpu) })
}

/// A message that is answered at once, up to the end of its task.
pub(super) fn send(bench: &Bench) -> Result<Measured> {
    let times = bench.size.turns * 5;
    bench.bridges(format!("`message:send`, {CONNECTIONS} connections"), |service| {
        let send = |client: &mut Client| client.send(HELLO, None).map(drop);
        together(service, CONNECTIONS.min(times), send)?;
        together(service, times, send)
    })
}

pub(super) fn get(bench: &Bench) -> Result<Measured> {
    let times = bench.size.turns * 20;
    bench.bridges(format!("`tasks/get`, {CONNECTIONS} connections"), |service| {
        let path = format!("/tasks/{}", service.connect()?.task(HELLO)?);
        let get = |client: &mut Client| client.load(&path).map(drop);
        together(service, CONNECTIONS.min(times), get)?;
        together(service, times, get)
    })
}

/// The first event of a stream. The CPU time is that of the whole stream.
pub(super) fn first(bench: &Bench) -> Result<Measured> {
    let (runs, text) = (bench.size.runs * 4, format!("{PIECES} {FEW_PIECES}"));
    bench.bridges(format!("first event of a stream, {runs} one by one"), |service| {
        streams::run(service.address(), 1, &text)?;
        let cpu = process::cpu(service.process())?;
        let mut firsts = Vec::new();
        for _ in 0..runs {
            for streamed in streams::run(service.address(), 1, &text)? {
                firsts.push(streamed.first.context("the stream had no event")?);
            }
        }
        let cpu = (process::cpu(service.process())? - cpu) / runs as f64;
        Ok(Cost::Time { wall: process::median(firsts), cpu })
    })
}

/// The 99th percentile of the first events. The CPU time is that of a stream.
pub(super) fn at_once(bench: &Bench) -> Result<Measured> {
    let Size { streams, hold, .. } = bench.size;
    let text = format!("{HOLD} {hold} {PIECES} {MANY_PIECES}");
    bench.bridges(format!("first event of {streams} streams at once, p99"), |service| {
        service.connect()?.task(HELLO)?;
        let cpu = process::cpu(service.process())?;
        let streamed = streams::run(service.address(), streams, &text)?;
        let cpu = (process::cpu(service.process())? - cpu) / streams as f64;
        let complete = streamed.iter().filter(|streamed| streamed.is_complete).count();
        if (complete as f64) < MOST * streams as f64 {
            bail!("only {complete} of {streams} streams completed");
        }
        // One without an event is slower than all others.
        let mut firsts: Vec<f64> = streamed.iter().map(|streamed| streamed.first.unwrap_or(f64::INFINITY)).collect();
        firsts.sort_by(f64::total_cmp);
        let wall = firsts.get(streams * 99 / 100).copied().context("there was no stream")?;
        Ok(Cost::Time { wall, cpu })
    })
}

/// The time until all have completed, without the model's.
pub(super) fn many(bench: &Bench) -> Result<Measured> {
    let Size { many_streams: streams, hold, .. } = bench.size;
    let text = format!("{HOLD} {hold} {PIECES} {MANY_PIECES}");
    bench.bridges(format!("{streams} streams at once, all complete"), |service| {
        service.connect()?.task(HELLO)?;
        let (cpu, begin) = (process::cpu(service.process())?, Instant::now());
        let streamed = streams::run(service.address(), streams, &text)?;
        let wall = begin.elapsed().as_secs_f64() * 1e3 - hold as f64;
        let complete = streamed.iter().filter(|streamed| streamed.is_complete).count();
        if complete < streams {
            bail!("only {complete} of {streams} streams completed");
        }
        Ok(Cost::Time { wall, cpu: (process::cpu(service.process())? - cpu) / streams as f64 })
    })
}

pub(super) fn start(bench: &Bench) -> Result<Measured> {
    bench.each_bridge("an A2A service, start to first answer", |program| {
        let setup = Setup::new()?;
        let upstream = upstream(&setup)?;
        let (mut walls, mut cpu) = (Vec::new(), 0.0);
        // The first creates the database.
        for run in 0..=bench.size.runs {
            let service = Service::start(program, &setup, Some(&upstream.url()))?;
            if run > 0 {
                walls.push(service.start);
                cpu += process::cpu(service.process())?;
            }
        }
        Ok(Cost::Time { wall: process::median(walls), cpu: cpu / bench.size.runs as f64 })
    })
}

pub(super) fn idle(bench: &Bench) -> Result<Measured> {
    bench.bridges("memory of an idle A2A service", |service| Ok(Cost::Memory(process::resident(service.process())?)))
}

/// On our engine: what a prompt costs more over A2A than over OpenCode's protocol, on one server with both.
pub(super) fn turn(bench: &Bench) -> Result<Measured> {
    let (rounds, round) = (bench.size.turns.div_ceil(ROUND), bench.size.turns.min(ROUND));
    let setup = Setup::new()?;
    let mut server = Server::start_with(&bench.program, &setup, |command| {
        command.arg("--a2a");
        accept_bench(command);
    })?;
    let session = server.session()?;
    let mut client = Client::new(server.connect()?, MOUNT);
    let context = client.send(HELLO, None)?["contextId"].as_str().context("a task has a context")?.to_owned();
    server.turn(&session, HELLO)?;
    let (mut walls, mut cpus) = ([Vec::new(), Vec::new()], [0.0; 2]);
    // In turn, because both get slower as their conversation grows.
    for _ in 0..rounds {
        let before = process::cpu(server.process())?;
        for _ in 0..round {
            walls[0].push(timed(|| server.turn(&session, HELLO))?);
        }
        let between = process::cpu(server.process())?;
        for _ in 0..round {
            walls[1].push(timed(|| client.send(HELLO, Some(&context)).map(drop))?);
        }
        cpus[0] += between - before;
        cpus[1] += process::cpu(server.process())? - between;
    }
    let count = walls[0].len() as f64;
    let [http, a2a] = walls.map(process::median);
    let [http_cpu, a2a_cpu] = cpus.map(|cpu| cpu / count);
    let what = format!("a turn over A2A ({a2a:.2} / {a2a_cpu:.2}), more than over HTTP ({http:.2} / {http_cpu:.2})");
    Ok(Measured::alone(what, Cost::Time { wall: a2a - http, cpu: a2a_cpu - http_cpu }))
}

/// A page of a short and of a long list. The short one is the peer.
pub(super) fn list(bench: &Bench) -> Result<Measured> {
    const PATH: &str = "/tasks?pageSize=50";
    let Size { tasks_listed: [few, many], turns, .. } = bench.size;
    let measure = |tasks: usize| {
        let setup = Setup::new()?;
        Probe::start(&bench.probe, &setup)?.ask(&json!({"do": "tasks", "tasks": tasks}))?;
        let service = Service::start(Program::Trefoil(&bench.program), &setup, None)?;
        let mut client = service.connect()?;
        let listed: serde_json::Value = serde_json::from_slice(&client.load(PATH)?)?;
        if listed["totalSize"] != tasks {
            bail!("{tasks} tasks should be listed: {}", listed["totalSize"]);
        }
        let cpu = process::cpu(service.process())?;
        let walls = (0..turns).map(|_| timed(|| client.load(PATH).map(drop))).collect::<Result<_>>()?;
        let cpu = (process::cpu(service.process())? - cpu) / turns as f64;
        Ok(Cost::Time { wall: process::median(walls), cpu })
    };
    let few_cost = measure(few);
    Ok(Measured::alone(format!("a page of 50 of {many} tasks"), measure(many)?).beside("of few", few_cost))
}
