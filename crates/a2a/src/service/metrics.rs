//! What the service counts, under the names that operators of such services know.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// A number that only grows.
pub struct Counter {
    name: &'static str,
    value: AtomicU64,
}

impl Counter {
    fn new(name: &'static str) -> Self {
        Self { name, value: AtomicU64::new(0) }
    }

    /// Adds one, and logs it.
    pub fn add(&self) {
        self.value.fetch_add(1, Ordering::Relaxed);
        tracing::info!(target: "a2a::metrics", metric = self.name, value = 1);
    }

    fn sample(&self, help: &'static str) -> Sample {
        let value = self.value.load(Ordering::Relaxed) as f64;
        Sample { name: self.name, kind: "counter", help, value }
    }
}

/// The counters of a service.
pub struct Metrics {
    /// Streams that were asked for.
    pub stream_requests: Counter,
    /// Streams that are open.
    streams: AtomicI64,
    /// Times that the subscription to the agent runtime was opened again.
    pub stream_retries: Counter,
    /// Events of tool calls.
    pub tool_call_chunks: Counter,
    /// Permissions and questions that were asked.
    pub interrupts_asked: Counter,
    /// Permissions and questions that were answered.
    pub interrupts_resolved: Counter,
    /// Cancellations that were asked for.
    pub cancels: Counter,
    /// Attempts to stop a turn for them.
    pub aborts: Counter,
    /// Attempts that stopped it.
    pub aborts_done: Counter,
    /// Attempts that took too long.
    pub aborts_late: Counter,
    /// Attempts that failed.
    pub aborts_failed: Counter,
    cancel_micros: AtomicU64,
}

/// A value for `/metrics`.
pub struct Sample {
    /// The name of the metric.
    pub name: &'static str,
    /// `counter` or `gauge`.
    pub kind: &'static str,
    /// What it counts.
    pub help: &'static str,
    /// The value.
    pub value: f64,
}

/// How a cancellation ended at the agent runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AbortOutcome {
    /// Nothing ran.
    NotNeeded,
    /// It stopped.
    Success,
    /// It did not stop in time.
    Timeout,
    /// The agent runtime refused.
    Error,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            stream_requests: Counter::new("a2a_stream_requests_total"),
            streams: AtomicI64::new(0),
            stream_retries: Counter::new("opencode_stream_retries_total"),
            tool_call_chunks: Counter::new("tool_call_chunks_emitted_total"),
            interrupts_asked: Counter::new("interrupt_requests_total"),
            interrupts_resolved: Counter::new("interrupt_resolved_total"),
            cancels: Counter::new("a2a_cancel_requests_total"),
            aborts: Counter::new("a2a_cancel_abort_attempt_total"),
            aborts_done: Counter::new("a2a_cancel_abort_success_total"),
            aborts_late: Counter::new("a2a_cancel_abort_timeout_total"),
            aborts_failed: Counter::new("a2a_cancel_abort_error_total"),
            cancel_micros: AtomicU64::new(0),
        }
    }
}

impl Metrics {
    pub(super) fn stream_opened(&self) {
        self.streams.fetch_add(1, Ordering::Relaxed);
        tracing::info!(target: "a2a::metrics", metric = "a2a_stream_active", value = 1);
    }

    pub(super) fn stream_closed(&self) {
        self.streams.fetch_sub(1, Ordering::Relaxed);
        tracing::info!(target: "a2a::metrics", metric = "a2a_stream_active", value = -1);
    }

    pub(super) fn canceled(&self, outcome: AbortOutcome, took: Duration) {
        let counter = match outcome {
            AbortOutcome::NotNeeded => None,
            AbortOutcome::Success => Some(&self.aborts_done),
            AbortOutcome::Timeout => Some(&self.aborts_late),
            AbortOutcome::Error => Some(&self.aborts_failed),
        };
        if let Some(counter) = counter {
            self.aborts.add();
            counter.add();
        }
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.cancel_micros.fetch_add(micros, Ordering::Relaxed);
        let millis = took.as_secs_f64() * 1e3;
        tracing::info!(
            target: "a2a::metrics",
            metric = "a2a_cancel_duration_ms",
            value = millis,
            abort_outcome = outcome.label()
        );
    }

    /// The values at this moment.
    pub fn samples(&self) -> Vec<Sample> {
        let cancel_millis = self.cancel_micros.load(Ordering::Relaxed) as f64 / 1e3;
        vec![
            self.stream_requests.sample("Streams that were asked for."),
            Sample {
                name: "a2a_stream_active",
                kind: "gauge",
                help: "Open streams of tasks.",
                value: self.streams.load(Ordering::Relaxed) as f64,
            },
            self.stream_retries.sample("Subscriptions that were opened again."),
            self.tool_call_chunks.sample("Events of tool calls."),
            self.interrupts_asked.sample("Permissions and questions asked."),
            self.interrupts_resolved.sample("Permissions and questions answered."),
            self.cancels.sample("Cancellations that were asked for."),
            self.aborts.sample("Attempts to stop a turn."),
            self.aborts_done.sample("Attempts that stopped a turn."),
            self.aborts_late.sample("Attempts that took too long."),
            self.aborts_failed.sample("Attempts that failed."),
            Sample {
                name: "a2a_cancel_duration_ms",
                kind: "counter",
                help: "Time spent on cancellations, in milliseconds.",
                value: cancel_millis,
            },
        ]
    }
}

impl AbortOutcome {
    fn label(self) -> &'static str {
        match self {
            Self::NotNeeded => "not_needed",
            Self::Success => "success",
            Self::Timeout => "timeout",
            Self::Error => "error",
        }
    }
}
