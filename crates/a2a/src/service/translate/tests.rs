use api::{EventBody, MessageId, MessageWithParts, Part as HostPart, SessionId};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::model::{Task, TaskState, TaskStatus};
use crate::service::apply::apply;

const SESSION: &str = "ses_root";
const CHILD: &str = "ses_child";
const PROMPT: &str = "msg_100";

fn translator() -> Translator {
    Translator::new(Some(SessionId::parse(SESSION).unwrap()), MessageId::parse(PROMPT).unwrap())
}

fn body(kind: &str, properties: Json) -> EventBody {
    serde_json::from_value(json!({"type": kind, "properties": properties})).unwrap()
}

fn user_info(id: &str) -> Json {
    json!({
        "id": id, "sessionID": SESSION, "role": "user", "time": {"created": 1}, "agent": "build",
        "model": {"providerID": "p", "modelID": "m"},
    })
}

fn answer_info(id: &str, parent: &str, done: bool) -> Json {
    let mut info = json!({
        "id": id, "sessionID": SESSION, "role": "assistant", "parentID": parent, "mode": "build", "agent": "build",
        "path": {"cwd": "/", "root": "/"}, "cost": 0.5, "modelID": "m", "providerID": "p", "time": {"created": 2},
        "tokens": {"input": 30, "output": 12, "reasoning": 3, "cache": {"read": 5, "write": 2}},
    });
    if done {
        info["time"]["completed"] = 9.into();
    }
    info
}

fn user(id: &str) -> EventBody {
    body("message.updated", json!({"sessionID": SESSION, "info": user_info(id)}))
}

fn answer(id: &str, parent: &str, done: bool) -> EventBody {
    body("message.updated", json!({"sessionID": SESSION, "info": answer_info(id, parent, done)}))
}

fn part_json(message: &str, part: &str, kind: &str, mut rest: Json) -> Json {
    for (name, value) in [("id", part), ("sessionID", SESSION), ("messageID", message), ("type", kind)] {
        rest[name] = value.into();
    }
    rest
}

fn part(message: &str, part: &str, kind: &str, rest: Json) -> EventBody {
    let part = part_json(message, part, kind, rest);
    body("message.part.updated", json!({"sessionID": SESSION, "part": part, "time": 3}))
}

fn text(message: &str, id: &str, text: &str, closed: bool) -> EventBody {
    part(message, id, "text", json!({"text": text, "time": time(closed)}))
}

fn time(closed: bool) -> Json {
    if closed { json!({"start": 1, "end": 2}) } else { json!({"start": 1}) }
}

fn delta(message: &str, part: &str, delta: &str) -> EventBody {
    let properties = json!({
        "sessionID": SESSION, "messageID": message, "partID": part, "field": "text", "delta": delta,
    });
    body("message.part.delta", properties)
}

fn tool(message: &str, id: &str, state: Json) -> EventBody {
    part(message, id, "tool", json!({"callID": "call_1", "tool": "bash", "state": state}))
}

fn permission(session: &str, id: &str) -> EventBody {
    let ask = json!({
        "id": id, "sessionID": session, "permission": "bash", "patterns": ["rm *"], "metadata": {}, "always": [],
    });
    body("permission.asked", ask)
}

/// News in a line each.
fn shown(news: &[News]) -> Vec<String> {
    let line = |news: &News| match news {
        News::Block(chunk) => {
            let content: Vec<String> = chunk
                .parts
                .iter()
                .map(|part| match &part.content {
                    Content::Text(text) => text.clone(),
                    Content::Data(data) => data.to_string(),
                    other => format!("{other:?}"),
                })
                .collect();
            let append = if chunk.append { "+" } else { "=" };
            let lane = match &chunk.lane {
                Lane::Text => "text".to_owned(),
                Lane::Reasoning => "reasoning".to_owned(),
                Lane::Tool(part) => format!("tool {part}"),
            };
            format!("{lane} {append}{}", content.join("|"))
        }
        News::Note { shared, .. } => {
            let mut shared = shared.clone();
            if shared.len() > 1 && !shared["session"].as_object().unwrap().contains_key("title") {
                shared.shift_remove("session");
            }
            format!("note {}", Json::Object(shared))
        }
        News::Permission(ask) => format!("permission {}", ask.id),
        News::Question(ask) => format!("question {}", ask.id),
        News::Resolved { request, declined } => format!("resolved {request} {declined}"),
    };
    news.iter().map(line).collect()
}

