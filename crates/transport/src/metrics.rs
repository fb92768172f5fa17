//! Metrics as text for Prometheus. Which metrics there are, and their names, is up to each face.

mod process;

use std::fmt::{Display, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The content type of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Text in Prometheus's format. Label values are the program's own names, so none needs escaping.
#[derive(Debug, Default)]
pub struct PrometheusText(String);

impl PrometheusText {
    /// Begins a metric: its help and type, before its samples.
    pub fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// Adds a sample with labels, such as `kind="input",status="2xx"`.
    pub fn sample(&mut self, name: &str, labels: &str, value: impl Display) {
        let _ = writeln!(self.0, "{name}{{{labels}}} {value}");
    }

    /// Adds a metric with one sample and no labels.
    pub fn metric(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.head(name, kind, help);
        let _ = writeln!(self.0, "{name} {value}");
    }

    /// Adds the memory, CPU time and open files of this process, where the system reports them. Reads files, so it blocks.
    pub fn process(&mut self) {
        process::render(self);
    }

    /// The text so far.
    pub fn into_string(self) -> String {
        self.0
    }
}

/// A number of open things: connections, streams. Cheap to clone; clones share it.
#[derive(Debug, Clone, Default)]
pub struct Gauge(Arc<AtomicUsize>);

/// Counts one open thing until it is dropped.
#[derive(Debug)]
pub struct GaugeGuard(Gauge);

impl Gauge {
    /// Counts one more until the guard is dropped.
    pub fn open(&self) -> GaugeGuard {
        self.0.fetch_add(1, Ordering::Relaxed);
        GaugeGuard(self.clone())
    }

    /// How many are open.
    pub fn value(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_written_in_the_text_format() {
        let mut text = PrometheusText::default();
        text.metric("a_total", "counter", "All of them.", 7);
        text.head("b", "gauge", "By kind.");
        text.sample("b", "kind=\"x\"", 0.5);
        let want = "# HELP a_total All of them.\n# TYPE a_total counter\na_total 7\n\
            # HELP b By kind.\n# TYPE b gauge\nb{kind=\"x\"} 0.5\n";
        assert_eq!(text.into_string(), want);
    }

    #[test]
    fn the_process_is_described() {
        let mut text = PrometheusText::default();
        text.process();
        let text = text.into_string();
        for name in ["process_resident_memory_bytes", "process_cpu_seconds_total", "process_open_fds"] {
            assert!(text.contains(&format!("\n{name} ")), "{name} is not in\n{text}");
        }
    }

    #[test]
    fn a_gauge_counts_until_its_guards_are_dropped() {
        let gauge = Gauge::default();
        let guards = [gauge.open(), gauge.clone().open()];
        assert_eq!(gauge.value(), 2);
        drop(guards);
        assert_eq!(gauge.value(), 0);
    }
}
