//! Times in the form that clients read.

use api::Timestamp;
use chrono::{DateTime, SecondsFormat};

/// Milliseconds as ISO 8601.
pub fn iso(time: Timestamp) -> String {
    DateTime::from_timestamp_millis(time).unwrap_or_default().to_rfc3339_opts(SecondsFormat::Millis, true)
}

#[cfg(test)]
mod tests {
    #[test]
    fn times() {
        assert_eq!(super::iso(1_794_726_330_231), "2026-11-15T07:05:30.231Z");
        assert_eq!(super::iso(i64::MAX), "1970-01-01T00:00:00.000Z");
    }
}
