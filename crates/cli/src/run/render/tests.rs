use super::*;
use api::MessageWithParts;
use serde_json::json;

struct Fixture {
    renderer: Renderer,
    session: SessionId,
    message: MessageId,
}

impl Fixture {
    fn new(on_terminal: bool) -> Self {
        let session = SessionId::new();
        Self {
            renderer: Renderer::new(session.clone(), Style::plain(), on_terminal),
            session,
            message: MessageId::new(),
        }
    }

    fn made(&self, id: &PartId, mut value: Json) -> Part {
        value["id"] = json!(id);
        value["sessionID"] = json!(self.session);
        value["messageID"] = json!(self.message);
        serde_json::from_value(value).unwrap()
    }

    fn part(&mut self, id: &PartId, value: Json) -> Vec<Piece> {
        let part = self.made(id, value);
        self.renderer.event(&EventBody::part(part).unwrap(), api::now())
    }

    fn open(&mut self) -> PartId {
        let id = PartId::new();
        assert_eq!(self.part(&id, json!({"type": "text", "text": "", "time": {"start": 1}})), []);
        id
    }

    fn delta(&mut self, id: &PartId, delta: &str) -> Vec<Piece> {
        self.renderer.event(
            &EventBody::PartDelta {
                session_id: self.session.clone(),
                message_id: self.message.clone(),
                part_id: id.clone(),
                field: "text".into(),
                delta: delta.into(),
            },
            api::now(),
        )
    }

    /// A request of a call.
    fn asked(&self, call: &str, is_question: bool) -> EventBody {
        let mut request = json!({"sessionID": self.session, "permission": "bash", "patterns": [], "metadata": {},
            "always": [], "questions": [], "tool": {"messageID": self.message, "callID": call}});
        if is_question {
            request["id"] = json!(api::QuestionId::new());
            return EventBody::QuestionAsked(Box::new(serde_json::from_value(request).unwrap()));
        }
        request["id"] = json!(api::PermissionId::new());
        EventBody::PermissionAsked(Box::new(serde_json::from_value(request).unwrap()))
    }

    /// A call asks, and is answered.
    fn ask(&mut self, call: &str, asked: Timestamp, answered: Timestamp, is_question: bool) {
        let request = self.asked(call, is_question);
        assert_eq!(self.renderer.event(&request, asked), []);
        assert_eq!(self.renderer.event(&replied(&request), answered), []);
    }

    fn user(&mut self, model: &str) -> Vec<Piece> {
        let info = json!({"id": MessageId::new(), "sessionID": self.session, "role": "user", "time": {"created": 1},
            "agent": "build", "model": {"providerID": "script", "modelID": model}});
        self.renderer.event(&EventBody::message(serde_json::from_value(info).unwrap()), api::now())
    }
}

/// The event that a request was answered.
fn replied(asked: &EventBody) -> EventBody {
    match asked {
        EventBody::PermissionAsked(request) => EventBody::PermissionReplied {
            session_id: request.session_id.clone(),
            request_id: request.id.clone(),
            reply: api::PermissionReplyKind::Once,
        },
        EventBody::QuestionAsked(request) => EventBody::QuestionReplied {
            session_id: request.session_id.clone(),
            request_id: request.id.clone(),
            answers: Vec::new(),
        },
        other => panic!("not a request: {other:?}"),
    }
}

fn text(text: &str) -> Piece {
    Piece::Text(text.into())
}

fn note(text: &str) -> Piece {
    Piece::Note(text.into())
}

fn tool(name: &str, state: Json) -> Json {
    json!({"type": "tool", "tool": name, "callID": "c", "state": state})
}

fn finish() -> Json {
    json!({"type": "step-finish", "reason": "stop", "cost": 0,
        "tokens": {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}})
}

