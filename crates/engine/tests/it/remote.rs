//! Remote agents as the engine sees them: only through the `Runner` contract.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::common::family::{answer, asked, error, last, only_child, output};
use crate::common::{Lab, open_careful_with, open_with, prompt, script, text};
use api::{
    Action, AgentMode, CatalogHost, CreateSession, EventBody, Host, MessageError, Part, PermissionReplyKind,
    PromptInput, Rule, Runner, RunnerCall, RunnerCallState, RunnerChild, RunnerContext, RunnerDecision, RunnerEnd,
    RunnerError, RunnerJob, RunnerUpdate, SessionId, ToolState, TreeState, Usage, Usd,
};
use futures::future::BoxFuture;
use serde_json::{Value, json};
use testkit::TempProject;

type Work = fn(RunnerJob, Arc<dyn RunnerContext>) -> BoxFuture<'static, Result<RunnerEnd, RunnerError>>;

/// Runs the same work for every job, and records the jobs.
struct FakeRunner {
    jobs: Arc<Mutex<Vec<RunnerJob>>>,
    work: Work,
}

impl Runner for FakeRunner {
    fn run(&self, job: RunnerJob, host: Arc<dyn RunnerContext>) -> BoxFuture<'_, Result<RunnerEnd, RunnerError>> {
        self.jobs.lock().unwrap().push(job.clone());
        (self.work)(job, host)
    }
}

/// A lab whose agent `other` is a runner that works like this.
fn lab(mut config: Value, work: Work) -> (Lab, Arc<Mutex<Vec<RunnerJob>>>) {
    let project = TempProject::new();
    config["agent"]["other"]["acp"] = json!({"command": ["it"], "environment": {"KEY": "sk-secret"}});
    config["agent"]["other"]["prompt"] = json!("Be brief.");
    project.write_home(".config/trefoil/trefoil.json", config.to_string());
    let jobs = Arc::default();
    let runner: Arc<dyn Runner> = Arc::new(FakeRunner { jobs: Arc::clone(&jobs), work });
    let engine = open_with(&project, HashMap::from([("acp".to_owned(), runner)]));
    let scope = api::Scope::new(project.directory());
    (Lab { project, engine, scope }, jobs)
}

fn delegating(more: Value) -> String {
    let mut call = json!({"description": "Do it", "prompt": "go", "subagent_type": "other"});
    call.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    script(json!([{"tools": [["task", call]]}, {"text": "told"}]))
}

async fn send_text(host: &Arc<dyn RunnerContext>, text: &str) {
    host.tell(RunnerUpdate::Text(text.to_owned())).await.unwrap();
}

fn prompt_texts(job: &RunnerJob) -> Vec<String> {
    let text = |part: &api::PromptPart| match part {
        api::PromptPart::Text { text, .. } => text.clone(),
        other => panic!("{other:?}"),
    };
    job.prompt.iter().map(text).collect()
}

fn cost_update(dollars: f64) -> RunnerUpdate {
    RunnerUpdate::Usage {
        used: Usage { cost: Usd(dollars), ..Usage::default() },
        kept: json!({"n": 1, "cost": dollars}),
    }
}

