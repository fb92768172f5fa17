//! The `question` tool: asks the human. The engine asks; the tool formats the answer.

use api::{Question, QuestionOption};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::files::write::object;
use crate::tool::context::{Answers, Context};
use crate::tool::{Effect, Need, Output, ToolError, TypedTool};

/// Asks the human questions and waits for the answers.
///
/// Use it when a decision is theirs and the code cannot tell. Offer distinct choices, the recommended one first; the
/// human can always type another answer, so add no choice for it.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Input {
    /// The questions.
    questions: Vec<QuestionInput>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct QuestionInput {
    /// The whole question.
    question: String,
    /// The question in a word or two.
    header: String,
    /// What can be chosen.
    options: Vec<Choice>,
    /// Whether several can be chosen.
    multiple: Option<bool>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Choice {
    /// The choice in a few words.
    label: String,
    /// What it means.
    description: String,
}

pub(crate) struct AskQuestions;

impl TypedTool for AskQuestions {
    type Input = Input;
    const NAME: &'static str = "question";
    const EFFECT: Effect = Effect::ReadOnly;

    fn questions(&self, input: &Input) -> Option<Vec<Question>> {
        let option = |c: &Choice| QuestionOption { label: c.label.clone(), description: c.description.clone() };
        let question = |q: &QuestionInput| Question {
            question: q.question.clone(),
            header: q.header.clone(),
            options: q.options.iter().map(option).collect(),
            multiple: q.multiple,
            custom: None,
        };
        Some(input.questions.iter().map(question).collect())
    }

    async fn needs(&self, _: &Input, _: &Context) -> Result<Vec<Need>, ToolError> {
        Ok(Vec::new())
    }

    async fn run(&self, input: Input, ctx: Context) -> Result<Output, ToolError> {
        let answers = match ctx.answers {
            Some(Answers::Given(answers)) => answers,
            Some(Answers::Dismissed) => return Err(ToolError::failed("The user dismissed this question")),
            None => {
                return Err(ToolError::failed("Nobody is here to answer; decide yourself and say what you assumed."));
            }
        };
        let pair = |(index, asked): (usize, &QuestionInput)| {
            let answer = answers.get(index).filter(|a| !a.is_empty()).map_or("Unanswered".into(), |a| a.join(", "));
            format!("\"{}\"=\"{answer}\"", asked.question)
        };
        let pairs: Vec<String> = input.questions.iter().enumerate().map(pair).collect();
        let count = input.questions.len();
        Ok(Output {
            title: format!("Asked {count} question{}", if count == 1 { "" } else { "s" }),
            output: format!(
                "User has answered your questions: {}. You can now continue with the user's answers in mind.",
                pairs.join(", ")
            ),
            metadata: object(json!({"answers": answers, "truncated": false})),
            ..Output::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::erase;
    use crate::tool::registry::testing::Workspace;

    #[tokio::test]
    async fn output_matches_the_recording() {
        let ws = Workspace::new();
        let choices = json!([{"label": "Red", "description": "r"}, {"label": "Blue", "description": "b"}]);
        let input = json!({"questions": [
            {"question": "Which color?", "header": "Color", "options": choices, "multiple": false},
            {"question": "Pick many", "header": "Many", "options": choices, "multiple": true},
        ]});
        let tool = erase(AskQuestions);
        assert_eq!(serde_json::to_value(tool.questions(&input).unwrap()).unwrap(), input["questions"]);
        assert_eq!(tool.questions(&json!({})), None);
        let run = |answers: Option<Answers>| {
            let mut ctx = ws.context();
            ctx.answers = answers;
            tool.run(input.clone(), ctx)
        };
        let given = Answers::Given(vec![vec!["Blue".into()], vec!["Red".into(), "Blue".into()]]);
        let output = run(Some(given)).await.unwrap();
        let want = "User has answered your questions: \"Which color?\"=\"Blue\", \"Pick many\"=\"Red, Blue\". \
                    You can now continue with the user's answers in mind.";
        assert_eq!((output.title.as_str(), output.output.as_str()), ("Asked 2 questions", want));
        assert_eq!(output.metadata, object(json!({"answers": [["Blue"], ["Red", "Blue"]], "truncated": false})));
        assert_eq!(run(Some(Answers::Dismissed)).await.unwrap_err().to_string(), "The user dismissed this question");
        assert!(run(None).await.unwrap_err().to_string().contains("Nobody is here"));
        let short = run(Some(Answers::Given(vec![]))).await.unwrap();
        assert!(short.output.contains("\"Pick many\"=\"Unanswered\""));
    }
}