#[test]
fn text_streams_and_ends_with_a_line() {
    let mut fixture = Fixture::new(false);
    let id = fixture.open();
    assert_eq!(fixture.delta(&id, "Hel"), [text("Hel")]);
    assert_eq!(fixture.delta(&id, "lo"), [text("lo")]);
    let done = json!({"type": "text", "text": "Hello", "time": {"start": 1, "end": 2}});
    assert_eq!(fixture.part(&id, done.clone()), [], "it may continue in another part");
    assert_eq!(fixture.part(&id, done), [], "shown once");
    assert_eq!(fixture.part(&PartId::new(), finish()), [text("\n")]);
}

#[test]
fn a_long_text_continues_in_the_same_line() {
    let mut fixture = Fixture::new(false);
    let done = |text: &str| json!({"type": "text", "text": text, "time": {"start": 1, "end": 2}});
    assert_eq!(fixture.part(&PartId::new(), done("one li")), [text("one li")]);
    assert_eq!(fixture.part(&PartId::new(), done("ne")), [text("ne")]);
    fixture.message = MessageId::new();
    assert_eq!(fixture.part(&PartId::new(), done("another")), [text("\n"), text("another")], "of another message");
    fixture.part(&PartId::new(), json!({"type": "reasoning", "text": "", "time": {"start": 1}}));
    assert_eq!(fixture.part(&PartId::new(), done("after a thought")), [text("after a thought")]);
}

#[test]
fn what_the_deltas_missed_is_added() {
    let mut fixture = Fixture::new(false);
    let id = fixture.open();
    fixture.delta(&id, "Hé");
    let state = json!({"type": "text", "text": "Héllo", "time": {"start": 1}});
    assert_eq!(fixture.part(&id, state), [text("llo")]);
    let trimmed = json!({"type": "text", "text": "H", "time": {"start": 1, "end": 2}});
    assert_eq!(fixture.part(&id, trimmed), []);
}

#[test]
fn reasoning_is_not_shown() {
    let mut fixture = Fixture::new(false);
    let id = PartId::new();
    assert_eq!(fixture.part(&id, json!({"type": "reasoning", "text": "", "time": {"start": 1}})), []);
    assert_eq!(fixture.renderer.status(0), "thinking");
    assert_eq!(fixture.delta(&id, "Hmm"), []);
    assert_eq!(fixture.part(&id, json!({"type": "reasoning", "text": "Hmm", "time": {"start": 1, "end": 2}})), []);
}

#[test]
fn control_sequences_never_pass() {
    let mut fixture = Fixture::new(false);
    let id = fixture.open();
    assert_eq!(fixture.delta(&id, "a\x1b[2Jb\x1b]0;x\x07"), [text("ab")]);
    let state = json!({"status": "completed", "input": {"command": "x"}, "output": "\x1b[31mred\n", "title": "ls\x1b[2J\nrm",
        "metadata": {"exit": 0}, "time": {"start": 1, "end": 2}});
    let pieces = fixture.part(&PartId::new(), tool("bash", state));
    assert_eq!(pieces, [text("\n"), note("● bash  ls rm\n  │ red\n")]);
}

#[test]
fn prompts_and_other_sessions_are_not_shown() {
    let mut fixture = Fixture::new(false);
    let user = MessageId::new();
    let info = json!({"id": user, "sessionID": fixture.session, "role": "user", "time": {"created": 1}, "agent": "plan",
        "model": {"providerID": "openai", "modelID": "m"}});
    let event = EventBody::message(serde_json::from_value(info).unwrap());
    assert_eq!(fixture.renderer.event(&event, api::now()), [note("plan · openai/m\n")]);
    fixture.message = user;
    assert_eq!(fixture.part(&PartId::new(), json!({"type": "text", "text": "do it"})), []);
    fixture.message = MessageId::new();
    fixture.session = SessionId::new();
    assert_eq!(fixture.part(&PartId::new(), json!({"type": "text", "text": "elsewhere"})), []);
}

