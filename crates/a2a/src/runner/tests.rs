use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use api::{
    Json, JsonMap, MessageId, PromptPart, Question, Runner as _, RunnerAnswers, RunnerCall, RunnerCallState,
    RunnerChild, RunnerChildHandle, RunnerDecision, RunnerMessage, RunnerUpdate,
};
use serde_json::json;
use testkit::{A2A_CONTEXT, A2A_TASK, A2aLine, A2aPeer, A2aRequest, event_stream, json_response, open_stream, soon};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::client::Polling;

mod asks;

/// A session that records what it is told, and answers what it is asked as the test says.
#[derive(Default)]
struct Session {
    told: Mutex<Vec<RunnerUpdate>>,
    asked: Mutex<Vec<RunnerCall>>,
    questions: Mutex<Vec<Question>>,
    /// The next answers; without one, the human never decides.
    decisions: Mutex<VecDeque<RunnerDecision>>,
    answers: Mutex<VecDeque<RunnerAnswers>>,
    messages: Mutex<VecDeque<RunnerMessage>>,
    changed: Notify,
    stop: CancellationToken,
    is_parked: AtomicBool,
}

impl Session {
    fn told(&self) -> Vec<RunnerUpdate> {
        self.told.lock().unwrap().clone()
    }

    /// The text of the answer.
    fn text(&self) -> String {
        self.told()
            .into_iter()
            .filter_map(|update| if let RunnerUpdate::Text(text) = update { Some(text) } else { None })
            .collect()
    }

    /// What was saved last.
    fn kept(&self) -> Json {
        let kept = |update| match update {
            RunnerUpdate::Started(kept) | RunnerUpdate::Usage { kept, .. } => Some(kept),
            _ => None,
        };
        self.told().into_iter().rev().find_map(kept).unwrap()
    }

    /// The last state of each call.
    fn calls(&self) -> Vec<RunnerCall> {
        let mut calls: Vec<RunnerCall> = Vec::new();
        for update in self.told() {
            if let RunnerUpdate::Call(call) = update {
                calls.retain(|known| known.id != call.id);
                calls.push(call);
            }
        }
        calls
    }

    /// What the job used, in dollars and tokens.
    fn used(&self) -> (f64, u64) {
        let used = |update| if let RunnerUpdate::Usage { used, .. } = update { Some(used) } else { None };
        let used = self.told().into_iter().rev().find_map(used).unwrap();
        (used.cost.0, used.all_tokens())
    }
}

impl RunnerContext for Session {
    fn tell(&self, update: RunnerUpdate) -> BoxFuture<'_, Result<(), RunnerError>> {
        if let RunnerUpdate::Steered(id) = &update {
            self.messages.lock().unwrap().retain(|message| message.id != *id);
        }
        self.told.lock().unwrap().push(update);
        Box::pin(async { Ok(()) })
    }

    fn ask(&self, call: RunnerCall) -> BoxFuture<'_, RunnerDecision> {
        self.asked.lock().unwrap().push(call);
        let decision = self.decisions.lock().unwrap().pop_front();
        Box::pin(async move {
            match decision {
                Some(decision) => decision,
                None => std::future::pending().await,
            }
        })
    }

    fn question(&self, call: RunnerCall, questions: Vec<Question>) -> BoxFuture<'_, RunnerAnswers> {
        self.asked.lock().unwrap().push(call);
        self.questions.lock().unwrap().extend(questions);
        let answers = self.answers.lock().unwrap().pop_front();
        Box::pin(async move {
            match answers {
                Some(answers) => answers,
                None => std::future::pending().await,
            }
        })
    }

    fn read<'a>(&'a self, _: &'a Path) -> BoxFuture<'a, Result<Vec<u8>, String>> {
        panic!("agents elsewhere read no files")
    }

    fn write<'a>(&'a self, _: &'a Path, _: &'a [u8]) -> BoxFuture<'a, Result<(), String>> {
        panic!("agents elsewhere write no files")
    }

    fn execute<'a>(&'a self, _: &'a str, _: &'a Path) -> BoxFuture<'a, Result<(), String>> {
        panic!("agents elsewhere run no commands here")
    }

    fn stopped(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.stop.cancelled())
    }

    fn is_parked(&self) -> bool {
        self.is_parked.load(Ordering::Relaxed)
    }

    fn steered(&self) -> BoxFuture<'_, RunnerMessage> {
        Box::pin(async {
            loop {
                let changed = self.changed.notified();
                if let Some(message) = self.messages.lock().unwrap().front() {
                    return message.clone();
                }
                changed.await;
            }
        })
    }

    fn child(&self, _: RunnerChild) -> BoxFuture<'_, Result<RunnerChildHandle, RunnerError>> {
        panic!("its subagents stay private")
    }
}

