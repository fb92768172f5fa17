//! Compares the shape of JSON values: the same keys with values of the same types, and the same words where clients act
//! on them.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

/// Keys whose texts clients act on.
const SIGNIFICANT_KEYS: [&str; 14] = [
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
/// Stands for a text that was cut from the recording.
const REDACTED: &str = "…";
/// Objects with keys of third parties: what a model's server sends.
const THIRD_PARTY_KEYS: &str = "responseHeaders";

/// How lists are compared.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ListComparison {
    /// Item by item.
    Ordered,
    /// Every item of ours must look like some item of theirs: catalogues have different contents.
    Alike,
}

/// The differences between ours and theirs, each with its place.
pub fn compare(place: &str, theirs: &Value, ours: &Value, lists: ListComparison) -> Vec<String> {
    match (theirs, ours) {
        (Value::Object(theirs), Value::Object(ours)) => compare_objects(place, theirs, ours, lists),
        (Value::Array(theirs), Value::Array(ours)) => compare_arrays(place, theirs, ours, lists),
        (Value::String(theirs), Value::String(ours)) => {
            let key = place.trim_end_matches("[]").rsplit(['.', ' ']).next().unwrap_or_default();
            if SIGNIFICANT_KEYS.contains(&key)
                && theirs != REDACTED
                && theirs != ours
                && lists == ListComparison::Ordered
            {
                vec![format!("{place}: {ours:?} instead of {theirs:?}")]
            } else {
                Vec::new()
            }
        }
        _ if type_name(theirs) == type_name(ours) => Vec::new(),
        _ => vec![format!("{place}: {} instead of {}", type_name(ours), type_name(theirs))],
    }
}

fn compare_objects(
    place: &str,
    theirs: &Map<String, Value>,
    ours: &Map<String, Value>,
    lists: ListComparison,
) -> Vec<String> {
    if place.ends_with(THIRD_PARTY_KEYS) {
        return Vec::new();
    }
    let by_id = |map: &Map<String, Value>| map.keys().all(|key| key.starts_with("ses_")) && !map.is_empty();
    if by_id(theirs) || by_id(ours) {
        let values = |map: &Map<String, Value>| map.values().cloned().collect::<Vec<_>>();
        return compare_arrays(place, &values(theirs), &values(ours), lists);
    }
    let mut out = Vec::new();
    for (key, value) in theirs {
        let place = format!("{place}.{key}");
        match ours.get(key) {
            Some(own) => out.extend(compare(&place, value, own, lists)),
            // Clients treat it the same.
            None if value.is_null() => {}
            None => out.push(format!("{place}: missing")),
        }
    }
    out.extend(ours.keys().filter(|key| !theirs.contains_key(*key)).map(|key| format!("{place}.{key}: extra")));
    // Errors are identified by name.
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

fn compare_arrays(place: &str, theirs: &[Value], ours: &[Value], lists: ListComparison) -> Vec<String> {
    let place = format!("{place}[]");
    if lists == ListComparison::Alike {
        return ours.iter().flat_map(|own| compare_with_nearest(&place, theirs, own)).collect();
    }
    let mut out = Vec::new();
    if theirs.len() != ours.len() {
        out.push(format!("{place}: {} instead of {}", ours.len(), theirs.len()));
    }
    out.extend(theirs.iter().zip(ours).flat_map(|(value, own)| compare(&place, value, own, lists)));
    out
}

/// The differences from the most similar item of theirs; none if there is nothing to compare with.
fn compare_with_nearest(place: &str, theirs: &[Value], own: &Value) -> Vec<String> {
    let all = theirs.iter().map(|value| compare(place, value, own, ListComparison::Alike));
    // Missing keys say more than extra ones.
    let extras = |lines: &Vec<String>| lines.iter().filter(|line| line.ends_with(": extra")).count();
    all.min_by_key(|lines| (lines.len(), extras(lines))).unwrap_or_default()
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    }
}

/// The differences between our events and recorded ones of the same kind, and the kinds that never came.
pub fn compare_events(theirs: &[Value], ours: &[Value]) -> Vec<String> {
    let mut recorded: HashMap<String, Vec<Value>> = HashMap::new();
    for event in theirs {
        recorded.entry(event_kind(event)).or_default().push(event.clone());
    }
    let (mut out, mut came) = (Vec::new(), HashSet::new());
    for event in ours {
        let kind = event_kind(event);
        if let Some(theirs) = recorded.get(&kind) {
            out.extend(compare_with_nearest(&format!("event {kind}"), theirs, event));
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

/// Lines that only one of the lists has, each with the line before it.
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
fn differences_name_their_place() {
    use serde_json::json;
    let theirs = json!({"a": 1, "list": [{"type": "x"}], "c": "…"});
    let ours = json!({"a": "1", "list": [{"type": "y"}, {}], "d": 1});
    let got = compare("GET /x ", &theirs, &ours, ListComparison::Ordered);
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
