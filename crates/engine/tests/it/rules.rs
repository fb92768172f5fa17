//! Permissions hold: no restart decides an ask, no subagent may do more than its caller, and no client lifts a denial.

use std::path::PathBuf;

use crate::common::family::{answer, asked, background, bash, only_child, start, task};
use crate::common::{Lab, open, open_careful, prompt, script, set_constraints};
use api::{
    Action, CommandInput, CreateSession, EventBody, Host, PermissionReplyKind, PermissionRequest, PromptInput,
    PromptPart, Rule, SessionId, ToolState, UpdateSession,
};
use indexmap::IndexMap;
use serde_json::{Value, json};
use testkit::{Recorder, TempProject};

fn configure(project: &TempProject, config: &Value) {
    project.write_home(".config/opencode/opencode.json", config.to_string());
}

/// A lab with an engine as an editor starts it.
fn careful(config: &Value) -> Lab {
    let project = TempProject::new();
    configure(&project, config);
    let (engine, scope) = (open_careful(&project), api::Scope::new(project.directory()));
    Lab { project, engine, scope }
}

fn lines(file: &PathBuf) -> usize {
    std::fs::read_to_string(file).map_or(0, |text| text.lines().count())
}

/// The next ask, or `None` once the session is idle.
async fn next_ask(events: &mut Recorder, session: &SessionId) -> Option<PermissionRequest> {
    let event = events
        .wait_for(|body| match body {
            EventBody::PermissionAsked(_) => true,
            EventBody::SessionIdle { session_id } => session_id == session,
            _ => false,
        })
        .await;
    match &event.body {
        EventBody::PermissionAsked(ask) => Some((**ask).clone()),
        _ => None,
    }
}

/// A call that asks.
struct AskingCall {
    permission: &'static str,
    before: Value,
    steps: fn(&str) -> Value,
    /// How many lines it has written before it asks, and after the asks that follow.
    effects: (usize, usize),
    asks: usize,
}

/// One call for each kind of ask. Each adds a line to `made.txt`, whose path is passed.
fn asking_calls() -> Vec<AskingCall> {
    fn write(file: &str) -> Value {
        json!(["write", {"filePath": file, "content": "x\n"}])
    }
    fn say(call: Value) -> Value {
        json!([{"tools": [call]}, {"text": "end"}])
    }
    vec![
        AskingCall {
            permission: "bash",
            before: json!({}),
            steps: |_| say(bash("sh add.sh")),
            effects: (0, 1),
            asks: 1,
        },
        AskingCall {
            permission: "edit",
            before: json!({}),
            steps: |_| say(json!(["write", {"filePath": "made.txt", "content": "x\n"}])),
            effects: (0, 1),
            asks: 1,
        },
        AskingCall {
            permission: "webfetch",
            before: json!({"permission": {"webfetch": "ask"}}),
            steps: |_| say(json!(["webfetch", {"url": "http://127.0.0.1:9/", "format": "text"}])),
            effects: (0, 0),
            asks: 1,
        },
        AskingCall {
            permission: "external_directory",
            before: json!({"permission": {"edit": "ask"}}),
            steps: |file| say(write(&file.replace("/project/", "/home/"))),
            effects: (0, 0),
            // One for the file and one for the edit.
            asks: 2,
        },
        AskingCall {
            permission: "task",
            before: json!({"permission": {"task": "ask"}}),
            steps: |_| say(task("Do", "general", json!([{"text": "."}]))),
            effects: (0, 0),
            asks: 1,
        },
        AskingCall {
            permission: "doom_loop",
            before: json!({"permission": {"bash": "allow"}}),
            steps: |_| {
                let again = json!({"tools": [bash("sh add.sh")]});
                json!([again, again, again, {"text": "end"}])
            },
            effects: (2, 3),
            asks: 1,
        },
        AskingCall {
            permission: "bash",
            before: json!({}),
            steps: |_| say(task("Do", "general", json!([{"tools": [bash("sh add.sh")]}, {"text": "."}]))),
            effects: (0, 1),
            asks: 1,
        },
    ]
}

