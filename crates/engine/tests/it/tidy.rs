//! Unneeded data is removed: rows, events and files of deleted sessions, old outputs, expired sessions.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::common::{Lab, prompt, script};
use api::{EventBody, Host, PromptInput, SessionId};
use config::Dirs;
use serde_json::json;
use store::{Batch, CompactOutcome, Location};
use testkit::TempProject;
use trefoil_engine::{Engine, TidyOptions, TidyReport};

const MARK: &str = "swordfish-4711";
const DAY: u64 = 24 * 60 * 60;
const THOROUGH: TidyOptions = TidyOptions { dry_run: false, thorough: true };

fn dirs(project: &TempProject) -> Dirs {
    Dirs::from_env(&project.env().into_iter().collect(), &project.home())
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.path().is_dir() {
            true => found.extend(files(&entry.path())),
            false => found.push(entry.path()),
        }
    }
    found
}

/// The files below the data directory that contain the marker.
fn marked_files(project: &TempProject) -> Vec<PathBuf> {
    let holds = |path: &PathBuf| {
        let bytes = fs::read(path).unwrap_or_default();
        bytes.windows(MARK.len()).any(|window| window == MARK.as_bytes())
    };
    files(&dirs(project).data).into_iter().filter(holds).collect()
}

/// A command whose output is too long for the model.
fn loud_command() -> serde_json::Value {
    let command = format!("for i in $(seq 3000); do echo {MARK} $i; done");
    json!([{"tools": [["bash", {"command": command, "description": "print"}]]}, {"text": MARK}])
}

fn outputs(lab: &Lab) -> PathBuf {
    Engine::outputs(&dirs(&lab.project))
}

fn set_age(path: &Path, days: u64) {
    let then = SystemTime::now() - Duration::from_secs(days * DAY + 60);
    fs::File::options().write(true).open(path).unwrap().set_modified(then).unwrap();
}

#[tokio::test]
async fn a_deleted_session_and_its_subagents_leave_nothing_on_the_disk() {
    let lab = Lab::new();
    let session = lab.session().await;
    let task = json!({"description": MARK, "prompt": script(loud_command()), "subagent_type": "general"});
    let steps = json!([{"tools": [["task", task]]}, {"text": "after"}]);
    lab.say(&session, &script(steps)).await;
    lab.say(&session, &script(loud_command())).await;
    let stays = lab.session().await;
    lab.say(&stays, "hello").await;
    let child = lab.engine.children(&session).await.unwrap().swap_remove(0).id;
    for id in [&session, &child] {
        assert_eq!(files(&outputs(&lab).join(id.as_str())).len(), 1, "one long output each");
    }
    assert!(marked_files(&lab.project).len() >= 3);

    lab.engine.delete_session(&session).await.unwrap();
    assert!(files(&outputs(&lab)).is_empty(), "outputs are left");
    assert!(lab.engine.store().unswept_sessions().unwrap().is_empty());
    assert_eq!(lab.engine.store().compact().await.unwrap(), CompactOutcome::Rewritten);
    assert_eq!(marked_files(&lab.project), Vec::<PathBuf>::new());
    assert_eq!(lab.engine.tidy(THOROUGH).await.unwrap(), TidyReport::default(), "there is nothing more to do");
    assert_eq!(lab.messages(&stays).await.len(), 2, "other sessions keep theirs");
}

#[tokio::test]
async fn the_model_may_read_a_truncated_output() {
    let lab = Lab::new();
    let session = lab.session().await;
    lab.say(&session, &script(loud_command())).await;
    let path = files(&outputs(&lab)).swap_remove(0);
    let steps = json!([{"tools": [["read", {"filePath": path, "offset": 2990}]]}, {"text": "after"}]);
    lab.say(&session, &script(steps)).await;
    let api::ToolState::Completed(done) = &lab.tools(&session).await[1].state else { panic!() };
    assert!(done.output.contains(&format!("{MARK} 3000")), "{}", done.output);
}

#[tokio::test]
async fn a_deletion_event_reveals_no_content() {
    let lab = Lab::new();
    let session = lab.session().await;
    let rename = api::UpdateSession { title: Some(MARK.to_owned()), ..api::UpdateSession::default() };
    lab.engine.update_session(&session, rename).await.unwrap();
    let mut events = lab.recorder().await;
    lab.engine.delete_session(&session).await.unwrap();
    let event = events.wait_for(|body| matches!(body, EventBody::SessionDeleted { .. })).await;
    let EventBody::SessionDeleted { session_id, info } = &event.body else { unreachable!() };
    assert_eq!((session_id, &info.id, info.title.as_str()), (&session, &session, ""));
    assert_eq!(info.directory, lab.scope.directory);
}