#[test]
fn the_demo_says_what_it_is() {
    let mut fixture = Fixture::new(false);
    let pieces = fixture.user("demo");
    assert!(
        matches!(&pieces[1], Piece::Note(text) if text.contains("offline demo") && text.contains("OPENAI_API_KEY"))
    );
    assert_eq!(fixture.user("demo"), [], "said once");
}

#[test]
fn failed_commands_are_marked() {
    let mut fixture = Fixture::new(false);
    let output = (1..=9).map(|n| format!("line {n}\n")).collect::<String>();
    let state = json!({"status": "completed", "input": {"command": "make"}, "output": output, "title": "make",
        "metadata": {"exit": 2}, "time": {"start": 0, "end": 1500}});
    let pieces = fixture.part(&PartId::new(), tool("bash", state));
    let want = "✗ bash  make  exit 2 · 1.5 s\n  │ … 3 lines before\n  │ line 4\n  │ line 5\n  │ line 6\n  │ line 7\n  │ line 8\n  │ line 9\n";
    assert_eq!(pieces, [note(want)]);
}

#[test]
fn errors_say_why() {
    let mut fixture = Fixture::new(false);
    let state = json!({"status": "error", "input": {"filePath": "/a/b"}, "error": "no such file\n\nsecond", "time": {"start": 1}});
    assert_eq!(fixture.part(&PartId::new(), tool("read", state)), [note("✗ read  /a/b\n  no such file\n  second\n")]);
}

#[test]
fn edits_show_their_diff() {
    let mut fixture = Fixture::new(false);
    let diff = "--- a\n+++ a\n@@ -1 +1 @@\n-Helo\n+Hello\n";
    let state = json!({"status": "completed", "input": {}, "output": "ok", "title": "a", "metadata": {"diff": diff},
        "time": {"start": 1, "end": 2}});
    assert_eq!(fixture.part(&PartId::new(), tool("edit", state)), [note("● edit  a  +1 -1\n    -Helo\n    +Hello\n")]);
}

#[test]
fn running_calls_are_the_spinners_text() {
    let mut fixture = Fixture::new(false);
    assert_eq!(fixture.renderer.status(0), "waiting for the model");
    let id = PartId::new();
    let running = json!({"status": "running", "input": {"command": "sleep 9"}, "time": {"start": 1}});
    assert_eq!(fixture.part(&id, tool("bash", running)), []);
    assert_eq!(fixture.renderer.status(0), "bash  sleep 9");
    let state = json!({"status": "completed", "input": {}, "output": "", "title": "x", "metadata": {"exit": 0}, "time": {"start": 1}});
    fixture.part(&id, tool("bash", state));
    assert_eq!(fixture.renderer.status(0), "waiting for the model");
}

#[test]
fn todos_are_a_list() {
    let mut fixture = Fixture::new(false);
    let todos = serde_json::from_value(json!([
        {"content": "a", "status": "completed", "priority": "low"},
        {"content": "b", "status": "in_progress", "priority": "low"},
        {"content": "c", "status": "pending", "priority": "low"},
    ]));
    let event = EventBody::TodoUpdated { session_id: fixture.session.clone(), todos: todos.unwrap() };
    assert_eq!(fixture.renderer.event(&event, api::now()), [note("● todo  1 of 3 done\n  [x] a\n  [~] b\n  [ ] c\n")]);
}

#[test]
fn a_terminal_gets_blank_lines_and_totals() {
    let mut fixture = Fixture::new(true);
    fixture.user("file");
    let id = fixture.open();
    assert_eq!(fixture.delta(&id, "hi"), [note("\n"), text("hi")]);
    let step = json!({"type": "step-finish", "reason": "stop", "cost": 0.5,
        "tokens": {"input": 1200, "output": 5, "reasoning": 1, "cache": {"read": 10, "write": 0}}});
    let step_id = PartId::new();
    assert_eq!(fixture.part(&step_id, step.clone()), [text("\n")]);
    assert_eq!(fixture.part(&step_id, step), []);
    let pieces = fixture.renderer.finish(Some(std::time::Duration::from_millis(1500)));
    assert_eq!(pieces, [note("\n"), note("1,210 tokens in (10 cached) · 6 out · $0.5000 · 1.5 s\n")]);
}

