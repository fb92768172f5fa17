//! How values of settings are spelled.

use std::time::Duration;

use crate::Line;

/// The longest time that can be configured.
const MAX_SECONDS: f64 = 10.0 * 365.0 * 24.0 * 3600.0;

pub(super) fn flag(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        _ => Err(format!("is neither true nor false: {text:?}")),
    }
}

pub(super) fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("is not a whole number in range: {text:?}"))
}

pub(super) fn above_zero<T: std::str::FromStr + PartialEq + Default>(text: &str) -> Result<T, String> {
    let value: T = number(text)?;
    if value == T::default() { Err("must be above 0".to_owned()) } else { Ok(value) }
}

pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("is not a number of seconds: {text:?}"))?;
    if (0.0..=MAX_SECONDS).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(format!("is not a number of seconds in range: {text:?}"))
    }
}

pub(super) fn list(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
}

pub(super) fn line(text: &str) -> Result<Line, String> {
    // A patch number says nothing about the wire.
    let mut numbers = text.split('.');
    let (major, minor) = (numbers.next(), numbers.next());
    Line::ALL
        .into_iter()
        .find(|line| line.version().split_once('.') == major.zip(minor))
        .ok_or_else(|| format!("is neither 0.3 nor 1.0: {text:?}"))
}

pub(super) fn lines(text: &str) -> Result<Vec<Line>, String> {
    let mut lines = list(text).iter().map(|item| line(item)).collect::<Result<Vec<_>, _>>()?;
    lines.sort_unstable();
    lines.dedup();
    if lines.is_empty() { Err("names no version".to_owned()) } else { Ok(lines) }
}

/// A base URL without a trailing slash.
pub(super) fn url(text: &str) -> Result<String, String> {
    let is_http = text.starts_with("http://") || text.starts_with("https://");
    let plain = text.trim_end_matches('/');
    if is_http && plain.split_once("://").is_some_and(|(_, rest)| !rest.is_empty()) {
        Ok(plain.to_owned())
    } else {
        Err(format!("is not an http or https URL: {text:?}"))
    }
}
