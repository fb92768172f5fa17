//! Titles: a default at first, then one that the small model writes in parallel with the first turn.

use std::sync::Arc;
use std::time::Duration;

use api::{MessageId, ModelRef, Session, SessionId, Timestamp};
use futures::StreamExt;
use llm::{Content, LlmEvent, Prompt, PromptMessage, Settings};
use store::{Batch, Retitle, SessionChange};

use crate::Inner;
use crate::project::instance::Instance;
use crate::project::models::ModelTarget;
use crate::spending::ledger::{self, StreamUsage};
use crate::turn::prompt::session_headers;

const ROOT_PREFIX: &str = "New session - ";
const CHILD_PREFIX: &str = "Child session - ";
/// The maximum length of a title.
const LENGTH_MAX: usize = 100;
/// The record namespace of the usage of titles, by session.
pub(crate) const TITLING: &str = "titling";
/// The number of steps a title call counts as: it is not a step of the agent.
pub(crate) const STEPS: u64 = 0;
/// How much of the prompt the title is made from.
const PROMPT_CHARS_MAX: usize = 4_000;
/// How many bytes the model may send for a title, including reasoning.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// A title that takes longer is not worth waiting for.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The default title of a session.
pub(crate) fn initial(child: bool, created: Timestamp) -> String {
    let time = chrono::DateTime::from_timestamp_millis(created).unwrap_or_default();
    format!("{}{}", if child { CHILD_PREFIX } else { ROOT_PREFIX }, time.format("%Y-%m-%dT%H:%M:%S%.3fZ"))
}

/// Whether the session still has its default title.
pub(crate) fn is_initial(title: &str) -> bool {
    let time = title.strip_prefix(ROOT_PREFIX).or_else(|| title.strip_prefix(CHILD_PREFIX));
    time.is_some_and(|time| chrono::DateTime::parse_from_rfc3339(time).is_ok())
}

/// Asks the small model for a title. A failure does no harm: the next turn tries again. Neither does an exhausted
/// budget: the turn itself matters more.
pub(crate) fn generate(inner: &Arc<Inner>, instance: Arc<Instance>, session: &Session, text: String, used: ModelRef) {
    let turns = &inner.turns;
    let (inner, session, initial) = (inner.clone(), session.id.clone(), session.title.clone());
    let work = async move {
        let Ok(target) = inner.resolve(&instance, &inner.small_model(&instance, &used)) else { return };
        let Some(prompt) = prompt(&instance, &target, &session, &text) else { return };
        let call = ledger::reservation(MessageId::new().as_str(), &session, STEPS, &prompt, &target.model);
        let mut batch = Batch::new(&instance.place);
        batch.reserve(&call);
        match inner.store.commit(batch).await {
            Ok(committed) if committed.budget_exceeded.is_none() => {}
            Ok(_) => return,
            Err(error) => return tracing::debug!(%session, %error, "no title"),
        }
        let mut usage = StreamUsage::default();
        let work = tokio::time::timeout(TIMEOUT, request_title(&inner, &target, &prompt, &mut usage));
        let title = inner.tasks.until_closing(work).await.and_then(Result::ok);
        let failed = matches!(title, Some(None));
        let mut batch = Batch::new(&instance.place);
        let used = usage.used(&call, &target.model, failed);
        batch.spend(&call.id, &used);
        record_usage(&inner, &mut batch, &session, &used);
        let retitle = title.flatten().map(|to| Retitle { from: initial, to });
        batch.change_session(&session, SessionChange { retitle, ..SessionChange::usage(used.cost, used.tokens) });
        if let Err(error) = inner.commit_with_retry(None, batch).await {
            tracing::debug!(%session, %error, "the title was not stored");
        }
        inner.spending.call_ended();
    };
    turns.spawn_title(work);
}

/// Adds the usage of a call to that of the session's title.
fn record_usage(inner: &Inner, batch: &mut Batch, session: &SessionId, used: &api::Usage) {
    let record = inner.store.record(TITLING, session.as_str()).ok().flatten();
    let mut sum: api::Usage = record.and_then(|record| serde_json::from_value(record.value).ok()).unwrap_or_default();
    sum += used;
    batch.record(TITLING, session.as_str(), Some(&serde_json::json!(sum)), None);
}

fn prompt(instance: &Instance, target: &ModelTarget, session: &SessionId, text: &str) -> Option<Prompt> {
    let agent = instance.agents.get("title")?;
    let text: String = text.chars().take(PROMPT_CHARS_MAX).collect();
    Some(Prompt {
        system: agent.prompt.iter().filter(|prompt| !prompt.is_empty()).cloned().collect(),
        messages: vec![
            PromptMessage::User(vec![
                Content::Text("Write a title for this conversation:".to_owned()),
                Content::Text(text),
            ])
            .into(),
        ],
        tools: Vec::new(),
        settings: Settings {
            temperature: agent.temperature.filter(|_| target.model.capabilities.temperature),
            // Only root sessions get a title.
            headers: session_headers(session, None),
            ..Settings::default()
        },
    })
}

async fn request_title(
    inner: &Inner,
    target: &ModelTarget,
    prompt: &Prompt,
    usage: &mut StreamUsage,
) -> Option<String> {
    let mut stream = inner.llm.stream(&target.endpoint, prompt);
    let mut answer = String::new();
    while let Some(event) = stream.next().await {
        match event {
            Ok(event) => {
                usage.record(&event);
                if let LlmEvent::Text(text) = event {
                    answer.push_str(&text);
                }
                if usage.bytes.is_some_and(|bytes| bytes > ANSWER_BYTES_MAX) {
                    // This is not a title. Close the stream, so that nobody pays for more of it.
                    break;
                }
            }
            Err(error) => {
                tracing::debug!(error = %error.message, "no title");
                return None;
            }
        }
    }
    clean_title(&answer)
}

/// The first line of the answer, without reasoning, quotes or control characters.
fn clean_title(answer: &str) -> Option<String> {
    let visible = answer.rsplit("</think>").next().unwrap_or_default();
    let line = visible.lines().map(str::trim).find(|line| !line.is_empty())?;
    let line = api::strip_control(line.trim_matches(['"', '\'', '`', '#', '*', ' '])).into_owned();
    let title: String = line.chars().take(LENGTH_MAX).collect();
    (!title.is_empty()).then_some(title)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn initial_titles_are_recognised() {
        assert_eq!(initial(false, 1_794_725_940_191), "New session - 2026-11-15T06:59:00.191Z");
        assert!(is_initial(&initial(false, 0)) && is_initial(&initial(true, 1_794_725_940_191)));
        assert!(!is_initial("New session - about cats") && !is_initial("Fix the parser"));
    }

    #[test]
    fn answers_are_cleaned() {
        assert_eq!(clean_title("<think>hm\nhm</think>\n\n\"Fix the parser\"\nmore").as_deref(), Some("Fix the parser"));
        assert_eq!(clean_title("  \n"), None);
        assert_eq!(clean_title(&"x".repeat(500)).map(|t| t.len()), Some(LENGTH_MAX));
    }
}
