//! Timestamps: ISO 8601 with milliseconds, in UTC.

use std::fmt;

use api::Timestamp;
use chrono::{DateTime, Datelike, Timelike, Utc};

/// A timestamp as text, written without an intermediate string.
pub(super) struct Iso(pub Timestamp);

impl fmt::Display for Iso {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = DateTime::<Utc>::from_timestamp_millis(self.0).unwrap_or(DateTime::UNIX_EPOCH);
        let (date, time) = (time.date_naive(), time.time());
        write!(
            f,
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
            date.year(),
            date.month(),
            date.day(),
            time.hour(),
            time.minute(),
            time.second(),
            time.nanosecond() / 1_000_000
        )
    }
}

/// Writes a timestamp.
pub fn timestamp(ms: Timestamp) -> String {
    Iso(ms).to_string()
}

/// Reads a timestamp of RFC 3339.
pub fn parse_timestamp(text: &str) -> Option<Timestamp> {
    DateTime::parse_from_rfc3339(text).ok().map(|time| time.timestamp_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_survive() {
        for (ms, text) in [(0, "1970-01-01T00:00:00.000Z"), (1_794_736_987_090, "2026-11-15T10:03:07.090Z")] {
            assert_eq!(timestamp(ms), text);
            assert_eq!(parse_timestamp(text), Some(ms));
        }
        assert_eq!(parse_timestamp("2026-11-15T10:03:07.090999+01:00"), Some(1_794_733_387_090));
        assert_eq!(parse_timestamp("yesterday"), None);
        assert_eq!(timestamp(i64::MAX), "1970-01-01T00:00:00.000Z", "no panic on what no calendar has");
    }
}