/// Whoever resumes a call waits for its ask, whatever the current rules say.
async fn check_resumed_call(case: AskingCall, reply: PermissionReplyKind) {
    let mut lab = careful(&case.before);
    let made = lab.project.path().join("made.txt");
    lab.project.write("add.sh", "echo x >> made.txt");
    let session = lab.session().await;
    let mut events = lab.recorder().await;
    start(&lab, &session, (case.steps)(made.to_str().unwrap())).await;
    let ask = asked(&mut events).await;
    assert_eq!(ask.permission, case.permission);
    configure(&lab.project, &json!({"permission": "allow"}));
    lab.restart().await;
    let mut events = lab.recorder().await;
    lab.engine.recover(None).await.unwrap();
    answer(&lab, &ask, reply).await;
    let mut asks = 1;
    while let Some(more) = next_ask(&mut events, &session).await {
        asks += 1;
        answer(&lab, &more, reply).await;
    }
    let call = ask.tool.as_ref().unwrap();
    let tools = lab.tools(&ask.session_id).await;
    let state = &tools.iter().rfind(|tool| tool.call_id == call.call_id).unwrap().state;
    let rejected = matches!(state, ToolState::Error(error) if error.error.contains("rejected permission"));
    let (name, once) = (case.permission, reply == PermissionReplyKind::Once);
    assert_eq!(rejected, !once, "{name}: {state:#?}");
    assert_eq!(lines(&made), if once { case.effects.1 } else { case.effects.0 }, "{name}");
    assert_eq!(asks, if once { case.asks } else { 1 }, "{name}");
    let outside = lab.project.home().join("made.txt");
    assert_eq!(outside.exists(), once && name == "external_directory");
    lab.engine.shutdown().await;
}

#[tokio::test]
async fn a_no_after_a_restart_is_a_no() {
    for case in asking_calls() {
        check_resumed_call(case, PermissionReplyKind::Reject).await;
    }
}

#[tokio::test]
async fn a_yes_after_a_restart_is_a_yes_to_what_was_asked() {
    for case in asking_calls() {
        check_resumed_call(case, PermissionReplyKind::Once).await;
    }
}

#[tokio::test]
async fn a_call_denied_since_is_no_longer_asked() {
    for rule in [json!("deny"), json!({"*": "allow", "touch *": "deny"})] {
        let mut lab = careful(&json!({}));
        let session = lab.session().await;
        let mut events = lab.recorder().await;
        start(&lab, &session, json!([{"tools": [bash("touch made.txt")]}, {"text": "end"}])).await;
        let ask = asked(&mut events).await;
        configure(&lab.project, &json!({"permission": {"bash": rule}}));
        lab.restart().await;
        // The user allows it, but not under the current rules.
        answer(&lab, &ask, PermissionReplyKind::Once).await;
        let mut events = lab.recorder().await;
        lab.engine.recover(None).await.unwrap();
        events.wait_idle(&session).await;
        assert!(!lab.gate("made.txt").exists());
        lab.engine.shutdown().await;
    }
}

#[tokio::test]
async fn a_call_that_needs_approval_since_asks_too() {
    let mut lab = Lab::with(json!({"permission": {"external_directory": "ask", "bash": "allow"}}));
    let session = lab.session().await;
    let mut events = lab.recorder().await;
    let outside = lab.project.home().join("made.txt");
    start(&lab, &session, json!([{"tools": [bash(&format!("touch {}", outside.display()))]}, {"text": "end"}])).await;
    let ask = asked(&mut events).await;
    assert_eq!(ask.permission, "external_directory");
    configure(&lab.project, &json!({"permission": {"bash": "ask"}}));
    lab.restart().await;
    let mut events = lab.recorder().await;
    lab.engine.recover(None).await.unwrap();
    answer(&lab, &ask, PermissionReplyKind::Once).await;
    let more = asked(&mut events).await;
    assert_eq!(more.permission, "bash");
    assert!(!outside.exists());
    answer(&lab, &more, PermissionReplyKind::Once).await;
    events.wait_idle(&session).await;
    assert!(outside.exists());
}

