//! `kill -9` of the A2A service after every commit of a task, and while a hundred tasks run. A client that was promised a task finds
//! it after the restart, each task ends once, and no prompt is sent twice: `a2a/facts.rs` checks that.

mod facts;
mod fixture;

use std::collections::BTreeMap;
use std::sync::Mutex;

use a2a::TaskState;
use serde_json::{Value, json};
use testkit::until;

use super::{Moment, each_commit};
use crate::e2e::a2a::process::new_message;
use facts::{Stored, StoredTask};
use fixture::{Killed, Lab, Service, Told, Webhook, is_over, reply, state};

/// What a client says and hears, over all lives of the service.
struct Play {
    lab: Lab,
    hook: Option<Webhook>,
    /// The messages that were sent, by their ids, and the tasks that were promised for them.
    sent: BTreeMap<String, (Value, Option<String>)>,
    /// What was stored when the service was killed.
    killed: Option<Stored>,
}

/// What a client does. It begins anew after a restart, with the same messages.
type Talk = fn(&mut Play, &Service) -> Told<()>;

impl Play {
    fn new(config: Value) -> Self {
        Self { lab: Lab::new(config), hook: None, sent: BTreeMap::new(), killed: None }
    }

    /// Sends a message. Sent again, it has to give the same task.
    fn send_with(&mut self, service: &Service, message: &Value, configuration: Value) -> Told {
        let id = message["messageId"].as_str().unwrap();
        let (_, promised) = self.sent.entry(id.to_owned()).or_insert_with(|| (message.clone(), None));
        let task = service.send_with(message, configuration)?;
        let task_id = task["id"].as_str().unwrap();
        assert_eq!(promised.get_or_insert_with(|| task_id.to_owned()), task_id, "{id} has become another task");
        Ok(task)
    }

    fn send(&mut self, service: &Service, message: &Value) -> Told {
        self.send_with(service, message, json!({}))
    }

    fn begin(&mut self, service: &Service, message: &Value) -> Told {
        self.send_with(service, message, json!({ "returnImmediately": true }))
    }

    /// Plays it to the end, where nobody kills the service.
    fn finish(&mut self, talk: Talk) {
        let service = self.lab.start_undisturbed();
        let listed = service.list().unwrap_or_else(|Killed| panic!("nobody kills it"));
        for id in self.sent.values().filter_map(|(_, promised)| promised.as_deref()) {
            assert!(listed.iter().any(|task| task["id"] == id), "task {id} was promised, and is gone");
        }
        talk(self, &service).unwrap_or_else(|Killed| panic!("nobody kills it"));
        for (message, promised) in self.sent.clone().into_values() {
            let again = service.begin(&message).unwrap_or_else(|Killed| panic!("nobody kills it"));
            let promised = promised.as_deref().or(message["taskId"].as_str());
            assert_eq!(again["id"].as_str(), promised, "a message that is sent again is the same task");
            assert!(is_over(&again), "{again:#}");
        }
        assert!(!service.stop(), "nobody kills it");
    }
}

/// Kills the service after each commit while a client talks to it. `again` also kills it once while it recovers. Returns what was
/// stored after the first kills.
fn sweep(make: fn() -> Play, talk: Talk, again: bool, check: fn(&Play, &Stored)) -> Vec<Stored> {
    let kills = Mutex::new(Vec::new());
    each_commit(|number| {
        let mut play = make();
        let was_killed = live(&mut play, talk, number);
        if was_killed {
            play.killed = Some(check_killed(&play));
            kills.lock().unwrap().push(Stored::read(&play.lab));
            if again {
                let number = number % 13 + 1;
                let _moment = Moment(format!("then killed after commit {number}"));
                live(&mut play, talk, number);
                play.killed = Some(check_killed(&play));
            }
            play.finish(talk);
        }
        let stored = Stored::read(&play.lab);
        stored.check_settled(play.tasks());
        check(&play, &stored);
        was_killed
    });
    kills.into_inner().unwrap()
}

/// One life of the service. Returns whether it was killed.
fn live(play: &mut Play, talk: Talk, crash_after: u64) -> bool {
    let Ok(service) = play.lab.start(Some(crash_after)) else { return true };
    match talk(play, &service) {
        Ok(()) => service.stop(),
        Err(Killed) => {
            assert!(service.was_killed(), "it hangs up without being killed");
            true
        }
    }
}

/// What holds right after a kill: promised tasks are there, and no prompt went out before the row of its task.
fn check_killed(play: &Play) -> Stored {
    let stored = Stored::read(&play.lab);
    for id in play.sent.values().filter_map(|(_, promised)| promised.as_deref()) {
        stored.task(id);
    }
    for session in stored.sessions.iter().filter(|session| !session.messages.is_empty()) {
        let has_row = stored.tasks.iter().any(|task| task.row.session_id.as_ref() == Some(&session.id));
        assert!(has_row, "a prompt went out before its task was stored: {:#?}", session.messages);
    }
    stored
}

impl Play {
    /// How many tasks its messages begin.
    fn tasks(&self) -> usize {
        self.sent.values().filter(|(message, _)| message["taskId"].is_null()).count()
    }
}

