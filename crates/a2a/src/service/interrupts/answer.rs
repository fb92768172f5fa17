//! What the plain text of a follow-up message means. Nothing but the words that were named allows anything.

use api::{PermissionReply, PermissionReplyKind};

use super::Answer;
use super::text::{Question, questions_of};
use crate::records::{Interrupt, InterruptKind};

/// The answer that a text means. The error explains which texts count.
pub(in crate::service) fn parse_answer(interrupt: &Interrupt, text: &str) -> Result<Answer, String> {
    match interrupt.kind {
        InterruptKind::Permission => permission(text).map(Answer::Permission),
        InterruptKind::Question => {
            questions(&questions_of(&interrupt.details), text).map(|answers| Answer::Question(Some(answers)))
        }
    }
}

fn permission(text: &str) -> Result<PermissionReply, String> {
    let reply = match core(text).as_str() {
        "once" => PermissionReplyKind::Once,
        "always" => PermissionReplyKind::Always,
        "reject" => PermissionReplyKind::Reject,
        _ => {
            let what = "The agent waits for a permission, and the message neither gives nor refuses it";
            return Err(format!("{what}. Answer with one word: `once`, `always` or `reject`."));
        }
    };
    Ok(PermissionReply { reply, message: None })
}

fn questions(questions: &[Question<'_>], text: &str) -> Result<Vec<Vec<String>>, String> {
    if text.trim().is_empty() {
        return Err("The agent waits for an answer, and the message has no text.".to_owned());
    }
    let [first, rest @ ..] = questions else { return Ok(vec![vec![text.trim().to_owned()]]) };
    if rest.is_empty() {
        return Ok(vec![answer(first, text.trim())?]);
    }
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if lines.len() != questions.len() {
        return Err(format!(
            "The agent waits for answers to {} questions, and the message has {} lines. Answer with one line for each \
             question, in their order.",
            questions.len(),
            lines.len()
        ));
    }
    let answer_line = |(index, (question, line)): (usize, (&Question<'_>, &&str))| {
        let number = index + 1;
        answer(question, without_number(line, number)).map_err(|problem| format!("Question {number}: {problem}"))
    };
    questions.iter().zip(&lines).enumerate().map(answer_line).collect()
}

/// A line without the number of its question, if it begins with that.
fn without_number(line: &str, number: usize) -> &str {
    let rest = line.strip_prefix(&number.to_string()).and_then(|rest| rest.strip_prefix(['.', ')', ':']));
    rest.map(str::trim).filter(|rest| !rest.is_empty()).unwrap_or(line)
}

fn answer(question: &Question<'_>, text: &str) -> Result<Vec<String>, String> {
    if let Some(label) = label(question, text) {
        return Ok(vec![label.to_owned()]);
    }
    if question.multiple {
        let pieces = text.split([',', ';', '\n']).filter(|piece| !piece.trim().is_empty());
        let chosen: Option<Vec<&str>> = pieces.map(|piece| label(question, piece)).collect();
        if let Some(chosen) = chosen.filter(|chosen| !chosen.is_empty()) {
            let mut labels: Vec<String> = Vec::new();
            for label in chosen {
                if !labels.iter().any(|known| known == label) {
                    labels.push(label.to_owned());
                }
            }
            return Ok(labels);
        }
    }
    if question.custom {
        return Ok(vec![text.to_owned()]);
    }
    let (labels, how) = (question.labels(), question.how_to_answer());
    Err(format!("The answer is none of the options: {labels}. {how}"))
}

/// The label of an option that a text names, ignoring case and what is around it.
fn label<'a>(question: &Question<'a>, text: &str) -> Option<&'a str> {
    let labels = || question.options.iter().map(|(label, _)| *label);
    let same = |label: &&str| !core(label).is_empty() && core(label) == core(text);
    labels().find(|label| label.trim() == text.trim()).or_else(|| labels().find(same))
}

/// A text in lower case, without spaces and punctuation around it.
fn core(text: &str) -> String {
    text.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase()
}