/// A plain engine that resumes a careful prompt asks about both calls, one after the other.
#[tokio::test]
async fn a_careful_turn_stays_careful_whoever_resumes_it() {
    // The session was created by the editor, or elsewhere.
    for own in [true, false] {
        let mut lab = careful(&json!({}));
        let session = if own {
            lab.session().await
        } else {
            let second = lab.second();
            let made = second.create_session(&lab.scope, CreateSession::default()).await.unwrap().id;
            second.shutdown().await;
            made
        };
        let gate = lab.gate("gate");
        let steps = json!([
            {"after": gate, "tools": [bash("touch one.txt")]},
            {"tools": [task("Do", "general", json!([{"tools": [bash("touch two.txt")]}, {"text": "."}]))]},
            {"text": "end"}
        ]);
        start(&lab, &session, steps).await;
        lab.restart().await;
        let mut events = lab.recorder().await;
        lab.engine.recover(None).await.unwrap();
        lab.project.write("gate", "");
        for file in ["one.txt", "two.txt"] {
            let ask = asked(&mut events).await;
            assert!(!lab.gate(file).exists(), "{file}");
            answer(&lab, &ask, PermissionReplyKind::Once).await;
        }
        events.wait_idle(&session).await;
        assert!(lab.gate("two.txt").exists());
        // The next prompt is this engine's; the session may still be the editor's.
        start(&lab, &session, json!([{"tools": [bash("touch three.txt")]}, {"text": "end"}])).await;
        let ask = next_ask(&mut events, &session).await;
        assert_eq!((ask.is_some(), lab.gate("three.txt").exists()), (own, !own));
        // The same applies to a fork.
        let copy = lab.engine.fork_session(&session, None).await.unwrap().id;
        start(&lab, &copy, json!([{"tools": [bash("touch four.txt")]}, {"text": "end"}])).await;
        let ask = next_ask(&mut events, &copy).await;
        assert_eq!((ask.is_some(), lab.gate("four.txt").exists()), (own, !own));
        lab.engine.shutdown().await;
    }
}

/// The report of a careful prompt's background task starts a careful turn, too.
#[tokio::test]
async fn a_background_task_of_a_careful_prompt_stays_careful() {
    let mut lab = Lab::new();
    let session = lab.session().await;
    lab.engine.shutdown().await;
    lab.engine = open_careful(&lab.project);
    let mut events = lab.recorder().await;
    let work = json!([{"tools": [bash("touch child.txt")]}, {"text": "worked"}]);
    start(&lab, &session, json!([{"tools": [background("touch caller.txt", work)]}, {"text": "begun"}])).await;
    let ask = asked(&mut events).await;
    assert_ne!(ask.session_id, session);
    lab.restart().await;
    let mut events = lab.recorder().await;
    lab.engine.recover(None).await.unwrap();
    answer(&lab, &ask, PermissionReplyKind::Once).await;
    let report = asked(&mut events).await;
    assert_eq!(report.session_id, session, "the caller asks when it is woken");
    assert!(lab.gate("child.txt").exists() && !lab.gate("caller.txt").exists());
    answer(&lab, &report, PermissionReplyKind::Once).await;
    events.wait_idle(&session).await;
    assert!(lab.gate("caller.txt").exists());
    lab.engine.shutdown().await;
}

#[tokio::test]
async fn prompts_that_join_a_turn_bring_their_rules_and_the_strictest_win() {
    for (first, second) in [("ask", "allow"), ("allow", "ask")] {
        let lab = Lab::with(json!({"permission": {"bash": first}}));
        let session = lab.session().await;
        let mut events = lab.recorder().await;
        let (gate, joined) = (lab.gate("gate"), lab.gate("made.txt"));
        start(&lab, &session, json!([{"after": gate, "text": "first"}])).await;
        configure(&lab.project, &json!({"permission": {"bash": second}}));
        lab.engine.reload(&lab.scope);
        let steps = json!([{"tools": [bash("touch made.txt")]}, {"text": "end"}]);
        start(&lab, &session, steps).await;
        lab.project.write("gate", "");
        assert!(next_ask(&mut events, &session).await.is_some(), "{first}, then {second}");
        assert!(!joined.exists());
        lab.engine.shutdown().await;
    }
}

