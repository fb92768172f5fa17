//! Random interleavings on the real engine: it runs on one thread, and every write to the journal yields to others as
//! often as a seeded generator says. So each seed is another interleaving of prompts, steps, aborts, reports and
//! callers that hang up, and replays the same way. No watchdog runs: nothing may need one.
//!
//! `TREFOIL_SEED=n` runs a single seed, `TREFOIL_SEEDS=n` that many.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::{Host, HostError, MessageId, MessageWithParts, PromptInput, Scope, SessionId, SteerInput};
use fastrand::Rng;
use futures::future::{LocalBoxFuture, join_all};
use serde_json::json;
use store::{Options, Store, WriteSchedule};
use testkit::TempProject;

use crate::common::family::{background, task};
use crate::common::{Lab, open_store, prompt, script};

/// How many seeds are run.
const SEEDS: u64 = 150;
/// The maximum number of yields in one place.
const STEPS: u32 = 12;
/// Nothing here waits for a clock, so anything that waits this long waits forever.
const STUCK: Duration = Duration::from_secs(60);

/// The generator of the current seed; the journal's schedule uses it as well.
type Dice = Arc<Mutex<Rng>>;

fn roll(dice: &Dice, below: u32) -> u32 {
    dice.lock().unwrap().u32(0..below)
}

async fn wait_a_little(dice: &Dice) {
    for _ in 0..roll(dice, 6 * STEPS) {
        tokio::task::yield_now().await;
    }
}

/// An action on a session.
#[derive(Debug, Clone, Copy)]
enum Action {
    /// Prompts and waits for the answer.
    Ask,
    /// The same, but hangs up at some point.
    AskAndLeave,
    /// Prompts without waiting.
    Send,
    /// The same, but hangs up before learning that the prompt was accepted.
    SendAndLeave,
    /// A message that wants no answer.
    Note,
    /// Starts a subagent in the background, whose report comes later.
    Delegate,
    /// Starts a subagent and waits for it.
    DelegateAndWait,
    Steer,
    Abort,
    Cancel,
    PauseAndResume,
}

const ACTIONS: [Action; 11] = [
    Action::Ask,
    Action::AskAndLeave,
    Action::Send,
    Action::SendAndLeave,
    Action::Note,
    Action::Delegate,
    Action::DelegateAndWait,
    Action::Steer,
    Action::Abort,
    Action::Cancel,
    Action::PauseAndResume,
];

/// The observations of one seed.
#[derive(Default)]
struct Observations {
    /// Prompts that were certainly accepted.
    accepted: Vec<MessageId>,
    answers: Vec<(MessageId, MessageWithParts)>,
}

struct Play<'a> {
    lab: &'a Lab,
    dice: Dice,
    session: SessionId,
    seen: RefCell<Observations>,
}

