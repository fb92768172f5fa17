//! Counters of the server, and how they are written for Prometheus. What turns do is learnt from the events that they
//! commit, so the engine knows nothing of this.

mod process;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use api::{EventBody, MessageError, Part, SessionId, SessionStatus, Tokens, Usd};
use indexmap::IndexMap;

use crate::State;

/// Upper bounds of the times in which requests are counted, in microseconds.
const BUCKETS: [u64; 7] = [500, 2_000, 10_000, 50_000, 250_000, 1_000_000, 10_000_000];

/// The most running turns that are followed; the oldest is given up.
const MAX_TURNS: usize = 10_000;

/// What is counted. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Metrics(Arc<Counters>);

#[derive(Debug)]
struct Counters {
    since: Instant,
    connections: AtomicI64,
    subscribers: AtomicI64,
    delivered: AtomicU64,
    /// By operation; the empty name stands for requests that reached none.
    requests: HashMap<&'static str, Requests>,
    turns_started: AtomicU64,
    /// By [`Outcome`].
    turns_ended: [AtomicU64; OUTCOMES.len()],
    /// By [`KINDS`].
    tokens: [AtomicU64; KINDS.len()],
    /// In billionths of a dollar.
    cost: AtomicU64,
}

/// The requests of one operation.
#[derive(Debug, Default)]
struct Requests {
    /// By the first digit of their status, from 1.
    classes: [AtomicU64; 5],
    /// By [`BUCKETS`]; the last is for what took longer.
    times: [AtomicU64; BUCKETS.len() + 1],
    micros: AtomicU64,
}

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Completed,
    Failed,
    Aborted,
}

const OUTCOMES: [&str; 3] = ["completed", "failed", "aborted"];
const KINDS: [&str; 5] = ["input", "output", "reasoning", "cache_read", "cache_write"];

/// A connection that is open.
#[derive(Debug)]
pub struct Connected(Arc<Counters>);

/// A subscriber that is there.
#[derive(Debug)]
pub struct Subscribed(Arc<Counters>);

impl Metrics {
    /// Counters for these operations.
    pub fn new(operations: impl Iterator<Item = &'static str>) -> Self {
        Self(Arc::new(Counters {
            since: Instant::now(),
            connections: AtomicI64::new(0),
            subscribers: AtomicI64::new(0),
            delivered: AtomicU64::new(0),
            requests: operations.chain([""]).map(|id| (id, Requests::default())).collect(),
            turns_started: AtomicU64::new(0),
            turns_ended: Default::default(),
            tokens: Default::default(),
            cost: AtomicU64::new(0),
        }))
    }

    /// A connection was opened.
    pub fn connection(&self) -> Connected {
        self.0.connections.fetch_add(1, Ordering::Relaxed);
        Connected(self.0.clone())
    }

    /// A subscriber came.
    pub fn subscribed(&self) -> Subscribed {
        self.0.subscribers.fetch_add(1, Ordering::Relaxed);
        Subscribed(self.0.clone())
    }

    /// A request was answered.
    pub fn request(&self, operation: &str, status: u16, micros: u64) {
        let Some(requests) = self.0.requests.get(operation) else { return };
        let class = usize::from(status / 100).clamp(1, 5) - 1;
        let bucket = BUCKETS.partition_point(|bound| *bound < micros);
        requests.classes[class].fetch_add(1, Ordering::Relaxed);
        requests.times[bucket].fetch_add(1, Ordering::Relaxed);
        requests.micros.fetch_add(micros, Ordering::Relaxed);
    }

    fn step(&self, tokens: &Tokens, cost: Usd) {
        let counts = [tokens.input, tokens.output, tokens.reasoning, tokens.cache.read, tokens.cache.write];
        for (counter, count) in self.0.tokens.iter().zip(counts) {
            counter.fetch_add(count, Ordering::Relaxed);
        }
        // A float's conversion saturates, and what is below zero is nothing.
        self.0.cost.fetch_add((cost.0 * 1e9).round() as u64, Ordering::Relaxed);
    }
}

