//! The rows about subagents: trees of sessions on our server, and ten tasks at once on both.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::{Value, json};

use super::agent::Agent as _;
use super::cost::Cost;
use super::server::{Connection, Server};
use super::setup::Setup;
use super::{Bench, Measured, Size, model, process, timed};

/// The model that plays the steps in a prompt.
const SCRIPT: &str = "script/demo";
/// How long a tree may take until all its sessions work.
const AT_WORK: Duration = Duration::from_secs(60);
/// Sessions below one session of the tree that is read.
const WIDTH: usize = 10;
/// How many times that tree is read.
const READS: usize = 50;

/// Our server, without limits on the size of a tree.
fn server(bench: &Bench, setup: &Setup) -> Result<Server> {
    setup.configure(&json!({
        "model": SCRIPT, "subagent_depth": 3, "subagents": {"descendants": 1_000},
        // Without a rule about tasks a subagent may not delegate.
        "agent": {"general": {"permission": {"task": "allow"}}},
    }))?;
    Server::watched(&bench.program, setup)
}

/// A prompt that makes the model play these steps.
fn script(steps: &Value) -> String {
    format!("SCRIPT: {steps}")
}

/// A step that calls this many subagents, each with the same steps.
fn calls(count: usize, steps: &Value) -> Value {
    let call = |number| {
        json!(["task", {
            "description": format!("Task {number}"), "prompt": script(steps), "subagent_type": "general",
        }])
    };
    json!({"tools": (0..count).map(call).collect::<Vec<_>>()})
}

fn said(text: &str) -> Value {
    json!({"text": text})
}

/// How many sessions of a tree meet a condition.
fn count(connection: &mut Connection, root: &str, fits: impl Fn(&Value) -> bool) -> Result<usize> {
    let tree = connection.get(&format!("/session/{root}/tree"))?;
    Ok(tree["sessions"].as_array().into_iter().flatten().filter(|session| fits(session)).count())
}

/// Turns that create a tree of this many sessions below the root, each in a session of its own.
fn grow(server: &mut Server, runs: usize, steps: &Value, below: usize) -> Result<Cost> {
    let text = script(steps);
    let (cpu, mut walls) = (process::cpu(server.process())?, Vec::new());
    for _ in 0..runs {
        let root = server.session()?;
        walls.push(timed(|| server.turn(&root, &text))?);
        let done = count(server.connection()?, &root, |session| session["state"] == "idle")?;
        if done != below + 1 {
            bail!("{} sessions should have ended well, {done} have", below + 1);
        }
    }
    let cpu = (process::cpu(server.process())? - cpu) / runs as f64;
    Ok(Cost::Time { wall: process::median(walls), cpu })
}

/// What the children of a wide tree do: three steps, two of them with a tool.
fn three_steps() -> Value {
    let read = json!({"tools": [["read", {"filePath": "src/main.rs"}]]});
    json!([read, read, said("Read twice.")])
}

fn wide(bench: &Bench) -> (Value, String) {
    let children = bench.size.children;
    (
        json!([calls(children, &three_steps()), said("All are back.")]),
        format!("1 parent, {children} children of 3 steps"),
    )
}

pub fn fan(bench: &Bench) -> Result<Measured> {
    let (steps, what) = wide(bench);
    let setup = Setup::new()?;
    let ours = grow(&mut server(bench, &setup)?, bench.size.trees, &steps, bench.size.children)?;
    Ok(Measured::alone(what, ours))
}

/// The peak memory of a server after one tree.
pub fn fan_memory(bench: &Bench) -> Result<Measured> {
    let (steps, what) = wide(bench);
    let setup = Setup::new()?;
    let mut server = server(bench, &setup)?;
    grow(&mut server, 1, &steps, bench.size.children)?;
    let ours = Cost::Memory(process::peak(server.process())?);
    Ok(Measured::alone(format!("peak of memory, {what}"), ours))
}

pub fn deep(bench: &Bench) -> Result<Measured> {
    let [first, second, third] = bench.size.levels;
    let below = first * (1 + second * (1 + third));
    let leaves = json!([said("A leaf.")]);
    let branches = json!([calls(third, &leaves), said("A branch.")]);
    let boughs = json!([calls(second, &branches), said("A bough.")]);
    let steps = json!([calls(first, &boughs), said("The root.")]);
    let setup = Setup::new()?;
    let ours = grow(&mut server(bench, &setup)?, bench.size.trees, &steps, below)?;
    Ok(Measured::alone(format!("a tree of depth 3, {first} × {second} × {third}: {below} subagents"), ours))
}

