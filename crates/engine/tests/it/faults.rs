//! A database that refuses writes for a while: locked by another program, a full disk, a folder that was moved. Turns
//! wait and resume; other requests fail at once.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::common::{Lab, open_on, prompt, script, text};
use api::{EventBody, Host, HostError, Message, SessionId, SessionStatus, ToolPart, ToolState};
use rusqlite::Connection;
use serde_json::json;
use testkit::{Recorder, eventually, soon};

/// Store options with almost no lock timeout.
fn quick() -> store::Options {
    store::Options { busy_timeout: Duration::from_millis(50), ..store::Options::default() }
}

fn lab(options: store::Options) -> Lab {
    Lab::on_store(json!({}), options)
}

fn database(lab: &Lab) -> PathBuf {
    lab.project.home().join(".local/share/trefoil/trefoil.db")
}

/// A connection of another program.
fn other_program(lab: &Lab) -> Connection {
    let conn = Connection::open(database(lab)).unwrap();
    conn.busy_timeout(Duration::from_secs(60)).unwrap();
    conn
}

/// A connection of another program that locks the database until it rolls back.
fn lock(lab: &Lab) -> Connection {
    let conn = other_program(lab);
    conn.execute_batch("BEGIN EXCLUSIVE").unwrap();
    conn
}

fn status_of<'a>(body: &'a EventBody, session: &SessionId) -> Option<&'a SessionStatus> {
    match body {
        EventBody::SessionStatus { session_id, status } if session_id == session => Some(status),
        _ => None,
    }
}

fn is_retry(body: &EventBody, session: &SessionId, why: &str) -> bool {
    matches!(status_of(body, session), Some(SessionStatus::Retry { message, attempt: 1.., .. }) if message.contains(why))
}

/// Waits until the turn shows that it is waiting, and why.
async fn wait_until_retrying(events: &mut Recorder, session: &SessionId, why: &str) {
    events.wait_for(|body| is_retry(body, session, why)).await;
}

/// The pending answer to a prompt.
type PendingAnswer = tokio::task::JoinHandle<Result<api::MessageWithParts, HostError>>;

/// Sends a prompt without waiting for its answer.
fn send(lab: &Lab, session: &SessionId, steps: serde_json::Value) -> PendingAnswer {
    let (engine, id) = (lab.engine.clone(), session.clone());
    tokio::spawn(async move { engine.prompt(&id, prompt(&script(steps))).await })
}

/// A turn with a command that waits for the file `go` and then prints a lot.
fn command(lab: &Lab) -> serde_json::Value {
    let gate = lab.gate("go");
    let command = format!(
        "echo ran >> effects; until [ -e {} ]; do sleep 0.02; done; head -c 20000 /dev/zero | tr '\\0' x; echo outcome",
        gate.display()
    );
    json!([{"text": "Working. ", "tools": [["bash", {"command": command}]]}, {"text": "All done."}])
}

/// The tool call that is running.
fn call(body: &EventBody) -> Option<&ToolPart> {
    let EventBody::PartUpdated { part, .. } = body else { return None };
    part.as_tool().filter(|tool| matches!(tool.state, ToolState::Running(_)))
}

/// A turn with that command running.
async fn start_command(lab: &Lab, session: &SessionId) -> (Recorder, PendingAnswer) {
    let mut events = lab.recorder().await;
    let answer = send(lab, session, command(lab));
    events.wait_for(|body| call(body).is_some()).await;
    (events, answer)
}

