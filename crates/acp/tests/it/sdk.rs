//! The official Rust SDK drives a whole session.

use std::sync::{Arc, Mutex};

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    CancelNotification, ClientCapabilities, ContentBlock, InitializeRequest, ListSessionsRequest, LoadSessionRequest,
    NewSessionRequest, PermissionOptionKind, PromptRequest, RequestPermissionOutcome, RequestPermissionRequest,
    RequestPermissionResponse, SelectedPermissionOutcome, SessionNotification, SessionUpdate, StopReason,
    SubagentCapabilities, TextContent, ToolCallContent,
};
use agent_client_protocol::{Agent, ByteStreams, Client};
use serde_json::{Value, json};
use tokio_util::compat::{TokioAsyncReadCompatExt as _, TokioAsyncWriteCompatExt as _};

use crate::rig::{Lab, script};

type Updates = Arc<Mutex<Vec<SessionNotification>>>;

fn text(updates: &Updates, session: &str) -> String {
    let updates = updates.lock().unwrap();
    let of = updates.iter().filter(|update| *update.session_id.0 == *session);
    of.filter_map(|update| match &update.update {
        SessionUpdate::AgentMessageChunk(chunk) => match &chunk.content {
            ContentBlock::Text(text) => Some(text.text.clone()),
            _ => None,
        },
        _ => None,
    })
    .collect()
}

fn prompt(session: &str, steps: Value) -> PromptRequest {
    PromptRequest::new(session.to_owned(), vec![ContentBlock::Text(TextContent::new(script(steps)))])
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rust_sdk() {
    let lab = Lab::with(json!({}));
    lab.project.write("note.txt", "alpha\n");
    let (cwd, never) = (lab.cwd(), lab.project.path().join("never"));
    let updates: Updates = Arc::default();
    let (heard, told) = (updates.clone(), updates.clone());
    let (read, write) = tokio::io::split(lab.pipe());
    let transport = ByteStreams::new(write.compat_write(), read.compat());
    let lived = Client
        .v1()
        .on_receive_notification(
            async move |notification: SessionNotification, _| {
                heard.lock().unwrap().push(notification);
                Ok(())
            },
            agent_client_protocol::on_receive_notification!(),
        )
        .on_receive_request(
            async move |request: RequestPermissionRequest, responder, _| {
                let once = request.options.iter().find(|option| option.kind == PermissionOptionKind::AllowOnce).unwrap();
                let outcome = SelectedPermissionOutcome::new(once.option_id.clone());
                responder.respond(RequestPermissionResponse::new(RequestPermissionOutcome::Selected(outcome)))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .connect_with(transport, |agent: ConnectionTo<Agent>| async move {
            let can = ClientCapabilities::new().subagents(SubagentCapabilities::new());
            let hello = InitializeRequest::new(ProtocolVersion::V1).client_capabilities(can);
            let hello = agent.send_request(hello).block_task().await?;
            assert_eq!(hello.agent_info.unwrap().name, "trefoil");
            let made = agent.send_request(NewSessionRequest::new(&cwd)).block_task().await?;
            assert!(made.modes.is_some() && made.config_options.is_some());
            let session = made.session_id.to_string();
            let todos = json!([{"content": "Look", "status": "in_progress", "priority": "high"}]);
            let task = json!({"description": "d", "subagent_type": "general", "prompt": script(json!([{"text": "I looked."}]))});
            let steps = json!([
                {"text": "Working. ", "tools": [["todowrite", {"todos": todos}]]},
                {"tools": [["edit", {"filePath": "note.txt", "oldString": "alpha", "newString": "omega"}]]},
                {"tools": [["task", task]]},
                {"text": "Done."},
            ]);
            let ended = agent.send_request(prompt(&session, steps)).block_task().await?;
            assert_eq!(ended.stop_reason, StopReason::EndTurn);
            let slow = agent.send_request(prompt(&session, json!([{"chunks": 10, "hold": never}])));
            agent.send_notification(CancelNotification::new(session.clone()))?;
            assert_eq!(slow.block_task().await?.stop_reason, StopReason::Cancelled);
            let listed = agent.send_request(ListSessionsRequest::new()).block_task().await?;
            assert_eq!(listed.sessions.len(), 1);
            let shown = text(&told, &session);
            told.lock().unwrap().clear();
            agent.send_request(LoadSessionRequest::new(session.clone(), &cwd)).block_task().await?;
            assert_eq!(text(&told, &session), shown);
            Ok(session)
        });
    let session = testkit::soon("the session's end", lived).await.unwrap();
    assert!(text(&updates, &session).starts_with("Working. Done."));
    let updates = updates.lock().unwrap();
    let has = |fits: &dyn Fn(&SessionUpdate) -> bool| updates.iter().any(|update| fits(&update.update));
    assert!(has(&|update| matches!(update, SessionUpdate::Plan(plan) if plan.entries[0].content == "Look")));
    assert!(has(&|update| matches!(update, SessionUpdate::SubagentUpdate(_))));
    assert!(has(&|update| match update {
        SessionUpdate::ToolCallUpdate(call) => {
            call.fields.content.iter().flatten().any(|content| matches!(content, ToolCallContent::Diff(_)))
        }
        _ => false,
    }));
    assert_eq!(lab.project.read("note.txt"), "omega\n");
}
