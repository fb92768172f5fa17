//! How much a model call may use at most, and how much it used if nobody reports it.

use api::{MessageId, Model, SessionId, Tokens, Usd};
use llm::{Length, LlmEvent, Prompt, Usage};
use serde::{Deserialize, Serialize};
use serde_json::json;
use store::{Batch, Reservation, SessionChange, Store, StoreError};

use crate::project::models;

/// Typical bytes per token, used to estimate an interrupted call.
const BYTES_PER_TOKEN: u64 = 4;
/// The lowest average bytes per token of text and code, used for reservations.
const MIN_BYTES_PER_TOKEN: u64 = 2;
/// The approximate maximum number of tokens a vendor counts for an image.
const PICTURE_TOKENS: u64 = 2_000;
/// How long an answer may be, unless the configuration says otherwise; also the assumed maximum of a model whose limit
/// is unknown.
pub(crate) const DEFAULT_OUTPUT_TOKENS: u64 = 32_000;
/// Options by which a request limits its output.
const MAX_OUTPUT_OPTIONS: [&str; 6] =
    ["max_tokens", "max_completion_tokens", "max_output_tokens", "maxTokens", "maxCompletionTokens", "maxOutputTokens"];

/// The record namespace of reported usage that waits for the end of its step, by session.
pub(crate) const REPORTED: &str = "reported";

/// The usage a model reported for a message. The ledger gets it at once, the message when its step ends: tool calls may
/// take hours.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ReportedUsage {
    message: MessageId,
    pub(crate) cost: Usd,
    pub(crate) tokens: Tokens,
}

impl ReportedUsage {
    /// Stores it for the process that resumes the turn, should this one die.
    pub(crate) fn store(batch: &mut Batch, session: &SessionId, message: &MessageId, used: &api::Usage) {
        let reported = Self { message: message.clone(), cost: used.cost, tokens: used.tokens.clone() };
        batch.record(REPORTED, session.as_str(), Some(&json!(reported)), None);
    }

    /// The stored usage of a message, if its model had reported any.
    pub(crate) fn of(store: &Store, session: &SessionId, message: &MessageId) -> Result<Option<Self>, StoreError> {
        let reported =
            store.record(REPORTED, session.as_str())?.and_then(|record| Self::deserialize(record.value).ok());
        Ok(reported.filter(|reported| reported.message == *message))
    }

    /// Adds it to the session's totals and removes the record.
    pub(crate) fn settle(self, batch: &mut Batch, session: &SessionId) {
        batch.record(REPORTED, session.as_str(), None, None);
        charge(batch, session, self.cost, self.tokens);
    }
}

/// Adds the usage of a step to the totals shown for its session.
pub(crate) fn charge(batch: &mut Batch, session: &SessionId, cost: Usd, tokens: Tokens) {
    batch.change_session(session, SessionChange { is_activity: true, ..SessionChange::usage(cost, tokens) });
}

/// The estimated tokens of a text.
pub(crate) fn tokens(bytes: usize) -> u64 {
    (bytes as u64).div_ceil(BYTES_PER_TOKEN)
}

/// The reservation for a model call.
pub(crate) fn reservation(id: &str, session: &SessionId, steps: u64, prompt: &Prompt, model: &Model) -> Reservation {
    let (bytes, pictures) = measure(prompt);
    let options = MAX_OUTPUT_OPTIONS.iter().filter_map(|name| prompt.settings.options.get(*name)?.as_u64());
    let answer = options.max().or(prompt.settings.max_output).unwrap_or(DEFAULT_OUTPUT_TOKENS);
    let (likely, most) = (tokens(bytes) + pictures, (bytes as u64).div_ceil(MIN_BYTES_PER_TOKEN) + pictures);
    let cost =
        |input: u64, price: f64, output: u64| Usd((input as f64 * price + output as f64 * model.cost.output.0) / 1e6);
    let cache = &model.cost.cache;
    let dearest = model.cost.input.0.max(cache.read.0).max(cache.write.0);
    Reservation {
        id: id.to_owned(),
        session: session.clone(),
        steps,
        prompt: likely,
        prompt_cost: cost(likely, model.cost.input.0, 0),
        output_price: model.cost.output,
        max_tokens: most + answer,
        max_cost: cost(most, dearest, answer),
    }
}

/// The usage seen in one attempt's stream.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StreamUsage {
    /// The bytes the model has sent; `None` if it did not answer at all.
    pub(crate) bytes: Option<usize>,
    /// The usage it reported.
    pub(crate) usage: Option<Usage>,
}