/// What happened to a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CommandOutcome {
    Ran,
    Asked,
    Denied,
}

/// The steps of a worker that runs one command.
fn work() -> Value {
    json!([{"tools": [bash("touch made.txt")]}, {"text": "worked"}])
}

/// Sends a prompt and returns what happened to the command in it or below it. `turns`: how often the session becomes
/// idle.
async fn command_outcome(lab: &Lab, session: &SessionId, input: PromptInput, turns: usize) -> CommandOutcome {
    let made = lab.gate("made.txt");
    let _ = std::fs::remove_file(&made);
    let mut events = lab.recorder().await;
    lab.engine.prompt_async(session, input).await.unwrap();
    let mut asked = false;
    for _ in 0..turns {
        while let Some(ask) = next_ask(&mut events, session).await {
            asked = true;
            assert!(!made.exists());
            answer(lab, &ask, PermissionReplyKind::Reject).await;
        }
    }
    match (asked, made.exists()) {
        (true, false) => CommandOutcome::Asked,
        (false, true) => CommandOutcome::Ran,
        (false, false) => CommandOutcome::Denied,
        (true, true) => panic!("it ran although the rules ask for it"),
    }
}

fn by(agent: &str, text: &str) -> PromptInput {
    PromptInput { agent: Some(agent.to_owned()), ..prompt(text) }
}

fn calls(call: Value) -> String {
    script(json!([{"tools": [call]}, {"text": "told"}]))
}

/// The ways to create a child session.
#[derive(Debug, Clone, Copy)]
enum ChildKind {
    Task,
    Background,
    Grandchild,
    TaskId,
    Direct,
    Loosened,
    Fork,
    ForkOfFork,
    Subtask,
    Command,
    ClientChild,
    Forgotten,
}

const CHILD_KINDS: [ChildKind; 12] = [
    ChildKind::Task,
    ChildKind::Background,
    ChildKind::Grandchild,
    ChildKind::TaskId,
    ChildKind::Direct,
    ChildKind::Loosened,
    ChildKind::Fork,
    ChildKind::ForkOfFork,
    ChildKind::Subtask,
    ChildKind::Command,
    ChildKind::ClientChild,
    ChildKind::Forgotten,
];

fn everything() -> Vec<Rule> {
    vec![Rule::new("*", "*", Action::Allow)]
}