fn play(events: &[EventBody]) -> Vec<String> {
    let mut translator = translator();
    let news: Vec<News> = events.iter().flat_map(|event| translator.event(event)).collect();
    shown(&news)
}

#[test]
fn a_recorded_turn_is_told_in_its_order() {
    let events = [
        user(PROMPT),
        // The prompt's own text is not told.
        text(PROMPT, "prt_000", "reason tool stream me", true),
        answer("msg_101", PROMPT, false),
        part("msg_101", "prt_001", "step-start", json!({})),
        part("msg_101", "prt_002", "reasoning", json!({"text": "", "time": time(false)})),
        delta("msg_101", "prt_002", "thinking "),
        delta("msg_101", "prt_002", "hard"),
        part("msg_101", "prt_002", "reasoning", json!({"text": "thinking hard", "time": time(true)})),
        tool("msg_101", "prt_003", json!({"status": "pending", "input": {}, "raw": ""})),
        tool(
            "msg_101",
            "prt_003",
            json!({"status": "running", "input": {"command": "ls"}, "title": "List files", "time": {"start": 1}}),
        ),
        tool(
            "msg_101",
            "prt_003",
            json!({
                "status": "completed", "input": {"command": "ls"}, "title": "List files", "output": "a.txt",
                "metadata": {}, "time": {"start": 1, "end": 2},
            }),
        ),
        text("msg_101", "prt_004", "", false),
        delta("msg_101", "prt_004", "echo: r"),
        delta("msg_101", "prt_004", "eason"),
        text("msg_101", "prt_004", "echo: reason", true),
        part(
            "msg_101",
            "prt_005",
            "step-finish",
            json!({"reason": "stop", "cost": 0, "tokens": answer_info("x", "y", true)["tokens"]}),
        ),
        answer("msg_101", PROMPT, true),
    ];
    let want = [
        r#"note {"progress":{"type":"step-start","part_id":"prt_001"}}"#,
        "reasoning =thinking ",
        "reasoning +hard",
        r#"tool prt_003 ={"call_id":"call_1","tool":"bash","status":"pending","input":{}}"#,
        r#"tool prt_003 +{"call_id":"call_1","tool":"bash","status":"running","title":"List files","input":{"command":"ls"}}"#,
        r#"tool prt_003 +{"call_id":"call_1","tool":"bash","status":"completed","title":"List files","input":{"command":"ls"},"output":"a.txt"}"#,
        "text =echo: r",
        "text +eason",
        r#"note {"progress":{"type":"step-finish","part_id":"prt_005","reason":"stop"}}"#,
    ];
    assert_eq!(play(&events), want);
    // Telling all of it again changes nothing.
    let twice: Vec<EventBody> = events.iter().chain(&events).cloned().collect();
    assert_eq!(play(&twice), want);
    let mut translator = translator();
    events.iter().for_each(|event| drop(translator.event(event)));
    assert!(translator.has_completed(&MessageId::parse("msg_101").unwrap()));
    assert_eq!(
        translator.usage().unwrap(),
        json!({
            "input_tokens": 30, "output_tokens": 12, "total_tokens": 42, "reasoning_tokens": 3,
            "cache_tokens": {"read_tokens": 5, "write_tokens": 2}, "cost": 0.5,
        })
    );
}