#[tokio::test]
async fn reports_of_a_runner_become_an_ordinary_session() {
    let (lab, jobs) = lab(json!({}), |_, host| {
        Box::pin(async move {
            host.tell(RunnerUpdate::Started(json!({"n": 1}))).await?;
            host.tell(RunnerUpdate::Reasoning("hm".to_owned())).await?;
            send_text(&host, "Loo").await;
            send_text(&host, "king. ").await;
            let mut call = RunnerCall { id: "1".to_owned(), tool: "grep".to_owned(), ..RunnerCall::default() };
            host.tell(RunnerUpdate::Call(call.clone())).await?;
            call.state = RunnerCallState::Failed;
            call.output = "nothing found".to_owned();
            host.tell(RunnerUpdate::Call(call.clone())).await?;
            call.state = RunnerCallState::Completed;
            host.tell(RunnerUpdate::Call(call)).await?;
            host.tell(cost_update(0.25)).await?;
            host.tell(cost_update(0.5)).await?;
            send_text(&host, "Done.").await;
            Ok(RunnerEnd::Done)
        })
    });
    let session = lab.session().await;
    lab.say(&session, &delegating(json!({}))).await;
    assert!(output(&lab.tools(&session).await[0]).contains("Done."));
    let child = only_child(&lab, &session).await;
    let message = lab.messages(&child.id).await.pop().unwrap();
    let kinds: Vec<&str> = message
        .parts
        .iter()
        .map(|part| match part {
            Part::StepStart(_) => "start",
            Part::Reasoning(_) => "reasoning",
            Part::Text(_) => "text",
            Part::Tool(_) => "tool",
            Part::StepFinish(_) => "finish",
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(kinds, ["start", "reasoning", "text", "tool", "text", "finish"]);
    assert_eq!(text(&message), "Looking. Done.");
    assert_eq!(error(&lab.tools(&child.id).await[0]), "nothing found", "the first terminal state of a call wins");
    let info = message.info.as_assistant().unwrap();
    assert_eq!((info.provider_id.as_str(), info.model_id.as_str(), info.cost), ("acp", "other", Usd(0.5)));
    let tree = lab.engine.tree(&session).await.unwrap();
    let (root, node) = (&tree.sessions[0], &tree.sessions[1]);
    assert_eq!((node.own.cost, node.own.steps, node.own.tool_calls), (Usd(0.5), 1, 1));
    assert_eq!((node.own.estimated_cost, node.own.estimated_steps), (Usd(0.0), 1), "tokens were not reported");
    assert!(node.own.estimated_tokens > 0 && root.total.cost == Usd(0.5));
    let jobs = jobs.lock().unwrap();
    assert_eq!(prompt_texts(&jobs[0]), ["Be brief.", "go"]);
    assert_eq!(jobs[0].settings["command"], json!(["it"]));
}

#[tokio::test]
async fn a_remote_agent_is_listed_without_secrets() {
    let (lab, _) =
        lab(json!({"agent": {"plain": {"acp": {"command": ["x"]}, "mode": "all", "description": "d"}}}), |_, _| {
            Box::pin(async { Ok(RunnerEnd::Done) })
        });
    let agents = lab.engine.agents(&lab.scope).await.unwrap();
    let other = agents.iter().find(|agent| agent.name == "other").unwrap();
    assert_eq!((other.mode, &other.options["acp"]), (AgentMode::Subagent, &json!({"command": ["it"]})));
    assert!(other.description.as_deref().unwrap().contains("the program it"));
    let plain = agents.iter().find(|agent| agent.name == "plain").unwrap();
    assert_eq!((plain.mode, plain.description.as_deref()), (AgentMode::All, Some("d")));
    assert!(!serde_json::to_string(&agents).unwrap().contains("sk-secret"));
}

#[tokio::test]
async fn a_cost_budget_stops_a_runner() {
    let (lab, _) = lab(json!({}), |_, host| {
        Box::pin(async move {
            host.tell(RunnerUpdate::Started(json!({}))).await?;
            host.tell(cost_update(0.4)).await?;
            host.tell(cost_update(1.1)).await?;
            host.stopped().await;
            Ok(RunnerEnd::Stopped)
        })
    });
    let session = lab.session().await;
    lab.say(&session, &delegating(json!({"budget": {"cost": 1.0}}))).await;
    let failed = lab.tools(&session).await.remove(0);
    assert!(error(&failed).contains("($1.0000) is used up"), "{}", error(&failed));
    let child = only_child(&lab, &session).await;
    let tree = lab.engine.tree(&child.id).await.unwrap();
    assert_eq!((tree.sessions[0].state, tree.sessions[0].own.cost), (TreeState::Failed, Usd(1.1)));
}

#[tokio::test]
async fn a_prompt_that_a_runner_cannot_take_in_is_its_next_job() {
    let (lab, jobs) = lab(json!({}), |job, host| {
        Box::pin(async move {
            let first = job.kept.is_none();
            host.tell(RunnerUpdate::Started(json!({"n": 1}))).await?;
            send_text(&host, if first { "One." } else { "Two." }).await;
            if first {
                // It sees that there is a message, and leaves it.
                host.steered().await;
            }
            Ok(RunnerEnd::Done)
        })
    });
    let mut events = lab.recorder().await;
    let session = lab.session().await;
    lab.engine.prompt_async(&session, prompt(&delegating(json!({})))).await.unwrap();
    events.wait_for(|body| matches!(body, EventBody::PartDelta { delta, .. } if delta == "One.")).await;
    let child = only_child(&lab, &session).await;
    let steer = api::SteerInput { text: Some("and this".to_owned()), ..api::SteerInput::default() };
    lab.engine.steer(&child.id, steer).await.unwrap();
    events.wait_idle(&session).await;
    let jobs: Vec<_> = jobs.lock().unwrap().iter().map(|job| (prompt_texts(job), job.kept.clone())).collect();
    let first = vec!["Be brief.".to_owned(), "go".to_owned()];
    assert_eq!(jobs, [(first, None), (vec!["and this".to_owned()], Some(json!({"n": 1})))]);
    let answers: Vec<_> =
        lab.messages(&child.id).await.iter().filter(|m| m.info.as_assistant().is_some()).map(text).collect();
    assert_eq!(answers, ["One.", "Two."]);
}

#[tokio::test]
async fn a_pause_delays_the_requests_of_a_runner() {
    let (lab, _) = lab(json!({"permission": {"bash": "ask"}}), |job, host| {
        Box::pin(async move {
            host.tell(RunnerUpdate::Started(json!({}))).await?;
            if job.kept.is_some() {
                return Ok(RunnerEnd::Done);
            }
            send_text(&host, "Begun.").await;
            host.steered().await;
            let input = json!({"command": "true"}).as_object().unwrap().clone();
            let call = RunnerCall { id: "1".to_owned(), tool: "bash".to_owned(), input, ..RunnerCall::default() };
            let text = match host.ask(call).await {
                RunnerDecision::Allowed => "Allowed.",
                RunnerDecision::Rejected(_) => "Rejected.",
                RunnerDecision::Stopped => "Stopped.",
            };
            send_text(&host, text).await;
            host.execute("true", std::path::Path::new(".")).await.map_err(RunnerError)?;
            Ok(RunnerEnd::Done)
        })
    });
    let mut events = lab.recorder().await;
    let session = lab.session().await;
    lab.engine.prompt_async(&session, prompt(&delegating(json!({})))).await.unwrap();
    events.wait_for(|body| matches!(body, EventBody::PartDelta { delta, .. } if delta == "Begun.")).await;
    let child = only_child(&lab, &session).await;
    lab.engine.pause(&child.id, true).await.unwrap();
    let steer = api::SteerInput { text: Some("go on".to_owned()), ..api::SteerInput::default() };
    lab.engine.steer(&child.id, steer).await.unwrap();
    let tree = lab.engine.tree(&child.id).await.unwrap();
    assert_eq!((tree.sessions[0].state, tree.sessions[0].asks.len()), (TreeState::Paused, 0));
    lab.engine.pause(&child.id, false).await.unwrap();
    let ask = asked(&mut events).await;
    answer(&lab, &ask, PermissionReplyKind::Once).await;
    events.wait_idle(&session).await;
    let asks = events.events().iter().filter(|event| matches!(event.body, EventBody::PermissionAsked(_))).count();
    assert_eq!(asks, 1, "the command of an allowed call does not ask again");
    let calls = lab.tools(&child.id).await;
    assert!(calls.iter().all(|call| call.state.is_done()), "{calls:#?}");
}

#[tokio::test]
async fn a_failed_runner_fails_the_task_and_ends_open_calls() {
    let (lab, _) = lab(json!({}), |_, host| {
        Box::pin(async move {
            host.tell(RunnerUpdate::Started(json!({}))).await?;
            let state = RunnerCallState::Running;
            let call = RunnerCall { id: "1".to_owned(), tool: "bash".to_owned(), state, ..RunnerCall::default() };
            host.tell(RunnerUpdate::Call(call)).await?;
            Err(RunnerError("it fell over".to_owned()))
        })
    });
    let session = lab.session().await;
    lab.say(&session, &delegating(json!({}))).await;
    assert!(error(&lab.tools(&session).await[0]).ends_with("it fell over"));
    let child = only_child(&lab, &session).await;
    assert!(matches!(last(&lab, &child.id).await.error, Some(MessageError::UnknownError(_))));
    let ToolState::Error(left) = &lab.tools(&child.id).await[0].state else { panic!() };
    assert!(left.error.contains("interrupted"), "{left:?}");
}

#[tokio::test]
async fn files_and_commands_of_a_runner_obey_our_rules() {
    let rules =
        json!({"read": {"*": "allow", "secret*": "deny"}, "edit": {"*": "allow", "locked*": "deny"}, "bash": "deny"});
    let (lab, _) = lab(json!({ "permission": rules }), |job, host| {
        Box::pin(async move {
            host.tell(RunnerUpdate::Started(json!({}))).await?;
            let at = |name: &str| job.directory.join(name);
            host.write(&at("new.txt"), b"new\n").await.map_err(RunnerError)?;
            let read = host.read(&at("new.txt")).await.map_err(RunnerError)?;
            send_text(&host, &String::from_utf8(read).unwrap()).await;
            for refused in [
                host.read(&at("secret.txt")).await.map(drop),
                host.write(&at("locked.txt"), b"x").await,
                host.execute("true", &job.directory).await,
            ] {
                send_text(&host, if refused.unwrap_err().contains("A rule denies") { "no " } else { "? " }).await;
            }
            Ok(RunnerEnd::Done)
        })
    });
    lab.project.write("secret.txt", "s");
    let session = lab.session().await;
    lab.say(&session, &delegating(json!({}))).await;
    let child: SessionId = only_child(&lab, &session).await.id;
    let said: String =
        lab.messages(&child).await.iter().filter(|m| m.info.as_assistant().is_some()).map(text).collect();
    assert_eq!(said, "new\nno no no ");
    assert!(!lab.project.path().join("locked.txt").exists());
    let tree = lab.engine.tree(&child).await.unwrap();
    assert_eq!(tree.sessions[0].own.files, 1);
}

fn child(id: &str) -> RunnerChild {
    RunnerChild { id: id.to_owned(), title: format!("Look at {id}"), ..RunnerChild::default() }
}

async fn send_end(host: &Arc<dyn RunnerContext>, end: Result<RunnerEnd, RunnerError>) {
    host.tell(RunnerUpdate::Finished(end)).await.unwrap();
}

/// The sessions below one, in order.
async fn descendants(lab: &Lab, session: &SessionId) -> Vec<api::TreeNode> {
    lab.engine.tree(session).await.unwrap().sessions.split_off(1)
}

#[tokio::test]
async fn remote_subagents_are_child_sessions() {
    let (lab, _) = lab(json!({}), |_, host| {
        Box::pin(async move {
            host.tell(RunnerUpdate::Started(json!({}))).await?;
            let state = RunnerCallState::Running;
            let call = RunnerCall { id: "1".to_owned(), tool: "task".to_owned(), state, ..RunnerCall::default() };
            host.tell(RunnerUpdate::Call(call)).await?;
            let told = RunnerChild {
                prompt: Some("Look there.".to_owned()),
                call: Some("1".to_owned()),
                stops: true,
                ..child("a")
            };
            let first = host.child(told).await?;
            assert!(first.kept.is_none());
            send_text(&first.context, "I see.").await;
            first.context.tell(RunnerUpdate::Usage { used: cost_usage(0.25), kept: json!(0.25) }).await?;
            let deeper = first.context.child(child("b")).await?.context;
            deeper.tell(RunnerUpdate::Usage { used: cost_usage(0.5), kept: json!(0.5) }).await?;
            send_end(&deeper, Ok(RunnerEnd::Stopped)).await;
            send_end(&first.context, Ok(RunnerEnd::Done)).await;
            assert!(first.context.tell(RunnerUpdate::Text("late".to_owned())).await.is_err(), "it rests");
            // It works once more, in the same session.
            let again = host.child(child("a")).await?;
            assert_eq!(again.kept, Some(json!(0.25)));
            send_text(&again.context, "More.").await;
            send_end(&again.context, Err(RunnerError("fell over".to_owned()))).await;
            // This one is still working at the end.
            send_text(&host.child(child("c")).await?.context, "On my way").await;
            Ok(RunnerEnd::Done)
        })
    });
    let session = lab.session().await;
    lab.say(&session, &delegating(json!({}))).await;
    let tree = lab.engine.tree(&session).await.unwrap().sessions;
    let shape: Vec<_> = tree.iter().map(|node| (node.depth, node.state, node.own.cost.0, node.total.cost.0)).collect();
    use TreeState::{Cancelled, Failed, Idle};
    let wanted = [
        (0, Idle, 0.0, 0.75),
        (1, Idle, 0.0, 0.75),
        (2, Failed, 0.25, 0.75),
        (3, Cancelled, 0.5, 0.5),
        (2, Failed, 0.0, 0.0),
    ];
    assert_eq!(shape, wanted, "{tree:#?}");
    assert_eq!(tree[2].title, "Look at a (@other subagent)");
    assert!(tree[4].error.as_ref().unwrap().message().contains("interrupted"), "{:?}", tree[4].error);
    let first = lab.messages(&tree[2].session_id).await;
    let words: Vec<String> = first.iter().map(text).collect();
    assert_eq!(words, ["Look there.", "I see.", "Look at a", "More."]);
    let call = lab.tools(&tree[1].session_id).await.remove(0);
    let ToolState::Error(ended) = &call.state else { panic!("{call:#?}") };
    let linked = ended.metadata.as_ref().and_then(|metadata| metadata["sessionId"].as_str());
    assert_eq!(linked, Some(tree[2].session_id.as_str()), "{ended:?}");
}

fn cost_usage(dollars: f64) -> Usage {
    Usage { cost: Usd(dollars), ..Usage::default() }
}

#[tokio::test]
async fn remote_subagents_ask_and_stop_individually() {
    let (lab, _) = lab(json!({"permission": {"bash": "ask"}}), |_, host| {
        Box::pin(async move {
            host.tell(RunnerUpdate::Started(json!({}))).await?;
            let (fixed, free) = (host.child(child("fixed")).await?.context, child("free"));
            let free = host.child(RunnerChild { stops: true, ..free }).await?.context;
            let input = json!({"command": "true"}).as_object().unwrap().clone();
            let call = RunnerCall { id: "1".to_owned(), tool: "bash".to_owned(), input, ..RunnerCall::default() };
            assert_eq!(free.ask(call).await, RunnerDecision::Allowed);
            assert_eq!(host.execute("true", std::path::Path::new(".")).await, Ok(()), "it was allowed already");
            send_text(&free, "Begun.").await;
            free.stopped().await;
            send_end(&free, Ok(RunnerEnd::Done)).await;
            send_end(&fixed, Ok(RunnerEnd::Done)).await;
            Ok(RunnerEnd::Done)
        })
    });
    let mut events = lab.recorder().await;
    let session = lab.session().await;
    lab.engine.prompt_async(&session, prompt(&delegating(json!({})))).await.unwrap();
    let ask = asked(&mut events).await;
    let nodes = descendants(&lab, &session).await;
    let (fixed, free) = (&nodes[1].session_id, &nodes[2].session_id);
    assert_eq!((&ask.session_id, nodes[2].state), (free, TreeState::Asking));
    let path = ask.metadata["subagent"]["path"].as_array().unwrap();
    assert_eq!((path.len(), &path[2]["sessionID"]), (3, &json!(free)));
    answer(&lab, &ask, PermissionReplyKind::Once).await;
    events.wait_for(|body| matches!(body, EventBody::PartDelta { delta, .. } if delta == "Begun.")).await;
    let refused = lab.engine.cancel(fixed).await.unwrap_err().to_string();
    assert!(refused.contains("cannot stop it alone") && refused.contains(nodes[0].session_id.as_str()), "{refused}");
    let refused = lab.engine.prompt(free, prompt("hi")).await.unwrap_err().to_string();
    assert!(refused.contains("which alone can send it messages"), "{refused}");
    let stopped = lab.engine.cancel(free).await.unwrap();
    assert_eq!(stopped.sessions, std::slice::from_ref(free));
    events.wait_idle(&session).await;
    let states: Vec<_> = descendants(&lab, &session).await.iter().map(|node| node.state).collect();
    assert_eq!(states, [TreeState::Idle, TreeState::Idle, TreeState::Cancelled]);
    assert!(output(&lab.tools(&session).await[0]).contains("ended without an answer"));
}

#[tokio::test]
async fn the_number_of_remote_subagents_is_limited() {
    let (lab, _) = lab(json!({"subagents": {"descendants": 1000}}), |_, host| {
        Box::pin(async move {
            host.tell(RunnerUpdate::Started(json!({}))).await?;
            let mut deepest = host.clone();
            let mut depth = 0;
            while let Ok(seat) = deepest.child(child(&format!("deep {depth}"))).await {
                (deepest, depth) = (seat.context, depth + 1);
            }
            let mut beside = 0;
            while host.child(child(&format!("beside {beside}"))).await.is_ok() {
                beside += 1;
            }
            assert!(host.child(child("deep 0")).await.is_ok(), "known subagents stay");
            assert!(host.child(child("deep 1")).await.is_err(), "that session works for another one");
            for name in [String::new(), "x".repeat(2000)] {
                assert!(host.child(RunnerChild { id: name, ..RunnerChild::default() }).await.is_err());
            }
            send_text(&host, &format!("{depth} deep, {beside} beside")).await;
            Ok(RunnerEnd::Done)
        })
    });
    let session = lab.session().await;
    lab.say(&session, &delegating(json!({}))).await;
    let task = lab.tools(&session).await.remove(0);
    assert!(output(&task).contains("15 deep, 49 beside"), "{}", output(&task));
    assert!(descendants(&lab, &session).await.iter().all(|node| !node.state.is_live()));
}

/// Tries everything a rule can forbid, itself and through a subagent, and reports what it was allowed to do.
fn try_everything(_: RunnerJob, host: Arc<dyn RunnerContext>) -> BoxFuture<'static, Result<RunnerEnd, RunnerError>> {
    Box::pin(async move {
        host.tell(RunnerUpdate::Started(json!({}))).await?;
        let below = host.child(child("below")).await?.context;
        let here = std::path::Path::new(".");
        let mut allowed = Vec::new();
        for (name, host) in [("own", &host), ("below", &below)] {
            let input = json!({"command": "touch made.txt"}).as_object().unwrap().clone();
            let call = RunnerCall { id: name.to_owned(), tool: "bash".to_owned(), input, ..RunnerCall::default() };
            if host.ask(call).await == RunnerDecision::Allowed {
                allowed.push(format!("{name} asks"));
            }
            if host.execute("touch other.txt", here).await.is_ok() {
                allowed.push(format!("{name} runs"));
            }
        }
        send_end(&below, Ok(RunnerEnd::Done)).await;
        send_text(&host, &format!("allowed: {}", allowed.join(", "))).await;
        Ok(RunnerEnd::Done)
    })
}

#[tokio::test]
async fn a_remote_agent_may_do_no_more_than_its_caller() {
    let everything = "allowed: own asks, own runs, below asks, below runs";
    for (rules, session, want, asks) in [
        (json!({"bash": "deny"}), None, "allowed: ", 0),
        (json!({"bash": "allow"}), None, everything, 0),
        (json!({"bash": "ask"}), None, everything, 4),
        (json!({}), Some(Action::Deny), "allowed: ", 0),
        (json!({}), Some(Action::Ask), everything, 4),
    ] {
        let config = json!({"agent": {
            "other": {"permission": {"bash": "allow"}}, "bound": {"mode": "primary", "permission": rules}
        }});
        let (lab, _) = lab(config, try_everything);
        let permission = session.map(|action| vec![Rule::new("bash", "*", action)]);
        let input = CreateSession { permission, title: Some("test".to_owned()), ..CreateSession::default() };
        let id = lab.engine.create_session(&lab.scope, input).await.unwrap().id;
        let mut events = lab.recorder().await;
        let input = PromptInput { agent: Some("bound".to_owned()), ..prompt(&delegating(json!({}))) };
        lab.engine.prompt_async(&id, input).await.unwrap();
        for _ in 0..asks {
            let ask = asked(&mut events).await;
            assert_ne!(ask.session_id, id, "the sessions below ask");
            answer(&lab, &ask, PermissionReplyKind::Once).await;
        }
        events.wait_idle(&id).await;
        let told = lab.tools(&id).await.remove(0);
        assert!(output(&told).contains(&format!("\n{want}\n")), "{rules} {session:?}: {told:#?}");
        lab.engine.shutdown().await;
    }
}

#[tokio::test]
async fn a_runner_asks_again_after_a_restart_whatever_the_rules_allow_by_then() {
    let project = TempProject::new();
    let config = json!({"agent": {"other": {"acp": {"command": ["it"]}}}});
    project.write_home(".config/trefoil/trefoil.json", config.to_string());
    let runner: Arc<dyn Runner> = Arc::new(FakeRunner { jobs: Arc::default(), work: try_everything });
    let runners = HashMap::from([("acp".to_owned(), runner)]);
    let engine = open_careful_with(&project, runners.clone());
    let scope = api::Scope::new(project.directory());
    let mut lab = Lab { project, engine, scope };
    let session = lab.session().await;
    let mut events = lab.recorder().await;
    lab.engine.prompt_async(&session, prompt(&delegating(json!({})))).await.unwrap();
    asked(&mut events).await;
    lab.engine.shutdown().await;
    let loose = json!({"permission": "allow", "agent": {"other": {"acp": {"command": ["it"]}}}});
    lab.project.write_home(".config/trefoil/trefoil.json", loose.to_string());
    lab.engine = open_with(&lab.project, runners);
    let mut events = lab.recorder().await;
    lab.engine.recover(None).await.unwrap();
    for _ in 0..4 {
        let ask = asked(&mut events).await;
        answer(&lab, &ask, PermissionReplyKind::Reject).await;
    }
    events.wait_idle(&session).await;
    let told = lab.tools(&session).await.remove(0);
    assert!(output(&told).contains("\nallowed: \n"), "{told:#?}");
    lab.engine.shutdown().await;
}
