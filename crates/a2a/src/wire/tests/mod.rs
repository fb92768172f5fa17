//! The wire against recordings of a reference service in both lines, against the published schema of 0.3, against the official
//! types of 1.0, and against bad input.

mod bad_input;
mod errors;
mod lines;
mod replies;
mod requests;

use api::{Json, JsonMap};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde::Deserialize;

use super::{Rejection, Request, Route, Settings, Target, parse, route};
use crate::model::Line;

/// A recorded exchange. Prose of replies was replaced.
#[derive(Deserialize)]
struct Recording {
    name: String,
    method: String,
    path: String,
    headers: JsonMap,
    body: Option<Json>,
    text: Option<String>,
    status: u16,
    #[serde(default)]
    reply_headers: JsonMap,
    reply: Option<Json>,
    events: Option<Vec<Json>>,
}

impl Recording {
    fn path_and_query(&self) -> (&str, &str) {
        self.path.split_once('?').unwrap_or((&self.path, ""))
    }

    fn bytes(&self) -> Vec<u8> {
        match (&self.body, &self.text) {
            (Some(body), _) => body.to_string().into_bytes(),
            (None, text) => text.clone().unwrap_or_default().into_bytes(),
        }
    }

    fn route(&self, settings: &Settings) -> Result<Route, Rejection> {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            let name: HeaderName = name.parse().unwrap();
            headers.insert(name, HeaderValue::from_str(value.as_str().unwrap()).unwrap());
        }
        let (path, query) = self.path_and_query();
        route(&Method::from_bytes(self.method.as_bytes()).unwrap(), path, query, &headers, settings)
    }

    fn parse(&self, line: Line) -> Result<Request, Rejection> {
        let settings = settings(line);
        let route = self.route(&settings)?;
        parse(&route, &self.bytes(), &settings)
    }
}

/// The settings of the recorded services: shell off, workspace mutations on.
fn settings(line: Line) -> Settings {
    let supported = match line {
        Line::V03 => Line::ALL.to_vec(),
        Line::V10 => vec![Line::V10],
    };
    Settings { default_line: line, supported, session_shell: false, workspace_mutations: true }
}

fn recordings(line: Line) -> Vec<Recording> {
    let text = match line {
        Line::V03 => include_str!("../../../tests/fixtures/recordings-0.3.jsonl"),
        Line::V10 => include_str!("../../../tests/fixtures/recordings-1.0.jsonl"),
    };
    let recordings: Vec<Recording> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(recordings.len() > 150);
    recordings
}

/// What protocol buffers make of a value: numbers without a fraction, and without what is empty.
fn plain(value: &Json) -> Json {
    match value {
        Json::Object(map) => {
            let is_empty = |value: &Json| {
                value.is_null()
                    || value.as_object().is_some_and(JsonMap::is_empty)
                    || value.as_array().is_some_and(Vec::is_empty)
                    || value == ""
            };
            let members = map.iter().map(|(name, value)| (name.clone(), plain(value)));
            Json::Object(members.filter(|(_, value)| !is_empty(value)).collect())
        }
        Json::Array(items) => Json::Array(items.iter().map(plain).collect()),
        Json::Number(number) => match number.as_f64() {
            #[expect(clippy::cast_possible_truncation, reason = "recorded numbers are small")]
            Some(float) if float.fract() == 0.0 => (float as i64).into(),
            _ => value.clone(),
        },
        value => value.clone(),
    }
}

fn json(bytes: &[u8]) -> Json {
    serde_json::from_slice(bytes).unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(bytes)))
}

fn is_rest_of(route: &Route) -> bool {
    matches!(route.target, Target::Rest(_))
}
