//! The server's counters, and their text for Prometheus. Turns are counted from the events that they commit, so the
//! engine does not know about metrics.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use api::{EventBody, MessageError, Part, SessionId, SessionStatus, Tokens, Usd};
use indexmap::IndexMap;
use transport::metrics::{Gauge, GaugeGuard, PrometheusText};

use crate::State;

/// Upper bounds of the buckets of request times, in microseconds.
const BUCKETS: [u64; 7] = [500, 2_000, 10_000, 50_000, 250_000, 1_000_000, 10_000_000];

/// The most running turns that are tracked; beyond that the oldest is dropped.
const MAX_TURNS: usize = 10_000;

/// The counters. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Metrics(Arc<Counters>);

#[derive(Debug)]
struct Counters {
    started: Instant,
    connections: Gauge,
    subscribers: Gauge,
    delivered: AtomicU64,
    /// By operation; the empty name counts requests that matched none.
    requests: HashMap<&'static str, RequestCounters>,
    turns_started: AtomicU64,
    /// By [`TurnOutcome`].
    turns_ended: [AtomicU64; OUTCOME_NAMES.len()],
    /// By [`TOKEN_KINDS`].
    tokens: [AtomicU64; TOKEN_KINDS.len()],
    /// In billionths of a dollar.
    cost: AtomicU64,
}

/// The requests of one operation.
#[derive(Debug, Default)]
struct RequestCounters {
    /// By the first digit of their status, from 1.
    classes: [AtomicU64; 5],
    /// By [`BUCKETS`]; the last counts longer ones.
    times: [AtomicU64; BUCKETS.len() + 1],
    micros: AtomicU64,
}

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TurnOutcome {
    Completed,
    Failed,
    Aborted,
}

const OUTCOME_NAMES: [&str; 3] = ["completed", "failed", "aborted"];
const TOKEN_KINDS: [&str; 5] = ["input", "output", "reasoning", "cache_read", "cache_write"];

/// Counts an open event stream until it is dropped.
#[derive(Debug)]
pub struct SubscriberGuard {
    counters: Arc<Counters>,
    _open: GaugeGuard,
}

impl Metrics {
    /// Counters for these operations.
    pub fn new(operations: impl Iterator<Item = &'static str>) -> Self {
        Self(Arc::new(Counters {
            started: Instant::now(),
            connections: Gauge::default(),
            subscribers: Gauge::default(),
            delivered: AtomicU64::new(0),
            requests: operations.chain([""]).map(|id| (id, RequestCounters::default())).collect(),
            turns_started: AtomicU64::new(0),
            turns_ended: Default::default(),
            tokens: Default::default(),
            cost: AtomicU64::new(0),
        }))
    }

    /// The open connections.
    pub fn connections(&self) -> &Gauge {
        &self.0.connections
    }

    /// Counts an event stream.
    pub fn subscriber_opened(&self) -> SubscriberGuard {
        SubscriberGuard { counters: self.0.clone(), _open: self.0.subscribers.open() }
    }

    /// Counts a request and its duration.
    pub fn count_request(&self, operation: &str, status: u16, micros: u64) {
        let Some(requests) = self.0.requests.get(operation) else { return };
        let class = usize::from(status / 100).clamp(1, 5) - 1;
        let bucket = BUCKETS.partition_point(|bound| *bound < micros);
        requests.classes[class].fetch_add(1, Ordering::Relaxed);
        requests.times[bucket].fetch_add(1, Ordering::Relaxed);
        requests.micros.fetch_add(micros, Ordering::Relaxed);
    }

    fn count_step(&self, tokens: &Tokens, cost: Usd) {
        let counts = [tokens.input, tokens.output, tokens.reasoning, tokens.cache.read, tokens.cache.write];
        for (counter, count) in self.0.tokens.iter().zip(counts) {
            counter.fetch_add(count, Ordering::Relaxed);
        }
        // The conversion saturates, and negative costs count as zero.
        self.0.cost.fetch_add((cost.0 * 1e9).round() as u64, Ordering::Relaxed);
    }
}

impl SubscriberGuard {
    /// Counts an event that was sent to it.
    pub fn count_event(&self) {
        self.counters.delivered.fetch_add(1, Ordering::Relaxed);
    }
}

/// The running turns, as events show them, each with the outcome it would have if it ended now.
#[derive(Default)]
struct RunningTurns(IndexMap<SessionId, TurnOutcome>);

impl RunningTurns {
    fn observe(&mut self, metrics: &Metrics, event: &EventBody) {
        match event {
            EventBody::SessionStatus { session_id, status: SessionStatus::Busy }
                if !self.0.contains_key(session_id) =>
            {
                metrics.0.turns_started.fetch_add(1, Ordering::Relaxed);
                if self.0.len() >= MAX_TURNS {
                    self.0.shift_remove_index(0);
                }
                self.0.insert(session_id.clone(), TurnOutcome::Completed);
            }
            EventBody::SessionError { session_id: Some(session), error: Some(error) } => {
                if let Some(outcome) = self.0.get_mut(session) {
                    let is_aborted = matches!(error, MessageError::MessageAbortedError(_));
                    *outcome = if is_aborted { TurnOutcome::Aborted } else { TurnOutcome::Failed };
                }
            }
            EventBody::SessionIdle { session_id } => {
                if let Some(outcome) = self.0.swap_remove(session_id) {
                    metrics.0.turns_ended[outcome as usize].fetch_add(1, Ordering::Relaxed);
                }
            }
            EventBody::PartUpdated { part, .. } => {
                if let Part::StepFinish(step) = &**part {
                    metrics.count_step(&step.tokens, step.cost);
                }
            }
            _ => {}
        }
    }
}