impl Play<'_> {
    fn host(&self) -> &dyn Host {
        &self.lab.engine
    }

    fn input(&self, action: Action) -> PromptInput {
        let say = json!([{"text": "said"}]);
        let text = match action {
            Action::Delegate => script(json!([{"tools": [background("b", say)]}, {"text": "delegated"}])),
            Action::DelegateAndWait => script(json!([{"tools": [task("t", "general", say)]}, {"text": "employed"}])),
            _ if roll(&self.dice, 3) == 0 => {
                script(json!([{"tools": [["todowrite", {"todos": []}]]}, {"text": "done"}]))
            }
            _ => "Hello".to_owned(),
        };
        PromptInput { message_id: Some(MessageId::new()), no_reply: matches!(action, Action::Note), ..prompt(&text) }
    }

    /// Runs a future for a while only.
    async fn or_leave<T>(&self, doing: impl Future<Output = T>) {
        tokio::select! {
            biased;
            () = wait_a_little(&self.dice) => {}
            _ = doing => {}
        }
    }

    async fn act(&self, action: Action) {
        wait_a_little(&self.dice).await;
        let host = self.host();
        let id = &self.session;
        let input = self.input(action);
        let prompt = input.message_id.clone().unwrap();
        match action {
            Action::Ask | Action::Delegate | Action::DelegateAndWait => {
                let answer = host.prompt(id, input).await.unwrap();
                self.seen.borrow_mut().answers.push((prompt.clone(), answer));
                self.seen.borrow_mut().accepted.push(prompt);
            }
            Action::AskAndLeave => self.or_leave(host.prompt(id, input)).await,
            Action::Send => {
                host.prompt_async(id, input).await.unwrap();
                self.seen.borrow_mut().accepted.push(prompt);
            }
            Action::SendAndLeave => self.or_leave(host.prompt_async(id, input)).await,
            Action::Note => drop(host.prompt_async(id, input).await.unwrap()),
            Action::Steer => {
                let message = SteerInput { text: Some("steer".to_owned()), ..SteerInput::default() };
                match host.steer(id, message).await {
                    Ok(message) => self.seen.borrow_mut().accepted.push(message),
                    Err(HostError::Conflict(_)) => {}
                    Err(error) => panic!("steer: {error}"),
                }
            }
            Action::Abort => drop(host.abort(id).await.unwrap()),
            Action::Cancel => drop(host.cancel(id).await.unwrap()),
            Action::PauseAndResume => {
                host.pause(id, true).await.unwrap();
                wait_a_little(&self.dice).await;
                host.pause(id, false).await.unwrap();
            }
        }
    }

    /// Waits until there is nothing left to do.
    async fn settle(&self, store: &Store) {
        while self.lab.engine.running() > 0 || !store.unfinished_sessions().unwrap().is_empty() || tasks_left(store) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn check(&self, store: &Store) {
        let messages = self.lab.messages(&self.session).await;
        let place = |id: &MessageId| messages.iter().position(|message| message.info.id() == id);
        for message in messages.iter().filter_map(|message| message.info.as_assistant()) {
            assert!(message.time.completed.is_some(), "an answer was never completed: {message:#?}");
        }
        let seen = self.seen.borrow();
        for prompt in &seen.accepted {
            assert!(place(prompt).is_some(), "the accepted prompt {prompt} is gone");
        }
        for (prompt, answer) in &seen.answers {
            let info = answer.info.as_assistant().unwrap_or_else(|| panic!("{prompt} got no answer: {answer:#?}"));
            assert!(info.time.completed.is_some(), "{prompt} got an unfinished answer: {answer:#?}");
            assert!(info.finish.is_some() || info.error.is_some(), "{prompt} got half an answer: {answer:#?}");
            assert!(place(&info.id) > place(prompt), "{prompt} got an older answer: {answer:#?}");
        }
        assert_eq!(store.statuses().unwrap(), Vec::new(), "a session is busy without work");
    }
}

fn tasks_left(store: &Store) -> bool {
    !store.all_tasks().unwrap().is_empty()
}

async fn play(lab: &Lab, store: &Store, dice: &Dice) -> Vec<Action> {
    let session = lab.session().await;
    let play = Play { lab, dice: dice.clone(), session, seen: RefCell::default() };
    let actions: Vec<Action> =
        (0..2 + roll(dice, 4)).map(|_| ACTIONS[roll(dice, ACTIONS.len() as u32) as usize]).collect();
    let acting: Vec<LocalBoxFuture<'_, ()>> =
        actions.iter().map(|action| Box::pin(play.act(*action)) as LocalBoxFuture<'_, ()>).collect();
    let whole = async {
        join_all(acting).await;
        play.settle(store).await;
    };
    if tokio::time::timeout(STUCK, whole).await.is_err() {
        let waiting = store.inbox(&play.session).unwrap();
        let messages = lab.messages(&play.session).await;
        panic!(
            "stuck after {actions:?}: {} turns run, {waiting:?} wait, {:?} have to go on, status {:?}; there is {messages:#?}",
            lab.engine.running(),
            store.unfinished_sessions().unwrap(),
            store.statuses().unwrap(),
        );
    }
    play.check(store).await;
    actions
}

/// A folder in memory, if possible: only the interleavings matter here, not the disk.
fn fast_folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn every_accepted_prompt_ends_in_every_interleaving() {
    let seeds = match number("TREFOIL_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("TREFOIL_SEEDS").unwrap_or(SEEDS),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let folder = fast_folder();
    runtime.block_on(async {
        let dice: Dice = Arc::new(Mutex::new(Rng::with_seed(0)));
        let drawn = dice.clone();
        let schedule = WriteSchedule(Arc::new(move || roll(&drawn, STEPS)));
        let options = Options { schedule: Some(schedule), ..Options::default() };
        let store = Store::open_with(&folder.path().join("t.db"), options).unwrap();
        let project = TempProject::new();
        let engine = open_store(&project, store.clone(), HashMap::new());
        let scope = Scope::new(project.directory());
        let lab = Lab { project, engine, scope };
        for seed in seeds {
            *dice.lock().unwrap() = Rng::with_seed(seed);
            eprintln!("TREFOIL_SEED={seed}");
            let actions = play(&lab, &store, &dice).await;
            eprintln!("{actions:?}");
        }
        lab.engine.shutdown().await;
    });
}
