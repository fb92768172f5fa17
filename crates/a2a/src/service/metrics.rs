//! What the service counts, under the names that operators of such services know.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// A number that only grows.
#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn value(&self) -> f64 {
        self.0.load(Ordering::Relaxed) as f64
    }
}

/// The counters of a service.
#[derive(Default)]
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
        let counter = |name, help, counter: &Counter| Sample { name, kind: "counter", help, value: counter.value() };
        let cancel_millis = self.cancel_micros.load(Ordering::Relaxed) as f64 / 1e3;
        vec![
            counter("a2a_stream_requests_total", "Streams that were asked for.", &self.stream_requests),
            Sample {
                name: "a2a_stream_active",
                kind: "gauge",
                help: "Open streams of tasks.",
                value: self.streams.load(Ordering::Relaxed) as f64,
            },
            counter("opencode_stream_retries_total", "Subscriptions that were opened again.", &self.stream_retries),
            counter("tool_call_chunks_emitted_total", "Events of tool calls.", &self.tool_call_chunks),
            counter("interrupt_requests_total", "Permissions and questions asked.", &self.interrupts_asked),
            counter("interrupt_resolved_total", "Permissions and questions answered.", &self.interrupts_resolved),
            counter("a2a_cancel_requests_total", "Cancellations that were asked for.", &self.cancels),
            counter("a2a_cancel_abort_attempt_total", "Attempts to stop a turn.", &self.aborts),
            counter("a2a_cancel_abort_success_total", "Attempts that stopped a turn.", &self.aborts_done),
            counter("a2a_cancel_abort_timeout_total", "Attempts that took too long.", &self.aborts_late),
            counter("a2a_cancel_abort_error_total", "Attempts that failed.", &self.aborts_failed),
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