impl Subscribed {
    /// An event went out to it.
    pub fn delivered(&self) {
        self.0.delivered.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Subscribed {
    fn drop(&mut self) {
        self.0.subscribers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The turns that run, as far as events tell, and how they would end now.
#[derive(Default)]
struct Turns(IndexMap<SessionId, Outcome>);

impl Turns {
    fn see(&mut self, metrics: &Metrics, event: &EventBody) {
        match event {
            EventBody::SessionStatus { session_id, status: SessionStatus::Busy }
                if !self.0.contains_key(session_id) =>
            {
                metrics.0.turns_started.fetch_add(1, Ordering::Relaxed);
                if self.0.len() >= MAX_TURNS {
                    self.0.shift_remove_index(0);
                }
                self.0.insert(session_id.clone(), Outcome::Completed);
            }
            EventBody::SessionError { session_id: Some(session), error: Some(error) } => {
                if let Some(outcome) = self.0.get_mut(session) {
                    let aborted = matches!(error, MessageError::MessageAbortedError(_));
                    *outcome = if aborted { Outcome::Aborted } else { Outcome::Failed };
                }
            }
            EventBody::SessionIdle { session_id } => {
                if let Some(outcome) = self.0.swap_remove(session_id) {
                    metrics.0.turns_ended[outcome as usize].fetch_add(1, Ordering::Relaxed);
                }
            }
            EventBody::PartUpdated { part, .. } => {
                if let Part::StepFinish(step) = &**part {
                    metrics.step(&step.tokens, step.cost);
                }
            }
            _ => {}
        }
    }
}

/// Counts the turns of this process, their tokens and cost.
pub fn observe(state: &State) {
    let (metrics, turns) = (state.metrics.clone(), Mutex::<Turns>::default());
    state.engine.store().observe(move |event| {
        turns.lock().unwrap_or_else(PoisonError::into_inner).see(&metrics, event);
    });
}

/// Everything as Prometheus reads it.
pub fn render(state: &State) -> String {
    let counters = &*state.metrics.0;
    let mut text = Text::default();
    counters.render(&mut text);
    let gauges = [
        ("trefoil_turns_running", "Turns that run in this process.", state.engine.running()),
        ("trefoil_terminals", "Terminals that are open.", state.ptys.count()),
        ("trefoil_store_queue", "Writes that wait for the journal or are on their way.", state.engine.queued_writes()),
        ("trefoil_unread_event_bytes", "Events that subscribers have not read yet.", state.engine.store().unread()),
        ("trefoil_unread_bytes", "Bytes that clients have not taken yet.", state.backlog.waiting()),
        ("trefoil_live_queue", "Events of this server that some subscriber has not read yet.", state.live.len()),
    ];
    for (name, help, value) in gauges {
        text.metric(name, "gauge", help, value);
    }
    text.metric("trefoil_uptime_seconds", "gauge", "Since this server began.", counters.since.elapsed().as_secs_f64());
    process::render(&mut text);
    text.0
}

impl Counters {
    fn render(&self, text: &mut Text) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut used: Vec<_> =
            self.requests.iter().filter(|(_, one)| one.classes.iter().any(|n| read(n) > 0)).collect();
        used.sort_unstable_by_key(|(id, _)| **id);
        text.head("trefoil_requests_total", "counter", "Requests by operation and class of their status.");
        for (id, requests) in &used {
            for (class, count) in (1..).zip(&requests.classes).filter(|(_, count)| read(count) > 0) {
                let labels = format!("operation=\"{id}\",status=\"{class}xx\"");
                text.sample("trefoil_requests_total", &labels, read(count));
            }
        }
        text.head("trefoil_request_seconds", "histogram", "Time until a request's answer began.");
        for (id, requests) in &used {
            let mut below = 0;
            let bounds = BUCKETS.iter().map(|micros| (*micros as f64 / 1e6).to_string()).chain(["+Inf".to_owned()]);
            for (bound, count) in bounds.zip(&requests.times) {
                below += read(count);
                text.sample("trefoil_request_seconds_bucket", &format!("operation=\"{id}\",le=\"{bound}\""), below);
            }
            let labels = format!("operation=\"{id}\"");
            text.sample("trefoil_request_seconds_sum", &labels, read(&requests.micros) as f64 / 1e6);
            text.sample("trefoil_request_seconds_count", &labels, below);
        }
        let level = |gauge: &AtomicI64| gauge.load(Ordering::Relaxed);
        text.metric("trefoil_connections", "gauge", "Connections that are open.", level(&self.connections));
        text.metric("trefoil_subscribers", "gauge", "Event streams that are open.", level(&self.subscribers));
        text.metric("trefoil_events_delivered_total", "counter", "Events sent to subscribers.", read(&self.delivered));
        text.metric("trefoil_turns_started_total", "counter", "Turns that began.", read(&self.turns_started));
        text.head("trefoil_turns_ended_total", "counter", "Turns that ended, by how.");
        for (outcome, count) in OUTCOMES.iter().zip(&self.turns_ended) {
            text.sample("trefoil_turns_ended_total", &format!("outcome=\"{outcome}\""), read(count));
        }
        text.head("trefoil_tokens_total", "counter", "Tokens that models read and wrote, by kind.");
        for (kind, count) in KINDS.iter().zip(&self.tokens) {
            text.sample("trefoil_tokens_total", &format!("kind=\"{kind}\""), read(count));
        }
        text.metric("trefoil_cost_dollars_total", "counter", "What models cost.", read(&self.cost) as f64 / 1e9);
    }
}

/// Text in Prometheus's format. Label values are names of ours, so nothing in them needs an escape.
#[derive(Default)]
struct Text(String);

impl Text {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &str, value: impl std::fmt::Display) {
        let _ = writeln!(self.0, "{name}{{{labels}}} {value}");
    }

    fn metric(&mut self, name: &str, kind: &str, help: &str, value: impl std::fmt::Display) {
        self.head(name, kind, help);
        let _ = writeln!(self.0, "{name} {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(metrics: &Metrics) -> String {
        let mut text = Text::default();
        metrics.0.render(&mut text);
        text.0
    }

    #[test]
    fn requests_are_counted_by_operation_status_and_time() {
        let metrics = Metrics::new(["session.list"].into_iter());
        metrics.request("session.list", 200, 400);
        metrics.request("session.list", 200, 500);
        metrics.request("session.list", 404, 20_000_000);
        metrics.request("", 404, 1);
        metrics.request("who knows", 200, 1);
        let text = written(&metrics);
        for line in [
            r#"trefoil_requests_total{operation="",status="4xx"} 1"#,
            r#"trefoil_requests_total{operation="session.list",status="2xx"} 2"#,
            r#"trefoil_requests_total{operation="session.list",status="4xx"} 1"#,
            r#"trefoil_request_seconds_bucket{operation="session.list",le="0.0005"} 2"#,
            r#"trefoil_request_seconds_bucket{operation="session.list",le="10"} 2"#,
            r#"trefoil_request_seconds_bucket{operation="session.list",le="+Inf"} 3"#,
            r#"trefoil_request_seconds_sum{operation="session.list"} 20.0009"#,
            r#"trefoil_request_seconds_count{operation="session.list"} 3"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("who knows"), "{text}");
    }

    #[test]
    fn turns_are_counted_once_by_how_they_end() {
        let metrics = Metrics::new(std::iter::empty());
        let mut turns = Turns::default();
        let (good, bad) = (SessionId::new(), SessionId::new());
        let busy = |id: &SessionId| EventBody::SessionStatus { session_id: id.clone(), status: SessionStatus::Busy };
        let idle = |id: &SessionId| EventBody::SessionIdle { session_id: id.clone() };
        let error = |id: &SessionId| EventBody::SessionError {
            session_id: Some(id.clone()),
            error: Some(MessageError::aborted()),
        };
        for event in
            [idle(&bad), busy(&good), busy(&bad), busy(&good), error(&bad), idle(&good), idle(&bad), idle(&bad)]
        {
            turns.see(&metrics, &event);
        }
        let text = written(&metrics);
        assert!(text.contains("trefoil_turns_started_total 2\n"), "{text}");
        assert!(text.contains("{outcome=\"completed\"} 1\n"), "{text}");
        assert!(text.contains("{outcome=\"failed\"} 0\n"), "{text}");
        assert!(text.contains("{outcome=\"aborted\"} 1\n"), "{text}");
        assert!(turns.0.is_empty());
    }
}