/// Checks a delayed turn with that command: everything is there and was published in order.
async fn check(lab: &Lab, session: &SessionId, answer: api::MessageWithParts, events: &mut Recorder) {
    assert_eq!(text(&answer), "All done.");
    events.wait_idle(session).await;
    let tools = lab.tools(session).await;
    let ToolState::Completed(done) = &tools[0].state else { panic!("{:?}", tools[0].state) };
    assert!(done.output.contains("outcome"), "the end of {} bytes", done.output.len());
    assert_eq!(lab.project.read("effects"), "ran\n", "it ran once");
    let bodies: Vec<EventBody> = events.events().iter().map(|event| event.body.clone()).collect();
    let last_retry = bodies.iter().rposition(|body| is_retry(body, session, "")).unwrap();
    let next = bodies[last_retry + 1..].iter().find_map(|body| status_of(body, session));
    assert_eq!(next, Some(&SessionStatus::Busy), "it is busy again before anything else");
    let completed = |body: &EventBody| matches!(body, EventBody::PartUpdated { part, .. } if part.as_tool().is_some_and(|tool| tool.state.is_done()));
    assert!(bodies.iter().position(completed).unwrap() > last_retry, "the outcome waited");
    assert_eq!(bodies.iter().filter(|body| completed(body)).count(), 1, "and was reported once");
    assert_eq!(bodies.iter().filter(|body| matches!(body, EventBody::SessionIdle { .. })).count(), 1);
    assert!(!bodies.iter().any(|body| matches!(body, EventBody::SessionError { .. })));
    assert!(lab.engine.statuses(&lab.scope).await.unwrap().is_empty());
    assert!(lab.engine.store().inbox(session).unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_outlasts_a_lock_of_another_program() {
    let lab = self::lab(quick());
    let session = lab.session().await;
    let (mut events, answer) = start_command(&lab, &session).await;
    let other = lock(&lab);
    lab.project.write("go", "");
    wait_until_retrying(&mut events, &session, "locked").await;
    // Other readers see it too; everything can be read, and nothing written.
    let statuses = lab.engine.statuses(&lab.scope).await.unwrap();
    assert!(matches!(statuses.get(&session), Some(SessionStatus::Retry { .. })), "{statuses:?}");
    assert_eq!(lab.messages(&session).await.len(), 2);
    for refused in [
        lab.engine.create_session(&lab.scope, Default::default()).await.map(drop),
        lab.engine.prompt_async(&session, prompt("more")).await.map(drop),
        lab.engine.shell(&session, Default::default()).await.map(drop),
    ] {
        let error = refused.unwrap_err();
        assert!(matches!(&error, HostError::Unavailable(_) | HostError::Busy(_)), "{error:?}");
    }
    other.execute_batch("ROLLBACK").unwrap();
    let answer = soon("the answer", answer).await.unwrap().unwrap();
    check(&lab, &session, answer, &mut events).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_outlasts_a_full_disk() {
    let lab = self::lab(store::Options { max_pages: Some(400), ..quick() });
    let session = lab.session().await;
    let (mut events, answer) = start_command(&lab, &session).await;
    let other = other_program(&lab);
    other.execute_batch("CREATE TABLE filler (x); INSERT INTO filler VALUES (zeroblob(2000000))").unwrap();
    lab.project.write("go", "");
    wait_until_retrying(&mut events, &session, "full").await;
    let large = prompt(&"x".repeat(100_000));
    let error = lab.engine.prompt_async(&session, large).await.unwrap_err();
    assert!(matches!(&error, HostError::Full(text) if text.contains("Free some space")), "{error:?}");
    other.execute_batch("DROP TABLE filler").unwrap();
    let answer = soon("the answer", answer).await.unwrap().unwrap();
    check(&lab, &session, answer, &mut events).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_outlasts_a_folder_that_is_moved_away() {
    let lab = self::lab(quick());
    let session = lab.session().await;
    let (mut events, answer) = start_command(&lab, &session).await;
    let (folder, away) = (database(&lab).parent().unwrap().to_owned(), lab.project.root().join("away"));
    std::fs::rename(&folder, &away).unwrap();
    // Non-durable writes are checked only occasionally, but always after a refusal.
    let error = lab.engine.prompt_async(&session, prompt("more")).await.unwrap_err();
    assert!(matches!(&error, HostError::Unavailable(text) if text.contains("moved")), "{error:?}");
    lab.project.write("go", "");
    wait_until_retrying(&mut events, &session, "moved").await;
    std::fs::rename(&away, &folder).unwrap();
    let answer = soon("the answer", answer).await.unwrap().unwrap();
    check(&lab, &session, answer, &mut events).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn text_outlasts_a_lock() {
    let lab = self::lab(quick());
    let session = lab.session().await;
    let mut events = lab.recorder().await;
    let answer = send(&lab, &session, json!([{"chunks": 20, "hold": lab.gate("go")}]));
    events.wait_for(|body| matches!(body, EventBody::PartDelta { delta, .. } if delta.contains("w19"))).await;
    let other = lock(&lab);
    lab.project.write("go", "");
    wait_until_retrying(&mut events, &session, "locked").await;
    other.execute_batch("ROLLBACK").unwrap();
    let answer = soon("the answer", answer).await.unwrap().unwrap();
    assert!(text(&answer).starts_with("w0 ") && text(&answer).contains("w19"), "{}", text(&answer));
    events.wait_idle(&session).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abort_takes_effect_once_the_database_works_again() {
    let lab = self::lab(quick());
    let session = lab.session().await;
    let (mut events, answer) = start_command(&lab, &session).await;
    let other = lock(&lab);
    let abort = {
        let (engine, id) = (lab.engine.clone(), session.clone());
        tokio::spawn(async move { engine.abort(&id).await })
    };
    wait_until_retrying(&mut events, &session, "locked").await;
    other.execute_batch("ROLLBACK").unwrap();
    assert!(soon("the abort", abort).await.unwrap().unwrap());
    let answer = soon("the answer", answer).await.unwrap().unwrap();
    let info = answer.info.as_assistant().unwrap();
    assert!(matches!(info.error, Some(api::MessageError::MessageAbortedError(_))), "{info:?}");
    events.wait_idle(&session).await;
    assert!(lab.engine.store().inbox(&session).unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abandoned_turn_is_reported_and_can_be_resumed() {
    let lab = self::lab(store::Options { write_retry_timeout: Duration::from_millis(600), ..quick() });
    let session = lab.session().await;
    let (mut events, answer) = start_command(&lab, &session).await;
    let other = lock(&lab);
    lab.project.write("go", "");
    wait_until_retrying(&mut events, &session, "locked").await;
    let error = soon("the end", answer).await.unwrap().unwrap_err();
    assert!(matches!(&error, HostError::Unavailable(text) if text.contains("locked")), "{error:?}");
    let told = |body: &EventBody| match body {
        EventBody::SessionError { session_id: Some(id), error: Some(error) } => {
            *id == session && format!("{error:?}").contains("locked")
        }
        _ => false,
    };
    events.wait_for(told).await;
    events.wait_for(|body| status_of(body, &session) == Some(&SessionStatus::Idle)).await;
    events.wait_idle(&session).await;
    assert!(lab.engine.statuses(&lab.scope).await.unwrap().is_empty(), "nothing runs");
    assert_eq!(lab.engine.store().inbox(&session).unwrap().len(), 1, "the prompt is kept");

    other.execute_batch("ROLLBACK").unwrap();
    let next = send(&lab, &session, json!([{"text": "Went on.", "after": lab.gate("next")}]));
    let began = |body: &EventBody| matches!(body, EventBody::MessageUpdated { info, .. } if is_new(info));
    events.wait_for(|body| status_of(body, &session) == Some(&SessionStatus::Busy)).await;
    events.wait_for(began).await;
    let inbox = lab.engine.store().inbox(&session).unwrap();
    assert_eq!(inbox.iter().map(|row| row.attempts).collect::<Vec<_>>(), [0, 0], "nothing crashed");
    lab.project.write("next", "");
    assert_eq!(text(&soon("the answer", next).await.unwrap().unwrap()), "Went on.");
    let tools = lab.tools(&session).await;
    let ToolState::Error(lost) = &tools[0].state else { panic!("{:?}", tools[0].state) };
    assert!(lost.error.contains("interrupted"), "its outcome was only in memory: {}", lost.error);
    assert_eq!(lab.project.read("effects"), "ran\n", "and it is not run again");
    assert!(lab.engine.store().inbox(&session).unwrap().is_empty());
    events.wait_idle(&session).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abandoned_turn_resumes_without_another_prompt() {
    let lab = self::lab(store::Options { write_retry_timeout: Duration::from_millis(100), ..quick() });
    let session = lab.session().await;
    let mut events = lab.recorder().await;
    let answer = send(&lab, &session, json!([{"text": "Late.", "after": lab.gate("go")}]));
    events.wait_for(|body| matches!(body, EventBody::MessageUpdated { info, .. } if is_new(info))).await;
    let other = lock(&lab);
    lab.project.write("go", "");
    soon("the end", answer).await.unwrap().unwrap_err();
    other.execute_batch("ROLLBACK").unwrap();
    events.wait_idle(&session).await;
    assert_eq!(lab.engine.recover(None).await.unwrap(), 1);
    events.wait_idle(&session).await;
    let last = lab.messages(&session).await.pop().unwrap();
    let finish = last.info.as_assistant().and_then(|answer| answer.finish.clone());
    assert_eq!(finish.as_deref(), Some("stop"), "it was finished: {last:?}");
    assert!(lab.engine.store().inbox(&session).unwrap().is_empty());
}

/// An answer that has just begun.
fn is_new(info: &Message) -> bool {
    info.as_assistant().is_some_and(|answer| answer.time.completed.is_none())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subagent_and_its_caller_outlast_a_lock() {
    let lab = self::lab(quick());
    let session = lab.session().await;
    let mut events = lab.recorder().await;
    let task = json!({"description": "d", "prompt": script(command(&lab)), "subagent_type": "general"});
    let answer = send(&lab, &session, json!([{"tools": [["task", task]]}, {"text": "All done."}]));
    let began = events.wait_for(|body| call(body).is_some_and(|tool| tool.tool == "bash")).await;
    let child = began.body.session_id().unwrap().clone();
    let other = lock(&lab);
    lab.project.write("go", "");
    wait_until_retrying(&mut events, &child, "locked").await;
    other.execute_batch("ROLLBACK").unwrap();
    let answer = soon("the answer", answer).await.unwrap().unwrap();
    assert_eq!(text(&answer), "All done.");
    for id in [&session, &child] {
        let tools = lab.tools(id).await;
        assert!(matches!(tools[0].state, ToolState::Completed(_)), "{:?}", tools[0].state);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_to_an_ask_is_refused_or_counts() {
    let lab = Lab::on_store(json!({"permission": {"bash": "ask"}}), quick());
    let session = lab.session().await;
    let mut events = lab.recorder().await;
    let answer =
        send(&lab, &session, json!([{"tools": [["bash", {"command": "echo ran >> effects"}]]}, {"text": "ok"}]));
    let asked = events.wait_for(|body| matches!(body, EventBody::PermissionAsked(_))).await;
    let EventBody::PermissionAsked(ask) = &asked.body else { unreachable!() };
    let other = lock(&lab);
    let reply = || api::PermissionReply { reply: api::PermissionReplyKind::Once, message: None };
    let error = lab.engine.reply_permission(&ask.id, reply()).await.unwrap_err();
    assert!(matches!(&error, HostError::Unavailable(text) if text.contains("locked")), "{error:?}");
    other.execute_batch("ROLLBACK").unwrap();
    lab.engine.reply_permission(&ask.id, reply()).await.unwrap();
    assert_eq!(text(&soon("the answer", answer).await.unwrap().unwrap()), "ok");
    assert_eq!(lab.project.read("effects"), "ran\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_turn_resumes_once_its_database_is_free() {
    let mut lab = self::lab(quick());
    let session = lab.session().await;
    let mut events = lab.recorder().await;
    drop(send(&lab, &session, json!([{"text": "late", "after": lab.gate("go")}])));
    events.wait_for(|body| matches!(body, EventBody::MessageUpdated { info, .. } if is_new(info))).await;
    soon("the engine's end", lab.engine.shutdown()).await;
    lab.engine = open_on(&lab.project, quick(), HashMap::new());
    lab.project.write("go", "");
    let other = lock(&lab);
    assert_eq!(lab.engine.recover(None).await.unwrap(), 1);
    // It tries to acquire its session, and retries.
    let engine = lab.engine.clone();
    for (what, waits) in [("a try", true), ("its end", false), ("another try", true)] {
        eventually(what, async || (engine.queued_writes() > 0) == waits).await;
    }
    other.execute_batch("ROLLBACK").unwrap();
    eventually("the answer", async || {
        let last = lab.messages(&session).await.pop().unwrap();
        text(&last).contains("late") && lab.engine.store().inbox(&session).unwrap().is_empty()
    })
    .await;
}
