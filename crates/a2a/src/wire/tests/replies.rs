//! Every recorded reply and event is taken apart and written again.

use super::super::{EventWriter, StreamItem, parse_event, parse_reply, reply};
use super::*;
use crate::event::{NumberedEvent, TaskEvent};
use crate::model::Task;

/// Recorded replies that are another today, and why.
const DIFFERENT: [(&str, &str); 1] =
    [("064_rest_cancel_again", "the recorded service hides the metadata of extensions everywhere but here")];

/// Only what is derived differently on purpose: each of our events has a number, also the last one, whose recorded id ends with
/// `status` instead; and what the client accepts is no news to it.
fn without_ids(mut value: Json) -> Json {
    fn walk(value: &mut Json) {
        match value {
            Json::Object(map) => {
                if map.get("event_id").and_then(Json::as_str).is_some_and(|id| id.ends_with(":status")) {
                    map.remove("event_id");
                }
                if let Some(Json::Object(private)) = map.get_mut("opencode") {
                    private.remove("output_negotiation");
                }
                map.values_mut().for_each(walk);
            }
            Json::Array(items) => items.iter_mut().for_each(walk),
            _ => {}
        }
    }
    walk(&mut value);
    value
}

#[test]
fn recorded_replies_come_out_as_they_went_in() {
    let mut seen = 0;
    for line in Line::ALL {
        for recording in recordings(line) {
            let (Ok(request), Some(recorded)) = (recording.parse(line), &recording.reply) else { continue };
            if recorded.get("error").is_some() || recording.status != 200 {
                continue;
            }
            let bytes = recorded.to_string().into_bytes();
            let value = parse_reply(&request.call, request.dialect, recording.status, &bytes)
                .unwrap_or_else(|error| panic!("{}: {error:?}", recording.name));
            let response = reply(&value, &request);
            let same = plain(&json(&response.body)) == plain(recorded);
            if DIFFERENT.iter().any(|(name, _)| *name == recording.name) {
                assert!(!same, "{} is no longer different", recording.name);
            } else {
                assert_eq!(plain(&json(&response.body)), plain(recorded), "{line} {}", recording.name);
            }
            seen += 1;
        }
    }
    assert!(seen > 150, "{seen}");
}

/// The event as it would be stored, and the number that it was recorded with.
fn stored(item: StreamItem) -> Result<NumberedEvent, Box<Task>> {
    match item {
        StreamItem::Task(task) => Err(task),
        StreamItem::Message(message) => Ok(NumberedEvent { seq: 1, event: TaskEvent::Message(*message) }),
        StreamItem::Event { seq, event, .. } => Ok(NumberedEvent { seq: seq.unwrap_or(99), event: *event }),
    }
}

#[test]
fn recorded_events_come_out_as_they_went_in() {
    let mut seen = 0;
    for line in Line::ALL {
        for recording in recordings(line) {
            let (Ok(request), Some(events)) = (recording.parse(line), &recording.events) else { continue };
            let mut writer: Option<EventWriter> = None;
            for recorded in events {
                if recorded.get("error").is_some() {
                    continue;
                }
                let name = &recording.name;
                let item = parse_event(request.dialect, recorded.to_string().as_bytes())
                    .unwrap_or_else(|error| panic!("{name}: {error:?}"));
                let (task, context) = match &item {
                    StreamItem::Task(task) => (task.id.clone(), task.context_id.clone()),
                    StreamItem::Event { task_id, context_id, .. } => (task_id.clone(), context_id.clone()),
                    StreamItem::Message(_) => Default::default(),
                };
                let writer = writer.get_or_insert_with(|| EventWriter::new(&request, &task, &context));
                let written = match stored(item) {
                    Err(task) => Some(writer.snapshot(&task)),
                    Ok(event) => writer.event(&event),
                };
                let Some(written) = written else {
                    assert_eq!(
                        recorded["result"]["status"]["state"], "working",
                        "{name}: only what says nothing new is left out"
                    );
                    continue;
                };
                assert!(!written.contains(&b'\n'));
                let written = plain(&without_ids(without_number(&json(&written))));
                assert_eq!(plain(&written), plain(&plain(&without_ids(recorded.clone()))), "{line} {name}");
                seen += 1;
            }
        }
    }
    assert!(seen > 120, "{seen}");
}

/// Without the number 99, which stands for none.
fn without_number(value: &Json) -> Json {
    match value {
        Json::Object(map) => {
            let unnumbered = map.get("sequence") == Some(&99.into());
            let keep = |name: &str| !(unnumbered && matches!(name, "sequence" | "event_id"));
            let members = map.iter().filter(|(name, _)| keep(name));
            Json::Object(members.map(|(name, value)| (name.clone(), without_number(value))).collect())
        }
        Json::Array(items) => Json::Array(items.iter().map(without_number).collect()),
        value => value.clone(),
    }
}
