//! How long the server makes other clients wait while some read a lot.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::agent::Agent as _;
use super::cost::Cost;
use super::server::{Server, Stream};
use super::setup::Setup;
use super::{Bench, HELLO, Measured, Size, history, process, timed};

/// Clients that read a long session, and as many that resume an old stream of events.
const READERS: usize = 4;
/// How long `/global/health` is requested.
const WATCHED: Duration = Duration::from_secs(5);
/// The same for a smoke test.
const WATCHED_BRIEFLY: Duration = Duration::from_millis(200);
/// The pause between two requests.
const PAUSE: Duration = Duration::from_millis(2);

/// The slowest answer to `/global/health` while clients read. The CPU time is the server's per answer.
pub fn health(bench: &Bench) -> Result<Measured> {
    let Size { messages, turns, runs, .. } = bench.size;
    let (messages, turns) = (2 * messages, 5 * turns);
    let setup = Setup::new()?;
    let file = setup.project().join("session.json");
    history::write(&file, &setup.project(), messages)?;
    let imported = setup.command(&bench.program).args(["session", "import"]).arg(&file).output()?;
    if !imported.status.success() {
        bail!("the session was not imported: {}", String::from_utf8_lossy(&imported.stderr));
    }
    let mut server = Server::watched(&bench.program, &setup)?;
    let session = server.session()?;
    let stream = format!("/session/{session}/tree/event");
    let first = {
        let mut events = server.stream(&stream, None)?;
        server.turn(&session, HELLO)?;
        events.id()?
    };
    for _ in 0..turns {
        server.turn(&session, HELLO)?;
    }
    let last = {
        let mut events = server.stream(&stream, None)?;
        server.turn(&session, HELLO)?;
        events.id()?
    };
    let (stop, watched) = (AtomicBool::new(false), if runs > 1 { WATCHED } else { WATCHED_BRIEFLY });
    let (server, stop) = (&server, &stop);
    let read = || {
        let mut connection = server.connect()?;
        let path = format!("/session/{}/message", history::SESSION);
        while !stop.load(Ordering::Relaxed) {
            connection.load(&path)?;
        }
        anyhow::Ok(())
    };
    let resume = || {
        while !stop.load(Ordering::Relaxed) {
            let mut events: Stream = server.stream(&stream, Some(&first))?;
            while events.id()? != last {}
        }
        anyhow::Ok(())
    };
    let (answers, cpu) = std::thread::scope(|scope| {
        let readers = (0..READERS).map(|_| scope.spawn(read));
        let resumers = (0..READERS).map(|_| scope.spawn(resume));
        let clients: Vec<_> = readers.chain(resumers).collect();
        let (answers, cpu) = ask(server, watched);
        stop.store(true, Ordering::Relaxed);
        for client in clients {
            client.join().unwrap_or_else(|_| bail!("a client panicked"))?;
        }
        anyhow::Ok((answers?, cpu?))
    })?;
    let slowest = answers.iter().copied().reduce(f64::max).context("there was no answer")?;
    let what = format!(
        "slowest `/global/health` while {READERS} clients read {messages} messages and {READERS} resume a stream of {turns} turns"
    );
    Ok(Measured::alone(what, Cost::Time { wall: slowest, cpu: cpu / answers.len() as f64 }))
}

/// Requests the server's health for some time. Returns how long each answer took, and the server's CPU time meanwhile.
fn ask(server: &Server, watched: Duration) -> (Result<Vec<f64>>, Result<f64>) {
    let ask = || {
        let mut connection = server.connect()?;
        let begin = Instant::now();
        let mut answers = Vec::new();
        while begin.elapsed() < watched {
            answers.push(timed(|| connection.get("/global/health").map(drop))?);
            std::thread::sleep(PAUSE);
        }
        Ok(answers)
    };
    let before = process::cpu(server.process());
    let answers = ask();
    let cpu = before.and_then(|before| Ok(process::cpu(server.process())? - before));
    (answers, cpu)
}
