use std::sync::Mutex;

use api::Json;

use super::*;
use crate::tool::registry::testing::Workspace;

/// Answers with what the test says, and records what it is asked.
#[derive(Clone)]
struct Fake {
    asked: Arc<Mutex<Vec<AgentRequest>>>,
    answer: Result<AgentAnswer, ToolError>,
}

impl AgentClient for Fake {
    fn check(&self, url: &str) -> Result<String, String> {
        match url.strip_prefix("https://agent.example") {
            Some(path) => Ok(format!("https://agent.example/{}", path.trim_start_matches('/'))),
            None => Err(format!("{url} is not allowed")),
        }
    }

    fn call<'a>(
        &'a self,
        request: AgentRequest,
        so_far: &'a (dyn Fn(&str) + Send + Sync),
    ) -> BoxFuture<'a, Result<AgentAnswer, ToolError>> {
        self.asked.lock().unwrap().push(request);
        so_far("so far");
        let answer = self.answer.clone();
        Box::pin(async move { answer })
    }
}

fn answer(state: AgentState, text: &str, about: Option<&str>) -> AgentAnswer {
    let (task, context) = (Some("t1".to_owned()), Some("c1".to_owned()));
    AgentAnswer { text: text.to_owned(), state, about: about.map(str::to_owned), task, context, usage: None }
}

fn fake(answer: AgentAnswer) -> Fake {
    Fake { asked: Arc::default(), answer: Ok(answer) }
}

async fn run(fake: &Fake, input: Json) -> Result<Output, ToolError> {
    let workspace = Workspace::new();
    a2a_call(fake.clone()).run(input, workspace.context()).await
}

async fn needs(input: Json) -> Result<Vec<Need>, ToolError> {
    let workspace = Workspace::new();
    let tool = a2a_call(fake(answer(AgentState::Answered, "", None)));
    tool.needs(&input, &workspace.context()).await
}

#[tokio::test]
async fn a_call_needs_permission_for_its_url() {
    let need = needs(json!({"url": "https://agent.example/a", "message": "hi"})).await.unwrap().remove(0);
    assert_eq!(
        (need.permission.as_str(), need.patterns, need.always),
        ("a2a_call", vec!["https://agent.example/a".to_owned()], vec!["https://agent.example/*".to_owned()])
    );
    assert_eq!(Json::Object(need.metadata), json!({"url": "https://agent.example/a", "message": "hi"}));
    for (input, why) in [
        (json!({"url": "https://other.example", "message": "hi"}), "not allowed"),
        (json!({"url": "https://agent.example", "message": " "}), "neither a message nor a task"),
        (json!({"url": "https://agent.example", "message": "x".repeat(MAX_MESSAGE + 1)}), "longer than"),
        (json!({"url": "https://agent.example", "message": "hi", "task": "x".repeat(MAX_ID + 1)}), "not the id"),
    ] {
        let error = needs(input).await.unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    assert!(needs(json!({"url": "https://agent.example", "task": "t"})).await.is_ok());
}

#[tokio::test]
async fn the_result_says_how_to_go_on() {
    for (state, text, about, want) in [
        (AgentState::Answered, "ping from peer\nping", None, "ping from peer\nping\n\n(task t1, context c1)"),
        (AgentState::Answered, "", None, "without an answer.\n(task t1"),
        (AgentState::Working, "part", None, "part\n\nThe agent is still working."),
        (AgentState::Asks, "", Some("Which one?"), "The agent asks: Which one?\nCall again with `task`"),
    ] {
        let fake = fake(answer(state, text, about));
        let input = json!({"url": "https://agent.example", "message": "hi", "context": "c0", "timeout": 1e9});
        let output = run(&fake, input).await.unwrap();
        assert!(output.output.contains(want), "{}", output.output);
        assert_eq!(output.output.matches(NOTICE).count(), usize::from(!text.is_empty()));
        assert_eq!((&output.metadata["task"], &output.metadata["truncated"]), (&json!("t1"), &json!(false)));
        let asked = fake.asked.lock().unwrap().remove(0);
        assert_eq!((asked.context.as_deref(), asked.task, asked.wait), (Some("c0"), None, MAX_WAIT));
    }
}

#[tokio::test]
async fn a_task_that_failed_is_an_error() {
    let failed = fake(answer(AgentState::Failed, "half", Some("no disk")));
    let error = run(&failed, json!({"url": "https://agent.example", "message": "hi"})).await.unwrap_err();
    assert!(error.to_string().contains("half") && error.to_string().contains("did not finish its task: no disk"));
    let refused = Fake { asked: Arc::default(), answer: Err(ToolError::failed("refused")) };
    let error = run(&refused, json!({"url": "https://agent.example", "message": "hi"})).await.unwrap_err();
    assert_eq!(error, ToolError::failed("refused"));
}

#[tokio::test]
async fn a_long_answer_is_shortened_and_saved() {
    let long = fake(answer(AgentState::Answered, &"line\n".repeat(10_000), None));
    let output = run(&long, json!({"url": "https://agent.example", "message": "hi"})).await.unwrap();
    assert_eq!(output.metadata["truncated"], json!(true));
    assert!(output.output.len() < 60_000 && output.output.contains("context c1"), "{}", output.output.len());
}

#[test]
fn origins_of_urls() {
    for (url, want) in [
        ("https://a.example/", "https://a.example/*"),
        ("http://a.example:80/x/y?z", "http://a.example:80/*"),
        ("https://a.example?x", "https://a.example/*"),
    ] {
        assert_eq!(origin(url), want);
    }
}