#[tokio::test]
async fn an_interrupted_deletion_is_finished_later() {
    let mut lab = Lab::new();
    let session = lab.session().await;
    lab.say(&session, &script(loud_command())).await;
    // As if the process had died right after deleting the session.
    let mut batch = Batch::new(&Location::new("", ""));
    batch.delete_session(&session);
    lab.engine.store().commit(batch).await.unwrap();
    lab.restart().await;
    assert_eq!(files(&outputs(&lab)).len(), 1);
    let counted = lab.engine.tidy(TidyOptions { dry_run: true, thorough: false }).await.unwrap();
    assert_eq!(counted.leftovers, 1);
    assert_eq!(files(&outputs(&lab)).len(), 1, "it was only counted");
    assert_eq!(lab.engine.tidy(TidyOptions::default()).await.unwrap().leftovers, 1);
    assert!(files(&outputs(&lab)).is_empty());
    lab.engine.store().compact().await.unwrap();
    assert_eq!(marked_files(&lab.project), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn old_and_unreferenced_outputs_are_removed() {
    let lab = Lab::new();
    let session = lab.session().await;
    lab.say(&session, &script(loud_command())).await;
    let folder = outputs(&lab);
    let own = files(&folder).swap_remove(0);
    let put = |name: &str, days| {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "output").unwrap();
        set_age(&path, days);
        path
    };
    let id = session.as_str();
    let stays = [
        put("tool_fresh0of0an0older0version", 29),
        put(&format!("{id}/tool_being0written"), 0),
        put("ses_of_another_database/tool_x", 29),
        put("notes.txt", 400),
    ];
    set_age(&own, 29);
    let lost = put(&format!("{id}/tool_without0part"), 2);
    let old = [put("tool_old", 31), put("ses_of_another_database/tool_y", 31), put(&format!("{id}/tool_old"), 31)];

    let counted = lab.engine.tidy(TidyOptions { dry_run: true, thorough: true }).await.unwrap();
    assert_eq!((counted.outputs, counted.output_bytes), (4, 24));
    assert_eq!(lab.engine.tidy(TidyOptions::default()).await.unwrap().outputs, 3);
    assert!(old.iter().all(|path| !path.exists()) && lost.exists());
    assert_eq!(lab.engine.tidy(THOROUGH).await.unwrap().outputs, 1);
    assert!(!lost.exists());
    for path in stays.iter().chain([&own]) {
        assert!(path.exists(), "{}", path.display());
    }
    // For a running session only old files are removed: a call may be about to refer to the others.
    let lost = put(&format!("{id}/tool_without0part"), 2);
    let gate = lab.gate("go");
    let mut events = lab.recorder().await;
    let held = script(json!([{"chunks": 2, "hold": gate}]));
    lab.engine.prompt_async(&session, prompt(&held)).await.unwrap();
    events.wait_for(|body| matches!(body, EventBody::PartDelta { .. })).await;
    assert_eq!(lab.engine.tidy(THOROUGH).await.unwrap().outputs, 0);
    assert!(lost.exists());
    fs::write(&gate, "").unwrap();
    events.wait_idle(&session).await;
    set_age(&own, 31);
    assert_eq!(lab.engine.tidy(TidyOptions::default()).await.unwrap().outputs, 1);
    assert!(!own.exists(), "past the maximum age it is removed, even if something refers to it");
}

/// A session last used this many days ago.
async fn aged_session(lab: &Lab, days: i64) -> SessionId {
    api::shift_clock(-days * DAY as i64 * 1000);
    let session = lab.session().await;
    lab.say(&session, "hello").await;
    api::shift_clock(0);
    session
}

#[tokio::test]
async fn expired_sessions_are_removed_unless_active() {
    // The ask is nine days old when the clock is set back, and must not expire.
    let ask = json!({"timeout": 100 * DAY});
    let lab = Lab::with(json!({"permission": {"bash": "ask"}, "ask": ask, "session": {"max_age_days": 7}}));
    let (old, young) = (aged_session(&lab, 8).await, aged_session(&lab, 6).await);
    // One that waits for a reply, one with a prompt that nobody runs, and one with a younger subagent.
    let asks = aged_session(&lab, 9).await;
    let mut events = lab.recorder().await;
    api::shift_clock(-9 * DAY as i64 * 1000);
    let steps = json!([{"tools": [["bash", {"command": "echo x", "description": "say"}]]}, {"text": "after"}]);
    lab.engine.prompt_async(&asks, prompt(&script(steps))).await.unwrap();
    let asked = events.wait_for(|body| matches!(body, EventBody::PermissionAsked(_))).await;
    api::shift_clock(0);
    let waits = aged_session(&lab, 10).await;
    let note = PromptInput { no_reply: true, ..prompt("note") };
    api::shift_clock(-10 * DAY as i64 * 1000);
    let note = lab.engine.prompt(&waits, note).await.unwrap();
    api::shift_clock(0);
    let mut batch = Batch::new(&Location::new("", ""));
    batch.enqueue(&waits, note.info.id());
    lab.engine.store().commit(batch).await.unwrap();
    let parent = aged_session(&lab, 11).await;
    let child = api::CreateSession { parent_id: Some(parent.clone()), ..api::CreateSession::default() };
    lab.engine.create_session(&lab.scope, child).await.unwrap();

    let counted = lab.engine.tidy(TidyOptions { dry_run: true, thorough: false }).await.unwrap();
    assert_eq!(counted.sessions, std::slice::from_ref(&old));
    assert!(lab.engine.session(&old).await.is_ok(), "it was only counted");
    assert_eq!(lab.engine.tidy(TidyOptions::default()).await.unwrap().sessions, std::slice::from_ref(&old));
    assert!(lab.engine.session(&old).await.is_err());
    for session in [&young, &asks, &waits, &parent] {
        lab.engine.session(session).await.unwrap();
    }
    let EventBody::PermissionAsked(ask) = &asked.body else { unreachable!() };
    let reply = api::PermissionReply { reply: api::PermissionReplyKind::Once, message: None };
    lab.engine.reply_permission(&ask.id, reply).await.unwrap();
    events.wait_idle(&asks).await;
}

#[tokio::test]
async fn no_session_expires_unless_the_user_configures_it() {
    let lab = Lab::new();
    // A repository, even a trusted one, does not decide about other sessions.
    lab.project.write("trefoil.json", r#"{"session": {"max_age_days": 1}}"#);
    let old = aged_session(&lab, 4000).await;
    assert_eq!(lab.engine.tidy(THOROUGH).await.unwrap(), TidyReport::default());
    lab.engine.session(&old).await.unwrap();
}
