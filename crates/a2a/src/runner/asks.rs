//! What an agent asks its client: permissions and questions become asks of the session, and the answers go back, by the
//! extension for interrupts if the agent has it, else as a message to the task.

use std::sync::Arc;

use api::{
    Json, JsonMap, Question, QuestionOption, RunnerAnswers, RunnerCall, RunnerCallState, RunnerContext, RunnerDecision,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::progress::{cut, tool_name};
use crate::client::{ClientError, InterruptReply, Peer, request_id};
use crate::error::ErrorKind;

/// The most patterns of a permission that are shown, and questions of a request, and options of a question.
const MAX_ITEMS: usize = 32;
/// The longest text of an ask, in bytes.
const MAX_TEXT: usize = 8 << 10;
/// The longest heading of a question, in bytes.
const MAX_HEADER: usize = 30;

/// What an agent asks.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Ask {
    /// Whether it may do something.
    Permission,
    /// Questions.
    Questions(Vec<Question>),
    /// Something in its own words, which a message answers.
    Words(Vec<Question>),
}

/// A request of an agent, as a call of the session.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Request {
    /// The agent's id for it.
    pub id: String,
    pub ask: Ask,
    pub call: RunnerCall,
}

/// What became of a request.
pub(super) enum Outcome {
    /// The agent got the answer, or needs none any more.
    Settled(RunnerCall),
    /// The answer is to be sent as a message.
    Message(RunnerCall, String),
    /// Nobody answers, and the agent cannot go on without.
    Unanswered(RunnerCall, String),
    /// The answer did not reach the agent.
    Failed(ClientError),
    /// The request was withdrawn, or the job stops.
    Dropped,
}

impl Request {
    /// Reads `metadata.shared.interrupt`. `about` is what the agent says in plain words.
    pub fn of_interrupt(interrupt: &JsonMap, about: Option<&str>) -> Option<Self> {
        let id = request_id(interrupt);
        if id.is_empty() || id.len() > MAX_TEXT {
            return None;
        }
        let details = interrupt.get("details").cloned().unwrap_or_default();
        let (ask, tool, title, input) = match interrupt.get("type").and_then(Json::as_str) {
            Some("question") => {
                let questions = questions(&details["questions"]);
                let title = questions.first()?.question.clone();
                let input = JsonMap::from_iter([("questions".to_owned(), json!(questions))]);
                (Ask::Questions(questions), "question".to_owned(), title, input)
            }
            _ => {
                let tool = tool_name(details["permission"].as_str().unwrap_or_default());
                let patterns = details["patterns"].as_array().into_iter().flatten().filter_map(Json::as_str);
                let patterns: Vec<&str> = patterns.take(MAX_ITEMS).map(|text| cut(text, MAX_TEXT)).collect();
                let title = if patterns.is_empty() { about.unwrap_or(&tool).to_owned() } else { patterns.join(", ") };
                let input = input_of(&tool, &patterns);
                (Ask::Permission, tool, title, input)
            }
        };
        let title = cut(&title, MAX_TEXT).to_owned();
        Some(Self { id: id.to_owned(), ask, call: call(id, tool, title, input) })
    }

    /// A request in the agent's own words.
    pub fn of_words(id: &str, text: &str) -> Self {
        let question = Question {
            question: cut(text, MAX_TEXT).to_owned(),
            header: "The agent asks".to_owned(),
            options: Vec::new(),
            multiple: None,
            custom: Some(true),
        };
        let input = JsonMap::from_iter([("questions".to_owned(), json!([question]))]);
        let call = call(id, "question".to_owned(), question.question.clone(), input);
        Self { id: id.to_owned(), ask: Ask::Words(vec![question]), call }
    }

