use super::*;
use serde_json::json;

fn tree(value: api::Json) -> Tree {
    serde_json::from_value(value).unwrap()
}

fn usage(cost: f64, calls: u64, estimated: u64) -> api::Json {
    json!({"cost": cost, "tokens": {"input": 900, "output": 100, "reasoning": 0, "cache": {"read": 0, "write": 0}},
        "steps": 3, "toolCalls": calls, "files": 1, "estimatedCost": 0, "estimatedTokens": 0, "estimatedSteps": estimated})
}

fn sample() -> Tree {
    let budget =
        json!({"limit": {"cost": 1, "steps": 3}, "spent": {"cost": 0.5, "steps": 3}, "reserved": {"cost": 0.25}});
    tree(json!({"sessions": [
        {"sessionID": "ses_a", "depth": 0, "agent": "build", "title": "Fix the parser", "state": "running",
            "background": false, "asks": [{"id": "per_1", "sessionID": "ses_c", "path": ["build", "explore"], "text": "x"}],
            "tool": {"tool": "task", "title": "Look", "since": 1}, "own": usage(0.1, 1, 0), "total": usage(0.5, 4, 1),
            "budget": budget, "created": 0, "started": 1_000},
        {"sessionID": "ses_b", "parentID": "ses_a", "depth": 1, "agent": "general", "title": "Test (@general subagent)",
            "state": "blocked", "background": true, "asks": [], "own": usage(0.0, 1, 0), "total": usage(0.0, 1, 0),
            "blocked": {"bound": "steps", "sessionID": "ses_a", "message": "3 of 3 steps are used"},
            "created": 0, "started": 1_000},
        {"sessionID": "ses_c", "parentID": "ses_a", "depth": 1, "agent": "explore", "title": "Look (@explore subagent)",
            "state": "asking", "background": false,
            "asks": [{"id": "per_1", "sessionID": "ses_c", "path": ["explore"], "text": "bash rm \u{1b}[2Jx"}],
            "own": usage(0.4, 2, 1), "total": usage(0.4, 2, 1), "created": 0, "started": 1_000, "ended": 3_000},
    ]}))
}

#[test]
fn a_tree_is_drawn_with_what_it_waits_for() {
    let style = Style { color: false, width: 80 };
    assert_eq!(
        lines(&sample(), 66_000, style).concat(),
        "\
● build  Fix the parser  task  Look                            1m 05s   ~$0.5000
  budget: $0.5000 of $1.0000 ($0.2500 reserved) · 3 of 3 steps
├─ $ general &  Test     waits for its budget                  1m 05s   1.0k tok
     3 of 3 steps are used
└─ ? explore  Look       asks                                   2.0 s   ~$0.4000
     asks per_1: bash rm x
3 sessions · 3 at work · 4 calls · 1 file · 1.0k tokens · $0.5000 · 1 step estimated
"
    );
}

#[tokio::test]
async fn a_tree_is_read_again_when_something_of_it_changed() {
    let id = |text: &str| api::SessionId::parse(text).unwrap();
    let frame = |body: api::EventBody, durable: bool| {
        let event = api::Event::new(body);
        let cursor = durable.then(|| api::Cursor { seq: 1, id: event.id.clone() });
        let json = serde_json::to_vec(&event).unwrap().into();
        WatchItem::Frame(api::Frame::new(cursor, "/p".into(), "p".into(), std::sync::Arc::new(event), json))
    };
    let idle = |session: &str| frame(api::EventBody::SessionIdle { session_id: id(session) }, true);
    let delta = frame(
        api::EventBody::PartDelta {
            session_id: id("ses_a"),
            message_id: api::MessageId::new(),
            part_id: api::PartId::new(),
            field: "text".into(),
            delta: "x".into(),
        },
        false,
    );
    let mut subtree = Subtree::new(id("ses_a"), [id("ses_b")]);
    let mut events = futures::stream::iter([idle("ses_other"), delta, idle("ses_b"), WatchItem::Resync(String::new())]);
    assert!(changed(&mut events, &mut subtree).await, "a child has ended");
    assert_eq!(events.size_hint().0, 1, "other sessions and growing text change nothing");
    assert!(changed(&mut events, &mut subtree).await, "missed events count as a change");
    assert!(!changed(&mut events, &mut subtree).await);
}

#[test]
fn an_empty_budget_is_no_bound() {
    let text = |limit: api::Json| {
        budget_text(&serde_json::from_value(json!({"limit": limit, "spent": {}, "reserved": {}})).unwrap())
    };
    assert_eq!(text(json!({})), "");
    assert_eq!(text(json!({"tokens": 12000, "seconds": 60})), "0 of 12,000 tokens · 0 of 60 s");
}

#[test]
fn a_tree_that_is_too_high_keeps_its_totals() {
    let lines: Vec<String> = (1..=9).map(|n| format!("{n}\n")).collect();
    assert_eq!(fit(&lines, 9), lines);
    assert_eq!(fit(&lines, 4), ["1\n", "2\n", "… 6 lines more\n", "9\n"]);
    assert_eq!(fit(&lines, 0), ["… 8 lines more\n", "9\n"]);
}