impl StreamUsage {
    /// Records an event.
    pub(crate) fn record(&mut self, event: &LlmEvent) {
        *self.bytes.get_or_insert_default() += match event {
            LlmEvent::Text(delta) | LlmEvent::Reasoning(delta) | LlmEvent::ToolInput { delta, .. } => delta.len(),
            // Encrypted reasoning was paid for as well.
            LlmEvent::Begin { .. } | LlmEvent::End { .. } => event.size(),
            _ => 0,
        };
        if let LlmEvent::Usage(usage) = event {
            self.usage = Some(*usage);
        }
    }

    /// The usage of the attempt: as the model reported it, otherwise estimated. A refused attempt used nothing.
    pub(crate) fn used(&self, call: &Reservation, model: &Model, failed: bool) -> api::Usage {
        match (&self.usage, self.bytes) {
            (Some(usage), _) => api::Usage {
                cost: models::cost(model, usage),
                tokens: models::tokens(usage),
                steps: call.steps,
                ..api::Usage::default()
            },
            (None, None) if failed => api::Usage::default(),
            (None, bytes) => call.estimate(tokens(bytes.unwrap_or(0))),
        }
    }
}

/// The bytes of a prompt's text, and the tokens of its images.
fn measure(prompt: &Prompt) -> (usize, u64) {
    let mut length = Length { text: prompt.system.iter().map(String::len).sum(), ..Length::default() };
    prompt.messages.iter().for_each(|said| length += said.length());
    let tools = prompt.tools.iter();
    let tools: usize = tools.map(|tool| tool.name.len() + tool.description.len() + tool.schema.text().len()).sum();
    (length.text + tools, length.pictures as u64 * PICTURE_TOKENS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use llm::{Content, PromptMessage};

    fn model() -> Model {
        let mut model = Model::default();
        model.cost.input = Usd(2.0);
        model.cost.output = Usd(10.0);
        model.cost.cache.write = Usd(4.0);
        model
    }

    fn prompt(text: &str) -> Prompt {
        let messages = vec![PromptMessage::User(vec![Content::Text(text.to_owned())]).into()];
        Prompt { messages, ..Prompt::default() }
    }

    #[test]
    fn the_reserved_maximum_exceeds_the_estimate() {
        let session = SessionId::new();
        let mut asked = prompt(&"x".repeat(4000));
        asked.settings.max_output = Some(1000);
        let call = reservation("a", &session, 1, &asked, &model());
        assert_eq!((call.prompt, call.max_tokens), (1000, 2000 + 1000));
        assert_eq!(call.prompt_cost, Usd(0.002));
        assert_eq!(call.max_cost, Usd(0.018), "the most expensive kind of input, and the longest answer");
        let cut = call.estimate(100);
        assert_eq!((cut.tokens.input, cut.tokens.output, cut.estimated_tokens), (1000, 100, 1100));
        assert_eq!((cut.cost, cut.estimated_cost, cut.estimated_steps), (Usd(0.003), Usd(0.003), 1));
    }

    #[test]
    fn reported_usage_wins_over_an_estimate() {
        let call = reservation("a", &SessionId::new(), 1, &prompt(&"x".repeat(400)), &model());
        let mut usage = StreamUsage::default();
        assert_eq!(usage.used(&call, &model(), true), api::Usage::default(), "refused");
        assert_eq!(usage.used(&call, &model(), false), call.estimate(0), "stopped before it answered");
        usage.record(&LlmEvent::Text("12345".to_owned()));
        usage.record(&LlmEvent::ToolInput { index: 0, delta: "678".to_owned() });
        assert_eq!(usage.used(&call, &model(), true), call.estimate(2), "broken off");
        usage.record(&LlmEvent::Usage(Usage { input: 7, output: 1, ..Usage::default() }));
        let used = usage.used(&call, &model(), true);
        assert_eq!((used.tokens.input, used.tokens.output, used.steps, used.estimated_steps), (7, 1, 1, 0));
        assert_eq!(used.cost, Usd(0.000024));
    }

    #[test]
    fn output_limits_and_images_count() {
        let session = SessionId::new();
        let mut asked = prompt("");
        assert_eq!(reservation("a", &session, 1, &asked, &model()).max_tokens, DEFAULT_OUTPUT_TOKENS);
        asked.settings.max_output = Some(10);
        asked.settings.options.insert("max_completion_tokens".to_owned(), 50.into());
        assert_eq!(reservation("a", &session, 1, &asked, &model()).max_tokens, 50);
        let image = Content::Image { mime: "image/png".to_owned(), filename: None, data_url: "x".repeat(1 << 20) };
        asked.messages.push(PromptMessage::User(vec![image]).into());
        assert_eq!(reservation("a", &session, 1, &asked, &model()).max_tokens, 50 + PICTURE_TOKENS);
    }
}