/// Runs a command below `session`, whose agent is `caller`.
async fn outcome_in_child(lab: &Lab, way: ChildKind, session: &SessionId, caller: &str) -> CommandOutcome {
    let idle = calls(task("Rest", "worker", json!([{"text": "rested"}])));
    let resting = async || {
        assert_eq!(command_outcome(lab, session, by(caller, &idle), 1).await, CommandOutcome::Denied);
        only_child(lab, session).await.id
    };
    match way {
        ChildKind::Task => command_outcome(lab, session, by(caller, &calls(task("Do", "worker", work()))), 1).await,
        ChildKind::Background => {
            let mut call = background("Do", work());
            call[1]["subagent_type"] = json!("worker");
            command_outcome(lab, session, by(caller, &calls(call)), 2).await
        }
        ChildKind::Grandchild => {
            let below = json!([{"tools": [task("Do", "worker", work())]}, {"text": "."}]);
            command_outcome(lab, session, by(caller, &calls(task("Lead", "lead", below))), 1).await
        }
        ChildKind::TaskId => {
            // The child belongs to another agent of the same session.
            assert_eq!(command_outcome(lab, session, by("free", &idle), 1).await, CommandOutcome::Denied);
            let mut call = task("Do", "worker", work());
            call[1]["task_id"] = json!(only_child(lab, session).await.id);
            command_outcome(lab, session, by(caller, &calls(call)), 1).await
        }
        ChildKind::Direct => command_outcome(lab, &resting().await, by("free", &script(work())), 1).await,
        ChildKind::Loosened => {
            let child = resting().await;
            let change = UpdateSession { permission: Some(everything()), ..UpdateSession::default() };
            lab.engine.update_session(&child, change).await.unwrap();
            let tools = IndexMap::from([("bash".to_owned(), true)]);
            command_outcome(lab, &child, PromptInput { tools: Some(tools), ..by("free", &script(work())) }, 1).await
        }
        ChildKind::Fork | ChildKind::ForkOfFork => {
            let mut copy = lab.engine.fork_session(&resting().await, None).await.unwrap();
            if matches!(way, ChildKind::ForkOfFork) {
                copy = lab.engine.fork_session(&copy.id, None).await.unwrap();
            }
            assert_eq!(copy.parent_id, None);
            command_outcome(lab, &copy.id, by("free", &script(work())), 1).await
        }
        ChildKind::Subtask => {
            let part = PromptPart::Subtask {
                id: None,
                prompt: script(work()),
                description: "Do".to_owned(),
                agent: "worker".to_owned(),
                model: None,
                command: None,
            };
            command_outcome(lab, session, PromptInput { parts: vec![part], ..by(caller, "") }, 1).await
        }
        ChildKind::Command => {
            let change = UpdateSession { agent: Some(caller.to_owned()), ..UpdateSession::default() };
            lab.engine.update_session(session, change).await.unwrap();
            let made = lab.gate("made.txt");
            let mut events = lab.recorder().await;
            let input = CommandInput { command: "go".to_owned(), arguments: script(work()), ..CommandInput::default() };
            let (engine, id) = (lab.engine.clone(), session.clone());
            let run = tokio::spawn(async move { engine.command(&id, input).await });
            let mut asked = false;
            while let Some(ask) = next_ask(&mut events, session).await {
                asked = true;
                answer(lab, &ask, PermissionReplyKind::Reject).await;
            }
            run.await.unwrap().unwrap();
            match (asked, made.exists()) {
                (true, false) => CommandOutcome::Asked,
                (false, ran) => [CommandOutcome::Denied, CommandOutcome::Ran][usize::from(ran)],
                (true, true) => panic!("it ran although the rules ask for it"),
            }
        }
        ChildKind::ClientChild => {
            resting().await;
            let input = CreateSession {
                parent_id: Some(session.clone()),
                permission: Some(everything()),
                ..CreateSession::default()
            };
            let child = lab.engine.create_session(&lab.scope, input).await.unwrap().id;
            command_outcome(lab, &child, by("free", &script(work())), 1).await
        }
        ChildKind::Forgotten => {
            // Like a session from before these rules were stored.
            let child = resting().await;
            set_constraints(&lab.project, &child, None);
            command_outcome(lab, &child, by("free", &script(work())), 1).await
        }
    }
}

/// Agents that may do everything, and one with these rules.
fn family(rules: &Value) -> Value {
    let all = json!({"*": "allow", "task": "allow", "bash": "allow"});
    json!({
        "subagent_depth": 3,
        "command": {"go": {"template": "$ARGUMENTS", "description": "d", "agent": "worker", "subtask": true}},
        "agent": {
            "worker": {"mode": "all", "permission": all}, "lead": {"mode": "subagent", "permission": all},
            "free": {"mode": "primary", "permission": all}, "bound": {"mode": "primary", "permission": rules}
        }
    })
}

#[tokio::test]
async fn no_subagent_may_do_what_the_agent_of_its_caller_may_not() {
    for way in CHILD_KINDS {
        for (rules, want) in [
            (json!({"bash": "deny"}), CommandOutcome::Denied),
            (json!({"bash": {"*": "allow", "touch *": "deny"}}), CommandOutcome::Denied),
            (json!({"bash": "ask"}), CommandOutcome::Asked),
            (json!({"bash": "allow"}), CommandOutcome::Ran),
        ] {
            let lab = Lab::with(family(&rules));
            let session = lab.session().await;
            assert_eq!(outcome_in_child(&lab, way, &session, "bound").await, want, "{way:?} with {rules}");
            lab.engine.shutdown().await;
        }
    }
}