fn runner() -> Runner {
    let wait = Duration::from_millis(10);
    let polling = Polling { initial_interval: wait, max_interval: wait, ..Polling::default() };
    let variable = |name: &str| (name == "AGENT_TOKEN").then(|| "secret".to_owned());
    Runner::new(Ok(ClientOptions { polling, ..ClientOptions::default() }), variable)
}

fn job(url: &str, prompt: &str, kept: Option<Json>) -> RunnerJob {
    let prompt = if prompt.is_empty() { Vec::new() } else { vec![PromptPart::text(prompt)] };
    let settings = JsonMap::from_iter([("url".to_owned(), json!(url))]);
    RunnerJob { settings, directory: PathBuf::from("/"), hidden: Vec::new(), prompt, kept, traceparent: None }
}

async fn run(job: RunnerJob, session: &Arc<Session>) -> Result<RunnerEnd, String> {
    let ended = soon("the job ends", async { runner().run(job, session.clone()).await }).await;
    ended.map_err(|error| error.0)
}

/// Runs a job with a fresh session.
async fn run_new(agent: &A2aPeer, prompt: &str, kept: Option<Json>) -> (Arc<Session>, Result<RunnerEnd, String>) {
    let session = Arc::new(Session::default());
    let end = run(job(&agent.url(), prompt, kept), &session).await;
    (session, end)
}

fn usage(cost: f64, tokens: u64) -> Json {
    json!({"usage": {"input_tokens": tokens, "output_tokens": 1.0, "cost": cost}})
}

#[tokio::test]
async fn what_an_agent_does_is_reported() {
    for line in A2aLine::ALL {
        let agent = A2aPeer::of_line(line, |line, _| {
            let call = |status: &str, more: Json| {
                let mut data = json!({"call_id": "c", "tool": "bash", "status": status, "input": {"command": "ls"}});
                data.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
                line.data(data)
            };
            event_stream(&line.events([
                line.task_item("submitted", ""),
                line.status_update("working", "", json!({"progress": {"type": "step-start"}})),
                line.artifact_update("reasoning", line.text("hm"), 1),
                line.artifact_update("tool_call", call("running", json!({"title": "Lists"})), 2),
                line.artifact_update("tool_call", call("completed", json!({"output": "a.txt"})), 3),
                line.text_update("ping from peer\n", 4),
                line.text_update("ping", 5),
                line.status_update("completed", "", usage(0.25, 30)),
            ]))
        })
        .await;
        let (session, end) = run_new(&agent, "do it", None).await;
        assert_eq!((end, session.text().as_str()), (Ok(RunnerEnd::Done), "ping from peer\nping"), "{line:?}");
        assert!(session.told().contains(&RunnerUpdate::Reasoning("hm".to_owned())));
        let call = session.calls().remove(0);
        assert_eq!(
            (call.tool.as_str(), call.state, call.output.as_str()),
            ("bash", RunnerCallState::Completed, "a.txt")
        );
        assert_eq!(session.used(), (0.25, 31));
        assert!(matches!(session.told()[0], RunnerUpdate::Started(_)), "saved before it is sent");
        let kept = session.kept();
        assert_eq!((&kept["context"], &kept["progress"]), (&json!(A2A_CONTEXT), &json!("done")));
        assert_eq!(agent.requests_like(A2aRequest::sends).remove(0).text(), "do it");
    }
}

#[tokio::test]
async fn the_next_job_goes_on_in_the_same_context() {
    for line in A2aLine::ALL {
        let agent = A2aPeer::of_line(line, |line, _| {
            event_stream(
                &line.events([line.task_item("working", ""), line.status_update("completed", "", usage(0.25, 30))]),
            )
        })
        .await;
        let (first, _) = run_new(&agent, "one", None).await;
        let (second, end) = run_new(&agent, "two", Some(first.kept())).await;
        assert_eq!((end, second.used()), (Ok(RunnerEnd::Done), (0.25, 31)), "a task of its own");
        let message = |number: usize| agent.requests_like(A2aRequest::sends)[number].params()["message"].clone();
        assert_eq!((&message(0)["contextId"], &message(1)["contextId"]), (&Json::Null, &json!(A2A_CONTEXT)));
        assert_eq!(message(1)["taskId"], Json::Null);
        assert_ne!(message(0)["messageId"], message(1)["messageId"]);
    }
}

