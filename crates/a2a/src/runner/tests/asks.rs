//! What agents ask, and how they get the answers.

use super::*;

fn permission(line: A2aLine) -> Json {
    let details = json!({"permission": "bash", "patterns": ["rm -rf *"]});
    let interrupt = json!({"request_id": "per_1", "type": "permission", "phase": "asked", "details": details});
    line.status_update("input-required", "May I run rm?", json!({ "interrupt": interrupt }))
}

fn resolved(line: A2aLine, id: &str) -> Json {
    let interrupt = json!({"request_id": id, "phase": "resolved", "resolution": "replied"});
    line.status_update("working", "", json!({ "interrupt": interrupt }))
}

/// An agent that asks this; the first answer of any kind makes it finish. Without the extension it takes messages only.
async fn asking(line: A2aLine, asks: fn(A2aLine) -> Json, has_extension: bool, stays_open: bool) -> A2aPeer {
    let (sender, response) = open_stream();
    let held = Mutex::new((Some(sender), Some(response)));
    A2aPeer::start(move |request| {
        if request.is_for_card() {
            let mut card = line.card(&format!("http://{}", request.header("host").unwrap()));
            if !has_extension {
                card["capabilities"]["extensions"] = json!([]);
            }
            return json_response(200, &card);
        }
        let mut held = held.lock().unwrap();
        let finish = [line.text_update("done", 3), line.status_update("completed", "", json!(null))];
        if let Some(response) = held.1.take() {
            let sender = held.0.as_ref().unwrap();
            for item in [line.task_item("working", ""), asks(line)] {
                sender.try_send(line.wrap(item)).unwrap();
            }
            if !stays_open {
                held.0 = None;
            }
            return response;
        }
        if request.cancels() {
            return line.reply(line.task("canceled", ""));
        }
        if request.gets() || request.subscribes() {
            return line.reply(line.task_item("input-required", ""));
        }
        if request.operation().starts_with("a2a.interrupt") {
            if let Some(sender) = held.0.take() {
                finish.into_iter().for_each(|item| sender.try_send(line.wrap(item)).unwrap());
            }
            return A2aLine::OLD.reply(json!({"ok": true}));
        }
        event_stream(&line.events(finish))
    })
    .await
}

async fn run_asking(agent: &A2aPeer, session: Session) -> (Arc<Session>, Result<RunnerEnd, String>) {
    let session = Arc::new(session);
    let end = run(job(&agent.url(), "do it", None), &session).await;
    (session, end)
}

fn deciding(decision: RunnerDecision) -> Session {
    Session { decisions: Mutex::new([decision].into()), ..Session::default() }
}

fn answering(answers: RunnerAnswers) -> Session {
    Session { answers: Mutex::new([answers].into()), ..Session::default() }
}

#[tokio::test]
async fn a_permission_is_decided_here_and_the_answer_goes_back() {
    for line in A2aLine::ALL {
        for (decision, reply, state) in [
            (RunnerDecision::Allowed, "once", RunnerCallState::Completed),
            (RunnerDecision::Rejected("no".to_owned()), "reject", RunnerCallState::Failed),
        ] {
            for has_extension in [true, false] {
                let agent = asking(line, permission, has_extension, has_extension).await;
                let (session, end) = run_asking(&agent, deciding(decision.clone())).await;
                assert_eq!(
                    (end, session.text().as_str()),
                    (Ok(RunnerEnd::Done), "done"),
                    "{line:?} {reply} {has_extension}"
                );
                let asked = session.asked.lock().unwrap().remove(0);
                assert_eq!((asked.tool.as_str(), &asked.input["command"]), ("bash", &json!("rm -rf *")));
                assert_eq!(session.calls()[0].state, state);
                let replies = agent.requests_like(|request| request.operation() == "a2a.interrupt.permission.reply");
                let messages = agent.requests_like(|request| request.sends() && request.text() == reply);
                assert_eq!((replies.len(), messages.len()), if has_extension { (1, 0) } else { (0, 1) });
                match has_extension {
                    true => assert_eq!(replies[0].params()["reply"], reply),
                    false => assert_eq!(messages[0].params()["message"]["taskId"], A2A_TASK),
                }
            }
        }
    }
}

