//! Tasks: from a message to an end.

use serde_json::json;
use trefoil_a2a::TaskState;

use crate::common::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_answered_by_a_completed_task() {
    let lab = Lab::new().await;
    let task = lab.send(play("m1", json!([{"text": "Hello there"}]))).await.unwrap();
    assert_eq!(task.status.state, TaskState::Completed, "{task:#?}");
    assert_eq!(text_of(&task), "Hello there");
    assert_eq!(status_text(&task), "Hello there");
    assert_eq!(task.history.len(), 1);
    assert!(task.metadata["shared"]["usage"]["total_tokens"].is_u64(), "{:?}", task.metadata);
    assert!(task.metadata["shared"]["session"]["id"].as_str().unwrap().starts_with("ses_"));
    assert_eq!(lab.get(&task.id).await, task);
}