#[tokio::test]
async fn no_subagent_may_do_what_the_session_of_its_caller_may_not() {
    for way in CHILD_KINDS {
        for (action, want) in [(Action::Deny, CommandOutcome::Denied), (Action::Ask, CommandOutcome::Asked)] {
            let lab = Lab::with(family(&json!({})));
            let rules = vec![Rule::new("bash", "*", action)];
            let input = CreateSession { permission: Some(rules), ..CreateSession::default() };
            let session = lab.engine.create_session(&lab.scope, input).await.unwrap().id;
            assert_eq!(outcome_in_child(&lab, way, &session, "bound").await, want, "{way:?} with {action:?}");
            lab.engine.shutdown().await;
        }
    }
}

#[tokio::test]
async fn a_tool_switched_off_by_a_prompt_is_off_for_its_subagents() {
    let lab = Lab::with(family(&json!({})));
    let session = lab.session().await;
    let tools = Some(IndexMap::from([("bash".to_owned(), false)]));
    let input = PromptInput { tools, ..by("free", &calls(task("Do", "worker", work()))) };
    assert_eq!(command_outcome(&lab, &session, input, 1).await, CommandOutcome::Denied);
    // A tool that is refused altogether is not offered.
    let child = only_child(&lab, &session).await.id;
    assert_eq!(lab.tools(&child).await[0].tool, "invalid");
}

/// Every tool is covered, not only commands.
#[tokio::test]
async fn every_permission_is_inherited() {
    let outside = |lab: &Lab| lab.project.home().join("made.txt");
    for (rules, call) in [
        (json!({"edit": "deny"}), json!(["write", {"filePath": "made.txt", "content": "x"}])),
        (json!({"edit": {"*": "allow", "*.txt": "deny"}}), json!(["write", {"filePath": "made.txt", "content": "x"}])),
        (json!({"external_directory": "deny"}), bash("touch ../home/made.txt")),
        (json!({"task": "deny"}), json!(["task", {"description": "d", "prompt": "x", "subagent_type": "general"}])),
        (json!({"read": "deny"}), json!(["read", {"filePath": "README.md"}])),
        (json!({"*": "deny", "task": "allow"}), json!(["read", {"filePath": "README.md"}])),
        (json!({"todowrite": "deny"}), json!(["todowrite", {"todos": []}])),
        (json!({"webfetch": "deny"}), json!(["webfetch", {"url": "http://127.0.0.1:9/", "format": "text"}])),
    ] {
        let lab = Lab::with(family(&rules));
        let root = lab.session().await;
        let session = if rules["task"] == "deny" {
            // Then only the user can make its caller delegate work.
            let part = PromptPart::Subtask {
                id: None,
                prompt: script(json!([{"tools": [call]}, {"text": "."}])),
                description: "Do".to_owned(),
                agent: "worker".to_owned(),
                model: None,
                command: None,
            };
            command_outcome(&lab, &root, PromptInput { parts: vec![part], ..by("bound", "") }, 1).await;
            only_child(&lab, &root).await.id
        } else {
            let steps = json!([{"tools": [call]}, {"text": "."}]);
            command_outcome(&lab, &root, by("bound", &calls(task("Do", "worker", steps))), 1).await;
            only_child(&lab, &root).await.id
        };
        let tool = lab.tools(&session).await.remove(0);
        let denied = match &tool.state {
            ToolState::Error(error) => error.error.contains("A rule denies this call"),
            ToolState::Completed(_) => tool.tool == "invalid",
            _ => false,
        };
        assert!(denied, "{rules}: {tool:#?}");
        assert!(!lab.gate("made.txt").exists() && !outside(&lab).exists(), "{rules}");
        lab.engine.shutdown().await;
    }
}