/// A message whose answer is scripted.
fn script(id: &str, steps: &Value) -> Value {
    new_message(id, &format!("SCRIPT:{steps}"))
}

fn with_a_tool(play: &Play) -> Value {
    script("m-1", &json!([{ "text": "Looking. ", "tools": [play.lab.effect()] }, { "text": "Finished." }]))
}

fn check_completed(play: &Play, stored: &Stored) {
    let states: Vec<TaskState> = stored.tasks.iter().map(|task| task.row.state()).collect();
    assert!(states.iter().all(|state| *state == TaskState::Completed), "{states:?}");
    assert!(play.lab.effects() <= 1, "the command ran twice");
}

#[test]
fn a_task_survives_a_kill_at_every_commit() {
    let talk: Talk = |play, service| {
        let message = with_a_tool(play);
        let task = play.send(service, &message)?;
        assert_eq!(state(&task), "TASK_STATE_COMPLETED", "{task:#}");
        assert!(task["artifacts"].to_string().contains("Finished."), "{task:#}");
        Ok(())
    };
    let kills = sweep(|| Play::new(json!({})), talk, false, check_completed);
    // The sweep means something only if it hit the moments that matter.
    assert!(kills.iter().any(|killed| killed.tasks.is_empty()), "before the task");
    let is_new = |killed: &Stored| killed.tasks.iter().any(|task| task.events.is_empty());
    assert!(kills.iter().any(is_new), "right after its row");
    let answers = |killed: &Stored| killed.sessions.iter().any(|session| session.messages.len() > 1);
    let runs = |killed: &Stored| killed.tasks.iter().any(|task| !task.row.state().is_terminal());
    assert!(kills.iter().any(|killed| answers(killed) && runs(killed)), "in the turn");
}

#[test]
fn a_task_survives_a_second_kill_while_it_recovers() {
    let talk: Talk = |play, service| {
        let message = with_a_tool(play);
        let task = play.send(service, &message)?;
        assert!(is_over(&task), "{task:#}");
        Ok(())
    };
    sweep(
        || Play::new(json!({})),
        talk,
        true,
        |play, stored| {
            // The engine gives a prompt up that it crashes on.
            let state = stored.tasks[0].row.state();
            assert!([TaskState::Completed, TaskState::Failed].contains(&state), "{state:?}");
            assert!(play.lab.effects() <= 1, "the command ran twice");
        },
    );
}

#[test]
fn a_request_that_is_answered_by_text_survives_a_kill_at_every_commit() {
    let talk: Talk = |play, service| {
        let message = with_a_tool(play);
        let mut task = play.send(service, &message)?;
        for answer in 2..5 {
            if is_over(&task) {
                break;
            }
            assert_eq!(state(&task), "TASK_STATE_INPUT_REQUIRED", "{task:#}");
            task = play.send(service, &reply(&format!("m-{answer}"), "once", &task))?;
        }
        assert_eq!(state(&task), "TASK_STATE_COMPLETED", "{task:#}");
        Ok(())
    };
    let make = || Play::new(json!({ "permission": { "bash": "ask" } }));
    let kills = sweep(make, talk, false, |play, stored| {
        check_completed(play, stored);
        if play.killed.as_ref().is_none_or(|killed| killed.asks > 0) {
            assert_eq!(play.lab.effects(), 1, "it was allowed");
        }
    });
    let waits = |task: &StoredTask| task.row.state() == TaskState::InputRequired;
    let hit = |asks: usize| kills.iter().any(|killed| killed.asks == asks && killed.tasks.iter().any(waits));
    assert!(hit(1), "while it waits for the answer");
    assert!(hit(0), "when the engine knows the answer and the task does not");
}

#[test]
fn a_cancellation_survives_a_kill_at_every_commit() {
    let talk: Talk = |play, service| {
        let was_marked = play.killed.as_ref().and_then(|killed| killed.tasks.first()).is_some_and(|task| {
            let state = task.row.state();
            assert!(!state.is_terminal() || state == TaskState::Canceled, "{state:?}");
            task.is_marked || state.is_terminal()
        });
        if was_marked {
            // A turn that went on would complete now.
            play.lab.open_gate();
        }
        let message = script("m-1", &json!([{ "text": "Hm ", "hold": play.lab.gate() }]));
        let task = play.begin(service, &message)?;
        let id = &task["id"];
        let ended = match was_marked {
            true => service.wait(id, "the end of the cancelled task", is_over)?,
            false => {
                service.wait(id, "the text of the turn", |task| task["artifacts"].to_string().contains("Hm"))?;
                service.call("CancelTask", json!({ "id": id }))?
            }
        };
        assert_eq!(state(&ended), "TASK_STATE_CANCELED", "{ended:#}");
        Ok(())
    };
    let kills = sweep(
        || Play::new(json!({})),
        talk,
        false,
        |_, stored| {
            assert_eq!(stored.tasks[0].row.state(), TaskState::Canceled);
            let messages = stored.sessions.iter().flat_map(|session| &session.messages);
            for answer in messages.filter_map(|message| message.info.as_assistant()) {
                assert_ne!(answer.finish.as_deref(), Some("stop"), "the cancelled turn went on: {answer:#?}");
            }
        },
    );
    let was_busy = |killed: &Stored| killed.sessions.iter().any(|session| session.is_busy);
    let is_marked = |killed: &Stored| killed.tasks.iter().any(|task| task.is_marked);
    assert!(kills.iter().any(|killed| is_marked(killed) && was_busy(killed)), "marked, and not stopped");
    assert!(kills.iter().any(|killed| is_marked(killed) && !was_busy(killed)), "stopped, and its end not stored");
}

