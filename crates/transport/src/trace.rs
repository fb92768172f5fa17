//! W3C trace context.

use axum::http::{HeaderMap, HeaderName, HeaderValue};

/// The header of the trace context.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The length of a header of version 00.
const LENGTH: usize = 55;
/// Where the fields of a header are: the version, the trace, the caller's span, and the flags.
const FIELDS: [std::ops::Range<usize>; 4] = [0..2, 3..35, 36..52, 53..55];

/// The trace that a request belongs to: the client's, or a new one if it names none or a malformed one.
#[derive(Debug, Clone)]
pub struct TraceContext {
    /// The header of this request's own span: ASCII, of the length of version 00.
    text: String,
}

impl TraceContext {
    /// The trace of a request. Its own span in it is new.
    pub fn of(headers: &HeaderMap) -> Self {
        let mut given = headers.get_all(&TRACEPARENT).iter();
        let text = given.next().and_then(|value| value.to_str().ok());
        let (trace, flags) = match text.and_then(parse).filter(|_| given.next().is_none()) {
            Some((trace, flags)) => (trace.to_owned(), flags),
            // The random bits are not all zero: one of them is set.
            None => (format!("{:032x}", fastrand::u128(..) | 1), 1),
        };
        let span = fastrand::u64(..) | 1;
        Self { text: format!("00-{trace}-{span:016x}-{flags:02x}") }
    }

    /// The value of `traceparent`, as a header.
    pub fn header(&self) -> HeaderValue {
        HeaderValue::from_str(&self.text).unwrap_or(HeaderValue::from_static(""))
    }

    /// The value of `traceparent`, as text.
    pub fn header_text(&self) -> String {
        self.text.clone()
    }

    /// The id of the trace.
    pub fn trace_id(&self) -> &str {
        &self.text[FIELDS[1].clone()]
    }
}

/// The trace and the flags of a header.
fn parse(text: &str) -> Option<(&str, u8)> {
    let is_hex = |field: &str| field.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    let is_zero = |field: &str| field.bytes().all(|byte| byte == b'0');
    let [Some(version), Some(trace), Some(span), Some(flags)] = FIELDS.map(|field| text.get(field)) else {
        return None;
    };
    let dashes = [2, 35, 52].into_iter().all(|at| text.as_bytes()[at] == b'-');
    // Later versions may append fields.
    let ends = text.len() == LENGTH || (version != "00" && text.as_bytes()[LENGTH] == b'-');
    let is_known = dashes && ends && version != "ff" && [version, trace, span, flags].into_iter().all(is_hex);
    if !is_known || is_zero(trace) || is_zero(span) {
        return None;
    }
    // Of the flags, version 00 defines one: whether the trace is recorded.
    Some((trace, u8::from_str_radix(flags, 16).ok()? & 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    fn of(values: &[&str]) -> TraceContext {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(&TRACEPARENT, value.parse().unwrap());
        }
        TraceContext::of(&headers)
    }

    #[test]
    fn the_trace_of_the_client_goes_on_with_a_span_of_our_own() {
        for (given, flags) in [
            (format!("00-{TRACE}-00f067aa0ba902b7-01"), "01"),
            (format!("00-{TRACE}-00f067aa0ba902b7-02"), "00"),
            (format!("cc-{TRACE}-00f067aa0ba902b7-01-new"), "01"),
        ] {
            let context = of(&[&given]);
            assert_eq!(context.trace_id(), TRACE, "{given}");
            let text = context.header_text();
            assert!(text.starts_with(&format!("00-{TRACE}-")) && text.ends_with(&format!("-{flags}")), "{text}");
            assert!(!text.contains("00f067aa0ba902b7"), "{text}");
            assert_eq!(context.header(), text.as_str());
            assert!(parse(&text).is_some());
        }
    }

    #[test]
    fn a_malformed_header_begins_a_new_trace() {
        let good = format!("00-{TRACE}-00f067aa0ba902b7-01");
        let upper = good.to_uppercase();
        let zero_trace = format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32));
        let zero_span = format!("00-{TRACE}-{}-01", "0".repeat(16));
        let bad = ["", "00", &upper, &zero_trace, &zero_span, &format!("ff{}", &good[2..]), &format!("{good}-x")];
        for given in bad.iter().chain([&&*format!("cc{}x", &good[2..]), &&*good.replace('-', "_")]) {
            assert_ne!(of(&[given]).trace_id(), TRACE, "{given}");
        }
        assert_ne!(of(&[&good, &good]).trace_id(), TRACE, "one header is allowed");
        let new = of(&[]);
        assert!(parse(&new.header_text()).is_some() && new.trace_id() != of(&[]).trace_id());
    }
}
