//! What following a turn must do on every host.

use std::sync::Arc;

use api::{
    AgentRuntime, CreateSession, Delivery, EventBody, ListTurns, MessageError, MessageId, MessageWithParts, Part,
    PromptInput, PromptPart, Scope, SessionId, TurnState,
};
use testkit::{ModelServer, Reply, TempProject, soon};
use trefoil_follow::{Answer, Feed, Item, Patience, Running, Task, TurnHandle, running};

/// More turns than a page of them has.
const QUEUED: usize = 101;

/// Runs everything on a host whose model is `model`.
pub async fn scenario(host: Arc<dyn AgentRuntime>, project: &TempProject, mut model: ModelServer) {
    model.answer_titles("A title");
    let scope = Scope::new(project.directory());
    let input = CreateSession { title: Some("Followed".to_owned()), ..CreateSession::default() };
    let session = host.create_session(&scope, input).await.unwrap().id;
    answered(&host, &scope, &session, &model).await;
    attached(&host, &scope, &session, &mut model).await;
    stopped(&host, &session, &mut model).await;
    stopped_before_it_began(&host, &scope, &session).await;
}

async fn prompt(host: &dyn AgentRuntime, session: &SessionId, text: &str) -> Task {
    let message_id = Some(host.message_id(session).await.unwrap());
    Task::Prompt(Box::new(PromptInput { parts: vec![PromptPart::text(text)], message_id, ..PromptInput::default() }))
}

fn turn(host: &Arc<dyn AgentRuntime>, session: &SessionId, task: Task) -> TurnHandle {
    TurnHandle::new(host.clone(), session.clone(), task, Patience::of(&**host))
}

fn answer_text(answer: &MessageWithParts) -> String {
    answer
        .parts
        .iter()
        .filter_map(|part| if let Part::Text(text) = part { Some(text.text.as_str()) } else { None })
        .collect()
}

fn is_aborted(answer: &Answer) -> bool {
    let answer = answer.as_ref().unwrap().as_ref().unwrap();
    let error = answer.info.as_assistant().and_then(|answer| answer.error.as_ref());
    matches!(error, Some(MessageError::MessageAbortedError(_)))
}

/// The answer comes after the event that completes it, in one task with the feed.
async fn answered(host: &Arc<dyn AgentRuntime>, scope: &Scope, session: &SessionId, model: &ModelServer) {
    model.enqueue(Reply::text("Hello ").and_text("there"));
    let patience = Patience::of(&**host);
    let mut feed = Feed::open(host.clone(), scope.clone(), session.clone(), patience).await.unwrap();
    let task = prompt(&**host, session, "Say hello").await;
    let mut turn = turn(host, session, task).delivered_by(feed.handle());
    let mut completed: Vec<MessageId> = Vec::new();
    let answer = soon("the answer", async {
        loop {
            tokio::select! {
                biased;
                item = feed.next() => match item.unwrap() {
                    Item::Event(event) => if let EventBody::MessageUpdated { info, .. } = &event.body
                        && info.as_assistant().is_some_and(|answer| answer.time.completed.is_some())
                    {
                        completed.push(info.id().clone());
                    },
                    other => panic!("{other:?}"),
                },
                answer = turn.answer() => break answer.unwrap().unwrap(),
            }
        }
    })
    .await;
    assert_eq!(answer_text(&answer), "Hello there");
    assert!(completed.contains(answer.info.id()), "{completed:?}");
}

/// A turn that somebody else began.
async fn attached(host: &Arc<dyn AgentRuntime>, scope: &Scope, session: &SessionId, model: &mut ModelServer) {
    let task = prompt(&**host, session, "Take your time").await;
    let mut theirs = turn(host, session, task);
    let theirs = tokio::spawn(async move { theirs.answer().await });
    let mut call = model.next_call().await;
    let task = match running(&**host, scope, session).await.unwrap() {
        Some(Running::Turn(turn)) => Task::Begun(turn),
        Some(Running::Unnamed) => Task::Running,
        None => panic!("nothing runs"),
    };
    if host.features().turns {
        behind_many(host, scope, session).await;
    }
    let mut ours = turn(host, session, task);
    let ours = async {
        // It is attached once it has looked at what runs; the model continues only then.
        tokio::select! {
            biased;
            answer = ours.answer() => panic!("{answer:?}"),
            found = running(&**host, scope, session) => assert!(found.unwrap().is_some()),
        }
        call.text("Done").await;
        call.finish("stop").await;
        ours.answer().await
    };
    let ours = soon("our answer", ours).await.unwrap();
    let theirs = soon("their answer", theirs).await.unwrap().unwrap().unwrap();
    assert_eq!(answer_text(&theirs), "Done");
    if let Some(ours) = ours {
        assert_eq!(ours.info.id(), theirs.info.id());
    } else {
        assert!(!host.features().turns, "only a turn without a name can end before it is found");
    }
    // The answer comes before the turn is put away.
    testkit::eventually("the session is idle", async || running(&**host, scope, session).await.unwrap().is_none())
        .await;
}

/// What runs is found whatever waits behind it.
async fn behind_many(host: &Arc<dyn AgentRuntime>, scope: &Scope, session: &SessionId) {
    let current = running(&**host, scope, session).await.unwrap();
    let mut queued = Vec::new();
    for _ in 0..QUEUED {
        let input = PromptInput { parts: vec![PromptPart::text("Later")], ..PromptInput::default() };
        queued.extend(host.submit(session, input, Delivery::Queue).await.unwrap().turn_id);
    }
    assert_eq!((queued.len(), running(&**host, scope, session).await.unwrap()), (QUEUED, current));
    for turn in &queued {
        host.cancel_turn(turn).await.unwrap();
    }
}

/// A turn that runs.
async fn stopped(host: &Arc<dyn AgentRuntime>, session: &SessionId, model: &mut ModelServer) {
    let task = prompt(&**host, session, "Talk for ever").await;
    let mut turn = turn(host, session, task);
    let begun = async {
        let mut call = model.next_call().await;
        call.text("And so").await;
        call
    };
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let stop = async {
        let call = begun.await;
        assert!(sender.send(call).is_ok());
    };
    let answer = soon("the end", turn.answer_until(stop, testkit::WAIT)).await;
    assert!(is_aborted(answer.as_ref().unwrap()), "{answer:?}");
    soon("the model's call", receiver).await.unwrap().closed().await;
}

/// A turn that is stopped in the moment in which it is sent.
async fn stopped_before_it_began(host: &Arc<dyn AgentRuntime>, scope: &Scope, session: &SessionId) {
    let task = prompt(&**host, session, "Never mind").await;
    let mut turn = turn(host, session, task);
    let answer = soon("the end", turn.answer_until(std::future::ready(()), testkit::WAIT)).await;
    assert!(is_aborted(answer.as_ref().unwrap()), "{answer:?}");
    if host.features().turns {
        let turns = host.turns(session, ListTurns::default()).await.unwrap().turns;
        assert_eq!(turns[0].state, TurnState::Cancelled);
        assert_eq!(running(&**host, scope, session).await.unwrap(), None);
    }
}
