//! Abandoned work is found and done: prompts without a turn, turns of dead processes, reports that nobody would
//! deliver.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use api::{
    EventBody, Host, MessageError, MessageId, PromptInput, Runner, RunnerContext, RunnerEnd, RunnerError, RunnerJob,
    Scope, SessionId,
};
use futures::future::BoxFuture;
use serde_json::{Value, json};
use store::{Batch, Location, Store};
use testkit::{Recorder, TempProject, eventually};
use trefoil_engine::WatchdogScope;

use crate::common::family::{background, children, is_idle, reports};
use crate::common::{Lab, doomed, open, open_store, open_with, prompt, script, text};

fn lab() -> (Lab, Store) {
    let project = TempProject::new();
    let store = Store::open(&project.root().join("t.db")).unwrap();
    let engine = open_store(&project, store.clone(), HashMap::new());
    let scope = Scope::new(project.directory());
    (Lab { project, engine, scope }, store)
}

/// An accepted prompt that nobody runs.
async fn forgotten_prompt(lab: &Lab, store: &Store) -> (SessionId, MessageId) {
    let session = lab.session().await;
    let note = PromptInput { no_reply: true, ..prompt("Hello") };
    let message = lab.engine.prompt_async(&session, note).await.unwrap();
    let mut batch = Batch::new(&Location::new("", "")).durable();
    batch.enqueue(&session, &message);
    store.commit(batch).await.unwrap();
    (session, message)
}

#[tokio::test]
async fn a_prompt_that_nobody_runs_is_answered() {
    let (lab, store) = lab();
    let mut events = lab.recorder().await;
    let (session, prompt) = forgotten_prompt(&lab, &store).await;
    lab.engine.start_watchdog(WatchdogScope::All);
    events.wait_idle(&session).await;
    let messages = lab.messages(&session).await;
    assert_eq!(messages.last().unwrap().info.as_assistant().unwrap().parent_id, prompt);
    assert!(store.inbox(&session).unwrap().is_empty());
}

#[tokio::test]
async fn a_watchdog_for_opened_sessions_leaves_others_alone() {
    let (lab, store) = lab();
    let mut events = lab.recorder().await;
    let (other, _) = forgotten_prompt(&lab, &store).await;
    lab.engine.start_watchdog(WatchdogScope::Opened);
    let (own, _) = forgotten_prompt(&lab, &store).await;
    // Both are checked at the same time.
    events.wait_idle(&own).await;
    assert_eq!(store.inbox(&other).unwrap().len(), 1);
    assert!(!events.events().iter().any(|event| is_idle(&other)(&event.body)));
}

/// A lab that resumes turns of dead processes, and a session whose engine died during its turn after it had said
/// `word`. `turn` gets the file that its model waits for, `gate` in the project.
async fn orphan(turn: impl Fn(PathBuf) -> Value, word: &str) -> (Lab, Recorder, SessionId) {
    let project = TempProject::new();
    let scope = Scope::new(project.directory());
    let engine = open(&project);
    engine.start_watchdog(WatchdogScope::All);
    let events = Recorder::new(Arc::new(engine.clone())).await;
    let lab = Lab { project, engine, scope };
    let turn = turn(lab.gate("gate"));
    let session = doomed(&lab.project, async |engine| {
        let session = engine.create_session(&lab.scope, Default::default()).await.unwrap().id;
        let mut own = Recorder::new(Arc::new(engine.clone())).await;
        engine.prompt_async(&session, prompt(&script(turn))).await.unwrap();
        own.wait_for(|body| matches!(body, EventBody::PartDelta { delta, .. } if delta.contains(word))).await;
        session
    });
    (lab, events, session)
}

#[tokio::test]
async fn the_turn_of_a_dead_process_is_resumed_by_a_living_one() {
    let turn = |gate| json!([{ "text": "working", "hold": gate }, { "text": "done" }]);
    let (lab, mut events, session) = orphan(turn, "working").await;
    lab.project.write("gate", "");
    // Nobody asked for it.
    events.wait_idle(&session).await;
    let messages = lab.messages(&session).await;
    assert!(messages.iter().all(|m| m.info.as_assistant().is_none_or(|a| a.time.completed.is_some())), "{messages:#?}");
    assert_eq!(text(messages.last().unwrap()), "working", "the interrupted step runs again");
}

#[tokio::test]
async fn a_background_report_arrives_although_its_process_died() {
    let turn = |gate| {
        let child = json!([{ "text": "found", "hold": gate }]);
        json!([{ "tools": [background("look", child)] }, { "text": "meanwhile" }])
    };
    let (lab, mut events, session) = orphan(turn, "found").await;
    lab.project.write("gate", "");
    eventually("the report", async || !reports(&lab, &session).await.is_empty()).await;
    events.wait_for(is_idle(&session)).await;
    assert_eq!(reports(&lab, &session).await.len(), 1);
    assert_eq!(children(&lab, &session).await.len(), 1);
}

/// A runner that always panics.
struct PanickingRunner(Arc<AtomicUsize>);

impl Runner for PanickingRunner {
    fn run(&self, _: RunnerJob, _: Arc<dyn RunnerContext>) -> BoxFuture<'_, Result<RunnerEnd, RunnerError>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { panic!("it breaks down") })
    }
}

#[tokio::test]
async fn a_turn_that_keeps_panicking_is_given_up() {
    let project = TempProject::new();
    let config = json!({ "agent": { "other": { "mode": "primary", "acp": { "command": ["it"] } } } });
    project.write_home(".config/trefoil/trefoil.json", config.to_string());
    let runs = Arc::new(AtomicUsize::new(0));
    let runner: Arc<dyn Runner> = Arc::new(PanickingRunner(runs.clone()));
    let engine = open_with(&project, HashMap::from([("acp".to_owned(), runner)]));
    let scope = Scope::new(project.directory());
    let lab = Lab { project, engine, scope };
    lab.engine.start_watchdog(WatchdogScope::Opened);
    let mut events = lab.recorder().await;
    let session = lab.session().await;
    let input = PromptInput { agent: Some("other".to_owned()), ..prompt("go") };
    let error = lab.engine.prompt(&session, input).await.unwrap_err();
    assert!(error.to_string().contains("failed unexpectedly"), "{error}");
    events.wait_idle(&session).await;
    let last = lab.messages(&session).await.pop().unwrap();
    let given_up = last.info.as_assistant().unwrap().error.clone();
    assert!(
        matches!(&given_up, Some(MessageError::UnknownError(why)) if why.message.contains("given up")),
        "{given_up:?}"
    );
    assert!(runs.load(Ordering::SeqCst) <= 2, "it is not retried forever");
}
