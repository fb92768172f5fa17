//! Subagents: prompts that start them, and what can be seen of them.

use api::{
    AssistantMessage, EventBody, Host, PermissionReply, PermissionReplyKind, PermissionRequest, Session, SessionId,
    ToolPart, ToolState,
};
use serde_json::{Value, json};
use testkit::Recorder;

use super::{Lab, prompt, script};

/// A call whose subagent plays these steps.
pub fn task(description: &str, agent: &str, steps: Value) -> Value {
    json!(["task", {"description": description, "prompt": script(steps), "subagent_type": agent}])
}

pub fn bash(command: &str) -> Value {
    json!(["bash", { "command": command }])
}

/// A lab where commands need approval: an ask blocks a subagent until it is answered.
pub fn asking() -> Lab {
    Lab::with(json!({"permission": ask()}))
}

pub fn ask() -> Value {
    json!({"bash": "ask"})
}

pub async fn start(lab: &Lab, session: &SessionId, steps: Value) {
    lab.engine.prompt_async(session, prompt(&script(steps))).await.unwrap();
}

pub async fn children(lab: &Lab, session: &SessionId) -> Vec<Session> {
    lab.engine.children(session).await.unwrap()
}

pub async fn only_child(lab: &Lab, session: &SessionId) -> Session {
    let mut children = children(lab, session).await;
    assert_eq!(children.len(), 1, "{children:#?}");
    children.remove(0)
}

pub async fn asked(events: &mut Recorder) -> PermissionRequest {
    let event = events.wait_for(|b| matches!(b, EventBody::PermissionAsked(_))).await;
    let EventBody::PermissionAsked(ask) = &event.body else { unreachable!() };
    (**ask).clone()
}

pub async fn answer(lab: &Lab, ask: &PermissionRequest, reply: PermissionReplyKind) {
    lab.engine.reply_permission(&ask.id, PermissionReply { reply, message: None }).await.unwrap();
}

pub fn output(tool: &ToolPart) -> &str {
    match &tool.state {
        ToolState::Completed(done) => &done.output,
        other => panic!("{other:#?}"),
    }
}

pub fn error(tool: &ToolPart) -> &str {
    match &tool.state {
        ToolState::Error(error) => &error.error,
        other => panic!("{other:#?}"),
    }
}

pub async fn last(lab: &Lab, session: &SessionId) -> AssistantMessage {
    lab.messages(session).await.last().unwrap().info.as_assistant().unwrap().clone()
}

/// A command that says when it runs and stays until it is stopped.
pub fn blocking_command(file: &str) -> Value {
    bash(&format!("echo $$ > {file}; echo ready; exec sleep 300"))
}

pub async fn ready(events: &mut Recorder) {
    events
        .wait_for(|body| {
            let EventBody::PartUpdated { part, .. } = body else { return false };
            let Some(ToolState::Running(running)) = part.as_tool().map(|tool| &tool.state) else { return false };
            json!(running.metadata)["output"].as_str().is_some_and(|output| output.contains("ready"))
        })
        .await;
}

pub fn is_alive(lab: &Lab, file: &str) -> bool {
    std::path::Path::new("/proc").join(lab.project.read(file).trim()).join("cmdline").exists()
}

/// A call whose subagent works in the background.
pub fn background(description: &str, steps: Value) -> Value {
    let mut call = task(description, "general", steps);
    call[1]["background"] = json!(true);
    call
}

/// Steps that ask for a permission, then say something.
pub fn asks_then(text: &str) -> Value {
    json!([{"tools": [bash("true")]}, {"text": text}])
}

/// A lab with agents that may have subagents of their own.
pub fn lab_with_leads() -> Lab {
    let lead = json!({"mode": "subagent", "description": "l", "permission": {"task": "allow", "question": "allow"}});
    Lab::with(json!({"subagent_depth": 3, "permission": ask(), "agent": {"lead": lead}}))
}

/// The background reports a session has received, oldest first.
pub async fn reports(lab: &Lab, session: &SessionId) -> Vec<String> {
    let messages = lab.messages(session).await;
    let users = messages.iter().filter(|m| m.info.as_user().is_some());
    let texts = users.flat_map(|m| m.parts.iter().filter_map(api::Part::as_text));
    texts.filter(|t| t.synthetic == Some(true)).map(|t| t.text.clone()).collect()
}

/// The index of the first matching event.
pub fn place(events: &Recorder, fits: impl Fn(&EventBody) -> bool) -> Option<usize> {
    events.events().iter().position(|event| fits(&event.body))
}

pub fn is_idle(session: &SessionId) -> impl Fn(&EventBody) -> bool {
    let session = session.clone();
    move |body| matches!(body, EventBody::SessionIdle { session_id } if *session_id == session)
}
