//! The rows about `serve`: the same requests to our server and to OpenCode's.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::agent::Agent as _;
use super::cost::Cost;
use super::server::Server;
use super::setup::Setup;
use super::{Bench, HELLO, Measured, Size, model, process, timed};

/// The number of sessions in the list.
const LISTED: usize = 31;
/// The number of concurrent readers.
const CONNECTIONS: usize = 16;
/// The number of sessions that work concurrently.
const AT_ONCE: usize = 20;
/// Turns whose events are delivered. More would take a slow server many minutes and show nothing new.
const EVENT_TURNS: usize = 3;
/// How long the events of these turns may take to reach all subscribers.
const DELIVERY: Duration = Duration::from_secs(300);

impl Bench {
    /// Measures both servers, each with a home and a model server of its own.
    pub(super) fn servers(
        &self,
        what: String,
        measure: impl Fn(&mut Server, &Setup) -> Result<Cost>,
    ) -> Result<Measured> {
        self.both(what, |program| {
            let setup = Setup::new()?;
            measure(&mut Server::watched(program, &setup)?, &setup)
        })
    }
}

pub fn start(bench: &Bench) -> Result<Measured> {
    bench.both("`serve`, start to first answer", |program| {
        let setup = Setup::new()?;
        let mut walls = Vec::new();
        let mut cpu = 0.0;
        for _ in 0..bench.size.runs {
            let server = Server::start(program, &setup)?;
            walls.push(server.start);
            cpu += process::cpu(server.process())?;
        }
        Ok(Cost::Time { wall: process::median(walls), cpu: cpu / bench.size.runs as f64 })
    })
}

pub fn idle(bench: &Bench) -> Result<Measured> {
    bench.servers("memory of an idle server".to_owned(), |server, _| {
        server.connection()?.get("/session")?;
        Ok(Cost::Memory(process::resident(server.process())?))
    })
}

pub fn first(bench: &Bench) -> Result<Measured> {
    bench.servers("memory after the first turn".to_owned(), |server, _| {
        let session = server.session()?;
        server.turn(&session, HELLO)?;
        Ok(Cost::Memory(process::resident(server.process())?))
    })
}

pub fn memory(bench: &Bench) -> Result<Measured> {
    let (sessions, turns) = (bench.size.turns, bench.size.sessions);
    bench.servers(format!("memory after {sessions} sessions of {turns} turns"), |server, _| {
        side_by_side(server, sessions, turns)?;
        Ok(Cost::Memory(process::resident(server.process())?))
    })
}

pub fn list(bench: &Bench) -> Result<Measured> {
    let times = bench.size.turns * 40;
    bench.servers(format!("`GET /session`, {LISTED} sessions, {CONNECTIONS} connections"), |server, _| {
        for _ in 0..LISTED {
            server.session()?;
        }
        requests(server, "/session", times)
    })
}

pub fn get(bench: &Bench) -> Result<Measured> {
    let times = bench.size.turns * 40;
    bench.servers(format!("`GET /session/:id`, {CONNECTIONS} connections"), |server, _| {
        let session = server.session()?;
        requests(server, &format!("/session/{session}"), times)
    })
}

/// Many requests over several connections at once, as on a busy server. One by one, most of the CPU time would be spent in
/// the kernel, which puts the server to sleep after each.
fn requests(server: &mut Server, path: &str, times: usize) -> Result<Cost> {
    server.connection()?.get(path)?;
    let cpu = process::cpu(server.process())?;
    let server = &*server;
    let walls = std::thread::scope(|scope| {
        let work = || {
            let mut connection = server.connect()?;
            (0..times / CONNECTIONS).map(|_| timed(|| connection.get(path).map(drop))).collect::<Result<Vec<_>>>()
        };
        let workers: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(work)).collect();
        let ended = workers.into_iter().map(|worker| worker.join().unwrap_or_else(|_| bail!("a worker panicked")));
        ended.collect::<Result<Vec<_>>>()
    })?;
    let walls: Vec<f64> = walls.into_iter().flatten().collect();
    let cpu = process::cpu(server.process())? - cpu;
    Ok(Cost::Time { cpu: cpu / walls.len().max(1) as f64, wall: process::median(walls) })
}

