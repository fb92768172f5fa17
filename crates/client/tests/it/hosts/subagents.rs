//! A monitor of subagents over a connection that is cut in the middle.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::{CreateSession, Host, PermissionReply, PermissionReplyKind, PromptInput, PromptPart, Scope, SessionId};
use serde_json::json;
use testkit::{ModelCall, ModelServer, TempProject, WAIT};
use tokio::time::timeout;
use trefoil_client::{Ask, MonitorEvent, Subagent, SubagentMonitor, SubagentState, TurnOutcome};

use super::proxy::Proxy;

struct Watcher {
    monitor: SubagentMonitor,
    events: Vec<MonitorEvent>,
}

impl Watcher {
    /// Receives events until one is the wanted one.
    async fn until(&mut self, what: &str, wanted: impl Fn(&MonitorEvent) -> bool) -> MonitorEvent {
        let search = async {
            loop {
                let event = self.monitor.next().await.expect("the root lives");
                self.events.push(event.clone());
                if wanted(&event) {
                    return event;
                }
            }
        };
        let found = timeout(WAIT, search).await;
        found.unwrap_or_else(|_| panic!("{what} was not reported, only {:#?}", self.events))
    }

    async fn created(&mut self, title: &str) -> SessionId {
        let wanted = |event: &MonitorEvent| matches!(event, MonitorEvent::ChildCreated { session } if session.title.starts_with(title));
        self.until(title, wanted).await.session_id().clone()
    }

    fn children(&self) -> Vec<Subagent> {
        self.monitor.tree().sessions.split_off(1)
    }

    /// A short line for every event but progress.
    fn summary(&self) -> Vec<String> {
        let mut names: HashMap<&SessionId, &str> = HashMap::new();
        let lines = self.events.iter().filter_map(|event| {
            if let MonitorEvent::ChildCreated { session } = event {
                names.insert(&session.id, session.title.split(" (").next().unwrap_or_default());
            }
            let what = match event {
                MonitorEvent::ChildProgress { .. } => return None,
                MonitorEvent::ChildCreated { .. } => "created".to_owned(),
                MonitorEvent::ChildAsked { .. } => "asked".to_owned(),
                MonitorEvent::ChildAnswered { .. } => "answered".to_owned(),
                MonitorEvent::ChildError { error, .. } => format!("error {}", error.message()),
                MonitorEvent::ChildCompleted { outcome: TurnOutcome::Failed { error }, .. } => {
                    format!("failed {}", error.message())
                }
                MonitorEvent::ChildCompleted { outcome, .. } => format!("{outcome:?}"),
                MonitorEvent::ChildRemoved { .. } => "removed".to_owned(),
            };
            Some(format!("{}: {what}", names[event.session_id()]))
        });
        lines.collect()
    }
}

async fn delegate(mut call: ModelCall, id: &str, description: &str) {
    let input = json!({"description": description, "prompt": "Do it", "subagent_type": "general"});
    call.tool(id, "task", input).await;
    call.finish("tool_calls").await;
}

/// Runs on a host with the configuration of the other scenario. Only the monitor goes through the proxy.
pub async fn subagents(host: Arc<dyn Host>, proxy: Proxy, project: &TempProject, mut model: ModelServer) {
    model.answer_titles("A title");
    let scope = Scope::new(project.directory());
    let root = host.create_session(&scope, CreateSession::default()).await.unwrap();
    let open = || SubagentMonitor::open(Arc::new(proxy.client()), scope.clone(), root.id.clone());
    let monitor = open().await.unwrap().with_interval(Duration::from_millis(1));
    let mut watcher = Watcher { monitor, events: Vec::new() };
    assert!(watcher.children().is_empty());

    let turn = {
        let (host, root) = (host.clone(), root.id.clone());
        let prompt = PromptInput { parts: vec![PromptPart::text("Delegate")], ..PromptInput::default() };
        tokio::spawn(async move { host.prompt(&root, prompt).await })
    };
    delegate(model.next_call().await, "call_1", "First job").await;
    let mut call = model.next_call().await;
    let first = watcher.created("First job").await;
    call.tool("call_2", "bash", json!({"command": "echo done", "description": "Say so"})).await;
    call.usage(json!({"prompt_tokens": 50, "completion_tokens": 5, "total_tokens": 55}));
    call.finish("tool_calls").await;
    let asked = watcher.until("the ask", |event| matches!(event, MonitorEvent::ChildAsked { .. })).await;
    let MonitorEvent::ChildAsked { session_id, ask: Ask::Permission(ask) } = asked else { panic!("{asked:?}") };
    assert_eq!((&session_id, ask.permission.as_str()), (&first, "bash"));
    let once = PermissionReply { reply: PermissionReplyKind::Once, message: None };
    host.reply_permission(&ask.id, once).await.unwrap();
    let mut call = model.next_call().await;
    call.text("Half of ").await;
    let half = |event: &MonitorEvent| match event {
        MonitorEvent::ChildProgress { progress, .. } => progress.text == "Half of " && progress.tool_calls == 1,
        _ => false,
    };
    watcher.until("what the child says", half).await;

    // Nobody sees the first job end and the second begin.
    proxy.cut();
    call.text("an answer").await;
    call.usage(json!({"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}));
    call.finish("stop").await;
    delegate(model.next_call().await, "call_3", "Second job").await;
    let call = model.next_call().await;
    proxy.restore();
    let second = watcher.created("Second job").await;
    call.error(400, json!({"error": {"message": "bad child", "type": "invalid_request_error"}}), &[]);
    let ended = |event: &MonitorEvent| matches!(event, MonitorEvent::ChildCompleted { session_id, .. } if *session_id == second);
    watcher.until("the end of the second job", ended).await;
    let mut call = model.next_call().await;
    call.text("All done").await;
    call.finish("stop").await;
    timeout(WAIT, turn).await.expect("the turn ends").unwrap().unwrap();

    let below = CreateSession {
        parent_id: Some(first.clone()),
        title: Some("A child's child".to_owned()),
        ..CreateSession::default()
    };
    host.create_session(&scope, below).await.unwrap();
    watcher.created("A child's child").await;
    let children = watcher.children();
    assert_eq!(children.iter().map(|child| child.depth).collect::<Vec<_>>(), [1, 2, 1]);
    assert_eq!(children[0].progress.state, SubagentState::Ended { outcome: TurnOutcome::Succeeded });
    assert_eq!((children[0].progress.text.as_str(), children[0].progress.tool_calls), ("Half of an answer", 1));
    assert_eq!(children[0].progress.usage.tokens.output, 25);
    // A monitor opened now sees the same.
    let late = Watcher { monitor: open().await.unwrap(), events: Vec::new() };
    assert_eq!(late.children(), children);
    drop(late);

    host.delete_session(&second).await.unwrap();
    watcher.until("the deletion", |event| matches!(event, MonitorEvent::ChildRemoved { .. })).await;
    host.delete_session(&root.id).await.unwrap();
    while let Some(event) = timeout(WAIT, watcher.monitor.next()).await.expect("a monitor ends with its root") {
        watcher.events.push(event);
    }
    assert_eq!(
        watcher.summary(),
        [
            "First job: created",
            "First job: asked",
            "First job: answered",
            "First job: Succeeded",
            "Second job: created",
            "Second job: error bad child",
            "Second job: failed bad child",
            "A child's child: created",
            "Second job: removed",
            "A child's child: removed",
            "First job: removed",
        ]
    );
}