#[tokio::test]
async fn questions_become_questions() {
    fn question(line: A2aLine) -> Json {
        let options = json!([{"label": "red", "description": "warm"}, {"label": "blue", "description": "cold"}]);
        let questions = json!([{"header": "Colour", "question": "Which colour?", "options": options}]);
        let interrupt =
            json!({"request_id": "que_1", "type": "question", "phase": "asked", "details": {"questions": questions}});
        line.status_update("input-required", "Which colour?", json!({ "interrupt": interrupt }))
    }
    for line in A2aLine::ALL {
        let agent = asking(line, question, true, true).await;
        let (session, end) = run_asking(&agent, answering(RunnerAnswers::Given(vec![vec!["blue".into()]]))).await;
        assert_eq!(end, Ok(RunnerEnd::Done), "{line:?}");
        let asked = session.questions.lock().unwrap().remove(0);
        assert_eq!((asked.question.as_str(), asked.options[1].label.as_str()), ("Which colour?", "blue"));
        let reply = agent.requests_like(|request| request.operation() == "a2a.interrupt.question.reply").remove(0);
        assert_eq!(reply.params()["answers"], json!([["blue"]]));
        let agent = asking(line, question, true, true).await;
        let (_, end) = run_asking(&agent, answering(RunnerAnswers::Dismissed("nobody".to_owned()))).await;
        assert_eq!(end, Ok(RunnerEnd::Done));
        assert_eq!(agent.requests_like(|request| request.operation() == "a2a.interrupt.question.reject").len(), 1);
    }
}

#[tokio::test]
async fn a_question_in_plain_words_is_answered_by_a_message() {
    fn plain(line: A2aLine) -> Json {
        line.status_update("input-required", "Where to?", json!(null))
    }
    for (line, stays_open) in A2aLine::ALL.into_iter().flat_map(|line| [(line, true), (line, false)]) {
        let agent = asking(line, plain, true, stays_open).await;
        let (session, end) = run_asking(&agent, answering(RunnerAnswers::Given(vec![vec!["Rome".into()]]))).await;
        assert_eq!((end, session.text().as_str()), (Ok(RunnerEnd::Done), "done"), "{line:?} {stays_open}");
        assert_eq!(session.questions.lock().unwrap()[0].question, "Where to?");
        let answer = agent.requests_like(|request| request.sends() && request.text() == "Rome").remove(0);
        let message = &answer.params()["message"];
        assert_eq!((&message["taskId"], &message["contextId"]), (&json!(A2A_TASK), &json!(A2A_CONTEXT)));
        let agent = asking(line, plain, true, stays_open).await;
        let (_, end) = run_asking(&agent, answering(RunnerAnswers::Dismissed("nobody is there".to_owned()))).await;
        assert!(end.unwrap_err().contains("has no answer: nobody is there"));
        assert_eq!(agent.requests_like(A2aRequest::cancels).len(), 1);
    }
}

#[tokio::test]
async fn what_another_client_answers_is_withdrawn() {
    for line in A2aLine::ALL {
        let (agent, sender) = opened(line).await;
        let session = Arc::new(Session::default());
        let running = tokio::spawn({
            let (session, url) = (session.clone(), agent.url());
            async move { run(job(&url, "do it", None), &session).await }
        });
        for item in [line.task_item("working", ""), permission(line)] {
            sender.send(line.wrap(item)).await.unwrap();
        }
        testkit::eventually("it is asked", async || !session.asked.lock().unwrap().is_empty()).await;
        for item in [resolved(line, "per_1"), line.status_update("completed", "", json!(null))] {
            sender.send(line.wrap(item)).await.unwrap();
        }
        assert_eq!(running.await.unwrap(), Ok(RunnerEnd::Done), "{line:?}");
        let call = session.asked.lock().unwrap()[0].id.clone();
        assert!(session.told().contains(&RunnerUpdate::CallWithdrawn(call)));
        assert!(agent.requests_like(|request| request.operation().starts_with("a2a.")).is_empty());
    }
}
