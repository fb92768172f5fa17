//! Every recorded value parses into a typed one and serialises back to the same JSON: nothing is lost, nothing is `Other`.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use trefoil_api::{
    Agent, Command, Event, EventBody, FileContent, FileDiff, FileNode, MessageWithParts, Part, PermissionRequest,
    Project, Provider, QuestionRequest, Session, SessionStatus, Skill, Todo,
};

/// Asserts that a value survives a round trip, and returns it typed.
fn same<T: DeserializeOwned + Serialize + Debug>(place: &str, value: &Value) -> T {
    let typed: T = serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{place}: {error}\n{value}"));
    let back = serde_json::to_value(&typed).unwrap();
    assert_eq!(&back, value, "{place}: changed in the round trip");
    typed
}

/// Like `same`, and asserts that every field and kind is known. `Debug` shows all levels, so this covers nested values.
fn known<T: DeserializeOwned + Serialize + Debug>(place: &str, value: &Value) -> T {
    let typed: T = same(place, value);
    let debug = format!("{typed:?}");
    for unknown in ["Extra(Some(", "Other(", "NoData { data: {\""] {
        assert!(!debug.contains(unknown), "{place}: {unknown} in {debug}");
    }
    typed
}

/// OpenCode writes `"model": null` for a configured agent or command without one; we leave such a field out, which reads
/// the same.
fn without_nulls(value: &Value) -> Value {
    let fields = value.as_object().unwrap().iter().filter(|(_, field)| !field.is_null());
    fields.map(|(name, field)| (name.clone(), field.clone())).collect()
}

/// `json_with_payload` writes the same JSON as serialising the whole event.
fn same_with_payload(place: &str, event: &Event, inner: &impl serde::Serialize) {
    let inner = serde_json::value::to_raw_value(inner).unwrap();
    assert_eq!(event.json_with_payload(&inner).unwrap(), serde_json::to_string(event).unwrap(), "{place}");
}

fn check(place: &str, kind: &str, value: &Value, counts: &mut BTreeMap<String, usize>) {
    let mut count = |name: &str, more: usize| *counts.entry(name.to_owned()).or_default() += more;
    count(kind, 1);
    match kind {
        "event" => {
            let event = known::<Event>(place, value);
            match &event.body {
                EventBody::SessionCreated { .. } | EventBody::SessionUpdated { .. } => count("session in an event", 1),
                EventBody::MessageUpdated { info, .. } => {
                    same_with_payload(place, &event, info);
                    count("message in an event", 1);
                }
                EventBody::PartUpdated { part, .. } => {
                    let text = serde_json::to_string(&part).unwrap();
                    assert_eq!(Part::from_json(&text).unwrap(), **part, "{place}");
                    same_with_payload(place, &event, part);
                    count("part in an event", 1);
                }
                _ => {}
            }
        }
        "run" => {
            let part = known::<Part>(place, &value["part"]);
            assert_eq!(Part::from_json(&value["part"].to_string()).unwrap(), part, "{place}");
        }
        "message" => count("part in a message", known::<MessageWithParts>(place, value).parts.len()),
        "session" => drop(known::<Session>(place, value)),
        "part" => {
            let part = known::<Part>(place, value);
            assert_eq!(Part::from_json(&value.to_string()).unwrap(), part, "{place}");
        }
        "status" => drop(known::<SessionStatus>(place, value)),
        "permission" => drop(known::<PermissionRequest>(place, value)),
        "question" => drop(known::<QuestionRequest>(place, value)),
        "todo" => drop(known::<Todo>(place, value)),
        "diff" => drop(known::<FileDiff>(place, value)),
        "agent" => drop(known::<Agent>(place, &without_nulls(value))),
        "command" => drop(known::<Command>(place, &without_nulls(value))),
        "skill" => drop(known::<Skill>(place, value)),
        "provider" => drop(known::<Provider>(place, value)),
        "project" => drop(known::<Project>(place, value)),
        "file" => drop(known::<FileNode>(place, value)),
        "content" => drop(known::<FileContent>(place, value)),
        // The server's tests replay these.
        "request" | "answer" | "end" => {}
        other => panic!("{place}: no type for {other:?}"),
    }
}

