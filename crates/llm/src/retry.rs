//! When to retry a request. Pure: the caller waits, and shows that it does.

use std::time::{Duration, SystemTime};

use indexmap::IndexMap;

use crate::{ErrorClass, LlmError};

/// The maximum number of retries.
pub const MAX_ATTEMPTS: u32 = 5;
/// The maximum delay that we choose.
pub const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// The maximum delay that a server may impose. After it we retry anyway, and eventually give up.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(120);

const FIRST_BACKOFF: Duration = Duration::from_secs(2);
const JITTER: f64 = 0.25;

/// How long to wait after failed attempt number `attempt` (from 1); `None` means to give up. `jitter` is a random
/// number from 0 to 1, so that the clients of a recovering server do not return all at once.
pub fn delay(attempt: u32, error: &LlmError, jitter: f64) -> Option<Duration> {
    if error.class != ErrorClass::Retryable || attempt > MAX_ATTEMPTS {
        return None;
    }
    if let Some(after) = error.retry_after {
        return Some(after.min(MAX_RETRY_AFTER));
    }
    let jitter = if jitter.is_finite() { jitter.clamp(0.0, 1.0) } else { 0.0 };
    let base = FIRST_BACKOFF * 2u32.saturating_pow(attempt.saturating_sub(1));
    Some(base.mul_f64(1.0 + JITTER * jitter).min(MAX_BACKOFF))
}

/// The delay that the server requests: `retry-after-ms`, or else `retry-after` in seconds or as a date.
pub(crate) fn after(headers: &IndexMap<String, String>, now: SystemTime) -> Option<Duration> {
    let number = |name: &str, scale: f64| {
        let value: f64 = headers.get(name)?.trim().parse().ok()?;
        // A huge number is still valid; `delay` caps it.
        value.is_finite().then(|| Duration::try_from_secs_f64((value * scale).max(0.0)).unwrap_or(Duration::MAX))
    };
    number("retry-after-ms", 1e-3).or_else(|| number("retry-after", 1.0)).or_else(|| {
        let date = chrono::DateTime::parse_from_rfc2822(headers.get("retry-after")?.trim()).ok()?;
        Some(SystemTime::from(date).duration_since(now).unwrap_or_default())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(retry_after: Option<Duration>) -> LlmError {
        LlmError { retry_after, ..LlmError::retryable("busy") }
    }

    fn parsed(name: &str, value: &str) -> Option<Duration> {
        // 1994-11-06 08:49:30 UTC
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_770);
        after(&IndexMap::from([(name.to_owned(), value.to_owned())]), now)
    }

    #[test]
    fn backs_off_to_a_bound_and_gives_up() {
        let seconds = |attempt, jitter| delay(attempt, &error(None), jitter).map(|d| d.as_secs_f64());
        let waits: Vec<_> = (1..=6).map(|attempt| seconds(attempt, 0.0)).collect();
        assert_eq!(waits, [Some(2.0), Some(4.0), Some(8.0), Some(16.0), Some(30.0), None]);
        assert_eq!(seconds(1, 1.0), Some(2.5));
        assert_eq!(seconds(1, f64::NAN), Some(2.0));
        assert_eq!(seconds(1, 99.0), Some(2.5));
    }

    #[test]
    fn only_transient_errors_are_retried() {
        for class in [
            ErrorClass::Auth,
            ErrorClass::ContextOverflow,
            ErrorClass::ContentFilter,
            ErrorClass::Invalid,
            ErrorClass::TooLong,
        ] {
            assert_eq!(delay(1, &LlmError::new(class, "no"), 0.0), None);
        }
    }

    #[test]
    fn the_server_decides_within_reason() {
        assert_eq!(delay(1, &error(Some(Duration::from_secs(7))), 1.0), Some(Duration::from_secs(7)));
        assert_eq!(delay(1, &error(Some(Duration::MAX)), 0.0), Some(MAX_RETRY_AFTER));
        assert_eq!(delay(6, &error(Some(Duration::ZERO)), 0.0), None);
    }

    #[test]
    fn reads_all_forms_of_the_header() {
        assert_eq!(parsed("retry-after-ms", "1500"), Some(Duration::from_millis(1500)));
        assert_eq!(parsed("retry-after", "2"), Some(Duration::from_secs(2)));
        assert_eq!(parsed("retry-after", "0.5"), Some(Duration::from_millis(500)));
        assert_eq!(parsed("retry-after", "-3"), Some(Duration::ZERO));
        assert_eq!(parsed("retry-after", "1e300"), Some(Duration::MAX));
        assert_eq!(parsed("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::from_secs(7)));
        assert_eq!(parsed("retry-after", "Tue, 06 Nov 1984 08:49:37 GMT"), Some(Duration::ZERO));
        assert_eq!(parsed("retry-after", "soon"), None);
        assert_eq!(parsed("retry-after", "NaN"), None);
    }
}
