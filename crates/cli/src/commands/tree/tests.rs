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

#[test]
fn an_empty_budget_is_no_bound() {
    let text = |limit: api::Json| {
        budget_text(&serde_json::from_value(json!({"limit": limit, "spent": {}, "reserved": {}})).unwrap())
    };
    assert_eq!(text(json!({})), "");
    assert_eq!(text(json!({"tokens": 12000, "seconds": 60})), "0 of 12,000 tokens · 0 of 60 s");
}