/// Counts the turns of this process, their tokens and cost.
pub fn observe(state: &State) {
    let (metrics, turns) = (state.metrics.clone(), Mutex::<RunningTurns>::default());
    state.engine.store().observe(move |event| {
        turns.lock().unwrap_or_else(PoisonError::into_inner).observe(&metrics, event);
    });
}

/// All metrics in Prometheus's text format.
pub fn render(state: &State) -> String {
    let counters = &*state.metrics.0;
    let mut text = PrometheusText::default();
    counters.render(&mut text);
    let gauges = [
        ("trefoil_turns_running", "Turns running in this process.", state.engine.running()),
        ("trefoil_terminals", "Open terminals.", state.terminals.count()),
        ("trefoil_store_queue", "Journal writes that are queued or in progress.", state.engine.queued_writes()),
        (
            "trefoil_unread_event_bytes",
            "Bytes of events that subscribers have not read yet.",
            state.engine.store().unread_bytes(),
        ),
        ("trefoil_unread_bytes", "Bytes that clients have not taken yet.", state.backlog.waiting()),
        ("trefoil_live_queue", "Unstored events that some subscriber has not read yet.", state.live.len()),
    ];
    for (name, help, value) in gauges {
        text.metric(name, "gauge", help, value);
    }
    text.metric(
        "trefoil_uptime_seconds",
        "gauge",
        "Time since this server started.",
        counters.started.elapsed().as_secs_f64(),
    );
    text.process();
    text.into_string()
}

impl Counters {
    fn render(&self, text: &mut PrometheusText) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut used: Vec<_> =
            self.requests.iter().filter(|(_, one)| one.classes.iter().any(|n| read(n) > 0)).collect();
        used.sort_unstable_by_key(|(id, _)| **id);
        text.head("trefoil_requests_total", "counter", "Requests by operation and status class.");
        for (id, requests) in &used {
            for (class, count) in (1..).zip(&requests.classes).filter(|(_, count)| read(count) > 0) {
                let labels = format!("operation=\"{id}\",status=\"{class}xx\"");
                text.sample("trefoil_requests_total", &labels, read(count));
            }
        }
        text.head("trefoil_request_seconds", "histogram", "Time until the response to a request began.");
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
        text.metric("trefoil_connections", "gauge", "Open connections.", self.connections.value());
        text.metric("trefoil_subscribers", "gauge", "Open event streams.", self.subscribers.value());
        text.metric("trefoil_events_delivered_total", "counter", "Events sent to subscribers.", read(&self.delivered));
        text.metric("trefoil_turns_started_total", "counter", "Turns started.", read(&self.turns_started));
        text.head("trefoil_turns_ended_total", "counter", "Turns ended, by outcome.");
        for (outcome, count) in OUTCOME_NAMES.iter().zip(&self.turns_ended) {
            text.sample("trefoil_turns_ended_total", &format!("outcome=\"{outcome}\""), read(count));
        }
        text.head("trefoil_tokens_total", "counter", "Tokens that models read and wrote, by kind.");
        for (kind, count) in TOKEN_KINDS.iter().zip(&self.tokens) {
            text.sample("trefoil_tokens_total", &format!("kind=\"{kind}\""), read(count));
        }
        text.metric(
            "trefoil_cost_dollars_total",
            "counter",
            "Cost of model calls, in dollars.",
            read(&self.cost) as f64 / 1e9,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(metrics: &Metrics) -> String {
        let mut text = PrometheusText::default();
        metrics.0.render(&mut text);
        text.into_string()
    }

    #[test]
    fn requests_are_counted_by_operation_status_and_time() {
        let metrics = Metrics::new(["session.list"].into_iter());
        metrics.count_request("session.list", 200, 400);
        metrics.count_request("session.list", 200, 500);
        metrics.count_request("session.list", 404, 20_000_000);
        metrics.count_request("", 404, 1);
        metrics.count_request("who knows", 200, 1);
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
    fn turns_are_counted_once_by_outcome() {
        let metrics = Metrics::new(std::iter::empty());
        let mut turns = RunningTurns::default();
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
            turns.observe(&metrics, &event);
        }
        let text = written(&metrics);
        assert!(text.contains("trefoil_turns_started_total 2\n"), "{text}");
        assert!(text.contains("{outcome=\"completed\"} 1\n"), "{text}");
        assert!(text.contains("{outcome=\"failed\"} 0\n"), "{text}");
        assert!(text.contains("{outcome=\"aborted\"} 1\n"), "{text}");
        assert!(turns.0.is_empty());
    }
}
