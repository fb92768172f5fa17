//! A recorded scenario: its requests, the events that were seen before each, and the responses.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;
use serde_json::Value;

/// A request as it was sent.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedRequest {
    n: usize,
    pub method: String,
    pub path: String,
    pub directory: Option<String>,
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    pub body: Option<Value>,
    /// A body that is not JSON.
    pub raw: Option<String>,
}

impl RecordedRequest {
    /// Whether the response is a stream of events.
    pub fn is_subscription(&self) -> bool {
        ["/event", "/global/event", "/api/event"].contains(&self.path.as_str())
    }

    /// Whether it starts or joins a turn.
    pub fn is_prompt(&self) -> bool {
        self.method == "POST" && self.path.ends_with("/message")
    }

    /// The operation, without ids and cursors.
    pub fn operation(&self) -> String {
        let (path, query) = self.path.split_once('?').map_or((self.path.as_str(), None), |(p, q)| (p, Some(q)));
        let segments = path.split('/').map(|segment| if is_id(segment) { "{id}" } else { segment });
        let path = segments.collect::<Vec<_>>().join("/");
        let query = query.map(|query| query.split("&before=ey").next().unwrap_or_default());
        let query = query.map_or_else(String::new, |query| format!("?{query}"));
        format!("{} {path}{query}", self.method)
    }
}

/// The response to it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedResponse {
    to: usize,
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    /// `None` if it was not JSON.
    pub body: Option<Value>,
}

/// A request and its response.
pub struct Exchange {
    pub request: RecordedRequest,
    pub response: RecordedResponse,
    /// How many events were seen before it was sent.
    pub seen: usize,
    /// How many requests were sent before it was answered, itself included.
    pub answered: usize,
    line: usize,
}

/// A scenario.
pub struct Recording {
    pub exchanges: Vec<Exchange>,
    pub events: Vec<Value>,
    /// Whether the server ended the stream of events.
    pub ended: bool,
    /// The first line that contains each id.
    first_lines: HashMap<String, usize>,
}

impl Recording {
    pub fn load(scenario: &str) -> Self {
        let (mut pending, mut exchanges): (Vec<(RecordedRequest, usize, usize)>, Vec<Exchange>) = Default::default();
        let (mut events, mut first_lines, mut ended, mut sent) = (Vec::new(), HashMap::new(), false, 0);
        for (number, mut line) in testkit::recorded_lines(scenario).into_iter().enumerate() {
            for id in ids(&line.to_string()) {
                first_lines.entry(id.to_owned()).or_insert(number);
            }
            if let Some(request) = line.get_mut("request") {
                pending.push((serde_json::from_value(request.take()).unwrap(), events.len(), number));
                sent += 1;
            } else if let Some(response) = line.get_mut("answer") {
                let response: RecordedResponse = serde_json::from_value(response.take()).unwrap();
                let which = pending.iter().position(|(request, ..)| request.n == response.to).unwrap();
                let (request, seen, line) = pending.remove(which);
                exchanges.push(Exchange { request, response, seen, answered: sent, line });
            } else if let Some(event) = line.get_mut("event") {
                events.push(event.take());
            }
            ended |= line.get("end").is_some();
        }
        assert!(pending.is_empty(), "{scenario}: every recorded request was answered");
        exchanges.sort_by_key(|exchange| exchange.request.n);
        Self { exchanges, events, ended, first_lines }
    }

    /// Whether the client made up an id in a request.
    pub fn is_made_up(&self, id: &str, exchange: &Exchange) -> bool {
        self.first_lines.get(id).is_none_or(|line| *line >= exchange.line)
    }
}

/// Ids of the recording in a text. Their tails are cut, which tells them from ours.
pub fn ids(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|token| is_id(token))
}

fn is_id(token: &str) -> bool {
    let Some((prefix, rest)) = token.split_once('_') else { return false };
    prefix.len() == 3
        && prefix.bytes().all(|byte| byte.is_ascii_lowercase())
        && rest.len() == 14
        && rest.is_char_boundary(12)
        && rest[..12].bytes().all(|byte| byte.is_ascii_hexdigit())
}
