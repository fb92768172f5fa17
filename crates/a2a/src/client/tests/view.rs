//! What a view tells of the same answer in different shapes: each text once, and all of it.

use serde_json::json;

use super::*;
use crate::wire::{Dialect, Transport, parse_event};

fn dialect(line: A2aLine) -> Dialect {
    let payload = if line.is_new { crate::Line::V10 } else { crate::Line::V03 };
    Dialect::of(payload, if line.is_rest { Transport::Rest } else { Transport::JsonRpc })
}

/// Applies items and returns all text and reasoning that was told.
fn apply(view: &mut TaskView, line: A2aLine, items: &[api::Json]) -> (String, String) {
    let (mut text, mut reasoning) = (String::new(), String::new());
    for item in items {
        let item = parse_event(dialect(line), line.wrap(item.clone()).to_string().as_bytes()).unwrap();
        for change in view.apply(&item).unwrap() {
            match change {
                Change::Text(more) => text.push_str(&more),
                Change::Reasoning(more) => reasoning.push_str(&more),
                _ => {}
            }
        }
    }
    (text, reasoning)
}

#[test]
fn repeated_pieces_are_told_as_often_as_they_come() {
    for line in A2aLine::ALL {
        let mut view = TaskView::default();
        let items = [line.text_update("ping", 1), line.text_update(" from peer\n", 2), line.text_update("ping", 3)];
        let (text, _) = apply(&mut view, line, &items);
        assert_eq!((text.as_str(), view.text().as_str()), ("ping from peer\nping", "ping from peer\nping"));
    }
}

#[test]
fn a_snapshot_repeats_nothing_in_whatever_shape_it_comes() {
    for line in A2aLine::ALL {
        let stream = [
            line.artifact_update("reasoning", line.text("hm "), 1),
            line.text_update("one ", 2),
            line.artifact_update("reasoning", line.text("aha"), 3),
            line.text_update("two", 4),
        ];
        let artifact = |id: &str, parts: &[&str]| {
            let parts: Vec<_> = parts.iter().map(|text| line.text(text)).collect();
            json!({"artifactId": id, "parts": parts})
        };
        for artifacts in [
            json!([artifact("response", &["one two three"])]),
            json!([artifact("task-1:stream", &["hm aha", "one two three"])]),
            json!([artifact("task-1:stream", &["hm ", "one ", "aha", "two three"])]),
            json!([
                artifact("task-1:stream:reasoning", &["hm aha"]),
                artifact("task-1:stream:text", &["one two three"])
            ]),
            json!([artifact("a", &["one "]), artifact("b", &["two three"])]),
        ] {
            let mut view = TaskView::default();
            apply(&mut view, line, &stream);
            let mut task = line.task("completed", "");
            task["artifacts"] = artifacts.clone();
            let told = apply(&mut view, line, &[line.item("task", task.clone()), line.item("task", task)]);
            assert_eq!(told, (" three".to_owned(), String::new()), "{line:?} {artifacts}");
            assert_eq!(view.text(), "one two three", "{line:?} {artifacts}");
        }
    }
}

#[test]
fn a_client_that_begins_with_a_snapshot_tells_reasoning_from_the_answer() {
    for line in A2aLine::ALL.into_iter().filter(|line| !line.is_new) {
        let part = |kind: &str, text: &str| {
            let mut part = line.text(text);
            part["metadata"] = json!({"shared": {"stream": {"block_type": kind}}});
            part
        };
        let snapshot = |reasoning: &str, text: &str| {
            let mut task = line.task("working", "");
            let parts = [part("reasoning", reasoning), part("text", text)];
            task["artifacts"] = json!([{"artifactId": "task-1:stream", "parts": parts}]);
            line.item("task", task)
        };
        let mut view = TaskView::default();
        let told = apply(&mut view, line, &[snapshot("one", "one"), line.text_update(" two", 3)]);
        assert_eq!(told, ("one two".to_owned(), "one".to_owned()), "{line:?}");
        // Text that is the same as known reasoning is told nevertheless.
        let mut view = TaskView::default();
        let hm = line.artifact_update("reasoning", line.text("one"), 1);
        assert_eq!(apply(&mut view, line, &[hm, snapshot("one", "one")]), ("one".to_owned(), "one".to_owned()));
        assert_eq!(view.text(), "one", "{line:?}");
    }
}

#[test]
fn a_message_at_the_end_is_part_of_the_answer_unless_it_repeats_it() {
    for line in A2aLine::ALL {
        for (last, text) in [("answer", "answer"), ("more", "answer\nmore")] {
            let mut view = TaskView::default();
            let items = [line.text_update("answer", 1), line.status_update("completed", last, json!(null))];
            let (told, _) = apply(&mut view, line, &items);
            assert_eq!((told.as_str(), view.text().as_str()), (text, text), "{line:?}");
        }
    }
}

#[test]
fn interrupts_are_told_once_and_again_when_they_are_resolved() {
    let line = A2aLine::NEW;
    let asked =
        |id: &str| line.status_update("input-required", "", json!({"interrupt": {"request_id": id, "phase": "asked"}}));
    let resolved =
        |id: &str| line.status_update("working", "", json!({"interrupt": {"request_id": id, "phase": "resolved"}}));
    let mut view = TaskView::default();
    let mut told = Vec::new();
    for item in [
        asked("a"),
        asked("a"),
        asked("b"),
        resolved("a"),
        resolved("a"),
        line.status_update("completed", "", json!(null)),
    ] {
        let item = parse_event(dialect(line), line.wrap(item).to_string().as_bytes()).unwrap();
        for change in view.apply(&item).unwrap() {
            match change {
                Change::Interrupt(interrupt) => told.push(format!("asked {}", request_id(&interrupt))),
                Change::Resolved(id) => told.push(format!("resolved {id}")),
                _ => {}
            }
        }
    }
    assert_eq!(told, ["asked a", "asked b", "resolved a", "resolved b"]);
    assert_eq!(view.interrupt(), None);
}
