use api::{EventBody, Session, TreeTracker};
use serde_json::json;

use super::*;

fn id(text: &str) -> SessionId {
    SessionId::parse(text).unwrap()
}

fn event(kind: &str, properties: api::Json) -> EventBody {
    serde_json::from_value(json!({"type": kind, "properties": properties})).unwrap()
}

fn created(child: &str, title: &str) -> EventBody {
    let session: Session = serde_json::from_value(json!({"id": child, "slug": "s", "projectID": "p", "directory": "/p",
        "title": title, "agent": "general", "version": "0", "parentID": "ses_root", "time": {"created": 1, "updated": 1}}))
    .unwrap();
    event("session.created", json!({"sessionID": child, "info": session}))
}

fn busy(session: &str) -> EventBody {
    event("session.status", json!({"sessionID": session, "status": {"type": "busy"}}))
}

fn idle(session: &str) -> EventBody {
    event("session.idle", json!({"sessionID": session}))
}

fn call(session: &str, status: &str) -> EventBody {
    let state = match status {
        "running" => json!({"status": "running", "input": {"command": "ls"}, "time": {"start": 5}}),
        _ => json!({"status": "completed", "input": {}, "output": "", "title": "ls", "metadata": {},
            "time": {"start": 5, "end": 6}}),
    };
    let part = json!({"id": "prt_1", "sessionID": session, "messageID": "msg_5", "type": "tool", "tool": "bash",
        "callID": "c", "state": state});
    event("message.part.updated", json!({"sessionID": session, "part": part, "time": 1}))
}

fn answer(session: &str, cost: f64) -> EventBody {
    let info = json!({"id": "msg_5", "sessionID": session, "role": "assistant", "parentID": "msg_0", "mode": "general",
        "agent": "general", "path": {"cwd": "/p", "root": "/p"}, "cost": cost,
        "tokens": {"input": 1, "output": 2, "reasoning": 0, "cache": {"read": 0, "write": 0}},
        "modelID": "m", "providerID": "p", "time": {"created": 5}});
    event("message.updated", json!({"sessionID": session, "info": info}))
}

fn text(session: &str, text: &str) -> EventBody {
    let part = json!({"id": "prt_2", "sessionID": session, "messageID": "msg_5", "type": "text", "text": text});
    event("message.part.updated", json!({"sessionID": session, "part": part, "time": 1}))
}

/// What is printed for each of these events, one string per event.
fn printed(events: &[EventBody]) -> Vec<String> {
    let style = Style { color: false, width: 80 };
    let mut tracker = TreeTracker::new(id("ses_root"));
    let mut log = ChangeLog::default();
    let times = (0..).step_by(1_000);
    let print = |(now, event): (Timestamp, &EventBody)| {
        let changes = tracker.apply(event, now);
        log.update(&tracker.tree(), &changes, now, style)
    };
    times.zip(events).map(print).collect()
}

#[test]
fn a_line_is_printed_for_each_change() {
    let ask = json!({"id": "per_1", "sessionID": "ses_a", "permission": "bash", "patterns": ["rm x"], "metadata": {},
        "always": []});
    let aborted = json!({"name": "MessageAbortedError", "data": {"message": "Aborted"}});
    let events = [
        busy("ses_root"),
        created("ses_a", "Look (@general subagent)"),
        busy("ses_a"),
        busy("ses_a"),
        call("ses_a", "running"),
        call("ses_a", "completed"),
        event("permission.asked", ask),
        event("permission.replied", json!({"sessionID": "ses_a", "requestID": "per_1", "reply": "once"})),
        busy("ses_other"),
        idle("ses_a"),
        event(
            "session.deleted",
            json!({"sessionID": "ses_a", "info": {"id": "ses_a", "slug": "s", "projectID": "p",
            "directory": "/p", "title": "", "version": "0", "time": {"created": 1, "updated": 1}}}),
        ),
        event("session.error", json!({"sessionID": "ses_root", "error": aborted})),
    ];
    assert_eq!(
        printed(&events),
        [
            "● session  thinking\n",
            "",
            "  ● general  Look  thinking\n",
            "",
            "  ● general  Look  bash  ls\n",
            "  ● general  Look  thinking\n",
            "  ? general  Look  asks per_1: bash rm x\n",
            "  ● general  Look  thinking\n",
            "",
            "  ✓ general  Look  done  7.0 s\n",
            "- ses_a  deleted\n",
            "⊘ session  cancelled  11.0 s\n",
        ]
    );
}

#[test]
fn growing_text_is_no_change_of_a_tree() {
    let mut tracker = TreeTracker::new(id("ses_root"));
    let mut figures = Figures::default();
    let mut shows = |event: EventBody| {
        let changes = tracker.apply(&event, 1);
        changes.iter().filter(|change| figures.shows(change)).count() > 0
    };
    assert!(shows(busy("ses_root")) && shows(answer("ses_root", 0.0)));
    assert!(!shows(text("ses_root", "one")) && !shows(text("ses_root", "one two")));
    assert!(!shows(idle("ses_other")), "another session");
    assert!(shows(answer("ses_root", 1.0)), "it cost something");
    assert!(shows(idle("ses_root")));
}

#[test]
fn a_tree_that_is_too_high_keeps_its_totals() {
    let lines: Vec<String> = (1..=9).map(|n| format!("{n}\n")).collect();
    assert_eq!(fit(&lines, 9), lines);
    assert_eq!(fit(&lines, 4), ["1\n", "2\n", "… 6 lines more\n", "9\n"]);
    assert_eq!(fit(&lines, 0), ["… 8 lines more\n", "9\n"]);
}