#[test]
fn notifications_survive_a_kill_at_every_commit() {
    let make = || Play { hook: Some(Webhook::start()), ..Play::new(json!({})) };
    let talk: Talk = |play, service| {
        let message = with_a_tool(play);
        let hook = play.hook.clone().unwrap();
        let task = play.send_with(service, &message, hook.config())?;
        assert_eq!(state(&task), "TASK_STATE_COMPLETED", "{task:#}");
        let mut is_alive = true;
        until("the notification of the end", || {
            is_alive = service.get(&task["id"]).is_ok();
            !is_alive || hook.is_over()
        });
        if is_alive { Ok(()) } else { Err(Killed) }
    };
    sweep(make, talk, false, |play, stored| {
        check_completed(play, stored);
        let (hook, last) = (play.hook.as_ref().unwrap(), stored.tasks[0].row.last_seq);
        let numbers = hook.numbers();
        let mut highest = 0;
        for number in &numbers {
            assert!(*number <= highest + 1, "an event was left out: {numbers:?}\n{:#?}", hook.bodies());
            highest = highest.max(*number);
        }
        assert_eq!(highest, last, "{numbers:?}\n{:#?}", hook.bodies());
        assert!(numbers.len() as u64 <= last + 1, "more than one event was sent twice: {numbers:?}");
    });
}

#[test]
fn tasks_that_queue_survive_a_kill_at_every_commit() {
    let talk: Talk = |play, service| {
        let steps = [json!([{ "text": "First.", "after": play.lab.gate() }]), json!([{ "text": "Second." }])];
        let messages = [script("m-1", &steps[0]), script("m-2", &steps[1])].map(|mut message| {
            message["contextId"] = "both".into();
            message
        });
        for message in &messages {
            play.begin(service, message)?;
        }
        play.lab.open_gate();
        for message in &messages {
            let task = play.send(service, message)?;
            assert_eq!(state(&task), "TASK_STATE_COMPLETED", "{task:#}");
        }
        Ok(())
    };
    sweep(
        || Play::new(json!({})),
        talk,
        false,
        |play, stored| {
            check_completed(play, stored);
            let used: Vec<_> = stored.sessions.iter().filter(|session| !session.messages.is_empty()).collect();
            let [session] = &used[..] else { panic!("one context works in one session: {}", used.len()) };
            let mut texts: Vec<String> = session.messages.iter().map(facts::text_of).collect();
            // The prompts, and an answer that was cut off before it had begun.
            texts.retain(|text| !text.is_empty() && !text.starts_with("SCRIPT"));
            let told = texts;
            assert_eq!(told, ["First.", "Second."]);
        },
    );
}

#[test]
fn a_hundred_running_tasks_survive_a_kill() {
    const TASKS: usize = 100;
    let mut play = Play::new(json!({}));
    let service = play.lab.start_undisturbed();
    let gate = play.lab.gate();
    // Some speak already, some have not begun to, and some wait for others.
    let message = |number: usize| {
        let step = match number % 2 {
            0 => json!([{ "text": format!("Task {number}."), "hold": gate }]),
            _ => json!([{ "text": format!("Task {number}."), "after": gate }]),
        };
        let mut message = script(&format!("m-{number}"), &step);
        if number.is_multiple_of(5) {
            message["contextId"] = format!("context-{}", number / 10).into();
        }
        message
    };
    let mut begun = Vec::new();
    for number in 0..TASKS {
        begun.push(play.begin(&service, &message(number)).unwrap_or_else(|Killed| panic!("nobody kills it yet")));
    }
    for (number, task) in begun.iter().enumerate().filter(|(number, _)| number.is_multiple_of(10)) {
        let says = |task: &Value| task["artifacts"].to_string().contains(&format!("Task {number}."));
        service.wait(&task["id"], "the text of a task", says).unwrap_or_else(|Killed| panic!("nobody kills it yet"));
    }
    service.kill();
    play.killed = Some(check_killed(&play));
    play.lab.open_gate();
    let talk: Talk = |play, service| {
        for (message, _) in play.sent.clone().into_values() {
            let task = play.send(service, &message)?;
            assert_eq!(state(&task), "TASK_STATE_COMPLETED", "{task:#}");
            let number = message["messageId"].as_str().unwrap().trim_start_matches("m-").to_owned();
            assert!(task["artifacts"].to_string().contains(&format!("Task {number}.")), "{task:#}");
        }
        Ok(())
    };
    play.finish(talk);
    let stored = Stored::read(&play.lab);
    stored.check_settled(TASKS);
    check_completed(&play, &stored);
}