#[test]
fn the_footer_names_the_title_by_its_price_or_its_tokens() {
    for (cost, title_cost, title_tokens, want) in [
        (0.5, 0.02, 12, " · $0.5000 ($0.0200 for the title)"),
        (0.0, 0.0, 12, " (12 tok for the title)"),
        (0.5, 0.0, 1_200, " · $0.5000 (1.2k tok for the title)"),
        (0.5, 0.0, 0, " · $0.5000"),
        (0.0, 0.0, 0, ""),
    ] {
        let mut fixture = Fixture::new(true);
        fixture.renderer.set_totals(Totals {
            input: 9,
            output: 3,
            cost,
            title_cost,
            title_tokens,
            ..Totals::default()
        });
        assert_eq!(fixture.renderer.finish(None), [note(&format!("9 tokens in · 3 out{want}\n"))]);
    }
}

#[test]
fn the_time_of_a_command_does_not_include_the_wait_for_an_answer() {
    // When the call starts, when it is asked and answered, when it ends; and what is shown.
    type Asks<'a> = &'a [(Timestamp, Timestamp)];
    let cases: [(Timestamp, Asks, Timestamp, &str); 6] = [
        (1_000, &[], 4_000, "  3.0 s"),
        (1_000, &[(1_000, 61_000)], 61_500, ""),
        (1_000, &[(1_100, 61_000)], 63_500, "  2.6 s"),
        (1_000, &[(1_000, 11_000), (11_000, 31_000)], 33_000, "  2.0 s"),
        // A clock that goes back takes no time away.
        (1_000, &[(9_000, 8_000)], 4_000, "  3.0 s"),
        (1_000, &[(1_000, 90_000)], 3_000, ""),
    ];
    for (start, asks, end, want) in cases {
        for is_question in [false, true] {
            let mut fixture = Fixture::new(false);
            let id = PartId::new();
            let running = json!({"status": "running", "input": {"command": "make"}, "time": {"start": start}});
            fixture.part(&id, tool("bash", running));
            for (asked, answered) in asks {
                fixture.ask("c", *asked, *answered, is_question);
            }
            fixture.ask("another call", start, end, is_question);
            let done = json!({"status": "completed", "input": {"command": "make"}, "output": "", "title": "make",
                "metadata": {"exit": 0}, "time": {"start": start, "end": end}});
            let pieces = fixture.part(&id, tool("bash", done));
            assert_eq!(pieces, [note(&format!("● bash  make{want}\n"))], "{start} {asks:?} {end}");
        }
    }
}

#[test]
fn the_clock_of_a_command_stands_still_while_it_waits_for_an_answer() {
    let mut fixture = Fixture::new(false);
    let running = json!({"status": "running", "input": {"command": "make"}, "time": {"start": 1_000}});
    fixture.part(&PartId::new(), tool("bash", running));
    assert_eq!(fixture.renderer.status(4_000), "bash  make  3 s");
    let asked = fixture.asked("c", false);
    fixture.renderer.event(&asked, 4_000);
    // An open request is reported again after lost events.
    fixture.renderer.event(&asked, 30_000);
    assert_eq!(fixture.renderer.status(60_000), "bash  make  3 s");
    fixture.renderer.event(&replied(&asked), 64_000);
    assert_eq!(fixture.renderer.status(66_000), "bash  make  5 s");
}