/// The time of a turn without the model's. The CPU time is that of the whole turn.
pub fn turn(bench: &Bench) -> Result<Measured> {
    let turns = bench.size.turns;
    bench.servers(format!("overhead of a turn ({turns} in one session)"), |server, setup| {
        let session = server.session()?;
        server.turn(&session, HELLO)?;
        let (busy, cpu) = (setup.model.busy(), process::cpu(server.process())?);
        let walls = (0..turns).map(|_| timed(|| server.turn(&session, HELLO))).collect::<Result<_>>()?;
        let each = |total: f64| total / turns as f64;
        let model = each(setup.model.busy() - busy);
        let wall = (process::median(walls) - model).max(0.0);
        Ok(Cost::Time { wall, cpu: each(process::cpu(server.process())? - cpu) })
    })
}

pub fn deltas(bench: &Bench) -> Result<Measured> {
    let Size { runs, deltas, .. } = bench.size;
    let text = format!("{} {deltas}", model::DELTAS);
    bench.servers(format!("a turn of {deltas} deltas, one subscriber"), |server, _| {
        let session = server.session()?;
        server.turn(&session, &text)?;
        let cpu = process::cpu(server.process())?;
        let mut walls = Vec::new();
        for _ in 0..runs {
            let session = server.session()?;
            walls.push(timed(|| server.turn(&session, &text))?);
        }
        Ok(Cost::Time { wall: process::median(walls), cpu: (process::cpu(server.process())? - cpu) / runs as f64 })
    })
}

/// The cost of delivering one event to one subscriber among many: each gets every event.
pub fn events(bench: &Bench) -> Result<Measured> {
    let Size { subscribers, deltas, runs, .. } = bench.size;
    let runs = runs.min(EVENT_TURNS);
    let text = format!("{} {deltas}", model::DELTAS);
    bench.servers(format!("an event delivered, {subscribers} subscribers"), |server, _| {
        let counts: Vec<Arc<AtomicU64>> = (0..subscribers).map(|_| Arc::default()).collect();
        for count in &counts {
            server.subscribe(count)?;
        }
        let (cpu, begin) = (process::cpu(server.process())?, Instant::now());
        for _ in 0..runs {
            let session = server.session()?;
            server.turn(&session, &text)?;
        }
        let total = || counts.iter().map(|count| count.load(Ordering::Relaxed)).sum::<u64>();
        let level = || {
            let first = counts.first().map_or(0, |count| count.load(Ordering::Relaxed));
            first as usize > runs * deltas && counts.iter().all(|count| count.load(Ordering::Relaxed) == first)
        };
        while !level() {
            if begin.elapsed() > DELIVERY {
                bail!("after {DELIVERY:?} not everybody has every event: {counts:?}");
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let each = |milliseconds: f64| milliseconds / total() as f64;
        let wall = each(begin.elapsed().as_secs_f64() * 1e3);
        Ok(Cost::Time { wall, cpu: each(process::cpu(server.process())? - cpu) })
    })
}

pub fn many(bench: &Bench) -> Result<Measured> {
    let rounds = bench.size.rounds;
    bench.servers(format!("a turn, {AT_ONCE} sessions at once"), |server, _| {
        side_by_side(server, AT_ONCE, 1)?;
        let (cpu, begin) = (process::cpu(server.process())?, Instant::now());
        side_by_side(server, AT_ONCE, rounds)?;
        let each = |total: f64| total / (AT_ONCE * rounds) as f64;
        let wall = each(begin.elapsed().as_secs_f64() * 1e3);
        Ok(Cost::Time { wall, cpu: each(process::cpu(server.process())? - cpu) })
    })
}

/// New sessions of this many turns each, [`AT_ONCE`] at a time.
fn side_by_side(server: &Server, sessions: usize, turns: usize) -> Result<()> {
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let work = || {
            let mut connection = server.connect()?;
            while next.fetch_add(1, Ordering::Relaxed) < sessions as u64 {
                let session = connection.session()?;
                (0..turns).try_for_each(|_| connection.turn(&session, HELLO))?;
            }
            anyhow::Ok(())
        };
        let workers: Vec<_> = (0..AT_ONCE.min(sessions)).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().unwrap_or_else(|_| bail!("a worker panicked")))
    })
}
