//! Selects the step for a prompt. Pure.

use serde::Deserialize;

use super::{INLINE, Step, Turn};
use crate::Prompt;

/// How far into the system prompt a title or summary request is searched for.
const MARKER_WINDOW: usize = 600;
/// The maximum length of a title, in characters.
const MAX_TITLE: usize = 50;

/// A script's rules.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    #[serde(default)]
    rules: Vec<Rule>,
    #[serde(default)]
    default: Vec<Step>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    #[serde(default)]
    when: Condition,
    steps: Vec<Step>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Condition {
    text: Option<String>,
    glob: Option<String>,
    step: Option<usize>,
    message: Option<String>,
    model: Option<String>,
    system: Option<String>,
    tools: Option<bool>,
}

impl Rules {
    /// The step of the first matching rule; for a side request, only rules about the system prompt count.
    pub fn pick(&self, prompt: &Prompt, turn: &Turn<'_>, side_request: bool) -> Option<Step> {
        let rule = self
            .rules
            .iter()
            .find(|rule| (!side_request || rule.when.system.is_some()) && rule.when.holds(prompt, turn))?;
        // A rule for one step has its own list, which is counted from there.
        Some(Step::nth(&rule.steps, turn.step - rule.when.step.unwrap_or(0)))
    }

    /// The step if no rule matches.
    pub fn fallback(&self, turn: &Turn<'_>) -> Step {
        if self.default.is_empty() {
            return Step::say("No rule of the script matches this prompt.");
        }
        Step::nth(&self.default, turn.step)
    }

    /// All steps.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.rules.iter().flat_map(|rule| &rule.steps).chain(&self.default)
    }
}

impl Condition {
    fn holds(&self, prompt: &Prompt, turn: &Turn<'_>) -> bool {
        let texts = || turn.texts.iter().map(|text| text.to_lowercase());
        let system = || prompt.system.iter().map(|text| text.to_lowercase());
        self.text.as_ref().is_none_or(|part| texts().any(|text| text.contains(&part.to_lowercase())))
            && self.glob.as_ref().is_none_or(|glob| texts().any(|text| api::wildcard(&glob.to_lowercase(), &text)))
            && self.step.is_none_or(|step| step == turn.step)
            && self.message.as_ref().is_none_or(|id| turn.message_id == Some(id))
            && self.model.as_ref().is_none_or(|glob| {
                prompt
                    .settings
                    .model
                    .as_ref()
                    .is_some_and(|model| api::wildcard(&glob.to_lowercase(), &model.to_lowercase()))
            })
            && self.system.as_ref().is_none_or(|part| system().any(|text| text.contains(&part.to_lowercase())))
            && self.tools.is_none_or(|tools| tools != prompt.tools.is_empty())
    }
}

/// The answer to an engine's side request: a prompt without tools whose system prompt asks for a title or a summary.
pub fn side_request(prompt: &Prompt, turn: &Turn<'_>) -> Option<String> {
    if !prompt.tools.is_empty() {
        return None;
    }
    let system: String = prompt.system.join("\n").to_lowercase().chars().take(MARKER_WINDOW).collect();
    if system.contains("title") {
        return Some(title(turn));
    }
    let asks = system.contains("summar") || system.contains("compact");
    asks.then(|| format!("A conversation of {} messages, summarised by a script.", prompt.messages.len()))
}

/// The first words of the user's text.
fn title(turn: &Turn<'_>) -> String {
    let text = turn.texts.iter().rev().find(|text| !text.trim().is_empty()).copied().unwrap_or_default();
    // The engine's request line precedes the user's words.
    let text = match text.trim().split_once('\n') {
        Some((first, rest)) if first.trim_end().ends_with(':') => rest,
        _ => text,
    };
    if text.trim_start().starts_with(INLINE) {
        return "Scripted session".to_owned();
    }
    let mut title = String::new();
    for word in text.split_whitespace() {
        if !title.is_empty() && title.chars().count() + 1 + word.chars().count() > MAX_TITLE {
            break;
        }
        title.push_str(if title.is_empty() { "" } else { " " });
        title.extend(word.chars().take(MAX_TITLE));
    }
    if title.is_empty() { "Empty prompt".to_owned() } else { title }
}