#[test]
fn a_task_is_a_call_unless_subagents_are_tracked() {
    let input = json!({"description": "Look", "prompt": "p", "subagent_type": "explore"});
    let child = SessionId::new();
    let done = |metadata: Json| {
        json!({"status": "completed", "input": input, "title": "Look", "output": "o", "metadata": metadata,
            "time": {"start": 1, "end": 2}})
    };
    let mut fixture = Fixture::new(false);
    let known = tool("task", done(json!({"sessionId": child})));
    assert_eq!(fixture.part(&PartId::new(), known.clone()), [note("● task  explore: Look\n")]);
    fixture.renderer = fixture.renderer.with_tracked_subagents();
    assert_eq!(fixture.part(&PartId::new(), known), []);
    assert_eq!(fixture.part(&PartId::new(), tool("task", done(json!({})))), [note("● task  explore: Look\n")]);
    fixture.session = child;
    let output = json!({"status": "completed", "input": {"command": "ls"}, "title": "ls", "output": "a\nb\n",
        "metadata": {"exit": 0}, "time": {"start": 1, "end": 2}});
    assert_eq!(fixture.part(&PartId::new(), tool("bash", output)), []);
}

#[test]
fn retries_are_visible() {
    let mut fixture = Fixture::new(false);
    let status = SessionStatus::Retry { attempt: 2, message: "overloaded".into(), action: None, next: api::now() };
    let event = EventBody::SessionStatus { session_id: fixture.session.clone(), status };
    let pieces = fixture.renderer.event(&event, api::now());
    assert_eq!(pieces, [note("↻ attempt 2 failed, next in 0 s: overloaded\n")]);
    let status = SessionStatus::Retry { attempt: 0, message: "no money".into(), action: None, next: api::now() };
    let event = EventBody::SessionStatus { session_id: fixture.session.clone(), status };
    assert_eq!(fixture.renderer.event(&event, api::now()), [], "a budget is no attempt");
}

#[test]
fn stored_messages_can_be_fed_too() {
    let mut fixture = Fixture::new(false);
    let id = PartId::new();
    let part = fixture.made(&id, json!({"type": "text", "text": "stored"}));
    let mut pieces = Vec::new();
    for part in (MessageWithParts {
        info: serde_json::from_value(json!({"id": fixture.message, "sessionID": fixture.session, "role": "user",
            "time": {"created": 1}, "agent": "a", "model": {"providerID": "p", "modelID": "m"}}))
        .unwrap(),
        parts: vec![part],
    })
    .parts
    {
        fixture.renderer.part(&part, &mut pieces);
    }
    assert_eq!(pieces, [text("stored")]);
}

fn done(input: Json, output: &str, metadata: Json) -> Json {
    json!({"status": "completed", "input": input, "title": "", "output": output, "metadata": metadata,
        "time": {"start": 1, "end": 2}})
}