/// Half of the children run a command, the others wait for their model.
pub fn cancel(bench: &Bench) -> Result<Measured> {
    let Size { children, trees, .. } = bench.size;
    let command = json!([{"tools": [["bash", {"command": "sleep 300"}]]}]);
    let waits = json!([{"text": "Wait.", "chunk_delay_ms": 300_000}]);
    let mut tools = Vec::new();
    for steps in [&command, &waits] {
        tools.extend(calls(children / 2, steps)["tools"].as_array().into_iter().flatten().cloned());
    }
    let below = tools.len();
    let text = script(&json!([{"tools": tools}, said("All are back.")]));
    let setup = Setup::new()?;
    setup.configure(&json!({"model": SCRIPT, "subagents": {"max_concurrent": below}}))?;
    let mut server = Server::watched(&bench.program, &setup)?;
    let (mut walls, mut cpu) = (Vec::new(), 0.0);
    for _ in 0..trees {
        let root = server.session()?;
        let connection = server.connection()?;
        connection.begin(&root, &text)?;
        let begun = Instant::now();
        // The root also reports one tool: `task`.
        let at_work = |session: &Value| session["state"] == "running" && session["tool"]["tool"] == "bash";
        let waits = |session: &Value| session["state"] == "running" && session["tool"].is_null();
        while count(connection, &root, at_work)? < below / 2 || count(connection, &root, waits)? < below / 2 {
            if begun.elapsed() > AT_WORK {
                bail!("after {AT_WORK:?} not all of the tree is at work");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let before = process::cpu(server.process())?;
        let mut stopped = Value::Null;
        let connection = server.connection()?;
        walls.push(timed(|| connection.post(&format!("/session/{root}/cancel"), &json!({})).map(|it| stopped = it))?);
        cpu += process::cpu(server.process())? - before;
        if stopped["sessions"].as_array().map(Vec::len) != Some(below + 1) {
            bail!("{} sessions should have been stopped: {stopped}", below + 1);
        }
    }
    let ours = Cost::Time { wall: process::median(walls), cpu: cpu / trees as f64 };
    Ok(Measured::alone(format!("cancel of {below} running children"), ours))
}

pub fn get(bench: &Bench) -> Result<Measured> {
    let sessions = bench.size.family;
    let setup = Setup::new()?;
    let mut server = server(bench, &setup)?;
    let connection = server.connection()?;
    let mut ids: Vec<String> = vec![connection.session()?];
    for number in 1..sessions {
        ids.push(connection.child(&ids[(number - 1) / WIDTH])?);
    }
    let found = count(connection, &ids[0], |_| true)?;
    if found != sessions {
        bail!("the tree has {found} sessions, not {sessions}");
    }
    let path = format!("/session/{}/tree", ids[0]);
    let cpu = process::cpu(server.process())?;
    let connection = server.connection()?;
    let walls = (0..READS).map(|_| timed(|| connection.load(&path).map(drop))).collect::<Result<_>>()?;
    let cpu = (process::cpu(server.process())? - cpu) / READS as f64;
    let ours = Cost::Time { wall: process::median(walls), cpu };
    Ok(Measured::alone(format!("`GET /session/:id/tree`, {sessions} sessions"), ours))
}

/// The same prompt for both: the fake model calls the tasks.
pub fn beside_peer(bench: &Bench) -> Result<Measured> {
    let Size { runs, tasks, .. } = bench.size;
    let text = format!("{} {tasks}", model::TASKS);
    bench.servers(format!("a turn with {tasks} tasks at once"), |server, _| {
        let (mut walls, mut cpu) = (Vec::new(), 0.0);
        for run in 0..=runs {
            let root = server.session()?;
            let before = process::cpu(server.process())?;
            let wall = timed(|| server.turn(&root, &text))?;
            let children = server.connection()?.get(&format!("/session/{root}/children"))?;
            if children.as_array().map(Vec::len) != Some(tasks) {
                bail!("the turn should have had {tasks} subagents: {children}");
            }
            // The first one warms up.
            if run > 0 {
                walls.push(wall);
                cpu += process::cpu(server.process())? - before;
            }
        }
        Ok(Cost::Time { wall: process::median(walls), cpu: cpu / runs as f64 })
    })
}