#[test]
fn every_recorded_value_survives() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut counts = BTreeMap::new();
    let mut files = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "jsonl") {
            continue;
        }
        files += 1;
        for (index, line) in std::fs::read_to_string(&path).unwrap().lines().enumerate() {
            let place = format!("{}:{}", path.file_name().unwrap().display(), index + 1);
            let line: BTreeMap<String, Value> = serde_json::from_str(line).unwrap();
            assert_eq!(line.len(), 1, "{place}: one kind per line");
            line.iter().for_each(|(kind, value)| check(&place, kind, value, &mut counts));
        }
    }
    assert_eq!(files, 78);
    let want = [
        ("agent", 17),
        ("answer", 635),
        ("command", 9),
        ("content", 2),
        ("diff", 1),
        ("end", 1),
        ("event", 3754),
        ("file", 5),
        ("message", 91),
        ("message in an event", 881),
        ("part", 1),
        ("part in a message", 264),
        ("part in an event", 968),
        ("permission", 11),
        ("project", 1),
        ("provider", 1),
        ("question", 2),
        ("request", 635),
        ("run", 7),
        ("session", 84),
        ("session in an event", 542),
        ("skill", 3),
        ("status", 4),
        ("todo", 2),
    ];
    assert_eq!(counts, want.map(|(kind, count)| (kind.to_owned(), count)).into());
}

fn head(kind: &str) -> Value {
    json!({"type": kind, "id": "prt_1", "sessionID": "ses_1", "messageID": "msg_1"})
}

#[test]
fn an_unknown_part_is_kept_as_other() {
    let mut value = head("hologram");
    value["depth"] = json!({"cm": [1, 2.5, null]});
    assert!(matches!(same::<Part>("hologram", &value), Part::Other(_)));
    // A known kind in a shape that we do not understand must not fail the row either.
    let mut value = head("text");
    value["text"] = json!(["not", "a", "string"]);
    assert!(matches!(same::<Part>("odd text", &value), Part::Other(_)));
}

#[test]
fn an_unknown_event_is_kept_as_other() {
    let value = json!({"id": "evt_1", "type": "moon.landed", "properties": {"crew": 3, "sessionID": "ses_1"}});
    assert!(matches!(same::<Event>("moon", &value).body, EventBody::Other(_)));
    let value = json!({"id": "evt_1", "type": "session.status", "properties": {"sessionID": "ses_1", "status": {"type": "dreaming"}}});
    assert!(matches!(same::<Event>("odd status", &value).body, EventBody::Other(_)));
}

#[test]
fn unknown_fields_are_kept() {
    let mut value = head("text");
    value["text"] = json!("hi");
    value["mood"] = json!({"now": "calm", "score": 0.5});
    let Part::Text(part) = same::<Part>("text", &value) else { panic!("not a text part") };
    assert_eq!(part.extra.get("mood"), Some(&value["mood"]));

    let value = json!({
        "id": "ses_1", "slug": "a-b", "projectID": "global", "directory": "/p", "title": "t", "version": "9",
        "time": {"created": 1, "updated": 2}, "weather": ["rain"],
    });
    let session: Session = same("session", &value);
    assert_eq!(session.extra.get("weather"), Some(&value["weather"]));

    let value = json!({"info": {
        "id": "msg_1", "sessionID": "ses_1", "role": "user", "time": {"created": 1}, "agent": "build",
        "model": {"providerID": "p", "modelID": "m"}, "weight": 12,
    }, "parts": []});
    let message: MessageWithParts = same("message", &value);
    assert_eq!(message.info.as_user().unwrap().extra.get("weight"), Some(&json!(12)));
}

#[test]
fn whole_and_fractional_amounts_keep_their_format() {
    for cost in ["0", "3", "0.00015", "1e-9"] {
        let text = format!(
            r#"{{"type":"step-finish","id":"prt_1","sessionID":"ses_1","messageID":"msg_1","reason":"stop","cost":{cost},
            "tokens":{{"input":0,"output":0,"reasoning":0,"cache":{{"read":0,"write":0}}}}}}"#
        );
        known::<Part>(cost, &serde_json::from_str(&text).unwrap());
    }
}