#[test]
fn calls_of_other_servers_show_arguments_and_result() {
    for (name, input, output, want) in [
        (
            "docs_search",
            json!({"query": "x y", "limit": 3}),
            "found\n\nit\n",
            "● docs_search  query=\"x y\" limit=3\n  │ found\n  │ it\n",
        ),
        ("memory_path", json!({"path": "p", "deep": {"a": [1]}}), "", "● memory_path  path=\"p\" deep={\"a\":[1]}\n"),
        ("now", json!({}), "12:00", "● now\n  │ 12:00\n"),
    ] {
        let pieces = Fixture::new(false).part(&PartId::new(), tool(name, done(input, output, json!({}))));
        assert_eq!(pieces, [note(&want.replace("● now\n", "● now  \n"))]);
    }
    let long: String = (1..=9).map(|n| format!("line {n}\n")).collect();
    let pieces =
        Fixture::new(false).part(&PartId::new(), tool("x_y", done(json!({"a": "b".repeat(900)}), &long, json!({}))));
    let [Piece::Note(text)] = pieces.as_slice() else { panic!("{pieces:?}") };
    assert!(text.contains("line 6\n") && text.contains("… 3 more lines") && !text.contains("line 7"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    let failed = json!({"status": "error", "input": {"a": 1}, "error": "refused", "time": {"start": 1, "end": 2}});
    assert_eq!(Fixture::new(false).part(&PartId::new(), tool("x_y", failed)), [note("✗ x_y  a=1\n  refused\n")]);
}

#[test]
fn a_call_of_an_unknown_tool_is_red_and_named() {
    let input = json!({"tool": "frobnicate", "error": "Model tried to call unavailable tool 'frobnicate'."});
    let state = done(input, "The arguments are invalid", json!({}));
    let mut fixture = Fixture::new(false);
    let pieces = fixture.part(&PartId::new(), tool("invalid", state.clone()));
    assert_eq!(pieces, [note("✗ frobnicate\n  Model tried to call unavailable tool 'frobnicate'.\n")]);
    let style = Style { color: true, width: 80 };
    fixture.renderer = Renderer::new(fixture.session.clone(), style, false);
    let pieces = fixture.part(&PartId::new(), tool("invalid", state));
    assert!(matches!(&pieces[0], Piece::Note(text) if text.contains("\x1b[31mfrobnicate\x1b[0m")), "{pieces:?}");
}

#[test]
fn notes_for_the_model_are_not_shown_as_output() {
    for (output, want) in [
        ("a\n\n\n<shell_metadata>\nThe command timed out.\n</shell_metadata>", "  │ a\n  The command timed out.\n"),
        (
            "(no output)\n\n<shell_metadata>\nUser aborted the command\n</shell_metadata>",
            "  │ (no output)\n  User aborted the command\n",
        ),
        ("plain\n", "  │ plain\n"),
        ("its own <shell_metadata> here", "  │ its own <shell_metadata> here\n"),
    ] {
        let state = done(json!({"command": "c"}), output, json!({"exit": 0}));
        let pieces = Fixture::new(false).part(&PartId::new(), tool("bash", state));
        assert_eq!(pieces, [note(&format!("● bash  c\n{want}"))], "{output:?}");
    }
}

#[test]
fn what_runs_shows_its_last_lines_and_the_time() {
    let mut fixture = Fixture::new(false);
    let running = |command: &str, output: &str| {
        tool(
            "bash",
            json!({"status": "running", "input": {"command": command}, "time": {"start": 1_000},
            "metadata": {"output": output}}),
        )
    };
    let id = PartId::new();
    let output: String = (1..=30).map(|n| format!("line {n}\n\x1b[2J\n")).collect();
    fixture.part(&id, running("make", &output));
    assert_eq!(fixture.renderer.status(1_500), "bash  make");
    assert_eq!(fixture.renderer.status(13_900), "bash  make  12 s");
    assert_eq!(fixture.renderer.live(1_500, 9), ["  │ line 27", "  │ line 28", "  │ line 29", "  │ line 30"]);
    let long = PartId::new();
    fixture.part(&id, tool("bash", done(json!({"command": "make"}), "x", json!({"exit": 0}))));
    fixture.part(&long, running(&"x".repeat(500), ""));
    let status = fixture.renderer.status(13_900);
    assert!(status.ends_with("…  12 s") && status.chars().count() == 97, "{status}");
    fixture.part(&long, tool("bash", done(json!({"command": "x"}), "x", json!({"exit": 0}))));
    let id = PartId::new();
    fixture.part(&id, running("make", &output));
    fixture.part(&PartId::new(), running("test", "ok"));
    assert_eq!(fixture.renderer.status(4_000), "2 calls");
    let lines = fixture.renderer.live(4_000, 20);
    assert_eq!((lines[0].as_str(), lines[5].as_str()), ("  bash  make  3 s", "  bash  test  3 s"));
    assert_eq!(fixture.renderer.live(4_000, 3).len(), 3, "no more than there is room for");
    fixture.part(&id, tool("bash", done(json!({"command": "make"}), "x", json!({"exit": 0}))));
    assert_eq!(fixture.renderer.status(4_000), "bash  test  3 s");
}