#[test]
fn what_is_early_late_or_of_others_is_not_told_wrongly() {
    let begin = || vec![user(PROMPT), answer("msg_101", PROMPT, false)];
    let with = |more: Vec<EventBody>| begin().into_iter().chain(more).collect::<Vec<_>>();
    for (what, events, want) in [
        (
            "deltas before their part",
            with(vec![
                delta("msg_101", "prt_1", "a"),
                delta("msg_101", "prt_1", "b"),
                text("msg_101", "prt_1", "", false),
            ]),
            vec!["text =ab"],
        ),
        (
            "a part that has the deltas before it already",
            with(vec![delta("msg_101", "prt_1", "ab"), text("msg_101", "prt_1", "ab", true)]),
            vec!["text =ab"],
        ),
        (
            "parts before their message",
            vec![
                user(PROMPT),
                text("msg_101", "prt_1", "", false),
                delta("msg_101", "prt_1", "ab"),
                answer("msg_101", PROMPT, false),
            ],
            vec!["text =ab"],
        ),
        (
            "a late whole text",
            with(vec![text("msg_101", "prt_1", "abc", false), text("msg_101", "prt_1", "ab", false)]),
            vec!["text =abc"],
        ),
        (
            "a text that was rewritten",
            with(vec![text("msg_101", "prt_1", "abc", false), text("msg_101", "prt_1", "xyz", true)]),
            vec!["text =abc"],
        ),
        (
            "an earlier state of a tool call",
            with(vec![
                tool("msg_101", "prt_1", json!({"status": "running", "input": {}, "time": {"start": 1}})),
                tool("msg_101", "prt_1", json!({"status": "pending", "input": {}, "raw": ""})),
            ]),
            vec![r#"tool prt_1 ={"call_id":"call_1","tool":"bash","status":"running","input":{}}"#],
        ),
        (
            "the answer to somebody else",
            with(vec![answer("msg_102", "msg_090", false), text("msg_102", "prt_1", "no", true)]),
            vec![],
        ),
        (
            "an answer before the prompt",
            vec![answer("msg_050", "msg_049", false), text("msg_050", "prt_1", "no", true), user(PROMPT)],
            vec![],
        ),
        (
            "a prompt that joined the turn",
            with(vec![user("msg_102"), answer("msg_103", "msg_102", false), text("msg_103", "prt_1", "yes", true)]),
            vec!["text =yes"],
        ),
    ] {
        assert_eq!(play(&events), want, "{what}");
    }
}

#[test]
fn a_request_is_told_once_and_so_is_its_end() {
    let replied = body("permission.replied", json!({"sessionID": CHILD, "requestID": "per_1", "reply": "reject"}));
    let events =
        [permission(CHILD, "per_1"), permission(CHILD, "per_1"), replied.clone(), replied, permission(CHILD, "per_1")];
    assert_eq!(play(&events), ["permission per_1", "resolved per_1 true"]);
    // One that is gone from the stored ones was answered.
    let mut translator = translator();
    let mut news = translator.open_asks(&[permission(SESSION, "per_1"), permission(CHILD, "per_2")]);
    news.extend(translator.open_asks(&[permission(CHILD, "per_2")]));
    assert_eq!(shown(&news), ["permission per_1", "permission per_2", "resolved per_1 false"]);
}

#[test]
fn subagents_stay_private() {
    let mut info = answer_info("msg_200", PROMPT, false);
    info["sessionID"] = CHILD.into();
    let event = body("message.updated", json!({"sessionID": CHILD, "info": info}));
    assert!(play(&[user(PROMPT), event]).is_empty());
}

#[test]
fn the_whole_text_is_told_again_only_if_it_differs() {
    let stored = |text: &str| {
        let part = part_json("msg_101", "prt_1", "text", json!({"text": text, "time": time(true)}));
        MessageWithParts {
            info: serde_json::from_value(answer_info("msg_101", PROMPT, true)).unwrap(),
            parts: vec![serde_json::from_value(part).unwrap()],
        }
    };
    for (whole, want) in [("abc", vec![]), ("abcd", vec!["text +d"]), ("xyz", vec!["text =xyz"])] {
        let mut translator = translator();
        for event in [user(PROMPT), answer("msg_101", PROMPT, false), text("msg_101", "prt_1", "abc", false)] {
            translator.event(&event);
        }
        assert_eq!(shown(&translator.finish(Some(&stored(whole)))), want, "{whole}");
    }
}

#[test]
fn what_does_not_fit_is_read_again() {
    let mut translator = translator();
    translator.event(&user(PROMPT));
    for index in 0..=MAX_EARLY_EVENTS {
        translator.event(&delta(&format!("msg_9{index}"), "prt_1", "x"));
    }
    assert!(translator.take_behind());
    assert!(!translator.take_behind());
    translator.event(&answer("msg_101", PROMPT, false));
    translator.event(&delta("msg_101", "prt_2", &"x".repeat(MAX_EARLY_BYTES + 1)));
    assert!(translator.take_behind());
}

/// A step of a turn that is made up.
#[derive(Debug, Clone)]
enum Piece {
    Text(Vec<String>),
    Reasoning(Vec<String>),
    Tool,
    Message,
}

fn piece() -> impl Strategy<Value = Piece> {
    let words = || proptest::collection::vec("[ab ]{1,3}", 1..4);
    prop_oneof![
        3 => words().prop_map(Piece::Text),
        2 => words().prop_map(Piece::Reasoning),
        1 => Just(Piece::Tool),
        1 => Just(Piece::Message),
    ]
}

/// The events of a turn, and the stored messages after each.
struct Turn {
    events: Vec<EventBody>,
    stored: Vec<Vec<MessageWithParts>>,
    messages: Vec<MessageWithParts>,
}

impl Turn {
    fn of(pieces: &[Piece]) -> Self {
        let mut turn = Self { events: Vec::new(), stored: Vec::new(), messages: Vec::new() };
        turn.happen(user(PROMPT));
        let (mut message, mut part) = (101, 0);
        let name = |number: u32| format!("msg_{number}");
        turn.happen(answer(&name(message), PROMPT, false));
        for piece in pieces {
            part += 1;
            let id = format!("prt_{part:03}");
            match piece {
                Piece::Text(words) => turn.write(&name(message), &id, "text", words),
                Piece::Reasoning(words) => turn.write(&name(message), &id, "reasoning", words),
                Piece::Tool => {
                    let done = json!({
                        "status": "completed", "input": {}, "title": "", "output": id, "metadata": {},
                        "time": {"start": 1, "end": 2},
                    });
                    for state in [
                        json!({"status": "pending", "input": {}, "raw": ""}),
                        json!({"status": "running", "input": {}, "time": {"start": 1}}),
                        done,
                    ] {
                        turn.happen(tool(&name(message), &id, state));
                    }
                }
                Piece::Message => {
                    turn.happen(answer(&name(message), PROMPT, true));
                    message += 1;
                    turn.happen(answer(&name(message), PROMPT, false));
                }
            }
        }
        turn.happen(answer(&name(message), PROMPT, true));
        turn
    }

    fn write(&mut self, message: &str, id: &str, kind: &str, words: &[String]) {
        let whole = |text: &str, closed| part(message, id, kind, json!({"text": text, "time": time(closed)}));
        self.happen(whole("", false));
        words.iter().for_each(|word| self.happen(delta(message, id, word)));
        self.happen(whole(&words.concat(), true));
    }

    fn happen(&mut self, event: EventBody) {
        match &event {
            EventBody::MessageUpdated { info, .. } => {
                match self.messages.iter_mut().find(|it| it.info.id() == info.id()) {
                    Some(known) => known.info = (**info).clone(),
                    None => self.messages.push(MessageWithParts { info: (**info).clone(), parts: Vec::new() }),
                }
            }
            EventBody::PartUpdated { part, .. } => {
                let (head, message) = (part.head().unwrap(), self.messages.last_mut().unwrap());
                match message.parts.iter_mut().find(|it| it.head().unwrap().id == head.id) {
                    Some(known) => *known = (**part).clone(),
                    None => message.parts.push((**part).clone()),
                }
            }
            EventBody::PartDelta { delta, .. } => match self.messages.last_mut().unwrap().parts.last_mut().unwrap() {
                HostPart::Text(text) => text.text.push_str(delta),
                HostPart::Reasoning(text) => text.text.push_str(delta),
                other => panic!("{other:?}"),
            },
            _ => {}
        }
        self.events.push(event);
        self.stored.push(self.messages.clone());
    }
}

fn task() -> Task {
    Task {
        id: "t".to_owned(),
        context_id: "c".to_owned(),
        status: TaskStatus { state: TaskState::Working, message: None, timestamp: 1 },
        artifacts: Vec::new(),
        history: Vec::new(),
        metadata: JsonMap::new(),
    }
}

/// What the task has made: the text of each lane, and the last state of each tool call.
fn made(events: &[TaskEvent]) -> Vec<(String, String)> {
    let mut task = task();
    events.iter().for_each(|event| apply(&mut task, event));
    let text = |part: &Part| match &part.content {
        Content::Text(text) => text.clone(),
        Content::Data(data) => data.to_string(),
        other => format!("{other:?}"),
    };
    let mut made: Vec<(String, String)> = task
        .artifacts
        .iter()
        .map(|artifact| (format!("{:?}", artifact.id), artifact.parts.iter().map(text).collect::<String>()))
        .filter(|(_, text)| !text.is_empty())
        .collect();
    made.sort();
    made
}

fn into_events(news: Vec<News>) -> Vec<TaskEvent> {
    let event = |news| match news {
        News::Block(chunk) => Some(Chunk::into_event(chunk)),
        _ => None,
    };
    news.into_iter().filter_map(event).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever is lost, and however far the stored state is ahead of the events: the same is made in the end.
    #[test]
    fn a_gap_changes_nothing_in_the_end(
        pieces in proptest::collection::vec(piece(), 0..8),
        lost_from in 0_usize..60, lost in 0_usize..30, behind in 0_usize..10, restart in any::<bool>(),
    ) {
        let turn = Turn::of(&pieces);
        let last = turn.messages.last();
        let mut whole = translator();
        let mut want: Vec<TaskEvent> = turn.events.iter().flat_map(|event| into_events(whole.event(event))).collect();
        want.extend(into_events(whole.finish(last)));

        let lost_from = lost_from.min(turn.events.len() - 1);
        let read = (lost_from + lost).min(turn.events.len() - 1);
        let mut translator = translator();
        let mut got: Vec<TaskEvent> = Vec::new();
        for event in &turn.events[..lost_from] {
            got.extend(into_events(translator.event(event)));
        }
        if restart {
            translator = self::translator();
            got.iter().for_each(|event| translator.restore(event));
        }
        got.extend(into_events(translator.stored(&turn.stored[read])));
        // Events that the stored state has already still arrive.
        for event in &turn.events[(read + 1).saturating_sub(behind).max(lost_from)..] {
            got.extend(into_events(translator.event(event)));
        }
        got.extend(into_events(translator.finish(last)));
        prop_assert_eq!(made(&got), made(&want));
        let whole_text: String = turn.messages.iter().flat_map(|message| &message.parts).filter_map(HostPart::as_text)
            .map(|part| part.text.as_str()).collect();
        let text = made(&got).into_iter().find(|(id, _)| id.contains("Text")).map(|(_, text)| text).unwrap_or_default();
        prop_assert_eq!(text, whole_text);
    }
}

#[test]
fn errors_have_the_types_that_clients_know() {
    use api::HostError;
    let text = || "why".to_owned();
    for (error, kind, status) in [
        (HostError::Upstream { status: 400, message: text() }, "UPSTREAM_BAD_REQUEST", Some(400)),
        (HostError::Upstream { status: 401, message: text() }, "UPSTREAM_UNAUTHORIZED", Some(401)),
        (HostError::Upstream { status: 403, message: text() }, "UPSTREAM_PERMISSION_DENIED", Some(403)),
        (HostError::Upstream { status: 404, message: text() }, "UPSTREAM_RESOURCE_NOT_FOUND", Some(404)),
        (HostError::Upstream { status: 429, message: text() }, "UPSTREAM_QUOTA_EXCEEDED", Some(429)),
        (HostError::Upstream { status: 418, message: text() }, "UPSTREAM_CLIENT_ERROR", Some(418)),
        (HostError::Upstream { status: 503, message: text() }, "UPSTREAM_SERVER_ERROR", Some(503)),
        (HostError::Late(text()), "UPSTREAM_TIMEOUT", None),
        (HostError::Payload(text()), "UPSTREAM_PAYLOAD_ERROR", None),
        (HostError::Overloaded(text()), "UPSTREAM_BACKPRESSURE", None),
        (HostError::Unavailable(text()), "UPSTREAM_UNREACHABLE", None),
        (HostError::Failed(text()), "UPSTREAM_EXECUTION_ERROR", None),
    ] {
        let Outcome::Failed(failure) = Outcome::of_host_error(&error) else { panic!("{error:?}") };
        let mut want = json!({"type": kind});
        if let Some(status) = status {
            want["upstream_status"] = status.into();
        }
        assert_eq!(failure.metadata(), want, "{error:?}");
        assert_eq!(failure.needs_credentials(), status == Some(401));
        assert!(failure.text().ends_with(": why"), "{}", failure.text());
    }
    assert_eq!(Outcome::of_message_error(&api::MessageError::aborted()), Outcome::Canceled);
}