    /// Gets the request decided, and answers the agent where that takes no message.
    pub async fn settle(self, context: Arc<dyn RunnerContext>, peer: Peer, withdrawn: CancellationToken) -> Outcome {
        let Self { id, ask, call } = self;
        let ended = |state, output: &str| RunnerCall { state, output: output.to_owned(), ..call.clone() };
        let decision = async {
            match ask {
                Ask::Permission => Ok(context.ask(call.clone()).await),
                Ask::Questions(questions) => Err((false, context.question(call.clone(), questions).await)),
                Ask::Words(questions) => Err((true, context.question(call.clone(), questions).await)),
            }
        };
        let decision = tokio::select! {
            biased;
            () = withdrawn.cancelled() => return Outcome::Dropped,
            decision = decision => decision,
        };
        let (reply, text, call) = match decision {
            Ok(RunnerDecision::Stopped) | Err((_, RunnerAnswers::Stopped)) => return Outcome::Dropped,
            Ok(RunnerDecision::Allowed) => (
                InterruptReply::Permission { allow: true, message: None },
                "once".to_owned(),
                ended(RunnerCallState::Completed, "Allowed"),
            ),
            Ok(RunnerDecision::Rejected(why)) => (
                InterruptReply::Permission { allow: false, message: Some(why.clone()) },
                "reject".to_owned(),
                ended(RunnerCallState::Failed, &why),
            ),
            Err((in_words, RunnerAnswers::Given(answers))) => {
                let lines: Vec<String> = answers.iter().map(|labels| labels.join(", ")).collect();
                let text = lines.join("\n");
                let call = ended(RunnerCallState::Completed, &text);
                if in_words {
                    return Outcome::Message(call, text);
                }
                (InterruptReply::Answers(answers), text, call)
            }
            Err((true, RunnerAnswers::Dismissed(why))) => {
                return Outcome::Unanswered(ended(RunnerCallState::Failed, &why), why);
            }
            Err((false, RunnerAnswers::Dismissed(why))) => {
                (InterruptReply::Dismissed, "reject".to_owned(), ended(RunnerCallState::Failed, &why))
            }
        };
        match peer.reply_interrupt(&id, reply).await {
            Ok(true) => Outcome::Settled(call),
            Ok(false) => Outcome::Message(call, text),
            Err(error) if is_settled(&error) => Outcome::Settled(call),
            Err(error) => Outcome::Failed(error),
        }
    }
}

/// Whether somebody else has answered meanwhile, or the time for it is over.
fn is_settled(error: &ClientError) -> bool {
    let ClientError::Peer { error, .. } = error else { return false };
    matches!(error.kind, ErrorKind::InterruptNotFound | ErrorKind::InterruptExpired)
}

fn call(id: &str, tool: String, title: String, input: JsonMap) -> RunnerCall {
    RunnerCall {
        id: format!("ask:{}", api::sha256_hex(id.as_bytes())),
        tool,
        title,
        input,
        state: RunnerCallState::Running,
        ..RunnerCall::default()
    }
}

/// The arguments that our tool of the same kind takes, so that its rules decide.
fn input_of(tool: &str, patterns: &[&str]) -> JsonMap {
    let key = match tool {
        "bash" => "command",
        "read" | "edit" | "write" => "filePath",
        "webfetch" => "url",
        _ => {
            return JsonMap::from_iter([("patterns".to_owned(), json!(patterns))]);
        }
    };
    match patterns {
        [] => JsonMap::new(),
        // Each line is a command of its own. Of several files, the pattern names none.
        _ if key == "command" => JsonMap::from_iter([(key.to_owned(), patterns.join("\n").into())]),
        [only] => JsonMap::from_iter([(key.to_owned(), (*only).into())]),
        _ => JsonMap::from_iter([("patterns".to_owned(), json!(patterns))]),
    }
}

fn questions(value: &Json) -> Vec<Question> {
    let text = |value: &Json, key: &str, limit| cut(value[key].as_str().unwrap_or_default(), limit).to_owned();
    let option = |option: &Json| QuestionOption {
        label: text(option, "label", MAX_TEXT),
        description: text(option, "description", MAX_TEXT),
    };
    let question = |question: &Json| Question {
        question: text(question, "question", MAX_TEXT),
        header: text(question, "header", MAX_HEADER),
        options: question["options"].as_array().into_iter().flatten().take(MAX_ITEMS).map(option).collect(),
        multiple: question["multiple"].as_bool(),
        custom: question["custom"].as_bool(),
    };
    let asked = value.as_array().into_iter().flatten().take(MAX_ITEMS).map(question);
    asked.filter(|question| !question.question.is_empty()).collect()
}