/// Technical denials of built-in agents do not restrict the agents they call.
#[tokio::test]
async fn technical_denials_bind_nobody() {
    let mut config = family(&json!({}));
    config["agent"]["general"] = json!({"permission": {"task": "allow"}});
    config["agent"]["worker"]["permission"]["todowrite"] = json!("allow");
    let lab = Lab::with(config);
    let session = lab.session().await;
    // `plan` may not edit, `general` has no todo list.
    let reads = json!([{"tools": [["read", {"filePath": "README.md"}], bash("true")]}, {"text": "."}]);
    lab.engine.prompt(&session, by("plan", &calls(task("Look", "explore", reads)))).await.unwrap();
    let looked = only_child(&lab, &session).await.id;
    let tools = lab.tools(&looked).await;
    assert!(tools.iter().all(|tool| matches!(&tool.state, ToolState::Completed(_)) && tool.tool != "invalid"));
    let session = lab.session().await;
    let todo = json!({"content": "a", "status": "pending", "priority": "high"});
    let lists = json!([{"tools": [["todowrite", {"todos": [todo]}]]}, {"text": "."}]);
    let below = json!([{"tools": [task("List", "worker", lists)]}, {"text": "."}]);
    lab.engine.prompt(&session, by("free", &calls(task("Do", "general", below)))).await.unwrap();
    let general = only_child(&lab, &session).await.id;
    let worker = only_child(&lab, &general).await.id;
    assert_eq!(lab.engine.todo(&worker).await.unwrap().len(), 1);
}

#[tokio::test]
async fn an_approval_for_the_caller_applies_to_its_subagents() {
    let lab = Lab::with(family(&json!({"bash": "ask"})));
    let session = lab.session().await;
    let mut events = lab.recorder().await;
    lab.engine.prompt_async(&session, by("bound", &script(work()))).await.unwrap();
    answer(&lab, &asked(&mut events).await, PermissionReplyKind::Always).await;
    events.wait_idle(&session).await;
    assert_eq!(
        command_outcome(&lab, &session, by("bound", &calls(task("Do", "worker", work()))), 1).await,
        CommandOutcome::Ran
    );
}

#[tokio::test]
async fn later_rules_of_the_caller_apply_at_the_next_prompt() {
    let lab = Lab::with(family(&json!({})));
    let session = lab.session().await;
    assert_eq!(
        command_outcome(&lab, &session, by("bound", &calls(task("Do", "worker", work()))), 1).await,
        CommandOutcome::Ran
    );
    let child = only_child(&lab, &session).await.id;
    configure(&lab.project, &family(&json!({"bash": "ask"})));
    lab.engine.reload(&lab.scope);
    assert_eq!(command_outcome(&lab, &child, by("free", &script(work())), 1).await, CommandOutcome::Asked);
    // The session's rules count too, and anything stricter at the time of the call stays.
    configure(&lab.project, &family(&json!({})));
    lab.engine.reload(&lab.scope);
    assert_eq!(command_outcome(&lab, &child, by("free", &script(work())), 1).await, CommandOutcome::Ran);
    let rules = vec![Rule::new("bash", "*", Action::Deny)];
    let change = UpdateSession { permission: Some(rules), ..UpdateSession::default() };
    lab.engine.update_session(&session, change).await.unwrap();
    assert_eq!(command_outcome(&lab, &child, by("free", &script(work())), 1).await, CommandOutcome::Denied);
}