#[tokio::test]
async fn states_become_ends_and_errors() {
    for (state, words, end) in [
        ("completed", "", Ok(RunnerEnd::Done)),
        ("canceled", "", Ok(RunnerEnd::Stopped)),
        ("failed", "no disk", Err("failed: no disk")),
        ("rejected", "not my job", Err("declined: not my job")),
        ("failed", "", Err("does not say why")),
        ("auth-required", "sign in at example.org", Err("needs credentials: sign in at example.org")),
    ] {
        let agent = A2aPeer::of_line(A2aLine::NEW, move |line, _| {
            event_stream(&line.events([line.task_item("working", ""), line.status_update(state, words, json!(null))]))
        })
        .await;
        let (_, ended) = run_new(&agent, "do it", None).await;
        match (&ended, end) {
            (Ok(ended), Ok(end)) => assert_eq!(*ended, end),
            (Err(text), Err(part)) => assert!(text.contains(part), "{text}"),
            other => panic!("{state}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_task_that_waits_for_credentials_gets_the_next_message() {
    let agent = A2aPeer::of_line(A2aLine::NEW, |line, request| match (request.gets(), request.text().as_str()) {
        (true, _) => line.reply(line.task("auth-required", "")),
        (_, "do it") => event_stream(&line.events([line.task_item("auth-required", "")])),
        _ => event_stream(
            &line.events([line.task_item("working", ""), line.status_update("completed", "", json!(null))]),
        ),
    })
    .await;
    let (first, _) = run_new(&agent, "do it", None).await;
    assert_eq!(first.kept()["progress"], "waits");
    let (_, end) = run_new(&agent, "try again", Some(first.kept())).await;
    assert_eq!(end, Ok(RunnerEnd::Done));
    assert_eq!(agent.requests_like(A2aRequest::sends)[1].params()["message"]["taskId"], A2A_TASK);
}

#[tokio::test]
async fn an_interrupted_job_follows_its_task_and_counts_nothing_twice() {
    for line in A2aLine::ALL {
        let agent = A2aPeer::of_line(line, |line, request| {
            assert!(!request.sends(), "a task is begun once");
            event_stream(&line.events([
                line.task_item("working", "so far "),
                line.text_update("and on", 9),
                line.status_update("completed", "", usage(0.75, 50)),
            ]))
        })
        .await;
        let kept = json!({"url": format!("{}/", agent.url()), "task": A2A_TASK, "context": A2A_CONTEXT, "progress": "running",
            "cost": 0.5, "tokens": {"input": 30, "output": 1, "reasoning": 0, "cache": {"read": 0, "write": 0}}});
        let (session, end) = run_new(&agent, "", Some(kept)).await;
        assert_eq!((end, session.text().as_str()), (Ok(RunnerEnd::Done), "so far and on"), "{line:?}");
        assert_eq!(session.used(), (0.25, 20));
        assert_eq!(session.kept()["cost"], 0.75);
    }
}

#[tokio::test]
async fn an_interrupted_job_without_a_task_fails_and_sends_nothing() {
    let agent = A2aPeer::of_line(A2aLine::NEW, |line, _| line.reply(json!(null))).await;
    let url = format!("{}/", agent.url());
    for kept in [
        json!({"url": url, "progress": "sent"}),
        json!({"url": "https://other.example/", "task": A2A_TASK, "progress": "running"}),
        json!("strange"),
    ] {
        let (_, end) = run_new(&agent, "", Some(kept)).await;
        assert!(end.unwrap_err().contains("Check before you repeat the task"));
    }
    assert!(agent.requests().is_empty());
}

#[tokio::test]
async fn a_new_prompt_after_a_crash_goes_to_the_task_that_still_works() {
    let agent = A2aPeer::of_line(A2aLine::NEW, |line, request| match request.gets() {
        true => line.reply(line.task("working", "")),
        false => event_stream(
            &line.events([line.task_item("working", "so far"), line.status_update("completed", "", json!(null))]),
        ),
    })
    .await;
    let kept =
        json!({"url": format!("{}/", agent.url()), "task": A2A_TASK, "context": A2A_CONTEXT, "progress": "running"});
    let (session, end) = run_new(&agent, "and this", Some(kept)).await;
    assert_eq!((end, session.text().as_str()), (Ok(RunnerEnd::Done), "so far"));
    assert_eq!(agent.requests_like(A2aRequest::sends)[0].params()["message"]["taskId"], A2A_TASK);
}

/// An agent whose first message opens a stream that the test writes.
async fn opened(line: A2aLine) -> (A2aPeer, tokio::sync::mpsc::Sender<Json>) {
    let (sender, response) = open_stream();
    let response = Mutex::new(Some(response));
    let agent = A2aPeer::of_line(line, move |line, request| {
        let reply = || line.reply(line.task_item("working", ""));
        match request.cancels() {
            true => line.reply(line.task("canceled", "")),
            false => response.lock().unwrap().take().unwrap_or_else(reply),
        }
    })
    .await;
    (agent, sender)
}

#[tokio::test]
async fn a_cancelled_job_cancels_the_task() {
    for line in A2aLine::ALL {
        let (agent, sender) = opened(line).await;
        let session = Arc::new(Session::default());
        let running = tokio::spawn({
            let (session, url) = (session.clone(), agent.url());
            async move { run(job(&url, "do it", None), &session).await }
        });
        agent.wait_for("the message", A2aRequest::sends).await;
        // Stopped before the agent has said which task it is.
        session.stop.cancel();
        sender.send(line.wrap(line.task_item("working", ""))).await.unwrap();
        assert_eq!(running.await.unwrap(), Ok(RunnerEnd::Stopped), "{line:?}");
        assert_eq!(agent.requests_like(A2aRequest::cancels).len(), 1);
        assert_eq!(session.kept()["progress"], "done");
    }
}

#[tokio::test]
async fn a_parked_job_leaves_its_task_alone_and_keeps_its_id() {
    let line = A2aLine::NEW;
    let (agent, sender) = opened(line).await;
    let session = Arc::new(Session { is_parked: true.into(), ..Session::default() });
    let running = tokio::spawn({
        let (session, url) = (session.clone(), agent.url());
        async move { run(job(&url, "do it", None), &session).await }
    });
    agent.wait_for("the message", A2aRequest::sends).await;
    session.stop.cancel();
    sender.send(line.wrap(line.task_item("working", ""))).await.unwrap();
    assert_eq!(running.await.unwrap(), Ok(RunnerEnd::Stopped));
    assert!(agent.requests_like(A2aRequest::cancels).is_empty());
    assert_eq!((&session.kept()["progress"], &session.kept()["task"]), (&json!("running"), &json!(A2A_TASK)));
}

#[tokio::test]
async fn further_messages_reach_the_running_task() {
    for line in A2aLine::ALL {
        let (agent, sender) = opened(line).await;
        let session = Arc::new(Session::default());
        let running = tokio::spawn({
            let (session, url) = (session.clone(), agent.url());
            async move { run(job(&url, "do it", None), &session).await }
        });
        sender.send(line.wrap(line.task_item("working", ""))).await.unwrap();
        let id = MessageId::new();
        session
            .messages
            .lock()
            .unwrap()
            .push_back(RunnerMessage { id: id.clone(), parts: vec![PromptPart::text("faster")] });
        session.changed.notify_waiters();
        let steered = agent.wait_for("the message", |request| request.text() == "faster").await;
        let message = &steered.params()["message"];
        assert_eq!((&message["taskId"], &message["messageId"]), (&json!(A2A_TASK), &json!(id.as_str())), "{line:?}");
        let configuration = &steered.params()["configuration"];
        assert!(configuration["returnImmediately"] == true || configuration["blocking"] == false);
        testkit::eventually("it is delivered", async || session.told().contains(&RunnerUpdate::Steered(id.clone())))
            .await;
        sender.send(line.wrap(line.status_update("completed", "", json!(null)))).await.unwrap();
        assert_eq!(running.await.unwrap(), Ok(RunnerEnd::Done));
    }
}

#[tokio::test]
async fn an_agent_has_credentials_of_its_own() {
    for (token_env, want) in [("AGENT_TOKEN", Ok("Bearer secret")), ("OTHER", Err("no OTHER"))] {
        let agent = A2aPeer::of_line(A2aLine::NEW, |line, _| line.reply(line.task_item("completed", ""))).await;
        let mut job = job(&agent.url(), "do it", None);
        job.settings.insert("token_env".to_owned(), json!(token_env));
        let end = run(job, &Arc::new(Session::default())).await;
        match want {
            Ok(header) => assert_eq!(agent.requests()[0].header("authorization"), Some(header)),
            Err(why) => assert!(end.unwrap_err().contains(why)),
        }
    }
}

#[tokio::test]
async fn an_agent_that_cannot_be_reached_or_understood_says_so() {
    let agent = A2aPeer::start(|_| json_response(500, &json!({}))).await;
    let (session, end) = run_new(&agent, "do it", None).await;
    assert!(end.unwrap_err().contains("no agent card"));
    assert!(matches!(session.told()[0], RunnerUpdate::Started(_)));
    let mut wrong = job("nowhere", "do it", None);
    assert!(run(wrong.clone(), &Arc::new(Session::default())).await.unwrap_err().contains("nowhere"));
    wrong.settings.insert("version".to_owned(), json!("7"));
    assert!(run(wrong, &Arc::new(Session::default())).await.unwrap_err().contains("not understood"));
}
