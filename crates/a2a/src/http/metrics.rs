//! The counters of the endpoint, and their text for Prometheus.

use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::Body;
use axum::http::{Response, StatusCode};
use transport::metrics::{Gauge, GaugeGuard, PrometheusText};

use super::Endpoint;
use super::refusal::refuse;
use crate::wire::Route;
use crate::{Error, ErrorKind};

/// Counts requests and streams.
#[derive(Default)]
pub(super) struct HttpMetrics {
    /// By the first digit of their status, from 1.
    classes: [AtomicU64; 5],
    micros: AtomicU64,
    streams: Gauge,
}

impl HttpMetrics {
    pub(super) fn count(&self, status: u16, micros: u64) {
        let class = usize::from(status / 100).clamp(1, 5) - 1;
        self.classes[class].fetch_add(1, Ordering::Relaxed);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    pub(super) fn stream_opened(&self) -> GaugeGuard {
        self.streams.open()
    }

    fn render(&self, text: &mut PrometheusText) {
        text.head("a2a_http_requests_total", "counter", "Requests by status class.");
        for (class, count) in (1..).zip(&self.classes) {
            let count = count.load(Ordering::Relaxed);
            if count > 0 {
                text.sample("a2a_http_requests_total", &format!("status=\"{class}xx\""), count);
            }
        }
        let seconds = self.micros.load(Ordering::Relaxed) as f64 / 1e6;
        text.metric("a2a_http_request_seconds_total", "counter", "Time until responses began.", seconds);
        text.metric("a2a_http_streams", "gauge", "Open event streams.", self.streams.value());
    }
}

impl Endpoint {
    /// All metrics, unless they are switched off.
    pub(super) fn metrics_response(&self, route: &Route) -> Response<Body> {
        if !self.settings.metrics {
            let error = Error::new(ErrorKind::PathNotFound, "Metrics are switched off (A2A_METRICS_ENABLED)");
            return refuse(&error, route.dialect());
        }
        let mut text = PrometheusText::default();
        for sample in self.service.metrics().samples() {
            text.metric(sample.name, sample.kind, sample.help, sample.value);
        }
        self.metrics.render(&mut text);
        text.process();
        super::plain(StatusCode::OK, transport::metrics::CONTENT_TYPE, text.into_string())
    }
}
