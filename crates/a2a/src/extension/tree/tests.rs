use api::Timestamp;

use super::*;
use crate::Line;

fn node(id: &str, parent: &str, depth: u32, state: TreeState, ended: Option<Timestamp>) -> TreeNode {
    let mut node = json!({
        "sessionID": id, "parentID": parent, "depth": depth, "agent": "explore", "title": "Looks", "state": state,
        "background": false, "asks": [], "own": {}, "total": {"cost": 0.5, "tokens": {"input": 3, "output": 2, "reasoning": 0,
        "cache": {"read": 1, "write": 0}}}, "created": 5,
    });
    if let Some(ended) = ended {
        node["ended"] = ended.into();
    }
    serde_json::from_value(node).unwrap()
}

#[test]
fn descendants_are_tasks_with_their_place() {
    let root = SessionId::parse("ses_root").unwrap();
    let mut sessions = vec![
        node("ses_root", "ses_above", 0, TreeState::Running, None),
        node("ses_a", "ses_root", 1, TreeState::Idle, Some(9)),
        node("ses_b", "ses_a", 2, TreeState::Asking, None),
        node("ses_c", "ses_root", 1, TreeState::Idle, None),
    ];
    let tree = Tree { sessions: sessions.clone(), cursor: None };
    let tasks: Vec<Json> = tasks(&tree, "task-1", &root).iter().map(|task| wire::task_json(task, Line::V10)).collect();
    let states: Vec<&Json> = tasks.iter().map(|task| &task["status"]["state"]).collect();
    assert_eq!(states, ["TASK_STATE_COMPLETED", "TASK_STATE_INPUT_REQUIRED", "TASK_STATE_SUBMITTED"]);
    let place = |index: usize| &tasks[index]["metadata"]["trefoil"]["subagent"];
    assert_eq!(
        [place(0), place(1), place(2)].map(|place| (place["parent_id"].as_str(), place["depth"].as_u64())),
        [(Some("task-1"), Some(1)), (Some("ses_a"), Some(2)), (Some("task-1"), Some(1))]
    );
    assert_eq!(tasks[0]["id"], "ses_a");
    assert_eq!(tasks[0]["contextId"], "ctx:opencode-session:ses_a");
    assert_eq!(tasks[0]["metadata"]["shared"]["usage"]["total_tokens"], 6);
    assert!(tasks[0].get("artifacts").is_none() && tasks[0].get("history").is_none());

    sessions.extend((0..1000).map(|number| node(&format!("ses_{number}"), "ses_root", 1, TreeState::Idle, None)));
    let tree = Tree { sessions, cursor: None };
    assert_eq!(super::tasks(&tree, "task-1", &root).len(), MAX_SESSIONS);
}
