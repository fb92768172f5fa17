//! What the headers and the query of a request say.

use http::HeaderMap;
use percent_encoding::percent_decode_str;

use super::dialect::AskedVersion;
use super::extension::Requested;

/// The header and the query parameter of the version.
const VERSION: &str = "a2a-version";
/// The media type of 1.0's REST.
pub(super) const A2A_JSON: &str = "application/a2a+json";
/// The longest `traceparent` that is passed on: the format has 55 characters, later versions may append fields.
const MAX_TRACEPARENT: usize = 512;

/// What the headers and the query of a request say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The version of the protocol.
    pub version: AskedVersion,
    /// The extensions that it asks for.
    pub extensions: Requested,
    /// The W3C trace context.
    pub traceparent: Option<String>,
    /// The number of the last event that the client has.
    pub after: Option<u64>,
    /// Whether the client takes `application/json`, but not `application/a2a+json`.
    pub plain_json: bool,
}

impl Head {
    /// Reads the headers and the query. A header wins over the query.
    pub fn read(headers: &HeaderMap, query: &str) -> Self {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let parameter =
            |name: &str| pairs(query).find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value);
        let version = match headers.get(VERSION).map(|value| value.to_str()) {
            Some(Ok(version)) => AskedVersion::parse(version),
            Some(Err(_)) => AskedVersion::Unknown("?".to_owned()),
            None => AskedVersion::Default,
        };
        let version = match version {
            AskedVersion::Default => {
                parameter(VERSION).map_or(AskedVersion::Default, |text| AskedVersion::parse(&text))
            }
            version => version,
        };
        let after = text("last-event-id").and_then(event_number);
        let accept = text("accept").unwrap_or_default();
        Self {
            version,
            extensions: Requested::read(headers),
            traceparent: text("traceparent").filter(|text| text.len() <= MAX_TRACEPARENT).map(str::to_owned),
            after: after.or_else(|| parameter("after").and_then(|text| event_number(&text))),
            plain_json: accept.contains("application/json") && !accept.contains(A2A_JSON),
        }
    }
}

/// The number of an event, alone or at the end of an event id. Clients that keep metadata in protocol buffers have floating
/// point there, so that 3 comes back as `3.0`.
pub(super) fn event_number(text: &str) -> Option<u64> {
    let number = text.trim().rsplit(':').next()?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let is_whole = !fraction.is_empty() && fraction.bytes().all(|digit| digit == b'0');
    whole.parse().ok().filter(|_| is_whole)
}

/// The decoded pairs of a query.
pub(super) fn pairs(query: &str) -> impl Iterator<Item = (String, String)> + '_ {
    query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(key), decode(value))
    })
}

fn decode(text: &str) -> String {
    let spaced = text.replace('+', " ");
    percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::model::Line;

    fn head(headers: &[(&'static str, &'static str)], query: &str) -> Head {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_static(value));
        }
        Head::read(&map, query)
    }

    #[test]
    fn the_version_comes_from_the_header_else_from_the_query() {
        assert_eq!(head(&[], "").version, AskedVersion::Default);
        assert_eq!(head(&[("a2a-version", "1.0")], "A2A-Version=0.3").version, AskedVersion::Line(Line::V10));
        assert_eq!(head(&[("a2a-version", "")], "A2A-Version=0.3").version, AskedVersion::Line(Line::V03));
        assert_eq!(head(&[], "x=1&a2a-version=9.9").version, AskedVersion::Unknown("9.9".into()));
        let mut headers = HeaderMap::new();
        headers.insert("a2a-version", HeaderValue::from_bytes(b"\xff").unwrap());
        assert!(matches!(Head::read(&headers, "").version, AskedVersion::Unknown(_)));
    }

    #[test]
    fn the_last_event_is_a_number_or_an_event_id() {
        assert_eq!(head(&[("last-event-id", "17")], "after=3").after, Some(17));
        assert_eq!(head(&[("last-event-id", "t:c:t:stream:5")], "").after, Some(5));
        assert_eq!(head(&[("last-event-id", "t:c:t:stream:status")], "after=3").after, Some(3));
        assert_eq!(head(&[("last-event-id", "3.0")], "").after, Some(3));
        assert_eq!(head(&[], "after=t:c:t:stream:12.00").after, Some(12));
        for none in ["after=-1", "after=3.5", "after=3.", "after=.0", "after=1e3", "after=3.0.0"] {
            assert_eq!(head(&[], none).after, None, "{none}");
        }
    }

    #[test]
    fn plain_json_is_for_who_asks() {
        assert!(head(&[("accept", "application/json")], "").plain_json);
        assert!(!head(&[("accept", "application/json, application/a2a+json")], "").plain_json);
        assert!(!head(&[("accept", "*/*")], "").plain_json);
        assert!(!head(&[], "").plain_json);
    }
}
