//! Whether two JSON values have the same shape: the same keys with values of the same types, and the same words where clients
//! decide by them.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

/// Texts that clients decide by.
const WORDS: [&str; 14] = [
    "type",
    "role",
    "status",
    "_tag",
    "finish",
    "reason",
    "tool",
    "kind",
    "mode",
    "agent",
    "permission",
    "action",
    "patterns",
    "always",
];
/// A text that was cut out of the recording.
const CUT: &str = "…";
/// Objects whose keys are other people's: what a model's server sends.
const FOREIGN: &str = "responseHeaders";

/// How lists are compared.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Lists {
    /// One by one.
    Ordered,
    /// Every item of ours looks like some item of theirs: catalogues differ in what they hold.
    Alike,
}

/// The differences of ours from theirs, each with its place.
pub fn compare(place: &str, theirs: &Value, ours: &Value, lists: Lists) -> Vec<String> {
    match (theirs, ours) {
        (Value::Object(theirs), Value::Object(ours)) => objects(place, theirs, ours, lists),
        (Value::Array(theirs), Value::Array(ours)) => arrays(place, theirs, ours, lists),
        (Value::String(theirs), Value::String(ours)) => {
            let key = place.trim_end_matches("[]").rsplit(['.', ' ']).next().unwrap_or_default();
            if WORDS.contains(&key) && theirs != CUT && theirs != ours && lists == Lists::Ordered {
                vec![format!("{place}: {ours:?} instead of {theirs:?}")]
            } else {
                Vec::new()
            }
        }
        _ if kind(theirs) == kind(ours) => Vec::new(),
        _ => vec![format!("{place}: {} instead of {}", kind(ours), kind(theirs))],
    }
}

fn objects(place: &str, theirs: &Map<String, Value>, ours: &Map<String, Value>, lists: Lists) -> Vec<String> {
    if place.ends_with(FOREIGN) {
        return Vec::new();
    }
    let by_id = |map: &Map<String, Value>| map.keys().all(|key| key.starts_with("ses_")) && !map.is_empty();
    if by_id(theirs) || by_id(ours) {
        let values = |map: &Map<String, Value>| map.values().cloned().collect::<Vec<_>>();
        return arrays(place, &values(theirs), &values(ours), lists);
    }
    let mut out = Vec::new();
    for (key, value) in theirs {
        let place = format!("{place}.{key}");
        match ours.get(key) {
            Some(own) => out.extend(compare(&place, value, own, lists)),
            // To clients it is the same.
            None if value.is_null() => {}
            None => out.push(format!("{place}: missing")),
        }
    }
    out.extend(ours.keys().filter(|key| !theirs.contains_key(*key)).map(|key| format!("{place}.{key}: extra")));
    // An error is told by its name.
    if let (Some(Value::String(name)), Some(Value::String(own)), true) =
        (theirs.get("name"), ours.get("name"), theirs.contains_key("data") && name_differs(theirs, ours))
    {
        out.push(format!("{place}.name: {own:?} instead of {name:?}"));
    }
    out
}

fn name_differs(theirs: &Map<String, Value>, ours: &Map<String, Value>) -> bool {
    theirs.get("name") != ours.get("name")
}

fn arrays(place: &str, theirs: &[Value], ours: &[Value], lists: Lists) -> Vec<String> {
    let place = format!("{place}[]");
    if lists == Lists::Alike {
        return ours.iter().flat_map(|own| nearest(&place, theirs, own)).collect();
    }
    let mut out = Vec::new();
    if theirs.len() != ours.len() {
        out.push(format!("{place}: {} instead of {}", ours.len(), theirs.len()));
    }
    out.extend(theirs.iter().zip(ours).flat_map(|(value, own)| compare(&place, value, own, lists)));
    out
}

/// The differences from the one of theirs that is most alike; none if there is nothing to compare with.
fn nearest(place: &str, theirs: &[Value], own: &Value) -> Vec<String> {
    let all = theirs.iter().map(|value| compare(place, value, own, Lists::Alike));
    // What is left out says more than a whole that is too much.
    let extras = |lines: &Vec<String>| lines.iter().filter(|line| line.ends_with(": extra")).count();
    all.min_by_key(|lines| (lines.len(), extras(lines))).unwrap_or_default()
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    }
}

/// The differences of our events from recorded ones of the same kind, and the kinds that never came.
pub fn compare_events(theirs: &[Value], ours: &[Value]) -> Vec<String> {
    let mut recorded: HashMap<String, Vec<Value>> = HashMap::new();
    for event in theirs {
        recorded.entry(event_kind(event)).or_default().push(event.clone());
    }
    let (mut out, mut came) = (Vec::new(), HashSet::new());
    for event in ours {
        let kind = event_kind(event);
        if let Some(theirs) = recorded.get(&kind) {
            out.extend(nearest(&format!("event {kind}"), theirs, event));
        }
        came.insert(kind);
    }
    let missing = recorded.keys().filter(|kind| !came.contains(*kind));
    out.extend(missing.map(|kind| format!("event {kind}: never came")));
    out
}

fn event_kind(event: &Value) -> String {
    let properties = &event["properties"];
    let part = &properties["part"];
    let words = [
        &event["type"],
        &properties["info"]["role"],
        &part["type"],
        &part["tool"],
        &part["state"]["status"],
        &properties["status"]["type"],
        &properties["error"]["name"],
    ];
    words.into_iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ")
}

/// What one list of lines has and the other has not, each with the line before it.
pub fn compare_lines(theirs: &[String], ours: &[String]) -> Vec<String> {
    // The longest common subsequence of all pairs of tails.
    let mut common = vec![vec![0_usize; ours.len() + 1]; theirs.len() + 1];
    for (i, line) in theirs.iter().enumerate().rev() {
        for (j, own) in ours.iter().enumerate().rev() {
            common[i][j] = if line == own { common[i + 1][j + 1] + 1 } else { common[i + 1][j].max(common[i][j + 1]) };
        }
    }
    let (mut i, mut j, mut out) = (0, 0, Vec::new());
    let mut before = "the start";
    while i < theirs.len() || j < ours.len() {
        if i < theirs.len() && j < ours.len() && theirs[i] == ours[j] {
            before = &theirs[i];
            (i, j) = (i + 1, j + 1);
        } else if j == ours.len() || (i < theirs.len() && common[i + 1][j] >= common[i][j + 1]) {
            out.push(format!("events: no {:?} after {before:?}", theirs[i]));
            i += 1;
        } else {
            out.push(format!("events: {:?} after {before:?}", ours[j]));
            j += 1;
        }
    }
    out
}

#[test]
fn differences_have_their_place() {
    use serde_json::json;
    let theirs = json!({"a": 1, "list": [{"type": "x"}], "c": "…"});
    let ours = json!({"a": "1", "list": [{"type": "y"}, {}], "d": 1});
    let got = compare("GET /x ", &theirs, &ours, Lists::Ordered);
    let want = [
        "GET /x .a: string instead of number",
        "GET /x .list[]: 2 instead of 1",
        "GET /x .list[].type: \"y\" instead of \"x\"",
        "GET /x .c: missing",
        "GET /x .d: extra",
    ];
    assert_eq!(got, want);
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let got = compare_lines(&words("a b c"), &words("a c d"));
    assert_eq!(got, ["events: no \"b\" after \"a\"", "events: \"d\" after \"c\""]);
}