#[tokio::test]
async fn unreadable_rules_ask_for_everything() {
    let lab = Lab::with(family(&json!({})));
    let session = lab.session().await;
    assert_eq!(
        command_outcome(&lab, &session, by("free", &calls(task("Do", "worker", work()))), 1).await,
        CommandOutcome::Ran
    );
    let child = only_child(&lab, &session).await.id;
    set_constraints(&lab.project, &child, Some(r#"{"careful": "?"}"#));
    assert_eq!(command_outcome(&lab, &child, by("free", &script(work())), 1).await, CommandOutcome::Asked);
}

/// Rules from clients lift asks, but no denials.
#[tokio::test]
async fn no_rule_of_a_client_lifts_a_denial_of_the_configuration() {
    for (configured, want) in [
        (json!({"bash": "deny"}), CommandOutcome::Denied),
        (json!({"bash": {"*": "allow", "touch *": "deny"}}), CommandOutcome::Denied),
        (json!({"*": "deny"}), CommandOutcome::Denied),
        (json!({"bash": "ask"}), CommandOutcome::Ran),
    ] {
        for (way, agent) in [("create", false), ("patch", false), ("tools", false), ("fork", false), ("create", true)] {
            let config = if agent { family(&configured) } else { json!({"permission": configured}) };
            let lab = Lab::with(config);
            let name = if agent { "bound" } else { "build" };
            let permission = (way == "create" || way == "fork").then(everything);
            let input = CreateSession { permission, ..CreateSession::default() };
            let mut session = lab.engine.create_session(&lab.scope, input).await.unwrap().id;
            let mut input = by(name, &script(work()));
            match way {
                "patch" => {
                    let change = UpdateSession { permission: Some(everything()), ..UpdateSession::default() };
                    lab.engine.update_session(&session, change).await.unwrap();
                }
                "tools" => input.tools = Some(IndexMap::from([("bash".to_owned(), true)])),
                "fork" => session = lab.engine.fork_session(&session, None).await.unwrap().id,
                _ => {}
            }
            // Switching a tool on undoes switching it off, and no more.
            let want = if way == "tools" && want == CommandOutcome::Ran { CommandOutcome::Asked } else { want };
            assert_eq!(command_outcome(&lab, &session, input, 1).await, want, "{way} on {configured}");
            lab.engine.shutdown().await;
        }
    }
}

#[tokio::test]
async fn a_mistyped_rule_makes_only_its_own_agent_ask() {
    let project = TempProject::new();
    configure(&project, &json!({"agent": {"typo": {"description": "d", "permissions": {"bash": "deny"}}}}));
    project.write_home(".config/opencode/agent/broken.md", "---\npermission: [\n---\nB");
    let (engine, scope) = (open(&project), api::Scope::new(project.directory()));
    let lab = Lab { project, engine, scope };
    for (agent, asks) in [("typo", true), ("broken", true), ("build", false)] {
        let session = lab.session().await;
        let mut events = lab.recorder().await;
        let steps = json!([{"tools": [bash("echo hi")]}, {"text": "done"}]);
        let input = PromptInput { agent: Some(agent.to_owned()), ..prompt(&script(steps)) };
        lab.engine.prompt_async(&session, input).await.unwrap();
        let ask = next_ask(&mut events, &session).await;
        assert_eq!(ask.is_some(), asks, "{agent}");
        if let Some(ask) = ask {
            answer(&lab, &ask, PermissionReplyKind::Reject).await;
        }
    }
}

#[tokio::test]
async fn the_home_directory_in_a_pattern_is_the_users() {
    let project = TempProject::new();
    let secret = project.write_home("x/secret.txt", "SECRET");
    let rules = json!({"external_directory": {"*": "allow", "~/x/*": "deny", "$HOME/y/*": "deny"}});
    configure(&project, &json!({"permission": rules}));
    let other = project.write_home("y/secret.txt", "SECRET");
    let free = project.write_home("z/free.txt", "FREE");
    let (engine, scope) = (open(&project), api::Scope::new(project.directory()));
    let lab = Lab { project, engine, scope };
    let session = lab.session().await;
    let read = |path: &PathBuf| json!({"tools": [["read", {"filePath": path}]]});
    lab.say(&session, &script(json!([read(&secret), read(&other), read(&free), {"text": "done"}]))).await;
    let states: Vec<bool> =
        lab.tools(&session).await.iter().map(|tool| matches!(tool.state, ToolState::Completed(_))).collect();
    assert_eq!(states, [false, false, true]);
}
