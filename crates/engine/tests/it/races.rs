//! Prompts that race with each other and with the ends of turns: every accepted prompt gets its own answer.

use std::time::Duration;

use crate::common::{Lab, prompt};
use api::{Host, MessageId, MessageWithParts, PromptInput, SessionId};
use futures::future::join_all;

/// How many sessions are prompted at once.
const SESSIONS: u64 = 20;
/// How many prompts each of them gets.
const ROUNDS: u64 = 30;
/// How long the last answers may take.
const TIMEOUT: Duration = Duration::from_secs(20);

fn prompt_with_id(id: &MessageId) -> PromptInput {
    PromptInput { message_id: Some(id.clone()), ..prompt("Hello") }
}

fn is_finished(answer: &MessageWithParts) -> bool {
    answer.info.as_assistant().is_some_and(|answer| answer.finish.is_some() && answer.time.completed.is_some())
}

/// The prompts of a session that have no finished answer.
async fn unanswered(lab: &Lab, session: &SessionId, prompts: &[MessageId]) -> Vec<MessageId> {
    let messages = lab.messages(session).await;
    let last = messages.iter().rposition(is_finished).unwrap_or(0);
    let waits = |prompt: &&MessageId| messages.iter().position(|message| message.info.id() == *prompt) > Some(last);
    prompts.iter().filter(waits).cloned().collect()
}

/// Waits until every prompt of a session has its answer.
async fn wait_until_answered(lab: &Lab, session: &SessionId, prompts: &[MessageId]) {
    let all = async {
        while !unanswered(lab, session, prompts).await.is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    if tokio::time::timeout(TIMEOUT, all).await.is_err() {
        panic!("{session}: nobody answers {:?}", unanswered(lab, session, prompts).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_prompt_that_races_with_another_is_answered() {
    let lab = Lab::new();
    let sessions = join_all((0..SESSIONS).map(|_| lab.session())).await;
    let races = sessions.iter().enumerate().map(|(number, session)| {
        let lab = &lab;
        async move {
            let mut sent = Vec::new();
            for round in 0..ROUNDS {
                let (first, second) = (MessageId::new(), MessageId::new());
                let spoken = lab.engine.prompt(session, prompt_with_id(&first));
                let written = async {
                    // Any time from the start of the first turn to some time after its end.
                    tokio::time::sleep(Duration::from_micros(number as u64 * 911 + round * 137)).await;
                    lab.engine.prompt_async(session, prompt_with_id(&second)).await.unwrap()
                };
                let (answer, later) = tokio::join!(spoken, written);
                let answer = answer.unwrap();
                assert!(is_finished(&answer), "{answer:#?}");
                let answers = answer.info.as_assistant().map(|answer| answer.parent_id.clone()).unwrap();
                assert!(answers == first || answers == second, "{first} got the answer to {answers}");
                sent.push(later);
            }
            wait_until_answered(lab, session, &sent).await;
        }
    });
    join_all(races).await;
}
